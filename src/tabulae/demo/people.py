"""The built-in population: households with their members, and people in group quarters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .shares import (
    CHILD,
    CHILDREN,
    COUNTIES,
    COUNTY_AGES,
    COUNTY_HISPANIC,
    COUNTY_RACES,
    COUNTY_SHARES,
    ETHNICITIES,
    HOUSEHOLDER,
    HOUSEHOLDER_BANDS,
    HOUSEHOLDERS_OLD,
    HOUSEHOLDERS_YOUNG,
    IN_QUARTERS,
    MARRIED,
    MILITARY,
    NONRELATIVES,
    NONRELATIVES_YOUNG,
    NURSING,
    OLDEST,
    PARTNER,
    PARTNERED,
    QUARTERS,
    QUARTERS_AGES,
    QUARTERS_PLACES,
    QUARTERS_RACES,
    QUARTERS_SHARE,
    QUARTERS_WOMEN,
    RACE_HISPANIC,
    RACES,
    RELATIONSHIPS,
    RELATIVES,
    SEXES,
    SPOUSE,
    STUDENT,
)

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Chance:
    """Uniform draws on [0, 1) from raw PCG64 words, and the few discrete draws built on them."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.PCG64(seed)

    def uniform(self, size: int) -> Floats:
        return (self._words.random_raw(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def happens(self, chance: Floats) -> NDArray[np.bool_]:
        return self.uniform(chance.size) < chance

    def one_of(self, weights: Floats, size: int) -> Codes:
        """Draw ``size`` codes, code ``k`` with probability proportional to ``weights[k]``."""
        ladder = np.cumsum(weights / weights.sum())[:-1]
        return np.searchsorted(ladder, self.uniform(size), side="right").astype(np.int64)

    def one_of_each(self, weights: Floats, rows: Codes) -> Codes:
        """Draw one code for each element of ``rows``, by the weights in that row of a table."""
        ladder = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        draws = self.uniform(rows.size)
        codes = np.zeros(rows.size, dtype=np.int64)
        for rung in range(ladder.shape[1]):
            codes += ladder[:, rung][rows] <= draws
        return codes

    def between(self, low: Codes, high: Codes, *, peaked: bool = False) -> Codes:
        """Draw whole numbers low .. high inclusive, evenly or peaked in the middle."""
        draws = self.uniform(low.size)
        if peaked:
            draws = (draws + self.uniform(low.size)) / 2
        return low + (draws * (high - low + 1)).astype(np.int64)


@dataclass(frozen=True)
class _People:
    """Columns of codes, one entry a person."""

    county: Codes
    age: Codes
    sex: Codes
    race: Codes
    hispanic: NDArray[np.bool_]
    relationship: Codes
    quarters: Codes

    def take(self, order: Codes) -> _People:
        return _People(*(column[order] for column in vars(self).values()))

    def joined(self, other: _People) -> _People:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _People(*(np.concatenate(pair) for pair in pairs))


def population(people: int = 200_000, seed: int = 2020) -> pa.Table:
    """A synthetic population: one row a person, seven columns.

    Columns: ``county`` ("001" .. "023", 12), ``age`` (0 .. 99), ``sex`` (F, M), ``race`` ("1" .. "6"),
    ``ethnicity`` (2), ``relationship`` (7, the last one "group quarters") and ``quarters`` (household or
    one of five kinds of group quarters). The domain has 12 x 100 x 2 x 6 x 2 x 7 x 6 = 1,209,600 cells.

    Args:
        people: the number of rows, at least 0.
        seed: the same seed gives the same people, on every machine.

    Raises:
        InvalidArgument: if ``people`` or ``seed`` is negative.

    Example:
        >>> table = population(1000)
        >>> table.num_rows, table.column_names[:3]
        (1000, ['county', 'age', 'sex'])
        >>> table.equals(population(1000)), table.equals(population(1000, seed=7))
        (True, False)
    """
    if people < 0 or seed < 0:
        raise InvalidArgument("population(people, seed): both must be at least 0")
    chance = _Chance(seed)
    in_quarters = int(QUARTERS_SHARE * people)
    everyone = _households(chance, people - in_quarters).joined(_group_quarters(chance, in_quarters))
    shuffled = np.argsort(chance.uniform(people), kind="stable").astype(np.int64)
    return _as_table(everyone.take(shuffled))


def _householders(chance: _Chance, number: int) -> _People:
    county = chance.one_of(COUNTY_SHARES, number)
    older = COUNTY_AGES[:, None]
    band = chance.one_of_each((1 - older) * HOUSEHOLDERS_YOUNG + older * HOUSEHOLDERS_OLD, county)
    lows, highs = np.array([18, *HOUSEHOLDER_BANDS]), np.array([*(HOUSEHOLDER_BANDS - 1), 95])
    age = chance.between(lows[band], highs[band])
    # The oldest thin out with age: the younger of two draws.
    oldest = age >= HOUSEHOLDER_BANDS[-1]
    age[oldest] = np.minimum(age, chance.between(lows[band], highs[band]))[oldest]
    race = chance.one_of_each(COUNTY_RACES, county)
    hispanic = chance.happens(np.minimum(COUNTY_HISPANIC[county] * RACE_HISPANIC[race], 0.9))
    women = 0.46 + 0.22 * np.clip((age - 55) / 35.0, 0.0, 1.0)
    sex = (~chance.happens(women)).astype(np.int64)
    zeros = np.zeros(number, dtype=np.int64)
    return _People(county, age, sex, race, hispanic, zeros + HOUSEHOLDER, zeros)


def _households(chance: _Chance, people: int) -> _People:
    """Whole households, the last one cut short so that ``people`` persons come out."""
    heads = _householders(chance, people)  # always enough: a household holds at least its householder
    band = np.searchsorted(HOUSEHOLDER_BANDS, heads.age, side="right").astype(np.int64)
    draw = chance.uniform(heads.age.size)
    married = draw < MARRIED[band]
    partnered = ~married & (draw < MARRIED[band] + PARTNERED[band])
    children = chance.one_of_each(CHILDREN, band)
    alone = ~(married | partnered)
    # Two of three who live without a partner have no child at home.
    children[alone & chance.happens(np.full(alone.size, 0.66))] = 0
    relatives = chance.one_of(RELATIVES, alone.size)
    nonrelatives = np.where(
        alone & (heads.age < 30),
        chance.one_of(NONRELATIVES_YOUNG, alone.size),
        chance.one_of(NONRELATIVES, alone.size),
    )
    numbers = np.stack([np.ones_like(band), married, partnered, children, relatives, nonrelatives], axis=1)
    roles = np.tile(np.arange(numbers.shape[1]), band.size)
    role = np.repeat(roles, numbers.ravel())[:people]
    home = np.repeat(np.arange(band.size), numbers.sum(axis=1))[:people]
    return _members(chance, heads, role, home)


def _members(chance: _Chance, heads: _People, role: Codes, home: Codes) -> _People:
    """Ages, sexes and races of the members, given those of their householder."""
    of_head = heads.take(home)
    size = role.size
    sex = (~chance.happens(np.full(size, 0.492))).astype(np.int64)
    opposite = chance.happens(np.full(size, 0.975))
    sex = np.where(
        (role == SPOUSE) | (role == PARTNER), np.where(opposite, 1 - of_head.sex, of_head.sex), sex
    )
    sex = np.where(role == HOUSEHOLDER, of_head.sex, sex)
    # Families mostly share a race; children of two races are counted in the last group.
    other_race = chance.one_of_each(COUNTY_RACES, of_head.county)
    apart = chance.happens(np.array([0.0, 0.09, 0.13, 0.05, 0.06, 0.45])[role])
    race = np.where(apart, np.where(role == CHILD, len(RACES) - 1, other_race), of_head.race)
    changes = chance.happens(np.array([0.0, 0.06, 0.08, 0.04, 0.04, 0.12])[role])
    hispanic = of_head.hispanic ^ changes
    age = _member_ages(chance, role, of_head.age)
    zeros = np.zeros(size, dtype=np.int64)
    return _People(of_head.county, age, sex, race, hispanic, role, zeros)


def _member_ages(chance: _Chance, role: Codes, head: Codes) -> Codes:
    size = head.size
    fixed = np.zeros(size, dtype=np.int64)
    mate = np.maximum(head + chance.between(fixed - 9, fixed + 8, peaked=True), 18)
    # A parent is 17 to 45 years older than the child, and most often about 30.
    oldest_gap = np.minimum(head, 45)
    gap = chance.between(fixed + 17, oldest_gap, peaked=True)
    child = head - np.where(head < 40, chance.between(fixed + 17, oldest_gap), gap)
    elder = np.clip(head + chance.between(fixed + 18, fixed + 38), 50, 74) + chance.between(fixed, fixed + 20)
    younger = chance.between(fixed, np.maximum(head - 30, 12))
    relative = np.where(chance.happens(np.full(size, 0.35)), elder, younger)
    lodger = chance.between(fixed + 18, fixed + 48, peaked=True)
    ages = np.choose(role, [head, mate, mate, child, relative, lodger])
    return np.clip(ages, 0, OLDEST).astype(np.int64)


def _group_quarters(chance: _Chance, people: int) -> _People:
    kinds = QUARTERS_PLACES.shape[1]
    place = chance.one_of(QUARTERS_PLACES.ravel(), people)
    county, quarters = place // kinds, place % kinds + 1
    low = np.array([0, *(ages[0] for ages in QUARTERS_AGES.values())])[quarters]
    high = np.array([0, *(ages[1] for ages in QUARTERS_AGES.values())])[quarters]
    # Students and soldiers are young within their span, patients old.
    age = chance.between(low, high, peaked=True)
    evenly = chance.between(low, high)
    young = (quarters == STUDENT) | (quarters == MILITARY)
    age = np.where(
        young, np.minimum(age, evenly), np.where(quarters == NURSING, np.maximum(age, evenly), age)
    )
    sex = (~chance.happens(QUARTERS_WOMEN[quarters])).astype(np.int64)
    weights = (COUNTY_RACES[:, None, :] * QUARTERS_RACES[None, 1:, :]).reshape(-1, len(RACES))
    race = chance.one_of_each(weights, place)
    hispanic = chance.happens(np.minimum(COUNTY_HISPANIC[county] * RACE_HISPANIC[race], 0.9))
    relationship = np.full(people, IN_QUARTERS, dtype=np.int64)
    return _People(county, age.astype(np.int64), sex, race, hispanic, relationship, quarters)


def _as_table(everyone: _People) -> pa.Table:
    import pyarrow as pa

    def named(codes: Codes, labels: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(labels))

    ethnicity = np.where(everyone.hispanic, 0, 1).astype(np.int64)
    return pa.table(
        {
            "county": named(everyone.county, COUNTIES),
            "age": pa.array(everyone.age, pa.int16()),
            "sex": named(everyone.sex, SEXES),
            "race": named(everyone.race, RACES),
            "ethnicity": named(ethnicity, ETHNICITIES),
            "relationship": named(everyone.relationship, RELATIONSHIPS),
            "quarters": named(everyone.quarters, QUARTERS),
        }
    )
