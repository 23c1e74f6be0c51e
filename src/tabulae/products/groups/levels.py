"""One population group level: a region type crossed with a level of groups, with a budget of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement, product
from math import prod

import numpy as np

from ...domain import GroupSelection, Ladder, Regions, Stability, group_stability
from ...errors import InvalidArgument, Unsupported
from ...privacy import (
    ZCDP,
    Exact,
    NoiseComposition,
    NoiseLaw,
    PureDP,
    Use,
    check_neighbours,
    law_for,
    law_type,
)
from .public_counts import NOT_TABULATED, ChosenTables

TOTAL_ONLY = -1
"""The rung of a group that gets one count at the full budget."""

TOTAL = 0
"""The rung of a group that is too small for any table: its second stage is its total."""

_MOST_TABLES = 100  # rungs are kept in 8 bits
_FAR = 2**62


@dataclass(frozen=True, eq=False)
class PopulationLevel:
    """What is tabulated of one region type and one level of groups, and at what cost.

    Each group is counted with a share ``stage_one`` of the budget. As many thresholds as this noisy count reaches, so
    high on the ladder is the table that is measured with the rest. Groups that are ``total_only`` get one count.
    Where public counts have ``chosen`` the tables, there is no first stage: ``stage_one`` is 0, and the groups that
    they list have one table each, measured with all of the budget.

    One unit's arrival or departure moves at most ``stability`` counts of a stage by one for each of its rows, so that
    with s that number, k the rows of a unit and m the share of a stage, each count has noise

        zCDP      discrete Gaussian of variance s k^2 / (2 m rho)
        pure DP   discrete Laplace of scale s k / (m epsilon)

    and under "replace" twice as much: one unit leaves and another arrives.

    Args:
        regions, group_level, groups: what is tabulated; ``groups`` are those of this level and region type.
        ladder: the tables, coarsest first.
        thresholds: one a table, not falling.
        budget: pure or zero-concentrated, for this level.
        stage_one: between 0 and 1; 0 where the tables are chosen.
        neighbours: "add-remove" or "replace".
        rows_per_unit: the most records of one unit.
        stability: at least the proven one, which is taken where it is None.
        chosen: the tables that public counts chose; None where stage one chooses.
        ladder_name: what tells the ladder from others of the same regions and groups; "" where there is one.

    Raises:
        InvalidArgument: arguments that do not fit each other, or a stability that is not proven to be a bound.

    Privacy:
        The level satisfies ``budget``: each of the two stages is a set of counts over subsets of the records, of which
        one record is in at most s (generalised parallel composition: Haney et al., Lemmas 9, 10 and 12), and the
        stages compose adaptively (Lemmas 1 and 2; Theorems 1 and 3). Where the tables are chosen, that choice is a
        constant: a function of public files. One set of counts is left, each over its own subset of the records, and
        one record is in one cell of the one table of each of at most s groups. So noise of variance s k^2 / (2 rho), or
        of scale s k / epsilon, keeps the whole budget (the same Lemmas, with m = 1).
    """

    regions: Regions
    group_level: str
    groups: GroupSelection
    ladder: Ladder
    thresholds: tuple[int, ...]
    budget: PureDP | ZCDP
    stage_one: Fraction
    neighbours: str = "add-remove"
    rows_per_unit: int = 1
    stability: int | None = None
    chosen: ChosenTables | None = None
    ladder_name: str = ""

    def __post_init__(self) -> None:
        check_neighbours(self.neighbours)
        if self.neighbours not in ("add-remove", "replace"):
            raise InvalidArgument('groups are tabulated under "add-remove" or "replace"')
        if not isinstance(self.budget, PureDP | ZCDP):
            raise InvalidArgument("the budget of a level is pure or zero-concentrated: PureDP or ZCDP")
        if self.chosen is not None and self.stage_one:
            raise InvalidArgument(
                f"stage_one is {self.stage_one}; it is 0 where public counts choose the tables"
            )
        if self.chosen is None and not 0 < self.stage_one < 1:
            raise InvalidArgument(f"stage_one is {self.stage_one}; it must be between 0 and 1, ends excluded")
        if len(self.thresholds) != len(self.ladder.rungs):
            raise InvalidArgument(
                f"{self.name}: {len(self.thresholds)} thresholds for {len(self.ladder.rungs)} tables; give one for each"
            )
        if len(self.thresholds) > _MOST_TABLES:
            raise InvalidArgument(
                f"{self.name}: a ladder has {_MOST_TABLES} tables at most, beside the total"
            )
        if any(abs(threshold) >= _FAR for threshold in self.thresholds):
            raise InvalidArgument(
                f"{self.name}: thresholds are counts, and must be below 2^62: {self.thresholds}"
            )
        if any(a > b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False)):
            raise InvalidArgument(f"{self.name}: thresholds must not fall: {self.thresholds}")
        if self.rows_per_unit < 1:
            raise InvalidArgument(f"rows_per_unit is {self.rows_per_unit}; it must be 1 or more")
        if self.stability is not None and self.stability < self.proven.value:
            raise InvalidArgument(
                f"{self.name}: stability {self.stability} is not a bound, since a record may belong to "
                f"{self.proven.value} of its groups. Leave it out, and the proven one is taken"
            )

    @property
    def name(self) -> str:
        """What messages and files call the level."""
        ladder = f", {self.ladder_name}" if self.ladder_name else ""
        return f"{self.regions.name}, level {self.group_level}{ladder}"

    @cached_property
    def proven(self) -> Stability:
        """The most groups of this level that one record can belong to, proven from the public map."""
        return group_stability(self.groups)

    @cached_property
    def groups_of_a_record(self) -> int:
        """The stability that the noise is sized for."""
        return max(1, self.proven.value if self.stability is None else self.stability)

    def law(self, share: Fraction) -> NoiseLaw:
        """The noise of one count that has this share of the budget."""
        units = 2 if self.neighbours == "replace" else 1
        rows = self.rows_per_unit ** law_type(self.budget).power
        return law_for(self.budget.scaled(share), None, Fraction(units * self.groups_of_a_record * rows))

    @cached_property
    def first(self) -> NoiseLaw | None:
        """The noise of stage one; None where there is no such stage."""
        return self.law(self.stage_one) if self.chosen is None else None

    @cached_property
    def second(self) -> NoiseLaw:
        """The noise of stage two."""
        return self.law(1 - self.stage_one)

    @cached_property
    def whole(self) -> NoiseLaw:
        """The noise of a group that gets one count at the full budget."""
        return self.law(Fraction(1))

    def choose(self, first: np.ndarray) -> np.ndarray:
        """The rung for each noisy count of stage one: how many thresholds it reaches. Public from public."""
        return np.searchsorted(np.asarray(self.thresholds, np.int64), first, side="right").astype(np.int8)

    @property
    def places(self) -> int:
        """How many groups are tabulated, each counted as often as it is in a region."""
        return self.regions.size * len(self.groups) if self.chosen is None else self.chosen.place.size

    def tables_of(self, first: int, regions: int, stage_one: np.ndarray) -> np.ndarray:
        """The rung of each group in some consecutive regions, int8, in C order: public from public.

        Args:
            first, regions: position of the first region, and how many there are.
            stage_one: shape (regions * groups,): the noisy counts that choose; not read where the tables are chosen.
        """
        whole = np.tile(self.groups.total_only, regions)
        if self.chosen is None:
            return np.where(whole, np.int8(TOTAL_ONLY), self.choose(stage_one))
        rung = self.chosen.rungs(first * len(self.groups), whole.size)
        return np.where(whole & (rung != NOT_TABULATED), np.int8(TOTAL_ONLY), rung)

    def interval_of(self, rung: int) -> tuple[int | None, int | None]:
        """The stage-one counts [low, high) that choose a rung; None where there is no end."""
        low = None if rung == 0 else self.thresholds[rung - 1]
        high = None if rung == len(self.thresholds) else self.thresholds[rung]
        return low, high


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """Levels over one public geography, under one promise.

    Args:
        levels: at least one; all with the same kind of budget, neighbours, rows per unit and number of leaves.
        unit: what one neighbour differs by.

    Raises:
        InvalidArgument: levels that do not belong together.

    Privacy:
        Satisfies ``loss``. A record lies in one leaf, and only the levels whose region type covers that leaf count it:
        its loss is the sum of their budgets (sequential composition), and the release's is the largest such sum over
        the leaves. So populations that no region type shares, such as two separate countries, compose in parallel.
        Under "replace" a unit leaves one leaf and another arrives in a second: each costs half of what its levels
        have, noise being sized for both, so that the largest sum bounds this, too.
    """

    levels: tuple[PopulationLevel, ...]
    unit: str = "person"

    def __post_init__(self) -> None:
        if not self.levels:
            raise InvalidArgument("an adaptive plan needs at least one level with a budget")
        for what, kinds in (
            ("kind of budget", {type(level.budget) for level in self.levels}),
            ("neighbours", {level.neighbours for level in self.levels}),
            ("rows per unit", {level.rows_per_unit for level in self.levels}),
            ("geography", {level.regions.of_leaf.size for level in self.levels}),
        ):
            if len(kinds) > 1:
                raise InvalidArgument(f"the levels of one plan have one {what}, not {len(kinds)}")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise InvalidArgument("a level is named twice")

    @property
    def neighbours(self) -> str:
        """The relation that the promise is under."""
        return self.levels[0].neighbours

    @cached_property
    def patterns(self) -> tuple[tuple[int, ...], ...]:
        """Which levels count a record, for each kind of leaf there is."""
        kind = np.zeros(self.levels[0].regions.of_leaf.size, np.int64)
        for regions in {id(level.regions): level.regions for level in self.levels}.values():
            _, kind = np.unique(2 * kind + regions.covers, return_inverse=True)
        _, example = np.unique(kind, return_index=True)
        return tuple(
            tuple(i for i, level in enumerate(self.levels) if level.regions.covers[leaf]) for leaf in example
        )

    @cached_property
    def loss(self) -> PureDP | ZCDP:
        """What the whole tabulation costs: see the class."""
        budgets = [level.budget.amount for level in self.levels]
        most = max(sum((budgets[i] for i in pattern), Fraction(0)) for pattern in self.patterns)
        if not most:
            raise InvalidArgument("no leaf of the geography lies in any region: nothing would be counted")
        return type(self.levels[0].budget)(most)

    def share(self, piece: GroupMeasurement) -> float:
        """Which share of all groups of all regions a piece is."""
        places = [len(level.groups) * level.regions.size for level in self.levels]
        return piece.regions * len(self.levels[piece.level].groups) / sum(places)


@dataclass(frozen=True, eq=False)
class GroupMeasurement:
    """Both stages for all groups of some consecutive regions of one level.

    Arrays have shape (regions * groups,): places in C order, region by region.

    Args:
        level: position in the plan.
        first: position of the first region.
        regions: how many regions.
        stage_one: noisy counts (int64) that chose the table; 0 where none was drawn.
        rung: the table that each group got (int8); TOTAL_ONLY, TOTAL or a position on the ladder; NOT_TABULATED for
            one of which nothing was drawn, whose counts are 0 here.
        totals: the count of stage two; where a table was measured, the sum of its cells.
        cells: rung -> (places, shape (m,) rising; noisy cells, int64, shape (m, cells)).
    """

    level: int
    first: int
    regions: int
    stage_one: np.ndarray
    rung: np.ndarray
    totals: np.ndarray
    cells: Mapping[int, tuple[np.ndarray, np.ndarray]] = field(repr=False)


@dataclass(frozen=True, eq=False)
class GroupMeasurements:
    """The stream of an adaptive tabulation: to be read once, level by level, in the plan's order.

    ``rehearsal`` marks what no ledger paid for or an insecure source drew: a release refuses it.
    """

    plan: AdaptivePlan
    rehearsal: bool
    release_id: str | None
    chunks: Iterator[GroupMeasurement] = field(repr=False)

    def share(self, piece: GroupMeasurement) -> float:
        """See :meth:`AdaptivePlan.share`."""
        return self.plan.share(piece)

    def __iter__(self) -> Iterator[GroupMeasurement]:
        return self.chunks


_MOST_COMPOSITIONS = 400
_REMEMBERED = 64
_FEW = 8
# Points of the grid: the coarse one adds some 1e-4 of epsilon, and is ten times faster.
_FINE, _COARSE = 1 << 17, 1 << 12

Laws = tuple[NoiseLaw, NoiseLaw | None, NoiseLaw]


def epsilon_of(plan: AdaptivePlan, delta: Exact) -> tuple[float, str]:
    """The least epsilon that is proven to hold at delta, and how it was proven.

    A record shifts by one the total of each group that it belongs to, and one count of that group's second stage; so
    a record with t total-only groups and u others meets

        t draws from ``whole``, u from ``first`` (where there is that stage) and u from ``second``

    whatever the tables turn out to be. With the map's proven maxima s (all groups), T (total-only) and B (others) of a
    level, t <= T, u <= B and t + u <= s; more draws never reveal less, so only u = min(B, s - t) counts. The losses of
    all levels that cover a leaf are composed numerically, and the largest epsilon over leaves and over t is taken.

    Args:
        plan: the levels.
        delta: strictly between 0 and 1.

    Returns:
        Epsilon, never above ``plan.loss.epsilon(delta)``, and words for a report.

    Raises:
        InvalidArgument: a delta outside (0, 1).

    Reference: Haney et al., Theorem 2 and Table 2; Kairouz, Oh and Viswanath 2015, Theorem 3.2.

    Privacy:
        An upper bound. Pure: one draw at scale 1/e shifted by one is randomised response, which dominates every e-DP
        mechanism, hence the two stages of a group together: t = T is the worst case. zCDP: no order is known between
        the two kinds of groups, so every t is tried. Adding and removing a record are alike, the noise being
        symmetric. Under "replace" two records count, of any two leaves: a group that both belong to has the same
        total and moves two counts of its second stage, no more than twice what one does. Several rows a unit, laws
        too wide to be tabulated and too many cases to try are left to the definition's own conversion.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import CodeFamily, Group, GroupMap
    >>> from tabulae.domain.groups import Ladder
    >>> from tabulae.domain.groups import Regions
    >>> race = CodeFamily("race", ("1010",))
    >>> groups = GroupMap((race,), (Group("a", "1", "race", "any"),), [("a", "1010")]).at("1", "nation")
    >>> plan = AdaptivePlan(
    ...     (PopulationLevel(Regions.nation(1), "1", groups, Ladder.of({}, []), (), ZCDP(1), Fraction(1, 10)),)
    ... )
    >>> round(epsilon_of(plan, "1e-10")[0], 2), round(plan.loss.epsilon("1e-10"), 2)
    (9.5, 10.03)
    """
    converted = plan.loss.epsilon(delta)
    by_definition = converted, f"from {plan.loss!r} by the definition's own conversion"
    if any(level.rows_per_unit > 1 for level in plan.levels):
        return by_definition
    cases = _cases(plan)
    if cases is None:
        return by_definition
    try:
        cells = _FINE if len(cases) <= _FEW else _COARSE
        composed = _composed(tuple(NoiseComposition(_uses(case), cells) for case in cases), delta)
    except Unsupported:
        return by_definition
    if composed >= converted:
        return by_definition
    noise = "discrete Laplace" if isinstance(plan.loss, PureDP) else "discrete Gaussian"
    tried = f" (worst of {len(cases)} cases)" if len(cases) > 1 else ""
    return composed, f"by composing the losses of {noise} noise numerically{tried}"


@lru_cache(maxsize=_REMEMBERED)  # pages, documents and the ledger all state it
def _composed(cases: tuple[NoiseComposition, ...], delta: Exact) -> float:
    """The largest epsilon of all cases: the worst of them."""
    return max(case.epsilon(delta) for case in cases)


@dataclass(frozen=True)
class _Draws:
    """Groups of one record whose noise has the same three laws: the most in all, total-only, and others."""

    level: PopulationLevel
    groups: int
    whole: int
    staged: int

    @classmethod
    def of(cls, level: PopulationLevel) -> _Draws:
        most = level.proven.value
        return cls(level, most, *(min(most, part) for part in _parts(level.groups)))

    def __add__(self, other: _Draws) -> _Draws:
        sizes = self.groups + other.groups, self.whole + other.whole, self.staged + other.staged
        return _Draws(self.level, *sizes)

    def within(self, other: _Draws) -> bool:
        """Whether whatever a record meets here, one could meet there."""
        return self.groups <= other.groups and self.whole <= other.whole and self.staged <= other.staged

    @property
    def laws(self) -> Laws:
        return self.level.whole, self.level.first, self.level.second

    def mixtures(self) -> Iterator[tuple[tuple[NoiseLaw, int], ...]]:
        """How often each law may be met, without what is surely less than another."""
        least = min(self.whole, max(0, self.groups - self.staged))
        if isinstance(self.level.budget, PureDP):
            least = self.whole
        for whole in range(least, self.whole + 1):
            staged = min(self.staged, self.groups - whole)
            counts = (whole, staged, staged)
            yield tuple((law, n) for law, n in zip(self.laws, counts, strict=True) if law is not None)


@lru_cache(maxsize=_REMEMBERED)
def _parts(selection: GroupSelection) -> tuple[int, int]:
    """The most total-only groups of one record, and the most others."""
    parts = [tuple(g for g in selection.groups if g.total_only == wanted) for wanted in (True, False)]
    if not all(parts):
        return (group_stability(selection).value, 0) if parts[0] else (0, group_stability(selection).value)
    whole, staged = (group_stability(replace(selection, groups=part)).value for part in parts)
    return whole, staged


def _cases(plan: AdaptivePlan) -> list[Counter[NoiseLaw]] | None:
    """Every way in which a unit may meet the noise; None if they are too many to try."""
    choices = [[list(draws.mixtures()) for draws in merged.values()] for merged in _exposures(plan)]
    if sum(prod(map(len, mixtures)) for mixtures in choices) > _MOST_COMPOSITIONS:
        return None
    found: dict[frozenset, Counter[NoiseLaw]] = {}
    for mixture in (chosen for mixtures in choices for chosen in product(*mixtures)):
        counts: Counter[NoiseLaw] = Counter()
        for law, count in (pair for uses in mixture for pair in uses):
            counts[law] += count
        case = +counts
        found[frozenset(case.items())] = case
    return [case for case in found.values() if case] or None


def _exposures(plan: AdaptivePlan) -> list[dict[Laws, _Draws]]:
    """For each kind of leaf (two of them under "replace") the draws by law, but those that another has as well."""
    by_level = [_Draws.of(level) for level in plan.levels]
    records = 2 if plan.neighbours == "replace" else 1
    kept: list[dict[Laws, _Draws]] = []
    for leaves in combinations_with_replacement(plan.patterns, records):
        merged: dict[Laws, _Draws] = {}
        for draws in (by_level[i] for leaf in leaves for i in leaf):
            merged[draws.laws] = merged[draws.laws] + draws if draws.laws in merged else draws
        if not any(_within(merged, other) for other in kept):
            kept = [other for other in kept if not _within(other, merged)] + [merged]
    return kept


def _within(some: dict[Laws, _Draws], other: dict[Laws, _Draws]) -> bool:
    return all(laws in other and draws.within(other[laws]) for laws, draws in some.items())


def _uses(case: Counter[NoiseLaw]) -> tuple[Use, ...]:
    return tuple(Use(law, count=count) for law, count in case.items())
