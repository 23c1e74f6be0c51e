"""Derived figures from SQL: what a statement means, against DuckDB over the records themselves, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain import Attribute, Domain, Recode
from tabulae.domain.figure import Figure, Linear
from tabulae.domain.figure_sql import MOST_PARTS, figure_from_sql
from tabulae.errors import InvalidArgument, TabulaeError, Unsupported

AGES = range(3, 9)
DOMAIN = Domain({"sex": ["F", "M"], "age": AGES, "race": ["x", "y", "z"]})
DOMAIN = DOMAIN.with_recodes(Recode.from_edges("old", DOMAIN["age"], [6]))
CELLS = list(product(DOMAIN["sex"].labels, AGES, DOMAIN["race"].labels))


def exact_value(figure: Figure, domain: Domain, x: np.ndarray) -> np.ndarray:
    """The figure of counts without noise, straight from its definition."""

    def of(linear: Linear) -> np.ndarray:
        if linear.table is None:
            return np.full(figure.rows, float(linear.constant))
        return float(linear.scale) * (linear.table.operator(domain) @ x) + float(linear.constant)

    total = of(figure.linear) if figure.linear.table else np.full(figure.rows, float(figure.linear.constant))
    with np.errstate(divide="ignore", invalid="ignore"):
        for ratio in figure.ratios:
            total = total + of(ratio.numerator) / of(ratio.denominator)
        for variance in figure.variances:
            square, first, count = map(of, variance.linears)
            total = total + float(variance.coefficient) * (square / count - (first / count) ** 2)
    for quantile in figure.quantiles:
        counts = quantile.table.row_counts(domain)
        t = (quantile.table.operator(domain) @ x).reshape(tuple(counts.values()))
        t = np.moveaxis(t, list(counts).index(quantile.attribute), -1).reshape(figure.rows, -1)
        values = np.array(quantile.values)[(t >= 0).argmax(axis=1)].astype(float)
        if quantile.between:
            share = quantile.share
            every = t[:, -1:] / float((1 - share) * share.denominator)
            up_to = np.rint(t / share.denominator + every * float(share)).astype(int)
            people = [np.repeat(quantile.values, np.diff(row, prepend=0)) for row in up_to]
            values = np.array([np.quantile(p, float(share)) if p.size else np.nan for p in people])
        total = total + float(quantile.coefficient) * np.where(t[:, -1] > 0, values, np.nan)
    return total


def in_duckdb(sql: str, x: np.ndarray, headings: list[str]) -> dict[tuple[str, ...], float]:
    """What DuckDB answers over a record for each person."""
    people = [cell for cell, count in zip(CELLS, x, strict=True) for _ in range(int(count))]
    records = pa.table({n: [p[i] for p in people] for i, n in enumerate(("sex", "age", "race"))})
    with duckdb.connect() as connection:
        connection.register("people", records)
        connection.sql(
            "CREATE VIEW t AS SELECT *, CASE WHEN age < 6 THEN '3-5' ELSE '6-8' END AS old FROM people"
        )
        # Its MEDIAN is the mean of the two values in the middle; the one of tabulae is its QUANTILE_DISC.
        rows = connection.sql(sql.replace("MEDIAN(age)", "QUANTILE_DISC(age, 0.5)")).fetchall()
    found = {}
    for row in rows:
        value = math.nan if row[-1] is None else float(row[-1])
        found[tuple(str(part) for part in row[:-1])] = value
    assert len(headings) == len(rows[0]) - 1 if rows else True
    return found


CONDITIONS = st.sampled_from(
    [
        "age < 5",
        "age BETWEEN 4 AND 7",
        "sex = 'F'",
        "sex = 'F' OR age > 6",
        "race IN ('x', 'z')",
        "NOT race = 'y'",
    ]
)
COUNTS = st.one_of(
    st.just("COUNT(*)"),
    st.builds("COUNT(*) FILTER (WHERE {})".format, CONDITIONS),
    st.just("SUM(age)"),
    st.just("SUM(age * age)"),
    st.builds("SUM(age) FILTER (WHERE {})".format, CONDITIONS),
)
LINEAR = st.recursive(
    COUNTS,
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} - 3 * {})".format, inner, inner),
        st.builds("(0.5 * {} + 7)".format, inner),
        st.builds("-({}) / 4".format, inner),
    ),
    max_leaves=4,
)
RATIOS = st.one_of(
    st.builds("100.0 * ({}) / {}".format, LINEAR, COUNTS),
    st.just("AVG(age)"),
    st.just("AVG(age * age)"),
    st.builds("VAR_POP(age) FILTER (WHERE {})".format, CONDITIONS),
    st.builds("2 * {} - VAR_POP(age)".format, COUNTS),
    st.builds("AVG(age) FILTER (WHERE {})".format, CONDITIONS),
    st.just("100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()"),
    st.builds("SUM(COUNT(*) FILTER (WHERE {})) OVER () / COUNT(*)".format, CONDITIONS),
)
QUANTILES = st.one_of(
    st.just("MEDIAN(age)"),
    st.builds("QUANTILE_DISC(age, {})".format, st.sampled_from(["0.1", "0.25", "0.5", "0.9", "0.333"])),
    st.just("PERCENTILE_DISC(0.75) WITHIN GROUP (ORDER BY age)"),
    st.builds(
        "PERCENTILE_CONT({}) WITHIN GROUP (ORDER BY age)".format, st.sampled_from(["0.5", "0.9", "0.25"])
    ),
    st.just("QUANTILE_CONT(age, 0.333)"),
    st.builds("QUANTILE_DISC(age, 0.4) FILTER (WHERE {})".format, CONDITIONS),
)
FIGURES = st.one_of(
    LINEAR,
    RATIOS,
    QUANTILES,
    st.builds("{} - {}".format, RATIOS, RATIOS),
    st.builds("2 * {} + {}".format, QUANTILES, RATIOS),
)
GROUPINGS = st.sampled_from([[], ["sex"], ["race", "sex"], ["race"]])


@given(
    expression=FIGURES,
    groups=GROUPINGS,
    where=st.one_of(st.none(), CONDITIONS),
    counts=st.lists(st.integers(0, 3), min_size=len(CELLS), max_size=len(CELLS)),
)
def test_a_figure_is_what_duckdb_answers(
    expression: str, groups: list[str], where: str | None, counts: list[int]
) -> None:
    x = np.array(counts, dtype=float)
    sql = f"SELECT {', '.join([*groups, expression])} FROM t"
    sql += f" WHERE {where}" if where else ""
    sql += f" GROUP BY {', '.join(groups)}" if groups else ""
    try:
        figure = figure_from_sql(DOMAIN, "f", sql)
    except InvalidArgument as error:
        assert any(w in str(error) for w in ("the same whatever", "by itself", "always 0", "divides by 0"))  # noqa: PT017
        return
    told = in_duckdb(sql, x, groups)
    ours = exact_value(figure, DOMAIN, x)
    labels = list(product(*figure.headings.values()))
    order = [list(figure.headings).index(name) for name in groups]
    assert len(labels) == figure.rows
    for label, value in zip(labels, ours, strict=True):
        asked = tuple(label[i] for i in order)
        if asked in told and math.isfinite(told[asked]):
            assert value == pytest.approx(told[asked], rel=1e-9, abs=1e-9)
        elif asked in told:  # no records to divide by: DuckDB answers NULL
            assert not math.isfinite(value) or "SUM(age)" in sql


def test_shares_within_a_column() -> None:
    sql = "SELECT sex, race, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex) FROM t WHERE age > 4 GROUP BY sex, race"
    x = np.arange(len(CELLS), dtype=float)
    figure = figure_from_sql(DOMAIN, "f", sql)
    ours = exact_value(figure, DOMAIN, x).reshape(2, 3)
    np.testing.assert_allclose(ours.sum(axis=1), 1.0)
    told = in_duckdb(sql, x, ["sex", "race"])
    for label, value in zip(product(*figure.headings.values()), ours.ravel(), strict=True):
        assert value == pytest.approx(told[label])


def test_a_mean_within_classes_of_its_own_attribute() -> None:
    figure = figure_from_sql(DOMAIN, "f", "SELECT old, AVG(age) FROM t GROUP BY old")
    np.testing.assert_allclose(exact_value(figure, DOMAIN, np.ones(len(CELLS))), [4.0, 7.0])


def test_ratios_of_one_denominator_are_one() -> None:
    sql = "SELECT COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*) - COUNT(*) FILTER (WHERE sex = 'M') / COUNT(*) FROM t"
    figure = figure_from_sql(DOMAIN, "f", sql)
    assert (len(figure.ratios), figure.linear.table) == (1, None)
    twice = "SELECT AVG(age) - AVG(age) + COUNT(*) FROM t"
    assert figure_from_sql(DOMAIN, "f", twice).count is not None


def test_the_extra_category_has_no_value_but_may_be_left_out() -> None:
    extra = -(2**63)
    age = Attribute("age", ("0", "1", "2", "other"), values=(0, 1, 2, extra))
    domain = Domain({"age": age})
    with pytest.raises(InvalidArgument, match="'other' of 'age' has no value: leave it out, with WHERE"):
        figure_from_sql(domain, "f", "SELECT MEDIAN(age) FROM t")
    sql = "SELECT AVG(age) FROM t WHERE age <> 'other'"
    figure = figure_from_sql(domain, "f", sql)
    assert exact_value(figure, domain, np.array([1.0, 1, 2, 50])).tolist() == [1.25]
    median = figure_from_sql(domain, "f", "SELECT MEDIAN(age) FROM t WHERE age <> 'other'")
    assert exact_value(median, domain, np.array([1.0, 1, 2, 50])).tolist() == [1.0]


@each(
    ("expression", "words"),
    [
        ("COUNT(*) / 0", "divides by 0"),
        ("COUNT(*) / (1 - 1)", "divides by 0"),
        ("COUNT(*) / COUNT(*)", "1 whatever"),
        ("COUNT(*) * COUNT(*)", "one side of . must be a number"),
        ("AVG(age) * AVG(age)", "one side of . must be a number"),
        ("1 / AVG(age)", "divides by a ratio"),
        ("AVG(age) / COUNT(*)", "divides a ratio"),
        ("MEDIAN(age) / 0", "divides by 0"),
        ("COUNT(*) / MEDIAN(age)", "divides by a ratio, a mean or a quantile"),
        ("AVG(COUNT(*))", "aggregates do not nest"),
        ("SUM(COUNT(*))", "aggregates do not nest"),
        ("MEDIAN(AVG(age))", "aggregates do not nest"),
        ("AVG(height)", "no attribute 'height'"),
        ("AVG(sex)", "are not numbers: count them"),
        ("MEDIAN(race)", "are not numbers"),
        ("SUM(old)", "the classes of the recode 'old' are not numbers: use 'age'"),
        ("COUNT(age)", "records are counted by COUNT"),
        ("COUNT(DISTINCT age)", "records are counted by COUNT"),
        ("MAX(age)", "none of the parts of a figure"),
        ("COUNT(*) // 2", "none of the parts"),
        ("COUNT(*) % 2", "none of the parts"),
        ("CASE WHEN COUNT(*) > 2 THEN 1 END", "none of the parts"),
        ("CAST(COUNT(*) AS DOUBLE)", "none of the parts"),
        ("3", "the same whatever is counted"),
        ("COUNT(*) - COUNT(*)", "the same whatever is counted"),
        ("0 * COUNT(*)", "the same whatever is counted"),
        ("'a'", "none of the parts"),
        ("COUNT(*) + 'a'", "none of the parts"),
        ("COUNT(*) FILTER (WHERE age > 99)", "always 0"),
        ("COUNT(*) / COUNT(*) FILTER (WHERE age > 99)", "always 0"),
        ("COUNT(*) FILTER (WHERE height > 2)", "no attribute 'height'"),
        ("QUANTILE(age, 1.5)", "between 0 and 1"),
        ("QUANTILE(age, 0)", "between 0 and 1"),
        ("QUANTILE(age, 0.12345678)", "at most 6 decimals"),
        ("QUANTILE(age, [0.1, 0.2])", "between 0 and 1"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY sex)", "are not numbers"),
        ("QUANTILE_CONT(age, 1.5)", "between 0 and 1"),
        ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age DESC)", "rising"),
        ("COUNT(*) OVER ()", r"SUM\(COUNT\(\*\)\) OVER"),
        ("COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY race)", "'race' is not one"),
        ("COUNT(*) / SUM(COUNT(*)) OVER (ORDER BY sex)", "OVER sums counts over groups"),
        ("age", "must name the same columns|figures"),
        ("sex + 1", "a column is selected only"),
        ("COUNT(*), COUNT(*)", "2 figures, and one is needed"),
        ("1e999 * COUNT(*)", "reasonable length"),
    ],
)
def test_what_is_no_figure_is_refused_with_what_to_do(expression: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        figure_from_sql(DOMAIN, "f", f"SELECT {expression} FROM t")


@each(
    "sql",
    [
        "SELECT AVG(age) FROM t HAVING COUNT(*) > 3",
        "SELECT AVG(age) FROM t ORDER BY 1",
        "SELECT AVG(age) FROM t LIMIT 3",
        "SELECT DISTINCT AVG(age) FROM t",
        "SELECT AVG(age) FROM t, u",
        "SELECT AVG(age) FROM (SELECT * FROM t)",
        "SELECT AVG(age) FROM t; SELECT AVG(age) FROM t",
        "SELECT sex, AVG(age) FROM t",
        "SELECT AVG(age) FROM t GROUP BY sex",
        "SELECT age, MEDIAN(age) FROM t GROUP BY age",
        "SELECT old, MEDIAN(age) FROM t GROUP BY old",
        "DROP TABLE t",
        "AVG(age)",
        "",
        ";",
        "SELECT",
        "SELECT (((",
        "SELECT " + "-" * 5000 + "COUNT(*) FROM t",
        "SELECT " + "(" * 3000 + "COUNT(*)" + ")" * 3000 + " FROM t",
        "SELECT " + "+".join(["COUNT(*)"] * 4000) + " FROM t",
    ],
)
def test_statements_of_another_shape_are_refused(sql: str) -> None:
    try:
        figure_from_sql(DOMAIN, "f", sql)
    except TabulaeError as error:
        assert str(error)  # noqa: PT017
    else:
        assert "+COUNT" in sql  # a long sum is a sum


def test_too_many_parts_and_too_large_matrices_are_refused() -> None:
    many = " + ".join(f"AVG(age) FILTER (WHERE age > {i})" for i in (3, 4, 5, 6, 7))
    many += " + " + " + ".join(f"AVG(age) FILTER (WHERE age < {i})" for i in (5, 6, 7, 8))
    with pytest.raises(InvalidArgument, match=f"more than {MOST_PARTS}: split it"):
        figure_from_sql(DOMAIN, "f", f"SELECT {many} FROM t")
    wide = Domain({"age": range(10_000)})
    with pytest.raises(Unsupported, match="too large to be written out"):
        figure_from_sql(wide, "f", "SELECT MEDIAN(age) FROM t")


def test_the_numbers_are_kept_exactly() -> None:
    figure = figure_from_sql(DOMAIN, "f", "SELECT 0.1 * COUNT(*) + 0.2 * COUNT(*) FROM t")
    assert figure.linear.scale == Fraction(3, 10)
