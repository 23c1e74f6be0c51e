"""The privacy boundary of geography: confidential counts of areas in, public measurements out."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from ...errors import DataError, InvalidArgument, ReleaseError
from ...privacy import Ledger, RandomBits, mark_void
from ...sources.memory import size_words
from ..measured import source_for
from ..product import MILLION, ResourceEstimate
from .compiled import njit
from .constraints import AreaConstraints, ExactMargin, disclosure_of
from .count import SpineCounts
from .descent.limits import NodeLimits
from .sparse.cells import CountedCells
from .sparse.descend import Asked, SupportedCounts, SupportedMeasurements, descend
from .spine_plan import SpineMeasurements, SpinePieceValues, SpinePlan


def measure_spine(
    counts: SpineCounts,
    plan: SpinePlan,
    exact: Sequence[ExactMargin] = (),
    *,
    ledger: Ledger | None = None,
    source: RandomBits | None = None,
    unit: str | None = None,
    title: str = "areas",
    digest: bytes | None = None,
) -> SpineMeasurements:
    """Measure every unit of a spine with the queries of its level.

    ``y_{u,i} = Q_i x_u + e_{u,i}`` for each measured unit u and query i of its level, over the cells that can occur in
    the unit, with the entries of ``e_{u,i}`` drawn independently from ``plan.law``. The ledger is charged before any
    noise is drawn or an exact count is read; a refused charge draws nothing. Where exact counts cannot be read then,
    the charge is marked void and stays spent.

    Arguments:
        exact: margins whose counts are read as they are; the same entry of the ledger says so before.
        ledger: where the whole loss is charged; None is a rehearsal.
        source: randomness; None is the operating system's. An insecure source makes a rehearsal.
        unit: what one neighbour differs by, which must be the ledger's; None takes the ledger's word.
        title, digest: what the ledger's entry says, and what identifies this release for a resumed run.

    Returns:
        The exact counts, and a stream that counts, draws and forgets, piece by piece.

    Raises:
        BudgetRefused: the ledger refuses the charge.
        InvalidArgument: counts of another plan, or an insecure source is combined with a ledger.

    Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System", section 2.

    Privacy:
        Satisfies ``plan.loss`` under ``plan.neighbours`` (zCDP or pure DP). A record lies in one leaf, so that it is
        counted in the units of one path from the root, and there in one row of each query: one that is added or
        removed moves that row by 1, one that is replaced moves two rows by 1 on each of two paths, or fewer. Unit u
        and query i with shares gamma and alpha have noise for a loss of ``gamma alpha`` of the budget, halved for each
        of two paths (zCDP: Canonne, Kamath, Steinke 2020, Theorem 14; pure DP: the discrete Laplace mechanism). On
        each path the products add up to exactly 1 (Theorem 1; after bypass Theorem 3), and losses on one path compose
        sequentially, on different paths in parallel. A unit of k records of which n_u lie in area u costs what k
        times the noise pays for, as the sum over areas of gamma_u n_u^2 is at most k^2. Which cells are measured
        depends on public supports alone. Noise is exact integer noise whose parameter is derived in Fractions.
        ``exact`` stands outside that guarantee: its counts are read and published as they are, after the ledger has
        recorded their row space. Noisy answers and exact counts together are induced subspace differentially private
        (Gao, Gong, Yu, Definition 2.6, Theorem 3.1).
    """
    source = source_for(ledger, source)
    counts.check(plan)
    disclosures = [disclosure_of(plan, margin) for margin in exact]
    charge = None
    if ledger is not None:
        paid = digest or hashlib.sha256(counts.fingerprint() + os.urandom(32)).digest()
        charge = ledger.charge(plan.loss, plan.neighbours, unit or ledger.unit, title, paid, disclosures)
    try:
        stated = tuple(counts.exact(plan, margin) for margin in exact)
    except BaseException as error:
        if ledger is None or charge is None:
            raise
        raise mark_void(ledger, charge.release_id, error) from None
    release_id = None if charge is None else charge.release_id
    return SpineMeasurements(plan, stated, charge is None, release_id, _pieces(counts, plan, source))


def _pieces(counts: SpineCounts, plan: SpinePlan, source: RandomBits) -> Iterator[SpinePieceValues]:
    for piece in plan.pieces:
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        support, truth = plan.dense_cells[piece.pattern], counts.piece(piece, plan)
        values: list[np.ndarray | None] = []
        for query, law, rows in zip(plan.queries, laws, piece.rows, strict=True):
            if law is None:
                values.append(None)
                continue
            noisy = law.sample((piece.nodes.size, rows), source)
            noisy += query.add_up(truth, support).reshape(noisy.shape)
            values.append(noisy)
        yield SpinePieceValues(piece, tuple(values))


def measure_supported(
    counts: SpineCounts,
    plan: SpinePlan,
    cells: CountedCells,
    *,
    ledger: Ledger | None = None,
    source: RandomBits | None = None,
    unit: str | None = None,
    title: str = "areas",
    digest: bytes | None = None,
) -> SupportedMeasurements:
    """Measure a spine from the root down, each area where the counts that were found above it leave something open.

    A division of a parent's counts among its children reads the children's answers about cells that the parent has, and
    no other. Those others are not drawn: which they are follows from answers that are public already. What is drawn
    has the law of the same answers in :func:`measure_spine`, and estimates from the top down are the same. The whole
    budget is charged, whatever is drawn.

    Arguments:
        cells: how a division numbers cells, and what is held.
        ledger, source, unit, title, digest: as for :func:`measure_spine`.

    Raises:
        BudgetRefused: the ledger refuses the charge.
        InvalidArgument: counts or cells of another plan, or an insecure source is combined with a ledger.

    Reference: Abowd et al., "The 2020 Census Disclosure Avoidance System TopDown Algorithm" (2022), for the order.

    Privacy:
        As :func:`measure_spine`, with ``plan.loss`` under ``plan.neighbours``. Draw all answers of that function first,
        with independent noise; then walk down and read those that divisions ask for. What is asked is a function of
        what was read before, of the plan and of ``cells``, none of which is confidential. So all that is published is a
        function of those answers, which costs nothing (Dwork, Roth 2014, Proposition 2.1). The noise of an answer is
        independent of all others, and no division sees it before it asks: drawing it when it is asked gives the same
        law. That needs each answer to be drawn once. A second draw would be a second answer under one charge, and is
        refused here, whatever a division asks for; a stream that ended early is never continued: its charge is void.
    """
    source = source_for(ledger, source)
    counts.check(plan)
    cells.check(plan)
    charge = None
    if ledger is not None:
        paid = digest or hashlib.sha256(counts.fingerprint() + os.urandom(32)).digest()
        charge = ledger.charge(plan.loss, plan.neighbours, unit or ledger.unit, title, paid, [])
    pieces = _supported(counts, plan, cells, source)
    return SupportedMeasurements(plan, charge is None, None if charge is None else charge.release_id, pieces)


def _supported(
    counts: SpineCounts, plan: SpinePlan, cells: CountedCells, source: RandomBits
) -> Generator[tuple[Asked, np.ndarray], None, SupportedCounts]:
    place = np.arange(plan.layout.cell.size)
    rows = np.stack([query.rows(place) for query in plan.queries])
    drawn = np.zeros((plan.tree.size, len(plan.queries)), bool)
    steps, answers = descend(plan, cells), None
    while True:
        try:
            asked = next(steps) if answers is None else steps.send(answers)
        except StopIteration as done:
            return done.value
        _mark_drawn(asked, drawn)
        answers = _noise(asked, plan, source)
        for level in np.unique(plan.tree.level[asked.nodes]).tolist():
            here = np.flatnonzero(plan.tree.level[asked.nodes] == level)
            unit, at, people = counts.entries(level, plan.tree.unit[asked.nodes[here]], plan)
            add_rows(here[unit], at, people, rows[list(asked.queries)], asked.block, asked.row, answers)
        yield asked, answers


def _mark_drawn(asked: Asked, drawn: np.ndarray) -> None:
    """Mark the queries of each node that are about to be answered; refuse those that were before, and a row twice.

    Args:
        drawn: shape (nodes, queries), boolean: those that were.

    Raises:
        AssertionError: a second answer would be drawn under one charge.
    """
    size = np.diff(asked.block)
    at = np.ix_(asked.nodes, np.array(asked.queries))
    now = size.reshape(asked.nodes.size, -1) > 0
    row = np.repeat(np.arange(size.size), size) * (1 + int(asked.row.max(initial=0))) + asked.row
    if (drawn[at] & now).any() or (np.diff(np.sort(row)) == 0).any():
        raise AssertionError("a division asked for an answer that was drawn before: one charge pays for one")
    drawn[at] |= now


def _noise(asked: Asked, plan: SpinePlan, source: RandomBits) -> np.ndarray:
    """The noise of all that is asked, drawn law by law."""
    kinds, of = np.unique(plan.classes[1][asked.nodes], return_inverse=True)
    laws = [plan.laws(int(kind)) for kind in kinds]
    number = {law: i for i, law in enumerate(plan.all_laws)}
    which = np.array([[number.get(each[q], -1) for q in asked.queries] for each in laws])  # type: ignore[arg-type]
    law_of = asked.per_answer(which[of])
    found = np.empty(asked.row.size, np.int64)
    for i in np.unique(law_of).tolist():
        here = np.flatnonzero(law_of == i)
        found[here] = plan.all_laws[i].sample((here.size,), source)
    return found


@njit(cache=True, nogil=True)
def add_rows(
    node: np.ndarray,
    place: np.ndarray,
    people: np.ndarray,
    rows: np.ndarray,
    block: np.ndarray,
    row: np.ndarray,
    into: np.ndarray,
) -> None:
    """Add the true counts of nodes to their answers. Confidential.

    Args:
        node, place, people: counts, rising by node.
        rows: shape (queries, places): the row of each query that a place counts in.
        block, row: as in :class:`~.sparse.descend.Asked`.
        into: shape (answers,), int64.
    """
    for q in range(rows.shape[0]):
        most = rows[q].max() + 1
        seen, at = np.full(most, -1, np.int64), np.zeros(most, np.int64)
        last = -1
        for i in range(node.size):
            c = node[i]
            if c != last:
                last = c
                for j in range(block[c * rows.shape[0] + q], block[c * rows.shape[0] + q + 1]):
                    seen[row[j]], at[row[j]] = c, j
            here = rows[q, place[i]]
            if seen[here] == c:
                into[at[here]] += people[i]


def refuse_contradictions(
    counts: SpineCounts, plan: SpinePlan, exact: Sequence[ExactMargin], constraints: AreaConstraints
) -> None:
    """Refuse exact counts that limits contradict: no estimate could meet both, and the charge would be lost."""
    counts.check(plan)
    if not constraints.exact:
        return
    if [(e.level, e.margin.name) for e in constraints.exact] != [(e.level, e.margin.name) for e in exact]:
        raise InvalidArgument("the constraints are about other exact counts than those that are measured")
    try:
        NodeLimits.of(plan, constraints, [counts.exact(plan, margin) for margin in exact])
    except InvalidArgument as error:
        raise DataError(f"{error}. Nothing was charged") from None


def refuse_too_many(counts: SpineCounts, needs: ResourceEstimate, folder: Path) -> None:
    """Refuse records whose answers may not fit where a release is written, in words that do not tell their number."""
    free, begun = shutil.disk_usage(folder).free, 1 + counts.records // MILLION
    if needs.million and free < needs.disk + needs.million * begun:
        raise ReleaseError(
            f"this release may take {size_words(needs.disk)} on disk, and {size_words(needs.million)} for each million "
            f"records; for these that may be more than the {size_words(free)} that are free where {folder} stands: "
            "free some, or write the release on another disk. Nothing was charged"
        )
