"""Which factors of a Kronecker product share a trip through memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from .blas import SMALL_MATRIX
from .explicit import Dense
from .operator import LinearOperator
from .simple import Identity

RUN = 64  # numbers that lie together in memory in a block, at least
LARGE = 32  # above this a dense factor is a product of matrices of its own
_GROUP = 2**10  # numbers along the axes that share a trip
_MERGE = 32  # rows and columns up to which neighbouring factors are multiplied out


@dataclass(frozen=True)
class Trip:
    """Factors on neighbouring axes, applied together; no factors where the axes are left alone."""

    ops: tuple[LinearOperator, ...]
    size: int

    @property
    def after(self) -> int:
        """The size of the group once the factors are applied."""
        return math.prod(op.shape[0] for op in self.ops) if self.ops else self.size

    @property
    def extent(self) -> int:
        """The most numbers along the group at any time."""
        return math.prod(max(op.shape) for op in self.ops)

    @property
    def is_dense(self) -> bool:
        """Whether every factor is a written-out matrix."""
        return all(isinstance(op, Dense) for op in self.ops)

    @property
    def is_large(self) -> bool:
        """Whether the trip is one large product of matrices, BLAS's own work."""
        return len(self.ops) == 1 and isinstance(self.ops[0], Dense) and max(self.ops[0].shape) > LARGE

    @property
    def uses_blas_threads(self) -> bool:
        """Whether a factor contains a matrix so large that BLAS may start threads."""
        return any(has_large_matrix(op) for op in self.ops)

    def apply(self, block: np.ndarray) -> np.ndarray:
        """All factors on a block ``(left, size, right)``; those that shrink it first."""
        left, _, right = block.shape
        if len(self.ops) == 1:  # reads the block where it lies
            return self.ops[0].along(block)
        dims = [op.shape[1] for op in self.ops]
        for axis in sorted(range(len(dims)), key=lambda i: self.ops[i].shape[0] / dims[i]):
            op = self.ops[axis]
            shape = (left * math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :]) * right)
            block = op.along(np.ascontiguousarray(block).reshape(shape))
            dims[axis] = op.shape[0]
        return block.reshape(left, self.after, right)


def plan(ops: Sequence[LinearOperator], *, merge: bool) -> list[Trip]:
    """The trips for ``ops``, in the order of their axes. ``merge`` allows factors to be multiplied out."""
    factors = _merged(ops) if merge else list(ops)
    trips: list[Trip] = []
    group: list[LinearOperator] = []
    for op in reversed(factors):
        if group and not _joins(op, group):
            trips.append(_trip(group))
            group = []
        group.insert(0, op)
    trips.append(_trip(group))
    return trips[::-1]


def _trip(group: list[LinearOperator]) -> Trip:
    size = math.prod(op.shape[1] for op in group)
    if all(isinstance(op, Identity) for op in group):
        return Trip((), size)
    if any(isinstance(op, Dense) for op in group) and all(max(op.shape) <= LARGE for op in group):
        group = [Dense(op.dense()) for op in group]
    return Trip(tuple(group), size)


def _joins(op: LinearOperator, group: list[LinearOperator]) -> bool:
    """Identities keep to themselves, large matrices stay alone, and a group stays small."""
    if isinstance(op, Identity) or isinstance(group[0], Identity):
        return isinstance(op, Identity) and isinstance(group[0], Identity)
    if any(isinstance(member, Dense) and max(member.shape) > LARGE for member in (op, group[0])):
        return False
    return math.prod(max(member.shape) for member in [op, *group]) <= _GROUP


def _merged(ops: Sequence[LinearOperator]) -> list[LinearOperator]:
    """Neighbouring small factors multiplied out: one product of 32 x 32 beats five of 2 x 2."""
    merged: list[LinearOperator] = []
    for op in ops:
        if merged and isinstance(op, Identity) and isinstance(merged[-1], Identity):
            merged[-1] = Identity(merged[-1].n * op.n)
        elif merged and _merge(merged[-1], op):
            merged[-1] = Dense(np.kron(merged[-1].dense(), op.dense()))
        else:
            merged.append(op)
    return merged


def _merge(a: LinearOperator, b: LinearOperator) -> bool:
    if isinstance(a, Identity) or isinstance(b, Identity):
        return False
    return max(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]) <= _MERGE


def has_large_matrix(op: LinearOperator) -> bool:
    """Whether a matrix inside is so large that BLAS may start threads of its own."""
    if isinstance(op, Dense):
        return op.shape[0] * op.shape[1] > SMALL_MATRIX
    parts = [getattr(op, field.name) for field in fields(op)] if hasattr(op, "__dataclass_fields__") else []  # type: ignore[arg-type]
    return any(has_large_matrix(part) for part in _operators(parts))


def _operators(value: object) -> list[LinearOperator]:
    if isinstance(value, LinearOperator):
        return [value]
    if isinstance(value, (tuple, list)):
        return [op for part in value for op in _operators(part)]
    return []
