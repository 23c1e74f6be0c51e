"""Areas: sets of leaves that no level tells apart, so that records may be counted by area first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...domain import NO_CODE, CodeFamily, GroupSelection, Regions, assign_groups
from ...errors import DataError, InvalidArgument
from ...sources.engines.duckdb import SCRATCH
from ...sources.failures import redacted
from .levels import AdaptivePlan

if TYPE_CHECKING:
    import duckdb


_MOST_KEYS = 2**62


@dataclass(frozen=True, eq=False)
class AreaSets:
    """The areas of a plan, numbered by their first leaf: leaves in the order of geography keep regions together.

    Args:
        of_leaf: shape (leaves,): the area of each leaf.
        regions: for each level, shape (areas,): the region that each area lies in, or -1.
    """

    of_leaf: np.ndarray
    regions: tuple[np.ndarray, ...]

    @property
    def size(self) -> int:
        """The number of areas."""
        return int(self.of_leaf.max(initial=-1)) + 1


def areas_of(plan: AdaptivePlan) -> AreaSets:
    """The coarsest areas of which every region of every level is made.

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from tabulae.products.groups.levels import PopulationLevel
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import CodeFamily, GroupMap
    >>> from tabulae.domain.groups import Ladder
    >>> groups = GroupMap((CodeFamily("race", ("10",)),), (), []).at("1", "state")
    >>> state = Regions("state", ("a", "b"), np.array([0, 0, 1, -1]))
    >>> level = PopulationLevel(state, "1", groups, Ladder.of({}, []), (), ZCDP(1), Fraction(1, 10))
    >>> areas = areas_of(AdaptivePlan((level,)))
    >>> areas.of_leaf.tolist(), [regions.tolist() for regions in areas.regions]
    ([0, 0, 1, 2], [[0, 1, -1]])
    """
    types = list({id(level.regions.of_leaf): level.regions for level in plan.levels}.values())
    first, of_leaf = _told_apart(types, plan.levels[0].regions.of_leaf.size)
    return AreaSets(of_leaf, tuple(level.regions.of_leaf[first] for level in plan.levels))


def _told_apart(types: list[Regions], leaves: int) -> tuple[np.ndarray, np.ndarray]:
    """The first leaf of each area, and the area of each leaf."""
    key, keys = np.zeros(leaves, np.int64), 1
    for regions in types:
        if keys * (regions.size + 1) > _MOST_KEYS:
            distinct, key = np.unique(key, return_inverse=True)
            keys = max(1, distinct.size)
        key = key * (regions.size + 1) + regions.of_leaf + 1
        keys *= regions.size + 1
    _, first, of_key = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return first[order], rank[of_key]


_BITS = 62
T = TypeVar("T")


@dataclass(frozen=True)
class PackedCodes:
    """Columns of codes in words: numbers below 2^62, each a sum of ``(code + 1) * 2^shift``, so that none is 0.

    Args:
        columns: the family of each column; a column holds a position in ``Family.codes``, or -1 for none.

    >>> race = CodeFamily("race", ("10", "20"), most=2)
    >>> packed = PackedCodes((race, race))
    >>> packed.sql(["c0 + 1", "c1 + 1"])
    ['(c0 + 1)::BIGINT * 1 + (c1 + 1)::BIGINT * 4']
    >>> packed.sums([1, 2])
    [9]
    >>> packed.unpacked([np.array([1, 2 + 3 * 4 - 4])])["race"].tolist()
    [[0, -1], [1, 1]]
    >>> packed.packed({"race": np.array([[0, -1], [1, 1]])})[0].tolist()
    [1, 10]
    """

    columns: tuple[CodeFamily, ...]

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """For each column: word, shift, bits."""
        places, word, used = [], 0, 0
        for family in self.columns:
            bits = max(1, len(family.codes).bit_length())
            if used + bits > _BITS:
                word, used = word + 1, 0
            places.append((word, used, bits))
            used += bits
        return places

    @property
    def words(self) -> int:
        """The number of words."""
        return 1 + max((word for word, _, _ in self._places), default=0)

    def sql(self, plus_one: Sequence[str]) -> list[str]:
        """The words as SQL, from expressions for ``code + 1`` of each column."""
        terms = [
            [f"({value})::BIGINT * {factor}" for value, factor in some] for some in self._terms(plus_one)
        ]
        return [" + ".join(some) or "0::BIGINT" for some in terms]

    def sums(self, plus_one: Sequence[Any]) -> list[Any]:
        """The words from columns of ``code + 1`` that are multiplied by numbers and added; 0 where there are none."""
        return [sum(value * factor for value, factor in some) for some in self._terms(plus_one)]

    def _terms(self, plus_one: Sequence[T]) -> list[list[tuple[T, int]]]:
        """For each word, what it is the sum of: values and their factors."""
        terms: list[list[tuple[T, int]]] = [[] for _ in range(self.words)]
        for (word, shift, _), value in zip(self._places, plus_one, strict=True):
            terms[word].append((value, 1 << shift))
        return terms

    def unpacked(self, words: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Family -> shape (n, columns): positions of codes, or -1."""
        carried: dict[str, list[np.ndarray]] = {}
        for family, (word, shift, bits) in zip(self.columns, self._places, strict=True):
            code = ((words[word] >> shift) & ((1 << bits) - 1)) - 1
            carried.setdefault(family.name, []).append(code)
        return {name: np.stack(codes, axis=1) for name, codes in carried.items()}

    def packed(self, carried: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The words from arrays as `unpacked` gives them."""
        words = [np.zeros(0, np.int64)] * self.words
        used: dict[str, int] = {}
        for family, (word, shift, _) in zip(self.columns, self._places, strict=True):
            i = used.setdefault(family.name, 0)
            used[family.name] += 1
            term = (carried[family.name][:, i] + 1) << shift
            words[word] = words[word] + term if words[word].size else term
        return words


@dataclass(frozen=True, eq=False)
class Kinds:
    """What is kept of a record's cell.

    Args:
        sizes: attribute -> number of its values; cells are numbered in C order.
        of_cell: shape (cells,): the kind of each cell.
        classes: for each level, shape (kinds,): the class of its ladder that each kind falls in.
    """

    sizes: Mapping[str, int]
    of_cell: np.ndarray
    classes: tuple[np.ndarray, ...]


def kinds_of(plan: AdaptivePlan) -> Kinds:
    """The joint partition of the cells by the ladders of all levels.

    Raises:
        InvalidArgument: ladders over different attributes.
    """
    ladders = [level.ladder for level in plan.levels]
    sizes = ladders[0].sizes
    if any(list(ladder.sizes.items()) != list(sizes.items()) for ladder in ladders):
        raise InvalidArgument("the ladders of one plan are over the same attributes, in the same order")
    distinct = list({id(ladder): ladder.of_cell for ladder in ladders}.values())
    _, first, of_cell = np.unique(np.stack(distinct), axis=1, return_index=True, return_inverse=True)
    return Kinds(
        dict(sizes), of_cell.ravel().astype(np.int32), tuple(ladder.of_cell[first] for ladder in ladders)
    )


@dataclass(frozen=True, eq=False)
class Profiles:
    """Codes that are members of the same groups, in all selections, are one: the first of them stands for all.

    Whether a record belongs to a group depends on the set of its codes, and of each code only on the groups that it is
    a member of. So records with the same profile, the set of what their codes stand for, belong to the same groups.

    Args:
        first_alike: family -> shape (codes,): the code that stands for each code.

    >>> from tabulae.domain.groups import CodeFamily, Group, GroupMap
    >>> race = CodeFamily("race", ("10", "11", "20"), most=3)
    >>> europe = Group("E", "1", "race", "alone")
    >>> groups = GroupMap((race,), (europe,), [("E", "10"), ("E", "11")])
    >>> Profiles.of([groups.at("1", "state")]).profile({"race": np.array([[2, 1, 0], [1, -1, -1]])})["race"].tolist()
    [[2, 0, -1], [0, -1, -1]]
    """

    first_alike: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, selections: Sequence[GroupSelection]) -> Profiles:
        """The profiles that some selections of groups tell apart."""
        return cls({family.name: _first_alike(selections, family.name) for family in selections[0].families})

    def profile(self, carried: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What stands for the codes of each record: family -> shape (n, columns), falling, each once, -1 for none."""
        out = {}
        for name, codes in carried.items():
            standing = np.where(codes == NO_CODE, NO_CODE, self.first_alike[name][codes])
            standing.sort(axis=1)
            standing[:, 1:][standing[:, 1:] == standing[:, :-1]] = NO_CODE
            standing.sort(axis=1)
            out[name] = standing[:, ::-1]
        return out


def _first_alike(selections: Sequence[GroupSelection], family: str) -> np.ndarray:
    matrices: list[Any] = [selection.member[family] for selection in selections]
    rows = [matrix.tocsr() for matrix in matrices]
    seen: dict[tuple[bytes, ...], int] = {}
    first = []
    for code in range(rows[0].shape[0]):
        groups = tuple(np.sort(m.indices[m.indptr[code] : m.indptr[code + 1]]).tobytes() for m in rows)
        first.append(seen.setdefault(groups, code))
    return np.array(first, np.int64)


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
        areas: AreaSets,
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
                row, group = assign_groups(selection, carried)
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
