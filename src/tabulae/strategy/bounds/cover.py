"""The covering bound for Laplace noise: few independent queries over many cells.

Write ``W'W = F'F`` with F (K x n), its columns p_j the points of the cells. A strategy A whose columns have L1
norms of at most 1, with reconstruction ``F = B A``, has the loss ``||B||_F^2 = sum_k |b_k|^2`` over the columns of
B, and puts all points into the hull of all +-b_k. That is so exactly where, for every direction u,

    |<u, b_k>| >= h(u) = max_j |<u, p_j>|   for some k.

So to choose a strategy is to cover all directions: b covers those u with ``|<u, b>| >= h(u)``, at the price ``|b|^2``.
The bound is the fractional cover: for weights v_u >= 0 of finitely many directions,

    loss >= sum v_u / rho,    rho = max over b of  (sum of v_u over the u that b covers) / |b|^2,

as ``sum v <= sum_k v{covered by b_k} <= rho sum_k |b_k|^2``. With ``<u, b>^2 / h(u)^2`` in the place of "covered",
which is never less, it is the dual of Gaussian noise: the best weights prove no less than that. Under replace-one
neighbours the points are differences of two columns of F.

Weights come from a linear program, rho from a search over all b: directions of b are divided into cells, and of every
cell it is taken that b is as near to each u as the cell allows. Cells that decide are divided further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

_RANK = 1e-6  # eigenvalues below this share of the largest are left out, which is safe
_MOST = 4  # dimensions
_DIRECTIONS = {2: 120, 3: 250, 4: 400}
_CUTS = {2: 128, 3: 20, 4: 6}  # along an edge of the cube whose faces are the first cells
_ROUNDS, _ROWS = 12, 600  # of the linear program, and rows added in each
_CELLS = 100_000  # more are not divided
_SETTLED = 0.01  # relative gap of rho at which no cell is divided
_ROUNDING = 1e-9


def covering_bound(gram: np.ndarray, neighbours: str = "add-remove") -> float | None:
    """Lower bound on ``||A||_1^2 ||W A^+||_F^2`` for W'W (n x n) of rank 2 to 4; None for others.

    >>> W = np.array([[1, 0, 1], [0, 1, 1]])  # two predicates that overlap: the optimum is 4
    >>> 3.8 < covering_bound(W.T @ W) < 4
    True
    """
    V, n = np.asarray(gram, dtype=float), len(gram)
    if neighbours == "replace":
        V = V - V.mean(axis=0) - V.mean(axis=1)[:, None] + V.mean()
    values, vectors = np.linalg.eigh((V + V.T) / 2)
    told = values > _RANK * max(values[-1], 0.0)
    if not 2 <= int(told.sum()) <= _MOST:
        return None
    margin = (n + 4) * float(np.finfo(float).eps) * float(np.linalg.norm(gram)) * 4
    points = vectors[:, told] * np.sqrt(np.maximum(values[told] - margin, 0.0))
    directions = _Directions.of(points, by_pairs=neighbours == "replace")
    cells = _Cells.first(points.shape[1])
    weights = _weights(directions, cells)
    return float(weights.sum()) / _most_covered(directions, cells, weights) * (1 - _ROUNDING)


@dataclass(frozen=True)
class _Directions:
    """Unit directions u (N x K) and the extent h of the points along each."""

    u: np.ndarray
    extent: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray, *, by_pairs: bool) -> _Directions:
        """Directions that are spread evenly where the points are spread as much to all sides."""
        k = points.shape[1]
        scale = np.linalg.cholesky(np.linalg.inv(points.T @ points / len(points)))
        even = (
            np.random.default_rng(0).normal(size=(_DIRECTIONS[k], k))
            if k > 2
            else _half_circle(_DIRECTIONS[k])
        )
        u = even @ scale.T
        u /= np.linalg.norm(u, axis=1)[:, None]
        along = u @ points.T
        extent = np.ptp(along, axis=1) if by_pairs else np.abs(along).max(axis=1)
        return cls(u, extent * (1 - 1e-12))

    def needed(self, centres: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """How long b must be at least to cover each u, for directions within an angle of a centre, (cells, N)."""
        cosine = np.minimum(np.abs(centres @ self.u.T), 1.0)
        angle = np.maximum(np.arccos(cosine) - widths[:, None], 0.0)
        return self.extent / np.maximum(np.cos(angle), 1e-300)


def _half_circle(count: int) -> np.ndarray:
    angles = np.arange(count) * math.pi / count
    return np.column_stack([np.cos(angles), np.sin(angles)])


@dataclass(frozen=True)
class _Cells:
    """Sets of directions, up to sign: boxes (corner and edge) on the faces of the cube, seen from its centre."""

    face: np.ndarray
    corner: np.ndarray
    edge: float

    @classmethod
    def first(cls, k: int) -> _Cells:
        """All directions."""
        count = _CUTS[k]
        grid = np.array(list(product(range(count), repeat=k - 1))) * 2.0 / count - 1
        return cls(np.repeat(np.arange(k), len(grid)), np.tile(grid, (k, 1)), 2.0 / count)

    def divided(self, chosen: np.ndarray) -> _Cells:
        """Each of some cells in halves along every edge."""
        steps = np.array(list(product((0.0, self.edge / 2), repeat=self.corner.shape[1])))
        corner = (self.corner[chosen][:, None] + steps).reshape(-1, self.corner.shape[1])
        return _Cells(np.repeat(self.face[chosen], len(steps)), corner, self.edge / 2)

    def centres(self) -> tuple[np.ndarray, np.ndarray]:
        """Unit vectors within the cells, and the angle from each to the farthest of its cell, a corner."""
        steps = np.array(list(product((0.0, self.edge), repeat=self.corner.shape[1])))
        middle = self._unit(self.corner + self.edge / 2)
        cosine = np.min(
            [np.einsum("ij,ij->i", middle, self._unit(self.corner + step)) for step in steps], axis=0
        )
        return middle, np.arccos(np.minimum(cosine, 1.0)) + 1e-9

    def _unit(self, flat: np.ndarray) -> np.ndarray:
        k = flat.shape[1] + 1
        out = np.ones((len(flat), k))
        others = (self.face[:, None] + 1 + np.arange(k - 1)) % k
        np.put_along_axis(out, others, flat, axis=1)
        return out / np.linalg.norm(out, axis=1)[:, None]


def _ratios(needed: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each cell the most weight covered over the length squared, and that length."""
    order = np.argsort(needed, axis=1)
    lengths = np.take_along_axis(needed, order, axis=1)
    ratios = np.cumsum(weights[order], axis=1) / lengths**2
    best = ratios.argmax(axis=1)[:, None]
    return np.take_along_axis(ratios, best, axis=1)[:, 0], np.take_along_axis(lengths, best, axis=1)[:, 0]


def _weights(directions: _Directions, cells: _Cells) -> np.ndarray:
    """Weights that no b at the middle of a cell covers more of than its length squared, as large as may be."""
    middle, widths = cells.centres()
    needed = directions.needed(middle, widths / 2)
    weights = directions.extent**2 / len(directions.extent)
    rows: list[np.ndarray] = []
    limits: list[np.ndarray] = []
    for _ in range(_ROUNDS):
        ratios, lengths = _ratios(needed, weights)
        if rows and ratios.max() <= 1 + _SETTLED:
            break
        chosen = np.argsort(-ratios)[:_ROWS]
        chosen = chosen[ratios[chosen] > 1] if rows else chosen
        rows.append(needed[chosen] <= lengths[chosen, None])
        limits.append(lengths[chosen] ** 2)
        most = directions.extent**2 * 4  # keeps what no row limits yet finite
        found = linprog(
            -np.ones(len(weights)), A_ub=sp.csr_array(np.concatenate(rows).astype(float)),
            b_ub=np.concatenate(limits), bounds=np.column_stack([np.zeros(len(most)), most]), method="highs",
        )  # fmt: skip
        weights = np.maximum(found.x, 0.0)
    return weights


def _most_covered(directions: _Directions, cells: _Cells, weights: np.ndarray) -> float:
    """An upper bound on rho, from all cells; those that decide are divided while there is room."""
    kept = weights > 0
    directions, weights = _Directions(directions.u[kept], directions.extent[kept]), weights[kept]
    reached, settled = 0.0, 0.0
    while True:
        middle, widths = cells.centres()
        above, _ = _ratios(directions.needed(middle, widths), weights)
        reached = max(reached, float(_ratios(directions.needed(middle, 0 * widths), weights)[0].max()))
        decides = above > reached * (1 + _SETTLED)
        settled = max(settled, float(above[~decides].max(initial=0.0)))
        if not decides.any():
            return settled
        if decides.sum() * 2 ** cells.corner.shape[1] > _CELLS:
            return max(settled, float(above.max()))
        cells = cells.divided(decides)
