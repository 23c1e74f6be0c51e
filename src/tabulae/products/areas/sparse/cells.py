"""The cells that can be counted, numbered so that every coarser table that is held or rounded is a run of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....errors import InvalidArgument
from ..constraints import NO_LIMIT, AreaConstraints, unit_name
from ..layout import Margin
from ..spine.shares import distinct_rows
from ..spine_plan import SpinePlan

MOST_DENSE = 1 << 17
"""The most dense cells: of each kind of leaf it is kept which of them can occur."""

MOST_CELLS = 1 << 25
"""The most cells that are numbered, each once in every stratum that can have it."""

MOST_UNKNOWNS = 1 << 21
"""About how many are solved for together."""

MOST_ACROSS = 1_024
"""The most answers of one area that are solved for together, as their queries do not nest."""


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """Counts that are not 0, of some rows each: row u has ``people[i]`` in ``key[i]`` for first[u] <= i < first[u + 1].

    Keys rise within a row.
    """

    first: np.ndarray
    key: np.ndarray
    people: np.ndarray

    @classmethod
    def of(cls, rows: int, row: np.ndarray, key: np.ndarray, people: np.ndarray) -> SparseCounts:
        """Add up entries of one row and key; entries of no people are left out."""
        order = np.lexsort((key, row))
        row, key, people = row[order], key[order], people[order]
        starts = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(key, prepend=-1) != 0))
        sums = np.add.reduceat(people, starts) if row.size else people
        kept = starts[sums != 0]
        first = np.searchsorted(row[kept], np.arange(rows + 1)).astype(np.int64)
        return cls(first, key[kept], sums[sums != 0])

    @property
    def rows(self) -> int:
        return self.first.size - 1

    @property
    def row(self) -> np.ndarray:
        """Shape (entries,): the row of each entry."""
        return np.repeat(np.arange(self.rows), np.diff(self.first))

    def take(self, rows: np.ndarray) -> SparseCounts:
        """Some rows, in this order."""
        length = self.first[rows + 1] - self.first[rows]
        first = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        at = np.arange(first[-1]) + np.repeat(self.first[rows] - first[:-1], length)
        return SparseCounts(first, self.key[at], self.people[at])

    def labelled(self, label: np.ndarray) -> SparseCounts:
        """Added up by a label that does not fall where keys rise: shape (keys,)."""
        row, key = self.row, label[self.key]
        starts = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(key, prepend=-1) != 0))
        sums = np.add.reduceat(self.people, starts) if row.size else self.people
        first = np.searchsorted(row[starts], np.arange(self.rows + 1)).astype(np.int64)
        return SparseCounts(first, key[starts], sums)

    def is_like(self, other: SparseCounts) -> bool:
        """Whether the counts are the same."""
        pairs = (self.first, other.first), (self.key, other.key), (self.people, other.people)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    @classmethod
    def none(cls) -> SparseCounts:
        """No rows."""
        empty = np.zeros(0, np.int64)
        return cls(np.zeros(1, np.int64), empty, empty)

    @classmethod
    def joined(cls, parts: Sequence[SparseCounts]) -> SparseCounts:
        """The rows of all parts, one part after the other."""
        ends = np.cumsum([0, *(part.key.size for part in parts)])
        first = [part.first[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
        return cls(
            np.concatenate([*first, ends[-1:]]).astype(np.int64),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.people for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class HeldMargin:
    """A marginal table whose counts are known for every leaf, from what was published before.

    Args:
        counts: a row a leaf; keys are ``class * margin.inner + inner``.
    """

    margin: Margin
    counts: SparseCounts

    def check(self, plan: SpinePlan) -> None:
        """Refuse counts that are not of this plan's leaves and of this margin's cells, or not people."""
        counts = self.counts
        if self.margin.layout is not plan.layout or counts.rows != plan.spine.leaves:
            raise InvalidArgument(
                f"{self.margin.name!r} holds counts of {counts.rows:,} leaves or of other cells, and the plan has "
                f"{plan.spine.leaves:,} leaves: make the margin of the plan's layout, with a row for each leaf"
            )
        if counts.key.size and not 0 <= int(counts.key.min()) <= int(counts.key.max()) < self.margin.size:
            raise InvalidArgument(f"a count of {self.margin.name!r} is of a cell that it does not have")
        if (counts.people <= 0).any():
            raise InvalidArgument(
                f"a count of {self.margin.name!r} is 0 or less: leave out zeros, and correct others"
            )


@dataclass(frozen=True)
class Pass:
    """One step of a division: some queries are estimated together, rounded, and held from then on.

    What is estimated are the cells that its queries tell apart; in the last pass all cells.

    Args:
        queries: positions of the plan's queries.
        rounding: marginal tables that rounding keeps to a floor or ceiling, each a coarsening of the next.
    """

    queries: tuple[int, ...]
    rounding: tuple[Margin, ...] = ()


@dataclass(frozen=True, eq=False)
class PassCells:
    """The cells of a pass.

    Attributes:
        queries: positions of its queries, those of ``nested`` first: each is a coarsening of the one before.
        nested: how many.
        label: shape (n,): the pass's cell of each cell; it does not fall.
        outer: shape (cells,): what is held of each: a cell of the pass before, or of the held margin.
        rounding: shape (levels, cells): the sum that each is in, from fine to coarse; each within one ``outer``.
        rows: shape (queries, cells): the row of each query that it counts in.
    """

    queries: tuple[int, ...]
    nested: int
    label: np.ndarray
    outer: np.ndarray
    rounding: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class CountedCells:
    """Cells as a descent numbers them, and what is held of every leaf.

    Leaves differ in which cells they can have. With the counts of a margin held, the people of one of its cells who
    live in leaves that can have the same cells are a *stratum*, whose number every area knows. Cells are those of the
    layout, once in each stratum that can have them. Then any division of an area's counts among its children, stratum
    by stratum, that keeps the children's held counts can be divided further: within a stratum every leaf can have
    every cell, so that a transport without forbidden pairs is left.

    Lower limits of parts where a leaf can have several parts of one stratum: as many people as they ask for are held in
    the stratum of that part alone, in the largest of its held cells. Whatever else comes, the limits are met. That asks
    for more than the limits do: which cells those few people are in is not estimated.

    Attributes:
        place: shape (n,): ``dense cell * N + combination`` of each cell.
        held: a row a leaf: its counts by held cell; none where nothing is held.
        passes: the steps of a division; the last one's cells are all.
    """

    place: np.ndarray
    held: SparseCounts
    passes: tuple[PassCells, ...]

    @classmethod
    def of(
        cls,
        plan: SpinePlan,
        passes: Sequence[Pass],
        held: HeldMargin | None = None,
        constraints: AreaConstraints | None = None,
    ) -> CountedCells:
        """Number the cells.

        Raises:
            InvalidArgument: leaves that differ in what they can have, and nothing is held; held counts that leaves or
                limits contradict; a level that leaves cells of a pass open; a root that is not measured.
        """
        if held is not None:
            held.check(plan)
        if not plan.is_measured[0]:
            raise InvalidArgument(
                f"{plan.spine.levels[0]} is not measured, and a division from the top down begins there: give the "
                "level a share of the budget"
            )
        strata = _Strata.of(plan, held, constraints)
        inner = plan.layout.algebra.cells
        size = np.array([dense.size for dense in strata.cells], np.int64)
        if (every := int(size.sum()) * inner) > MOST_CELLS:
            raise InvalidArgument(
                f"leaves differ so much in what they can have that {every:,} cells are told apart, and at most "
                f"{MOST_CELLS:,} are: bound fewer kinds, or ask for fewer cells"
            )
        stratum = np.repeat(np.arange(size.size), size * inner)
        place = (np.concatenate(strata.cells)[:, None] * inner + np.arange(inner)).ravel()
        outer = stratum if held is None else stratum * held.margin.size + held.margin.rows(place)
        passes = [_with_rounding(plan, step) for step in passes]
        tables = [[*step.rounding, *_telling(plan, step)] for step in passes[:-1]] + [[*passes[-1].rounding]]
        keys = [margin.rows(place) for step in tables for margin in step]
        order = np.lexsort([place, *reversed(keys), outer])
        place, outer = place[order], outer[order]
        known, outer = np.unique(outer, return_inverse=True)
        found, before = [], outer
        for step, margins in zip(passes, tables, strict=True):
            last = step is passes[-1]
            found.append(_pass_cells(plan, step, margins, place, before, last=last))
            before = found[-1].label
            if not last and before[-1] + 1 == place.size:
                raise InvalidArgument(
                    "a pass before the last asks all cells, and nothing is left for those after it: ask them in the "
                    "last one"
                )
        return cls(place, strata.counts(known), tuple(found))

    def check(self, plan: SpinePlan) -> None:
        """See that these cells were numbered for a plan like this one."""
        asked = sorted(q for step in self.passes for q in step.queries)
        if (
            self.held.rows != plan.spine.leaves
            or not 0 <= int(self.place.min()) <= int(self.place.max()) < plan.layout.cell.size
            or asked != list(range(len(plan.queries)))
        ):
            raise InvalidArgument(
                "these cells are of another plan, or passes do not ask each query once: number them for this one"
            )

    @property
    def size(self) -> int:
        return self.place.size


def _with_rounding(plan: SpinePlan, step: Pass) -> Pass:
    """A pass that says nothing of rounding keeps those of its queries that nest, the largest first."""
    if step.rounding:
        return step
    place, kept = np.arange(plan.layout.cell.size), []
    for query in sorted((plan.queries[q] for q in step.queries), key=lambda query: -query.size):
        if not kept or _coarsens(kept[-1].rows(place), query.rows(place)):
            kept.append(query)
    return replace(step, rounding=tuple(reversed(kept)))


def _telling(plan: SpinePlan, step: Pass) -> list[Margin]:
    """Queries of a pass that, with its rounding tables, tell apart what any of them does; no more than it takes."""
    place, found = np.arange(plan.layout.cell.size), []
    label = np.zeros(place.size, np.int64)
    asked = sorted((plan.queries[q] for q in step.queries), key=lambda query: -query.size)
    for margin in (*step.rounding, *asked):
        row = margin.rows(place)
        if not _coarsens(label, row):
            label = np.unique(label * margin.size + row, return_inverse=True)[1]
            found += [margin] if margin not in step.rounding else []
    return found


def _pass_cells(
    plan: SpinePlan,
    step: Pass,
    margins: Sequence[Margin],
    place: np.ndarray,
    before: np.ndarray,
    *,
    last: bool,
) -> PassCells:
    """The cells of a pass, of which ``margins`` tell apart those that its rounding does and then its queries."""
    levels, label = [], before
    for margin in margins:
        label = _refined(label, margin.rows(place))
        levels.append(label)
    levels = levels[: len(step.rounding)]
    label = np.arange(place.size) if last else label
    first = np.searchsorted(label, np.arange(label[-1] + 1))
    order = sorted(step.queries, key=lambda q: -plan.queries[q].size)
    rows = [plan.queries[q].rows(place[first]) for q in order]
    _check_determined(plan, order, rows, before[first])
    nested: list[int] = []
    for i in range(len(order)):
        if not nested or _coarsens(rows[nested[-1]], rows[i]):
            nested.append(i)
    others = [i for i in range(len(order)) if i not in nested]
    if (few := sum(plan.queries[order[i]].size for i in others)) > MOST_ACROSS:
        names = ", ".join(repr(plan.queries[order[i]].name) for i in others)
        raise InvalidArgument(
            f"queries that cut across the largest ones have {few:,} cells, and at most {MOST_ACROSS:,} are solved for "
            f"together: {names}. Ask for fewer cells"
        )
    return PassCells(
        tuple(order[i] for i in (*nested, *others)), len(nested), label.astype(np.int32),
        before[first].astype(np.int32),
        np.array([level[first] for level in reversed(levels)], np.int32).reshape(len(levels), first.size),
        np.array([rows[i] for i in (*nested, *others)], np.int32).reshape(len(rows), first.size),
    )  # fmt: skip


def _check_determined(
    plan: SpinePlan, order: Sequence[int], rows: Sequence[np.ndarray], outer: np.ndarray
) -> None:
    """See that every level asks, in a pass, a query that tells apart all of its cells within what is held.

    What a pass leaves open no later one finds: it is rounded and held.

    Args:
        order: the queries of the pass.
        rows: for each, the row of each cell of the pass.
        outer: what is held of each cell.
    """
    measured = np.unique(plan.tree.level[plan.is_measured]).tolist()
    left = [plan.spine.levels[level] for level in measured]
    for q, row in zip(order, rows, strict=True):
        asking = [level for level in left if plan.query_shares[level][q]]
        if asking and np.unique(outer.astype(np.int64) * plan.queries[q].size + row).size == row.size:
            left = [level for level in left if level not in asking]
    if left:
        names = ", ".join(repr(plan.queries[q].name) for q in order)
        raise InvalidArgument(
            f"level {left[0]!r} asks no query that tells apart all that the queries of its pass do together: {names}. "
            "Give one a share there that does, or ask them in different passes"
        )


def _refined(label: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Runs of cells that have one label and one row, numbered as they come."""
    return np.cumsum((np.diff(label, prepend=label[0]) != 0) | (np.diff(row, prepend=row[0]) != 0))


def _coarsens(fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Whether cells of one row of the first have one row of the second."""
    found = np.full(fine.max() + 1, -1)
    found[fine] = coarse
    return bool((found[fine] == coarse).all())


@dataclass(frozen=True, eq=False)
class _Strata:
    """Which cells leaves can have of each class of the held margin, and how many people are held there.

    Attributes:
        cells: for each stratum, its dense cells.
        leaf, stratum, row, people: what is held: entries of leaves, with the row of the margin.
    """

    held: HeldMargin | None
    leaves: int
    cells: list[np.ndarray]
    leaf: np.ndarray
    stratum: np.ndarray
    row: np.ndarray
    people: np.ndarray

    @classmethod
    def of(cls, plan: SpinePlan, held: HeldMargin | None, constraints: AreaConstraints | None) -> _Strata:
        pattern = plan.pattern[plan.tree.leaf]
        none = np.zeros(0, np.int64)
        if held is None:
            _check_alike(plan, pattern, constraints)
            return cls(None, plan.spine.leaves, [plan.dense_cells[pattern[0]]], none, none, none, none)
        counts = held.counts
        kind = counts.key // held.margin.inner
        seen, which = distinct_rows(np.stack([pattern[counts.row], kind], axis=1))
        sets: dict[bytes, int] = {}
        cells: list[np.ndarray] = []
        of = np.zeros(len(seen), np.int64)
        for i, (p, k) in enumerate(seen.tolist()):
            dense = plan.dense_cells[p]
            of[i] = _number(sets, cells, dense[held.margin.label[dense] == k])
        empty = np.array([dense.size == 0 for dense in cells])[of][which]
        if empty.any():
            at = int(np.argmax(empty))
            raise InvalidArgument(
                f"{unit_name(plan, int(plan.tree.leaf[counts.row[at]]))}: {held.margin.name!r} holds people where "
                f"nobody can be counted ({int(empty.sum()):,} such counts): correct the file of bounds, or what is held"
            )
        found = cls(held, plan.spine.leaves, cells, counts.row, of[which], counts.key, counts.people.copy())
        return found if constraints is None else found._reserved(plan, constraints, sets)

    def _reserved(self, plan: SpinePlan, constraints: AreaConstraints, sets: dict[bytes, int]) -> _Strata:
        """The same with as many people held in a part's own stratum as lower limits of the part need."""
        assert self.held is not None
        parts = [np.unique(constraints.part[dense]) for dense in self.cells]
        in_leaf = np.zeros(
            (self.leaves, len(constraints.part_names)), np.int64
        )  # people who are sure to be in a part
        can = np.zeros_like(in_leaf)
        for s, held in enumerate(parts):
            here = self.stratum == s
            for part in held.tolist():
                np.add.at(can[:, part], self.leaf[here], self.people[here])
                if held.size == 1:
                    np.add.at(in_leaf[:, part], self.leaf[here], self.people[here])
        _check_limits(plan, constraints, can)
        missing = np.maximum(constraints.lower - in_leaf, 0)
        added: list[tuple[int, int, int, int]] = []
        edges = np.searchsorted(self.leaf, np.arange(self.leaves + 1))
        for leaf in np.flatnonzero(missing.any(axis=1)).tolist():
            here = np.arange(edges[leaf], edges[leaf + 1])
            for part in np.flatnonzero(missing[leaf]).tolist():
                for _ in range(int(missing[leaf, part])):
                    those = [i for i in here.tolist() if part in parts[self.stratum[i]] and self.people[i] > 0
                             and parts[self.stratum[i]].size > 1]  # fmt: skip
                    if not those:
                        raise InvalidArgument(_too_few(plan, constraints, self.held, leaf, part))
                    at = max(those, key=lambda i: (int(self.people[i]), -i))
                    self.people[at] -= 1
                    dense = self.cells[self.stratum[at]]
                    own = _number(sets, self.cells, dense[constraints.part[dense] == part])
                    added.append((leaf, own, int(self.row[at]), 1))
        if not added:
            return self
        columns = np.array(added, np.int64).T
        old = (self.leaf, self.stratum, self.row, self.people)
        return replace(self, **{
            name: np.concatenate([before, after])
            for name, before, after in zip(("leaf", "stratum", "row", "people"), old, columns, strict=True)
        })  # fmt: skip

    def counts(self, known: np.ndarray) -> SparseCounts:
        """What is held of each leaf by held cell, given the numbers ``stratum * rows + row`` of those."""
        if self.held is None:
            none = np.zeros(0, np.int64)
            return SparseCounts(np.zeros(self.leaves + 1, np.int64), none, none)
        key = np.searchsorted(known, self.stratum * self.held.margin.size + self.row)
        return SparseCounts.of(self.leaves, self.leaf, key, self.people)


def _number(sets: dict[bytes, int], cells: list[np.ndarray], dense: np.ndarray) -> int:
    """The number of a set of dense cells; a new one where it is new."""
    number = sets.setdefault(dense.tobytes(), len(cells))
    if number == len(cells):
        cells.append(dense)
    return number


def _check_alike(plan: SpinePlan, pattern: np.ndarray, constraints: AreaConstraints | None) -> None:
    """Without held counts nothing says how many people live where only some cells can occur."""
    if (pattern != pattern[0]).any() or (
        constraints is not None
        and (constraints.lower.any() or (constraints.upper < NO_LIMIT).any() or constraints.exact)
    ):
        raise InvalidArgument(
            "leaves differ in what they can have, or have limits, and no table is held from an earlier release: "
            "whether an area can be divided would not be known from above. Hold one that decides it"
        )


def _check_limits(plan: SpinePlan, constraints: AreaConstraints, can: np.ndarray) -> None:
    """Refuse upper limits that may bind, and exact counts: held ones stand in their place."""
    tight = (constraints.upper < can).nonzero()
    if tight[0].size:
        leaf, part = int(tight[0][0]), int(tight[1][0])
        raise InvalidArgument(
            f"{unit_name(plan, int(plan.tree.leaf[leaf]))}: at most {constraints.upper[leaf, part]:,} people in "
            f"{constraints.part_names[part]}, where {can[leaf, part]:,} may be held: such upper limits are not met "
            "by this method; drop them, or use another"
        )
    if constraints.exact:
        raise InvalidArgument(
            "exact counts beside a held table are not met by this method: hold them in the table"
        )


def _too_few(plan: SpinePlan, constraints: AreaConstraints, held: HeldMargin, leaf: int, part: int) -> str:
    return (
        f"{unit_name(plan, int(plan.tree.leaf[leaf]))}: {held.margin.name!r} holds too few people for at_least = "
        f"{constraints.lower[leaf, part]:,} in {constraints.part_names[part]}: correct the file of bounds, or what is "
        "held"
    )
