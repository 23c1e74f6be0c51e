"""Conditions on several attributes together: what is compared, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.each import each

from tabulae.domain import Attribute, Domain, Recode
from tabulae.domain.sql import table_from_sql
from tabulae.errors import InvalidArgument, Unsupported

PRICES = ["0.1", "0.2", "0.30", "-1", "n.a."]
CITIES = ["Rome", "Oslo", "Bonn"]
DOMAIN = Domain(
    {
        "born": CITIES,
        "lives": ["Bonn", "Rome", "Bern"],
        "price": PRICES,
        "paid": ["0.1", "0.3", "0.4"],
        "age": range(30),
    }
)
Record = Mapping[str, str]


def counted(where: str, domain: Domain = DOMAIN) -> np.ndarray:
    """The cells that a condition counts, by the table's matrix."""
    return (
        table_from_sql(domain, "t", f"SELECT COUNT(*) FROM people WHERE {where}").operator(domain).dense()[0]
    )


def cells(domain: Domain, holds: Callable[[Record], bool]) -> np.ndarray:
    """The same, cell by cell."""
    return np.array([int(holds(record)) for record in _records(domain)])


@cache
def _records(domain: Domain) -> list[Record]:
    every = itertools.product(*(a.labels for a in domain.attributes))
    return [dict(zip(domain.names, labels, strict=True)) for labels in every]


@each(
    "where, holds",
    [
        ("born = lives", lambda r: r["born"] == r["lives"]),
        ("born <> lives", lambda r: r["born"] != r["lives"]),
        ("NOT born = lives AND age < 3", lambda r: r["born"] != r["lives"] and int(r["age"]) < 3),
        ("born = lives OR born = 'Oslo'", lambda r: r["born"] == r["lives"] or r["born"] == "Oslo"),
        ("born IN (lives)", lambda r: r["born"] == r["lives"]),
        ("price = paid", lambda r: r["price"] == r["paid"]),
        (
            "price + paid = 0.3 AND price <> 'n.a.'",  # in binary fractions 0.1 + 0.2 is not 0.3
            lambda r: r["price"] != "n.a." and Fraction(r["price"]) + Fraction(r["paid"]) == Fraction("0.3"),
        ),
        (
            "price <> 'n.a.' AND NOT (price < paid OR age < 5)",
            lambda r: (
                r["price"] != "n.a." and not (Fraction(r["price"]) < Fraction(r["paid"]) or int(r["age"]) < 5)
            ),
        ),
        (
            "age % 7 = 3 AND age / 1 < 20 AND age // 1 > 4",
            lambda r: int(r["age"]) % 7 == 3 and 4 < int(r["age"]) < 20,
        ),
        ("paid * 10 / 1 = 4", lambda r: r["paid"] == "0.4"),
        ("ABS(age - 10) <= 2", lambda r: abs(int(r["age"]) - 10) <= 2),
        ("7 BETWEEN age AND 3 * 4", lambda r: int(r["age"]) <= 7),
        ("age + age < 9", lambda r: 2 * int(r["age"]) < 9),
        ("12 <= age + 10 * paid", lambda r: int(r["age"]) + 10 * Fraction(r["paid"]) >= 12),
    ],
)
def test_a_row_counts_the_cells_that_satisfy_it(where: str, holds: Callable[[Record], bool]) -> None:
    assert np.array_equal(counted(where), cells(DOMAIN, holds))


def test_classes_of_recodes_are_compared_by_their_labels() -> None:
    plain = Domain({"a": range(6), "b": ["x", "y", "z"]})
    domain = plain.with_recodes(
        Recode.from_map("tens", plain["a"], {k: str(10 * (k // 2)) for k in range(6)}),
        Recode.from_map("side", plain["a"], {k: "xyz"[k % 3] for k in range(6)}),
    )
    assert np.array_equal(
        counted("tens + a <= 12", domain),
        cells(plain, lambda r: 10 * (int(r["a"]) // 2) + int(r["a"]) <= 12),
    )
    assert np.array_equal(
        counted("side = b", domain), cells(plain, lambda r: "xyz"[int(r["a"]) % 3] == r["b"])
    )


def test_groups_and_several_attributes_make_rows() -> None:
    table = table_from_sql(
        DOMAIN,
        "t",
        "SELECT born, age, COUNT(*) FROM people WHERE born = lives AND age < 2 GROUP BY born, age",
    )
    assert table.columns(DOMAIN) == {"born": ("Rome", "Bonn"), "age": ("0", "1")}
    rows = table.operator(DOMAIN).dense()
    for row, (city, age) in zip(rows, itertools.product(["Rome", "Bonn"], ["0", "1"]), strict=True):
        assert np.array_equal(
            row, cells(DOMAIN, lambda r, c=city, a=age: r["born"] == r["lives"] == c and r["age"] == a)
        )


CODED = Domain(
    {
        "a": Attribute("a", ("1", "2", "3 or more"), values=(1, 2, 3)),
        "b": Attribute("b", ("5-9", "10-14"), values=("1", "2")),
        "c": Attribute("c", ("7", "8"), values=("1", "2")),
        "d": Attribute("d", ("red", "blue"), values=("1", "2")),
        "e": Attribute("e", ("blue", "red"), values=("1", "2")),
        "big": range(2000),
        "wide": range(2000),
        "one": range(101),
        "two": range(101),
        "six": range(101),
    }
)


@each(
    "where, why",
    [
        (
            "a + big < 3",
            "the category '3 or more' of 'a' is no number: leave it out, with AND a <> '3 or more'",
        ),
        ("b < a", "the category '5-9' of 'b' is no number"),
        ("ABS(b - 1) < 2", "the category '5-9' of 'b' is no number"),
        ("c + one < 3", "the category '7' of 'c' is '1' in the records"),
        ("d = e", "'1' of 'd' is called 'red', and '1' of 'e' 'blue'"),
        ("big < wide", "2,000 x 2,000 combinations of big, wide are more than the 1,048,576"),
        ("one + two + six + a < 3 AND a <> '3 or more'", "relates 4 attributes"),
        ("one + 'x' < 3", "'x' is text"),
        ("one + d < 3", "the category 'red' of 'd' is no number"),
        ("one + three < 3", "the domain has no attribute 'three'"),
        ("one + 1e400 < two", "reasonable length"),
        ("one / two < 1", "divides by 0"),
        ("one / two < 1 AND two > 0", "no whole number in every combination"),
        ("(one - two) % 2 = 0", "rest is taken of whole numbers that are not negative"),
        ("one + (SELECT 1) < two", "is not computed"),
        ("one + CASE WHEN two = 1 THEN 1 END < 2", "is not computed"),
        ("ABS(one, two) < 2|ABS() < one", "does not parse|not computed"),
        ("SQRT(one) < two", "`SQRT\\(one\\)` is not a literal"),
        ("one < two = six", "`one < two` is not a literal"),
        ("one + two > 200", "always 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(where: str, why: str) -> None:
    for condition in where.split("|"):
        with pytest.raises(InvalidArgument, match=why):
            counted(condition, CODED)


def test_conditions_of_too_many_products_are_refused() -> None:
    with pytest.raises(Unsupported, match="split it into several tables"):
        counted("one + two + six <= 90", CODED)


def test_several_counts_are_the_rows_of_one_table() -> None:
    sql = (
        "SELECT lives, COUNT(*) FILTER (WHERE age < 5) AS small, COUNT(*) FILTER (WHERE age + 10 * paid >= 12), "
        "COUNT(*) FILTER (WHERE paid = 0.3 OR age > 20) AS other FROM people "
        "WHERE born <> 'Oslo' AND lives IN ('Bonn', 'Bern') AND price <> '-1' AND age <> 7 GROUP BY lives"
    )
    sql = sql.replace("paid = 0.3", "paid = '0.3'")
    table = table_from_sql(DOMAIN, "t", sql)
    assert table.columns(DOMAIN) == {
        "lives": ("Bonn", "Bern"),
        "condition": ("small", "age + 10 * paid >= 12", "other"),
    }
    tests = {
        "small": lambda r: int(r["age"]) < 5,
        "sum": lambda r: int(r["age"]) + 10 * Fraction(r["paid"]) >= 12,
        "other": lambda r: r["paid"] == "0.3" or int(r["age"]) > 20,
    }
    rows = table.operator(DOMAIN).dense()
    for row, (city, holds) in zip(rows, itertools.product(["Bonn", "Bern"], tests.values()), strict=True):
        expected = cells(
            DOMAIN,
            lambda r, c=city, h=holds: (
                r["lives"] == c and r["born"] != "Oslo" and r["price"] != "-1" and r["age"] != "7" and h(r)
            ),
        )
        assert np.array_equal(row, expected)


def test_a_single_filter_is_a_condition_and_counts_of_one_attribute_are_its_rows() -> None:
    one = table_from_sql(DOMAIN, "t", "SELECT COUNT(*) FILTER (WHERE age < 5) FROM people WHERE born = lives")
    assert np.array_equal(one.operator(DOMAIN).dense()[0], counted("age < 5 AND born = lives"))
    two = table_from_sql(
        DOMAIN, "t", "SELECT COUNT(*) FILTER (WHERE age < 5), COUNT(*) FILTER (WHERE age < 9) FROM people"
    )
    assert np.array_equal(two.operator(DOMAIN).dense(), [counted("age < 5"), counted("age < 9")])
    assert len(two.terms) == 1


@each(
    "counts, why",
    [
        ("COUNT(*) FILTER (WHERE age < 5), COUNT(*)", "2 times COUNT"),
        (
            "COUNT(*) FILTER (WHERE age < 5), COUNT(*) FILTER (WHERE age < 5)",
            "two counts are called 'age < 5'",
        ),
        ("COUNT(*) FILTER (WHERE age < 5) AS x, COUNT(*) FILTER (WHERE age < 0) AS y", "'y' counts no cell"),
        (
            "COUNT(*) FILTER (WHERE age < 5 AND born = 'Rome'), COUNT(*) FILTER (WHERE lives = 'Rome' OR paid = '0.1')",
            "4 attributes",
        ),
        ("born, COUNT(*) FILTER (WHERE age < 5), COUNT(*) FILTER (WHERE born = lives)", "group by others"),
        ("SUM(age) FILTER (WHERE age < 5)", "grouped columns and COUNT"),
    ],
)
def test_counts_that_make_no_table_are_refused(counts: str, why: str) -> None:
    group = " GROUP BY born" if counts.startswith("born") else ""
    with pytest.raises(InvalidArgument, match=why):
        table_from_sql(DOMAIN, "t", f"SELECT {counts} FROM people{group}")
