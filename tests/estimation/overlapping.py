"""Measurements of overlapping groups of queries, which the estimators' tests share."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
from tests.strategy.instances import BUDGETS, WORKLOADS

import tabulae as tb
from tabulae.strategy import Block

OVERLAPPING = ("union", "recodes", "disjunction", "marginals")


def measured(workload: str, noise: str, method: str = "workload", people: float = 3.0) -> tb.Measurement:
    """A rehearsal over few people, so that many true counts are 0."""
    wl = WORKLOADS[workload]
    strategy = tb.select(wl, noise=noise, method=method)  # type: ignore[arg-type]
    x = np.random.default_rng(5).poisson(people, wl.domain.size)
    return tb.measure(x, strategy, BUDGETS[noise], source=tb.noise.Insecure(7))


@cache
def large(
    noise: str = "gaussian", sizes: tuple[int, ...] = (48, 30, 25, 12)
) -> tuple[tb.Workload, tb.Strategy]:
    """Two-way tables, prefixes among them: neither few cells, nor few rows, nor marginals."""
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    pairs = [(i, j) for j in range(len(sizes)) for i in range(j)]
    tables = []
    for i, j in pairs:
        asked = {f"a{k}": tb.Prefix(sizes[k]) if (i, j) == (0, 1) else tb.Identity(sizes[k]) for k in (i, j)}
        tables.append(tb.Table(f"a{i}*a{j}", asked, weight=i + 1))
    workload = tb.Workload(domain, [*tables, tb.Table("total", {}, weight=2)])
    # The strategy of method "workload", without the bound that choosing it looks for; the total follows from others.
    power = 2 if noise == "gaussian" else 1
    blocks = [Block(t.name, t.operator(domain), scale=Fraction(1) / t.weight**power) for t in tables]
    return workload, tb.Strategy(domain, tuple(blocks), noise, "workload")  # type: ignore[arg-type]
