"""OPT_M: weighted marginals, for both noises.

With precision v_a for the marginal over a (inverse variance at unit noise; ``theta_a^2`` under Laplace noise) and
f_S the workload's components (:mod:`..information.marginal_algebra`), the loss is

    cost(v) * sum_S f_S / kappa_S(v),    cost = sum_a v_a  (L2)   or   (sum_a sqrt(v_a))^2  (L1).

Weights are v under L2 and ``theta = sqrt(v)`` under L1, so that ``cost = (sum of weights)^(2/p)``.

L2 is convex. For any ``y >= 0`` Cauchy's inequality gives ``sum_S f_S / kappa_S >= (sum_S sqrt(f_S y_S))^2 /
sum_S y_S kappa_S``, so no marginal strategy has a loss below

    (sum_S sqrt(f_S y_S))^2 / max_a c_a sum_{S within a} y_S,

and ``y = f / kappa^2`` makes that tight at the optimum: the certificate here. Multiplicative steps over all 2^d sets
say which are worth measuring; descent goes on with those, and takes others up where they violate the certificate.

L1 is not convex, and its gradient never opens a set that is left out, so that descent alone depends on its start
(62,886 to 87,671 on the published example): moves open sets between descents (:mod:`.marginal_moves`).

Merging cells that no table tells apart loses nothing: any set of marginals restricted to one cell of each class has the
same weights, no larger sensitivity and no larger error. Under replace-one neighbours a pair of cells that differ in all
attributes moves every marginal but the total by two counts, and no pair moves more: the sensitivity is that of
add-remove without the total, times 2 (L1) or sqrt 2 (L2). The total is public then, and is measured all the same, with
as much precision as makes its share of the error negligible.

Reference: HDMM, section 8 and Definition 22.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import Identity, LinearOperator
from ..block import crossing, short_scale
from ..bounds.dual import svd_bound_kron
from ..deadline import now
from ..gram import WIDEST, dense_grams, lifted
from ..information.lattice_axis import Axis
from ..information.marginal_algebra import closed_form, eigenvalues, squared_error
from ..information.protocol import is_flat
from ..methods import Settings, register
from ..strategy import Strategy
from .marginal_moves import MarginalProblem, Moves, apart

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
    """Weights (2^d,) of sum 1: precisions v (L2) or ``theta = sqrt(v)`` (L1); and where each start ended (``losses``).

    ``least`` is a proven lower bound on the loss of every marginal strategy (L2; None for L1).
    """

    weights: np.ndarray
    loss: float
    least: float | None
    losses: tuple[float, ...]


def opt_marginals_gaussian(
    sizes: Sequence[int], components: np.ndarray, *, tolerance: float = 1e-6, deadline: float = np.inf
) -> MarginalOptimum:
    """Precisions of the marginals with least loss under L2 sensitivity, to a certified relative gap of ``tolerance``.

    Theorem 13's closed form where it is real. Otherwise multiplicative steps, which never raise the loss, then
    L-BFGS-B over the sets that they leave, until the certificate holds, nothing is gained or the deadline passes.

    ``sizes`` of attributes are all above 1; ``components`` are ``f_S = tr[E(S) W'W]``, (2^d,), not negative, not all
    zero.

    >>> from tabulae.strategy.information.marginal_algebra import multiplicities
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
    deadline: float = np.inf,
) -> MarginalOptimum:
    """Weights theta of the marginals with least loss found under L1 sensitivity.

    Starts: every needed set, the workload ``asked`` as it is (theta, (2^d,), so that the result is not worse), the
    whole domain, the L2 optimum. Each is descended, then improved by opening and closing sets; then the best is changed
    at random and improved again, ``restarts`` times. The first start always runs.

    >>> from tabulae.strategy.information.marginal_algebra import multiplicities
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

    def __init__(self, problem: MarginalProblem, deadline: float) -> None:
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


def _searched(problem: MarginalProblem, moves: Moves, theta: np.ndarray, deadline: float) -> np.ndarray:
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


def late(deadline: float) -> bool:
    """Whether the deadline has passed."""
    return now() >= deadline


_ATTRIBUTES = 16
_CANCELLED = 1e-12  # share of the terms' absolute sum that a component is taken to have, where they cancel
_CERTIFIED = 1e-4  # relative gap at which the convex optimiser stops, or the tolerance asked for if smaller
_TOTAL = 1e-3  # share of the error that the total may keep where it is public


@register("marginals", "OPT_M (weighted marginals)", families=("hdmm", "auto"), turn=5, by_cells=True)
def marginals_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_M: the best weighted marginals for any workload of products and sums of products.

    Raises :class:`~tabulae.errors.Unsupported` for more than 16 attributes that tables tell categories apart by,
    and under replace-one neighbours for tables of the number of records alone.

    >>> import tabulae as tb
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 5, "race": 3}), ways=[1, 2])
    >>> [b.name for b in marginals_strategy(workload, Settings("gaussian")).blocks]
    ['sex', 'age', 'race', 'sex*age', 'sex*race', 'age*race']
    """
    merged, merges = workload.merge()
    active = active_attributes(merged)
    if not active and settings.neighbours == "replace":
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    sizes, components, asked = workload_components(merged, active)
    with threadpool_limits(limits=1, user_api="blas"):  # short products: threads would wait for each other
        weights = _weights(sizes, components, asked, settings)
    names, cells = workload.domain.names, [lifted(Identity(m.shape[0]), m) for m in merges]
    blocks = []
    for index in sorted(np.flatnonzero(weights).tolist(), key=lambda a: (a.bit_count(), -a)):
        crossed = [i for p, i in enumerate(active) if index >> (len(active) - 1 - p) & 1]
        blocks.append(crossing(names, crossed, cells, scale=short_scale(float(weights[index]))))
    lower = (
        _lower(merged, settings)
        if settings.noise == "gaussian" and settings.neighbours == "add-remove"
        else None
    )
    return Strategy(workload.domain, tuple(blocks), settings.noise, "marginals", lower=lower)


def active_attributes(merged: Workload) -> list[int]:
    """The attributes that tables tell categories of apart; Unsupported for more than 16."""
    active = [i for i, n in enumerate(merged.domain.shape) if n > 1]
    if len(active) > _ATTRIBUTES:
        raise Unsupported(
            f"marginals weighs all sets of attributes; the tables tell categories of {len(active)} attributes apart "
            f'and it takes {_ATTRIBUTES}. Choose "residual" or "union", which work on the tables\' own sets'
        )
    return active


def _weights(
    sizes: Sequence[int], components: np.ndarray, asked: np.ndarray, settings: Settings
) -> np.ndarray:
    """Weights (2^d,): precisions under Gaussian noise, inverse scales under Laplace noise."""
    if not sizes:
        return np.ones(1)
    total = components[0]
    if settings.neighbours == "replace":
        components, asked = components.copy(), asked.copy()
        components[0] = asked[0] = 0.0  # costs nothing
    if settings.noise == "gaussian":
        tolerance = min(settings.tolerance, _CERTIFIED)
        optimum = opt_marginals_gaussian(sizes, components, tolerance=tolerance, deadline=settings.deadline)
    else:
        optimum = opt_marginals_laplace(
            sizes,
            components,
            asked,
            restarts=settings.restarts,
            seed=settings.seed,
            deadline=settings.deadline,
        )
    weights = optimum.weights
    if settings.neighbours == "replace" and total > 0:
        weights[0] = _public_total(sizes, weights, components, float(total), settings.norm)
    return weights


def _public_total(
    sizes: Sequence[int], weights: np.ndarray, components: np.ndarray, total: float, p: int
) -> float:
    """The total's weight where it is public: all the others' (an added record then moves the answers no more than a
    replaced one), or more where its share of the error would not be negligible otherwise.
    """
    v = weights ** (2 / p)
    others = squared_error(sizes, v, components)
    wanted = total / (_TOTAL * others) - float(eigenvalues(sizes, v)[0])
    precision = max(wanted, 0.0) / math.prod(map(float, sizes))
    return max(float(weights.sum()), precision ** (p / 2))


def workload_components(merged: Workload, active: Sequence[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
    """What OPT_M sees of a workload over merged cells.

    Sizes of its active attributes, ``f_S = tr[E(S) W'W]``, and the weights of the workload measured as it is, (2^d,).
    """
    axes = [Axis(Identity(n)) for n in merged.domain.shape]
    bits = {i: 1 << (len(active) - 1 - p) for p, i in enumerate(active)}
    asked = np.zeros(1 << len(active))
    terms: dict[tuple[tuple[float, float], ...], float] = {}
    for table in merged.tables:
        sides = [(term.coefficient, term.over(merged.domain)) for term in table.terms]
        varies = [[i for i in active if not is_flat(factors[i])] for _, factors in sides]
        for mask in {sum(bits[i] for i in crossed) for crossed in varies}:
            asked[mask] += float(table.weight)
        for c, left in sides:
            for d, right in sides:
                pairs = [_traces(axes[i], left[i], right[i]) for i in range(len(axes))]
                weight = float(table.weight) ** 2 * c * d
                weight *= math.prod(mean for i, (mean, _) in enumerate(pairs) if i not in bits)
                key = tuple(pairs[i] for i in active)
                terms[key] = terms.get(key, 0.0) + weight
    signed, absolute = _folded(terms, len(active))
    sizes = [merged.domain.shape[i] for i in active]
    return sizes, np.maximum(signed, _CANCELLED * absolute), asked


def _traces(axis: Axis, left: LinearOperator, right: LinearOperator) -> tuple[float, float]:
    """``1'V1/n`` and ``tr V - 1'V1/n`` of ``V = left'right``: the latter is 0 where either has constant rows."""
    mean, beside = axis.sums(left, right).tolist()
    return mean, 0.0 if is_flat(left) or is_flat(right) else beside


def _folded(terms: dict[tuple[tuple[float, float], ...], float], d: int) -> tuple[np.ndarray, np.ndarray]:
    """``sum_l c_l prod_{i not in S} mean_li prod_{i in S} beside_li`` for all S, and the same of absolute values.

    Attributes are folded in one at a time, and terms that agree on the attributes left are added up first:
    those of many different factors go first, so that few arrays are left when arrays are long.
    """
    order = sorted(range(d), key=lambda i: len({key[i] for key in terms}))
    folded: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
    for key, c in terms.items():
        ordered = tuple(key[i] for i in order)
        folded[ordered] = folded.get(ordered, np.zeros(2)) + np.array([c, abs(c)])
    for _ in range(d):
        shorter: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
        for key, values in folded.items():
            mean, beside = key[-1]
            own = np.array([[mean, beside], [abs(mean), abs(beside)]])
            both = own.reshape(2, 2, *[1] * (values.ndim - 1)) * values[:, None]
            known = shorter.get(key[:-1])
            shorter[key[:-1]] = both if known is None else known + both
        folded = shorter
    signed, absolute = (np.transpose(part, np.argsort(order)).ravel() for part in folded[()])
    return signed, absolute


def _lower(merged: Workload, settings: Settings) -> float | None:
    """The SVD bound, where it is known in closed form: marginals, and single products."""
    if max(merged.domain.shape) > WIDEST:
        return None
    try:
        return svd_bound_kron(dense_grams(merged), settings.deadline)
    except Unsupported:
        return None
