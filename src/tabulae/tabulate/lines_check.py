"""What is wrong with a file of records: every fault, with its line and column.

This is the slow and plain reading of a layout, for files that the engine refuses; both accept the same files.
"""

from __future__ import annotations

from pathlib import Path

from .lines import LineLayout
from .lines_bytes import (
    LONGEST,
    check_file,
    header_of,
    lines_of,
)
from .lines_faults import Found, LineFault
from .lines_rows import Rows

_BOM = b"\xef\xbb\xbf"
_OTHERS = {"|": "vertical bars", ",": "commas", ";": "semicolons", "\t": "tabs"}


def check_lines(
    path: str | Path, layout: LineLayout, *, leaves: bool = True, codes: bool = True
) -> list[LineFault]:
    """All faults of a file, in the order of its lines; at most 1,000 of a kind, and then how many more there are.

    A fault of the header ends the check, as nobody can say then what the fields are.

    Args:
        path: the file.
        layout: its columns.
        leaves, codes: False where the layout cannot list them, so that they are not looked up.

    Raises:
        DataError: there is no such file.

    >>> import tempfile
    >>> from .lines import Key, LineColumn, Listed
    >>> columns = (LineColumn("BLOCK", Key()), LineColumn("SEX", Listed("sex", ("1", "2"))))
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"BLOCK|SEX\\n0001|1\\n0007|3\\n")
    ...     file.flush()
    ...     faults = check_lines(file.name, LineLayout(columns, leaves=[("0001",)]))
    >>> print(*faults, sep="\\n")
    line 3, column SEX: must be one of '1', '2'
    line 3, column BLOCK: the geography has no such leaf
    """
    path = Path(path)
    check_file(path)
    if path.stat().st_size == 0:
        return [LineFault(None, None, "the file is empty: it has no header and no records")]
    _, first = next(lines_of(path))
    found = Found()
    head = first[0].removesuffix(b"\r")
    if head.startswith(_BOM):
        found.add(1, None, "the file begins with a byte-order mark: save it as UTF-8 without one")
    if faults := _header_faults(head.removeprefix(_BOM), layout):
        return found.listed() + faults
    rows = Rows(layout, found, return_ends=first[0].endswith(b"\r"), look_up=(leaves, codes))
    return _row_faults(path, rows, found)


def _row_faults(path: Path, rows: Rows, found: Found) -> list[LineFault]:
    blocks = lines_of(path)
    number, lines = next(blocks)
    for following in blocks:
        rows.check(number, lines)
        number, lines = following
    rest = lines[0]
    if len(rest) > LONGEST:
        found.add(number, None, f"the line is longer than {LONGEST} bytes: what follows was not checked")
    elif rest:
        message = "the last line is cut off: it has no newline at its end"
        found.add(number, None, message, rest.decode(errors="replace"))
    elif number == 2:
        found.add(None, None, "the file has a header and no records")
    return found.listed()


def _header_faults(line: bytes, layout: LineLayout) -> list[LineFault]:
    found: list[LineFault] = []

    def add(message: str, column: str | None = None) -> None:
        found.append(LineFault(1, column, message))

    if b"\r" in line:
        add(
            "a carriage return stands within the line: end lines with a newline, or with both, not with it alone"
        )
        return found
    if len(line) > LONGEST:
        add(f"the line is longer than {LONGEST} bytes")
        return found
    try:
        names = line.decode().split(layout.delimiter)
    except UnicodeDecodeError:
        add("the header is not UTF-8 text")
        return found
    if line == header_of(layout):
        return found
    for sign, word in _OTHERS.items():
        if len(names) == 1 < len(layout.names) and sign in names[0]:
            add(f"the fields seem to be divided by {word}: they must be divided by {layout.delimiter!r}")
            return found
    missing = [name for name in layout.names if name not in names]
    repeated = [name for name in layout.names if names.count(name) > 1]
    extra = [i for i, name in enumerate(names) if name not in layout.names]
    for name in missing:
        add("the column is missing", name)
    for name in repeated:
        add("the column is there more than once", name)
    found += [
        LineFault(1, None, f"column {i + 1} of the header is not one of the layout", names[i]) for i in extra
    ]
    if not (missing or repeated or extra) and names != list(layout.names):
        add(f"the columns must stand in the order {', '.join(layout.names)}")
    return found
