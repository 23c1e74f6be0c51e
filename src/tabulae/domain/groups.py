"""Groups of people: which ones a record belongs to, the regions they are counted in, and their tables of rising detail.

A public map leads from the codes that a record carries to its groups. Each group gets the table of the ladder that it
can afford.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from ..errors import InvalidArgument

GroupKind = Literal["alone", "any"]
NO_CODE = -1
"""Stands for no code, where a record carries fewer codes than it may."""


@dataclass(frozen=True)
class CodeFamily:
    """Codes of one kind, of which a record carries between one and ``most``: race codes, say.

    Args:
        name: what they are codes of.
        codes: every code that a record may carry, known in public.
        most: how many of them one record may carry.
    """

    name: str
    codes: tuple[str, ...]
    most: int = 1

    def __post_init__(self) -> None:
        if len(set(self.codes)) != len(self.codes):
            raise InvalidArgument(f"the codes of {self.name!r} are listed twice in part")
        if self.most < 1:
            raise InvalidArgument(f"a record carries 1 or more codes of {self.name!r}, not {self.most}")

    @cached_property
    def position(self) -> dict[str, int]:
        return {code: i for i, code in enumerate(self.codes)}


@dataclass(frozen=True)
class Group:
    """One group. A record belongs to it *alone* if all its codes of the family are members, or *any* if one is.

    Args:
        code: its name in files.
        level: groups are tabulated by level, each with a budget of its own.
        family: whose codes decide.
        kind: "alone" or "any" (alone or in combination).
        label: words for people.
        total_only: whether it gets one count at the full budget instead of a table of the ladder.
        regions: the region types in which it is tabulated; None for all.
    """

    code: str
    level: str
    family: str
    kind: GroupKind
    label: str = ""
    total_only: bool = False
    regions: frozenset[str] | None = None


@dataclass(frozen=True, eq=False)
class GroupMap:
    """Families of codes, groups, and which codes are members of which group (many to many).

    Args:
        families: distinct names.
        groups: distinct codes; their order is that of results.
        members: pairs (group, code of its family).

    >>> race = CodeFamily("race", ("1010", "1020"), most=2)
    >>> europe = Group("2001", "1", "race", "alone")
    >>> m = GroupMap((race,), (europe,), [("2001", "1010"), ("2001", "1020")])
    >>> m.at("1", "state").member["race"].toarray().tolist()
    [[True], [True]]
    """

    families: tuple[CodeFamily, ...]
    groups: tuple[Group, ...]
    members: Sequence[tuple[str, str]] = field(repr=False)

    def __post_init__(self) -> None:
        names = [family.name for family in self.families]
        codes = [group.code for group in self.groups]
        for what, listed in (("family", names), ("group", codes)):
            if len(set(listed)) != len(listed):
                raise InvalidArgument(f"a {what} is named twice")
        for group in self.groups:
            if group.family not in names:
                raise InvalidArgument(
                    f"group {group.code!r} is of codes {group.family!r}, which are not declared"
                )
            if group.kind not in ("alone", "any"):
                raise InvalidArgument(f'group {group.code!r} is "alone" or "any", not {group.kind!r}')
        known, family = {group.code: group for group in self.groups}, self.family
        for code, member in self.members:
            if code not in known:
                raise InvalidArgument(f"code {member!r} is a member of group {code!r}, which is not declared")
            if member not in family[known[code].family].position:
                raise InvalidArgument(f"group {code!r} has member {member!r}, which is not a known code")

    @cached_property
    def family(self) -> dict[str, CodeFamily]:
        return {family.name: family for family in self.families}

    @cached_property
    def _members_of(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {group.code: [] for group in self.groups}
        for code, member in self.members:
            out[code].append(member)
        return out

    def at(self, level: str, region: str | None) -> GroupSelection:
        """The groups of one level that are tabulated in one region type; None for all of the level."""
        return GroupSelection(
            self.families,
            tuple(
                group
                for group in self.groups
                if group.level == level
                and (region is None or group.regions is None or region in group.regions)
            ),
            self._members_of,
        )


@dataclass(frozen=True, eq=False)
class GroupSelection:
    """The groups of one population group level."""

    families: tuple[CodeFamily, ...]
    groups: tuple[Group, ...]
    _members_of: Mapping[str, list[str]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def member(self) -> dict[str, Any]:
        """Family -> sparse boolean matrix, codes by groups of this selection (columns of other families are empty)."""
        from scipy.sparse import csc_array

        out: dict[str, Any] = {}
        for family in self.families:
            rows, columns = [], []
            for j, group in enumerate(self.groups):
                if group.family == family.name:
                    found = {family.position[code] for code in self._members_of[group.code]}
                    rows += sorted(found)
                    columns += [j] * len(found)
            shape = (len(family.codes), len(self.groups))
            out[family.name] = csc_array((np.ones(len(rows), bool), (rows, columns)), shape=shape)
        return out

    def columns(self, family: str, kind: GroupKind) -> np.ndarray:
        """Positions of the groups of one family and kind."""
        return np.array(
            [j for j, g in enumerate(self.groups) if g.family == family and g.kind == kind], np.int64
        )

    @cached_property
    def total_only(self) -> np.ndarray:
        """Shape (groups,): which groups get one count at the full budget."""
        return np.array([group.total_only for group in self.groups], bool)


_RECORDS = 1 << 17


def assign_groups(
    selection: GroupSelection, carried: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The groups of each record: all pairs of a record and a group that it belongs to.

    With m the codes that a record carries in a family and h_g how many of them are members of group g, it belongs to
    g if h_g = m > 0 (alone) or h_g > 0 (any). A code that is written twice counts twice on both sides, and a code
    that is in no group still counts in m.

    Args:
        selection: the groups.
        carried: family -> shape (n, most): positions of codes in ``Family.codes``, or -1 for none, in any order. A
            family that is left out is one of which no record carries a code.

    Returns:
        Record positions (not falling) and group positions in the selection, int64; each pair once, groups of one
        record rising.

    >>> from tabulae.domain.groups import CodeFamily, Group, GroupMap
    >>> race = CodeFamily("race", ("1010", "1020"), most=2)
    >>> groups = (Group("a", "1", "race", "alone"), Group("b", "1", "race", "any"))
    >>> selection = GroupMap((race,), groups, [("a", "1010"), ("b", "1010")]).at("1", "state")
    >>> [found.tolist() for found in assign_groups(selection, {"race": np.array([[0, -1], [0, 1], [1, -1]])})]
    [[0, 0, 1], [0, 1, 1]]
    """
    records = _checked(selection, carried)
    is_alone = np.array([group.kind == "alone" for group in selection.groups], bool)
    rows = {name: selection.member[name].tocsr() for name in carried}
    found = [np.zeros(0, np.int64)]
    for start in range(0, records, _RECORDS):
        chunk = [
            _keys(rows[name], is_alone, codes[start : start + _RECORDS]) for name, codes in carried.items()
        ]
        found.append(np.sort(np.concatenate(chunk)) + start * len(selection))
    record, group = np.divmod(np.concatenate(found), max(1, len(selection)))
    return record, group


def _checked(selection: GroupSelection, carried: Mapping[str, np.ndarray]) -> int:
    """The number of records."""
    sizes = {family.name: len(family.codes) for family in selection.families}
    if unknown := sorted(set(carried) - set(sizes)):
        raise InvalidArgument(f"records carry codes of {unknown}, which are not families of this map")
    for name, codes in carried.items():
        if codes.ndim != 2 or not np.issubdtype(codes.dtype, np.integer):
            raise InvalidArgument(f"the codes of {name!r} must be integers, of shape (records, most)")
        if codes.size and not (codes.min() >= NO_CODE and codes.max() < sizes[name]):
            raise InvalidArgument(
                f"the codes of {name!r} must be positions below {sizes[name]}, or -1 for none"
            )
    if len(lengths := {len(codes) for codes in carried.values()}) > 1:
        raise InvalidArgument("every family must have a row for every record")
    return max(lengths, default=0)


def _keys(member: Any, is_alone: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """``record * groups + group`` for every group of one family that a record belongs to, each once."""
    filled = codes != NO_CODE
    record, held = np.nonzero(filled)[0], codes[filled]
    low = member.indptr[held].astype(np.int64)
    length = member.indptr[held + 1] - low
    ends = np.cumsum(length)
    entry = np.arange(length.sum()) + np.repeat(low - ends + length, length)
    group = member.indices[entry].astype(np.int64)
    key, hits = np.unique(np.repeat(record, length) * is_alone.size + group, return_counts=True)
    record, group = np.divmod(key, max(1, is_alone.size))
    return key[~is_alone[group] | (hits == filled.sum(axis=1)[record])]


@dataclass(frozen=True, eq=False)
class Regions:
    """All regions of one type, and the one that each leaf of the public geography lies in.

    A leaf (a block, say) lies in one region of a type, or in none: then no record there is counted by this type.

    Args:
        name: the region type, such as "state".
        ids: names of the regions, distinct, in the order in which they are tabulated.
        of_leaf: shape (leaves,): the position in ``ids`` of each leaf's region, or -1.

    >>> Regions("county", ("01001", "01003"), np.array([0, 1, 1, -1])).size
    2
    """

    name: str
    ids: tuple[str, ...]
    of_leaf: np.ndarray

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise InvalidArgument(f"region type {self.name!r} names a region twice")
        inside = self.of_leaf.ndim == 1 and np.issubdtype(self.of_leaf.dtype, np.integer)
        if not inside or (
            self.of_leaf.size and not (-1 <= self.of_leaf.min() <= self.of_leaf.max() < self.size)
        ):
            raise InvalidArgument(f"region type {self.name!r} puts leaves into regions that it does not name")
        object.__setattr__(self, "of_leaf", self.of_leaf.astype(np.int32))
        self.of_leaf.setflags(write=False)

    @property
    def size(self) -> int:
        return len(self.ids)

    @cached_property
    def covers(self) -> np.ndarray:
        """Shape (leaves,): whether each leaf lies in a region of this type."""
        return self.of_leaf >= 0

    @classmethod
    def nation(cls, leaves: int, name: str = "nation", identifier: str = "1") -> Regions:
        """One region with every leaf in it."""
        return cls(name, (identifier,), np.zeros(leaves, np.int32))

    @classmethod
    def from_codes(cls, name: str, codes: Sequence[str | None]) -> Regions:
        """Regions named by a code a leaf, in sorted order; None where the leaf lies in none.

        >>> Regions.from_codes("place", ["b", None, "a", "b"]).of_leaf.tolist()
        [1, -1, 0, 1]
        """
        ids = sorted({code for code in codes if code is not None})
        position: dict[str | None, int] = {code: i for i, code in enumerate(ids)}
        return cls(name, tuple(ids), np.array([position.get(code, -1) for code in codes], np.int32))


@dataclass(frozen=True, eq=False)
class Rung:
    """One table of the ladder: a partition of the cells of a record's attributes.

    Args:
        name: what the table is called, such as "sex*age4".
        columns: heading -> labels; the table's cells are their product, in C order.
        of_class: shape (classes,): the cell of this table that each class of the ladder falls in.
    """

    name: str
    columns: Mapping[str, tuple[str, ...]]
    of_class: np.ndarray

    @property
    def cells(self) -> int:
        return prod(len(labels) for labels in self.columns.values())


@dataclass(frozen=True, eq=False)
class Ladder:
    """Tables of rising detail, beside the total, which is rung 0 and is not listed.

    Records are told apart by a *class*: the joint partition of all rungs, so that counts by class give every table.

    Args:
        sizes: attribute -> number of its values, in the order in which cells are numbered (C order).
        of_cell: shape (cells,): the class of each combination of values.
        rungs: rung 1, 2, ...

    >>> halves = {"sex": (["F", "M"], [0, 1]), "age": (["0-1", "2-3"], [0, 0, 1, 1])}
    >>> ladder = Ladder.of({"sex": 2, "age": 4}, [("sex*old", halves)])
    >>> ladder.classes, ladder.rungs[0].cells, ladder.of_cell.tolist()
    (4, 4, [0, 0, 1, 1, 2, 2, 3, 3])
    """

    sizes: Mapping[str, int]
    of_cell: np.ndarray
    rungs: tuple[Rung, ...]

    @property
    def classes(self) -> int:
        """The number of classes: 1 where the ladder has no rung but the total."""
        return int(self.of_cell.max()) + 1

    @classmethod
    def of(
        cls,
        sizes: Mapping[str, int],
        tables: Sequence[tuple[str, Mapping[str, tuple[Sequence[str], Sequence[int]]]]],
    ) -> Ladder:
        """The ladder of tables that are products of partitions of single attributes.

        Args:
            sizes: attribute -> number of its values.
            tables: pairs (name, attribute -> (labels of its parts, part of each value)), coarsest first. Headings are
                the attributes' names.
        """
        cells = prod(sizes.values())
        position = np.unravel_index(np.arange(cells), tuple(sizes.values()) or (1,))
        axis = dict(zip(sizes, position, strict=False))
        found = [_cells_of_table(name, parts, sizes, axis) for name, parts in tables]
        joint = np.stack([np.zeros(cells, np.int64), *found])
        distinct, first, of_cell = np.unique(joint, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        rungs = tuple(
            Rung(
                name,
                {a: tuple(labels) for a, (labels, _) in parts.items()},
                distinct[i + 1][order].astype(np.int32),
            )
            for i, (name, parts) in enumerate(tables)
        )
        return cls(dict(sizes), rank[of_cell.ravel()].astype(np.int32), rungs)


def _cells_of_table(
    name: str,
    parts: Mapping[str, tuple[Sequence[str], Sequence[int]]],
    sizes: Mapping[str, int],
    axis: Mapping[str, np.ndarray],
) -> np.ndarray:
    """The cell of one table that each combination of values falls in."""
    cell: np.ndarray = np.zeros(prod(sizes.values()), np.int64)
    for attribute, (labels, part) in parts.items():
        if attribute not in sizes:
            raise InvalidArgument(f"table {name!r} is by {attribute!r}, which records do not have")
        if len(part) != sizes[attribute] or not set(part) <= set(range(len(labels))):
            raise InvalidArgument(f"table {name!r} does not give every value of {attribute!r} a part")
        cell = cell * len(labels) + np.asarray(part)[axis[attribute]]
    return cell
