"""What the compiled solvers do, in plain arrays: an oracle for each of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from tests.topdown.plain_projections import NestedLimits

from tabulae.products.areas.descent import admm, projected_gradient, rounding
from tabulae.products.areas.descent.limits import Division

_TURNS = 100


@contextmanager
def in_plain_arrays(*, plain: bool = True) -> Iterator[None]:
    """Divisions are solved here, and rounded by the source of the kernels, not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(admm, "alternating_directions", plain_admm)
            patch.setattr(projected_gradient, "projected_gradient", plain_gradient)
            for name in (
                "to_fixed_point", "fractional_arcs", "many_open", "raise_keys", "add_up", "cancel_cycles", "incidence",
                "next_open", "turn_cycle", "settle", "meet_limits", "move_cells",
            ):  # fmt: skip
                source = getattr(rounding, name).py_func
                patch.setattr(
                    source, "py_func", source, raising=False
                )  # its own source, where that is asked for
                patch.setattr(rounding, name, source)
        yield


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
    """As :func:`~tabulae.products.areas.descent.admm.alternating_directions`."""
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
    penalty = admm.PENALTY * float(least_curvature(division)[division.which][some].mean())
    resolvents, coupling = _factors(classes, penalty)
    residual, wait, retuned = np.inf, admm.RETUNE, 0
    for step in range(1, admm.STEPS + 1):
        w = algebra.rotate(division.linear + penalty * (z - u))
        x = algebra.apply(resolvents[classes.of], w)
        if rotated_total is not None:
            force = algebra.apply(coupling, rotated_total - x.sum(axis=0))
            x += algebra.apply(resolvents, np.broadcast_to(force, (len(resolvents), *force.shape)))[
                classes.of
            ]
        x = algebra.unrotate(x)
        h = admm.RELAXATION * x + (1 - admm.RELAXATION) * z + u
        z, before = limits.project(h, mask), z
        u = h - z
        primal, dual = np.abs(x - z).max(), np.abs(z - before).max()
        residual = float(max(primal, dual))
        if residual < admm.TOLERANCE:
            return z, step, residual, True
        if step < retuned + wait:
            continue
        retuned, wait = step, admm.RETUNE * max(1, step // admm.RETUNED)
        if max(primal, dual) > 4 * min(primal, dual):
            change = 2.0 if primal > dual else 0.5
            penalty *= change
            u /= change
            resolvents, coupling = _factors(classes, penalty)
    return z, admm.STEPS, residual, False


def _factors(classes: Classes, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    resolvents = classes.resolvents(penalty)
    return resolvents, classes.coupling(resolvents)


def plain_gradient(division: Division, allowed: np.ndarray) -> tuple[np.ndarray, int, float] | None:
    """As :func:`~tabulae.products.areas.descent.projected_gradient.projected_gradient`."""
    assert division.total is not None
    algebra, total = division.algebra, division.total.astype(float)
    mask = allowed[:, :, None] & (total > 0)
    size, least = curvature_bound(division, mask), least_curvature(division)
    if (size / least[division.which][:, None, None]).max(initial=0) > projected_gradient.STEEPEST:
        return None
    step = np.divide(1.0, size, out=np.zeros_like(size), where=mask)
    x = np.where(mask, total / np.maximum(1, mask.sum(axis=0)), 0.0)
    held = mask.any(axis=0)
    before, slope = x, np.zeros_like(x)
    shift = np.zeros(total.shape)
    matrices = division.precision[division.which]
    momentum, carry, gap, turn = 1.0, 0.0, np.inf, 0
    while turn < projected_gradient.STEPS:
        turn += 1
        slope, slope_before = (
            algebra.unrotate(algebra.apply(matrices, algebra.rotate(x))) - division.linear,
            slope,
        )
        lowest = np.where(mask, slope, np.inf).min(axis=0)
        gap = (slope * x).sum() - (lowest[held] * total[held]).sum()
        if gap <= projected_gradient.GAP * division.children:
            break
        y = x + carry * (x - before)
        z = np.where(mask, y - step * (slope + carry * (slope - slope_before)), -1e300)
        new = _onto_simplices(z, step, total, shift)
        with np.errstate(divide="ignore", invalid="ignore"):
            turned = np.where(mask, (y - new) * (new - x) / step, 0.0).sum()
        before, x = x, new
        if turned > 0:
            momentum, carry = 1.0, 0.0
        else:
            further = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            carry, momentum = (momentum - 1) / further, further
    return x, turn, float(gap) / division.children


def least_curvature(division: Division) -> np.ndarray:
    """Shape (m,): about the least eigenvalue of each H, which is of the finest kind; infinite where H is 0."""
    finest = division.precision[:, -1]
    inside = np.diagonal(finest, axis1=1, axis2=2) > 0
    inverse = np.linalg.inv(finest + (~inside)[:, :, None] * np.eye(finest.shape[-1]))
    largest = (np.diagonal(inverse, axis1=1, axis2=2) * inside).max(axis=1)
    return np.divide(1.0, largest, out=np.full(largest.size, np.inf), where=largest > 0)


def curvature_bound(division: Division, mask: np.ndarray) -> np.ndarray:
    """D, the row sums of |H| over the cells of the mask: shape (n, k, N), 0 outside."""
    sizes = division.algebra.symmetric
    kinds, shape = division.algebra.kinds, mask.shape
    open_cells = mask.reshape(*shape[:2], *sizes).astype(float)
    found = np.zeros(shape)
    for term in range(kinds):
        weights = sum(
            (-1) ** (kind ^ term).bit_count() * division.precision[:, kind]
            for kind in range(kinds)
            if kind & term == term
        )
        weights = np.abs(weights) / prod(n for a, n in enumerate(sizes) if not term >> a & 1)
        dropped = tuple(2 + a for a in range(len(sizes)) if not term >> a & 1)
        sums = np.broadcast_to(open_cells.sum(axis=dropped, keepdims=True), open_cells.shape).reshape(shape)
        found += weights[division.which] @ sums
    return found * mask


def _onto_simplices(z: np.ndarray, step: np.ndarray, total: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """max(z - shift step, 0) with the shift of each cell that makes it add up to the total; ``shift`` is updated."""
    empty = (step > 0).sum(axis=0) == 0
    for _ in range(_TURNS):
        above = z > shift * step
        above |= ~above.any(axis=0) & (step > 0)
        weight = np.where(empty, 1.0, np.where(above, step, 0.0).sum(axis=0))
        new = np.where(empty, 0.0, (np.where(above, z, 0.0).sum(axis=0) - total) / weight)
        change = np.abs(new - shift) <= 1e-13 * (1 + np.abs(shift))
        shift[:] = new
        if change.all():
            break
    return np.maximum(z - shift * step, 0.0)
