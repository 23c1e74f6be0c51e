"""A branch of its own for the area inside a mask, at every level below the root."""

from __future__ import annotations

import numpy as np

from ..errors import InvalidArgument
from .hierarchy import Hierarchy


def split(h: Hierarchy, mask: np.ndarray) -> Hierarchy:
    """Every unit below the root as its part inside the mask and its part outside; see ``Spine.split``."""
    inside = np.asarray(mask)
    if inside.dtype != bool or inside.shape != (h.leaves,):
        raise InvalidArgument(
            f"split takes one boolean for each of the {h.leaves} leaves, not {inside.dtype} of shape {inside.shape}"
        )
    if h.depth == 2:
        raise InvalidArgument(
            "nothing lies between the root and the leaves, so that there is no unit to split"
        )
    units, codes = [h.units[0]], [h.codes[0]]
    for unit, code in zip(h.units[1:-1], h.codes[1:-1], strict=True):
        part, first, place = np.unique(2 * unit + ~inside, return_index=True, return_inverse=True)
        whole = unit[first]
        cut = np.bincount(whole, minlength=code.size) > 1
        side = np.where(part % 2, "|out", "|in")
        names = [code[u] + side[i] if cut[u] else code[u] for i, u in enumerate(whole)]
        units.append(place)
        codes.append(np.array(names, object))
    return Hierarchy(h.levels, (*codes, h.codes[-1]), (*units, h.units[-1]))
