"""(epsilon, delta) of plans: the published figures, and never below the truth or above the definition's own."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adaptive.plans import either, level, plan, touching
from tests.domain.toy_maps import REAL, needs_maps, read_map

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, DiscreteGaussian, DiscreteLaplace, NoiseComposition, PureDP, Use
from tabulae.products.groups import levels as accounting
from tabulae.products.groups.levels import epsilon_of

DELTA = "1e-10"
MARGINS = (6, 6, 11, 11, 50, 50, 50)


def published(definition, staged, whole):
    """The seven levels of Tables 1 and 4, at the exact budgets of their formulas."""
    levels = []
    for i, margin in enumerate(MARGINS):
        base = (
            Fraction(math.log(20)) / (margin + 1) if definition is PureDP else Fraction(192, 100) / margin**2
        )
        levels.append(level(f"type {i}", groups=touching(staged, whole), budget=definition(10 * base)))
    return plan(*levels)


@pytest.mark.parametrize(
    ("definition", "staged", "whole", "epsilon", "converted"),
    [
        (PureDP, 0, 9, 14.045, 15.3143),
        (PureDP, 9, 0, 12.741, 15.3143),
        (ZCDP, 9, 0, 11.666, 12.1629),
        (ZCDP, 0, 9, 11.666, 12.1629),
    ],
)
def test_the_published_levels(definition, staged, whole, epsilon, converted):
    found = published(definition, staged, whole)
    assert epsilon_of(found, DELTA)[0] == pytest.approx(epsilon, abs=6e-4)
    assert found.loss.epsilon(DELTA) == pytest.approx(converted, abs=5e-5)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.sampled_from([PureDP, ZCDP]),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from(["1/2", "1", "3"])),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from(["add-remove", "replace"]),
    st.integers(1, 2),
)
def test_it_is_never_above_the_conversion(definition, levels, neighbours, rows):
    found = plan(
        *(
            level(
                str(i), groups=touching(a, b), budget=definition(c), neighbours=neighbours, rows_per_unit=rows
            )
            for i, (a, b, c) in enumerate(levels)
        )
    )
    epsilon, how = epsilon_of(found, "1e-6")
    assert 0 < epsilon <= found.loss.epsilon("1e-6")
    assert how


@pytest.mark.parametrize("definition", [PureDP, ZCDP])
def test_it_is_no_less_than_any_record_meets(definition):
    """A level where a record's three groups may be of either kind, beside one of two-stage groups."""
    one, two = (
        level("a", groups=either(3), budget=definition(2)),
        level("b", groups=touching(2), budget=definition(1)),
    )
    found = epsilon_of(plan(one, two), "1e-6")[0]
    met = []
    for whole in range(4):
        uses = [Use(law, count=whole) for law in (one.whole,) if whole]
        uses += [Use(law, count=3 - whole) for law in (one.first, one.second) if whole < 3]
        uses += [Use(law, count=2) for law in (two.first, two.second)]
        met.append(NoiseComposition(tuple(uses)).epsilon("1e-6"))
    assert found >= max(met) * (1 - 1e-9)
    assert found == pytest.approx(max(met), rel=1e-6)


@pytest.mark.parametrize("definition", [PureDP, ZCDP])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_less_than_the_truth_of_one_group(definition, neighbours):
    """The hockey-stick divergence summed over outputs: one count; under replace, two records in two regions."""
    areas = level(of_leaf=(0, 1), groups=touching(0, 1), budget=definition(2), neighbours=neighbours)
    epsilon = epsilon_of(plan(areas), "1e-4")[0]
    k = np.arange(-60, 61)
    scale = float(areas.whole.parameter)
    weight = np.exp(-np.abs(k) / scale if definition is PureDP else -k * k / (2 * scale))
    p, q = weight[1:] / weight.sum(), weight[:-1] / weight.sum()
    if neighbours == "replace":
        p, q = np.outer(p, p), np.outer(q, q)
    assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= 1e-4
    assert np.maximum(p - math.exp(epsilon * (1 - 1e-3)) * q, 0).sum() >= 0.999e-4


def test_leaves_that_share_no_region_type_are_alternatives():
    """Two countries in one plan cost what the dearer costs; a leaf that both cover costs both."""
    apart = level("one", (0, -1), budget=ZCDP(1)), level("two", (-1, 0), budget=ZCDP(2))
    together = level("one", (0, 0), budget=ZCDP(1)), level("two", (-1, 0), budget=ZCDP(2))
    alone = epsilon_of(plan(apart[1]), DELTA)[0]
    assert epsilon_of(plan(*apart), DELTA)[0] == pytest.approx(alone, rel=1e-9)
    assert epsilon_of(plan(*together), DELTA)[0] > alone


def test_replacing_between_leaves_meets_the_levels_of_both():
    levels = [
        level(n, o, budget=ZCDP(b), neighbours="replace")
        for n, o, b in (("a", (0, -1), 1), ("b", (-1, 0), 2))
    ]
    pairs = list(product(levels, repeat=2))
    met = []
    for pair in pairs:
        uses = tuple(Use(law, count=3) for one in pair for law in (one.first, one.second))
        met.append(NoiseComposition(uses).epsilon(DELTA))
    assert epsilon_of(plan(*levels), DELTA)[0] == pytest.approx(max(met), rel=1e-6)


def test_levels_of_equal_laws_are_merged():
    levels = [level(str(i), groups=either(4)) for i in range(6)]
    cases = accounting._cases(plan(*levels))
    assert len(cases) == 25, "of 24 groups any number may be total-only, not 5^6 ways"
    assert all(sum(case.values()) in range(24, 49) for case in cases)


def test_more_stability_than_proven_makes_more_noise_not_more_draws():
    wide = level(stability=9)
    (case,) = accounting._cases(plan(wide))
    assert case == {wide.first: 3, wide.second: 3}
    assert epsilon_of(plan(wide), DELTA)[0] < epsilon_of(plan(level()), DELTA)[0]


@pytest.mark.parametrize("definition", [PureDP, ZCDP])
def test_what_is_not_composed_is_converted(definition):
    rows = plan(level(budget=definition(1), rows_per_unit=2))
    assert epsilon_of(rows, DELTA)[0] == rows.loss.epsilon(DELTA)
    nobody = plan(level(groups=touching(0), budget=definition(1)))
    assert epsilon_of(nobody, DELTA)[0] == nobody.loss.epsilon(DELTA)
    if definition is ZCDP:
        many = plan(*(level(str(i), groups=either(6), budget=ZCDP(i + 1)) for i in range(4)))
        assert epsilon_of(many, DELTA)[0] == many.loss.epsilon(DELTA)
        wide = plan(level(budget=ZCDP("1e-15")))
        assert epsilon_of(wide, DELTA)[0] == wide.loss.epsilon(DELTA)


def test_delta_is_checked():
    with pytest.raises(InvalidArgument, match="delta"):
        epsilon_of(plan(level()), 0)


def test_the_laws_are_those_of_the_definition():
    assert isinstance(level(budget=PureDP(1)).whole, DiscreteLaplace)
    assert isinstance(level(budget=ZCDP(1)).whole, DiscreteGaussian)


def test_a_leaf_that_meets_no_more_than_another_is_no_case():
    """Two countries with the same levels, one of which has one level less."""
    groups = either(2)
    levels = [level(str(i), cover, groups=groups) for i, cover in enumerate([(0, -1), (0, -1), (-1, 0)])]
    assert len(accounting._exposures(plan(*levels))) == 1
    assert len(accounting._cases(plan(*levels))) == len(accounting._cases(plan(*levels[:2]))) == 5


@needs_maps
@pytest.mark.parametrize("region", ["nation", "county"])
def test_one_level_of_the_real_maps(region):
    """In the nation any of a record's nine detailed groups may be total-only; in counties none is."""
    area = level(groups=read_map(REAL, 8).at("2", region), budget=ZCDP("2.134"))
    draws = accounting._Draws.of(area)
    assert (draws.groups, draws.whole, draws.staged) == (9, 9 if region == "nation" else 0, 9)
    assert epsilon_of(plan(area), DELTA)[0] < plan(area).loss.epsilon(DELTA)
