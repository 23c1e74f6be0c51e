"""The shares of a geography: of the budget by level, and of each level's budget by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..geography.codes import numbered
from ..geography.from_codes import ROOT
from ..privacy import exact
from .geography_leaves import Leaves
from .geography_shape import GeographySection
from .problems import (
    Problems,
    nearest,
    shown,
)
from .sections import Document


@dataclass(frozen=True)
class LevelShares:
    """Shares that add up to 1, of levels and within each level that is measured.

    Attributes:
        levels: level -> its share of the budget.
        queries: level -> the share of each query.
    """

    levels: Mapping[str, Fraction]
    queries: Mapping[str, tuple[Fraction, ...]]


_OFF = -2  # in place of a unit, of a leaf that is not on the spine


@dataclass(frozen=True)
class SpineLevels:
    """The levels of the spine, those of the file, and why a root is added above them; empty where none is."""

    names: tuple[str, ...]
    why_root: str = ""


def levels_of(leaves: Leaves, kept: np.ndarray | None) -> SpineLevels:
    """The levels of the spine: below a root where the first of the file has several units, or leaves outside them.

    Args:
        leaves: of the file.
        kept: shape (leaves,), boolean: which of them are on the spine; None for all.
    """
    first = leaves.levels[0]
    number = np.where(True if kept is None else kept, numbered(leaves.columns[first])[0], _OFF)
    used = np.unique(number[number > _OFF])
    outside = leaves.row[number == -1]
    if used.size < 2 and not outside.size and len(leaves.levels) > 1:
        return SpineLevels(leaves.levels)
    if used.size <= 2 and outside.size:
        why = f"{shown(first)}, which is empty on {leaves.unit} {outside[0]} of its file,"
    else:
        why = f"{shown(first)} with its several units,"
    return SpineLevels((ROOT, *leaves.levels), why)


def read_level_shares(
    document: Document, section: GeographySection, levels: SpineLevels | None, problems: Problems
) -> LevelShares | None:
    """The shares as written; None, with the mistakes recorded, where they do not add up.

    Args:
        document: the sections as read.
        section: ``[geography]``.
        levels: of the spine; None where its file could not be read.
        problems: where mistakes are recorded.
    """
    before = len(problems.found)
    given = {level: exact(share) for level, share in (section.shares or {}).items()}
    if levels is not None:
        _check_levels(given, levels, problems)
    if section.shares is not None and len(problems.found) == before and sum(given.values()) != 1:
        told = f"the shares of the levels add up to {sum(given.values())}, and not to 1"
        problems.add(("geography", "shares"), told)
    within = _within(document, levels and levels.names, problems)
    if not problems.told(("geography", "query")) and not problems.told(("geography", "shares")):
        _check_within(given, within, problems)
    whole = section.shares is not None and all(
        entry and entry.shares is not None for entry in document.queries
    )
    right = whole and bool(document.queries) and len(problems.found) == before
    return LevelShares(given, within) if right and not problems.told(("geography", "shares")) else None


def _check_levels(given: Mapping[str, Fraction], levels: SpineLevels, problems: Problems) -> None:
    """Every level of the spine has a share, and nothing else has."""
    path, names = ("geography", "shares"), levels.names
    for level in given:
        if level not in names:
            problems.add((*path, level), f"there is no level {shown(level)}; {nearest(level, names)}")
    for at, level in enumerate(names):
        if given and level not in given:
            added = f", which is added above {levels.why_root}" if levels.why_root and not at else ""
            problems.add(path, f'level {shown(level)}{added} has no share: write {level} = "0" for none')
    if given and given.get(names[-1]) == 0:
        problems.add((*path, names[-1]), "is 0: leaves need a share, or nothing tells them apart")


def _within(
    document: Document, levels: Sequence[str] | None, problems: Problems
) -> dict[str, tuple[Fraction, ...]]:
    """For each level that is asked, the share of each query."""
    entries = [entry.shares or {} if entry else {} for entry in document.queries]
    for at, shares in enumerate(entries):
        for level in shares:
            if levels is not None and level not in levels:
                told = f"there is no level {shown(level)}; {nearest(level, levels)}"
                problems.add(("geography", "query", at, "shares", level), told)
    asked = dict.fromkeys(level for shares in entries for level in shares)
    return {level: tuple(exact(shares.get(level, "0")) for shares in entries) for level in asked}


def _check_within(
    given: Mapping[str, Fraction], within: Mapping[str, tuple[Fraction, ...]], problems: Problems
) -> None:
    """The queries of each level that is measured share all of its budget, and no other level has queries."""
    for level, share in given.items():
        total = sum(within.get(level, ()), Fraction(0))
        if share and total != 1:
            told = f"at level {shown(level)} the shares of the queries add up to {total}, and not to 1"
            problems.add(("geography", "query"), told)
        elif total and not share:
            told = f"level {shown(level)} has no share of the budget, and queries have shares of it: remove theirs"
            problems.add(("geography", "query"), told)
