"""Faults of lines: where each is, so many of a kind at most, and the error that tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError

_LISTED = 1000
_SHOWN = 20


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


def told(path: Path, faults: Sequence[LineFault]) -> DataError:
    """The error that names the first faults; their values are confidential."""
    more = len(faults) - _SHOWN
    lines = [f"  {fault}" for fault in faults[:_SHOWN]] + ([f"  ... and {more} more"] if more > 0 else [])
    values = [f"{fault} ({fault.value!r})" for fault in faults[:_SHOWN] if fault.value is not None]
    return DataError(
        "\n".join(
            [f"{path.name} is not valid: nothing was counted", *lines, "Correct these lines, and run again."]
        ),
        confidential="\n".join(values) or None,
    )


class Found:
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
