"""How a CSV file is written: what divides its fields, its encoding, its quotes, its decimal sign and its header.

Nothing of it is guessed when records are counted: it is what ``[source]`` says, and by default RFC 4180 in UTF-8.
Only a draft (`tabulae init`) finds it out, by :func:`find_dialect`.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, InvalidArgument

_LONGEST_NAME = 100_000
_ENCODING = re.compile(r"utf-8|utf-16(-[lb]e)?|iso8859-\d+|cp\d{3,4}|mac-[a-z]+|koi8-[rtu]")
_AT_ONCE = 1 << 20
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}


def _codec(encoding: str) -> str | None:
    """Python's name of an encoding of text; None where there is none."""
    try:
        name = codecs.lookup(encoding.strip()).name
    except (LookupError, ValueError):
        return None
    name = "utf-8" if name == "utf-8-sig" else name
    return name if _ENCODING.fullmatch(name) else None


@dataclass(frozen=True)
class Dialect:
    """How one CSV file is written.

    Args:
        delimiter: the one letter between fields.
        encoding: "utf-8", "utf-16", "latin-1", "windows-1252", or another by its usual name. A mark of the order of
            octets at the beginning of a file is no part of its text.
        decimal: "." or ",", the sign before the decimals of a number.
        quote: the letter around fields that hold the delimiter, doubled within them; "" where there is none.
        header: the names of the columns, where the first line is a record; None where that line names them.

    Raises:
        InvalidArgument: what cannot be a dialect, with what to write instead.

    >>> Dialect(";", "windows-1252", ",").is_utf8
    False
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    quote: str = '"'
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if mistake := self._mistake():
            raise InvalidArgument(mistake)

    def _mistake(self) -> str | None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter.isalnum():
            return f'delimiter is one sign, such as ";" or "\\t" (a tab), and not {self.delimiter!r}'
        if len(self.quote) > 1 or not self.quote.isascii() or self.quote.isalnum():
            return f'quote is one sign, or "" where fields have none around them, and not {self.quote!r}'
        if {self.delimiter, self.quote} & {"\n", "\r", "\0"} or self.delimiter == self.quote:
            return "delimiter and quote must be two different signs, and no end of a line"
        if self.decimal not in (".", ","):
            return f'decimal is "." or ",", and not {self.decimal!r}'
        if _codec(self.encoding) is None:
            return (
                f'there is no encoding {self.encoding!r} of text: write "utf-8", "utf-16", "latin-1" or '
                '"windows-1252"'
            )
        if self.header is not None and not (self.header and all(name.strip() for name in self.header)):
            return 'header names every column of a file without a header line, as in header = ["sex", "age"]'
        return None

    @property
    def is_utf8(self) -> bool:
        """Whether engines read the file as it is."""
        return _codec(self.encoding) == "utf-8"


RFC4180 = Dialect()
"""Commas, double quotes, UTF-8, a line of names."""


def _reading(dialect: Dialect) -> str:
    """The codec that reads a file from its beginning, the mark of the order of octets left out."""
    codec = str(_codec(dialect.encoding))
    return "utf-8-sig" if codec == "utf-8" else codec


def csv_header(path: Path, dialect: Dialect = RFC4180) -> tuple[str, ...]:
    """The names of the columns: those of the dialect, or those in the first line of the file.

    The line is read here, and not by the engine, because engines guess: a file without a header, or with another
    delimiter, would get names made up from its records.
    """
    if dialect.header is not None:
        return dialect.header
    quoting = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    signs = {"delimiter": dialect.delimiter, "quotechar": dialect.quote or None, "quoting": quoting}
    try:
        with path.open(encoding=_reading(dialect), newline="") as file:
            header = [
                name.removeprefix("\ufeff") for name in next(csv.reader(file, strict=True, **signs), [])
            ]
    except UnicodeError as error:
        unreadable = _unreadable(path, dialect, error)
    else:
        unreadable = None
    if unreadable is not None:
        raise unreadable  # here, so that it has no context to print
    # The reader has a limit of its own, which anything else in the process may have changed.
    if max(map(len, header), default=0) > _LONGEST_NAME:
        raise DataError(
            f"{path.name}: its first line is not a header: it has a field of over {_LONGEST_NAME:,} letters"
        )
    if not any(name.strip() for name in header):
        raise DataError(f"{path.name}: the first line is empty; it must name the columns")
    return tuple(header)


def check_delimiter(where: str, names: tuple[str, ...], wanted: set[str], dialect: Dialect) -> None:
    """Refuse a header of one name that another delimiter would divide, with what to write."""
    if len(names) != 1 or names[0] in wanted:
        return
    for sign, word in _DELIMITERS.items():
        if sign in names[0] and sign != dialect.delimiter:
            told = "\\t" if sign == "\t" else sign
            raise DataError(
                f'{where}: the fields seem to be divided by {word}: write delimiter = "{told}" under [source]',
                confidential=f"the first line is {names[0]!r}",
            )


@contextlib.contextmanager
def in_utf8(path: Path, dialect: Dialect) -> Iterator[Path]:
    """A place where the file can be read once, from its beginning, in UTF-8: itself, or a pipe that is fed with it.

    No copy is written: what goes through the pipe is in memory only.

    Raises:
        DataError: the file is not in its encoding; raised at the end, in place of what the reader of the pipe raises.
    """
    if dialect.is_utf8:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tabulae-") as folder:
        pipe = Path(folder) / "records.csv"
        os.mkfifo(pipe, 0o600)
        faults: list[UnicodeError | OSError] = []
        feeder = threading.Thread(target=_feed, args=(path, dialect, pipe, faults), daemon=True)
        feeder.start()
        try:
            yield pipe
        finally:
            _release(pipe, feeder)
            if faults:
                raise _unreadable(path, dialect, faults[0])


def _feed(path: Path, dialect: Dialect, pipe: Path, faults: list[UnicodeError | OSError]) -> None:
    try:
        with (
            pipe.open("w", encoding="utf-8", newline="") as out,
            path.open(encoding=_reading(dialect), newline="") as file,
        ):
            out.write(
                file.read(_AT_ONCE).removeprefix("\ufeff")
            )  # a mark may stand there though the order is named
            while text := file.read(_AT_ONCE):
                out.write(text)
    except BrokenPipeError:
        pass  # the reader ended before the file did, and says why
    except (UnicodeError, OSError) as error:
        faults.append(error)


def _release(pipe: Path, feeder: threading.Thread) -> None:
    """Let the feeder end, if nobody reads the pipe any longer or nobody ever did."""
    feeder.join(0.001)
    while feeder.is_alive():
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        feeder.join(0.01)


def _unreadable(path: Path, dialect: Dialect, error: UnicodeError | OSError) -> DataError:
    if isinstance(error, OSError):
        return DataError(f"{path.name} cannot be read: {error.strerror}")
    encoding = "UTF-8" if dialect.is_utf8 else dialect.encoding
    return DataError(
        f'{path.name} is not {encoding} text: name its encoding under [source], as encoding = "windows-1252", '
        "or save it as UTF-8",
        confidential=str(error),
    )


def find_dialect(path: Path) -> Dialect:
    """The dialect that a CSV file seems to be written in, for a draft that somebody looks at.

    Its encoding is that of the mark of the order of octets, UTF-8 if all of it can be read so, windows-1252 otherwise.
    Fields are divided by the sign of ``, ; tab |`` that divides the first line into most of them. Where that is the
    semicolon, the comma is the decimal sign, as programs for tables write such files.

    Privacy:
        The whole file is looked at for its encoding, and its first line for the sign; no value of a record is kept.
    """
    with path.open("rb") as file:
        start = file.read(4)
    encoding = "utf-8"
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    elif not _can_be_read(path, "utf-8"):
        encoding = "windows-1252" if _can_be_read(path, "cp1252") else "latin-1"
    with path.open(encoding=_reading(Dialect(encoding=encoding)), newline="") as file:
        line = file.readline(_AT_ONCE)
    fields = {sign: len(next(csv.reader([line], delimiter=sign), [])) for sign in (",", ";", "\t", "|")}
    delimiter = max(fields, key=lambda sign: fields[sign])
    return Dialect(delimiter, encoding, "," if delimiter == ";" else ".")


def _can_be_read(path: Path, codec: str) -> bool:
    try:
        with path.open(encoding=codec, newline="") as file:
            while file.read(_AT_ONCE):
                pass
    except UnicodeError:
        return False
    return True
