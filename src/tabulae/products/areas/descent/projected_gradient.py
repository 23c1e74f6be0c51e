"""Dividing a parent's counts where only zero limits the children: an accelerated projected gradient.

Cells where the parent counts somebody lie side by side, and for each of them all children: shape (E, n). What follows
from the matrices alone is done in arrays, once for all divisions that share them; the rest is one compiled call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .algebra import kernel, solver
from .limits import Division

STEPS = 500
"""The most steps."""

GAP = 1e-3
"""For each child: how much lower the objective could be at most."""

STEEPEST = 30.0
"""The largest ratio of curvatures that this solver takes; its steps grow with the root of it. Under the shares of the
2020 census blocks have 1.2 to 1.6, where it is ten times as fast as alternating directions; areas above blocks have 70
to 2,700, where it is 1.2 to 10 times as slow."""

NEGLIGIBLE = 1e-12
"""Of the largest entry: what differences of equal numbers leave behind."""

SHIFT_STEPS = 100
"""The most steps towards one cell's shift; two or three are usual."""

SHIFT_EXACT = 1e-13
"""The last step, of the shift."""

NOWHERE = -1e300
"""In place of a value whose cell must stay 0."""


def projected_gradient(division: Division, allowed: np.ndarray) -> tuple[np.ndarray, int, float] | None:
    """Solve a division: the counts, steps, and the gap a child; None where it is too steep.

    The steps are compiled, and without the interpreter's lock.

    What the children may be is a product over cells of simplices {x >= 0, sum_v x[v, c] = total[c]}. With D the row
    sums of |H|, restricted to cells where the total is not 0, diag(D) - H is positive semidefinite, so that each step

        x+ = the nearest to y - grad(y) / D in the norm of D,    y = x + beta (x - before)

    is one of the accelerated gradient method, started again where it turns back. It ends where the linear bound
    ``grad(x)'x - min over the simplices`` on how much lower the objective could be is at most ``GAP`` a child.

    Args:
        allowed: shape (n, k): where a child's dense cell can be more than 0.

    Reference: Beck and Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse Problems"; the
    restart is of O'Donoghue and Candes, "Adaptive Restart for Accelerated Gradient Schemes"; the gap of Jaggi,
    "Revisiting Frank-Wolfe".
    """
    assert division.total is not None
    precision = np.ascontiguousarray(division.precision, float)
    terms = Terms.of(precision.tobytes(), precision.shape, division.algebra.symmetric)
    found = np.zeros(division.linear.shape)
    turn, gap = nearest(
        np.ascontiguousarray(division.total),
        np.ascontiguousarray(division.linear, float),
        np.ascontiguousarray(allowed),
        np.ascontiguousarray(division.which, np.int64),
        STEEPEST * terms.least,
        terms.keys,
        terms.whole,
        *terms.matrices(division.which),
        GAP,
        STEPS,
        found,
    )
    return None if turn < 0 else (found, turn, gap)


@dataclass(frozen=True, eq=False)
class Terms:
    """H of all children as terms: each adds cells up to sums, mixes those of a group, and gives them back.

    Cells go together where they agree on the attributes of the term; a group holds one sum for each dense cell.

    Attributes:
        each: shape (terms, m, k, k): the coefficients of terms that are not all 0.
        shared: shape (terms, k, k): one matrix a term for all children, where all m say the same where they overlap.
        keys: shape (terms, N): the number of each place among those that differ in the attributes of the term.
        whole: whether the last term has all attributes: every cell is its own sum, in their order.
        least: shape (m,): about the least eigenvalue of each H, which is of the finest kind; infinite where H is 0.
    """

    each: np.ndarray
    shared: np.ndarray | None
    keys: np.ndarray
    whole: bool
    least: np.ndarray

    @classmethod
    @lru_cache(1 << 8)
    def of(cls, given: bytes, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Terms:
        """Of matrices, which many divisions share."""
        precision = np.frombuffer(given).reshape(shape)
        finest = precision[:, -1]
        inside = np.diagonal(finest, axis1=1, axis2=2) > 0
        inverse = np.linalg.inv(finest + (~inside)[:, :, None] * np.eye(shape[-1]))
        largest = (np.diagonal(inverse, axis1=1, axis2=2) * inside).max(axis=1)
        least = np.divide(1.0, largest, out=np.full(largest.size, np.inf), where=largest > 0)
        each = coefficients(precision, sizes)
        used = np.flatnonzero(each.any(axis=(1, 2, 3)))
        seen = inside[:, :, None] & inside[:, None, :]
        high, low = (
            fold(np.where(seen, each[used], none), axis=1)
            for fold, none in ((np.max, -np.inf), (np.min, np.inf))
        )
        return cls(
            each[used],
            None if (high > low).any() else np.where(seen.any(axis=0), high, 0.0),
            _keys(sizes)[used],
            bool(used.size) and int(used[-1]) == len(each) - 1,
            least,
        )

    def matrices(self, which: np.ndarray) -> tuple[Any, ...]:
        """Of H, and of |H|: whether one matrix serves all children, it, and else those of each, (terms, k, k, n)."""
        if self.shared is not None:
            none = np.empty((*self.shared.shape, 0))
            return True, self.shared, none, np.abs(self.shared), none
        spread = np.ascontiguousarray(self.each[:, which].transpose(0, 2, 3, 1))
        none = np.empty((len(spread), 0, 0))
        return False, none, spread, none, np.abs(spread)


def coefficients(precision: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """G of each term ``G (x) E_1 ... E_s`` with which the sum has these matrices: shape (terms, m, k, k).

    Term U has E_a = I for the attributes a in U. M[S] is the sum over U that hold S of c_U G_U, c_U the product of
    the sizes of the others; so c_U G_U is the alternating sum of M[S] over S that hold U.
    """
    signs, ones = _alternating(sizes)
    found = np.zeros((len(ones), *precision[:, 0].shape))
    for kind, sign in enumerate(signs.T):
        found += sign[:, None, None, None] * precision[:, kind]
    scale = np.diagonal(precision[:, 0], axis1=1, axis2=2).max(axis=1, initial=0.0)
    found[np.abs(found) <= NEGLIGIBLE * scale[:, None, None]] = 0.0
    return found / ones[:, None, None, None]


@lru_cache
def _alternating(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The sign of each kind in each term, shape (terms, kinds), and c of each term."""
    terms = range(1 << len(sizes))
    signs = [
        [(-1.0) ** (kind ^ term).bit_count() if kind & term == term else 0.0 for kind in terms]
        for term in terms
    ]
    ones = [float(np.prod([n for a, n in enumerate(sizes) if not term >> a & 1])) for term in terms]
    return np.array(signs), np.array(ones)


@lru_cache
def _keys(sizes: tuple[int, ...]) -> np.ndarray:
    """For each term the number of each place among those that differ in its attributes: shape (terms, N)."""
    places = (
        np.array(np.unravel_index(np.arange(int(np.prod(sizes))), sizes))
        if sizes
        else np.zeros((0, 1), np.int64)
    )
    found = np.zeros((1 << len(sizes), places.shape[1]), np.int64)
    for term, keys in enumerate(found):
        for a, n in enumerate(sizes):
            if term >> a & 1:
                keys *= n
                keys += places[a]
    return found


@kernel
def slots_of(keys, place, dense, number, slot, of_dense, starts, first):
    """Number the sums that terms take, by term, group and dense cell; how many there are.

    Args:
        number: shape (N, k): room.
        slot: shape (terms, E): the sum that each cell goes into.
        of_dense: shape (sums,): whose dense cell it is.
        starts: shape (groups + 1,): where the sums of each group begin.
        first: shape (terms + 1,): where the groups of each term begin.
    """
    slots, groups = 0, 0
    for t in range(keys.shape[0]):
        first[t] = groups
        for g in range(number.shape[0]):
            for d in range(number.shape[1]):
                number[g, d] = -1
        for e in range(place.size):
            number[keys[t, place[e]], dense[e]] = 0
        for g in range(number.shape[0]):
            starts[groups] = slots
            for d in range(number.shape[1]):
                if number[g, d] == 0:
                    of_dense[slots], number[g, d] = d, slots
                    slots += 1
            if slots > starts[groups]:
                groups += 1
        for e in range(place.size):
            slot[t, e] = number[keys[t, place[e]], dense[e]]
    first[keys.shape[0]], starts[groups] = groups, slots
    return slots


@kernel
def mix(x, same, shared, each, dense, starts, first, last, out):
    """Add, within each group, the sums x times coefficients to ``out``; sums are numbered from the first group's."""
    n, base = x.shape[1], starts[first]
    for g in range(first, last):
        for i in range(starts[g], starts[g + 1]):
            to = out[i - base]
            for j in range(starts[g], starts[g + 1]):
                row = x[j - base]
                if same:
                    weight = shared[dense[i], dense[j]]
                    if weight != 0.0:
                        for v in range(n):
                            to[v] += weight * row[v]
                else:
                    weights = each[dense[i], dense[j]]
                    for v in range(n):
                        to[v] += weights[v] * row[v]


@kernel
def slope_of(x, same, shared, each, slot, dense, starts, first, whole, added, mixed, out):
    """H x, a term at a time."""
    E, n = x.shape
    for e in range(E):
        for v in range(n):
            out[e, v] = 0.0
    for t in range(slot.shape[0]):
        begin, end = first[t], first[t + 1]
        if whole and t == slot.shape[0] - 1:
            mix(x, same, shared[t], each[t], dense, starts, begin, end, out)
            continue
        low, high = starts[begin], starts[end]
        for s in range(low, high):
            for v in range(n):
                added[s, v], mixed[s, v] = 0.0, 0.0
        for e in range(E):
            to, row = added[slot[t, e]], x[e]
            for v in range(n):
                to[v] += row[v]
        mix(added[low:high], same, shared[t], each[t], dense, starts, begin, end, mixed[low:high])
        for e in range(E):
            to, row = out[e], mixed[slot[t, e]]
            for v in range(n):
                to[v] += row[v]


@kernel
def kept(z, step, at):
    """What a child adds to a cell's sum and to its slope, if it is above 0 after the shift."""
    return (z, step) if z > at * step else (0.0, 0.0)


@kernel
def cell_shift(z, step, total, start):
    """tau with sum max(z - tau step, 0) = total: Newton's steps, from below after the first."""
    quarter = z.size // 4
    at = start
    for _ in range(SHIFT_STEPS):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        w0, w1, w2, w3 = 0.0, 0.0, 0.0, 0.0
        for a in range(quarter):
            b, c, d = a + quarter, a + 2 * quarter, a + 3 * quarter
            s, w = kept(z[a], step[a], at)
            s0, w0 = s0 + s, w0 + w
            s, w = kept(z[b], step[b], at)
            s1, w1 = s1 + s, w1 + w
            s, w = kept(z[c], step[c], at)
            s2, w2 = s2 + s, w2 + w
            s, w = kept(z[d], step[d], at)
            s3, w3 = s3 + s, w3 + w
        for v in range(4 * quarter, z.size):
            s, w = kept(z[v], step[v], at)
            s0, w0 = s0 + s, w0 + w
        found, weight = (s0 + s1) + (s2 + s3), (w0 + w1) + (w2 + w3)
        if weight == 0.0:
            for v in range(z.size):
                found += z[v] if step[v] > 0.0 else 0.0
                weight += step[v]
        new = (found - total) / weight
        if abs(new - at) <= SHIFT_EXACT * (1.0 + abs(at)):
            return new
        at = new
    return at


@kernel
def step_of(x, before, slope, slope_before, step, total, start, carry, z):
    """Move one cell's x, in its place: the shift, and how far the step turns back."""
    for v in range(x.size):
        ahead = x[v] + carry * (x[v] - before[v])
        along = slope[v] + carry * (slope[v] - slope_before[v])
        z[v] = ahead - step[v] * along if step[v] > 0.0 else NOWHERE
    shift = cell_shift(z, step, total, start)
    turned = 0.0
    for v in range(x.size):
        if step[v] > 0.0:
            new = z[v] - shift * step[v]
            new = new if new > 0.0 else 0.0
            ahead = x[v] + carry * (x[v] - before[v])
            turned += (ahead - new) * (new - x[v]) / step[v]
            before[v], x[v] = x[v], new
    return shift, turned


@kernel
def gap_of(x, slope, b, step, total):
    """How much lower the objective could be at most; ``slope`` becomes H x - b."""
    gap = 0.0
    for e in range(x.shape[0]):
        least = np.inf
        for v in range(x.shape[1]):
            slope[e, v] -= b[e, v]
            if step[e, v] > 0.0:
                gap += slope[e, v] * x[e, v]
                least = min(least, slope[e, v])
        gap -= least * total[e]
    return gap


@kernel
def descend(
    x, b, t, step, tolerance, most, same, shared, each, slot, dense, starts, first, whole, added, mixed
):
    """The accelerated steps, from x and in its place: steps and gap."""
    E, n = x.shape
    before, slope, slope_before = np.empty((E, n)), np.empty((E, n)), np.empty((E, n))
    shift, z = np.empty(E), np.empty(n)
    for e in range(E):
        shift[e] = 0.0
        for v in range(n):
            before[e, v], slope[e, v] = x[e, v], 0.0
    momentum, carry, gap, turn = 1.0, 0.0, np.inf, 0
    while turn < most:
        turn += 1
        slope, slope_before = slope_before, slope
        slope_of(x, same, shared, each, slot, dense, starts, first, whole, added, mixed, slope)
        gap = gap_of(x, slope, b, step, t)
        if gap <= tolerance * n:
            break
        turned = 0.0
        for e in range(E):
            shift[e], back = step_of(
                x[e], before[e], slope[e], slope_before[e], step[e], t[e], shift[e], carry, z
            )
            turned += back
        if turned > 0:
            momentum, carry = 1.0, 0.0
        else:
            further = (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            carry, momentum = (momentum - 1.0) / further, further
    return turn, gap / n


@solver
def nearest(  # noqa: C901
    total, b, allowed, which, steepest, keys, whole, same, shared, each, size, sizes, tolerance, most, found
):  # fmt: skip
    """Divide total (k, N) into found (n, k, N), which is 0: steps and gap. -1 steps where some H is too steep.

    Args:
        b: shape (n, k, N).
        allowed: shape (n, k).
        which: shape (n,): the row of each child in ``steepest``.
        steepest: shape (m,): the largest curvature that is taken.
        keys, whole: as of :class:`Terms`.
        same, shared, each, size, sizes: as of :meth:`Terms.matrices`.
    """
    (k, places), n, terms = total.shape, which.size, keys.shape[0]
    cells = 0
    for d in range(k):
        for p in range(places):
            cells += total[d, p] != 0
    place, dense, t = np.empty(cells, np.int64), np.empty(cells, np.int64), np.empty(cells)
    e = 0
    for p in range(places):
        for d in range(k):
            if total[d, p] != 0:
                place[e], dense[e], t[e] = p, d, total[d, p]
                e += 1
    number, slot = np.empty((places, k), np.int64), np.empty((terms, cells), np.int64)
    of_dense, starts = np.empty(terms * cells, np.int64), np.empty(terms * cells + 1, np.int64)
    first = np.empty(terms + 1, np.int64)
    slots = slots_of(keys, place, dense, number, slot, of_dense, starts, first)
    added, mixed = np.empty((slots, n)), np.empty((slots, n))
    x, step, own = np.empty((cells, n)), np.empty((cells, n)), np.empty((cells, n))
    for e in range(cells):
        for v in range(n):
            x[e, v] = 1.0 if allowed[v, dense[e]] else 0.0
    slope_of(x, same, size, sizes, slot, of_dense, starts, first, whole, added, mixed, step)
    for e in range(cells):
        many = 0.0
        for v in range(n):
            if x[e, v] != 0.0 and step[e, v] > steepest[which[v]]:
                return -1, 0.0
            step[e, v] = 1.0 / step[e, v] if x[e, v] != 0.0 else 0.0
            own[e, v] = b[v, dense[e], place[e]]
            many += x[e, v]
        for v in range(n):
            x[e, v] *= t[e] / (many if many > 1.0 else 1.0)
    turn, gap = descend(
        x, own, t, step, tolerance, most, same, shared, each, slot, of_dense, starts, first, whole, added, mixed
    )  # fmt: skip
    for e in range(cells):
        for v in range(n):
            found[v, dense[e], place[e]] = x[e, v]
    return turn, gap
