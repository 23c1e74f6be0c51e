"""A hierarchy from parent columns, or from sdcTable's list with one '@' a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .from_codes import code_column, from_columns
from .hierarchy import Hierarchy


def from_parent_column(codes: Sequence[Any], parents: Sequence[Any], levels: Sequence[str]) -> Hierarchy:
    """The tree in which each code names its parent; see ``Spine.from_parents``."""
    names, above = code_column(codes, "codes"), code_column(parents, "parents")
    if names.size != above.size:
        raise InvalidArgument(
            f"{names.size} codes and {above.size} parents: each code has one parent, or None"
        )
    row_of: dict[str, int] = {}
    for row, name in enumerate(names):
        if name is None:
            raise InvalidArgument(f"row {row + 1} has no code")
        if name in row_of:
            raise InvalidArgument(
                f"code {name!r} stands in rows {row_of[name] + 1} and {row + 1}: each unit has one row and one parent"
            )
        row_of[name] = row
    for row, name in enumerate(above):
        if name is not None and name not in row_of:
            raise InvalidArgument(
                f"row {row + 1}: the parent {name!r} of {names[row]!r} has no row of its own"
            )
    return _from_rows(names, np.array([-1 if name is None else row_of[name] for name in above]), levels)


def from_marks(marks: Sequence[str], codes: Sequence[Any], levels: Sequence[str]) -> Hierarchy:
    """The tree of a list in which as many '@' as a unit's level stand before its code; see ``Spine.from_sdc``."""
    names = code_column(codes, "codes")
    if len(marks) != names.size:
        raise InvalidArgument(f"{len(marks)} marks and {names.size} codes: each row has one of each")
    row_at: list[int] = []  # the last row of each level so far
    parents = []
    for row, mark in enumerate(marks):
        if not isinstance(mark, str) or not mark or mark.strip("@"):
            raise InvalidArgument(
                f"row {row + 1}: {mark!r} is no level: write one '@' for the total, one more a level"
            )
        if names[row] is None:
            raise InvalidArgument(f"row {row + 1} has no code")
        if len(mark) > len(row_at) + 1:
            raise InvalidArgument(
                f"row {row + 1}: {names[row]!r} is at level {len(mark)} below a unit of level {len(row_at)}: a level "
                "is left out. Units follow the one they lie in, with one '@' more"
            )
        row_at = [*row_at[: len(mark) - 1], row]
        parents.append(row_at[-2] if len(row_at) > 1 else -1)
    if parents.count(-1) > 1:
        raise InvalidArgument(
            "the list has several rows with one '@': the total stands once, in the first row"
        )
    return _from_rows(names, np.array(parents, np.int64), levels)


def _from_rows(names: np.ndarray, parents: np.ndarray, levels: Sequence[str]) -> Hierarchy:
    """The paths from the root to each row that is nobody's parent, as columns."""
    depth = _depths(names, parents)
    deepest = int(depth.max(initial=-1)) + 1
    if isinstance(levels, str) or len(levels) != deepest:
        raise InvalidArgument(
            f"the tree has {deepest} levels and levels names {len(levels)}: give one name a level"
        )
    row = np.setdiff1d(np.arange(names.size), parents)
    columns = [np.empty(row.size, object) for _ in levels]
    while np.any(row >= 0):
        there = np.flatnonzero(row >= 0)
        for level in np.unique(depth[row[there]]):
            here = there[depth[row[there]] == level]
            columns[level][here] = names[row[here]]
        row = np.where(row >= 0, parents[row], -1)
    return from_columns(dict(zip(levels, columns, strict=True)), levels)


def _depths(names: np.ndarray, parents: np.ndarray) -> np.ndarray:
    depth = np.where(parents < 0, 0, -1)
    for level in range(names.size):
        reached = depth == level
        if not np.any(reached):
            break
        depth[(parents >= 0) & reached[parents]] = level + 1
    if np.any(depth < 0):
        raise InvalidArgument(
            f"{names[int(np.argmax(depth < 0))]!r} lies in itself, through its parents: a top unit has the parent None"
        )
    return depth
