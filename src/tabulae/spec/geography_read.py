"""``[geography]`` joined with its files and with the domain, or every reason why it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidArgument
from ..geography.constraints import AreaConstraints
from ..geography.spine import Spine
from ..geography.spine_plan import SpinePlan
from ..privacy import ZCDP, PureDP
from .geography import AreaTable, Geography
from .geography_cells import Cells, read_cells
from .geography_exact import read_exact
from .geography_file import encoded
from .geography_leaves import Leaves, read_leaves
from .geography_limits import join_constraints, read_universe
from .geography_places import (
    AXES,
    only_numbers,
    read_places,
)
from .geography_shares import (
    LevelShares,
    levels_of,
    read_level_shares,
)
from .geography_spine import read_spines, with_shares
from .geography_tables import (
    check_people,
    check_size,
    read_area_tables,
)
from .problems import Problems
from .promise import Method, Promise
from .published import BOUND, SPINE
from .schema import Schema
from .sections import Document


@dataclass(frozen=True)
class ReadGeography:
    """The section as it was understood, and what is published of its files, by name."""

    geography: Geography
    files: dict[str, bytes]


def read_geography(
    document: Document,
    schema: Schema,
    promise: Promise | None,
    method: Method | None,
    base: Path,
    problems: Problems,
) -> ReadGeography | None:
    """``[geography]`` over the domain that the document declares; None where there are mistakes.

    Args:
        document: the sections as read.
        schema: the domain, and the names that could not be read.
        promise: what is promised.
        method: how estimates are made.
        base: the folder that its files are relative to.
        problems: where mistakes are recorded.
    """
    section = document.geography
    leaves = section and read_leaves(section, base, problems)
    cells = schema.domain and read_cells(document, schema, schema.domain, problems)
    asked = schema.domain and read_area_tables(document, schema, schema.domain, problems)
    universe = leaves and cells and read_universe(document, leaves, cells, base, problems)
    levels = levels_of(leaves, universe.kept if universe else None) if leaves else None
    shares = section and read_level_shares(document, section, levels, problems)
    if not (section and leaves and cells and universe):
        return None
    kept = universe.kept
    spines = read_spines(section, leaves, kept, problems)
    exact = spines and read_exact(
        document, leaves, kept, spines.drawn, cells.layout, universe.support[kept], problems
    )
    if spines is None or exact is None or not (shares and promise and method and asked is not None):
        return None
    plan = _plan(document, spines.drawn, shares, cells, universe.support[kept], promise, problems)
    limits = universe.bounds if method.estimate != "gls" else ()
    constraints = join_constraints(limits, exact, leaves, kept, cells.layout, problems)
    if plan is None or problems.found or not _can_be_met(constraints, plan, method, problems):
        return None
    geography = Geography(
        column=section.column or "",
        levels=leaves.levels,
        entity_types=tuple(section.entities),
        conventional=spines.conventional,
        constraints=constraints,
        tables=tuple(AreaTable(t.name, cells.layout.margin(t.attributes), t.areas, t.targets) for t in asked),
        estimate=method.estimate,
        microdata=bool(document.release and document.release.microdata),
        bounds=universe.bounds,
        places=read_places(leaves.text, kept),
        shares=shares,
        rule=section.bypass,
        _plan=plan,
        _leaves=leaves,
        _kept=kept,
    )
    check_size(document, geography, problems)
    check_people(geography, problems)
    files = {SPINE: encoded(_published(leaves, has_places=geography.places is not None))}
    files |= {BOUND.format(at=bound.at): bound.content for bound in universe.bounds}
    return ReadGeography(geography, files)


def _published(leaves: Leaves, *, has_places: bool) -> dict[str, np.ndarray]:
    """The columns of the file of leaves that may be seen by everybody: those that are used, and no other."""
    axes = [axis for axis in AXES if axis not in leaves.used]
    found = {name: cells for name, cells in leaves.text.items() if has_places or name not in axes}
    return {name: only_numbers(cells) if name in axes else cells for name, cells in found.items()}


def _plan(
    document: Document,
    spine: Spine,
    shares: LevelShares,
    cells: Cells,
    support: np.ndarray,
    promise: Promise,
    problems: Problems,
) -> SpinePlan | None:
    """What is measured of every unit."""
    section, source, budget = document.geography, document.source, promise.loss
    if problems.told(("privacy", "neighbours")):
        return None
    if section is None or source is None or not isinstance(budget, PureDP | ZCDP):
        return None
    try:
        shared = with_shares(spine, shares, cells, section.bypass, pure=isinstance(budget, PureDP))
    except InvalidArgument as error:
        problems.add(("geography", "shares"), str(error))
        return None
    neighbours, rows = promise.neighbours, source.rows_per_unit
    try:
        return SpinePlan(
            shared, cells.layout, cells.queries, shares.queries, budget, support, neighbours, rows
        )
    except InvalidArgument as error:
        problems.add(("geography", "query"), str(error))
        return None


def _can_be_met(limits: AreaConstraints | None, plan: SpinePlan, method: Method, problems: Problems) -> bool:
    """Whether estimates can meet the limits and exact counts, as is known without data."""
    if limits is None:
        return True
    try:
        limits.check(plan, method.estimate)
    except InvalidArgument as error:
        problems.add(("invariant" if limits.exact else "bound",), str(error))
        return False
    return True
