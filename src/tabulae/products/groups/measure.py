"""The privacy boundary of adaptive tabulation: confidential counts of groups in, public measurements out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numpy as np

from ...errors import InvalidArgument
from ...privacy import Ledger, RandomBits
from ..measured import source_for
from .count import GroupChunk, GroupCounts
from .levels import TOTAL, TOTAL_ONLY, AdaptivePlan, GroupMeasurement, GroupMeasurements, PopulationLevel


def measure_groups(
    counts: GroupCounts,
    plan: AdaptivePlan,
    *,
    ledger: Ledger | None = None,
    source: RandomBits | None = None,
    title: str = "detailed groups",
    digest: bytes | None = None,
) -> GroupMeasurements:
    """Measure every group of every level in two stages, the second chosen by what the first gave.

    Stage one: ``y = n + e`` for each group that is not total only. Its rung is the number of thresholds that y
    reaches. Stage two: the counts n of that table's cells, ``c_j = n_j + e_j``. A total-only group has one count.
    A level whose tables were chosen by public counts has no stage one, and counts the groups that they list.
    All noise is drawn independently, from the laws of :class:`~tabulae.products.groups.levels.PopulationLevel`.

    Arguments:
        counts: confidential counts made for this plan.
        plan: the levels.
        ledger: where the whole loss is charged, before any noise is drawn; None is a rehearsal.
        source: randomness; None is the operating system's. An insecure source makes a rehearsal.
        title, digest: what the ledger's entry says, and what identifies this release.

    Returns:
        A stream that counts, draws and forgets, chunk by chunk.

    Raises:
        BudgetRefused: the ledger refuses the charge.
        InvalidArgument: an insecure source is combined with a ledger.

    Reference: Haney, Sexton, Machanavajjhala, Hay, Miklau, Algorithms 1 to 5.

    Privacy:
        Satisfies ``plan.loss`` under ``plan.neighbours`` (Theorems 1 and 3, by generalised parallel composition within
        a stage of a level, adaptive composition of the stages, and composition over the levels: see
        :class:`AdaptivePlan`). The table of a group depends on its noisy count alone, or on public counts, and every
        group of the public cross product or list is measured, whether anybody belongs to it or not. Noise is exact
        integer noise whose parameter is derived in Fractions.
    """
    source = source_for(ledger, source)
    charge = None
    if ledger is not None:
        paid = digest or hashlib.sha256(counts.fingerprint() + os.urandom(32)).digest()
        charge = ledger.charge(plan.loss, plan.neighbours, plan.unit, title, paid)
    release_id = None if charge is None else charge.release_id
    return GroupMeasurements(plan, charge is None, release_id, _chunks(counts, plan, source))


def _chunks(counts: GroupCounts, plan: AdaptivePlan, source: RandomBits) -> Iterator[GroupMeasurement]:
    for i, level in enumerate(plan.levels):
        expected = 0
        for chunk in counts.chunks(i):
            if chunk.first != expected or chunk.groups != len(level.groups):
                raise InvalidArgument(f"{level.name}: these counts were made for another plan")
            expected += chunk.regions
            yield _measured(i, level, chunk, source)
        if expected != level.regions.size:
            raise InvalidArgument(f"{level.name}: these counts were made for another plan")


def _measured(i: int, level: PopulationLevel, chunk: GroupChunk, source: RandomBits) -> GroupMeasurement:
    truth = chunk.totals()
    stage_one = np.zeros_like(truth)
    if level.first is not None:
        adaptive = np.flatnonzero(~np.tile(level.groups.total_only, chunk.regions))
        stage_one[adaptive] = truth[adaptive] + level.first.sample(adaptive.size, source)
    # From here on the table of a group is public: a function of its noisy count, or of public counts.
    rung = level.tables_of(chunk.first, chunk.regions, stage_one)
    totals = np.zeros_like(truth)
    for at, law in ((TOTAL_ONLY, level.whole), (TOTAL, level.second)):
        chosen = np.flatnonzero(rung == at)
        totals[chosen] = truth[chosen] + law.sample(chosen.size, source)
    cells = {}
    for r, table in enumerate(level.ladder.rungs, start=1):
        chosen = np.flatnonzero(rung == r)
        if chosen.size:
            noisy = chunk.cells(chosen, table.of_class, table.cells)
            noisy += level.second.sample(noisy.shape, source)
            totals[chosen] = noisy.sum(axis=1)
            cells[r] = (chosen, noisy)
    return GroupMeasurement(i, chunk.first, chunk.regions, stage_one, rung, totals, cells)
