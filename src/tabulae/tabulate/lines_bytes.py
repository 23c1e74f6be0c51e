"""The bytes of a file of lines: whole lines at a time, and a quick count that only a well-formed file passes."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from .lines import LineLayout

_BLOCK = 1 << 22
LONGEST = 1 << 20
"""The longest line in bytes; a longer one is a fault."""


def check_file(path: Path) -> None:
    """Raise a `DataError` where there is no file to read."""
    if path.is_dir():
        raise DataError(f"{path.name} is a folder: the records must be one file")
    if not path.exists():
        raise DataError(f"{path.name} does not exist: check the path")
    if not path.is_file():
        raise DataError(f"{path.name} is not a regular file: copy the records into one")


def header_of(layout: LineLayout) -> bytes:
    """The line of column names, without its end."""
    return layout.delimiter.join(layout.names).encode()


def line_count(path: Path, layout: LineLayout) -> int | None:
    """How many lines a file has, or None where it is not text of whole lines under the layout's header.

    That is UTF-8 with no byte-order mark, all lines ending alike, the last one included, and no carriage return
    within a line.
    """
    check_file(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    count = returns = pairs = 0
    last = b""
    try:
        with path.open("rb") as file:
            head = file.readline(LONGEST)
            file.seek(0)
            while block := file.read(_BLOCK):
                count += block.count(b"\n")
                if b"\r" in block or last == b"\r":
                    returns += block.count(b"\r")
                    pairs += (last + block).count(b"\r\n")
                if not block.isascii() or decoder.getstate()[0]:
                    decoder.decode(block)
                last = block[-1:]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    ends_alike = returns == pairs and pairs in (0, count)
    begins = header_of(layout) + (b"\r\n" if pairs else b"\n")
    return count if ends_alike and last == b"\n" and head == begins and count > 1 else None


def lines_of(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file without their newlines, many at a time, with the number of the first.

    What stands after the last newline comes last, by itself, also where it is empty. A line that is too long ends the
    file, as the last thing that is yielded.
    """
    number, rest = 1, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield number, lines
                number += len(lines)
            if len(rest) > LONGEST:
                break
    yield number, [rest]
