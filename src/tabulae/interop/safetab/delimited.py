"""Delimited text read strictly: encoding, line ends, header and number of fields, each mistake with its line."""

from __future__ import annotations

import codecs
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from .faults import Faults

DELIMITER = "|"
_BLOCK = 1 << 24
_BOM = codecs.BOM_UTF8
_OTHERS = {",": "commas", "\t": "tabs", ";": "semicolons"}


@dataclass(frozen=True)
class DelimitedLayout:
    """The columns of a file, in order; ``extra`` says whether others may stand among them, unread."""

    columns: tuple[str, ...]
    extra: bool = False


@dataclass
class DelimitedRows:
    """Some lines of a file: the columns of its layout as text, and where the lines stand."""

    columns: dict[str, pa.StringArray]
    lines: np.ndarray


@dataclass
class _Text:
    """What one pass over the bytes found."""

    size: int = 0
    crlf: int = 0
    lf: int = 0
    cr: int = 0
    nul: bool = False
    last: bytes = b""
    decodes: bool = True
    head: bytes = field(default=b"", repr=False)


def read_text(path: Path, faults: Faults) -> str | None:
    """A small text file whole; None, and the mistakes, where it cannot be read as UTF-8."""
    if not can_read(path, faults):
        return None
    content = path.read_bytes()
    if not content.strip():
        faults.add(path.name, "the file is empty")
        return None
    if content.startswith(_BOM):
        faults.add(path.name, _BOM_WORDS, 1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        faults.add(path.name, _UTF8_WORDS, content.count(b"\n", 0, error.start) + 1)
        return None


_BOM_WORDS = "begins with a byte-order mark: save it as UTF-8 without one"
_UTF8_WORDS = "this is not UTF-8 text: save the file with that encoding"


def read_rows(path: Path, layout: DelimitedLayout, faults: Faults) -> Iterator[DelimitedRows]:
    """The rows of a file, some hundred thousand at a time, its mistakes noted on the way.

    Nothing is read of a file that is no text of lines, or whose header is wrong. A line with the wrong number of fields
    is noted and left out; the numbers of the others stay right.
    """
    if not can_read(path, faults) or not _is_text(path, _scan(path), faults):
        return
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").rstrip("\r\n").split(DELIMITER)
    if not check_header(path.name, header, layout, faults):
        return
    ragged: list[tuple[int, int]] = []
    lines, any_row = _LineCounter(), False
    for batch in _batches(path, header, layout, ragged):
        any_row = any_row or batch.num_rows > 0
        columns = {name: batch.column(name) for name in layout.columns}
        yield DelimitedRows(columns, lines.next(batch.num_rows, [line for line, _ in ragged]))
    for line, fields in ragged:
        faults.add_row(path.name, f"this line has {fields} fields; the header has {len(header)}", line)
    if not any_row and not ragged:
        faults.add(path.name, "there is no row below the header")


def check_header(file: str, header: Sequence[str], layout: DelimitedLayout, faults: Faults) -> bool:
    """Whether a header has the layout's columns in order; where not, what is wrong with it."""
    wanted = "|".join(layout.columns)
    if len(header) == 1 and len(layout.columns) > 1:
        other = next((words for sign, words in _OTHERS.items() if sign in header[0]), None)
        told = f": this one has {other}" if other else ""
        faults.add(file, f"the fields must be separated by '|'{told}; the header must be {wanted}", 1)
        return False
    count = faults.count
    for name in layout.columns:
        if header.count(name) != 1:
            what = "is missing from the header" if name not in header else "stands in the header twice"
            faults.add(file, f"this column {what}; the header must have {wanted}", 1, name)
    if not layout.extra:
        for name in dict.fromkeys(header):
            if name not in layout.columns:
                faults.add(file, f"there is no such column; the header must be {wanted}", 1, name)
    if faults.count == count and [n for n in header if n in layout.columns] != list(layout.columns):
        faults.add(file, f"the columns are in another order; the header must be {wanted}", 1)
    return faults.count == count


class _LineCounter:
    """Gives rows their line numbers, where some lines were left out."""

    def __init__(self) -> None:
        self.row, self.skipped = 0, 0

    def next(self, rows: int, left_out: Sequence[int]) -> np.ndarray:
        """Line numbers of the next rows; ``left_out`` are all lines left out so far."""
        lines = np.arange(rows, dtype=np.int64) + self.row + self.skipped + 2
        for line in left_out[self.skipped :]:
            lines[lines >= line] += 1
        self.row, self.skipped = self.row + rows, len(left_out)
        return lines


def _batches(
    path: Path, header: Sequence[str], layout: DelimitedLayout, ragged: list[tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    """The columns of the layout as text, batch by batch; lines that do not have all fields go to ``ragged``."""

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append((row.number, row.actual_columns))
        return "skip"

    names = [name if name in layout.columns else f"extra {i}" for i, name in enumerate(header)]
    with pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, column_names=names, skip_rows=1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=DELIMITER,
            quote_char=False,
            double_quote=False,
            escape_char=False,
            newlines_in_values=False,
            ignore_empty_lines=False,
            invalid_row_handler=leave_out,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(layout.columns),
            column_types=dict.fromkeys(layout.columns, pa.string()),
            null_values=[],
            strings_can_be_null=False,
        ),
    ) as reader:
        yield from reader


def can_read(path: Path, faults: Faults) -> bool:
    """Whether there is a file that this user may read; where not, what stands in the way."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            faults.add(path.name, f"this is not a file in {path.parent}")
            return False
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        faults.add(path.name, f"there is no such file in {path.parent}")
        return False
    except OSError as error:
        faults.add(path.name, f"this file in {path.parent} cannot be read: {error.strerror or error}")
        return False
    return True


def _scan(path: Path) -> _Text:
    """One pass over the bytes: encoding and line ends, with the first line at fault."""
    found, decoder = _Text(), codecs.getincrementaldecoder("utf-8")("strict")
    with path.open("rb") as file:
        carry = b""
        while block := file.read(_BLOCK):
            found.head = found.head or block[: len(_BOM)]
            found.last = block[-1:]
            found.size += len(block)
            text = carry + block
            carry = b"\r" if text.endswith(b"\r") else b""
            text = text[: len(text) - len(carry)]
            _count(found, text)
            found.decodes = found.decodes and _decodes(decoder, block)
        found.cr += len(carry)
    return found


def _count(found: _Text, text: bytes) -> None:
    crlf, lf, cr = text.count(b"\r\n"), text.count(b"\n"), text.count(b"\r")
    found.crlf, found.lf, found.cr = found.crlf + crlf, found.lf + lf - crlf, found.cr + cr - crlf
    found.nul = found.nul or b"\0" in text


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes) -> bool:
    if block.isascii() and decoder.getstate()[0] == b"":
        return True
    try:
        decoder.decode(block)
    except UnicodeDecodeError:
        return False
    return True


def _is_text(path: Path, found: _Text, faults: Faults) -> bool:
    """Whether the file is text whose lines can be told apart; all that is wrong with its bytes is noted, by line."""
    if found.size == 0:
        faults.add(path.name, "the file is empty")
        return False
    if found.head.startswith(_BOM):
        faults.add(path.name, _BOM_WORDS, 1)
    if not found.decodes:
        faults.add(path.name, _UTF8_WORDS, _first_line(path, _undecodable))
    if found.nul:
        line = _first_line(path, lambda b: b"\0" in b)
        faults.add(path.name, "holds a zero byte: it is not a text file", line)
    if (found.crlf > 0) + (found.lf > 0) + (found.cr > 0) > 1:
        usual = b"\r\n" if found.crlf > found.lf else b"\n"
        line = _first_line(path, lambda b: not _ends(b, usual))
        faults.add(path.name, "line ends are mixed: use either LF or CR LF in the whole file", line)
    elif found.cr:
        faults.add(path.name, "lines end with CR alone: use LF or CR LF", 1)
    if found.last not in (b"\n", b"\r"):
        lines = found.crlf + found.lf + found.cr + 1
        faults.add(path.name, "the last line has no line end: the file may have been cut off", lines)
    return found.decodes and not found.nul and not found.cr


def _ends(line: bytes, usual: bytes) -> bool:
    if not line.endswith(b"\n") or b"\r" in line[:-2]:
        return not line.endswith((b"\n", b"\r")) and b"\r" not in line
    return line.endswith(b"\r\n") == (usual == b"\r\n")


def _undecodable(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _first_line(path: Path, at_fault: Callable[[bytes], bool]) -> int | None:
    with path.open("rb") as file:
        return next((i for i, line in enumerate(file, start=1) if at_fault(line)), None)
