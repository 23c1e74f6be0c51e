"""Products over more cells than a vector of counts is made for: slice by slice, from the cells that are not empty."""

from __future__ import annotations

import numpy as np

from ..errors import Unsupported
from ..linalg import Kron, LinearOperator
from ..linalg.kron_slices import divided, multiply_slices
from .integers import (
    Integers,
    added_up,
    check_bound,
    exact_sum,
)
from .memory import check_room

CELL_LIMIT = 2**32
"""Cells over which a product is answered slice by slice; the answers must fit the machine's memory."""


def answer_in_slices(op: Kron, index: Integers, people: Integers) -> tuple[Integers, int]:
    """``A x`` for ``x[i] = sum of people[j] over j with index[j] == i``, and a bound on it, below 2^62.

    Of x a slice exists at a time. Memory: the answers, 8 bytes each, and about 0.5 GiB.

    Privacy:
        Exact and confidential, as what it is made of.
    """
    if not np.all(index[1:] > index[:-1]):
        order = np.argsort(index, kind="stable")
        index, people = index[order], people[order]
        first = np.flatnonzero(np.diff(index, prepend=-1))
        index, people = index[first], np.add.reduceat(people, first) if first.size else people
    bound = check_bound(op, _bound(op, people))
    check_room(8 * op.shape[0], f"the answers of {op!r}")
    parts = divided(op)
    if parts is None:
        raise Unsupported(
            f"{op!r} is over {op.shape[1]:.3g} cells, and no part of it is small enough for a slice of them: "
            "write the large attribute as two"
        )
    width = parts[1].shape[1]

    def rows(start: int, stop: int) -> Integers:
        ends = np.searchsorted(index, (start * width, stop * width))
        part = slice(*ends)
        cells = added_up(index[part] - start * width, people[part], (stop - start) * width)
        return cells.reshape(stop - start, width)

    return multiply_slices(*parts, rows), bound


def _bound(op: LinearOperator, people: Integers) -> int:
    """The bound of :meth:`LinearOperator.bound`, from the cells that are not empty."""
    largest = int(people.max(initial=0))
    return min(largest * int(op.abs_row_sum_max()), exact_sum(people) * max(1, int(op.abs_entry_max())))
