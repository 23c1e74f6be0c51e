"""Records in strict delimited text: which columns there are, in which order, and what each may hold.

One record a line, UTF-8, one line of column names, fields divided by one sign. Nothing is quoted or escaped: a quote
is a letter like others. A layout says everything that a valid file may hold, so that all else is a fault.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...domain import CodeFamily
from ...errors import DataError, InvalidArgument


@dataclass(frozen=True)
class Unused:
    """A column that may hold anything, and is not read."""


@dataclass(frozen=True)
class Key:
    """A part of the key of the leaf that the record lies in; all parts together, in order, name a known leaf."""


@dataclass(frozen=True)
class Listed:
    """An attribute whose values are listed: the i-th value has code i."""

    attribute: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def fault(self, value: str) -> str | None:
        """What is wrong with a value, or None."""
        return None if value in self.values else f"must be one of {', '.join(map(repr, self.values))}"


@dataclass(frozen=True)
class WholeNumber:
    """An attribute in digits, from ``low`` to ``high``, with zeros before them or not; ``low`` has code 0."""

    attribute: str
    low: int
    high: int

    @property
    def size(self) -> int:
        """The number of values."""
        return self.high - self.low + 1

    def fault(self, value: str) -> str | None:
        """What is wrong with a value, or None."""
        digits = re.fullmatch("0*([0-9]+)", value)
        known = digits and len(digits[1]) <= len(str(self.high)) and self.low <= int(digits[1]) <= self.high
        return None if known else f"must be a whole number from {self.low} to {self.high}, in digits"


@dataclass(frozen=True)
class Code:
    """One code of a family.

    Args:
        family: the codes there are.
        none: the text that stands for no code; None where the column must hold one. After a column that holds none,
            the next columns of the family hold none, too.
        pattern: what codes look like, as a regular expression.
        looks: the same in words, for messages.
        read: False for a column that is checked and then left out.
    """

    family: CodeFamily
    none: str | None = None
    pattern: str = ".+"
    looks: str = "a code"
    read: bool = True

    def fault(self, value: str, *, known: bool = True) -> str | None:
        """What is wrong with a value, or None; only how it looks where the codes are not ``known``."""
        if value == self.none:
            return None
        if not re.fullmatch(self.pattern, value):
            return f"must be {self.looks}" + (f", or {self.none!r}" if self.none else "")
        if not known or value in self.family.position:
            return None
        return f"is not a known code of {self.family.name!r}"


Rule = Unused | Key | Listed | WholeNumber | Code


@dataclass(frozen=True)
class LineColumn:
    """One column: its name in the header, and the rule of its values."""

    name: str
    rule: Rule


@dataclass(frozen=True, eq=False)
class LineLayout:
    """The columns of a file of records, in order, and the leaves that records may lie in.

    Args:
        columns: all of them.
        leaves: the key of each leaf: as many parts as there are `Key` columns; the i-th is leaf i.
        delimiter: the sign between fields.

    Raises:
        InvalidArgument: a layout that no file could follow, or that could be read in two ways.

    >>> race = CodeFamily("race", ("10", "20"), most=2)
    >>> LineLayout(
    ...     (
    ...         LineColumn("BLOCK", Key()),
    ...         LineColumn("SEX", Listed("sex", ("1", "2"))),
    ...         LineColumn("RACE1", Code(race)),
    ...         LineColumn("RACE2", Code(race, none="Null")),
    ...     ),
    ...     leaves=[("0001",), ("0002",)],
    ... ).sizes
    {'sex': 2}
    """

    columns: tuple[LineColumn, ...]
    leaves: Sequence[tuple[str, ...]] = field(repr=False)
    delimiter: str = "|"

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter.isalnum() or not self.delimiter.isascii():
            raise InvalidArgument(f"fields are divided by one ASCII sign, not by {self.delimiter!r}")
        if self.delimiter in "\r\n":
            raise InvalidArgument("fields are not divided by line ends")
        if not self.keys:
            raise InvalidArgument("a layout needs a Key column, which tells the leaf of a record")
        for name in self.names:
            if not name or re.search(f"[\r\n{re.escape(self.delimiter)}]", name):
                raise InvalidArgument(f"{name!r} cannot be the name of a column")
        attributes = [rule.attribute for _, rule in self.cells]
        for what, listed in (("column", self.names), ("attribute", attributes)):
            if len(set(listed)) != len(listed):
                raise InvalidArgument(f"a layout has one {what} of a name")
        for _, rule in self.cells:
            if rule.size < 1 or (isinstance(rule, Listed) and len(set(rule.values)) != rule.size):
                raise InvalidArgument(f"attribute {rule.attribute!r} needs values, each listed once")
        for family in self.families:
            self._check_codes(family)

    def _check_codes(self, family: CodeFamily) -> None:
        rules = [rule for _, rule in self.codes if rule.family.name == family.name]
        if any(rule.family != family for rule in rules):
            raise InvalidArgument(f"the columns of {family.name!r} are given different codes")
        if sum(rule.read for rule in rules) > family.most:
            raise InvalidArgument(
                f"a record carries up to {family.most} of {family.name!r}, but more columns are read"
            )
        if len({rule.none for rule in rules} - {None}) > 1:
            raise InvalidArgument(f"one text stands for no code of {family.name!r}")
        if any(rule.none in family.position for rule in rules):
            raise InvalidArgument(f"the text for no code of {family.name!r} is a code, too")
        if any(late.read and not early.read for early, late in pairwise(rules)):
            raise InvalidArgument(f"of the columns of {family.name!r}, the first ones are read")

    @property
    def names(self) -> tuple[str, ...]:
        """The header."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """Positions of the parts of the leaf's key."""
        return tuple(i for i, column in enumerate(self.columns) if isinstance(column.rule, Key))

    @cached_property
    def cells(self) -> tuple[tuple[int, Listed | WholeNumber], ...]:
        """Positions and rules of the attributes."""
        return tuple(
            (i, column.rule)
            for i, column in enumerate(self.columns)
            if isinstance(column.rule, Listed | WholeNumber)
        )

    @cached_property
    def codes(self) -> tuple[tuple[int, Code], ...]:
        """Positions and rules of the codes."""
        return tuple(
            (i, column.rule) for i, column in enumerate(self.columns) if isinstance(column.rule, Code)
        )

    @cached_property
    def families(self) -> tuple[CodeFamily, ...]:
        """The families of codes, in the order in which columns name them."""
        return tuple({rule.family.name: rule.family for _, rule in self.codes}.values())

    @property
    def sizes(self) -> dict[str, int]:
        """Attribute -> number of its values."""
        return {rule.attribute: rule.size for _, rule in self.cells}

    @cached_property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """Pairs of columns (one, the next) of one family: where the first holds no code, nor does the second."""
        return tuple(
            pair
            for family in self.families
            for pair in pairwise(i for i, rule in self.codes if rule.family.name == family.name)
        )


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


_LISTED = 1000


@dataclass(frozen=True)
class LineFault:
    """One fault: the line (from 1; None for the file or for many lines), the column, what is wrong, and the value.

    The value is confidential.
    """

    line: int | None
    column: str | None
    message: str
    value: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        column = None if self.column is None else f"column {self.column}"
        where = ", ".join(part for part in (line, column) if part)
        return f"{where}: {self.message}" if where else self.message


class FoundFaults:
    """Faults by kind (column and message), so many of each at most."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str | None, str], list[LineFault]] = {}
        self._more: dict[tuple[str | None, str], int] = {}

    def add(self, line: int | None, column: str | None, message: str, value: str | None = None) -> None:
        kind = self._by_kind.setdefault((column, message), [])
        if len(kind) < _LISTED:
            kind.append(LineFault(line, column, message, value))
        else:
            self.skip(column, message, 1)

    def room(self, column: str | None, message: str) -> int:
        """How many more of a kind are listed."""
        return _LISTED - len(self._by_kind.get((column, message), ()))

    def skip(self, column: str | None, message: str, number: int) -> None:
        self._more[column, message] = self._more.get((column, message), 0) + number

    def listed(self) -> list[LineFault]:
        faults = [fault for kind in self._by_kind.values() for fault in kind]
        faults.sort(key=lambda fault: (fault.line is None, fault.line or 0))
        more = [
            LineFault(None, column, f"{message}: in {number} more lines")
            for (column, message), number in self._more.items()
        ]
        return faults + more


_AT_ONCE = 1 << 20


def leaf_keys(layout: LineLayout) -> Any:
    """An Arrow array of text: the parts of each leaf's key, joined by the delimiter.

    Raises:
        InvalidArgument: a key that has too few or too many parts, is there twice, or could not stand in a line.
    """
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute
    parts, keys = len(layout.keys), []
    leaves = iter(layout.leaves)
    while some := list(islice(leaves, _AT_ONCE)):
        if any(len(leaf) != parts for leaf in some):
            raise InvalidArgument(
                f"the key of a leaf has {parts} parts, one for each Key column of the layout"
            )
        keys.append(pa.array([layout.delimiter.join(leaf) for leaf in some], pa.string()))
    keys = pa.chunked_array(keys, pa.string())
    if pc.count_distinct(keys).as_py() != len(keys):
        raise InvalidArgument("the layout names a leaf twice")
    signs = pc.sum(pc.count_substring(keys, layout.delimiter)).as_py() or 0
    if signs != len(keys) * (parts - 1) or pc.any(pc.match_substring_regex(keys, "[\r\n]")).as_py():
        raise InvalidArgument("the key of a leaf holds the delimiter or a line end")
    return keys


def joined(parts: list[Any], layout: LineLayout) -> Any:
    """Columns of text side by side, with the delimiter between them."""
    import pyarrow.compute

    pc: Any = pyarrow.compute
    return pc.binary_join_element_wise(*parts, layout.delimiter)


class LineRows:
    """The check of the lines after the header, many at a time; ``look_up`` says whether leaves and codes are known."""

    def __init__(
        self, layout: LineLayout, found: FoundFaults, *, return_ends: bool, look_up: tuple[bool, bool]
    ) -> None:
        self.layout, self.found, self.return_ends = layout, found, return_ends
        leaves, self.codes_known = look_up
        self.leaves = _Keys(leaf_keys(layout)) if leaves else None

    def check(self, number: int, lines: list[bytes]) -> None:
        """Check some lines, of which the first has this number."""
        import pyarrow as pa
        import pyarrow.compute

        pc: Any = pyarrow.compute
        at = np.arange(number, number + len(lines))
        if number == 1:
            at, lines = at[1:], lines[1:]
        if self.return_ends or any(b"\r" in line for line in lines):
            lines = [self._without_return(i, line) for i, line in zip(at.tolist(), lines, strict=True)]
        text = self._decoded(at, lines)
        delimiters: Any = pc.count_substring(text, self.layout.delimiter)
        fits = delimiters.to_numpy(zero_copy_only=False) == len(self.layout.columns) - 1
        message = f"must have {len(self.layout.columns)} fields divided by {self.layout.delimiter!r}, as the header has"
        self._add(at[~fits], None, message, text.filter(pa.array(~fits)))
        at, text = at[fits], text.filter(pa.array(fits))
        if len(text):
            fields = pc.split_pattern(text, self.layout.delimiter).flatten()
            self._check_fields(at, fields)

    def _without_return(self, number: int, line: bytes) -> bytes:
        ends = line.endswith(b"\r")
        if ends != self.return_ends:
            self.found.add(
                number, None, "the line ends in another way than the header: line ends must be all alike"
            )
        line = line[:-1] if ends else line
        if b"\r" in line:
            self.found.add(
                number, None, "a carriage return stands within the line", line.decode(errors="replace")
            )
        return line

    def _decoded(self, at: np.ndarray, lines: list[bytes]) -> Any:
        """The lines as text; what is not UTF-8 is told, and read with a sign in its place."""
        import pyarrow as pa

        array = pa.array(lines, pa.binary())
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            text = [line.decode(errors="replace") for line in lines]
        for i, line, read in zip(at.tolist(), lines, text, strict=True):
            if read.encode() != line:
                self.found.add(i, None, "the line is not UTF-8 text", read)
        return pa.array(text, pa.string())

    def _check_fields(self, at: np.ndarray, fields: Any) -> None:
        import pyarrow as pa

        count = len(self.layout.columns)
        columns = {
            i: fields.take(pa.array(np.arange(i, len(fields), count)))
            for i, column in enumerate(self.layout.columns)
            if not isinstance(column.rule, Unused)
        }
        for i, values in columns.items():
            if not isinstance(self.layout.columns[i].rule, Key):
                self._check_values(at, i, values)
        if self.leaves is not None:
            self._check_leaves(at, columns, self.leaves)
        for i, j in self.layout.neighbours:
            self._check_after(at, i, j, columns)

    def _check_values(self, at: np.ndarray, i: int, values: Any) -> None:
        import pyarrow as pa

        distinct = values.dictionary_encode()
        messages = [self._fault(i, value) for value in distinct.dictionary.to_pylist()]
        for message in sorted({message for message in messages if message is not None}):
            of_kind = np.array([other == message for other in messages])
            wrong = of_kind[distinct.indices.to_numpy()]
            self._add(at[wrong], self.layout.names[i], message, values.filter(pa.array(wrong)))

    def _fault(self, i: int, value: str) -> str | None:
        rule = self.layout.columns[i].rule
        assert not isinstance(rule, Unused | Key)
        return rule.fault(value, known=self.codes_known) if isinstance(rule, Code) else rule.fault(value)

    def _check_leaves(self, at: np.ndarray, columns: dict[int, Any], leaves: _Keys) -> None:
        import pyarrow as pa

        keys = joined([columns[i] for i in self.layout.keys], self.layout)
        distinct = keys.dictionary_encode()
        known = leaves.hold(distinct.dictionary)
        wrong = ~known[distinct.indices.to_numpy()]
        names = ", ".join(self.layout.names[i] for i in self.layout.keys)
        self._add(at[wrong], names, "the geography has no such leaf", keys.filter(pa.array(wrong)))

    def _check_after(self, at: np.ndarray, i: int, j: int, columns: dict[int, Any]) -> None:
        import pyarrow as pa
        import pyarrow.compute

        pc: Any = pyarrow.compute
        rule = self.layout.columns[i].rule
        assert isinstance(rule, Code)
        if rule.none is None:
            return
        equal = [pc.equal(columns[k], rule.none).to_numpy(zero_copy_only=False) for k in (i, j)]
        wrong = equal[0] & ~equal[1]
        message = f"must be {rule.none!r}, as the column before it is"
        self._add(at[wrong], self.layout.names[j], message, columns[j].filter(pa.array(wrong)))

    def _add(self, at: np.ndarray, column: str | None, message: str, values: Any) -> None:
        room = self.found.room(column, message)
        for line, value in zip(at[:room].tolist(), values[:room].to_pylist(), strict=True):
            self.found.add(line, column, message, value)
        if len(at) > room:
            self.found.skip(column, message, len(at) - room)


class _Keys:
    """Keys in sorted order, each with a letter after it, so that no zero byte at an end is lost."""

    def __init__(self, keys: Any) -> None:
        import pyarrow.compute

        pc: Any = pyarrow.compute
        self.width = 1 + (pc.max(pc.binary_length(keys)).as_py() or 0)
        self.sorted = np.sort(self._bytes(keys))

    def _bytes(self, keys: Any) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute

        pc: Any = pyarrow.compute
        keys = pc.binary_join_element_wise(keys, ".", "")
        return keys.cast(pa.binary()).to_numpy(zero_copy_only=False).astype(f"S{self.width}")

    def hold(self, keys: Any) -> np.ndarray:
        """Which of some keys are among these."""
        import pyarrow as pa
        import pyarrow.compute

        pc: Any = pyarrow.compute
        found = pc.less(pc.binary_length(keys), self.width).to_numpy(zero_copy_only=False)
        found = found.copy()
        short = self._bytes(keys.filter(pa.array(found)))
        at = np.searchsorted(self.sorted, short)
        found[found] = (at < self.sorted.size) & (self.sorted[np.minimum(at, self.sorted.size - 1)] == short)
        return found


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
    found = FoundFaults()
    head = first[0].removesuffix(b"\r")
    if head.startswith(_BOM):
        found.add(1, None, "the file begins with a byte-order mark: save it as UTF-8 without one")
    if faults := _header_faults(head.removeprefix(_BOM), layout):
        return found.listed() + faults
    rows = LineRows(layout, found, return_ends=first[0].endswith(b"\r"), look_up=(leaves, codes))
    return _row_faults(path, rows, found)


def _row_faults(path: Path, rows: LineRows, found: FoundFaults) -> list[LineFault]:
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
