"""Solve one division: the solver that suits it, in compiled code or in plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .admm import compiled_admm, plain_admm
from .division import (
    FREE,
    NO_LIMIT,
    Division,
)
from .projected_gradient import (
    GAP,
    compiled_gradient,
    plain_gradient,
)


@dataclass(frozen=True, eq=False)
class Solved:
    """The counts of the children of one division, not yet whole.

    They are 0 or more, 0 where not allowed, and within the limits of each child; the children add up to the parent's
    counts within the solver's tolerance.

    Attributes:
        x: shape (n, k, N).
        iterations: steps taken.
        residual: persons for "admm"; the gap of the objective a child for "gradient".
        converged: whether the residual is small enough; if not, x is the last point.
        solver: "admm", "gradient", or "copied" where nothing is to be chosen.
    """

    x: np.ndarray
    iterations: int
    residual: float
    converged: bool
    solver: str


def solve(division: Division, totals: np.ndarray | None = None, *, compiled: bool = True) -> Solved:
    """Divide a parent's counts among its children.

    Where nothing but the parent's counts is exact and H is not steep, limits of parts are first left aside: a
    projected gradient then takes a few steps, and its answer is the answer if it lies within the limits, as it mostly
    does in small areas. Else alternating directions take all limits together. The same division gives the same bits
    on every thread.

    Args:
        division: the problem, which can be met.
        totals: shape (n,): the children's totals, if they are held at what an earlier pass found.
        compiled: whether to use compiled code; plain arrays give the same within tolerance.

    >>> from ..linalg.block_algebra import BlockAlgebra
    >>> algebra, none = BlockAlgebra((2,)), np.zeros((2, 1), np.int64)
    >>> division = Division(
    ...     algebra, total=np.array([[4, 2]]), precision=algebra.term(np.eye(1), 1)[None],
    ...     which=np.zeros(2, np.int64), linear=np.array([[[3.0, 4.0]], [[2.0, -1.0]]]),
    ...     allowed=np.ones((2, 1), bool), part=np.zeros(1, np.int64), lower=none, upper=none + NO_LIMIT,
    ...     group=none, exact=none + FREE)
    >>> solve(division, compiled=False).x.round(3).tolist()
    [[[2.5, 2.0]], [[1.5, 0.0]]]
    >>> solve(division, np.array([4.0, 2.0]), compiled=False).x.round(2).tolist()
    [[[2.0, 2.0]], [[2.0, 0.0]]]
    """
    if division.total is not None:
        if not division.total.any():
            return Solved(np.zeros(division.linear.shape), 0, 0.0, converged=True, solver="copied")
        if division.children == 1:
            return Solved(division.total[None].astype(float), 0, 0.0, converged=True, solver="copied")
    allowed = division.allowed
    if division.total is not None:
        allowed = allowed & division.total.any(axis=1)
    if totals is None and division.total is not None and (division.exact == FREE).all():
        found = (compiled_gradient if compiled else plain_gradient)(division, allowed)
        if found is not None and found[2] <= GAP and _within(division, found[0]):
            return Solved(*found, converged=True, solver="gradient")
    return Solved(*(compiled_admm if compiled else plain_admm)(division, allowed, totals), solver="admm")


def _within(division: Division, x: np.ndarray) -> bool:
    """Whether the limits of parts hold, though they were not looked at."""
    limited = (division.lower > 0) | (division.upper < NO_LIMIT)
    if not limited.any():
        return True
    rows = x.sum(axis=2)
    sums = np.stack([rows[:, division.part == j].sum(axis=1) for j in range(limited.shape[1])], axis=1)
    return bool(((sums >= division.lower) & (sums <= division.upper)).all())
