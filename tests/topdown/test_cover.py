"""Areas as the fewest nodes of which they are sums."""

from __future__ import annotations

import numpy as np
from tests.each import each
from tests.topdown.two_pass_cases import random_plan

from tabulae.products.areas.estimate import covers, leaves_held
from tabulae.products.areas.spine_plan import SpinePlan


def leaves_below(plan: SpinePlan) -> list[set[int]]:
    """The leaves in each node, from the definition."""
    found: list[set[int]] = [set() for _ in range(plan.tree.size)]
    for leaf, node in enumerate(plan.tree.leaf.tolist()):
        while node >= 0:
            found[node].add(leaf)
            node = int(plan.tree.parent[node])
    return found


@each("seed", range(20))
def test_nodes_are_whole_disjoint_and_as_few_as_can_be(seed):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    below, held = leaves_below(plan), leaves_held(plan)
    assert held.tolist() == [len(leaves) for leaves in below]
    units = plan.spine.hierarchy.units
    area = units[rng.integers(len(units))].copy() if seed % 2 else rng.integers(-1, 2, plan.spine.leaves)
    area[rng.random(area.size) < 0.2] = -1
    inside = np.flatnonzero(area >= 0)
    nodes, owner = covers(plan, held, inside, area[inside])
    assert (np.diff(nodes) > 0).all()
    leaves = [leaf for node in nodes.tolist() for leaf in below[node]]
    assert sorted(leaves) == inside.tolist()
    for node, own in zip(nodes.tolist(), owner.tolist(), strict=True):
        assert {int(area[leaf]) for leaf in below[node]} == {own}
        if node:
            assert {int(area[leaf]) for leaf in below[plan.tree.parent[node]]} != {own}
