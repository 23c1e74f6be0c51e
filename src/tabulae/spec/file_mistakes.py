"""Mistakes of one file that a spec names, each with its line, told up to the number worth reading."""

from __future__ import annotations

from dataclasses import dataclass

from .lines import KeyPath
from .problems import Problems

_TOLD = 5  # of one file: the rest are likely the same mistake


@dataclass
class FileMistakes:
    """Records mistakes of one file at the key that names it.

    Attributes:
        name: of the file, as the document writes it.
        unit: what its numbers count: "line" of text, or "row".
        path: the key that names it.
        problems: where mistakes are recorded.
        told: how many there are.
    """

    name: str
    unit: str
    path: KeyPath
    problems: Problems
    told: int = 0

    def tell(self, line: int | None, message: str) -> None:
        """Record one mistake, at its line."""
        self.told += 1
        place = self.name if line is None else f"{self.name}, {self.unit} {line}"
        if self.told <= _TOLD:
            self.problems.add(self.path, f"{place}: {message}")
        elif self.told == _TOLD + 1:
            self.problems.add(self.path, f"{self.name}: further mistakes are not listed")
