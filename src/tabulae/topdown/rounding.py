"""Controlled rounding: counts of several areas to whole numbers, with all sums kept to their floor or ceiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .division import Division

_FAILED = ("", "a parent counts people where none of its children can", "counts are not finite, or too large")
_BROKEN = ("", "a column", "a cell", "the limits of a part", "an exact sum")


def round_division(division: Division, x: np.ndarray, *, compiled: bool = True) -> np.ndarray:
    """Whole numbers near a real solution of a division, which meet all of its limits exactly.

    The sums of each child nest: a cell, cells that differ in the last symmetric attribute only, in the last two, ...,
    a dense cell, a part, a group, all. Each of them, after x is made to meet the limits exactly, goes to its floor or
    ceiling. As limits are whole numbers they still hold; every column stays the parent's count.

    A cell's count is an arc from its column to its first sum, a sum is an arc to the next sum. Flow is conserved, so
    arcs that are not whole form cycles; flow moves around a cycle, to the side that lies nearer to x, until one of its
    arcs is whole. Arithmetic is in int64, people times 2^30: the same x gives the same answer on every machine.

    Args:
        division: the problem; its ``precision`` and ``linear`` are not used.
        x: shape (n, k, N), near its solution. Limits that it misses are repaired; a whole row within them stays.
        compiled: whether the loops run compiled; the answer is the same.

    Returns:
        Shape (n, k, N), int64.

    References: Cox, "A constructive procedure for unbiased controlled rounding" (1987); Abowd et al., "The 2020 Census
    Disclosure Avoidance System TopDown Algorithm" (2022), where an integer programme does this.

    >>> from tabulae.linalg.block_algebra import BlockAlgebra
    >>> two = np.ones((2, 1), int)
    >>> thirds = Division(
    ...     BlockAlgebra((3,)), np.ones((1, 3), int), np.ones((1, 2, 1, 1)), np.zeros(2, int), np.zeros((2, 1, 3)),
    ...     two > 0, np.zeros(1, int), 0 * two, 9 * two, 0 * two, -two,
    ... )
    >>> round_division(thirds, np.full((2, 1, 3), 0.5)).sum(axis=(1, 2)).tolist()
    [1, 2]
    """
    from . import rounding_kernels as kernels

    run = _runner(compiled)
    n, k, inner = x.shape
    rooted = division.total is None
    total = np.zeros(k * inner, np.int64) if division.total is None else division.total.reshape(-1)
    if total.sum() >= kernels.MOST:
        raise AssertionError(_FAILED[2])
    allowed, part, lower, upper, group, exact = map(np.ascontiguousarray, _limits(division))
    q = np.zeros((n, k * inner), np.int64)
    failed = run(kernels.to_fixed_point)(x.reshape(n, -1), allowed, total, rooted, inner, q)
    if failed:
        raise AssertionError(_FAILED[failed])
    if not division.is_plain:
        _repair(q.reshape(n, k, inner), allowed, part, lower, upper, group, exact, rooted=rooted, run=run)
    sizes = np.array([size for size in division.algebra.symmetric if size > 1], np.int64)
    groups, parts = exact.shape[1], np.unique(part).size
    tail, head, flow, times, cell, count = run(kernels.fractional_arcs)(
        q, allowed, sizes, part, group, groups, 1 < parts < k, groups > 1, rooted
    )
    if not run(kernels.cancel_cycles)(tail, head, flow, times, count):
        raise AssertionError("flow is not conserved")
    q >>= kernels.BITS
    q.reshape(-1)[cell[cell >= 0]] += flow[cell >= 0] >> kernels.BITS
    broken = run(kernels.first_violation)(q, total, rooted, allowed, inner, part, lower, upper, group, exact)
    if broken:
        raise AssertionError(f"rounding did not keep {_BROKEN[broken]}")
    return q.reshape(n, k, inner)


def _runner(compiled: bool) -> Callable[[Any], Callable[..., Any]]:  # noqa: FBT001
    """What takes a kernel to the function that runs."""
    return (lambda kernel: kernel) if compiled else (lambda kernel: kernel.py_func)


def _limits(division: Division) -> tuple[np.ndarray, ...]:
    """What kernels take, in the order in which they take it."""
    d = division
    return d.allowed, d.part, d.lower, d.upper, d.group, d.exact


def _repair(
    q: np.ndarray,
    allowed: np.ndarray,
    part: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    group: np.ndarray,
    exact: np.ndarray,
    *,
    rooted: bool,
    run: Callable[[Any], Callable[..., Any]],
) -> None:
    """Change q (n, k, N) in place until parts and exact sums meet their limits."""
    from . import repair
    from .rounding_kernels import MOST, ONE

    low_group, high_group = (np.where(exact < 0, none, np.minimum(exact, MOST)) * ONE for none in (0, MOST))
    low_part, high_part = (np.minimum(limit, MOST) * ONE for limit in (lower, upper))
    sums = q.sum(axis=2)
    wanted = sums.copy()
    if not run(repair.meet_limits)(
        wanted, allowed, part, group, low_part, high_part, low_group, high_group, rooted
    ):
        raise AssertionError("a parent's counts cannot be divided within the limits of its children")
    if (wanted != sums).any():
        run(repair.move_cells)(q.reshape(len(q), -1), wanted - sums, q.shape[2], rooted)
