"""Multiplying by a Kronecker product, a few factors per trip through memory.

HDMM's Algorithm 1 applies one factor after the other, which reads and writes the whole vector once per
factor. Here neighbouring factors share a trip: the vector is seen as ``(left, group, right)``, where
``group`` holds the axes of a few factors, and is worked through in blocks that stay in the processor's
cache while all of the group's factors are applied. A large dense factor keeps a trip to itself, as one
product of matrices. Factors that shrink the vector go first. Beyond the input, two vectors exist at once.

Reference: HDMM (McKenna, Miklau, Hay, Machanavajjhala), Algorithm 1.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from .arrays import EXACT_FLOAT_LIMIT, SMALL_MATRIX, columns_on_one_thread
from .operator import Dense, Identity, LinearOperator

_RUN = 64  # numbers that lie together in memory in a block, at least
_LARGE = 32  # above this a dense factor is a product of matrices of its own
_GROUP = 2**10  # numbers along the axes that share a trip
_MERGE = 32  # rows and columns up to which neighbouring factors are multiplied out
_BLOCK = 2**16  # numbers in a block: half a megabyte
_THREADED = 2**19  # numbers from which several threads pay
_MOST_THREADS = 8  # memory is shared by all
_MANY_COLUMNS = 2**12  # columns from which BLAS divides a product well among its threads
_LONG_ROW = 96  # numbers in a row from which BLAS multiplies rows well
_SHORT = 512  # numbers that lie together from which sums along an axis work where they lie
_COLUMNS = 16  # columns from which a small matrix multiplies them efficiently


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
        return len(self.ops) == 1 and isinstance(self.ops[0], Dense) and max(self.ops[0].shape) > _LARGE

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
    if any(isinstance(op, Dense) for op in group) and all(max(op.shape) <= _LARGE for op in group):
        group = [Dense(op.dense()) for op in group]
    return Trip(tuple(group), size)


def _joins(op: LinearOperator, group: list[LinearOperator]) -> bool:
    """Identities keep to themselves, large matrices stay alone, and a group stays small."""
    if isinstance(op, Identity) or isinstance(group[0], Identity):
        return isinstance(op, Identity) and isinstance(group[0], Identity)
    if any(isinstance(member, Dense) and max(member.shape) > _LARGE for member in (op, group[0])):
        return False
    return math.prod(max(member.shape) for member in [op, *group]) <= _GROUP


def _merged(ops: Sequence[LinearOperator]) -> list[LinearOperator]:
    """Neighbouring small factors multiplied out: one product of 32 x 32 beats five of 2 x 2.

    In floats, as the product is multiplied: entries of several factors together may pass 64 bits.
    """
    merged: list[LinearOperator] = []
    for op in ops:
        if merged and isinstance(op, Identity) and isinstance(merged[-1], Identity):
            merged[-1] = Identity(merged[-1].n * op.n)
        elif merged and _merge(merged[-1], op):
            merged[-1] = Dense(np.kron(merged[-1].dense().astype(np.float64), op.dense()))
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
    parts = [getattr(op, field.name) for field in fields(op)] if is_dataclass(op) else []
    return any(has_large_matrix(part) for part in _operators(parts))


def _operators(value: object) -> list[LinearOperator]:
    if isinstance(value, LinearOperator):
        return [value]
    if isinstance(value, (tuple, list)):
        return [op for part in value for op in _operators(part)]
    return []


Block = tuple[slice, slice]
Step = Callable[[Trip, np.ndarray, np.ndarray, np.dtype], None]


def multiply(trips: Sequence[Trip], x: np.ndarray, *, bound: int | None) -> np.ndarray:
    """``A_1 (x) ... (x) A_d`` along the middle axis of ``x``: a new array ``(left, m, right)``.

    ``bound`` limits what appears on the way when integers are multiplied by integers; below ``2^53``
    the work is done in ``float64``, exactly, and factors may be multiplied out in the plan. ``None`` for floats.
    """
    left, _, right = x.shape
    native = bound is not None and bound >= EXACT_FLOAT_LIMIT
    work = np.dtype(np.int64 if native else np.float64)
    sizes = [left, *(trip.size for trip in trips), right]
    active = sorted(
        (i for i, trip in enumerate(trips, 1) if trip.ops), key=lambda i: trips[i - 1].after / sizes[i]
    )
    result = np.dtype(np.float64 if bound is None else np.int64)
    if not active:
        return x.astype(result)
    if x.size >= _BLOCK:
        _keep_freed_memory()
    source, memory = np.ascontiguousarray(x), Memory()
    for index in active:
        trip = trips[index - 1]
        outer, inner = math.prod(sizes[:index]), math.prod(sizes[index + 1 :])
        source = source.reshape(outer, trip.size, inner)
        source = travel(trip, source, memory, work, result if index == active[-1] else work)
        sizes[index] = trip.after
    return source.reshape(left, math.prod(sizes[1:-1]), right)


def _keep_freed_memory() -> None:
    """Let the allocator keep the blocks that are freed, instead of asking the system for each anew.

    glibc serves arrays from fresh pages until it has seen one as large freed; each new page costs more than
    the arithmetic done on it. The array here is never touched, so it costs nothing.
    """
    np.empty(2**21)


class Memory:
    """Two stretches of memory used in turn, so that no more than two vectors exist at once."""

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []

    def take(self, shape: tuple[int, ...], dtype: np.dtype, source: np.ndarray) -> np.ndarray:
        """Room for an array, apart from the memory that ``source`` lies in."""
        size = math.prod(shape)
        in_use = [held for held in self._held if np.may_share_memory(held, source)]
        spare = [held for held in self._held if not np.may_share_memory(held, source)]
        fits = spare and size <= len(spare[0]) <= 2 * size
        room = spare[0] if fits else None
        self._held, spare = in_use, []  # given up before anything new is asked for
        if room is None:
            room = np.empty(size, dtype=np.float64)
        self._held.append(room)
        return room[:size].view(dtype).reshape(shape)

    def release(self, source: np.ndarray) -> None:
        """Give up what ``source`` does not need."""
        self._held = [held for held in self._held if np.may_share_memory(held, source)]


def travel(trip: Trip, source: np.ndarray, memory: Memory, work: np.dtype, result: np.dtype) -> np.ndarray:
    """One trip over ``source`` ``(left, group, right)``; its result, in memory of its own."""
    left, _, right = source.shape
    in_place = trip.is_dense and source.dtype == result == work == np.float64  # for BLAS to read and write
    if in_place and _is_for_blas(trip, right):
        return _large(trip, source, memory.take((left, trip.after, right), result, source))
    direct = in_place and right >= _COLUMNS and not trip.uses_blas_threads
    blocks = list(_blocks(left, trip.extent, right, _block_size(trip, right), _run(trip)))
    if len(blocks) == 1:
        memory.release(source)
        return trip.apply(source.astype(work, copy=False)).astype(result, copy=False)
    target = memory.take((left, trip.after, right), result, source)
    turned = right < _run(trip) or (trip.uses_blas_threads and right < _MANY_COLUMNS)
    step = _dense_block if direct else _turned_block if turned else _plain_block
    threads = 1 if work != np.float64 or trip.uses_blas_threads else cores()
    if source.size + target.size < _THREADED or threads == 1:
        _work(step, trip, source, target, work, blocks)
        return target
    share = -(-len(blocks) // (4 * threads))
    with ThreadPoolExecutor(threads) as pool:
        parts = [blocks[start : start + share] for start in range(0, len(blocks), share)]
        for done in [pool.submit(_work, step, trip, source, target, work, part) for part in parts]:
            done.result()
    return target


def cores() -> int:
    """How many threads work through blocks at once."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _MOST_THREADS)


def _is_for_blas(trip: Trip, right: int) -> bool:
    """Whether BLAS does best with the whole trip where it lies, on threads of its own.

    Products of middling size are better cut up for our threads: BLAS's wait for each other at the end of each.
    """
    if right == 1:
        return trip.is_large and trip.size >= _LONG_ROW
    return trip.is_large and trip.uses_blas_threads and right >= _RUN


def _large(trip: Trip, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """A large matrix along an axis: as few and as large products as the layout allows."""
    matrix = _matrix(trip.ops[0])
    if source.shape[2] == 1:
        np.matmul(source[:, :, 0], matrix.T, out=target[:, :, 0])
    else:
        np.matmul(matrix, source, out=target)
    return target


def _matrix(op: LinearOperator) -> np.ndarray:
    assert isinstance(op, Dense)
    return op.floats


def _block_size(trip: Trip, right: int) -> int:
    """Matrices work best in the nearest cache; sums along an axis prefer long runs to near ones."""
    if trip.uses_blas_threads:
        return min(_MANY_COLUMNS * trip.extent, 64 * _BLOCK)
    if trip.is_dense:
        return _BLOCK
    if len(trip.ops) == 1 and right >= _run(trip):
        return min(max(2 * _BLOCK, 2048 * trip.extent), 16 * _BLOCK)
    return 4 * _BLOCK if trip.extent > 512 else 2 * _BLOCK


def _run(trip: Trip) -> int:
    """How many numbers should lie together for the trip's factors to work where the vector lies."""
    return _RUN if trip.is_dense else _SHORT


def _blocks(left: int, extent: int, right: int, size: int, long: int) -> Iterator[Block]:
    """Ranges of the left and of the right axis that make up blocks of about ``size`` numbers."""
    if right >= long and extent * right > size:
        run = max(size // extent, _RUN)
        run = -(-right // -(-right // run))
        for i in range(left):
            yield from ((slice(i, i + 1), slice(j, j + run)) for j in range(0, right, run))
        return
    step = max(1, size // (extent * right), _RUN // right)
    if right < _RUN and step * right % 64 == 0:
        step += 8  # rows whose distance is a power of two collide in cache
    yield from ((slice(i, i + step), slice(0, right)) for i in range(0, left, step))


def _work(
    step: Step, trip: Trip, source: np.ndarray, target: np.ndarray, work: np.dtype, blocks: list[Block]
) -> None:
    for rows, run in blocks:
        step(trip, source[rows, :, run], target[rows, :, run], work)


def _plain_block(trip: Trip, part: np.ndarray, target: np.ndarray, work: np.dtype) -> None:
    part = part.astype(work, copy=False)
    if len(trip.ops) == 1 and target.dtype == work:
        trip.ops[0].along_to(part, target)
    else:
        np.copyto(target, trip.apply(part), casting="unsafe")


def _turned_block(trip: Trip, part: np.ndarray, target: np.ndarray, work: np.dtype) -> None:
    """Few numbers lie together: bring the left axis inside, so that the factors work on long runs."""
    count, group, right = part.shape
    if right >= _COLUMNS:
        turned = np.empty((group, count, right), dtype=work)
        np.copyto(turned, part.transpose(1, 0, 2), casting="unsafe")
        done = trip.apply(turned.reshape(1, group, count * right)).reshape(-1, count, right)
        np.copyto(target, done.transpose(1, 0, 2), casting="unsafe")
        return
    padded = np.empty((count, group * right + 8), dtype=work)[:, :-8]  # a power of two would collide in cache
    np.copyto(padded, part.reshape(count, -1), casting="unsafe")
    turned = np.ascontiguousarray(padded.T).reshape(1, group, right * count)
    done = trip.apply(turned).reshape(-1, count)
    np.copyto(target.reshape(count, -1), done.T, casting="unsafe")


def _dense_block(trip: Trip, part: np.ndarray, target: np.ndarray, work: np.dtype) -> None:
    """Matrices only: BLAS reads the block where it lies, and the last product writes where it belongs."""
    rows, _, run = part.shape
    width = min(run, *(columns_on_one_thread(_matrix(op)) for op in trip.ops))
    whole = run - run % width
    if whole < run:
        _dense_block(trip, part[:, :, whole:], target[:, :, whole:], work)
        part, target = part[:, :, :whole], target[:, :, :whole]
    before, after, current = trip.size, 1, part
    for position in reversed(range(len(trip.ops))):
        matrix = _matrix(trip.ops[position])
        m, n = matrix.shape
        before //= n
        out = target if position == 0 else np.empty((rows, before * m * after, whole))
        source, product = (
            array.reshape(rows, before, size, after, whole // width, width).transpose(0, 1, 3, 4, 2, 5)
            for array, size in ((current, n), (out, m))
        )
        np.matmul(matrix, source, out=product)
        current, after = out, after * m
