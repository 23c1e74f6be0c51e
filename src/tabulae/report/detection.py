"""What a promise means for someone who tries to tell whether a person is in the records."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .view import Promise

_ORDERS = 1.0 + np.geomspace(1e-3, 1e4, 400)


def detection_bound(promise: Promise, false_alarm: float) -> float:
    """Return the largest share of members that any test can detect at a given share of false alarms.

    A test looks at the release and says "in" or "out". With a false alarm in a share ``a`` of the cases where
    the person is out, it is right in at most a share ``b`` of the cases where the person is in:

    * (epsilon, delta): ``b <= min(e^eps a + delta, 1 - e^-eps (1 - delta - a))``;
    * rho-zCDP: the largest ``b`` for which the Bernoulli laws of ``a`` and ``b`` have Rényi divergences
      ``D_r(b || a)`` and ``D_r(a || b)`` of at most ``rho r`` at every order ``r > 1`` (data processing); a
      finite set of orders gives an upper bound.

    Args:
        promise: the promise of a release.
        false_alarm: the share ``a``, strictly between 0 and 1.

    Raises:
        InvalidArgument: ``false_alarm`` is not strictly between 0 and 1.

    Reference:
        Wasserman and Zhou (2010), "A statistical framework for differential privacy", Theorem 2.4;
        Bun and Steinke (2016), "Concentrated differential privacy", Lemma 15.

    >>> from fractions import Fraction
    >>> loss = Promise("pure", Fraction(1), "add-remove", "person")
    >>> round(detection_bound(loss, 0.05), 4)
    0.1359
    """
    if not 0 < false_alarm < 1:
        raise InvalidArgument(f"false_alarm is {false_alarm!r}; give a share strictly between 0 and 1")
    if promise.definition == "zcdp":
        return _zcdp_bound(float(promise.parameter), false_alarm)
    return _approx_bound(float(promise.parameter), float(promise.delta or 0), false_alarm)


def _approx_bound(epsilon: float, delta: float, false_alarm: float) -> float:
    gained = math.exp(min(epsilon, 700.0)) * false_alarm + delta
    spared = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_alarm)
    return min(1.0, gained, spared)


def _zcdp_bound(rho: float, false_alarm: float) -> float:
    low, high = false_alarm, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle >= 1.0:
            break
        allowed = np.all(_renyi(middle, false_alarm) <= rho * _ORDERS) and np.all(
            _renyi(false_alarm, middle) <= rho * _ORDERS
        )
        low, high = (middle, high) if allowed else (low, middle)
    return high


def _renyi(p: float, q: float) -> NDArray[np.float64]:
    """Rényi divergence of Bernoulli(p) from Bernoulli(q) at every order."""
    yes = _ORDERS * math.log(p) + (1 - _ORDERS) * math.log(q)
    no = _ORDERS * math.log1p(-p) + (1 - _ORDERS) * math.log1p(-q)
    return np.logaddexp(yes, no) / (_ORDERS - 1)
