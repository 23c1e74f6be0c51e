"""Invariants against dense linear algebra: row space, restriction, exactness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.exact_instances import (
    DOMAIN,
    GENERAL,
    NESTED,
    TABLES,
    fixed_sums,
    margin,
    projectors,
    stacked,
)
from tests.each import each

from tabulae.domain import Constraint, Domain, Invariants, Table, Term
from tabulae.errors import InvalidArgument
from tabulae.linalg import Dense, Identity, Partition
from tabulae.strategy import has_neighbours

CASES = {**NESTED, **GENERAL}
EVERY = list(itertools.product(CASES, TABLES))
SHORT = EVERY[::3]  # of eight tables each exact set meets three others, in turn
_BITS = 20


@each("name", CASES)
def test_the_structure_is_the_one_expected(name: str) -> None:
    assert Invariants(DOMAIN, CASES[name]).structure == ("product" if name in NESTED else "explicit")


@each("name", CASES)
def test_rank_is_that_of_the_stacked_matrix(name: str) -> None:
    exact = Invariants(DOMAIN, CASES[name])
    assert exact.rank == np.linalg.matrix_rank(stacked(CASES[name]))
    assert exact.rows == len(stacked(CASES[name]))


@each("name, table", SHORT, long=EVERY)
def test_restriction_is_w_times_the_projector(name: str, table: Table) -> None:
    exact, (_, off) = Invariants(DOMAIN, CASES[name]), projectors(CASES[name])
    left = table.operator(DOMAIN).dense() @ off
    restricted = exact.restricted(table)
    got = 0 * left if restricted.operator is None else restricted.operator.dense() / restricted.divisor
    assert got == pytest.approx(left, abs=1e-9)
    assert np.array_equal(exact.determined(table), np.abs(left).max(axis=1) < 1e-9)


@each("name, table", SHORT, long=EVERY)
def test_known_part_and_exact_sums(name: str, table: Table) -> None:
    exact, (onto, off) = Invariants(DOMAIN, CASES[name]), projectors(CASES[name])
    rng = np.random.default_rng(5)
    x = rng.integers(0, 50, DOMAIN.size)
    values = [t.operator(DOMAIN) @ x for t in CASES[name]]
    queries = table.operator(DOMAIN).dense()
    assert exact.known(table, values) == pytest.approx(queries @ onto @ x, abs=1e-7)
    near = queries @ (off @ (x + rng.normal(0, 3, x.size)) + onto @ x)
    scaled = np.rint(near * 2**_BITS).astype(np.int64)
    settled = exact.settle(table, scaled, values, _BITS)
    assert settled.dtype == np.int64
    sums = fixed_sums(queries, off)
    assert sums @ settled == pytest.approx(sums @ (queries @ x) * 2**_BITS, rel=1e-12, abs=1e-3)
    assert np.abs(settled - scaled).max() <= 4 * len(queries)  # a few steps of 2^-20


@each("name", CASES)
def test_cells_are_projected_and_settled(name: str) -> None:
    exact, (onto, off) = Invariants(DOMAIN, CASES[name]), projectors(CASES[name])
    rng = np.random.default_rng(6)
    x = rng.integers(0, 50, DOMAIN.size)
    values = [t.operator(DOMAIN) @ x for t in CASES[name]]
    noisy = x + rng.normal(0, 3, x.size)
    near = exact.nearest(noisy, values)
    assert near == pytest.approx(off @ noisy + onto @ x, abs=1e-8)
    settled = exact.settle_cells(np.rint(near * 2**_BITS).astype(np.int64), values, _BITS)
    assert np.array_equal(stacked(CASES[name]) @ settled, np.concatenate(values) << _BITS)


@each("name", CASES)
def test_values_of_real_counts_never_contradict(name: str) -> None:
    x = np.random.default_rng(7).integers(0, 9, DOMAIN.size)
    values = [t.operator(DOMAIN) @ x for t in CASES[name]]
    assert Invariants(DOMAIN, CASES[name]).contradictions(values) == ()


@each("name", CASES)
def test_values_outside_the_image_contradict(name: str) -> None:
    """One count more in any row contradicts the others exactly where the row is a sum of them."""
    exact, matrix = Invariants(DOMAIN, CASES[name]), stacked(CASES[name])
    ends = np.cumsum([t.rows(DOMAIN) for t in CASES[name]])[:-1]
    x = np.random.default_rng(8).integers(0, 9, DOMAIN.size)
    for row in range(len(matrix)):
        values = matrix @ x
        values[row] += 1
        apart = np.linalg.matrix_rank(np.delete(matrix, row, axis=0)) == np.linalg.matrix_rank(matrix)
        found = exact.contradictions(np.split(values, ends))
        assert bool(found) == bool(apart)
        for later, earlier in found:
            assert 0 <= later < len(matrix)
            assert all(0 <= r < len(matrix) and r != later for r in earlier)


def test_a_contradiction_names_the_rows() -> None:
    exact = Invariants(DOMAIN, [margin("ea", "a"), margin("ec", "c")])
    with pytest.raises(InvalidArgument, match=r"'ec' \(c=.*cannot hold together with 'ea' \(a=0\)"):
        exact.check_values([np.array([1, 2, 3]), np.array([3, 4])])
    exact.check_values([np.array([1, 2, 3]), np.array([3, 3])])


@st.composite
def _margins(draw: st.DrawFn) -> tuple[Domain, list[Table], Table, int]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    domain = Domain({f"x{i}": n for i, n in enumerate(sizes)})
    subsets = st.sets(st.sampled_from(range(len(sizes))), max_size=len(sizes))
    chosen = draw(st.lists(subsets, min_size=1, max_size=3, unique_by=lambda s: tuple(sorted(s))))
    labels = [draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for n in sizes]
    groups = [Partition(np.unique(g, return_inverse=True)[1]) for g in labels]

    def table(name: str, axes: set[int], coarse: bool) -> Table:
        return Table(name, {f"x{i}": groups[i] if coarse else Identity(sizes[i]) for i in axes})

    tables = [table(f"e{k}", axes, draw(st.booleans())) for k, axes in enumerate(chosen)]
    asked = table("t", draw(subsets), draw(st.booleans()))
    return domain, tables, asked, draw(st.integers(0, 2**32))


@given(_margins())
def test_law_margins_and_recodes(case: tuple[Domain, list[Table], Table, int]) -> None:
    """For any margins and one recode of each attribute: projector, exact rows and exact sums are those of algebra."""
    domain, tables, asked, seed = case
    exact = Invariants(domain, tables)
    matrix = np.vstack([t.operator(domain).dense() for t in tables])
    off = np.eye(domain.size) - np.linalg.pinv(matrix.astype(float)) @ matrix
    queries = asked.operator(domain).dense()
    restricted = exact.restricted(asked)
    got = np.zeros(queries.shape) if restricted.operator is None else restricted.operator.dense()
    assert exact.structure == "product"
    assert exact.rank == np.linalg.matrix_rank(matrix)
    assert got / restricted.divisor == pytest.approx(queries @ off, abs=1e-8)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1000, domain.size)
    values = [t.operator(domain) @ x for t in tables]
    settled = exact.settle(asked, rng.integers(-50, 50, len(queries)) + (queries @ x << 4), values, 4)
    sums = fixed_sums(queries, off)
    assert sums @ settled == pytest.approx(sums @ (queries @ x) * 16, abs=1e-6 * (1 + x.sum()))


def test_margins_of_a_large_table_are_exact_in_a_pass() -> None:
    """10^6 cells under all two-way margins: 29,701 independent exact counts."""
    n = 100
    domain = Domain({"a": n, "b": n, "c": n})
    tables = [
        Table(f"e{p}{q}", {p: Identity(n), q: Identity(n)}) for p, q in (("a", "b"), ("b", "c"), ("a", "c"))
    ]
    exact = Invariants(domain, tables)
    x = np.random.default_rng(9).integers(0, 20, n**3)
    values = [t.operator(domain) @ x for t in tables]
    near = exact.nearest(x + np.random.default_rng(10).normal(0, 2, n**3), values)
    settled = exact.settle_cells(np.rint(near * 2**28).astype(np.int64), values, 28)
    assert exact.rank == n**3 - (n - 1) ** 3
    assert all(
        np.array_equal(t.operator(domain) @ settled, v << 28) for t, v in zip(tables, values, strict=True)
    )
    assert np.abs(settled / 2.0**28 - near).max() < 1e-4


def test_exact_tables_are_of_whole_numbers_and_count_somebody() -> None:
    with pytest.raises(InvalidArgument, match="not whole numbers"):
        Invariants(DOMAIN, [Table("half", {"a": Dense(np.full((1, 3), 0.5))})])
    with pytest.raises(InvalidArgument, match="counts nobody"):
        Invariants(DOMAIN, [Table("none", {"a": Dense(np.zeros((1, 3), dtype=int))})])
    with pytest.raises(InvalidArgument, match="at least one"):
        Invariants(DOMAIN, [])


def test_values_must_fit_the_tables() -> None:
    exact = Invariants(DOMAIN, [margin("ea", "a")])
    with pytest.raises(InvalidArgument, match="3 whole numbers"):
        exact.known(margin("t"), [np.array([1, 2])])
    with pytest.raises(InvalidArgument, match="3 whole numbers"):
        exact.known(margin("t"), [np.array([1.5, 2, 3])])
    with pytest.raises(InvalidArgument, match="give one each"):
        exact.known(margin("t"), [])


@pytest.mark.parametrize("bad", [1.5, float("nan"), "many", 2.0**60, True])
def test_a_constraint_is_of_whole_numbers(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="whole numbers"):
        Constraint.equal(margin("t"), bad)


def test_a_constraint_spreads_over_the_rows() -> None:
    limits = Constraint.bounds(margin("ab", "a", "b"), at_least=0).over(DOMAIN)
    assert limits.at_least is not None
    assert limits.at_least.shape == (18,)
    assert limits.at_most is None
    with pytest.raises(InvalidArgument, match="18 rows"):
        Constraint.equal(margin("ab", "a", "b"), [1, 2, 3]).over(DOMAIN)
    with pytest.raises(InvalidArgument, match="cross in row 1"):
        Constraint.bounds(margin("c", "c"), at_least=[0, 5], at_most=[1, 4])
    with pytest.raises(InvalidArgument, match="say nothing"):
        Constraint.bounds(margin("c", "c"))


def test_a_coefficient_that_a_prime_divides_is_no_zero() -> None:
    """Sums of products are compared with zero modulo primes; one prime alone would miss its multiples."""
    prime = 2**31 - 1
    domain = Domain({"a": 3, "b": 3})
    corner = Dense(np.array([[1, 0, 0]]))
    table = Table.of_terms("t", [Term(prime, {"a": corner}), Term(prime, {"b": corner})])
    assert not Invariants(domain, [Table("e", {})]).determined(table).any()


def test_neighbours_within_explicit_invariants() -> None:
    """Cells 1 and 2 look alike to a group's count; with a count of one of them as well nothing does."""
    domain = Domain({"a": 3})
    group = Table("g", {"a": Dense(np.array([[2, 1, 1]]))})
    single = Table("s", {"a": Dense(np.array([[0, 1, 0]]))})
    assert has_neighbours(Invariants(domain, [group])) is True
    assert has_neighbours(Invariants(domain, [group, single])) is False
