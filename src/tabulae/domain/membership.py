"""Which groups records belong to, for very many records at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .groups import NONE, GroupSelection

_RECORDS = 1 << 17


def assign(selection: GroupSelection, carried: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The groups of each record: all pairs of a record and a group that it belongs to.

    With m the codes that a record carries in a family and h_g how many of them are members of group g, it belongs to
    g if h_g = m > 0 (alone) or h_g > 0 (any). A code that is written twice counts twice on both sides, and a code
    that is in no group still counts in m.

    Args:
        selection: the groups.
        carried: family -> shape (n, most): positions of codes in ``Family.codes``, or -1 for none, in any order. A
            family that is left out is one of which no record carries a code.

    Returns:
        Record positions (not falling) and group positions in the selection, int64; each pair once, groups of one
        record rising.

    Raises:
        InvalidArgument: arrays of unequal length, families that are not known, or positions that are not of codes.

    >>> from tabulae.domain.groups import Family, Group, GroupMap
    >>> race = Family("race", ("1010", "1020"), most=2)
    >>> groups = (Group("a", "1", "race", "alone"), Group("b", "1", "race", "any"))
    >>> selection = GroupMap((race,), groups, [("a", "1010"), ("b", "1010")]).at("1", "state")
    >>> [found.tolist() for found in assign(selection, {"race": np.array([[0, -1], [0, 1], [1, -1]])})]
    [[0, 0, 1], [0, 1, 1]]
    """
    records = _checked(selection, carried)
    is_alone = np.array([group.kind == "alone" for group in selection.groups], bool)
    rows = {name: selection.member[name].tocsr() for name in carried}
    found = [np.zeros(0, np.int64)]
    for start in range(0, records, _RECORDS):
        chunk = [
            _keys(rows[name], is_alone, codes[start : start + _RECORDS]) for name, codes in carried.items()
        ]
        found.append(np.sort(np.concatenate(chunk)) + start * len(selection))
    record, group = np.divmod(np.concatenate(found), max(1, len(selection)))
    return record, group


def _checked(selection: GroupSelection, carried: Mapping[str, np.ndarray]) -> int:
    """The number of records."""
    sizes = {family.name: len(family.codes) for family in selection.families}
    if unknown := sorted(set(carried) - set(sizes)):
        raise InvalidArgument(f"records carry codes of {unknown}, which are no families of this map")
    for name, codes in carried.items():
        if codes.ndim != 2 or not np.issubdtype(codes.dtype, np.integer):
            raise InvalidArgument(f"the codes of {name!r} must be integers, of shape (records, most)")
        if codes.size and not (codes.min() >= NONE and codes.max() < sizes[name]):
            raise InvalidArgument(
                f"the codes of {name!r} must be positions below {sizes[name]}, or -1 for none"
            )
    if len(lengths := {len(codes) for codes in carried.values()}) > 1:
        raise InvalidArgument("every family must have a row for every record")
    return max(lengths, default=0)


def _keys(member: Any, is_alone: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """``record * groups + group`` for every group of one family that a record belongs to, each once."""
    filled = codes != NONE
    record, held = np.nonzero(filled)[0], codes[filled]
    low = member.indptr[held].astype(np.int64)
    length = member.indptr[held + 1] - low
    ends = np.cumsum(length)
    entry = np.arange(length.sum()) + np.repeat(low - ends + length, length)
    group = member.indices[entry].astype(np.int64)
    key, hits = np.unique(np.repeat(record, length) * is_alone.size + group, return_counts=True)
    record, group = np.divmod(key, max(1, is_alone.size))
    return key[~is_alone[group] | (hits == filled.sum(axis=1)[record])]
