"""Linear equations in whole numbers: ranks, relations, contradictions and exact solutions near a given vector."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg.integer_system import IntegerSystem, QueryRelations, ShortKernel
from tabulae.linalg.integers import IntegerRows, integer_product


def eliminated(matrix: np.ndarray) -> list[int]:
    """The rows that earlier rows do not determine, by elimination in fractions."""
    kept, basis = [], []
    for number, row in enumerate(matrix.tolist()):
        left = [Fraction(x) for x in row]
        for pivot, other in basis:
            factor = left[pivot] / other[pivot]
            left = [x - factor * y for x, y in zip(left, other, strict=True)]
        pivot = next((j for j, x in enumerate(left) if x), None)
        if pivot is not None:
            basis.append((pivot, left))
            kept.append(number)
    return kept


def determinant(matrix: np.ndarray) -> Fraction:
    rows, total = [[Fraction(x) for x in row] for row in matrix.tolist()], Fraction(1)
    for i in range(len(rows)):
        pivot = next((k for k in range(i, len(rows)) if rows[k][i]), None)
        if pivot is None:
            return Fraction(0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        total *= rows[i][i] * (1 if pivot == i else -1)
        for k in range(i + 1, len(rows)):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    return total


@st.composite
def matrices(draw: st.DrawFn, low: int = -4, high: int = 5) -> np.ndarray:
    rows, columns = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 10**9)))
    if draw(st.booleans()):
        return rng.integers(0, 2, (rows, columns))
    inner = draw(st.integers(1, 4))  # of low rank
    return rng.integers(low, high, (rows, inner)) @ rng.integers(-1, 2, (inner, columns))


@given(matrices())
def test_first_rows_are_kept_and_the_others_are_their_exact_combinations(matrix: np.ndarray) -> None:
    system = IntegerSystem(matrix)
    assert system.kept.tolist() == eliminated(matrix)
    assert system.rank == len(system.kept)
    assert {r.row for r in system.dependent} == set(range(len(matrix))) - set(system.kept.tolist())
    for row, multiplier, rows, coefficients in system.dependent:
        assert multiplier > 0
        assert np.all(rows < row)
        assert np.all(coefficients != 0)
        np.testing.assert_array_equal(multiplier * matrix[row], coefficients @ matrix[rows])


@given(matrices(), st.integers(0, 10**9))
def test_contradictions_are_found_exactly_where_no_solution_is(matrix: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = matrix @ rng.integers(-9, 10, matrix.shape[1])
    system = IntegerSystem(matrix)
    assert system.contradictions(values) == ()
    changed = values.copy()
    changed[rng.integers(len(values))] += 1
    solvable = len(eliminated(np.column_stack([matrix, changed]))) == system.rank
    found = system.contradictions(changed)
    assert (found == ()) == solvable
    for row, rows in found:
        alone = [*rows, row]
        assert len(eliminated(np.column_stack([matrix, changed])[alone])) > len(eliminated(matrix[alone]))
        with pytest.raises(InvalidArgument, match="contradicts"):
            system.settle(np.zeros(matrix.shape[1], dtype=int), changed)


@given(matrices(-6, 7), st.integers(0, 10**9), st.booleans())
def test_settling_is_exact_and_near(matrix: np.ndarray, seed: int, prioritised: bool) -> None:
    rng = np.random.default_rng(seed)
    n = matrix.shape[1]
    truth = rng.integers(0, 2**40, n)
    system = IntegerSystem(scipy.sparse.csr_array(matrix), rng.permutation(n) if prioritised else None)
    near = truth + rng.integers(-3, 4, n)
    settled = system.settle(near, matrix @ truth)
    np.testing.assert_array_equal(matrix @ settled, matrix @ truth)
    # Not so far as to depend on the size of the numbers: entries are at most 24 here, in at most 8 columns.
    assert np.abs(settled - near).max() < 2**20
    np.testing.assert_array_equal(system.settle(truth, matrix @ truth), truth)


@given(matrices(-6, 7), st.integers(0, 10**9))
def test_a_solution_in_whole_numbers_is_found_where_there_is_one(matrix: np.ndarray, seed: int) -> None:
    kept = eliminated(matrix)
    if not kept:
        return
    values = np.random.default_rng(seed).integers(-5, 6, len(kept))
    rows = matrix[kept]
    system = IntegerSystem(rows)
    if not _solvable(rows.tolist(), values.tolist()):
        with pytest.raises(InvalidArgument, match="no whole numbers"):
            system.settle(np.zeros(rows.shape[1], dtype=int), values)
    else:
        solution = system.settle(np.zeros(rows.shape[1], dtype=int), values)
        np.testing.assert_array_equal(rows @ solution, values)


def _solvable(rows: list[list[int]], values: list[int]) -> bool:
    """Whether independent rows have a whole solution: column by column by Euclid's algorithm, then substitution."""
    columns = [list(c) for c in zip(*rows, strict=True)]
    left = list(values)
    for i in range(len(rows)):
        live = columns[i:]
        while sum(1 for c in live if c[i]) > 1:
            live.sort(key=lambda c: (c[i] == 0, abs(c[i])))
            for c in live[1:]:
                times = c[i] // live[0][i]
                c[:] = [x - times * y for x, y in zip(c, live[0], strict=True)]
        live.sort(key=lambda c: c[i] == 0)
        columns[i:] = live
        if left[i] % live[0][i]:
            return False
        times = left[i] // live[0][i]
        left = [x - times * y for x, y in zip(left, live[0], strict=True)]
    return True


def _margins(n: int) -> np.ndarray:
    unit, ones = np.eye(n, dtype=int), np.ones((1, n), dtype=int)
    parts = [
        np.kron(unit, np.kron(unit, ones)),
        np.kron(unit, np.kron(ones, unit)),
        np.kron(ones, np.kron(unit, unit)),
    ]
    return np.concatenate(parts)


def test_the_margins_of_a_cube_move_cells_by_little() -> None:
    n = 8
    matrix = _margins(n)
    system = IntegerSystem(matrix)
    assert system.rank == n**3 - (n - 1) ** 3
    rng = np.random.default_rng(0)
    truth = rng.poisson(5, n**3)
    exact = truth + rng.normal(0, 3, n**3)
    exact -= np.linalg.lstsq(matrix, matrix @ (exact - truth), rcond=1e-10)[0]
    near = np.rint(exact * 2**10).astype(np.int64)
    settled = system.settle(near, matrix @ truth * 2**10)
    np.testing.assert_array_equal(matrix @ settled, matrix @ truth * 2**10)
    moved = np.abs(settled - near)
    assert moved.max() < 40
    assert np.count_nonzero(moved) <= system.rank


@pytest.mark.parametrize(("rows", "columns"), [(20, 115), (30, 40), (25, 25)])
def test_random_predicates_are_settled_by_short_vectors(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    matrix = rng.integers(0, 2, (rows, columns))
    system = IntegerSystem(matrix)
    truth = rng.poisson(5, columns) * 2**20
    near = truth + rng.integers(-1, 2, columns)
    settled = system.settle(near, matrix @ truth)
    np.testing.assert_array_equal(matrix @ settled, matrix @ truth)
    # Elimination alone moves cells by thousands or more here.
    assert np.abs(settled - near).max() <= 50


def test_columns_that_the_first_ones_do_not_generate_are_used() -> None:
    row = np.array([*range(6, 86, 2), 15])  # whatever is odd needs the last column
    settled = IntegerSystem(row[None]).settle(np.zeros(41, dtype=int), np.array([1]))
    assert int(row @ settled) == 1
    assert np.abs(settled).max() <= 5


def test_cells_of_high_priority_move_and_others_stay() -> None:
    rng = np.random.default_rng(1)
    unit, ones = np.eye(6, dtype=int), np.ones((1, 6), dtype=int)
    matrix = np.concatenate([np.kron(unit, ones), np.kron(ones, unit)])
    cells = rng.integers(1, 50, 36)
    zero = np.arange(36) % 7 == 3
    cells[zero] = 0
    values = matrix @ (cells + np.where(zero, 0, rng.integers(-2, 3, 36)))
    settled = IntegerSystem(matrix, priority=-cells).settle(cells, values)
    np.testing.assert_array_equal(matrix @ settled, values)
    np.testing.assert_array_equal(settled[zero], 0)


def test_numbers_beyond_64_bits_stay_exact() -> None:
    rows = IntegerRows(2, np.array([[1, 2**61]]))
    rows.subtract_outer(np.array([-(2**61)]), np.array([1, 2**61]))
    assert rows.data.tolist() == [[1 + 2**61, 2**61 + 2**122]]
    assert integer_product(np.array([[2**40, -1]]), np.array([[2**40], [5]])).tolist() == [[2**80 - 5]]
    # 1, 2^40, 2^80, ...: each row is nearly the one before times 2^40, and the last is dependent.
    chain = np.eye(5, dtype=np.int64) * -(2**40) + np.eye(5, k=1, dtype=np.int64)
    matrix = np.concatenate([chain, [[0, 0, 0, 0, 1]]])
    (relation,) = IntegerSystem(matrix).dependent
    assert relation.multiplier == 2**40
    wide = IntegerSystem(np.concatenate([chain[:4], [[1, 0, 0, 0, 0]], [[0, 0, 0, 0, 1]]])).dependent[0]
    assert wide.coefficients.tolist()[-1] == 2**160


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="whole numbers"):
        IntegerSystem(np.array([[0.5]]))
    with pytest.raises(InvalidArgument, match="one number for each"):
        IntegerSystem(np.eye(2, dtype=int), priority=[1])
    with pytest.raises(InvalidArgument, match="give 2 whole numbers"):
        IntegerSystem(np.eye(2, dtype=int)).contradictions([1])
    with pytest.raises(InvalidArgument, match="no whole numbers meet row 1"):
        IntegerSystem(np.array([[1, 0], [1, 2]])).settle(np.array([0, 0]), np.array([1, 2]))
    random = IntegerSystem(np.random.default_rng(0).integers(0, 2, (125, 130)))
    with pytest.raises(Unsupported, match="overlap so irregularly"):
        random._steps.failing(np.ones(125, dtype=int))


# short vectors ---------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 10**9))
def test_short_vectors_generate_every_whole_vector(h: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    H = rng.integers(-30, 31, (h, h + more))
    if len(eliminated(H)) < h:
        return
    kernel = ShortKernel(H)
    vectors = np.concatenate([kernel._steps, kernel._kernel])
    assert abs(determinant(vectors)) == 1
    image = integer_product(H, vectors.T)
    np.testing.assert_array_equal(np.triu(image, 1), 0)
    np.testing.assert_array_equal(np.diag(image), kernel.divisors)
    target = H @ rng.integers(-5, 6, h + more)
    np.testing.assert_array_equal(H @ kernel.solve(target), target)
    assert kernel.remainders(target[:, None]).tolist() == [-1]


# relations between queries ---------------------------------------------------------------------------


@given(matrices(), st.integers(1, 8), st.integers(0, 10**9))
def test_relations_span_what_the_exact_sums_fix(matrix: np.ndarray, queries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    exact = matrix[eliminated(matrix)]
    asked = rng.integers(0, 2, (queries, matrix.shape[1]))
    found = QueryRelations(scipy.sparse.csr_array(exact), scipy.sparse.csr_array(asked))
    for relation in found.own:
        combined = relation.coefficients @ asked[relation.rows]
        np.testing.assert_array_equal(relation.multiplier * asked[relation.row], combined)
    np.testing.assert_array_equal(found.matrix @ asked[found.kept], found.known @ exact)
    # Their number is the dimension of {k : k'W in R}, and they are independent.
    together = len(eliminated(np.concatenate([exact, asked])))
    assert found.free == together - len(exact)
    assert len(found.own) + len(found.matrix) == queries - found.free
    assert len(eliminated(found.matrix)) == len(found.matrix)
    for row in range(queries):
        inside = len(eliminated(np.concatenate([exact, asked[[row]]]))) == len(exact)
        assert found.determined[row] == inside


def test_answers_meet_every_relation() -> None:
    exact = scipy.sparse.csr_array([[1, 1, 1, 1]])
    asked = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]])
    found = QueryRelations(exact, scipy.sparse.csr_array(asked))
    assert found.are_small
    settled = found.settle(np.array([101, 100, 52, 50, 190]), np.array([200]))
    assert settled[0] + settled[1] == settled[4] == 200
    assert settled[2] + settled[3] == settled[0]
