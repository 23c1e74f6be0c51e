"""The benchmark workloads have the sizes that reproduce the papers' own baselines."""

from __future__ import annotations

import math

import pytest
from tests.each import each

from benchmarks import workloads

SIZES = [  # queries m, products k, tr(W'W)
    (workloads.example15(), 6060, 6, 6 * 50_000),
    (workloads.cps_marginals(), 618_120, 1, 8_960_000),
    (workloads.cps_prefix(), 600_000, 1, 2_884_560_000),
    (workloads.adult_3d(), 21_043_262, 470, 3.013937942e20),
    (workloads.adult_2d_prefix(), 148_137, 91, 1.675412833e22),
    (workloads.loans_small(), 279_751, 188, 1.551671445e18),
    (workloads.loans_small_prefix(), 279_751, 188, 3.291524321e19),
    (workloads.sf1(), 4151, 33, 1_117_562),
    (workloads.sf1_plus(), 215_852, 33, 113_991_324),
    (workloads.all_range(64), 2080, 1, sum((i + 1) * (64 - i) for i in range(64))),
    (workloads.permuted(64), 2080, 1, sum((i + 1) * (64 - i) for i in range(64))),
    (workloads.prefix(64), 64, 1, 2080),
    (workloads.width_32(64), 33, 1, 33 * 32),
]


@each(("workload", "queries", "products", "trace"), SIZES)
def test_sizes(workload, queries, products, trace):
    got = 0
    for table in workload.tables:
        factors = table.terms[0].over(workload.domain)
        got += math.prod(int(factor.column_norms(2).sum()) for factor in factors)
    assert workload.queries == queries
    assert len(workload.tables) == products
    assert got == pytest.approx(trace, rel=5e-10)


def test_domains():
    assert workloads.sf1().domain.size == 29_440
    assert workloads.sf1_plus().domain.size == 1_501_440
    assert workloads.cps_marginals().domain.size == 280_000
    assert workloads.adult_3d().domain.size == pytest.approx(6.41263e17, rel=1e-6)
    assert workloads.loans_small().domain.size == pytest.approx(8.25357e15, rel=1e-6)
