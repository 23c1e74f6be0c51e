"""What a file says, without what differs from run to run; and a digest of each of its parts.

Set aside, each with its reason:

- times of the clock and dates become ``TIME``; seconds that a step took are left out;
- release ids, nonces and hashes of ledger entries (hexadecimal of 12, 32 or 64 digits, and UUIDs made of them) hold
  the time, the folder's path, or a nonce: each becomes ``ID1``, ``ID2``, ... in the order in which a file first has
  it, so that what was equal stays equal;
- the folder in which a case runs becomes ``FOLDER``, the version of tabulae ``VERSION``;
- numbers that are written in full keep 9 significant digits, and 12 decimals: the last bits depend on the processor
  and on the order of sums, and are no part of any promise. Rounded ones, as printed, stay as they are; but where one
  is zero its sign, of what was rounded away, is left out. Bounds on errors, and certificates made of them, are searched
  for and stop within a tolerance: they keep 6 digits and 7 decimals;
- Parquet is compared as a table: columns, types, values; how it is encoded is not.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import tabulae as tb

_DIGITS = 9
_DECIMALS = 12
_SEARCHED, _SEARCHED_DIGITS, _SEARCHED_DECIMALS = ("bound", "certificate"), 6, 7
_SHOWN = 10  # hexadecimal digits of a digest that are kept

_TIME = re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d| UTC)?)?(?![\d-])")
_TOOK = "seconds"  # a key of documents
_ZERO = re.compile(r"(?<![\w.)])[-+\u2212](?=0(\.0+)?(?![\w.]))")
_ID = re.compile(
    r"(?<![0-9a-zA-Z])([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{32}|"
    r"[0-9a-f]{12}(?=</code>))(?![0-9a-zA-Z])"
)
_DECIMAL = re.compile(r"(?<![\w.])-?\d+(\.\d+)?([eE][-+]?\d+)?(?![\w.])")
_HEAD = re.compile(r'(?=<section id="|<script|<style)')
_NAMED = re.compile(r'<section id="([^"]+)"|<(script|style)')
Parts = dict[str, str]


class Normal:
    """Reads the files of one case, whose folder it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def file(self, path: Path) -> Parts:
        """What a file says, part by part: a table by columns, a document by keys, a page by sections."""
        if path.suffix == ".parquet":
            return self.table(pq.read_table(path))
        if path.suffix == ".npy":
            return {"": _words(np.load(path).tolist())}
        return self.text(path.read_text(), path.suffix)

    def text(self, text: str, kind: str) -> Parts:
        """What a text says, of the kind that the ending of its file tells."""
        text = self._told(text)
        if kind == ".json":
            return _document(json.loads(text))
        if kind == ".csv":
            return _columns(text)
        text = _ZERO.sub("", _DECIMAL.sub(lambda found: _shortened(found[0]), text))
        return _sections(text) if kind == ".html" else {"": text}

    def table(self, table: Any) -> Parts:
        """What an Arrow table holds."""
        named = zip(table.schema, table.columns, strict=True)
        parts = {
            f"{field.name}: {field.type}": self._told(_words(column.to_pylist(), field.name))
            for field, column in named
        }
        return {"rows": str(table.num_rows), "columns": _words(table.column_names), **parts}

    def _told(self, text: str) -> str:
        """The text without what differs from run to run."""
        text = text.replace(self.folder, "FOLDER")
        text = text.replace(f"tabulae {tb.__version__}", "tabulae VERSION")
        text = re.sub(rf'("version": "){re.escape(tb.__version__)}"', r'\1VERSION"', text)
        text = _TIME.sub("TIME", text)
        seen: dict[str, str] = {}
        return _ID.sub(lambda found: seen.setdefault(found[0], f"ID{len(seen) + 1}"), text)


def digest(text: str) -> str:
    """A few digits that another text hardly has."""
    return hashlib.sha256(text.encode()).hexdigest()[:_SHOWN]


def _number(value: float, name: str = "") -> float:
    """A number shortened, by the key or column that it stands in."""
    if not math.isfinite(value):
        return value
    searched = name in _SEARCHED
    digits, decimals = (_SEARCHED_DIGITS, _SEARCHED_DECIMALS) if searched else (_DIGITS, _DECIMALS)
    return float(f"{round(value, decimals):.{digits}g}") + 0.0  # and no negative zero


def _shortened(written: str) -> str:
    """A number as it is written, shortened where it is written in full."""
    digits = re.sub(r"[eE].*|\D", "", written).lstrip("0")
    is_whole = written.lstrip("-").isdigit()
    return written if is_whole or len(digits) <= _DIGITS else repr(_number(float(written)))


def _rounded(value: Any, name: str = "") -> Any:
    """A document with its numbers shortened."""
    if isinstance(value, float):
        return _number(value, name)
    if isinstance(value, dict):
        return {key: _rounded(of, key) for key, of in value.items() if key != _TOOK}
    if isinstance(value, list):
        return [_rounded(of, name) for of in value]
    return value


def _words(value: Any, name: str = "") -> str:
    """A value as text, a list an element a line."""
    if isinstance(value, list):
        return "\n".join(_words(of, name) for of in value)
    return json.dumps(_rounded(value, name), ensure_ascii=False, default=str)


def _document(value: Any) -> Parts:
    """A JSON document by its keys."""
    if not isinstance(value, dict):
        return {"": json.dumps(_rounded(value), indent=1, ensure_ascii=False)}
    return {key: json.dumps(of, indent=1, ensure_ascii=False) for key, of in _rounded(value).items()}


def _columns(text: str) -> Parts:
    """A CSV file by its columns; one that is ragged as a whole."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if len({len(row) for row in rows}) != 1 or len(set(rows[0])) != len(rows[0]):
        return {"": "\n".join(map(repr, rows))}
    columns = {name: "\n".join(map(_cell, cells)) for name, *cells in zip(*rows, strict=True)}
    return {"rows": str(len(rows) - 1), "columns": _words(rows[0]), **columns}


def _cell(cell: str) -> str:
    """A cell, a number of it shortened: 2 and 2.0000000000000004 are alike."""
    if not _DECIMAL.fullmatch(cell) or cell.lstrip("-").isdigit():
        return cell
    return re.sub(r"\.0$", "", repr(_number(float(cell))))


def _sections(page: str) -> Parts:
    """A page by its sections."""
    return dict(_named_sections(page))


def _named_sections(page: str) -> Iterator[tuple[str, str]]:
    for at, text in enumerate(_HEAD.split(page)):
        named = _NAMED.match(text)
        yield (named[1] or f"{named[2]} {at}") if named else "head", text
