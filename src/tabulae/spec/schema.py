"""Code lists: the CSV files that a spec names, read with every mistake's file and line.

Two kinds: ``code,label[,parent]`` lists the values of an attribute, and ``code,class[,label]`` maps the
values of an attribute to the classes of a recode.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..domain import Attribute, Domain, Recode
from ..errors import InvalidArgument
from .problems import KeyPath, Problems, listed, nearest, shown
from .published import CODES, MAPS
from .sections import Document
from .shape import AttributeEntry, Policy, RecodeEntry

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


OTHER = "other"
"""Label of the category that takes what the others do not, where the policy asks for one: always the last."""

NO_VALUE = -(2**63)
"""Raw value of the extra category of a numeric attribute."""

MOST_VALUES = 1_000_000
"""The most values that one attribute may have."""


@dataclass(frozen=True)
class ColumnRule:
    """The column that an attribute is read from, and what becomes of a value that its domain lacks.

    A policy is ``"refuse"``, which stops the release, or ``"other"``, which counts the record in the
    attribute's last category.
    """

    name: str
    unknown: Policy
    null: Policy

    @property
    def has_other(self) -> bool:
        return OTHER in (self.unknown, self.null)


@dataclass(frozen=True)
class Schema:
    """The domain of what could be read; ``broken`` names what could not, so that its users are not blamed.

    ``files`` holds the content of every code list, under its published name.
    """

    domain: Domain | None
    columns: Mapping[str, ColumnRule]
    broken: frozenset[str]
    files: Mapping[str, bytes]


def read_schema(document: Document, base: Path, problems: Problems) -> Schema:
    """The domain that the document declares.

    Args:
        document: the sections as read.
        base: the folder that code lists are relative to.
        problems: where mistakes are recorded.
    """
    if not document.attributes:
        problems.add(("attributes",), "nothing is declared: add a line such as age = { range = [0, 114] }")
    reader = _Reader(document, base, problems)
    for name, entry in document.attributes.items():
        if entry:
            reader.attribute(name, entry)
    recodes = [reader.recode(name, entry) for name, entry in document.recodes.items() if entry]
    built = [recode for recode in recodes if recode]
    whole = {*reader.attributes, *(recode.name for recode in built)}
    return Schema(
        domain=Domain(reader.attributes, built) if reader.attributes else None,
        columns=reader.columns,
        broken=frozenset({*document.attributes, *document.recodes} - whole),
        files=reader.files,
    )


class _Reader:
    """Builds attributes and recodes one at a time, recording what is wrong with each."""

    def __init__(self, document: Document, base: Path, problems: Problems) -> None:
        self.document = document
        self.base = base
        self.problems = problems
        self.attributes: dict[str, Attribute] = {}
        self.columns: dict[str, ColumnRule] = {}
        self.files: dict[str, bytes] = {}

    def attribute(self, name: str, entry: AttributeEntry) -> None:
        path: KeyPath = ("attributes", name)
        column = ColumnRule(
            entry.column or name, entry.unknown or self.document.unknown, entry.null or self.document.null
        )
        values = self.values(name, entry, path)
        if values is None:
            return
        try:
            built = Attribute(name, values.labels, values.ordered, values.raw, values.parents)
            if column.has_other:
                built = _with_other(built)
        except InvalidArgument as error:
            self.problems.add(path, str(error))
            return
        self.attributes[name] = built
        self.columns[name] = column

    def values(self, name: str, entry: AttributeEntry, path: KeyPath) -> _Values | None:
        """The values that an entry lists, in whichever of the three ways."""
        if entry.codes is not None:
            found = read_code_list(self.base, entry.codes, (*path, "codes"), self.problems)
            if found is None:
                return None
            self.files[CODES.format(attribute=name)] = found.content
            return _Values(found.labels, found.codes, found.parents)
        raw: tuple[int | str, ...] = tuple(entry.categories or ())
        if entry.range is not None:
            lowest, highest = entry.range
            if highest - lowest >= MOST_VALUES:
                self.problems.add(
                    (*path, "range"), f"has more than {MOST_VALUES:,} values: give a narrower one"
                )
                return None
            raw = tuple(range(lowest, highest + 1))
        return _Values(tuple(map(str, raw)), raw)

    def recode(self, name: str, entry: RecodeEntry) -> Recode | None:
        """The recode of an entry, or None where it, or what it is a view of, is wrong."""
        path: KeyPath = ("recodes", name)
        declared = self.document.attributes
        if name in declared:
            self.problems.add(path, "is the name of an attribute: give the recode another")
            return None
        if entry.of is None:
            return None
        if entry.of not in declared:
            also = (
                "; it is a recode, and recodes are of attributes" if entry.of in self.document.recodes else ""
            )
            self.problems.add(
                (*path, "of"), f"there is no attribute {shown(entry.of)}{also}; {nearest(entry.of, declared)}"
            )
            return None
        key = "edges" if entry.map is None else "map"
        mapping = None if entry.map is None else self.mapping(name, entry.map, (*path, key))
        if entry.of not in self.attributes or (entry.map is not None and mapping is None):
            return None
        attribute, has_other = self.attributes[entry.of], self.columns[entry.of].has_other
        try:
            if mapping is None:
                return _from_edges(name, attribute, entry.edges or [], has_other=has_other)
            return _from_map(name, attribute, mapping, has_other=has_other)
        except InvalidArgument as error:
            self.problems.add((*path, key), str(error))
            return None

    def mapping(self, name: str, file: str, path: KeyPath) -> dict[int | str, str] | None:
        """Code -> label of its class, from a file."""
        found = read_code_map(self.base, file, path, self.problems)
        if found is None:
            return None
        self.files[MAPS.format(recode=name)] = found.content
        return {code: found.labels[group] for code, group in found.classes.items()}


@dataclass(frozen=True)
class _Values:
    """What an attribute's categories are called, and what they are in the records."""

    labels: tuple[str, ...]
    raw: tuple[int | str, ...]
    parents: tuple[str | None, ...] | None = None

    @property
    def ordered(self) -> bool:
        """Numbers that increase are ordered; strings are names."""
        return isinstance(self.raw[0], int) and list(self.raw) == sorted(self.raw)


def _with_other(attribute: Attribute) -> Attribute:
    """The attribute with the extra category last.

    It has no raw value, and a number is given one that no record holds. As it is no neighbour of any number,
    the categories as a whole have no order any more: a comparison that would count it silently is refused.
    """
    if OTHER in attribute.labels or OTHER in attribute.values:
        raise InvalidArgument(
            f'has a category "{OTHER}" of its own, and a policy asks for an extra one of that name: '
            'rename yours, or write unknown = "refuse" and null = "refuse" here'
        )
    return Attribute(
        attribute.name,
        (*attribute.labels, OTHER),
        values=(*attribute.values, NO_VALUE if attribute.numeric else OTHER),
        parents=attribute.parents and (*attribute.parents, None),
    )


def without_other(attribute: Attribute) -> Attribute:
    """An attribute that has the extra category as it would be without, its order restored."""
    plain = _Values(attribute.labels[:-1], attribute.values[:-1])
    return Attribute(attribute.name, plain.labels, plain.ordered, plain.raw)


def _from_edges(name: str, attribute: Attribute, edges: list[int], *, has_other: bool) -> Recode:
    """Classes of neighbouring values; the extra category is a class of its own."""
    if not has_other:
        return Recode.from_edges(name, attribute, edges)
    recode = Recode.from_edges(name, without_other(attribute), edges)
    classes = np.append(recode.classes, len(recode.labels))
    return Recode(name, attribute.name, classes, (*recode.labels, OTHER))


def _from_map(name: str, attribute: Attribute, mapping: dict[int | str, str], *, has_other: bool) -> Recode:
    """Classes from a file; the extra category is a class of its own unless the file places it."""
    if has_other and OTHER not in mapping:
        if OTHER in mapping.values():
            raise InvalidArgument(
                f'has a class "{OTHER}", and the policies of {attribute.name} ask for an extra category of '
                f"that name: say which class it belongs to, with a row for the code {OTHER}"
            )
        mapping = {**mapping, OTHER: OTHER}
    return Recode.from_map(name, attribute, mapping)
