"""SQL: the matrix of a statement equals a plain evaluator's on every cell, and DuckDB's on records."""

from __future__ import annotations

import itertools
import operator as op
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain import Domain, Recode, Workload
from tabulae.domain.sql import table_from_sql
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Identity, Partition

Record = dict[str, Any]

PLAIN = Domain({"sex": ["F", "M", "it's"], "age": range(7), "race": [30, 10, 20], "t": range(-2, 2)})
DOMAIN = PLAIN.with_recodes(
    Recode.from_edges("grown", PLAIN["age"], [2, 5]),
    Recode.from_map("major", PLAIN["race"], {30: "large", 10: "small", 20: "small"}),
)
GROUPABLE = ("sex", "age", "race", "t", "grown", "major")


def records() -> Iterator[Record]:
    """Every cell of the domain as a record, in C order, with its recodes."""
    grown, major = DOMAIN.recodes
    for codes in itertools.product(*(range(n) for n in DOMAIN.shape)):
        record = {a.name: a.values[code] for a, code in zip(DOMAIN.attributes, codes, strict=True)}
        record["grown"] = grown.labels[grown.classes[codes[1]]]
        record["major"] = major.labels[major.classes[codes[2]]]
        yield record


CELLS = list(records())


class Condition(NamedTuple):
    """SQL text, what it means, and how tightly it binds (3 atom, 2 NOT, 1 AND, 0 OR)."""

    sql: str
    holds: Callable[[Record], bool]
    binding: int

    def within(self, binding: int) -> str:
        return self.sql if self.binding > binding else f"({self.sql})"


def quoted(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


COMPARE = {"=": op.eq, "<>": op.ne, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


@st.composite
def atoms(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(GROUPABLE))
    values = sorted({record[name] for record in CELLS})
    spelling = draw(st.sampled_from([name, name.upper(), f'"{name}"', f"people.{name}"]))
    members = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    negated = draw(st.sampled_from(["", "NOT "]))
    kind = draw(st.sampled_from(["compare", "in", "between"] if name in ("age", "t") else ["equal", "in"]))
    if kind == "in":
        listed = ", ".join(map(quoted, members))
        return Condition(
            f"{spelling} {negated}IN ({listed})", lambda r: (r[name] in members) is (negated == ""), 3
        )
    if kind == "between":
        low, high = draw(st.integers(-4, 9)), draw(st.integers(-4, 9))
        return Condition(
            f"{spelling} {negated}BETWEEN {low} AND {high}",
            lambda r: (low <= r[name] <= high) is (negated == ""),
            3,
        )
    sign = draw(st.sampled_from(list(COMPARE) if kind == "compare" else ["=", "<>", "!="]))
    value = members[0]
    if sign in ("<", "<=", ">", ">="):
        value = draw(st.integers(-8, 18)) / 2
    compare = COMPARE[sign]
    literal = quoted(value) if isinstance(value, (int, str)) else str(value)
    if draw(st.booleans()):
        return Condition(f"{spelling} {sign} {literal}", lambda r: compare(r[name], value), 3)
    return Condition(f"{literal} {sign} {spelling}", lambda r: compare(value, r[name]), 3)


class Amount(NamedTuple):
    """An arithmetic expression, and what it comes to."""

    sql: str
    of: Callable[[Record], Fraction]


def amounts() -> st.SearchStrategy[Amount]:
    columns = st.sampled_from(["age", "t", "race"]).map(
        lambda name: Amount(name, lambda r: Fraction(r[name]))
    )
    literals = st.sampled_from(["2", "0.5", "-1", "10"]).map(lambda v: Amount(v, lambda r: Fraction(v)))

    def signed(sign: str) -> Callable[[tuple[Amount, Amount]], Amount]:
        compute = {"+": op.add, "-": op.sub, "*": op.mul}[sign]
        return lambda sides: Amount(
            f"({sides[0].sql} {sign} {sides[1].sql})", lambda r: compute(sides[0].of(r), sides[1].of(r))
        )

    def grown(inner: st.SearchStrategy[Amount]) -> st.SearchStrategy[Amount]:
        both = st.tuples(inner, inner)
        return st.one_of(
            *(both.map(signed(sign)) for sign in "+-*"),
            inner.map(lambda a: Amount(f"ABS({a.sql})", lambda r: abs(a.of(r)))),
            inner.map(lambda a: Amount(f"-({a.sql})", lambda r: -a.of(r))),
        )

    return st.recursive(st.one_of(columns, columns, literals), grown, max_leaves=4)


@st.composite
def relations(draw: st.DrawFn) -> Condition:
    """A comparison of attributes with one another, or of what is computed from them."""
    column = Amount("age", lambda r: Fraction(r["age"]))
    left, right, third = (draw(amounts()) for _ in range(3))
    left = Amount(f"{left.sql} + age", lambda r, a=left: a.of(r) + column.of(r))
    kind = draw(st.sampled_from(["compare", "compare", "between", "in"]))
    if kind == "between":
        return Condition(
            f"{left.sql} BETWEEN {right.sql} AND {third.sql}",
            lambda r: right.of(r) <= left.of(r) <= third.of(r),
            3,
        )
    if kind == "in":
        return Condition(
            f"{left.sql} IN ({right.sql}, {third.sql})", lambda r: left.of(r) in (right.of(r), third.of(r)), 3
        )
    sign = draw(st.sampled_from(list(COMPARE)))
    return Condition(f"{left.sql} {sign} {right.sql}", lambda r: COMPARE[sign](left.of(r), right.of(r)), 3)


def joined(word: str, binding: int, parts: list[Condition]) -> Condition:
    combine = all if word == "AND" else any
    return Condition(
        f" {word} ".join(part.within(binding) for part in parts),
        lambda r: combine(part.holds(r) for part in parts),
        binding,
    )


def conditions() -> st.SearchStrategy[Condition]:
    truths = st.sampled_from([Condition("TRUE", lambda r: True, 3), Condition("false", lambda r: False, 3)])
    return st.recursive(
        st.one_of(*[atoms()] * 6, *[relations()] * 2, truths),
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined("AND", 1, parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: joined("OR", 0, parts)),
            inner.map(lambda c: Condition(f"NOT {c.within(2)}", lambda r: not c.holds(r), 2)),
        ),
        max_leaves=8,
    )


@st.composite
def statements(draw: st.DrawFn) -> tuple[str, Condition, list[str]]:
    chosen = draw(
        st.lists(st.sampled_from([("sex",), ("age", "grown"), ("race", "major"), ("t",)]), unique=True)
    )
    groups = [draw(st.sampled_from(views)) for views in chosen]
    condition = draw(conditions())
    selected = [*groups, draw(st.sampled_from(["COUNT(*)", "count(*) AS n"]))]
    sql = f"SELECT {', '.join(draw(st.permutations(selected)))} FROM people WHERE {condition.sql}"
    return sql + (f" GROUP BY {', '.join(groups)}" if groups else ""), condition, groups


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[duckdb.DuckDBPyConnection, np.ndarray]]:
    """Records in DuckDB, and the same counted by cell."""
    counts = np.random.default_rng(5).integers(0, 4, size=DOMAIN.size)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people (sex VARCHAR, age INT, race INT, t INT, grown VARCHAR, major VARCHAR)"
    )
    rows = [[record[name] for name in ("sex", "age", "race", "t", "grown", "major")] for record in CELLS]
    connection.executemany(
        "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", np.repeat(np.array(rows, object), counts, 0).tolist()
    )
    yield connection, counts
    connection.close()


def base(name: str) -> str:
    return DOMAIN.resolve(name).attribute.name


@given(statements())
def test_statements_mean_what_they_say(
    people: tuple[duckdb.DuckDBPyConnection, np.ndarray], statement: tuple[str, Condition, list[str]]
) -> None:
    sql, condition, groups = statement
    connection, counts = people
    holds = [condition.holds(record) for record in CELLS]
    if not any(holds):
        with pytest.raises(InvalidArgument, match="the count is always 0"):
            table_from_sql(DOMAIN, "q", sql)
        return
    table = table_from_sql(DOMAIN, "q", sql)
    columns = table.columns(DOMAIN)
    assert list(columns) == sorted(groups, key=lambda name: DOMAIN.axis(base(name)))
    keys = list(itertools.product(*columns.values()))
    assert len(keys) == table.rows(DOMAIN)

    expected = np.zeros((len(keys), DOMAIN.size), dtype=int)
    for cell, record in enumerate(CELLS):
        if holds[cell]:
            expected[keys.index(tuple(str(record[name]) for name in columns)), cell] = 1
    matrix = table.operator(DOMAIN).dense()
    assert np.array_equal(matrix, expected)
    # Categories that the condition rules out have no row; all others have.
    for name, labels in columns.items():
        possible = {str(record[name]) for record, true in zip(CELLS, holds, strict=True) if true}
        assert labels == tuple(label for label in DOMAIN.resolve(name).labels if label in possible)

    listed = f"{', '.join([*columns, 'COUNT(*)'])} FROM people {sql[sql.index('WHERE') :]}"
    answers = {
        tuple(map(str, row[:-1])): row[-1] for row in connection.execute(f"SELECT {listed}").fetchall()
    }
    assert set(answers) <= set(keys)
    assert [answers.get(key, 0) for key in keys] == (matrix @ counts).tolist()


@each("sign", COMPARE)
@each("side", ["{name} {sign} {value}", "{value} {sign} {name}"])
def test_every_comparison_at_every_bound(sign: str, side: str) -> None:
    domain = Domain({"a": range(-1, 4, 2)})
    halves = np.arange(-4, 9) / 2
    for value in halves if sign[0] in "<>" and sign != "<>" else [-1, 1, 3]:
        compare = COMPARE[sign] if side.startswith("{name}") else lambda a, v: COMPARE[sign](v, a)
        expected = [bool(compare(a, value)) for a in domain["a"].values]
        clause = side.format(name="a", sign=sign, value=value)
        if any(expected):
            table = table_from_sql(domain, "q", f"SELECT COUNT(*) FROM t WHERE {clause}")
            assert table.operator(domain).dense().tolist() == [[int(e) for e in expected]], clause
        else:
            with pytest.raises(InvalidArgument, match="always 0"):
                table_from_sql(domain, "q", f"SELECT COUNT(*) FROM t WHERE {clause}")


def test_statements_become_q1_q2() -> None:
    workload = Workload.from_sql(
        PLAIN, "SELECT COUNT(*) FROM t;; SELECT t, sex, COUNT(*) FROM t GROUP BY t, sex;"
    )
    assert [table.name for table in workload.tables] == ["q1", "q2"]
    assert workload.tables[0].terms[0].factors == {}
    assert workload.tables[1].terms[0].factors == {"sex": Identity(3), "t": Identity(4)}
    assert workload.queries == 13


def test_the_disjunction_of_the_interface() -> None:
    domain = Domain({"sex": ["F", "M"], "age": range(115), "race": 64})
    sql = "SELECT sex, COUNT(*) FROM t WHERE age < 5 OR race = 3 GROUP BY sex"
    table = Workload.from_sql(domain, sql).tables[0]
    x = np.random.default_rng(1).integers(0, 9, size=domain.shape)
    asked = np.zeros(domain.shape, dtype=bool)
    asked[:, :5] = True
    asked[:, :, 3] = True
    assert len(table.terms) == 2
    assert table.columns(domain) == {"sex": ("F", "M")}
    assert np.array_equal(table.operator(domain) @ x.ravel(), (x * asked).sum(axis=(1, 2)))


def test_a_weight_and_an_unrestricted_group_keep_plain_matrices() -> None:
    table = table_from_sql(DOMAIN, "w", "SELECT grown, COUNT(*) FROM t WHERE sex = 'F' GROUP BY grown", "1/2")
    assert table.weight * 2 == 1
    assert table.terms[0].factors == {
        "age": DOMAIN.resolve("grown").operator,
        "sex": Partition([0, -1, -1], 1),
    }


def test_a_domain_beyond_memory_is_no_obstacle() -> None:
    domain = Domain({f"a{k}": 1000 for k in range(20)})
    clause = " OR ".join(f"a{k} < 10" for k in range(20))
    table = table_from_sql(domain, "q", f"SELECT a0, COUNT(*) FROM t WHERE {clause} GROUP BY a0")
    assert [term.coefficient for term in table.terms] == [1, -1]
    assert table.rows(domain) == 1000


def test_long_lists_of_alternatives_on_one_attribute_are_one_product() -> None:
    domain = Domain({"code": 5000})
    clause = " OR ".join(f"code = {k}" for k in range(0, 4000, 2))
    (term,) = table_from_sql(domain, "q", f"SELECT COUNT(*) FROM t WHERE {clause}").terms
    assert int(term.factors["code"].column_norms(1).sum()) == 2000


REFUSED = {
    # statements
    "SELEC COUNT(*) FROM t": "does not parse",
    "SELECT COUNT(*) FROM t WHERE": "something is missing",
    "SELECT COUNT(*) FROM t WHERE sex = 'F": "does not parse",
    "SELECT COUNT(*)": "FROM is missing",
    "DROP TABLE t": "not a single SELECT",
    "SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM s": "not a single SELECT",
    "WITH s AS (SELECT 1) SELECT COUNT(*) FROM s": "`WITH s AS",
    "SELECT DISTINCT COUNT(*) FROM t": "DISTINCT is not part",
    "SELECT COUNT(*) FROM t LIMIT 1": "`LIMIT 1`",
    "SELECT COUNT(*) FROM t ORDER BY 1": "`ORDER BY 1`",
    "SELECT COUNT(*) FROM t HAVING COUNT(*) > 1": r"`HAVING COUNT\(\*\) > 1`",
    "SELECT COUNT(*) FROM t QUALIFY TRUE": "`QUALIFY TRUE`",
    # FROM
    "SELECT COUNT(*) FROM t, s": "JOINS is not part",
    "SELECT COUNT(*) FROM t JOIN s ON TRUE": "`JOIN s ON TRUE`",
    "SELECT COUNT(*) FROM (SELECT * FROM t)": "the name of one table",
    "SELECT COUNT(*) FROM t TABLESAMPLE 10 PERCENT": "TABLESAMPLE",
    "SELECT COUNT(*) FROM t USING SAMPLE 10": "SAMPLE is not part",
    "SELECT COUNT(*) FROM read_csv('x.csv')": "the name of one table",
    "SELECT COUNT(*) FROM t AS u(sex, age)": "cannot be renamed",
    # SELECT and GROUP BY
    "SELECT * FROM t": "grouped columns and COUNT",
    "SELECT sex FROM t GROUP BY sex": "0 times COUNT",
    "SELECT COUNT(*), COUNT(*) FROM t": "2 times COUNT",
    "SELECT COUNT(1) FROM t": "only aggregate is COUNT",
    "SELECT COUNT(sex) FROM t": "only aggregate is COUNT",
    "SELECT COUNT(DISTINCT sex) FROM t": r"`COUNT\(DISTINCT sex\)`: the only aggregate",
    "SELECT COUNT(* EXCLUDE (sex)) FROM t": "only aggregate is COUNT",
    "SELECT COUNT(*) OVER () FROM t": "nothing else",
    "SELECT 2 * COUNT(*) FROM t": "nothing else",
    "SELECT SUM(age) FROM t": r"`SUM\(age\)`: .* nothing else",
    "SELECT sex, COUNT(*) FROM t": "must name the same columns",
    "SELECT COUNT(*) FROM t GROUP BY sex": "must name the same columns",
    "SELECT sex, sex, COUNT(*) FROM t GROUP BY sex": "must name the same columns",
    "SELECT sex AS s, COUNT(*) FROM t GROUP BY sex": "leave out AS",
    "SELECT sex, COUNT(*) FROM t GROUP BY 1": "`1` is not one",
    "SELECT sex, COUNT(*) FROM t GROUP BY ALL": "names of columns",
    "SELECT sex, COUNT(*) FROM t GROUP BY ROLLUP (sex)": "names of columns",
    "SELECT sex, age, COUNT(*) FROM t GROUP BY GROUPING SETS ((sex), (age))": "names of columns",
    "SELECT sex, COUNT(*) FROM t GROUP BY sex, sex": "named twice",
    "SELECT age, grown, COUNT(*) FROM t GROUP BY age, grown": "two views of 'age'",
    "SELECT sxe, COUNT(*) FROM t GROUP BY sxe": "did you mean 'sex'",
}


@each("sql", REFUSED)
def test_statements_that_cannot_be_expressed_are_refused(sql: str) -> None:
    with pytest.raises(InvalidArgument, match=REFUSED[sql]):
        table_from_sql(DOMAIN, "q", sql)


REFUSED_CONDITIONS = {
    "ages < 5": "did you mean 'age'",
    "other.age < 5": "qualified by another name",
    "age < sex": "the category 'F' of 'sex' is no number",
    'sex = "F"': "strings take single quotes",
    "age + sex < 5": "the category 'F' of 'sex' is no number: leave it out",
    "age + grown < 5": "the category '0-1' of 'grown' is no number",
    "sex < major": "the category 'F' of 'sex' is no number",
    "1 + 1 = 2": "compares no attribute",
    "age + 1 < '5'": "'5' is text",
    "age + POWER(t, 2) < 5": "`POWER\\(t, 2\\)` is not computed: arithmetic is",
    "age + 1 < NULL": "is not computed",
    "age / t < 1": "divides by 0",
    "age / 2 < 1": "no whole number in every combination",
    "t % 2 = 0": "whole numbers that are not negative",
    "age % 0.5 = 0": "whole numbers that are not negative",
    "age + t * sex_ < 1": "did you mean 'sex'",
    "CAST(age AS INT) < 5": "plain name of an attribute",
    "age < CAST('5' AS INT)": "is not a literal",
    "1 = 1": "plain name of an attribute",
    "age": "not a comparison",
    "sex LIKE 'F%'": "`sex LIKE 'F%'`: it is not a comparison",
    "sex IS NULL": "the domain has no NULLs",
    "sex IS NOT NULL": "the domain has no NULLs",
    "sex = NULL": "the domain has no NULLs",
    "sex IN ('F', NULL)": "the domain has no NULLs",
    "age IS DISTINCT FROM 3": "not a comparison",
    "sex IN (SELECT 'F')": "a list of literals",
    "age IN ()": "a list of literals",
    "EXISTS (SELECT 1)": "not a comparison",
    "CASE WHEN age < 5 THEN TRUE END": "not a comparison",
    "(age, sex) = (1, 'F')": "plain name of an attribute",
    "age = ?": "is not a literal",
    "sex = TRUE": "`sex = TRUE`: truth values are categories, .* write 'true'",
    "sex IN ('F', false)": "write 'false'",
    "sex = 'f'": "'f' is not a category of 'sex'; its categories are 'F', 'M'",
    "sex = 'its'": 'did you mean "it\'s"',
    "sex = 1": "take single quotes",
    "race = 40": "40 is not a category of 'race'",
    "race IN (10, 11)": "11 is not a category of 'race'",
    "age = 2.5": "2.5 is not a category of 'age'",
    "age = 7": "its 7 categories run from 0 to 6",
    "major = 'larg'": "did you mean 'large'",
    "sex < 'M'": "`sex < 'M'`: the categories of 'sex' have no order",
    "race > 10": "the categories of 'race' have no order",
    "race BETWEEN 10 AND 20": "the categories of 'race' have no order",
    "grown < '2-4'": "compare 'age' instead",
    "age < '5'": "compare it with a number",
    "sex BETWEEN age AND 9": "the category 'F' of 'sex' is no number",
    "age BETWEEN SYMMETRIC 5 AND 1": "lower one first",
    "age < 1e999": "reasonable length",
    "age < 0": "the count is always 0",
    "sex = 'F' AND sex = 'M'": "`sex = 'F' AND sex = 'M'`, so the count is always 0",
}


@each("condition", REFUSED_CONDITIONS)
def test_conditions_that_cannot_be_expressed_are_refused(condition: str) -> None:
    # Beside a condition that is true anyway: a refusal must not depend on whether the clause matters.
    with pytest.raises(InvalidArgument, match=REFUSED_CONDITIONS[condition]):
        table_from_sql(DOMAIN, "q", f"SELECT COUNT(*) FROM people WHERE {condition}")
    if "always 0" not in REFUSED_CONDITIONS[condition]:
        with pytest.raises(InvalidArgument):
            table_from_sql(DOMAIN, "q", f"SELECT COUNT(*) FROM people WHERE TRUE OR NOT ({condition})")


@pytest.mark.parametrize("sql", ["", " ; ;", "-- nothing", "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t"])
def test_one_statement_a_table(sql: str) -> None:
    with pytest.raises(InvalidArgument, match="takes one statement"):
        table_from_sql(DOMAIN, "q", sql)


def test_other_faults() -> None:
    with pytest.raises(InvalidArgument, match="no statement"):
        Workload.from_sql(DOMAIN, ";")
    with pytest.raises(InvalidArgument, match="'q2' cannot use `MAX"):
        Workload.from_sql(DOMAIN, "SELECT COUNT(*) FROM t; SELECT MAX(age) FROM t")
    with pytest.raises(InvalidArgument, match="given as a string"):
        table_from_sql(DOMAIN, "q", None)  # type: ignore[arg-type]
    for nested in ("(" * 5000 + "age < 5" + ")" * 5000, "NOT (" * 5000 + "age < 5" + ")" * 5000):
        with pytest.raises(Unsupported, match="nested too deeply"):
            table_from_sql(DOMAIN, "q", f"SELECT COUNT(*) FROM t WHERE {nested}")


def test_too_many_products_are_refused_with_the_clause() -> None:
    domain = Domain({f"a{k}": 3 for k in range(18)})
    clause = " AND ".join(f"(a{k} = 0 OR a{k + 1} = 0)" for k in range(0, 18, 2))
    with pytest.raises(Unsupported, match=r"table 'q', `\(a0 = 0 OR a1 = 0\) AND .* takes 512 products"):
        table_from_sql(domain, "q", f"SELECT COUNT(*) FROM t WHERE {clause}")
