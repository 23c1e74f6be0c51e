"""Published counts of areas: from estimates for the leaves of a spine to rows with intervals, some areas at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from ..geography.layout import Layout, Margin
from ..spec.geography import AREA, AREA_TYPE, AreaTable
from ..topdown.areas import margin_variance
from .tables import ESTIMATED, EXACT, label_columns

AREA_COLUMNS = (AREA_TYPE, AREA)
GLS_ESTIMATE = "gls_estimate"
UNBIASED = "gls"
"""The method whose estimates have variances; the others' tables carry its estimates and intervals beside their own."""

_ROWS = 1 << 18  # about how many rows are made at a time
_VARIANCES = 1 << 22  # and how many numbers of covariances
_CANCELLED = 1e-9  # of the terms of a variance: below it, they cancel


class LeafEstimate(Protocol):
    """An estimate of every cell of every leaf, which adds up leaves."""

    def margin(self, margin: Margin, area: np.ndarray, areas: int) -> np.ndarray:
        """Shape (areas, classes, inner): a marginal of sets of leaves; ``area`` is -1 for leaves in none."""
        ...


class AreaVariances(Protocol):
    """Covariances of an unbiased estimate, for sets of leaves."""

    def covariances(self, area: np.ndarray, areas: int) -> Iterator[np.ndarray]:
        """For each set of leaves, shape (kinds, D, D); 0 for dense cells that cannot occur in it."""
        ...

    def half_widths(self, variance: np.ndarray, level: float) -> np.ndarray:
        """Half the width of an interval for each variance."""
        ...


@dataclass(frozen=True, eq=False)
class Areas:
    """All areas of one type.

    Args:
        kind: a level or a type of entity.
        codes: shape (areas,).
        leaf: shape (leaves,): the area of each leaf of the spine; -1 where it lies in none. An area without a leaf is
            outside the universe: nobody can be there.
    """

    kind: str
    codes: np.ndarray
    leaf: np.ndarray


def table_schemas(tables: Sequence[AreaTable], method: str) -> dict[str, pa.Schema]:
    """Columns of each published table."""
    return {table.name: _schema(table, method) for table in tables}


def _schema(table: AreaTable, method: str) -> pa.Schema:
    words, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    numbers = [("estimate", number)]
    if method != UNBIASED:
        numbers = [("estimate", pa.int64()), (GLS_ESTIMATE, number)]
    fields = [(name, words) for name in (*AREA_COLUMNS, *table.margin.names)]
    fields += [*numbers, *((name, number) for name in ("std_error", "ci_low", "ci_high"))]
    return pa.schema([*fields, ("obs_status", words)])


@dataclass(frozen=True, eq=False)
class AreaPublisher:
    """Makes the rows of all tables, from estimates that know nothing of tables.

    Args:
        layout: of the cells.
        support: shape (leaves, D), boolean: which dense cells can occur in each leaf.
        method: how ``published`` was estimated.
        published: the estimates of the tables.
        unbiased: those of ``gls``; the same object where that is the method.
        variances: of the latter.
        has_exact: whether some counts are exact, so that others may follow from them.
        level: of the intervals.
    """

    layout: Layout
    support: np.ndarray
    method: str
    published: LeafEstimate
    unbiased: LeafEstimate
    variances: AreaVariances
    has_exact: bool
    level: float

    def rows(self, tables: Sequence[AreaTable], areas: Sequence[Areas]) -> Iterator[tuple[str, pa.Table]]:
        """Pieces of tables with the names of the tables; each table's in order: by type of area, area and cell."""
        for each in areas:
            asked = [table for table in tables if each.kind in table.areas]
            if not asked:
                continue
            step = self._step(max(table.margin.size for table in asked))
            for first in range(0, each.codes.size, step):
                part = _Part.of(each, first, min(step, each.codes.size - first))
                possible = self._possible(part)
                covariance = np.stack([*self.variances.covariances(part.leaf, part.codes.size)])
                for table in asked:
                    yield table.name, self._table(table, part, possible, covariance)

    def _step(self, cells: int) -> int:
        """How many areas are looked at together."""
        matrix = self.layout.algebra.kinds * self.layout.size**2
        return max(1, min(_ROWS // cells, _VARIANCES // matrix))

    def _possible(self, part: _Part) -> np.ndarray:
        """Shape (areas, D): which dense cells can occur somewhere in each area."""
        found = np.zeros((part.codes.size, self.layout.size), bool)
        inside = np.flatnonzero(part.leaf >= 0)
        np.logical_or.at(found, part.leaf[inside], self.support[inside])
        return found

    def _table(self, table: AreaTable, part: _Part, possible: np.ndarray, covariance: np.ndarray) -> pa.Table:
        """The rows of some areas: numbers of shape (areas, classes, inner), put in the table's own order."""
        margin, count = table.margin, part.codes.size
        classes = np.arange(margin.classes)[:, None] == margin.label
        empty = ~(possible @ classes.T)[:, :, None]
        variance = margin_variance(self.layout, covariance, margin)
        exact = np.broadcast_to(empty, variance.shape)
        if self.has_exact:
            terms = margin_variance(self.layout, np.abs(covariance), margin)
            exact = exact | (variance <= _CANCELLED * terms)
        variance = np.where(exact, 0.0, np.maximum(variance, 0.0))
        middle = np.where(empty, 0.0, self.unbiased.margin(margin, part.leaf, count))
        middle = np.where(exact, np.rint(middle), middle)
        numbers = [middle, np.sqrt(variance), self.variances.half_widths(variance, self.level)]
        estimate = middle
        if self.method != UNBIASED:
            estimate = np.where(empty, 0, self.published.margin(margin, part.leaf, count))
        place = np.argsort(margin.order.ravel())
        ordered = [array.reshape(count, -1)[:, place].ravel() for array in (estimate, *numbers, exact)]
        return self._arrow(table, part, *ordered)

    def _arrow(
        self,
        table: AreaTable,
        part: _Part,
        estimate: np.ndarray,
        middle: np.ndarray,
        deviation: np.ndarray,
        half: np.ndarray,
        exact: np.ndarray,
    ) -> pa.Table:
        schema, count, cells = _schema(table, self.method), part.codes.size, table.margin.size
        domain = self.layout.domain
        labels = label_columns({name: tuple(domain.resolve(name).labels) for name in table.margin.names})
        columns: dict[str, pa.Array] = {
            AREA_TYPE: _words(np.zeros(count * cells, np.int32), [part.kind]),
            AREA: _words(np.repeat(np.arange(count, dtype=np.int32), cells), part.codes.tolist()),
        }
        for name, column in labels.items():
            columns[name] = pa.DictionaryArray.from_arrays(
                np.tile(column.indices.to_numpy(), count), column.dictionary
            )
        columns["estimate"] = pa.array(estimate, schema.field("estimate").type)
        if self.method != UNBIASED:
            columns[GLS_ESTIMATE] = pa.array(middle)
        columns |= {"std_error": deviation, "ci_low": middle - half, "ci_high": middle + half}
        columns["obs_status"] = _words(exact.astype(np.int32), [ESTIMATED, EXACT])
        return pa.table(columns, schema=schema)


def _words(index: np.ndarray, words: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(index, pa.array([str(word) for word in words], pa.string()))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some areas of one type, side by side; ``leaf`` is the area of each leaf, counted from the first of them."""

    kind: str
    codes: np.ndarray
    leaf: np.ndarray

    @classmethod
    def of(cls, areas: Areas, first: int, count: int) -> _Part:
        inside = (areas.leaf >= first) & (areas.leaf < first + count)
        return cls(areas.kind, areas.codes[first : first + count], np.where(inside, areas.leaf - first, -1))
