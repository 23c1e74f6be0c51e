"""Dividing a parent's counts under all limits: alternating directions between the algebra and the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ....linalg import BlockAlgebra
from .limits import Division
from .projected_gradient import least_curvature
from .projections import NestedLimits

RELAXATION = 1.6
"""How far each step goes: 1 is no further than the step itself."""

STEPS = 4000
"""The most iterations."""

TOLERANCE = 1e-4
"""Persons: the two halves agree in every cell, and the last step moved no cell further. This is not the distance from
the nearest point, which is larger where H is steep: under the shares of the 2020 census, in areas above blocks, a cell
was 0.001 from it in the median division and 0.03 at most, a child's total 0.01 and 0.03."""

PENALTY = 2.0
"""The first penalty, as a multiple of the least eigenvalue of H, the mean over children."""

RETUNE = 10
"""Iterations between changes of the penalty."""

RETUNED = 400
"""The iterations after which intervals between changes grow, in proportion to the iterations so far: it settles."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The distinct restricted precisions of the children of a division.

    Attributes:
        matrices: shape (m, kinds, k, k): 0 outside what is allowed.
        inside: shape (m, k), boolean.
        of: shape (n,): each child's.
        counts: shape (m,): how many children have each.
    """

    matrices: np.ndarray
    inside: np.ndarray
    of: np.ndarray
    counts: np.ndarray

    @classmethod
    def among(cls, division: Division, allowed: np.ndarray) -> Classes:
        """Of a division's children on allowed cells, shape (n, k)."""
        keys = np.concatenate([division.which[:, None], allowed], axis=1)
        distinct, of, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        inside = distinct[:, 1:].astype(bool)
        matrices = division.precision[distinct[:, 0]] * (inside[:, None, :, None] & inside[:, None, None, :])
        return cls(matrices, inside, of.reshape(-1), counts)

    def resolvents(self, penalty: float) -> np.ndarray:
        """R = (H + penalty I)^-1 on the allowed cells, 0 elsewhere: shape (m, kinds, k, k)."""
        found = np.linalg.inv(self.matrices + penalty * np.eye(self.matrices.shape[-1]))
        return found * (self.inside[:, None, :, None] & self.inside[:, None, None, :])

    def coupling(self, resolvents: np.ndarray) -> np.ndarray:
        """(sum over children of R)^-1 on the cells that some child allows, 0 elsewhere: shape (kinds, k, k)."""
        summed = np.tensordot(self.counts.astype(float), resolvents, 1)
        some = self.inside.any(axis=0)
        found = np.linalg.inv(summed + np.diag(1.0 - some))
        return found * np.outer(some, some)


def plain_admm(
    division: Division, allowed: np.ndarray, totals: np.ndarray | None
) -> tuple[np.ndarray, int, float, bool]:
    """Solve a division with arrays alone: the counts, iterations, residual, and whether it is small enough.

    The first half x minimises the objective plus rho/2 |x - z + u|^2 where the children add up to the parent's counts;
    the second half z is the nearest point within each child's own limits; u adds up their differences. With
    R_v = (H_v + rho I)^-1 and w_v = b_v + rho (z_v - u_v), in rotated coordinates,

        x_v = R_v (w_v + r),    r = (sum_v R_v)^-1 (total - sum_v R_v w_v)

    The answer is z: the children's own limits are met exactly, and the parent's counts within the tolerance.

    Args:
        division: the problem.
        allowed: shape (n, k): where a child's dense cell can be more than 0.
        totals: shape (n,): held totals of the children, or None.

    Reference: Boyd, Parikh, Chu, Peleato and Eckstein, "Distributed Optimization and Statistical Learning via the
    Alternating Direction Method of Multipliers", sections 3.4 and 5.
    """
    algebra, total = division.algebra, division.total
    classes = Classes.among(division, allowed)
    limits = NestedLimits.of(
        division.part, division.lower, division.upper, division.group, division.exact, totals
    )
    mask = np.broadcast_to(allowed[:, :, None], division.linear.shape)
    z = np.zeros(division.linear.shape)
    rotated_total = None
    if total is not None:
        mask = mask & (total > 0)
        z = np.where(mask, total / np.maximum(1, mask.sum(axis=0)), 0.0)
        rotated_total = algebra.rotate(total)
    u = np.zeros_like(z)
    some = allowed.any(axis=1)
    penalty = PENALTY * float(least_curvature(division)[division.which][some].mean())
    resolvents, coupling = _factors(classes, penalty)
    residual, wait, retuned = np.inf, RETUNE, 0
    for step in range(1, STEPS + 1):
        w = algebra.rotate(division.linear + penalty * (z - u))
        x = algebra.apply(resolvents[classes.of], w)
        if rotated_total is not None:
            force = algebra.apply(coupling, rotated_total - x.sum(axis=0))
            x += algebra.apply(resolvents, np.broadcast_to(force, (len(resolvents), *force.shape)))[
                classes.of
            ]
        x = algebra.unrotate(x)
        h = RELAXATION * x + (1 - RELAXATION) * z + u
        z, before = limits.project(h, mask), z
        u = h - z
        primal, dual = np.abs(x - z).max(), np.abs(z - before).max()
        residual = float(max(primal, dual))
        if residual < TOLERANCE:
            return z, step, residual, True
        if step < retuned + wait:
            continue
        retuned, wait = step, RETUNE * max(1, step // RETUNED)
        if max(primal, dual) > 4 * min(primal, dual):
            change = 2.0 if primal > dual else 0.5
            penalty *= change
            u /= change
            resolvents, coupling = _factors(classes, penalty)
    return z, STEPS, residual, False


def compiled_admm(
    division: Division, allowed: np.ndarray, totals: np.ndarray | None
) -> tuple[np.ndarray, int, float, bool]:
    """The same as :func:`plain_admm`, in compiled code that does not hold the interpreter's lock."""
    from .admm_kernels import divide

    division, back = largest_last(division)
    found = np.zeros(division.linear.shape)
    total = division.total
    counts = np.zeros(found.shape[1:]) if total is None else total
    step, residual = divide(
        np.array(division.algebra.symmetric, np.int64),
        np.ascontiguousarray(counts, float),
        total is not None,
        np.ascontiguousarray(division.precision, float),
        np.ascontiguousarray(division.which, np.int64),
        np.ascontiguousarray(division.linear, float),
        np.ascontiguousarray(allowed),
        np.ascontiguousarray(division.part, np.int64),
        np.argsort(division.part, kind="stable"),
        np.ascontiguousarray(division.lower, float),
        np.ascontiguousarray(division.upper, np.int64),
        np.ascontiguousarray(division.group, np.int64),
        np.ascontiguousarray(division.exact, np.int64),
        np.empty(0) if totals is None else np.ascontiguousarray(totals, float),
        PENALTY,
        RELAXATION,
        TOLERANCE,
        STEPS,
        RETUNE,
        RETUNED,
        found,
    )
    return back(found), step, residual, residual < TOLERANCE


def largest_last(division: Division) -> tuple[Division, Callable[[np.ndarray], np.ndarray]]:
    """The same division with its largest symmetric attribute last, and how to put its answer back.

    Coordinates of one kind then lie in long runs.
    """
    sizes = division.algebra.symmetric
    if not sizes or sizes[-1] == max(sizes):
        return division, lambda x: x
    order = np.argsort(sizes, kind="stable")
    turned = tuple(sizes[a] for a in order)

    def arranged(x: np.ndarray, shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
        lead = x.ndim - 1
        y = x.reshape(*x.shape[:-1], *shape).transpose(*range(lead), *(lead + places))
        return np.ascontiguousarray(y).reshape(x.shape)

    kinds = np.arange(division.algebra.kinds)
    was = sum(((kinds >> place) & 1) << a for place, a in enumerate(order))
    found = replace(
        division,
        algebra=BlockAlgebra(turned),
        total=None if division.total is None else arranged(division.total, sizes, order),
        precision=division.precision[:, was],
        linear=arranged(division.linear, sizes, order),
    )
    return found, lambda x: arranged(x, turned, np.argsort(order))


def _factors(classes: Classes, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    resolvents = classes.resolvents(penalty)
    return resolvents, classes.coupling(resolvents)
