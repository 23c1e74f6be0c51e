"""Keys: cells of a domain of any size, named by as few 64-bit integers as will do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..domain import Domain
from .integers import Integers


def groups_of(domain: Domain) -> list[range]:
    """Runs of attributes that have fewer than 2^62 cells together, so that one int64 can name the cell."""
    groups, start, size = [], 0, 1
    for axis, n in enumerate(domain.shape):
        if size * n >= 2**62:
            groups.append(range(start, axis))
            start, size = axis, 1
        size *= n
    return [*groups, range(start, len(domain.shape))]


def keys_of(domain: Domain, codes: NDArray[Any]) -> tuple[Integers, ...]:
    """The cells in C order within each group of attributes: lexicographic keys of the cells."""
    keys = []
    for group in groups_of(domain):
        key = np.zeros(codes.shape[0], dtype=np.int64)
        for axis in group:
            key = key * domain.shape[axis] + codes[:, axis].astype(np.int64)
        keys.append(key)
    return tuple(keys)
