"""Mistakes in the input files, collected over all of them before anything is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import Problem, SpecError


@dataclass(eq=False)
class Faults:
    """What is wrong and what is worth a warning, file by file; ``shown`` rows are named of each kind of mistake."""

    shown: int = 20
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    confidential: list[str] = field(default_factory=list)

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

    def add_lines(self, file: str, message: str, lines: Sequence[int], column: str | None = None) -> None:
        """The same mistake in several lines: the first ones by number, the rest counted."""
        for line in lines[: self.shown]:
            self.add(file, message, int(line), column)
        if len(lines) > self.shown:
            self.add(file, f"the same in {len(lines) - self.shown:,} more lines: {message}", None, column)

    def warn(self, file: str, message: str, line: int | None = None, column: str | None = None) -> None:
        """Something that is no mistake and may surprise."""
        self.warnings.append(Problem(file, message, line, column))

    def stop(self, source: str) -> None:
        """Go no further where there is a mistake.

        Raises:
            SpecError: with all of them.
        """
        if self.problems:
            raise SpecError(self.problems, source, confidential="\n".join(self.confidential) or None)
