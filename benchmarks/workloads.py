"""The workloads that HDMM, ResidualPlanner(+) and QuerySmasher are evaluated on, exactly: what the papers leave out is
fixed here.

Every function returns a :class:`tabulae.Workload`; all weights are 1. Where the paper names an attribute it has that
name here; the attributes of Adult and Loans are known by their sizes only. Sizes checked by
``tests/benchmarks/test_workloads.py``: numbers of queries and products, and tr(W'W), which fixes the error of the
identity strategy and so the papers' own baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations, pairwise

import numpy as np

import tabulae as tb

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
CPS = {"income": 50, "age": 100, "marital": 7, "race": 4, "sex": 2}
CENSUS = {"sex": 2, "hispanic": 2, "race": 64, "age": 115}
STATES = 51

NUMERIC = {"CPS": (tuple(CPS.values()), 2), "Adult": (ADULT, 5), "Loans": (LOANS, 4)}
"""Sizes, and how many of the first attributes are numbers, of which prefixes are asked."""
_LARGEST_SMALL = 5000  # cells of the largest "small" marginal


# one attribute -------------------------------------------------------------------------------------------
def all_range(n: int) -> tb.Workload:
    """All n(n+1)/2 ranges."""
    return tb.Workload.of(tb.AllRange(n))


def prefix(n: int) -> tb.Workload:
    """The n ranges that begin at the first cell."""
    return tb.Workload.of(tb.Prefix(n))


def width_32(n: int) -> tb.Workload:
    """The n - 31 ranges of exactly 32 cells."""
    return tb.Workload.of(tb.WidthRange(n, 32))


def permuted(n: int) -> tb.Workload:
    """All ranges over shuffled cells."""
    order = np.random.RandomState(0).permutation(n)  # the generator of the published experiment
    return tb.Workload.of(tb.Permuted(tb.AllRange(n), np.argsort(order)))


# several attributes ---------------------------------------------------------------------------------------
def example15() -> tb.Workload:
    """HDMM, Example 15 and Table 3: all two-way marginals of four attributes."""
    return tb.Workload.marginals(tb.Domain({"a1": 2, "a2": 5, "a3": 50, "a4": 100}), ways=[2])


def cps_marginals() -> tb.Workload:
    """CPS: all 32 marginals as one product."""
    return _cps({name: _with_total(n) for name, n in CPS.items()})


def cps_prefix() -> tb.Workload:
    """CPS: prefixes of income and age, crossed with all marginals of the rest, as one product."""
    factors = {name: _with_total(n) for name, n in CPS.items()}
    return _cps({**factors, "income": tb.Prefix(CPS["income"]), "age": tb.Prefix(CPS["age"])})


def adult_3d() -> tb.Workload:
    """Adult: all marginals of at most three attributes, 470 of them."""
    return tb.Workload.marginals(_numbered(ADULT), ways=[0, 1, 2, 3])


def adult_2d_prefix() -> tb.Workload:
    """Adult: all 91 pairs of attributes, prefixes in place of categories on the first five."""
    return ways("Adult", [2], prefixed=True)


def loans_small() -> tb.Workload:
    """Loans: the 188 marginals of at most 5,000 cells, the total among them."""
    domain = _numbered(LOANS)
    return _subsets(domain, _small(domain), ())


def loans_small_prefix() -> tb.Workload:
    """Loans: the same subsets, prefixes in place of categories on the four attributes of 101."""
    domain = _numbered(LOANS)
    return _subsets(domain, _small(domain), domain.names[: NUMERIC["Loans"][1]])


def sf1() -> tb.Workload:
    """Census 2010 Summary File 1, the tables of persons, for one state: 33 products, 4,151 queries."""
    return tb.Workload(tb.Domain(CENSUS), [tb.Table(name, _named(row)) for name, row in _sf1().items()])


def sf1_plus() -> tb.Workload:
    """The same tables for every state and the nation."""
    state = {"state": _with_total(STATES)}
    tables = [tb.Table(name, _named(row) | state) for name, row in _sf1().items()]
    return tb.Workload(tb.Domain({**CENSUS, "state": STATES}), tables)


def _with_total(n: int) -> tb.LinearOperator:
    return tb.Stack([tb.Identity(n), tb.Total(n)])


def _cps(factors: dict[str, tb.LinearOperator]) -> tb.Workload:
    return tb.Workload(tb.Domain(CPS), [tb.Table("all", factors)])


def _numbered(sizes: tuple[int, ...]) -> tb.Domain:
    return tb.Domain({f"a{i + 1}": n for i, n in enumerate(sizes)})


def _small(domain: tb.Domain) -> list[tuple[str, ...]]:
    names = domain.names
    subsets = [s for k in range(len(names) + 1) for s in combinations(names, k)]
    return [s for s in subsets if math.prod(domain[name].size for name in s) <= _LARGEST_SMALL]


def _subsets(domain: tb.Domain, subsets: list[tuple[str, ...]], prefixed: Sequence[str]) -> tb.Workload:
    def factor(name: str) -> tb.LinearOperator:
        n = domain[name].size
        return tb.Prefix(n) if name in prefixed else tb.Identity(n)

    return tb.Workload(domain, [tb.Table("*".join(s) or "total", {a: factor(a) for a in s}) for s in subsets])


# ResidualPlanner(+), QuerySmasher -------------------------------------------------------------------------
Pairs = Callable[[int, int], tb.LinearOperator]


def ways(data: str, sizes: Iterable[int], *, prefixed: bool = False) -> tb.Workload:
    """All sets of so many attributes of CPS, Adult or Loans: categories, or prefixes of what is a number."""
    shape, numbers = NUMERIC[data]
    domain = _numbered(shape)
    subsets = [s for k in sizes for s in combinations(domain.names, k)]
    return _subsets(domain, subsets, domain.names[:numbers] if prefixed else ())


def up_to_pairs(
    own: Sequence[tb.LinearOperator], pairs: Pairs | None = None, limit: float = math.inf
) -> tb.Workload:
    """The queries of each attribute, and of every two the product of both or, up to a limit, ``pairs(n, k)``.

    The limit is one of (n - 1)(k - 1).
    """
    asked = {f"a{i + 1}": operator for i, operator in enumerate(own)}
    domain = tb.Domain({name: operator.shape[1] for name, operator in asked.items()})
    tables = [tb.Table(name, {name: operator}) for name, operator in asked.items()]
    for a, b in combinations(asked, 2):
        n, k = domain[a].size, domain[b].size
        if pairs is not None and (n - 1) * (k - 1) <= limit:
            tables.append(tb.Table.joint(f"{a}*{b}", (a, b), pairs(n, k)))
        else:
            tables.append(tb.Table(f"{a}*{b}", {a: asked[a], b: asked[b]}))
    return tb.Workload(domain, tables)


def real_pairs(data: str, pairs: Pairs, limit: float) -> tb.Workload:
    """QuerySmasher, Table 2: prefixes or categories of each attribute of CPS, Adult or Loans, and all pairs."""
    shape, numbers = NUMERIC[data]
    return numbered_pairs(shape, numbers, pairs, limit)


def numbered_pairs(shape: Sequence[int], numbers: int, pairs: Pairs, limit: float = math.inf) -> tb.Workload:
    """Prefixes of the first attributes, categories of the others, and all pairs."""
    own = [(tb.Prefix if i < numbers else tb.Identity)(n) for i, n in enumerate(shape)]
    return up_to_pairs(own, pairs, limit)


def random_pairs(n: int, d: int) -> tb.Workload:
    """QuerySmasher, Table 3: 3n queries of each attribute and 3n^2 of each two, a cell in each with chance 0.3."""
    random = np.random.RandomState(42 + n)  # the generator of the published experiment
    one, two = ((random.rand(3 * k, k) < 0.3).astype(int) for k in (n, n * n))
    matrix = tb.Dense(two)
    return up_to_pairs([tb.Dense(one)] * d, lambda *_: matrix)


def mixed(n: int, d: int) -> tb.Workload:
    """QuerySmasher, Table 4: ranges of each attribute, a + b <= c of each two, prefixes of each three."""
    pairs = up_to_pairs([tb.AllRange(n)] * d, sums_up_to)
    prefix = tb.Prefix(n)
    threes = (tb.Table("*".join(s), dict.fromkeys(s, prefix)) for s in combinations(pairs.domain.names, 3))
    return tb.Workload(pairs.domain, [*pairs.tables, *threes])


@cache
def circular(n: int) -> tb.LinearOperator:
    """All n^2 ranges of cells on a circle, by length and first cell."""
    after = np.subtract.outer(np.arange(n), np.arange(n)).T % n  # of cell j behind cell i
    return tb.Dense((after <= np.arange(n)[:, None, None]).reshape(n * n, n).astype(int))


@cache
def sums_up_to(n: int, k: int) -> tb.LinearOperator:
    """Pairs with ``a + b <= c`` for every c, from 0."""
    return _thresholds(np.add.outer(np.arange(n), np.arange(k)))


@cache
def at_most_apart(n: int, k: int) -> tb.LinearOperator:
    """Pairs with ``|a - b| <= c`` for every c, from 0."""
    return _thresholds(abs(np.subtract.outer(np.arange(n), np.arange(k))))


def _thresholds(values: np.ndarray) -> tb.LinearOperator:
    return tb.Dense((values.ravel() <= np.arange(values.max() + 1)[:, None]).astype(int))


# what asks different things of an attribute ----------------------------------------------------------------
def prefixes_by_cells(n: int, d: int) -> tb.Workload:
    """For each two attributes the prefixes of the first by the categories of the second."""
    domain = tb.Domain({f"a{i}": n for i in range(d)})
    pairs = combinations(domain.names, 2)
    return tb.Workload(domain, [tb.Table(f"{a} {b}", {a: tb.Prefix(n), b: tb.Identity(n)}) for a, b in pairs])


def adult_example() -> tb.Workload:
    """The tables of examples/adult.toml."""
    domain = tb.Domain({"age": 85, "education": 16, "sex": 2, "hours": 99, "income": 2})
    cells = {name: tb.Identity(domain[name].size) for name in domain.names}
    return tb.Workload(
        domain,
        [
            tb.Table("age by sex", {name: cells[name] for name in ("age", "sex")}),
            tb.Table("education", {name: cells[name] for name in ("education", "sex", "income")}),
            tb.Table("ages", {"age": tb.AllRange(85)}),
            tb.Table("hours", {"hours": tb.AllRange(99)}),
        ],
    )


def ten_tables() -> tb.Workload:
    """Ranges (R), prefixes (P) and categories (I) of six attributes."""
    sizes, ask = (40, 30, 20, 10, 5, 2), {"R": tb.AllRange, "P": tb.Prefix, "I": tb.Identity}
    asked = ("0:R", "1:R", "02:PI", "13:PP", "01:PI", "234:III", "05:II", "145:PII", "2:R", "35:RI")
    tables = []
    for name in asked:
        places, kinds = name.split(":")
        factors = {f"a{i}": ask[k](sizes[int(i)]) for i, k in zip(places, kinds, strict=True)}
        tables.append(tb.Table(name, factors))
    return tb.Workload(tb.Domain({f"a{i}": n for i, n in enumerate(sizes)}), tables)


# SF1 ------------------------------------------------------------------------------------------------------
_AGE1 = (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85, 115)
_AGE3 = (*range(101), 105, 110, 115)

Row = tuple[tb.LinearOperator | None, ...]


def _bins(edges: tuple[int, ...]) -> tb.LinearOperator:
    return tb.Dense([[int(low <= age < high) for age in range(115)] for low, high in pairwise(edges)])


def _race1() -> np.ndarray:
    """Each of six races alone, and everything else (seven rows)."""
    rows = np.zeros((7, 64), dtype=np.int64)
    rows[np.arange(6), 2 ** np.arange(6)] = 1
    rows[6] = 1 - rows[:6].sum(axis=0)
    return rows


def _race2() -> np.ndarray:
    """Every combination of races, the numbers of people with one to six races, two or more (70 rows)."""
    races = np.array([int(cell).bit_count() for cell in range(64)])
    exactly = [races == k for k in range(1, 7)]
    return np.vstack([np.eye(64, dtype=np.int64)[1:], *exactly, races >= 2]).astype(np.int64)


def _sf1() -> dict[str, Row]:
    """The factors of each product on (sex, hispanic, race, age); None is the total."""
    each, each_and_all = tb.Identity(2), _with_total(2)
    hispanic, other = tb.Dense([[1, 0]]), tb.Dense([[0, 1]])
    race1, race2 = tb.Dense(_race1()), tb.Dense(_race2())
    white = tb.Dense(_race1()[:1])
    adult = tb.Dense([[int(age >= 18) for age in range(115)]])
    age1, age3 = _bins(_AGE1), _bins(_AGE3)
    total = (None, None, None, None)
    return {
        "P1": total,
        "P3": (None, None, race1, None),
        "P3 total": total,
        "P4": (None, each, None, None),
        "P4 total": total,
        "P5": (None, each, race1, None),
        "P5 total": (None, each_and_all, None, None),
        "P8": (None, None, race2, None),
        "P8 total": total,
        "P9": (None, each, None, None),
        "P9 not hispanic": (None, other, race2, None),
        "P9 total": total,
        "P10": (None, None, race2, adult),
        "P10 total": (None, None, None, adult),
        "P11": (None, each, None, adult),
        "P11 not hispanic": (None, other, race2, adult),
        "P11 total": (None, None, None, adult),
        "P12": (each, None, None, age1),
        "P12 total": (each_and_all, None, None, None),
        **_by_sex_and_age("P12A-I", age1, race1, white, hispanic, other),
        "PCT12": (each, None, None, age3),
        "PCT12 total": (each_and_all, None, None, None),
        **_by_sex_and_age("PCT12A-O", age3, race1, race1, hispanic, other),
    }


def _by_sex_and_age(
    name: str,
    age: tb.LinearOperator,
    race: tb.LinearOperator,
    not_hispanic_race: tb.LinearOperator,
    hispanic: tb.LinearOperator,
    other: tb.LinearOperator,
) -> dict[str, Row]:
    """Sex by age for each race, for Hispanics, and for some races among the rest."""
    each, each_and_all = tb.Identity(2), _with_total(2)
    return {
        f"{name} race": (each, None, race, age),
        f"{name} race total": (each_and_all, None, race, None),
        f"{name} hispanic": (each, hispanic, None, age),
        f"{name} hispanic total": (each_and_all, hispanic, None, None),
        f"{name} not hispanic": (each, other, not_hispanic_race, age),
        f"{name} not hispanic total": (each_and_all, other, not_hispanic_race, None),
    }


def _named(row: Row) -> dict[str, tb.LinearOperator]:
    return {name: factor for name, factor in zip(CENSUS, row, strict=True) if factor is not None}
