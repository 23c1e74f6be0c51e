"""Descriptions of row spaces: what is written, and what is read back over other domains."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain import Attribute, Domain, Recode, Table, Term
from tabulae.domain.row_space import canonical_row_space, describe_row_space, joint_row_space, read
from tabulae.domain.sql import table_from_sql
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Total,
    WidthRange,
)

LABELS = tuple("abcdef")
DOMAIN = Domain({"sex": ["F", "M"], "x": LABELS, "age": range(5)})
RECODE = Partition([0, 0, 1, 2, 2, 1], 3)

FACTORS: dict[str, LinearOperator] = {
    "each": Identity(6),
    "total": Total(6),
    "recode": RECODE,
    "part": Partition([1, -1, 0, 0, -1, 1], 2),
    "an empty class": Partition([2, 0, 0, 2, 2, 2], 4),
    "nobody but one": Partition([-1, -1, 0, -1, -1, -1], 1),
    "prefix": Prefix(6),
    "ranges": AllRange(6),
    "widths": WidthRange(6, 4),
    "prefixes of classes": MatrixProduct(Prefix(3), RECODE),
    "ranges of classes": MatrixProduct(AllRange(3), RECODE),
    "ranges beside one": Stack(
        (MatrixProduct(AllRange(5), Partition([0, 1, 2, 3, 4, -1], 5)), Partition([-1] * 5 + [0], 1))
    ),
    "overlapping": Stack((Partition([0, 0, 0, 1, 1, 1]), RECODE)),
    "written out": Dense([[1, 0, 2, 0, 0, 1], [0, -1, 0, 0, 3, 0]]),
    "written out classes": Dense([[0, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1]]),
    "sparse": Sparse(scipy.sparse.csr_array(np.array([[0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]]))),
    "twice": Scaled(Prefix(6), 2),
}


def rank(*matrices: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(np.concatenate(matrices).astype(float)))


def same_span(one: Table, other: Table, domain: Domain = DOMAIN) -> bool:
    a, b = one.operator(domain).dense(), other.operator(domain).dense()
    return rank(a) == rank(b) == rank(a, b)


def stored(description: object) -> dict:
    """What comes back from a ledger, whose keys are sorted."""
    return json.loads(json.dumps(description, sort_keys=True, allow_nan=False))


@each("name", FACTORS)
@each("beside", [{}, {"sex": Identity(2)}, {"age": Prefix(5), "sex": Total(2)}])
def test_every_kind_of_matrix_keeps_its_row_space(name: str, beside: dict[str, LinearOperator]) -> None:
    table = Table("t", {"x": FACTORS[name], **beside}, weight=7)
    again = read("t", stored(describe_row_space(table, DOMAIN)), DOMAIN)
    assert again is not None
    assert same_span(table, again)


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (("each", "prefix", "ranges", "ranges beside one"), [0, 1, 2, 3, 4, 5]),
        (("recode", "prefixes of classes", "ranges of classes"), [0, 0, 1, 2, 2, 1]),
        (("part",), [0, -1, 1, 1, -1, 0]),
        (("written out classes",), [0, 1, 1, -1, -1, 0]),
        (("an empty class",), [0, 1, 1, 0, 0, 0]),
    ],
)
def test_what_classes_span_is_written_as_classes(names: tuple[str, ...], classes: list[int]) -> None:
    for name in names:
        description = describe_row_space(Table("t", {"x": FACTORS[name]}), DOMAIN)
        [term] = description["terms"]
        assert term["factors"] == {"x": {"classes": classes, "count": max(classes) + 1}}
        assert description["attributes"] == {"x": list(LABELS)}


def test_what_is_only_added_up_is_left_out() -> None:
    nothing = {"attributes": {}, "terms": [{"coefficient": 1, "factors": {}}]}
    for factors in ({}, {"x": Total(6)}, {"x": Partition([0] * 6, 1), "sex": Total(2)}):
        assert describe_row_space(Table("t", factors), DOMAIN) == nothing


SQL = (
    "SELECT COUNT(*) FROM p WHERE age < 2 OR sex = 'F'",
    "SELECT x, COUNT(*) FROM p WHERE age < 2 OR sex = 'F' GROUP BY x",
    "SELECT x, sex, COUNT(*) FROM p WHERE (age < 2 AND x IN ('a', 'b')) OR (sex = 'F' AND x = 'e') GROUP BY x, sex",
    "SELECT three, COUNT(*) FROM p WHERE NOT (age = 2 AND three = 'i') GROUP BY three",
)


@pytest.mark.parametrize("sql", SQL)
def test_sums_keep_their_rows(sql: str) -> None:
    domain = DOMAIN.with_recodes(Recode("three", "x", RECODE.classes, ("i", "ii", "iii")))
    table = table_from_sql(domain, "t", sql)
    assert len(table.terms) > 1
    again = read("t", stored(describe_row_space(table, domain)), DOMAIN)
    assert again is not None
    np.testing.assert_array_equal(again.operator(DOMAIN).dense(), table.operator(domain).dense())


def permuted(domain: Domain, seed: int) -> Domain:
    """The same categories, attributes and labels in another order."""
    rng = np.random.default_rng(seed)
    attributes = {}
    for at in rng.permutation(len(domain.attributes)):
        attribute = domain.attributes[at]
        order = rng.permutation(attribute.size)
        attributes[attribute.name] = Attribute(attribute.name, tuple(attribute.labels[i] for i in order))
    return Domain(attributes)


def moved(matrix: np.ndarray, domain: Domain, other: Domain) -> np.ndarray:
    """The columns of a matrix over one domain, as the other orders its cells."""
    cells = np.arange(domain.size).reshape(domain.shape)
    for axis, attribute in enumerate(domain.attributes):
        order = [attribute.labels.index(label) for label in other[attribute.name].labels]
        cells = np.take(cells, order, axis=axis)
    return matrix[:, cells.transpose([domain.axis(name) for name in other.names]).ravel()]


TABLES = [Table("t", {"x": factor, "sex": Identity(2)}) for factor in FACTORS.values()]
TABLES += [table_from_sql(DOMAIN, "t", sql) for sql in SQL[:3]]


@given(st.sampled_from(TABLES), st.integers(0, 10**6))
def test_the_order_of_attributes_and_categories_does_not_matter(table: Table, seed: int) -> None:
    other = permuted(DOMAIN, seed)
    again = read("t", stored(describe_row_space(table, DOMAIN)), other)
    assert again is not None
    before = moved(table.operator(DOMAIN).dense(), DOMAIN, other)
    after = again.operator(other).dense()
    assert rank(before) == rank(after) == rank(before, after)
    back = read("t", describe_row_space(again, other), DOMAIN)
    assert back is not None
    assert same_span(table, back)


def test_other_categories_cannot_be_compared() -> None:
    description = describe_row_space(Table("t", {"x": RECODE}), DOMAIN)
    for labels in (LABELS[:5], (*LABELS, "other"), tuple("abcdeg")):
        assert read("t", description, Domain({"x": labels})) is None
    assert read("t", description, Domain({"y": LABELS})) is None
    assert read("t", description, Domain({"x": LABELS, "y": 3})) is not None


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'x' has entries that are not whole numbers"):
        describe_row_space(Table("t", {"x": Dense([[0.5, 0, 0, 0, 0, 1]])}), DOMAIN)
    wide = Domain({"x": 10_000})
    with pytest.raises(Unsupported, match="too large to be written"):
        describe_row_space(Table("t", {"x": WidthRange(10_000, 7)}), wide)
    assert len(describe_row_space(Table("t", {"x": AllRange(10_000)}), wide)["attributes"]["x"]) == 10_000
    with pytest.raises(InvalidArgument, match="6 columns"):
        describe_row_space(Table("t", {"x": Identity(6)}), Domain({"x": 5}))


def test_joint_rows_hold_what_no_release_said() -> None:
    """All by sex in one release, those under two by sex in another: the others by sex follow."""
    first = describe_row_space(Table("sex", {"sex": Identity(2)}), DOMAIN)
    young = table_from_sql(DOMAIN, "young", "SELECT sex, COUNT(*) FROM p WHERE age < 2 GROUP BY sex")
    old = table_from_sql(DOMAIN, "old", "SELECT sex, COUNT(*) FROM p WHERE age >= 2 GROUP BY sex")
    told = [("a", first), ("b", describe_row_space(young, DOMAIN)), ("a", first)]
    tables, unread = joint_row_space(DOMAIN, told)
    assert ([table.name for table in tables], unread) == (["a", "b"], ())
    known = [table.operator(DOMAIN).dense() for table in tables]
    wanted = old.operator(DOMAIN).dense()
    assert rank(*known, wanted) == rank(*known) == 4
    assert rank(known[0], wanted) > rank(known[0])


def test_joint_numbers_names_and_names_what_it_cannot_read() -> None:
    sex, x = (
        describe_row_space(Table("t", {name: Identity(n)}), DOMAIN) for name, n in (("sex", 2), ("x", 6))
    )
    old = describe_row_space(Table("t", {"x": Identity(2)}), Domain({"x": ["young", "old"]}))
    tables, unread = joint_row_space(
        DOMAIN, [("t", sex), ("old x", old), ("t", x), ("old x", old), ("t", sex)]
    )
    assert [table.name for table in tables] == ["t", "t (2)"]
    assert unread == ("old x",)
    assert joint_row_space(DOMAIN, []) == ((), ())


def test_equal_texts_are_equal_spans() -> None:
    texts: dict[str, Table] = {}
    for factor in FACTORS.values():
        table = Table("t", {"x": factor})
        other = texts.setdefault(canonical_row_space(describe_row_space(table, DOMAIN)), table)
        assert same_span(table, other)
    assert len(texts) < len(FACTORS)


def test_a_coefficient_alone_changes_nothing() -> None:
    one, three = (Table.of_terms("t", [Term(c, {"x": RECODE})]) for c in (1, 3))
    assert describe_row_space(one, DOMAIN) == describe_row_space(three, DOMAIN)
