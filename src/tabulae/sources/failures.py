"""Failures of an engine, in words that hold nothing of the records.

Engines explain a failed cast or a broken line by quoting it, which puts a person's values into logs and
terminals. What they say is kept as the confidential part of a `DataError`; the message names the kind.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import DataError, TabulaeError

Result = TypeVar("Result")

_OURS = (TypeError, AttributeError, NameError, AssertionError, KeyError)
_PACKAGE = Path(__file__).resolve().parents[1]

_NOT_UTF8 = 'it is not UTF-8 text: name its encoding under [source], as encoding = "windows-1252", or save it as UTF-8'

# What an engine's text contains, and what that means for the user.
_REFUSED = (
    "the object store refuses: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that their holder may read "
    "the bucket"
)
_ASKED = "check AWS_ENDPOINT_URL, AWS_REGION and the network"
_KINDS = (
    (
        "Expected Number of Columns",
        "some lines have more or fewer fields than the header: quote what holds a delimiter, or correct them",
    ),
    ("unterminated quote", "a quoted field is not closed, or text follows its closing quote"),
    ("unexpected end of data", "a quoted field of the header is not closed"),
    ("expected after", "in the header, text follows a closing quote"),
    ("not utf-8", _NOT_UTF8),
    ("codec can't decode", _NOT_UTF8),
    ("Invalid string encoding", _NOT_UTF8),
    ("INVALID_UTF8_STRING", _NOT_UTF8),
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
    ("server closed the connection", "the server ended the connection: run again when it is up"),
    ("terminating connection", "the server ended the connection: run again when it is up"),
    ("connection is lost", "the server ended the connection: run again when it is up"),
    ("could not receive data from server", "the server ended the connection: run again when it is up"),
    (
        "statement timeout",
        "the server ended a statement by its time limit: ask for a longer statement_timeout",
    ),
    ("row-level security", "this user may see some of its records only: connect as one who sees them all"),
    (
        "permission denied to create temporary tables",
        "keys are looked up in temporary tables, which this user may not make: GRANT TEMPORARY ON DATABASE to it",
    ),
    (
        "in a read-only transaction",
        "keys are looked up in temporary tables, and this server makes none: use another",
    ),
    ("disabled by configuration", "it refers to other files, which are not read: export it to Parquet"),
    (
        "Unable to convert string to the requested encoding",
        'its text is in another encoding than it says: name that under [source], as encoding = "windows-1252"',
    ),
    ("unsupported features", "it is damaged, or of another kind than its ending says"),
    ("file is truncated", "it ends too soon: copy it again"),
    ("readstat", "it is damaged, or of another kind than its ending says"),
    ("Out of Memory", "the engine ran out of memory: run with a larger --memory, or on a larger machine"),
    ("OutOfMemoryError", "the engine ran out of memory: give it more, or use a larger machine"),
    ("No space left", "there is no space left for temporary files: free some"),
    ("File too large", "a temporary file may not grow as it must: raise the limit on files (ulimit -f)"),
    ("FAILED_READ_FILE", "one of its files is damaged, gone, or may not be read"),
    ("ExecutorLostFailure", "Spark lost the executors that read it: run again when they are back"),
    ("Java side is empty", "Spark's process ended before it was done: run again"),
    ("connect to the Java server", "Spark's process ended before it was done: run again"),
    ("Error while sending or receiving", "Spark's process ended before it was done: run again"),
    ("does not exist in the JVM", "Spark's process ended before it was done: run again"),
    ("Connection reset by peer", "what counts it ended before it was done: run again"),
    (
        "AWS Error NETWORK_CONNECTION",
        f"the object store does not answer: {_ASKED}",
    ),
    ("AWS Error ACCESS_DENIED", _REFUSED),
    ("AWS Error INVALID_ACCESS_KEY_ID", _REFUSED),
    ("AWS Error SIGNATURE_DOES_NOT_MATCH", _REFUSED),
    ("Path does not exist", "there is no such file, or no such bucket: check [source] url"),
    (
        "AWS Error",
        f"the object store gave no answer that helps: {_ASKED}",
    ),
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
            warnings.simplefilter("ignore")  # a warning of an engine's may quote values, as its errors do
            return action()
    except TabulaeError:
        raise
    except _OURS as error:
        fault, said = _fault(error), _words_of(error)
    except Exception as error:
        fault = None
        said = _words_of(error)
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


def _words_of(error: Exception) -> str:
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # Spark's errors are told by its process, which may be what failed
        return f"{kind}: Error while sending or receiving"


def failure(where: str, said: str) -> DataError:
    """The `DataError` for what an engine said."""
    meaning = next((meaning for sign, meaning in _KINDS if sign.lower() in said.lower()), None)
    if meaning is None:
        meaning = "the engine's own words may quote records, and are shown with --show-confidential only"
    return DataError(f"{where} cannot be read: {meaning}", confidential=_without_advice(said))


def _without_advice(said: str) -> str:
    """What DuckDB says of a CSV file, without its advice on options that no spec has, and without those it had set.

    >>> _without_advice("CSV Error on Line: 3\\nOriginal Line: M,2,3\\nPossible fixes:\\n* Set all_varchar=true")
    'CSV Error on Line: 3\\nOriginal Line: M,2,3'
    """
    return re.split(r"\n(?:Possible (?:fixes|solutions?)\b|\s*file = )", said, maxsplit=1)[0].rstrip()
