"""The weights with which noise enters estimates of areas' counts, which their intervals take to be 1 at most."""

from __future__ import annotations

import numpy as np
from tests.each import each
from tests.topdown.two_pass_cases import DenseSpine, random_exact, random_plan

TABLES = [(), ("type",), ("age", "race"), ("type", "age", "race")]


def weights(dense: DenseSpine) -> np.ndarray:
    """Of every noisy answer in every cell's estimate: Q P^+ over the variance."""
    plan, found = dense.plan, []
    for node in range(plan.tree.size):
        rows, kind = dense.node(node), int(plan.classes[1][node])
        support = plan.dense_cells[plan.pattern[node]]
        for query, law in zip(plan.queries, plan.laws(kind), strict=True):
            if law is not None:
                answers = query.add_up(rows.T.reshape(len(rows.T), support.size, -1), support)
                found.append(answers.reshape(len(answers), -1).T / law.variance_of_law)
    return np.concatenate(found) @ dense.variance


@each("seed", range(60))
def test_no_weight_is_above_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, whole=True)
    dense = DenseSpine(plan, tuple(random_exact(rng, plan, int(rng.integers(0, 2)))))
    by_cell = weights(dense)
    for names in TABLES:
        margin = plan.layout.margin(names)
        rows = dense.area(rng.random(plan.spine.leaves) < rng.choice([0.2, 0.5, 0.9]))
        table = margin.add_up(
            rows.T.reshape(rows.shape[1], plan.layout.size, -1), np.arange(plan.layout.size)
        )
        assert np.abs(by_cell @ table.reshape(rows.shape[1], -1)).max(initial=0) <= 1 + 1e-9
