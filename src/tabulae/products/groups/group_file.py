"""The file of groups: which values of a record's codes make it a member of which group, read with every mistake's line.

One row for each group and each of its member values. What is said of the group itself stands on each of its rows, and
must be the same on all of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ...domain import Attribute, CodeFamily, Group, GroupKind, GroupMap
from ...errors import Unsupported
from ...spec.problems import FileMistakes, KeyPath, Problems, listed, nearest, shown

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
    try:
        content = (base / name).read_bytes()
        header, rows = (_parquet if parquet else _csv)(content)
    except (OSError, UnicodeDecodeError, csv.Error, Unsupported) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add(path, f"cannot read {shown(name)} as a {'Parquet' if parquet else 'CSV'} file: {reason}")
        return None
    reader = _Reader(name, "row" if parquet else "line", families, regions, path, problems)
    if not reader.header(header):
        return None
    for line, row in rows:
        reader.row(line, row)
    if not rows:
        reader.tell(None, "the file lists no group")
    if reader.told:
        return None
    known = tuple(
        CodeFamily(family, attribute.labels, most) for family, (attribute, most) in families.items()
    )
    groups = GroupMap(known, tuple(reader.groups.values()), list(reader.members))
    return GroupFile(groups, f"groups.{'parquet' if parquet else 'csv'}", content)


def _csv(content: bytes) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The header of a CSV file, and its rows each with its line."""
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    header = tuple(rows[0][1]) if rows else ()
    # A field too many has no name and one too few no value: both are told of when the row is read.
    return header, [(line, dict(zip((*header, ""), row, strict=False))) for line, row in rows[1:]]


def _parquet(content: bytes) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The columns of a Parquet file, and its rows numbered from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(content))
    except (OSError, pa.ArrowException) as error:
        raise Unsupported(str(error)) from None
    columns = [
        ["" if cell is None else str(cell).strip() for cell in column.to_pylist()] for column in table.columns
    ]
    names = tuple(table.column_names)
    return names, [
        (i, dict(zip(names, row, strict=True))) for i, row in enumerate(zip(*columns, strict=True), 1)
    ]


class _Reader(FileMistakes):
    """Rows of the file to groups and their members."""

    def __init__(
        self,
        name: str,
        unit: str,
        families: Mapping[str, tuple[Attribute, int]],
        regions: Sequence[str],
        path: KeyPath,
        problems: Problems,
    ) -> None:
        super().__init__(name, unit, path, problems)
        self.families = families
        self.regions = regions
        self.columns: tuple[str, ...] = ()
        self.groups: dict[str, Group] = {}
        self.first: dict[str, int] = {}
        self.members: dict[tuple[str, str], int] = {}

    def header(self, columns: tuple[str, ...]) -> bool:
        """Whether the columns are those of a file of groups."""
        self.columns = columns
        missing = [column for column in REQUIRED if column not in columns]
        if len(self.families) > 1 and "family" not in columns:
            missing.append("family")
        if missing:
            self.tell(1, f"the header has no column {listed(missing)}; it needs {', '.join(REQUIRED)}")
        for column in columns:
            if column not in (*REQUIRED, *OPTIONAL):
                self.tell(1, f"unknown column {shown(column)}; {nearest(column, (*REQUIRED, *OPTIONAL))}")
            elif columns.count(column) > 1:
                self.tell(1, f"column {shown(column)} appears twice")
        return not self.told

    def row(self, line: int, row: Mapping[str, str]) -> None:
        """One group and one of its members."""
        if len(row) != len(self.columns):
            self.tell(line, f"has another number of fields than the header, which has {len(self.columns)}")
            return
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
        before = self.told
        if kind not in get_args(GroupKind):
            self.tell(
                line, f'kind is "alone" (all codes of the record are members) or "any", not {shown(kind)}'
            )
        if family not in self.families:
            self.tell(line, f"there is no family {shown(family)} in codes; {nearest(family, self.families)}")
        if truth is None:
            self.tell(line, f"total_only is true or false, not {shown(row['total_only'])}")
        for region in regions:
            if region not in self.regions:
                self.tell(line, f"there is no region type {shown(region)}; {nearest(region, self.regions)}")
        if self.told > before or truth is None:
            return None
        within = frozenset(regions) if regions else None
        label = row.get("label") or row["group"]
        return Group(row["group"], row["level"], family, kind, label, truth, within)  # type: ignore[arg-type]


def _whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
