"""Text of lines and fields read strictly: encoding, line ends, header and number of fields, each mistake with its line.

UTF-8, one header line, fields separated by a bar. Nothing is quoted or escaped: a quote is a letter like others.
Mistakes are collected over all files before anything is said.
"""

from __future__ import annotations

import codecs
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ...errors import Problem, SpecError


@dataclass(eq=False)
class Faults:
    """What is wrong and what is worth a warning, file by file; so many lines are named of each column of a file."""

    listed: int = 1000
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    confidential: list[str] = field(default_factory=list)
    _lines: Counter[tuple[str, str | None]] = field(default_factory=Counter, repr=False)

    def add(
        self,
        file: str,
        message: str,
        line: int | None = None,
        column: str | None = None,
        confidential: str | None = None,
    ) -> None:
        """One mistake; ``confidential`` is a value that no message may hold."""
        problem = Problem(file, message, line, column)
        self.problems.append(problem)
        if confidential is not None:
            where = f"{file}, line {line}, {column}" if column is not None else f"{file}, line {line}"
            self.confidential.append(f"{where}: {confidential!r}")

    def add_row(self, file: str, message: str, line: int, column: str | None = None) -> None:
        """One mistake of a line of a table: the first ones of a column are named, the rest counted."""
        self.add_rows(file, message, [line], column)

    def add_rows(
        self,
        file: str,
        message: str,
        lines: Sequence[int] | np.ndarray,
        column: str | None = None,
        confidential: Sequence[str] = (),
    ) -> None:
        """The same mistake in several lines; ``confidential`` are their values, or those of the first ones."""
        room = max(0, self.listed - self._lines[file, column])
        self._lines[file, column] += len(lines)
        for line, value in zip_longest(lines[:room], confidential[:room]):
            self.add(file, message, int(line), column, value)

    @property
    def count(self) -> int:
        """How many mistakes there are, named or not."""
        return len(self.problems) + sum(max(0, number - self.listed) for number in self._lines.values())

    def counted(self) -> list[Problem]:
        """All mistakes, and how many more lines have one that was not named."""
        more = {where: number - self.listed for where, number in self._lines.items() if number > self.listed}
        return self.problems + [
            Problem(file, f"there are mistakes in {number:,} more lines", None, column)
            for (file, column), number in more.items()
        ]

    def warn(self, file: str, message: str, line: int | None = None, column: str | None = None) -> None:
        """Something that is no mistake and may surprise."""
        self.warnings.append(Problem(file, message, line, column))

    def stop(self, source: str) -> None:
        """Go no further where there is a mistake.

        Raises:
            SpecError: with all of them.
        """
        if self.problems:
            raise SpecError(self.counted(), source, confidential="\n".join(self.confidential) or None)


DELIMITER = "|"
_BLOCK = 1 << 24
_BOM = codecs.BOM_UTF8
_OTHERS = {",": "commas", "\t": "tabs", ";": "semicolons"}


@dataclass
class TextRows:
    """Some lines of a file: the wanted columns as text, and where the lines stand."""

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


def read_rows(
    path: Path, columns: Sequence[str], faults: Faults, *, others: bool = False, private: bool = False
) -> Iterator[TextRows]:
    """The rows of a file, some hundred thousand at a time, its mistakes noted on the way.

    Nothing is read of a file that is no text of lines, or whose header is wrong. A line with the wrong number of fields
    is noted and left out; the numbers of the others stay right.

    Args:
        path: the file.
        columns: those of its header, in order.
        faults: where mistakes are noted.
        others: whether other columns may stand among them, unread.
        private: whether no message may hold what the file holds, in its first line, too.
    """
    if not can_read(path, faults) or not _is_text(path, _scan(path), faults):
        return
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").rstrip("\r\n").split(DELIMITER)
    if not _check_header(path.name, header, columns, faults, others=others, private=private):
        return
    ragged: list[tuple[int, int, str]] = []
    lines, any_row = _LineCounter(), False
    try:
        for batch in _batches(path, header, columns, ragged):
            any_row = any_row or batch.num_rows > 0
            yield TextRows(
                {name: batch.column(name) for name in columns},
                lines.next(batch.num_rows, [line for line, *_ in ragged]),
            )
    except pa.ArrowInvalid:
        faults.add(path.name, f"has a line of more than {_BLOCK:,} bytes: what follows was not checked")
    for line, fields, content in ragged:
        words = f"this line has {fields} fields; the header has {len(header)}"
        faults.add_rows(path.name, words, [line], None, [content] if private else ())
    if not any_row and not ragged:
        faults.add(path.name, "there is no row below the header")


def line_count(path: Path, columns: Sequence[str]) -> int | None:
    """How many lines a file has, or None where it is not text of whole lines under a header of these columns."""
    if not can_read(path, Faults()):
        return None
    found, header = _scan(path), DELIMITER.join(columns).encode()
    ends_alike = found.crlf == 0 or found.lf == 0
    sound = found.decodes and not found.nul and not found.cr and ends_alike and found.last == b"\n"
    with path.open("rb") as file:
        begins = file.readline(len(header) + 2) == header + (b"\r\n" if found.crlf else b"\n")
    lines = found.crlf + found.lf
    return lines if sound and begins and lines > 1 else None


def _check_header(
    file: str, header: Sequence[str], columns: Sequence[str], faults: Faults, *, others: bool, private: bool
) -> bool:
    """Whether a header has the columns in order; where not, what is wrong with it."""
    wanted = DELIMITER.join(columns)
    if len(header) == 1 and len(columns) > 1:
        other = next((words for sign, words in _OTHERS.items() if sign in header[0]), None)
        told = f": this one has {other}" if other else ""
        faults.add(file, f"the fields must be separated by '|'{told}; the header must be {wanted}", 1)
        return False
    count = faults.count
    for name in columns:
        if header.count(name) != 1:
            what = "is missing from the header" if name not in header else "stands in the header twice"
            faults.add(file, f"this column {what}; the header must have {wanted}", 1, name)
    for i, name in enumerate(dict.fromkeys(header), start=1):
        if name not in columns and private:
            faults.add(file, f"column {i} is none of them; the header must be {wanted}", 1, None, name)
        elif name not in columns and not others:
            faults.add(file, f"there is no such column; the header must be {wanted}", 1, name)
    if faults.count == count and [n for n in header if n in columns] != list(columns):
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
    path: Path, header: Sequence[str], columns: Sequence[str], ragged: list[tuple[int, int, str]]
) -> Iterator[pa.RecordBatch]:
    """The wanted columns as text, batch by batch; lines that do not have all fields go to ``ragged``."""

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append((row.number, row.actual_columns, row.text))
        return "skip"

    names = [name if name in columns else f"extra {i}" for i, name in enumerate(header)]
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
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
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
