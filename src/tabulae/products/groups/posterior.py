"""Whole tables of groups: draws given both stages of every group, over regions that nest.

Each group has a tree of its own: its regions, those of a finer type below those of a coarser one, and below a region
what of it lies in no finer one. Its cells are those that the ladder tells apart, split table by table. All answers
enter: the counts of stage one, too, which chose the tables; given what was measured, that choice says nothing more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from ...domain import Ladder, Regions
from ...errors import Unsupported
from ...estimation.intervals import are_enough
from ...estimation.posterior import BURNT, KEPT_EVERY, Draws, MeasuredTree, sample
from ...release.write import word_column
from ..implicates import FILE, columns_of, drawn_document, implicate_faults, write_implicates
from .levels import TOTAL_ONLY, AdaptivePlan, GroupMeasurement

IMPLICATES = 200
"""Draws that are published."""

LARGEST = 1 << 22
"""Most counts of a draw: cells of all groups in all regions."""

_SHOWN = 64  # places of a region type whose cells are looked at for how draws correlate
_AT_ONCE = 1 << 22  # counts of draws that are summed at a time


@dataclass(frozen=True, eq=False)
class GroupTree:
    """Where the places of a plan are in the tree of all groups.

    Attributes:
        parent: shape (nodes,): -1 for the root, which stands for nothing; sorted, so that parents come first.
        leaf: shape (leaves,): nodes without children.
        group: shape (nodes,): the position of each node's group in ``codes``, -1 for the root.
        region: shape (nodes, region types): the region that each node lies in, or -1; types from the coarsest.
        node: for each level, shape (regions * groups,): the node of each place.
    """

    types: tuple[Regions, ...]
    codes: tuple[str, ...]
    parent: np.ndarray
    leaf: np.ndarray
    group: np.ndarray
    region: np.ndarray
    node: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, plan: AdaptivePlan) -> GroupTree:
        """The trees of all groups under one root.

        Raises:
            Unsupported: regions that do not nest, several ladders, public counts that choose tables, too many cells.
        """
        _check(plan)
        types = tuple(
            sorted(
                {level.regions.name: level.regions for level in plan.levels}.values(), key=lambda r: r.size
            )
        )
        where: dict[str, set[str]] = {}
        for level in plan.levels:
            for group in level.groups.groups:
                where.setdefault(group.code, set()).add(level.regions.name)
        codes = sorted(where, key=lambda code: sorted(where[code]))
        parents, groups, regions, begin, at = [np.array([-1])], [np.array([-1])], [], {}, 1
        shapes: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for tabulated, members in groupby(codes, key=lambda code: sorted(where[code])):
            parent, region = _region_tree([each for each in types if each.name in tabulated], types)
            for code in members:
                shapes[code], begin[code] = (parent, region), at
                parents.append(np.where(parent >= 0, parent + at, 0))
                groups.append(np.full(parent.size, len(begin) - 1))
                regions.append(region)
                at += parent.size
        parent, group = np.concatenate(parents), np.concatenate(groups)
        region = np.concatenate([np.full((1, len(types)), -1), *regions])
        order = _by_depth(parent)
        place = np.argsort(order)
        node = []
        for level in plan.levels:
            kind = types.index(level.regions)
            found = np.empty((level.regions.size, len(level.groups)), np.int64)
            for g, each in enumerate(level.groups.groups):
                _, local = shapes[each.code]
                mine = np.flatnonzero((local[:, kind] >= 0) & (local[:, kind + 1 :] < 0).all(axis=1))
                # the first node in a region is the region itself: what is left of it comes after all regions
                _, first = np.unique(local[mine, kind], return_index=True)
                found[local[mine[first], kind], g] = place[begin[each.code] + mine[first]]
            node.append(found.ravel())
        parent = np.where(parent[order] >= 0, place[parent[order]], -1)
        leaf = np.setdiff1d(np.arange(parent.size), parent)
        return cls(types, tuple(begin), parent, leaf, group[order], region[order], tuple(node))


def _check(plan: AdaptivePlan) -> None:
    ladders = {id(level.ladder) for level in plan.levels}
    places = sum(level.places for level in plan.levels)
    if len(ladders) > 1:
        raise Unsupported(
            "whole tables are drawn of groups with one ladder of tables, and these levels have several: write "
            'estimate = "two-stage", or one spec for each ladder'
        )
    if any(level.chosen is not None for level in plan.levels):
        raise Unsupported(
            "public counts choose which groups are counted here, and draws of the others would rest on nothing that "
            'was measured: write estimate = "two-stage", or leave counts out'
        )
    counts = places * plan.levels[0].ladder.classes
    if counts > LARGEST:
        raise Unsupported(
            f"whole tables of these groups have {counts:,} counts, and up to {LARGEST:,} are drawn: leave out the "
            'finest region type or the longest table, or write estimate = "two-stage"'
        )


def _region_tree(mine: Sequence[Regions], types: Sequence[Regions]) -> tuple[np.ndarray, np.ndarray]:
    """The tree of one group's regions, coarsest first: parents (-1 for the group itself, node 0), and their regions."""
    now = np.zeros(types[0].of_leaf.size, np.int64)
    parent, region = [-1], [np.full(len(types), -1)]
    for each in mine:
        kind = types.index(each)
        inside = np.flatnonzero(each.of_leaf >= 0)
        pairs = np.unique(np.stack([each.of_leaf[inside], now[inside]], axis=1), axis=0)
        if len(pairs) > np.unique(pairs[:, 0]).size:
            across = pairs[np.flatnonzero(np.diff(pairs[:, 0]) == 0)[0], 0]
            raise Unsupported(
                f"whole tables are drawn over regions that nest, and {each.name} {each.ids[across]!r} lies in several "
                f"regions of a larger type: leave {each.name} out of the levels, or write "
                'estimate = "two-stage"'
            )
        above = np.zeros(each.size, np.int64)
        above[pairs[:, 0]] = pairs[:, 1]
        first = len(parent)
        for r in range(each.size):
            parent.append(int(above[r]))
            region.append(region[above[r]].copy())
            region[-1][kind] = r
        now[inside] = first + each.of_leaf[inside]
    with_children = np.unique(parent[1:])
    for node in np.intersect1d(with_children, now):  # what lies in no finer region
        if node > 0:
            parent.append(int(node))
            region.append(region[node])
    return np.array(parent), np.array(region)


def _by_depth(parent: np.ndarray) -> np.ndarray:
    """Nodes by depth, then by the place of their parent."""
    depth = np.zeros(parent.size, np.int64)
    for node in range(1, parent.size):
        depth[node] = depth[parent[node]] + 1
    place, order = np.zeros(parent.size, np.int64), [np.zeros(1, np.int64)]
    for d in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == d)
        here = here[np.argsort(place[parent[here]], kind="stable")]
        place[here] = np.arange(here.size)
        order.append(here)
    return np.concatenate(order)


@dataclass(frozen=True, eq=False)
class GroupPosterior:
    """Draws of the tables of all groups."""

    plan: AdaptivePlan
    tree: GroupTree
    draws: Draws
    seed: int
    digest: str

    @classmethod
    def of(cls, plan: AdaptivePlan, pieces: Iterator[GroupMeasurement], seed: int) -> GroupPosterior:
        """Draw, given all measurements."""
        tree = GroupTree.of(plan)
        measured, state = _measured(plan, tree, pieces), hashlib.sha256()
        for array in (*measured.answers, measured.precision):
            state.update(np.ascontiguousarray(array).data)
        draws = sample(measured, _start(measured), draws=IMPLICATES, seed=seed)
        return cls(plan, tree, draws, seed, state.hexdigest())

    @property
    def ladder(self) -> Ladder:
        return self.plan.levels[0].ladder

    @cached_property
    def counts(self) -> np.ndarray:
        """The published counts, shape (nodes, classes of the ladder)."""
        return self.draws.table()

    def published(self, piece: GroupMeasurement, places: np.ndarray, rung: int) -> np.ndarray:
        """Whole counts of some places, shape (places, cells of a table); rung 0 is the total."""
        nodes = self._nodes(piece)[places]
        return self.counts[nodes] @ self._cells(rung)

    def ends(
        self, piece: GroupMeasurement, places: np.ndarray, rung: int, level: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Credible intervals of the same counts; None where the draws of these regions are worth too little."""
        if not are_enough(self.effective[self.plan.levels[piece.level].regions.name]):
            return None
        nodes, cells = self._nodes(piece)[places], self._cells(rung)
        step = max(1, _AT_ONCE // (len(self.draws.tables) * cells.shape[1]))
        found = [
            self.draws.credible(self._drawn(nodes[first : first + step], cells), level)
            for first in range(0, nodes.size, step)
        ]
        empty = [np.zeros((0, cells.shape[1]), np.int64)]
        return np.concatenate(empty + [each.low for each in found]), np.concatenate(
            empty + [each.high for each in found]
        )

    def _nodes(self, piece: GroupMeasurement) -> np.ndarray:
        groups = len(self.plan.levels[piece.level].groups)
        first = piece.first * groups
        return self.tree.node[piece.level][first : first + piece.regions * groups]

    def _drawn(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Shape (draws, nodes, classes): sums of cells (cells, classes) in each draw."""
        return self.draws.sums(sparse.csr_array(self.draws.tree.sums[nodes]), sparse.csr_array(cells))

    def _cells(self, rung: int) -> np.ndarray:
        """Shape (classes, cells): the cell of a table that each class of the ladder is in."""
        classes = self.ladder.classes
        cell = self.ladder.rungs[rung - 1].of_class if rung > 0 else np.zeros(classes, np.int64)
        return np.eye(int(cell.max()) + 1, dtype=np.int64)[cell]

    @cached_property
    def effective(self) -> dict[str, dict[str, float]]:
        """How many independent draws these are worth, by type of region: for totals, and for cells of some places."""
        found = {}
        total, cells = self._cells(0), np.eye(self.ladder.classes, dtype=np.int64)
        for regions in self.tree.types:
            nodes = np.concatenate(
                [
                    each
                    for each, level in zip(self.tree.node, self.plan.levels, strict=True)
                    if level.regions is regions
                ]
            )
            step = max(1, nodes.size * len(self.draws.tables) // _AT_ONCE)
            some = nodes[np.unique(np.linspace(0, nodes.size - 1, _SHOWN).astype(np.int64))]
            each = (self._drawn(n, c) for n, c in ((nodes[::step], total), (some, cells)))
            worth = (round(self.draws.effective(sums), 1) for sums in each)
            found[regions.name] = dict(zip(("totals", "cells"), worth, strict=True))
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
    def headings(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Of each heading of a table the labels, and the label of each class of the ladder."""
        found = {}
        for rung in self.ladder.rungs:
            place = np.unravel_index(rung.of_class, [len(labels) for labels in rung.columns.values()])
            for (heading, labels), index in zip(rung.columns.items(), place, strict=True):
                found[heading] = labels, index
        return found

    @property
    def schema(self) -> pa.Schema:
        return columns_of(["group", *(each.name for each in self.tree.types), *self.headings])

    def rows(self) -> Iterator[pa.Table]:
        """The implicates, one draw after the other: by group, region and cell; cells of nobody are left out."""
        tree, nodes = self.tree, self.tree.leaf
        for number, table in enumerate(self.draws.tables, start=1):
            table.sort_indices()
            leaf = np.repeat(nodes, np.diff(table.indptr))
            columns = [
                pa.array(np.full(leaf.size, number, np.int32)),
                word_column(tree.group[leaf], tree.codes),
            ]
            for kind, regions in enumerate(tree.types):
                inside = tree.region[leaf, kind]
                index = pa.array(inside.astype(np.int32), mask=inside < 0)
                columns.append(pa.DictionaryArray.from_arrays(index, pa.array([*regions.ids], pa.string())))
            columns += [word_column(index[table.indices], labels) for labels, index in self.headings.values()]
            columns.append(pa.array(table.data.astype(np.int64)))
            yield pa.Table.from_arrays(columns, schema=self.schema)

    def write(self, folder: Path) -> None:
        """Write the implicates, and how they were drawn."""
        write_implicates(folder, self.schema, self.rows(), self.document)

    def faults(self, folder: Path) -> Iterator[str]:
        """Whether stored implicates are those that the measurements and the seed give."""
        yield from implicate_faults(folder, self.schema, self.rows(), self.document)


def check_groups_drawn(plan: AdaptivePlan) -> None:
    """Refuse, before anything is charged, what could not be drawn or written.

    Raises:
        Unsupported: as :meth:`GroupTree.of`; a column of a table or a region type with the name of one of implicates.
    """
    tree = GroupTree.of(plan)
    names = [
        *(each.name for each in tree.types),
        *(h for rung in plan.levels[0].ladder.rungs for h in rung.columns),
    ]
    for name in ("draw", "group", "count"):
        if name in names:
            raise Unsupported(
                f"{name!r} is a column of {FILE}: give the region type or the attribute another name"
            )


def _measured(plan: AdaptivePlan, tree: GroupTree, pieces: Iterator[GroupMeasurement]) -> MeasuredTree:
    """All answers: the total of stage one, the total of stage two, and each table."""
    ladder, nodes = plan.levels[0].ladder, tree.parent.size
    none = np.zeros(ladder.classes, np.int64)
    queries = np.stack([none, none, *(rung.of_class.astype(np.int64) for rung in ladder.rungs)])
    answers = tuple(np.zeros((nodes, int(query.max()) + 1), np.int64) for query in queries)
    precision = np.zeros((nodes, len(queries)))
    laplace = plan.levels[0].whole.kind == "laplace"
    for piece in pieces:
        level, groups = plan.levels[piece.level], len(plan.levels[piece.level].groups)
        place = tree.node[piece.level][piece.first * groups : (piece.first + piece.regions) * groups]
        sharp = [
            0.0 if law is None else 1 / float(law.parameter) ** (2 if laplace else 1)
            for law in (level.first, level.second, level.whole)
        ]
        staged = piece.rung != TOTAL_ONLY
        answers[0][place[staged], 0] = piece.stage_one[staged]
        precision[place[staged], 0] = sharp[0]
        alone = piece.rung <= 0
        answers[1][place[alone], 0] = piece.totals[alone]
        precision[place[alone], 1] = np.where(staged[alone], sharp[1], sharp[2])
        for rung, (at, cells) in piece.cells.items():
            answers[rung + 1][place[at]] = cells
            precision[place[at], rung + 1] = sharp[1]
    splits = np.stack([rung.of_class for rung in ladder.rungs], axis=1) if ladder.rungs else none[:, None]
    return MeasuredTree(
        tree.parent,
        tree.leaf,
        splits.astype(np.int64),
        queries,
        answers,
        precision,
        np.ones((tree.leaf.size, ladder.classes), bool),
        laplace=laplace,
    )


def _start(tree: MeasuredTree) -> np.ndarray:
    """Whole counts (leaves, classes) near to what was measured: totals of leaves, divided as all tables are."""
    total, weight = np.zeros(tree.parent.size), np.zeros(tree.parent.size)
    share = np.ones(len(tree.splits))
    for q, (query, answers) in enumerate(zip(tree.queries, tree.answers, strict=True)):
        precision = tree.precision[:, q] / answers.shape[1]
        total += precision * answers.sum(axis=1)
        weight += precision
        if query.max() > 0:
            cells = np.maximum(answers[tree.precision[:, q] > 0], 0).sum(axis=0)
            share += (cells / np.bincount(query))[query]
    total = np.maximum(np.divide(total, weight, out=np.zeros_like(total), where=weight > 0), 0)
    below = np.bincount(tree.parent[1:], total[1:], minlength=total.size)
    rest = tree.leaf[
        weight[tree.leaf] == 0
    ]  # measured nowhere: what the parent has more than its other parts
    total[rest] = np.maximum(total - below, 0)[tree.parent[rest]]
    ends = np.rint(np.outer(total[tree.leaf], np.cumsum(share) / share.sum())).astype(np.int64)
    return np.diff(ends, axis=1, prepend=0)
