"""Intervals of areas cover whatever the weights of the noise are, and never grow with the budget."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from tabulae.products.areas.spine_plan import area_half_widths, estimation_variance, interval_factor

FAR = 40

gaussian = st.fractions(Fraction(1, 50), 30, max_denominator=60).map(DiscreteGaussian)
laplace = st.fractions(Fraction(1, 20), 2, max_denominator=40).map(DiscreteLaplace)
weighted = st.one_of(
    st.lists(st.tuples(law, st.integers(1, 4)), min_size=1, max_size=4) for law in (gaussian, laplace)
)


def _masses(law: NoiseLaw, weight: int) -> np.ndarray:
    """Probabilities of a multiple of the noise, from -4 FAR to 4 FAR."""
    found = np.zeros(8 * FAR + 1)
    for x in range(FAR + 1):
        mass = (law.tail(x - 1) - law.tail(x)) / 2 if x else 1 - law.tail(0)
        found[4 * FAR + weight * x] = found[4 * FAR - weight * x] = mass
    return found


@settings(max_examples=80)
@given(weighted, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_sums_of_draws_with_any_weights_are_covered(noise: list[tuple[NoiseLaw, int]], level: float) -> None:
    """The error ``sum z X`` of independent draws, summed exactly."""
    laws = [law for law, _ in noise]
    variance = sum(z * z * estimation_variance(law) for law, z in noise)
    wide = float(area_half_widths(np.array([variance]), laws, level)[0])
    mass = reduce(np.convolve, (_masses(law, z) for law, z in noise))
    at = np.abs(np.arange(mass.size) - mass.size // 2)
    assert mass[at <= wide].sum() >= level - 1e-9


@given(weighted, st.floats(0, 1))
def test_characteristic_functions_lie_between_the_normal_one_and_that_of_one_draw(
    noise: list[tuple[NoiseLaw, int]], share: float
) -> None:
    deviation = sum(z * z * law.variance_of_law for law, z in noise) ** 0.5
    t = share * 2 * np.pi * min(law.variance_of_law**0.5 for law, _ in noise)
    found = float(np.prod([law.characteristic(z * t / deviation) for law, z in noise]))
    alone = max(float(law.characteristic(t / law.variance_of_law**0.5)) for law, _ in noise)
    assert np.exp(-t * t / 2) - 1e-12 <= found <= alone + 1e-12


@pytest.mark.parametrize(
    "level", [0.95, *(pytest.param(level, marks=pytest.mark.long) for level in (0.8, 0.999))]
)
@each("kind", [DiscreteGaussian, DiscreteLaplace])
def test_margins_never_grow_with_the_budget(kind: type[NoiseLaw], level: float) -> None:
    """Of one answer, and of sums of answers that have other shares; the weights of least squares do no worse."""
    for shares in ((1,), (1, 1), (1, 3), (1, 10), (1, 2, 30)):
        before = np.inf
        for step in range(30):
            laws = [kind(Fraction(400 * share) / Fraction(3, 2) ** step) for share in shares]
            variance = sum(estimation_variance(law) for law in laws)
            wide = float(area_half_widths(np.array([variance]), laws, level)[0])
            assert wide <= before * (1 + 1e-9), (shares, laws)
            before = wide


def test_factors_are_those_of_the_normal_law_where_noise_is_of_many_steps() -> None:
    for level in (0.9, 0.95, 0.99):
        fine = interval_factor(level, [DiscreteGaussian(10**6)])
        assert float(ndtri((1 + level) / 2)) <= fine <= float(ndtri((1 + level) / 2)) * 1.001


def test_a_weight_may_be_above_1() -> None:
    """What a rule of half a count would need is not so: tables of one attribute are precise, and cells are asked."""
    n, k = 10, 3
    size = n**k
    cells = np.array(list(product(range(n), repeat=k)))
    margins = np.vstack([(cells[:, a] == v).astype(float) for a in range(k) for v in range(n)])
    pairs = np.vstack(
        [
            ((cells[:, a] == v) & (cells[:, b] == w)).astype(float)
            for a, b in ((0, 1), (0, 2), (1, 2))
            for v in range(n)
            for w in range(n)
        ]
    )
    information = 1e4 * margins.T @ margins + 1e-4 * pairs.T @ pairs + np.eye(size)
    others = (cells > 0).all(axis=1).astype(float)
    weights = np.linalg.solve(information, others)  # of each cell's own answer, of variance 1
    assert np.abs(weights).max() > 1.2


@pytest.mark.parametrize("level", [0, 1, -1, 1.5])
def test_levels_lie_between_0_and_1(level: float) -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        interval_factor(level, [DiscreteLaplace(1)])


def test_an_interval_needs_laws() -> None:
    with pytest.raises(InvalidArgument, match="laws"):
        interval_factor(0.95, [])


def test_exact_counts_have_no_width() -> None:
    for law in (DiscreteGaussian(2), DiscreteLaplace(2)):
        assert area_half_widths(np.zeros(2), [law], 0.95).tolist() == [0, 0]
