"""Groups: a public map from the codes that a record carries to the groups that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..errors import InvalidArgument

Kind = Literal["alone", "any"]
NONE = -1
"""Stands for no code, where a record carries fewer codes than it may."""


@dataclass(frozen=True)
class Family:
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
        """Code -> its position."""
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
    kind: Kind
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

    Raises:
        InvalidArgument: names that repeat, or members that are not known.

    >>> race = Family("race", ("1010", "1020"), most=2)
    >>> europe = Group("2001", "1", "race", "alone")
    >>> m = GroupMap((race,), (europe,), [("2001", "1010"), ("2001", "1020")])
    >>> m.at("1", "state").member["race"].toarray().tolist()
    [[True], [True]]
    """

    families: tuple[Family, ...]
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
    def family(self) -> dict[str, Family]:
        """Name -> family."""
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

    families: tuple[Family, ...]
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

    def columns(self, family: str, kind: Kind) -> np.ndarray:
        """Positions of the groups of one family and kind."""
        return np.array(
            [j for j, g in enumerate(self.groups) if g.family == family and g.kind == kind], np.int64
        )

    @cached_property
    def total_only(self) -> np.ndarray:
        """Shape (groups,): which groups get one count at the full budget."""
        return np.array([group.total_only for group in self.groups], bool)

    def of(self, carried: Mapping[str, Sequence[str]]) -> set[str]:
        """The groups of one record, by definition: the slow way that fast ones are tested against.

        Args:
            carried: family -> the codes that the record carries, one or more.
        """
        found: set[str] = set()
        for group in self.groups:
            members = set(self._members_of[group.code])
            codes = carried.get(group.family, ())
            inside: Iterable[bool] = [code in members for code in codes]
            if codes and (all(inside) if group.kind == "alone" else any(inside)):
                found.add(group.code)
        return found
