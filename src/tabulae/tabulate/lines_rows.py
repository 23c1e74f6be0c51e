"""The check of many lines at a time, column by column: each distinct value is looked at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from .lines import (
    Code,
    Key,
    LineLayout,
    Unused,
)
from .lines_faults import Found
from .lines_leaves import joined, leaf_keys


class Rows:
    """The check of the lines after the header, many at a time; ``look_up`` says whether leaves and codes are known."""

    def __init__(
        self, layout: LineLayout, found: Found, *, return_ends: bool, look_up: tuple[bool, bool]
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
