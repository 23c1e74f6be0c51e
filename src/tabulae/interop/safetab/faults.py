"""Mistakes in the input files, collected over all of them before anything is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

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
        self, file: str, message: str, lines: Sequence[int] | np.ndarray, column: str | None = None
    ) -> None:
        """The same mistake in several lines."""
        room = max(0, self.listed - self._lines[file, column])
        self._lines[file, column] += len(lines)
        for line in lines[:room]:
            self.add(file, message, int(line), column)

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
