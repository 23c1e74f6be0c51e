"""Regions: sets of areas, one set a region type, in which groups are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Regions:
    """All regions of one type, and the one that each leaf of the public geography lies in.

    A leaf (a block, say) lies in one region of a type, or in none: then no record there is counted by this type.

    Args:
        name: the region type, such as "state".
        ids: names of the regions, distinct, in the order in which they are tabulated.
        of_leaf: shape (leaves,): the position in ``ids`` of each leaf's region, or -1.

    Raises:
        InvalidArgument: ids that repeat, or positions that are not of ids.

    >>> Regions("county", ("01001", "01003"), np.array([0, 1, 1, -1])).size
    2
    """

    name: str
    ids: tuple[str, ...]
    of_leaf: np.ndarray

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise InvalidArgument(f"region type {self.name!r} names a region twice")
        inside = self.of_leaf.ndim == 1 and np.issubdtype(self.of_leaf.dtype, np.integer)
        if not inside or (
            self.of_leaf.size and not (-1 <= self.of_leaf.min() <= self.of_leaf.max() < self.size)
        ):
            raise InvalidArgument(f"region type {self.name!r} puts leaves into regions that it does not name")
        object.__setattr__(self, "of_leaf", self.of_leaf.astype(np.int32))
        self.of_leaf.setflags(write=False)

    @property
    def size(self) -> int:
        """The number of regions."""
        return len(self.ids)

    @cached_property
    def covers(self) -> np.ndarray:
        """Shape (leaves,): whether each leaf lies in a region of this type."""
        return self.of_leaf >= 0

    @classmethod
    def nation(cls, leaves: int, name: str = "nation", identifier: str = "1") -> Regions:
        """One region with every leaf in it."""
        return cls(name, (identifier,), np.zeros(leaves, np.int32))

    @classmethod
    def from_codes(cls, name: str, codes: Sequence[str | None]) -> Regions:
        """Regions named by a code a leaf, in sorted order; None where the leaf lies in none.

        >>> Regions.from_codes("place", ["b", None, "a", "b"]).of_leaf.tolist()
        [1, -1, 0, 1]
        """
        ids = sorted({code for code in codes if code is not None})
        position: dict[str | None, int] = {code: i for i, code in enumerate(ids)}
        return cls(name, tuple(ids), np.array([position.get(code, -1) for code in codes], np.int32))
