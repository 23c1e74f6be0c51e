"""Records coded and counted where they are; what comes of them is counted further in a DuckDB of our own.

Where DuckDB holds the records they are coded there, in its encrypted scratch database. Another engine counts people by
area, kind and codes itself, and only these counts come, batch by batch: no record leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..domain import Attribute
from ..errors import DataError
from .duckdb_engine import (
    SCRATCH,
    connected,
    lock,
    restrict,
)
from .engine import open_records
from .failures import redacted
from .group_engine import CODED
from .group_places import Places
from .group_transfer import batches
from .mapping import coded
from .refusals import (
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
    import duckdb
    import ibis.expr.types as ir

_ALIKE = "alike"


@dataclass(frozen=True, eq=False)
class CodedSource:
    """Records, and how they are coded.

    Args:
        source: where the records are, one row a record.
        rules: attribute name -> the rule of its column.
        unit: which records belong to one unit; None counts every record.
        places: what is made of the codes.
        memory: the most that an engine of ours takes.
    """

    source: Source
    rules: Mapping[str, ColumnRule]
    unit: UnitRule | None
    places: Places
    memory: str | None

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A DuckDB of our own, with `CODED` in its scratch database.

        Raises:
            DataError: the records cannot be read, or are refused.
        """
        if self.source.engine == "duckdb":
            with self._records() as records:
                self._code(records)
                yield records.get_backend().con  # type: ignore[attr-defined]
            return
        with connected(memory=self.memory, scratch=True) as connection:
            restrict(connection, None)
            lock(connection)
            with self._records() as records:
                self._fetch(records, connection)
            yield connection

    def _records(self) -> AbstractContextManager[ir.Table]:
        wanted = [(name, self.rules[name].column) for name in self.places.attributes]
        unit = None if self.unit is None else self.unit.column
        return open_records(self.source, wanted, unit, memory=self.memory, scratch=True)

    def _code(self, records: Any) -> None:
        """Make `CODED` from a table of codes, which is looked at before it is used."""
        import ibis

        counted, expected = self._counted(records)
        backend, keys = records.get_backend(), self.places.keys

        def coded_table() -> tuple[ir.Table, dict[str, Any]]:
            made = backend.create_table(_ALIKE, counted, database=(SCRATCH, "main"))
            least = ibis.least(*[made[key].min() for key in keys])
            return made, _row(made.aggregate(people=made.people.sum(), least=least))

        made, found = redacted(self.source.name, coded_table)
        self._check(records, expected, found)
        name = CODED.removeprefix(f"{SCRATCH}.")
        redacted(
            self.source.name,
            lambda: backend.create_table(name, self.places.of(made), database=(SCRATCH, "main")),
        )
        backend.con.execute(f"DROP TABLE {SCRATCH}.{_ALIKE}")

    def _fetch(self, records: Any, connection: duckdb.DuckDBPyConnection) -> None:
        """Make `CODED` from what another engine counts; then look at it."""
        import pyarrow as pa

        counted, expected = self._counted(records)
        columns = ", ".join(f"{name} BIGINT" for name in [*self.places.columns, "people"])

        def fetch() -> None:
            connection.execute(f"CREATE TABLE {CODED} ({columns})")
            for batch in batches(self.places.counted(counted)):
                connection.register("batch", pa.Table.from_batches([batch]))
                connection.execute(f"INSERT INTO {CODED} BY NAME SELECT * FROM batch")  # noqa: S608
                connection.unregister("batch")

        redacted(self.source.name, fetch)
        people, least = connection.execute(f"SELECT sum(people), min(area) FROM {CODED}").fetchall()[0]  # noqa: S608
        self._check(records, expected, {"people": people, "least": least})

    def _counted(self, records: Any) -> tuple[ir.Table, Any]:
        """The codes k0, k1, ... of records that are counted, and people; and how many people there must be.

        Where units are bounded, all records are first looked at.
        """
        if self.unit is None:
            return self._coded(records).select(*self.places.keys, "people"), records.count()
        records = identified(records, self.unit)
        self._refuse(records, nameless(self.source, records, self.unit))
        of_units: Any = self._coded(records, ID)
        return bounded(of_units, self.places.keys, self.unit), most_counted(of_units, self.unit)

    def _coded(self, records: Any, *beside: str) -> Any:
        return coded(records, self._attributes, self.rules, beside=beside)

    @property
    def _attributes(self) -> list[Attribute]:
        return list(self.places.attributes.values())

    def _refuse(self, records: Any, faults: list[tuple[str, str]]) -> None:
        """Raise what the rules refuse of records, and further faults."""
        if faults := misfits(self.source, self._attributes, self.rules, self._coded(records)) + faults:
            raise refusal(self.source, faults)

    def _check(self, records: Any, expected: Any, found: Mapping[str, Any]) -> None:
        """Raise what is refused where a code or area is below 0, or where records are missing."""
        if int(found["least"] or 0) < 0:
            self._refuse(records, [])
        rows = redacted(self.source.name, lambda: int(expected.to_pyarrow().as_py() or 0))
        people = int(found["people"] or 0)
        if rows != people:
            raise DataError(
                f"{self.source.name} changed while it was read, or records were lost or doubled in counting: make a "
                "copy that nothing writes to, and run again",
                confidential=f"{rows} rows, {people} counted",
            )


def _row(table: Any) -> dict[str, Any]:
    (row,) = table.to_pyarrow().to_pylist()
    return row
