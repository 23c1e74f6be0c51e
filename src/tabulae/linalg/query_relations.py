"""What exact sums say about other sums: every relation between the rows of W that C makes certain."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .exact import largest_abs
from .integer_echelon import IntegerEchelon
from .integer_system import (
    IntegerSystem,
    Relation,
    multiply,
    relations,
)
from .integers import (
    SparseRows,
    narrow,
    product,
)

_BLOCK = 256
_LARGEST = 2**16  # of a coefficient for which whole steps are looked for among the answers themselves
_FARTHEST = 64  # root of the sum of squares of a relation: how far rounding moves a row that others determine


class QueryRelations:
    """A basis of ``{k : k'W in the row space of C}``, for integer W (m x n) and independent rows C (r x n).

    It has two parts: ``own``, how kept rows of W make the others; and ``K W_kept = B C`` (``matrix`` and ``known``),
    one row for every row of C that W and earlier rows of C determine. So answers t to W belong to some real z with
    ``C z = v`` exactly where they meet ``own`` and ``K t_kept = B v``.

    >>> C, W = (scipy.sparse.csr_array(a) for a in ([[1, 1, 1]], [[1, 1, 0], [0, 0, 1], [0, 0, 2]]))
    >>> found = QueryRelations(C, W)
    >>> found.kept.tolist(), found.own[0].rows.tolist(), found.matrix.tolist(), found.known.tolist()
    ([0, 1], [1], [[1, 1]], [[1]])
    """

    def __init__(self, exact: SparseRows, queries: SparseRows) -> None:
        count = int(queries.shape[0])
        both: SparseRows = scipy.sparse.csr_array(scipy.sparse.vstack([queries, exact]))
        echelon = IntegerEchelon(int(queries.shape[1]))
        echelon.extend(both)
        every = np.array(echelon.kept, dtype=np.intp)
        absent = np.setdiff1d(np.arange(both.shape[0]), every)
        self.rows, self.kept = count, every[every < count]
        self.own: tuple[Relation, ...] = tuple(relations(echelon, both, absent[absent < count], every))
        place = np.full(count, -1)
        place[self.kept] = np.arange(len(self.kept))
        found = list(relations(echelon, both, absent[absent >= count], every))
        matrix = np.zeros((len(found), len(self.kept)), dtype=object)
        known = np.zeros((len(found), int(exact.shape[0])), dtype=object)
        for i, relation in enumerate(found):
            asked = relation.rows < count
            matrix[i, place[relation.rows[asked]]] = relation.coefficients[asked]
            known[i, relation.rows[~asked] - count] = -relation.coefficients[~asked]
            known[i, relation.row - count] = relation.multiplier
        self.matrix, self.known = narrow(matrix), narrow(known)
        self.free = len(every) - int(exact.shape[0])

    @cached_property
    def determined(self) -> np.ndarray:
        """Which rows of W lie in the row space of C, (m,) bool."""
        echelon = IntegerEchelon(len(self.kept))
        echelon.extend(self.matrix)
        found = np.zeros(self.rows, dtype=bool)
        alone = np.count_nonzero(echelon.reduced, axis=1) == 1
        found[self.kept[np.array(echelon.pivots, dtype=np.intp)[alone]]] = True
        for low in range(0, len(self.own), _BLOCK):
            part = self.own[low : low + _BLOCK]
            rows = np.zeros((len(part), len(self.kept)), dtype=object)
            for i, relation in enumerate(part):
                rows[i, np.searchsorted(self.kept, relation.rows)] = relation.coefficients
            found[[r.row for r in part]] = ~np.any(echelon.remainder(narrow(rows)) != 0, axis=1)
        return found

    @cached_property
    def are_small(self) -> bool:
        """Whether :meth:`settle` applies: whole and small coefficients make every other row from those kept."""
        return largest_abs(self.matrix) <= _LARGEST and all(
            relation.multiplier == 1
            and largest_abs(relation.coefficients) <= _FARTHEST
            and int(relation.coefficients @ relation.coefficients) <= _FARTHEST**2
            for relation in self.own
        )

    @cached_property
    def _system(self) -> IntegerSystem:
        return IntegerSystem(self.matrix)

    def settle(self, scaled: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        """Whole t' near t (m,) that meets every relation for exact sums v (r,), (m,) int64; see :attr:`are_small`.

        Raises :class:`~tabulae.errors.InvalidArgument` where no whole numbers do.
        """
        answers = scaled.astype(object)
        answers[self.kept] = self._system.settle(scaled[self.kept], product(self.known, fixed))
        rows = [relation.row for relation in self.own]
        sizes = [relation.rows.size for relation in self.own]
        if rows:
            made = scipy.sparse.csr_array(
                (
                    np.concatenate([relation.coefficients for relation in self.own]),
                    np.concatenate([relation.rows for relation in self.own]),
                    np.concatenate([[0], np.cumsum(sizes)]),
                ),
                shape=(len(rows), self.rows),
            )
            answers[rows] = multiply(made, narrow(answers))
        return whole_answers(answers)


def whole_answers(answers: np.ndarray) -> np.ndarray:
    """The answers as int64."""
    if largest_abs(answers) >= 2**63:
        raise InvalidArgument("the counts do not fit 64-bit integers on this grid: use a coarser one")
    return answers.astype(np.int64)
