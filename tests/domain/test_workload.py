"""Workloads: Gram matrices, merged cells and the published sizes of the benchmark workloads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain import Domain, Table, Term, Workload
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Prefix,
    Scaled,
    Stack,
    Total,
    WidthRange,
)

SIZES = {"a": 4, "b": 3, "c": 2}
DOMAIN = Domain(SIZES)


def matrices(n: int, rows: int | None) -> st.SearchStrategy[LinearOperator]:
    """Matrices with n columns, of every kind that merging treats in its own way."""
    heights = st.just(rows) if rows else st.integers(1, 3)
    entries = heights.flatmap(lambda m: st.lists(st.integers(-1, 2), min_size=m * n, max_size=m * n))
    plain = entries.map(lambda values: Dense(np.array(values).reshape(-1, n)))
    classes = st.lists(st.integers(-1, (rows or 2) - 1), min_size=n, max_size=n)
    parts = classes.map(lambda c: Partition(c, rows or 2))
    known: list[LinearOperator] = [Identity(n), Total(n), Prefix(n), AllRange(n), WidthRange(n, 2)]
    known += [Stack([Partition([0] * (n - 1) + [1]), Total(n)]), Scaled(Partition([0] * (n - 1) + [1]), 2)]
    known += [MatrixProduct(Prefix(2), Partition([0] * (n - 1) + [1]))]
    fitting = [op for op in known if rows is None or op.shape[0] == rows]
    return st.one_of(plain, parts, *([st.sampled_from(fitting)] if fitting else []))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    tables = []
    for k in range(draw(st.integers(1, 3))):
        first = {n: draw(matrices(size, None)) for n, size in SIZES.items() if draw(st.booleans())}
        terms = [Term(1, first)]
        for _ in range(draw(st.integers(0, 2))):
            heights = {n: first[n].shape[0] if n in first else 1 for n in SIZES}
            factors = {n: draw(matrices(size, heights[n])) for n, size in SIZES.items() if n in first}
            # Even numbers beside the first term's 1: equal products never cancel.
            terms.append(Term(draw(st.sampled_from([-2, 2, 4])), factors))
        tables.append(Table.of_terms(f"t{k}", terms, draw(st.sampled_from([1, 3, Fraction(1, 2)]))))
    return Workload(DOMAIN, tables)


def dense(workload: Workload) -> np.ndarray:
    return np.vstack([float(t.weight) * _plain(workload.domain, t) for t in workload.tables])


def _plain(domain: Domain, table: Table) -> np.ndarray:
    return np.sum([t.coefficient * _kron(t.over(domain)) for t in table.terms], axis=0)


def _kron(factors: Sequence[LinearOperator]) -> np.ndarray:
    return reduce(np.kron, [factor.dense() for factor in factors])


def gram(workload: Workload) -> np.ndarray:
    return np.sum([coefficient * _kron(factors) for coefficient, factors in workload.gram_terms()], axis=0)


@given(workloads())
def test_gram_terms_sum_to_the_gram_matrix(workload: Workload) -> None:
    matrix = dense(workload)
    assert workload.queries == len(matrix)
    # Entries are small multiples of 1/4: exact in floating point.
    assert np.array_equal(gram(workload), matrix.T @ matrix)


@given(workloads())
def test_merging_is_exact_and_coarsest(workload: Workload) -> None:
    merged, partitions = workload.merge()
    for table, smaller in zip(workload.tables, merged.tables, strict=True):
        restored = smaller.operator(merged.domain).dense() @ Kron(partitions).dense()
        assert np.array_equal(restored, table.operator(DOMAIN).dense())
        assert (smaller.name, smaller.weight) == (table.name, table.weight)
    assert merged.domain.names == DOMAIN.names
    for axis, partition in enumerate(partitions):
        columns = np.vstack([t.over(DOMAIN)[axis].dense() for table in workload.tables for t in table.terms])
        assert partition.shape == (len(np.unique(columns, axis=1).T), DOMAIN.shape[axis])
        assert merged.domain.shape[axis] == partition.shape[0]
        assert (partition.classes >= 0).all()


def test_merging_keeps_large_matrices_implicit() -> None:
    windows = WidthRange(30_000, 20_000)
    merged, (partition,) = Workload.of(windows).merge()
    assert partition.shape == (20_001, 30_000)
    (factor,) = merged.tables[0].terms[0].over(merged.domain)
    assert isinstance(factor, MatrixProduct)
    x = np.arange(30_000)
    assert np.array_equal(factor @ (partition @ x), windows @ x)


def test_repeated_products_are_listed_once() -> None:
    domain = Domain({"a": 3, "b": 2})
    names = ("one", "two", "three")
    workload = Workload(domain, [Table(name, {"a": Prefix(3)}, weight=k + 1) for k, name in enumerate(names)])
    ((coefficient, factors),) = workload.gram_terms()
    assert coefficient == 1 + 4 + 9
    assert np.array_equal(factors[0].dense(), Prefix(3).dense().T @ Prefix(3).dense())


def test_a_disjunction_has_four_gram_terms() -> None:
    """HDMM, Appendix A: the Gram matrix of a difference of two products is a sum of four."""
    either = [Term(1, {}), Term(-1, {"a": Dense([[0, 1, 1, 1]]), "b": Dense([[1, 0, 1]])})]
    workload = Workload(DOMAIN, [Table.of_terms("t", either)])
    assert [c for c, _ in workload.gram_terms()] == [1, -1, -1, 1]
    row = dense(workload)
    assert set(row.ravel()) == {0, 1}
    assert np.array_equal(gram(workload), row.T @ row)


def test_marginals_names_and_order() -> None:
    names = [table.name for table in Workload.marginals(DOMAIN, ways=[2, 0, 1, 3]).tables]
    assert names == ["total", "a", "b", "c", "a*b", "a*c", "b*c", "a*b*c"]
    assert [t.name for t in Workload.marginals(DOMAIN, ways=(1,)).tables] == ["a", "b", "c"]
    assert Workload.marginals(DOMAIN, ways=[2])["b*c"].columns(DOMAIN) == {
        "b": ("0", "1", "2"),
        "c": ("0", "1"),
    }
    for ways in ([], [4], [-1], [1.0], ["1"]):
        with pytest.raises(InvalidArgument, match="from 0 to 3"):
            Workload.marginals(DOMAIN, ways=ways)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="ask for fewer ways"):
        Workload.marginals(Domain({f"a{k}": 2 for k in range(40)}), ways=[20])


def trace(workload: Workload) -> Fraction:
    """tr W'W from the factors' column norms: exact, and nothing the size of the domain is formed."""
    total = Fraction(0)
    for table in workload.tables:
        assert len(table.terms) == 1
        factors = table.terms[0].over(workload.domain)
        total += table.weight**2 * math.prod(sum(int(v) for v in f.column_norms(2)) for f in factors)
    return total


def test_example_15_of_hdmm() -> None:
    """Domain (2, 5, 50, 100), all six two-way marginals: 6060 queries of rank 5749."""
    domain = Domain({"a": 2, "b": 5, "c": 50, "d": 100})
    workload = Workload.marginals(domain, ways=[2])
    assert workload.queries == 6060
    assert len(workload.tables) == 6
    # The Gram matrix of marginals is diagonal in the lattice: its rank counts the residual subsets asked for.
    subsets = {s for s in range(16) if any(s & ~pair == 0 for pair in (3, 5, 9, 6, 10, 12))}
    assert sum(math.prod(n - 1 for k, n in enumerate(domain.shape) if s >> k & 1) for s in subsets) == 5749


def test_cps_sizes() -> None:
    """CPS, domain (50, 100, 7, 4, 2): all marginals as one product, and prefixes on two attributes."""
    shape = (50, 100, 7, 4, 2)
    domain = Domain({f"a{k}": n for k, n in enumerate(shape)})
    both = {f"a{k}": Stack([Identity(n), Total(n)]) for k, n in enumerate(shape)}
    workload = Workload(domain, [Table("all", both)])
    assert workload.queries == 618_120
    assert workload.queries == Workload.marginals(domain, ways=range(6)).queries
    assert trace(workload) == trace(Workload.marginals(domain, ways=range(6))) == 8_960_000
    prefixes = Workload(domain, [Table("p", both | {"a0": Prefix(50), "a1": Prefix(100)})])
    assert prefixes.queries == 600_000
    assert trace(prefixes) == 2_884_560_000


def test_adult_sizes() -> None:
    """Adult, 14 attributes and 6.4e17 cells: 470 marginals, 21,043,262 queries, trace 3.013937942e20."""
    shape = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
    domain = Domain({f"a{k:02}": n for k, n in enumerate(shape)})
    workload = Workload.marginals(domain, ways=[0, 1, 2, 3])
    assert len(workload.tables) == 470
    assert workload.queries == 21_043_262
    assert f"{float(trace(workload)):.9e}" == "3.013937942e+20"
    # Every cell is counted once in each marginal.
    assert trace(workload) == 470 * domain.size
    assert len(workload.gram_terms()) == 470


def test_a_domain_that_sql_disjunctions_reach_is_merged_small() -> None:
    domain = Domain({"age": range(115), "race": 64, "sex": ["F", "M"]})
    workload = Workload.from_sql(domain, "SELECT sex, COUNT(*) FROM t WHERE age < 5 OR race = 3 GROUP BY sex")
    merged, partitions = workload.merge()
    assert merged.domain.shape == (2, 2, 2)
    assert merged.domain["age"].labels == ("0-4", "5-114")
    assert np.array_equal(partitions[1].classes, (np.arange(64) == 3).astype(int))
    assert merged.tables[0].columns(merged.domain) == {"sex": ("F", "M")}


def test_of_one_matrix() -> None:
    workload = Workload.of(AllRange(16))
    assert workload.domain == Domain({"x": 16})
    assert workload.tables == (Table("x", {"x": AllRange(16)}),)
    assert workload == Workload.of(AllRange(16))
    assert hash(workload) == hash(Workload.of(AllRange(16)))
    assert workload != Workload.of(AllRange(17))
    with pytest.raises(InvalidArgument, match=r"wrap an array as Dense"):
        Workload.of(np.eye(3))  # type: ignore[arg-type]


def test_bad_workloads_are_refused() -> None:
    table = Table("t", {"a": Identity(4)})
    with pytest.raises(InvalidArgument, match="two tables are named 't'"):
        Workload(DOMAIN, [table, table])
    with pytest.raises(InvalidArgument, match="at least one table"):
        Workload(DOMAIN, [])
    with pytest.raises(InvalidArgument, match="is not a table"):
        Workload(DOMAIN, [Identity(4)])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="over a Domain"):
        Workload({"a": 4}, [table])  # type: ignore[arg-type]
    with pytest.raises(
        InvalidArgument, match="table 't': the matrix of 'a' has 4 columns, but the domain has 3"
    ):
        Workload(Domain({"a": 3}), [table])
    with pytest.raises(InvalidArgument, match="did you mean 'age'"):
        Workload(DOMAIN, [Table("age", {})])["agee"]
