"""Counts of groups by an engine, out of core: records by area, codes and kind first, then level by level.

    coded       one row a record (or many alike): area, kind, words of packed codes
    combos      the distinct words, numbered; and the words of each one's profile
    profiles    the distinct profiles, numbered: which groups a record belongs to depends on these alone
    members_j   pairs (profile, group), one table for each selection of groups
    counted     people by area, profile and kind, in the order of areas: what every level is counted from

Nothing in Python grows with the records; the tables are in the engine's scratch database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..adaptive import AdaptivePlan
from ..domain.groups import GroupSelection
from ..domain.membership import assign
from ..errors import DataError, InvalidArgument
from .duckdb_engine import SCRATCH
from .failures import redacted
from .group_areas import Areas
from .group_codes import PackedCodes
from .group_profiles import Profiles

if TYPE_CHECKING:
    import duckdb

CODED = f"{SCRATCH}.coded"
_COMBOS = f"{SCRATCH}.combos"
_PROFILE_OF = f"{SCRATCH}.profile_of"
_PROFILES = f"{SCRATCH}.profiles"
_COUNTED = f"{SCRATCH}.counted"
_BY_PROFILE = f"{SCRATCH}.by_profile"
_COMBOS_AT_ONCE = 1 << 17
_RECORDS_AT_ONCE = 1 << 24


class CodedRecords:
    """The relation `CODED`, and what is made of it.

    Args:
        connection: an engine with a scratch database that holds `CODED`: columns area (never NULL), kind, w0, w1, ...,
            and people where rows stand for several records.
        where: what messages call the source.
        plan, areas, packed: what the numbers in it mean.
        people: the number of records of some rows, as SQL.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        where: str,
        plan: AdaptivePlan,
        areas: Areas,
        packed: PackedCodes,
        people: str = "count(*)",
    ) -> None:
        self.connection, self.where = connection, where
        self.plan, self.areas, self.packed, self.people = plan, areas, packed, people
        self.words = ", ".join(f"w{i}" for i in range(packed.words))
        self.profile_words = ", ".join(f"p{i}" for i in range(packed.words))
        self.selection_of, self.selections = selections_of(plan, packed)

    def arrays(self, query: str) -> list[np.ndarray]:
        """The columns of a result."""
        found = redacted(self.where, lambda: self.connection.execute(query).fetchnumpy())
        return [np.asarray(column) for column in found.values()]

    def run(self, statement: str, **tables: Any) -> None:
        """Do something in the engine, which sees Arrow tables by name."""

        def act() -> None:
            for name, table in tables.items():
                self.connection.register(name, table)
            self.connection.execute(statement)
            for name in tables:
                self.connection.unregister(name)

        redacted(self.where, act)

    def count(self) -> int:
        """Make the tables from `CODED`, which is dropped, and return the number of records."""
        area, people = self.arrays(
            f"SELECT area, ({self.people})::BIGINT AS people FROM {CODED} GROUP BY area ORDER BY area"  # noqa: S608
        )
        if not area.size:
            raise DataError(f"{self.where} has no records: there is nothing to publish")
        self._find_profiles()
        self._find_members()
        self._count_by_area(area, people)
        self.run(f"DROP TABLE {CODED}")
        self._count_by_profile()
        (counted,) = self.arrays(f"SELECT sum(people)::BIGINT AS people FROM {_COUNTED}")  # noqa: S608
        records = int(people.sum())
        if int(counted[0]) != records:
            raise DataError(
                f"{self.where}: records were lost or doubled in counting, which is a fault of the program: report it",
                confidential=f"{records} records, {int(counted[0])} counted",
            )
        return records

    def _find_profiles(self) -> None:
        """Number the combinations of codes, and then their profiles."""
        import pyarrow as pa

        self.run(
            f"CREATE TABLE {_COMBOS} AS SELECT (row_number() OVER () - 1)::INTEGER AS number, * FROM "  # noqa: S608
            f"(SELECT DISTINCT {self.words} FROM {CODED})"
        )
        columns = [*self.words.split(", "), *self.profile_words.split(", ")]
        self.run(f"CREATE TABLE {_PROFILE_OF} ({' BIGINT, '.join(columns)} BIGINT)")
        alike = Profiles.of(self.selections)
        for words in self._batches(_COMBOS, self.words):
            profile = self.packed.packed(alike.profile(self.packed.unpacked(words)))
            table = pa.table(dict(zip(columns, [*words, *profile], strict=True)))
            self.run(f"INSERT INTO {_PROFILE_OF} SELECT * FROM found", found=table)  # noqa: S608
        self.run(f"DROP TABLE {_COMBOS}")
        self.run(
            f"CREATE TABLE {_PROFILES} AS SELECT (row_number() OVER () - 1)::INTEGER AS number, * FROM "  # noqa: S608
            f"(SELECT DISTINCT {self.profile_words} FROM {_PROFILE_OF} ORDER BY ALL)"
        )

    def _find_members(self) -> None:
        import pyarrow as pa

        for j in range(len(self.selections)):
            self.run(f"CREATE TABLE {members(j)} (profile INTEGER, grp INTEGER)")
        first = 0
        for words in self._batches(_PROFILES, self.profile_words):
            carried = self.packed.unpacked(words)
            for j, selection in enumerate(self.selections):
                row, group = assign(selection, carried)
                pairs = pa.table({"profile": (row + first).astype(np.int32), "grp": group.astype(np.int32)})
                self.run(f"INSERT INTO {members(j)} SELECT * FROM pairs", pairs=pairs)  # noqa: S608
            first += len(words[0])

    def _batches(self, table: str, columns: str) -> Iterator[list[np.ndarray]]:
        """The rows of a table whose column ``number`` counts them from 0, in that order, some at a time."""
        (rows,) = self.arrays(f"SELECT count(*) AS n FROM {table}")  # noqa: S608
        for start in range(0, int(rows[0]), _COMBOS_AT_ONCE):
            yield self.arrays(
                f"SELECT {columns} FROM {table} "  # noqa: S608
                f"WHERE number BETWEEN {start} AND {start + _COMBOS_AT_ONCE - 1} ORDER BY number"
            )

    def _count_by_area(self, area: np.ndarray, people: np.ndarray) -> None:
        """Some areas at a time, so that what is sorted and counted at once fits in memory."""
        self.run(f"CREATE TABLE {_COUNTED} (area INTEGER, profile INTEGER, kind INTEGER, people BIGINT)")
        part = (np.cumsum(people) - people) // _RECORDS_AT_ONCE
        first = np.flatnonzero(np.diff(part, prepend=-1))
        for low, high in zip(area[first], area[[*(first[1:] - 1), -1]], strict=True):
            self.run(
                f"INSERT INTO {_COUNTED} SELECT area, number, kind, ({self.people})::BIGINT AS people "  # noqa: S608
                f"FROM {CODED} JOIN {_PROFILE_OF} USING ({self.words}) JOIN {_PROFILES} USING ({self.profile_words}) "
                f"WHERE area BETWEEN {low} AND {high} GROUP BY area, number, kind ORDER BY area"
            )

    def _count_by_profile(self) -> None:
        """People by profile, for each set of levels that count them: what the levels must add up to."""
        import pyarrow as pa

        covers = np.stack([region >= 0 for region in self.areas.regions])
        self.patterns, pattern = np.unique(covers, axis=1, return_inverse=True)
        patterns = pa.table({"area": np.arange(self.areas.size, dtype=np.int32), "pattern": pattern.ravel()})
        self.run(
            f"CREATE TABLE {_BY_PROFILE} AS SELECT pattern, profile, sum(people)::BIGINT AS people "  # noqa: S608
            f"FROM {_COUNTED} JOIN patterns USING (area) GROUP BY pattern, profile",
            patterns=patterns,
        )

    def expected(self, level: int) -> int:
        """The sum of a level's counts over all its regions, groups and classes."""
        covered = ", ".join(map(str, np.flatnonzero(self.patterns[level]))) or "-1"
        (people,) = self.arrays(
            f"SELECT coalesce(sum(people), 0)::BIGINT AS people FROM {_BY_PROFILE} "  # noqa: S608
            f"JOIN {members(self.selection_of[level])} USING (profile) WHERE pattern IN ({covered})"
        )
        return int(people[0])

    def entries(
        self, level: int, base: np.ndarray, class_of: np.ndarray, classes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The counts of some regions: numbers ``base + group * classes + class``, rising, and people.

        Args:
            level: position in the plan.
            base: shape (areas,): where the numbers of the area's region begin, or -1 for areas that are left out.
            class_of: shape (kinds,): the class of each kind.
            classes: how many there are.
        """
        import pyarrow as pa

        inside = np.flatnonzero(base >= 0)
        if not inside.size:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        tables = {
            "some_areas": pa.table({"area": inside.astype(np.int32), "base": base[inside]}),
            "classes": pa.table({"kind": np.arange(class_of.size, dtype=np.int32), "class": class_of}),
        }
        query = (
            f"SELECT base + grp::BIGINT * {classes} + class AS entry, sum(people)::BIGINT AS people "  # noqa: S608
            f"FROM {_COUNTED} JOIN some_areas USING (area) JOIN classes USING (kind) "
            f"JOIN {members(self.selection_of[level])} USING (profile) "
            f"WHERE area BETWEEN {inside[0]} AND {inside[-1]} "
            "GROUP BY entry ORDER BY entry"
        )
        for name, table in tables.items():
            self.connection.register(name, table)
        entry, people = self.arrays(query)
        return entry.astype(np.int64), people.astype(np.int64)

    def fingerprint(self) -> bytes:
        """A sum over the rows of what everything is counted from."""
        parts = [
            self.arrays(f"SELECT sum(hash({columns}))::VARCHAR AS total FROM {table}")[0][0]  # noqa: S608
            for table, columns in (
                (_COUNTED, "area, profile, kind, people"),
                (_PROFILES, f"number, {self.profile_words}"),
            )
        ]
        return ",".join(parts).encode()


def members(selection: int) -> str:
    """The table of one selection's members."""
    return f"{SCRATCH}.members_{selection}"


def selections_of(plan: AdaptivePlan, packed: PackedCodes) -> tuple[list[int], list[GroupSelection]]:
    """For each level, the position of its selection among the distinct ones; and these.

    Raises:
        InvalidArgument: groups of codes that the records do not have, or have in another order.
    """
    carried = {family.name: family for family in packed.columns}
    distinct: dict[tuple[object, ...], GroupSelection] = {}
    keys = []
    for level in plan.levels:
        selection = level.groups
        for family in selection.families:
            used = any(group.family == family.name for group in selection.groups)
            if used and family.name not in carried:
                raise InvalidArgument(
                    f"{level.name} has groups of {family.name!r}, of which records hold no codes"
                )
            if used and carried[family.name].codes != family.codes:
                raise InvalidArgument(
                    f"{level.name}: the records hold other codes of {family.name!r} than the groups"
                )
            if used and packed.columns.count(carried[family.name]) > family.most:
                raise InvalidArgument(
                    f"{level.name}: a record is promised to carry up to {family.most} codes of {family.name!r}, "
                    "but more columns are read"
                )
        matrices = [selection.member[family.name].tocsr() for family in selection.families]
        key = (selection.groups, *((m.indptr.tobytes(), m.indices.tobytes()) for m in matrices))
        distinct.setdefault(key, selection)
        keys.append(key)
    position = {key: j for j, key in enumerate(distinct)}
    return [position[key] for key in keys], list(distinct.values())
