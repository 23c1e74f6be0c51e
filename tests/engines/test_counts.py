"""The same records count the same on every engine, and as counted by hand."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tabulae.domain import Attribute, Domain
from tabulae.errors import DataError
from tabulae.linalg import Identity, Kron, Total
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource

Policy = Literal["refuse", "other"]
Store = Callable[[str, pa.Table], RecordSource]

FIND = (Phase.explicit, Phase.generate)  # an engine is too slow a thing to shrink an example with
LETTERS = ["F", "f", "É", "e\u0301", "\u00e9", "ß", "SS", "Zoë 😀", "a'b\"c\\d", "%_", "NULL", "001", "1"]
BLANKS = ["", " ", "\t", "\n\r", "\v\f"]

DOMAIN = Domain({"letter": [*LETTERS, "other"], "age": [*map(str, range(-2, 4)), "other"]})
RULES = {
    "letter": ColumnCoding("Letter", unknown="other", null="other"),
    "age": ColumnCoding(
        "the age", unknown="other", null="other", values={n: code for code, n in enumerate(range(-2, 4))}
    ),
}


def vector(counts: Counts) -> list[int]:
    return counts.answer(Kron(tuple(Identity(n) for n in counts.domain.shape))).tolist()


def text(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(BLANKS), values, st.sampled_from(BLANKS)).map("".join)


any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
letters = st.one_of(st.none(), text(st.sampled_from(LETTERS)), text(any_text))
PARTS = (
    ["", "+", "-", "--"],
    ["", "0", "000"],
    ["0", "1", "2", "3", "4", "x", "", "１", "99999999999999999999"],
    ["", ".0", ".000", ".", ".5", "e0", "\u2028", "\x85", "\n"],
)
written = text(st.tuples(*map(st.sampled_from, PARTS)).map("".join))


def letter_of(value: str | None) -> str:
    return stripped if (stripped := (value or "").strip(" \t\n\r\v\f")) in LETTERS else "other"


def number_of(value: str) -> str:
    found = re.fullmatch(r"([+-]?)0*([0-9]+)(\.0+)?", value.strip(" \t\n\r\v\f"), re.ASCII)
    number = int(found[1] + found[2]) if found else None
    return str(number) if number in range(-2, 4) else "other"


def check_text(source: RecordSource, rows: Sequence[tuple[str | None, str]]) -> None:
    """The records count as they do by hand."""
    seen = Counter((letter_of(letter), number_of(number)) for letter, number in rows)
    cells = itertools.product(*(attribute.labels for attribute in DOMAIN.attributes))
    assert vector(tabulate(source, DOMAIN, RULES)) == [seen[cell] for cell in cells]


def table_of(rows: Sequence[tuple[str | None, str]]) -> pa.Table:
    return pa.table({"Letter": pa.array([r[0] for r in rows], pa.string()), "the age": [r[1] for r in rows]})


@pytest.mark.parametrize(
    "quick", ["duckdb-csv", pytest.param("duckdb-parquet", marks=pytest.mark.long), "postgresql"]
)
@settings(max_examples=8, phases=FIND)
@given(rows=st.lists(st.tuples(letters, written), min_size=1, max_size=60))
def test_any_text(store: Store, quick: str, rows: list[tuple[str | None, str]]) -> None:
    check_text(store(quick, table_of(rows)), rows)


@pytest.mark.sweep
def test_every_way_to_write_a_letter_or_a_number(store: Store, engine: str) -> None:
    """All combinations at once, so that an engine that is slow to start is asked once."""
    numbers = map("".join, itertools.product(["", " "], *PARTS, ["", "\n"]))
    around = itertools.product(BLANKS, [*LETTERS, "", "\xa0", "F\xa0", "other"], BLANKS)
    given = itertools.cycle([None, *map("".join, around)])
    rows = [(next(given), number) for number in numbers]
    check_text(store(engine, table_of(rows)), rows)


EXACT = 2**53
LABELS = ["-2", "0", "1", "3", str(EXACT), "other"]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-2, 0, 1, 3, 4, None]),
    (pa.int32(), [-2, 0, 1, 3, 2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, EXACT, EXACT + 1, 0, -2, None]),
    (pa.uint64(), [2**64 - 2, 2**63, EXACT, 0, None]),
    (pa.float32(), [-0.0, 0.0, 1.0, 1.5, float("nan"), float("inf"), None]),
    (
        pa.float64(),
        [-2.0, 0.0, -0.0, 1 + 2**-52, 3.0, float("nan"), -float("inf"), 1e300, float(EXACT), None],
    ),
    (pa.decimal128(5, 2), [Decimal("-2.00"), Decimal("0.00"), Decimal("1.01"), Decimal("3.00"), None]),
    (pa.decimal128(30, 20), [Decimal(0), Decimal(3), Decimal("1e-20"), None]),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(-2), Decimal(1), None]),
    (pa.bool_(), [True, False, None]),
    (pa.null(), [None]),
    (pa.dictionary(pa.int8(), pa.string()), ["1", "01", " 3", "x", " ", None]),
]
ROWS = max(len(values) for _, values in VALUES)
COLUMNS = {
    f"c{i}": pa.array(list(itertools.islice(itertools.cycle(values), ROWS)), kind)
    for i, (kind, values) in enumerate(VALUES)
}


def meaning(value: Any) -> str:
    """The label of a stored value: the whole number that it is, "other" for other values, and what is missing."""
    if value is None or value != value or value == " ":
        return "missing"
    if value in (float("inf"), -float("inf"), "x"):
        return "other"
    number = Decimal(value)
    return str(int(number)) if str(int(number)) in LABELS and int(number) == number else "other"


def expected(column: str) -> Counter[str]:
    return Counter(meaning(value) for value in COLUMNS[column].to_pylist())


def attributes(columns: Sequence[str]) -> Domain:
    return Domain({column: Attribute(column, tuple(LABELS)) for column in columns})


def rules(columns: Sequence[str], policy: Policy) -> dict[str, ColumnCoding]:
    values = {int(label): code for code, label in enumerate(LABELS[:-1])}
    return {column: ColumnCoding(column, unknown=policy, null=policy, values=values) for column in columns}


@pytest.mark.sweep
def test_values_of_every_type(store: Store, typed: str) -> None:
    source = store(typed, pa.table(COLUMNS))
    for columns in (list(COLUMNS)[:6], list(COLUMNS)[6:]):
        counts = tabulate(source, attributes(columns), rules(columns, "other"))
        assert counts.total == ROWS
        for column in columns:
            seen = expected(column)
            parts = (Identity(len(LABELS)) if name == column else Total(len(LABELS)) for name in columns)
            found = dict(zip(LABELS, counts.answer(Kron(tuple(parts))).tolist(), strict=True))
            seen["other"] += seen.pop("missing", 0)
            assert found == {label: seen[label] for label in LABELS}, column


@pytest.mark.sweep
@pytest.mark.parametrize("half", [0, 1])
def test_the_same_values_are_refused(store: Store, typed: str, half: int) -> None:
    """Half of the columns at a time: a statement takes time as the square of them."""
    columns = list(COLUMNS)[half * 6 : half * 6 + 6]
    source = store(typed, pa.table(COLUMNS))
    with pytest.raises(DataError) as caught:
        tabulate(source, attributes(columns), rules(columns, "refuse"))
    told = [line.strip() for line in str(caught.value).splitlines()[1:-1]]
    numbers = [line.partition(", such as")[0] for line in str(caught.value.confidential).splitlines()]
    where = [
        (f"column {column!r} (attribute {column!r}): {kind}", seen[label])
        for column in columns
        for seen in [expected(column)]
        for label, kind in (("other", "values outside the declared categories"), ("missing", "NULL values"))
        if seen[label]
    ]
    assert told == [line for line, _ in where]
    assert numbers == [f"{line}: in {number} records" for line, number in where]
