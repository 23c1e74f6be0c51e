"""Optimal query weighting (Program 1) for design queries that are Kronecker products, without their matrix.

The design set is ``(x)_i R_i``: every combination of rows, one an attribute. Its costs are a sum of Kronecker products,
``c = sum_l c_l (x)_i c_li``, and what the rows of weight ``w = lambda^p`` cost each cell is ``B'w`` with
``B = (x)_i |R_i|^p``, so that a point of the dual takes two products by B, factor by factor. Rows of an attribute whose
cells are all asked alike share a weight, and such an attribute has one cell in the dual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidArgument
from .query_weighting import Weighting


@dataclass(frozen=True)
class KronWeights:
    """Weights of a Kronecker product's rows, and the proof of how good they are.

    ``weights`` is lambda (c_1, ..., c_d), one for each class of rows and 0 where nothing is asked; ``loss`` is the
    squared error at sensitivity 1, ``lower`` what no weights of these rows go below.
    """

    weights: np.ndarray
    loss: float
    lower: float
    evaluations: int

    @property
    def gap(self) -> float:
        return self.loss / self.lower - 1.0


def kron_weighting(
    norms: Sequence[np.ndarray],
    costs: np.ndarray,
    *,
    p: int = 2,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
) -> KronWeights:
    """The best weights of products of design rows for one workload, within a proven ``tolerance``.

    Arguments:
        norms: an attribute's ``|R_i|^p`` (c_i, n_i): of each class of rows the sum, in every cell that differs in it.
        costs: c (c_1, ..., c_d), squared queries: what a unit of noise in the rows of a class adds to the workload's
            squared error; 0 for rows that are not needed.
        p: 2 for Gaussian noise, 1 for Laplace noise.
        tolerance: relative gap at which the search stops; ``time_limit`` in seconds stops it earlier.

    Raises :class:`~tabulae.errors.InvalidArgument` for costs that are negative, missing or all zero.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    Program 1; Kronecker products as in HDMM, section 6.

    >>> haar = np.array([[1.0, 1.0], [1.0, 1.0]])  # [1 1; 1 -1], squared
    >>> best = kron_weighting([haar, haar], np.array([[16.0, 1.0], [1.0, 1.0]]))
    >>> round(best.loss, 4)  # (4 + 1 + 1 + 1)^2
    49.0
    """
    costs = np.asarray(costs, dtype=float)
    if not np.isfinite(costs).all() or (costs < 0).any() or not costs.any():
        raise InvalidArgument("costs are squared errors: finite, at least 0, and some of them above")
    if costs.shape != tuple(len(n) for n in norms):
        raise InvalidArgument(
            f"costs of shape {costs.shape} do not fit {[len(n) for n in norms]} classes of rows"
        )
    forward = [np.asarray(n, dtype=float) for n in norms]
    backward = [np.ascontiguousarray(n.T) for n in forward]
    asked, cells = costs > 0, tuple(n.shape[1] for n in norms)
    weights = np.zeros(costs.shape)

    def columns(w: np.ndarray) -> np.ndarray:
        weights[asked] = w
        return apply_factors(backward, weights).ravel()

    search = Weighting(
        lambda mu: apply_factors(forward, mu.reshape(cells))[asked],
        columns,
        costs[asked],
        2 // p,
        tolerance,
        time_limit,
    )
    search.run(np.ones(int(np.prod(cells))))
    weights[asked] = search.best ** (1 / p)
    scale = float(costs.max())
    return KronWeights(weights, search.upper * scale, search.lower * scale, search.evaluations)


def apply_factors(factors: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """``((x)_i F_i) x`` for dense factors (k_i, n_i) and x of shape (n_1, ..., n_d)."""
    for i, factor in enumerate(factors):
        x = np.moveaxis(np.tensordot(factor, x, axes=(1, i)), 0, i)
    return x
