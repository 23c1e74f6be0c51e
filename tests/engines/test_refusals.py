"""Records that do not fit are refused on every engine in the same words, and nothing of them is shown."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from tests.tabulate.test_units import DOMAIN, KEY, RULES

from tabulae.errors import DataError
from tabulae.products.tables.count import tabulate
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule

Store = Callable[[str, pa.Table], RecordSource]

SECRET = "SECRET-7781"
BY_UNIT = UnitRule("PID", 2, KEY)


@pytest.fixture
def silent(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing of the records, nor the key, is printed or logged, by any process of the test."""
    caplog.set_level(0)
    yield
    shown = "".join((*capfd.readouterr(), caplog.text))
    assert SECRET not in shown
    assert KEY.hex() not in shown


def refused(source: RecordSource, unit: UnitRule | None = None) -> tuple[str, str]:
    """What is told, and what is told the holder of the records, without the source's own name."""
    with pytest.raises(DataError) as caught:
        tabulate(source, DOMAIN, RULES, unit)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in shown
    assert KEY.hex() not in shown
    assert error.__cause__ is None
    assert error.__context__ is None
    return str(error).replace(source.name, "{source}"), str(error.confidential).replace(
        source.name, "{source}"
    )


@pytest.mark.sweep
def test_values_that_are_unknown_or_missing(store: Store, engine: str, silent: None) -> None:
    table = pa.table(
        {
            "PID": ["a", None, " ", "b", "b", "c"],
            "SEX": ["F", SECRET, SECRET, None, "m", "M"],
            "AGE": ["1", "7", "2", "007", "7", "2"],
        }
    )
    told, confidential = refused(store(engine, table), BY_UNIT)
    assert told.splitlines() == [
        "{source} does not fit the public domain:",
        "  column 'SEX' (attribute 'sex'): values outside the declared categories",
        "  column 'SEX' (attribute 'sex'): NULL values",
        "  column 'AGE' (attribute 'age'): values outside the declared categories",
        "  column 'PID' (unit_id): NULL values, and every record needs the id of its unit",
        (
            'Correct the records, list the values under [attributes], or count them apart with unknown = "other" or '
            'null = "other".'
        ),
    ]
    assert confidential.splitlines() == [
        (
            "column 'SEX' (attribute 'sex'): values outside the declared categories: in 3 records, such as "
            f"'{SECRET}' (2), 'm' (1)"
        ),
        "column 'SEX' (attribute 'sex'): NULL values: in 1 records",
        (
            "column 'AGE' (attribute 'age'): values outside the declared categories: in 3 records, such as "
            "'7' (2), '007' (1)"
        ),
        "column 'PID' (unit_id): NULL values, and every record needs the id of its unit: in 2 records",
    ]


def test_columns_that_are_not_there(store: Store, engine: str, silent: None) -> None:
    told, confidential = refused(store(engine, pa.table({"Sex": [SECRET], "PID": ["a"]})), BY_UNIT)
    assert told.splitlines() == [
        "{source} does not have the columns that the spec names:",
        "  no column 'SEX' (attribute 'sex'), but one that is written 'Sex': names must match exactly",
        "  no column 'AGE' (attribute 'age')",
    ]
    assert confidential == "the columns of the source are 'Sex', 'PID'"


def test_no_records(store: Store, engine: str) -> None:
    nobody = pa.table({name: pa.array([], pa.string()) for name in ("PID", "SEX", "AGE")})
    assert refused(store(engine, nobody))[0] == "{source} has no records: there is nothing to publish"


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        (
            "SEX",
            pa.array([datetime.date(2020, 1, 1)]),
            (
                "column 'SEX' (attribute 'sex') has type date: the values of an attribute are text, numbers or truth "
                "values; convert it to text"
            ),
        ),
        (
            "PID",
            pa.array([7.0]),
            (
                "column 'PID' (unit_id) has type float64: ids are text, whole numbers or UUIDs, because two of "
                "them must never be taken for one; convert it to text"
            ),
        ),
    ],
)
def test_types_that_mean_nothing(store: Store, typed: str, column: str, values: pa.Array, words: str) -> None:
    table = pa.table({"PID": ["a"], "SEX": ["F"], "AGE": ["1"]} | {column: values})
    assert refused(store(typed, table), BY_UNIT)[0] == words
