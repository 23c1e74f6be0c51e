"""What makes two estimates the same, as one number: a digest of plan, method, constraints and version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._version import VERSION
from ..errors import InvalidArgument
from ..geography.constraints import AreaConstraints
from ..geography.layout import Margin
from ..geography.spine_plan import SpinePlan

_TEXTS = 1 << 20  # how many texts are looked at at a time


class Fingerprint:
    """SHA-256 over parts of several kinds, each with its kind and length, so that no two lists of parts agree.

    >>> Fingerprint().add("a", "b").hex() == Fingerprint().add("ab").hex()
    False
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()

    def add(self, *parts: Any) -> Fingerprint:
        """Take in arrays, texts, and lists and tuples of them; anything else as its ``repr``."""
        for part in parts:
            if isinstance(part, np.ndarray):
                array = np.ascontiguousarray(part)
                if array.dtype.kind in "OUS":
                    self._texts(array.ravel())
                    continue
                self._mark("array", f"{array.dtype.str} {array.shape}")
                self._state.update(array.data if array.size else b"")
            elif isinstance(part, list | tuple):
                self._mark("list", str(len(part)))
                self.add(*part)
            elif isinstance(part, Mapping):
                self._mark("mapping", str(len(part)))
                self.add(*[list(item) for item in part.items()])
            else:
                self._mark(type(part).__name__, part if isinstance(part, str) else repr(part))
        return self

    def _texts(self, array: np.ndarray) -> None:
        """Texts, some at a time: their lengths, then they themselves."""
        self._mark("texts", str(array.size))
        for first in range(0, array.size, _TEXTS):
            told = [str(one) for one in array[first : first + _TEXTS].tolist()]
            self._state.update(np.fromiter(map(len, told), "<i8", len(told)).data)
            self._state.update("".join(told).encode())

    def _mark(self, kind: str, text: str) -> None:
        content = text.encode()
        self._state.update(f"{kind} {len(content)} ".encode() + content)

    def hex(self) -> str:
        """Of all that was taken in so far."""
        return self._state.hexdigest()


def plan_digest(plan: SpinePlan) -> str:
    """What makes two plans the same, for this version."""
    shares = plan.spine.shares
    assert shares is not None
    hierarchy, layout = plan.spine.hierarchy, plan.layout
    found = Fingerprint().add(VERSION, hierarchy.levels, hierarchy.codes, hierarchy.units)
    found.add([str(share) for share in shares.values], shares.index)
    found.add(layout.domain.names, layout.domain.shape, layout.dense, layout.codes)
    found.add([_margin(query) for query in plan.queries])
    found.add({level: [str(share) for share in given] for level, given in plan.query_shares.items()})
    found.add(repr(plan.budget), plan.neighbours, plan.rows_per_unit, np.packbits(plan.support, axis=1))
    return found.hex()


def estimate_digest(
    plan: SpinePlan,
    method: str,
    constraints: AreaConstraints | None,
    exact_values: Iterable[np.ndarray],
    measurements: str,
) -> str:
    """What makes two estimates the same: plan, method, constraints, exact counts, version, and measurements' digest.

    Raises:
        InvalidArgument: exact counts without the constraints that name them.
    """
    values = list(exact_values)
    if len(values) != (0 if constraints is None else len(constraints.exact)):
        raise InvalidArgument("one array of exact counts for each exact margin of the constraints")
    found = Fingerprint().add(plan_digest(plan), method, measurements)
    if constraints is not None:
        found.add(constraints.part, constraints.lower, constraints.upper)
        found.add([[exact.level, *_margin(exact.margin)] for exact in constraints.exact], values)
    return found.hex()


def _margin(margin: Margin) -> list[Any]:
    return [margin.names, margin.label, list(margin.maps)]
