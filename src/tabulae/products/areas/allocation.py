"""Shares chosen for the tables that are wanted: those of least squared error over all tables and kinds of area."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import inf, sqrt

import numpy as np
from scipy.optimize import linprog, minimize

from ...errors import InvalidArgument, Problem, SpecError, Unsupported
from ...privacy import PrivacyLoss
from ...release.write import LEVEL
from ...spec import Spec
from .passes.area_variances import MOST_NUMBERS, Sensitivities
from .passes.covariances import Covariances
from .smallest import Need, best_shares
from .spec.section import Geography, LevelShares, geography_of
from .spine_plan import SpinePlan, estimation_variance
from .targets import MOST_WORK, AreaAims, AreaErrors, Design, is_gaussian, rounded, work_of


@dataclass(frozen=True, eq=False)
class _Part:
    """Areas of one kind in which the same tables have an error.

    Attributes:
        area: shape (leaves,): which of these areas each leaf is in, -1 for none.
        count: how many areas.
        weight: G of each of them, shape (kinds, D, D).
    """

    area: np.ndarray
    count: int
    weight: np.ndarray


@dataclass(frozen=True, eq=False)
class TotalError:
    """The weighted squared error of all tables in all kinds of area, as ``gls`` estimates them:

        F = sum over tables t and the kinds of area k that t is published for of  weight_t^2 MSE_tk

    with MSE_tk the mean of the variances of all counts of t in all areas of k but exact ones. With V_a the variance of
    the counts of area a it is ``sum_a <G_a, V_a>``, and of degree -1 in the weights w of the answers (1 over their
    variance). So ``F = -sum of w dF/dw`` comes with its slope (Euler).

    Attributes:
        geography: whose tables they are.
        parts: the areas.
        weight: the sum of the squared weights of tables over kinds of area where they have an error, the largest 1.
    """

    geography: Geography
    parts: tuple[_Part, ...]
    weight: float

    @classmethod
    def of(cls, geography: Geography) -> TotalError:
        plan, parts, whole = geography.plan(), [], 0.0
        largest = max(table.weight for table in geography.tables)
        errors = AreaErrors(geography, _covariances(geography, plan), LEVEL)
        for kind in dict.fromkeys(area for table in geography.tables for area in table.areas):
            tables = [table for table in geography.tables if kind in table.areas]
            squares = errors.of_areas(kind, tables)
            live = np.array([each[0] > 0 for each in squares])
            grams = []
            for table, each, has in zip(tables, squares, live, strict=True):
                dense = table.margin.dense_gram(np.arange(table.margin.layout.size))
                own = (table.weight / largest) ** 2
                mean = own * table.margin.squares.sum(axis=0) / max(each[1][has].sum(), 1.0)
                grams.append(np.multiply.outer(mean, dense))
                whole += own if has.any() else 0.0
            place = errors.placed(kind)[0]
            sets, which = np.unique(live, axis=1, return_inverse=True)
            for i, chosen in enumerate(sets.T):
                if chosen.any():
                    here = which.reshape(-1) == i
                    number = np.append(np.where(here, np.cumsum(here) - 1, -1), -1)
                    weight = sum(gram for gram, has in zip(grams, chosen, strict=True) if has)
                    parts.append(_Part(number[place], int(here.sum()), np.asarray(weight)))
        return cls(geography, tuple(parts), whole)

    def slope(self, cov: Covariances) -> np.ndarray:
        """Minus the derivative of F by the weight of each class and query: shape (classes, queries), 0 or more."""
        found = Sensitivities.zeros(cov)
        for part in self.parts:
            found.add(part.area, np.broadcast_to(part.weight, (part.count, *part.weight.shape)))
        return np.maximum(found.by_class(), 0)

    def rmse(self, plan: SpinePlan) -> float:
        """The root of F over the sum of weights, under a plan."""
        laws = [plan.laws(kind) for kind in range(len(plan.classes[0]))]
        weights = [[0.0 if law is None else 1 / estimation_variance(law) for law in each] for each in laws]
        slope = self.slope(_covariances(self.geography, plan))
        return sqrt(float((slope * np.array(weights)).sum()) / self.weight)


def _covariances(geography: Geography, plan: SpinePlan, weights: np.ndarray | None = None) -> Covariances:
    return AreaAims(geography).covariances(plan, weights)


@dataclass(frozen=True)
class FoundShares:
    """Shares that were chosen for the tables.

    Attributes:
        shares: of levels, and of the queries within each, as exact numbers that add up to 1.
        loss: the budget that they share: the one of the spec, or the least that meets its targets.
        rmse: root of the weighted mean squared error over all tables and kinds of area with these shares.
        equal: the same with equal shares; None where these cannot be measured, or need another budget.
        lower: no shares have a smaller one; proven for Gaussian noise that is not rounded. None for Laplace noise, or
            where targets ask for something else.
        missed: how many targets these shares miss.
    """

    shares: LevelShares
    loss: PrivacyLoss
    rmse: float
    equal: float | None
    lower: float | None
    missed: int

    @property
    def gap(self) -> float | None:
        """How much more the error is than what none is below, relative; 0 where rounding of noise makes it less."""
        return None if not self.lower else max(self.rmse / self.lower - 1, 0.0)


_WORK = 8e9  # multiplications by the size of a matrix, about, of a search: no clock, so that shares repeat
_FEWEST, _MOST = 24, 70  # points that a search looks at, by how much work one is
_SETTLED = 5e-4  # relative gap of the squared error at which shares are good enough
_RANGE = 16.0  # logarithms of shares stay within so much of where they begin
_SURE = 1e-7  # relative: what rounding of floats may take off the bound
_ROUNDS = 3  # of what targets allow, where intervals are wider than those of the normal law
_NONE = "cannot be found: no budget was found that meets these targets. Allow more, or ask it of larger areas"
_LEAST = 1e-3  # of a level's budget: a query with less is not asked there
_NEAR = 2e-3  # of the logarithm of a variance: a target missed by no more is met, while shares are looked for


class _Done(Exception):
    """The search has done its work, or is good enough."""


@dataclass(frozen=True, eq=False)
class TargetLimits:
    """Targets as a search keeps to them.

    Attributes:
        allowed: shape (aims,): the variance that each allows.
        chosen: shape (aims,), boolean: those that are not about exact counts.
    """

    aims: AreaAims
    allowed: np.ndarray
    chosen: np.ndarray


@dataclass(eq=False)
class ErrorSearch:
    """Minimise F over budgets y > 0 of levels and queries that add up to a budget, targets met.

    In ``z = log y`` what is minimised is ``log F + p log sum y``, -p the degree of F, which does not depend on how
    large y is. Under Gaussian noise F is convex in the units' budgets x and p = 1, so that with g = -dF/dx at any point
    ``F(x') >= F^2 / g.x'`` for all x': no shares have an error below ``F^2 / max g.x'``, the largest over all x' with
    the budget on each path.

    Args:
        error: F.
        design: from y to the weights of answers.
        budget: what y adds up to.
        limits: the targets; None for none.
        best: the best y seen: of the least F among those within the limits, or else the nearest to them.
        lower: F is no less with any shares, limits or not; 0 where that is not known.
    """

    error: TotalError
    design: Design
    budget: float
    limits: TargetLimits | None = None
    best: np.ndarray | None = None
    lower: float = 0.0
    _rank: tuple[float, float] = (inf, inf)
    _left: int = 0
    _last: tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        plan = self.design.plan
        parts = len(self.error.parts) + (0 if self.limits is None else len(self.limits.aims.aims))
        work = Sensitivities.numbers(plan) * plan.layout.size * max(parts, 1)
        self._left = int(np.clip(_WORK / work, _FEWEST, _MOST))

    def run(self, start: np.ndarray) -> np.ndarray:
        """The best y of those looked at."""
        z = np.log(start / start.sum()).ravel()
        bounds = [(each - _RANGE, each + _RANGE) for each in z]
        try:
            if self.limits is None:
                options = {"maxiter": _MOST, "maxfun": _MOST, "ftol": 1e-7, "maxcor": 20}
                minimize(
                    lambda z: self.at(z)[1:3],
                    z,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=bounds,
                    callback=self._judge,
                    options=options,
                )
            else:
                minimize(
                    lambda z: self.at(z)[1],
                    z,
                    jac=lambda z: self.at(z)[2],
                    bounds=bounds,
                    constraints={
                        "type": "ineq",
                        "fun": lambda z: -self.at(z)[3],
                        "jac": lambda z: -self.at(z)[4],
                    },
                    method="SLSQP",
                    callback=self._judge,
                    options={"maxiter": _MOST, "ftol": 1e-7},
                )
        except _Done:
            pass
        assert self.best is not None
        return self.best

    def at(self, z: np.ndarray) -> tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray]:
        """z, log F and its derivative by z, the log of each aim's variance over what is allowed, and theirs."""
        if self._last is not None and np.array_equal(self._last[0], z):
            return self._last
        if not self._left:
            raise _Done
        self._left -= 1
        y = np.exp(z - z.max()).reshape(len(self.design.levels), -1)
        y *= self.budget / y.sum()
        x = self.design.budgets(y)
        weights = self.design.weights(x)
        cov = _covariances(self.error.geography, self.design.plan, weights)
        by_class = self.error.slope(cov)
        value, slope = float((by_class * weights).sum()), self.design.slope(by_class, x)
        if self.design.power == 1:
            self.lower = max(self.lower, value**2 / self._most(slope) * (1 - _SURE))
        logs, aimed = self._aimed(cov, x, y)
        over = max(float(logs.max(initial=0)), _NEAR) - _NEAR
        if (over, value) < self._rank:
            self.best, self._rank = y, (over, value)
        self._last = z.copy(), float(np.log(value)), self._by_z(slope / value, y), logs, aimed
        return self._last

    def _aimed(self, cov: Covariances, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.limits is None:
            return np.zeros(0), np.zeros((0, y.size))
        found = sorted(self.limits.aims.slopes(cov, self.limits.chosen).items())
        logs = [each.log - np.log(self.limits.allowed[place]) for place, each in found]
        return np.array(logs), np.array(
            [self._by_z(self.design.slope(each.slope, x), y) for _, each in found]
        )

    def _by_z(self, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Minus a logarithm's derivative by x as its derivative by z, at y that adds up to the budget."""
        return ((self.design.power / self.budget - self.design.back(slope, y)) * y).ravel()

    def _most(self, slope: np.ndarray) -> float:
        """The largest slope . x over budgets x of units with the budget on each path."""
        most = slope.max(axis=1)
        scale = float(most.max())
        paths = self.design.paths.astype(float)
        found = linprog(-most / scale, A_ub=paths, b_ub=np.ones(len(paths)), method="highs")
        return self.budget * scale * (-found.fun if found.status == 0 else float(len(most)))

    def _judge(self, _: np.ndarray) -> None:
        over, value = self._rank
        if not over and self.lower and value <= self.lower * (1 + _SETTLED):
            raise _Done


@dataclass(frozen=True, eq=False)
class _Judged:
    """Shares under the noise that would be drawn with them.

    Attributes:
        ratios: shape (aims,): the error that a target is about over what it allows.
        missed: how many targets are missed.
    """

    shares: LevelShares
    loss: PrivacyLoss
    rmse: float
    ratios: np.ndarray
    missed: int

    @property
    def rank(self) -> tuple[float, float, float]:
        """Less is better: the budget where it is to be found, how far targets are missed, the error."""
        return float(self.loss.amount), float(self.ratios.max()) if self.missed else 0.0, self.rmse


@dataclass(eq=False)
class ShareChoice:
    """The choice of shares for a geography: those looked for and equal ones, each judged by its own noise.

    Args:
        geography: with equal shares that stand for those to be chosen.
        find_budget: whether the budget is to be found from the targets, too: then the least decides.
    """

    geography: Geography
    find_budget: bool
    judged: list[_Judged] = field(default_factory=list)

    @cached_property
    def error(self) -> TotalError:
        return TotalError.of(self.geography)

    @cached_property
    def aims(self) -> AreaAims:
        return AreaAims(self.geography)

    @cached_property
    def inexact(self) -> np.ndarray:
        """Shape (aims,), boolean: the targets that are not about exact counts."""
        if not self.aims.aims:
            return np.zeros(0, bool)
        return self.aims.variances(self.aims.covariances(self.geography.plan())) > 0

    def found(self) -> FoundShares:
        """The best of all.

        Raises:
            InvalidArgument: no budget meets the targets, with any shares that were looked at.
        """
        geography = self.geography
        equal = self.judge(LevelShares.equal(geography.spine.levels, len(geography.queries)))
        lower = self._look() if self.error.weight else 0.0
        if not self.judged:
            raise InvalidArgument(_NONE)
        best = min(self.judged, key=lambda each: each.rank)
        told = None if equal is None or equal.loss != best.loss else equal.rmse
        known = lower > 0 and not self.find_budget
        least = sqrt(lower / self.error.weight) if known else None
        return FoundShares(best.shares, best.loss, best.rmse, told, least, best.missed)

    def _look(self) -> float:
        """Judge the shares of least error, and, where these miss targets, others; F is no less than what it returns."""
        geography = self._measured()
        design = Design.of(geography)
        even = np.ones((len(design.levels), len(geography.queries)))
        search = ErrorSearch(self.error, design, float(geography.plan().budget.amount))
        best = search.run(even)
        first = self.judge(_rounded(geography, design, best))
        if self.inexact.any() and (self.find_budget or first is None or first.missed):
            nearest = self._save_budget(geography)
            if not self.find_budget and (nearest is None or not nearest.missed):
                self._keep_to_targets(design, best)
        return search.lower

    def _measured(self) -> Geography:
        """Equal shares of the levels in which a unit is measured: none is where each is an only child."""
        design, levels = Design.of(self.geography), self.geography.spine.levels
        used = {*(design.levels[at] for at in design.level.tolist()), levels[-1]}
        equal = LevelShares.equal([name for name in levels if name in used], len(self.geography.queries))
        shares = LevelShares({name: equal.levels.get(name, Fraction(0)) for name in levels}, equal.queries)
        self.judge(shares)
        return self.geography.with_shares(shares)

    def _keep_to_targets(self, design: Design, start: np.ndarray) -> None:
        """Judge shares of least error among those that meet the targets, allowed less where intervals are wider."""
        allowed = np.array([aim.most_variance() for aim in self.aims.aims])
        budget = float(self.geography.plan().budget.amount)
        for _ in range(_ROUNDS):
            search = ErrorSearch(self.error, design, budget, TargetLimits(self.aims, allowed, self.inexact))
            judged = self.judge(_rounded(self.geography, design, search.run(start)))
            if judged is None or not judged.missed:
                return
            allowed = allowed / np.maximum(judged.ratios * (1 + _NEAR), 1.0) ** 2

    def _save_budget(self, geography: Geography) -> _Judged | None:
        """Judge the shares with which the targets cost least: where they miss some, none come nearer.

        None where these are not looked for.
        """
        aims = AreaAims(geography)
        if not is_gaussian(geography) or work_of(geography.plan(), aims) > MOST_WORK:
            return None
        amount = Need(aims, geography.plan()).least()
        if amount is None:
            return None
        best = best_shares(aims, amount, self.inexact)
        levels = {name: best.levels.get(name, Fraction(0)) for name in geography.spine.levels}
        return self.judge(LevelShares(levels, best.queries))

    def judge(self, shares: LevelShares) -> _Judged | None:
        """Keep shares that can be measured; None where limits cannot be met with them, or targets with no budget."""
        geography = self.geography
        try:
            plan = geography.with_shares(shares).plan()
            if geography.constraints is not None:
                geography.constraints.check(plan, geography.estimate)
        except (InvalidArgument, Unsupported):
            return None
        ratios, missed = np.zeros(len(self.aims.aims)), 0
        if self.inexact.any():
            if self.find_budget:
                amount = Need(self.aims, plan).least()
                if amount is None:
                    return None
                plan = geography.with_budget(type(plan.budget)(amount)).with_shares(shares).plan()
            need = Need(self.aims, plan)
            laws, variances = need.laws(need.own), need.at(need.own).tolist()
            pairs = list(zip(self.aims.aims, variances, strict=True))
            ratios = np.array([aim.reached(variance, laws) / aim.allowed for aim, variance in pairs])
            missed = sum(not aim.met(variance, laws) for aim, variance in pairs)
        rmse = self.error.rmse(plan) if self.error.weight else 0.0
        self.judged.append(_Judged(shares, plan.budget, rmse, ratios, missed))
        return self.judged[-1]


def _rounded(geography: Geography, design: Design, y: np.ndarray) -> LevelShares:
    """Budgets as exact shares: what is next to nothing is left out, but for what determines every cell of a level."""
    levels = dict.fromkeys(geography.spine.levels, Fraction(0))
    levels |= zip(design.levels, rounded(y.sum(axis=1), np.ones(len(y), bool)), strict=True)
    plan, sizes = geography.plan(), np.array([query.size for query in geography.queries])
    keep = (np.zeros(sizes.size, bool), sizes == sizes.max(), np.ones(sizes.size, bool))
    queries = {}
    for name, row in zip(
        design.levels, np.where(y < _LEAST * y.sum(axis=1, keepdims=True), 0, y), strict=True
    ):
        tried = (rounded(row, asked) for asked in keep)
        queries[name] = next(
            (each for each in tried if plan.undetermined(each) is None), rounded(row, keep[-1])
        )
    return LevelShares(levels, queries)


def with_found_shares(spec: Spec) -> tuple[Spec, FoundShares | None]:
    """A spec with shares chosen for its tables, and how they serve them; itself, and None, where shares are written.

    The same spec gives the same shares: the search is bounded by work, and not by the clock.

    Raises:
        SpecError: the spine is too large, or the budget is to be found and none meets the targets.

    Privacy:
        Reads no record. Shares of levels, and of queries within each, are exact numbers that add up to 1, which
        :class:`~tabulae.products.areas.spine_plan.SpinePlan` checks.
    """
    geography = geography_of(spec)
    if not geography.open_shares:
        return spec, None
    path, numbers = "geography.shares", Sensitivities.numbers(geography.plan())
    if numbers > MOST_NUMBERS:
        told = (
            f'cannot be "auto" for a spine so large: the matrices of its units have {numbers:,} entries, and at most '
            f"{MOST_NUMBERS:,} are searched. Write shares: `tabulae plan` finds some for a part of the file"
        )
        raise SpecError([Problem(path, told)], str(spec.path or "spec"))
    try:
        found = ShareChoice(geography, spec.open_budget).found()
    except InvalidArgument as error:
        raise SpecError([Problem("privacy.budget", str(error))], str(spec.path or "spec")) from None
    return spec.with_budget(found.loss).with_shares(found.shares), found
