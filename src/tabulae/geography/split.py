"""A branch of its own for the area inside a mask, at every level below the root or below a level that stays whole."""

from __future__ import annotations

import numpy as np

from ..errors import InvalidArgument
from .hierarchy import Hierarchy


def split(h: Hierarchy, mask: np.ndarray, below: str | None = None) -> Hierarchy:
    """Every unit below a level as its part inside the mask and its part outside; see ``Spine.split``."""
    inside = np.asarray(mask)
    if inside.dtype != bool or inside.shape != (h.leaves,):
        raise InvalidArgument(
            f"split takes one boolean for each of the {h.leaves} leaves, not {inside.dtype} of shape {inside.shape}"
        )
    if below is not None and below not in h.levels:
        raise InvalidArgument(f"{below!r} is no level of this spine: {', '.join(h.levels)}")
    whole_levels = 1 if below is None else h.levels.index(below) + 1
    if whole_levels >= h.depth - 1:
        top = "the root" if below is None else f"level {below!r}"
        raise InvalidArgument(f"nothing lies between {top} and the leaves, so that there is no unit to split")
    units, codes = list(h.units[:whole_levels]), list(h.codes[:whole_levels])
    for unit, code in zip(h.units[whole_levels:-1], h.codes[whole_levels:-1], strict=True):
        part, first, place = np.unique(2 * unit + ~inside, return_index=True, return_inverse=True)
        whole = unit[first]
        cut = np.bincount(whole, minlength=code.size) > 1
        side = np.where(part % 2, "|out", "|in")
        names = [code[u] + side[i] if cut[u] else code[u] for i, u in enumerate(whole)]
        units.append(place)
        codes.append(np.array(names, object))
    return Hierarchy(h.levels, (*codes, h.codes[-1]), (*units, h.units[-1]))
