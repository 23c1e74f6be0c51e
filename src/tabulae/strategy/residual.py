"""The residual planner: every set of attributes that a table crosses is measured by what its subsets leave open.

For each attribute the tables decide a basis ``[1'; B_i]`` (:mod:`.residual_search`); for each set S of attributes that
some table crosses the group ``(x)_{i in S} B_i (x)_{i not in S} 1'`` is measured, with noise split in closed form
(:mod:`.residual_split`); and every table is a sum over its own subsets (:mod:`.residual_information`), so that nothing
of the size of the domain is formed. Where every cell is asked alike, as in marginals, B_i is the centring matrix and
the result is the optimum: its loss meets the SVD bound (HDMM, Theorem 12).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ..domain import Workload
from ..errors import InvalidArgument
from ..linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Product,
    Total,
)
from .bound import unit_bound
from .bounds import identity_and_ones
from .explicit_strategy import dense_grams, lifted
from .opt0_gaussian import opt0_gaussian
from .product_bound import product_bound
from .residual_basis import (
    Basis,
    basis_of,
    is_flat,
)
from .residual_information import set_shares
from .residual_rounding import Weights, share_grids
from .residual_search import (
    LEAST,
    ROOT,
    WIDEST,
    Asked,
    basis_traces,
    mixtures,
    search,
)
from .residual_sets import (
    Set,
    SetSums,
    closure,
)
from .residual_split import split
from .settings import Settings
from .strategy import Block, Strategy

_BOUND = 1e-6  # relative gap to which the bound is computed
_EXACT = 1e-13  # share of the error of a group that is only there by rounding


def residual_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The generalised residual planner: total squared error ``(sum_S sqrt(v_S))^2`` at unit budget.

    Exact for marginals, for one attribute and for one product; near the optimum for tables that ask the same of each
    attribute (prefix marginals), and an upper bound of it for tables that ask different things of one attribute.

    Raises :class:`~tabulae.errors.Unsupported` for tables that cross too many sets of attributes, or attributes of
    more distinguishable cells than a basis is searched for.
    """
    sets = closure(_crossed_sets(workload))
    merged, merges = workload.merge()
    asked = asked_of(merged, sets, settings)
    reals = search(asked, settings)
    grids = share_grids(reals, _weights(asked, reals, settings), sets, merged.domain.shape, settings.norm)
    factors: list[LinearOperator] = [
        lifted(Centring(merge.shape[0]) if grid is None else Dense(grid.matrix), merge)
        for grid, merge in zip(grids, merges, strict=True)
    ]
    exponents = [0 if grid is None else grid.exponent for grid in grids]
    names = workload.domain.names
    blocks = [
        Block(
            "*".join(names[i] for i in s) or "total",
            Kron([f if i in s else Total(f.shape[1]) for i, f in enumerate(factors)]),
            sum(exponents[i] for i in s),
        )
        for s in sets
    ]
    bases = [basis_of(f) if m.shape[0] > 1 else None for f, m in zip(factors, merges, strict=True)]
    blocks = _split_over(blocks, sets, bases, workload, settings)
    return Strategy(
        workload.domain, blocks, settings.noise, "residual", lower=_lower(merged, asked, settings)
    )


def asked_for(workload: Workload) -> Asked:
    """What a workload asks of each attribute under Gaussian noise, its cells merged and its closure listed."""
    return asked_of(workload.merge()[0], closure(_crossed_sets(workload)), Settings("gaussian"))


def planner_bound(workload: Workload) -> float | None:
    """The bound of :mod:`.product_bound`, None where no table is one product.

    Tables that are sums are left out: what is asked besides never lowers the loss.

    Raises :class:`~tabulae.errors.Unsupported` for tables that cross too many sets of attributes.
    """
    products = [table for table in workload.tables if len(table.terms) == 1]
    return product_bound(asked_for(Workload(workload.domain, products))) if products else None


def asked_of(merged: Workload, sets: tuple[Set, ...], settings: Settings) -> Asked:
    """What a workload over merged cells asks of each attribute, term by term of W'W."""
    terms = merged.gram_terms()
    coefficients = np.array([c for c, _ in terms])
    index = np.empty((len(terms), len(merged.domain.shape)), dtype=np.int64)
    crossed = np.empty(index.shape, dtype=bool)
    grams, closed = [], []
    for i, n in enumerate(merged.domain.shape):
        place: dict[LinearOperator, int] = {}
        index[:, i] = [place.setdefault(factors[i], len(place)) for _, factors in terms]
        alike = [_alike(gram) for gram in place]
        levels = np.array([a[0] if a is not None and a[0] == a[1] else np.nan for a in alike])
        crossed[:, i] = np.isnan(levels)[index[:, i]]
        coefficients *= np.nan_to_num(levels, nan=1.0)[index[:, i]]
        pairs = [_centred(n, *a, settings.norm) for a in alike if a is not None]
        closed.append(np.array(pairs) if len(pairs) == len(place) else np.zeros((len(place), 2)))
        grams.append(None if len(pairs) == len(place) else _symmetric(list(place)))
    mentions = tuple(tuple(np.flatnonzero(row).tolist()) for row in crossed)
    sums = SetSums(sets, mentions)
    asked = Asked(coefficients, index, tuple(grams), tuple(closed), sums, settings.neighbours == "replace")
    if not np.any(coefficients):
        raise InvalidArgument("the tables count no cell: leave out tables of nothing")
    return asked


def _crossed_sets(workload: Workload) -> list[Set]:
    """The attributes that each product of each table tells cells apart by."""
    return [
        tuple(i for i, f in enumerate(term.over(workload.domain)) if not is_flat(f))
        for table in workload.tables
        for term in table.terms
    ]


def _symmetric(grams: Sequence[LinearOperator]) -> np.ndarray:
    """Symmetric parts, (k, n, n)."""
    dense = np.array([np.asarray(gram.dense(), dtype=float) for gram in grams])
    return (dense + dense.transpose(0, 2, 1)) / 2


def _alike(gram: LinearOperator) -> tuple[float, float] | None:
    """(diagonal, beside it) of a Gram matrix a I + b J; None for any other."""
    if isinstance(gram, Identity):
        return (1.0, 0.0) if gram.n > 1 else (1.0, 1.0)
    if isinstance(gram, Product) and isinstance(gram.right, Total) and gram.left == gram.right.T:
        return 1.0, 1.0
    matrix = np.asarray(gram.dense(), dtype=float)
    return None if identity_and_ones(matrix) is None else (float(matrix[0, 0]), float(matrix[0, -1]))


def _centred(n: int, diagonal: float, beside: float, p: int) -> tuple[float, float]:
    """(beta, gamma) of such a Gram matrix under the centring matrix, its columns' norm made 1."""
    size2 = n * (n - 1) if p == 2 else 4 * (n - 1) ** 2
    return (diagonal - beside) * (n - 1) * size2 / n**2, (diagonal + (n - 1) * beside) / n


def _weights(asked: Asked, reals: Sequence[np.ndarray | None], settings: Settings) -> list[Weights | None]:
    """What rounding each basis is judged by: the slopes of the whole error at the real bases."""
    traces = [
        asked.closed[i] if basis is None else basis_traces(basis, asked.grams[i])  # type: ignore[arg-type]
        for i, basis in enumerate(reals)
    ]
    slopes = asked.slopes(traces, ROOT[settings.norm])
    return [
        None if grams is None else Weights(*mixtures(grams, slope))
        for slope, grams in zip(slopes, asked.grams, strict=True)
    ]


def _split_over(
    blocks: Sequence[Block],
    sets: Sequence[Set],
    bases: Sequence[Basis | None],
    workload: Workload,
    settings: Settings,
) -> tuple[Block, ...]:
    """The blocks with the scales that are best for their integer matrices."""
    error = set_shares(workload, bases, sets)
    if settings.invariants:  # what they fix is asked by no table, and its group is left out
        asked = error > _EXACT * error.max()
        sets = [s for s, is_asked in zip(sets, asked, strict=True) if is_asked]
        blocks = [b for b, is_asked in zip(blocks, asked, strict=True) if is_asked]
        error = error[asked]
    error = np.maximum(error, LEAST * error.max())
    p = settings.norm
    largest = [1.0 if b is None else float(b.operator.column_norms(p).max()) for b in bases]
    columns = np.array([math.prod(largest[i] for i in s) for s in sets])
    overlaps = None
    if settings.neighbours == "replace":
        overlaps = np.array([1.0 if b is None else b.overlap(p) for b in bases])
    scales = split(sets, error, columns, p, overlaps)
    return tuple(
        replace(block, scale=scale / Fraction(2) ** (p * block.exponent))
        for block, scale in zip(blocks, scales, strict=True)
    )


def _lower(merged: Workload, asked: Asked, settings: Settings) -> float | None:
    """The dual bound where residual groups meet it (one attribute, or tables that are one product together), or one
    with multipliers that are a product.

    Marginals need none: the SVD bound is theirs.
    """
    searched = [g.shape[1] for g in asked.grams if g is not None]
    if settings.noise != "gaussian" or settings.neighbours != "add-remove" or not searched:
        return None
    if sum(n > 1 for n in merged.domain.shape) == 1:
        return unit_bound(merged, "dual")
    factors = _as_product(merged) if max(merged.domain.shape) <= WIDEST else None
    if factors is None:
        return planner_bound(merged)
    return math.prod(opt0_gaussian(V, tolerance=_BOUND).lower for V in factors)


def _as_product(merged: Workload) -> list[np.ndarray] | None:
    """The factors of W'W where it is one Kronecker product; None elsewhere.

    A product of sums is spread over several tables where they ask for all combinations, as all marginals do.
    """
    terms = dense_grams(merged)
    place: list[dict[int, int]] = [{} for _ in merged.domain.shape]
    index = [
        tuple(at.setdefault(id(V), len(at)) for at, V in zip(place, grams, strict=True)) for _, grams in terms
    ]
    if math.prod(len(at) for at in place) != len(terms) or not all(c > 0 for c, _ in terms):
        return None
    weights = np.empty([len(at) for at in place])
    for position, (c, _) in zip(index, terms, strict=True):
        weights[position] = c
    matrices = [{at[id(V)]: V for _, grams in terms for V in [grams[i]]} for i, at in enumerate(place)]
    first = (0,) * weights.ndim
    factors, product = [], np.full((1,) * weights.ndim, weights[first])
    for i, some in enumerate(matrices):
        line = np.moveaxis(weights, i, -1)[first[1:]] / weights[first]
        product = product * line.reshape([-1 if j == i else 1 for j in range(weights.ndim)])
        factors.append(np.asarray(sum(w * some[k] for k, w in enumerate(line))))
    factors[0] = factors[0] * weights[first]
    return factors if np.allclose(product, weights, rtol=1e-12, atol=0) else None
