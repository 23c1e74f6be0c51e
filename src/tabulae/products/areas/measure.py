"""The privacy boundary of geography: confidential counts of areas in, public measurements out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from ...errors import DataError, InvalidArgument
from ...privacy import Ledger, RandomBits, mark_void
from ..measured import source_for
from .constraints import AreaConstraints, ExactMargin, disclosure_of
from .count import SpineCounts
from .descent.limits import NodeLimits
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
