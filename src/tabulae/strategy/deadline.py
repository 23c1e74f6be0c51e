"""Time limits: what cannot be stopped half-way is not begun unless it will end in time."""

from __future__ import annotations

import math
import time
from functools import cache

import numpy as np
import scipy.linalg

from ..errors import Unsupported

SECONDS_A_CUBE = 4e-10
"""What an eigendecomposition of order n takes of an ordinary core, over n^3: what is tried first must not depend on a
machine's load."""

# order of the matrix whose decomposition tells how fast this machine is; smaller ones always fit
_TRIAL = 400


def check_time(deadline: float, *orders: float, steps: float = 1.0) -> None:
    """Refuse dense matrices of these orders whose ``steps`` eigendecompositions each would last beyond a deadline.

    A call of a linear algebra library cannot be stopped half-way. ``deadline`` is on :func:`time.monotonic`'s clock.

    Raises :class:`~tabulae.errors.Unsupported`.
    """
    work = steps * sum(float(n) ** 3 for n in orders)
    if deadline == math.inf or work <= _TRIAL**3:
        return
    what = f"decomposing matrices of order {max(orders):,.0f} and less"
    check_seconds(deadline, work * _seconds_a_cube(), what)


def check_seconds(deadline: float, seconds: float, what: str) -> None:
    """Refuse ``what`` where its predicted ``seconds`` would last beyond a deadline.

    Raises :class:`~tabulae.errors.Unsupported`.
    """
    left = deadline - time.monotonic()
    if seconds > left:
        raise Unsupported(
            f"{what} takes about {seconds:.3g} s, and {max(left, 0.0):.3g} s are left of the time limit: raise it, or "
            "choose another method"
        )


@cache
def _seconds_a_cube() -> float:
    """How long this machine takes for an eigendecomposition of order n, over n^3."""
    matrix = np.random.default_rng(0).random((_TRIAL, _TRIAL))
    started = time.monotonic()
    scipy.linalg.eigh(matrix + matrix.T, check_finite=False)
    return (time.monotonic() - started) / _TRIAL**3
