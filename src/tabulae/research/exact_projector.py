"""Rows of the projector onto the null space of an integer matrix, as exact fractions.

For an integer matrix C of m rows over N cells the projector onto null(C) is ``Pi_N = I - C' (C C')^+ C``. Its row j
is ``e_j - C' z`` for any solution z of ``C C' z = C e_j``, so that one linear system of m equations gives it. Rows of
C that share no cell, even through others, fall into pieces, and row j is zero outside the piece of j.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack
from scipy.sparse.csgraph import connected_components

from ..errors import Unsupported
from ..linalg import IntegerSystem, integer_product

LARGEST_PIECE = 512  # rows of C in one piece: the system is solved in integers that grow with it


class ExactProjector:
    """``Pi_N = I - C' (C C')^+ C`` for an integer matrix C (m x N), row by row in exact arithmetic.

    Args:
        invariants: C, int64; dependent and empty rows are allowed.

    Raises:
        Unsupported: when a row is asked for whose piece of C has more than ``LARGEST_PIECE`` rows, or entries whose
            sums of squares need more than 62 bits.

    >>> ExactProjector(csr_array(np.array([[1, 1, 1, 0]]))).row(0)
    {0: Fraction(2, 3), 1: Fraction(-1, 3), 2: Fraction(-1, 3)}
    """

    def __init__(self, invariants: csr_array) -> None:
        self._rows = csr_array(invariants)
        rows, columns = coo_array(self._rows).coords
        m, cells = (int(n) for n in invariants.shape or ())
        edges = coo_array((np.ones(rows.size), (rows, columns + m)), shape=(m + cells, m + cells))
        labels = connected_components(edges, directed=False)[1]
        self._piece_of_row, self._piece_of_cell = labels[:m], labels[m:]

    def row(self, cell: int) -> dict[int, Fraction]:
        """The entries of row ``cell`` that are not zero, by cell."""
        piece = self._piece_of_cell[cell]
        cells = np.flatnonzero(self._piece_of_cell == piece)
        rows = np.flatnonzero(self._piece_of_row == piece)
        if not rows.size:
            return {int(cell): Fraction(1)}
        if rows.size > LARGEST_PIECE:
            raise Unsupported(
                f"{rows.size} invariants hang together through shared cells, more than the {LARGEST_PIECE} that are "
                "solved exactly at an agent: state fewer invariants, or let one curator release with tabulae.select"
            )
        matrix = csr_array(self._rows[rows][:, cells])
        place = int(np.searchsorted(cells, cell))
        solution, denominator = _multipliers(matrix, place)
        numerators = -integer_product(matrix.T.toarray(), solution).astype(object)
        numerators[place] += denominator
        return {int(c): Fraction(n, denominator) for c, n in zip(cells, numerators, strict=True) if n}


def _multipliers(matrix: csr_array, place: int) -> tuple[NDArray[np.generic], int]:
    """Numerators and denominator of a solution of ``C C' z = C e_place``.

    C e_place lies in the column space of C C', which is symmetric: as one more row it depends on those of C C'.
    """
    largest = int(np.abs(matrix.data).max())
    if largest**2 * len(matrix.indices) >= 2**62:
        raise Unsupported("the invariants' entries are too large: divide each by its greatest common divisor")
    gram, right = (matrix @ matrix.T).toarray(), matrix[:, [place]].toarray().T
    relation = IntegerSystem(np.concatenate([gram, right])).dependent[-1]
    solution = np.zeros(len(gram), object)
    solution[relation.rows] = relation.coefficients
    return solution, int(relation.multiplier)


def stacked(matrices: list[NDArray[np.int64]], cells: int) -> csr_array:
    """One sparse matrix of all rows."""
    if not matrices:
        return csr_array((0, cells), dtype=np.int64)
    return csr_array(vstack([csr_array(m) for m in matrices]))
