"""One attribute's basis for residuals: its total and the queries B that tell what the total leaves open.

``T = [1'; B]`` with rank(T) = rank(B) + 1: no combination of B's rows is a multiple of the total. A query W over the
attribute that T determines is ``W = a 1' + Z B`` in one way only, if the rows of Z are taken from the span of B's
columns, and ``[a, Z] = W Q`` with ``Q = T^+``. So least squares over independent groups of queries
``(x)_{i in S} B_i (x)_{i not in S} 1'``, one for each set S of attributes, answers each table from its coefficients
alone: no other group, and no cell, enters. For an attribute whose cells are asked alike B is
:class:`~tabulae.linalg.Centring`, ``n I - J``, and ``Q = [1/n, (I - J/n)/n]``.

A term ``c (x)_i V_i`` of W'W over the attributes A has the share ``c prod_{i in S} beta_i prod_{i in A - S} gamma_i``
in the group of a subset S, with ``beta_i = tr(Q_i' V_i Q_i)`` over the columns of Q_i that belong to the attribute's
residuals and ``gamma_i`` the same for its total. Terms of one number of attributes are summed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
import scipy.linalg

from ...domain import merged_factor
from ...errors import Unsupported
from ...linalg import (
    AllRange,
    Centring,
    Identity,
    LinearOperator,
    MatrixProduct,
    Partition,
    Prefix,
    representatives,
)
from ..rounding import gram_inverse
from .kron import range_variance
from .protocol import EXPLICIT, check_constant, coefficient_statistics, merge_statistics, refuse_not_estimable

CANCELLED = 1e-13
"""Share of the terms of a sum below which what is left of it is rounding."""

_CHUNK = 2**24  # coefficients held at once
_RANK = 1e-11  # singular values below this share of the largest count as zero
_TALL = 2  # rows for each distinct column beyond which a matrix is not tried as a basis
_KEPT = 1e-9  # of a query that a basis without full rank may leave over, relative to its row sums
_SAME = 42  # bits to which statistics of two rows must agree to be kept once
_DISTINCT = 2**17  # rows of a query whose statistics are compared


@dataclass(frozen=True)
class Coefficients:
    """Statistics of ``[a, Z] = W Q`` over the different rows of W, u of them.

    ``total`` (u,) is a; ``spread`` (5, u) the statistics of Z's rows (see ``coefficient_statistics``);
    ``inverse`` (m,) says which of them each row of W has.
    """

    total: np.ndarray
    spread: np.ndarray
    inverse: np.ndarray


class Basis:
    """``T = [1'; B]`` of one attribute, for B (r, n) with integer entries; equal columns are merged to c."""

    def __init__(self, operator: LinearOperator) -> None:
        self.operator = operator
        self.partition = _classes(operator)
        self.cells = self.partition.shape[0]
        self.centred = _is_centring(operator)
        self._known: dict[LinearOperator, Coefficients] = {}

    @property
    def rows(self) -> int:
        """r, the number of rows of B."""
        return self.operator.shape[0]

    @cached_property
    def _matrix(self) -> np.ndarray:
        """B with one column for each merged cell, (r, c)."""
        return np.asarray(merged_factor(self.operator, self.partition).dense(), dtype=float)

    @cached_property
    def _decomposed(self) -> tuple[np.ndarray, int]:
        """T^+ (c, 1 + r), and the rank of T."""
        size = np.sqrt(np.square(self._matrix).sum(axis=0).max()) or 1.0
        whole = np.vstack([np.ones(self.cells), self._matrix / size])
        left, values, right = scipy.linalg.svd(whole, full_matrices=False, check_finite=False)
        rank = int((values > _RANK * values[0]).sum())
        inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
        inverse[:, 1:] /= size
        return inverse, rank

    @cached_property
    def independent(self) -> bool:
        """Whether rank [1'; B] = rank B + 1, and B asks anything."""
        if self.centred:
            return self.cells > 1
        tells_total = isinstance(self.operator, (AllRange, Identity, Prefix))
        if tells_total or self.cells > EXPLICIT or self.rows > _TALL * self.cells or not self._matrix.any():
            return False
        # Of full rank: it tells the total
        if self.rows >= self.cells and gram_inverse(self._matrix) is not None:
            return False
        values = scipy.linalg.svdvals(self._matrix, check_finite=False)
        return self._decomposed[1] == int((values > _RANK * values[0]).sum()) + 1

    @property
    def complete(self) -> bool:
        """Whether T determines every query over the merged cells."""
        return self.centred or self._decomposed[1] == self.cells

    @cached_property
    def total_column(self) -> np.ndarray:
        """Q's column of the total, (c,)."""
        return np.full(self.cells, 1 / self.cells) if self.centred else self._decomposed[0][:, 0]

    def residual_columns(self, part: slice) -> np.ndarray:
        """Some of Q's other columns, (c, width)."""
        if not self.centred:
            return self._decomposed[0][:, 1:][:, part]
        width = len(range(*part.indices(self.cells)))
        columns = np.full((self.cells, width), -1 / self.cells)
        columns[np.arange(part.start or 0, (part.start or 0) + width), np.arange(width)] += 1.0
        return columns / self.cells

    @cached_property
    def covariance(self) -> np.ndarray:
        """Q Q' without the total's column, (c, c): the cells' covariance from unit noise on B."""
        columns = self.residual_columns(slice(0, self.rows))
        return columns @ columns.T

    def traces(self, gram: LinearOperator) -> tuple[float, float]:
        """beta = tr(Q' V Q) without the total's column, gamma = q' V q for the total's, of V = gram (n, n)."""
        if self.centred and isinstance(gram, Identity):
            return (self.cells - 1) / self.cells**2, 1 / self.cells
        first = representatives(self.partition.classes)
        V = np.asarray(gram.dense(), dtype=float)
        V = V if self.cells == V.shape[0] else V[np.ix_(first, first)]
        if flat(V):
            return 0.0, float(V[0, 0])
        size = np.abs(V)
        if self.centred:
            n, whole, diagonal = self.cells, float(V.sum()), float(np.trace(V))
            beta = cleared(diagonal - whole / n, float(np.trace(size) + size.sum() / n)) / n**2
            return beta, cleared(whole, float(size.sum())) / n**2
        q, covariance = self.total_column, self.covariance
        beta = cleared(float(np.vdot(covariance, V)), float(np.vdot(np.abs(covariance), size)))
        return beta, cleared(float(q @ V @ q), float(np.abs(q) @ size @ np.abs(q)))

    def overlap(self, p: int) -> float:
        """What two different columns of B have least in common, as a share of the largest column.

        p = 2: their inner product; p = 1: the sum of the smaller of their entries where signs agree, for the
        centring matrix, and 0, a bound of it, for any other.
        """
        n = self.cells
        if self.centred:
            return -1 / (n - 1) if p == 2 else (n - 2) / (2 * (n - 1))
        if p == 1:
            return 0.0
        products = self._matrix.T @ self._matrix
        return float(products.min() / products.diagonal().max())

    def over_cells(self, query: LinearOperator) -> LinearOperator:
        """The query over the merged cells; NotEstimable where T does not determine it."""
        check_constant(query, self.partition.classes)
        merged = merged_factor(query, self.partition)
        if not self.complete:
            found = self._decomposed[0] @ np.vstack([np.ones(self.cells), self._matrix])
            rest = merged @ (np.eye(self.cells) - found)
            if np.abs(rest).max(initial=0.0) > _KEPT * merged.abs_row_sum_max():
                raise refuse_not_estimable()
        return merged

    def dense(self, query: LinearOperator) -> np.ndarray:
        """[a, Z] = W Q written out, (m, 1 + r)."""
        merged = self.over_cells(query)
        columns = np.column_stack([self.total_column, self.residual_columns(slice(0, self.rows))])
        return np.asarray(merged @ columns, dtype=float)

    def coefficients(self, query: LinearOperator) -> Coefficients:
        """Statistics of the query's coefficients, rows alike kept once."""
        if query not in self._known:
            self._known[query] = self._coefficients(query)
        return self._known[query]

    def _coefficients(self, query: LinearOperator) -> Coefficients:
        merged = self.over_cells(query)
        if self.centred and isinstance(merged, Identity):  # every row is like the first
            row = np.full((1, self.cells), -1 / self.cells**2)
            row[0, 0] += 1 / self.cells
            inverse = np.zeros(self.cells, dtype=np.int64)
            return Coefficients(np.full(1, 1 / self.cells), coefficient_statistics(row), inverse)
        total = np.asarray(merged @ self.total_column, dtype=float)
        spread = np.zeros((5, merged.shape[0]))
        for columns in self._groups(merged.shape[0]):
            merge_statistics(spread, coefficient_statistics(merged @ self.residual_columns(columns)))
        return _distinct(total, spread)

    def _groups(self, rows: int) -> Iterator[slice]:
        width = max(1, _CHUNK // max(rows, self.cells))
        for start in range(0, self.rows, width):
            yield slice(start, min(self.rows, start + width))

    def squares(self, query: LinearOperator) -> Coefficients:
        """As :meth:`coefficients`, but of the statistics only the sum of squares: cheaper for ranges."""
        if query in self._known or (self.centred and isinstance(query, Identity)):
            return self.coefficients(query)
        merged = self.over_cells(query)
        known = range_variance(merged, self.covariance)
        if known is None:
            return self.coefficients(query)
        spread = np.zeros((5, len(known)))
        spread[0] = known
        return Coefficients(np.asarray(merged @ self.total_column, float), spread, np.arange(len(known)))

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Q along the middle axis: (left, 1 + r, right) -> (left, c, right)."""
        if self.centred:
            rest = values[:, 1:]
            return (values[:, :1] + rest - rest.mean(axis=1, keepdims=True)) / self.cells
        return np.matmul(self._decomposed[0], values)


@lru_cache(maxsize=128)
def basis_of(operator: LinearOperator) -> Basis:
    """The basis of one measured matrix, kept for the next strategy that measures it."""
    return Basis(operator)


def cleared(value: float, size: float) -> float:
    """A sum, or 0 where it cannot be told from 0 beside the size of what was added up."""
    return value if abs(value) > CANCELLED * size else 0.0


def flat(matrix: np.ndarray) -> bool:
    """Whether all entries are equal."""
    return bool((matrix == matrix.flat[0]).all())


def _classes(operator: LinearOperator) -> Partition:
    """The partition of the attribute's cells into those that the operator tells apart."""
    if isinstance(operator, Centring):
        return Partition(np.arange(operator.n))
    if _is_centring(operator):
        assert isinstance(operator, MatrixProduct)
        return Partition(operator.right.column_classes())
    return Partition(operator.column_classes())


def _is_centring(operator: LinearOperator) -> bool:
    """Whether B is Centring, over the cells or over classes of them that leave none out."""
    if isinstance(operator, MatrixProduct) and isinstance(operator.right, Partition):
        everyone = operator.right.classes.min() >= 0 and operator.right.sizes.min() > 0
        return everyone and isinstance(operator.left, Centring)
    return isinstance(operator, Centring)


def _distinct(total: np.ndarray, spread: np.ndarray) -> Coefficients:
    """Rows whose statistics agree to ``_SAME`` bits, once."""
    if len(total) > _DISTINCT:
        return Coefficients(total, spread, np.arange(len(total)))
    mantissa, exponent = np.frexp(np.vstack([total, spread]))
    keys = np.vstack([np.rint(np.ldexp(mantissa, _SAME)), exponent])
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return Coefficients(total[first], spread[:, first], inverse.reshape(-1))


MOST_SETS = 2**18
"""Most sets of attributes that a strategy measures a residual group for."""

_OF_ONE = 2**15  # most of them that are subsets of what one table crosses

Set = tuple[int, ...]


def subsets(members: Sequence[int]) -> list[Set]:
    """All subsets, in the order of a Kronecker product over the members with (out, in) for each."""
    found: list[Set] = [()]
    for member in members:
        found = [s + more for s in found for more in ((), (member,))]
    return found


def closure(supports: Iterable[Set]) -> tuple[Set, ...]:
    """All subsets of the given sets, small ones first; more than ``MOST_SETS`` are refused, and sets of over 15."""
    found: set[Set] = set()
    for support in sorted(set(supports), key=len, reverse=True):
        if support in found:
            continue
        if 2 ** len(support) <= _OF_ONE:
            found.update(c for k in range(len(support) + 1) for c in combinations(support, k))
        if 2 ** len(support) > _OF_ONE or len(found) > MOST_SETS:
            raise Unsupported(
                f"the tables cross more than {MOST_SETS:,} different sets of attributes, subsets included (one crosses "
                f'{len(support)} attributes), and "residual" measures a group of queries for each: ask for tables that '
                'cross fewer attributes together, or choose "kron" or "union", which list no subsets'
            )
    return tuple(sorted(found, key=lambda s: (len(s), s)))


@dataclass(frozen=True)
class _Group:
    """Terms that mention equally many attributes a: ``members`` (t, a), ``places`` (t, 2^a) among the sets."""

    terms: np.ndarray
    members: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class SetSums:
    """Terms with the attributes that each mentions, over a list of sets that holds all they need.

    A subset that is not among ``sets`` must have no share (its beta are 0): it is left out of the sums.
    """

    sets: tuple[Set, ...]
    mentions: tuple[Set, ...]

    @cached_property
    def _groups(self) -> list[_Group]:
        position = {s: k for k, s in enumerate(self.sets)}
        by_size: dict[int, list[int]] = {}
        for term, mention in enumerate(self.mentions):
            by_size.setdefault(len(mention), []).append(term)
        known: dict[Set, list[int]] = {}
        for mention in self.mentions:
            if mention not in known:
                known[mention] = [position.get(s, len(self.sets)) for s in subsets(mention)]
        return [
            _Group(
                np.array(terms),
                np.array([self.mentions[t] for t in terms], dtype=np.int64).reshape(len(terms), size),
                np.array([known[self.mentions[t]] for t in terms]),
            )
            for size, terms in by_size.items()
        ]

    def values(self, coefficients: np.ndarray, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """``v_S = sum_l c_l prod beta prod gamma`` for each set; beta and gamma are (terms, attributes)."""
        total = np.zeros(len(self.sets) + 1)
        for group in self._groups:
            shares = coefficients[group.terms, None] * _products(_pairs(group, beta, gamma))
            total += np.bincount(group.places.ravel(), weights=shares.ravel(), minlength=len(total))
        return total[:-1]

    def gradient(
        self, slopes: np.ndarray, coefficients: np.ndarray, beta: np.ndarray, gamma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of ``sum_S slope_S v_S`` by every beta and gamma, (terms, attributes) each."""
        by_beta, by_gamma = np.zeros(beta.shape), np.zeros(gamma.shape)
        padded = np.append(slopes, 0.0)
        for group in self._groups:
            pairs = _pairs(group, beta, gamma)
            count, size = group.members.shape
            weights = (coefficients[group.terms, None] * padded[group.places]).reshape(count, *[2] * size)
            for axis in range(size):
                others = _products(np.delete(pairs, axis, axis=1))
                turned = np.moveaxis(weights, axis + 1, 1).reshape(count, 2, -1)
                outside, inside = np.einsum("tkr,tr->kt", turned, others)
                by_gamma[group.terms, group.members[:, axis]] = outside
                by_beta[group.terms, group.members[:, axis]] = inside
        return by_beta, by_gamma


def _pairs(group: _Group, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """(gamma, beta) of each term's attributes, (terms, attributes mentioned, 2)."""
    rows = group.terms[:, None]
    return np.stack([gamma[rows, group.members], beta[rows, group.members]], axis=2)


def _products(pairs: np.ndarray) -> np.ndarray:
    """Kronecker products of the pairs of each term, (terms, 2^a)."""
    out = np.ones((len(pairs), 1))
    for k in range(pairs.shape[1]):
        out = (out[:, :, None] * pairs[:, k, None, :]).reshape(len(pairs), -1)
    return out
