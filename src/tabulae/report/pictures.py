"""A matrix of any size as a picture of bounded size."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .view import MatrixPicture

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
        attribute: the attribute whose values are the matrix's columns.
        matrix: anything with ``shape`` and ``@``.
        pixels: the largest number of pixels on a side.

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
