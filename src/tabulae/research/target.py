"""A linear query under invariants on its own answers: the spaces, the projected query, the exact arithmetic.

For A (n x N) on a histogram x and C (n_c x n, rank-deficient allowed): ``N = {v in R^n : C v = 0}`` and R its
complement. A release M(x) with ``C M(x) = C A x`` has ``Pi_R M(x) = Pi_R A x = C^+ c``, c = C A x, and all that noise
can hide is ``Pi_N A x``. With Q_N (n x (n - n_c)) an orthonormal basis of N, ``Pi_N A = Q_N (Q_N' A)``.

What is measured must have its rows in the row space of ``Pi_N A`` *exactly*: a rounded Q_N would let a little of
the data outside through, times the number of records. So everything measured is an integer combination of the
integer rows ``J``: independent rows of ``K A`` with K an integer basis of N.

Gaussian noise does not see which orthonormal basis of a null space is taken. Laplace noise does, and so nothing that is
published depends on the basis that ``generic_basis`` comes by: which points and which answers are equal up to sign is
told in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    IntegerEchelon,
    IntegerSystem,
    LinearOperator,
    Relation,
    integer_matmul,
    largest_abs,
)

_RELATIVE = 1e-10


def generic_basis(C: np.ndarray) -> np.ndarray:
    """An orthonormal basis of ``{v : C v = 0}``, (n, n - rank), from a singular value decomposition."""
    n = C.shape[1]
    if not C.size or not C.any():
        return np.eye(n)
    _, values, vectors = sl.svd(C, full_matrices=True)
    rank = int((values > _RELATIVE * values[0]).sum())
    return np.ascontiguousarray(vectors[rank:].T)


def equal_up_to_sign(columns: np.ndarray) -> tuple[np.ndarray, sp.csr_array]:
    """Indices ``first`` (m,) and S (m, n) of 0, 1 and -1 with ``columns == columns[:, first] @ S``, integers (r, n).

    One index for each class of columns that are equal or opposite; a column of zeros is in none.

    >>> first, S = equal_up_to_sign(np.array([[0, 1, -1, 2], [0, 3, -3, 2]]))
    >>> first.tolist(), S.toarray().tolist()
    ([1, 3], [[0, 1, -1, 0], [0, 0, 0, 1]])
    """
    classes: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    leading: list[int] = []  # the sign of each class's first column
    entries: list[tuple[int, int, int]] = []
    for j, column in enumerate(columns.T.tolist()):
        sign = next((1 if entry > 0 else -1 for entry in column if entry), 0)
        if not sign:
            continue
        which = classes.setdefault(tuple(sign * entry for entry in column), len(first))
        if which == len(first):
            first.append(j)
            leading.append(sign)
        entries.append((sign * leading[which], which, j))
    signs, rows, places = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    S = sp.csr_array((signs, (rows, places)), shape=(len(first), columns.shape[1]))
    return np.array(first, dtype=np.intp), S


def exact_inverse(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Integers H (n x n, Python's) and a denominator D with ``H / D`` the inverse of a non-singular int64 matrix.

    >>> H, D = exact_inverse(np.array([[2, 1], [1, 2]]))
    >>> H.tolist(), D
    ([[2, -1], [-1, 2]], 3)
    """
    echelon = _echelon(matrix)
    assert len(echelon.kept) == len(matrix), "only a non-singular matrix has an inverse"
    H = np.zeros(matrix.shape, dtype=object)
    H[echelon.pivots] = echelon.inverse.astype(object)  # matrix = B P with P a permutation
    return H, echelon.inverse_divisor


def null_basis(matrix: np.ndarray) -> np.ndarray:
    """Integer rows that span ``{v : matrix v = 0}``, (n - rank, n), Python's integers; matrix is int64.

    One row for each column without a pivot: the smallest integers with nothing at the other such columns.

    >>> null_basis(np.array([[1, 1, 1]])).tolist()
    [[-1, 1, 0], [-1, 0, 1]]
    """
    n = matrix.shape[1]
    echelon = _echelon(matrix)
    free = np.setdiff1d(np.arange(n), echelon.pivots)
    basis = np.zeros((len(free), n), dtype=object)
    basis[np.arange(len(free)), free] = echelon.divisor
    if echelon.kept:
        basis[:, echelon.pivots] = -echelon.reduced[:, free].T.astype(object)
    for row in basis:
        row //= np.gcd.reduce(row)
    return basis


def _echelon(matrix: np.ndarray) -> IntegerEchelon:
    echelon = IntegerEchelon(matrix.shape[1])
    echelon.extend(sp.csr_array(matrix))
    return echelon


MOST_CELLS = 4096
"""Cells (columns of the query) up to which it is written out."""

MOST_ROWS = 512
"""Independent invariants up to which their system is solved in exact arithmetic."""

_NEGLIGIBLE_SHARE = 1e-9
_FITS = 2**62
_LARGEST = 2**24  # entries of invariants, so that C C' fits 62 bits
_CHUNK = 2**22
_MOST_LISTED = 128  # distinct columns whose pairs are listed one by one


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """Answers as exact fractions with one denominator: ``numerators[i] / denominator`` counts."""

    numerators: tuple[int, ...]
    denominator: int

    @property
    def fractions(self) -> tuple[Fraction, ...]:
        """The answers themselves."""
        return tuple(Fraction(numerator, self.denominator) for numerator in self.numerators)

    @property
    def values(self) -> np.ndarray:
        """The nearest floats, (n,)."""
        return np.array([numerator / self.denominator for numerator in self.numerators])


@dataclass(frozen=True, eq=False)
class ConstrainedQuery:
    """A query matrix, invariants on its answers, and who counts as a neighbour.

    ``matrix`` (n x N) are the query's entries, ``invariants`` (m x n) the invariants' as given. ``dependent`` names the
    rows that earlier rows determine; ``rank`` is n_c.
    """

    matrix: np.ndarray
    invariants: np.ndarray
    neighbours: str

    @classmethod
    def of(
        cls, query: LinearOperator | np.ndarray, invariants: LinearOperator | np.ndarray, neighbours: str
    ) -> ConstrainedQuery:
        """Check and take in a query A (n, N) and its invariants C (m, n), integers below 2^24, rows dependent or not.

        Raises:
            InvalidArgument: shapes that do not fit, entries that are not numbers, invariants that are not whole.
            Unsupported: too many columns or invariants, or nothing that noise could hide.
        """
        if neighbours not in ("add-remove", "replace"):
            raise InvalidArgument(
                f"neighbours is {neighbours!r}; these mechanisms know 'add-remove' and 'replace'. For neighbours "
                "within the invariants use select(..., invariants=...)"
            )
        A, C = _entries(query, "query"), _entries(invariants, "invariants")
        if A.shape[1] > MOST_CELLS:
            raise Unsupported(
                f"the query has {A.shape[1]:,} columns and is written out up to {MOST_CELLS:,}: use "
                "select(workload, invariants=...), which keeps structure"
            )
        if C.shape[1] != A.shape[0]:
            raise InvalidArgument(
                f"invariants has {C.shape[1]} columns for a query of {A.shape[0]} answers: every invariant is a "
                "row of coefficients, one for each answer"
            )
        whole = np.rint(C)
        if not np.array_equal(whole, C) or (C.size and np.abs(C).max() >= _LARGEST):
            raise InvalidArgument(
                "invariants must be integers below 2^24, so that they can hold exactly: multiply the rows that are not "
                "by their common denominator"
            )
        target = cls(A, whole.astype(np.int64), neighbours)
        target._check()
        return target

    def _check(self) -> None:
        if self.rank == self.answers:
            raise Unsupported(
                f"the invariants have rank {self.rank} and fix all {self.answers} answers: nothing is left to measure"
            )
        if not self.inner.any():
            raise Unsupported(
                "every answer is a combination of invariants: nothing is left to measure, whatever the data"
            )
        if self.neighbours == "replace" and _distinct(self.inner).shape[1] == 1:
            raise Unsupported(
                "under 'replace' no neighbour changes these answers but for their invariants, so there is nothing to "
                'protect by noise: choose neighbours = "add-remove"'
            )
        if self.rank > MOST_ROWS:
            raise Unsupported(
                f"{self.rank} independent invariants; written-out mechanisms solve up to {MOST_ROWS} exactly. Use "
                "select(workload, invariants=...), which keeps the structure of margins"
            )

    # the spaces ---------------------------------------------------------------------------------------------
    @property
    def answers(self) -> int:
        """n, the number of answers."""
        return self.matrix.shape[0]

    @property
    def cells(self) -> int:
        """N, the number of cells."""
        return self.matrix.shape[1]

    @property
    def rank(self) -> int:
        """n_c, the number of independent invariants."""
        return self._system.rank

    @property
    def dependent(self) -> tuple[Relation, ...]:
        """Invariants that earlier ones determine, each with the rows and the coefficients that make it."""
        return self._system.dependent

    @cached_property
    def _system(self) -> IntegerSystem:
        return IntegerSystem(self.invariants)

    @cached_property
    def kept(self) -> np.ndarray:
        """The independent invariants, (n_c, n) int64."""
        return self.invariants[self._system.kept]

    @cached_property
    def basis(self) -> np.ndarray:
        """Q_N: an orthonormal basis of N, (n, n - n_c)."""
        return generic_basis(self.kept.astype(float))

    @cached_property
    def projector(self) -> np.ndarray:
        """Pi_N, (n, n)."""
        return self.basis @ self.basis.T

    @cached_property
    def inner(self) -> np.ndarray:
        """Q_N' A, (n - n_c, N), zero where rounding is all that is there."""
        inner = self.basis.T @ self.matrix
        return np.where(np.abs(inner) > 1e-14 * np.abs(self.matrix).max(), inner, 0.0)

    @cached_property
    def span(self) -> np.ndarray:
        """An orthonormal basis of the columns of Q_N' A, (n - n_c, r): noise in other directions hides nothing."""
        left, values, _ = sl.svd(self.inner, full_matrices=False)
        return left[:, values > _NEGLIGIBLE_SHARE * values[0]]

    @cached_property
    def points(self) -> np.ndarray:
        """The columns of Q_N' A in the coordinates of ``span``, (r, N)."""
        return self.span.T @ self.inner

    @cached_property
    def lift(self) -> np.ndarray:
        """From the coordinates of ``span`` to answers, (n, r): ``lift @ points = Pi_N A``."""
        return self.basis @ self.span

    @cached_property
    def exact_points(self) -> np.ndarray:
        """Integers (r, N) whose columns are equal, or opposite, just where those of Pi_N A are.

        For a query on no grid they are told apart to 12 digits.
        """
        if self.integer_rows is not None:
            return self.integer_rows
        return np.rint(self.points / np.abs(self.points).max() * 1e12).astype(np.int64)

    # neighbours ---------------------------------------------------------------------------------------------
    @cached_property
    def steps(self) -> np.ndarray:
        """The distinct ``Q_N' A d`` over neighbours' differences d, one of each pair +-, in ``span``'s coordinates."""
        points, exact = self.points, self.exact_points
        if self.neighbours == "replace":
            distinct = np.sort(np.unique(exact, axis=1, return_index=True)[1])
            points, exact, count = points[:, distinct], exact[:, distinct], len(distinct)
            if count > _MOST_LISTED:
                raise Unsupported(
                    f"{count:,} distinct columns: pairs of them are listed up to {_MOST_LISTED}. Use 'add-remove', or "
                    "the projected, extended or optimal mechanism, which do not list pairs"
                )
            rows, columns = np.triu_indices(count, 1)
            points, exact = points[:, rows] - points[:, columns], exact[:, rows] - exact[:, columns]
        return points[:, equal_up_to_sign(exact)[0]]

    def spanning_steps(self) -> np.ndarray:
        """``steps``, refused where they leave a direction of ``span`` out (a public total, under "replace")."""
        steps = self.steps
        values = np.linalg.svd(steps, compute_uv=False)
        if len(values) < len(steps) or values[-1] <= _NEGLIGIBLE_SHARE * values[0]:
            raise Unsupported(
                "under 'replace' the number of records is public and these answers determine it: add it to the "
                "invariants, or use the projected, extended or optimal mechanism"
            )
        return steps

    def sensitivity(self, measured: np.ndarray, p: int) -> float:
        """``max_d ||measured d||_p^p`` over neighbours' differences, in floating point; measured is (m, N).

        For planning: what is released is calibrated by :meth:`tabulae.strategy.Strategy.sensitivity`, in integers.
        """
        if self.neighbours == "add-remove":
            return float((np.abs(measured) ** p).sum(axis=0).max())
        columns = np.unique(measured, axis=1)
        if p == 2:
            gram = columns.T @ columns
            size = gram.diagonal()
            return float((size[:, None] + size - 2 * gram).max())
        step = max(1, _CHUNK // columns.size)
        parts = range(0, columns.shape[1], step)
        return max(
            float(np.abs(columns[:, s : s + step, None] - columns[:, None, :]).sum(axis=0).max())
            for s in parts
        )

    # exact arithmetic ---------------------------------------------------------------------------------------
    @cached_property
    def grid(self) -> tuple[np.ndarray, int] | None:
        """The query as integers over ``2^k``, (matrix, k); None for a query on no grid of up to 24 bits."""
        whole, exponent = Dense(self.matrix).on_grid()
        return (np.asarray(whole.array), exponent) if whole.integer else None

    @cached_property
    def integer_rows(self) -> np.ndarray | None:
        """J (r, N) int64: rows that span the row space of Pi_N A exactly; None where 62 bits do not hold them."""
        if self.grid is None:
            return None
        K = null_basis(self.kept)
        A = self.grid[0]
        longest = max(int(np.abs(row).sum()) for row in K)
        if longest * max(1, largest_abs(A)) >= _FITS:
            return None
        rows = integer_matmul(K.astype(np.int64), A)
        rank = self.span.shape[1]
        if rank == len(rows):
            return rows
        scaled = rows / np.abs(rows).max(axis=1, keepdims=True).clip(1)
        decomposed: Any = sl.qr(scaled.T, mode="r", pivoting=True)
        return rows[np.sort(decomposed[1][:rank])]

    @cached_property
    def exact_rows(self) -> np.ndarray | None:
        """``2^k C A`` over the independent invariants, (n_c, N) int64: what is read and published exactly."""
        return None if self.grid is None else integer_matmul(self.kept, self.grid[0])

    @cached_property
    def _exact_inverse(self) -> tuple[np.ndarray, int]:
        """(C C')^-1 over the independent rows, as integers and a denominator."""
        return exact_inverse(self.kept @ self.kept.T)

    def meet(self, scaled: np.ndarray, exponent: int, exact: np.ndarray) -> ExactAnswers:
        """The point a with ``C a = c`` that is nearest to ``t = 2^-exponent * scaled``, in exact fractions.

        ``a = t - C'(C C')^-1 (C t - c)``: then ``C a = C t - (C t - c) = c``, in rational arithmetic and so without
        rounding, and ``Pi_N a = Pi_N t`` is a function of t alone. The fractions have the denominator
        ``2^exponent D``, with D that of ``(C C')^-1``. ``exact`` are integers ``2^k c``, k <= exponent that of the
        query's grid, one for each independent invariant.
        """
        assert self.grid is not None
        t = np.array([int(entry) for entry in scaled], dtype=object)
        if not self.rank:
            return ExactAnswers(tuple(t.tolist()), 2**exponent)
        c = exact.astype(object) * 2 ** (exponent - self.grid[1])
        C = self.kept.astype(object)
        H, D = self._exact_inverse
        numerators = D * t - C.T @ (H @ (C @ t - c))
        return ExactAnswers(tuple(numerators.tolist()), D * 2**exponent)


def _distinct(points: np.ndarray) -> np.ndarray:
    """The distinct columns, up to rounding."""
    rounded = np.round(points / np.abs(points).max(), 12) + 0.0
    return points[:, np.sort(np.unique(rounded, axis=1, return_index=True)[1])]


def _entries(matrix: LinearOperator | np.ndarray, name: str) -> np.ndarray:
    """A matrix written out as floats, or InvalidArgument."""
    array = np.asarray(matrix.dense() if isinstance(matrix, LinearOperator) else matrix)
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{name} must be a matrix of numbers, not {array.dtype} of shape {array.shape}")
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise InvalidArgument(f"{name} holds nan or inf: every entry must be a finite number")
    return array
