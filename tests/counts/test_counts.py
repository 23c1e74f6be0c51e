"""Counts: exact answers from either storage, one fingerprint, and nothing told."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain import Domain, Workload
from tabulae.errors import InvalidArgument, TabulaeError, Unsupported
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Stack,
    Sum,
    Total,
    WidthRange,
)
from tabulae.products.tables import count as cells
from tabulae.products.tables import count as counts
from tabulae.products.tables.count import Counts


def as_cells(domain: Domain, codes: Any, people: Any = None) -> Counts:
    """The counts in the storage of domains that are too large to write out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "VECTOR_LIMIT", 0)
        return Counts.from_cells(domain, codes, people)


def factor_of(n: int) -> st.SearchStrategy[LinearOperator]:
    integers = st.integers(-9, 9)
    rows = st.lists(st.lists(integers, min_size=n, max_size=n), min_size=1, max_size=4)
    return st.one_of(
        st.sampled_from([Identity(n), Total(n), Prefix(n), AllRange(n), WidthRange(n, (n + 1) // 2)]),
        rows.map(lambda matrix: Dense(np.array(matrix))),
        st.lists(st.integers(-1, 2), min_size=n, max_size=n).map(lambda labels: Partition(labels, 3)),
        st.permutations(range(n)).map(lambda order: Permuted(Prefix(n), list(order))),
        st.just(Stack([Total(n), Scaled(Identity(n), -2)])),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Domain, np.ndarray, LinearOperator]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
    record = st.tuples(*(st.integers(0, n - 1) for n in shape))
    codes = np.array(draw(st.lists(record, max_size=12)), dtype=np.int64).reshape(-1, len(shape))
    product = st.tuples(*(factor_of(n) for n in shape)).map(Kron)
    first = draw(product)
    signs = st.sampled_from([-1, 2])
    op = draw(
        st.sampled_from(
            [
                first,
                Stack([first, Scaled(draw(product), 3)]),
                Sum([(draw(signs), first), (1, first)]),
                Stack([Sum([(1, first), (-1, first)]), Sum([(draw(signs), first)])]),
            ]
        )
    )
    return domain, codes, op


@given(case=cases())
def test_both_storages_answer_as_the_dense_matrix_does(
    case: tuple[Domain, np.ndarray, LinearOperator],
) -> None:
    domain, codes, op = case
    x = np.zeros(domain.shape, dtype=np.int64)
    for record in codes:
        x[tuple(record)] += 1
    expected = op.dense() @ x.ravel()
    written_out = [Counts.from_records(domain, codes), Counts.from_array(domain, x)]
    for made in (*written_out, as_cells(domain, codes)):
        answers = made.answer(op)
        assert answers.dtype == np.int64
        assert answers.tolist() == expected.tolist()
        assert made.total == len(codes)


@given(case=cases(), chance=st.randoms(use_true_random=False))
def test_one_fingerprint_for_the_same_counts(
    case: tuple[Domain, np.ndarray, LinearOperator], chance: Any
) -> None:
    domain, codes, _ = case
    seen = Counter(map(tuple, codes.tolist()))
    x = np.zeros(domain.shape, dtype=np.int64)
    for record, people in seen.items():
        x[record] = people
    shuffled = codes[chance.sample(range(len(codes)), len(codes))]
    empty_too = [*seen, (0,) * len(domain.shape)]
    made = [
        Counts.from_records(domain, codes),
        Counts.from_records(domain, shuffled.astype(np.uint8)),
        Counts.from_array(domain, x.astype(float)),
        Counts.from_cells(domain, empty_too, [*seen.values(), 0]),
        as_cells(domain, shuffled),
        as_cells(domain, empty_too, [*seen.values(), 0]),
    ]
    assert len({each.fingerprint() for each in made}) == 1
    x[(0,) * x.ndim] += 1
    assert Counts.from_array(domain, x).fingerprint() != made[0].fingerprint()


def test_fingerprints_tell_domains_and_cells_apart() -> None:
    x = np.arange(12)
    of = {
        Counts.from_array(Domain(attributes), values).fingerprint()
        for attributes, values in [
            ({"a": 3, "b": 4}, x),
            ({"a": 4, "b": 3}, x),
            ({"b": 3, "a": 4}, x),
            ({"a": 3, "b": 4}, x[::-1]),
            ({"a": 12}, x),
        ]
    }
    assert len(of) == 5


def test_fingerprint_is_golden() -> None:
    """SHA-256 over the layout in the code, computed once by hand with hashlib: it must never change."""
    import hashlib

    domain = Domain({"sex": ["F", "M"], "age": 3})
    layout = b"tabulae counts 1\n3 sex 2\n3 age 3\n"
    layout += np.array([1, 5], dtype="<i8").tobytes() + np.array([2, 7], dtype="<i8").tobytes()
    made = Counts.from_array(domain, [0, 2, 0, 0, 0, 7])
    assert made.fingerprint() == hashlib.sha256(layout).digest()


def test_a_domain_beyond_64_bits() -> None:
    """10^36 cells: three keys a cell, and every marginal equal to counting by hand."""
    domain = Domain({f"a{i}": 1000 for i in range(12)})
    chance = np.random.default_rng(3)
    codes = chance.integers(0, 1000, (500, 12)) // 400 * 400  # few values, so that cells repeat
    codes = np.concatenate([codes, codes[:50]])
    made = Counts.from_records(domain, codes)
    assert made.fingerprint() == Counts.from_records(domain, codes[::-1]).fingerprint()
    for axes in itertools.combinations((0, 4, 11), 2):
        op = Kron(tuple(Identity(1000) if i in axes else Total(1000) for i in range(12)))
        seen = Counter(map(tuple, codes[:, axes].tolist()))
        answers = made.answer(op).reshape(1000, 1000)
        assert {(int(i), int(j)): int(answers[i, j]) for i, j in np.argwhere(answers)} == dict(seen)
    below = Partition(np.arange(1000) // 500)
    answers = made.answer(Kron((below,) * 12)).reshape((2,) * 12)
    assert answers.sum() == 550
    assert answers[(0,) * 12] == (codes < 500).all(axis=1).sum()


def test_queries_over_few_classes_of_large_attributes() -> None:
    """A prefix over merged ages: the matrix has far more rows than its merged form has columns."""
    domain = Domain({"age": 1000, "place": 100_000, "sex": 2})
    made = Counts.from_records(domain, [[10, 99_999, 0], [999, 0, 1], [999, 5, 1]])
    wide = Stack([Prefix(1000), AllRange(1000)])
    answers = made.answer(Kron((wide, Total(100_000), Identity(2)))).reshape(-1, 2)
    assert answers[[9, 10, 999]].tolist() == [[0, 0], [1, 0], [1, 2]]
    assert answers[-1].tolist() == [0, 2]


def test_disjunctions_from_sql() -> None:
    domain = Domain({"sex": ["F", "M"], "age": range(100), "place": 500_000})
    chance = np.random.default_rng(1)
    codes = np.stack([chance.integers(0, n, 300) for n in domain.shape], axis=1)
    sql = "SELECT sex, COUNT(*) FROM t WHERE age < 5 OR place = 7 OR age > 80 GROUP BY sex"
    (table,) = Workload.from_sql(domain, sql).tables
    hit = (codes[:, 1] < 5) | (codes[:, 2] == 7) | (codes[:, 1] > 80)
    expected = np.bincount(codes[hit, 0], minlength=2)
    made = Counts.from_records(domain, codes)
    assert made.answer(table.operator(domain)).tolist() == expected.tolist()


def test_what_needs_too_large_a_vector_is_refused_with_the_attributes() -> None:
    domain = Domain({"age": 5000, "place": 1_000_000, "sex": 2})
    made = Counts.from_records(domain, [[1, 2, 0]])
    with pytest.raises(
        Unsupported, match=r"place \(1000000 classes\), age \(5000 classes\).*needs a vector of 5e\+09"
    ):
        made.answer(Kron((Prefix(5000), Identity(1_000_000), Total(2))))
    with pytest.raises(Unsupported, match="one factor an attribute"):
        made.answer(Kron((Total(10_000_000_000 // 4), Total(4))))
    # Nested products are opened up.
    nested = Kron((Total(5000), Kron((Total(1_000_000), Identity(2)))))
    assert made.answer(nested).tolist() == [1, 0]


@pytest.mark.parametrize("make", [Counts.from_cells, as_cells])
def test_large_counts_are_exact_and_larger_ones_refused(make: Any) -> None:
    domain = Domain({"a": 2, "b": 2})
    people = [2**60 + 1, 2**60 + 3, 2**60, 5]
    made = make(domain, [[0, 0], [0, 0], [1, 0], [1, 1]], people)
    total = sum(people)
    assert made.total == total
    ones = Kron((Total(2), Total(2)))
    assert made.answer(ones).tolist() == [total]
    assert made.answer(Sum([(2, ones), (-1, ones)][1:])).tolist() == [-total]
    for op in (
        Scaled(ones, 2),
        Scaled(ones, 2**70),
        Sum([(2, ones)]),
        Sum([(-2, ones)]),
        Sum([(2, ones), (-1, ones)]),
        Stack([ones, Kron((Dense([[3, 3]]), Total(2)))]),
    ):
        with pytest.raises(Unsupported) as caught:
            made.answer(op)
        assert "2^62" in str(caught.value) or "64-bit" in str(caught.value)
        assert str(total) not in str(caught.value)


def test_counts_that_would_overflow_are_not_made() -> None:
    domain = Domain({"a": 4})
    with pytest.raises(InvalidArgument, match="add up to less than 2"):
        Counts.from_array(domain, [2**61] * 4)
    with pytest.raises(InvalidArgument, match="below 2"):
        Counts.from_array(domain, np.array([2**64 - 1, 0, 0, 0], dtype=np.uint64))
    with pytest.raises(InvalidArgument, match="add up to less than 2"):
        as_cells(domain, [[0], [0], [1], [2]], [2**61] * 4)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1, 2, 3], r"shape \(3,\).*4 cells"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\)"),
        ([1, 2, 3, 77.5], "whole numbers"),
        ([1, 2, 77, np.nan], "whole numbers"),
        ([1, 2, 77, np.inf], "whole numbers"),
        ([1, 2, 3, -77], "not be negative"),
        (["1", "2", "3", "77"], "must be numbers"),
        ([1, 2, 3, 77j], "must be numbers"),
    ],
)
def test_arrays_that_are_no_counts(x: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        Counts.from_array(Domain({"a": 4}), x)
    assert "77" not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([[0, 77]], r"codes of 'b' must lie in 0\.\.2"),
        ([[-77, 0]], r"codes of 'a' must lie in 0\.\.1"),
        ([[0.0, 1.0]], "must be integers"),
        ([["0", "77"]], "must be integers"),
        ([[0, 1, 77]], r"shape \(records, 2\)"),
        ([0, 1], r"shape \(records, 2\)"),
    ],
)
def test_records_that_do_not_fit(codes: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        Counts.from_records(Domain({"a": 2, "b": 3}), codes)
    assert "77" not in str(caught.value)
    if "must lie" in message:
        assert "77" in str(caught.value.confidential)


def test_cells_need_a_count_each() -> None:
    with pytest.raises(InvalidArgument, match="one count each"):
        Counts.from_cells(Domain({"a": 2}), [[0], [1]], [1])
    with pytest.raises(InvalidArgument, match="whole numbers"):
        Counts.from_cells(Domain({"a": 2}), [[0], [1]], [1, 0.5])


def test_queries_that_counts_do_not_answer() -> None:
    made = Counts.from_array(Domain({"a": 2}), [1, 2])
    with pytest.raises(InvalidArgument, match="matrices of integers"):
        made.answer(Dense([[0.5, 1.0]]))
    with pytest.raises(InvalidArgument, match="matrices of integers"):
        made.answer(np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"3 columns.*2 cells"):
        made.answer(Identity(3))


def test_arrays_of_the_domain_s_shape_are_copied() -> None:
    x = np.arange(6).reshape(2, 3)
    made = Counts.from_array(Domain({"a": 2, "b": 3}), x)
    x[:] = 0
    assert made.answer(Identity(6)).tolist() == [0, 1, 2, 3, 4, 5]


def test_no_records_at_all() -> None:
    domain = Domain({"a": 2})
    made = [Counts.from_records(domain, []), Counts.from_array(domain, [0, 0]), as_cells(domain, [])]
    assert [each.total for each in made] == [0, 0, 0]
    assert len({each.fingerprint() for each in made}) == 1
    assert made[2].answer(Identity(2)).tolist() == [0, 0]


@pytest.mark.parametrize("make", [Counts.from_cells, as_cells])
def test_counts_keep_their_secret(make: Any) -> None:
    made = make(Domain({"a": 3}), [[1]], [778_177])
    for text in (repr(made), str(made), f"{made}", f"{made!r}", repr([made]), repr(made._storage)):
        assert "7" not in text.replace(hex(id(made._storage)), "")
    assert not hasattr(made, "__dict__")
    with pytest.raises(TabulaeError, match="not pickled"):
        pickle.dumps(made)
    assert copy.copy(made) is made
    assert copy.deepcopy(made) is made


def test_the_limit_is_a_module_constant_of_both() -> None:
    assert counts.VECTOR_LIMIT == cells.VECTOR_LIMIT == 50_000_000
