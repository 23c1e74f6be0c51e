"""Data cubes: measure some of the marginals so that the others, summed from them, have little noise at most.

A marginal summed from a measured one with r times as many cells adds up r noisy cells. With s marginals measured, each
pays for s, so its variance is ``r s^2`` (Laplace) or ``r s`` (Gaussian) in units of the noise of one alone. Which
marginals to measure so that the largest of these is least is a set cover problem for every bound on r and every s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ...domain import Table, Workload
from ...errors import Unsupported
from ...linalg import (
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Total,
)
from ..explicit_strategy import lifted
from ..residual_sets import Set
from ..strategy import Block, Strategy

if TYPE_CHECKING:
    from ..settings import Settings

_MARGINALS = 2048
"""Most marginals that are compared with each other."""

_INSTEAD = 'choose "marginals" or "residual", which plan for any tables'


def data_cube_strategy(workload: Workload, settings: Settings) -> Strategy:
    """BMAX: marginals of a workload whose measurement keeps the largest noise of all of them small.

    Chosen greedily among the workload's own m, with ties to fewer. The largest noise, of cells summed from one measured
    marginal, is within ``(ln m + 1)^2`` of the least possible under Laplace noise, ``ln m + 1`` under Gaussian noise.
    All measured have equal noise, and least squares joins them, which lowers every variance further.

    Arguments:
        workload: unweighted marginals, as one table each or as one product of identities stacked on totals;
            groups of categories count as categories where every table has the same groups.
        settings: noise is used.

    Raises :class:`~tabulae.errors.Unsupported` for other tables, and more than 2,048 marginals.

    Reference: Ding, Winslett, Han, Li, "Differentially private data cubes: optimizing noise sources and consistency",
    SIGMOD 2011.

    >>> import tabulae as tb
    >>> from tabulae.strategy.settings import Settings
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 50, "race": 3}), ways=[0, 1, 2])
    >>> [b.name for b in data_cube_strategy(workload, Settings("laplace")).blocks]
    ['sex', 'sex*race', 'sex*age', 'age*race']
    """
    sets, sizes, merges = _marginals(workload)
    chosen = bound_max_variance(sets, sizes, settings.norm)
    return _measured(workload, settings, [sets[k] for k in chosen], merges)


def covering_strategy(workload: Workload, settings: Settings, cells: int | None = None) -> Strategy:
    """Few of a workload's marginals such that each one sums at most ``cells`` cells of a measured one.

    One greedy cover, whatever its largest noise. With ``cells`` the number of marginals, the default, this is what the
    DataCube column of HDMM's Tables 6 and 7 shows.

    Arguments and errors are those of :func:`data_cube_strategy`.

    >>> import tabulae as tb
    >>> from tabulae.strategy.settings import Settings
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 50}), ways=[0, 1, 2])
    >>> [b.name for b in covering_strategy(workload, Settings("laplace"), cells=2).blocks]
    ['sex', 'sex*age']
    """
    sets, sizes, merges = _marginals(workload)
    summed = summed_cells(sets, sizes)
    chosen = greedy_cover(summed <= (len(sets) if cells is None else cells))
    return _measured(workload, settings, [sets[k] for k in chosen], merges)


def bound_max_variance(sets: Sequence[Set], sizes: Sequence[int], p: int) -> list[int]:
    """Which of the marginals to measure, by position; ``sets`` stand with small marginals first.

    Every bound r that covers change at is tried with one greedy cover: its number s stands for all larger ones. No
    cover is smaller than the number of marginals that only they themselves answer, or than m over the most that one
    covers; bounds that are hopeless by that are passed over.

    >>> bound_max_variance([(), (0,), (1,), (0, 1)], [2, 3], p=1)
    [3]
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
    """How many cells of marginal a one of marginal b sums, (m, m); infinite where a does not answer b.

    >>> summed_cells([(), (0,), (1,)], [2, 3]).tolist()
    [[1.0, inf, inf], [2.0, 1.0, inf], [3.0, inf, 1.0]]
    """
    summed = np.ones((len(sets), len(sets)))
    for i, n in enumerate(sizes):
        crossed = np.array([i in s for s in sets])
        summed[np.ix_(crossed, ~crossed)] *= n
        summed[np.ix_(~crossed, crossed)] = np.inf
    return summed


def largest_sum(summed: np.ndarray, chosen: Sequence[int]) -> float:
    """The most cells that a marginal sums when each is taken from the measured one that is best for it."""
    return float(summed[list(chosen)].min(axis=0).max())


def _measured(
    workload: Workload, settings: Settings, chosen: Sequence[Set], merges: Sequence[Partition]
) -> Strategy:
    names = workload.domain.names
    cells = [lifted(Identity(m.shape[0]), m) for m in merges]
    blocks = tuple(
        Block(
            "*".join(names[i] for i in s) or "total",
            Kron([m if i in s else Total(m.shape[1]) for i, m in enumerate(cells)]),
        )
        for s in chosen
    )
    return Strategy(workload.domain, blocks, settings.noise, "datacube")


def _marginals(workload: Workload) -> tuple[list[Set], tuple[int, ...], tuple[Partition, ...]]:
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
