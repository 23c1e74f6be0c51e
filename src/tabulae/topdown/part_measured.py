"""Measurements as tasks take them: m of every node in parts, one for each piece that was stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import ReleaseError
from ..geography.spine_plan import (
    SpinePieceValues,
    SpinePlan,
    estimation_variance,
)
from .checkpoint import Checkpoint
from .descent import MeasuredTotals, totals_of
from .fingerprint import Fingerprint, plan_digest
from .measured import Say
from .part_tasks import Done, Task
from .parts import Parts, lists_of

Numbers = Callable[[range], list[Done]]
"""Runs the tasks of some numbers, in any order and place, and gives what they tell in the order of numbers."""

Runner = Callable[[Task], AbstractContextManager[Numbers]]
"""Takes a task to where it is run, and away again."""


@dataclass(frozen=True, eq=False)
class PartedMeasured:
    """What :class:`~.measured.Measured` is, with m in parts.

    Attributes:
        information: m of every node that is measured, column ``cells``.
        totals: the answers to the query of the total.
        digest: of all answers.
    """

    information: Parts
    totals: MeasuredTotals
    digest: str


@dataclass(frozen=True, eq=False)
class ReadTask:
    """m of a piece's nodes, from its stored measurements.

    Args:
        plan: what was measured.
        read: the measurements of the piece of a number, verified.
        parts: of m, column ``cells``.
    """

    plan: SpinePlan
    read: Callable[[int], SpinePieceValues]
    parts: Parts

    def __call__(self, number: int) -> Done:
        """Read the piece; write its part, or see that the part is of the same measurements.

        Raises:
            ReleaseError: the measurements are not those of the plan, or others than the part's, or the folder is not
                seen here.
        """
        self.parts.check_seen()
        given = self.read(number)
        digest = Fingerprint().add(given.values).hex()
        noted = self.parts.noted(number)
        if noted is None:
            nodes = given.piece.nodes
            m = lists_of(self.plan, nodes, self.plan.information(given).reshape(-1))
            self.parts.write(number, nodes, {"cells": m}, digest=digest)
        elif noted.get("digest") != digest:
            raise ReleaseError(
                f"{self.parts.folder} holds the work of an estimate from other measurements: remove it and begin anew"
            )
        totals = totals_of(self.plan, given)
        return Done(
            number, digest=digest, totals=b"" if totals is None else totals[0].astype(np.int64).tobytes()
        )


def read_in_parts(
    plan: SpinePlan,
    read: Callable[[int], SpinePieceValues],
    run: Runner,
    work: Path,
    say: Say = lambda line: None,
) -> PartedMeasured:
    """Read stored measurements by tasks; all of them in any case, to see which they are.

    Args:
        plan: what was measured.
        read: the measurements of the piece of a number; goes to the tasks, which call it.
        run: who runs tasks.
        work: a folder for m, which is found there again, and which all tasks and this process share.
        say: called with a line of progress.

    Raises:
        ReleaseError: the measurements are not those of the plan, or the work folder is of others, or is not shared.
    """
    say("reading the measurements")
    Checkpoint(work, f"{plan_digest(plan)} in parts")
    of = np.full(plan.tree.size, -1, np.int32)
    for number, piece in enumerate(plan.pieces):
        of[piece.nodes] = number
    parts = Parts.under(work, "information", of)
    with run(ReadTask(plan, read, parts)) as tasks:
        done = tasks(range(len(plan.pieces)))
    parts.check_there(one.number for one in done)
    digest = Fingerprint().add([one.digest for one in done]).hex()
    return PartedMeasured(parts, _totals(plan, done), digest)


def _totals(plan: SpinePlan, done: list[Done]) -> MeasuredTotals:
    """The measured totals that were read."""
    found = MeasuredTotals.none(plan.tree.size)
    for piece, one in zip(plan.pieces, done, strict=True):
        if one.totals:
            laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
            law = next(law for query, law in zip(plan.queries, laws, strict=True) if query.size == 1 and law)
            found.value[piece.nodes] = np.frombuffer(one.totals, np.int64)
            found.variance[piece.nodes] = estimation_variance(law)
    return found
