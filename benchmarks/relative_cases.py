"""The data and the workloads of the study of relative errors (Eigen-Design, Figure 3 and Table 2, relative rows).

What the paper leaves open is fixed here. Its census has 8 x 16 x 16 cells (age, occupation, income) and Adult
8 x 8 x 16 x 2 (age, work, education, income): 2048 cells each. A third data set, the census with education
(8 x 16 x 16 x 16, 32,768 cells), is asked where no matrix over all cells is needed.

* ``ranges``: a range of every attribute, all combinations.
* ``random ranges``: 2,000 queries drawn in two steps: how many attributes are constrained (1 to all, evenly) and which,
  then one range of each, evenly among its ranges.
* ``2-way marginals``; ``random marginals``: each of the 2^d marginals with probability 1/2.
* ``1-way range marginals``, ``2-way range marginals``: all ranges of every attribute, of every pair of attributes.
* ``1D CDF``, ``1D ranges, permuted``: over the cells in C order, and in a random order.
* ``predicates``: 2,000 sets of cells, each cell in a set with probability 1/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import scipy.sparse
from benchmarks.census import SHAPE, census

import tabulae as tb
from tabulae.linalg import Sparse

ADULT_FILE = Path(__file__).parents[2] / "shared/data/adult.csv"
ADULT = {"age": 8, "work": 8, "education": 16, "income": 2}
TRAINING = 32_561  # records of Adult's training part, which stand first in the file
FIRST_AGE = 16  # the age that code 0 stands for
QUERIES = 2_000
SEED = 2012

RANGE_METHODS: tuple[str, ...] = ("identity", "wavelet", "hierarchical")
MARGINAL_METHODS: tuple[str, ...] = ("identity", "fourier", "datacube", "residual")


@dataclass(frozen=True)
class Case:
    """A workload, the cells of its domain in the order of the data, and what it is answered from.

    ``others`` are the methods of ``select`` beside the eigen-design, each with the workload that it is given: one of
    products over attributes where the queries are listed over single cells, the marginals in place of their ranges
    for DataCube. ``certified`` cases are also answered from the optimum.
    """

    name: str
    workload: tb.Workload
    others: dict[str, tb.Workload]
    certified: bool = False


def adult() -> np.ndarray:
    """Counts (8, 8, 16, 2) of Adult's training part.

    Ages by decades (below 20 to 80 and over); work as in the file but for those without pay and those who never worked,
    who share a class; education and income as in the file. The published counts are "weight-aggregated"; the file
    keeps classes of weights only, so that each record counts once here.
    """
    codes = np.loadtxt(ADULT_FILE, delimiter=",", skiprows=1, dtype=np.int64, max_rows=TRAINING)
    age = np.clip((codes[:, 0] + FIRST_AGE) // 10 - 1, 0, 7)
    work = np.array([0, 1, 2, 3, 4, 5, 6, 6, 7])[codes[:, 1]]
    cells = np.ravel_multi_index((age, work, codes[:, 3], codes[:, 13]), tuple(ADULT.values()))
    return np.bincount(cells, minlength=2048).reshape(tuple(ADULT.values()))


DATA: dict[str, Callable[[], np.ndarray]] = {
    "adult": adult,
    "census": lambda: census().sum(axis=3),
    "census with education": census,
}


def domain_of(data: str) -> tb.Domain:
    """Sizes of the attributes of a data set."""
    sizes = {"adult": ADULT, "census": dict(list(SHAPE.items())[:3]), "census with education": SHAPE}
    return tb.Domain(sizes[data])


def cases(data: str) -> list[Case]:
    """The workloads asked of a data set."""
    domain = domain_of(data)
    ranges, two_way = all_ranges(domain), tb.Workload.marginals(domain, ways=[2])
    by_ranges = Case("ranges", ranges, dict.fromkeys(RANGE_METHODS, ranges), certified=True)
    by_cells = Case("2-way marginals", two_way, dict.fromkeys(MARGINAL_METHODS, two_way))
    if data == "census with education":
        return [by_ranges, by_cells]
    flat = tb.AllRange(domain.size)
    order = np.random.default_rng(SEED).permutation(domain.size)
    random, predicates = tb.Workload.of(random_ranges(domain)), tb.Workload.of(random_predicates(domain.size))
    some = random_marginals(domain)
    cdf, permuted = tb.Workload.of(tb.Prefix(domain.size)), tb.Workload.of(tb.Permuted(flat, order))
    over_attributes = dict.fromkeys(RANGE_METHODS, ranges)
    return [
        by_ranges,
        Case("random ranges", random, over_attributes, certified=True),
        by_cells,
        Case("random marginals", some, dict.fromkeys(MARGINAL_METHODS, some)),
        _of_range_marginals(domain, 1),
        _of_range_marginals(domain, 2),
        Case("1D CDF", cdf, dict.fromkeys(RANGE_METHODS, cdf), certified=True),
        Case(
            "1D ranges, permuted",
            permuted,
            dict.fromkeys(RANGE_METHODS, tb.Workload.of(flat)),
            certified=True,
        ),
        Case("predicates", predicates, over_attributes | {"fourier": ranges}),
    ]


def _of_range_marginals(domain: tb.Domain, ways: int) -> Case:
    workload = range_marginals(domain, ways)
    others = dict.fromkeys((*RANGE_METHODS, *MARGINAL_METHODS), workload)
    return Case(
        f"{ways}-way range marginals",
        workload,
        others | {"datacube": tb.Workload.marginals(domain, ways=[ways])},
    )


def all_ranges(domain: tb.Domain) -> tb.Workload:
    """All ranges of every attribute, as one product."""
    return tb.Workload(domain, [tb.Table("ranges", {a.name: tb.AllRange(a.size) for a in domain.attributes})])


def range_marginals(domain: tb.Domain, ways: int) -> tb.Workload:
    """All ranges of every choice of so many attributes."""
    return tb.Workload(
        domain,
        [
            tb.Table("*".join(names), {name: tb.AllRange(domain[name].size) for name in names})
            for names in combinations(domain.names, ways)
        ],
    )


def random_marginals(domain: tb.Domain) -> tb.Workload:
    """Each marginal, the total and the cells among them, with probability 1/2."""
    every = tb.Workload.marginals(domain, ways=range(len(domain.names) + 1)).tables
    taken = np.random.default_rng(SEED).random(len(every)) < 0.5
    return tb.Workload(domain, [table for table, take in zip(every, taken, strict=True) if take])


def random_ranges(domain: tb.Domain) -> tb.LinearOperator:
    """Queries over single cells, each a product of one range of some attributes."""
    draw = np.random.default_rng(SEED)
    rows = []
    for _ in range(QUERIES):
        constrained = draw.permutation(len(domain.shape))[: draw.integers(1, len(domain.shape) + 1)]
        row = np.ones(1, dtype=np.int64)
        for axis, n in enumerate(domain.shape):
            inside = np.ones(n, dtype=np.int64)
            if axis in constrained:
                first, last = np.argwhere(np.triu(np.ones((n, n))))[draw.integers(n * (n + 1) // 2)]
                inside = ((np.arange(n) >= first) & (np.arange(n) <= last)).astype(np.int64)
            row = np.multiply.outer(row, inside).ravel()
        rows.append(scipy.sparse.csr_array(row[None]))
    return Sparse(scipy.sparse.vstack(rows))


def random_predicates(cells: int) -> tb.LinearOperator:
    """Sets of cells, uniformly among all sets."""
    return tb.Dense(np.random.default_rng(SEED).integers(0, 2, (QUERIES, cells)))
