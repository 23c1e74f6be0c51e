"""Bins, periods, clamped numbers, text without its case, and conditions: the same on every engine, and as by hand."""

from __future__ import annotations

import datetime
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tabulae.domain import Attribute, Domain
from tabulae.errors import DataError
from tabulae.linalg import Identity, Kron, Total
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.classes import Bins, Periods
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.condition import Condition
from tabulae.sources.source import RecordSource
from tabulae.sources.values import DateFormat, fold

Store = Callable[[str, pa.Table], RecordSource]
BLANKS = " \t\n\r\v\f"

WRITTEN = [
    "", " ", "0", "-0", "+0.0", "17", "017", "17.9999999999999999999999", "18", "18.000", " 18 ", "18.0000000001",
    "2.5",
    "2.49999999999999999999", "2.50000000000000000001", "-2.5", "-2.50000000000000000001", "-2.4999999999999999999999",
    "99999999999999999999999999", "-99999999999999999999999999", "9" * 17, "9" * 18, "1e3", "0x12", "1,000", ".5", "5.",
    "--5", "+", "-", "x", "１８", "18\n0", "18\u2028", "Infinity", "NaN", "0.3", "0.30", "-0.3", "1000000", "000000018",
]  # fmt: skip
FLOATS = [0.3, 0.1, 0.1 + 0.2, 0.29999999999999993, -0.3, 2.5, 17.999999999999996, 18.0, 0.0, -0.0, 2.0**53]
SINGLES = [0.3, 0.7, 2.5, 18.0, 1e30, -0.3, 0.0]
WHOLES = [-(2**63), 2**63 - 1, -3, -2, 0, 17, 18, 1000000]
DECIMALS = [
    Decimal("-2.50"),
    Decimal("2.49"),
    Decimal("2.50"),
    Decimal("18.00"),
    Decimal("0.30"),
    Decimal("99999999.99"),
]
DAYS = [
    (2024, 2, 29),
    (2024, 3, 1),
    (2023, 12, 31),
    (2019, 1, 1),
    (1, 1, 1),
    (9999, 12, 31),
    (2020, 6, 30),
    (2020, 7, 1),
]
TEXT_DAYS = [
    "2024-02-29", "2023-02-29", "2024-13-01", "2024-00-10", "2024-04-31", "2024-03-01 12:30:00",
    "2024-03-01T23:59:59.5Z",
    "2024-03-01 noon", "24-03-01", "", " 2020-07-01 ", "2020-07-01x", "0000-01-01", "infinity", "2100-02-29",
    "2000-02-29",
]  # fmt: skip
SWISS_DAYS = [
    "29.02.2024",
    "29.02.2023",
    "1.3.2024",
    "01.03.2024",
    "2024-03-01",
    "",
    "31.12.2019 08:00",
    "01-03-2024",
]
WORDS = [
    "Ö",
    "ö",
    "ÖL",
    "öl",
    " Öl ",
    "STRASSE",
    "straße",
    "STRAẞE",
    "Σ",
    "σ",
    "ς",
    "",
    "x",
    "İ",
    "ı",
    "Ж",
    "ж",
    "o\u0308",
]

N = 60


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values in turn, and then missing ones."""
    rng = random.Random(str(values))
    filled = [*values, *rng.choices([*values, None], k=N - len(values))]
    return pa.array(filled, kind)


RECORDS = {
    "written": column(WRITTEN, pa.string()),
    "float": column(FLOATS, pa.float64()),
    "whole": column(WHOLES, pa.int64()),
    "small": column([-128, 0, 17, 18, 127], pa.int8()),
    "large": column([0, 17, 2**63, 2**64 - 1], pa.uint64()),
    "decimal": column(DECIMALS, pa.decimal128(10, 2)),
    "day": column([datetime.date(*day) for day in DAYS], pa.date32()),
    "time": column([datetime.datetime(*day, 23, 59, 59) for day in DAYS], pa.timestamp("us")),
    "text_day": column(TEXT_DAYS, pa.string()),
    "swiss_day": column(SWISS_DAYS, pa.string()),
    "word": column(WORDS, pa.string()),
}
TYPED_ONLY = {
    "single": column([float(np.float32(value)) for value in SINGLES], pa.float32()),
    "odd": column([float("nan"), float("inf"), float("-inf"), 1.0, 1e300, -1e300, 5e-324], pa.float64()),
}


def rows(name: str) -> list[Any]:
    return (RECORDS | TYPED_ONLY)[name].to_pylist()


def number_of(value: Any, name: str = "") -> Fraction | str | None:
    """What a stored value is as a number, exactly; "bad" for what is none, None for what is missing."""
    if value is None or value != value or (isinstance(value, str) and not value.strip(BLANKS)):
        return None
    if value in (float("inf"), float("-inf")):
        return "bad"
    if isinstance(value, str):
        text = value.strip(BLANKS)
        return Fraction(text) if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text, re.ASCII) else "bad"
    if isinstance(value, float):
        return Fraction(str(np.float32(value)) if name == "single" else repr(value))
    return Fraction(value)


FORMATS = {"text_day": r"(\d{4})-(\d\d)-(\d\d)", "swiss_day": r"(\d\d)\.(\d\d)\.(\d{4})"}
TIME = r"(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d(?::?\d\d)?))?)?"


def day_of(value: Any, name: str) -> datetime.date | str | None:
    """Likewise of a date."""
    if value is None or isinstance(value, datetime.datetime):
        return value and value.date()
    if isinstance(value, datetime.date):
        return value
    if not (text := value.strip(BLANKS)):
        return None
    found = re.fullmatch(FORMATS[name] + TIME, text, re.ASCII)
    try:
        parts = [int(part) for part in found.groups()] if found else []
        return datetime.date(*(parts[::-1] if name == "swiss_day" else parts))
    except (TypeError, ValueError):
        return "bad"


def vector(counts: Counts) -> list[int]:
    return counts.answer(Kron(tuple(Identity(n) for n in counts.domain.shape))).tolist()


def counted(source: RecordSource, labels: tuple[str, ...], rule: ColumnCoding) -> Counter[str]:
    return counted_each(source, [(labels, rule)])[0]


def counted_each(
    source: RecordSource, asked: Sequence[tuple[tuple[str, ...], ColumnCoding]]
) -> list[Counter[str]]:
    """How many records have each label, of each attribute: all counted at once."""
    attributes = [
        Attribute(f"a{i}", (*labels, "other"), values=rule_values(labels, rule))
        for i, (labels, rule) in enumerate(asked)
    ]
    rules = {f"a{i}": replace(rule, unknown="other", null="other") for i, (_, rule) in enumerate(asked)}
    counts = tabulate(source, Domain({a.name: a for a in attributes}), rules)
    found = []
    for one in attributes:
        alone = Kron(tuple(Identity(a.size) if a is one else Total(a.size) for a in attributes))
        found.append(+Counter(dict(zip(one.labels, counts.answer(alone).tolist(), strict=True))))
    return found


def rule_values(labels: tuple[str, ...], rule: ColumnCoding) -> tuple[Any, ...]:
    return (*map(int, labels), -(2**63)) if rule.clamp and rule.made is None else ()


def records(engine: str) -> pa.Table:
    return pa.table(RECORDS if engine == "duckdb-csv" else RECORDS | TYPED_ONLY)


@pytest.fixture(scope="module")
def source(store: Store, engine: str) -> RecordSource:
    return store(engine, records(engine))


BINS = [
    Bins((0, 18), "both"),
    Bins(("-2.5", "0", "0.3", "2.5", 18, 1000000)),
    Bins((-2, 0, 17, 18), "above"),
    Bins(("0.3", "0.7"), "below"),
]
NUMBERS = ("written", "float", "whole", "small", "large", "decimal", "single", "odd")


@pytest.mark.sweep("duckdb-parquet")
def test_bins_of_numbers(source: RecordSource, engine: str) -> None:
    names = [name for name in NUMBERS if name in records(engine).column_names]
    for name in names:
        found = counted_each(source, [(bins.labels, ColumnCoding(name, made=bins)) for bins in BINS])
        assert found == [binned(name, bins) for bins in BINS], name


def binned(name: str, bins: Bins) -> Counter[str]:
    expected: Counter[str] = Counter()
    for value in rows(name):
        number = number_of(value, name)
        reached = sum(number >= edge for edge in bins.exact) if isinstance(number, Fraction) else 0
        at = reached - (0 if bins.open in ("below", "both") else 1)
        inside = isinstance(number, Fraction) and 0 <= at < len(bins.labels)
        expected[bins.labels[at] if inside else "other"] += 1
    return expected


PERIODS = [
    Periods("years", 2019, 2023),
    Periods("quarters", "2019-Q4", "2024-Q1"),
    Periods("months", "2020-06", "2024-02"),
]


@pytest.mark.sweep("postgresql")
def test_periods_of_dates(source: RecordSource) -> None:
    for name in ("day", "time", "text_day", "swiss_day"):
        form = DateFormat("DD.MM.YYYY") if name == "swiss_day" else DateFormat()
        for clamp in (False, True):  # three attributes together have 5,000 cells, and six 27 million
            asked = [
                (tuple(map(str, p.values)), ColumnCoding(name, made=replace(p, format=form), clamp=clamp))
                for p in PERIODS
            ]
            expected = [in_periods(name, periods, clamp=clamp) for periods in PERIODS]
            assert counted_each(source, asked) == expected, (name, clamp)


def in_periods(name: str, periods: Periods, *, clamp: bool) -> Counter[str]:
    expected: Counter[str] = Counter()
    labels = tuple(map(str, periods.values))
    for value in rows(name):
        day = day_of(value, name)
        label = "other"
        if isinstance(day, datetime.date):
            label = {
                "years": f"{day.year}",
                "quarters": f"{day.year:04}-Q{(day.month + 2) // 3}",
                "months": f"{day.year:04}-{day.month:02}",
            }[periods.part]
            end = labels[0] if label.zfill(7) < labels[0].zfill(7) else labels[-1]
            label = label if label in labels else end if clamp else "other"
        expected[label] += 1
    return expected


@pytest.mark.sweep("duckdb-parquet", "postgresql")
def test_whole_numbers_beyond_a_range_count_as_its_ends(source: RecordSource, engine: str) -> None:
    labels = tuple(map(str, range(-2, 200)))
    names = [name for name in NUMBERS if name in records(engine).column_names]
    found = counted_each(source, [(labels, ColumnCoding(name, clamp=True)) for name in names])
    for name, one in zip(names, found, strict=True):
        expected: Counter[str] = Counter()
        for value in rows(name):
            number = number_of(value, name)
            known = isinstance(number, Fraction) and number.denominator == 1
            expected[str(min(max(int(number), -2), 199)) if known else "other"] += 1  # type: ignore[arg-type]
        assert one == expected, name


def test_text_without_its_case(source: RecordSource) -> None:
    labels = ("öl", "Straße", "Σ", "Ж", "İ")
    expected = Counter(
        next((label for label in labels if fold(label) == fold((value or "").strip(BLANKS))), "other")
        for value in rows("word")
    )
    assert expected["öl"] >= 3
    assert expected["Straße"] >= 2
    assert counted(source, labels, ColumnCoding("word", fold=True)) == expected


def test_folding_is_the_standards() -> None:
    """Where one letter is folded to one, Python's own folding says the same; elsewhere its small letters do."""
    for point in itertools.chain(
        range(0x250), range(0x370, 0x530), range(0x531, 0x557), range(0x1E00, 0x2000)
    ):
        letter = chr(point)
        full, small = letter.casefold(), letter.lower()
        assert fold(letter) == (full if len(full) == 1 else small if len(small) == 1 else letter)
        assert fold(fold(letter)) == fold(letter)
    assert fold("\u212a") == "\u212a"  # the sign of kelvins is no letter of these scripts


Truth = bool | None


def compared(sign: str, one: Any, other: Any) -> Truth:
    if one is None or one == "bad":
        return None
    return {"=": one == other, "<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[
        sign
    ]


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def text_of(value: Any) -> str | None:
    return (str(value).strip(BLANKS) or None) if value is not None else None


CONDITIONS: list[tuple[str, Callable[[dict[str, Any]], Truth]]] = [
    *(
        (
            f"float {sign} {edge}",
            lambda row, sign=sign, edge=edge: compared(sign, number_of(row["float"]), Fraction(edge)),
        )
        for sign in ("=", "<", "<=", ">", ">=")
        for edge in ("0.3", "2.5", "0.1")
    ),
    (
        "decimal BETWEEN -2.5 AND 2.49",
        lambda row: (
            compared("<=", abs(Fraction(row["decimal"]) + Fraction("0.005")), Fraction("2.495"))
            if row["decimal"] is not None
            else None
        ),
    ),
    ("NOT small = 17", lambda row: negated(compared("=", number_of(row["small"]), 17))),
    ("whole <> 18.5", lambda row: negated(compared("=", number_of(row["whole"]), Fraction("18.5")))),
    (
        "word IN ('Ö', 'x')",
        lambda row: None if text_of(row["word"]) is None else text_of(row["word"]) in ("Ö", "x"),
    ),
    (
        "word IS NULL OR decimal >= 18",
        lambda row: True if text_of(row["word"]) is None else compared(">=", number_of(row["decimal"]), 18),
    ),
    (
        "word IS NOT NULL AND NOT (word = 'x')",
        lambda row: text_of(row["word"]) is not None and text_of(row["word"]) != "x",
    ),
    (
        "day >= DATE '2020-07-01'",
        lambda row: compared(">=", day_of(row["day"], "day"), datetime.date(2020, 7, 1)),
    ),
    (
        "time < DATE '2024-02-29'",
        lambda row: compared("<", day_of(row["time"], "time"), datetime.date(2024, 2, 29)),
    ),
    ("whole = '18'", lambda row: None if row["whole"] is None else row["whole"] == 18),
    (
        "whole IN (" + ", ".join(map(str, range(99))) + ")",
        lambda row: None if row["whole"] is None else row["whole"] in range(99),
    ),
]


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_conditions(source: RecordSource, engine: str) -> None:
    """Only records for which a condition is true are counted: not those for which it is false, or neither."""
    table = [dict(zip(RECORDS, row, strict=True)) for row in zip(*map(rows, RECORDS), strict=True)]
    labels = tuple(map(str, (0, 17, 18, 127)))
    asked = CONDITIONS if engine == "duckdb-parquet" else CONDITIONS[::3]
    for text, holds in asked:
        kept = Counter(
            str(row["small"]) if str(row["small"]) in labels else "other" for row in table if holds(row)
        )
        assert 0 < kept.total() < N, text
        found = counted(replace_where(source, text), labels, ColumnCoding("small"))
        assert found == kept, text


def replace_where(source: RecordSource, text: str) -> RecordSource:
    place = (
        {"url": source.url}
        if source.url
        else {"path": source.path, "kind": source.kind, "engine": source.engine}
    )
    return RecordSource(**place, table=source.table, where=Condition(text))  # type: ignore[arg-type]


@pytest.mark.sweep
def test_units_are_bounded_among_the_records_that_are_counted(store: Store, engine: str) -> None:
    """A record that is not counted takes no place of another, and its unit and values may be anything."""
    from tabulae.sources.units import UnitRule

    table = pa.table({
        "PID": ["a", "a", "a", "b", None, "c"],
        "SEX": ["F", "F", "?", "M", "M", None],
        "KEEP": ["1", "1", "0", "1", "0", None],
    })  # fmt: skip
    source = replace_where(store(engine, table), "KEEP = '1'")
    domain, rules = Domain({"sex": ["F", "M"]}), {"sex": ColumnCoding("SEX")}
    assert vector(tabulate(source, domain, rules)) == [2, 1]
    assert vector(tabulate(source, domain, rules, UnitRule("PID", 1, bytes(32)))) == [1, 1]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("written > 5", "column 'written' ([source] where): values that are no numbers"),
        ("text_day > DATE '2020-01-01'", "column 'text_day' ([source] where): values that are no dates"),
        ("nowhere = 1", "no column 'nowhere' ([source] where)"),
        ("small > 5 AND small < 5", "has no records that meet [source] where"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(
    source: RecordSource, condition: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError) as caught:
        counted(replace_where(source, condition), ("0",), ColumnCoding("small"))
    assert words in str(caught.value)
    assert "0x12" not in str(caught.value)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("decimal = '2.5'", "has type decimal(10, 2): compare it with numbers"),
        ("day = '2024-02-29'", "has type date: compare it with dates"),
        ("day > 5", "has type date: numbers are stored as numbers or as text"),
        ("float > DATE '2020-01-01'", "has type float64: dates are stored as dates"),
    ],
)
def test_a_type_that_cannot_be_compared_so_is_refused(
    store: Store, typed: str, condition: str, words: str
) -> None:
    with pytest.raises(DataError) as caught:
        counted(replace_where(store(typed, pa.table(RECORDS)), condition), ("0",), ColumnCoding("small"))
    assert words in str(caught.value)


@pytest.mark.sweep("duckdb-parquet", "postgresql")
def test_what_has_no_class_is_shown_to_the_holder_of_the_records_alone(source: RecordSource) -> None:
    domain = Domain(
        {"n": Attribute("n", Bins((0, 18)).labels), "d": Attribute("d", ("2020",), values=(2020,))}
    )
    rules = {
        "n": ColumnCoding("written", made=Bins((0, 18))),
        "d": ColumnCoding("day", made=Periods("years", 2020, 2020)),
    }
    with pytest.raises(DataError) as caught:
        tabulate(source, domain, rules)
    assert "column 'written' (attribute 'n'): values outside" in str(caught.value)
    assert "column 'day' (attribute 'd'): NULL values" in str(caught.value)
    assert "'x'" not in str(caught.value)
    assert re.search(r"in \d+ records, such as '.*' \(\d+\)", caught.value.confidential or "")
    assert "2019-01-01" in caught.value.confidential or "2023-12-31" in caught.value.confidential
