"""Time limits: what cannot be stopped half-way is not begun unless it will end in time.

Limits are in seconds of a core, and what lies ahead is predicted from sizes, so that a strategy does not depend on what
else the machine does.
"""

from __future__ import annotations

import math
import time

from ..errors import Unsupported

SECONDS_A_CUBE = 4e-10
"""What an eigendecomposition of order n takes of an ordinary core, over n^3."""

_SMALL = 400  # order of a matrix whose decomposition always fits


def now() -> float:
    """Seconds that this thread has worked: the clock of deadlines. It stands still while others have the core."""
    return time.thread_time()


def check_time(deadline: float, *orders: float, steps: float = 1.0) -> None:
    """Refuse dense matrices of these orders whose ``steps`` eigendecompositions each would last beyond a deadline.

    A call of a linear algebra library cannot be stopped half-way. ``deadline`` is on :func:`now`'s clock.

    Raises :class:`~tabulae.errors.Unsupported`.
    """
    work = steps * sum(float(n) ** 3 for n in orders)
    if deadline == math.inf or work <= _SMALL**3:
        return
    what = f"decomposing matrices of order {max(orders):,.0f} and less"
    check_seconds(deadline, work * SECONDS_A_CUBE, what)


def check_seconds(deadline: float, seconds: float, what: str) -> None:
    """Refuse ``what`` where its predicted ``seconds`` would last beyond a deadline.

    Raises :class:`~tabulae.errors.Unsupported`.
    """
    left = deadline - now()
    if seconds > left:
        raise Unsupported(
            f"{what} takes about {seconds:.3g} s, and {max(left, 0.0):.3g} s are left of the time limit: raise it by "
            f"{_round_up(seconds - left):,} s or more, or choose another method"
        )


def _round_up(seconds: float) -> int:
    """A whole number of seconds of one or two digits that is a tenth more than what is missing, or a little above."""
    step = 10 ** max(0, math.floor(math.log10(max(seconds, 1.0))) - 1)
    return math.ceil(1.1 * seconds / step) * step
