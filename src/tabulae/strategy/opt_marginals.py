"""OPT_M: the weights of a strategy that measures marginals, for both noises.

L2 is convex. For any ``y >= 0`` Cauchy's inequality gives ``sum_S f_S / kappa_S >= (sum_S sqrt(f_S y_S))^2 /
sum_S y_S kappa_S``, so no marginal strategy has a loss below

    (sum_S sqrt(f_S y_S))^2 / max_a c_a sum_{S within a} y_S,

and ``y = f / kappa^2`` makes that tight at the optimum: the certificate here. Multiplicative steps over all 2^d sets
say which are worth measuring; descent goes on with those, and takes others up where they violate the certificate.

L1 is not convex. A set that is left out is never missed by the gradient, so that descent alone depends
on its start (62,886 to 87,671 on the published example). What decides is which tables are read off a common
larger marginal: the search opens a set, closes those within it, and lets descent settle the weights again.

Reference: HDMM, Definition 22; the loss and its slopes are in :mod:`.marginal_problem`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .marginal_algebra import closed_form
from .marginal_moves import Moves, apart
from .marginal_problem import MarginalProblem

_STEPS = 200  # multiplicative steps before the quasi-Newton method
_EVERYWHERE = 0.2  # share of the weight that is spread over all sets before them
_BETWEEN = 50  # the same between descents
_ROUNDS = 12  # quasi-Newton descents, each over the sets that the certificate before it asks for
_GAIN = 1e-8  # relative gain of a round below which it was the last
_RESTARTS = 64  # changes of the best weights from which the search starts again, where sets are many
_MOST_RESTARTS = 100  # the same where they are few: four times their number, up to this
_TOGETHER = 8  # moves made at once, while that helps
_TRIED = 10  # single moves tried before the search ends
_SAME = 1e-7  # relative difference of losses below which two descents ended in one place
_FRESH = 1024  # sets of attributes up to which weights are drawn afresh as well


@dataclass(frozen=True)
class MarginalOptimum:
    """Weights (2^d,) found, of sum 1: precisions v (L2) or ``theta = sqrt(v)`` (L1).

    ``loss`` is their squared error at unit noise and sensitivity; ``least`` a proven lower bound on the loss of
    every marginal strategy (L2; None for L1); ``losses`` where each start ended.
    """

    weights: np.ndarray
    loss: float
    least: float | None
    losses: tuple[float, ...]


def opt_marginals_gaussian(
    sizes: Sequence[int], components: np.ndarray, *, tolerance: float = 1e-6, deadline: float | None = None
) -> MarginalOptimum:
    """Precisions of the marginals with least loss under L2 sensitivity; certified.

    Theorem 13's closed form where it is real. Otherwise multiplicative steps, which never raise the loss, then
    L-BFGS-B over the sets that they leave, until the certificate holds, nothing is gained or the deadline passes.

    Arguments:
        sizes: attribute sizes, all above 1.
        components: ``f_S = tr[E(S) W'W]``, (2^d,), not negative and not all zero.
        tolerance: relative gap between the loss and its lower bound at which to stop.
        deadline: on :func:`time.monotonic`'s clock.

    Reference: HDMM, Definition 22 and Theorem 13.

    >>> from tabulae.strategy.marginal_algebra import multiplicities
    >>> round(opt_marginals_gaussian([2, 5], multiplicities([2, 5])).loss, 6)  # the identity on itself
    10.0
    """
    problem = MarginalProblem(sizes, components)
    v = closed_form(sizes, components)
    if (v >= -1e-9 * v.max()).all():
        v = np.maximum(v, 0.0)
        loss, least = _certified(problem, v)
        if loss <= least * (1 + tolerance):
            return _optimum(problem, problem.pruned(v, 2), least)
    v = np.where(problem.f > 0, np.maximum(v, 1e-3 * v.max()), 0.0)
    v = _multiplied(problem, v / v.sum() + _EVERYWHERE / v.size, _STEPS)
    best, (loss, least) = v, _certified(problem, v)
    v = _open(problem, v)
    for _ in range(_ROUNDS):
        if late(deadline) or loss <= least * (1 + tolerance):
            break
        before, descended = loss, problem.descend(v, 2, precision=1e-13)
        # The loss settles long before its certificate does, for the sake of few sets of little weight.
        v = _multiplied(problem, _reopened(problem, descended, tolerance), _BETWEEN)
        for trial in (descended, v):
            reached, bound = _certified(problem, trial)
            least = max(least, bound)
            if reached < loss:
                best, loss = trial, reached
        if before - loss <= _GAIN * loss:
            break
    return _optimum(problem, problem.pruned(best, 2), least)


def _optimum(problem: MarginalProblem, v: np.ndarray, least: float) -> MarginalOptimum:
    loss, bound = _certified(problem, v)
    loss, least = loss * problem.scale, max(least, bound) * problem.scale
    return MarginalOptimum(v / v.sum(), loss, min(least, loss), (loss,))


def _certified(problem: MarginalProblem, v: np.ndarray) -> tuple[float, float]:
    """The loss of v, and the lower bound that its own multipliers ``f / kappa^2`` prove."""
    v = v / v.sum()
    error = problem.error(v)
    return (error, error**2 / float(problem.slopes(v).max())) if np.isfinite(error) else (np.inf, 0.0)


def _multiplied(problem: MarginalProblem, v: np.ndarray, steps: int) -> np.ndarray:
    """``v_a <- v_a sqrt(slope_a / error)`` at sum 1: descends from any start, through all scales at once."""
    for _ in range(steps):
        v = v / v.sum()
        v = v * np.sqrt(problem.slopes(v) / problem.error(v))
    return v


def _open(problem: MarginalProblem, v: np.ndarray) -> np.ndarray:
    """v without the sets that multiplicative steps were closing, where the rest determines the workload."""
    v = v / v.sum()
    rising = problem.slopes(v) > 0.9 * problem.error(v)
    kept = (v > 1e-7 * v.max()) & (rising | (v > 1e-4 * v.max()))
    fewer = np.where(kept, v, 0.0)
    return fewer if np.isfinite(problem.error(fewer)) else v


def _reopened(problem: MarginalProblem, v: np.ndarray, tolerance: float) -> np.ndarray:
    """v with the sets that the certificate misses opened wide enough for the next descent to see them."""
    v = v / v.sum()
    missing = problem.slopes(v) > problem.error(v) * (1 + tolerance / 2)
    return np.where(missing, np.maximum(v, 1e-3 * v.max()), v)


def opt_marginals_laplace(
    sizes: Sequence[int],
    components: np.ndarray,
    asked: np.ndarray,
    *,
    restarts: int | None = None,
    seed: int = 0,
    deadline: float | None = None,
) -> MarginalOptimum:
    """Weights theta of the marginals with least loss found under L1 sensitivity.

    Starts: every needed set, the workload as asked, the whole domain, the L2 optimum. Each is descended, then
    improved by opening and closing sets; then the best is changed at random and improved again, ``restarts``
    times. The first start always runs.

    Arguments:
        sizes, components, deadline: as for :func:`opt_marginals_gaussian`.
        asked: theta of the workload measured as it is, (2^d,); one start, so that the result is not worse.
        restarts: random changes of the best weights.
        seed: of those changes.

    Reference: HDMM, Definition 22.

    >>> from tabulae.strategy.marginal_algebra import multiplicities
    >>> asked = np.array([0.0, 0, 0, 1])
    >>> round(opt_marginals_laplace([2, 5], multiplicities([2, 5]), asked).loss, 6)
    10.0
    """
    problem = MarginalProblem(sizes, components)
    precisions = opt_marginals_gaussian(sizes, components, tolerance=1e-3, deadline=deadline).weights
    usual = precisions ** (2 / 3)  # the optimum for tables with nothing in common
    needed = np.where(problem.f > 0, np.maximum(usual, 1e-2 * usual.max()), 0.0)
    random = np.random.default_rng(seed)
    search = _Search(problem, deadline)
    for start in (needed, asked, _whole(problem), usual):
        search.start(start)
    few = problem.f.size <= _FRESH
    usually = min(4 * problem.f.size, _MOST_RESTARTS) if few else _RESTARTS
    for turn in range(usually if restarts is None else restarts):
        search.start(_changed(problem, search.best, needed, random, turn))
        if late(deadline):
            break
    # Where time was short the plain strategies may still be better than what descent had reached.
    best = min((search.best, asked, _whole(problem)), key=lambda theta: problem.loss(theta, 1))
    best = problem.pruned(best, 1)
    losses = tuple(loss * problem.scale for loss in search.losses)
    return MarginalOptimum(best / best.sum(), problem.loss(best, 1) * problem.scale, None, losses)


class _Search:
    """The best weights so far, and where descent led before: from there the search would end where it did."""

    def __init__(self, problem: MarginalProblem, deadline: float | None) -> None:
        self._problem, self._deadline = problem, deadline
        self._moves = Moves(problem)
        self._settled: list[float] = []
        self.losses: list[float] = []
        self.best = np.zeros(0)

    def start(self, theta: np.ndarray) -> None:
        """Descend and search from theta, unless time is up (the first start always runs) or it is known."""
        if self.losses and late(self._deadline):
            return
        theta = _settled(self._problem, theta)
        loss = self._problem.loss(theta, 1)
        if any(abs(loss - known) <= _SAME * known for known in self._settled):
            return
        self._settled.append(loss)
        theta = _searched(self._problem, self._moves, theta, self._deadline)
        self.losses.append(self._problem.loss(theta, 1))
        if self.losses[-1] == min(self.losses):
            self.best = theta


def _whole(problem: MarginalProblem) -> np.ndarray:
    out = np.zeros(problem.f.size)
    out[-1] = 1.0
    return out


def _changed(
    problem: MarginalProblem, theta: np.ndarray, needed: np.ndarray, random: np.random.Generator, turn: int
) -> np.ndarray:
    """A new start near the best: some open sets closed, the needed ones a little open, so that all is determined.

    In turn: a tenth of the open sets, three tenths, three tenths of the merged ones (open, but not needed) with
    half of the needed sets wide open, and where there are few sets, weights drawn afresh.
    """
    usual = needed * (theta.max() / needed.max())
    kind = turn % (4 if theta.size <= _FRESH else 3)
    if kind == 3:
        return 1e-3 * usual + random.random(theta.size)
    closable = (theta > 0) & (problem.f <= 0) if kind == 2 else theta > 0
    closed = closable & (random.random(theta.size) < (0.1 if kind == 0 else 0.3))
    start = np.maximum(np.where(closed, 0.0, theta), (0.01 if kind == 2 else 0.05) * usual)
    wide = random.random(theta.size) < 0.5
    return np.where(wide, np.maximum(start, 0.3 * usual), start) if kind == 2 else start


def _settled(problem: MarginalProblem, theta: np.ndarray) -> np.ndarray:
    """Descent from far: multiplicative steps (``theta_a slope_a`` are equal at an optimum), then L-BFGS-B."""
    for _ in range(20):
        theta = theta / theta.sum()
        theta = theta * (theta * problem.slopes(theta**2) / problem.error(theta**2)) ** (1 / 4)
    return problem.pruned(problem.descend(theta, 1), 1)


def _searched(
    problem: MarginalProblem, moves: Moves, theta: np.ndarray, deadline: float | None
) -> np.ndarray:
    """Moves, several at once while that helps, each followed by descent, until none helps or time is up."""
    loss, together = problem.loss(theta, 1), _TOGETHER
    while not late(deadline):
        improving = moves.improving(theta, 4096)
        trials = [list(apart(improving, together))] if together > 1 else [[m] for m in improving[:_TRIED]]
        for trial in trials:
            changed = theta
            for move in trial:
                changed = move.applied(changed)
            changed = problem.pruned(problem.descend(changed, 1, 200, 1e-9), 1)
            reached = problem.loss(changed, 1)
            if reached < loss * (1 - 1e-8):
                theta, loss = changed, reached
                break
            if late(deadline):
                return theta
        else:
            if together == 1:
                return theta
            together = 1
    return theta


def late(deadline: float | None) -> bool:
    """Whether the deadline has passed."""
    return deadline is not None and time.monotonic() >= deadline
