"""Compiled steps of solvers, called from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit


@cache
def callable_of(kernel: Any) -> Callable[..., Any]:
    """What calls a kernel, which only compiled code can."""
    return njit(lambda *given: kernel(*given))
