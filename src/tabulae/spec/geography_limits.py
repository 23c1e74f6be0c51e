"""What can occur in each leaf, and the limits and exact counts that estimates keep, from bounds and invariants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..geography.constraints import (
    NO_LIMIT,
    AreaConstraints,
    ExactMargin,
)
from ..geography.layout import Layout, Margin
from .geography_bounds import Bound, read_bound
from .geography_cells import Cells
from .geography_leaves import Leaves
from .problems import (
    Problems,
    shown,
    written,
)
from .sections import Document


@dataclass(frozen=True, eq=False)
class Universe:
    """The leaves where something can occur, and what limits them.

    Attributes:
        bounds: those of all files.
        support: shape (leaves of the file, dense cells), boolean: what can occur.
    """

    bounds: tuple[Bound, ...]
    support: np.ndarray

    @cached_property
    def kept(self) -> np.ndarray:
        """Shape (leaves of the file,), boolean: where something can occur."""
        return np.asarray(self.support.any(axis=1))


def read_universe(
    document: Document, leaves: Leaves, cells: Cells, base: Path, problems: Problems
) -> Universe | None:
    """The bounds of a document and what they leave possible; None, with the mistakes recorded, where one is wrong.

    Args:
        document: the sections as read.
        leaves: of the file.
        cells: what the bounds' attributes are dense in.
        base: the folder that their files are relative to.
        problems: where mistakes are recorded.
    """
    found = [
        read_bound(entry, at, leaves, cells.layout, base, problems)
        for at, entry in enumerate(document.bounds)
    ]
    bounds = tuple(bound for bound in found if bound)
    if len(bounds) < len(found):
        return None
    return Universe(bounds, support_of(bounds, cells.layout, leaves, problems))


def support_of(bounds: Sequence[Bound], layout: Layout, leaves: Leaves, problems: Problems) -> np.ndarray:
    """Shape (leaves of the file, dense cells), boolean: what can occur; what must and cannot is a mistake."""
    support = np.ones((leaves.codes.size, layout.size), bool)
    for bound in bounds:
        support &= bound.upper[:, bound.margin.label] > 0
    for bound in bounds:
        occurs = np.zeros(bound.lower.shape, bool)
        for cell, group in enumerate(bound.margin.label.tolist()):
            occurs[:, group] |= support[:, cell]
        for leaf, group in np.argwhere((bound.lower > 0) & ~occurs)[:3].tolist():
            told = (
                f"{leaves.levels[-1]} {shown(str(leaves.codes[leaf]))} must have {bound.lower[leaf, group]} "
                f"{class_name(bound.margin, group)} or more, and no cell of it can occur there: another bound, or a "
                "structural zero, removes them all"
            )
            problems.add(("bound", bound.at), told)
    return support


def class_name(margin: Margin, group: int) -> str:
    """What a class of a margin over dense attributes is called in messages.

    >>> from tabulae.domain import Domain
    >>> layout = Layout.of(Domain({"type": ["home", "jail"], "age": 3}), ["type"])
    >>> class_name(layout.margin(["type"]), 1)
    'type jail'
    """
    domain = margin.layout.domain
    ordered = sorted(margin.names, key=lambda name: domain.axis(domain.resolve(name).attribute.name))
    views = [domain.resolve(name).labels for name in ordered]
    position = np.unravel_index(group, [len(labels) for labels in views] or [1])
    words = [f"{n} {labels[int(i)]}" for n, labels, i in zip(ordered, views, position, strict=False)]
    return ", ".join(words) or "people"


def join_constraints(
    bounds: Sequence[Bound],
    exact: Sequence[tuple[int, ExactMargin]],
    leaves: Leaves,
    kept: np.ndarray,
    layout: Layout,
    problems: Problems,
) -> AreaConstraints | None:
    """The limits and exact counts together; None where there are none, or do not fit each other.

    Limits are kept on one partition of the dense cells, the *parts*: that of the bounds that limit, or else the finest
    of the exact counts.

    Args:
        bounds: those that the method keeps.
        exact: the position of each invariant in the document, and what it makes exact.
        leaves: of the file.
        kept: shape (leaves,): which of them are on the spine.
        layout: of the cells.
        problems: where mistakes are recorded.
    """
    limiting = [bound for bound in bounds if bound.is_limiting]
    if not limiting and not exact:
        return None
    margins = tuple(margin for _, margin in exact)
    if not limiting:
        stacked = np.stack([margin.margin.label for margin in margins])
        groups, part = np.unique(stacked, axis=1, return_inverse=True)
        names = [
            ", ".join(class_name(m.margin, int(g)) for m, g in zip(margins, group, strict=True))
            for group in groups.T
        ]
        lower = np.zeros((int(kept.sum()), len(names)), np.int64)
        upper = np.full_like(lower, NO_LIMIT)
        return AreaConstraints(layout, part.reshape(-1), tuple(names), lower, upper, margins)
    first = limiting[0]
    lower, upper = first.lower, first.upper
    for other in limiting[1:]:
        if not np.array_equal(other.margin.label, first.margin.label):
            told = (
                f"limits other counts than {written(('bound', first.at))}: limits other than at_most = 0 are kept on "
                "one margin, so write them by the same attributes"
            )
            problems.add(("bound", other.at, "attributes"), told)
            return None
        lower, upper = np.maximum(lower, other.lower), np.minimum(upper, other.upper)
    for leaf, group in np.argwhere(lower > upper)[:3].tolist():
        told = (
            f"together with the others it leaves no count of {class_name(first.margin, group)} to "
            f"{shown(str(leaves.codes[leaf]))}: {lower[leaf, group]} or more, and {upper[leaf, group]} or fewer"
        )
        problems.add(("bound", limiting[-1].at), told)
    present, part = np.unique(first.margin.label, return_inverse=True)
    if not _nested(exact, part, first, problems):
        return None
    names = tuple(class_name(first.margin, group) for group in present.tolist())
    return AreaConstraints(
        layout, part.reshape(-1), names, lower[kept][:, present], upper[kept][:, present], margins
    )


def _nested(
    exact: Sequence[tuple[int, ExactMargin]], part: np.ndarray, bound: Bound, problems: Problems
) -> bool:
    """Whether each exact count adds up whole parts."""
    for at, margin in exact:
        pairs = np.unique(np.stack([part.reshape(-1), margin.margin.label]), axis=1)
        if pairs.shape[1] > part.max() + 1:
            told = (
                f"these counts do not add up whole counts that {written(('bound', bound.at))} limits: limits are kept "
                "on counts at least as fine as those that are exact, so bound finer counts, or make coarser ones exact"
            )
            problems.add(("invariant", at, "attributes"), told)
            return False
    return True
