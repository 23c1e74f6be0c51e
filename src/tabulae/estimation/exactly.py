"""Estimates on a binary grid on which everything that is exact holds exactly.

A table's estimates t (m,) are rounded to multiples of ``2^-k`` and moved by a few steps of that grid so that every sum
of them that the invariants fix has its exact value: with L the whole-number matrix of those sums and v their values,
``L t^ = v`` in whole numbers of steps. There always is such a t^: the true table is a solution in whole counts, so
``2^k v - L round(2^k t)`` lies in the lattice of ``L Z^m``. k is as large as leaves every partial sum below 2^53, so
that the numbers published are exact in floating point and so are their sums, in whatever order they are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..domain import Invariants, Table
from ..errors import Unsupported

_FINEST = 30
_BITS = 52
_FAR = 2**12  # steps


def exactly(
    invariants: Invariants,
    table: Table,
    estimate: np.ndarray,
    values: Sequence[np.ndarray],
    *,
    rehearsal: bool = False,
) -> np.ndarray:
    """The estimates on a grid ``2^-k``, all sums that are exact by the invariants being exact, (m,).

    In a rehearsal exact tables are refused (:class:`~tabulae.errors.Unsupported`) under which whole solutions lie so
    far apart that the move would not be small: irregular tables of nearly full rank, whose counts determine the
    others once it is known that all are whole.

    >>> from tabulae.linalg import Identity
    >>> from tabulae.domain import Domain
    >>> domain = Domain({"x": 3})
    >>> exact = Invariants(domain, [Table("total", {})])
    >>> cells = exactly(exact, Table("x", {"x": Identity(3)}), np.array([0.1, 0.2, 5.7]), [np.array([6])])
    >>> cells.sum() == 6
    np.True_
    """
    size = float(np.abs(estimate).sum()) + len(estimate) + 1
    k = max(0, min(_FINEST, _BITS - math.ceil(math.log2(size))))
    scaled = np.rint(np.ldexp(estimate, k)).astype(np.int64)
    settled = invariants.settle(table, scaled, values, k)
    moved = int(np.abs(settled - scaled).max(initial=0))
    if rehearsal and moved > _FAR + len(settled):
        raise Unsupported(
            f"the exact tables leave table {table.name!r} only whole-number solutions that lie far apart ({moved:,} "
            "steps of the finest grid): knowing them nearly determines it. Publish fewer or simpler tables exactly"
        )
    return np.ldexp(settled.astype(float), -k)
