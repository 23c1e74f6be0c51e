"""Confidential counts of areas: the cells that are not empty, leaf by leaf. Only measuring reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..geography.constraints import ExactMargin
from ..geography.spine_plan import Piece, SpinePlan


@dataclass(frozen=True, eq=False, repr=False)
class _Level:
    """The leaves of a level's units, unit by unit: those of unit u are leaves[first[u] : first[u + 1]].

    ``of`` says in which unit each leaf lies, as the hierarchy has it that this was made for.
    """

    of: np.ndarray
    leaves: np.ndarray
    first: np.ndarray


_ENTRIES = 1 << 20  # how many counts are looked at together


class SpineCounts:
    """How many records there are in each leaf of a spine and each cell of its layout. Confidential.

    A unit's counts are sums over its leaves, made when a piece of the plan asks for them. Levels are best asked for
    one after the other. What is kept of a count is its cell and its number, in as few bytes as the largest takes.

    Args:
        plan: says what leaves and cells there are.
        leaf, place: shape (entries,), leaves and ``dense cell * N + combination`` of the counts that are not zero.
        people: shape (entries,), int64. Entries of one leaf and place are added.

    Raises:
        InvalidArgument: a count in a leaf whose support excludes its cell, or outside the plan.
    """

    def __init__(self, plan: SpinePlan, leaf: np.ndarray, place: np.ndarray, people: np.ndarray) -> None:
        self._leaves, self._cells = plan.spine.leaves, plan.layout.cell.size
        for first in range(0, leaf.size, _ENTRIES):
            some = slice(first, first + _ENTRIES)
            if not _inside(leaf[some], self._leaves) or not _inside(place[some], self._cells):
                raise InvalidArgument("counts lie outside the plan's leaves or cells")
            if not plan.support[leaf[some], place[some] // plan.layout.algebra.cells].all():
                raise InvalidArgument("counts lie in cells that the plan says cannot occur in their leaves")
        key = leaf.astype(np.int64)
        key *= self._cells
        key += place
        order = np.argsort(key)
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        number = people.astype(np.int64)[order]
        sums = np.add.reduceat(number, starts) if key.size else number
        del order, number
        found = key[starts]
        self._people = sums.astype(np.min_scalar_type(sums.max(initial=0)))
        self._first = np.searchsorted(found, np.arange(self._leaves + 1) * self._cells)
        found %= self._cells
        self._place = found.astype(np.min_scalar_type(self._cells))
        self._under: _Level | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    @property
    def records(self) -> int:
        """The number of records. Confidential."""
        return int(self._people.sum(dtype=np.int64))

    def check(self, plan: SpinePlan) -> None:
        """See that these counts were made for a plan like this one.

        Raises:
            InvalidArgument: it has other leaves, cells or supports.
        """
        if (plan.spine.leaves, plan.layout.cell.size) != (self._leaves, self._cells):
            raise InvalidArgument("these counts were made for another plan: it has other leaves or cells")
        for leaf, place, _ in self._entries():
            if not plan.support[leaf, place // plan.layout.algebra.cells].all():
                raise InvalidArgument("these counts were made for another plan: it has other supports")

    def piece(self, piece: Piece, plan: SpinePlan) -> np.ndarray:
        """Exact counts of a piece's nodes over their support, shape (m, k, N), int64."""
        support, inner = plan.dense_cells[piece.pattern], plan.layout.algebra.cells
        leaves, row = self._leaves_of(piece.level, plan.tree.unit[piece.nodes], plan)
        entry, of = _joined(self._first[leaves], self._first[leaves + 1])
        dense, rest = np.divmod(self._place[entry].astype(np.int64), inner)
        cell = (row[of] * support.size + np.searchsorted(support, dense)) * inner + rest
        counts = np.zeros(piece.nodes.size * support.size * inner, np.int64)
        np.add.at(counts, cell, self._people[entry])
        return counts.reshape(piece.nodes.size, support.size, inner)

    def exact(self, plan: SpinePlan, exact: ExactMargin) -> np.ndarray:
        """The counts of a margin over dense attributes in every unit of its level, shape (units, classes), int64."""
        if exact.margin.inner != 1:
            raise InvalidArgument(
                f"exact counts of {exact.margin.name!r} are over attributes that the layout holds symmetric: make "
                "them dense"
            )
        found = np.zeros((plan.spine.codes[exact.level].size, exact.margin.classes), np.int64)
        for leaf, place, people in self._entries():
            label = exact.margin.label[place // plan.layout.algebra.cells]
            np.add.at(found, (plan.spine.units[exact.level][leaf], label), people)
        return found

    def fingerprint(self) -> bytes:
        """What tells these counts from others: for a keyed hash in the ledger, nothing else."""
        digest = hashlib.sha256(b"tabulae spine counts 2\n")
        for columns in self._entries():
            digest.update(np.stack(columns).astype("<i8").data)
        return digest.digest()

    def _entries(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Leaf, place and people of all counts, int64, some at a time."""
        for first in range(0, self._place.size, _ENTRIES):
            number = np.arange(first, min(first + _ENTRIES, self._place.size))
            leaf = np.searchsorted(self._first, number, side="right") - 1
            yield leaf, self._place[number].astype(np.int64), self._people[number].astype(np.int64)

    def _leaves_of(self, level: int, units: np.ndarray, plan: SpinePlan) -> tuple[np.ndarray, np.ndarray]:
        """The leaves of some units, one unit after the other, and the position of each one's unit."""
        of = plan.spine.hierarchy.units[level]
        # another plan of as many leaves may put them in other units
        if self._under is None or self._under.of is not of:
            first = np.searchsorted(np.sort(of), np.arange(plan.spine.hierarchy.codes[level].size + 1))
            self._under = _Level(of, np.argsort(of, kind="stable"), first)
        at, row = _joined(self._under.first[units], self._under.first[units + 1])
        return self._under.leaves[at], row


def _inside(index: np.ndarray, size: int) -> bool:
    """Whether all positions lie in 0..size - 1."""
    return not index.size or bool(index.min() >= 0 and index.max() < size)


def _joined(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of several ranges, one range after the other, and the range of each."""
    length = high - low
    number = np.arange(length.sum()) + np.repeat(low - np.cumsum(length) + length, length)
    return number, np.repeat(np.arange(low.size), length)
