"""The queries of one attribute in a table: a word, a width or a file, as a matrix."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...domain import (
    TOTAL_LABEL,
    Attribute,
    AttributeView,
    Domain,
    Figure,
    Table,
    TableColumn,
    Workload,
    canonical_row_space,
    describe_row_space,
    heading_and_labels,
    positive_fraction,
)
from ...errors import InvalidArgument, Unsupported
from ...estimation.figures import Sampling
from ...estimation.intervals import whole_rows
from ...linalg import (
    AllRange,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Prefix,
    Stack,
    Total,
    WidthRange,
)
from ...privacy import decimal, exact
from ...sources.classes import Bins
from ...spec.derived import Derived
from ...spec.problems import KeyPath, Problems, Taken, nearest, shown, written
from ...spec.published import MATRICES
from ...spec.schema import OTHER, SEATS, Schema, without_levels, without_other
from ...spec.section import Section
from ...spec.sections import Document
from ...spec.shape import RELIABILITY, CountedEntry, InvariantEntry, MeasureEntry, TableEntry
from .earlier import read_earlier

_RANGES = {"prefix": Prefix, "ranges": AllRange}
_QUERIES = ("identity", "prefix", "ranges", "total", "hierarchy")
Totals = list[str] | bool | None
"""What a table has totals of: the attributes named, all of them, or none."""

_FORMS = (
    'write "identity", "prefix", "ranges", "total", "hierarchy", { width = 32 }, { levels = [1, 2] } or '
    '{ matrix = "w.npy" }'
)


class LabelledRows(NamedTuple):
    """The rows that a query asks of an attribute: a matrix, and labels where it does not say them itself."""

    matrix: LinearOperator
    labels: tuple[str, ...] | None = None


class Queries:
    """Builds matrices one at a time, recording what is wrong with each; keeps the files they came from."""

    def __init__(self, schema: Schema, base: Path, problems: Problems) -> None:
        self.schema = schema
        self.base = base
        self.problems = problems
        self.files: dict[str, bytes] = {}

    def factor(
        self, asked: tuple[str, str], query: object, view: AttributeView, path: KeyPath
    ) -> LabelledRows | None:
        """The rows that a query is, one column a category of the base attribute."""
        if query == "hierarchy":
            return self.levels(asked[1], None, view, path)
        if isinstance(query, dict) and list(query) == ["levels"]:
            return self.levels(asked[1], query["levels"], view, (*path, "levels"))
        matrix = self.plain(asked, query, view, path)
        return None if matrix is None else LabelledRows(matrix)

    def levels(self, name: str, levels: object, view: AttributeView, path: KeyPath) -> LabelledRows | None:
        """The codes of an attribute, or those of some of its levels, as sums over what records hold."""
        base = view.attribute.name
        tree = self.schema.trees.get(base)
        if name != base:
            self.problems.add(path, f"{shown(name)} is a recode: ask for levels of {shown(base)}")
        elif tree is None:
            self.problems.add(path, without_levels(name))
        elif levels is None:
            return LabelledRows(*tree.rows())
        elif not isinstance(levels, list) or not levels or not all(tree.has_level(each) for each in levels):
            told = f"must list levels of {shown(name)}, which are 1 to {tree.depth}, not {shown(levels)}"
            self.problems.add(path, told)
        elif len(set(levels)) < len(levels):
            self.problems.add(path, f"names a level twice: {shown(levels)}")
        else:
            return LabelledRows(*tree.rows(levels))
        return None

    def plain(
        self, asked: tuple[str, str], query: object, view: AttributeView, path: KeyPath
    ) -> LinearOperator | None:
        """The matrix of a query that needs no hierarchy."""
        classes = len(view.labels)
        if query == "identity":
            return view.operator
        if query == "total":
            return Total(view.attribute.size)
        if isinstance(query, str) and query not in _QUERIES:
            self.problems.add(path, f"{shown(query)} is not a query; {nearest(query, _QUERIES)}")
            return None
        if not isinstance(query, str) and (not isinstance(query, dict) or len(query) != 1):
            self.problems.add(path, f"{shown(query)} is not a query; {_FORMS}")
            return None
        if isinstance(query, dict) and "matrix" in query:
            over = self.matrix(asked, query["matrix"], classes, (*path, "matrix"))
        else:
            apart = self.schema.columns[view.attribute.name].has_other and view.labels[-1] == OTHER
            over = self.ranges(query, classes - apart, path)
            if over is not None and apart:
                return _beside_other(over, view)
        if over is None or isinstance(view.operator, Identity):
            return over
        return MatrixProduct(over, view.operator)

    def ranges(self, query: str | dict[str, object], cells: int, path: KeyPath) -> LinearOperator | None:
        """Prefixes, all ranges, or the ranges of one width, over neighbouring cells."""
        if isinstance(query, str):
            return _RANGES[query](cells)
        [(key, width)] = query.items()
        if key != "width":
            self.problems.add((*path, key), f"unknown query; {_FORMS}")
        elif not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= cells:
            self.problems.add((*path, key), f"must be a whole number from 1 to {cells}, not {shown(width)}")
        else:
            return WidthRange(cells, width)
        return None

    def matrix(
        self, asked: tuple[str, str], file: object, cells: int, path: KeyPath
    ) -> LinearOperator | None:
        """A matrix of queries from a ``.npy`` file, one column a category."""
        if not isinstance(file, str):
            self.problems.add(path, f"must name a .npy file, not {shown(file)}")
            return None
        try:
            content = (self.base / file).read_bytes()
            array = np.load(io.BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = getattr(error, "strerror", None) or "it is no .npy file of numbers"
            self.problems.add(path, f"cannot read {shown(file)}: {reason}")
            return None
        if (
            not isinstance(array, np.ndarray)
            or array.ndim != 2
            or array.dtype.kind not in "biuf"
            or not np.isfinite(array).all()
        ):
            self.problems.add(path, f"{file} must hold one matrix of finite numbers")
            return None
        if array.shape[1] != cells or not array.shape[0]:
            self.problems.add(
                path,
                f"{file} needs rows, and a column for each of the {cells} categories of {shown(asked[1])}: "
                f"its shape is {array.shape}",
            )
            return None
        if not array.any(axis=1).all():
            self.problems.add(path, f"{file} has a row of zeros, which counts nothing: remove it")
            return None
        self.files[MATRICES.format(table=asked[0], attribute=asked[1])] = content
        return Dense(_whole(array))

    def with_total(
        self, query: object, rows: LabelledRows, view: AttributeView, path: KeyPath | None
    ) -> LabelledRows:
        """The rows of a query, and a last one that counts all categories: one matrix, which one strategy answers.

        One that has such a row stays as it is; where ``path`` asks for a second one, that is a mistake.
        """
        factor = rows.matrix
        if self.counts_all(query, factor, view):
            if path is not None:
                told = "has a row that counts everything already, by its query: remove it here"
                self.problems.add(path, told)
            return rows
        if isinstance(factor, Partition) and factor.classes.min() >= 0:
            factor = MatrixProduct(_totalled(Identity(factor.shape[0])), factor)
        elif isinstance(factor, MatrixProduct):
            factor = MatrixProduct(_totalled(factor.left), factor.right)
        else:
            factor = _totalled(factor)
        return LabelledRows(factor, None if rows.labels is None else (*rows.labels, TOTAL_LABEL))

    def counts_all(self, query: object, factor: LinearOperator, view: AttributeView) -> bool:
        """Whether the query has a row that counts all categories, the extra one included."""
        if isinstance(query, dict) and "matrix" in query:
            return TOTAL_LABEL in heading_and_labels(Domain({"x": factor.shape[1]}), "x", factor)[1]
        if query == "hierarchy" or (isinstance(query, dict) and "levels" in query):
            return bool((factor @ np.ones(factor.shape[1]) == factor.shape[1]).any())
        apart = self.schema.columns[view.attribute.name].has_other and view.labels[-1] == OTHER
        if isinstance(query, str):
            return query == "total" or (query in _RANGES and not apart)
        return not apart and factor.shape[0] == 1  # the only run of a width has all


def _totalled(rows: LinearOperator) -> Stack:
    """The rows, and then their total over all columns."""
    return Stack((*(rows.ops if isinstance(rows, Stack) else (rows,)), Total(rows.shape[1])))


def _beside_other(ranges: LinearOperator, view: AttributeView) -> Stack:
    """Ranges of the ordered classes, then one row for the extra category, which is not a neighbour of any."""
    last = ranges.shape[1]
    classes = view.operator.classes if isinstance(view.operator, Partition) else np.arange(last + 1)
    ordered = Partition(np.where(classes < last, classes, -1), last)
    other = Partition(np.where(classes == last, 0, -1), 1)
    return Stack((MatrixProduct(ranges, ordered), other))


def _whole(array: np.ndarray) -> np.ndarray:
    """The matrix in whole numbers where it has no others, so that it is counted exactly."""
    numbers = array.astype(np.float64)
    whole = (numbers == np.rint(numbers)).all() and np.abs(numbers).max() < 2**53
    return numbers.astype(np.int64) if whole else numbers


@dataclass(frozen=True)
class Invariant:
    """A table of counts that are published exactly, and why, in the words that the report prints."""

    table: Table
    reason: str


def read_section(
    document: Document, schema: Schema, promise: object, method: object, base: Path, problems: Problems
) -> Section | None:
    """The tables and invariants that the document publishes, over the domain that it declares."""
    names = _distinct_names(document, problems)
    if schema.domain is None:
        return None
    reader = _Tables(schema.domain, schema, base, problems)
    tables = [
        entry and reader.table(("table", at), entry, entry.name, entry.weight, entry.totals)
        for at, entry in enumerate(document.tables)
    ]
    measured = _Measured(schema, problems)
    for at, (entry, table) in enumerate(zip(document.tables, tables, strict=True)):
        if entry and entry.name and table:  # a missing name is told already
            measured.add(("table", at), entry, table)
    built = measured.tables
    measured.check_used(document)
    measured.check_published()
    exact = _invariants(document, reader, names)
    earlier = read_earlier(document, schema, method, base, problems)
    _check_units(document, schema.domain, problems)
    if document.reliability and document.reliability.column:
        for section, declared in (("attributes", document.attributes), ("recodes", document.recodes)):
            if RELIABILITY in declared:
                told = "has the name of the column that [reliability] asks for: call it something else"
                problems.add((section, RELIABILITY), told)
    if document.release:
        rows = {
            table.name: table.rows(schema.domain) for table in (*built, *(given.table for given in exact))
        }
        _within(document.release.max_rows, rows, problems)
    if problems.found:
        return None
    parts = {
        "invariants": tuple(exact),
        "_workload": Workload(schema.domain, built),
        "units": measured.units,
        "sampling": measured.sampling,
    }
    parts["earlier"] = tuple(earlier.counts)
    parts["_planned"] = frozenset(derived.name for derived in measured.figures)
    files, figures = {**reader.queries.files, **earlier.files}, tuple(measured.figures)
    return Section(parts, files, listed=False, figures=figures, marks=earlier.marks)


def _check_units(document: Document, domain: Domain, problems: Problems) -> None:
    """Refuse what does not go with units that are counted with their records."""
    if domain.seats is None:
        return
    if document.invariants:
        told = "nothing works out yet what exact counts say of units that are counted with their records: remove it"
        problems.add(("invariant",), told)
    for at, entry in enumerate(document.tables):
        if entry and entry.sql and entry.counts:
            told = "goes with attributes and queries: in sql write FROM units, or FROM records"
            problems.add(("table", at, "counts"), told)


class _Measured:
    """The tables that a table of counts is published as, one for each of its measures."""

    def __init__(self, schema: Schema, problems: Problems) -> None:
        assert schema.domain is not None
        self.domain, self.schema, self.problems = schema.domain, schema, problems
        self.tables: list[Table] = []
        self.units: dict[str, str] = {}
        self.sampling: dict[str, Sampling] = {}
        self.figures: list[Derived] = []

    def add(self, path: KeyPath, entry: TableEntry, table: Table) -> None:
        """Each measure weighs as what a record adds at most, means as half of their range, so that a record is one."""
        near = {measure.mean: measure.near for measure in entry.measures or () if measure.mean}
        if entry.survey_weight is not None:
            found = self.problems.attempt((*path, "survey_weight"), lambda: self._weighted(entry, table))
            if found is None:
                return
            table = found
        for name, measure in entry.published.items():
            try:
                weight = table.weight * positive_fraction(measure.weight or 1, "a weight")
                if self.domain.seats is not None:
                    self._check_counted(measure, table)
                if measure.quantiles:
                    self._quantile(name, measure, table, weight)
                elif not measure.values:
                    self._count(name, entry, table, weight)
                elif None not in (values := [self.value(each) for each in measure.values]):
                    self._values(name, measure, table, weight, [v for v in values if v], near)
                if entry.survey_weight and not measure.count and name in self.units:
                    self._tell_sampling(name, entry, measure, table)
            except (InvalidArgument, Unsupported) as error:
                at = ("sql",) if entry.measures is None or measure.count else ("measures",)
                if not self.problems.has((*path, *at)):  # of several quantiles one mistake is told once
                    self.problems.add((*path, *at), str(error))

    def _tell_sampling(self, name: str, entry: TableEntry, measure: MeasureEntry, table: Table) -> None:
        """Whether sampling is in the interval: in those of sums and means of values whose variance is asked for."""
        held = self._sampling(name, entry, measure, table)
        if held is not None:
            self.sampling[name] = held
        told = f", each record counted {entry.survey_weight} times, sampling {'' if held else 'not '}in the interval"
        self.units[name] += told
        if self.figures and self.figures[-1].name == name:
            self.figures[-1] = replace(self.figures[-1], title=self.figures[-1].title + told)

    def _sampling(self, name: str, entry: TableEntry, measure: MeasureEntry, table: Table) -> Sampling | None:
        """What a sum or a mean varies by over samples, where its squares are measured."""
        about = measure.sum or measure.mean or ""
        near = {each.mean: each.near for each in entry.measures or () if each.mean}
        squared = {each.variance for each in entry.measures or ()}
        value = self.value(about) if about in squared else None
        if entry.sampling is None or value is None:
            return None
        around = _about(value, near.get(about))
        (of,) = Figure.variance(name, self.domain, table, value, around).variances
        return Sampling(entry.sampling.a, entry.sampling.b or 0.0, of, around, mean=measure.mean is not None)

    def _weighted(self, entry: TableEntry, table: Table) -> Table | None:
        """The table with each record counted as often as its survey weight says."""
        name = entry.survey_weight or ""
        weigher = self.value(name)
        if weigher is None:
            return None
        if (
            any(name in measure.values for measure in entry.measures or ())
            or weigher.name in table.attributes
        ):
            told = (
                "is the weight of this table, and not summed in it: sum it in a table without survey_weight"
            )
            raise InvalidArgument(f"{shown(name)} {told}")
        if self.domain.seats is not None:
            self.domain.seat_factor([name], of_units=SEATS not in table.attributes)
        if weigher.ends[0] < 0:
            raise InvalidArgument(f"{shown(name)} may be negative, by its range, and weights are not")
        summed = {weigher.name: weigher.moment()}
        return table.sums(self.domain, table.name, summed, table.weight / _largest(summed))

    def _check_counted(self, measure: MeasureEntry, table: Table) -> None:
        """Refuse measures of records in a table of units, and of the number of a unit's records in one of records."""
        asked = [name for name in (*measure.values, measure.of) if name and name in self.domain]
        self.domain.seat_factor(asked, of_units=SEATS not in table.attributes)

    def _count(self, name: str, entry: TableEntry, table: Table, weight: Fraction) -> None:
        """The table itself, which in SQL may be of sums."""
        if entry.survey_weight:
            told = "intervals are about the noise alone, and sampling is not in them"
            if entry.sampling is not None:
                held = self.sampling[name] = Sampling(entry.sampling.a, entry.sampling.b or 0.0)
                told = (
                    "intervals are about noise and sampling, whose variance at a count n is "
                    f"{f'{held.a:g} n² + ' if held.a else ''}{held.b:g} n"
                )
            self.units[name] = f"records, each counted {entry.survey_weight} times; {told}"
            self.tables.append(table.weighted(name, weight))
            return
        factors = {v.name: v for v in self.domain.measured if v.name in table.attributes and not v.is_seat}
        if factors and entry.measures:
            told = f"sums {shown(next(iter(factors)))}, and measures are of counts: ask for COUNT(*), or drop measures"
            raise InvalidArgument(told)
        if factors:
            summed = {name: table.terms[0].factors[name] for name in factors}
            plain = {each: value.moment() == summed[each] for each, value in factors.items()}
            told = [f"{each}{'' if plain[each] else ' squared'}" for each in summed]
            self.units[name] = f"sum of {' times '.join(told)}"
            weight /= _largest(summed)
        self.tables.append(table.weighted(name, weight))

    def _values(
        self,
        name: str,
        measure: MeasureEntry,
        table: Table,
        weight: Fraction,
        values: list[Attribute],
        near: Mapping[str, int | str | None],
    ) -> None:
        """Sums; or means and variances, and the table that stands for each."""
        value = values[0]
        if measure.sum:
            summed = {each.name: each.moment(values.count(each)) for each in values}
            self.units[name] = f"sum of {' times '.join(each.name for each in values)}"
            self.tables.append(table.sums(self.domain, name, summed, weight / _largest(summed)))
            return
        if len(values) > 1:
            raise InvalidArgument(
                f"{shown(' * '.join(measure.values))} is a product, and products have sums only"
            )
        if measure.clamping and measure.of in self.schema.broken:
            return
        if measure.clamping:
            figure, measured = self._clamping(name, measure.of or "", table.weighted(name, weight), value)
            self.tables.append(measured)
            self._figure(figure)
            self.units[name] = f"what clamping takes from the sum of {value.name}, at least and at most"
            return
        low, high = value.ends
        about = _about(value, near[value.name])
        if measure.mean:
            decides, figure = value.moment(1, about), Figure.mean(name, self.domain, table, value)
            weight *= Fraction(2, high - low)
        else:  # the table is of squares less those of a quarter of the range, about what the variance may be
            squares = value.moment(2, about).dense() - ((high - low) / 4) ** 2
            decides, figure = Dense(squares), Figure.variance(name, self.domain, table, value, about)
            weight /= _largest({name: decides})
        self.tables.append(table.sums(self.domain, name, {value.name: decides}, weight))
        self._figure(figure)
        kind = "mean" if measure.mean else "variance"
        self.units[name] = f"{kind} of {value.name}, times the number of records"

    def _clamping(self, name: str, of: str, table: Table, value: Attribute) -> tuple[Figure, Table]:
        """What clamping takes from sums, from classes of the same numbers that reach beyond the range."""
        self._check_attribute(of)
        rule, clamped = self.schema.columns[of], self.schema.columns[value.name]
        ends = rule.made.ends if isinstance(rule.made, Bins) else None
        if ends is None or rule.name != clamped.name or rule.unknown == OTHER:
            raise InvalidArgument(
                f"{shown(of)} does not say how large the numbers of {value.name} are: give it the same column and bins "
                "of whole numbers that are not open, and refuse what is in none"
            )
        if not clamped.clamp:
            raise InvalidArgument(f'nothing of {value.name} is clamped: it has outside = "refuse"')
        excess = np.array(ends, dtype=np.int64).T
        excess = excess - np.clip(excess, *value.ends)
        if not excess.any():
            raise InvalidArgument(f"no class of {shown(of)} reaches beyond the range of {value.name}")
        missing = self.domain[of].size - len(ends)  # NULL, which stands for a number of the range
        figure, measured = Figure.clamping(
            name, self.domain, table, value, of, np.pad(excess, ((0, 0), (0, missing)))
        )
        return figure, measured.weighted(name, table.weight / int(np.abs(excess).max()))

    def _check_attribute(self, of: str) -> None:
        if of not in self.domain:
            told = "is a recode" if self.domain.recode(of) else "is no attribute"
            raise InvalidArgument(f"{shown(of)} {told}; {nearest(of, self.domain.names)}")

    def _quantile(self, name: str, measure: MeasureEntry, table: Table, weight: Fraction) -> None:
        """A quantile in each row, and the cumulative counts that it is where they reach a share."""
        of, share = measure.of or "", exact((measure.quantiles or [""])[0])
        if of in self.schema.broken:
            return
        self._check_attribute(of)
        if self.domain[of].steps:
            told = (
                "is a value, of which sums and means are published: for quantiles declare bins of its column"
            )
            raise InvalidArgument(f"{shown(of)} {told}")
        made = self.schema.columns[of].made
        bins = made.ends if isinstance(made, Bins) else None
        self._figure(Figure.quantile(name, self.domain, table, of, share, bins))
        (quantile,) = self.figures[-1].figure.quantiles
        self.tables.append(quantile.table.weighted(name, weight / share.denominator))
        self.units[name] = (
            f"{share.denominator} times (records at or below a value, less {decimal(share)} of the records)"
        )

    def _figure(self, figure: Figure) -> None:
        self.figures.append(Derived(figure, figure.sql.capitalize()))

    def value(self, name: str) -> Attribute | None:
        """The value of that name; None where it is the declaration that is wrong."""
        known = [attribute.name for attribute in self.domain.measured]
        if name in known:
            return self.domain[name]
        if name in self.schema.broken:
            return None
        also = "; it is an attribute, and sums are of values" if name in self.domain else ""
        raise InvalidArgument(
            f"there is no value {shown(name)}{also}; {nearest(name, known) if known else _DECLARE}"
        )

    def check_used(self, document: Document) -> None:
        """Refuse a value that nothing is about: its faults would stop a run for nothing."""
        asked = [entry.sql for entry in (*document.tables, *document.derived) if entry and entry.sql]
        used = {name for table in self.tables for name in table.attributes}
        for name in document.values.keys() - used:
            if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) for sql in asked):
                told = f'is in no table: add measures = ["count", {{ sum = "{name}" }}] to one, or remove it'
                self.problems.add(("values", name), told)

    def check_published(self) -> None:
        """Refuse a spec of quantiles alone: no file of counts would be published."""
        if self.figures and len(self.figures) == len(self.tables):
            told = 'are quantiles alone in every table, and a release has some counts: add "count"'
            self.problems.add(("table", 0, "measures"), told)


def _about(value: Attribute, near: int | str | None) -> int:
    """The public number that means are about: the middle of the range where nobody says."""
    return sum(value.ends) // 2 if near is None else int(near)


def _largest(summed: Mapping[str, LinearOperator]) -> Fraction:
    """What one record adds to a sum at most."""
    return math.prod(
        (Fraction(float(factor.abs_entry_max())) for factor in summed.values()), start=Fraction(1)
    )


_DECLARE = "declare it under [values], as in income = { range = [0, 200000], step = 1000 }"


def _invariants(document: Document, reader: _Tables, names: Taken) -> list[Invariant]:
    """The entries that could be read; one that says the same as another is a mistake."""
    found: list[Invariant] = []
    first: dict[str, KeyPath] = {}
    for at, entry in enumerate(document.invariants):
        path: KeyPath = ("invariant", at)
        table = entry and reader.table(path, entry, entry.title)
        if not entry or not table:
            continue
        try:
            span = canonical_row_space(describe_row_space(table, reader.domain))
        except (InvalidArgument, Unsupported) as error:
            reader.problems.add((*path, "queries"), str(error))
            continue
        if not whole_rows(reader.domain, table.operator(reader.domain)):
            told = "asks for sums that need not be whole numbers, and only these are exact: write COUNT(*), or step = 1"
            reader.problems.add((*path, "sql"), f"{told} under [values]")
            continue
        if (before := first.setdefault(span, path)) != path:
            reader.problems.add(path, f"makes the same counts exact as {written(before)}: keep one")
        elif entry.name is None:
            _take(names, table.name, path, reader.problems)
        found.append(Invariant(table, entry.reason or ""))
    return found


def _within(limit: int, rows: dict[str, int], problems: Problems) -> None:
    """Refuse to publish more than the limit, before a row of it is labelled."""
    total = sum(rows.values())
    if total > limit:
        largest = max(rows, key=lambda name: rows[name])
        problems.add(
            ("release", "max_rows"),
            f"the tables have {total:,} rows in all, {rows[largest]:,} of them in {shown(largest)}, and at "
            f"most {limit:,} are published: ask for less, or write max_rows = {total} under [release]",
        )


def _distinct_names(document: Document, problems: Problems) -> Taken:
    """The names that are written, each with its entry; two that are the same are a mistake."""
    names = Taken()
    for section, entries in (("table", document.tables), ("invariant", document.invariants)):
        for at, entry in enumerate(entries):
            for name in entry.published if isinstance(entry, TableEntry) and entry.name else ():
                _take(names, name, (section, at), problems)
            if isinstance(entry, InvariantEntry) and entry.name is not None:
                _take(names, entry.name, (section, at), problems)
    for at, entry in enumerate(document.invariants):
        if entry and entry.title is None and not problems.has(("invariant", at, "name")):
            problems.add(
                ("invariant", at, "name"), 'is missing: sql has no short form, so write name = "exact ..."'
            )
    return names


def _take(names: Taken, name: str, path: KeyPath, problems: Problems) -> None:
    """Names become files."""
    if told := names.by(name, path):
        problems.add((*path, "name"), told)


class _Tables:
    """Builds tables one at a time, recording what is wrong with each."""

    def __init__(self, domain: Domain, schema: Schema, base: Path, problems: Problems) -> None:
        self.domain = domain
        self.schema = schema
        self.queries = Queries(schema, base, problems)
        self.problems = problems

    def table(
        self,
        path: KeyPath,
        entry: CountedEntry,
        title: str | None,
        weight: float = 1,
        totals: Totals = None,
    ) -> Table | None:
        key = "name" if entry.sql is None else "sql"
        name = title or written(path)
        try:
            if entry.sql is not None:
                return self.from_sql(name, entry.sql, weight)
            asked = self.product(path, name, entry, totals)
            if len(asked) < len(list(_asked(path, entry))):
                return None
            factors = {base: rows.matrix for base, (_, rows) in asked.items()}
            table = Table(name, factors, weight, self.columns(asked))
            of_units = isinstance(entry, TableEntry) and entry.counts == "units"
            return table.counting(self.domain, of_units=of_units)
        except (InvalidArgument, Unsupported) as error:
            self.problems.add((*path, key), str(error))
            return None

    def from_sql(self, name: str, sql: str, weight: float) -> Table | None:
        broken = "|".join(map(re.escape, self.schema.broken))
        if broken and re.search(rf"(?<!\w)(?:{broken})(?!\w)", sql, re.IGNORECASE):
            return None  # the statement is judged once the names in it can be read
        from ...domain.sql import table_from_sql

        return table_from_sql(self.domain, name, sql, weight)

    def product(
        self, at: KeyPath, table: str, entry: CountedEntry, totals: Totals
    ) -> dict[str, tuple[str, LabelledRows]]:
        """Base attribute -> the name it was asked for under, and its rows, of all that could be read."""
        wanted = self.totals(at, entry, totals)
        asked: dict[str, str] = {}
        read: dict[str, tuple[str, LabelledRows]] = {}
        for name, query, path in _asked(at, entry):
            view = self.view(name, path)
            if view is None:
                continue
            base = view.attribute.name
            if base in asked:
                views = (
                    "twice" if asked[base] == name else f"and {shown(asked[base])}, views of one attribute"
                )
                self.problems.add(path, f"the table has {shown(name)} {views}: keep one")
                continue
            asked[base] = name
            rows = self.queries.factor((table, name), query, view, path)
            if rows is not None and name in wanted:
                rows = self.queries.with_total(query, rows, view, wanted[name])
            if rows is not None:
                read[base] = name, rows
        return read

    def totals(self, at: KeyPath, entry: CountedEntry, totals: Totals) -> dict[str, KeyPath | None]:
        """Each name that is to have a total, with the key that asks for it; None where all are asked for at once."""
        asked = [name for name, _, _ in _asked(at, entry)]
        if totals is not None and not asked:
            told = "the table has no attribute, and is the total itself: remove totals"
            self.problems.add((*at, "totals"), told)
            return {}
        if isinstance(totals, bool):
            return dict.fromkeys(asked)
        wanted: dict[str, KeyPath | None] = {}
        for position, name in enumerate(totals or ()):
            path = (*at, "totals", position)
            if name in wanted:
                self.problems.add(path, f"names {shown(name)} twice: keep one")
            elif name not in asked:
                self.problems.add(path, f"the table has no {shown(name)}; {nearest(name, asked)}")
            wanted.setdefault(name, path)
        return wanted

    def view(self, name: str, path: KeyPath) -> AttributeView | None:
        """The attribute or recode of that name; silent where it is the declaration that is wrong."""
        known = [attribute.name for attribute in self.domain.attributes if not attribute.steps]
        known += [recode.name for recode in self.domain.recodes]
        if name in known:
            return self.domain.resolve(name)
        if name in self.domain:
            told = 'is a value, of which sums and means are published: name it in measures, as in { mean = "'
            self.problems.add(path, f'{shown(name)} {told}{name}" }}; for counts declare bins of its column')
            return None
        if name not in self.schema.broken:
            self.problems.add(path, f"there is no attribute or recode {shown(name)}; {nearest(name, known)}")
        return None

    def columns(self, asked: dict[str, tuple[str, LabelledRows]]) -> dict[str, TableColumn] | None:
        """Headings and row labels, where the matrix alone does not say under which name it was asked, or of what."""
        told = {base for base, (name, rows) in asked.items() if base != name or rows.labels is not None}
        plain = [asked[base][1] for base in told]
        if all(isinstance(rows.matrix, Partition) and rows.labels is None for rows in plain):
            return None
        # Once labels are given, an attribute of a single row is shown only if it is among them.
        return {
            base: TableColumn(name, rows.labels or self.labels(base, rows.matrix))
            for base, (name, rows) in asked.items()
            if base in told or rows.matrix.shape[0] == 1
        }

    def labels(self, base: str, factor: LinearOperator) -> tuple[str, ...]:
        """The label of each row; ranges beside the extra category are named as if it were not there."""
        ranges = factor.ops[0] if isinstance(factor, Stack) else None
        rule = self.schema.columns[base]
        if not (isinstance(ranges, MatrixProduct) and rule.has_other):
            return heading_and_labels(self.domain, base, factor)[1]
        plain = without_other(self.domain[base], rule)
        assert isinstance(factor, Stack)
        assert isinstance(ranges.right, Partition)
        classes = MatrixProduct(ranges.left, Partition(ranges.right.classes[:-1], ranges.right.count))
        total = (TOTAL_LABEL,) * (len(factor.ops) - 2)
        return (*heading_and_labels(Domain({base: plain}), base, classes)[1], OTHER, *total)


def _asked(path: KeyPath, entry: CountedEntry) -> Iterator[tuple[str, object, KeyPath]]:
    """Every name with its query, and the key that asks for it; attributes are asked for value by value."""
    for position, name in enumerate(entry.attributes or ()):
        yield name, "identity", (*path, "attributes", position)
    for name, query in (entry.queries or {}).items():
        yield name, query, (*path, "queries", name)
