"""Published tables: labels, estimates and intervals as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..domain import (
    Domain,
    Table,
    Workload,
)
from ..estimation import Estimate
from ..measurement import Measurement
from ..strategy import products

ESTIMATED, EXACT, NOT_ESTIMABLE = "A", "E", "Q"

LEVEL = 0.95
"""The level of published intervals and of planned margins."""


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """One table as it is published; arrays have one entry a row, in the table's own order.

    ``conservative`` says how many of the intervals are wider than need be, because the exact law of the
    error was out of reach.
    """

    name: str
    columns: dict[str, tuple[str, ...]]
    estimate: np.ndarray
    std_error: np.ndarray
    half_width: np.ndarray
    status: np.ndarray
    conservative: int

    @property
    def ci_low(self) -> np.ndarray:
        """Lower ends of the intervals."""
        return self.estimate - self.half_width

    @property
    def ci_high(self) -> np.ndarray:
        """Upper ends of the intervals."""
        return self.estimate + self.half_width

    def label_columns(self) -> dict[str, pa.DictionaryArray]:
        """Each heading's labels, row by row."""
        return label_columns(self.columns)

    def arrow(self) -> pa.Table:
        """The table as it stands in the release's Parquet and CSV files."""
        status = pa.array(self.status, pa.string())
        data: dict[str, Any] = {
            name: column.cast(pa.string()) for name, column in self.label_columns().items()
        }
        data |= {
            "estimate": self.estimate,
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "obs_status": status,
        }
        return pa.table(data)


def label_columns(columns: dict[str, tuple[str, ...]]) -> dict[str, pa.DictionaryArray]:
    """Labels of the rows, in C order over the headings."""
    sizes = [len(labels) for labels in columns.values()]
    out = {}
    for i, (name, labels) in enumerate(columns.items()):
        after = int(np.prod(sizes[i + 1 :], dtype=np.int64))
        before = int(np.prod(sizes[:i], dtype=np.int64))
        index = np.tile(np.repeat(np.arange(len(labels), dtype=np.int32), after), before)
        out[name] = pa.DictionaryArray.from_arrays(index, pa.array(labels, pa.string()))
    return out


def publish(estimate: Estimate, workload: Workload, level: float) -> list[PublishedTable]:
    """Estimates, standard errors and intervals for every table of a workload."""
    return [_publish(estimate, workload, table, level) for table in workload.tables]


def publish_exact(measurement: Measurement) -> list[PublishedTable]:
    """The invariants of a measurement as tables of their own: whole numbers without error."""
    strategy = measurement.strategy
    return [
        _exact(table, values, strategy.domain)
        for table, values in zip(strategy.invariants, measurement.exact, strict=True)
    ]


def _exact(table: Table, values: np.ndarray, domain: Domain) -> PublishedTable:
    none = np.zeros(len(values))
    status = np.full(len(values), EXACT)
    return PublishedTable(
        table.name, table.columns(domain), values.astype(np.float64), none, none, status, conservative=0
    )


def _publish(estimate: Estimate, workload: Workload, table: Table, level: float) -> PublishedTable:
    alone = Workload(workload.domain, [table])
    answer = estimate.answer(alone)[table.name]
    deviation = np.sqrt(estimate.variance(alone)[table.name])
    widths = estimate.half_widths(alone, level)[table.name]
    # A query that counts no cell at all is known without noise, zero; so is one that the invariants determine.
    empty = empty_rows(table, workload.domain)
    exact = empty | estimate.exact_of(table)
    return PublishedTable(
        table.name,
        table.columns(workload.domain),
        np.where(empty, 0.0, answer),
        np.where(exact, 0.0, deviation),
        np.where(exact, 0.0, widths.values),
        np.where(exact, EXACT, ESTIMATED),
        int((widths.ways[~exact] == "conservative").sum()),
    )


def empty_rows(table: Table, domain: Domain) -> np.ndarray:
    """Rows whose matrix is zero: combinations that the query's own conditions exclude."""
    terms = products(table.operator(domain))
    counted = np.zeros(table.rows(domain), dtype=bool)
    for _, factors in terms:
        row = np.ones(1, dtype=bool)
        for factor in factors:
            row = np.multiply.outer(row, np.asarray(factor.T.column_norms(1) != 0)).ravel()
        counted |= row
    return ~counted
