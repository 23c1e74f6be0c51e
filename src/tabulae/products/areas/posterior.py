"""The posterior of a release of areas: draws of whole tables, the published table, and files of implicates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from ...estimation.intervals import are_enough
from ...estimation.posterior import (
    BURNT,
    KEPT_EVERY,
    Draws,
    ExactSums,
    MeasuredTree,
    by_class,
    ones_at,
    sample,
    sums_by_class,
)
from ...release.write import word_column
from ...spec import NO_VALUE
from ..implicates import FILE, columns_of, drawn_document, implicate_faults, write_implicates
from .constraints import NO_LIMIT, AreaConstraints, nodes_of_units
from .estimate import SpineEstimate
from .layout import CellLayout, Margin
from .passes.vectors import NodeVectors
from .spine_plan import SpinePieceValues, SpinePlan

IMPLICATES = 200
"""Draws that are published: enough for intervals at 95 %, and for 100 effective ones at the usual correlation."""

_SHOWN = 64  # areas of a type whose cells are looked at for how draws correlate


def measured_tree(
    plan: SpinePlan, pieces: Iterable[SpinePieceValues], constraints: AreaConstraints | None = None
) -> MeasuredTree:
    """All answers of a spine and its limits, as the sampler reads them; cells are split by attributes in their order.

    Args:
        pieces: the measurements, all of ``plan.pieces`` in their order.
        constraints: that :func:`~.constraints.check_reachable` has passed.
    """
    layout, domain, place = plan.layout, plan.layout.domain, _places(plan.layout)
    dense = place // layout.algebra.cells
    codes = np.stack(np.unravel_index(layout.cell.ravel()[place], domain.shape), axis=1)
    splits = codes[:, [attribute.size > 1 for attribute in domain.attributes]]
    queries = np.stack([query.rows(place) for query in plan.queries]).astype(np.int64)
    answers = tuple(np.zeros((plan.tree.size, query.size), np.int64) for query in plan.queries)
    precision = np.zeros((plan.tree.size, len(plan.queries)))
    for given in pieces:
        nodes, support = given.piece.nodes, plan.dense_cells[given.piece.pattern]
        laws = plan.laws(int(plan.classes[1][nodes[0]]))
        for q, (query, law, values) in enumerate(zip(plan.queries, laws, given.values, strict=True)):
            if law is not None and values is not None:
                columns = (query.present(support)[:, None] * query.inner + np.arange(query.inner)).ravel()
                answers[q][nodes[:, None], columns] = values
                precision[nodes, q] = 1 / float(law.parameter) ** (1 if law.kind == "gaussian" else 2)
    known: dict[str, Any] = {}
    if constraints is not None:
        known = {
            "exact": tuple(
                ExactSums(each.margin.label[dense], _marked(plan, each.level)) for each in constraints.exact
            ),
            "part": constraints.part[dense],
            "least": constraints.lower,
            "most": constraints.upper,
        }
    return MeasuredTree(
        plan.tree.parent,
        plan.tree.leaf,
        splits,
        queries,
        answers,
        precision,
        plan.support.rows[:, dense],
        laplace=plan.all_laws[0].kind == "laplace",
        **known,
    )


def _places(layout: CellLayout) -> np.ndarray:
    """Shape (cells,): places ``dense * N + combination`` of the layout, in the order of the domain's cells."""
    return np.argsort(layout.cell.ravel())


def _marked(plan: SpinePlan, level: str) -> np.ndarray:
    found = np.zeros(plan.tree.size, bool)
    found[nodes_of_units(plan, level)] = True
    return found


@dataclass(frozen=True, eq=False)
class AreaPosterior:
    """Draws of the counts of all leaves.

    Args:
        areas: for each type of area that is published the area of each leaf, -1 where it lies in none.
        leaves: name of the leaves' level, and their codes.
        digest: of the measurements.
    """

    plan: SpinePlan
    draws: Draws
    areas: Mapping[str, np.ndarray]
    leaves: tuple[str, np.ndarray]
    seed: int
    digest: str

    @classmethod
    def of(
        cls,
        start: SpineEstimate,
        pieces: Iterable[SpinePieceValues],
        areas: Mapping[str, np.ndarray],
        leaves: tuple[str, np.ndarray],
        seed: int,
    ) -> AreaPosterior:
        """Sample, from whole counts that meet all limits.

        Raises:
            InvalidArgument: the start does not.
        """
        plan, state = start.plan, hashlib.sha256()
        tree = measured_tree(plan, pieces, start.constraints)
        for array in tree.answers:
            state.update(np.ascontiguousarray(array).data)
        counts = start.leaf_counts(0, plan.spine.leaves).reshape(plan.spine.leaves, -1)
        draws = sample(tree, counts[:, _places(plan.layout)].astype(np.int64), draws=IMPLICATES, seed=seed)
        return cls(plan, draws, areas, leaves, seed, state.hexdigest())

    @property
    def layout(self) -> CellLayout:
        return self.plan.layout

    def table(self) -> NodeVectors:
        """The published counts of every node."""
        plan, layout = self.plan, self.layout
        nodes = np.zeros((plan.tree.size, layout.cell.size), np.int64)
        nodes[:, _places(layout)] = self.draws.table()
        nodes = nodes.reshape(plan.tree.size, layout.size, -1)
        found = NodeVectors.zeros(plan, np.int64)
        for pattern, support in enumerate(plan.dense_cells):
            here = np.flatnonzero(plan.pattern == pattern)
            found.put(here, nodes[here][:, support])
        return found

    def ends(
        self,
        margins: Sequence[Margin],
        kind: str,
        owner: np.ndarray,
        areas: int,
        leaves: np.ndarray,
        level: float,
    ) -> Iterator[tuple[np.ndarray, np.ndarray] | None]:
        """Credible intervals of the counts of some areas: for each margin two arrays (areas, classes, inner).

        None where the draws of this type of area are worth fewer than ``LEAST_EFFECTIVE``.
        """
        rows = ones_at(owner, leaves, (areas, self.plan.spine.leaves))
        place = _places(self.layout)
        for margin in margins:
            if not areas or not are_enough(self.effective[kind]):
                yield None
                continue
            cells = by_class(margin.rows(place)[:, None], margin.size)
            low, high = self.draws.credible(self.draws.sums(rows, cells), level)
            shape = areas, margin.classes, margin.inner
            yield low.reshape(shape), high.reshape(shape)

    @cached_property
    def effective(self) -> dict[str, dict[str, float]]:
        """How many independent draws these are worth, by type of area: for totals, and for cells of some areas.

        An entity that no leaf is in has no areas, and no draws of them.
        """
        found = {}
        cells = self.layout.cell.size
        for kind, area in self.areas.items():
            inside = np.flatnonzero(area >= 0)
            count = int(area.max()) + 1
            if not count:
                continue
            rows = ones_at(area[inside], inside, (count, area.size))
            some = np.unique(np.linspace(0, count - 1, _SHOWN).astype(np.int64))
            totals = self.draws.sums(rows, sparse.csr_array(np.ones((cells, 1), np.int64)))
            each = self.draws.sums(rows[some], sparse.csr_array(np.eye(cells, dtype=np.int64)))
            found[kind] = {
                "totals": round(self.draws.effective(totals), 1),
                "cells": round(self.draws.effective(each), 1),
            }
        return found

    @property
    def document(self) -> dict[str, Any]:
        """What ``posterior.json`` says."""
        return drawn_document(
            implicates=len(self.draws.tables),
            before=BURNT,
            between=KEPT_EVERY,
            seed=self.seed,
            measurements=self.digest,
            effective=self.effective,
        )

    @property
    def schema(self) -> pa.Schema:
        return columns_of([self.leaves[0], *self.layout.domain.names])

    def rows(self) -> Iterator[pa.Table]:
        """The implicates, one draw after the other: by leaf, then by cell; cells of nobody are left out."""
        domain, (_, codes) = self.layout.domain, self.leaves
        cell = self.layout.cell.ravel()[_places(self.layout)]
        values = [["" if value == NO_VALUE else value for value in each.values] for each in domain.attributes]
        for number, table in enumerate(self.draws.tables, start=1):
            table.sort_indices()
            leaf = np.repeat(np.arange(codes.size), np.diff(table.indptr))
            labels = np.unravel_index(cell[table.indices], domain.shape)
            columns = [pa.array(np.full(leaf.size, number, np.int32)), word_column(leaf, codes.tolist())]
            columns += [word_column(index, words) for index, words in zip(labels, values, strict=True)]
            columns.append(pa.array(table.data.astype(np.int64)))
            yield pa.Table.from_arrays(columns, schema=self.schema)


def write_posterior(folder: Path, made: AreaPosterior) -> None:
    """Write the implicates, and how they were drawn."""
    write_implicates(folder, made.schema, made.rows(), made.document)


def posterior_faults(folder: Path, made: AreaPosterior) -> Iterator[str]:
    """Whether stored implicates are those that the measurements and the seed give, and keep every limit."""
    yield from implicate_faults(folder, made.schema, made.rows(), made.document)
    yield from _limit_faults(made)


def _limit_faults(made: AreaPosterior) -> Iterator[str]:
    """Whether each draw is of people, where they can be, within bounds, with the exact sums of the published table."""
    tree = made.draws.tree
    first = made.draws.tables[0]
    fixed = tree.fixed
    for number, table in enumerate(made.draws.tables, start=1):
        parts = sums_by_class(table, fixed.part[:, None], fixed.least.shape[1])
        leaf, cell = table.nonzero()
        if (table.data < 0).any() or not tree.allowed[leaf, cell].all():
            yield f"{FILE}: draw {number} counts somebody where nobody can be, or fewer than nobody"
        if (parts < fixed.least).any() or (parts > np.minimum(fixed.most, NO_LIMIT)).any():
            yield f"{FILE}: draw {number} breaks a bound"
        for each in tree.exact:
            classes = by_class(each.label[:, None], int(each.label.max()) + 1)
            if (tree.sums[each.nodes] @ (table - first) @ classes).count_nonzero():
                yield f"{FILE}: draw {number} does not have the exact counts"
