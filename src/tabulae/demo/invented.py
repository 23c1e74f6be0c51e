"""Invented records for any spec: values that its attributes list, for a rehearsal or an audit.

A spec's domain says what records its source would hold, and its geography in which leaves, and how many of them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from ..domain import Attribute
from ..domain.predicate import All, Predicate, Test
from ..errors import Unsupported, require
from ..sources.classes import Grid
from ..sources.households import FromRecords
from ..sources.source import RecordSource
from ..spec import Spec

Raw = int | str | None


@dataclass(frozen=True)
class RecordColumn:
    """A column of the records: the values that it may hold, and the codes that each stands for.

    ``axes`` are the attributes that are read from it (k of them); ``codes`` has shape (values, k). ``apart`` says that
    it is a column of the units' own table.
    """

    name: str
    values: tuple[Raw, ...]
    axes: tuple[int, ...]
    codes: np.ndarray
    apart: bool = False

    @property
    def numeric(self) -> bool:
        return not any(isinstance(value, str) for value in self.values)


@dataclass(frozen=True)
class RecordLayout:
    """The columns of a spec's records. A record is a pick of one value in each: integers, shape (columns,).

    Where areas are counted, the last column holds the code of the leaf that a record lies in. Of an attribute that is a
    measured value codes are points of its grid. ``made`` are, by axis, the attributes of units that are made of their
    records.
    """

    columns: tuple[RecordColumn, ...]
    attributes: tuple[Attribute, ...]
    made: Mapping[int, FromRecords] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Spec) -> RecordLayout:
        """The columns that the spec's attributes are read from, each once.

        Raises :class:`~tabulae.errors.Unsupported` where several attributes share a column and no value fits
        them all, or where the column of ids is also counted.
        """
        axes: dict[tuple[str, bool], list[int]] = {}
        made: dict[int, FromRecords] = {}
        for axis, attribute in enumerate(spec.domain.attributes):
            rule = spec.columns.get(attribute.name)
            if rule is not None and rule.from_records is not None:
                made[axis] = rule.from_records
            elif rule is not None:
                apart = attribute.of_unit and spec.source.units is not None
                axes.setdefault((rule.name, apart), []).append(axis)
        if spec.unit_id in [name for name, _ in axes]:
            raise Unsupported(
                f"column {spec.unit_id!r} is both counted and the unit_id: no records can be invented for that"
            )
        for (name, _), found in axes.items():
            rules = [spec.columns[spec.domain.attributes[axis].name] for axis in found]
            if len(rules) > 1 and any(rule.made or rule.clamp or rule.fold for rule in rules):
                raise Unsupported(
                    f"several attributes are made of column {name!r}: no values can be invented that fit them all"
                )
        columns = [
            replace(_column(spec, name, tuple(found)), apart=apart) for (name, apart), found in axes.items()
        ]
        if spec.geography is not None:
            if (spec.geography.column, False) in axes:
                told = "is counted, and says in which leaf a record lies: no records can be invented for that"
                raise Unsupported(f"column {spec.geography.column!r} {told}")
            leaves = tuple(spec.geography.leaf_codes.tolist())
            columns.append(
                RecordColumn(spec.geography.column, leaves, (), np.zeros((len(leaves), 0), np.int64))
            )
        return cls(tuple(columns), spec.domain.attributes, made)

    @property
    def alike(self) -> list[int]:
        """The positions of the columns in which the records of a unit agree."""
        found = enumerate(self.columns)
        return [i for i, each in found if any(self.attributes[axis].of_unit for axis in each.axes)]

    @property
    def seats(self) -> int | None:
        """The axis that says whether a seat of a unit has a record; None where records are counted alone."""
        return next((axis for axis, each in enumerate(self.attributes) if each.is_seat), None)

    def codes(self, picks: np.ndarray) -> np.ndarray:
        """The cells (records, attributes) of records (records, columns)."""
        codes = np.zeros((len(picks), len(self.attributes)), dtype=np.int64)
        for position, column in enumerate(self.columns):
            codes[:, list(column.axes)] = column.codes[picks[:, position]]
        return codes

    def cells(self, people: People, most: int) -> tuple[np.ndarray, np.ndarray]:
        """The cells (parts, attributes) that people are counted in, and how many parts of them are there.

        At most so many records of a unit are counted, where those of one that has more are all alike.
        """
        if self.seats is None:
            return self.in_parts(self.codes(people.within(most).picks))
        cells, parts = [], []
        of_records = [axis for axis, each in enumerate(self.attributes) if not each.of_unit]
        for unit in np.unique(people.units):
            records = self.of_unit(people.group(unit))
            empty = records[:1].copy()
            empty[:, of_records] = 0
            counted = records[:most]
            cells += [counted, empty]
            parts += [1] * len(counted) + [most - len(counted)]
        return self.in_parts(np.concatenate(cells), np.array(parts, dtype=np.int64))

    def of_unit(self, picks: np.ndarray) -> np.ndarray:
        """The cells (records, attributes) of the seats of one unit's records, with what is made of them all."""
        records = self.codes(picks)
        for axis, rule in self.made.items():
            records[:, axis] = self._made(rule, records)
        records[:, self.seats] = 1
        return records

    def _made(self, rule: FromRecords, records: np.ndarray) -> int:
        """What is made of the records (records, attributes) of one unit, from the words of its rule."""
        names = [each.name for each in self.attributes]
        found = records[[_holds(rule.holds, dict(zip(names, each, strict=True))) for each in records]]
        if rule.kind == "first":
            return min(found[:, names.index(str(rule.of))], default=rule.most)
        return min(len(found), rule.most)

    def in_parts(self, codes: np.ndarray, times: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The cells (parts, attributes) at the ends of the values of records or seats, and how many parts are there."""
        parts, cells = [], []
        valued = {axis: a for axis, a in enumerate(self.attributes) if a.steps and not a.is_seat}
        shares = {axis: _shares(each, codes[:, axis]) for axis, each in valued.items()}
        for corner in np.ndindex(*(each.shape[1] for each in shares.values())):
            at, number = codes.copy(), np.ones(len(codes), dtype=np.int64) if times is None else times.copy()
            for (axis, share), end in zip(shares.items(), corner, strict=True):
                number *= share[:, end]
                at[:, axis] = end
            cells.append(at)
            parts.append(number)
        return np.concatenate(cells), np.concatenate(parts)

    def pick(self, cell: Sequence[int]) -> np.ndarray | None:
        """A record (columns,) that falls in a cell, at an end of each value; None where none can."""
        pick = []
        for column in self.columns:
            wanted = np.array([_code(self.attributes[axis], cell[axis]) for axis in column.axes])
            hits = np.flatnonzero((column.codes == wanted).all(axis=1))
            if not hits.size:
                return None
            pick.append(int(hits[0]))
        return np.array(pick, dtype=np.int64)

    def random_unit(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Records of one unit, which agree where they must."""
        picks = self.random(rng, count)
        picks[:, self.alike] = picks[0, self.alike]
        return picks

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Records (count, columns) drawn unevenly: few values are common, most are rare, some never occur."""
        picks = np.zeros((count, len(self.columns)), dtype=np.int64)
        for position, column in enumerate(self.columns):
            share = 1.0 / np.arange(1, len(column.values) + 1) ** 1.5
            order = rng.permutation(len(column.values))
            picks[:, position] = order[rng.choice(len(order), size=count, p=share / share.sum())]
        return picks


def _shares(value: Attribute, codes: np.ndarray) -> np.ndarray:
    """How many parts of a record at these points of the grid are in each category, (records, categories)."""
    if not value.squares:
        return np.stack([value.steps - codes, codes], axis=1)
    from scipy.interpolate import BSpline

    knots = np.repeat([0, value.steps / 2, value.steps], (3, 1, 3))
    return np.rint(BSpline.design_matrix(codes, knots, 2).toarray() * value.parts).astype(np.int64)


def _code(attribute: Attribute, category: int) -> int:
    """The point of a value's grid that is all in one category; -1 where none is."""
    if not attribute.steps:
        return category
    return {0: 0, attribute.size - 1: attribute.steps}.get(category, -1)


def _holds(predicate: Predicate, codes: Mapping[str, int]) -> bool:
    """A predicate of one record."""
    if isinstance(predicate, bool):
        return predicate
    if isinstance(predicate, Test):
        return bool(predicate.cells[tuple(codes[name] for name in predicate.attributes)])
    parts = (_holds(part, codes) for part in predicate.parts)
    return all(parts) if isinstance(predicate, All) else any(parts)


def _column(spec: Spec, name: str, axes: tuple[int, ...]) -> RecordColumn:
    attributes = [spec.domain.attributes[axis] for axis in axes]
    if len(attributes) == 1:
        pairs = _values(spec, attributes[0])
        values = tuple(value for value, _ in pairs)
        return RecordColumn(name, values, axes, np.array([[code] for _, code in pairs], dtype=np.int64))
    listed = [{str(value): code for value, code in _listed(spec, a)} for a in attributes]
    shared = [text for text in listed[0] if all(text in codes for codes in listed)]
    if not shared:
        names = ", ".join(repr(a.name) for a in attributes)
        raise Unsupported(
            f"attributes {names} are all read from column {name!r}, and no value is listed by each"
        )
    numeric = all(attribute.numeric for attribute in attributes)
    codes = np.array([[codes[text] for codes in listed] for text in shared], dtype=np.int64)
    return RecordColumn(name, tuple(int(text) if numeric else text for text in shared), axes, codes)


def _listed(spec: Spec, attribute: Attribute) -> list[tuple[int | str, int]]:
    """The values that the attribute lists, with their codes."""
    rule = spec.columns[attribute.name]
    if isinstance(rule.made, Grid):
        ends = ((str(rule.made.low - 1), 0), (str(rule.made.high + 1), attribute.steps))
        return [*rule.made.examples, *(ends if rule.clamp else ())]
    values = attribute.values[:-1] if rule.has_other else attribute.values
    examples = values if rule.made is None else rule.made.examples
    return [(value, code) for code, value in enumerate(examples)]


def _values(spec: Spec, attribute: Attribute) -> list[tuple[Raw, int]]:
    """Also NULL, or a value that is not listed, where a policy counts those."""
    rule = spec.columns[attribute.name]
    pairs: list[tuple[Raw, int]] = [*_listed(spec, attribute)]
    other = attribute.size - 1
    if rule.unknown == "other":
        if rule.clamp:  # no whole number is unknown
            pairs = [(str(value), code) for value, code in pairs]
        pairs.append(("unlisted" if rule.clamp or rule.made else _unlisted(attribute), other))
    if rule.null == "other":
        pairs.append((None, other))
    return pairs


def _unlisted(attribute: Attribute) -> int | str:
    if attribute.numeric:
        return max(int(value) for value in attribute.values) + 1
    text = "unlisted"
    while text in attribute.values:
        text += "+"
    return text


@dataclass(frozen=True)
class People:
    """Records, and the unit that each belongs to.

    Arguments:
        picks: one record a row, shape (records, columns of the layout).
        units: the number of the unit of each record, shape (records,).
    """

    picks: np.ndarray
    units: np.ndarray

    @classmethod
    def of(cls, groups: Sequence[np.ndarray]) -> People:
        sizes = [len(group) for group in groups]
        return cls(np.concatenate(list(groups)), np.repeat(np.arange(len(groups)), sizes))

    @property
    def count(self) -> int:
        """Units, had or had once: the number that a new one gets."""
        return int(self.units.max()) + 1

    def group(self, unit: int) -> np.ndarray:
        return self.picks[self.units == unit]

    def without(self, unit: int) -> People:
        """These people less one unit."""
        kept = self.units != unit
        return People(self.picks[kept], self.units[kept])

    def and_one(self, group: np.ndarray) -> People:
        units = np.append(self.units, np.full(len(group), self.count))
        return People(np.concatenate([self.picks, group]), units)

    def within(self, rows: int) -> People:
        """The same with at most so many records of each unit, where those of one that has more are all alike."""
        order = np.argsort(self.units, kind="stable")
        first = np.searchsorted(self.units[order], self.units[order])
        kept = order[np.arange(len(order)) - first < rows]
        return People(self.picks[kept], self.units[kept])

    def shuffled(self, rng: np.random.Generator) -> People:
        order = rng.permutation(len(self.units))
        return People(self.picks[order], self.units[order])


def invent(layout: RecordLayout, rng: np.random.Generator, units: int, most: int) -> People:
    """Uneven people: units of 1 to ``most`` records."""
    sizes = rng.integers(1, most + 1, size=units)
    picks, firsts = layout.random(rng, int(sizes.sum())), np.cumsum(sizes) - sizes
    alike = layout.alike
    picks[:, alike] = np.repeat(picks[firsts][:, alike], sizes, axis=0)
    return People(picks, np.repeat(np.arange(units), sizes))


def settled(people: People, layout: RecordLayout, geography: Any, rng: np.random.Generator) -> People:
    """The same people, but nobody where public files say that nobody or nobody more is, and enough where some must be.

    The first ones move to where a leaf must have somebody. Others stay, or change what they are so that it can occur in
    their leaf; where nothing more can, they leave.

    Args:
        geography: a :class:`~tabulae.products.areas.spec.section.Geography`.
    """
    plan, limits = geography.plan(), geography.constraints
    cells, support = plan.layout, plan.support
    part = np.zeros(cells.size, np.int64) if limits is None else limits.part
    room = np.full((support.shape[0], 1), len(people.units)) if limits is None else limits.upper.copy()
    least = np.zeros_like(room) if limits is None else limits.lower
    wanted = iter(np.repeat(np.argwhere(least > 0), least[least > 0], axis=0).tolist())
    dense_axes = [layout.attributes.index(cells.domain[name]) for name in cells.dense]
    picks, codes = people.picks.copy(), layout.codes(people.picks)
    place = cells.place[np.ravel_multi_index(tuple(codes.T), cells.domain.shape)]
    dense, stays = np.where(place < 0, -1, place // cells.algebra.cells), np.ones(len(picks), bool)
    for i, (must, at) in enumerate(zip(chain(wanted, repeat(None)), dense.tolist(), strict=False)):
        leaf = int(picks[i, -1]) if must is None else must[0]
        if must is not None or at < 0 or not support.has(leaf, at) or not room[leaf, part[at]]:
            able = support.patterns[support.pattern[leaf]] & (room[leaf, part] > 0)
            able &= True if must is None else part == must[1]
            if not able.any():
                stays[i] = False
                continue
            at = int(rng.choice(np.flatnonzero(able)))
            codes[i, dense_axes] = cells.codes[at]
            pick = layout.pick(codes[i])
            stays[i] = pick is not None
            picks[i] = picks[i] if pick is None else pick
            picks[i, -1] = leaf
        room[leaf, part[at]] -= 1
    return People(picks[stays], people.units[stays])


_WRITTEN = ("csv", "parquet", "duckdb")


def stored(people: People, layout: RecordLayout, spec: Spec, place: Path) -> RecordSource:
    """Write records as a source of the spec's kind, and units that have a table of their own beside them.

    What other processes read, a server or Spark, is written as Parquet.

    Args:
        place: the path of the new file, without its ending.
    """
    apart = spec.source.units is not None
    kind = spec.source.kind if spec.source.kind in _WRITTEN and not apart else "parquet"
    table = (spec.source.table or "people") if kind == "duckdb" else None
    _write(people, layout, spec.unit_id, path := place.with_suffix(f".{kind}"), table)
    units = None
    if apart:
        first = np.unique(people.units, return_index=True)[1]
        own = place.with_name(f"{place.name}-units.parquet")
        _write(People(people.picks[first], people.units[first]), layout, spec.unit_id, own, apart=True)
        units = RecordSource(own)
    return RecordSource(path, kind, table, units=units)


def _write(
    people: People,
    layout: RecordLayout,
    unit_id: str | None,
    path: Path,
    table: str | None = None,
    *,
    apart: bool = False,
) -> None:
    """Write the columns of records, or those of the units' own table, to a file of the kind that its ending says."""
    columns: dict[str, list[Raw]] = {
        column.name: [column.values[pick] for pick in people.picks[:, position]]
        for position, column in enumerate(layout.columns)
        if column.apart == apart
    }
    if unit_id is not None:
        columns[unit_id] = [f"u{unit}" for unit in people.units]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return
    import pyarrow as pa
    from pyarrow import parquet

    numeric = {column.name for column in layout.columns if column.numeric and column.apart == apart}
    records = pa.table(
        {
            name: pa.array(values, pa.int64() if name in numeric else pa.string())
            for name, values in columns.items()
        }
    )
    if path.suffix == ".parquet":
        parquet.write_table(records, path)
    else:
        _write_duckdb(records, path, table or "people")


def _write_duckdb(records, path: Path, table: str) -> None:
    duckdb = require("duckdb", None, "writing records")
    schema, _, name = table.rpartition(".")
    with duckdb.connect(str(path)) as connection:
        quoted = '"' + name.replace('"', '""') + '"'
        if schema:
            outer = '"' + schema.replace('"', '""') + '"'
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {outer}")
            quoted = f"{outer}.{quoted}"
        connection.register("invented", records)
        connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM invented")  # noqa: S608
