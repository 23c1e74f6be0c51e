"""Exact tables of any shape, against dense linear algebra over all cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain import Domain, Table, Term, Workload
from tabulae.domain.invariants import ExplicitInvariants
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import AllRange, Dense, Identity, Total


def random_table(name: str, shape: tuple[int, int], rng: np.random.Generator) -> Table:
    rows = rng.integers(1, 4, 2)
    terms = []
    for _ in range(rng.integers(1, 3)):
        factors = [
            Dense(rng.integers(0, 3 if rng.random() < 0.2 else 2, (m, n)))
            for m, n in zip(rows, shape, strict=True)
        ]
        terms.append(Term(int(rng.choice([1, 2])), dict(zip("ab", factors, strict=True))))
    return Table.of_terms(name, terms)


class Case:
    """Random exact tables and a table asked about, with their dense matrices; cells repeat, so that some merge."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shape = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        self.domain = Domain({"a": shape[0], "b": shape[1]})
        self.exact = [random_table("x", shape, rng), random_table("y", shape, rng)]
        self.asked = random_table("x", shape, rng)  # a name may be that of an exact table
        self.C = np.concatenate([np.asarray(t.operator(self.domain).dense()) for t in self.exact])
        self.W = np.asarray(self.asked.operator(self.domain).dense())
        self.inverse = np.linalg.pinv(self.C, rcond=1e-12)
        self.null = np.eye(self.domain.size) - self.inverse @ self.C
        self.truth = rng.integers(0, 50, self.domain.size)
        self.values = [np.asarray(t.operator(self.domain) @ self.truth) for t in self.exact]
        self.counts = np.concatenate(self.values)
        self.cells = rng.normal(20, 10, self.domain.size)
        self.invariants = ExplicitInvariants(self.domain, self.exact)


cases = st.integers(0, 10**9).map(Case)


@given(cases)
def test_restriction_and_what_is_known_are_the_projections_over_all_cells(case: Case) -> None:
    exact = case.invariants
    assert exact.rank == np.linalg.matrix_rank(case.C)
    left = case.W @ case.null
    restricted = exact.restricted(case.asked)
    assert restricted.divisor == 1
    found = np.zeros(left.shape) if restricted.operator is None else restricted.operator.dense()
    np.testing.assert_allclose(found, left, atol=1e-10)
    fixed = np.abs(left).max(axis=1) < 1e-9
    np.testing.assert_array_equal(exact.determined(case.asked), fixed)
    np.testing.assert_array_equal(found[fixed], 0)  # not by rounding
    known = exact.known(case.asked, case.values)
    np.testing.assert_allclose(known, case.W @ case.inverse @ case.counts, atol=1e-7)
    np.testing.assert_array_equal(known[fixed], (case.W @ case.truth)[fixed])


@given(cases)
def test_restriction_over_given_merged_cells(case: Case) -> None:
    merges = Workload(
        case.domain,
        [
            Table("exact", case.exact[0].terms[0].factors),
            Table("all", {"a": Identity(case.domain.shape[0]), "b": Identity(case.domain.shape[1])}),
        ],
    ).merge()[1]
    found = case.invariants.restricted_over(case.asked, merges)
    np.testing.assert_allclose(found, case.W @ case.null, atol=1e-10)


@given(cases)
def test_cells_are_projected_and_then_moved_onto_the_exact_counts(case: Case) -> None:
    nearest = case.invariants.nearest(case.cells, case.values)
    np.testing.assert_allclose(nearest, case.null @ case.cells + case.inverse @ case.counts, atol=1e-8)
    scaled = np.rint(nearest * 2**12).astype(np.int64)
    settled = case.invariants.settle_cells(scaled, case.values, 12)
    np.testing.assert_array_equal(case.C @ settled, case.counts * 2**12)
    assert np.abs(settled - scaled).max() < 200


@given(cases)
def test_answers_are_those_of_cells_with_the_exact_counts(case: Case) -> None:
    nearest = case.null @ case.cells + case.inverse @ case.counts
    scaled = np.rint(case.W @ nearest * 2**12).astype(np.int64)
    settled = case.invariants.settle(case.asked, scaled, case.values, 12)
    assert np.abs(settled - scaled).max() < 200
    # Every k with k'W = b'C gives k't = b'c: k and -b span the left null space of W above C.
    both = np.concatenate([case.W, case.C])
    left, singular, _ = np.linalg.svd(both)
    null = left[:, int(np.sum(singular > 1e-9)) :]
    if np.linalg.matrix_rank(case.W @ case.null, tol=1e-8) < np.linalg.matrix_rank(case.W):
        stated = np.concatenate([settled / 2**12, case.counts])
        np.testing.assert_allclose(null.T @ stated, 0, atol=1e-8)
    else:
        np.testing.assert_array_equal(settled, scaled)
    fixed = case.invariants.determined(case.asked) & np.any(case.W != 0, axis=1)
    np.testing.assert_array_equal(settled[fixed], (case.W @ case.truth)[fixed] * 2**12)


def test_what_is_exact_is_so_however_near_parallel_the_exact_rows_are() -> None:
    domain = Domain({"a": 3})
    exact = ExplicitInvariants(domain, [Table("t", {"a": Dense([[10**7, 10**7, 1], [10**7, 10**7 + 1, 0]])})])
    difference = Table("d", {"a": Dense([[0, -1, 1], [0, -1, 2]])})
    assert exact.determined(difference).tolist() == [True, False]
    operator = exact.restricted(difference).operator
    assert operator is not None
    np.testing.assert_array_equal(operator.dense()[0], 0)
    assert np.abs(operator.dense()[1]).max() > 0.1


def test_merged_cells_weigh_as_many_cells_as_they_stand_for() -> None:
    domain = Domain({"age": 100})
    exact = ExplicitInvariants(
        domain, [Table("young or middle", {"age": Dense([[1] * 20 + [1] * 40 + [0] * 40])})]
    )
    asked = Table("young", {"age": Dense([[1] * 20 + [0] * 80])})
    operator = exact.restricted(asked).operator
    assert operator is not None
    # A third of the sixty cells: the young keep 2/3 of themselves and lose 1/3 of the others.
    np.testing.assert_allclose(operator.dense()[0], [2 / 3] * 20 + [-1 / 3] * 40 + [0] * 40, atol=1e-14)
    np.testing.assert_allclose(exact.known(asked, [np.array([90])]), [30])


def test_no_cell_becomes_negative_when_large_ones_can_move() -> None:
    domain = Domain({"a": 3, "b": 4})
    tables = [Table("a", {"a": Identity(3)}), Table("pairs", {"b": Dense([[1, 1, 0, 0], [0, 1, 1, 0]])})]
    truth = np.array([0, 9, 0, 0, 0, 0, 7, 0, 0, 0, 0, 8])
    exact = ExplicitInvariants(domain, tables)
    values = [np.asarray(t.operator(domain) @ truth) for t in tables]
    scaled = np.where(truth > 0, truth * 16 + np.arange(12) % 3, 0)
    settled = exact.settle_cells(scaled, values, 4)
    np.testing.assert_array_equal(settled >= 0, True)
    np.testing.assert_array_equal(settled[truth == 0], 0)
    for table, value in zip(tables, values, strict=True):
        np.testing.assert_array_equal(table.operator(domain) @ settled, value * 16)


def test_overlapping_age_groups_add_up_in_every_range() -> None:
    domain = Domain({"age": 60})
    groups = [(0, 18), (5, 18), (18, 65), (15, 50), (0, 5), (16, 60)]
    table = Table("groups", {"age": Dense([[int(a <= age < b) for age in range(60)] for a, b in groups])})
    rng = np.random.default_rng(0)
    truth = rng.poisson(30, 60)
    values = [np.asarray(table.operator(domain) @ truth)]
    exact = ExplicitInvariants(domain, [table])
    assert exact.rank == 5  # the fifth group is the first less the second
    asked = Table("ranges", {"age": AllRange(60)})
    nearest = exact.nearest(truth + rng.normal(0, 5, 60), values)
    scaled = np.rint(asked.operator(domain) @ nearest * 2**10).astype(np.int64)
    settled = exact.settle(asked, scaled, values, 10)
    ranges = {(a, b): i for i, (a, b) in enumerate((a, b) for a in range(60) for b in range(a, 60))}
    for a, b in ranges:
        assert settled[ranges[a, b]] == sum(int(settled[ranges[c, c]]) for c in range(a, b + 1))
    for (a, b), count in zip(groups, values[0].tolist(), strict=True):
        assert settled[ranges[a, min(b, 60) - 1]] == count * 2**10
    assert np.abs(settled - scaled).max() <= 10


def test_random_predicates_beside_a_table_of_other_predicates() -> None:
    rng = np.random.default_rng(5)
    domain = Domain({"x": 30})
    exact = Table("exact", {"x": Dense(rng.integers(0, 2, (6, 30)))})
    asked = Table("asked", {"x": Dense(rng.integers(0, 2, (40, 30)))})  # more than the cells: large relations
    truth = rng.poisson(10, 30)
    invariants = ExplicitInvariants(domain, [exact])
    values = [np.asarray(exact.operator(domain) @ truth)]
    nearest = invariants.nearest(truth + rng.normal(0, 3, 30), values)
    scaled = np.rint(asked.operator(domain) @ nearest * 2**12).astype(np.int64)
    settled = invariants.settle(asked, scaled, values, 12)
    W, C = asked.operator(domain).dense(), exact.operator(domain).dense()
    both = np.concatenate([W, C]).astype(float)
    stated = np.concatenate([settled, values[0] * 2**12]).astype(float)
    cells = np.rint(
        np.linalg.pinv(both) @ stated
    )  # W and C have full column rank: the whole cells are unique
    np.testing.assert_array_equal(both @ cells, stated)
    assert np.abs(settled - scaled).max() <= 50


def test_values_that_contradict_are_named_by_row() -> None:
    domain = Domain({"a": 4})
    exact = ExplicitInvariants(
        domain, [Table("parts", {"a": Dense([[1, 1, 0, 0], [0, 0, 1, 1]])}), Table("total", {"a": Total(4)})]
    )
    assert exact.contradictions([np.array([2, 3]), np.array([5])]) == ()
    assert exact.contradictions([np.array([2, 3]), np.array([6])]) == ((2, (0, 1)),)
    odd = ExplicitInvariants(domain, [Table("twice", {"a": Dense([[2, 2, 0, 0]])})])
    assert odd.contradictions([np.array([3])]) == ()  # in fractions they can stand
    with pytest.raises(InvalidArgument, match="no whole numbers meet row 0"):
        odd.settle_cells(np.array([0, 1, 0, 0]), [np.array([3])], 0)


def test_what_is_too_large_is_refused_with_the_way_out() -> None:
    domain = Domain({"a": 80, "b": 80})
    exact = ExplicitInvariants(domain, [Table("sum", {"a": AllRange(80)})])
    assert exact.rank == 80
    with pytest.raises(Unsupported, match=r"6400 cells apart.*a: 80, b: 80.*at most 4096"):
        exact.determined(Table("ab", {"a": Identity(80), "b": Identity(80)}))
    with pytest.raises(Unsupported, match="common denominator"):
        exact.determined(Table("half", {"a": Dense(np.full((1, 80), 0.5))}))
