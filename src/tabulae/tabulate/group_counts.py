"""`GroupCounts` whose counts an engine makes, level by level, while they are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..counts.group_counts import GroupChunk, GroupCounts
from ..errors import DataError
from .group_engine import CodedRecords
from .group_kinds import Kinds

_PLACES = 1 << 20


class EngineCounts(GroupCounts):
    """Counts for a plan, from coded records; each chunk is counted when it is asked for.

    Args:
        coded: the records, as `CodedRecords` describes them; counted here for the first time.
        kinds: what their kinds mean.

    Raises:
        DataError: there are no records.
    """

    def __init__(self, coded: CodedRecords, kinds: Kinds) -> None:
        self._coded, self._kinds = coded, kinds
        self.records = coded.count()

    def chunks(self, level: int) -> Iterator[GroupChunk]:
        """Whole regions at a time, about a million places.

        Raises:
            DataError: the engine fails, or the counts do not add up.
        """
        of = self._coded.plan.levels[level]
        step = max(1, _PLACES // max(1, len(of.groups)))
        counted = 0
        for first in range(0, of.regions.size, step):
            chunk = self._chunk(level, first, min(step, of.regions.size - first))
            counted += int(chunk.people.sum())
            yield chunk
        if counted != self._coded.expected(level):
            raise DataError(
                f"{self._coded.where}, {of.name}: the counts of groups do not add up, which is a fault of the program: "
                "report it"
            )

    def _chunk(self, level: int, first: int, regions: int) -> GroupChunk:
        of, region, classes = (
            self._coded.plan.levels[level],
            self._coded.areas.regions[level],
            self._kinds.classes[level],
        )
        groups, count = len(of.groups), of.ladder.classes
        inside = (region >= first) & (region < first + regions)
        base = np.where(inside, (region.astype(np.int64) - first) * groups * count, -1)
        entry, people = self._coded.entries(level, base, classes, count)
        place, of_class = np.divmod(entry, count)
        return GroupChunk(first, regions, groups, count, place, of_class, people)

    def fingerprint(self) -> bytes:
        return self._coded.fingerprint()
