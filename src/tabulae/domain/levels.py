"""The row space of exact tables as sums over nested groupings of each attribute.

A matrix whose columns fall into classes of equal ones, as many as its rank and none of zeros, has for row space the
vectors that are constant on its classes: a partition. Where the partitions that the tables have of each attribute
form a chain, from coarse to fine, their projectors commute, and everything about the row space of all tables
together is a sum over products of these projectors (see :mod:`.product_invariants`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..linalg import (
    LinearOperator,
    Partition,
    Stack,
    joint_classes,
    representatives,
)
from .domain import Domain
from .table import Table

_PRIME = 2**31 - 1
_LARGEST_RANK = 2048  # order of a factor whose rank is worked out

Level = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Exact tables that together are one product: ``members`` stacked along ``axis`` (None: a single table).

    ``factors`` has one matrix an attribute, its row space that of the partition at ``level`` of the chain.
    """

    members: tuple[int, ...]
    axis: int | None
    factors: tuple[LinearOperator, ...]
    level: Level


@dataclass(frozen=True)
class Levels:
    """Chains of partitions, one an attribute from coarse to fine, and the exact tables by their place in them."""

    chains: tuple[tuple[Partition, ...], ...]
    groups: tuple[Group, ...]


def find_levels(domain: Domain, tables: Sequence[Table]) -> Levels | None:
    """The chains that the tables' row spaces form; None where they form none.

    >>> from tabulae.linalg import Identity
    >>> levels = find_levels(Domain({"a": 3}), [Table("total", {}), Table("a", {"a": Identity(3)})])
    >>> [group.level for group in levels.groups]
    [(0,), (1,)]
    """
    terms = [term for table in tables for term in table.terms]
    if len(terms) > len(tables) or any(term.coefficient != 1 for term in terms):
        return None
    products = [term.over(domain) for term in terms]
    spaces: dict[LinearOperator, bytes | None] = {}
    for factor in {factor for product in products for factor in product}:
        spaces[factor] = _partition_of(factor)
    found = _stacked(products, spaces)
    if found is None:
        return None
    chains: list[tuple[Partition, ...]] = []
    places: list[dict[bytes, int]] = []
    for axis in range(len(domain.shape)):
        chain = _chain([keys[axis] for _, _, _, keys in found])
        if chain is None:
            return None
        chains.append(tuple(Partition(_labels(key)) for key in chain))
        places.append({key: place for place, key in enumerate(chain)})
    groups = tuple(
        Group(members, axis, factors, tuple(at[key] for at, key in zip(places, keys, strict=True)))
        for members, axis, factors, keys in found
    )
    return Levels(tuple(chains), groups)


def _labels(key: bytes) -> np.ndarray:
    return np.frombuffer(key, dtype=np.int64)


def _partition_of(factor: LinearOperator) -> bytes | None:
    """Class labels of the partition whose functions are the factor's row space; None where there is none."""
    classes = factor.column_classes()
    count = int(classes.max()) + 1
    if not factor.integer or not np.all(np.asarray(factor.column_norms(1)) > 0):
        return None
    first = representatives(classes)
    if isinstance(factor, Partition) or count == 1:
        return classes.astype(np.int64).tobytes()
    if max(count, factor.shape[0] // 64) > _LARGEST_RANK or factor.shape[0] < count:
        return None
    if not isinstance(factor, Partition) and factor.shape == (count, count) and factor.binary:
        small = factor.columns(first)
        if np.array_equal(small, np.eye(count)):
            return classes.astype(np.int64).tobytes()
    return classes.astype(np.int64).tobytes() if _full_rank(factor.columns(first)) else None


def _full_rank(matrix: np.ndarray) -> bool:
    """Whether the columns are independent: proven by elimination modulo a prime, which never overstates the rank."""
    rows = np.unique(np.asarray(matrix) % _PRIME, axis=0).astype(np.int64)
    for column in range(rows.shape[1]):
        hits = np.flatnonzero(rows[column:, column]) + column
        if not hits.size:
            return False
        rows[[column, hits[0]]] = rows[[hits[0], column]]
        rows[column] = rows[column] * pow(int(rows[column, column]), -1, _PRIME) % _PRIME
        below = rows[column + 1 :]
        below -= below[:, column, None] * rows[column] % _PRIME
        below %= _PRIME
    return True


_Found = tuple[tuple[int, ...], int | None, tuple[LinearOperator, ...], tuple[bytes, ...]]


def _stacked(
    products: Sequence[tuple[LinearOperator, ...]], spaces: dict[LinearOperator, bytes | None]
) -> list[_Found] | None:
    """Tables one by one; one that is no partition joins those that differ from it in that attribute only."""
    found: list[_Found] = []
    loose: dict[tuple[int, tuple[bytes, ...]], list[int]] = {}
    for index, factors in enumerate(products):
        keys = [spaces[factor] for factor in factors]
        open_axes = [axis for axis, key in enumerate(keys) if key is None]
        if len(open_axes) > 1:
            return None
        if not open_axes:
            found.append(((index,), None, factors, tuple(key for key in keys if key is not None)))
        else:
            others = tuple(key for key in keys if key is not None)
            loose.setdefault((open_axes[0], others), []).append(index)
    for (axis, others), together in loose.items():
        single = [(members, keys) for members, stacked, _, keys in found if stacked is None]
        alike = [i for members, keys in single for i in members if keys[:axis] + keys[axis + 1 :] == others]
        joined = tuple(sorted([*together, *alike]))
        if any(
            products[i][:axis] + products[i][axis + 1 :]
            != products[joined[0]][:axis] + products[joined[0]][axis + 1 :]
            for i in joined
        ):
            return None
        stack = Stack([products[i][axis] for i in joined])
        key = _partition_of(stack)
        if key is None:
            return None
        found = [entry for entry in found if entry[1] is not None or not set(entry[0]) & set(alike)]
        factors = products[joined[0]]
        found.append(
            (
                joined,
                axis,
                (*factors[:axis], stack, *factors[axis + 1 :]),
                (*others[:axis], key, *others[axis:]),
            )
        )
    return found


def _chain(keys: Sequence[bytes]) -> list[bytes] | None:
    """The distinct partitions from coarse to fine, None where two are not nested."""
    chain = sorted(set(keys), key=lambda key: int(_labels(key).max()))
    for coarse, fine in pairwise(chain):
        if not refines(_labels(fine), _labels(coarse)):
            return None
    return chain


def refines(fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Whether every class of ``fine`` lies in one class of ``coarse``.

    >>> refines(np.array([0, 1, 2]), np.array([0, 0, 1]))
    True
    """
    return int(joint_classes([fine, coarse]).max()) == len(np.unique(fine)) - 1
