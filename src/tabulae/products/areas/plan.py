"""Plans of [geography]: what areas are measured with, how wrong their counts will be, and how far entities lie off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import sqrt
from os import PathLike

import numpy as np
import pyarrow as pa

from ...estimation.implicates import CHAINS
from ...privacy import PrivacyLoss
from ...release.write import LEVEL
from ...spec import Spec, read_spec
from ..product import MILLION, ResourceEstimate, errors_table, nothing_to_save, promise_fact
from ..smallest import Smallest
from .allocation import FoundShares, with_found_shares
from .passes.covariances import Covariances
from .passes.vectors import cells_of, end_of_parents
from .smallest import found_budget, smallest_of_areas
from .sparse.cells import MOST_UNKNOWNS, CountedCells
from .spec.section import Geography, geography_of
from .spec.sparse import SparseSection
from .spine.optimise import Entities
from .spine_plan import SpinePlan
from .store import most_bytes
from .tables import POSTERIOR, UNBIASED
from .targets import AreaErrors, AreaTableError


@dataclass(frozen=True)
class LevelRow:
    """One level of the spine as it is measured.

    ``shares`` are the distinct shares of the budget that its units have, 0 for those left out; ``noise`` the standard
    deviation of one answer of each query, by its name, in units with the level's own share.
    """

    level: str
    units: int
    measured: int
    share: Fraction
    noise: dict[str, float]


@dataclass(frozen=True)
class EntityDistance:
    """Off-spine entity distances of one type of entity: on the spine of the file, and on the one that is measured."""

    entity_type: str
    entities: int
    conventional_mean: float
    conventional_largest: int
    mean: float
    largest: int


@dataclass(frozen=True, eq=False)
class GeographyPlan:
    """What a release of areas will measure, what that costs, and how wrong its counts will be; made without data.

    Expected errors are those of ``gls``, whose variances are known exactly beforehand. ``topdown`` and ``bluedown``
    give whole numbers that are not negative, with errors that depend on the counts: mostly smaller ones, and biased.
    No error of ``sparse`` counts is known.

    ``found_shares`` says how well shares that were chosen for the tables serve them; None where shares are written. The
    ``spec`` has them as if they were written.
    """

    spec: Spec
    level: float = LEVEL
    found_shares: FoundShares | None = None

    @property
    def geography(self) -> Geography:
        return geography_of(self.spec)

    @property
    def spine_plan(self) -> SpinePlan:
        return self.geography.plan()

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the release: the budget, exactly."""
        return self.spec.loss

    @property
    def budgets(self) -> tuple[PrivacyLoss, ...]:
        """The loss of the release, measured all at once."""
        return (self.loss,)

    @cached_property
    def epsilon(self) -> float | None:
        """The epsilon proven at the spec's delta; None where the spec gives no delta."""
        return None if self.spec.delta is None else self.loss.epsilon(self.spec.delta)

    @cached_property
    def smallest(self) -> Smallest | None:
        """The smallest budget that meets all targets, and the shares that need least; None without a target."""
        return smallest_of_areas(self.geography, None if self.spec.open_budget else self.loss)

    @cached_property
    def covariances(self) -> Covariances:
        limits = self.geography.constraints
        return Covariances.of(self.spine_plan, () if limits is None else limits.exact)

    @cached_property
    def table_errors(self) -> tuple[AreaTableError, ...]:
        """Expected errors; none where counts are sparse, as they are not known."""
        if self.geography.sparse is not None:
            return ()
        return AreaErrors(self.geography, self.covariances, self.level).rows()

    @property
    def errors(self) -> pa.Table:
        """Expected error by table and kind of area: ``table, level, rmse, margin, bound``, in counts, of ``gls``.

        ``level`` is a level or a type of entity. ``rmse`` is over all counts of all its areas but exact ones,
        ``margin`` that of the widest interval at 95 %. ``bound`` is null.
        """
        return errors_table((r.table, r.area_type, r.rmse, r.margin, None) for r in self.table_errors)

    @cached_property
    def levels(self) -> tuple[LevelRow, ...]:
        return tuple(self._levels())

    def _levels(self) -> Iterator[LevelRow]:
        plan = self.spine_plan
        shares = plan.spine.shares
        assert shares is not None
        for level, measured in zip(plan.spine.levels, shares.measured, strict=True):
            index = shares.index[plan.spine.levels.index(level)][measured]
            values, count = np.unique(index, return_counts=True)
            usual = shares.values[values[count.argmax()]] if values.size else Fraction(0)
            laws = [(query.name, plan.law(level, usual, i)) for i, query in enumerate(plan.queries)]
            noise = {name: sqrt(law.variance_of_law) for name, law in laws if law is not None}
            yield LevelRow(level, measured.size, int(measured.sum()), usual, noise)

    @cached_property
    def distances(self) -> tuple[EntityDistance, ...]:
        """For each type of entity the units that must be added and subtracted to get one: equations 20-23.

        Levels of the file whose units are split or drawn anew are off the spine, too.
        """
        geography, found = self.geography, []
        before, after = geography.conventional, geography.spine
        cut = [name for name in geography.levels if set(before.codes[name]) != set(after.codes[name])]
        areas = {name: (before.codes[name], before.units[name]) for name in cut}
        areas |= {name: geography.areas(name) for name in geography.entity_types}
        for name, of_leaf in areas.items():
            entities = Entities.of_leaves(*of_leaf)
            far, near = before.osed(entities), after.osed(entities)
            if far.size:
                numbers = float(far.mean()), int(far.max()), float(near.mean()), int(near.max())
                found.append(EntityDistance(name, far.size, *numbers))
        return tuple(found)

    @property
    def needs(self) -> ResourceEstimate:
        return resources_of(self.geography, in_parts=self.spec.source.engine == "spark")

    def __repr__(self) -> str:
        return f"GeographyPlan({self.spec!r}, {self.geography.leaf_codes.size} leaves)"

    def _repr_html_(self) -> str:
        from ...notebook import CardRows, card

        facts = [
            ("release", self.spec.title),
            promise_fact(self.spec),
            ("estimate", self.geography.estimate),
            ("leaves", int(self.geography.leaf_codes.size)),
            ("cells of each", int(self.geography.layout.cell.size)),
        ]
        levels = ((r.level, r.units, r.measured, str(r.share)) for r in self.levels)
        tables = [CardRows(("level", "units", "measured", "share"), levels, len(self.levels))]
        if "table_errors" in self.__dict__:
            errors = ((r.table, r.area_type, r.areas, r.rmse, r.margin) for r in self.table_errors)
            headings = ("table", "areas of", "areas", "RMSE", f"{self.level:.0%} margin")
            tables.append(CardRows(headings, errors, len(self.table_errors)))
        elif self.geography.sparse is not None:
            facts.append(("errors", "not known, and no intervals"))
        else:
            facts.append(("errors", "not computed yet: ask for .errors"))
        return card("Plan of areas", facts, *tables)

    def save(self, path: str | PathLike[str]) -> None:
        """There is nothing to save."""
        raise nothing_to_save("geography", path)


def plan_geography(spec: Spec | str | PathLike[str]) -> GeographyPlan:
    """The plan of a spec that has ``[geography]``; shares that are ``"auto"`` are chosen first.

    Raises:
        SpecError: the document has mistakes; all are listed.
        Unsupported: the spec has no geography.

    Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023).

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    geography_of(spec)
    spec, found = with_found_shares(spec)
    return GeographyPlan(
        spec.with_budget(found_budget(spec)) if spec.open_budget else spec, found_shares=found
    )


MOST_PEOPLE = 1 << 30
"""An error of as many people is not divided: with as many real ones, sums would leave what rounding takes."""

_DEVIATIONS = 8.0  # beyond the mean of a norm of the noise: exceeded with probability e^-32


def largest_error(plan: SpinePlan) -> float:
    """A bound on how far the total of a unit that is divided lies from the truth, but for a negligible probability.

    With x the truth and x* the nearest point to an unbiased estimate x^ in the norm of H, within limits that x meets,
    ``|x* - x|_H <= |x^ - x|_H``, as projections do not expand, so that

        |1'(x* - x)| <= |x^ - x|_H sqrt(1'H^-1 1) <= (sqrt(K) + 8) sqrt(1'H^-1 1)       K cells, noise about normal

    The variance 1'H^-1 1 of a total is at most that of the unit's own measurements, and, where H holds what is below,
    that of all leaves' together; the largest of these bounds is taken.

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import CellLayout, Supports
    >>> spine = Spine.from_codes({"block": ["a", "b"]}, levels=["block"]).with_shares({"root": "1/2", "block": "1/2"})
    >>> layout = CellLayout.of(Domain({"age": 2}))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), Supports.of(np.ones((2, 1), bool)))
    >>> round(largest_error(plan), 2)
    26.63
    """
    totals = np.array([_total_variance(plan.precision(kind)) for kind in range(len(plan.classes[0]))])
    totals *= plan.layout.algebra.cells
    together = float(totals[plan.classes[1][plan.tree.leaf]].sum())
    cells = plan.dense_cells[plan.pattern[0]].size * plan.layout.algebra.cells
    return (sqrt(cells) + _DEVIATIONS) * sqrt(max(together, float(totals.max())))


def _total_variance(precision: np.ndarray) -> float:
    """1'P^-1 1 a cell of the algebra, for P of shape (kinds, k, k); 0 of a unit that is not measured."""
    return float(np.linalg.inv(precision[0]).sum()) if precision.any() else 0.0


_PROGRAM = 350 * 10**6  # bytes: libraries, and areas and rows that are looked at together
_LEAF = 1_700  # bytes of a leaf: codes, entities, limits, and its place in two spines and the tree
_ANSWER = 180  # bytes of an answer that is read: its columns as stored and as planned, and its share of cells
_ROW, _COLUMN = 60, 16  # bytes of a published row as CSV and Parquet, and of each of its columns more
_COUNT = 4  # bytes of a leaf's cell: more people are in no cell of an area that is divided


def resources_of(geography: Geography, *, in_parts: bool = False) -> ResourceEstimate:
    """The needs of a release of areas; of what counting spills and of microdata, the records decide."""
    plan = geography.plan()
    exact = () if geography.constraints is None else geography.constraints.exact
    rows = sum(
        sum(geography.rows(table).values()) * (_ROW + _COLUMN * (4 + len(table.margin.names)))
        for table in geography.tables
    )
    if geography.sparse is not None:
        memory = _PROGRAM + _LEAF * plan.spine.leaves + sparse_memory(plan, geography.sparse.cells)
        files = _FILE_BYTES * (2 + len(plan.spine.levels))
        answers, million = (_SPARSE_BYTES * most_asked(plan, geography.sparse, n) for n in (0, MILLION))
        return ResourceEstimate(files + answers, 0, rows, memory, million - answers)
    answers = max(piece.nodes.size * sum(piece.rows) for piece in plan.pieces)
    memory = _PROGRAM + _LEAF * plan.spine.leaves + _ANSWER * answers
    if geography.estimate == POSTERIOR:
        memory += posterior_bytes(plan)
    work = parts_bytes(plan) if in_parts else work_bytes(plan, geography.estimate)
    return ResourceEstimate(most_bytes(plan, exact), work, rows, memory)


def most_asked(plan: SpinePlan, sparse: SparseSection, records: int) -> int:
    """How many answers a division may ask for at most, and counts it may find, of so many records.

    A node is asked about cells of which its parent has somebody: at most one for each of the parent's people, and the
    root about all. What is held says how many people those are, whatever the records. Where nothing is held, the N
    people of a level (the records, and what noise may add) may live in the parents with the most children, and a
    parent is asked no more about beyond as many people as a query has cells:

        answers of a query at a level  <=  max { sum_p c_p min(n_p, cells) : sum_p n_p = N }      c_p children of p

    That grows ever slower with N: no further million takes more than the first.

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import CellLayout, Supports
    >>> from tabulae.products.areas.sparse.cells import CountedCells, Pass
    >>> spine = Spine.from_codes({"block": ["a", "b", "c"]}, levels=["block"])
    >>> spine = spine.with_shares({"root": "1/2", "block": "1/2"})
    >>> layout, every = CellLayout.of(Domain({"age": 8})), Supports.of(np.ones((3, 1), bool))
    >>> shares = dict.fromkeys(spine.levels, (Fraction(1),))
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(100), every)
    >>> sparse = SparseSection(CountedCells.of(plan, [Pass((0,))]), None, ())
    >>> int(largest_sparse_total(plan, sparse))  # people that noise may add
    0
    >>> [most_asked(plan, sparse, n) for n in (0, 2, 1_000)]  # 8, 8 + 3 * 2, 8 + 3 * 8 answers; and n counts
    [8, 16, 1032]
    """
    asked = np.array([[law is not None for law in plan.laws(kind)] for kind in range(len(plan.classes[0]))])
    asked, sizes = asked[plan.classes[1]], np.array([query.size for query in plan.queries])
    found, tree = int((sizes * asked[0]).sum()), plan.tree
    if sparse.held is not None:
        held = _held_people(plan, sparse)
        return found + int(held[0]) + int((np.minimum(sizes, held[tree.parent[1:], None]) * asked[1:]).sum())
    people = records + int(largest_sparse_total(plan, sparse))
    for nodes in plan.depths[1:]:
        parents, which = np.unique(tree.parent[nodes], return_inverse=True)
        for q, size in enumerate(sizes.tolist()):
            children = np.sort(np.bincount(which, asked[nodes, q], parents.size))[::-1]
            filled = np.diff(np.minimum(size * np.arange(parents.size + 1), people))
            found += int((children * filled).sum())
    return found + people


_FILE_BYTES = 1 << 13  # of a file, whatever it holds
_SPARSE_BYTES = 8  # of an answer to a question that others are not asked: its cell and its value, coded
_HELD_BYTES = 600  # of a count that is held, in words as it is read
_CELL_BYTES = 24  # of a cell, and 4 for each query and table
_UNKNOWN_BYTES = 60  # of an unknown that is solved for, and 8 for each query


def largest_sparse_total(plan: SpinePlan, sparse: SparseSection) -> float:
    """A bound on the people of the root where counts are sparse, beyond those in the records, as :func:`largest_error`.

    What is held is all of it. Else the first pass finds it: the variance of the total is at most that of the sum of any
    query's answers.
    """
    if sparse.held is not None:
        return float(sparse.held.counts.people.sum())
    first, laws = sparse.cells.passes[0], plan.laws(int(plan.classes[1][0]))
    asked = [(plan.queries[q].size, law) for q in first.queries if (law := laws[q]) is not None]
    variance = min((size * law.variance_of_law for size, law in asked), default=0.0)
    return (sqrt(first.outer.size) + _DEVIATIONS) * sqrt(variance)


def _held_people(plan: SpinePlan, sparse: SparseSection) -> np.ndarray:
    """Shape (nodes,): the people that are held of each node."""
    assert sparse.held is not None
    counts, found = sparse.held.counts, np.zeros(plan.tree.size, np.int64)
    np.add.at(found, plan.tree.leaf[counts.row], counts.people)
    for nodes in reversed(plan.depths[1:]):
        np.add.at(found, plan.tree.parent[nodes], found[nodes])
    return found


def sparse_memory(plan: SpinePlan, cells: CountedCells) -> int:
    """What a division of sparse counts holds: which cells nodes can have, cells by pass, and unknowns."""
    queries = len(plan.queries)
    tables = sum(2 + step.rounding.shape[0] + len(step.queries) for step in cells.passes)
    unknowns = min(2 * MOST_UNKNOWNS, cells.size * plan.tree.size) + cells.size
    return (
        4 * plan.node_support.patterns.size
        + 8 * plan.tree.size
        + _HELD_BYTES * cells.held.key.size
        + cells.size * (_CELL_BYTES + 4 * tables)
        + 4 * queries * plan.layout.cell.size
        + unknowns * (_UNKNOWN_BYTES + 8 * queries)
    )


def work_bytes(plan: SpinePlan, method: str) -> int:
    """What estimates keep on the disk.

    Of every node what its measurements say, in 8 bytes a cell; of nodes with children their ``gls`` estimate and what
    it tells the children, on the way up and on the way down. Another method adds, of nodes with children, what is known
    from below and the counts; and the counts of the leaves.
    """
    end = end_of_parents(plan)
    above, leaves = cells_of(plan, 0, end), cells_of(plan, end, plan.tree.size)
    unbiased = 8 * (above + leaves) + 32 * above
    return unbiased if method == UNBIASED else unbiased + 16 * above + _COUNT * leaves


_DRAWN = 20  # cells of a leaf in which somebody is counted, as far as is known before any data


def posterior_bytes(plan: SpinePlan) -> int:
    """What drawing whole tables keeps in memory: answers, chains with their counts and residuals, and all draws."""
    from .posterior import IMPLICATES  # its sampler is compiled: only who draws needs it

    cells, leaves = plan.layout.cell.size, plan.spine.leaves
    answers = plan.tree.size * sum(query.size for query in plan.queries)
    drawn = IMPLICATES * min(cells, _DRAWN) * leaves * 8
    return 8 * answers + CHAINS * 8 * (answers + 2 * cells * leaves) + cells * leaves + drawn


def parts_bytes(plan: SpinePlan) -> int:
    """What estimates by tasks keep on the disk at once, for any method.

    Of every node what its measurements say, in parts and gathered, and whole counts, in 8 bytes a cell each; counts of
    leaves once more while they are gathered; of nodes with children four numbers a cell beside them.
    """
    return 28 * cells_of(plan, 0, plan.tree.size) + 32 * cells_of(plan, 0, end_of_parents(plan))
