"""HDMM's OPT_0 and OPT_kron as strategies: optimise on merged cells, round to the grid, certify.

Cells that no table tells apart are merged first, attribute by attribute: nothing is lost (the optimum never
separates them) and the optimisers work on the smaller domain. The optimum on merged cells, a real matrix
A_i per attribute, becomes ``round(2^k A_i) M_i`` with M_i the 0/1 matrix that merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..domain import Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    Kron,
    Total,
)
from .explicit_strategy import (
    EXPLICIT_CELLS,
    GramTerms,
    dense_grams,
    explicit_gram,
    explicit_query,
    lifted,
)
from .opt0_gaussian import opt0_gaussian
from .opt_kron import (
    KnownFactors,
    KronOptimum,
    opt_kron,
)
from .p_identity import opt0_laplace
from .pair_dual import PAIR_CELLS, opt0_pairs
from .rounding import (
    FINEST,
    Rounded,
    gram_inverse,
    share_bits,
    to_grid,
)
from .row_strategy import row_strategy
from .strategy import Block, Strategy
from .symmetry import WIDEST, symmetry_pays

if TYPE_CHECKING:
    from .settings import Settings


def opt0_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_0: the best matrix for the workload as a whole, over merged cells.

    Gaussian noise: the convex optimum with a dual certificate, over cells, or over classes of cells or in the row
    space (:mod:`.row_strategy`) where those are fewer; under replace-one neighbours the optimum for pairs of cells
    (:mod:`.pair_dual`) where they can be listed. Laplace noise: the best p-Identity found.
    """
    merged, merges = workload.merge()
    if _pairs_count(settings) and merged.domain.size <= PAIR_CELLS:
        return _pair_strategy(workload, settings, "opt0")
    listed = merged.domain.size <= (EXPLICIT_CELLS if len(merges) > 1 else WIDEST)
    if settings.noise == "gaussian" and (not listed or symmetry_pays(merged)):
        found = row_strategy(workload, settings)
        return replace(found, lower=None) if _pairs_count(settings) else found
    if not listed:
        raise Unsupported(
            f"opt0 treats the workload as one matrix over {merged.domain.size:,} merged cells; under Laplace noise it "
            f'goes up to {EXPLICIT_CELLS:,} ({WIDEST:,} of one attribute). Choose "kron", which works attribute by '
            "attribute"
        )
    gram = explicit_gram(merged)
    lower = None
    if settings.noise == "gaussian":
        optimum = opt0_gaussian(gram, tolerance=settings.tolerance, time_limit=settings.remaining())
        matrix = optimum.strategy
        lower = None if _pairs_count(settings) else optimum.lower  # it is about columns, not about pairs
    else:
        options = {} if settings.restarts is None else {"restarts": settings.restarts}
        matrix = opt0_laplace(gram, seed=settings.seed, time_limit=settings.remaining(), **options).strategy
    rounded = to_grid(matrix, gram, settings.norm, FINEST)
    query = explicit_query(rounded, merges)
    block = Block("opt0", query, rounded.exponent)
    return Strategy(workload.domain, (block,), settings.noise, "opt0", lower=lower)


def _pairs_count(settings: Settings) -> bool:
    """Whether Gaussian noise is paid for pairs of cells, not for cells."""
    return settings.noise == "gaussian" and settings.neighbours == "replace"


def _pair_strategy(workload: Workload, settings: Settings, name: str) -> Strategy:
    """The optimum under replace-one neighbours on the finest grid; its last row is the total, nearly without noise."""
    merged, merges = workload.merge()
    optimum = opt0_pairs(explicit_gram(merged), tolerance=settings.tolerance, time_limit=settings.remaining())
    matrix = Dense(np.rint(np.ldexp(optimum.strategy, FINEST)).astype(np.int64))
    if sum(n > 1 for n in merged.domain.shape) == 1:
        query = Kron([lifted(matrix if m.shape[0] > 1 else Total(1), m) for m in merges])
    else:
        query = explicit_query(Rounded(matrix, FINEST, optimum.loss), merges)
    block = Block(name, query, FINEST)
    return Strategy(workload.domain, (block,), "gaussian", name, lower=optimum.lower)


def kron_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_kron: one Kronecker product, its factors optimised in turn on surrogate workloads (HDMM, eq. 5).

    Under replace-one neighbours factors are optimised as under add-remove, for which their sensitivities multiply;
    only where a single attribute tells cells apart is the optimum for pairs of its cells the product's too.
    """
    shape = workload.merge()[0].domain.shape
    if _pairs_count(settings) and sum(n > 1 for n in shape) == 1 and max(shape) <= PAIR_CELLS:
        rows_of(settings, workload.domain.names)
        return _pair_strategy(workload, settings, "kron")
    block, optimum = kron_block(workload, settings)
    lower = (
        optimum.lower if settings.neighbours == "add-remove" else None
    )  # it is about columns, not about pairs
    return Strategy(workload.domain, (block,), settings.noise, "kron", lower=lower)


def kron_block(
    workload: Workload,
    settings: Settings,
    *,
    name: str = "kron",
    known: KnownFactors | None = None,
    certify: bool = True,
) -> tuple[Block, KronOptimum]:
    """The product that :func:`kron_strategy` measures, on its grid, and the real optimum it was rounded from.

    ``known`` keeps what calls for other tables of the same workload have in common; without ``certify`` the
    optimum has no lower bound.
    """
    rows = rows_of(settings, workload.domain.names)
    merged, merges = workload.merge()
    widest = max(merged.domain.shape)
    if widest > WIDEST:
        raise Unsupported(
            f"attribute of {widest:,} distinguishable cells: kron optimises a dense matrix per attribute, up to "
            f"{WIDEST:,}"
        )
    terms = dense_grams(merged)
    options = {} if settings.restarts is None else {"restarts": settings.restarts}
    optimum = opt_kron(
        terms,
        settings.noise,
        tolerance=settings.tolerance,
        seed=settings.seed,
        rows=rows,
        time_limit=settings.remaining(),
        known=known,
        certify=certify,
        **options,
    )
    factors = _rounded_factors(optimum.factors, terms, settings.norm)
    query = Kron([lifted(r.matrix, m) for r, m in zip(factors, merges, strict=True)])
    return Block(name, query, sum(r.exponent for r in factors)), optimum


def rows_of(settings: Settings, names: Sequence[str]) -> tuple[int | None, ...]:
    """``settings.rows``, HDMM's p, for each attribute; None where the optimiser is free.

    Raises :class:`~tabulae.errors.InvalidArgument` under Gaussian noise, whose strategies are no p-Identity strategies.
    """
    if settings.rows is None:
        return (None,) * len(names)
    if settings.noise == "gaussian":
        raise InvalidArgument(
            "rows counts the rows of a p-Identity strategy, which is for Laplace noise; under Gaussian noise the "
            "optimum is found whole: leave rows out"
        )
    if isinstance(settings.rows, int):
        return (settings.rows,) * len(names)
    return tuple(settings.rows.get(name) for name in names)


def _rounded_factors(matrices: Sequence[np.ndarray], terms: GramTerms, p: int) -> list[Rounded]:
    """Each factor on a grid of its own, judged against the surrogate workload that the others leave it."""
    inverses = [_inverse(matrix) for matrix in matrices]
    known: dict[tuple[int, int], float] = {}
    for _, grams in terms:
        for i, v in enumerate(grams):
            known.setdefault((i, id(v)), float(np.vdot(inverses[i], v)))
    traces = np.array([[known[i, id(v)] for i, v in enumerate(grams)] for _, grams in terms])
    surrogates = []
    for i in range(len(matrices)):
        others = np.prod(np.delete(traces, i, axis=1), axis=1)
        surrogates.append(
            np.asarray(sum(c * o * grams[i] for (c, grams), o in zip(terms, others, strict=True)))
        )
    return share_bits(matrices, [(v + v.T) / 2 for v in surrogates], p)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """(A'A)^+, (n, n)."""
    inverse = gram_inverse(matrix)
    return np.linalg.pinv(matrix.T @ matrix, rcond=1e-12, hermitian=True) if inverse is None else inverse
