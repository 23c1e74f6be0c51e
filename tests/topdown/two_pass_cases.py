"""Small random spines with everything that may differ on them, and dense least squares for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
from tests.geography.trees import random_areas, random_shares, random_spine

from tabulae import ZCDP, Domain, PureDP, Recode
from tabulae.products.areas.constraints import ExactMargin
from tabulae.products.areas.descent.descent import MeasuredTotals
from tabulae.products.areas.estimate import Estimation, Here, MeasuredNodes
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.passes.area_variances import area_covariances
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.passes.two_pass import TwoPassEstimate, Upward
from tabulae.products.areas.passes.vectors import NodeVectors, Vectors
from tabulae.products.areas.spine.spine import Spine
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan
from tabulae.products.areas.stages import Checkpoint
from tabulae.products.areas.tasks import in_threads

DENSE = [(), ("type",), ("type", "age"), ("race",)]
ASKED = [(), ("type",), ("race",), ("age", "race"), ("coarse",)]


def random_domain(rng: np.random.Generator) -> Domain:
    domain = Domain({"type": 3, "age": 2, "race": int(rng.integers(1, 4))})
    return domain.with_recodes(Recode.from_map("coarse", domain["type"], {0: "x", 1: "y", 2: "x"}))


def random_plan(
    rng: np.random.Generator, *, leaves: tuple[int, int] = (2, 9), whole: bool = False
) -> SpinePlan:
    """A plan over a random spine. ``whole``: every unit of every level is a node."""
    domain = random_domain(rng)
    dense = DENSE[rng.integers(len(DENSE))]
    names = [q for q in ASKED if q != ("coarse",) or "type" in dense]
    asked = [names[i] for i in np.flatnonzero(rng.random(len(names)) < 0.6)]
    impossible = None
    if dense == ("type", "age"):
        impossible = np.zeros((3, 2), bool)
        impossible[0, 0] = rng.random() < 0.5
    layout = CellLayout.of(domain, dense, impossible)
    queries = tuple(layout.margin(q) for q in [*asked, domain.names])
    spine = random_spine(rng, int(rng.integers(*leaves)), int(rng.integers(2, 5)))
    budget, noise = (ZCDP("1/3"), "gaussian") if rng.random() < 0.5 else (PureDP("2/3"), "laplace")
    shares = random_shares(rng, spine)
    if whole or rng.random() < 0.2:
        spine = spine.with_shares(shares)
    else:
        if rng.random() < 0.2:
            shares[spine.levels[-1]] += shares.pop(spine.levels[0])
            shares[spine.levels[0]] = Fraction(0)
        spine = spine.bypass({level: shares[level] for level in spine.levels}, noise=noise)
    support = rng.random((spine.leaves, layout.size)) < 0.7
    support[np.arange(spine.leaves), rng.integers(0, layout.size, spine.leaves)] = True
    if rng.random() < 0.5:
        spine = spine.hold("held", random_areas(rng, spine))
    return SpinePlan(
        spine, layout, queries, _query_shares(rng, spine, len(queries)), budget, Supports.of(support)
    )


def _query_shares(rng: np.random.Generator, spine: Spine, queries: int) -> dict[str, tuple[Fraction, ...]]:
    found = {}
    for level in spine.levels:
        parts = rng.integers(0, 9, queries)
        parts[-1] += 1
        found[level] = tuple(Fraction(int(part), int(parts.sum())) for part in parts)
    return found


def random_exact(rng: np.random.Generator, plan: SpinePlan, margins: int) -> list[ExactMargin]:
    """Margins over dense attributes, exact at levels all of whose units are nodes."""
    names = [(), *((name,) for name in plan.layout.dense)]
    names += [plan.layout.dense] if len(plan.layout.dense) > 1 else []
    names += [("coarse",)] if "type" in plan.layout.dense else []
    levels = [*plan.spine.levels, *2 * list(plan.spine.held)]
    return [
        ExactMargin(levels[rng.integers(len(levels))], plan.layout.margin(names[rng.integers(len(names))]))
        for _ in range(margins)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class DenseSpine:
    """One vector of all leaves' cells, and all that is known of it as rows of matrices.

    Args:
        plan: the spine.
        exact: margins that are exact.
    """

    plan: SpinePlan
    exact: tuple[ExactMargin, ...] = ()

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each leaf's cells (D, N) begin, whether they can occur or not."""
        return np.arange(self.plan.spine.leaves + 1) * self.plan.layout.size * self.plan.layout.algebra.cells

    @cached_property
    def possible(self) -> np.ndarray:
        """Which cells can occur."""
        return np.repeat(self.plan.support.rows.ravel(), self.plan.layout.algebra.cells)

    def area(self, leaves: np.ndarray) -> np.ndarray:
        """Adds the cells (D, N) of some leaves: shape (D N, possible cells)."""
        one = np.eye(self.plan.layout.size * self.plan.layout.algebra.cells)
        return np.concatenate([one * bool(inside) for inside in leaves], axis=1)[:, self.possible]

    def inside(self, node: int) -> np.ndarray:
        """Shape (leaves,): those of a node."""
        at = self.plan.tree.leaf.copy()
        while (at > node).any():
            at = np.where(at > node, self.plan.tree.parent[at], at)
        return at == node

    def node(self, node: int) -> np.ndarray:
        """Adds the cells of a node on its own support: shape (k N, possible cells)."""
        cells = self.plan.dense_cells[self.plan.pattern[node]]
        n = self.plan.layout.algebra.cells
        return (
            self.area(self.inside(node))
            .reshape(-1, n, self.possible.sum())[cells]
            .reshape(cells.size * n, -1)
        )

    @cached_property
    def information(self) -> np.ndarray:
        """Of all measurements."""
        found = np.zeros((self.possible.sum(),) * 2)
        for node in range(self.plan.tree.size):
            rows, kind = self.node(node), int(self.plan.classes[1][node])
            support = self.plan.dense_cells[self.plan.pattern[node]]
            for query, law in zip(self.plan.queries, self.plan.laws(kind), strict=True):
                if law is not None:
                    asked = query.add_up(
                        rows.T.reshape(-1, support.size, self.plan.layout.algebra.cells), support
                    )
                    asked = asked.reshape(len(asked), -1).T
                    found += asked.T @ asked / law.variance_of_law
        return found

    def linear(self, information: NodeVectors) -> np.ndarray:
        """The right-hand side of least squares, from m of every node."""
        return sum(
            (
                self.node(node).T @ information.take(np.array([node])).ravel()
                for node in range(self.plan.tree.size)
            ),
            np.zeros(self.possible.sum()),
        )

    @cached_property
    def equalities(self) -> np.ndarray:
        """The exact sums as rows: by margin, unit and class."""
        found = [np.zeros((0, self.possible.sum()))]
        every = np.arange(self.plan.layout.size)
        for one in self.exact:
            unit = self.plan.spine.areas(one.level).unit
            for u in range(self.plan.spine.areas(one.level).codes.size):
                rows = self.area(unit == u).reshape(every.size, -1, self.possible.sum())
                label = np.arange(one.margin.classes)[:, None] == one.margin.label
                found.append(np.einsum("cd,dnx->cx", label.astype(float), rows))
        return np.concatenate(found)

    @cached_property
    def variance(self) -> np.ndarray:
        """Of the estimate of all cells: on the null space of the equalities."""
        if not len(self.equalities):
            return np.linalg.inv(self.information)
        _, sizes, rows = np.linalg.svd(self.equalities)
        free = rows[(sizes > 1e-9).sum() :].T
        return free @ np.linalg.inv(free.T @ self.information @ free) @ free.T

    def estimate(self, information: NodeVectors, truth: np.ndarray) -> np.ndarray:
        """Of all cells; the exact sums are those of ``truth``."""
        return truth + self.variance @ (self.linear(information) - self.information @ truth)

    def exact_values(self, truth: np.ndarray) -> list[np.ndarray]:
        """The exact counts of each margin."""
        sums, found = self.equalities @ truth, []
        for one in self.exact:
            size = self.plan.spine.areas(one.level).codes.size * one.margin.classes
            found.append(sums[:size].reshape(-1, one.margin.classes))
            sums = sums[size:]
        return found


def kind_matrix(plan: SpinePlan, matrices: np.ndarray) -> np.ndarray:
    """Matrices of each kind (kinds, j, k) as one over natural coordinates: shape (j N, k N)."""
    algebra, (j, k) = plan.layout.algebra, matrices.shape[1:]
    one = np.eye(k * algebra.cells).reshape(-1, k, algebra.cells)
    found = algebra.unrotate(algebra.apply(matrices, algebra.rotate(one)))
    return found.reshape(-1, j * algebra.cells).T


def numbers(vectors: Vectors) -> np.ndarray:
    """All numbers of all nodes, one after the other in the order of nodes."""
    return np.concatenate([vectors.take(np.array([node])).ravel() for node in range(vectors.plan.tree.size)])


def measured(rng: np.random.Generator, plan: SpinePlan, dense: DenseSpine, truth: np.ndarray) -> NodeVectors:
    """m of every node, from answers with Gaussian noise of the laws' variances."""
    found = NodeVectors.zeros(plan)
    for piece in plan.pieces:
        support = plan.dense_cells[piece.pattern]
        counts = np.stack([dense.node(node) @ truth for node in piece.nodes.tolist()])
        counts = counts.reshape(piece.nodes.size, support.size, -1)
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        values = []
        for query, law in zip(plan.queries, laws, strict=True):
            answers = query.add_up(counts, support).reshape(piece.nodes.size, -1)
            scale = 0 if law is None else law.variance_of_law**0.5
            values.append(None if law is None else answers + scale * rng.normal(size=answers.shape))
        found.put(piece.nodes, plan.information(SpinePieceValues(piece, tuple(values))))
    return found


def estimation(
    plan: SpinePlan, information: NodeVectors, folder: Path | None = None, workers: int = 1
) -> Estimation:
    """An estimate from what measurements say of each node, in memory or in a work folder."""
    measured = MeasuredNodes(information, MeasuredTotals.none(plan.tree.size), "")
    return Estimation(plan, measured, Here(plan, Checkpoint(folder, ""), in_threads(workers)))


def gls(
    plan: SpinePlan,
    information: NodeVectors,
    cov: Covariances,
    exact: Sequence[np.ndarray] = (),
    folder: Path | None = None,
) -> TwoPassEstimate:
    return estimation(plan, information, folder).least_squares(cov, exact)


def up_pass(plan: SpinePlan, information: NodeVectors, folder: Path | None = None) -> Upward:
    return estimation(plan, information, folder).upward().upward(((0, plan.tree.size),))


def covariance_of(cov: Covariances, leaves: np.ndarray) -> np.ndarray:
    """The variance of the sum of a set of leaves (a mask, or positions): shape (kinds, D, D)."""
    area = np.full(cov.plan.spine.leaves, -1)
    area[leaves] = 0
    return next(area_covariances(cov, area, 1))
