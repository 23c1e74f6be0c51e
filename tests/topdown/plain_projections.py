"""The nearest counts of an area that are not negative and meet limits on nested sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabulae.products.areas.descent.limits import FREE, NO_LIMIT

NOWHERE = -1e300
"""In place of a value whose cell must stay 0."""

_STEPS = 200
_EXACT = 1e-11  # of a sum


@dataclass(frozen=True, eq=False)
class NestedLimits:
    """Limits on sums over parts, and exact sums over bundles of parts, for n areas of k dense cells.

    A *bundle* is a set of parts whose sum is fixed: a group with an exact count, or, where an area's total is fixed,
    all the parts that no such group holds. Bundles of an area do not overlap.

    Attributes:
        part: shape (k,): 0 .. J-1.
        lower, upper: shape (n, J), floats; infinite where there is no upper limit.
        bundle: shape (n, J): 0 .. B-1, or B for a part in no bundle.
        target: shape (n, B): the fixed sums; NaN for a bundle that an area does not have.
    """

    part: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    bundle: np.ndarray
    target: np.ndarray

    @classmethod
    def of(
        cls,
        part: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        group: np.ndarray,
        exact: np.ndarray,
        totals: np.ndarray | None = None,
    ) -> NestedLimits:
        """From the limits of a ``Division``, and totals of the areas if they are held."""
        n, groups = exact.shape
        fixed = exact != FREE
        target = np.full((n, groups + 1), np.nan)
        target[:, :groups][fixed] = exact[fixed]
        held = np.take_along_axis(fixed, group, axis=1)
        rest = groups if totals is not None else groups + 1
        bundle = np.where(held, group, rest)
        if totals is not None:
            open_to = (~held).any(axis=1)
            target[open_to, groups] = (totals - np.where(fixed, exact, 0).sum(axis=1))[open_to]
        return cls(part, lower.astype(float), np.where(upper >= NO_LIMIT, np.inf, upper), bundle, target)

    @property
    def parts(self) -> int:
        """J."""
        return self.lower.shape[1]

    def project(self, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The nearest z to y that is 0 or more, 0 outside the mask, and within the limits.

        All cells of one part are shifted alike, z = max(y + shift, 0), and a bundle's parts too unless a limit stops
        one: with f_j(s) the sum of part j after a shift s, the shift of a bundle solves

            sum over its parts of  min(max(f_j(s), lower_j), upper_j)  =  target

        and a part that a limit stops has its own shift, which gives it that limit. Both are roots of monotone
        piecewise linear functions.

        Args:
            y: shape (n, k, N).
            mask: shape (n, k, N), boolean.
        """
        y = np.where(mask, y, NOWHERE)
        n = len(y)
        shift = np.zeros((n, self.parts))
        bundles = self.target.shape[1]
        fixed = self.bundle < bundles
        if fixed.any():
            common = self._root(y, self.bundle, self.target, self.lower, self.upper)
            rows = np.broadcast_to(np.arange(n)[:, None], fixed.shape)
            shift[fixed] = common[rows[fixed], self.bundle[fixed]]
        found, _ = self._part_sums(y, shift)
        low, high = found < self.lower, found > self.upper
        if low.any() or high.any():
            target = np.where(low, self.lower, np.where(high, self.upper, np.nan))
            free = np.full(self.lower.shape, np.inf)
            each = np.broadcast_to(np.arange(self.parts), self.bundle.shape)
            own = self._root(y, each, target, np.zeros_like(free), free)
            shift = np.where(low | high, own, shift)
        return np.maximum(y + shift[:, self.part][:, :, None], 0.0)

    def _part_sums(self, y: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f_j(shift) and how many cells it grows by: shapes (n, J)."""
        z = y + shift[:, self.part][:, :, None]
        above = z > 0
        rows, counts = np.where(above, z, 0.0).sum(axis=2), above.sum(axis=2)
        return _added(rows, self.part, self.parts), _added(counts.astype(float), self.part, self.parts)

    def _root(
        self, y: np.ndarray, label: np.ndarray, target: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> np.ndarray:
        """For each area and label, the shift that gives its parts' clipped sums the target: shape (n, labels)."""
        n, labels = target.shape
        rows = np.arange(n)[:, None]
        peak = np.full((n, self.parts), -np.inf)
        np.maximum.at(peak.T, self.part, y.max(axis=2).T)
        real = peak > NOWHERE / 2
        asked = ~np.isnan(target)
        goal = np.where(asked, target, 0.0)
        wide = np.concatenate([goal, np.zeros((n, 1))], axis=1)
        high, low = np.full((n, labels + 1), -np.inf), np.full((n, labels + 1), np.inf)
        np.maximum.at(high, (rows, label), np.where(real, wide[rows, label] - peak, -np.inf))
        np.minimum.at(low, (rows, label), np.where(real, -peak, np.inf))
        asked &= np.isfinite(high[:, :labels])
        high = np.where(asked, high[:, :labels], 0.0)
        low = np.where(asked, low[:, :labels], 0.0)
        at = np.clip(0.0, low, high)
        for step in range(_STEPS):
            spread = np.concatenate([at, np.zeros((n, 1))], axis=1)[rows, label]
            sums, slopes = self._part_sums(y, spread)
            slopes = np.where((sums >= lower) & (sums < upper), slopes, 0.0)
            sums = np.clip(sums, lower, upper)
            found, slope = _labelled(sums, label, labels), _labelled(slopes, label, labels)
            error = np.where(asked, goal - found, 0.0)
            if (np.abs(error) <= _EXACT * (1 + goal)).all():
                break
            low, high = np.where(error > 0, at, low), np.where(error < 0, at, high)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = at + error / slope
            inside = (newton > low) & (newton < high) & (step % 4 != 3)
            at = np.where(error == 0, at, np.where(inside, newton, (low + high) / 2))
        return at


def _added(rows: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """Sums of the columns of (n, k) by part: shape (n, parts)."""
    found = np.zeros((rows.shape[0], parts))
    np.add.at(found.T, part, rows.T)
    return found


def _labelled(values: np.ndarray, label: np.ndarray, labels: int) -> np.ndarray:
    """Sums of each row of (n, J) by its own labels: shape (n, labels)."""
    found = np.zeros((values.shape[0], labels + 1))
    np.add.at(found, (np.arange(values.shape[0])[:, None], label), values)
    return found[:, :labels]
