"""Sensitivity over neighbours that agree on every invariant: one record replaced by another that moves none of them.

The differences are ``d = e_j - e_k`` for cells j, k with ``C e_j = C e_k``: cells in one class of equal columns of C.
Where the exact tables nest attribute by attribute, a class is a product of one class an attribute, and the largest pair
is found class by class; classes over which the queries look alike are looked at once. Otherwise columns are listed, up
to 4,096 cells. Beyond both, all pairs of cells are taken: an upper bound.

Reference: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm" (neighbours that both satisfy
the invariants).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..domain import Domain, Invariants
from ..errors import InvalidArgument
from ..linalg import (
    Contrasts,
    Dense,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Sensitivity,
    Stack,
    Sum,
    joint_classes,
    merge_columns,
    representatives,
    weighted_sensitivity,
)
from ..privacy import WITHIN
from .block import kron_sum, products

_CELLS = 4096
_ENTRIES = 2**27
_WHOLE = 2**62
_CLASSES = 2000  # combinations of classes that are looked at one by one

Weighted = Sequence[tuple[LinearOperator, Fraction]]
Terms = list[tuple[int, tuple[LinearOperator, ...]]]


def within_invariants(blocks: Weighted, p: int, domain: Domain, invariants: Invariants | None) -> Sensitivity:
    """``max sum_i w_i ||A_i (e_j - e_k)||_p^p`` over cells j, k whose columns of C are equal.

    Raises :class:`~tabulae.errors.InvalidArgument` without invariants, or where no two cells have equal columns:
    then no record could be replaced, and the promise would be empty.

    Privacy:
        The differences are exactly those of neighbours under "replace-within-invariants"; where they cannot be
        listed they are a subset of those taken, so that the result is an upper bound.
    """
    parts = _split(blocks, domain, invariants)
    if parts is None:
        bound = weighted_sensitivity(blocks, p, "replace")
        return Sensitivity(bound.power, p, is_exact=False)
    found = [weighted_sensitivity(group, p, "replace") for group in parts.classes if group[0][0].shape[1] > 1]
    power = max((s.power for s in found), default=Fraction(0))
    return Sensitivity(power, p, is_exact=all(s.is_exact for s in found))


def between_classes(blocks: Weighted, p: int, domain: Domain, invariants: Invariants | None) -> Sensitivity:
    """What the same blocks ask of the classes of equal columns of C, under "replace": ``||A_i (m_c - m_d)||``.

    m_c is the mean over class c. No neighbour within the invariants moves a sum over a class, whether or not it is one
    of the invariants, so that such a sum would take next to no noise and come out as it is, undisclosed. Noise is
    therefore sized for this as well: counts that are not named as exact carry the noise of the promise "replace".

    Raises as :func:`within_invariants`.
    """
    parts = _split(blocks, domain, invariants)
    return weighted_sensitivity(blocks if parts is None else parts.means, p, "replace")


@dataclass(frozen=True)
class _Parts:
    """Blocks over the cells of each kind of class, and over the classes."""

    classes: list[Weighted]
    means: Weighted


def _split(blocks: Weighted, domain: Domain, invariants: Invariants | None) -> _Parts | None:
    """The blocks class by class; None where neither size nor structure allows it."""
    if invariants is None:
        raise InvalidArgument(
            f'neighbours = "{WITHIN}" needs invariants to be within: name them, or choose "replace"'
        )
    flat = [(part, weight) for op, weight in blocks for part in _members(op)]
    every = [factors for op, _ in flat for _, factors in _terms(op)]
    fits = all(tuple(f.shape[1] for f in factors) == domain.shape for factors in every)
    if has_neighbours(invariants) is False:
        raise InvalidArgument(
            f'under "{WITHIN}" nothing would be protected: no record can be replaced by a different one without moving '
            'an invariant. Choose "replace" or "add-remove", or publish fewer tables exactly'
        )
    if not fits:
        return None
    return _listed(flat, domain, invariants) or _by_class(flat, invariants)


def has_neighbours(invariants: Invariants) -> bool | None:
    """Whether two cells have equal columns of C: then a record can be replaced and move no invariant. None: too many.

    >>> from tabulae.linalg import Identity
    >>> from tabulae.domain import Table
    >>> has_neighbours(Invariants(Domain({"a": 2, "b": 2}), [Table("a", {"a": Identity(2)})]))
    True
    """
    if invariants.finest is not None:
        return any(part.shape[0] < part.shape[1] for part in invariants.finest)
    domain = invariants.domain
    exact = [term.over(domain) for table in invariants.tables for term in table.terms]
    merges = [merge_columns(list(dict.fromkeys(column))) for column in zip(*exact, strict=True)]
    if any(part.shape[0] < part.shape[1] for part in merges):
        return True
    if domain.size > _CELLS:
        return None
    chosen = [np.arange(n) for n in domain.shape]
    labels = joint_classes([_labels_of(written_out(t.operator(domain), chosen)) for t in invariants.tables])
    return len(np.unique(labels)) < domain.size


def _members(operator: LinearOperator) -> Iterator[LinearOperator]:
    for part in operator.ops if isinstance(operator, Stack) else [operator]:
        yield part.composed if isinstance(part, Contrasts) else part


def _terms(operator: LinearOperator) -> Terms:
    """A sum of products over the attributes; of an explicit one, what its columns depend on."""
    if isinstance(operator, MatrixProduct):
        return _terms(operator.right)
    return products(operator)


# listed ------------------------------------------------------------------------------------------------------
def _listed(blocks: Weighted, domain: Domain, invariants: Invariants) -> _Parts | None:
    """The blocks over the cells of each class of C, written out; None where that is too large."""
    exact = [term.over(domain) for table in invariants.tables for term in table.terms]
    every = [factors for op, _ in blocks for _, factors in _terms(op)] + exact
    merges = [merge_columns(list(dict.fromkeys(column))) for column in zip(*every, strict=True)]
    cells = math.prod(part.shape[0] for part in merges)
    if cells > _CELLS or sum(op.shape[0] for op, _ in blocks) * cells > _ENTRIES:
        return None
    if any(_largest(op) >= _WHOLE for op, _ in blocks):
        return None
    chosen = [representatives(part.classes) for part in merges]
    labels = joint_classes([_labels_of(written_out(t.operator(domain), chosen)) for t in invariants.tables])
    sizes = np.ones(1)
    for part in merges:
        sizes = np.multiply.outer(sizes, part.sizes).ravel()
    dense = [(written_out(op, chosen), weight) for op, weight in blocks]
    count = int(labels.max()) + 1
    classes: list[Weighted] = [
        [(Dense(matrix[:, labels == label]), weight) for matrix, weight in dense] for label in range(count)
    ]
    shares = np.zeros((cells, count))
    shares[np.arange(cells), labels] = sizes
    shares /= shares.sum(axis=0)
    return _Parts(classes, [(Dense(matrix @ shares), weight) for matrix, weight in dense])


def _largest(operator: LinearOperator) -> int:
    """A bound on the entries of a block and on what they are computed from."""
    if isinstance(operator, MatrixProduct):
        return math.ceil(operator.left.abs_row_sum_max()) * _largest(operator.right)
    return sum(
        abs(c) * math.prod(max(1, math.ceil(f.abs_entry_max())) for f in factors)
        for c, factors in _terms(operator)
    )


def written_out(operator: LinearOperator, chosen: Sequence[np.ndarray]) -> np.ndarray:
    """The columns of a sum of products at the combinations of chosen categories, one set an attribute."""
    if isinstance(operator, MatrixProduct):
        return np.asarray(operator.left @ written_out(operator.right, chosen))
    return kron_sum(
        (c, [f.columns(columns) for f, columns in zip(factors, chosen, strict=True)])
        for c, factors in _terms(operator)
    )


def _labels_of(matrix: np.ndarray) -> np.ndarray:
    return np.unique(matrix, axis=1, return_inverse=True)[1].reshape(-1)


# by class of each attribute --------------------------------------------------------------------------------------
def _by_class(blocks: Weighted, invariants: Invariants) -> _Parts | None:
    """The blocks over each kind of class, factor by factor; None where blocks or invariants have no such form."""
    finest = invariants.finest
    if finest is None or any(isinstance(op, MatrixProduct) for op, _ in blocks):
        return None
    terms = [_terms(op) for op, _ in blocks]
    kinds: list[list[list[list[LinearOperator]]]] = []
    for axis, partition in enumerate(finest):
        asked = [[factors[axis] for _, factors in of_block] for of_block in terms]
        if partition.shape[0] == 1:
            kinds.append([asked])
            continue
        seen: dict[bytes, list[list[LinearOperator]]] = {}
        for label in range(partition.shape[0]):
            cells = np.flatnonzero(partition.classes == label)
            columns = [_canonical([f.columns(cells) for f in of_block]) for of_block in asked]
            key = b"|".join(str(c.shape).encode() + c.tobytes() for c in columns)
            seen.setdefault(key, [_by_term(c, len(cells)) for c in columns])
        kinds.append(list(seen.values()))
    if math.prod(map(len, kinds)) > _CLASSES:
        return None
    coefficients = [[c for c, _ in of_block] for of_block in terms]
    classes: list[Weighted] = [
        [
            (_rebuilt(coefficients[b], [kind[b] for kind in choice]), weight)
            for b, (_, weight) in enumerate(blocks)
        ]
        for choice in itertools.product(*kinds)
    ]
    return _Parts(
        classes, [_means(of_block, w, finest) for of_block, (_, w) in zip(terms, blocks, strict=True)]
    )


def _means(terms: Terms, weight: Fraction, finest: Sequence[Partition]) -> tuple[LinearOperator, Fraction]:
    """A sum of products over the classes of each attribute, by the mean of each class; floats where they divide."""
    products: list[tuple[int, LinearOperator]] = []
    for coefficient, factors in terms:
        products.append((coefficient, Kron([_mean(f, p) for f, p in zip(factors, finest, strict=True)])))
    if len(products) == 1 and products[0][0] == 1:
        return products[0][1], weight
    return Sum(products), weight


def _mean(factor: LinearOperator, partition: Partition) -> LinearOperator:
    if partition.shape[0] == partition.shape[1]:
        return factor
    return Dense(np.asarray(factor @ partition.T.dense(), dtype=float) / partition.sizes)


def _canonical(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The factors of a block's terms side by side, without rows of zeros, rows in order: norms do not change."""
    whole = np.hstack(parts)
    whole = whole[np.any(whole != 0, axis=1)]
    if not len(whole):
        return np.zeros((1, sum(p.shape[1] for p in parts)), dtype=np.int64)
    return np.ascontiguousarray(whole[np.lexsort(whole.T[::-1])])


def _by_term(columns: np.ndarray, width: int) -> list[LinearOperator]:
    return [Dense(columns[:, start : start + width]) for start in range(0, columns.shape[1], width)]


def _rebuilt(coefficients: Sequence[int], factors: Sequence[Sequence[LinearOperator]]) -> LinearOperator:
    """A block's sum of products from the factors of each attribute."""
    products = [Kron([axis[t] for axis in factors]) for t in range(len(coefficients))]
    if len(products) == 1 and coefficients[0] == 1:
        return products[0]
    return Sum(list(zip(coefficients, products, strict=True)))
