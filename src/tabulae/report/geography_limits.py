"""What is known of a release of areas beside its measurements: what cannot occur, and limits from public files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..products.areas.constraints import NO_LIMIT, supported_parts
from ..products.areas.spec.section import Geography
from ..products.areas.tables import UNBIASED
from .numbers import fixed


@dataclass(frozen=True)
class LimitsView:
    """Limits on counts from public files, which every published count meets.

    Attributes:
        leaf: the type of area that they are for.
        kinds: how many kinds of people they tell apart in each area.
        below, above: how many counts are limited from below, and from above.
        pinned: how many of them have one limit from below and from above.
    """

    leaf: str
    kinds: int
    below: int
    above: int
    pinned: int


def impossible_words(geography: Geography) -> Iterator[str]:
    """What cannot occur, in words."""
    layout = geography.layout
    whole = int(np.prod([layout.domain[name].size for name in layout.dense], dtype=np.int64))
    if layout.size < whole:
        yield f"{fixed(whole - layout.size)} of {fixed(whole)} combinations of {' by '.join(layout.dense)} cannot occur"
    support = geography.plan().support
    if not support.all():
        yield f"in which areas of type {geography.levels[-1]} which {' by '.join(layout.dense)} can occur"


def limits_of(geography: Geography) -> LimitsView | None:
    """What public files say of counts beside what cannot occur; None where they do not, or no estimate keeps to it."""
    limits = geography.constraints
    if limits is None or geography.estimate == UNBIASED:
        return None
    possible = supported_parts(limits, geography.plan().support)
    below, above = limits.lower > 0, (limits.upper < NO_LIMIT) & possible
    if not (below.any() or above.any()):
        return None
    pinned = possible & (limits.lower == limits.upper)
    kinds = len(limits.part_names)
    return LimitsView(geography.levels[-1], kinds, int(below.sum()), int(above.sum()), int(pinned.sum()))
