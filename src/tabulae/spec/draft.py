"""The draft of a spec, from what a file declares of its columns: a document to finish by hand."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import tomli_w

from ..domain import RESULT_COLUMNS
from ..errors import DataError, InvalidArgument
from ..sources.declared import DeclaredColumn, only_table
from ..sources.dialect import RFC4180, Dialect, find_dialect
from ..sources.parquet_files import parquet_files
from ..sources.source import CSV, PARQUET, RecordSource, is_url, kind_of, kinds, url_mistake

_POLICIES = ("unknown", "null")  # keys of [attributes] that are not attributes
_RESERVED = frozenset(
    re.findall(
        "[a-z_]+",
        "all alter analyse analyze and any array as asc asymmetric between both by case cast check collate "
        "column constraint create cross cube current_date current_time current_timestamp default deferrable "
        "delete desc describe distinct do drop else end except exists false fetch for force foreign from "
        "full glob grant group having if ilike in initially inner insert install intersect interval into is "
        "join lambda lateral leading left like limit lock map natural not notnull null offset on only or "
        "order outer pivot pivot_longer pivot_wider placing positional primary qualify references returning "
        "revoke right rollback rollup select set show some summarize symmetric table tablesample then to "
        "trailing true union unique unpivot update using values variadic when where window with",
    )
)
"""Words of SQL that name no column where they stand without quotes."""
_TODO = "list the values that it may hold"
_LABELLED = "confirm that these codes and labels, which the file has, are public and complete"
_FOUND = "put public values in place of these, which were found in the records"


@dataclass(frozen=True)
class Draft:
    """A drafted spec.

    Args:
        text: the document.
        columns: how many columns the source has.
        declared: attributes whose domain is declared.
        found: attributes whose domain was found in the records.
        labelled: attributes with value labels of the file, to be confirmed.
        todo: attributes that have none yet.
        left_out: how many columns cannot be attributes.
        code_lists: content of code lists by path, relative to the draft.
    """

    text: str
    columns: int
    declared: tuple[str, ...]
    found: tuple[str, ...]
    labelled: tuple[str, ...]
    todo: tuple[str, ...]
    left_out: int
    code_lists: Mapping[str, str]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to fill in."""
        return not (self.found or self.labelled or self.todo) and bool(self.declared)


def source_of(place: Path | str, table: str | None = None) -> RecordSource:
    """The records that a spec is drafted for; what divides the fields of a CSV file is found out.

    Args:
        place: a file, a folder of Parquet files, or the url of a database, which is text.
        table: which one, where there are several.

    Raises:
        DataError: there is no such file, or its ending does not say what it is; a server does not answer.
        InvalidArgument: there are several tables, and none is named; the url cannot be one, or holds a password.
    """
    if isinstance(place, str) and is_url(place):
        if mistake := url_mistake(place):
            raise InvalidArgument(f"the address of the records {mistake}")
        return RecordSource(url=place, table=table or only_table(place))
    file = Path(place)
    if file.is_dir():
        source = RecordSource(file, PARQUET.name)
        if not any(each.suffix.lower() in PARQUET.endings for each in file.iterdir()):
            raise DataError(f"{file}: a folder: name a file in it")
        parquet_files(source)
        return source
    if not file.is_file():
        raise DataError(f"{file}: no such file: check the path")
    kind = kind_of(str(file))
    if kind is None:
        raise DataError(
            f"cannot tell what kind of file {file} is: end its name in .csv, .parquet or .duckdb, or as SPSS, SAS or "
            "Stata do"
        )
    if table is None and kinds()[kind].many:
        table = only_table(file)
    return RecordSource(file, table=table, dialect=find_dialect(file) if kind == CSV.name else RFC4180)


def draft_of(
    source: RecordSource, columns: Sequence[DeclaredColumn], folder: Path, *, peeked: bool = False
) -> Draft:
    """Draft a spec for the columns of a source, with the path of its file relative to the folder of the spec."""
    if source.url is not None:
        title = str(source.table).rpartition(".")[2]
        return draft_spec(title, source.url, columns, table=source.table, peeked=peeked)
    path = Path(os.path.relpath(source.file.resolve(), folder.resolve())).as_posix()
    return draft_spec(
        source.file.resolve().stem, path, columns, table=source.table, dialect=source.dialect, peeked=peeked
    )


def draft_spec(
    title: str,
    path: str,
    columns: Sequence[DeclaredColumn],
    *,
    table: str | None = None,
    dialect: Dialect = RFC4180,
    peeked: bool = False,
) -> Draft:
    """Draft a spec that counts the records of a file, a folder of Parquet files, or a table.

    Args:
        title: of the release.
        path: of the file or the folder, or the url of a database.
        columns: as they are declared.
        table: of a database.
        dialect: of a CSV file.
        peeked: whether the records were read.

    Attributes with a declared domain are complete. The others have a key ``todo``, which no spec may have: reading
    the document tells, for each of them, what is to be filled in.

    >>> columns = [DeclaredColumn("SEX", "enum", "text", ("F", "M"), by="ENUM"), DeclaredColumn("AGE", "INTEGER",
    ...     "whole numbers")]
    >>> draft = draft_spec("People", "people.duckdb", columns, table="people")
    >>> draft.declared, draft.todo, draft.is_finished
    (('SEX',), ('AGE',), False)
    """
    names = _attribute_names(column.name for column in columns)
    counted = [(name, column) for name, column in zip(names, columns, strict=True) if column.can_be_counted]
    declared = tuple(name for name, column in counted if column.has_domain and not column.found)
    found = tuple(name for name, column in counted if column.found)
    labelled = tuple(name for name, column in counted if not column.has_domain and column.labels)
    todo = tuple(name for name, column in counted if not column.has_domain and not column.labels)
    first = (*declared, *labelled, *found, *todo)[:2]
    lines = [
        *_opening(peeked=peeked, named_by_line=path.lower().endswith(".csv")),
        f"title = {_text(title)}",
        "",
        *_source(path, table, dialect),
        "",
        *_attributes(list(zip(names, columns, strict=True))),
        "",
        *_PRIVACY,
        "",
        *_table(first),
    ]
    text = "\n".join(lines) + "\n"
    lists = {_codes(name): _code_list(column.labels) for name, column in counted if name in labelled}
    return Draft(text, len(columns), declared, found, labelled, todo, len(columns) - len(counted), lists)


def _codes(attribute: str) -> str:
    return f"codes/{attribute}.csv"


def _code_list(labels: Iterable[tuple[str, str]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([("code", "label"), *labels])
    return text.getvalue()


def _opening(*, peeked: bool, named_by_line: bool) -> list[str]:
    if not peeked:
        line = "# The first line of the file was taken for names. If it is a record, delete this draft."
        return [
            *([line] if named_by_line else []),
            "# Drafted from names, types and declared domains; no record was read. Each line with a `todo` is to be",
            "# finished, or deleted; `tabulae check` names them.",
            "",
        ]
    return [
        "# Drafted with --peek: THE RECORDS WERE READ. Lines with values that were found in them say so. These values",
        "# are confidential (one person alone may have one of them) until public ones are in their place.",
        "# `tabulae check` refuses every line that has a `todo`.",
        "",
    ]


def _source(path: str, table: str | None, dialect: Dialect) -> list[str]:
    written = []
    if dialect.delimiter != RFC4180.delimiter:
        written.append(f"delimiter = {_text(dialect.delimiter)}")
    if dialect.decimal != RFC4180.decimal:
        written.append(f'decimal = "{dialect.decimal}"                     # a number is written as 3,0')
    if not dialect.is_utf8:
        written.append(f"encoding = {_text(dialect.encoding)}")
    return [
        "[source]                          # where the records are; published is its kind only",
        f"{'url' if is_url(path) else 'path'} = {_text(path)}",
        *(
            []
            if is_url(path) or kind_of(path)
            else ['kind = "parquet"                  # the files of a folder']
        ),
        *written,
        *([] if table is None else [f"table = {_text(table)}"]),
        'unit = "person"                   # what the promise protects: one of them more or less, or replaced',
        '# unit_id = "..."                 # the column that says whose record it is, where one has several,',
        "# rows_per_unit = 3               # and how many of them are counted at most",
    ]


def _attributes(columns: Sequence[tuple[str, DeclaredColumn]]) -> list[str]:
    lines = [
        "[attributes]                      # what is counted, and every value that it may hold, from public sources:",
        "                                  # tables have rows for these, whoever is in the records",
        'unknown = "refuse"                # a value that is not listed stops the run; "other" counts it apart',
        'null = "refuse"                   # the same for a missing one',
    ]
    for name, column in columns:
        lines += _attribute(name, column)
    return lines


def _attribute(name: str, column: DeclaredColumn) -> list[str]:
    told = f"{_key(column.name)}{f' ({_text(column.type)[1:-1]})' if column.type else ''}"
    if column.key:
        return [f"# {told}: differs from record to record, so that it is nothing to count"]
    if not column.can_be_counted:
        return [f"# {told}: {_not_yet(name, column)}"]
    pairs = [f"column = {_text(column.name)}", *_domain(column)]
    if column.found:
        above = f"# FOUND IN THE RECORDS, not public: {column.by}"
        pairs.append(f"todo = {_text(_FOUND)}")
    elif column.labels and not column.has_domain:
        pairs += [f"codes = {_text(_codes(name))}", f"todo = {_text(_LABELLED)}"]
        above = f"# value labels of the file: {told}; a program may have made them from the records"
    elif column.has_domain:
        above = f"# declared by {column.by}: {told}"
    else:
        above = f"# no domain declared: {told}" + (f"; looked at {column.by}" if column.by else "")
        pairs.append(f"todo = {_text(_TODO)}")
    if name.lower() not in _RESERVED and _plain_name(column.name).lower() in _RESERVED:
        above += f"; called {name}, as SQL has a word {_plain_name(column.name)}"
    return [above, f"{_key(name)} = {{ {', '.join(pairs)} }}"]


def _not_yet(name: str, column: DeclaredColumn) -> str:
    """What to do with a column whose values are no categories: by its type alone."""
    kind, entry = column.type.lower(), f"{_key(name)} = {{ column = {_text(column.name)}"
    if re.match("date|timestamp", kind) and not re.search("zone|tz", kind):
        return f"dates are counted by their years, quarters or months: {entry}, years = [first, last] }}"
    if re.match("double|float|real|decimal|numeric", kind):
        return f"such numbers are counted in classes: {entry}, bins = [...] }}"
    return "values of this type are not categories; code them in the records first"


def _domain(column: DeclaredColumn) -> list[str]:
    if column.bounds is not None:
        return [f"range = [{column.bounds[0]}, {column.bounds[1]}]"]
    if column.categories is not None:
        return [f"categories = [{', '.join(map(_value, column.categories))}]"]
    return []


_PRIVACY = (
    "[privacy]                         # what is promised; decide it before the records are opened",
    'definition = "zcdp"               # or "pure" with epsilon, "approx" with epsilon and delta',
    'budget = "1/2"                    # rho, exact; `tabulae plan` prints the errors that it buys',
    'delta = "1e-10"                   # for the statement in (epsilon, delta)',
    'neighbours = "add-remove"         # or "replace"',
    'ledger = "ledger.db"              # makes sure that no more is spent; once, with the most that may ever be spent:',
    "#   tabulae ledger init ledger.db --budget 3 --definition zcdp --neighbours add-remove --unit person",
)


def _table(attributes: Sequence[str]) -> list[str]:
    return [
        "[[table]]                         # what is published: one section a table; attributes = [] is the total",
        'name = "first_table"',
        f"attributes = [{', '.join(map(_text, attributes))}]",
        '# target = { margin = 50 }        # what it may be wrong by; with it, budget = "targets" asks the plan',
    ]


def _attribute_names(columns: Iterable[str]) -> list[str]:
    """A name for each column: its own where SQL takes that as it is and has no such word, and all different."""
    taken = {*RESULT_COLUMNS, *_POLICIES}
    names = []
    for column in columns:
        kept = _plain_name(column)
        name = whole = f"{kept}_" if kept.lower() in _RESERVED else kept
        number = 1
        while name in taken:
            number += 1
            name = f"{whole}_{number}"
        taken.add(name)
        names.append(name)
    return names


def _plain_name(column: str) -> str:
    kept = re.sub(r"\W+", "_", column.strip()).strip("_")[:60].strip("_") or "no_name"
    return f"_{kept}" if kept[0].isdigit() else kept


def _key(name: str) -> str:
    """A key as TOML writes it; fit for a comment, too."""
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _text(text: str) -> str:
    return tomli_w.dumps({"k": text}).removeprefix("k = ").removesuffix("\n")


def _value(value: int | str) -> str:
    return str(value) if isinstance(value, int) else _text(value)
