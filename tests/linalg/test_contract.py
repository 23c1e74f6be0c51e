"""What every operator promises, checked against its dense matrix for one list of instances."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.linalg import (
    AllRange,
    Centring,
    Contrasts,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Sum,
    Total,
    WidthRange,
)

RNG = np.random.default_rng(20240501)
INTEGERS = RNG.integers(-5, 6, (4, 6))
FRACTIONS = RNG.normal(size=(5, 3))
WIDE = RNG.normal(size=(2, 6))
LOW_RANK = np.outer(RNG.normal(size=6), RNG.normal(size=4))
ORDER = np.array([3, 1, 0, 2, 4])
SCATTERED = scipy.sparse.random_array((6, 5), density=0.4, rng=np.random.default_rng(1))


class Halves(LinearOperator):
    """An operator that writes only what it must, so that the defaults of all the rest are tested."""

    shape = (2, 3)  # type: ignore[assignment]

    def matmat(self, x: np.ndarray) -> np.ndarray:
        return np.array([[0.5, 0.0, 1.0], [0.0, -2.0, 0.5]]) @ x

    @property
    def T(self) -> LinearOperator:
        return Dense([[0.5, 0.0], [0.0, -2.0], [1.0, 0.5]])

    def key(self) -> tuple[str]:
        return ("Halves",)


def _contrasts(within: list[int | None]) -> Contrasts:
    """Over 4 x 3 x 2 categories: 3, 3 and 2 cells in 2, 2 and 1 classes."""
    merges = [Partition([0, 1, 1, 2]), Partition([0, 1, 2]), Partition([0, 1])]
    classes = [Partition([0, 1, 0]), Partition([0, 1, 1]), Partition([0, 0])]
    width = int(np.prod([p.shape[0] for p, c in zip(classes, within, strict=True) if c is None]))
    return Contrasts(Dense(INTEGERS[:2, :width]), merges, classes, within)


BUILDERS: dict[str, Callable[[], LinearOperator]] = {
    "identity": lambda: Identity(5),
    "identity of one": lambda: Identity(1),
    "total": lambda: Total(6),
    "centring": lambda: Centring(6),
    "centring of one": lambda: Centring(1),
    "centring of classes": lambda: MatrixProduct(Centring(3), Partition([0, 1, 0, 2])),
    "contrasts": lambda: _contrasts([None, 1, None]),
    "contrasts of two attributes": lambda: _contrasts([0, 1, None]),
    "contrasts outside": lambda: _contrasts([None, None, None]),
    "contrasts of a class of one": lambda: _contrasts([None, 0, 0]),
    "prefix": lambda: Prefix(7),
    "prefix of one": lambda: Prefix(1),
    "long prefix": lambda: Prefix(70),
    "all ranges": lambda: AllRange(6),
    "all ranges of one": lambda: AllRange(1),
    "gram of all ranges": lambda: AllRange(6).gram(),
    "windows": lambda: WidthRange(9, 4),
    "windows, few": lambda: WidthRange(8, 6),
    "windows of one": lambda: WidthRange(5, 1),
    "one window": lambda: WidthRange(5, 5),
    "inverse of windows": lambda: WidthRange(7, 3).pinv(),
    "permuted": lambda: Permuted(Prefix(5), ORDER),
    "permuted integers": lambda: Permuted(Dense(INTEGERS[:, :5]), ORDER),
    "dense integers": lambda: Dense(INTEGERS),
    "dense fractions": lambda: Dense(FRACTIONS),
    "dense wide": lambda: Dense(WIDE),
    "dense of low rank": lambda: Dense(LOW_RANK),
    "dense zeros": lambda: Dense(np.zeros((2, 3))),
    "sparse fractions": lambda: Sparse(SCATTERED),
    "sparse integers": lambda: Sparse(scipy.sparse.csc_array(INTEGERS)),
    "sparse zeros": lambda: Sparse(scipy.sparse.csr_array((2, 3))),
    "partition": lambda: Partition([0, 2, -1, 0, 1, 2], 4),
    "partition, sorted": lambda: Partition([0, 0, 1, 2, 2]),
    "partition of nothing": lambda: Partition([-1, -1], 2),
    "scaled by a fraction": lambda: Scaled(Prefix(4), Fraction(1, 3)),
    "scaled by an integer": lambda: Scaled(AllRange(4), -2),
    "scaled by zero": lambda: Scaled(Prefix(3), 0),
    "stack": lambda: Stack([Total(4), Identity(4), Prefix(4)]),
    "stack of one": lambda: Stack([Prefix(4)]),
    "stack of fractions": lambda: Stack([Scaled(Identity(3), 0.5), Dense(FRACTIONS)]),
    "stack of products": lambda: Stack(
        [Kron([Total(2), Identity(3)]), Kron([Identity(2), Total(3)]), Kron([Total(2), Total(3)])]
    ),
    "kron": lambda: Kron([Total(2), Prefix(3), Identity(2)]),
    "kron of one": lambda: Kron([Prefix(4)]),
    "kron of fractions": lambda: Kron([Dense(FRACTIONS), AllRange(3)]),
    "kron of proportional columns": lambda: Kron([Dense([[2, 3, 0]]), Dense([[3, 2, -2]])]),
    "kron of krons": lambda: Kron([Kron([Prefix(2), Total(2)]), WidthRange(3, 2)]),
    "kron of everything": lambda: Kron(
        [Partition([0, 1, 0]), Stack([Total(2), Identity(2)]), Permuted(AllRange(3), [2, 0, 1])]
    ),
    "product": lambda: MatrixProduct(Total(4), Prefix(4)),
    "product of columns that repeat": lambda: MatrixProduct(
        Dense(INTEGERS[:3, :2]),
        Sparse(scipy.sparse.csr_array([[1, 0, 1, 1, 0, 0, 0], [2, 0, 2, 0, 0, 1, 0]])),
    ),
    "product of fractions": lambda: MatrixProduct(Dense(FRACTIONS), Dense(INTEGERS[:3])),
    "sum": lambda: Sum([(1, Identity(4)), (Fraction(-1, 2), Prefix(4))]),
    "sum of integers": lambda: Sum([(1, Total(4)), (-2, Total(4)), (3, Dense([[1, 2, 3, 4]]))]),
    "difference of products": lambda: Sum(
        [(1, Kron([Total(2), Total(3)])), (-1, Kron([Dense([[1, 0]]), Dense([[0, 1, 1]])]))]
    ),
    "sum of products whose columns repeat": lambda: Sum(
        [
            (2, Kron([Total(3), Partition([0, 0, 1, 1]), Total(2)])),
            (Fraction(-1, 2), Kron([Total(3), Dense([[1, 1, 0, 0], [2, 2, 2, 2]]), Total(2)])),
        ]
    ),
    "scaled sum of krons of krons": lambda: Scaled(
        Sum(
            [(1, Kron([Kron([Total(2), Total(3)]), Prefix(3)])), (-3, Kron([Total(2), Total(3), Prefix(3)]))]
        ),
        -2,
    ),
    "product after products": lambda: MatrixProduct(Dense(FRACTIONS), Kron([Identity(3), Total(4)])),
    "transposed": lambda: Prefix(4).T,
    "transposed stack": lambda: Stack([Total(3), AllRange(3)]).T,
    "transposed sparse": lambda: Sparse(SCATTERED).T,
    "only what is required": Halves,
}
TRANSPOSES = {f"{name}.T": (lambda build=build: build().T) for name, build in BUILDERS.items()}
ALL = {**BUILDERS, **TRANSPOSES}


def dense_norms(matrix: np.ndarray, p: int) -> list[int] | list[float]:
    return (np.abs(matrix.astype(object)) ** p).sum(axis=0).tolist()


def dense_sensitivity(matrix: np.ndarray, p: int, neighbours: str) -> float:
    columns = matrix.astype(np.float64).T
    if neighbours == "add-remove":
        return max(np.linalg.norm(column, p) for column in columns)
    return max(np.linalg.norm(one - other, p) for one in columns for other in columns)


def every(law: Callable) -> Callable:
    """The law for each operator of the class it stands in, in one test that names those that break it."""

    def run(self: TestEveryOperator) -> None:
        __tracebackhide__ = True
        ops = {name: build() for name, build in self.OPERATORS.items()}
        each("op", ops.values(), ids=list(ops))(partial(law, self))()

    run.__name__, run.__doc__ = law.__name__, law.__doc__
    return run


class TestEveryOperator:
    OPERATORS: ClassVar[Mapping[str, Callable[[], LinearOperator]]] = ALL

    @every
    def test_dense_has_the_shape_and_the_type(self, op: LinearOperator) -> None:
        matrix = op.dense()
        assert matrix.shape == op.shape
        assert matrix.dtype == (np.int64 if op.integer else np.float64)
        if op.binary:
            assert set(np.unique(matrix)) <= {0, 1}

    @every
    def test_vectors_and_blocks(self, op: LinearOperator) -> None:
        matrix, n = op.dense(), op.shape[1]
        for shape in ((n,), (n, 1), (n, 3), (n, 70)):
            x = RNG.normal(size=shape)
            answer = op @ x
            assert answer.dtype == np.float64
            np.testing.assert_allclose(answer, matrix @ x, rtol=1e-10, atol=1e-10)

    @every
    def test_the_input_is_left_alone(self, op: LinearOperator) -> None:
        x = RNG.normal(size=(op.shape[1], 2))
        before = x.copy()
        answer = op @ x
        answer += 1
        np.testing.assert_array_equal(x, before)

    @every
    def test_arrays_in_other_layouts(self, op: LinearOperator) -> None:
        n = op.shape[1]
        x = RNG.normal(size=(3, 2 * n))
        np.testing.assert_allclose(op @ x.T[::2], op.dense() @ x.T[::2], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(op @ np.float32([1] * n), op.dense().sum(axis=1), rtol=1e-9, atol=1e-9)

    @every
    def test_along_the_middle_axis(self, op: LinearOperator) -> None:
        for left, right in ((1, 1), (3, 1), (2, 5), (2, 80)):
            x = RNG.normal(size=(left, op.shape[1], right))
            expected = np.einsum("mn,lnr->lmr", op.dense().astype(np.float64), x)
            np.testing.assert_allclose(op.along(x), expected, rtol=1e-10, atol=1e-10)
            if hasattr(op, "along_to"):
                out = np.full((left, op.shape[0], right), np.nan)
                op.along_to(x, out)
                np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)

    @every
    def test_adjoint(self, op: LinearOperator) -> None:
        x, y = RNG.normal(size=op.shape[1]), RNG.normal(size=op.shape[0])
        assert op.T.shape == op.shape[::-1]
        assert float((op @ x) @ y) == pytest.approx(float(x @ (op.T @ y)), rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(op.T.T.dense(), op.dense(), atol=1e-12)
        np.testing.assert_allclose(op.T.dense(), op.dense().T, atol=1e-12)

    @every
    def test_gram(self, op: LinearOperator) -> None:
        gram, matrix = op.gram(), op.dense()
        assert gram.shape == (op.shape[1], op.shape[1])
        assert gram.integer == op.integer
        np.testing.assert_allclose(gram.dense(), matrix.T @ matrix, rtol=1e-10, atol=1e-10)
        x = RNG.normal(size=op.shape[1])
        np.testing.assert_allclose(gram @ x, matrix.T @ (matrix @ x), rtol=1e-9, atol=1e-9)

    @every
    def test_pinv_meets_the_four_conditions(self, op: LinearOperator) -> None:
        inverse, a = op.pinv(), op.dense().astype(np.float64)
        assert inverse.shape == op.shape[::-1]
        b = inverse.dense()
        scale = max(1.0, float(np.abs(a).max()), float(np.abs(b).max())) ** 2
        np.testing.assert_allclose(a @ b @ a, a, atol=1e-9 * scale)
        np.testing.assert_allclose(b @ a @ b, b, atol=1e-9 * scale)
        np.testing.assert_allclose((a @ b).T, a @ b, atol=1e-9 * scale)
        np.testing.assert_allclose((b @ a).T, b @ a, atol=1e-9 * scale)
        np.testing.assert_allclose(inverse.T.dense(), b.T, atol=1e-12 * scale)

    @every
    @each("p", [1, 2])
    def test_column_norms(self, op: LinearOperator, p: int) -> None:
        norms = op.column_norms(p)
        expected = dense_norms(op.dense(), p)
        if op.integer:
            assert norms.dtype in (np.int64, object)
            assert norms.tolist() == expected
        else:
            np.testing.assert_allclose(norms.astype(float), np.array(expected, dtype=float), rtol=1e-12)

    @every
    @each("p", [1, 2])
    @each("neighbours", ["add-remove", "replace"])
    def test_sensitivity(self, op: LinearOperator, p: int, neighbours: str) -> None:
        found = op.sensitivity(p, neighbours=neighbours)
        expected = dense_sensitivity(op.dense(), p, neighbours)
        assert Fraction(float(found)) ** p >= found.power  # the float is never below the norm
        assert isinstance(found.power, Fraction)
        assert float(found) >= expected * (1 - 1e-12)
        if op.integer:
            assert found.is_exact
            assert found.power.denominator == 1
        if found.is_exact:
            assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        else:
            assert float(found) <= 2 * expected + 1e-9

    @every
    def test_column_classes(self, op: LinearOperator) -> None:
        labels, matrix = op.column_classes(), op.dense()
        assert labels.dtype == np.int64
        columns = [tuple(column) for column in matrix.T.tolist()]
        numbered: dict[tuple[float, ...], int] = {}
        assert labels.tolist() == [numbered.setdefault(column, len(numbered)) for column in columns]

    @every
    def test_bounds(self, op: LinearOperator) -> None:
        magnitude = np.abs(op.dense())
        assert op.abs_row_sum_max() >= magnitude.sum(axis=1).max()
        assert op.abs_entry_max() >= magnitude.max()
        assert isinstance(op.abs_row_sum_max(), int) or not op.integer

    @every
    def test_large_integers_are_exact(self, op: LinearOperator) -> None:
        if not op.integer:
            x = np.arange(op.shape[1])
            assert (op @ x).dtype == np.float64
            return
        for shape in ((op.shape[1],), (op.shape[1], 3)):
            x = RNG.integers(-(2**40), 2**40, shape)
            answer = op @ x
            assert answer.dtype == np.int64
            exact = op.dense().astype(object) @ x.astype(object)
            assert answer.tolist() == exact.tolist()

    @every
    def test_small_and_unsigned_integers_are_widened(self, op: LinearOperator) -> None:
        x = np.full(op.shape[1], 200, dtype=np.uint8)
        expected = op.dense() @ np.full(op.shape[1], 200)
        np.testing.assert_allclose(op @ x, expected)
        np.testing.assert_allclose(op @ (x > 0), op.dense().sum(axis=1), atol=1e-12)

    @every
    def test_columns(self, op: LinearOperator) -> None:
        index = RNG.integers(0, op.shape[1], 3)
        np.testing.assert_allclose(op.columns(index), op.dense()[:, index], atol=1e-15)

    @every
    def test_short_representation(self, op: LinearOperator) -> None:
        assert len(repr(op)) < 200
        assert "array" not in repr(op)

    @every
    def test_survives_pickling(self, op: LinearOperator) -> None:
        again = pickle.loads(pickle.dumps(op))
        assert again == op

    @every
    @each("bad", [np.zeros(3000), np.zeros((2, 2, 2)), np.float64(1.0)])
    def test_wrong_shapes_are_refused_with_the_right_one(self, op: LinearOperator, bad: np.ndarray) -> None:
        with pytest.raises(InvalidArgument, match=rf"pass shape \({op.shape[1]},\) or \({op.shape[1]}, k\)"):
            _ = op @ bad

    @every
    def test_what_is_not_a_number_is_refused(self, op: LinearOperator) -> None:
        for bad in (np.full(op.shape[1], "1"), np.full(op.shape[1], 1j)):
            with pytest.raises(InvalidArgument, match="real numbers"):
                _ = op @ bad
        with pytest.raises(InvalidArgument, match="from the left only"):
            _ = np.ones(op.shape[0]) @ op


@each("name", BUILDERS)
def test_equal_when_built_alike(name: str) -> None:
    one, other = BUILDERS[name](), BUILDERS[name]()
    assert one == other
    assert hash(one) == hash(other)
    assert one.T == other.T


def test_different_operators_differ() -> None:
    members = [build() for build in BUILDERS.values()]
    assert len(set(members)) == len(members)
    assert Dense([[1, 2]]) != Dense([[1], [2]])
    assert Permuted(Prefix(3), [0, 1, 2]) != Permuted(Prefix(3), [0, 2, 1])
    assert Identity(3) != "Identity(3)"


@each("name", BUILDERS)
def test_operators_do_not_change(name: str) -> None:
    op = BUILDERS[name]()
    if isinstance(op, Halves):
        return
    field = next(iter(op.__dataclass_fields__))  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        setattr(op, field, None)


def test_operators_keep_no_hold_on_the_callers_arrays() -> None:
    array, order, classes = np.array([[1.0, 2.5]]), np.array([1, 0]), np.array([0, 1])
    matrix = scipy.sparse.csr_array(np.array([[1.5, 0.0]]))
    ops = [Dense(array), Permuted(Prefix(2), order), Partition(classes), Sparse(matrix)]
    before = [op.dense() for op in ops]
    array[:], order[:], classes[:] = 9, 0, 0
    matrix.data[:] = 9
    for op, expected in zip(ops, before, strict=True):
        np.testing.assert_array_equal(op.dense(), expected)
    with pytest.raises(ValueError, match="read-only"):
        ops[0].array[0, 0] = 1  # type: ignore[attr-defined]


def test_columns_of_a_sum_of_products_are_written_once_for_each_class() -> None:
    """Of 10^6 cells few can be told apart: to multiply by a vector of all cells for each of them takes hours."""
    one, other = [0] * 50 + [1] * 50, [0] * 99 + [1]
    sums = Sum(
        [
            (1, Kron([Total(100), Partition(one), Total(100)])),
            (-3, Kron([Total(100), Partition(other), Total(100)])),
        ]
    )
    norms = {tuple(column): int(np.abs(column).sum()) for column in sums.columns(np.arange(0, 10**6, 100)).T}
    assert sorted(norms.values()) == [2, 2, 4]
    assert np.unique(sums.column_norms(1)).tolist() == [2, 4]
    assert np.unique(sums.column_norms(2)).tolist() == [4, 10]
