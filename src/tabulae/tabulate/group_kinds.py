"""Kinds: sets of cells that no ladder of a plan tells apart. With one ladder they are its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..adaptive import AdaptivePlan
from ..errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Kinds:
    """What is kept of a record's cell.

    Args:
        sizes: attribute -> number of its values; cells are numbered in C order.
        of_cell: shape (cells,): the kind of each cell.
        classes: for each level, shape (kinds,): the class of its ladder that each kind falls in.
    """

    sizes: Mapping[str, int]
    of_cell: np.ndarray
    classes: tuple[np.ndarray, ...]


def kinds_of(plan: AdaptivePlan) -> Kinds:
    """The joint partition of the cells by the ladders of all levels.

    Raises:
        InvalidArgument: ladders over different attributes.
    """
    ladders = [level.ladder for level in plan.levels]
    sizes = ladders[0].sizes
    if any(list(ladder.sizes.items()) != list(sizes.items()) for ladder in ladders):
        raise InvalidArgument("the ladders of one plan are over the same attributes, in the same order")
    distinct = list({id(ladder): ladder.of_cell for ladder in ladders}.values())
    _, first, of_cell = np.unique(np.stack(distinct), axis=1, return_index=True, return_inverse=True)
    return Kinds(
        dict(sizes), of_cell.ravel().astype(np.int32), tuple(ladder.of_cell[first] for ladder in ladders)
    )
