"""``[reliability]``: how far a count may be trusted, by its standard error as a share of it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, model_validator

from .problems import shown
from .shape import (
    Filled,
    StrictSection,
    problem,
)
from .unseen import unseen

THRESHOLDS = (0.25, 0.5)
LABELS = ("reliable", "with caution", "unreliable")
MOST_CLASSES = 6
_LONGEST = 30


def _thresholds(values: list[float]) -> list[float]:
    if not values or len(values) >= MOST_CLASSES:
        raise problem(f"must be 1 to {MOST_CLASSES - 1} numbers, one between each two classes")
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise problem(f"must be positive shares of the count, such as 0.25 for 25 %, not {shown(values)}")
    if any(after <= before for before, after in pairwise(values)):
        raise problem(f"must increase from each to the next, not {shown(values)}")
    return [float(value) for value in values]


def _labels(values: list[str]) -> list[str]:
    if any(len(value) > _LONGEST for value in values):
        raise problem(f"stand in every row of the report: {_LONGEST} characters at most")
    for at, value in enumerate(values):
        if bad := unseen(value):
            raise problem(f"stand in the report as they are, and labels[{at}] holds {bad}: remove it")
    if len(set(values)) < len(values):
        raise problem(f"must differ from each other, not {shown(values)}")
    return values


class ReliabilitySection(StrictSection):
    """``[reliability]``: where the classes begin, by std_error / estimate, and what they are called.

    A count is in the class of how many thresholds its coefficient of variation reaches; one of zero or less is in
    the last. The defaults are those of the Australian Bureau of Statistics.

    Reference:
        Australian Bureau of Statistics, "Household Use of Information Technology, Australia, 2005-06", 8146.0,
        Technical note: estimates with a relative standard error under 25 % are sufficiently reliable for most
        purposes, from 25 % on to be used with caution, and over 50 % too unreliable for general use.

    >>> ReliabilitySection().classes([100.0, 100.0, 100.0, -3.0], [10.0, 25.0, 80.0, 0.1]).tolist()
    [0, 1, 2, 2]
    """

    thresholds: Annotated[list[float], AfterValidator(_thresholds)] = Field(
        default_factory=lambda: list(THRESHOLDS)
    )
    labels: Annotated[list[Filled], AfterValidator(_labels)] | None = None

    @model_validator(mode="after")
    def _one_label_a_class(self) -> ReliabilitySection:
        if self.labels is not None and len(self.labels) != len(self.thresholds) + 1:
            raise problem(
                f"{len(self.thresholds)} thresholds make {len(self.thresholds) + 1} classes, and labels names "
                f"{len(self.labels)}: name each, the most reliable first"
            )
        return self

    @property
    def customary(self) -> bool:
        """Whether the classes are those that a spec without the section has."""
        return tuple(self.thresholds) == THRESHOLDS and self.names == LABELS

    @property
    def names(self) -> tuple[str, ...]:
        """What each class is called, the most reliable first."""
        if self.labels is not None:
            return tuple(self.labels)
        return LABELS if tuple(self.thresholds) == THRESHOLDS else self.ranges

    @property
    def ranges(self) -> tuple[str, ...]:
        """The coefficients of variation of each class, in words.

        >>> ReliabilitySection(thresholds=[0.1, 0.3]).ranges
        ('under 10 %', '10 to 30 %', '30 % or more')
        """
        edges = [f"{100 * value:.4g}" for value in self.thresholds]
        between = [f"{low} to {high} %" for low, high in pairwise(edges)]
        return (f"under {edges[0]} %", *between, f"{edges[-1]} % or more")

    def classes(self, estimate: ArrayLike, std_error: ArrayLike) -> NDArray[np.int64]:
        """The class of each count: how many thresholds ``std_error / estimate`` reaches, for positive estimates.

        Counts of zero or less, and counts or errors that are no number, are in the last class.

        Args:
            estimate: the counts, shape (n,).
            std_error: their standard errors, shape (n,).
        """
        counts, errors = np.asarray(estimate, float), np.asarray(std_error, float)
        variation = np.full(counts.shape, np.inf)
        np.divide(errors, counts, out=variation, where=counts > 0)
        variation[np.isnan(variation)] = np.inf
        return np.searchsorted(self.thresholds, variation, side="right")
