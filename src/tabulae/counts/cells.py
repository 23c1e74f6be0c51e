"""Counts as the list of the cells that are not empty: for domains that cannot be written out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..domain import Domain
from ..errors import Unsupported
from ..linalg import (
    Contrasts,
    Dense,
    Kron,
    LinearOperator,
    Partition,
    Product,
    Scaled,
    Stack,
    Sum,
)
from ..linalg.merge import representatives
from .integers import (
    BLOCK,
    VECTOR_LIMIT,
    Integers,
    added_up,
    check_bound,
    exact_sum,
)
from .keys import groups_of
from .slices import CELL_LIMIT, answer_in_slices
from .vector import Vector

_MOST_FACTOR_ENTRIES = 2**24


@dataclass(frozen=True, repr=False, eq=False)
class Cells:
    """The cells that are not empty, in C order: their keys (see `keys`), and how many records each has."""

    keys: tuple[Integers, ...]
    counts: Integers

    @classmethod
    def of(cls, domain: Domain, keys: tuple[Integers, ...], people: Integers | None) -> Cells:
        """Sort, add up what falls in one cell, and drop the empty ones."""
        counts = np.ones(keys[0].size, dtype=np.int64) if people is None else people
        order = np.lexsort(keys[::-1])
        order = order[counts[order] > 0]
        keys = tuple(key[order] for key in keys)
        first = np.ones(order.size, dtype=bool)
        if order.size:
            first[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(counts[order], starts) if order.size else counts[:0]
        return cls(tuple(key[starts] for key in keys), sums)

    def total(self) -> int:
        """The number of records."""
        return exact_sum(self.counts)

    def blocks(self) -> Iterator[tuple[tuple[Integers, ...], Integers]]:
        """Keys and counts of the cells that are not empty, in C order, some at a time."""
        for start in range(0, self.counts.size, BLOCK):
            part = slice(start, start + BLOCK)
            yield tuple(key[part] for key in self.keys), self.counts[part]

    def answer(self, domain: Domain, op: LinearOperator) -> tuple[Integers, int]:
        """The answers ``A x``, and a bound on their size, below 2^62."""
        if isinstance(op, Scaled) and isinstance(op.factor, int):
            values, bound = self.answer(domain, op.op)
            bound = check_bound(op, bound * abs(op.factor))
            return values * op.factor, bound
        if isinstance(op, Stack):
            parts = [self.answer(domain, part) for part in op.ops]
            return np.concatenate([values for values, _ in parts]), max(bound for _, bound in parts)
        if isinstance(op, Sum):
            terms = [(int(c), self.answer(domain, part)) for c, part in op.terms]
            bound = check_bound(op, sum(abs(c) * bound for c, (_, bound) in terms))
            return sum((c * values for c, (values, _) in terms), np.zeros(op.shape[0], np.int64)), bound
        if isinstance(op, Contrasts):
            op = op.composed
        if isinstance(op, Product):
            values, _ = self.answer(domain, op.right)
            bound = check_bound(op, op.left.bound(values))
            return op.left @ values, bound
        return self._answer_product(domain, _factors(domain, op))

    def _answer_product(self, domain: Domain, factors: tuple[LinearOperator, ...]) -> tuple[Integers, int]:
        classes = {factor: factor.column_classes() for factor in dict.fromkeys(factors)}
        widths = [int(classes[factor].max()) + 1 for factor in factors]
        size = math.prod(widths)
        if size > CELL_LIMIT:
            raise _too_large(domain, widths, size)
        index = np.zeros(self.counts.size, dtype=np.int64)
        for axis, (factor, width) in enumerate(zip(factors, widths, strict=True)):
            if width > 1:
                index = index * width + classes[factor][self._codes(domain, axis)]
        merged = Kron(tuple(_merged(factor, classes[factor]) for factor in factors))
        if size > VECTOR_LIMIT:
            return answer_in_slices(merged, index, self.counts)
        return Vector(added_up(index, self.counts, size)).answer(domain, merged)

    def _codes(self, domain: Domain, axis: int) -> Integers:
        for key, group in zip(self.keys, groups_of(domain), strict=True):
            if axis in group:
                stride = math.prod(domain.shape[axis + 1 : group.stop])
                return key // stride % domain.shape[axis]
        raise AssertionError("every attribute is in a group")


def _factors(domain: Domain, op: LinearOperator) -> tuple[LinearOperator, ...]:
    factors = tuple(op.flat()) if isinstance(op, Kron) else (op,)
    if tuple(factor.shape[1] for factor in factors) != domain.shape:
        raise Unsupported(
            f"{domain!r} has {domain.size} cells, which are not written out, so that its counts answer Kron "
            f"products with one factor an attribute only (stacked, added or scaled): {op!r} is not one"
        )
    return factors


def _merged(factor: LinearOperator, classes: Integers) -> LinearOperator:
    """The matrix with one column of each class of equal ones."""
    first = representatives(classes)
    if first.size == factor.shape[1]:
        return factor
    if factor.shape[0] * first.size <= _MOST_FACTOR_ENTRIES:
        return Dense(factor.columns(first))
    chosen = np.full(factor.shape[1], -1, dtype=np.int64)
    chosen[first] = np.arange(first.size)
    return Product(factor, Partition(chosen, first.size).T)


def _too_large(domain: Domain, widths: list[int], size: int) -> Unsupported:
    widest = sorted(zip(widths, domain.names, strict=True), reverse=True)
    told = ", ".join(f"{name} ({count} classes)" for count, name in widest[:4] if count > 1)
    return Unsupported(
        f"a query over {told} needs a vector of {size:.3g} cells, after cells that it cannot tell apart are "
        f"merged; the limit is {CELL_LIMIT:.2g}. Ask for fewer of these attributes together, or choose a "
        'method that measures each table by itself, such as select = "workload"'
    )
