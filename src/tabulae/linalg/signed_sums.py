"""Sums of Kronecker products as stacks of products whose columns are at least as long.

A disjunction is counted by a sum of products, ``A or B = A + (B and not A)`` or ``1 - (not A and not B)``, whose
cells are too many to list. For the size of its columns a sum of products without negative entries may be
replaced, over unsigned products K_s with coefficients c_s, by

* the stack of its terms, if no cell is counted by two of them: the columns' norms are the same, and
  distances of columns no smaller;
* the stack without a negative term that some positive term covers entry by entry (``0 <= K' <= K`` gives
  ``0 <= K - K' <= K``); as that may bring columns closer, distances are then bounded by the sum of the two
  columns' norms, which is what distinct columns of an identity are apart;
* otherwise the stack of ``|c_s| K_s``, times ``sum |c_s|`` for squared norms (Cauchy and Schwarz).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from .algebra import Sum
from .kron import Kron
from .operator import LinearOperator
from .simple import Identity

_LISTED_CELLS = 2**12  # sums over so few cells are written out and need no bound
_ENTRIES = 2**22  # entries of a factor that are compared one by one

Blocks = list[tuple[LinearOperator, Fraction]]


def without_sums(
    blocks: Sequence[tuple[LinearOperator, Fraction]], p: int, *, replace: bool
) -> tuple[Blocks, bool]:
    """The blocks with every large sum of products replaced, and whether the largest column is still exact."""
    out: Blocks = []
    exact = True
    for op, weight in blocks:
        terms = _products(op) if isinstance(op, Sum) and op.shape[1] > _LISTED_CELLS else None
        if terms is None:
            out.append((op, weight))
            continue
        parts, same = _stack(terms, p)
        if replace and any(c < 0 for c, _ in terms):
            parts = [_apart(kron, share, p) for kron, share in parts]
        out.extend((kron, weight * share) for kron, share in parts)
        exact = exact and same and not replace
    return out, exact


def _products(op: Sum) -> list[tuple[Fraction, Kron]] | None:
    """The terms, where all are unsigned Kronecker products of integers over the same attributes."""
    terms = [(Fraction(c), kron) for c, kron in op.terms if isinstance(kron, Kron) and kron.integer]
    if len(terms) < len(op.terms) or len({kron.sizes for _, kron in terms}) > 1:
        return None
    return terms if all(_unsigned(f) for _, kron in terms for f in kron.ops) else None


def _stack(terms: list[tuple[Fraction, Kron]], p: int) -> tuple[Blocks, bool]:
    positive = [(c, k) for c, k in terms if c > 0]
    uncovered: list[tuple[Fraction, Kron]] = []
    free = list(positive)
    for c, kron in terms:
        if c > 0:
            continue
        cover = next((i for i, (d, other) in enumerate(free) if d >= -c and _covers(other, kron)), None)
        if cover is None:
            uncovered.append((-c, kron))
        else:
            del free[cover]  # a positive term pays for one negative term only
    kept = positive + uncovered
    if not uncovered and all(_disjoint(a, b) for (_, a), (_, b) in combinations(positive, 2)):
        return [(k, c**p) for c, k in positive], len(positive) == len(terms)
    whole = sum((c for c, _ in kept), Fraction(0))
    return [(k, c if p == 1 else c * whole) for c, k in kept], False


def _apart(kron: Kron, share: Fraction, p: int) -> tuple[Kron, Fraction]:
    """Columns as long as the product's longest, any two of them as far apart as unsigned columns can be."""
    longest = Fraction(1)
    for factor in kron.ops:
        longest *= int(max(factor.column_norms(p)))
    return Kron([Identity(n) for n in kron.sizes]), share * longest


def _disjoint(a: Kron, b: Kron) -> bool:
    """Whether some attribute has no cell that both products count."""
    return any(not np.any((_counted(f)) & (_counted(g))) for f, g in zip(a.ops, b.ops, strict=True))


def _counted(factor: LinearOperator) -> np.ndarray:
    return np.asarray(factor.column_norms(1) != 0)


def _covers(large: Kron, small: Kron) -> bool:
    """Whether each factor of the one is, entry by entry, at least that of the other."""
    for f, g in zip(large.ops, small.ops, strict=True):
        if f.shape != g.shape or (f != g and f.shape[0] * f.shape[1] > _ENTRIES):
            return False
        if f != g and not bool(np.all(f.dense() >= g.dense())):
            return False
    return True


def _unsigned(factor: LinearOperator) -> bool:
    if factor.binary:
        return True
    return factor.shape[0] * factor.shape[1] <= _ENTRIES and bool(np.all(factor.dense() >= 0))
