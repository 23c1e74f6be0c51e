"""The largest column and pair of weighted Kronecker products: attribute by attribute, without their columns.

A column's norm is a sum of products, one factor an attribute; so is the distance of two. Both are maximised over
the cells of each attribute that could decide (:mod:`.sums_of_products`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..errors import Unsupported
from .arrays import INT64_LIMIT, integer_matmul, joint_classes, representatives
from .columns import Blocks, Bound, largest_pair, whole_weights
from .kron import Kron, unlifted
from .operator import Centring, Dense, Identity, LinearOperator, Partition, Sparse, Total
from .sums_of_products import (
    CORNERS,
    Choices,
    Maximum,
    corners,
    count_corners,
    extreme,
    largest_corner,
    maximise,
    undominated,
)

VECTOR_LIMIT = 2**26  # cells for which a number each may be held
_PAIR_CLASSES = 512  # classes of an attribute up to which all its pairs are listed
_LISTED = 64  # classes whose pairs are listed beyond that, beside a bound on the others
_SMALL_PRODUCT = 1024  # classes up to which a whole product is written out for L1 distances
_BOXED_CLASSES = 4096  # classes whose inner products are all held at once
_COMBINED = 2**10  # cells of several attributes whose pairs are compared in combination where signs differ
_OVERLAP_ENTRIES = 2**24  # entries of a factor's columns that may be compared pair by pair
_VALUE_PAIRS = 2**16  # distinct pairs of values that an exact L1 distance may sum over


# products, attribute by attribute ------------------------------------------------------------------
def largest_in_products(blocks: Blocks, p: int, *, replace: bool) -> Bound | None:
    """The largest column or pair of weighted products over the same attributes; ``None`` for other blocks.

    A column of a product is a product of columns, so its power sum is the product of the factors' power sums:

        add-remove   sum_b w_b  prod_i  ||f_bi e_j||_p^p
        replace      sum_b w_b (prod_i a_bi + prod_i b_bi - 2 prod_i c_bi)

    with ``a = ||f e_j||^2``, ``b = ||f e_k||^2`` and ``c = <f e_j, f e_k>`` for a pair of cells ``(j, k)`` of
    attribute ``i``. Both are sums of products, maximised over one choice per attribute (``sums_of_products.py``).
    The same holds for the L1 distance of 0/1 columns, which is their squared L2 distance.

    For the L1 distance of other columns ``c = sum_r min(|u_r|, |v_r|)`` over entries of one sign gives an upper
    bound, because a product of minima is at most the minimum of products; choices that reach it are evaluated
    exactly.
    """
    sizes = {op.sizes if isinstance(op, Kron) else None for op, _ in blocks}
    if len(sizes) > 1 or sizes == {None}:
        if len(blocks) > 1 and blocks[0][0].shape[1] > VECTOR_LIMIT:
            raise Unsupported(
                f"the sensitivity of blocks of different structure over {blocks[0][0].shape[1]} cells needs a number "
                "per cell: write every block as a Kron over the same attributes"
            )
        return None
    if replace:  # two records meet a total alike: its weight would only loosen bounds
        blocks = [(op, weight) for op, weight in blocks if not _is_total(op)]
        if not blocks:
            return Fraction(0), True
    products = [tuple(op.ops) for op, _ in blocks if isinstance(op, Kron)]
    attributes = [
        AxisFactors(tuple(product[axis] for product in products)) for axis in range(len(products[0]))
    ]
    if not replace:
        return _largest(blocks, attributes, p)
    telling = [axis for axis, attribute in enumerate(attributes) if len(attribute.first) > 1]
    if not telling:
        return Fraction(0), True
    if len(telling) == 1:  # the other factors multiply every distance by a constant
        others = attributes[: telling[0]] + attributes[telling[0] + 1 :]
        power, is_exact = largest_pair(_one_attribute(blocks, attributes, telling[0], p), p)
        return power * _rounding(others, len(blocks)), is_exact and all(other.integer for other in others)
    binary = all(factor.binary for attribute in attributes for factor in attribute.distinct)
    if p == 1 and not binary and _is_small(blocks, attributes):
        return largest_pair(blocks, p)
    return _largest_difference(blocks, attributes, p, overlap=p == 1 and not binary)


@dataclass(frozen=True)
class AxisFactors:
    """The factors that the products have on one attribute."""

    factors: tuple[LinearOperator, ...]

    @cached_property
    def distinct(self) -> list[LinearOperator]:
        """Each different factor once."""
        return list(dict.fromkeys(self.factors))

    @cached_property
    def column_of(self) -> np.ndarray:
        """For each product, the position of its factor in ``distinct``."""
        position = {factor: index for index, factor in enumerate(self.distinct)}
        return np.array([position[factor] for factor in self.factors])

    @cached_property
    def first(self) -> np.ndarray:
        """One cell for each class of cells that no factor tells apart."""
        return representatives(joint_classes([factor.column_classes() for factor in self.distinct]))

    @cached_property
    def integer(self) -> bool:
        return all(factor.integer for factor in self.distinct)

    def norms(self, p: int) -> np.ndarray:
        """Power sums ``(cells, factors)`` of the columns ``first``."""
        return _table([factor.column_norms(p)[self.first] for factor in self.distinct], integer=self.integer)

    def columns(self, p: int) -> Choices:
        """One choice per different row of power sums."""
        norms = self.norms(p)
        cells = np.repeat(self.first[:, None], 2, axis=1)
        choices = Choices(norms, np.ones(len(norms), dtype=bool), cells)
        return choices[undominated(choices, np.ones(norms.shape[1], dtype=np.int64), [])]

    def pairs(self, p: int, *, overlap: bool) -> Choices:
        """Choices ``[a, b, c]`` for pairs of cells; all pairs, or some and a bound on the others."""
        norms = self.norms(p)
        listed = np.arange(len(norms))
        if len(listed) > _PAIR_CLASSES:
            largest = np.argsort(-norms.astype(np.float64).sum(axis=1), kind="stable")[: _LISTED // 2]
            spread = np.linspace(0, len(listed) - 1, _LISTED // 2).astype(np.int64)
            listed = np.unique(np.concatenate([largest, spread]))
        cells = self.first[listed]
        shared = [_overlaps(f, cells) if overlap else inner_products(f, cells) for f in self.distinct]
        one, other = np.repeat(np.arange(len(cells)), len(cells)), np.tile(np.arange(len(cells)), len(cells))
        attained = (one == other) if overlap else np.ones(len(one), dtype=bool)
        choices = _pair_choices(norms[listed], shared, cells, (one, other), attained, integer=self.integer)
        return choices if len(listed) == len(norms) else _with_bound(choices, norms, self)

    def corners(self) -> Choices | None:
        """The pairs of cells, where few differ; otherwise the corners of a box that holds them all.

        None where both are too many: the corners double with every different factor.
        """
        if self._alike:  # one cell against itself, and against any other
            cells = self.first[:2]
            one, other = np.array([0, 0]), np.array([0, len(cells) - 1])
        else:
            cells = self.first
            one, other = np.indices((len(cells), len(cells)), dtype=np.int32).reshape(2, -1)
        norms = self.norms(2)[: len(cells)]
        shared = [inner_products(factor, cells) for factor in self.distinct]
        if len(cells) > _PAIR_CLASSES:
            return corners(norms, shared) if count_corners(shared) <= CORNERS else None
        pairs = _pair_choices(norms, shared, cells, (one, other), np.ones(len(one), dtype=bool), integer=True)
        pairs = pairs[_distinct(pairs)]
        return pairs if len(pairs) <= count_corners(shared) else corners(norms, shared)

    @property
    def boxed(self) -> bool:
        """Whether the inner products of all its columns can be held."""
        return self.integer and (self._alike or len(self.first) <= _BOXED_CLASSES)

    @cached_property
    def _alike(self) -> bool:
        """Whether every factor treats all classes of cells alike, so that one pair stands for all."""
        return all(_treats_alike(factor, len(self.first)) for factor in self.distinct)

    @property
    def is_unsigned(self) -> bool:
        """Whether no factor has a negative entry."""
        return all(_is_unsigned(factor) for factor in self.distinct)


def _largest(blocks: Blocks, attributes: Sequence[AxisFactors], p: int) -> Bound:
    if len(blocks) == 1 and all(attribute.integer for attribute in attributes):
        # One product: the largest column of each attribute decides by itself.
        return math.prod(int(attribute.norms(p).max()) for attribute in attributes) * blocks[0][1], True
    weights, unit = whole_weights(blocks)
    choices = [attribute.columns(p) for attribute in attributes]
    expanded = [_expand(c, a.column_of) for c, a in zip(choices, attributes, strict=True)]
    expanded, gains = _common_dtype(expanded, weights)
    found = maximise(expanded, gains)
    assert found is not None  # power sums are never negative
    return Fraction(found.value) * unit * _rounding(attributes, len(blocks)), found.is_exact


def _largest_difference(blocks: Blocks, attributes: Sequence[AxisFactors], p: int, *, overlap: bool) -> Bound:
    weights, unit = whole_weights(blocks)
    unsigned = overlap or all(attribute.is_unsigned for attribute in attributes)
    column, _ = _largest(blocks, attributes, p)
    bound = column * (2 if p == 1 or unsigned else 4)
    if not unsigned:
        signed = _largest_signed(attributes, weights)
        if signed is not None and (
            signed.is_exact or math.prod(len(a.first) for a in attributes) > _COMBINED
        ):
            power = int(signed.value) * unit
            return (power, signed.is_exact) if power <= bound else (bound, False)
        if any(len(attribute.first) > _PAIR_CLASSES for attribute in attributes):
            return bound, False
    choices = []
    for attribute in attributes:
        pairs = attribute.pairs(p, overlap=overlap)
        if unsigned:  # before expanding: few columns to compare
            directions = np.repeat(np.array([1, 1, -1]), len(attribute.distinct))
            pairs = pairs[undominated(pairs, directions, [])]
        pairs = pairs[_distinct(pairs)]
        pairs = pairs[extreme(pairs)]
        shift = attribute.column_of[:, None] + len(attribute.distinct) * np.arange(3)
        choices.append(_expand(pairs, shift.T.reshape(-1)))
    gains = [*weights, *weights, *(-2 * weight for weight in weights)]
    choices, coefficients = _common_dtype(choices, gains)
    exact = all(attribute.integer for attribute in attributes)
    evaluate = (lambda cells: _l1_distance(attributes, weights, cells)) if overlap and exact else None
    found = maximise(choices, coefficients, evaluate)
    if found is None:
        return bound, False
    # Of inner products, relative to the columns
    error = 4 * column * (_rounding(attributes, len(blocks)) - 1)
    power = Fraction(found.value) * unit + error
    return (power, found.is_exact) if power <= bound else (bound, False)


def _largest_signed(attributes: Sequence[AxisFactors], weights: Sequence[int]) -> Maximum | None:
    """The largest distance over the corners of each attribute, exact where they are pairs.

    None for fractions, and where there are too many corners.
    """
    if not all(attribute.boxed for attribute in attributes):
        return None
    choices = [choice for attribute in attributes if (choice := attribute.corners()) is not None]
    if len(choices) < len(attributes):
        return None
    return largest_corner(choices, [attribute.column_of for attribute in attributes], weights)


def _rounding(attributes: Sequence[AxisFactors], products: int) -> Fraction:
    """How much a sum of products of power sums may gain by rounding: 1 for integers."""
    if all(attribute.integer for attribute in attributes):
        return Fraction(1)
    rows = sum(max(factor.shape[0] for factor in attribute.distinct) + 8 for attribute in attributes)
    return 1 + Fraction(rows + products + 64, 2**50)


def _pair_choices(
    norms: np.ndarray,
    shared: Sequence[np.ndarray],
    cells: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    attained: np.ndarray,
    *,
    integer: bool,
) -> Choices:
    """Choices ``[a, b, c]`` for pairs of the cells: norms (cells, factors), shared (cells, cells) by factor."""
    one, other = pairs
    values = [norms[one], norms[other], _table([c[one, other] for c in shared], integer=integer)]
    return Choices(np.concatenate(values, axis=1), attained, np.stack([cells[one], cells[other]], axis=1))


def _table(columns: list[np.ndarray], *, integer: bool) -> np.ndarray:
    """Columns side by side: int64, Python integers, or floats."""
    if not integer:
        return np.stack([column.astype(np.float64) for column in columns], axis=1)
    whole = object if any(column.dtype == object for column in columns) else np.int64
    return np.stack([column.astype(whole) for column in columns], axis=1)


def _expand(choices: Choices, columns: np.ndarray) -> Choices:
    return Choices(choices.values[:, columns], choices.attained, choices.cells)


def _common_dtype(choices: list[Choices], gains: Sequence[int]) -> tuple[list[Choices], np.ndarray]:
    """int64 where every sum fits, Python integers beyond, floats where a factor holds fractions."""
    if any(member.values.dtype == np.float64 for member in choices):
        kind: type = np.float64
    else:
        bound = [abs(gain) for gain in gains]
        for member in choices:
            bound = [
                b * max(1, int(v)) for b, v in zip(bound, np.abs(member.values).max(axis=0), strict=True)
            ]
        kind = np.int64 if 2 * sum(bound) < INT64_LIMIT else object
    members = [Choices(m.values.astype(kind), m.attained, m.cells) for m in choices]
    return members, np.array(gains, dtype=object).astype(kind)


def _one_attribute(blocks: Blocks, attributes: Sequence[AxisFactors], axis: int, p: int) -> Blocks:
    joined: dict[LinearOperator, Fraction] = {}
    for position, (_, weight) in enumerate(blocks):
        share = weight
        for other, attribute in enumerate(attributes):
            if other != axis:
                norm = attribute.norms(p)[0, attribute.column_of[position]]
                share *= Fraction(norm if isinstance(norm, (int, float)) else norm.item())
        factor = attributes[axis].factors[position]
        joined[factor] = joined.get(factor, Fraction(0)) + share
    return list(joined.items())


def _is_small(blocks: Blocks, attributes: Sequence[AxisFactors]) -> bool:
    classes = math.prod(len(attribute.first) for attribute in attributes)
    rows = sum(op.shape[0] for op, _ in blocks)
    cells = blocks[0][0].shape[1]
    fits = all(op.abs_entry_max() * rows < 2**62 for op, _ in blocks)  # else in Python integers, slowly
    work = rows * classes**2
    return classes <= _SMALL_PRODUCT and cells <= 64 * _SMALL_PRODUCT and work <= 2**32 and fits


def _is_total(op: LinearOperator) -> bool:
    return isinstance(op, Kron) and all(isinstance(factor, Total) for factor in op.ops)


def _treats_alike(factor: LinearOperator, classes: int) -> bool:
    """Whether the matrix, over so many classes of cells, is Total, Identity or Centring."""
    rows, merge = unlifted(factor)
    if merge is not None:
        return isinstance(rows, Centring) and rows.n == classes
    if isinstance(factor, Partition):
        return factor.shape[0] == classes and factor.classes.min() >= 0 and bool(factor.sizes.all())
    return isinstance(factor, (Total, Identity, Centring))


def _distinct(choices: Choices) -> np.ndarray:
    """Indices of the choices of different numbers."""
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in choices.values.T]
    return representatives(joint_classes([choices.attained.astype(np.int64), *columns]))


def _is_unsigned(op: LinearOperator) -> bool:
    if isinstance(op, Dense):
        return bool(op.array.min() >= 0)
    if isinstance(op, Sparse):
        return op.matrix.nnz == 0 or bool(op.matrix.data.min() >= 0)
    return op.binary


def inner_products(factor: LinearOperator, cells: np.ndarray) -> np.ndarray:
    """``<f e_j, f e_k>`` for all pairs of the cells."""
    if not factor.integer:
        columns = factor.columns(cells)
        return columns.T @ columns
    norms = factor.column_norms(2)[cells]
    if norms.dtype == object:
        columns = factor.columns(cells).astype(object)
        return columns.T @ columns
    if factor.shape[0] * len(cells) <= _OVERLAP_ENTRIES:
        columns = factor.columns(cells)
        return integer_matmul(np.ascontiguousarray(columns.T), columns)
    gram = factor.gram()
    return np.concatenate([gram.columns(cells[j : j + 1])[cells] for j in range(len(cells))], axis=1)


def _overlaps(factor: LinearOperator, cells: np.ndarray) -> np.ndarray:
    """``sum_r min(|u_r|, |v_r|)`` over the rows where two columns have one sign; 0 if that takes too long."""
    if factor.binary:
        return inner_products(factor, cells)
    shared = np.zeros((len(cells), len(cells)), dtype=np.int64 if factor.integer else np.float64)
    if factor.shape[0] * len(cells) ** 2 <= 2**30:
        columns = factor.columns(cells)
        positive, negative = np.maximum(columns, 0), np.maximum(-columns, 0)
        for j in range(len(cells)):
            for part in (positive, negative):
                shared[j] += np.minimum(part[:, j : j + 1], part).sum(axis=0)
    norms = factor.column_norms(1)[cells]
    if norms.dtype == object:
        return np.zeros(shared.shape, dtype=object) + np.diag(norms)
    np.fill_diagonal(shared, norms)
    return shared


def _with_bound(choices: Choices, norms: np.ndarray, attribute: AxisFactors) -> Choices:
    """Pairs left out are bounded by the largest columns sharing nothing; equal cells are all listed.

    Under a factor whose columns are all equal, such as a total, two cells share the whole column.
    """
    largest = norms.max(axis=0)
    alike = np.array([not factor.column_classes().any() for factor in attribute.distinct])
    bound = np.concatenate([largest, largest, np.where(alike, largest, largest * 0)])[None]
    some = representatives(joint_classes([np.unique(column, return_inverse=True)[1] for column in norms.T]))
    norms, first = norms[some], attribute.first[some]
    same = np.concatenate([norms, norms, norms], axis=1)
    values = np.concatenate([choices.values, same, bound])
    attained = np.concatenate([choices.attained, np.ones(len(norms), dtype=bool), [False]])
    cells = np.concatenate([choices.cells, np.repeat(first[:, None], 2, axis=1), [[-1, -1]]])
    return Choices(values, attained, cells)


def _l1_distance(attributes: Sequence[AxisFactors], weights: Sequence[int], cells: np.ndarray) -> int | None:
    """``sum_b w_b ||(x)_i u_bi - (x)_i v_bi||_1`` exactly, from the pairs of values that occur together."""
    total = 0
    for block, weight in enumerate(weights):
        pairs: Counter[tuple[int, int]] = Counter({(1, 1): 1})
        for attribute, chosen in zip(attributes, cells, strict=True):
            values, counts = np.unique(attribute.factors[block].columns(chosen), axis=0, return_counts=True)
            if len(pairs) * len(values) > _VALUE_PAIRS:
                return None
            combined: Counter[tuple[int, int]] = Counter()
            for (x, y), times in pairs.items():
                for (u, v), count in zip(values.tolist(), counts.tolist(), strict=True):
                    combined[x * u, y * v] += times * count
            pairs = combined
        total += weight * sum(abs(x - y) * times for (x, y), times in pairs.items())
    return total
