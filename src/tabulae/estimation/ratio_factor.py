"""Half-widths of ``a - R b`` in its standard deviations, for all R of an interval at once.

Whatever its coefficients, noise of variance V stays within ``c sqrt V`` with a c of :func:`bounded_half_widths`. Where
no noise variable matters much, the normal limit gives a smaller c. It needs bounds on the coefficients z of
``a - R b``: with ``z = z_a - R z_b``, Minkowski's inequality bounds ``(sum z^4)^(1/4)`` by ``|u| (sum z_1^4)^(1/4) +
|v| (sum z_2^4)^(1/4)`` for each of the three ways to write it,

    z = z_a - R z_b = z_(a-b) + (1 - R) z_b = (1 - R) z_a + R z_(a-b),

and so it does for sixth powers, the largest coefficient and how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..domain import Table, table_difference
from ..privacy import NoiseLaw
from ..strategy import LeftOpen, Profile
from .bounded import bounded_half_widths
from .chernoff import laplace_bound
from .coverage import CONSERVATIVE, LIMIT
from .fieller import RatioSet, fieller, ratio_variance
from .least_squares import LeastSquares
from .minorant import gaussian_half_width, laplace_half_width
from .spread import Spread

_ROUNDS = 3
_NEAR = 1.01  # a uniform factor that is as small as the normal limit's is no wider than need be
_SLACK = 1 + 1e-9  # covers rounding in the coefficients, which are floats
_POWERS = (("power4", 4), ("power6", 6))


def uniform_factor(laws: Sequence[NoiseLaw], level: float) -> float:
    """A c with ``P(|S| <= c sd(S)) >= level`` for every linear S of the noise; infinite for laws nearly always 0."""
    return float(bounded_half_widths(np.ones(1), laws, level)[0])


@dataclass(frozen=True, eq=False)
class PairProfile:
    """Coefficients of two tables' answers and of their difference, (blocks, m) each, in units of the answers."""

    above: Profile
    below: Profile
    difference: Profile
    laws: tuple[NoiseLaw, ...]
    steps: np.ndarray

    @classmethod
    def of(cls, estimate: LeastSquares, above: Table, below: Table) -> PairProfile | None:
        """The profiles of two tables; None where only variances are known."""
        rest = table_difference(above, below)
        tables = (above, below) if rest is None else (above, below, rest)
        found = [_profile(estimate, table) for table in tables]
        profiles = [profile for profile in found if profile is not None]
        if len(profiles) < len(tables):
            return None
        strategy = estimate.measurement.strategy
        steps = np.array([2.0**-block.exponent for block in strategy.blocks])
        if rest is None:
            profiles.append(_nothing(len(steps), profiles[0].power2.shape[1]))
        one, other, both = profiles
        return cls(one, other, both, tuple(estimate.measurement.laws), steps)

    def spread(self, low: np.ndarray, high: np.ndarray, least: np.ndarray) -> Spread:
        """Bounds on how ``a - R b`` is made up, for every R from low to high, its variance at least ``least``, (m,)."""
        far = np.maximum(np.abs(low), np.abs(high))
        rest = np.maximum(np.abs(1 - low), np.abs(1 - high))
        one = np.ones_like(far)
        ways = (
            (one, self.above, far, self.below),
            (one, self.difference, rest, self.below),
            (rest, self.above, far, self.difference),
        )
        powers = {
            name: np.min([_joined(u, p, v, q, name, k) for u, p, v, q in ways], axis=0) for name, k in _POWERS
        }
        largest = np.min([u * p.largest + v * q.largest for u, p, v, q in ways], axis=0)
        count = np.min([p.count + q.count for _, p, _, q in ways], axis=0)
        variances = [law.variance_of_law * g * g for law, g in zip(self.laws, self.steps, strict=True)]
        # Variances of the noise in units of that of the answer; where that is 0 nothing needs a bound.
        part = np.divide(np.array(variances)[:, None], least, out=np.ones_like(largest), where=least > 0)
        return Spread(
            deviation=np.sqrt(least),
            kappa2=np.minimum((part**2 * powers["power4"]).sum(axis=0), 1.0),
            kappa3=np.minimum((part**3 * powers["power6"]).sum(axis=0), 1.0),
            share=np.minimum((part * largest**2).max(axis=0), 1.0),
            step=largest * self.steps[:, None],
            terms=count.sum(axis=0),
            laws=self.laws,
            exact=False,
        )


def ratio_set(
    estimates: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray, np.ndarray],
    profile: PairProfile | None,
    laws: Sequence[NoiseLaw],
    level: float,
) -> tuple[RatioSet, np.ndarray]:
    """Fieller's set with as small a factor as holds on all of it, and how each factor was found, (m,).

    The set under the uniform factor is an interval; the factor that holds on all of that interval gives a smaller one,
    and so on. What is left holds every R at which a test with the best factor known for that R does not refuse.

    Arguments:
        estimates: a and b, (m,).
        moments: Var a, Var b and their covariance, (m,).
        profile: how the noise of both is made up, if that is known.
        laws: of the noise.
        level: of the tests.
    """
    a, b = estimates
    factor = np.full(a.shape, uniform_factor(laws, level))
    found = fieller(a, b, *moments, factor)
    ways = np.full(a.shape, CONSERVATIVE, dtype="<U12")
    if profile is None or not found.bounded.any():
        return found, ways
    for _ in range(_ROUNDS):
        low, high = np.where(found.bounded, found.low, 0.0), np.where(found.bounded, found.high, 0.0)
        better = np.where(found.bounded, _factor(profile, low, high, moments, level), np.inf)
        improved = better < _NEAR * factor
        ways[improved] = LIMIT
        factor = np.minimum(factor, better)
        found = fieller(a, b, *moments, factor)
    return found, ways


def _factor(
    profile: PairProfile, low: np.ndarray, high: np.ndarray, moments: tuple[np.ndarray, ...], level: float
) -> np.ndarray:
    """A factor that holds for every R from low to high."""
    _, below, covariance = moments
    turn = np.divide(covariance, below, out=np.copy(low), where=below > 0)
    least = ratio_variance(np.clip(turn, low, high), *moments)
    spread = profile.spread(low, high, least)
    laplace = profile.laws[0].kind == "laplace"
    width = laplace_half_width(spread, level) if laplace else gaussian_half_width(spread, level)
    if laplace:
        width = np.fmin(width, laplace_bound(spread, level))
    return _SLACK * np.divide(width, spread.deviation, out=np.full(least.shape, np.inf), where=least > 0)


def _joined(u: np.ndarray, p: Profile, v: np.ndarray, q: Profile, name: str, power: int) -> np.ndarray:
    return (u * getattr(p, name) ** (1 / power) + v * getattr(q, name) ** (1 / power)) ** power


def _profile(estimate: LeastSquares, table: Table) -> Profile | None:
    """A table's coefficients, one column a row of the table and one row a block."""
    strategy = estimate.measurement.strategy
    left = LeftOpen.of(strategy, table)
    found = left.profile(estimate.information)
    blocks, rows = len(strategy.blocks), len(left.exact)
    if found is None:
        return _nothing(blocks, rows)
    if not isinstance(found, Profile):
        return None
    present = slice(None) if found.blocks is None else list(found.blocks)
    columns = slice(None) if found.inverse is None else found.inverse

    def spread_out(values: np.ndarray, divisor: float) -> np.ndarray:
        out = np.zeros((blocks, rows))
        out[present] = values[:, columns] / divisor
        return out

    d = float(left.divisor)
    return Profile(
        spread_out(found.power2, d**2),
        spread_out(found.power4, d**4),
        spread_out(found.power6, d**6),
        spread_out(found.largest, d),
        spread_out(found.count, 1.0),
        exact=False,
    )


def _nothing(blocks: int, rows: int) -> Profile:
    none = np.zeros((blocks, rows))
    return Profile(none, none, none, none, none, exact=True)
