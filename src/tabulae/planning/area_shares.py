"""The shares of a spine's budget, by level and query, with which targets of areas cost least."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog, minimize

from ..geography.spine_plan import SpinePlan
from ..topdown.sensitivities import Sensitivities
from .area_aims import AreaAims
from .area_design import Design

_SETTLED = 3e-3  # relative gap at which shares are good enough
_WORK = 3e9  # multiplications by the size of a matrix, about, that a search may take
_FEWEST, _MOST = 24, 150  # points that a search looks at, by how much work one is
MOST_WORK = 3e8
"""The most such multiplications for one point: with more, shares are not looked for."""
_RESTARTS = 3
_STIRRED = 0.1  # of the budget, spread evenly where a search begins anew
_LEAST = 1e-6  # of the budget: what every query of a level keeps while shares are looked for
_PARTS = 10_000  # shares are rounded to whole parts of so many
_SURE = 1e-9  # relative: what rounding of floats may take off the bound


class _Done(Exception):
    """The search has done its work, or is good enough."""


@dataclass(eq=False)
class ShareSearch:
    """Minimise the budget over budgets y >= 0 of levels and queries, every aim's variance at most what is allowed.

    With r_t(x) the variance of aim t over what it allows, convex and of degree -1 in the units' budgets x, tangents
    at any x_k hold everywhere: ``g_tk . x >= c_tk`` for all x with r_t(x) <= 1. So the smallest budget of the linear
    problem

        min b  subject to  sum of x on each path <= b,  g_tk . x >= c_tk,  x >= 0

    bounds the budget from below for whatever shares, and any feasible point of its dual proves a bound.

    Args:
        design: the variables.
        aims: the targets.
        allowed: shape (aims,): the variance that each allows.
        chosen: shape (aims,), boolean: those that are not exact.
    """

    design: Design
    aims: AreaAims
    allowed: np.ndarray
    chosen: np.ndarray
    best: np.ndarray | None = None
    cost: float = np.inf
    tangents: list[tuple[int, np.ndarray, float]] = field(default_factory=list)
    _last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    _left: int = 0

    def run(self, start: np.ndarray) -> None:
        """Look for the best y, beginning at some and then anew from the best while that helps."""
        self._left = int(np.clip(_WORK / work_of(self.design.plan, self.aims), _FEWEST, _MOST))
        try:
            for _ in range(_RESTARTS):
                before = self.cost
                self._descend(start)
                assert self.best is not None
                if self.cost > before * (1 - _SETTLED):
                    return
                start = (1 - _STIRRED) * self.best + _STIRRED * self.best.mean()
        except _Done:
            return

    def _descend(self, start: np.ndarray) -> None:
        """Sequential quadratic programming in log y."""
        found, _ = self.at(start)
        z = np.log(start * np.exp(found.max())).ravel()
        low = np.log(_LEAST * np.exp(z).sum())
        z = np.maximum(z, low + 0.1)
        minimize(
            lambda z: np.log(np.exp(z).sum()),
            z,
            jac=lambda z: np.exp(z) / np.exp(z).sum(),
            bounds=[(low, z.max() + 12)] * z.size,
            constraints={
                "type": "ineq",
                "fun": lambda z: -self.at(np.exp(z).reshape(start.shape))[0],
                "jac": lambda z: self.at(np.exp(z).reshape(start.shape))[1] * np.exp(z),
            },
            method="SLSQP",
            callback=self._judge,
            options={"maxiter": _MOST, "ftol": 1e-6},
        )

    def at(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log r of each chosen aim, and minus its derivative by y, (aims, levels * queries); tangents are kept."""
        if self._last is not None and np.array_equal(self._last[0], y):
            return self._last[1:]
        if not self._left:
            raise _Done
        self._left -= 1
        x = self.design.budgets(y)
        cov = self.aims.covariances(self.design.plan, self.design.weights(x))
        logs, slopes = [], []
        for place, found in sorted(self.aims.slopes(cov, self.chosen).items()):
            slope = self.design.slope(found.slope)
            self.tangents.append((place, slope.ravel(), found.least))
            logs.append(found.log - np.log(self.allowed[place]))
            slopes.append(self.design.back(slope, y).ravel())
        cost = float(y.sum()) * float(np.exp(max(logs)))
        if cost < self.cost:
            self.best, self.cost = y, cost
        self._last = y, np.array(logs), np.array(slopes)
        return self._last[1:]

    def _judge(self, _: np.ndarray) -> None:
        """Stop where the bound says that no shares are much better."""
        if self.cost <= self.bound(self.allowed) * (1 + _SETTLED):
            raise _Done

    def bound(self, allowed: np.ndarray) -> float:
        """A budget that no shares do with less than, by the dual of the linear problem.

        Args:
            allowed: shape (aims,): the variances.
        """
        tangents = np.array([slope * (self.cost * allowed[place] / c) for place, slope, c in self.tangents])
        count, size = tangents.shape  # budgets in parts of the best one known, tangents >= 1: numbers near 1
        paths = np.repeat(self.design.paths, size // len(self.design.level), axis=1).astype(float)
        found = linprog(
            np.append(np.zeros(size), 1.0),
            A_ub=np.vstack(
                [
                    np.column_stack([-tangents, np.zeros(count)]),
                    np.column_stack([paths, -np.ones(len(paths))]),
                ]
            ),
            b_ub=np.concatenate([-np.ones(count), np.zeros(len(paths))]),
            method="highs",
        )
        if found.status != 0:  # one tangent alone is a bound
            return self.cost / float(tangents.max(axis=1).min()) / len(self.design.level) * (1 - _SURE)
        dual = np.maximum(-found.ineqlin.marginals, 0)
        on_paths = dual[count:] + _SURE / len(paths)
        spent, worth = dual[:count] @ tangents, on_paths / on_paths.sum() @ paths
        fits = float((worth[spent > 0] / spent[spent > 0]).min(initial=np.inf))
        return self.cost * float(dual[:count].sum()) * min(fits, 1.0) * (1 - _SURE)


def work_of(plan: SpinePlan, aims: AreaAims) -> int:
    """How much it is to find the errors of all aims and their slopes once."""
    return Sensitivities.numbers(plan) * plan.layout.size * len(aims.aims)


def rounded(shares: np.ndarray, least: np.ndarray) -> tuple[Fraction, ...]:
    """Numbers that add up to 1 as whole parts of 10,000: each near its own, and 1 part at least where asked.

    >>> rounded(np.array([0.33333, 0.66667, 0.0]), np.array([True, True, True]))
    (Fraction(3333, 10000), Fraction(3333, 5000), Fraction(1, 10000))
    """
    held = shares / shares.sum() * (_PARTS - least.sum())
    parts = np.floor(held).astype(np.int64) + least
    order = np.argsort(np.floor(held) - held, kind="stable")
    parts[order[: _PARTS - int(parts.sum())]] += 1
    return tuple(Fraction(int(part), _PARTS) for part in parts)
