"""Laws of which every example asks an engine: half as many examples as other laws have."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def dear(**more: Any) -> settings:
    """Settings with half of the examples of the profile, which are more in ``make test-long``."""
    return settings(max_examples=settings().max_examples // 2, **more)
