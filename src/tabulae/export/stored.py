"""The published tables of a release by the use of their columns: what names a row, numbers, and words beside them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..domain import TOTAL_LABEL, Classification
from ..errors import InvalidArgument, ReleaseError
from ..release import Release
from ..release.write import ESTIMATED, EXACT, NOT_ESTIMABLE
from ..spec.promise import SPARSE
from ..spec.shape import RELIABILITY

STATUS = "obs_status"
TABLES, DERIVED = "tables", "derived"
LABEL = "label"


@dataclass(frozen=True, eq=False)
class StoredTable:
    """One published table: where it is, its columns by their use, and what stands in those that name its rows.

    Args:
        folder: ``tables`` or ``derived``.
        name: of the table.
        title: what people call it.
        path: of its Parquet file.
        keys: columns that name a row together: attributes, areas, groups.
        beside: other columns of words, which follow from the keys.
        numbers: columns of numbers, with their types.
        values: key column -> the values in it, in the order in which they first appear.
        parts: the values of the first key where the table has rows of several kinds of area; else empty.
        rows: how many rows it has.
    """

    folder: str
    name: str
    title: str
    path: Path
    keys: tuple[str, ...]
    beside: tuple[str, ...]
    numbers: Mapping[str, pa.DataType]
    values: Mapping[str, tuple[str, ...]]
    parts: tuple[str, ...]
    rows: int

    @property
    def words(self) -> tuple[str, ...]:
        """All columns of words, the status last."""
        return (*self.keys, *self.beside, STATUS)

    @property
    def classed(self) -> bool:
        """Whether it has the column of classes of reliability."""
        return RELIABILITY in self.beside

    @property
    def remarks(self) -> tuple[str, ...]:
        """Columns beside the keys that are not names of their categories."""
        return tuple(word for word in self.beside if word != LABEL)

    def batches(self, part: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, row group by row group, words by dictionary; of one part alone where it is named."""
        for batch in _batches(self.path, self.words):
            chosen = batch if part is None else batch.filter(_equal(batch.column(self.keys[0]), part))
            if chosen.num_rows:
                yield chosen

    def of_part(self, part: str) -> StoredTable:
        """The same table, of which only the rows of one kind of area are looked at."""
        values, rows = _scan(self.path, self.keys, part)
        return replace(self, values=values, parts=(), rows=rows)


def stored_tables(release: Release) -> list[StoredTable]:
    """All tables of a release, those computed from others last."""
    titles = {resource["path"]: resource["title"] for resource in release.descriptor["resources"]}
    product = release.product
    made = []
    classed = (RELIABILITY,) if release.spec.reliability.column else ()
    for folder, names in ((TABLES, release.tables), (DERIVED, release.derived)):
        for name in names:
            beside = (*product.words_beside.get(name, ()), *(classed if folder == TABLES else ()))
            table = _stored(release.path / folder / f"{name}.parquet", beside)
            title = titles.get(f"{folder}/{name}.csv", name)
            parts = table.values[table.keys[0]] if product.rows_by_area else ()
            made.append(replace(table, folder=folder, name=name, title=title, parts=parts))
    return made


def _stored(path: Path, beside: tuple[str, ...]) -> StoredTable:
    """A table as its file has it."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    numbers = {field.name: field.type for field in schema if _is_number(field.type)}
    words = [field for field in schema.names if field not in numbers and field != STATUS]
    keys = tuple(word for word in words if word not in beside)
    values, rows = _scan(path, keys, None)
    return StoredTable("", path.stem, path.stem, path, keys, beside, numbers, values, (), rows)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _scan(path: Path, keys: tuple[str, ...], part: str | None) -> tuple[dict[str, tuple[str, ...]], int]:
    found: dict[str, dict[str, None]] = {key: {} for key in keys}
    rows = 0
    for batch in _batches(path, keys, columns=keys or None):
        chosen = batch if part is None else batch.filter(_equal(batch.column(keys[0]), part))
        rows += chosen.num_rows
        for key, seen in found.items():
            seen.update(dict.fromkeys(chosen.column(key).unique().cast(pa.string()).to_pylist()))
    return {key: tuple(seen) for key, seen in found.items()}, rows


def _batches(
    path: Path, words: tuple[str, ...], columns: tuple[str, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path, read_dictionary=list(words)) as file:
            yield from file.iter_batches(columns=None if columns is None else list(columns))
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None


def _equal(column: pa.DictionaryArray, value: str) -> pa.Array:
    """Which rows have a value."""
    position = column.dictionary.index(value).as_py()
    return pa.array(column.indices.to_numpy() == position)


def translated(column: pa.DictionaryArray, meaning: Mapping[str, str]) -> pa.Array:
    """A column of words with each word replaced by what it means; its dictionary may have more words than occur."""
    words = pa.array([meaning.get(word) for word in column.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(column.indices, words).cast(pa.string())


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
        parent: the value that it is part of, where that is one of the same column.
    """

    value: str
    code: str
    identifier: str
    name: str
    parent: str | None = None


CodeLists = Mapping[str, Mapping[str, Category]]
"""Column -> value -> category, over all tables of a release."""


def code_lists(release: Path, tables: Sequence[StoredTable]) -> CodeLists:
    """The categories of every column that names rows: those of its code list first, then what tables have besides.

    A code is the one of ``codes/``, or the value itself. In identifiers, signs that SDMX does not allow become ``_``;
    those that become alike are numbered. What was published as ``_T`` keeps that code, which is that of SDMX, too.
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
    codes = unique([listed.get(value, _UNLISTED).code or value for value in words])
    identifiers = unique(map(as_code, codes))
    names = ["total" if value == TOTAL_LABEL else called.get(value, value) for value in words]
    labels = {each.code: label for label, each in listed.items() if each.code}
    return {
        value: Category(value, code, identifier, name, labels.get(listed.get(value, _UNLISTED).parent))
        for value, code, identifier, name in zip(words, codes, identifiers, names, strict=True)
    }


class _Line(NamedTuple):
    """What a code list says of a label."""

    code: str
    parent: str


_UNLISTED = _Line("", "")


def _listed(path: Path) -> dict[str, _Line]:
    """Label -> what the code list of the release says of it; empty where the column has none."""
    if not path.is_file():
        return {}
    read = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(("code", "label", "parent"), pa.string()), strings_can_be_null=False
    )
    try:
        table = pyarrow.csv.read_csv(path, convert_options=read)
        codes, labels = (table[name].to_pylist() for name in ("code", "label"))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    parents = table["parent"].to_pylist() if "parent" in table.column_names else [""] * len(codes)
    if not _is_tree(codes, labels, parents):
        parents = [""] * len(codes)
    return {label: _Line(code, parent) for code, label, parent in zip(codes, labels, parents, strict=True)}


def _is_tree(codes: Sequence[str], labels: Sequence[str], parents: Sequence[str]) -> bool:
    """Whether every parent is a code of the list, and not only what a coarser category is called."""
    try:
        Classification(tuple(codes), tuple(labels), tuple(parent or None for parent in parents))
    except InvalidArgument:
        return False
    return True


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


@dataclass(frozen=True)
class RowStatus:
    """A status of the release.

    Args:
        meaning: in words.
        sdmx: its code in CL_OBS_STATUS, version 2.2.
    """

    meaning: str
    sdmx: str


STATUSES = {
    ESTIMATED: RowStatus("estimated from measurements with noise; the standard error says how well", "A"),
    EXACT: RowStatus("exact, without noise: published as it is, or determined by what is", "A"),
    NOT_ESTIMABLE: RowStatus("not estimable from what was measured", "O"),
}
"""Statuses of a release. SDMX has no code for "exact": its E is an estimated value, so both kinds of number are A."""

SDMX_STATUSES = {"A": "Normal value", "O": "Missing value"}
"""The codes of CL_OBS_STATUS that are used, and their names there."""

SDMX_CLASSES = {"U": "Low reliability", "Q": "Missing value; suppressed"}
"""Those of counts of the least class, where tables have a column of classes: published, and masked."""

SDMX_FREE = {"F": "Free (free for publication)"}
"""The code of CL_CONF_STATUS of all that is published: masked counts are not confidential."""


def csv_readme(release: Release, tables: Sequence[StoredTable]) -> str:
    """For plain CSV."""
    return _readme(
        release,
        _csv_files(tables),
        [
            "One CSV file a table: UTF-8, commas, double quotes around text, a line of names first.",
            "",
            "* Columns of words come first and name the row. `NAME_code` beside `NAME` is the code of the category;",
            "  `codes/NAME.csv` lists the categories. `_T` stands for the total.",
            *_NUMBERS,
            "* `datapackage.json` describes every column, for programs that read Data Packages (Frictionless).",
            "",
            "Read codes as text, or leading zeros are lost: in pandas `read_csv(f, dtype={'NAME_code': str})`, in R",
            "`readr::read_csv(f, col_types = readr::cols(NAME_code = 'c'))`.",
        ],
    )


def workbook_readme(release: Release, sheets: Mapping[str, tuple[str, str, int]]) -> str:
    """For a workbook, whose sheets are given with the folder, name and length of their tables."""
    return _readme(
        release,
        {f"{folder}/{name}.csv": rows for folder, name, rows in sheets.values()},
        [
            "`release.xlsx` is one workbook: notes, and then a sheet for each table of the release.",
            "",
            "* Columns of words come first and name the row. `NAME_code` beside `NAME` is the code of the category.",
            *_NUMBERS,
            "",
            "Sheets, where they are not called like their tables:",
            "",
            *(
                [f"* `{sheet}`: {name}" for sheet, (_, name, _) in sheets.items() if sheet != name]
                or ["* none"]
            ),
        ],
    )


def sdmx_readme(release: Release, tables: Sequence[StoredTable]) -> str:
    """For SDMX-CSV."""
    return _readme(
        release,
        _csv_files(tables),
        [
            "SDMX-CSV 2.0, one file a table, and `structure.json`, an SDMX-JSON 2.0 structure message: code lists,",
            "concepts, a data structure and a dataflow for each table. The agency `TABULAE` stands for your own.",
            "",
            "* `OBS_VALUE` is the published count or figure. `STD_ERROR`, `CI_LOW` and `CI_HIGH` are attributes of it.",
            *_sdmx_status(tables),
            "* `RELEASE_STATUS` is the status in the release:",
            *(f"  `{letter}` {status.meaning}." for letter, status in STATUSES.items()),
            "* `_T` stands for the total.",
            "",
            "Read codes as text: a reader that guesses types makes `001` a 1, which is not in the code list.",
        ],
    )


def _sdmx_status(tables: Sequence[StoredTable]) -> list[str]:
    if not any(table.classed for table in tables):
        return [
            "* `OBS_STATUS` is of the list SDMX:CL_OBS_STATUS(2.2): `A` for every number, `O` for one that is missing.",
        ]
    return [
        "* `OBS_STATUS` is of the list SDMX:CL_OBS_STATUS(2.2): `A` for a number, `U` for one of the last class of",
        "  `RELIABILITY`, `Q` where that is left out, and `O` for one that is not estimable.",
        "* `CONF_STATUS` is `F` of the list SDMX:CL_CONF_STATUS(1.3): it is unreliable, not confidential.",
    ]


def json_stat_readme(release: Release, files: Mapping[str, int]) -> str:
    """For JSON-stat."""
    return _readme(
        release,
        files,
        [
            "JSON-stat 2.0, and `collection.json`, which lists the files. One dataset a table; where a table is of",
            "several kinds of area, one dataset for each of these, `NAME.KIND.json`.",
            "",
            "* The last dimension has the role `metric`: the estimate, its standard error and its interval.",
            "* `value` is an array where every combination of categories is there, otherwise an object by position.",
            "* `status` is one letter for all values, or an object that names those that are not `A`:",
            *(f"  `{letter}` {status.meaning}." for letter, status in STATUSES.items()),
        ],
    )


_NUMBERS = (
    "* `estimate` with `std_error`, and the interval from `ci_low` to `ci_high`.",
    "* `obs_status`:",
    *(f"  `{letter}` {status.meaning}." for letter, status in STATUSES.items()),
)


def _csv_files(tables: Sequence[StoredTable]) -> dict[str, int]:
    return {f"{table.folder}/{table.name}.csv": table.rows for table in tables}


def _class_lines(release: Release) -> list[str]:
    """What the column of classes says, where there is one."""
    section = release.spec.reliability
    if not section.column:
        return []
    named = zip(section.names, section.ranges, strict=True)
    left_out = f" Numbers of the class {section.names[-1]!r} are left out." if section.mask else ""
    return [
        "* Reliability: the standard error as a share of the count: "
        + "; ".join(f"{name} {share}" for name, share in named)
        + f".{left_out}"
    ]


def interval_words(release: Release) -> str:
    """What the intervals of a release promise, or that there are none."""
    if release.spec.method.estimate == SPARSE:
        return "no error of a count is known, so that standard errors and intervals are empty"
    return f"intervals hold with a probability of at least {release.level:.0%}, one by one"


def _readme(release: Release, files: Mapping[str, int], told: Sequence[str]) -> str:
    about = release.about
    lines = [
        f"# {release.spec.title}",
        "",
        f"Converted from release {about['release_id']}, made by tabulae {about['version']}. Numbers are the published",
        f"ones, to the last digit; {interval_words(release)}.",
        "",
        *told,
        *_class_lines(release),
        "",
        "Tables:",
        "",
        *(f"* `{name}`, {rows:,} rows" for name, rows in files.items()),
    ]
    return "\n".join(lines) + "\n"
