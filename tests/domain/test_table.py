"""Tables: their matrix, order of rows, columns and refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain import Domain, Recode, Table, TableColumn, Term
from tabulae.errors import InvalidArgument
from tabulae.linalg import AllRange, Dense, Identity, Kron, LinearOperator, Partition, Prefix, Sum, Total

DOMAIN = Domain({"a": 3, "b": ["x", "y"], "c": range(4)})


@st.composite
def tables(draw: st.DrawFn, name: str = "t") -> Table:
    """One to three terms over DOMAIN with small whole entries; attributes left out here and there."""
    heights = {a.name: draw(st.integers(1, 3)) for a in DOMAIN.attributes}
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        factors: dict[str, LinearOperator] = {}
        for attribute in DOMAIN.attributes:
            height = heights[attribute.name]
            if height == 1 and draw(st.booleans()):
                continue
            entries = draw(
                st.lists(
                    st.integers(-2, 2), min_size=height * attribute.size, max_size=height * attribute.size
                )
            )
            factors[attribute.name] = Dense(np.array(entries).reshape(height, attribute.size))
        terms.append(Term(draw(st.sampled_from([-2, -1, 1, 3])), factors))
    return Table.of_terms(name, terms, weight=draw(st.sampled_from([1, 2, "1/3"])))


def dense(table: Table) -> np.ndarray:
    """The oracle: numpy's own Kronecker product."""
    parts = [
        term.coefficient * reduce(np.kron, [f.dense() for f in term.over(DOMAIN)]) for term in table.terms
    ]
    return np.sum(parts, axis=0)


@given(tables())
def test_operator_is_the_sum_of_krons_in_domain_order(table: Table) -> None:
    matrix = dense(table)
    operator = table.operator(DOMAIN)
    assert operator.shape == matrix.shape == (table.rows(DOMAIN), DOMAIN.size)
    assert np.array_equal(operator.dense(), matrix)
    cells = np.arange(DOMAIN.size) ** 2
    assert np.array_equal(operator @ cells, matrix @ cells)


@given(tables())
def test_columns_name_every_row(table: Table) -> None:
    columns = table.columns(DOMAIN)
    assert math.prod(len(labels) for labels in columns.values()) == table.rows(DOMAIN)
    assert list(columns) == [name for name in DOMAIN.names if name in columns]
    assert all(len(set(labels)) == len(labels) for labels in columns.values())


def test_domain_order_whatever_the_order_of_mention() -> None:
    one = Table("t", {"c": Identity(4), "a": Prefix(3)})
    two = Table("t", {"a": Prefix(3), "c": Identity(4)})
    assert one == two
    assert hash(one) == hash(two)
    assert one.attributes == ("c", "a")
    assert list(one.columns(DOMAIN)) == ["a", "c"]
    assert one.operator(DOMAIN) == Kron([Prefix(3), Total(2), Identity(4)])


def test_one_product_is_a_kron_and_several_are_a_sum() -> None:
    assert isinstance(Table("t", {}).operator(DOMAIN), Kron)
    sums = Table.of_terms("t", [Term(1, {}), Term(-1, {"b": Dense([[1, 0]])})])
    assert isinstance(sums.operator(DOMAIN), Sum)
    assert (sums.operator(DOMAIN) @ np.ones(24, dtype=int)).tolist() == [12]


def test_terms_with_one_product_are_added_up() -> None:
    row = {"a": Dense([[1, 0, 0]])}
    table = Table.of_terms("t", [Term(2, {}), Term(1, row), Term(-5, {"b": Total(2)}), Term(-1, row)])
    assert table.terms == (Term(-3, {}),)
    with pytest.raises(InvalidArgument, match="cancel"):
        Table.of_terms("t", [Term(2, row), Term(-2, row)])


def test_columns_of_a_table_with_every_kind_of_attribute() -> None:
    domain = DOMAIN.with_recodes(Recode.from_edges("half", DOMAIN["c"], [2]))
    table = Table("t", {"a": Dense([[1, 1, 0]]), "b": Total(2), "c": domain.resolve("half").operator})
    assert table.columns(domain) == {"a": ("0-1",), "b": ("_T",), "half": ("0-1", "2-3")}
    assert table.columns(DOMAIN) == {"a": ("0-1",), "b": ("_T",), "c": ("0-1", "2-3")}
    assert Table("t", {}).columns(domain) == {}


def test_given_labels_are_complete_for_single_rows() -> None:
    factors = {"a": Dense([[1, 1, 0]]), "b": Identity(2), "c": Partition([0, 0, 1, 1])}
    table = Table("t", factors, labels={"c": TableColumn("half", ("low", "high"))})
    assert table.columns(DOMAIN) == {"b": ("x", "y"), "half": ("low", "high")}
    assert Table("t", factors, labels={"a": ["few"]}).columns(DOMAIN)["a"] == ("few",)
    assert "a" not in Table("t", factors, labels={}).columns(DOMAIN)
    clash = Table("t", factors, labels={"c": TableColumn("b", ("low", "high"))})
    with pytest.raises(InvalidArgument, match="two columns named 'b'"):
        clash.columns(DOMAIN)


def test_terms_that_differ_have_rows_without_words() -> None:
    terms = [
        Term(1, {"a": Identity(3), "b": Identity(2)}),
        Term(-1, {"a": Dense(np.ones((3, 3))), "b": Identity(2)}),
    ]
    columns = Table.of_terms("t", terms).columns(DOMAIN)
    assert columns == {"a": ("row 1", "row 2", "row 3"), "b": ("x", "y")}


@pytest.mark.parametrize(
    ("given_weight", "weight"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        ("2/3", Fraction(2, 3)),
        ("0.25", Fraction(1, 4)),
        (Fraction(7, 3), Fraction(7, 3)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
        (1e-7, Fraction(1, 10**7)),
        ("1e3", Fraction(1000)),
    ],
)
def test_weights_are_exact(given_weight: object, weight: Fraction) -> None:
    assert Table("t", {}, weight=given_weight).weight == weight


@each(
    "weight",
    [0, -1, 0.0, float("nan"), float("inf"), "x", "1/0", "", None, True, 1j, "1e999999999", 1e300, [1]],
)
def test_bad_weights_are_refused(weight: object) -> None:
    with pytest.raises(InvalidArgument, match="weight of table 't' must be a positive number"):
        Table("t", {}, weight=weight)


def test_misfits_name_table_attribute_and_both_sizes() -> None:
    with pytest.raises(
        InvalidArgument, match="table 't': the matrix of 'c' has 5 columns, but the domain has 4"
    ):
        Table("t", {"c": AllRange(5)}).operator(DOMAIN)
    with pytest.raises(InvalidArgument, match="table 't': the domain has no attribute 'd'"):
        Table("t", {"d": Identity(2)}).rows(DOMAIN)
    domain = DOMAIN.with_recodes(Recode.from_edges("half", DOMAIN["c"], [2]))
    with pytest.raises(InvalidArgument, match="'half' is a recode of 'c'"):
        Table("t", {"half": Identity(2)}).columns(domain)


def test_bad_tables_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not a matrix"):
        Table("t", {"a": np.eye(3)})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="not a matrix"):
        Table("t", {"a": "identity"})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="must map attribute names"):
        Table("t", ["a"])  # type: ignore[arg-type]
    for name in ("", None, "a/b", " t", ".t"):
        with pytest.raises(InvalidArgument, match="name"):
            Table(name, {})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no terms"):
        Table.of_terms("t", [])
    with pytest.raises(InvalidArgument, match="disagree on the number of rows of 'a'"):
        Table.of_terms("t", [Term(1, {"a": Identity(3)}), Term(1, {})])
    for coefficient in (0, 1.5, True):
        with pytest.raises(InvalidArgument, match="whole number other than 0"):
            Term(coefficient, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"b": ["x"]}, "does not mention"),
        ({"a": ["x"]}, "one label a row"),
        ({"a": ["x", "x", "y"]}, "2 distinct labels for 3 rows"),
        ({"a": "xyz"}, "must be a list"),
        ({"a": TableColumn("estimate", ("x", "y", "z"))}, "column of that name"),
        (["x"], "must map"),
    ],
)
def test_bad_labels_are_refused(labels: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Table("t", {"a": Identity(3)}, labels=labels)  # type: ignore[arg-type]
