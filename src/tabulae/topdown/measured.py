"""What all measurements say of each node of a spine, read once for every estimate that is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidArgument, ReleaseError
from ..geography.spine_plan import (
    Piece,
    SpinePieceValues,
    SpinePlan,
)
from .checkpoint import Checkpoint
from .descent import MeasuredTotals
from .fingerprint import Fingerprint, plan_digest
from .store import NodeVectors

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements as estimates take them.

    Attributes:
        information: m = sum Q'y / variance of every node, in natural coordinates.
        totals: the answers to the query of the total.
        digest: of all answers.
    """

    information: NodeVectors
    totals: MeasuredTotals
    digest: str


def read_measured(
    plan: SpinePlan,
    stream: Iterable[SpinePieceValues],
    work: Path | None = None,
    say: Say = lambda line: None,
) -> Measured:
    """Read measurements to their end; in any case, to see which they are.

    Args:
        plan: what was measured.
        stream: the measurements, all of ``plan.pieces`` in their order.
        work: a folder for m, which is found there again; in memory where None.
        say: called with a line of progress.

    Raises:
        InvalidArgument: the measurements do not fit the plan.
        ReleaseError: the work folder is of other measurements.
    """
    say("reading the measurements")
    checkpoint = Checkpoint(work, plan_digest(plan))
    stored = checkpoint.found("information")
    found = stored_vectors(plan, checkpoint, "information", made=stored is not None)
    totals, which, seen = MeasuredTotals.none(plan.tree.size), Fingerprint(), 0
    for given in stream:
        if seen == len(plan.pieces) or not _same_piece(given.piece, plan.pieces[seen]):
            raise InvalidArgument("these measurements are of another plan: their pieces are not this plan's")
        seen += 1
        which.add(given.values)
        totals.take_in(plan, given)
        if stored is None:
            found.put(given.piece.nodes, plan.information(given))
            found.release()
    if seen < len(plan.pieces):
        raise InvalidArgument(f"the measurements end after {seen} of {len(plan.pieces)} pieces")
    if stored is None:
        found.flush()
        checkpoint.finish("information", measurements=np.array(which.hex()))
    elif stored["measurements"] != np.array(which.hex()):
        raise ReleaseError(
            f"{checkpoint.folder} holds the work of an estimate from other measurements: use another folder, or remove "
            "this one"
        )
    return Measured(found, totals, which.hex())


def stored_vectors(plan: SpinePlan, checkpoint: Checkpoint, name: str, *, made: bool) -> NodeVectors:
    """New vectors of all nodes, or those that a finished stage has made.

    Raises:
        ReleaseError: their file is missing or cut short.
    """
    path = checkpoint.place(f"{name}.npy")
    if path is None or not made:
        return NodeVectors.zeros(plan, np.float64, path)
    with checkpoint.reading(path):
        return NodeVectors.open(plan, path)


def _same_piece(one: Piece, other: Piece) -> bool:
    return np.array_equal(one.nodes, other.nodes) and all(
        getattr(one, name) == getattr(other, name) for name in ("level", "share", "pattern", "rows")
    )
