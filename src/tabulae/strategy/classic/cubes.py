"""Strategies that measure tables as they are: cells, the tables, whole marginals, Fourier coefficients of them.

Data cubes: measure some of the marginals so that the others, summed from them, have little noise at most. A marginal
summed from a measured one with r times as many cells adds up r noisy cells. With s marginals measured, each
pays for s, so its variance is ``r s^2`` (Laplace) or ``r s`` (Gaussian) in units of the noise of one alone. Which
marginals to measure so that the largest of these is least is a set cover problem for every bound on r and every s.

Fourier coefficients: the ones that the tables need, all with the same noise. An attribute of n merged categories has an
orthogonal basis F (n, n) of rows of norm sqrt(n), the first the total: Walsh-Hadamard, of entries +-1, where n is a
power of two; otherwise the real discrete Fourier transform, rounded to a grid. A table that crosses the attributes A
needs the coefficients ``(x)_{i in S} F_i[1:] (x)_{i not in S} 1'`` of all subsets S of A, and these groups have
independent rows: variances and estimates are in closed form (:mod:`..information.residual`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import scipy.linalg

from ...domain import Table, Workload
from ...errors import Unsupported
from ...linalg import Dense, Identity, Kron, LinearOperator, Partition, Total
from ..block import Block, crossing
from ..gram import lifted
from ..information.protocol import EXPLICIT
from ..information.residual_basis import MOST_SETS, Set, closure
from ..methods import MEASURED, Settings, register
from ..residual.planner import TOGETHER
from ..residual.search import crossed_sets
from ..strategy import Strategy


@register(
    "identity",
    "identity (every cell is counted)",
    families=("hdmm", "auto"),
    pays=lambda workload, settings: workload.domain.size <= MEASURED,
)
def identity_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Measure every cell of the domain once; every table is a sum of noisy cells."""
    query = Kron([Identity(n) for n in workload.domain.shape])
    return Strategy(workload.domain, (Block("identity", query),), settings.noise, "identity")


@register(
    "workload", "workload (the published queries themselves)", families=("auto",), turn=8, by_cells=True
)
def workload_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Measure the tables as they are asked, each with noise inverse to its weight.

    A table of weight w enters the measured matrix w times larger, that is with relative variance ``1/w^2``
    (Gaussian) or relative scale ``1/w`` (Laplace); overlapping tables are reconciled by least squares.
    """
    settings.check_terms(workload.merge()[0], 3.5e-5, "least squares over the tables as they are")
    blocks = tuple(_block(table, workload, settings) for table in workload.tables)
    return Strategy(workload.domain, blocks, settings.noise, "workload")


def _block(table: Table, workload: Workload, settings: Settings) -> Block:
    query = table.operator(workload.domain)
    if not query.integer:
        raise Unsupported(
            f"table {table.name!r} asks for real-valued combinations of counts, as squares of a value with an odd "
            'number of steps are: select = "workload" measures tables as they stand, with exact noise, and cannot. '
            'Choose select = "residual", or an even number of steps under [values]'
        )
    power = 2 if settings.noise == "gaussian" else 1
    return Block(table.name, query, 0, 1 / Fraction(table.weight) ** power)


_MARGINALS = 2048
"""Most marginals that are compared with each other."""

_INSTEAD = 'choose "marginals" or "residual", which plan for any tables'


@register("datacube", "DataCube BMAX (those marginals that keep the largest noise small)")
def data_cube_strategy(workload: Workload, settings: Settings) -> Strategy:
    """BMAX: marginals of a workload whose measurement keeps the largest noise of all of them small.

    Chosen greedily among the workload's own m, with ties to fewer. The largest noise, of cells summed from one measured
    marginal, is within ``(ln m + 1)^2`` of the least possible under Laplace noise, ``ln m + 1`` under Gaussian noise.
    All measured have equal noise, and least squares joins them, which lowers every variance further.

    The tables are unweighted marginals, one table each or one product of identities stacked on totals.

    Raises :class:`~tabulae.errors.Unsupported` for other tables, and more than 2,048 marginals.

    Reference: Ding, Winslett, Han, Li, "Differentially private data cubes: optimizing noise sources and consistency",
    SIGMOD 2011.
    """
    sets, sizes, merges = asked_marginals(workload)
    chosen = bound_max_variance(sets, sizes, settings.norm)
    return measured_marginals(workload, settings, [sets[k] for k in chosen], merges)


def bound_max_variance(sets: Sequence[Set], sizes: Sequence[int], p: int) -> list[int]:
    """Which of the marginals to measure, by position; ``sets`` stand with small marginals first.

    Every bound r that covers change at is tried with one greedy cover: its number s stands for all larger ones. No
    cover is smaller than the number of marginals that only they themselves answer, or than m over the most that one
    covers; bounds that are hopeless by that are passed over.
    """
    summed = summed_cells(sets, sizes)
    power = 2 if p == 1 else 1
    best, chosen = math.inf, list(range(len(sets)))
    for bound in np.unique(summed[np.isfinite(summed)]):
        covers = summed <= bound
        fewest = max(int((covers.sum(axis=0) == 1).sum()), math.ceil(len(sets) / covers.sum(axis=1).max()))
        if bound * fewest**power > best:
            continue
        found = greedy_cover(covers)
        noise = len(found) ** power * largest_sum(summed, found)
        if (noise, len(found)) < (best, len(chosen)):
            best, chosen = noise, found
    return chosen


def greedy_cover(covers: np.ndarray) -> list[int]:
    """Rows of a 0/1 matrix (m, m) that cover all columns: the row that covers most is next, the first of equals."""
    gains, left, chosen = covers.sum(axis=1), np.ones(covers.shape[1], dtype=bool), []
    while left.any():
        chosen.append(int(gains.argmax()))
        newly = covers[chosen[-1]] & left
        gains = gains - covers[:, newly].sum(axis=1)
        left &= ~newly
    return sorted(chosen)


def summed_cells(sets: Sequence[Set], sizes: Sequence[int]) -> np.ndarray:
    """How many cells of marginal a one of marginal b sums, (m, m); infinite where a does not answer b."""
    summed = np.ones((len(sets), len(sets)))
    for i, n in enumerate(sizes):
        crossed = np.array([i in s for s in sets])
        summed[np.ix_(crossed, ~crossed)] *= n
        summed[np.ix_(~crossed, crossed)] = np.inf
    return summed


def largest_sum(summed: np.ndarray, chosen: Sequence[int]) -> float:
    """The most cells that a marginal sums when each is taken from the measured one that is best for it."""
    return float(summed[list(chosen)].min(axis=0).max())


def measured_marginals(
    workload: Workload, settings: Settings, chosen: Sequence[Set], merges: Sequence[Partition]
) -> Strategy:
    """One block for each chosen set of attributes, all of equal noise."""
    names = workload.domain.names
    cells = [lifted(Identity(m.shape[0]), m) for m in merges]
    blocks = tuple(crossing(names, s, cells) for s in chosen)
    return Strategy(workload.domain, blocks, settings.noise, "datacube")


def asked_marginals(workload: Workload) -> tuple[list[Set], tuple[int, ...], tuple[Partition, ...]]:
    """The attributes of each marginal asked, those of few cells first; merged sizes; and how cells merge."""
    merged, merges = workload.merge()
    sizes = merged.domain.shape
    asked: dict[Set, None] = {}
    for table in merged.tables:
        options = _options(table, merged)
        count = math.prod(len(o) for o in options)
        if count + len(asked) > _MARGINALS:
            raise Unsupported(
                f'"datacube" compares marginals with each other and takes {_MARGINALS:,}; table {table.name!r} brings '
                f"them to {count + len(asked):,}: {_INSTEAD}"
            )
        asked.update(
            dict.fromkeys(tuple(i for i, c in enumerate(crossed) if c) for crossed in product(*options))
        )
    if len({table.weight for table in workload.tables}) > 1:
        raise Unsupported(
            f'"datacube" bounds the noise of marginals that matter alike, and these tables have weights: {_INSTEAD}'
        )
    sets = sorted(asked, key=lambda s: (math.prod(sizes[i] for i in s), len(s), s))
    return sets, sizes, merges


def _options(table: Table, merged: Workload) -> list[tuple[bool, ...]]:
    """For each attribute whether the table sums over it (False), has its cells (True), or both."""
    if len(table.terms) == 1 and table.terms[0].coefficient == 1:
        options = [_asks(factor) for factor in table.terms[0].over(merged.domain)]
        if all(options):
            return options
        wrong = merged.domain.names[options.index(())]
        what = f"asks something else of {wrong!r} than each of its categories and their total"
    else:
        what = "is a sum of products"
    raise Unsupported(f'"datacube" is for marginals, and table {table.name!r} {what}: {_INSTEAD}')


def _asks(factor: LinearOperator) -> tuple[bool, ...]:
    """() for a factor that is neither the cells, the total, nor those above each other."""
    n = factor.shape[1]
    if not factor.binary:
        return ()
    rows = np.asarray(factor @ np.ones(n, dtype=np.int64))
    totals, single = int((rows == n).sum()), int(((rows == 1) & (n > 1)).sum())
    if totals + single < len(rows) or single not in (0, n):
        return ()
    if single and (factor.column_norms(1) != totals + 1).any():
        return ()
    return (False,) * (totals > 0) + (True,) * (single > 0)


_FINEST, _COARSEST = 12, 3  # bits of the grid of an attribute whose entries are real


@register("fourier", "Fourier (the coefficients that the tables' attributes need)")
def fourier_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The Fourier strategy: each coefficient that some table needs, measured with equal noise.

    Tables other than marginals, as ranges, need every coefficient of the attributes that they cross. Of one attribute
    the whole basis is measured.

    Raises :class:`~tabulae.errors.Unsupported` for attributes of more than 4,096 merged categories, and for tables
    that cross too many sets of attributes, or too many attributes together whose coefficients are real.

    Reference: Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar, "Privacy, accuracy, and consistency too", PODS 2007.

    >>> import tabulae as tb
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 4, "race": 8}), ways=[1])
    >>> [(b.name, b.rows) for b in fourier_strategy(workload, Settings("laplace")).blocks]
    [('total', 1), ('sex', 1), ('age', 3), ('race', 7)]
    """
    merged, merges = workload.merge()
    sizes = merged.domain.shape
    if max(sizes) > EXPLICIT:
        widest = workload.domain.names[int(np.argmax(sizes))]
        raise Unsupported(
            f'"fourier" writes out a basis for each attribute and takes {EXPLICIT:,} categories that tables tell '
            f'apart; {widest!r} has {max(sizes):,}: choose "residual" or "identity"'
        )
    sets = _needed(workload)
    bits = _bits(sets, sizes)
    if sum(n > 1 for n in sizes) == 1:
        return Strategy(workload.domain, (_whole(merges, bits),), settings.noise, "fourier")
    bases = [
        Total(m.shape[1]) if n == 1 else lifted(_rest(n, bits), m) for n, m in zip(sizes, merges, strict=True)
    ]
    exponents = [0 if _is_power_of_two(n) else bits for n in sizes]
    names = workload.domain.names
    blocks = tuple(crossing(names, s, bases, sum(exponents[i] for i in s)) for s in sets)
    return Strategy(workload.domain, blocks, settings.noise, "fourier")


def fourier_basis(n: int) -> np.ndarray:
    """F (n, n): F F' = n I, the first row all ones."""
    if _is_power_of_two(n):
        return scipy.linalg.hadamard(n).astype(float)
    angles = 2 * np.pi * (np.outer(np.arange(1, (n + 1) // 2), np.arange(n)) % n) / n
    waves = np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1, n)
    middle = [(-1.0) ** np.arange(n)] if n % 2 == 0 else []
    return np.vstack([np.ones(n), waves, *middle])


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _needed(workload: Workload) -> tuple[Set, ...]:
    """All subsets of the sets of attributes that the tables' products cross."""
    try:
        return closure(crossed_sets(workload))
    except Unsupported:
        raise Unsupported(
            f"the tables need the Fourier coefficients of more than {MOST_SETS:,} sets of attributes: ask for tables "
            'that cross fewer attributes together, or choose "identity", "kron" or "union", which list no subsets'
        ) from None


def _bits(sets: Sequence[Set], sizes: Sequence[int]) -> int:
    """Bits of the grid of each real basis: those of the attributes that a group crosses add up."""
    together = max(sum(not _is_power_of_two(sizes[i]) for i in s) for s in sets)
    bits = min(_FINEST, TOGETHER // max(together, 1))
    if bits < _COARSEST:
        raise Unsupported(
            f"a table crosses {together} attributes whose numbers of categories are not powers of two, and their real "
            'coefficients do not fit 62-bit integers together: choose "residual" or "identity", whose matrices are '
            "integers"
        )
    return bits


def _rest(n: int, bits: int) -> LinearOperator:
    """F without the total: exact where entries are +-1, otherwise in steps of 2^-bits."""
    rest = fourier_basis(n)[1:]
    return Dense(
        rest.astype(np.int64) if _is_power_of_two(n) else np.rint(np.ldexp(rest, bits)).astype(np.int64)
    )


def _whole(merges: Sequence[Partition], bits: int) -> Block:
    """All coefficients of the one attribute that is told apart."""
    n = max(m.shape[0] for m in merges)
    exponent = 0 if _is_power_of_two(n) else bits
    basis = Dense(np.rint(np.ldexp(fourier_basis(n), exponent)).astype(np.int64))
    factors = [Total(m.shape[1]) if m.shape[0] == 1 else lifted(basis, m) for m in merges]
    return Block("fourier", Kron(factors), exponent)
