"""Public files that a document names: some columns of a CSV or Parquet file, always as text.

Codes such as "01001" are text, whatever they look like: a column is never read as numbers, so that no leading zero is
lost. Empty text is None."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..domain.codes import Numbered, renumbered
from ..errors import Unsupported
from .problems import FileMistakes, KeyPath, Problems, nearest, shown
from .shape import unseen

MOST_BYTES = 2**31
"""The largest file that is read."""

MOST_ROWS = 50_000_000
"""The most rows of a file."""

_WORDS = pa.dictionary(
    pa.int32(), pa.string()
)  # as columns are read: each word once, and which of them a row has


@dataclass(frozen=True, eq=False)
class TextColumns:
    """Some columns of a file, with the place of every row.

    Attributes:
        numbered: name -> the text of each row, none where the cell is empty.
        line: shape (rows,): the line of a text file, or the row of a Parquet file, counted from 1.
        mistakes: where more mistakes of the file are told.
        content: the file.
    """

    numbered: Mapping[str, Numbered]
    line: np.ndarray
    mistakes: FileMistakes
    content: bytes

    @cached_property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Name -> shape (rows,), object: text, or None where the cell is empty."""
        return {name: column.texts for name, column in self.numbered.items()}

    @property
    def rows(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Each row with its line, empty cells as empty text."""
        for line, cells in zip(self.line.tolist(), zip(*self.columns.values(), strict=True), strict=True):
            yield line, tuple(cell or "" for cell in cells)


def read_public_file(
    base: Path,
    name: str,
    path: KeyPath,
    problems: Problems,
    wanted: Callable[[list[str], FileMistakes], Sequence[str] | None],
    numbers: Sequence[str] = (),
    truths: Sequence[str] = (),
    *,
    parquet: bool = False,
) -> TextColumns | None:
    """Columns of the file ``name``; None, with the mistakes recorded, where it cannot be read.

    Args:
        base: the folder that ``name`` is relative to.
        name: the file, as the document writes it.
        path: the key that names the file.
        problems: where mistakes are recorded.
        wanted: of a header, the columns to read; None where it tells of a mistake in it.
        numbers: columns that may also be of numbers that are not whole; of other types they are left out.
        truths: columns that may also be of truth values.
        parquet: what kind of file it is, if not CSV.
    """
    mistakes = FileMistakes(name, "row" if parquet else "line", path, problems)
    try:
        content = _content(base / name)
        header = (_parquet_header if parquet else _csv_header)(content)
        columns = wanted(header, mistakes)
        if columns is None:
            return None
        table, line = (
            _parquet(content, columns, numbers, truths, mistakes)
            if parquet
            else _csv(content, header, columns, mistakes)
        )
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException, Unsupported) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        kind = "a Parquet file" if parquet else "a CSV file in UTF-8"
        problems.add(path, f"cannot read {shown(name)} as {kind}: {reason}")
        return None
    if not line.size and not mistakes.told:
        mistakes.tell(None, "the file has no row below its header")
    if mistakes.told:
        return None
    return TextColumns(
        {column: _coded(table[column]) for column in table.column_names}, line, mistakes, content
    )


def read_text_columns(
    base: Path,
    name: str,
    path: KeyPath,
    problems: Problems,
    needed: Mapping[str, KeyPath],
    optional: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> TextColumns | None:
    """Some columns of a CSV or Parquet file, whatever others it has, without characters that no reader sees.

    Args:
        base, name, path, problems: as for :func:`read_public_file`.
        needed: column -> the key that asks for it.
        optional: columns that are read where the file has them.
        numbers: columns that are read where the file has them once, as text or as numbers of any type.
    """
    axes: list[str] = []

    def wanted(header: list[str], mistakes: FileMistakes) -> list[str] | None:
        if not _has_columns(header, needed, optional, mistakes):
            return None
        axes.extend(column for column in numbers if header.count(column) == 1 and column not in needed)
        return [column for column in header if column in needed or column in optional or column in axes]

    parquet = name.lower().endswith((".parquet", ".pq"))
    found = read_public_file(base, name, path, problems, wanted, axes, parquet=parquet)
    if found is None:
        return None
    for column, cells in found.numbered.items():
        if column != column.strip():
            found.mistakes.tell(None, f"column {shown(column)} has blanks around its name: rename it")
        _check_printable(column, cells, found.line, found.mistakes)
    return None if found.mistakes.told else found


def _check_printable(column: str, cells: Numbered, line: np.ndarray, mistakes: FileMistakes) -> None:
    """Tell of characters that no reader sees, or that turn what others read around."""
    if bad := unseen(column):
        mistakes.tell(None, f"the name of column {shown(column)} holds {bad}: rename it")
    plain = pc.call_function("ascii_is_printable", [pa.array(cells.codes, pa.string())])
    odd = pc.call_function("indices_nonzero", [pc.call_function("invert", [plain])]).to_pylist()
    held = {at: bad for at in odd if (bad := unseen(str(cells.codes[at])))}
    for row in np.flatnonzero(np.isin(cells.index, list(held))).tolist() if held else ():
        told = f"the code in column {shown(column)} holds {held[int(cells.index[row])]}: remove it"
        mistakes.tell(int(line[row]), told)


def encoded(columns: Mapping[str, np.ndarray | Numbered]) -> bytes:
    """Columns of text as a CSV file, from which the same columns are read.

    >>> encoded({"block": np.array(["01", "02"], object), "place": np.array([None, "a,b"], object)})
    b'block,place\\n01,\\n02,"a,b"\\n'
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    texts = [
        cells.arrow() if isinstance(cells, Numbered) else pa.array(cells, pa.string())
        for cells in columns.values()
    ]
    if (plain := _plain(texts)) is not None:
        return text.getvalue().encode() + plain
    writer.writerows(zip(*(cells.to_pylist() for cells in texts), strict=True))
    return text.getvalue().encode()


def _plain(columns: Sequence[pa.Array]) -> bytes | None:
    """The rows below the header, in a fraction of the time; None where one has to be quoted."""
    import pyarrow.csv as pcsv

    if len(columns) < 2:
        return None  # an empty cell that is alone on its line is quoted
    rows = pa.table(columns, names=[str(at) for at in range(len(columns))])
    written = io.BytesIO()
    try:
        pcsv.write_csv(rows, written, pcsv.WriteOptions(include_header=False, quoting_style="none"))
    except pa.ArrowInvalid:
        return None
    return written.getvalue()


def _content(path: Path) -> bytes:
    if (size := path.stat().st_size) > MOST_BYTES:
        raise Unsupported(
            f"it has {size:,} bytes, and at most {MOST_BYTES:,} are read: leave out columns and rows that are not used"
        )
    return path.read_bytes()


def _has_columns(
    header: Sequence[str], needed: Mapping[str, KeyPath], optional: Sequence[str], mistakes: FileMistakes
) -> bool:
    """Whether the header names each column once, and all that are needed."""
    twice = {column for column in header if header.count(column) > 1} & {*needed, *optional}
    for column in sorted(twice):
        mistakes.tell(1, f"column {shown(column)} appears twice")
    absent = [column for column in needed if column not in header]
    for column in absent:
        told = f"{mistakes.name} has no column {shown(column)}; {nearest(column, header)}"
        mistakes.problems.add(needed[column], told)
    return not (twice or absent)


def _csv_header(content: bytes) -> list[str]:
    first = content.split(b"\n", 1)[0].decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(first, newline=""), strict=True))
    if not rows or not any(rows[0]):
        raise Unsupported("its first line is empty, and should name the columns")
    return [column.strip() for column in rows[0]]


def _csv(
    content: bytes, header: list[str], wanted: Sequence[str], mistakes: FileMistakes
) -> tuple[pa.Table, np.ndarray]:
    """The columns of a CSV file as text, and the line of each row."""
    import pyarrow.csv as pcsv

    if content.count(b'"') % 2:
        raise Unsupported("a quoted field is never closed")
    filled = _filled_lines(content)
    skipped: list[int] = []

    def skip(row: Any) -> str:
        skipped.append(row.number - 1)
        fields = f"{row.actual_columns} field{'s' if row.actual_columns > 1 else ''}"
        line = int(filled[row.number - 1])
        mistakes.tell(line, f"has {fields} and the header has {row.expected_columns}")
        return "skip"

    table = pcsv.read_csv(
        io.BytesIO(content),
        # One thread: only then are the numbers of rows known.
        read_options=pcsv.ReadOptions(use_threads=False, column_names=header, skip_rows=1),
        parse_options=pcsv.ParseOptions(invalid_row_handler=skip),
        convert_options=pcsv.ConvertOptions(
            column_types=dict.fromkeys(wanted, _WORDS), include_columns=wanted
        ),
    )
    _check_rows(table.num_rows)
    return table, np.delete(filled, [0, *skipped])[: table.num_rows]


def _filled_lines(content: bytes) -> np.ndarray:
    """The numbers of the lines where something stands, the header's being 1."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    if not content.endswith(b"\n"):
        ends = np.append(ends, len(content))
    starts = np.concatenate([[0], ends[:-1] + 1])
    blank = ends == starts
    lone = np.flatnonzero(ends == starts + 1)
    blank[lone] = [content[i : i + 1] == b"\r" for i in starts[lone].tolist()]
    return np.flatnonzero(~blank) + 1


def _parquet_header(content: bytes) -> list[str]:
    import pyarrow.parquet as pq

    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    _check_rows(metadata.num_rows)
    return pq.read_schema(io.BytesIO(content)).names


def _parquet(
    content: bytes,
    wanted: Sequence[str],
    numbers: Sequence[str],
    truths: Sequence[str],
    mistakes: FileMistakes,
) -> tuple[pa.Table, np.ndarray]:
    """The columns of a Parquet file as text, and the number of each row; ``numbers`` of other types are left out."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content), columns=wanted, read_dictionary=wanted)
    for column in wanted:
        stored = table.schema.field(column).type
        kind = stored.value_type if pa.types.is_dictionary(stored) else stored
        is_axis = column in numbers
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        may_be = pa.types.is_floating(kind) if is_axis else column in truths and pa.types.is_boolean(kind)
        if not (is_text or pa.types.is_integer(kind) or may_be):
            if not is_axis:
                told = f"has type {kind}: write codes as text, and limits as whole numbers"
                mistakes.tell(None, f"column {shown(column)} {told}")
            table = table.drop_columns([column])
            continue
        if stored == _WORDS:
            continue
        position = table.column_names.index(column)
        table = table.set_column(position, column, table[column].cast(pa.string()))
    return table, np.arange(1, table.num_rows + 1)


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise Unsupported(f"it has {rows:,} rows, and at most {MOST_ROWS:,} are read")


def _coded(column: pa.ChunkedArray) -> Numbered:
    """The text of each row without blanks around it; none where a cell is empty."""
    if column.type == _WORDS:
        whole = column.unify_dictionaries().combine_chunks()
    else:  # chunk by chunk, each would have all words before it, too
        whole = column.combine_chunks().dictionary_encode()
    words = pc.call_function("utf8_trim_whitespace", [whole.dictionary])
    return renumbered(np.from_dlpack(whole.indices.fill_null(-1)), words)
