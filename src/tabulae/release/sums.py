"""Whether published numbers have the sums that the exact counts determine: in whole numbers, without a tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..domain import Invariants, Table

_FINEST = 52
_LARGEST = 2.0**53


def meets(exact: Invariants, table: Table, estimates: np.ndarray, values: Sequence[np.ndarray]) -> bool:
    """Whether every sum of a table's estimates that the invariants fix has its exact value.

    The estimates must be multiples of one ``2^-k`` whose sums floating point holds exactly; written as whole numbers,
    settling them must change none.

    >>> from tabulae.linalg import Identity
    >>> from tabulae.domain import Domain
    >>> exact = Invariants(Domain({"x": 3}), [Table("total", {})])
    >>> table = Table("x", {"x": Identity(3)})
    >>> [meets(exact, table, np.array([1.5, last, 2.25]), [np.array([6])]) for last in (2.25, 2.26, 3.25)]
    [True, False, False]
    """
    step = _step(estimates)
    if step is None:
        return False
    scaled = np.ldexp(estimates, step).astype(np.int64)
    return bool(np.array_equal(exact.settle(table, scaled, values, step), scaled))


def _step(estimates: np.ndarray) -> int | None:
    """The least k with all of ``2^k estimates`` whole, and their sum below 2^53; None if there is none."""
    if not np.isfinite(estimates).all():
        return None
    for k in range(_FINEST + 1):
        scaled = np.ldexp(estimates, k)
        if np.abs(scaled).sum() >= _LARGEST:
            return None
        if np.array_equal(scaled, np.rint(scaled)):
            return k
    return None
