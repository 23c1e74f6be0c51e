"""The workloads of the Eigen-Design paper's evaluation: what the paper leaves open is chosen, and seeded, here.

Sizes: 2,048 cells, as one attribute, as 64 x 32, as 8 x 16 x 16 and as 8 x 8 x 16 x 2, the last two being the paper's
own data sets (Table 1, Census and Adult); 8,192 cells where the paper has as many. Marginals also of six and eleven
attributes.

* ``ranges``: every product of ranges, one on each attribute.
* ``random-ranges``: 4,096 range queries in two steps (Xiao, Wang and Gehrke): how many attributes have a predicate, 1
  to all alike, and which; then one range on each, every range alike. The other attributes are not restricted.
* ``marginals-k``: all k-way marginals. ``random-marginals``: every set of attributes but the empty one is taken with
  probability 1/2 (as for the cuboids of Ding and others).
* ``range-marginals-k``: all ranges over every k attributes, summed over the others; on 8 x 16 x 16.
* ``prefix-2048``: the CDF workload. ``predicates``: 65,536 queries, each cell in each with probability 1/2.
* ``permuted``: the same cells in another order, that of ``benchmarks.workloads``.

The random ranges and the predicates are no products, so their cells are one attribute, and the strategies that follow
attributes are built on the grid that the queries were drawn from: a :class:`Case` has both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

import tabulae as tb
from benchmarks import workloads

CELLS = 2048
SHAPES = {"2048": (2048,), "64x32": (64, 32), "8x16x16": (8, 16, 16), "8x8x16x2": (8, 8, 16, 2)}
MARGINAL_SHAPES = {
    "8x16x16": (8, 16, 16),
    "8x8x16x2": (8, 8, 16, 2),
    "4x4x4x4x4x2": (4, 4, 4, 4, 4, 2),
    "2^11": (2,) * 11,
}
LARGE = (16, 16, 8, 4)  # 8,192 cells
QUERIES = 4096  # random ranges
PREDICATES = 65_536

EXAMPLE_4 = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, -1, -1, -1, -1],
    ]
)
"""The paper's Figure 1 (b): students by gender and four classes of grades."""


@dataclass(frozen=True)
class Case:
    """A workload and, where its queries are no products, the grid that they live on.

    ``grid`` has the same cells in the same order, as attributes; None where ``asked`` has them itself. ``queries`` is
    the number of queries where ``asked`` has others with the same W'W (Proposition 6), else None.
    """

    asked: Callable[[], tb.Workload]
    grid: tuple[int, ...] | None = None
    queries: int | None = None


def example_4() -> tb.Workload:
    """Eight queries over eight cells."""
    return tb.Workload.of(tb.Dense(EXAMPLE_4))


def ranges(shape: tuple[int, ...]) -> tb.Workload:
    """All ranges over one attribute, and all products of ranges over several."""
    domain = grid_of(shape)
    return tb.Workload(domain, [tb.Table("ranges", {n: tb.AllRange(domain[n].size) for n in domain.names})])


def range_marginals(shape: tuple[int, ...], ways: int) -> tb.Workload:
    """All ranges over every so many attributes."""
    domain = grid_of(shape)
    return tb.Workload(
        domain,
        [
            tb.Table("*".join(names), {n: tb.AllRange(domain[n].size) for n in names})
            for names in combinations(domain.names, ways)
        ],
    )


def marginals(shape: tuple[int, ...], ways: int) -> tb.Workload:
    """All marginals of so many attributes."""
    return tb.Workload.marginals(grid_of(shape), ways=[ways])


def random_marginals(shape: tuple[int, ...], seed: int = 0) -> tb.Workload:
    """Every set of attributes, except the empty one, with probability 1/2."""
    domain = grid_of(shape)
    subsets = [s for k in range(1, len(shape) + 1) for s in combinations(domain.names, k)]
    taken = np.random.default_rng(seed).random(len(subsets)) < 0.5
    chosen = [s for s, take in zip(subsets, taken, strict=True) if take]
    return tb.Workload(
        domain, [tb.Table("*".join(s), {n: tb.Identity(domain[n].size) for n in s}) for s in chosen]
    )


def random_ranges(shape: tuple[int, ...], queries: int = QUERIES, seed: int = 0) -> tb.Workload:
    """Random products of ranges, one row each over the cells of the grid in C order."""
    rng = np.random.default_rng(seed)
    rows = np.empty((queries, math.prod(shape)), dtype=np.int64)
    for row in rows:
        restricted = rng.choice(len(shape), size=rng.integers(1, len(shape) + 1), replace=False)
        box = np.ones(1, dtype=np.int64)
        for axis, n in enumerate(shape):
            box = np.kron(box, _random_range(n, rng) if axis in restricted else np.ones(n, dtype=np.int64))
        row[:] = box
    return tb.Workload.of(tb.Dense(rows))


def _random_range(n: int, rng: np.random.Generator) -> np.ndarray:
    """One of the n(n+1)/2 ranges, all alike."""
    first, end = np.sort(rng.choice(n + 1, size=2, replace=False))
    inside = np.zeros(n, dtype=np.int64)
    inside[first:end] = 1
    return inside


def predicates(n: int = CELLS, queries: int = PREDICATES, seed: int = 0) -> tb.Workload:
    """n queries with the W'W of ``queries`` random predicates: all errors follow from W'W alone (Proposition 6)."""
    rng = np.random.default_rng(seed)
    gram = np.zeros((n, n))
    for start in range(0, queries, 4096):
        rows = rng.integers(0, 2, size=(min(4096, queries - start), n)).astype(np.float32)
        gram += rows.T @ rows  # sums of at most 4,096 ones: exact
    return tb.Workload.of(tb.Dense(np.linalg.cholesky(gram).T))


def permuted_marginals(shape: tuple[int, ...], ways: int) -> tb.Workload:
    """All k-way marginals over shuffled cells: nothing of the attributes can be seen."""
    cells = math.prod(shape)
    plain = marginals(shape, ways)
    rows = np.vstack([table.operator(plain.domain).dense() for table in plain.tables]).astype(np.int64)
    order = np.random.RandomState(0).permutation(cells)
    return tb.Workload.of(tb.Dense(rows[:, order]))


def grid_of(shape: tuple[int, ...]) -> tb.Domain:
    """Attributes of these sizes."""
    return tb.Domain({f"a{i + 1}": n for i, n in enumerate(shape)})


CASES: dict[str, Case] = {
    "example-4": Case(example_4, (8,)),
    **{f"ranges-{name}": Case(lambda s=shape: ranges(s)) for name, shape in SHAPES.items()},
    **{f"random-ranges-{name}": Case(lambda s=shape: random_ranges(s), shape) for name, shape in SHAPES.items()},
    **{f"marginals-2-{name}": Case(lambda s=shape: marginals(s, 2)) for name, shape in MARGINAL_SHAPES.items()},
    **{
        f"random-marginals-{name}": Case(lambda s=shape: random_marginals(s))
        for name, shape in MARGINAL_SHAPES.items()
    },
    "permuted-2048": Case(lambda: workloads.permuted(CELLS)),
    "range-marginals-1": Case(lambda: range_marginals(SHAPES["8x16x16"], 1)),
    "range-marginals-2": Case(lambda: range_marginals(SHAPES["8x16x16"], 2)),
    "prefix-2048": Case(lambda: workloads.prefix(CELLS)),
    "predicates": Case(predicates, (CELLS,), PREDICATES),
    "permuted-marginals-2": Case(lambda: permuted_marginals(SHAPES["8x16x16"], 2), SHAPES["8x16x16"]),
    "ranges-8192": Case(lambda: ranges((8192,))),
    "marginals-2-8192": Case(lambda: marginals(LARGE, 2)),
}  # fmt: skip
