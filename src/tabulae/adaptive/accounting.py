"""From a plan to an (epsilon, delta) statement, as tight as can be proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement, product
from math import prod

from ..domain.group_stability import group_stability
from ..domain.groups import GroupSelection
from ..errors import Unsupported
from ..privacy import (
    Exact,
    NoiseComposition,
    NoiseLaw,
    PureDP,
    Use,
)
from .level import PopulationLevel
from .plan import AdaptivePlan

_MOST_COMPOSITIONS = 400
_REMEMBERED = 64
_FEW = 8
# Points of the grid: the coarse one adds some 1e-4 of epsilon, and is ten times faster.
_FINE, _COARSE = 1 << 17, 1 << 12

Laws = tuple[NoiseLaw, NoiseLaw, NoiseLaw]


def epsilon_of(plan: AdaptivePlan, delta: Exact) -> tuple[float, str]:
    """The least epsilon that is proven to hold at delta, and how it was proven.

    A record shifts by one the total of each group that it belongs to, and one count of that group's second stage; so
    a record with t total-only groups and u others meets

        t draws from ``whole``, u from ``first`` and u from ``second``

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
    >>> from tabulae.domain.groups import Family, Group, GroupMap
    >>> from tabulae.domain.ladder import Ladder
    >>> from tabulae.domain.regions import Regions
    >>> race = Family("race", ("1010",))
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
        composed = max(NoiseComposition(_uses(case), cells).epsilon(delta) for case in cases)
    except Unsupported:
        return by_definition
    if composed >= converted:
        return by_definition
    noise = "discrete Laplace" if isinstance(plan.loss, PureDP) else "discrete Gaussian"
    tried = f" (worst of {len(cases)} cases)" if len(cases) > 1 else ""
    return composed, f"by composing the losses of {noise} noise numerically{tried}"


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
            yield tuple(zip(self.laws, (whole, staged, staged), strict=True))


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
