"""``[[invariant]]`` of a geography: counts that are exact for every unit of a level."""

from __future__ import annotations

import numpy as np

from ..geography.constraints import ExactMargin
from ..geography.layout import Layout
from ..geography.spine import Spine
from .geography_leaves import Leaves
from .problems import Problems, nearest, shown, written
from .sections import Document


def read_exact(
    document: Document, leaves: Leaves, kept: np.ndarray, spine: Spine, layout: Layout, problems: Problems
) -> list[tuple[int, ExactMargin]] | None:
    """The position of each invariant and what it makes exact; None, with the mistakes recorded, where one is wrong.

    Args:
        document: the sections as read.
        leaves: of the file.
        kept: shape (leaves,): which of them are on the spine.
        spine: as it is measured.
        layout: of the cells; what invariants count by is dense.
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
        if level == spine.levels[-1] and margin.size == layout.domain.size:
            told = (
                f"makes every count of every {level} exact: nothing is left to be released under a guarantee"
            )
            problems.add(("invariant", at), told)
        found.append((at, ExactMargin(level, margin, entry.reason or "")))
    return found if len(problems.found) == before else None


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
