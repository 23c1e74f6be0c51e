"""Confidential counts of groups: region by region, whole regions at a time. Only measuring reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..errors import Unsupported


@dataclass(frozen=True, eq=False, repr=False)
class GroupChunk:
    """The counts of all groups in some consecutive regions of one type.

    A *place* is a pair (region, group), numbered ``region * groups + group`` from this chunk's first region on. The
    counts that are not zero stand by place and class of the ladder; each pair at most once, places not falling.

    Args:
        first: position of the first region.
        regions: how many regions.
        groups: how many groups.
        classes: how many classes the ladder has.
        place, of_class, people: shape (entries,) each.
    """

    first: int
    regions: int
    groups: int
    classes: int
    place: np.ndarray = field(repr=False)
    of_class: np.ndarray = field(repr=False)
    people: np.ndarray = field(repr=False)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    def totals(self) -> np.ndarray:
        """Shape (regions * groups,): people by place."""
        total = np.zeros(self.regions * self.groups, np.int64)
        np.add.at(total, self.place, self.people)
        return total

    def cells(self, places: np.ndarray, of_class: np.ndarray, cells: int) -> np.ndarray:
        """Shape (len(places), cells): people by cell of one table, in some places (rising).

        ``of_class`` is the cell of the table that each class of the ladder falls in.
        """
        counts = np.zeros(len(places) * cells, np.int64)
        if len(places):
            low, high = (
                np.searchsorted(self.place, places, "left"),
                np.searchsorted(self.place, places, "right"),
            )
            length = high - low
            entry = np.repeat(low - np.cumsum(length) + length, length) + np.arange(length.sum())
            row = np.repeat(np.arange(len(places)), length)
            np.add.at(counts, row * cells + of_class[self.of_class[entry]], self.people[entry])
        return counts.reshape(len(places), cells)


class GroupCounts(ABC):
    """Confidential counts for the levels of one adaptive plan, in the plan's order.

    ``records`` is how many records were counted: confidential, too.
    """

    records: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    @abstractmethod
    def chunks(self, level: int) -> Iterator[GroupChunk]:
        """Chunks that follow each other and cover every region of the level once, inhabited or not."""

    @abstractmethod
    def fingerprint(self) -> bytes:
        """What tells these counts from others: for a keyed hash in the ledger, nothing else."""
