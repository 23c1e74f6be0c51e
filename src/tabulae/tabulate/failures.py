"""Failures of an engine, in words that hold nothing of the records.

Engines explain a failed cast or a broken line by quoting it, which puts a person's values into logs and
terminals. What they say is kept as the confidential part of a `DataError`; the message names the kind.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tabulae.errors import DataError, TabulaeError

Result = TypeVar("Result")

_OURS = (TypeError, AttributeError, NameError, AssertionError, KeyError)
_PACKAGE = Path(__file__).resolve().parents[1]

# What an engine's text contains, and what that means for the user.
_KINDS = (
    ("Expected Number of Columns", "some lines have more or fewer fields than the header"),
    ("unterminated quote", "a quoted field is not closed, or text follows its closing quote"),
    ("unexpected end of data", "a quoted field of the header is not closed"),
    ("expected after", "in the header, text follows a closing quote"),
    ("not utf-8", "it is not UTF-8 text: save it with that encoding"),
    ("codec can't decode", "it is not UTF-8 text: save it with that encoding"),
    ("Maximum line size", "a line is longer than the engine reads: look for a quote that is never closed"),
    ("invalid state", "it is not a well-formed CSV file: look for mixed line endings and stray quotes"),
    (
        "field larger than field limit",
        "its first line is not a header: it has a field of over 100,000 letters",
    ),
    ("Parquet magic bytes", "it is not a Parquet file"),
    ("Invalid Parquet", "it is not a readable Parquet file"),
    ("No magic bytes", "it is not a Parquet file"),
    ("not a valid DuckDB database", "it is not a DuckDB file"),
    ("newer version", "it was written by a newer version of DuckDB: install that, or export to Parquet"),
    ("Could not set lock", "another process has it open for writing: close that one first"),
    ("disabled by configuration", "it refers to other files, which are not read: export it to Parquet"),
    ("Out of Memory", "the engine ran out of memory: close other programs, or use a larger machine"),
    ("No space left", "there is no space left for temporary files: free some"),
    ("Permission denied", "this user may not read it"),
)


def redacted(where: str, action: Callable[[], Result]) -> Result:
    """Do ``action``; if an engine fails in it, raise a `DataError` that quotes nothing.

    An error of this program, which no records explain, is raised as what it is, with its place instead of its words:
    these may quote a value, too.

    The engine's exception is not chained either: a traceback would print it. Errors of this project pass
    unchanged, because they are written to hold nothing confidential.

    >>> redacted("people.csv", lambda: int("SECRET"))
    Traceback (most recent call last):
    tabulae.errors.DataError: people.csv cannot be read: ... --show-confidential ...
    """
    try:
        with warnings.catch_warnings():
            # Ibis 12 calls DuckDB by a name that DuckDB 2 deprecates.
            warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)
            return action()
    except TabulaeError:
        raise
    except _OURS as error:
        fault, said = _fault(error), f"{type(error).__name__}: {error}"
    except Exception as error:
        fault = None
        said = f"{type(error).__name__}: {error}"
    # Raised here and not above, so that it has no __context__ to print.
    raise fault or failure(where, said)


def _fault(error: Exception) -> Exception | None:
    """An error of the same kind that says only where in this package it was raised; None for one raised elsewhere."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(place.filename)
    if type(error).__module__ != "builtins" or not file.is_relative_to(_PACKAGE):
        return None  # an engine's own kinds of error, and its own code, speak of records
    name = file.relative_to(_PACKAGE.parent).as_posix()
    kind = next(kind for kind in _OURS if isinstance(error, kind))
    return kind(
        f"an error of tabulae at {name}, line {place.lineno}, and not of the records: please report it"
    )


def failure(where: str, said: str) -> DataError:
    """The `DataError` for what an engine said."""
    meaning = next((meaning for sign, meaning in _KINDS if sign.lower() in said.lower()), None)
    if meaning is None:
        meaning = "the engine's own words may quote records, and are shown with --show-confidential only"
    return DataError(f"{where} cannot be read: {meaning}", confidential=said)
