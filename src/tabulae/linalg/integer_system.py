"""Linear equations in whole numbers: which rows say something new, how to meet them exactly, and by small steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument, Unsupported
from .arrays import largest_abs
from .integers import IntegerEchelon, SparseRows, content, integer_product, narrow, times

_WEIGHT = 2**10  # of the value that is to vanish, against the length of a vector
_LOVASZ = 0.99
_STEPS = 60  # swaps allowed, times the square of the number of vectors
_BLOCK = 256  # dependent rows that are expressed together
_LARGEST = 2**62
_LARGEST_ENTRY = 8  # of the eliminated form: how far a cell may answer to a free one
_MOST_HARD_ROWS = 96
_LARGEST_COEFFICIENT = 2**16  # for which whole steps are looked for among the answers themselves
_FARTHEST = 64  # root of the sum of squares of a relation: how far rounding moves a row that others determine


class ShortKernel:
    """Vectors ``v_1 .. v_m`` (rows of ``vectors``) that generate all whole vectors and bring H to steps.

    Floating point only chooses which whole multiples of one vector to take from another. Every such step keeps the
    lattice, so what is returned is exact whatever was chosen; the choice makes it short.

    ``H v`` is zero for the last ``m - h`` vectors, the kernel, which are short. For the first h, row i of H is
    ``divisors[i] > 0`` on ``v_i``, and zero on every later vector: so ``H d = g`` is solved from the first row on.

    Arguments:
        H: (h, m) whole numbers of full row rank.

    Reference: Lenstra, Lenstra, Lovasz 1982 (reduction); Havas, Majewski, Matthews 1998 (Hermite form by reduction).

    >>> kernel = ShortKernel(np.array([[2, 3, 5]]))
    >>> kernel.divisors, kernel.solve(np.array([4])).tolist()
    ([1], [1, -1, 1])
    """

    def __init__(self, H: np.ndarray) -> None:
        self._H = H
        kernel = np.eye(H.shape[1], dtype=np.int64)
        steps = []
        self.divisors: list[int] = []
        for row in H:
            kernel, value = _vanishing(kernel, integer_product(kernel, row))
            steps.append(kernel[-1])
            self.divisors.append(value)
            kernel = kernel[:-1]
        self._steps = np.array(steps)
        self._kernel = reduced(kernel) if len(kernel) else kernel

    @property
    def kernel(self) -> np.ndarray:
        """A short basis of all whole v with ``H v = 0``, (m - h, m)."""
        return self._kernel

    def remainders(self, targets: np.ndarray) -> np.ndarray:
        """For each column g of (h, count) whether ``H d = g`` has a whole solution: the first row that fails, or -1."""
        failing = np.full(targets.shape[1], -1)
        if max(self.divisors) == 1:
            return failing
        left, images = targets.astype(object), integer_product(self._steps, self._H.T)
        for i, divisor in enumerate(self.divisors):
            failing[(failing < 0) & (left[i] % divisor != 0)] = i
            left = left - np.multiply.outer(images[i], left[i] // divisor)
        return failing

    @cached_property
    def _planes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kernel and steps, the last step first, with their orthogonal factors: each head of it is a kernel of rows."""
        basis = np.concatenate([self._kernel, self._steps[::-1]])
        q, r = np.linalg.qr(basis.astype(np.float64).T)
        return basis, q, r

    def solve(self, target: np.ndarray) -> np.ndarray:
        """Whole d with ``H d = target``, made short; it must exist."""
        found, left = np.zeros(self._H.shape[1], dtype=np.int64), target
        for i, divisor in enumerate(self.divisors):
            count = int(left[i]) // divisor
            if count or i == len(self.divisors) - 1:
                found = narrow(found + times(self._steps[i], count))
                found = self._shortened(found, len(self._H) - i - 1)
                left = narrow(target.astype(object) - integer_product(self._H, found))
        return found

    def _shortened(self, vector: np.ndarray, later: int) -> np.ndarray:
        """The vector less multiples of the kernel and the last ``later`` steps, plane by plane (Babai 1986)."""
        basis, q, r = self._planes
        count = len(self._kernel) + later
        for _ in range(3):  # again where the numbers were too large for one pass
            place = q[:, :count].T @ vector.astype(np.float64)
            multiples = np.zeros(count)
            for i in range(count - 1, -1, -1):
                multiples[i] = math.floor(place[i] / r[i, i] + 0.5)
                place[:i] -= multiples[i] * r[:i, i]
            if not multiples.any():
                break
            part = integer_product(basis[:count].T, np.array([int(c) for c in multiples]))
            vector = narrow(vector.astype(object) - part)
        return vector


def _vanishing(vectors: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Vectors of the same lattice with value zero but for the last, whose value is positive; and that value."""
    together = np.concatenate([vectors, values[:, None]], axis=1)
    together = reduced(together, weight=_WEIGHT)
    values = together[:, -1]
    if np.count_nonzero(values) > 1:
        together = together.astype(object)
    while np.count_nonzero(values) > 1:  # Euclid's steps, where reduction left some
        cells = np.flatnonzero(values)
        least = cells[np.argmin(np.abs(values[cells]))]
        others = cells[cells != least]
        counts = values[others] // values[least]
        together[others] = together[others] - np.multiply.outer(counts, together[least])
        values = together[:, -1]
    (last,) = np.flatnonzero(values)
    order = np.append(np.delete(np.arange(len(values)), last), last)
    value = int(values[last])
    vectors = together[order, :-1]
    if value < 0:
        vectors[-1] = -vectors[-1]
    return narrow(vectors), abs(value)


def reduced(vectors: np.ndarray, weight: int = 1) -> np.ndarray:
    """A reduced basis (Lenstra, Lenstra and Lovasz) of the lattice of independent rows; the last column is weighted."""
    basis = vectors.copy()
    scale = np.ones(basis.shape[1])
    scale[-1] = weight
    return narrow(_Reduction(basis, scale).run())


class _Reduction:
    """Gram-Schmidt coefficients of the rows of a basis, kept up to date while its rows change."""

    def __init__(self, basis: np.ndarray, scale: np.ndarray) -> None:
        self.basis = basis
        upper = np.linalg.qr((basis.astype(np.float64) * scale).T, mode="r")
        sizes = np.diag(upper)
        self.squares = sizes**2
        self.mu = np.tril((upper / sizes[:, None]).T, -1)

    def run(self) -> np.ndarray:
        """The basis, reduced."""
        count, k = len(self.basis), 1
        left = _STEPS * count**2
        while k < count and left:
            left -= 1
            self._subtract(k, k - 1)
            if self.squares[k] >= (_LOVASZ - self.mu[k, k - 1] ** 2) * self.squares[k - 1]:
                for j in range(k - 2, -1, -1):
                    self._subtract(k, j)
                k += 1
            else:
                self._swap(k)
                k = max(1, k - 1)
        return self.basis

    def _subtract(self, k: int, j: int) -> None:
        if abs(self.mu[k, j]) > 0.501:
            times = round(float(self.mu[k, j]))
            if self.basis.dtype != object and not self._fits(abs(times), k, j):
                self.basis = self.basis.astype(object)
            self.basis[k] -= times * self.basis[j]
            self.mu[k, :j] -= times * self.mu[j, :j]
            self.mu[k, j] -= times

    def _fits(self, times: int, k: int, j: int) -> bool:
        return times < 2**20 and max(largest_abs(self.basis[j]), largest_abs(self.basis[k])) < 2**40

    def _swap(self, k: int) -> None:
        mu, squares = self.mu, self.squares
        slope = mu[k, k - 1]
        joint = squares[k] + slope**2 * squares[k - 1]
        mu[k, k - 1] = slope * squares[k - 1] / joint
        squares[k] = squares[k - 1] * squares[k] / joint
        squares[k - 1] = joint
        self.basis[[k - 1, k]] = self.basis[[k, k - 1]]
        mu[[k - 1, k], : k - 1] = mu[[k, k - 1], : k - 1]
        below = mu[k + 1 :, k].copy()
        mu[k + 1 :, k] = mu[k + 1 :, k - 1] - slope * below
        mu[k + 1 :, k - 1] = below + mu[k, k - 1] * mu[k + 1 :, k]


class IntegerSteps:
    """Whole solutions of ``L d = e`` for independent rows L (r x n); ``priority`` (n,): columns of small value move.

    Rows with an entry of size one that stay sparse are eliminated, ``z_pivot = T e - F z_free``. What the others
    leave on the free columns, H, is solved there by short vectors, with no more columns than generate what all
    generate.

    >>> steps = IntegerSteps(scipy.sparse.csr_array([[1, 1, 0, 0], [0, 0, 2, 3]]))
    >>> steps.failing(np.array([1, 1])), (steps.matrix @ steps.solve(np.array([1, 1]))).tolist()
    (None, [1, 1])
    """

    def __init__(self, matrix: SparseRows, priority: np.ndarray | None = None) -> None:
        self.matrix, self._priority = matrix, priority
        self._easy = IntegerEchelon(int(matrix.shape[1]), priority, _LARGEST_ENTRY)
        self._easy.extend(matrix)
        self._rows = np.array(self._easy.kept, dtype=np.intp)
        self._hard = np.array(self._easy.postponed, dtype=np.intp)

    @classmethod
    def of(cls, matrix: SparseRows, echelon: IntegerEchelon) -> IntegerSteps:
        """The steps of a system whose kept rows are ``matrix``: by its own form where that is small enough."""
        if echelon.divisor != 1 or largest_abs(echelon.reduced) > _LARGEST_ENTRY:
            return cls(matrix, echelon.priority)
        steps = cls.__new__(cls)
        steps.matrix, steps._priority, steps._easy = matrix, echelon.priority, echelon
        steps._rows, steps._hard = np.arange(matrix.shape[0]), np.zeros(0, dtype=np.intp)
        return steps

    @cached_property
    def _left(self) -> np.ndarray:
        """H: the rows put off, less their part in those eliminated, (h, n)."""
        return self._easy.remainder(self.matrix[self._hard].toarray())

    @cached_property
    def _kernel(self) -> tuple[np.ndarray, ShortKernel]:
        """Columns that generate what all columns of H generate, and the short vectors of H on them."""
        if len(self._hard) > _MOST_HARD_ROWS or largest_abs(self._left) > 2**48:
            raise Unsupported(
                f"{len(self._hard)} exact counts overlap so irregularly that whole numbers near the estimate that meet "
                f"them all cannot be found (at most {_MOST_HARD_ROWS} can): publish fewer of them exactly, or make "
                "them sums of groups that nest"
            )
        candidates = self._candidates()
        count = min(len(candidates), 2 * len(self._hard) + 16)
        chosen = _independent(self._left, candidates, count)
        while True:
            kernel = ShortKernel(self._left[:, chosen])
            others = np.setdiff1d(candidates, chosen)
            missing = others[kernel.remainders(self._left[:, others]) >= 0]
            if not missing.size:
                return chosen, kernel
            chosen = np.concatenate([chosen, missing[: max(1, len(missing) // 4)]])

    def _candidates(self) -> np.ndarray:
        """The columns of H that are not zero, one of each kind, those to move first in front."""
        order = (
            np.arange(self._left.shape[1])
            if self._priority is None
            else np.argsort(self._priority, kind="stable")
        )
        used = order[np.any(self._left[:, order] != 0, axis=0)]
        seen: dict[bytes, int] = {}
        for column in used.tolist():
            seen.setdefault(str(self._left[:, column].tolist()).encode(), column)
        return np.array(list(seen.values()), dtype=np.intp)

    def failing(self, residual: np.ndarray) -> int | None:
        """A row that no whole d meets together with the rows eliminated before it; None where there is a d."""
        moved = integer_product(self._easy.inverse, residual[self._rows])
        broken = np.flatnonzero(moved % self._easy.inverse_divisor != 0)
        if broken.size:
            return int(self._rows[broken[0]])
        if not self._hard.size:
            return None
        place = int(self._kernel[1].remainders(self._left_over(residual, moved)[:, None])[0])
        return None if place < 0 else int(self._hard[place])

    def _left_over(self, residual: np.ndarray, moved: np.ndarray) -> np.ndarray:
        coefficients = self.matrix[self._hard].toarray()[:, self._easy.pivots]
        met = integer_product(coefficients, moved // self._easy.inverse_divisor)
        return narrow(residual[self._hard].astype(object) - met)

    def solve(self, residual: np.ndarray) -> np.ndarray:
        """d (n,) with ``L d = residual``, where :meth:`failing` finds nothing."""
        moved = integer_product(self._easy.inverse, residual[self._rows])
        step = np.zeros(self.matrix.shape[1], dtype=object)
        step[self._easy.pivots] = moved // self._easy.inverse_divisor
        if self._hard.size:
            columns, kernel = self._kernel
            free = kernel.solve(self._left_over(residual, moved))
            step[columns] = free
            answer = integer_product(self._easy.reduced[:, columns], free)
            step[self._easy.pivots] = step[self._easy.pivots] - answer
        return narrow(step)


def _independent(left: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """``count`` columns or more, full rank among them, the first candidates where that does."""
    first = candidates[:count]
    echelon = IntegerEchelon(left.shape[0])
    echelon.extend(scipy.sparse.csr_array(left[:, candidates].T))
    return np.union1d(first, candidates[echelon.kept])


class Relation(NamedTuple):
    """A row that others determine: ``multiplier L[row] = sum_i coefficients_i L[rows_i]``, all whole numbers."""

    row: int
    multiplier: int
    rows: np.ndarray
    coefficients: np.ndarray

    def gap(self, values: np.ndarray) -> int:
        """``multiplier v[row] - sum_i coefficients_i v[rows_i]`` of whole numbers, exactly."""
        return self.multiplier * int(values[self.row]) - dot(self.coefficients, values[self.rows])


class IntegerSystem:
    """The equations ``L z = v`` in whole numbers, for an integer matrix L (rows x n). No rounding decides anything.

    The first rows, in order, that determine the others are kept.

    Arguments:
        matrix: L, a numpy or scipy sparse array of whole numbers below 2^62 in size.
        priority: (n,) numbers; :meth:`settle` moves columns of small value rather than others. By default
            those that occur in few rows.

    Raises:
        InvalidArgument: a matrix that is not of whole numbers, or a priority of another length.

    >>> system = IntegerSystem(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]))
    >>> system.rank, system.dependent[0].rows.tolist()
    (2, [0, 1])
    >>> system.settle(np.array([5, 5, 5, 5]), np.array([10, 11, 21])).tolist()
    [5, 5, 6, 5]
    """

    def __init__(self, matrix: Any, priority: Any = None) -> None:
        self.matrix = whole_matrix(matrix, "the matrix of equations")
        self._priority = None if priority is None else np.asarray(priority)
        if self._priority is not None and self._priority.shape != (self.shape[1],):
            raise InvalidArgument(
                f"the priority has shape {self._priority.shape}: give one number for each of {self.shape[1]} columns"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of L."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    @cached_property
    def _echelon(self) -> IntegerEchelon:
        echelon = IntegerEchelon(self.shape[1], self._priority)
        echelon.extend(self.matrix)
        return echelon

    @cached_property
    def _steps(self) -> IntegerSteps:
        return IntegerSteps.of(self.matrix[self.kept], self._echelon)

    @property
    def kept(self) -> np.ndarray:
        """The rows that no earlier rows determine, (rank,)."""
        return np.array(self._echelon.kept, dtype=np.intp)

    @property
    def rank(self) -> int:
        """The rank of L."""
        return len(self._echelon.kept)

    @cached_property
    def dependent(self) -> tuple[Relation, ...]:
        """Every row that earlier rows determine, with how: in terms of kept rows, in the order of rows."""
        rows = np.setdiff1d(np.arange(self.shape[0]), self.kept)
        return tuple(relations(self._echelon, self.matrix, rows, self.kept))

    def contradictions(self, values: Any) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows whose value differs from what earlier rows make it, with those rows; () where ``L z = v`` has a real z.

        Arguments:
            values: v, (rows,) whole numbers.

        >>> IntegerSystem(np.array([[1, 1], [2, 2]])).contradictions([3, 7])
        ((1, (0,)),)
        """
        v = _whole_vector(values, self.shape[0], "values")
        return tuple((r.row, tuple(r.rows.tolist())) for r in self.dependent if r.gap(v))

    def settle(self, scaled: Any, values: Any) -> np.ndarray:
        """Whole numbers z' near z with ``L z' = v`` exactly.

        Where every reduced row has an entry of size one they differ in at most ``rank`` places; see
        :class:`IntegerSteps`.

        Arguments:
            scaled: z, (n,) whole numbers.
            values: v, (rows,) whole numbers.

        Raises:
            InvalidArgument: no whole numbers solve the equations; the message names the first row that fails.
        """
        z = _whole_vector(scaled, self.shape[1], "scaled")
        v = _whole_vector(values, self.shape[0], "values")
        wrong = next((r for r in self.dependent if r.gap(v)), None)
        if wrong is not None:
            others = ", ".join(map(str, wrong.rows[:8].tolist()))
            against = (
                f"rows {others}: nothing solves both"
                if others
                else "what it sums, which is nothing: it must be 0"
            )
            raise InvalidArgument(f"row {wrong.row} contradicts {against}")
        residual = v.astype(object) - integer_matvec(self.matrix, z)
        left = narrow(residual[self.kept])
        failing = self._steps.failing(left)
        if failing is not None:
            raise InvalidArgument(
                f"no whole numbers meet row {int(self.kept[failing])} and the rows that share columns with it"
            )
        moved = z.astype(object) + self._steps.solve(left)
        if largest_abs(moved) >= 2**63:
            raise InvalidArgument("the solution does not fit 64-bit integers: use a coarser grid")
        return moved.astype(np.int64)


def integer_matvec(matrix: SparseRows, z: np.ndarray) -> np.ndarray:
    """``matrix z`` of whole numbers, exactly, as Python's integers."""
    sums = np.asarray(abs(matrix).astype(np.float64).sum(axis=1)) if matrix.nnz else np.zeros(1)
    if z.dtype != object and float(sums.max()) * 1.001 * max(1, largest_abs(z)) < _LARGEST:
        return (matrix @ z).astype(object)
    high, low = z // 2**31, z % 2**31
    if float(sums.max()) < 2**30:
        return integer_matvec(matrix, narrow(high)) * 2**31 + integer_matvec(matrix, narrow(low))
    return np.array([dot(matrix.data[a:b], z[matrix.indices[a:b]]) for a, b in _spans(matrix)], dtype=object)


def _spans(matrix: SparseRows) -> Iterator[tuple[int, int]]:
    return zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True)


def dot(a: np.ndarray, b: np.ndarray) -> int:
    """``a'b`` of whole numbers, exactly."""
    return int(integer_product(a[None], narrow(b))[0]) if a.size else 0


def relations(
    echelon: IntegerEchelon, matrix: SparseRows, rows: np.ndarray, kept: np.ndarray
) -> Iterator[Relation]:
    """How the kept rows make each of ``rows``: ``echelon`` is that of ``matrix``, ``kept`` its kept rows."""
    for low in range(0, len(rows), _BLOCK):
        part = rows[low : low + _BLOCK]
        combined, multiplier = echelon.combination(matrix[part]), echelon.inverse_divisor
        for row, coefficients in zip(part.tolist(), combined, strict=True):
            used = np.flatnonzero(coefficients)
            shared = content(coefficients, multiplier)
            yield Relation(row, multiplier // shared, kept[used], narrow(coefficients[used] // shared))


def whole_matrix(matrix: Any, what: str) -> SparseRows:
    """A matrix of whole numbers below 2^62 in size, as int64 rows without zeros."""
    rows: Any = scipy.sparse.csr_array(matrix if scipy.sparse.issparse(matrix) else np.atleast_2d(matrix))
    if rows.dtype.kind not in "iu" or (rows.nnz and largest_abs(rows.data) >= _LARGEST):
        raise InvalidArgument(f"{what} must hold whole numbers below 2^62 in size, as integers")
    rows = rows.astype(np.int64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def _whole_vector(values: Any, length: int, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (length,):
        raise InvalidArgument(f"{what} has shape {array.shape}: give {length} whole numbers")
    if array.dtype.kind == "u":
        array = array.astype(object)
    if array.dtype.kind not in "iO" or not all(isinstance(x, int) for x in array.tolist()):
        raise InvalidArgument(f"{what} must be whole numbers, as integers")
    return array.astype(np.int64) if array.dtype.kind == "i" else narrow(array)


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
        return largest_abs(self.matrix) <= _LARGEST_COEFFICIENT and all(
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
        answers[self.kept] = self._system.settle(scaled[self.kept], integer_product(self.known, fixed))
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
            answers[rows] = integer_matvec(made, narrow(answers))
        return whole_answers(answers)


def whole_answers(answers: np.ndarray) -> np.ndarray:
    """The answers as int64."""
    if largest_abs(answers) >= 2**63:
        raise InvalidArgument("the counts do not fit 64-bit integers on this grid: use a coarser one")
    return answers.astype(np.int64)
