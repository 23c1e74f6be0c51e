"""A block of a strategy as the parts that ask about different attributes together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..domain import Domain
from ..linalg import (
    Centring,
    Contrasts,
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Product,
    Stack,
    Total,
    WeightedRows,
    unlifted,
    weigh_rows,
    weighted_rows,
)
from ..strategy import Block

_MOST_WEIGHTS = 1 << 24  # of all parts together, above which a block stays whole


@dataclass(frozen=True)
class Part:
    """Some questions of a block, as a block, and the attributes that they ask about: all others are summed over.

    Of the attributes ``compared`` they only ask how values differ from the mean of their class.
    """

    block: Block
    asked: tuple[str, ...]
    compared: tuple[str, ...] = ()


def parts_of(block: Block, domain: Domain) -> list[Part]:
    """The questions of a block by what they ask about; the block itself where they are all of one kind.

    Two kinds of blocks have several: weighted rows of a product whose factors begin with a total, by the attributes
    that a row asks for more than the total of; and stacks of contrasts, one part each.

    >>> from fractions import Fraction
    >>> from tabulae.linalg import Identity
    >>> weights = np.array([[4, 0, 0], [2, 1, 1]])
    >>> block = Block("b", weigh_rows(weights, [Stack([Total(2)] * 2), Stack([Total(2), Identity(2)])]))
    >>> [(part.asked, part.block.rows) for part in parts_of(block, Domain({"x": 2, "y": 2}))]
    [((), 1), (('x',), 1), (('x', 'y'), 2)]
    """
    names = [attribute.name for attribute in domain.attributes]
    if isinstance(block.query, Stack) and all(isinstance(op, Contrasts) for op in block.query.ops):
        return [_contrasts(block, op, names) for op in block.query.ops if isinstance(op, Contrasts)]
    if isinstance(block.query, Contrasts):
        return [_contrasts(block, block.query, names)]
    rows = weighted_rows(block.query)
    if rows is not None:
        return list(_weighted(block, rows, names))
    return [Part(block, tuple(n for n, asks in zip(names, _asks(block), strict=True) if asks))]


def _asks(block: Block) -> list[bool]:
    """For each attribute, whether some term asks for more than its total."""
    sides = zip(*(factors for _, factors in block.terms), strict=True)
    return [not all(_is_total(factor) for factor in side) for side in sides]


def _is_total(factor: LinearOperator) -> bool:
    """Whether a factor is one question that counts every value alike."""
    if isinstance(factor, Total):
        return True
    return factor.shape[0] == 1 and len(np.unique(factor.dense())) == 1


def _contrasts(block: Block, op: Contrasts, names: list[str]) -> Part:
    asks = [
        within is not None or classes.shape[0] > 1
        for within, classes in zip(op.within, op.classes, strict=True)
    ]
    asked = tuple(name for name, one in zip(names, asks, strict=True) if one)
    compared = tuple(name for name, within in zip(names, op.within, strict=True) if within is not None)
    return Part(_named(block, op, asked), asked, compared)


def _weighted(block: Block, rows: WeightedRows, names: list[str]) -> Iterator[Part]:
    totals = np.array([_begins_with_total(factor) for factor in rows.factors])
    places = np.argwhere(rows.weights)
    beyond: NDArray[np.bool_] = (places > 0) | ~totals
    sets, index = np.unique(beyond, axis=0, return_inverse=True)
    if len(sets) * rows.weights.size > _MOST_WEIGHTS:
        sets, index = beyond.any(axis=0).reshape(1, -1), np.zeros(len(places), np.int64)
    for i in np.lexsort((*(~sets.T[::-1]), sets.sum(axis=1))).tolist():
        chosen = tuple(places[index.reshape(-1) == i].T)
        weights = np.zeros_like(rows.weights)
        weights[chosen] = rows.weights[chosen]
        asked = tuple(name for name, one in zip(names, sets[i], strict=True) if one)
        yield Part(_named(block, weigh_rows(weights, rows.factors), asked), asked)


def _begins_with_total(factor: LinearOperator) -> bool:
    first = unlifted(factor)[0]
    return isinstance(first.ops[0] if isinstance(first, Stack) else first, Total)


def _named(block: Block, query: LinearOperator, asked: tuple[str, ...]) -> Block:
    return Block(" × ".join(asked) or "total", query, block.exponent, block.scale)


def largest_entry(op: LinearOperator) -> float:
    """``max_ij |a_ij|``, exact for the matrices that strategies are made of, and else a bound.

    >>> from tabulae.linalg import Centring, Kron
    >>> largest_entry(Kron([Centring(3), Total(5)]))
    2.0
    """
    if isinstance(op, Kron):
        return math.prod(map(largest_entry, op.ops))
    if isinstance(op, Stack):
        return max(map(largest_entry, op.ops))
    if isinstance(op, Centring):
        return float(op.n - 1)
    if isinstance(op, Contrasts):
        return largest_entry(op.matrix) * math.prod(size - 1 for size in op.picked)
    if isinstance(op, Product) and _merges(op.right):
        return largest_entry(op.left)
    rows = weighted_rows(op)
    if rows is None or rows.weights.size > _MOST_WEIGHTS:
        return float(op.abs_entry_max())
    highest = [np.abs(np.asarray(factor.dense(), float)).max(axis=1) for factor in rows.factors]
    return float((np.abs(rows.weights) * reduce(np.multiply.outer, highest)).max())


def _merges(op: LinearOperator) -> bool:
    """Whether a matrix does no more than merge cells."""
    return isinstance(op, Kron) and all(isinstance(factor, (Identity, Partition)) for factor in op.ops)
