"""Code lists: the CSV files that a spec names, read with every mistake's file and line.

Two kinds: ``code,label[,parent]`` lists the values of an attribute, and ``code,class[,label]`` maps the
values of an attribute to the classes of a recode.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from .lines import KeyPath
from .problems import (
    Problems,
    listed,
    shown,
)

_TOLD = 5  # mistakes told of one file: the rest are likely the same one


@dataclass(frozen=True)
class CodeList:
    """The values of an attribute: as the records hold them, as readers see them, and what each belongs to.

    ``parents`` is None where the file has no such column.
    """

    codes: tuple[str, ...]
    labels: tuple[str, ...]
    parents: tuple[str, ...] | None
    content: bytes


@dataclass(frozen=True)
class CodeMap:
    """Codes of an attribute to classes of a recode; ``labels`` by class, in the order of the file."""

    classes: dict[str, str]
    labels: dict[str, str]
    content: bytes


def read_code_list(base: Path, name: str, path: KeyPath, problems: Problems) -> CodeList | None:
    """The file ``name``, with header ``code,label`` or ``code,label,parent``.

    Arguments: base, the folder that ``name`` is relative to; path, the key that names the file.
    """
    rows = _Rows.read(base, name, path, problems, required=("code", "label"), optional="parent")
    if rows is None:
        return None
    rows.distinct("code")
    rows.distinct("label")
    if rows.told:
        return None
    parents = tuple(row[2] for _, row in rows.rows) if rows.has_optional else None
    return CodeList(
        tuple(row[0] for _, row in rows.rows), tuple(row[1] for _, row in rows.rows), parents, rows.content
    )


def read_code_map(base: Path, name: str, path: KeyPath, problems: Problems) -> CodeMap | None:
    """The file ``name``, with header ``code,class`` or ``code,class,label``.

    The label is the class's own; a class whose rows give two different labels is a mistake.
    """
    rows = _Rows.read(base, name, path, problems, required=("code", "class"), optional="label")
    if rows is None:
        return None
    rows.distinct("code")
    labels: dict[str, str] = {}
    for line, row in rows.rows:
        label = row[2] if rows.has_optional else row[1]
        if labels.setdefault(row[1], label) != label:
            rows.tell(
                line, f"class {shown(row[1])} has two labels, {shown(labels[row[1]])} and {shown(label)}"
            )
    if len(set(labels.values())) < len(labels):
        rows.tell(None, "two classes have the same label")
    if rows.told:
        return None
    return CodeMap({row[0]: row[1] for _, row in rows.rows}, labels, rows.content)


@dataclass
class _Rows:
    """The rows of one file, each with its line, and the mistakes told of it so far."""

    name: str
    path: KeyPath
    problems: Problems
    header: tuple[str, ...]
    has_optional: bool
    content: bytes
    rows: list[tuple[int, tuple[str, ...]]]
    told: int = 0

    @classmethod
    def read(
        cls,
        base: Path,
        name: str,
        path: KeyPath,
        problems: Problems,
        required: tuple[str, ...],
        optional: str,
    ) -> _Rows | None:
        """Open the file and check its header, its width and that nothing is left empty."""
        try:
            content = (base / name).read_bytes()
            reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
            lines = [(reader.line_num, tuple(cell.strip() for cell in row)) for row in reader if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.add(path, f"cannot read {shown(name)} as a CSV file in UTF-8: {reason}")
            return None
        header = lines[0][1] if lines else ()
        if header not in (required, (*required, optional)):
            expected = ",".join(required)
            found = f"found {','.join(header)!r}" if header else "the file is empty"
            expected = f"{expected} or {expected},{optional}"
            problems.add(path, f"{name}, line 1: the header must be {expected}; {found}")
            return None
        rows = cls(name, path, problems, header, len(header) > len(required), content, [])
        rows._fill(lines[1:], len(required))
        return rows

    def _fill(self, lines: list[tuple[int, tuple[str, ...]]], required: int) -> None:
        for line, row in lines:
            if len(row) != len(self.header):
                self.tell(line, f"has {len(row)} fields and the header has {len(self.header)}")
            elif not all(row[:required]):
                empty = [
                    column for column, cell in zip(self.header, row[:required], strict=False) if not cell
                ]
                self.tell(line, f"{listed(empty)} is empty")
            else:
                self.rows.append((line, row))
        if not lines:
            self.tell(None, "the file lists no code")

    def distinct(self, column: str) -> None:
        """Record each value of ``column`` that stands on two rows."""
        position = self.header.index(column)
        first: dict[str, int] = {}
        for line, row in self.rows:
            before = first.setdefault(row[position], line)
            if before != line:
                self.tell(line, f"{column} {shown(row[position])} stands on line {before} already")

    def tell(self, line: int | None, message: str) -> None:
        """Record a mistake of the file, up to the number worth reading."""
        self.told += 1
        place = self.name if line is None else f"{self.name}, line {line}"
        if self.told <= _TOLD:
            self.problems.add(self.path, f"{place}: {message}")
        elif self.told == _TOLD + 1:
            self.problems.add(self.path, f"{self.name}: further mistakes are not listed")
