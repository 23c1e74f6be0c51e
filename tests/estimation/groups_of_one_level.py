"""A level of groups with the ladder 1, 8, 18, 46 cells, and the exact laws of its two stages by direct sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions
from tabulae.privacy import ZCDP, DiscreteGaussian, NoiseLaw, PureDP
from tabulae.products.groups.levels import PopulationLevel

LADDER = Ladder.of(
    {"sex": 2, "age": 23},
    [
        (
            f"sex*age{parts}",
            {
                "sex": (["F", "M"], [0, 1]),
                "age": (list(map(str, range(parts))), [min(i, parts - 1) for i in range(23)]),
            },
        )
        for parts in (4, 9, 23)
    ],
)


def level(
    budget: PureDP | ZCDP, thresholds: tuple[int, ...], stage_one: str = "1/10", stability: int = 9
) -> PopulationLevel:
    """One state, one group; s = 9 and a tenth for stage one, as in production."""
    family = CodeFamily("race", ("a",))
    groups = GroupMap((family,), (Group("A", "1", "race", "any"),), [("A", "a")])
    states = Regions("state", ("s",), np.array([0]))
    ladder = LADDER if len(thresholds) == 3 else Ladder.of({"sex": 2, "age": 23}, [])
    return PopulationLevel(
        states,
        "1",
        groups.at("1", "state"),
        ladder,
        thresholds,
        budget,
        Fraction(stage_one),
        stability=stability,
    )


def mass(law: NoiseLaw, reach: int) -> np.ndarray:
    """P(e = -reach..reach), from the mass function."""
    k = np.arange(-reach, reach + 1.0)
    parameter = float(law.parameter)
    weight = np.exp(
        -(k**2) / (2 * parameter) if isinstance(law, DiscreteGaussian) else -np.abs(k) / parameter
    )
    return weight / weight.sum()


def sum_mass(law: NoiseLaw, count: int, reach: int) -> np.ndarray:
    """P(e_1 + ... + e_count = -M..M) by repeated convolution, cut where it is below 1e-18."""
    one, total = mass(law, reach), np.ones(1)
    for _ in range(count):
        total = np.convolve(total, one)
        keep = np.flatnonzero(total > 1e-18)
        total = total[keep[0] : keep[-1] + 1]
    return total


class Oracle:
    """All outcomes of both stages for one true total, with their chances given the rung."""

    def __init__(self, level: PopulationLevel, rung: int) -> None:
        self.level, self.rung = level, rung
        self.cells = 1 if rung == 0 else level.ladder.rungs[rung - 1].cells
        far = {law: law.margin(1 - Fraction(1, 10**15)) + 1 for law in (level.first, level.second)}
        self._reach = far[level.first]
        self._second = sum_mass(level.second, self.cells, far[level.second])
        self.plain_sd = (self.cells * level.second.variance_of_law) ** 0.5
        self.first_sd = level.first.variance_of_law**0.5

    def outcomes(self, total: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y, S and their chance, flat."""
        low, high = self.level.interval_of(self.rung)
        near = max(total, low if low is not None else total)
        near = min(near, high - 1 if high is not None else near)
        y = np.arange(
            near - self._reach if low is None else max(low, near - self._reach),
            (near + self._reach if high is None else min(high - 1, near + self._reach)) + 1,
        )
        law, parameter = self.level.first, float(self.level.first.parameter)
        away = (y - total).astype(float)
        weight = (
            -(away**2) / (2 * parameter) if isinstance(law, DiscreteGaussian) else -np.abs(away) / parameter
        )
        weight = np.exp(weight - weight.max())
        s = total + np.arange(self._second.size) - self._second.size // 2
        chance = np.multiply.outer(weight / weight.sum(), self._second / self._second.sum())
        shape = chance.shape
        return np.broadcast_to(y[:, None], shape).ravel(), np.broadcast_to(s, shape).ravel(), chance.ravel()
