"""A block of a strategy as the parts that ask about different attributes together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..domain import Domain
from ..linalg import (
    Centring,
    Contrasts,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Stack,
    Total,
    WeightedRows,
    unlifted,
    weigh_rows,
    weighted_rows,
)
from ..privacy import NoiseLaw
from ..release import Release
from ..spec.promise import POSTERIOR
from ..strategy import Block, Strategy, method_words
from .page import BLOCKS_SHOWN
from .view import BlockView, MatrixPicture, StrategyView

_MOST_WEIGHTS = 1 << 24  # of all parts together, above which a block stays whole


@dataclass(frozen=True)
class StrategyPart:
    """Some questions of a block, as a block, and the attributes that they ask about: all others are summed over.

    Of the attributes ``compared`` they only ask how values differ from the mean of their class.
    """

    block: Block
    asked: tuple[str, ...]
    compared: tuple[str, ...] = ()


def parts_of(block: Block, domain: Domain) -> list[StrategyPart]:
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
    return [StrategyPart(block, tuple(n for n, asks in zip(names, _asks(block), strict=True) if asks))]


def _asks(block: Block) -> list[bool]:
    """For each attribute, whether some term asks for more than its total."""
    sides = zip(*(factors for _, factors in block.terms), strict=True)
    return [not all(_is_total(factor) for factor in side) for side in sides]


def _is_total(factor: LinearOperator) -> bool:
    """Whether a factor is one question that counts every value alike."""
    if isinstance(factor, Total):
        return True
    return factor.shape[0] == 1 and len(np.unique(factor.dense())) == 1


def _contrasts(block: Block, op: Contrasts, names: list[str]) -> StrategyPart:
    asks = [
        within is not None or classes.shape[0] > 1
        for within, classes in zip(op.within, op.classes, strict=True)
    ]
    asked = tuple(name for name, one in zip(names, asks, strict=True) if one)
    compared = tuple(name for name, within in zip(names, op.within, strict=True) if within is not None)
    return StrategyPart(_named(block, op, asked), asked, compared)


def _weighted(block: Block, rows: WeightedRows, names: list[str]) -> Iterator[StrategyPart]:
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
        yield StrategyPart(_named(block, weigh_rows(weights, rows.factors), asked), asked)


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
    if isinstance(op, MatrixProduct) and _merges(op.right):
        return largest_entry(op.left)
    rows = weighted_rows(op)
    if rows is None or rows.weights.size > _MOST_WEIGHTS:
        return float(op.abs_entry_max())
    highest = [np.abs(np.asarray(factor.dense(), float)).max(axis=1) for factor in rows.factors]
    return float((np.abs(rows.weights) * reduce(np.multiply.outer, highest)).max())


def _merges(op: LinearOperator) -> bool:
    """Whether a matrix does no more than merge cells."""
    return isinstance(op, Kron) and all(isinstance(factor, (Identity, Partition, Total)) for factor in op.ops)


PIXELS = 160
"""Neither side of a picture has more pixels."""

DRAWN_ENTRIES = 1 << 25
"""Matrices with more entries are described in words instead of drawn."""

_SLAB = 1 << 22


class _Matrix(Protocol):
    @property
    def shape(self) -> tuple[int, int]: ...
    def __matmul__(self, other: NDArray[np.float64], /) -> NDArray[np.float64]: ...


def picture_of(attribute: str, matrix: _Matrix, pixels: int = PIXELS) -> MatrixPicture | None:
    """Reduce a matrix to a picture; each pixel shows the entry of largest magnitude of its tile.

    The mean of a tile would make a lone 1 among zeros vanish and let entries of opposite sign cancel; the
    largest entry keeps the structure visible at any reduction. Entries are read column by column, a slab at
    a time, so that an implicit ``m x n`` matrix is never formed: memory is ``m`` times a few columns.

    Args:
        matrix: anything with ``shape`` and ``@``.

    Returns:
        The picture, or None where the matrix has more than ``DRAWN_ENTRIES`` entries.

    >>> picture_of("age", np.diag([1.0, -2.0, 3.0, -4.0]), pixels=2).pixels
    array([[-2.,  0.],
           [ 0., -4.]])
    """
    rows, columns = matrix.shape
    if rows * columns > DRAWN_ENTRIES:
        return None
    row_edges, column_edges = _edges(rows, pixels), _edges(columns, pixels)
    image = np.zeros((len(row_edges) - 1, len(column_edges) - 1))
    width = max(1, _SLAB // max(1, rows))
    for j, (start, stop) in enumerate(pairwise(column_edges.tolist())):
        for left in range(start, stop, width):
            right = min(stop, left + width)
            units = np.zeros((columns, right - left))
            units[np.arange(left, right), np.arange(right - left)] = 1.0
            slab = np.asarray(matrix @ units, dtype=float)
            strongest = _strongest(slab.max(axis=1), slab.min(axis=1))
            top = np.maximum.reduceat(strongest, row_edges[:-1])
            bottom = np.minimum.reduceat(strongest, row_edges[:-1])
            tile = _strongest(top, bottom)
            image[:, j] = np.where(np.abs(tile) > np.abs(image[:, j]), tile, image[:, j])
    return MatrixPicture(attribute, image, (rows, columns))


def _edges(size: int, pixels: int) -> NDArray[np.int64]:
    """Boundaries of at most ``pixels`` tiles of nearly equal length."""
    tiles = min(size, pixels)
    return np.arange(tiles + 1, dtype=np.int64) * size // tiles


def _strongest(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(top >= -bottom, top, bottom)


_ONE_SIDED = (
    "standard errors and intervals are those of plain least squares, the intervals cut at zero and widened to be "
    "symmetric about the estimate"
)
_DRAWN = (
    "as whole counts near to draws of whole tables from a model given all of them, so that no count is below zero and "
    "all tables agree; " + _ONE_SIDED
)
_ESTIMATES = {
    "least-squares": "by least squares, so that all tables agree with each other",
    "non-negative": "by least squares among counts that are nowhere below zero, so that all tables agree; "
    + _ONE_SIDED,
    "pgm": "through a graphical model, so that no count is below zero and all tables agree; " + _ONE_SIDED,
    POSTERIOR: _DRAWN,
}
_WITH_EXACT = {
    "least-squares": (
        "and from the exact counts: by least squares for what the exact counts leave open, where nothing but the noisy "
        "answers enters, and from the exact counts for the rest, so that all tables agree with each other and keep "
        "every exact sum to the last digit"
    ),
    "non-negative": (
        "and from the exact counts together: by least squares among counts that are nowhere below zero and keep every "
        "exact sum. Because of the limit at zero the exact counts enter everywhere, also into what they do not "
        "determine, so that each number is a function of both; " + _ONE_SIDED
    ),
    POSTERIOR: f"and from the exact counts together: {_DRAWN}. Every draw keeps the exact counts",
}


def strategy_view(release: Release) -> StrategyView:
    """The strategy of a release of tables, its blocks taken apart by what they ask about together."""
    measurement, spec = release.measurements[0], release.spec
    strategy = measurement.strategy
    in_total = spec.targets is None and spec.method.objective == "total"  # what the certificate is about
    parts = [
        (part, law)
        for block, law in zip(strategy.blocks, measurement.laws, strict=True)
        for part in parts_of(block, release.domain)
    ]
    shares: Sequence[float | None] = [None] * len(parts)
    if 1 < len(parts) <= BLOCKS_SHOWN:
        every = [part.block for part, _ in parts]
        shares = block_shares(strategy, every, *spec.change)
    blocks = tuple(
        _block(part, law, release.domain, share) for (part, law), share in zip(parts, shares, strict=True)
    )
    return StrategyView(
        method_words(strategy.method),
        blocks,
        strategy.certificate if in_total else None,
        (_WITH_EXACT if spec.invariants else _ESTIMATES)[spec.method.estimate],
    )


def block_shares(
    strategy: Strategy, parts: list[Block], neighbours: str, stability: int, fewest: int = 1
) -> tuple[float, ...]:
    """What each part would cost by itself, as a share of what all cost together.

    For sensitivities ``Delta_p`` of a part and ``Delta`` of all, in units of the noise: ``Delta_p^2 / Delta^2``
    under Gaussian noise (its share of rho), ``Delta_p / Delta`` under Laplace noise (of epsilon). Their sum is 1 or
    more.

    >>> from tabulae import Domain, Workload, select
    >>> both = Workload.marginals(Domain({"a": 2, "b": 3}), ways=[1])
    >>> strategy = select(both, method="workload", noise="gaussian")
    >>> block_shares(strategy, list(strategy.blocks), "add-remove", 1)
    (0.5, 0.5)
    """
    whole = strategy.sensitivity(neighbours, stability, fewest).power
    return tuple(
        float(replace(strategy, blocks=(part,)).sensitivity(neighbours, stability, fewest).power / whole)
        for part in parts
    )


def _block(part: StrategyPart, law: NoiseLaw, domain: Domain, share: float | None) -> BlockView:
    pictures, undrawn = _pictures(part, domain)
    block = part.block
    return BlockView(
        block.name,
        _measures(block, domain, part.asked),
        block.rows,
        _noise(block, law, domain.parts),
        tuple(pictures),
        tuple(undrawn),
        part.asked,
        part.compared,
        share,
        law.size * 2.0**-block.exponent / domain.parts / (_weight(block) or 1.0),
    )


def _pictures(part: StrategyPart, domain: Domain) -> tuple[list[MatrixPicture], list[str]]:
    """The matrices that the attributes are asked with, one each or one for all, and what is too large to be drawn."""
    query = part.block.query
    if isinstance(query, Contrasts):  # what is crossed with differences of values
        names = [
            attribute.name
            for attribute, within, classes in zip(domain.attributes, query.within, query.classes, strict=True)
            if within is None and classes.shape[0] > 1
        ]
        matrices = [(" × ".join(names), query.matrix)] if names else []
    elif isinstance(query, MatrixProduct) and weighted_rows(query) is None:
        matrices = [(" × ".join(part.asked), query.left)] if part.asked else []
    else:
        factors = zip(domain.attributes, _finest(part.block), strict=True)
        matrices = [(attribute.name, factor) for attribute, factor in factors if attribute.name in part.asked]
    drawn = [(name, picture_of(name, matrix)) for name, matrix in matrices]
    return [found for _, found in drawn if found], [name for name, found in drawn if found is None]


def _finest(block: Block) -> list[LinearOperator]:
    """For each attribute the matrix with most rows among those that the block is made of."""
    sides = zip(*(factors for _, factors in block.terms), strict=True)
    return [max(side, key=lambda factor: factor.shape[0]) for side in sides]


def _measures(block: Block, domain: Domain, asked: tuple[str, ...]) -> str:
    if not asked:
        return "the total"
    factors = dict(zip((a.name for a in domain.attributes), _finest(block), strict=True))
    plain = all(isinstance(factors[name], Identity) for name in asked)
    return " by ".join(asked) if plain else "weighted counts over " + " by ".join(asked)


def _noise(block: Block, law: NoiseLaw, parts: int) -> str:
    step = " / ".join([f"2^-{block.exponent}"] * (block.exponent > 0) + [f"{parts:,}"] * (parts > 1))
    weight, grid = _weight(block), "" if not step else f", in steps of {'1 / ' * (block.exponent == 0)}{step}"
    counts = "counts" if abs(weight - 1) < 1e-3 else f"on counts weighted up to {weight:.4g}"
    return f"{law.words} {law.size * 2.0**-block.exponent / parts:.4g} {counts}{grid}"


def _weight(block: Block) -> float:
    """The largest weight that a question gives to a count."""
    return largest_entry(block.query) * 2.0**-block.exponent
