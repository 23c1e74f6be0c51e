"""The file of groups: which values of a record's codes make it a member of which group, read with every mistake's line.

One row for each group and each of its member values. What is said of the group itself stands on each of its rows, and
must be the same on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ...domain import Attribute, CodeFamily, Group, GroupKind, GroupMap
from ...spec.problems import FileMistakes, KeyPath, Problems, listed, nearest, shown
from ...spec.public_file import read_public_file

REQUIRED = ("value", "group", "level", "kind")
OPTIONAL = ("family", "label", "total_only", "regions")
_TRUTH = {"": False, "false": False, "0": False, "true": True, "1": True}


@dataclass(frozen=True, eq=False)
class GroupFile:
    """The groups that a file declares, with its content and the name under which it is published."""

    groups: GroupMap
    name: str
    content: bytes


def read_groups(
    base: Path,
    name: str,
    families: Mapping[str, tuple[Attribute, int]],
    regions: Sequence[str],
    path: KeyPath,
    problems: Problems,
) -> GroupFile | None:
    """The groups of a CSV or Parquet file; None, with the mistakes recorded, where it has some.

    Args:
        base: the folder that ``name`` is relative to.
        families: name -> (what its codes are, how many of them a record may carry).
        regions: the region types that a group may be restricted to.
        path: the key that names the file.
        problems: where mistakes are recorded.
    """
    parquet = name.lower().endswith((".parquet", ".pq"))

    def wanted(header: list[str], mistakes: FileMistakes) -> list[str] | None:
        _check_header(header, len(families), mistakes)
        return None if mistakes.told else header

    file = read_public_file(base, name, path, problems, wanted, truths=("total_only",), parquet=parquet)
    if file is None:
        return None
    reader = _Reader(file.mistakes, families, regions)
    for line, cells in file.rows:
        reader.row(line, dict(zip(file.columns, cells, strict=True)))
    if file.mistakes.told:
        return None
    known = tuple(
        CodeFamily(family, attribute.labels, most) for family, (attribute, most) in families.items()
    )
    groups = GroupMap(known, tuple(reader.groups.values()), list(reader.members))
    return GroupFile(groups, f"groups.{'parquet' if parquet else 'csv'}", file.content)


def _check_header(header: Sequence[str], families: int, mistakes: FileMistakes) -> None:
    missing = [column for column in REQUIRED if column not in header]
    if families > 1 and "family" not in header:
        missing.append("family")
    if missing:
        mistakes.tell(1, f"the header has no column {listed(missing)}; it needs {', '.join(REQUIRED)}")
    for column in header:
        if column not in (*REQUIRED, *OPTIONAL):
            mistakes.tell(1, f"unknown column {shown(column)}; {nearest(column, (*REQUIRED, *OPTIONAL))}")
        elif header.count(column) > 1:
            mistakes.tell(1, f"column {shown(column)} appears twice")


class _Reader:
    """Rows of the file to groups and their members."""

    def __init__(
        self, mistakes: FileMistakes, families: Mapping[str, tuple[Attribute, int]], regions: Sequence[str]
    ) -> None:
        self.tell, self.unit = mistakes.tell, mistakes.unit
        self.families = families
        self.regions = regions
        self.groups: dict[str, Group] = {}
        self.first: dict[str, int] = {}
        self.members: dict[tuple[str, str], int] = {}

    def row(self, line: int, row: Mapping[str, str]) -> None:
        """One group and one of its members."""
        if empty := [column for column in REQUIRED if not row[column]]:
            self.tell(line, f"{listed(empty)} is empty")
            return
        group = self.group(line, row)
        if group is None:
            return
        before = self.groups.setdefault(group.code, group)
        start = self.first.setdefault(group.code, line)
        if before != group:
            self.tell(line, f"says of group {shown(group.code)} something else than {self.unit} {start} does")
            return
        attribute, _ = self.families[group.family]
        at = attribute.position(
            int(row["value"]) if attribute.numeric and _whole(row["value"]) else row["value"]
        )
        if at is None:
            self.tell(
                line, f"there is no value {shown(row['value'])}; {nearest(row['value'], attribute.labels)}"
            )
            return
        member = (group.code, attribute.labels[at])
        if (again := self.members.setdefault(member, line)) != line:
            self.tell(
                line,
                f"{self.unit} {again} makes {shown(row['value'])} a member of {shown(group.code)} already",
            )

    def group(self, line: int, row: Mapping[str, str]) -> Group | None:
        """What a row says of its group."""
        kind, family = row["kind"], row.get("family") or next(iter(self.families))
        truth = _TRUTH.get(row.get("total_only", "").lower())
        regions = [region.strip() for region in row.get("regions", "").split(";") if region.strip()]
        wrong = []
        if kind not in get_args(GroupKind):
            wrong.append(f'kind is "alone" (all codes of the record are members) or "any", not {shown(kind)}')
        if family not in self.families:
            wrong.append(f"there is no family {shown(family)} in codes; {nearest(family, self.families)}")
        if truth is None:
            wrong.append(f"total_only is true or false, not {shown(row['total_only'])}")
        unknown = [region for region in regions if region not in self.regions]
        wrong += [f"there is no region type {shown(each)}; {nearest(each, self.regions)}" for each in unknown]
        for message in wrong:
            self.tell(line, message)
        if wrong or truth is None:
            return None
        within = frozenset(regions) if regions else None
        label = row.get("label") or row["group"]
        return Group(row["group"], row["level"], family, kind, label, truth, within)  # type: ignore[arg-type]


def _whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
