"""Files of SPSS, SAS and Stata: read some records at a time, without a copy of them on disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, require
from .dialect import Dialect
from .source import ID, Kind, RecordSource, WantedColumn

if TYPE_CHECKING:
    import pyarrow as pa

SPSS = Kind("spss", "SPSS", (".sav", ".zsav", ".por"))
SAS = Kind("sas", "SAS", (".sas7bdat", ".xpt"))
STATA = Kind("stata", "Stata", (".dta",))
STAT_KINDS = (SPSS, SAS, STATA)

_READERS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".dta": "read_dta",
}
_WITHOUT_USER_MISSING = ("read_xport", "read_por")
_AT_ONCE = 4_000_000
"""Values that are held at a time."""

_FEWEST = 10_000  # records at a time, however many columns are wanted
_EXACT = 2**53  # whole numbers up to it are exact in 64-bit floats


_TEMPORAL = re.compile(
    r"%-?[0-9]*[TD]|[AEJS]?DATE|DATETIME|DTIME|TIME|YMDHMS|QYR|MOYR|WKYR|MONTH|WKDAY|YY?MM|MMDD|DDMM|MMYY|MONYY|E8601|B8601"
    r"|JULIAN|WEEK|WORDDAT|QTR|YYQ|TOD|HHMM|MMSS|HOUR|NLDAT|NLTIM|IS8601"
)


@dataclass(frozen=True)
class StatFile:
    """One file of SPSS, SAS or Stata.

    Missing values of every kind (system-missing, user-missing, ``.A`` to ``.Z``) are NULL. Dates and times are dates
    and times. Text is decoded by the encoding that the file names, or by that of the dialect where it is not UTF-8.
    """

    path: Path
    kind: str
    encoding: str | None = None

    @classmethod
    def of(cls, source: RecordSource) -> StatFile:
        return cls(source.file, source.kind, _named(source.dialect))

    @property
    def _reader(self) -> str:
        """The function that reads it: by its ending, or where that says nothing by the usual one of its kind."""
        endings = next(kind for kind in STAT_KINDS if kind.name == self.kind).endings
        ending = self.path.suffix.lower()
        return _READERS[ending if ending in endings else endings[0]]

    def read(self, **options: Any) -> tuple[Mapping[str, list[Any]], Any]:
        """Columns as lists of values, and what the file says of them."""
        package = require("pyreadstat", "stat-files", "reading files of SPSS, SAS and Stata")
        given = {} if self.encoding is None else {"encoding": self.encoding}
        if given and self._reader == "read_por":
            raise DataError(
                f"{self.path.name}: a .por file has no encoding to be named: remove it from [source]"
            )
        return getattr(package, self._reader)(str(self.path), output_format="dict", **given, **options)

    @cached_property
    def about(self) -> Any:
        """What the file says of its columns; no record is read."""
        of_user = {} if self._reader in _WITHOUT_USER_MISSING else {"user_missing": True}
        return self.read(metadataonly=True, **of_user)[1]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.about.column_names)

    def columns(self) -> Iterator[tuple[str, str, bool | None]]:
        """Each column's name, its type as the file has it, and whether it is text; None for dates and times."""
        for name in self.names:
            text = self.about.readstat_variable_types.get(name) == "string"
            shown = self.about.original_variable_types.get(name)
            is_time = not text and shown is not None and _TEMPORAL.match(shown.upper())
            yield (
                name,
                f"{'text' if text else 'number'}{f', {shown}' if shown else ''}",
                None if is_time else text,
            )

    def labels(self, name: str, most: int) -> tuple[tuple[str, str], ...]:
        """Code -> label of a column, but for codes that are missing values; nothing for more than ``most``.

        A label that several codes have gets the code behind it.

        Privacy:
            Value labels are part of what a file says of its columns. Programs can make them from the records (SPSS by
            AUTORECODE), so that they are public only where somebody says so.
        """
        text = self.about.readstat_variable_types.get(name) == "string"
        ranges = self.about.missing_ranges.get(name, [])
        found: dict[str, str] = {}
        for code, label in self.about.variable_value_labels.get(name, {}).items():
            number = isinstance(code, int | float)
            if number == text or (number and code != int(code)):
                continue  # .A, say, which is a missing value
            if any(each["lo"] <= code <= each["hi"] for each in ranges):
                continue
            words = " ".join("".join(c if c.isprintable() else " " for c in str(label)).split())
            key = str(int(code)) if number else str(code).strip()
            found[key] = words or key
        times = Counter(found.values())
        named = ((code, words if times[words] == 1 else f"{words} ({code})") for code, words in found.items())
        return tuple(named) if len(found) <= most else ()

    def chunks(self, columns: Sequence[str]) -> Iterator[Mapping[str, list[Any]]]:
        """The values of some columns, some records at a time."""
        rows, first = max(_FEWEST, _AT_ONCE // len(columns)), 0
        while True:
            found, _ = self.read(usecols=list(columns), row_offset=first, row_limit=rows)
            count = len(found[columns[0]])
            if count:
                yield found
            if count < rows:
                return
            first += rows

    def batches(
        self, columns: Sequence[str], whole: frozenset[str], faults: list[Exception]
    ) -> pa.RecordBatchReader:
        """The same as a stream of Arrow, of text, 64-bit floats, dates and times.

        Args:
            whole: columns of numbers that must be whole, and are whole numbers in the stream.
            faults: gets the reason why the stream ends too soon, such as an id with a fraction.
        """
        import pyarrow as pa

        schema = pa.schema([(f"c{i}", self._type(name, name in whole)) for i, name in enumerate(columns)])

        def stream() -> Iterator[pa.RecordBatch]:
            try:
                for found in self.chunks(columns):
                    pairs = zip(columns, schema, strict=True)
                    arrays = [_array(name, found[name], field.type) for name, field in pairs]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            except Exception as error:
                faults.append(error)
                raise

        return pa.RecordBatchReader.from_batches(schema, stream())

    def _type(self, name: str, whole: bool) -> pa.DataType:  # noqa: FBT001
        """The type of a column: of its first value, for what a file says of dates differs from program to program."""
        import pyarrow as pa

        if self.about.readstat_variable_types.get(name) == "string":
            return pa.string()
        if whole:
            return pa.int64()
        for found in self.chunks([name]):
            for value in found[name]:
                if value is not None:
                    return pa.float64() if isinstance(value, int | float) else pa.scalar(value).type
        return pa.float64()


def _named(dialect: Dialect) -> str | None:
    return None if dialect.is_utf8 else dialect.encoding


def _array(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_int64(kind):
        return pa.array(values, kind, from_pandas=True)
    if any(value is not None and not (value == int(value) and abs(value) <= _EXACT) for value in values):
        raise DataError(
            f"column {name!r} (unit_id) holds numbers that are not whole: an id is text or a whole number"
        )
    return pa.array([None if value is None else int(value) for value in values], kind)


def stat_columns(
    source: RecordSource,
    wanted: Sequence[WantedColumn],
    check: Callable[[tuple[str, ...]], object],
    faults: list[Exception],
) -> tuple[tuple[str, ...], pa.RecordBatchReader]:
    """The names of the columns that are wanted, and the stream of their values.

    Args:
        check: called with the names of all columns of the file, to refuse what it lacks.
        faults: gets the reason why the stream ends too soon.
    """
    file = StatFile.of(source)
    check(file.names)
    columns = tuple(dict.fromkeys(column.name for column in wanted))
    ids = frozenset(column.name for column in wanted if column.alias == ID)
    return columns, file.batches(columns, ids, faults)
