"""``[[invariant]]`` of a geography: counts that are exact for every unit of a level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..geography.constraints import ExactMargin
from ..geography.layout import Layout, Margin
from ..geography.spine import Spine
from .geography_leaves import Leaves
from .problems import (
    Problems,
    nearest,
    shown,
    written,
)
from .sections import Document


def read_exact(
    document: Document,
    leaves: Leaves,
    kept: np.ndarray,
    spine: Spine,
    layout: Layout,
    support: np.ndarray,
    problems: Problems,
) -> list[tuple[int, ExactMargin]] | None:
    """The position of each invariant and what it makes exact; None, with the mistakes recorded, where one is wrong.

    Args:
        document: the sections as read.
        leaves: of the file.
        kept: shape (leaves,): which of them are on the spine.
        spine: as it is measured.
        layout: of the cells; what invariants count by is dense.
        support: shape (leaves of the spine, dense cells): what can occur.
        problems: where mistakes are recorded.
    """
    before = len(problems.found)
    found: list[tuple[int, ExactMargin]] = []
    first: dict[tuple[str, bytes], int] = {}
    for at, entry in enumerate(document.invariants):
        if entry is None or entry.attributes is None:
            continue
        level = _level(entry.level, at, leaves, kept, spine, layout.domain.names, problems)
        if level is None:
            continue
        margin = layout.margin(entry.attributes)
        partition = np.unique(margin.label, return_inverse=True)[1].tobytes()
        earlier = first.setdefault((level, partition), at)
        if earlier != at:
            told = f"makes the same counts exact as {written(('invariant', earlier))}: keep one"
            problems.add(("invariant", at), told)
        found.append((at, ExactMargin(level, margin, entry.reason or "")))
    at_leaves = [(at, exact) for at, exact in found if spine.codes[exact.level].size == spine.leaves]
    if _leaves_nothing([exact.margin for _, exact in at_leaves], layout, support):
        also = " with the others" if len(at_leaves) > 1 else ""
        told = (
            f"makes every count of every {spine.levels[-1]} exact{also}: nothing is left to be released under a "
            "guarantee"
        )
        problems.add(("invariant", at_leaves[-1][0]), told)
    return found if len(problems.found) == before else None


def _leaves_nothing(margins: Sequence[Margin], layout: Layout, support: np.ndarray) -> bool:
    """Whether exact margins of a leaf determine every count that it can have.

    They do when their rows span those of all cells, in every leaf: cells that differ in a symmetric attribute are in
    one class of each margin.
    """
    if not margins or layout.algebra.cells > 1:
        return False
    labels = np.stack([margin.label for margin in margins])
    for pattern in np.unique(support, axis=0):
        here = labels[:, pattern]
        if np.unique(here, axis=1).shape[1] < here.shape[1]:
            return False
        rows = np.concatenate([label == np.unique(label)[:, None] for label in here])
        if np.linalg.matrix_rank(rows.astype(float)) < here.shape[1]:
            return False
    return True


def _level(
    level: str | None,
    at: int,
    leaves: Leaves,
    kept: np.ndarray,
    spine: Spine,
    names: tuple[str, ...],
    problems: Problems,
) -> str | None:
    """The level of an invariant, if its units on the spine are those of the file.

    Units that are split or drawn anew are other ones than the file's: to have their counts exact would tell more than
    the counts of the file's units.
    """
    path = ("invariant", at, "level")
    if level is None:
        problems.add(path, f'is missing: say where the counts are exact, such as level = "{spine.levels[0]}"')
        return None
    if level not in spine.levels:
        problems.add(path, f"there is no level {shown(level)}; {nearest(level, spine.levels)}")
        return None
    if level in names and spine.codes[level].size > 1:
        problems.add(
            path, f"{shown(level)} is the name of an attribute, too: rename the level or the attribute"
        )
        return None
    units = spine.codes[level][spine.units[level]]
    if level in leaves.columns and (units != leaves.columns[level][kept]).any():
        told = (
            f"units of level {shown(level)} are split, drawn anew, or stand in for ones left out, so that more would "
            "be exact than counts of the file's units: choose a level above"
        )
        problems.add(path, told)
        return None
    return level
