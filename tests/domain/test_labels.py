"""Labels of rows: every kind of matrix has true, distinct ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests.each import each

from tabulae.domain import Domain, Recode
from tabulae.domain.domain import heading_and_labels
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Total,
    WidthRange,
)

DOMAIN = Domain({"age": range(6), "race": ["W", "B", "A", "N", "P", "O"], "t": range(-1, 2)})
DOMAIN = DOMAIN.with_recodes(
    Recode.from_edges("grown", DOMAIN["age"], [2, 4]),
    Recode.from_map(
        "major", DOMAIN["race"], dict(zip("WBANPO", ["w", "b", "o", "o", "o", "o"], strict=True))
    ),
)

CASES: list[tuple[str, LinearOperator, str, list[str]]] = [
    ("age", Identity(6), "age", list("012345")),
    ("age", Total(6), "age", ["_T"]),
    ("age", Prefix(6), "age", ["0", "0-1", "0-2", "0-3", "0-4", "0-5"]),
    ("age", WidthRange(6, 4), "age", ["0-3", "1-4", "2-5"]),
    ("age", WidthRange(6, 1), "age", list("012345")),
    ("t", AllRange(3), "t", ["-1", "-1 to 0", "-1 to 1", "0", "0 to 1", "1"]),
    ("age", Stack([Identity(6), Total(6)]), "age", [*"012345", "_T"]),
    ("age", Scaled(Prefix(6), 3), "age", ["0", "0-1", "0-2", "0-3", "0-4", "0-5"]),
    ("age", Dense([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [1] * 6]), "age", ["0-1", "5", "_T"]),
    ("age", Dense([[1, 0, 1, 1, 0, 1], [0, 2, 0, 0, 0, 0], [0] * 6]), "age", ["0|2-3|5", "row 2", "row 3"]),
    ("race", Dense([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 1]]), "race", ["W|B", "row 2"]),
    ("race", Sparse(sparse.csr_array(np.array([[0, 1, 0, 1, 1, 1]]))), "race", ["B|N|P|O"]),
    ("age", Stack([Total(6), Total(6), Total(6)]), "age", ["_T", "_T (2)", "_T (3)"]),
    ("age", Permuted(Identity(6), [5, 4, 3, 2, 1, 0]), "age", list("543210")),
    ("age", Partition([0, 0, 1, 1, 2, 2]), "grown", ["0-1", "2-3", "4-5"]),
    ("age", Partition([0, 0, 1, -1, 1, 0]), "age", ["0-1|5", "2|4"]),
    ("race", Partition([0, 1, 2, 2, 2, 2]), "major", ["w", "b", "o"]),
    ("race", Stack([Partition([0, 1, 2, 2, 2, 2]), Total(6)]), "race", ["w", "b", "o", "_T"]),
    ("age", MatrixProduct(Prefix(3), Partition([0, 0, 1, 1, 2, 2])), "grown", ["0-1", "0-3", "0-5"]),
    ("race", MatrixProduct(Dense([[1, 1, 0], [0, 0, 1]]), Partition([0, 1, 2, 2, 2, 2])), "major", ["w|b", "o"]),
    ("age", MatrixProduct(Prefix(2), Partition([1, 0, 0, 0, 0, 0])), "age", ["1-5", "1-5 to 0"]),
]  # fmt: skip


@each(("name", "operator", "heading", "labels"), CASES, ids=[f"{c[0]}-{c[1]!r}" for c in CASES])
def test_labels(name: str, operator: LinearOperator, heading: str, labels: list[str]) -> None:
    assert heading_and_labels(DOMAIN, name, operator) == (heading, tuple(labels))


def test_a_category_named_like_a_made_up_label_keeps_its_name() -> None:
    domain = Domain({"a": ["row 2", "x", "x (2)"]})
    operator = Dense([[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert heading_and_labels(domain, "a", operator)[1] == ("row 2", "row 2 (2)", "x", "x (3)", "x (2)")


@given(st.data())
def test_labels_are_distinct_and_single_cells_are_named(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    ordered = data.draw(st.booleans())
    domain = Domain({"a": n if ordered else [f"c{k}" for k in range(n)]})
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=8).map(np.array)
    )
    _, labels = heading_and_labels(domain, "a", Dense(rows))
    assert len(labels) == len(rows)
    assert len(set(labels)) == len(labels)
    for row, label in zip(rows, labels, strict=True):
        if row.sum() == 1 and " (" not in label:
            assert label == domain["a"].labels[int(np.argmax(row))]
        if label == "_T":
            assert row.all()


def test_huge_matrices_are_not_inspected() -> None:
    domain = Domain({"a": 5000})
    assert heading_and_labels(domain, "a", Permuted(Prefix(5000), np.arange(5000)[::-1]))[1][-1] == "row 5000"
