"""What an adaptive plan will do to groups of each size, from public laws alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from os import PathLike
from statistics import NormalDist
from typing import Literal

import numpy as np
import pyarrow as pa

from ...domain import group_stability
from ...errors import InvalidArgument, Unsupported
from ...privacy import (
    ZCDP,
    Exact,
    NoiseLaw,
    PrivacyLoss,
    PureDP,
    budget_for_margin,
    check_neighbours,
    probability,
    round_digits,
)
from ...release.write import LEVEL
from ...spec import Spec, read_spec
from ...spec.promise import POSTERIOR
from ..product import ResourceEstimate, errors_table, nothing_to_save, promise_fact, widest_margins
from ..smallest import LevelNeed, Smallest, TargetRow, with_amount
from .levels import AdaptivePlan, PopulationLevel, epsilon_of
from .spec import Detailed, LevelRule
from .store import most_bytes

_DECADES = 8
_POINTS = 400  # sizes that stand for a decade: log-uniform
_NEGLIGIBLE = Fraction(1, 10**17)


@dataclass(frozen=True)
class SizeRow:
    """What happens to groups of one decade of size.

    Args:
        level: its name.
        low, high: sizes from ``low`` to ``high``.
        groups: how many of the sizes given lie there; 0 where none were given.
        shares: by rung from the total up, the expected share of two-stage groups that get this table.
        published: the chance that a total, of a two-stage group that stays on rung 0, is above the suppression
            threshold; None where there is none, or where no group stays.
        total_only_published: the same for a group that is total only.
    """

    level: str
    low: int
    high: int
    groups: int
    shares: tuple[float, ...]
    published: float | None
    total_only_published: float | None


def expected_rungs(level: PopulationLevel, sizes: np.ndarray) -> np.ndarray:
    """The chance that a two-stage group of true size n gets each table: P(t_r <= n + e < t_{r+1}).

    Args:
        level: its thresholds t and the law of e; where public counts choose, e is 0 and n the public count.
        sizes: shape (n,), integers: true or supposed sizes.

    Returns:
        Shape (n, rungs + 1): from the total up; each row sums to 1.

    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import CodeFamily, Group, GroupMap
    >>> from tabulae.domain.groups import Ladder
    >>> from tabulae.domain.groups import Regions
    >>> ladder = Ladder.of({"sex": 2}, [("sex", {"sex": (["F", "M"], [0, 1])})])
    >>> groups = GroupMap((CodeFamily("f", ("x",)),), (Group("a", "1", "f", "any"),), [("a", "x")]).at("1", "nation")
    >>> level = PopulationLevel(Regions.nation(1), "1", groups, ladder, (20,), ZCDP(1), Fraction(1, 10))
    >>> expected_rungs(level, np.array([10, 20, 30])).round(3)
    array([[1.   , 0.   ],
           [0.411, 0.589],
           [0.   , 1.   ]])
    """
    sizes = np.asarray(sizes, np.int64)
    reached = [
        np.ones(sizes.size),
        *(
            (sizes >= t).astype(float) if level.first is None else reach(level.first, t - sizes)
            for t in level.thresholds
        ),
        np.zeros(sizes.size),
    ]
    return -np.diff(np.stack(reached, axis=1), axis=1)


def rehearse(
    level: PopulationLevel,
    sizes: np.ndarray | None = None,
    *,
    suppress: tuple[int, int] | None = None,
) -> list[SizeRow]:
    """What the level will do to groups of each decade of size: 0, 1 to 9, 10 to 99, and so on.

    Args:
        level: the level.
        sizes: true sizes of a made-up population's groups; without them, sizes are spread log-uniformly over each of
            eight decades. Sizes of a confidential population do not belong here: the answer would leak them.
        suppress: a total is dropped where its count is at most the first (two-stage) or second (total only).

    Returns:
        One row a decade that has any size.

    Raises:
        InvalidArgument: negative sizes.
    """
    given = sizes is not None
    sizes = _log_uniform() if sizes is None else np.asarray(sizes, np.int64)
    if sizes.size and sizes.min() < 0:
        raise InvalidArgument("a group has 0 or more people")
    value, count = np.unique(sizes, return_counts=True)
    rungs = expected_rungs(level, value)
    laws = () if suppress is None else zip((level.second, level.whole), suppress, strict=True)
    kept = [reach(law, threshold + 1 - value) for law, threshold in laws]
    decade = np.where(value == 0, 0, 1 + np.floor(np.log10(np.maximum(value, 1) + 0.5)).astype(int))
    rows = []
    for d in np.unique(decade):
        inside = decade == d
        weight = count[inside] / count[inside].sum()
        stays = weight @ rungs[inside, 0]
        published, whole = (k[inside] for k in kept) if kept else (None, None)
        row = SizeRow(
            level.name,
            0 if d == 0 else 10 ** int(d - 1),
            0 if d == 0 else 10 ** int(d) - 1,
            int(count[inside].sum()) if given else 0,
            tuple(float(share) for share in weight @ rungs[inside]),
            None
            if published is None or stays <= 0
            else float((weight * rungs[inside, 0]) @ published / stays),
            None if whole is None else float(weight @ whole),
        )
        rows.append(row)
    return rows


def reach(law: NoiseLaw, least: np.ndarray) -> np.ndarray:
    """P(e >= least) for noise e, for many integers at once.

    From tails of the law, which are within 10^-12 of the truth.
    """
    distinct, place = np.unique(np.abs(2 * least - 1) // 2, return_inverse=True)
    half = np.zeros(
        distinct.size
    )  # P(e >= m) is half of P(|e| > m - 1), or where m <= 0 one less half of P(|e| > -m)
    near = distinct <= law.margin(1 - _NEGLIGIBLE)
    half[near] = [law.tail(int(k)) / 2 for k in distinct[near]]
    chance = half[place.ravel()]
    return np.where(least > 0, chance, 1 - chance)


def _log_uniform() -> np.ndarray:
    return np.floor(10 ** ((np.arange(_DECADES * _POINTS) + 0.5) / _POINTS)).astype(np.int64)


_DIGITS = 8
_PAPER_LEVEL, _PAPER_HALF_SQUARE = Fraction(95, 100), Fraction(192, 100)


def level_budget(
    margin: int,
    confidence: Exact,
    stage_one: Exact | None,
    stability: int,
    definition: Literal["pure", "zcdp"],
    formula: Literal["exact", "paper"] = "exact",
    *,
    neighbours: str = "add-remove",
    rows_per_unit: int = 1,
) -> PureDP | ZCDP:
    """The least budget of a level at which one count of the second stage has this margin of error.

    With s the stability, m = 1 - ``stage_one``, k the rows of a unit, and b the loss of a single count whose noise
    misses the margin with probability at most 1 - ``confidence``, the budget is

        pure DP   s k b / m            zCDP   s k^2 b / m

    and twice as much under "replace". "exact" takes the least b, found with a proven bound on the tail; "paper" takes
    b = ln(1/(1 - confidence)) / (margin + 1), or z^2 / (2 margin^2) with z the normal quantile (1.92 / margin^2 at
    0.95, as printed), which are not exact: at 0.95 the first misses more often than it says, the second less.

    Args:
        margin: an integer, 0 or more; 1 or more for the paper's formula under zCDP.
        confidence: of draws of the noise, at least this share lies within the margin.
        stage_one: share of the budget that chooses tables; None where public counts choose them.
        stability: the most groups of the level that one record can belong to.
        definition, formula: see above.
        neighbours, rows_per_unit: as in :class:`~tabulae.products.groups.levels.PopulationLevel`.

    Returns:
        The budget, rounded up to 8 significant digits, so that it can be written down as it is.

    Raises:
        InvalidArgument: an argument outside its range.

    Reference: Haney et al., equations 37 and 38 and appendix F.1, whose factor 1/gamma must be 1/(1 - gamma).

    Privacy:
        None is spent. A level of this budget has the noise that the margin was computed for, or a little less.

    >>> [float(level_budget(6, "0.95", "1/10", 9, "zcdp", formula).amount) for formula in ("paper", "exact")]
    [0.53333334, 0.4511941]
    """
    if definition not in ("pure", "zcdp") or formula not in ("exact", "paper"):
        raise InvalidArgument('definition is "pure" or "zcdp", and formula is "exact" or "paper"')
    if check_neighbours(neighbours) not in ("add-remove", "replace"):
        raise InvalidArgument('groups are tabulated under "add-remove" or "replace"')
    if stability < 1 or rows_per_unit < 1:
        raise InvalidArgument(
            f"stability is {stability} and rows_per_unit {rows_per_unit}; both must be 1 or more"
        )
    share = 1 if stage_one is None else 1 - probability(stage_one, "stage_one")
    if formula == "exact":
        one = budget_for_margin(margin, "laplace" if definition == "pure" else "gaussian", confidence).amount
    else:
        one = _printed(margin, probability(confidence, "confidence"), definition)
    units = 2 if neighbours == "replace" else 1
    rows = rows_per_unit if definition == "pure" else rows_per_unit**2
    amount = round_digits(units * stability * rows * one / share, _DIGITS, up=True)
    return PureDP(amount) if definition == "pure" else ZCDP(amount)


def _printed(margin: int, confidence: Fraction, definition: str) -> Fraction:
    """Equations 37 and 38."""
    least = 0 if definition == "pure" else 1
    if isinstance(margin, bool) or not isinstance(margin, int) or margin < least:
        raise InvalidArgument(f"margin is {margin!r}; this formula needs an integer, {least} or more")
    if definition == "pure":
        return Fraction(-math.log(1 - confidence)) / (margin + 1)
    if confidence == _PAPER_LEVEL:
        return _PAPER_HALF_SQUARE / margin**2
    return Fraction(NormalDist().inv_cdf(float((1 + confidence) / 2)) ** 2 / 2) / margin**2


TOTAL_ONLY_TABLE = "total only"
"""What the groups of a level that get one count at the full budget have instead of a table."""


@dataclass(frozen=True)
class GroupTableError:
    """Error of the counts of one table of one level, as drawn: ``margin`` at 95 %, both in people.

    ``target`` is what the spec allows the counts of stage two, at ``confidence``; None for what it says nothing of.
    """

    level: str
    table: str
    cells: int
    rmse: float
    margin: int
    target: int | None = None
    confidence: float | None = None
    met: bool | None = None


_PROGRAM, _HELD = 350 * 10**6, 250  # bytes: libraries, and of each place of the largest areas
_MOST_HELD = 10**6  # places
_PAGES, _PLACE, _PLACE_PAGE, _ON_PAGES = 300_000, 100, 600, 2_500  # bytes; places that the report has
_DRAWN = 400  # bytes of a count and its draws
_BASE, _RECORDS, _PLACES = 1.8, 1.2, 2.3  # seconds, by ``benchmarks/costs.py`` and ``benchmarks/detailed.py``


@dataclass(frozen=True, eq=False)
class DetailedPlan:
    """What a release of groups will count, what that costs, and how wrong its counts will be; made without data.

    Attributes:
        spec: the spec, its loss that of the levels with the budgets that were found.
        adaptive: the levels with their budgets.
        found: the positions of the levels whose budget was found from their target.
        level: of the intervals and of the margins.
    """

    spec: Spec
    adaptive: AdaptivePlan
    found: frozenset[int] = field(default_factory=frozenset)
    level: float = LEVEL

    @property
    def chosen_by_counts(self) -> bool:
        """Whether public counts choose the tables, so that there is no first stage."""
        return detailed_of(self.spec).counts is not None

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of each level, in the order of the spec."""
        return tuple(level.budget for level in self.adaptive.levels)

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the release: the largest sum of the budgets of levels that count one record."""
        return self.adaptive.loss

    @cached_property
    def table_errors(self) -> tuple[GroupTableError, ...]:
        """One row for each level and table: the total, the tables of the ladder, groups that are total only."""
        rows = zip(detailed_of(self.spec).levels, self.adaptive.levels, strict=True)
        return tuple(row for rule, level in rows for row in _errors_of(rule, level, self.level))

    @property
    def errors(self) -> pa.Table:
        """Expected error by level and table: ``table, level, rmse, margin, bound``, in counts.

        ``rmse`` and ``margin`` (95 %) are of each single count as drawn; published estimates join both stages where
        there are two, mostly with smaller errors.
        ``bound`` is null: no bound from below is known for a table that is chosen by noisy counts.
        """
        return errors_table((r.table, r.level, r.rmse, float(r.margin), None) for r in self.table_errors)

    @property
    def margins(self) -> dict[str, float]:
        """The widest margin of each table."""
        return widest_margins(self.errors)

    @cached_property
    def epsilon(self) -> tuple[float, str] | None:
        """The epsilon proven at the spec's delta, and how; None where the spec gives no delta.

        Of a concentrated loss it is the conversion by which ledger and series state what they add up, although the
        noise of one release by itself often keeps a smaller one: a promise has one epsilon wherever it is told.
        """
        if self.spec.delta is None:
            return None
        if isinstance(self.loss, ZCDP):
            return self.loss.epsilon(self.spec.delta), "from rho by its conversion"
        return epsilon_of(self.adaptive, self.spec.delta)

    @cached_property
    def smallest(self) -> Smallest | None:
        """The smallest budget, by level and in all, that meets the targets of all levels; None where none has one.

        Each level's own is the least of eight digits, and the loss in all grows with each: none smaller is enough.
        Levels without a target keep their budgets.
        """
        return _smallest(self)

    @cached_property
    def rehearsal(self) -> tuple[tuple[SizeRow, ...], ...]:
        """For each level, by size of the group: how often it gets each table, and how wrong that is. Needs no data."""
        return tuple(tuple(rehearse(level, suppress=self.left_out(level))) for level in self.adaptive.levels)

    @property
    def needs(self) -> ResourceEstimate:
        """What a run takes of a machine: noisy counts at most; memory does not grow with the groups."""
        drawn = 0
        if self.spec.method.estimate == POSTERIOR:
            drawn = _DRAWN * sum(level.places * level.ladder.classes for level in self.adaptive.levels)
        measurements = most_bytes(self.adaptive) + drawn
        places = sum(level.places for level in self.adaptive.levels)
        return ResourceEstimate(
            measurements,
            tables=_PAGES + _PLACE * places + _PLACE_PAGE * min(places, _ON_PAGES),
            memory=_PROGRAM + _HELD * min(places, _MOST_HELD),
            seconds=_BASE,
            seconds_of_million=_RECORDS + _PLACES * min(1.0, places / 10**6),
        )

    def left_out(self, level: PopulationLevel) -> tuple[int, int] | None:
        """The largest totals of a level that are left out, of two stages and of one count; None where none is."""
        suppress = detailed_of(self.spec).suppress
        if suppress is None or level.regions.name not in suppress.regions:
            return None
        return suppress.floor(level.second), suppress.floor(level.whole)

    def __repr__(self) -> str:
        return f"DetailedPlan({self.spec!r}, {len(self.adaptive.levels)} levels)"

    def _repr_html_(self) -> str:
        from ...notebook import CardRows, card

        facts = [
            ("release", self.spec.title),
            promise_fact(self.spec),
        ]
        levels = self.adaptive.levels
        budgets = ((a.name, a.regions.size, len(a.groups), str(a.budget.amount)) for a in levels)
        errors = ((r.level, r.table, r.cells, r.rmse, r.margin) for r in self.table_errors)
        headings = ("level", "table", "cells", "RMSE", f"{self.level:.0%} margin")
        return card(
            "Plan of groups",
            facts,
            CardRows(("level", "regions", "groups", "budget"), budgets, len(levels)),
            CardRows(headings, errors, len(self.table_errors)),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """There is nothing to save.

        Raises:
            Unsupported: always; the plan of groups follows from the spec.
        """
        raise nothing_to_save("detailed", path)


def plan_detailed(spec: Spec | str | PathLike[str]) -> DetailedPlan:
    """The plan of a spec that has ``[detailed]``, with a budget for every level that has a target instead.

    Arguments:
        spec: a spec, or the path of its TOML document.

    Raises:
        SpecError: the document has mistakes; all are listed.
        Unsupported: the spec publishes tables instead of groups.

    Reference: Haney et al., Table 4 (targets to budgets).

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    detailed = detailed_of(spec)
    found = {i: found_budget(detailed, rule) for i, rule in enumerate(detailed.levels) if rule.budget is None}
    adaptive = detailed.plan(found)
    return DetailedPlan(spec.with_budget(adaptive.loss), adaptive, frozenset(found))


def detailed_of(spec: Spec) -> Detailed:
    """The section of a spec.

    Raises:
        Unsupported: the spec publishes tables instead.
    """
    if spec.detailed is None:
        raise Unsupported("this spec publishes tables: it has no [detailed]")
    return spec.detailed


def found_budget(detailed: Detailed, rule: LevelRule) -> Fraction:
    """The smallest budget, of eight digits, with which the counts of stage two keep to the level's target."""
    target = rule.target
    assert target is not None
    assert target.margin is not None
    groups = detailed.groups.at(rule.group_level, rule.region)
    budget = level_budget(
        target.margin,
        Fraction(str(target.confidence)),
        None if detailed.counts is not None else detailed.stage_one,
        max(1, group_stability(groups).value),
        "pure" if detailed.pure else "zcdp",
        target.formula,
        neighbours=detailed.neighbours,
        rows_per_unit=detailed.rows_per_unit,
    )
    return budget.amount


def _smallest(plan: DetailedPlan) -> Smallest | None:
    """What the targets of levels need, in all and by level."""
    detailed = detailed_of(plan.spec)
    found = {i: found_budget(detailed, rule) for i, rule in enumerate(detailed.levels) if rule.target}
    if not found:
        return None
    every = {i: budget.amount for i, budget in enumerate(plan.budgets)} | found
    least = replace(detailed, levels=tuple(replace(rule, budget=None) for rule in detailed.levels)).plan(
        every
    )
    levels = tuple(
        LevelNeed(level.name, level.budget, with_amount(level.budget, found[i]) if i in found else None)
        for i, level in enumerate(plan.adaptive.levels)
    )
    rows = [
        _target_row(rule, level)
        for rule, level in zip(detailed.levels, plan.adaptive.levels, strict=True)
        if rule.target is not None
    ]
    return Smallest(least.loss, None if plan.spec.open_budget else plan.loss, tuple(rows), levels=levels)


def _target_row(rule: LevelRule, level: PopulationLevel) -> TargetRow:
    """The target of a level, with the margin of one count of its second stage."""
    target = rule.target
    assert target is not None
    assert target.margin is not None
    reached = level.second.margin(Fraction(str(target.confidence)))
    met = None if target.formula == "paper" else reached <= target.margin
    return TargetRow("", level.name, "margin", target.margin, target.confidence, reached, met)


def _errors_of(rule: LevelRule, level: PopulationLevel, at: float) -> Sequence[GroupTableError]:
    """The rows of one level."""

    def row(table: str, cells: int, law: NoiseLaw, *, aimed: bool) -> GroupTableError:
        rmse, margin = sqrt(law.variance_of_law), law.margin(Fraction(str(at)))
        if not aimed or rule.target is None or rule.target.margin is None:
            return GroupTableError(level.name, table, cells, rmse, margin)
        reached = law.margin(Fraction(str(rule.target.confidence)))
        target = rule.target
        met = None if target.formula == "paper" else reached <= rule.target.margin
        return GroupTableError(level.name, table, cells, rmse, margin, target.margin, target.confidence, met)

    rows = [row(rung.name, rung.cells, level.second, aimed=True) for rung in level.ladder.rungs]
    if not level.groups.total_only.all():
        rows.insert(0, row("total", 1, level.second, aimed=True))
    else:
        rows = []
    if level.groups.total_only.any():
        rows.append(row(TOTAL_ONLY_TABLE, 1, level.whole, aimed=False))
    return rows
