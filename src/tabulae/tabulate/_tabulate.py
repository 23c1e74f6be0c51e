"""The step from records to counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tabulae.counts import Counts
from tabulae.errors import DataError, InvalidArgument
from tabulae.tables import Attribute, Domain

from .engine import open_records
from .failures import redacted
from .mapping import coded
from .rules import NULL_CODE, UNKNOWN_CODE, ColumnRule
from .source import Source

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

_EXAMPLES = 5
_KINDS = {UNKNOWN_CODE: "values outside the declared categories", NULL_CODE: "NULL values"}


def tabulate(source: Source, domain: Domain, columns: Mapping[str, ColumnRule]) -> Counts:
    """Count the records of ``source`` by cell of ``domain``.

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

    Returns:
        The counts, which are confidential.

    Raises:
        DataError: if the source cannot be read, lacks a column, is empty, or holds values that are refused.
            The message names columns and kinds of fault; values and numbers are in ``confidential``.
        InvalidArgument: if the rules do not fit the domain.

    Privacy:
        What is refused depends on the records, and only their holder sees it; nothing is published by a
        refusal. Keys, their order and the shape of the result depend on the domain alone.

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
    with open_records(source, wanted) as records:
        table = coded(records, domain.attributes, rules)
        names = [f"k{i}" for i in range(len(domain.attributes))]
        by_cell = redacted(
            source.name, lambda: table.group_by(names).aggregate(people=_sum(table)).to_pyarrow()
        )
        cells = np.stack([_column(by_cell, name) for name in names], axis=1)
        people = _column(by_cell, "people")
        rows = redacted(source.name, lambda: int(records.count().to_pyarrow().as_py()))
        _check_rows(source, rows, people)
        if (cells < 0).any():
            raise _refusal(source, domain.attributes, rules, table, cells, people)
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


def _column(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy().astype(np.int64)


def _check_rows(source: Source, rows: int, people: np.ndarray) -> None:
    if rows == 0:
        raise DataError(f"{source.name} has no records: there is nothing to publish")
    counted = int(people.sum())
    if counted != rows:
        raise DataError(
            f"{source.name} changed while it was read, or records were lost or doubled in counting: make a "
            "copy that nothing writes to, and run again",
            confidential=f"{rows} rows, {counted} counted",
        )


def _refusal(
    source: Source,
    attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnRule],
    table: ir.Table,
    cells: np.ndarray,
    people: np.ndarray,
) -> DataError:
    faults, details = [], []
    for i, attribute in enumerate(attributes):
        for code, kind in _KINDS.items():
            hit = cells[:, i] == code
            if not hit.any():
                continue
            where = f"column {rules[attribute.name].column!r} (attribute {attribute.name!r}): {kind}"
            faults.append(where)
            examples = "" if code == NULL_CODE else f", such as {_examples(source, table, i)}"
            details.append(f"{where}: in {int(people[hit].sum())} records{examples}")
    remedy = (
        'Correct the records, list the values under [attributes], or count them apart with unknown = "other" '
        'or null = "other".'
    )
    return DataError(
        "\n".join(
            [f"{source.name} does not fit the public domain:", *(f"  {fault}" for fault in faults), remedy]
        ),
        confidential="\n".join(details),
    )


def _examples(source: Source, table: Any, i: int) -> str:
    """The commonest values that are refused, for the holder of the records."""
    import ibis

    raw = f"c{i}"
    commonest = (
        table.filter(table[f"k{i}"] == UNKNOWN_CODE)
        .group_by(raw)
        .aggregate(people=_sum(table))
        .order_by([ibis.desc("people"), raw])
        .limit(_EXAMPLES)
    )
    rows = redacted(source.name, lambda: commonest.to_pyarrow().to_pylist())
    return ", ".join(f"{row[raw]!r} ({row['people']})" for row in rows)
