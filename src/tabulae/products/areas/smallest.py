"""The smallest budget of a plan of areas: at the shares that are written, and at those that serve the targets best."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from ...errors import Problem, SpecError
from ...estimation.budget import least_met, next_up
from ...privacy import ZCDP, DiscreteGaussian, NoiseLaw, PrivacyLoss, PureDP, round_digits
from ...spec import Spec
from ..smallest import BestShares, Smallest, TargetRow
from .passes.area_variances import MOST_NUMBERS, Sensitivities
from .spec.section import Geography, geography_of
from .spine_plan import SpinePlan, estimation_variance
from .targets import MOST_WORK, AreaAims, Design, ShareSearch, is_gaussian, rounded, shared, work_of

_DIGITS = 4
_ROUNDS = 3  # of a bound that grows with the factor of intervals, which grows with it
_FEWEST = Fraction(1, 10**12)  # a smaller budget is not looked for
_SURE = 1 + 1e-8  # of a variance: more than rounding of floats makes of it
_OF_LAPLACE = (
    "Other shares were not looked for: under Laplace noise variances go with the square of a share, and the problem "
    "is not convex."
)
_NONE = (
    "no budget meets these targets, tried in steps of 5 %: errors of areas stop falling, and half-widths rise, where "
    "noise is far below one count"
)
_TOO_LARGE = (
    "Other shares were not looked for: with so many areas, cells and targets that would take too long."
)


@dataclass(eq=False)
class Need:
    """The least budget of a spine at which every target is met under the noise drawn.

    Errors at one budget are found by a pass over the spine. They bound those at any other: with r the ratio of the
    variances of a law at the two budgets, variances of least squares lie between the least r and the largest r times
    what they were. So most budgets are judged by the laws alone, and a pass is made where that does not tell.
    """

    aims: AreaAims
    plan: SpinePlan
    _seen: dict[Fraction, np.ndarray] = field(default_factory=dict)
    _laws: dict[Fraction, tuple[NoiseLaw, ...]] = field(default_factory=dict)

    @property
    def own(self) -> Fraction:
        return self.plan.budget.amount

    @cached_property
    def _places(self) -> list[tuple[str, Fraction, int]]:
        shares = self.plan.spine.shares
        assert shares is not None
        kinds = np.unique(self.plan.classes[0][:, :2], axis=0).tolist()
        levels = self.plan.spine.levels
        held = [(levels[level], shares.values[share]) for level, share in kinds if level < len(levels)]
        places = [(*unit, i) for unit in held for i in range(len(self.plan.queries))]
        return [place for place in places if self.plan.law(*place) is not None]

    def _with(self, amount: Fraction) -> SpinePlan:
        return replace(self.plan, budget=_loss(self.plan, amount))

    def laws(self, amount: Fraction) -> tuple[NoiseLaw, ...]:
        """The laws of the noise with a budget of some amount, in the same order for all amounts."""
        if amount not in self._laws:
            plan = self._with(amount)
            laws = (plan.law(*place) for place in self._places)
            self._laws[amount] = tuple(law for law in laws if law is not None)
        return self._laws[amount]

    def at(self, amount: Fraction) -> np.ndarray:
        if amount not in self._seen:
            self._seen[amount] = self.aims.variances(self.aims.covariances(self._with(amount)))
        return self._seen[amount]

    def between(self, amount: Fraction) -> tuple[np.ndarray, np.ndarray]:
        """Two bounds on the variance of each aim, from the nearest budget at which they are known."""
        known = min(self._seen, key=lambda other: abs(log(other / amount)))
        before, now = ([estimation_variance(law) for law in self.laws(at)] for at in (known, amount))
        ratios = np.array(now) / before
        return self._seen[known] * ratios.min(), self._seen[known] * ratios.max()

    def possible(self, amount: Fraction) -> bool:
        """False where some variance is too large for its target by the normal law, which no half-width is below."""
        low = self._seen[self.own] * self._shrunk(amount)
        return all(v <= aim.most_variance() * _SURE for aim, v in zip(self.aims.aims, low, strict=True))

    def _shrunk(self, amount: Fraction) -> float:
        """The least ratio of variances to those at the plan's budget: it falls where the amount grows."""
        pairs = zip(self.laws(amount), self.laws(self.own), strict=True)
        return min(estimation_variance(law) / estimation_variance(own) for law, own in pairs)

    def met(self, amount: Fraction) -> bool:
        if amount not in self._seen:
            low, high = self.between(amount)
            if not self._all_met(amount, low / _SURE):
                return False
            if self._all_met(amount, high * _SURE):
                return True
        return self._all_met(amount, self.at(amount))

    def _all_met(self, amount: Fraction, variances: np.ndarray) -> bool:
        laws = self.laws(amount)
        return all(aim.met(float(v), laws) for aim, v in zip(self.aims.aims, variances, strict=True))

    @property
    def is_exact(self) -> bool:
        return not self.at(self.own).any()

    def least(self) -> Fraction | None:
        """The budget; None where none is enough: see :func:`least_met`. For targets not all about exact counts."""
        self.at(self.own)
        while (amount := least_met(self.possible, self.met)) is not None:
            if self._all_met(amount, self.at(amount)):  # a pass, now known, where the laws alone were asked
                break
        return amount


def smallest_of_areas(geography: Geography, written: PrivacyLoss | None) -> Smallest | None:
    """What the targets of a plan of areas need; None without a target.

    Arguments:
        written: the budget of the spec; None where it is to be found.
    """
    aims = AreaAims(geography)
    if not aims.aims:
        return None
    need = Need(aims, geography.plan())
    amount = None if need.is_exact else need.least()
    plan, laws, variances = need.plan, need.laws(need.own), need.at(need.own)
    rows = tuple(
        TargetRow(
            aim.table.name,
            aim.kind,
            "rmse" if aim.target.confidence is None else "margin",
            aim.allowed,
            aim.target.confidence,
            aim.reached(float(variance), laws),
            aim.met(float(variance), laws),
        )
        for aim, variance in zip(aims.aims, variances, strict=True)
    )
    told: dict[str, Any] = {"note": ""}
    if need.is_exact:
        told["note"] = "Every count that has a target is exact: any budget will do."
    elif amount is None:
        told["note"] = f"{_NONE[0].upper()}{_NONE[1:]}."
    elif not is_gaussian(geography):
        told["note"] = _OF_LAPLACE
    elif not _in_reach(plan, aims):
        told["note"] = _TOO_LARGE
    else:
        best = best_shares(aims, amount, variances > 0)
        told |= {"best": best, "lower": best.lower}
    loss = None if amount is None else _loss(plan, amount)
    return Smallest(loss, written, rows, **told)


def _in_reach(plan: SpinePlan, aims: AreaAims) -> bool:
    if plan.tree.size < 2:
        return False
    return Sensitivities.numbers(plan) <= MOST_NUMBERS and work_of(plan, aims) <= MOST_WORK


def _loss(plan: SpinePlan, amount: Fraction) -> PrivacyLoss:
    return ZCDP(amount) if isinstance(plan.budget, ZCDP) else PureDP(amount)


def best_shares(aims: AreaAims, need: Fraction, chosen: np.ndarray) -> BestShares:
    """The shares of levels and queries with which the targets cost least, and what none does without.

    Arguments:
        chosen: shape (aims,), boolean: the targets that are not about exact counts.

    Privacy:
        Reads no record. The shares add up to exactly 1, so that a plan with them costs its budget.
    """
    geography = aims.geography
    design = Design.of(geography)
    allowed = np.array([aim.most_variance() for aim in aims.aims])
    search = ShareSearch(design, aims, allowed, chosen)
    written = geography.shares
    start = np.array(
        [[float(written.levels[name] * part) for part in written.queries[name]] for name in design.levels]
    )
    asked = start > 0
    search.run(np.maximum(start, 1e-4 * start.sum(axis=1, keepdims=True)))
    assert search.best is not None
    levels, queries = _shares(design, search.best, asked)
    plan = replace(
        geography.plan(),
        spine=shared(geography, levels),
        query_shares=queries,
        budget=ZCDP(max(next_up(Fraction(search.cost)), _FEWEST)),
    )
    amount = Need(aims, plan).least()
    lower = ZCDP(_lower(search, design, aims))
    if amount is None or amount >= need:
        levels = {name: share for name, share in written.levels.items() if share}
        return BestShares(ZCDP(need), levels, dict(written.queries), lower)
    return BestShares(ZCDP(amount), levels, queries, lower)


def _shares(
    design: Design, y: np.ndarray, asked: np.ndarray
) -> tuple[dict[str, Fraction], dict[str, tuple[Fraction, ...]]]:
    """Exact shares: levels keep some, and queries that were asked, so that every level still determines all cells."""
    levels = rounded(y.sum(axis=1), np.ones(len(y), bool))
    queries = {name: rounded(row, own) for name, row, own in zip(design.levels, y, asked, strict=True)}
    return dict(zip(design.levels, levels, strict=True)), queries


def _lower(search: ShareSearch, design: Design, aims: AreaAims) -> Fraction:
    """A budget that no shares do with less than, under the noise that is drawn.

    With a budget b one of the n answers on a path has at least b / n of it, so that the smallest noise has a parameter
    of at most ``n / (unit b)``, and half-widths are no less than with it: see :func:`interval_factor`. And the noise of
    whole numbers of parameter s has a variance below s by a factor that grows with s: with a budget b no unit has s
    below ``1 / (unit b)``.
    """
    bound, answers = search.bound(search.allowed), len(design.levels) * len(aims.geography.queries)
    for _ in range(_ROUNDS):
        smallest = _noise(answers / (design.unit * max(bound, float(_FEWEST))))
        allowed = np.array([aim.most_variance(smallest) for aim in aims.aims])
        bound = max(bound, search.bound(allowed))
    law = _noise(1 / (design.unit * max(bound, float(_FEWEST))))
    return round_digits(Fraction(bound * law.variance_of_law / float(law.parameter)), _DIGITS)


def _noise(variance: float) -> DiscreteGaussian:
    return DiscreteGaussian(round_digits(Fraction(variance), 12))


def found_budget(spec: Spec) -> PrivacyLoss:
    """The least budget at which the shares of a spec meet its targets.

    Raises:
        SpecError: no budget does, or every count that has a target is exact.
    """
    geography = geography_of(spec)
    need = Need(AreaAims(geography), geography.plan())
    if need.is_exact:
        told = "cannot be found from targets: every count that has one is exact already. Write the budget"
    elif (amount := need.least()) is not None:
        return _loss(need.plan, amount)
    else:
        told = f"cannot be found: {_NONE}. Allow more, or ask it of larger areas"
    raise SpecError([Problem("privacy.budget", told)], str(spec.path or "spec"))
