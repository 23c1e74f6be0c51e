"""Codes of records to what groups are counted from: area, kind and words of packed codes, inside any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..domain import Attribute
from .given import given
from .group_areas import Areas
from .group_codes import PackedCodes
from .group_kinds import Kinds

if TYPE_CHECKING:
    import ibis.expr.types as ir

NOWHERE = -1
"""The area of records that the rules refuse."""


@dataclass(frozen=True)
class RecordShape:
    """What the attributes of records are to a plan.

    Args:
        regions: the attributes whose combinations, in C order, are the leaves.
        codes: family -> the attributes that hold its codes, by label.
        cells: the attributes of the ladders, in their order.
    """

    regions: tuple[str, ...]
    codes: Mapping[str, tuple[str, ...]]
    cells: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes, each once."""
        return tuple(dict.fromkeys((*self.regions, *self.read, *self.cells)))

    @property
    def read(self) -> tuple[str, ...]:
        """The attributes of codes, one for each column of `PackedCodes`."""
        return tuple(name for names in self.codes.values() for name in names)


@dataclass(frozen=True, eq=False)
class Places:
    """The step from coded records to the columns of `tabulae.tabulate.group_engine.CODED`.

    Args:
        attributes: by name, in the order of the columns k0, k1, ... of coded records.
        shape: what they are for.
        areas, kinds: of leaves and cells.
        positions: attribute of codes -> shape (categories,): the code of each, or -1.
        packed: how codes become words.
    """

    attributes: Mapping[str, Attribute]
    shape: RecordShape
    areas: Areas
    kinds: Kinds
    positions: Mapping[str, np.ndarray]
    packed: PackedCodes

    @property
    def keys(self) -> list[str]:
        """The columns of coded records that are read."""
        return list(self._column.values())

    @property
    def columns(self) -> list[str]:
        """The columns that come of them, but for ``people``."""
        return ["area", "kind", *(f"w{i}" for i in range(self.packed.words))]

    @property
    def _column(self) -> dict[str, str]:
        return {name: f"k{i}" for i, name in enumerate(self.attributes)}

    def of(self, table: ir.Table) -> ir.Table:
        """Each row with its area, kind and words in place of k0, k1, ...; ``people`` stays.

        A row with a code below 0, which the rules refuse, has the area `NOWHERE`.
        """
        import ibis

        placed: Any = table.mutate(
            leaf=self._number(table, self.shape.regions), cell=self._number(table, self.shape.cells)
        )
        if not np.array_equal(self.areas.of_leaf, np.arange(self.areas.of_leaf.size)):
            placed = _looked_up(placed, "leaf", "area", self.areas.of_leaf)
        else:
            placed = placed.mutate(area=placed.leaf)
        placed = _looked_up(placed, "cell", "kind", self.kinds.of_cell)
        for name, position in self.positions.items():
            key = self._column[name]
            placed = _looked_up(placed, key, f"v_{key}", position + 1)
        words: Sequence[Any] = self.packed.sums(
            [placed[f"v_{self._column[name]}"] for name in self.shape.read]
        )
        least: Any = ibis.least(*[placed[key] for key in self.keys])
        return placed.select(
            "kind",
            "people",
            area=ibis.ifelse(least < 0, NOWHERE, placed.area).cast("int64"),
            **{f"w{i}": ibis.literal(0, "int64") + word for i, word in enumerate(words)},
        )

    def counted(self, table: ir.Table) -> ir.Table:
        """How many people there are of each area, kind and words."""
        placed: Any = self.of(table)
        return placed.group_by(self.columns).aggregate(people=placed.people.sum().cast("int64"))

    def _number(self, table: Any, names: Sequence[str]) -> Any:
        """The position of a combination of codes in C order."""
        import ibis

        number: Any = ibis.literal(0, "int64")
        for name in names:
            size = ibis.literal(self.attributes[name].size, "int64")
            number = number * size + table[self._column[name]].cast("int64")
        return number


def _looked_up(table: Any, key: str, value: str, values: np.ndarray) -> Any:
    """The table with a column ``value``: the number at the position that ``key`` says, NULL beyond the last."""
    import pyarrow as pa

    at = f"at_{value}"
    rows = pa.table({at: np.arange(values.size, dtype=np.int64), value: values.astype(np.int64)})
    lookup: Any = given(table, rows)
    return table.left_join(lookup, table[key] == lookup[at]).drop(at)
