"""Which rows of a long table a page shows: some of every type of area, and of ranges the telling ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..domain import Domain, Table
from ..linalg import AllRange, LinearOperator

_SOME = 16  # rows of every kind that come before all rows of any


def fair_order(kinds: Sequence[int], most: int, whole: int) -> list[tuple[int, int]]:
    """The rows to show of kinds of so many rows each, as (kind, row within it).

    Any first part of them is fair: some rows of every kind in turn, then all rows of the smallest kind, of the next,
    and so on. Rows of one kind come in their order.

    Arguments:
        most: rows of a kind that cannot be shown whole are added up to so many in all.
        whole: so many in all are never exceeded.

    >>> fair_order([1, 40, 2], 6, 6)
    [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]
    >>> [len(fair_order([1, 40, 2], 30, whole)) for whole in (42, 43, 100)]
    [30, 43, 43]
    """
    some = sorted((row, kind) for kind, count in enumerate(kinds) for row in range(min(count, _SOME)))
    found = [(kind, row) for row, kind in some]
    for kind in sorted(range(len(kinds)), key=lambda kind: kinds[kind]):
        rest = [(kind, row) for row in range(_SOME, min(kinds[kind], whole + 1))]
        found += rest if len(found) + len(rest) <= whole else rest[: max(0, most - len(found))]
    return found[:whole]


def range_order(table: Table, domain: Domain, most: int) -> NDArray[np.int64] | None:
    """The rows to show of a table of all ranges, at most ``most``; None for one without.

    First the whole of each range attribute, its halves, quarters and so on down to single values, with all rows of the
    other attributes; then the widest of the other ranges.

    >>> from tabulae.linalg import AllRange
    >>> table, domain = Table("ages", {"age": AllRange(4)}), Domain({"age": 4})
    >>> [table.columns(domain)["age"][i] for i in range_order(table, domain, 8)]
    ['0-3', '0-1', '2-3', '0', '1', '2', '3', '0-2']
    """
    terms = table.over(domain).terms
    if len(terms) != 1 or not any(isinstance(factor, AllRange) for factor in terms[0].factors.values()):
        return None
    counts = table.row_counts(domain)
    depth = np.zeros(tuple(counts.values()), dtype=np.int64)
    for axis, name in enumerate(counts):
        own = _depths(terms[0].factors[name])
        depth = np.maximum(depth, own.reshape([-1 if i == axis else 1 for i in range(depth.ndim)]))
    flat = depth.ravel()
    if flat.size > most:
        kept = np.flatnonzero(flat <= np.partition(flat, most - 1)[most - 1])
        return kept[np.argsort(flat[kept], kind="stable")][:most]
    return np.argsort(flat, kind="stable")


def _depths(factor: LinearOperator) -> NDArray[np.int64]:
    """How early each row of a factor is shown: 0 first; of other factors all rows alike."""
    if not isinstance(factor, AllRange):
        return np.zeros(factor.shape[0], dtype=np.int64)
    n = factor.shape[1]
    low, high = np.triu_indices(n)
    deepest = max(1, (n - 1).bit_length())
    depths = deepest + 1 + n - (high + 1 - low)
    for depth in range(deepest, -1, -1):
        cuts = np.arange(2**depth + 1) * n >> depth
        starts, ends = cuts[:-1], cuts[1:]
        some = ends > starts
        starts, ends = starts[some], ends[some] - 1
        depths[starts * n - starts * (starts - 1) // 2 + ends - starts] = depth
    return depths


def share_words(shown: Mapping[str, int], rows: Mapping[str, int]) -> str:
    """Of which kinds all rows are shown, and how many of the others.

    >>> share_words({"state": 1, "tract": 16}, {"state": 1, "tract": 250})
    'all rows of state; 16 of 250 of tract'
    """
    whole = [kind for kind, count in rows.items() if shown.get(kind, 0) == count]
    parts = [f"all rows of {', '.join(whole)}"] if whole else []
    cut = [f"{shown.get(k, 0):,} of {count:,} of {k}" for k, count in rows.items() if k not in whole]
    return "; ".join([*parts, *cut])
