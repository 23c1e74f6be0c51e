"""One list of workloads that strategy, measurement and estimation tests share."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np

import tabulae as tb

PEOPLE = tb.Domain({"sex": ["F", "M"], "age": range(8), "race": 3})
AGE5 = tb.Recode.from_edges("age3", PEOPLE["age"], [3, 6])
DOMAIN = PEOPLE.with_recodes(AGE5)


def _tables() -> dict[str, tb.Table]:
    view = DOMAIN.resolve("age3")
    return {
        "ranges": tb.Table("ranges", {"sex": tb.Identity(2), "age": tb.AllRange(8)}),
        "prefix": tb.Table("prefix", {"race": tb.Identity(3), "age": tb.Prefix(8)}, weight="3/2"),
        "windows": tb.Table("windows", {"age": tb.WidthRange(8, 3)}),
        "recode": tb.Table("recode", {"age": view.operator, "race": tb.Identity(3)}, weight=2),
        "total": tb.Table("total", {}),
        "either": tb.Workload.from_sql(
            DOMAIN, "SELECT sex, COUNT(*) FROM t WHERE age < 3 OR race = 2 GROUP BY sex"
        ).tables[0],
    }


TABLES = _tables()

WORKLOADS = {
    "one attribute": tb.Workload.of(tb.AllRange(12)),
    "rank deficient": tb.Workload.of(tb.WidthRange(12, 5)),
    "one product": tb.Workload(DOMAIN, [TABLES["ranges"]]),
    "union": tb.Workload(DOMAIN, [TABLES["ranges"], TABLES["prefix"], TABLES["total"]]),
    "recodes": tb.Workload(DOMAIN, [TABLES["recode"], TABLES["windows"]]),
    "disjunction": tb.Workload(DOMAIN, [TABLES["either"], TABLES["recode"]]),
    "marginals": tb.Workload.marginals(DOMAIN, ways=[1, 2]),
}

BUDGETS = {"gaussian": tb.ZCDP("1/2"), "laplace": tb.PureDP(1)}


@cache
def selected(
    workload: str,
    noise: str,
    method: str,
    neighbours: str = "add-remove",
    objective: str = "total",
) -> tb.Strategy:
    """What `select` answers, once for all tests of a process that ask for it."""
    return tb.select(
        WORKLOADS[workload],
        noise=noise,  # type: ignore[arg-type]
        method=method,
        neighbours=neighbours,  # type: ignore[arg-type]
        objective=objective,  # type: ignore[arg-type]
    )


def dense(workload: tb.Workload) -> dict[str, np.ndarray]:
    """Each table's matrix, written out."""
    return {t.name: np.asarray(t.operator(workload.domain).dense(), float) for t in workload.tables}


def dense_strategy(strategy: tb.Strategy) -> np.ndarray:
    """All blocks of a strategy in counts, written out."""
    return np.vstack([np.asarray(b.query.dense(), float) * 2.0**-b.exponent for b in strategy.blocks])


def dense_rmse(strategy: tb.Strategy, workload: tb.Workload, neighbours: str) -> float:
    """Error at unit noise by hand: sensitivity, P^+ and traces from matrices that are written out."""
    a = dense_strategy(strategy)
    scales = np.repeat([float(b.scale) for b in strategy.blocks], [b.rows for b in strategy.blocks])
    p = 2 if strategy.noise == "gaussian" else 1
    moves = a.T if neighbours == "add-remove" else (a.T[:, None] - a.T[None]).reshape(-1, len(scales))
    power = float((np.abs(moves) ** p / scales).sum(axis=1).max())
    variances = scales * power if p == 2 else (scales * power) ** 2
    # Scaled to near unit variances: the group of the total may have next to no noise.
    root = np.linalg.pinv(a / np.sqrt(variances)[:, None], rcond=1e-12)
    total = sum(
        float(t.weight) ** 2 * float(np.square(dense(workload)[t.name] @ root).sum()) for t in workload.tables
    )
    return math.sqrt(total / workload.queries)


def sensitivity_by_hand(strategy: tb.Strategy, neighbours: str) -> Fraction:
    """In exact arithmetic, over all columns or pairs of them."""
    p = 2 if strategy.noise == "gaussian" else 1
    worst = Fraction(0)
    columns = [np.asarray(b.query.dense(), dtype=object) for b in strategy.blocks]
    weights = [1 / (b.scale * Fraction(2) ** (p * b.exponent)) for b in strategy.blocks]
    n = strategy.domain.size
    pairs = (
        ((j, None) for j in range(n)) if neighbours == "add-remove" else itertools.combinations(range(n), 2)
    )
    for j, k in pairs:
        moves = [c[:, j] if k is None else c[:, j] - c[:, k] for c in columns]
        cost = sum(w * sum(abs(int(x)) ** p for x in m) for w, m in zip(weights, moves, strict=True))
        worst = max(worst, Fraction(cost))
    return worst
