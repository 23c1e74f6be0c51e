"""The spine of a geography: levels as the file has them, split and redrawn, with the shares of their units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from ..errors import InvalidArgument
from ..geography.spine import Spine
from .geography_cells import Cells
from .geography_leaves import Leaves
from .geography_shape import GeographySection, OptimiseEntry
from .geography_shares import LevelShares
from .problems import (
    Problems,
    nearest,
    shown,
)


@dataclass(frozen=True, eq=False)
class Spines:
    """The spine of the file, and the one that is measured before shares are given: both over the universe."""

    conventional: Spine
    drawn: Spine


def read_spines(
    section: GeographySection, leaves: Leaves, kept: np.ndarray, problems: Problems
) -> Spines | None:
    """The spine, split and redrawn as the section asks; None, with the mistakes recorded, where it cannot be.

    Args:
        section: ``[geography]``.
        leaves: of the file.
        kept: shape (leaves,): which of them are on the spine.
        problems: where mistakes are recorded.
    """
    columns = {name: column[kept] for name, column in leaves.columns.items()}
    try:
        plain = Spine.from_codes(columns, leaves.levels)
    except InvalidArgument as error:
        problems.add(("geography", "levels"), str(error))
        return None
    spine = _split(section, plain, leaves.inside, kept, problems)
    if spine is None:
        return None
    if section.optimise is None:
        return Spines(plain, spine)
    names = section.entities if section.optimise.entities is None else section.optimise.entities
    if not _can_optimise(section.optimise, names, spine, problems):
        return None
    try:
        drawn = spine.optimise(
            [columns[name] for name in names], section.optimise.fanout_cutoff, section.optimise.levels
        )
    except InvalidArgument as error:
        problems.add(("geography", "optimise"), str(error))
        return None
    return Spines(plain, drawn)


def _split(
    section: GeographySection, plain: Spine, inside: np.ndarray | None, kept: np.ndarray, problems: Problems
) -> Spine | None:
    """The spine with its branches; None, with the mistake recorded, where no unit can be split."""
    path = ("geography", "split" if section.split_below is None else "split_below")
    if inside is None:
        if section.split_below is not None and section.split is None:
            problems.add(path, "says where a split begins, and there is none: remove it, or add split")
        return plain
    if section.split_below is not None and section.split_below not in plain.levels:
        told = f"there is no level {shown(section.split_below)}; {nearest(section.split_below, plain.levels)}"
        problems.add(path, told)
        return None
    try:
        return plain.split(inside[kept], section.split_below)
    except InvalidArgument as error:
        problems.add(path, str(error))
        return None


def _can_optimise(entry: OptimiseEntry, names: list[str], spine: Spine, problems: Problems) -> bool:
    """Whether there is something to come closer to, and every level exists."""
    if not names:
        told = 'has no entities to come closer to: write entities = ["place"], there or in [geography]'
        problems.add(("geography", "optimise"), told)
    unknown = [(i, level) for i, level in enumerate(entry.levels or ()) if level not in spine.levels]
    for i, level in unknown:
        told = f"there is no level {shown(level)}; {nearest(level, spine.levels)}"
        problems.add(("geography", "optimise", "levels", i), told)
    return bool(names) and not unknown


def with_shares(spine: Spine, shares: LevelShares, cells: Cells, rule: str, *, pure: bool) -> Spine:
    """The spine with shares, units of no use left out.

    Args:
        spine: without shares.
        shares: of levels and queries.
        cells: the queries.
        rule: of the bypass: "exact", "paper", or "off" for none.
        pure: whether the noise is Laplace.

    Raises:
        InvalidArgument: shares that do not fit the spine, or queries that leave some cells open.
    """
    if rule == "off":
        return spine.with_shares(shares.levels)
    if not pure:
        return spine.bypass(shares.levels, "gaussian", rule)
    informations = query_informations(spine, shares, cells) if rule == "exact" else None
    return spine.bypass(shares.levels, "laplace", rule, informations)


def query_informations(spine: Spine, shares: LevelShares, cells: Cells) -> dict[str, np.ndarray]:
    """M = sum alpha^2 Q'Q of each level, one block for each kind of contrast.

    The blocks hold every eigenvalue of M, and of one M relative to another, so that what follows from them holds for
    all cells; cells that cannot occur in a unit leave rows and columns out, which keeps the Loewner order. A level that
    is not measured takes no part, and has the identity.
    """
    algebra, size = cells.layout.algebra, cells.layout.size
    kinds = np.flatnonzero(algebra.kind_sizes)
    found = {}
    for level in spine.levels:
        if not shares.levels.get(level):
            found[level] = np.eye(kinds.size * size)
            continue
        blocks = np.zeros((algebra.kinds, size, size))
        for share, query in zip(shares.queries[level], cells.queries, strict=True):
            if share and query.kept is not None:
                blocks += float(share) ** 2 * algebra.term(query.dense_gram(np.arange(size)), query.kept)
        found[level] = linalg.block_diag(*blocks[kinds])
    return found
