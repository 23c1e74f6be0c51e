"""Eigen-query separation: weigh like eigenvectors in groups, then the groups (section 4.2).

The eigen-queries, largest eigenvalue first, are cut into groups. Program 1 inside each group, as if it were the whole
set, decides how its queries compare; a group G at these weights costs ``loss_G`` and adds ``N_Gj`` to column j, and
Program 1 again, with groups for queries, decides how they compare: minimise ``sum_G loss_G t_G^-a`` over ``N't <= 1``.
Weights inside a group matter little beside those of groups, so they are settled to a per cent alone. The multipliers of
the last problem are multipliers of the whole one too, and so are those of the groups, added up by what each group costs
in the end: one product with B makes either a bound on all weights, and the better is kept. A single group is the whole
problem, and is solved as such.
"""

from __future__ import annotations

import time

import numpy as np

from ...errors import InvalidArgument
from .eigen_design import (
    Design,
    completed,
    eigen_queries,
)
from .interior_point import weigh_few
from .query_weighting import (
    QueryWeights,
    check_options,
    norm_weighting,
    weighting_bound,
)

_WITHIN = 1e-2  # relative gap inside a group
_FEW = 1024  # groups that Newton's method compares


def eigen_separation(
    gram: np.ndarray,
    *,
    group_size: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
) -> Design:
    """Program 2 with eigen-queries weighed in groups.

    Arguments:
        gram: V = W'W (n, n), of any rank.
        group_size: eigen-queries a group, about n^(1/3) by default.
        p: 2 for Gaussian noise, 1 for Laplace noise.
        tolerance: relative gap at which the comparison of groups stops; ``time_limit`` is in seconds.

    The bound of the weights that are returned is on all weights of the eigen-queries, separated or not.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or ``group_size`` below 1.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    section 4.2.

    >>> i = np.arange(64)
    >>> prefix = 64.0 - np.maximum.outer(i, i)
    >>> design = eigen_separation(prefix, group_size=4)
    >>> bool(0 < design.weights.gap < 0.05)
    True
    """
    queries, values = eigen_queries(gram)
    weights = separated_weights(
        queries, values, group_size=group_size, p=p, tolerance=tolerance, time_limit=time_limit
    )
    return completed(queries, weights, p)


def separated_weights(
    queries: np.ndarray,
    costs: np.ndarray,
    *,
    group_size: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
) -> QueryWeights:
    """Weights of design queries Q (k, n) with costs c (k,), k in groups of neighbours; options as above.

    >>> separated_weights(np.eye(4), np.array([4.0, 4.0, 1.0, 1.0]), group_size=2).weights.round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    check_options(p, tolerance)
    size = max(1, round(queries.shape[1] ** (1 / 3))) if group_size is None else group_size
    if size < 1:
        raise InvalidArgument(f"group_size is {group_size}: a group has at least one query")
    norms = np.square(queries) if p == 2 else np.abs(queries)
    if size >= len(costs):
        return norm_weighting(norms, costs, p=p, tolerance=tolerance, time_limit=time_limit)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    half = None if time_limit is None else time.monotonic() + time_limit / 2  # the rest compares the groups
    members = [slice(start, start + size) for start in range(0, len(costs), size)]
    inside = [
        norm_weighting(norms[m], costs[m], p=p, tolerance=_WITHIN, time_limit=_left(half)) for m in members
    ]
    columns = np.array([group.weights**p @ norms[m] for group, m in zip(inside, members, strict=True)])
    losses = np.array([group.loss for group in inside])
    compare = weigh_few if len(inside) <= _FEW else norm_weighting
    between = compare(columns, losses, p=p, tolerance=tolerance, time_limit=_left(deadline))
    weights = np.concatenate([t * group.weights for t, group in zip(between.weights, inside, strict=True)])
    spent = losses * between.weights**-2
    added = (spent / spent.sum()) @ np.array([g.multipliers / g.multipliers.sum() for g in inside])
    proofs = [(weighting_bound(norms, costs, mu, p), mu) for mu in (between.multipliers, added)]
    lower, multipliers = max(proofs, key=lambda proof: proof[0])
    return QueryWeights(
        weights,
        between.loss,
        min(lower, between.loss),
        multipliers,
        between.evaluations + sum(group.evaluations for group in inside),
    )


def _left(deadline: float | None) -> float | None:
    """Seconds to a time on the monotonic clock."""
    return None if deadline is None else deadline - time.monotonic()
