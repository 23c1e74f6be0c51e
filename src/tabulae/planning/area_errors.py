"""How wrong tables of areas will be: exact variances of generalised least squares, before any data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..geography.layout import Margin
from ..spec import AreaTable, Geography
from ..topdown.areas import area_covariances
from ..topdown.covariances import Covariances
from ..topdown.intervals import area_half_widths

_CHUNK = 512  # areas whose matrices are kept at a time
_CANCELLED = 1e-9  # of the terms of a variance: below it they cancel, and the counts are exact


@dataclass(frozen=True)
class AreaTableError:
    """Error of one table for one kind of area, as ``gls`` estimates it, in counts.

    Attributes:
        table: its name.
        area_type: the level, or type of entity.
        areas: how many there are.
        cells: of the table, in one area.
        rmse: root of the mean squared error of all counts that can occur, in all areas but those where all are exact.
        largest: the largest root mean squared error of the counts of one area.
        margin: what a count of that ``rmse`` is off by at most, at 95 %.
    """

    table: str
    area_type: str
    areas: int
    cells: int
    rmse: float
    largest: float
    margin: float


@dataclass(frozen=True, eq=False)
class AreaErrors:
    """Errors of all tables of a geography.

    A count of area A is ``r'x_A`` with r an indicator, so that the squared errors of all cells of a margin add up to

        sum over kinds S of  w[S] * sum over dense cells d, e of one class of  V_A[S][d, e]

    with V_A the variance of the area's counts, and w the margin's squares (see :meth:`BlockAlgebra.squares`).

    Args:
        geography: the section.
        covariances: of its plan.
        level: of the margins.
    """

    geography: Geography
    covariances: Covariances
    level: float

    def rows(self) -> tuple[AreaTableError, ...]:
        """One row for each table and each kind of area that it is published for, in the order of the spec."""
        tables = self.geography.tables
        kinds = dict.fromkeys(area for table in tables for area in table.areas)
        found: dict[tuple[str, str], AreaTableError] = {}
        for kind in kinds:
            asked = [table for table in tables if kind in table.areas]
            for table, squares in zip(asked, self.of_areas(kind, asked), strict=True):
                found[table.name, kind] = self._row(table, kind, squares)
        return tuple(found[table.name, kind] for table in tables for kind in table.areas)

    def _row(self, table: AreaTable, kind: str, squares: np.ndarray) -> AreaTableError:
        areas, size = self.geography.areas(kind)[0].size, table.margin.size
        total, cells = squares[:, squares[0] > 0]
        variance = float(total.sum() / cells.sum()) if cells.size else 0.0
        largest = float(np.sqrt((total / cells).max(initial=0)))
        margin = area_half_widths(np.array([variance]), self.covariances.plan.all_laws, self.level)
        return AreaTableError(table.name, kind, areas, size, sqrt(variance), largest, float(margin[0]))

    def of_areas(self, kind: str, tables: Sequence[AreaTable]) -> list[np.ndarray]:
        """For each table, shape (2, areas where something can occur): its squared errors added up, and their number.

        The number is that of cells that can occur in the area; the sum is 0 where all of them are exact.
        """
        weights = [table.margin.squares.sum(axis=0) for table in tables]
        grams = [_gram(table.margin) for table in tables]
        found: list[list[np.ndarray]] = [[] for _ in tables]
        for variances, present in self.batches(kind):
            for table, weight, gram, out in zip(tables, weights, grams, found, strict=True):
                total = np.einsum("askl,kl,s->a", variances, gram, weight)
                terms = np.einsum("askl,kl,s->a", np.abs(variances), gram, weight)
                total[total <= _CANCELLED * terms] = 0
                out.append(np.stack([total, _possible(table.margin, present)]))
        return [np.concatenate([np.empty((2, 0)), *out], axis=1) for out in found]

    def placed(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """The areas with leaves: which of them each leaf is in, -1 for none, and which dense cells can occur in each.

        Shapes (leaves,) and (areas, D).
        """
        codes, index = self.geography.areas(kind)
        support = self.covariances.plan.support
        present = np.zeros((codes.size, support.shape[1]), bool)
        np.logical_or.at(present, index[index >= 0], support[index >= 0])
        used = np.flatnonzero(present.any(axis=1))
        place = np.full(codes.size + 1, -1)
        place[used] = np.arange(used.size)
        return place[index], present[used]

    def batches(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """V, shape (areas, kinds, D, D), and which dense cells can occur, shape (areas, D), for areas with leaves."""
        area, present = self.placed(kind)
        batch: list[np.ndarray] = []
        first = 0
        for variance in area_covariances(self.covariances, area, len(present)):
            batch.append(variance)
            if len(batch) == _CHUNK:
                yield np.stack(batch), present[first : first + _CHUNK]
                first, batch = first + _CHUNK, []
        if batch:
            yield np.stack(batch), present[first:]


def _gram(margin: Margin) -> np.ndarray:
    """Shape (D, D): 1 where two dense cells are of one class of the margin."""
    return margin.dense_gram(np.arange(margin.layout.size))


def _possible(margin: Margin, present: np.ndarray) -> np.ndarray:
    """Shape (areas,): cells of a margin that can occur."""
    classes = np.zeros((present.shape[0], margin.classes), bool)
    for cell, group in enumerate(margin.label.tolist()):
        classes[:, group] |= present[:, cell]
    return classes.sum(axis=1) * margin.inner
