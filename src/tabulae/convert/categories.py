"""What the categories of a release are called to programs and to people: one identifier and one name for each value."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from ..domain.attribute import TOTAL_LABEL
from ..errors import ReleaseError
from .stored import LABEL, StoredTable

_NOT_IN_CODES = re.compile(r"[^A-Za-z0-9_@$-]+")  # the IDType of SDMX
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]+")


@dataclass(frozen=True)
class Category:
    """One value of a column, as it is published.

    Args:
        value: what stands in the column.
        code: of its code list; the value itself where it has none.
        identifier: the code with the signs that SDMX allows.
        name: what people call it.
    """

    value: str
    code: str
    identifier: str
    name: str


CodeLists = Mapping[str, Mapping[str, Category]]
"""Column -> value -> category, over all tables of a release."""


def code_lists(release: Path, tables: Sequence[StoredTable]) -> CodeLists:
    """The categories of every column that names rows: those of its code list first, then what tables have besides.

    A code is the one of ``codes/``, or the value itself. In identifiers, signs that SDMX does not allow become ``_``;
    those that become alike are numbered. What was published as ``_T`` keeps that code, which is that of SDMX, too.

    Raises:
        ReleaseError: a code list of the release cannot be read.
    """
    columns = dict.fromkeys(key for table in tables for key in table.keys)
    called = _group_names(tables)
    return {column: _categories(release, column, tables, called.get(column, {})) for column in columns}


def _categories(
    release: Path, column: str, tables: Sequence[StoredTable], called: Mapping[str, str]
) -> dict[str, Category]:
    listed = _listed(release / "codes" / f"{column}.csv")
    values = dict.fromkeys(listed)
    for table in tables:
        values.update(dict.fromkeys(table.values.get(column, ())))
    words = list(values)
    codes = unique([listed.get(value) or value for value in words])
    identifiers = unique(map(as_code, codes))
    names = ["total" if value == TOTAL_LABEL else called.get(value, value) for value in words]
    return {
        value: Category(value, code, identifier, name)
        for value, code, identifier, name in zip(words, codes, identifiers, names, strict=True)
    }


def _listed(path: Path) -> dict[str, str]:
    """Label -> code, of a code list of the release; empty where the column has none."""
    if not path.is_file():
        return {}
    try:
        read = pyarrow.csv.ConvertOptions(
            column_types={"code": pa.string(), "label": pa.string()},
            include_columns=["code", "label"],
            strings_can_be_null=False,
        )
        table = pyarrow.csv.read_csv(path, convert_options=read)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    return dict(zip(table["label"].to_pylist(), table["code"].to_pylist(), strict=True))


def _group_names(tables: Sequence[StoredTable]) -> dict[str, dict[str, str]]:
    """What groups are called, as the table of their totals says; it is the only one that has names beside keys."""
    found: dict[str, str] = {}
    for table in tables:
        if LABEL in table.beside:
            for batch in table.batches():
                pairs = (batch.column(name).cast(pa.string()).to_pylist() for name in ("group", LABEL))
                found.update(zip(*pairs, strict=True))
    return {"group": found}


def as_code(text: str) -> str:
    """A value as an identifier of SDMX: letters, digits, ``_``, ``@``, ``$`` and ``-``.

    >>> as_code("0-17"), as_code("two or more"), as_code("Åland & co.")
    ('0-17', 'two_or_more', 'Aland_co')
    """
    kept = _NOT_IN_CODES.sub("_", _plain(text))
    return kept if kept == text else kept.strip("_") or "X"


def as_name(text: str) -> str:
    """A column or table as the name of a component in SDMX: capitals, digits and ``_``, a letter first.

    >>> as_name("county"), as_name("age5"), as_name("2020 sex")
    ('COUNTY', 'AGE5', 'X_2020_SEX')
    """
    kept = _NOT_IN_NAMES.sub("_", _plain(text).upper()).strip("_")
    return kept if kept[:1].isalpha() else f"X_{kept}".rstrip("_")


def _plain(text: str) -> str:
    """Letters without their accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def unique(names: Iterable[str], taken: Container[str] = ()) -> list[str]:
    """Names made different from each other, and from those taken, by a number behind them.

    >>> unique(["a", "b", "a", "a_2"], taken=["b"])
    ['a', 'b_2', 'a_3', 'a_2']
    """
    given = list(names)
    ours = {name for name in given if name not in taken}
    used: set[str] = set()
    made = []
    for name in given:
        free, number = name, 1
        while free in used or (free in taken) or (number > 1 and free in ours):
            number += 1
            free = f"{name}_{number}"
        used.add(free)
        made.append(free)
    return made
