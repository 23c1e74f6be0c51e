"""What an adaptive plan will do to groups of each size, from public laws alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from ..privacy import NoiseLaw
from .level import PopulationLevel

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
        level: its thresholds t and the law of e.
        sizes: shape (n,), integers: true or supposed sizes.

    Returns:
        Shape (n, rungs + 1): from the total up; each row sums to 1.

    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import Family, Group, GroupMap
    >>> from tabulae.domain.ladder import Ladder
    >>> from tabulae.domain.regions import Regions
    >>> ladder = Ladder.of({"sex": 2}, [("sex", {"sex": (["F", "M"], [0, 1])})])
    >>> groups = GroupMap((Family("f", ("x",)),), (Group("a", "1", "f", "any"),), [("a", "x")]).at("1", "nation")
    >>> level = PopulationLevel(Regions.nation(1), "1", groups, ladder, (20,), ZCDP(1), Fraction(1, 10))
    >>> expected_rungs(level, np.array([10, 20, 30])).round(3)
    array([[1.   , 0.   ],
           [0.411, 0.589],
           [0.   , 1.   ]])
    """
    sizes = np.asarray(sizes, np.int64)
    reached = [
        np.ones(sizes.size),
        *(reach(level.first, t - sizes) for t in level.thresholds),
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
