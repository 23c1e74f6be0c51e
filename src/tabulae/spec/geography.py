"""What ``[geography]`` asks for: the spine, what its units are asked, what limits them, and what is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..geography.codes import numbered
from ..geography.constraints import AreaConstraints
from ..geography.layout import Layout, Margin
from ..geography.spine import Spine
from ..geography.spine_plan import SpinePlan
from ..privacy import ZCDP, PureDP
from .geography_bounds import Bound
from .geography_leaves import Leaves
from .geography_shares import LevelShares
from .geography_targets import AreaTarget

AREA_TYPE, AREA = "area_type", "area"
"""The columns of a published table that say which area a row is about."""


@dataclass(frozen=True, eq=False)
class AreaTable:
    """A marginal that is published for areas.

    Attributes:
        name: of the table.
        margin: what it counts.
        areas: the levels and entities for whose areas it is published.
        targets: what its counts may be wrong by.
    """

    name: str
    margin: Margin
    areas: tuple[str, ...]
    targets: tuple[AreaTarget, ...] = ()


@dataclass(frozen=True, eq=False)
class Geography:
    """What ``[geography]`` asks for, over the public domain.

    The *universe* is the leaves in which something can occur; the spine is over them alone. A leaf outside it counts
    exactly 0.

    Attributes:
        column: of the records: the code of the leaf that each lies in.
        levels: of the file, the leaf last: the areas on the spine as they are published.
        entity_types: columns of the file with areas that cut across the levels.
        conventional: the spine of the levels as they are in the file, without shares.
        spine: as it is measured: split, redrawn and with its shares.
        constraints: limits and exact counts that estimates meet; None where there are none.
        tables: what is published.
        estimate: "bluedown", "topdown" or "gls".
        microdata: whether one row a person is published.
        bounds: what public files say of leaves, over all of the file.
        places: shape (leaves, 2): where each leaf of the universe is on a map; None where the file does not say it.
        shares: of the levels and their queries, as written.
        rule: of the bypass: "exact", "paper", or "off" for none.
    """

    column: str
    levels: tuple[str, ...]
    entity_types: tuple[str, ...]
    conventional: Spine
    constraints: AreaConstraints | None
    tables: tuple[AreaTable, ...]
    estimate: str
    microdata: bool
    bounds: tuple[Bound, ...]
    places: np.ndarray | None
    shares: LevelShares
    rule: str
    _plan: SpinePlan
    _leaves: Leaves
    _kept: np.ndarray

    def plan(self) -> SpinePlan:
        """What is measured of every unit, with which noise."""
        return self._plan

    def with_budget(self, budget: PureDP | ZCDP) -> Geography:
        """The same section with another budget."""
        return replace(self, _plan=replace(self._plan, budget=budget))

    @property
    def spine(self) -> Spine:
        """The spine as it is measured, with shares, over the universe."""
        return self._plan.spine

    @property
    def layout(self) -> Layout:
        """How the domain's cells are arranged."""
        return self._plan.layout

    @property
    def queries(self) -> tuple[Margin, ...]:
        """What units are asked."""
        return self._plan.queries

    @cached_property
    def leaf_codes(self) -> np.ndarray:
        """Shape (leaves,), text: codes of the universe, in the order of the spine's leaves."""
        return self._leaves.codes[self._kept].astype(np.str_)

    @cached_property
    def dropped(self) -> np.ndarray:
        """Codes, as text, of the leaves outside the universe: nothing can occur there."""
        return self._leaves.codes[~self._kept].astype(np.str_)

    @property
    def kept(self) -> np.ndarray:
        """Shape (leaves of the file,), boolean: which of them are in the universe."""
        return self._kept

    @property
    def entities(self) -> dict[str, np.ndarray]:
        """For each entity type, shape (leaves,), object: the entity of each leaf of the universe; None for none."""
        return {name: self._leaves.columns[name][self._kept] for name in self.entity_types}

    @property
    def area_types(self) -> tuple[str, ...]:
        """The levels of the file and the entity types: what a table may be published for."""
        return (*self.levels, *self.entity_types)

    def areas(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The areas of a level or entity type, as the file has them.

        Args:
            name: one of ``area_types``.

        Returns:
            Codes of the areas as rising text, those with no leaf in the universe too; and, shape (leaves,), int64, the
            position there of the area of each leaf of the universe, -1 where it lies in none.

        Raises:
            InvalidArgument: another name.
        """
        if name not in self.area_types:
            raise InvalidArgument(f"{name!r} is no level or entity type: {', '.join(self.area_types)}")
        if name not in self._areas:
            index, codes = numbered(self._leaves.columns[name])
            self._areas[name] = codes, index[self._kept]
        return self._areas[name]

    @cached_property
    def _areas(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {}

    def rows(self, table: AreaTable) -> Mapping[str, int]:
        """How many rows a table publishes for each of its kinds of area."""
        return {name: self.areas(name)[0].size * table.margin.size for name in table.areas}
