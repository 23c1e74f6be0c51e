"""The step from records to counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..counts import Counts
from ..domain import Domain
from ..errors import InvalidArgument
from .engine import open_records
from .failures import redacted
from .mapping import coded
from .refusals import (
    check_counted,
    misfits,
    nameless,
    refusal,
)
from .rules import ColumnRule
from .source import Source
from .units import (
    ID,
    UnitRule,
    bounded,
    identified,
    most_counted,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


def tabulate(
    source: Source,
    domain: Domain,
    columns: Mapping[str, ColumnRule],
    unit: UnitRule | None = None,
    *,
    memory: str | None = None,
) -> Counts:
    """Count the records of ``source`` by cell of ``domain``; with a rule for units, so many of each at most.

    Every record falls in exactly one cell, or nothing is counted: a value that the domain does not list,
    or that is missing, is refused or counted in the category "other", as the rule of its column says. What
    a raw value means is written in `tabulae.tabulate.rules`; it does not depend on the kind of file, nor the
    counts on the order of the records.

    The counting is done by the engine, out of core where it must be; what comes back is one row a cell that
    is not empty.

    Args:
        source: where the records are, one row a record.
        domain: the public domain: its attributes are the keys, and nothing else is.
        columns: attribute name -> the rule of its column; one for each attribute of the domain.
        unit: which records belong to one unit, and how many of them are counted; None counts every record.
        memory: the most that an engine of our own takes, such as "4GB"; None is its default.

    Returns:
        The counts, which are confidential.

    Raises:
        DataError: if the source cannot be read, lacks a column, is empty, or holds values that are refused.
            The message names columns and kinds of fault; values and numbers are in ``confidential``.
        InvalidArgument: if the rules do not fit the domain.

    Privacy:
        What is refused depends on the records, and only their holder sees it; nothing is published by a
        refusal. Keys, their order and the shape of the result depend on the domain alone. With ``unit``, one
        unit more or less changes the counts by at most ``unit.rows`` records (see `tabulae.tabulate.units`).

    Example:
        >>> import tempfile, pathlib
        >>> domain = Domain({"sex": ["F", "M"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "people.csv"
        ...     _ = path.write_text("id,SEX\\n1,F\\n2,M\\n3,F\\n")
        ...     counts = tabulate(Source(path), domain, {"sex": ColumnRule("SEX")})
        >>> counts.total
        3
    """
    rules = _rules(domain, columns)
    wanted = [(attribute.name, rules[attribute.name].column) for attribute in domain.attributes]
    with open_records(source, wanted, unit and unit.column, memory=memory) as records:
        if unit is not None:
            records = identified(records, unit)
        table = coded(records, domain.attributes, rules)
        cells, people = _by_cell(source, domain, table)
        check_counted(source, _number(source, records.count()), int(people.sum()))
        faults = nameless(source, records, unit) if unit else []
        if faults or (cells < 0).any():
            raise refusal(source, misfits(source, domain.attributes, rules, table) + faults)
        if unit is not None:
            of_units = coded(records, domain.attributes, rules, beside=[ID])
            cells, people = _by_cell(source, domain, of_units, unit)
            most = _number(source, most_counted(of_units, unit))
            check_counted(source, most, int(people.sum()), int(cells.min(initial=0)))
    return Counts.from_cells(domain, cells, people)


def _rules(domain: Domain, columns: Mapping[str, ColumnRule]) -> dict[str, ColumnRule]:
    missing = [name for name in domain.names if name not in columns]
    extra = [name for name in columns if name not in domain.names]
    if missing or extra:
        raise InvalidArgument(
            "tabulate(..., columns) needs one rule for each attribute of the domain"
            + (f"; it has none for {', '.join(map(repr, missing))}" if missing else "")
            + (f"; the domain has no {', '.join(map(repr, extra))}" if extra else "")
        )
    return dict(columns)


def _sum(table: Any) -> Any:
    return table.people.sum().cast("int64")


def _by_cell(
    source: Source, domain: Domain, table: ir.Table, unit: UnitRule | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes (cells, attributes) and records counted (cells,), of the cells that are not empty."""
    names = [f"k{i}" for i in range(len(domain.attributes))]
    all_of_them = table.group_by(names).aggregate(people=_sum(table))
    counted = all_of_them if unit is None else bounded(table, names, unit)
    found = redacted(source.name, lambda: counted.to_pyarrow())
    return np.stack([_column(found, name) for name in names], axis=1), _column(found, "people")


def _number(source: Source, count: Any) -> int:
    return redacted(source.name, lambda: int(count.to_pyarrow().as_py() or 0))


def _column(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy().astype(np.int64)
