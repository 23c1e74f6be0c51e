"""Plans of [geography]: what areas are measured with, how wrong their counts will be, and how far entities lie off.

Margins are known exactly after a pass over the spine; bounds on them, from what each area itself is asked, at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import sqrt
from os import PathLike

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from ...privacy import PrivacyLoss
from ...release.write import LEVEL
from ...spec import Spec, read_spec
from ...spec.areas import AreaTarget
from ..product import ResourceEstimate, errors_table, nothing_to_save, promise_fact, widest_margins
from ..smallest import Smallest
from .allocation import FoundShares, with_found_shares
from .needs import DEVIATIONS, resources_of
from .passes.area_variances import margin_variance
from .passes.covariances import Covariances
from .smallest import found_budget, smallest_of_areas
from .spec.section import AreaTable, Geography, geography_of
from .spine.optimise import Entities
from .spine.shares import distinct_rows
from .spine_plan import SpinePlan, area_half_widths
from .targets import AreaErrors, AreaTableError


@dataclass(frozen=True)
class LevelRow:
    """One level of the spine as it is measured.

    ``shares`` are the distinct shares of the budget that its units have, 0 for those left out; ``noise`` the standard
    deviation of one answer of each query, by its name, in units with the level's own share.
    """

    level: str
    units: int
    measured: int
    share: Fraction
    noise: dict[str, float]


@dataclass(frozen=True)
class EntityDistance:
    """Off-spine entity distances of one type of entity: on the spine of the file, and on the one that is measured."""

    entity_type: str
    entities: int
    conventional_mean: float
    conventional_largest: int
    mean: float
    largest: int


@dataclass(frozen=True, eq=False)
class GeographyPlan:
    """What a release of areas will measure, what that costs, and how wrong its counts will be; made without data.

    Expected errors are those of ``gls``, whose variances are known exactly beforehand. ``topdown`` and ``bluedown``
    give whole numbers that are not negative, with errors that depend on the counts: mostly smaller ones, and biased.
    No error of ``sparse`` counts is known.

    ``found_shares`` says how well shares that were chosen for the tables serve them; None where shares are written. The
    ``spec`` has them as if they were written.
    """

    spec: Spec
    level: float = LEVEL
    found_shares: FoundShares | None = None

    @property
    def geography(self) -> Geography:
        return geography_of(self.spec)

    @property
    def spine_plan(self) -> SpinePlan:
        return self.geography.plan()

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the release: the budget, exactly."""
        return self.spec.loss

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of the release, measured all at once."""
        return (self.loss,)

    @cached_property
    def epsilon(self) -> float | None:
        """The epsilon proven at the spec's delta; None where the spec gives no delta."""
        return None if self.spec.delta is None else self.loss.epsilon(self.spec.delta)

    @cached_property
    def smallest(self) -> Smallest | None:
        """The smallest budget that meets all targets, and the shares that need least; None without a target."""
        return smallest_of_areas(self.geography, None if self.spec.open_budget else self.loss)

    @cached_property
    def covariances(self) -> Covariances:
        limits = self.geography.constraints
        return Covariances.of(self.spine_plan, () if limits is None else limits.exact)

    @cached_property
    def table_errors(self) -> tuple[AreaTableError, ...]:
        """Expected errors; none where counts are sparse, as they are not known."""
        if self.geography.sparse is not None:
            return ()
        return AreaErrors(self.geography, self.covariances, self.level).rows()

    @property
    def errors(self) -> pa.Table:
        """Expected error by table and kind of area: ``table, level, rmse, margin, bound``, in counts, of ``gls``.

        ``level`` is a level or a type of entity. ``rmse`` is over all counts of all its areas but exact ones,
        ``margin`` that of the widest interval at 95 %. ``bound`` is null.
        """
        return errors_table((r.table, r.area_type, r.rmse, r.margin, None) for r in self.table_errors)

    @property
    def margins(self) -> dict[str, float]:
        """The widest margin of each table."""
        return widest_margins(self.errors)

    @cached_property
    def levels(self) -> tuple[LevelRow, ...]:
        return tuple(self._levels())

    def _levels(self) -> Iterator[LevelRow]:
        plan = self.spine_plan
        shares = plan.spine.shares
        assert shares is not None
        for level, measured in zip(plan.spine.levels, shares.measured, strict=True):
            index = shares.index[plan.spine.levels.index(level)][measured]
            values, count = np.unique(index, return_counts=True)
            usual = shares.values[values[count.argmax()]] if values.size else Fraction(0)
            laws = [(query.name, plan.law(level, usual, i)) for i, query in enumerate(plan.queries)]
            noise = {name: sqrt(law.variance_of_law) for name, law in laws if law is not None}
            yield LevelRow(level, measured.size, int(measured.sum()), usual, noise)

    @cached_property
    def distances(self) -> tuple[EntityDistance, ...]:
        """For each type of entity the units that must be added and subtracted to get one: equations 20-23.

        Levels of the file whose units are split or drawn anew are off the spine, too.
        """
        geography, found = self.geography, []
        before, after = geography.conventional, geography.spine
        cut = [name for name in geography.levels if set(before.codes[name]) != set(after.codes[name])]
        areas = {name: (before.codes[name], before.units[name]) for name in cut}
        areas |= {name: geography.areas(name) for name in geography.entity_types}
        for name, of_leaf in areas.items():
            entities = Entities.of_leaves(*of_leaf)
            far, near = before.osed(entities), after.osed(entities)
            if far.size:
                numbers = float(far.mean()), int(far.max()), float(near.mean()), int(near.max())
                found.append(EntityDistance(name, far.size, *numbers))
        return tuple(found)

    @property
    def needs(self) -> ResourceEstimate:
        return resources_of(self.geography, in_parts=self.spec.source.engine == "spark")

    def __repr__(self) -> str:
        return f"GeographyPlan({self.spec!r}, {self.geography.leaf_codes.size} leaves)"

    def _repr_html_(self) -> str:
        from ...notebook import CardRows, card

        facts = [
            ("release", self.spec.title),
            promise_fact(self.spec),
            ("estimate", self.geography.estimate),
            ("leaves", int(self.geography.leaf_codes.size)),
            ("cells of each", int(self.geography.layout.cell.size)),
        ]
        levels = ((r.level, r.units, r.measured, str(r.share)) for r in self.levels)
        tables = [CardRows(("level", "units", "measured", "share"), levels, len(self.levels))]
        if "table_errors" in self.__dict__:
            errors = ((r.table, r.area_type, r.areas, r.rmse, r.margin) for r in self.table_errors)
            headings = ("table", "areas of", "areas", "RMSE", f"{self.level:.0%} margin")
            tables.append(CardRows(headings, errors, len(self.table_errors)))
        elif self.geography.sparse is not None:
            facts.append(("errors", "not known, and no intervals"))
        else:
            facts.append(("errors", "not computed yet: ask for .errors"))
        return card("Plan of areas", facts, *tables)

    def save(self, path: str | PathLike[str]) -> None:
        """There is nothing to save."""
        raise nothing_to_save("geography", path)


def plan_geography(spec: Spec | str | PathLike[str]) -> GeographyPlan:
    """The plan of a spec that has ``[geography]``; shares that are ``"auto"`` are chosen first.

    Raises:
        SpecError: the document has mistakes; all are listed.
        Unsupported: the spec has no geography.

    Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023).

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    geography_of(spec)
    spec, found = with_found_shares(spec)
    return GeographyPlan(
        spec.with_budget(found_budget(spec)) if spec.open_budget else spec, found_shares=found
    )


MOST_PEOPLE = 1 << 30
"""An error of as many people is not divided: with as many real ones, sums would leave what rounding takes."""


def largest_error(plan: SpinePlan) -> float:
    """A bound on how far the total of a unit that is divided lies from the truth, but for a negligible probability.

    With x the truth and x* the nearest point to an unbiased estimate x^ in the norm of H, within limits that x meets,
    ``|x* - x|_H <= |x^ - x|_H``, as projections do not expand, so that

        |1'(x* - x)| <= |x^ - x|_H sqrt(1'H^-1 1) <= (sqrt(K) + 8) sqrt(1'H^-1 1)       K cells, noise about normal

    The variance 1'H^-1 1 of a total is at most that of the unit's own measurements, and, where H holds what is below,
    that of all leaves' together; the largest of these bounds is taken.

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import CellLayout, Supports
    >>> spine = Spine.from_codes({"block": ["a", "b"]}, levels=["block"]).with_shares({"root": "1/2", "block": "1/2"})
    >>> layout = CellLayout.of(Domain({"age": 2}))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), Supports.of(np.ones((2, 1), bool)))
    >>> round(largest_error(plan), 2)
    26.63
    """
    totals = np.array([_total_variance(plan.precision(kind)) for kind in range(len(plan.classes[0]))])
    totals *= plan.layout.algebra.cells
    together = float(totals[plan.classes[1][plan.tree.leaf]].sum())
    cells = plan.dense_cells[plan.pattern[0]].size * plan.layout.algebra.cells
    return (sqrt(cells) + DEVIATIONS) * sqrt(max(together, float(totals.max())))


def _total_variance(precision: np.ndarray) -> float:
    """1'P^-1 1 a cell of the algebra, for P of shape (kinds, k, k); 0 of a unit that is not measured."""
    return float(np.linalg.inv(precision[0]).sum()) if precision.any() else 0.0


def quick_margins(geography: Geography, level: float = LEVEL) -> dict[str, float]:
    """For each table a bound on the half-width of its widest interval, over all its kinds of area; inf where unknown.

    An area is the union of the highest measured units that lie in it. Their own answers alone estimate its counts
    without bias, with the sum of the units' variances P^-1. Generalised least squares uses these answers and all
    others, and is the best of all linear unbiased estimates, so that its variances are no larger; exact counts make
    them smaller still. An area with a leaf that is in no measured unit of it has no such bound.

    Privacy:
        A function of the public spec.
    """
    worst, laws = _variances(geography), geography.plan().all_laws
    found = dict.fromkeys((table.name for table in geography.tables), 0.0)
    for (name, _), variance in worst.items():
        found[name] = max(found[name], variance)
    return {name: float(area_half_widths(each, laws, level)) for name, each in found.items()}


def margins_at_targets(geography: Geography, level: float = LEVEL) -> dict[str, float]:
    """About those margins at the budget that meets all targets of the tables, where it is still to be found.

    With the budget all variances change alike, nearly: until the bound of the target that asks most is what it allows.
    What other answers tell of an area is left out, as by :func:`quick_margins`, so that the budget would be too large.

    Privacy:
        A function of the public spec.
    """
    worst = _variances(geography)
    allowed = [
        (_allowed(target), worst[table.name, kind])
        for table in geography.tables
        for target in table.targets
        for kind in target.areas
    ]
    ratio = min((most / variance for most, variance in allowed if variance), default=np.inf)
    normal, found = float(ndtri((1 + level) / 2)), dict.fromkeys((name for name, _ in worst), 0.0)
    for (name, _), variance in worst.items():
        found[name] = max(found[name], normal * float(np.sqrt(variance * ratio)) if variance else 0.0)
    return found


def _allowed(target: AreaTarget) -> float:
    """The variance that a target allows under normal noise; of an RMSE its square."""
    if target.margin is None or target.confidence is None:
        return (target.rmse or 0.0) ** 2
    return (target.margin / float(ndtri((1 + target.confidence) / 2))) ** 2


def _variances(geography: Geography) -> dict[tuple[str, str], float]:
    """The largest bound on the variance of a count of each table in each kind of area."""
    plan = geography.plan()
    own = [_own_covariance(plan, kind) for kind in range(len(plan.classes[0]))]
    by_kind = {kind: _parts(geography, kind) for table in geography.tables for kind in table.areas}
    found: dict[tuple[str, str], float] = {}
    for table in geography.tables:
        variances = np.stack([_of_table(plan, table, each) for each in own])
        for kind in table.areas:
            parts, whole = by_kind[kind]
            found[table.name, kind] = float((parts @ variances).max(initial=0.0)) if whole else np.inf
    return found


def _own_covariance(plan: SpinePlan, kind: int) -> np.ndarray:
    """P^-1 of the own answers of nodes of a class over all dense cells; zero where they are asked nothing."""
    precision, cells = plan.precisions[kind], plan.dense_cells[plan.classes[0][kind][2]]
    found = np.zeros((len(precision), plan.layout.size, plan.layout.size))
    if precision.any():
        found[:, cells[:, None], cells] = np.linalg.inv(precision)
    return found


def _of_table(plan: SpinePlan, table: AreaTable, covariance: np.ndarray) -> np.ndarray:
    """The variances of the cells of a table, in one row."""
    return margin_variance(plan.layout, covariance, table.margin).ravel()


def _parts(geography: Geography, kind: str) -> tuple[np.ndarray, bool]:
    """Of how many units of each class areas are made: the distinct rows; and whether all leaves are in such units."""
    plan, tree = geography.plan(), geography.plan().tree
    codes, area = geography.areas(kind)
    low, high = np.full(tree.size, codes.size), np.full(tree.size, -1)
    np.minimum.at(low, tree.leaf, area)
    np.maximum.at(high, tree.leaf, area)
    for nodes in reversed(tree.depths[1:]):
        np.minimum.at(low, tree.parent[nodes], low[nodes])
        np.maximum.at(high, tree.parent[nodes], high[nodes])
    within = np.where(low == high, low, -1)  # the area that all leaves of a node are in
    held = (within >= 0) & plan.is_measured
    above = np.zeros(tree.size, bool)  # whether a node is in a unit that is taken already
    for nodes in tree.depths[1:]:
        parent = tree.parent[nodes]
        above[nodes] = above[parent] | held[parent]
    whole = bool((above | held)[tree.leaf][area >= 0].all())
    taken = np.flatnonzero(held & ~above)
    key = within[taken] * len(plan.classes[0]) + plan.classes[1][taken]
    pairs, number = np.unique(key, return_counts=True)
    parts = np.zeros((codes.size, len(plan.classes[0])), np.int32)
    parts[pairs // parts.shape[1], pairs % parts.shape[1]] = number
    return distinct_rows(parts)[0], whole
