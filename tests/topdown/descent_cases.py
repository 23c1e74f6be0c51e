"""Small trees, true counts, and measurements of them: what descent and estimate tests share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from tests.geography.trees import random_spine

import tabulae as tb
from tabulae.privacy.noise import Insecure
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan

DOMAIN = tb.Domain({"type": 3, "age": 2, "race": 3})


@dataclass(frozen=True, eq=False)
class Case:
    """A plan and the truth: counts of every leaf, shape (leaves, D, N), 0 where a cell cannot occur."""

    plan: SpinePlan
    truth: np.ndarray

    def of_nodes(self) -> list[np.ndarray]:
        """Each node's counts on its support."""
        plan = self.plan
        found = np.zeros((plan.tree.size, *self.truth.shape[1:]), np.int64)
        np.add.at(found, plan.tree.leaf, self.truth)
        for nodes in reversed(plan.depths[1:]):
            np.add.at(found, plan.tree.parent[nodes], found[nodes])
        return [found[node, plan.dense_cells[plan.pattern[node]]] for node in range(plan.tree.size)]

    def values(self, seed: int | None) -> Iterator[SpinePieceValues]:
        """What is measured: the truth with the plan's noise, or without any where there is no seed."""
        counts, source = self.of_nodes(), None if seed is None else Insecure(seed)
        for piece in self.plan.pieces:
            x = np.stack([counts[node] for node in piece.nodes])
            laws = self.plan.laws(int(self.plan.classes[1][piece.nodes[0]]))
            support = self.plan.dense_cells[piece.pattern]
            answers = []
            for query, law in zip(self.plan.queries, laws, strict=True):
                if law is None:
                    answers.append(None)
                    continue
                exact = query.add_up(x, support).reshape(len(x), -1)
                answers.append(exact if source is None else exact + law.sample(exact.shape, source))
            yield SpinePieceValues(piece, tuple(answers))


def random_case(
    rng: np.random.Generator, leaves: int, depth: int, *, rho: str = "1", bypass: str | None = "gaussian"
) -> Case:
    """A tree of random shape, support and counts. "laplace" uses pure noise, and a tree without most of its levels."""
    spine = random_spine(rng, leaves, depth)
    shares = {level: Fraction(1, len(spine.levels)) for level in spine.levels}
    spine = spine.with_shares(shares) if bypass is None else spine.bypass(shares, noise=bypass)
    layout = CellLayout.of(DOMAIN, ["type"])
    names = ([], ["type"], ["age"], ["type", "age", "race"])
    queries = tuple(layout.margin(one) for one in names)
    parts = {level: (rng.multinomial(20, np.full(4, 0.25)) + 1).tolist() for level in spine.levels}
    given = {level: tuple(Fraction(p, sum(ps)) for p in ps) for level, ps in parts.items()}
    support = rng.random((leaves, layout.size)) < 0.6
    support[:, 0] |= ~support.any(axis=1)
    budget = tb.PureDP(rho) if bypass == "laplace" else tb.ZCDP(rho)
    plan = SpinePlan(spine, layout, queries, given, budget, Supports.of(support))
    size = rng.choice([0.0, 0.3, 3.0, 20.0], leaves)
    truth = rng.poisson(size[:, None, None] * rng.gamma(0.5, 2, (leaves, layout.size, layout.algebra.cells)))
    return Case(plan, truth * support[:, :, None])
