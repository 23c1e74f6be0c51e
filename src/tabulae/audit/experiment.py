"""A statistical lower bound on epsilon: how well two neighbours can be told apart from their measurements.

The statistic is the likelihood ratio of the laws as stated, along the difference of the two inputs. A threshold
and a side are chosen on one half of the runs; on the other half the two probabilities of the event are enclosed
at confidence 1 - 10^-6 together (Clopper and Pearson 1934), and

    epsilon >= log((p - delta) / q)

for every mechanism that is (epsilon, delta)-private. A bound above the promise refutes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..measurement import Measurement
from ..privacy import PrivacyLoss

Floats = NDArray[np.float64]
Draw = Callable[[], Sequence[Measurement]]

MISS = 1e-6
"""The probability with which a sound mechanism may be found at fault."""

_MOST_RUNS = 20_000
_FEWEST_RUNS = 40
_THRESHOLDS = 200
_DELTAS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5))


@dataclass(frozen=True)
class Bound:
    """``epsilon`` is at least this at ``delta``, where ``promised`` is what the loss implies there."""

    epsilon: float
    promised: float
    delta: Fraction
    runs: int


def log_ratio(
    done: Sequence[Measurement], truth: Sequence[np.ndarray], change: Sequence[np.ndarray]
) -> float:
    """The log of how much likelier measurements are at ``truth + change`` than at ``truth``.

    Arguments:
        done: measurements; ``truth`` and ``change`` have the exact answers and their difference, by block.
    """
    laws = [law for m in done for law in m.laws]
    values = [v for m in done for v in m.block_values()]
    total = 0.0
    for law, y, exact, moved in zip(laws, values, truth, change, strict=True):
        rows = np.flatnonzero(moved)
        off, step = (y[rows] - exact[rows]).astype(float), moved[rows].astype(float)
        scale = float(law.parameter)
        if law.kind == "laplace":
            total += float((np.abs(off) - np.abs(off - step)).sum()) / scale
        else:
            total += float((step * (off - step / 2)).sum()) / scale
    return total


def collect(
    one: Draw, other: Draw, ratio: Callable[[Sequence[Measurement]], float], seconds: float
) -> tuple[Floats, Floats]:
    """The statistic over runs on both inputs, in turn, until the time is up."""
    deadline = time.monotonic() + seconds
    samples: tuple[list[float], list[float]] = ([], [])
    while len(samples[0]) < _MOST_RUNS:
        if len(samples[0]) >= _FEWEST_RUNS and time.monotonic() > deadline:
            break
        samples[0].append(ratio(one()))
        samples[1].append(ratio(other()))
    return np.array(samples[0]), np.array(samples[1])


def lower_bound(one: Floats, other: Floats, loss: PrivacyLoss, delta: Fraction | None) -> Bound:
    """The bound from samples of the statistic on two neighbours.

    Arguments:
        one, other: the statistic, which is large where ``other`` is the likelier input.
        loss: the promise. Pure: delta is 0. Approximate: its own. zCDP: of several, the one that tells most,
            chosen on the first half too.
        delta: at which the spec states a zCDP promise, tried with the others.
    """
    promises = _promises(loss, delta)
    half = len(one) // 2
    train, test = (one[:half], other[:half]), (one[half:], other[half:])
    cuts = np.unique(np.quantile(np.concatenate(train), np.linspace(0.005, 0.995, _THRESHOLDS)))
    best: tuple[float, float, int, Fraction] | None = None
    for at, promised in promises.items():
        for side in (1, -1):
            reached = _log_odds(*_events(train, cuts, side), len(train[0]), at) / promised
            place = int(np.argmax(reached))
            if best is None or reached[place] > best[0]:
                best = float(reached[place]), float(cuts[place]), side, at
    assert best is not None
    _, cut, side, at = best
    bound = _log_odds(*_events(test, np.array([cut]), side), len(test[0]), at)[0]
    return Bound(max(0.0, float(bound)), promises[at], at, len(one) + len(other))


def _promises(loss: PrivacyLoss, delta: Fraction | None) -> dict[Fraction, float]:
    if loss.definition == "pure":
        return {Fraction(0): float(loss.amount)}
    if "delta" in loss.parameters:
        return {loss.parameters["delta"]: float(loss.amount)}
    deltas = {*_DELTAS, *(() if delta is None else (delta,))}
    return {at: loss.epsilon(at) for at in sorted(deltas, reverse=True)}


def _events(samples: tuple[Floats, Floats], cuts: Floats, side: int) -> tuple[Floats, Floats]:
    """How often the statistic lies beyond each cut, where that is likely and where it is not."""
    likely, unlikely = (samples[1], samples[0]) if side == 1 else (samples[0], samples[1])
    ordered = [np.sort(side * sample) for sample in (likely, unlikely)]
    counts = [len(sample) - np.searchsorted(sample, side * cuts, side="left") for sample in ordered]
    return counts[0].astype(float), counts[1].astype(float)


def _log_odds(likely: Floats, unlikely: Floats, runs: int, delta: Fraction) -> Floats:
    """``log((p - delta) / q)`` with p bounded below and q above, each but for half of the chance of a miss."""
    from scipy.special import betaincinv

    p = np.where(likely > 0, betaincinv(np.maximum(likely, 1), runs - likely + 1, MISS / 2), 0.0)
    q = np.where(unlikely < runs, betaincinv(unlikely + 1, np.maximum(runs - unlikely, 1), 1 - MISS / 2), 1.0)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(p - float(delta), 0.0)) - np.log(q)
