"""Least squares over non-negative cells, also with exact sums and limits, to a proven gap.

**Signs alone.** The alternating direction method of multipliers splits the quadratic of
``min ||B u - y||^2 / 2, u >= 0`` from the sign:

    x = argmin ||B x - y||^2 / 2 + r ||x - z + w||^2 / 2,   z = max(x + w, 0),   w = w + x - z.

The first step is one division in a basis Q where ``B'B`` is diagonal; where it is only nearly so, ``B'B`` is replaced
by an upper bound M that is diagonal, and what is missing is taken from the step before (proximal linearisation).

It stops on a duality gap. For any v with ``B'v >= 0`` the least value is at least ``-||v||^2 / 2 - v'y``. With d such
that ``c = B'd > 0`` on all counted cells and ``e = max_j (-g_j / c_j)``, ``g = B'(B x - y)``, the vector
``v = B x - y + e d`` will do, and

    gap = ||B z - y - v||^2 / 2 + (g + e c)'z >= ||B z - B z*||^2 / 2.

Steps and gap are of differences from an origin, which is moved to z now and then: beside counts of millions, a gap of
the whole numbers would be made of their rounding.

An answer ``w'u = t'B u`` whose least-squares deviation is ``||t||`` then lies within ``sqrt(2 gap)`` such deviations
of the optimum.

**With constraints.** The problem is

    min ||B u - y||^2 / 2   over   u >= 0,   C u = c,   l <= T u <= h,

and there is more to split: ``x`` minimises the quadratic, ``z = x`` is not negative, and ``t = T x`` keeps to its
limits. Equalities hold in the first step where the projection onto them commutes with B'B, which it does for margins,
or where the cells are few enough for a basis of null(C); else they are one more copy of x.

For v, q in the row space of C with ``q = C'k``, and m (one number a bounded row, positive where the lower
limit holds and negative where the upper one does) such that ``s = B'v - q - T'm >= 0`` on all open cells,

    ||B u - y||^2 / 2 >= -||v||^2 / 2 - v'y + k'c + l'm_+ - h'm_-     for every u that meets the constraints,

for ``r^2 / 2 >= v'r - v^2 / 2`` and ``v'B u = s'u + k'C u + m'T u``. So any z that meets them all has

    ||B z - B u*||^2 / 2  <=  ||B z - y||^2 / 2 - least  <=  gap
    gap = ||B z - y - v||^2 / 2 + s'z + m_+'(T z - l) + m_-'(h - T z),

the first step because the optimum u* is the projection of y on a convex set. v = B x - y, q and m come from the
multipliers of the splits. Where s is negative it is raised by rows of C, or of upper limits, whose entries are not
negative (their multipliers are free to grow): by the rows of one table where it counts all such cells, else by e times
the sum of all such rows, and, if these leave cells out, of ``B'd`` with v changed by e d, as above. So the
gap is proven for equalities and limits alike. It is that of the cells that are returned, which have their exact sums in
whole numbers. Here, too, all is of differences from an origin: it has the exact sums.

Reference: Boyd, Parikh, Chu, Peleato, Eckstein, Distributed optimization and statistical learning via the alternating
direction method of multipliers (2011), sections 3, 3.4.1, 3.4.3 and 5.2; Stellato, Banjac, Goulart, Bemporad, Boyd,
OSQP: an operator splitting solver for quadratic programs (2020), section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.linalg

from ..errors import Unsupported
from ..linalg import Dense, LinearOperator
from .merged_cells import LimitedRows, Limits, MeasuredCells

GAP = 5e-5
"""The gap to stop at: every answer is then within 1 % of its own standard error of the optimum."""

_STEPS, _CHECKED = 3000, 20
_RELAXED = 1.6
_PENALTY = 0.05  # r in units of the middle eigenvalue of B'B
_POWER_STEPS, _ROOM = 30, 1.1
_NOTHING = 1e-9  # of the largest slack: rounding
_ROUNDING, _UNMEASURED = 1e-12, 1e-11  # of the largest eigenvalue
_LOST = 5000.0  # a gap that says nothing of the cells


@dataclass(frozen=True)
class Certificate:
    """A vector d by what the gap needs of it: ``c = B'd``, positive on the cells counted, and ``||d||^2``."""

    direction: np.ndarray
    norm2: float


@dataclass(frozen=True)
class ConeSolution:
    """Non-negative cells and the duality gap that proves how near the optimum they are."""

    cells: np.ndarray
    gap: float


def solve(problem: MeasuredCells, y: Sequence[np.ndarray], certificate: Certificate) -> ConeSolution:
    """The non-negative cells closest to the answers y (whitened, block by block); deterministic."""
    basis, spectrum, exact = problem.basis()
    spectrum = spectrum if exact else upper_spectrum(problem, basis, spectrum)
    back, target = basis.T, problem.adjoint(y)
    penalty = _PENALTY * _middle(spectrum)
    origin, z = np.zeros((2, problem.cells))
    x = back @ (_inverse(spectrum) * (basis @ target))
    w = np.zeros_like(x)
    best = ConeSolution(origin, np.inf)
    for step in range(_STEPS):
        pull = target + penalty * (z - w)
        if not exact:
            pull -= problem.adjoint(problem.apply(x))
        moved = basis @ pull
        if not exact:
            moved += spectrum * (basis @ x)
        x = back @ (moved / (spectrum + penalty))
        relaxed = _RELAXED * x + (1 - _RELAXED) * z
        z = np.maximum(relaxed + w, -origin)
        w += relaxed - z
        check, rest = divmod(step + 1, _CHECKED)
        if rest == 0:
            gap = _gap(problem, y, x, z, certificate, origin)
            if gap < best.gap:
                best = ConeSolution(np.maximum(origin + z, 0.0), gap)
            if gap <= GAP:
                break
            if check & (check - 1) == 0:  # a power of two: the origin moves
                origin, x, y = origin + z, x - z, [a - b for a, b in zip(y, problem.apply(z), strict=True)]
                z, target = np.zeros_like(z), problem.adjoint(y)
    _check_gap(best.gap)
    return best


def _check_gap(gap: float) -> None:
    if gap > _LOST:
        raise Unsupported(
            f"non-negative least squares ended up to {math.sqrt(2 * gap):,.0f} standard errors from the optimum, "
            'too far to be of use: estimate by "least-squares"'
        )


def _gap(
    problem: MeasuredCells,
    y: Sequence[np.ndarray],
    x: np.ndarray,
    z: np.ndarray,
    certificate: Certificate,
    origin: np.ndarray,
) -> float:
    """The duality gap between z and the multipliers that belong to x, both from an origin, as y is."""
    of_x, of_z = problem.apply(x), problem.apply(z)
    gradient = problem.adjoint([a - b for a, b in zip(of_x, y, strict=True)])
    c = certificate.direction
    counted = c > 0
    short = max(0.0, float((-gradient[counted] / c[counted]).max(initial=0.0)))
    apart = sum(float(np.square(a - b).sum()) for a, b in zip(of_z, of_x, strict=True))
    away = apart - 2 * short * float(c @ (z - x)) + short**2 * certificate.norm2
    return max(0.0, away / 2) + max(0.0, float((gradient + short * c) @ (origin + z)))


def upper_spectrum(problem: MeasuredCells, basis: LinearOperator, spectrum: np.ndarray) -> np.ndarray:
    """A diagonal in a basis that is an upper bound of B'B: its own diagonal, times how far B'B exceeds that.

    What rounding leaves of directions that nothing measures is raised first: divided by, it would be the largest.
    """
    raised = np.maximum(spectrum, _ROUNDING * spectrum.max(initial=0.0))
    root = 1 / np.sqrt(np.where(raised > 0, raised, 1.0))
    vector = 1.0 + np.arange(problem.cells) % 7 / 7
    largest = 1.0
    for _ in range(_POWER_STEPS):
        vector = vector / np.linalg.norm(vector)
        vector = root * (basis @ problem.adjoint(problem.apply(basis.T @ (root * vector))))
        largest = max(largest, float(np.linalg.norm(vector)))
    return _ROOM * largest * raised


_CONSTRAINED_STEPS = 6000
_START_PENALTY = 0.3  # r in units of the middle eigenvalue of B'B, at the start
_DENSE = 2048  # cells up to which a basis of null(C) is written out
_COMMUTES = 1e-9
_LEAST_DUAL, _HALVED = 0.3, 300  # of B'y: what multipliers count as at least, at first; steps that halve it
_UNEVEN, _BALANCED = 5.0, 0.6  # residuals further apart move the penalty, for this share of the steps


@dataclass(frozen=True, eq=False)
class WholeSolution(ConeSolution):
    """Cells ``scaled * 2^-exponent`` whose exact sums hold in whole numbers, and the gap of these very cells."""

    scaled: np.ndarray
    exponent: int


@dataclass(frozen=True, eq=False)
class Quadratic:
    """B'B, or an upper bound, in a basis: it moves x in the span of the rows of ``basis``.

    ``project`` then puts x in null(C); with ``copied`` that is left to a split. With ``joint`` the basis turns the
    square of all splits into the identity; otherwise that is bounded, by 1 for each split.
    """

    basis: LinearOperator
    spectrum: np.ndarray
    exact: bool
    project: Callable[[np.ndarray], np.ndarray] | None = None
    copied: bool = False
    joint: bool = False

    def start(self, target: np.ndarray) -> np.ndarray:
        """Near the least of the quadratic alone."""
        return self._placed(self.basis.T @ (_inverse(self.spectrum) * (self.basis @ target)))

    def step(
        self,
        x: np.ndarray,
        target: np.ndarray,
        pull: np.ndarray,
        penalty: float,
        copies: int,
        square: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """The least of ``||B x - y||^2 / 2 + penalty (copies ||x||^2 / 2 - pull'x)``, or of a bound that touches it."""
        moved = self.basis @ (target + penalty * pull - (0.0 if self.exact else square(x)))
        if not self.exact:
            moved += self.spectrum * (self.basis @ x)
        return self._placed(self.basis.T @ (moved / (self.spectrum + penalty * copies)))

    def _placed(self, x: np.ndarray) -> np.ndarray:
        return x if self.project is None else self.project(x)


class _Split:
    """One bounded table: ``t = T x / scale`` within its limits, and the multipliers of that equality.

    Values and limits are differences from those of an origin, as x is.
    """

    def __init__(self, rows: LimitedRows, *, joint: bool) -> None:
        self.rows = rows
        self.scale = _row_norms(rows)
        if rows.labels is None and not joint:
            widest = float(np.asarray(rows.operator.column_norms(1), dtype=float).max())
            self.scale = np.full(len(rows.low), np.sqrt(widest * rows.operator.abs_row_sum_max()))
        self.low, self.high = rows.low / self.scale, rows.high / self.scale
        self.value, self.dual = np.zeros((2, len(rows.low)))

    def start(self, x: np.ndarray) -> None:
        self.value = np.clip(self.of(x), self.low, self.high)

    def move(self, by: np.ndarray) -> None:
        """Move the origin."""
        counts = self.of(by)
        self.value, self.low, self.high = self.value - counts, self.low - counts, self.high - counts

    def of(self, x: np.ndarray) -> np.ndarray:
        return (self.rows.operator @ x) / self.scale

    def back(self, r: np.ndarray) -> np.ndarray:
        return self.rows.operator.T @ (r / self.scale)

    def step(self, x: np.ndarray) -> None:
        relaxed = _RELAXED * self.of(x) + (1 - _RELAXED) * self.value
        self.value = np.clip(relaxed + self.dual, self.low, self.high)
        self.dual += relaxed - self.value

    def multipliers(self, penalty: float) -> np.ndarray:
        """m, of the sign that the limits allow."""
        m = -penalty * self.dual / self.scale
        m[~np.isfinite(self.low)] = np.minimum(m, 0.0)[~np.isfinite(self.low)]
        m[~np.isfinite(self.high)] = np.maximum(m, 0.0)[~np.isfinite(self.high)]
        return m


@dataclass(frozen=True, eq=False)
class Dual:
    """A feasible point of the dual problem: ``B'v``, s and m, with v = B x - y + short d."""

    x: np.ndarray
    short: float
    slack: np.ndarray
    multipliers: tuple[np.ndarray, ...]


class ConstrainedCone:
    """One problem and what its steps need; ``solve`` runs them.

    ``certificate`` is d of the module's formula; its direction may be 0 where the constraints cover all cells. All
    vectors of cells are differences from ``origin``, which has the exact sums; ``solve`` returns whole ones.
    """

    def __init__(
        self, problem: MeasuredCells, limits: Limits, y: Sequence[np.ndarray], certificate: Certificate
    ) -> None:
        self.problem, self.limits, self.y, self._certificate = problem, limits, y, certificate
        self._raise = certificate.direction + limits.covering()
        self._quadratic = _quadratic(problem, limits)
        self._splits = [_Split(rows, joint=self._quadratic.joint) for rows in limits.bounded]
        self.origin = np.zeros(problem.cells)
        self._move(limits.nearest(self.origin))

    def _move(self, by: np.ndarray) -> None:
        self.origin = self.origin + by
        self.y = [a - b for a, b in zip(self.y, self.problem.apply(by), strict=True)]
        for split in self._splits:
            split.move(by)

    def solve(self, finish: Callable[[np.ndarray], tuple[np.ndarray, int] | None]) -> WholeSolution | None:
        """The best of the cells that ``finish`` makes of the steps'; None where it never makes any.

        Raises :class:`~tabulae.errors.Unsupported` for cells that are too far from the optimum to be of use.
        """
        best: WholeSolution | None = None
        after, wait = 0, 1
        for check, (z, dual, last) in enumerate(self._steps()):
            if not last and (check < after or self.gap(z, dual) > GAP):
                continue
            after, wait = check + wait, 2 * wait
            finished = finish(self.origin + z)
            if finished is None:
                continue
            scaled, exponent = finished
            cells = np.ldexp(scaled.astype(float), -exponent)
            gap = self.gap(cells - self.origin, dual)
            if best is None or gap < best.gap:
                best = WholeSolution(cells, gap, scaled, exponent)
            if gap <= GAP:
                break
        if best is not None:
            _check_gap(best.gap)
        return best

    def _steps(self) -> Iterator[tuple[np.ndarray, Dual, bool]]:
        """Non-negative cells and a dual point, every few steps; the last ones are marked."""
        quadratic, splits, open_cells = self._quadratic, self._splits, self.limits.open
        target = self.problem.adjoint(self.y)
        asked, penalty = _size(target), _START_PENALTY * _middle(quadratic.spectrum)
        copies = 1 if quadratic.joint else 1 + len(splits) + quadratic.copied
        x = quadratic.start(target)
        z = np.where(open_cells, np.maximum(x, -self.origin), -self.origin)
        w = np.zeros_like(z)
        copy, of_copy = x.copy(), np.zeros_like(z)
        for split in splits:
            split.start(x)
        for step in range(1, _CONSTRAINED_STEPS + 1):
            pull = z - w
            for split in splits:
                pull = pull + split.back(split.value - split.dual)
                if not quadratic.joint:
                    pull = pull + x - split.back(split.of(x))
            if quadratic.copied:
                pull = pull + copy - of_copy
            x = quadratic.step(x, target, pull, penalty, copies, self._square)
            relaxed = _RELAXED * x + (1 - _RELAXED) * z
            before, z = z, np.where(open_cells, np.maximum(relaxed + w, -self.origin), -self.origin)
            w += relaxed - z
            for split in splits:
                split.step(x)
            if quadratic.copied:
                relaxed = _RELAXED * x + (1 - _RELAXED) * copy
                copy = self.limits.free_part(relaxed + of_copy)
                of_copy += relaxed - copy
            check, rest = divmod(step, _CHECKED)
            if rest:
                continue
            yield z, self._dual(x, w, penalty), step == _CONSTRAINED_STEPS
            if step < _BALANCED * _CONSTRAINED_STEPS:
                pulled = reduce(np.add, (split.back(split.dual) for split in splits), w + of_copy)
                least = _LEAST_DUAL * 2 ** (-step / _HALVED) * asked / penalty
                primal = _size(x - z) / max(_size(self.origin + z), 1e-30)
                factor = _balance(primal, _size(z - before) / max(_size(w), _size(pulled), least, 1e-30))
                penalty *= factor
                w, of_copy = w / factor, of_copy / factor
                for split in splits:
                    split.dual /= factor
            if check & (check - 1) == 0:  # a power of two: the origin moves
                by = self.limits.free_part(z)
                self._move(by)
                x, z, copy, target = x - by, z - by, copy - by, self.problem.adjoint(self.y)

    def _square(self, x: np.ndarray) -> np.ndarray:
        return self.problem.adjoint(self.problem.apply(x))

    def _dual(self, x: np.ndarray, w: np.ndarray, penalty: float) -> Dual:
        """The dual point of the splits' multipliers, made feasible."""
        gradient = self.problem.adjoint([a - b for a, b in zip(self.problem.apply(x), self.y, strict=True)])
        multipliers = []
        free = self.limits.open & (self._raise <= 0)
        for split in self._splits:
            m = split.multipliers(penalty)
            if free.any():  # a lower limit with cells that nothing else counts costs nothing
                m[np.asarray(abs(split.rows.matrix) @ free.astype(float)) > 0] = 0.0
            multipliers.append(m)
            gradient -= split.rows.operator.T @ m
        slack = gradient - self.limits.fixed_part(gradient + penalty * w)
        by_row = _raised_by_row(self.limits, slack)
        if by_row is not None:
            table, raised = by_row
            slack = slack + self.limits.all[table].operator.T @ raised
            if table >= len(self.limits.exact):
                multipliers[table - len(self.limits.exact)] -= raised
        counted = self.limits.open & (self._raise > 0)
        short = max(0.0, float((-slack[counted] / self._raise[counted]).max(initial=0.0)))
        for i, split in enumerate(self._splits):
            multipliers[i] -= short * split.rows.growing
        return Dual(x, short, slack + short * self._raise, tuple(multipliers))

    def gap(self, z: np.ndarray, dual: Dual) -> float:
        """The duality gap of cells that meet the constraints."""
        if np.any(dual.slack[self.limits.open] < -_NOTHING * max(1.0, float(np.abs(dual.slack).max()))):
            return np.inf
        whole, apart = self.origin + z, self.problem.apply(z - dual.x)
        away = sum(float(np.square(a).sum()) for a in apart)
        away -= 2 * dual.short * float(self._certificate.direction @ (z - dual.x))
        away += dual.short**2 * self._certificate.norm2
        total = max(0.0, away / 2) + max(0.0, float(dual.slack[self.limits.open] @ whole[self.limits.open]))
        for split, m in zip(self._splits, dual.multipliers, strict=True):
            counts = split.of(z)
            above = np.where(m > 0, counts - np.where(np.isfinite(split.low), split.low, 0.0), 0.0)
            below = np.where(m < 0, np.where(np.isfinite(split.high), split.high, 0.0) - counts, 0.0)
            total += float(np.abs(m * split.scale) @ np.maximum(above + below, 0.0))
        return total


def _raised_by_row(limits: Limits, slack: np.ndarray) -> tuple[int, np.ndarray] | None:
    """(table, what to raise the multipliers of its rows by) so that no slack is negative, at the least cost."""
    short = np.where(limits.open, np.maximum(-slack, 0.0), 0.0)
    best, cheapest = None, np.inf
    for table, rows in enumerate(limits.all):
        if rows.labels is None or np.any(short[np.append(rows.growing, 0.0)[rows.labels] == 0]):
            continue
        raised = np.zeros(len(rows.low) + 1)
        np.maximum.at(raised, rows.labels + 1, short)
        grows = raised[1:] > 0
        cost = float(raised[1:][grows] @ rows.high[grows])
        if cost < cheapest:
            best, cheapest = (table, raised[1:]), cost
    return best


def _balance(primal: float, dual: float) -> float:
    """What to multiply the penalty by so that primal and dual residuals shrink alike, as shares.

    The dual one is a share of the size of the multipliers, all of them and those of the signs alone, and at least of a
    part of B'y: where no sign binds these end at 0, and shares of them would drive the penalty to 0. That part shrinks,
    for it is too much where some directions are hardly measured.
    """
    ratio = primal / max(dual, 1e-30)
    if 1 / _UNEVEN <= ratio <= _UNEVEN:
        return 1.0
    return float(np.clip(np.sqrt(ratio), 0.5, 2.0))


def _middle(spectrum: np.ndarray) -> float:
    """The lower middle eigenvalue of directions that are measured: one that is nearly exact does not make it large."""
    measured = spectrum[spectrum > _UNMEASURED * spectrum.max(initial=0.0)]
    return float(np.quantile(measured, 0.5, method="lower"))


def _inverse(spectrum: np.ndarray) -> np.ndarray:
    """Of directions that are measured; 0 of others."""
    measured = spectrum > _UNMEASURED * spectrum.max(initial=0.0)
    return np.divide(1.0, spectrum, out=np.zeros_like(spectrum), where=measured)


def _size(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def _quadratic(problem: MeasuredCells, limits: Limits) -> Quadratic:
    small = problem.cells <= _DENSE and (not limits.exact or limits.merged.rank < problem.cells)
    if small and any(rows.labels is None for rows in limits.bounded):
        return _joint(problem, limits)
    for constants in (False, True) if limits.exact else (False,):
        basis, spectrum, exact = problem.basis(constants=constants)
        spectrum = spectrum if exact else upper_spectrum(problem, basis, spectrum)
        if not limits.exact:
            return Quadratic(basis, spectrum, exact)
        if (exact or not small) and _commutes(limits, basis, spectrum):
            return Quadratic(basis, spectrum, exact, project=limits.free_part)
    return _joint(problem, limits) if small else Quadratic(basis, spectrum, exact, copied=True)


def _joint(problem: MeasuredCells, limits: Limits) -> Quadratic:
    """Vectors of null(C), as rows, that diagonalise B'B and turn the square of all splits into the identity."""
    free = _null_space(limits)
    square = np.eye(problem.cells)
    for rows in limits.bounded:
        scaled = rows.matrix.toarray() / _row_norms(rows)[:, None]
        square += scaled.T @ scaled
    measured = np.vstack(problem.apply(free.T))
    values, vectors = scipy.linalg.eigh(measured.T @ measured, free @ square @ free.T)
    return Quadratic(Dense(vectors.T @ free), np.maximum(values, 0.0), exact=True, joint=True)


def _row_norms(rows: LimitedRows) -> np.ndarray:
    """The length of each row, 1 for one of zeros."""
    if rows.labels is not None:
        squares = np.bincount(rows.labels + 1, minlength=len(rows.low) + 1)[1:].astype(float)
    else:
        squares = np.asarray(rows.matrix.multiply(rows.matrix).sum(axis=1), dtype=float).ravel()
    return np.sqrt(np.maximum(squares, 1.0))


def _null_space(limits: Limits) -> np.ndarray:
    """Orthonormal rows that span null(C)."""
    if not limits.exact:
        return np.eye(limits.cells)
    return scipy.linalg.null_space(
        np.vstack([each.matrix.toarray() for each in limits.exact]).astype(float)
    ).T


def _commutes(limits: Limits, basis: LinearOperator, spectrum: np.ndarray) -> bool:
    vector = 1.0 + np.arange(limits.cells) * 0.6180339887498949 % 1
    one = limits.fixed_part(basis.T @ (spectrum * (basis @ vector)))
    other = basis.T @ (spectrum * (basis @ limits.fixed_part(vector)))
    return bool(np.linalg.norm(one - other) <= _COMMUTES * max(np.linalg.norm(one), np.linalg.norm(other)))
