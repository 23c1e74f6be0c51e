"""``estimate = "sparse"``: what it takes of a document, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....privacy import PureDP
from ....spec.problems import Problems, shown
from ....spec.promise import SPARSE, Method, Promise
from ....spec.sections import Document
from ..constraints import AreaConstraints, EarlierMargin
from ..sparse.cells import CountedCells, HeldMargin, Pass
from ..spine_plan import SpinePlan
from .earlier import EarlierAreaCounts


@dataclass(frozen=True, eq=False)
class SparseSection:
    """How areas of very many cells are divided.

    Attributes:
        cells: the cells as a division numbers them, its passes, and what is held of every leaf.
        held: the table that is held; None where none is.
        earlier: the release that it is of.
    """

    cells: CountedCells
    held: HeldMargin | None
    earlier: tuple[EarlierMargin, ...]


_WORD = f"estimate = {shown(SPARSE)}"


def refuse_with_sparse(
    document: Document, method: Method, promise: Promise | None, problems: Problems
) -> None:
    """Record what sparse counts cannot have, and what is asked of them where other estimates are made."""
    if method.estimate != SPARSE:
        for at, entry in enumerate(document.queries):
            if entry and entry.in_pass is not None:
                told = f"is of {_WORD}: the other methods estimate all queries together; remove it"
                problems.add(("geography", "query", at, "in_pass"), told)
        return
    if document.invariants:
        told = (
            f"{_WORD} keeps no count exact but those of an [[earlier]] release: remove the invariants, or use another "
            "method"
        )
        problems.add(("invariant",), told)
    for at, targets in enumerate(document.area_targets):
        if targets:
            told = f"errors of {_WORD} are not known beforehand: remove the target"
            problems.add(("table", at, "target"), told)
    if document.open_shares:
        told = (
            f'"auto" shares are chosen by errors, and those of {_WORD} are not known beforehand: write shares'
        )
        problems.add(("geography", "shares"), told)
    section = document.geography
    if section and section.bypass == "exact" and promise and isinstance(promise.loss, PureDP):
        told = f'"exact" is not computed for a pure budget with {_WORD}: write bypass = "paper", or "off"'
        problems.add(("geography", "bypass"), told)


def read_sparse(
    document: Document,
    plan: SpinePlan,
    earlier: EarlierAreaCounts,
    constraints: AreaConstraints | None,
    problems: Problems,
) -> SparseSection | None:
    """Number the cells; None, with the mistake recorded, where what is held or limited cannot be met.

    Privacy:
        None is spent: reads public files alone.
    """
    of = np.array([1 if entry is None else entry.in_pass or 1 for entry in document.queries])
    passes = [Pass(tuple(np.flatnonzero(of == number).tolist())) for number in np.unique(of).tolist()]
    held = earlier.held[0][1] if earlier.held else None
    path = ("earlier",) if held else ("geography", "query")
    cells = problems.attempt(path, lambda: CountedCells.of(plan, passes, held, constraints))
    return cells and SparseSection(cells, held, tuple(each for each, _ in earlier.held))
