"""The exceptions that tabulae raises.

::

    TabulaeError                    everything below; carries an exit code for the command line
    ├── InvalidArgument             a value that the caller passed is wrong      (also a ValueError)
    ├── SpecError                   a spec has mistakes: all of them, with paths
    ├── DataError                   the records do not fit the public domain
    ├── Unsupported                 the request is sound but this method cannot serve it
    ├── NotEstimable                the measurements do not determine the answer
    ├── ReleaseError                a release folder is missing, incomplete or altered
    │   └── UnknownTable            it has no table of that name                 (also a KeyError)
    ├── MissingDependency           an optional package is not installed         (also an ImportError)
    └── LedgerError                 the ledger is missing, unreadable or altered
        └── BudgetRefused           the ledger exists and says no                (exit code 3)

Messages name what was wrong, where, and what to do. None carries a confidential value: details that
might are passed as ``confidential=`` and shown only where the user asked for them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType


class TabulaeError(Exception):
    """Any error that tabulae raises on purpose.

    ``confidential`` holds details drawn from the records themselves (values, counts). It is not part
    of ``str(error)``; the command line prints it, on stderr, only under ``--show-confidential``.

    >>> import tabulae as tb
    >>> try:
    ...     tb.ZCDP("-1")
    ... except tb.TabulaeError as error:
    ...     print(type(error).__name__, error.exit_code)
    InvalidArgument 1
    """

    exit_code = 1

    def __init__(self, message: str, *, confidential: str | None = None) -> None:
        super().__init__(message)
        self.confidential = confidential


class InvalidArgument(TabulaeError, ValueError):
    """A value passed by the caller is outside what the function is defined for."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a document: where it stands, what is wrong, what to do about it."""

    path: str
    message: str
    line: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        inside = [f"line {self.line}"] if self.line is not None else []
        inside += [f"column {self.column}"] if self.column is not None else []
        place = f"{self.path} ({', '.join(inside)})" if inside else self.path
        return f"{place}: {self.message}"


_ALIKE = 3


def _told(problems: list[Problem]) -> list[str]:
    """A line a mistake; those that are all alike share one, so that their remedy is told once."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.message, []).append(str(problem).removesuffix(f": {problem.message}"))
    lines = []
    for problem in problems:
        alike = places[problem.message]
        if len(alike) < _ALIKE:
            lines.append(f"  {problem}")
        elif str(problem).startswith(f"{alike[0]}: "):
            lines += [f"  {place}" for place in alike[:-1]] + [f"  {alike[-1]}: each {problem.message}"]
    return lines


class SpecError(TabulaeError):
    """A spec has one or more mistakes; ``problems`` lists every one."""

    def __init__(
        self, problems: list[Problem], source: str = "spec", *, confidential: str | None = None
    ) -> None:
        self.problems = problems
        self.source = source
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        told = "\n".join([f"{source}: {count}", *_told(problems)])
        super().__init__(told, confidential=confidential)


class DataError(TabulaeError):
    """The records cannot be counted over the public domain that the spec declares."""


class Unsupported(TabulaeError):
    """The request makes sense, but the chosen method cannot serve it; the message says what can."""


class NotEstimable(TabulaeError):
    """The measurements do not determine the answer that was asked for."""


class ReleaseError(TabulaeError):
    """A release folder is missing, incomplete, altered, or in the way."""


class UnknownTable(ReleaseError, KeyError):
    """A release has no table, or no derived figure, of that name; the message has the names that there are."""

    def __str__(self) -> str:  # a KeyError shows its words as a literal, in quotation marks
        return str(self.args[0])


class MissingDependency(TabulaeError, ImportError):
    """An optional package is needed and not installed."""


class LedgerError(TabulaeError):
    """The ledger is missing, unreadable, altered, or of another kind than the spec."""


class BudgetRefused(LedgerError):
    """The ledger refuses: what is asked for is not in its budget, or of another kind."""

    exit_code = 3


def require(module: str, extra: str | None, purpose: str) -> ModuleType:
    """Import ``module``, or say which install command provides it.

    >>> require("json", None, "reading JSON").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = f"tabulae[{extra}]" if extra else module
        raise MissingDependency(
            f"{purpose} needs the package {module!r}, which is not installed: pip install '{package}'"
        ) from error
