"""Multiplying by a Kronecker product whose vectors fill the memory: slice by slice, then across the slices in place.

Divide the factors into a head H and a tail T, so that ``A = H (x) T``, and see the vector as a matrix X with one
row for each column of H. Then ``A x`` is ``H (X T')``:

* rows of X are read some at a time, and T is applied to them: what that needs beside the rows is small;
* H is applied in place, some columns at a time, because no column of the result depends on another's.

Beyond the vector that is read and the result nothing of their size exists; where the rows are made as they are asked
for (from the list of cells that are not empty), only the result. A head that shrinks what the tail has not
shrunk is applied to some rows at a time, and its results are added up.

Reference: HDMM (McKenna, Miklau, Hay, Machanavajjhala), Algorithm 1, which keeps the whole vector twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .explicit import Dense
from .kron import Kron
from .kron_matvec import cores
from .kron_plan import has_large_matrix
from .operator import LinearOperator
from .simple import Identity

_SLICE = 2**24  # numbers that the tail is applied to at once
_BLOCK = 2**17  # numbers that the head is applied to at once, on each thread
_BLAS_BLOCK = 2**22  # the same where BLAS has threads of its own

Rows = Callable[[int, int], np.ndarray]
"""``rows(start, stop)``: rows of X, ``(stop - start, columns of T)``, int64 or float64."""


def divided(product: Kron) -> tuple[Kron, Kron] | None:
    """Head and tail, whose product is the product: the least head that leaves a tail that fits a slice.

    None where no tail is small enough.
    """
    factors = list(product.flat())
    for count in range(1, len(factors)):
        tail = Kron(factors[count:])
        if max(tail.shape) <= _SLICE:
            return Kron(factors[:count]), tail
    return None


def in_slices(product: Kron, x: np.ndarray, kind: np.dtype) -> np.ndarray | None:
    """``A x`` for a vector whose numbers are taken as ``kind``; None where there is no way to divide the product."""
    parts = divided(product)
    if parts is None:
        return None
    vector = x.reshape(parts[0].shape[1], -1)
    return multiply_slices(*parts, lambda start, stop: vector[start:stop].astype(kind, copy=False))


def multiply_slices(head: Kron, tail: Kron, rows: Rows) -> np.ndarray:
    """``(head (x) tail) x``, flat: int64 where both and the rows are integers, otherwise float64.

    Who calls has made sure that integers stay below 2^63.
    """
    (m, n), width = head.shape, tail.shape[0]
    whole = head.integer and tail.integer and rows(0, 1).dtype == np.int64
    kind = np.dtype(np.int64 if whole else np.float64)
    if 4 * n <= 5 * m or n * width <= 4 * _SLICE:
        out = np.empty((max(m, n), width), dtype=kind)
        _fill(out[:n], tail, rows, 0)
        if not all(isinstance(op, Identity) for op in head.ops):
            _across(head, out[:n], out[:m], add=False)
        return (out[:m] if 4 * n <= 5 * m else out[:m].copy()).reshape(-1)
    out = np.zeros((m, width), dtype=kind)
    step = max(1, max(m * width // 2, 2 * _SLICE) // width)  # rows that take half of the result, or little
    part = np.empty((min(step, n), width), dtype=kind)
    for start in range(0, n, step):
        stop = min(start + step, n)
        _fill(part[: stop - start], tail, rows, start)
        _across(Dense(head.columns(np.arange(start, stop))), part[: stop - start], out, add=True)
    return out.reshape(-1)


def _fill(out: np.ndarray, tail: LinearOperator, rows: Rows, first: int) -> None:
    """The tail on each row."""
    step = max(1, _SLICE // max(tail.shape))
    for start in range(0, len(out), step):
        stop = min(start + step, len(out))
        source = rows(first + start, first + stop)
        if out.dtype != np.int64:
            source = source.astype(np.float64, copy=False)
        out[start:stop] = tail.along(source[:, :, None])[:, :, 0]


def _across(head: LinearOperator, source: np.ndarray, target: np.ndarray, *, add: bool) -> None:
    """``target = head source``, or added to it; ``target`` may lie where ``source`` lies."""
    on_blas = has_large_matrix(head)
    width = max(8, (_BLAS_BLOCK if on_blas else _BLOCK) // max(head.shape))

    def work(start: int) -> None:
        columns = slice(start, start + width)
        done = head.matmat(np.ascontiguousarray(source[:, columns]))
        if add:
            target[:, columns] += done
        else:
            target[:, columns] = done

    starts = range(0, source.shape[1], width)
    threads = 1 if on_blas else cores()
    if threads == 1 or len(starts) == 1:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(_each, _shares(starts, 4 * threads), [work] * (4 * threads)):
            pass


def _each(starts: range, work: Callable[[int], None]) -> None:
    for start in starts:
        work(start)


def _shares(starts: range, count: int) -> Iterator[range]:
    """Neighbouring starts together, in so many shares."""
    share = -(-len(starts) // count)
    return (starts[i : i + share] for i in range(0, len(starts), share))
