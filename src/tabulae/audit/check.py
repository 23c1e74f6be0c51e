"""One check of an audit: what was compared, the worst that was seen, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """A check that was made.

    ``observed`` is the worst value seen and ``allowed`` the most that it may be, both as floats to read;
    ``passed`` was decided in exact arithmetic. ``observed`` is None where the code under audit raised.
    """

    name: str
    what: str
    observed: float | None
    allowed: float
    passed: bool
    detail: str = ""


def guarded(name: str, what: str, check: Callable[[], Check]) -> Check:
    """The check, or a failed one where the code under audit raises.

    Whatever it raises on records that fit the domain is a finding, so nothing is let through.
    """
    try:
        return check()
    except Exception as error:
        return Check(name, what, None, 0.0, passed=False, detail=f"{type(error).__name__}: {error}")
