"""Off-spine entities: sets of leaves that cut across the levels, such as places or tribal areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..errors import InvalidArgument
from .codes import numbered
from .from_codes import code_column


@dataclass(frozen=True, eq=False)
class Entities:
    """Sets of leaves, which may overlap.

    Args:
        names: one name an entity.
        leaf: shape (pairs,): the leaves of the entities, sorted.
        entity: shape (pairs,): the entity that each of them lies in. No pair stands twice.
    """

    names: tuple[str, ...]
    leaf: np.ndarray
    entity: np.ndarray

    def membership(self, leaves: int) -> np.ndarray:
        """Shape (leaves,): equal numbers for leaves that lie in the same entities."""
        first = np.searchsorted(self.leaf, np.arange(leaves + 1))
        count, found = np.diff(first), np.zeros(leaves, np.int64)
        for at in range(int(count.max(initial=0))):
            # leaves that have been in the same entities so far are told apart by their next one
            more = np.flatnonzero(count > at)
            key = found[more] * len(self.names) + self.entity[first[more] + at]
            found[more] = 1 + found.max() + np.unique(key, return_inverse=True)[1]
        _, seen, place = np.unique(found, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(seen))[place]  # numbers in the order of their first leaves


def union(several: Sequence[Entities]) -> Entities:
    """All of several kinds of entities."""
    first = np.cumsum([0] + [len(each.names) for each in several])
    leaf = np.concatenate([np.empty(0, np.int64), *(each.leaf for each in several)])
    entity = [each.entity + start for each, start in zip(several, first, strict=False)]
    order = np.argsort(leaf, kind="stable")
    names = tuple(name for each in several for name in each.names)
    return Entities(names, leaf[order], np.concatenate([np.empty(0, np.int64), *entity])[order])


def read_entities(entity: Any, leaf_codes: np.ndarray) -> Entities:
    """Entities as a user gives them; see ``Spine.osed``."""
    if isinstance(entity, Mapping):
        return _from_lists(entity, leaf_codes)
    if isinstance(entity, str) or not (sparse.issparse(entity) or hasattr(entity, "__len__")):
        raise InvalidArgument(
            "an entity is a code for each leaf, a boolean matrix with one row a leaf, or a dict from name to leaf codes"
        )
    if sparse.issparse(entity):
        return _from_matrix(entity, leaf_codes.size)
    if not isinstance(entity, np.ndarray):
        try:
            typed = np.array(entity)
        except ValueError:  # rows of different lengths
            raise InvalidArgument("an entity's matrix has rows of different lengths") from None
        entity = typed if typed.dtype == bool else np.array(entity, object)
    if entity.dtype == bool:
        return _from_matrix(
            sparse.coo_array(entity[:, None] if entity.ndim == 1 else entity), leaf_codes.size
        )
    return _from_codes(entity, leaf_codes.size)


def _from_codes(codes: Sequence[Any] | np.ndarray, leaves: int) -> Entities:
    if np.ndim(codes) != 1 or len(codes) != leaves:
        raise InvalidArgument(
            f"an entity of shape {np.shape(codes)} on a spine of {leaves} leaves: give one code for each leaf, in the "
            "order of the leaves, and None where a leaf lies in no entity"
        )
    column = code_column(codes, "entity")
    index, names = numbered(column)
    leaf = np.flatnonzero(index >= 0)
    return Entities(tuple(names.tolist()), leaf, index[leaf])


def _from_matrix(matrix: Any, leaves: int) -> Entities:
    pairs = sparse.coo_array(matrix)
    shape = tuple(pairs.shape or ())
    if len(shape) != 2 or shape[0] != leaves:
        hint = ": it is transposed" if shape[1:] == (leaves,) else ""
        raise InvalidArgument(
            f"entities of shape {shape} on a spine of {leaves} leaves{hint}; give one row a leaf and one column "
            "an entity"
        )
    row, column = (np.asarray(index)[pairs.data != 0] for index in pairs.coords)
    return _sorted([str(i) for i in range(shape[1])], row, column)


def _from_lists(lists: Mapping[str, Sequence[Any]], leaf_codes: np.ndarray) -> Entities:
    position = {code: i for i, code in enumerate(leaf_codes.tolist())}
    rows, columns = [], []
    for number, (name, codes) in enumerate(lists.items()):
        column = code_column(codes, f"entity {name!r}").tolist()
        unknown = [code for code in column if code not in position]
        if unknown:
            told = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
            raise InvalidArgument(
                f"entity {name!r} has {len(unknown)} of its {len(column)} leaves outside the spine ({told}). Leaves go "
                f"by their codes, such as {leaf_codes[0]!r}; look for another vintage, or for lost leading zeros"
            )
        rows += [position[code] for code in column]
        columns += [number] * len(column)
    return _sorted(list(lists), np.array(rows, np.int64), np.array(columns, np.int64))


def _sorted(names: list[str], leaf: np.ndarray, entity: np.ndarray) -> Entities:
    width = max(len(names), 1)
    key = np.sort(leaf.astype(np.int64) * width + entity)  # much faster here than np.unique
    key = key[np.diff(key, prepend=-1) != 0]
    return Entities(tuple(map(str, names)), key // width, key % width)
