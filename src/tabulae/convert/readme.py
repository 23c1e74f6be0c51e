"""What stands in the README of a converted release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..release import Release
from .statuses import STATUSES
from .stored import StoredTable


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
            "* `OBS_STATUS` is of the list SDMX:CL_OBS_STATUS(2.2): `A` for every number, `O` for one that is missing.",
            "* `RELEASE_STATUS` is the status in the release:",
            *(f"  `{letter}` {status.meaning}." for letter, status in STATUSES.items()),
            "* `_T` stands for the total.",
            "",
            "Read codes as text: a reader that guesses types makes `001` a 1, which is not in the code list.",
        ],
    )


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


def _readme(release: Release, files: Mapping[str, int], told: Sequence[str]) -> str:
    about = release.about
    lines = [
        f"# {release.spec.title}",
        "",
        f"Converted from release {about['release_id']}, made by tabulae {about['version']}. Numbers are the published",
        f"ones, to the last digit; intervals hold with a probability of at least {release.level:.0%}, one by one.",
        "",
        *told,
        "",
        "Tables:",
        "",
        *(f"* `{name}`, {rows:,} rows" for name, rows in files.items()),
    ]
    return "\n".join(lines) + "\n"
