"""How far the answers to a set of queries move when one record changes.

Adding or removing a record of cell ``j`` moves the answers ``A x`` by the column ``a_j``; replacing one by
another moves them by ``a_j - a_k``. For blocks with weights (``1 / s_i^2`` for Gaussian noise of variance
``s_i^2``, ``1 / b_i`` for Laplace noise of scale ``b_i``) the privacy cost is decided by

    add-remove   max_j      sum_i w_i ||A_i e_j||_p^p
    replace      max_{j,k}  sum_i w_i ||A_i (e_j - e_k)||_p^p

computed here in exact rational arithmetic: by closed form, over the classes of identical columns, or per
attribute for Kronecker products. Where that would take too long the result is an upper bound, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..errors import InvalidArgument
from .numbers import check_power
from .operator import LinearOperator, check_operators

NEIGHBOURS = ("add-remove", "replace")


class Sensitivity(float):
    """A norm, as a float that is never below it.

    Attributes:
        power: ``norm^p`` exactly, or a proven upper bound of it.
        is_exact: whether ``power`` is exact.
    """

    power: Fraction
    is_exact: bool
    _p: int

    def __new__(cls, power: Fraction | int, p: int, *, is_exact: bool) -> Sensitivity:
        self = super().__new__(cls, _root_up(Fraction(power), p))
        self.power, self.is_exact, self._p = Fraction(power), is_exact, p
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[Fraction, int], dict[str, bool]]:
        return (self.power, self._p), {"is_exact": self.is_exact}

    def __repr__(self) -> str:
        return f"Sensitivity({float(self)!r}, power={self.power}, is_exact={self.is_exact})"


def weighted_sensitivity(
    blocks: Sequence[tuple[LinearOperator, Fraction | int]], p: int, neighbours: str = "add-remove"
) -> Sensitivity:
    """The largest weighted distance, over neighbours, between the answers of several blocks.

    Args:
        blocks: pairs ``(A_i, w_i)`` over the same ``n`` cells, ``w_i >= 0``. Stacks are taken apart, and
            Kronecker products over the same attributes are never multiplied out.
        p: 1 or 2.
        neighbours: "add-remove" or "replace".

    Returns:
        A ``Sensitivity`` whose ``power`` is ``max sum_i w_i ||.||_p^p``, and whose value is its p-th root.

    Raises:
        InvalidArgument: for another norm or name of neighbours, a negative weight, or blocks over different
            cells.

    >>> from tabulae.linalg import Identity, Total
    >>> weighted_sensitivity([(Identity(3), Fraction(1, 2)), (Total(3), Fraction(1, 3))], 2).power
    Fraction(5, 6)
    """
    from .column_pairs import largest_column, largest_pair
    from .contrast_pairs import largest_in_contrasts
    from .kron_sensitivity import largest_in_products
    from .signed_sums import without_sums
    from .weighted_rows import largest_in_weighted_rows

    check_power(p)
    if neighbours not in NEIGHBOURS:
        raise InvalidArgument(f"neighbours must be 'add-remove' or 'replace', not {neighbours!r}")
    check_operators([op for op, _ in blocks], "weighted_sensitivity")
    widths = {op.shape[1] for op, _ in blocks}
    if len(widths) != 1:
        raise InvalidArgument(
            f"weighted_sensitivity needs blocks over the same cells, not over {sorted(widths)} cells"
        )
    replace = neighbours == "replace"
    plain, attained = without_sums([(op, _weight(weight)) for op, weight in blocks], p, replace=replace)
    parts = [part for op, weight in plain for part in take_apart(op, weight, p)]
    if not parts:
        return Sensitivity(0, p, is_exact=True)
    found = largest_in_contrasts(parts, replace=replace) if p == 2 else None
    if found is None:
        found = largest_in_weighted_rows(parts, p, replace=replace)
    if found is None:
        found = largest_in_products(parts, p, replace=replace)
    if found is None:
        found = largest_pair(parts, p) if replace else largest_column(parts, p)
    power, is_exact = found
    return Sensitivity(power, p, is_exact=is_exact and attained)


def take_apart(op: LinearOperator, weight: Fraction, p: int) -> list[tuple[LinearOperator, Fraction]]:
    """The blocks that a block is made of, with multiples moved into the weights and equal blocks joined."""
    joined: dict[LinearOperator, Fraction] = {}
    for part, share in _parts(op, weight, p):
        if share:
            joined[part] = joined.get(part, Fraction(0)) + share
    return list(joined.items())


def _parts(op: LinearOperator, weight: Fraction, p: int) -> list[tuple[LinearOperator, Fraction]]:
    from .explicit import Dense
    from .kron import Kron
    from .permuted import Permuted
    from .scaled import Scaled
    from .stack import Stack

    if isinstance(op, Dense):
        whole, exponent = op.on_grid()
        return [(whole, weight / 2 ** (exponent * p))]
    if isinstance(op, Scaled):
        return _parts(op.op, weight * abs(Fraction(op.factor)) ** p, p)
    if isinstance(op, Stack):
        return [part for member in op.ops for part in _parts(member, weight, p)]
    if isinstance(op, Permuted):
        return [(Permuted(part, op.order), share) for part, share in _parts(op.op, weight, p)]
    if isinstance(op, Kron):
        if len(op.ops) == 1:
            return _parts(op.ops[0], weight, p)
        factors = []
        for factor in op.ops:
            parts = _parts(factor, Fraction(1), p)
            if len(parts) == 1:  # a stack stays together, for it would multiply the number of products
                factor, share = parts[0]
                weight *= share
            factors.append(factor)
        return [(Kron(tuple(factors)), weight)]
    return [(op, weight)]


def _weight(weight: Any) -> Fraction:
    if (
        isinstance(weight, bool)
        or not isinstance(weight, (int, Fraction, float))
        or not 0 <= weight < math.inf
    ):
        raise InvalidArgument(f"a weight must be a Fraction of at least 0, not {weight!r}")
    return Fraction(weight)


def _root_up(power: Fraction, p: int) -> float:
    """The smallest float that is at least ``power^(1/p)``."""
    try:
        value = float(power) if p == 1 else math.sqrt(float(power))
    except OverflowError:
        return math.inf
    while Fraction(value) ** p < power:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** p >= power:
        value = math.nextafter(value, 0)
    return value
