"""Code lists: the CSV files that a spec names, read with every mistake's file and line.

Two kinds: ``code,label[,parent]`` lists the values of an attribute, and ``code,class[,label]`` maps the
values of an attribute to the classes of a recode.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..domain import TOTAL_LABEL, Attribute, Classification, Domain, Recode
from ..domain.predicate import Predicate
from ..errors import InvalidArgument
from ..sources.classes import Bins, Grid, Part, Periods
from ..sources.households import FromRecords
from ..sources.values import ISO, DateFormat, exact_number, fold
from .problems import FileMistakes, KeyPath, Problems, listed, nearest, shown, written
from .public_file import TextColumns, read_public_file
from .published import CODES, MAPS
from .sections import Document
from .shape import PERIODS, AttributeEntry, Policy, RecodeEntry, ValueEntry


@dataclass(frozen=True)
class CodeList:
    """The values of an attribute: as the records hold them, as readers see them, and what each belongs to.

    ``parents`` is None where the file has no such column. ``tree`` has the codes as levels, where they are read so.
    """

    codes: tuple[str, ...]
    labels: tuple[str, ...]
    parents: tuple[str, ...] | None
    content: bytes
    tree: Classification | None = None


@dataclass(frozen=True)
class CodeMap:
    """Codes of an attribute to classes of a recode; ``labels`` by class, in the order of the file."""

    classes: dict[str, str]
    labels: dict[str, str]
    content: bytes


def read_code_list(
    base: Path, name: str, path: KeyPath, problems: Problems, *, hierarchy: bool = False
) -> CodeList | None:
    """The file ``name``, with header ``code,label`` or ``code,label,parent``.

    Arguments: base, the folder that ``name`` is relative to; path, the key that names the file; hierarchy, whether
    parents are codes of the list, and labels may be those of several codes.
    """
    file = _read(base, name, path, problems, ("code", "label"), "parent")
    if file is None:
        return None
    _tell_repeated(file, "code")
    if not hierarchy:
        _tell_repeated(file, "label")
    for line, (code, *_) in file.rows:
        if code == TOTAL_LABEL:
            told = f"code {shown(TOTAL_LABEL)} stands for the total in published tables: give the category another"
            file.mistakes.tell(line, told)
    if file.mistakes.told:
        return None
    codes, labels, *parents = zip(*(row for _, row in file.rows), strict=True)
    found = CodeList(codes, labels, parents[0] if parents else None, file.content)
    return _as_tree(found, file) if hierarchy else found


def _as_tree(found: CodeList, file: TextColumns) -> CodeList | None:
    """The list in levels; its file is written anew where labels had to be told apart."""
    if found.parents is None:
        file.mistakes.tell(1, "hierarchy = true goes by a column parent, and there is none")
        return None
    listed = set(found.codes)
    for line, (_, _, parent) in file.rows:
        if parent and parent not in listed:
            told = (
                f"parent {shown(parent)} has no row of its own: add one, or leave the cell empty at the top"
            )
            file.mistakes.tell(line, told)
    if file.mistakes.told:
        return None
    try:
        tree = Classification(found.codes, found.labels, tuple(parent or None for parent in found.parents))
    except InvalidArgument as error:
        file.mistakes.tell(None, str(error))
        return None
    if tree.labels == found.labels:
        return replace(found, tree=tree)
    return CodeList(tree.codes, tree.labels, found.parents, _code_list_text(tree), tree)


def _code_list_text(tree: Classification) -> bytes:
    text = io.StringIO()
    parents = (parent or "" for parent in tree.parents)
    rows = zip(tree.codes, tree.labels, parents, strict=True)
    csv.writer(text, lineterminator="\n").writerows([("code", "label", "parent"), *rows])
    return text.getvalue().encode()


def read_code_map(base: Path, name: str, path: KeyPath, problems: Problems) -> CodeMap | None:
    """The file ``name``, with header ``code,class`` or ``code,class,label``.

    The label is the class's own; a class whose rows give two different labels is a mistake.
    """
    file = _read(base, name, path, problems, ("code", "class"), "label")
    if file is None:
        return None
    _tell_repeated(file, "code")
    labels: dict[str, str] = {}
    for line, (_, group, *own) in file.rows:
        label = own[0] if own else group
        if labels.setdefault(group, label) != label:
            told = f"class {shown(group)} has two labels, {shown(labels[group])} and {shown(label)}"
            file.mistakes.tell(line, told)
    if len(set(labels.values())) < len(labels):
        file.mistakes.tell(None, "two classes have the same label")
    if file.mistakes.told:
        return None
    return CodeMap({code: group for _, (code, group, *_) in file.rows}, labels, file.content)


def _read(
    base: Path, name: str, path: KeyPath, problems: Problems, required: tuple[str, ...], optional: str
) -> TextColumns | None:
    """A file with exactly these columns, of which the required ones are filled."""

    def wanted(header: list[str], _: FileMistakes) -> list[str] | None:
        if tuple(header) in (required, (*required, optional)):
            return header
        expected = ",".join(required)
        told = f"the header must be {expected} or {expected},{optional}; found {','.join(header)!r}"
        problems.add(path, f"{name}, line 1: {told}")
        return None

    file = read_public_file(base, name, path, problems, wanted)
    if file is None:
        return None
    for line, row in file.rows:
        if empty := [column for column, cell in zip(required, row, strict=False) if not cell]:
            file.mistakes.tell(line, f"{listed(empty)} is empty")
    return file


def _tell_repeated(file: TextColumns, column: str) -> None:
    first: dict[str, int] = {}
    for line, value in zip(file.line.tolist(), file.columns[column], strict=True):
        if value and first.setdefault(value, line) != line:
            file.mistakes.tell(line, f"{column} {shown(value)} is already on line {first[value]}")


OTHER = "other"
"""Label of the category that takes what the others do not, where the policy asks for one: always the last."""

NONE = "none"
"""Label of the last category of what is said of the first record of a unit, where it has no such record."""

SEATS = "records"
"""What the number of records of each unit is called, of which means and sums can be asked."""

NO_VALUE = -(2**63)
"""Raw value of the extra category of a numeric attribute."""

MOST_VALUES = 1_000_000
"""The most values that one attribute may have."""


@dataclass(frozen=True)
class ColumnRule:
    """The column that an attribute is read from, and what becomes of a value that its domain lacks.

    A policy is ``"refuse"``, which stops the release, or ``"other"``, which counts the record in the
    attribute's last category. ``made`` are the bins or periods that values are put in, ``clamp`` says that what is
    beyond the ends counts as the nearest end, and ``fold`` that text is compared without its case. ``from_records`` is
    what an attribute of a unit is made of, which is in no column: the name is empty then.
    """

    name: str
    unknown: Policy
    null: Policy
    made: Bins | Periods | Grid | None = None
    clamp: bool = False
    fold: bool = False
    from_records: FromRecords | None = None

    @property
    def has_other(self) -> bool:
        return OTHER in (self.unknown, self.null)


@dataclass(frozen=True)
class Schema:
    """The domain of what could be read; ``broken`` names what could not, so that its users are not blamed.

    ``files`` holds the content of every code list, under its published name; ``trees`` the attributes whose codes have
    levels.
    """

    domain: Domain | None
    columns: Mapping[str, ColumnRule]
    broken: frozenset[str]
    files: Mapping[str, bytes]
    trees: Mapping[str, Classification]


def read_schema(document: Document, base: Path, problems: Problems) -> Schema:
    """The domain that the document declares."""
    if not document.attributes:
        problems.add(("attributes",), "nothing is declared: add a line such as age = { range = [0, 114] }")
    reader = _Reader(document, base, problems)
    for name, entry in document.attributes.items():
        if entry and not entry.from_records:
            reader.attribute(name, entry)
    reader.of_units()
    recodes = [reader.recode(name, entry) for name, entry in document.recodes.items() if entry]
    for name, entry in document.values.items():
        if entry:
            reader.value(name, entry)
    reader.seats()
    built = [recode for recode in recodes if recode]
    whole = {*reader.attributes, *(recode.name for recode in built)}
    path = ("values",) if document.values else ("attributes",)
    domain = problems.attempt(path, lambda: Domain(reader.attributes, built)) if reader.attributes else None
    return Schema(
        domain=domain,
        columns=reader.columns,
        broken=frozenset({*document.attributes, *document.recodes, *document.values} - whole),
        files=reader.files,
        trees=reader.trees,
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
        self.trees: dict[str, Classification] = {}

    def attribute(self, name: str, entry: AttributeEntry) -> None:
        path: KeyPath = ("attributes", name)
        values = self.values(name, entry, path)
        if values is None:
            return
        column = ColumnRule(
            entry.column or name,
            entry.unknown or self.document.unknown,
            entry.null or self.document.null,
            values.made,
            clamp=entry.outside == "clamp",
            fold=entry.case == "ignore",
        )
        if column.fold and (told := _alike(values.raw)):
            self.problems.add((*path, "case"), told)
            return

        def built() -> Attribute:
            plain = Attribute(name, values.labels, values.ordered, values.raw, values.parents)
            whole = _with_other(plain, values.names) if column.has_other else plain
            return replace(whole, of_unit=entry.of is not None)

        if attribute := self.problems.attempt(path, built):
            self.attributes[name] = attribute
            self.columns[name] = column
            if values.tree is not None:
                self.trees[name] = values.tree.with_code(OTHER) if column.has_other else values.tree

    def values(self, name: str, entry: AttributeEntry, path: KeyPath) -> _Values | None:
        """The values that an entry lists, in whichever way."""
        if entry.codes is not None:
            hierarchy = entry.hierarchy is not None
            found = read_code_list(
                self.base, entry.codes, (*path, "codes"), self.problems, hierarchy=hierarchy
            )
            if found is None:
                return None
            self.files[CODES.format(attribute=name)] = found.content
            if found.tree is not None:
                return _Values(found.tree.leaf_labels, found.tree.leaves, tree=found.tree)
            return _Values(found.labels, found.codes, found.parents)
        if entry.bins is not None:
            return self.bins(entry, path)
        for part in PERIODS:
            if (ends := getattr(entry, part)) is not None:
                return self.periods(part, ends, entry.format, path)
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

    def bins(self, entry: AttributeEntry, path: KeyPath) -> _Values | None:
        """Classes of numbers, with the labels that are given, or those that the edges make."""
        made = self.problems.attempt((*path, "bins"), lambda: Bins(tuple(entry.bins or ()), entry.open))
        if made is None:
            return None
        labels = made.labels if entry.labels is None else tuple(entry.labels)
        if len(labels) != len(made.labels):
            told = f"has {len(labels)} labels, and the bins are {len(made.labels)}: {listed(made.labels)}"
            self.problems.add((*path, "labels"), told)
            return None
        return _Values(labels, labels, made=made)

    def periods(self, part: Part, ends: list[Any], written: str | None, path: KeyPath) -> _Values | None:
        """Years, quarters or months of dates."""
        form = ISO
        if written is not None:
            found = self.problems.attempt((*path, "format"), lambda: DateFormat(written))
            if found is None:
                return None
            form = found
        made = self.problems.attempt((*path, part), lambda: Periods(part, ends[0], ends[1], form))
        if made is None:
            return None
        return _Values(tuple(map(str, made.values)), made.values, made=made)

    def value(self, name: str, entry: ValueEntry) -> None:
        """A number of each record, as an attribute of its two ends."""
        path: KeyPath = ("values", name)
        taken = next((s for s in ("attributes", "recodes") if name in getattr(self.document, s)), None)
        if taken:
            self.problems.add(path, f"is the name of one of [{taken}], too: give the value another")
            return
        if entry.range is None:
            return
        low, high = entry.range

        def built() -> tuple[Attribute, Grid]:
            step = exact_number(entry.step)
            attribute = Attribute.measured(name, low, high, step, squares=bool(entry.squares))
            attribute = replace(attribute, of_unit=entry.of is not None)
            return attribute, Grid(low, high, step, None if entry.null == "refuse" else int(entry.null))

        if found := self.problems.attempt(path, built):
            self.attributes[name], grid = found
            clamp = entry.outside == "clamp"
            self.columns[name] = ColumnRule(entry.column or name, "refuse", "refuse", grid, clamp=clamp)

    def of_units(self) -> None:
        """Attributes of units that are made of their records, once those that they are made of are known."""
        read = {name: each for name, each in self.attributes.items() if not each.of_unit}
        for name, entry in self.document.attributes.items():
            if entry is None or not entry.from_records:
                continue
            for key in ("any", "count", "where"):
                if (text := getattr(entry, key)) is not None:
                    path: KeyPath = ("attributes", name, key)
                    holds = self.condition(path, text, read)
                    if holds is not None:
                        self.from_records(name, entry, holds, read)
        known = self.attributes
        self.attributes = {name: known[name] for name in self.document.attributes if name in known}

    def condition(self, path: KeyPath, text: str, read: Mapping[str, Attribute]) -> Predicate | None:
        """A condition on attributes of records."""
        if self.broken.intersection(re.findall(r"\w+", text)) or not read:
            return None  # it is judged once the names in it can be read
        from ..domain.sql import condition_from_sql

        return self.problems.attempt(path, lambda: condition_from_sql(Domain(read), written(path), text))

    @property
    def broken(self) -> frozenset[str]:
        """Attributes that could not be read."""
        return frozenset(
            name
            for name, entry in self.document.attributes.items()
            if name not in self.attributes and not (entry and entry.from_records)
        )

    def from_records(
        self, name: str, entry: AttributeEntry, holds: Predicate, read: Mapping[str, Attribute]
    ) -> None:
        """One attribute of units, with the categories that it can have."""
        path: KeyPath = ("attributes", name)
        if entry.first is not None:
            if entry.first not in read:
                told = f"there is no attribute of records {shown(entry.first)}; {nearest(entry.first, read)}"
                self.problems.add((*path, "first"), told)
                return
            of = read[entry.first]
            rule = FromRecords("first", holds, of.size, of.name)
            raw: tuple[int | str, ...] = (*of.values, NO_VALUE if of.numeric else NONE)
            labels, ordered = (*of.labels, NONE), False
        elif entry.count is not None:
            most = entry.most or 1
            rule = FromRecords("count", holds, most)
            labels, raw, ordered = (*map(str, range(most)), f"{most} or more"), tuple(range(most + 1)), True
        else:
            rule = FromRecords("any", holds)
            labels, ordered = tuple(entry.labels or ("no", "yes")), False
            raw = labels
            if len(labels) != 2:
                told = f"are two, of units without and with such a record, not {shown(list(labels))}"
                self.problems.add((*path, "labels"), told)
                return
        built = self.problems.attempt(
            path, lambda: Attribute(name, labels, ordered, raw, of_unit=True, from_records=True)
        )
        if built:
            self.attributes[name] = built
            self.columns[name] = ColumnRule("", "refuse", "refuse", from_records=rule)

    def seats(self) -> None:
        """The number of records of each unit, where units are counted with their records."""
        source, document = self.document.source, self.document
        if source is None or not document.counts_units or not self.attributes:
            return
        if document.is_geography or document.is_detailed:
            section = "geography" if document.is_geography else "detailed"
            told = f"units are counted in tables without areas and groups, and there is [{section}]: remove of = "
            for name in (name for name, entry in document.attributes.items() if entry and entry.of):
                self.problems.add(("attributes", name, "of"), f'{told}"unit"')
            return
        sections = {"attributes": document.attributes, "recodes": document.recodes, "values": document.values}
        if place := next((name for name, declared in sections.items() if SEATS in declared), None):
            told = "is what the number of records of each unit is called: give this another name"
            self.problems.add((place, SEATS), told)
            return
        if source.unit_id is None:
            told = (
                'is missing: units are counted, and it says which records are of one: unit_id = "household"'
            )
            self.problems.add(("source", "unit_id"), told)
            return
        self.attributes[SEATS] = Attribute.seats(SEATS, source.rows_per_unit)

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
            if entry.of in self.document.values:
                also = "; it is a value: under [attributes] declare bins = [0, 20000, ...] of the same column"
            self.problems.add(
                (*path, "of"), f"there is no attribute {shown(entry.of)}{also}; {nearest(entry.of, declared)}"
            )
            return None
        if entry.level is not None:
            return self.at_level(name, entry.of, entry.level, (*path, "level"))
        key = "edges" if entry.map is None else "map"
        mapping = None if entry.map is None else self.mapping(name, entry.map, (*path, key))
        if entry.of not in self.attributes or (entry.map is not None and mapping is None):
            return None
        attribute, rule = self.attributes[entry.of], self.columns[entry.of]
        build = (
            partial(_from_edges, edges=entry.edges or [])
            if mapping is None
            else partial(_from_map, mapping=mapping)
        )
        return self.problems.attempt((*path, key), lambda: build(name, attribute, rule))

    def at_level(self, name: str, of: str, level: int, path: KeyPath) -> Recode | None:
        """The recode by the codes of one level."""
        if of not in self.attributes:
            return None
        if of not in self.trees:
            self.problems.add(path, without_levels(of))
            return None
        return self.problems.attempt(path, lambda: self.trees[of].recode(name, of, level))

    def mapping(self, name: str, file: str, path: KeyPath) -> dict[int | str, str] | None:
        """Code -> label of its class, from a file."""
        found = read_code_map(self.base, file, path, self.problems)
        if found is None:
            return None
        self.files[MAPS.format(recode=name)] = found.content
        return {code: found.labels[group] for code, group in found.classes.items()}


def without_levels(name: str) -> str:
    """What to tell of an attribute of which levels are asked for."""
    how = 'codes = "codes.csv", hierarchy = true, with a column parent in the file'
    return f"the codes of {shown(name)} have no levels: declare it with {how}"


@dataclass(frozen=True)
class _Values:
    """What an attribute's categories are called, and what they are in the records."""

    labels: tuple[str, ...]
    raw: tuple[int | str, ...]
    parents: tuple[str | None, ...] | None = None
    tree: Classification | None = None
    made: Bins | Periods | Grid | None = None

    @property
    def names(self) -> frozenset[int | str]:
        """Every label and code, those of higher levels included."""
        return frozenset(
            (*self.labels, *self.raw, *((*self.tree.labels, *self.tree.codes) if self.tree else ()))
        )

    @property
    def ordered(self) -> bool:
        """Numbers that increase are ordered, and so are bins and periods; other strings are names."""
        return self.made is not None or (isinstance(self.raw[0], int) and list(self.raw) == sorted(self.raw))


def _alike(values: Sequence[int | str]) -> str | None:
    """What to say of two values that differ by case alone; None where there are none."""
    first: dict[str, str] = {}
    for value in map(str, values):
        if (before := first.setdefault(fold(value.strip()), value)) != value:
            return f"makes {shown(before)} and {shown(value)} one: list one of them, or remove it"
    return None


def _with_other(attribute: Attribute, taken: frozenset[int | str]) -> Attribute:
    """The attribute with the extra category last.

    It has no raw value, and a number is given one that no record holds. As it is not a neighbour of any number,
    the categories as a whole have no order any more: a comparison that would count it silently is refused.
    """
    if OTHER in taken:
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


def without_other(attribute: Attribute, rule: ColumnRule) -> Attribute:
    """An attribute that has the extra category as it would be without, its order restored."""
    plain = _Values(attribute.labels[:-1], attribute.values[:-1], made=rule.made)
    return Attribute(attribute.name, plain.labels, plain.ordered, plain.raw)


def _from_edges(name: str, attribute: Attribute, rule: ColumnRule, edges: list[int]) -> Recode:
    """Classes of neighbouring values; the extra category is a class of its own."""
    if not rule.has_other:
        return Recode.from_edges(name, attribute, edges)
    recode = Recode.from_edges(name, without_other(attribute, rule), edges)
    classes = np.append(recode.classes, len(recode.labels))
    return Recode(name, attribute.name, classes, (*recode.labels, OTHER))


def _from_map(name: str, attribute: Attribute, rule: ColumnRule, mapping: dict[int | str, str]) -> Recode:
    """Classes from a file; the extra category is a class of its own unless the file places it."""
    if rule.has_other and OTHER not in mapping:
        if OTHER in mapping.values():
            raise InvalidArgument(
                f'has a class "{OTHER}", and the policies of {attribute.name} ask for an extra category of '
                f"that name: say which class it belongs to, with a row for the code {OTHER}"
            )
        mapping = {**mapping, OTHER: OTHER}
    return Recode.from_map(name, attribute, mapping)
