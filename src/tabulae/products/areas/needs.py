"""What a release of areas takes of a machine, known before any data: disk, memory, and seconds of a core."""

from __future__ import annotations

from math import sqrt
from operator import mul

import numpy as np

from ...estimation.intervals import CHAINS
from ..product import MILLION, ResourceEstimate
from .passes.vectors import cells_of, end_of_parents
from .sparse.cells import MOST_UNKNOWNS, CountedCells
from .spec.section import Geography
from .spec.sparse import SparseSection
from .spine_plan import SpinePlan
from .store import most_bytes
from .tables import POSTERIOR, UNBIASED

DEVIATIONS = 8.0  # beyond the mean of a norm of the noise: exceeded with probability e^-32

_PROGRAM = 350 * 10**6  # bytes: libraries, and areas and rows that are looked at together
_LEAF = 1_400  # bytes of a leaf: codes, entities, limits, and its place in two spines and the tree
_ANSWER = 180  # bytes of an answer that is read: its columns as stored and as planned, and its share of cells
_ROW, _COLUMN_BYTES = 50, 11  # of a published row as CSV and Parquet, and of each of its columns more
_PAGES = 1_500_000  # bytes of documents and report
_COUNT = 4  # bytes of a leaf's cell: more people are in no cell of an area that is divided
_BASE, _PUBLISHED, _PLACED = 2.3, 1.5e-6, 2e-5  # seconds: of every run, of a published row, of a leaf
_CELL, _LEFT = 1.2e-7, 0.6  # of a node's cell, and what unbiased estimates take of it
_SWEPT, _MOVED = 6e-4, 0.06  # of a leaf's cell in all sweeps; at most, of a leaf, where people are moved
_ASKED = 8e-7  # of an answer that may be asked where counts are sparse
_COLUMN = 0.2  # of a million records and an attribute; all by benchmarks/costs.py


def resources_of(geography: Geography, *, in_parts: bool = False) -> ResourceEstimate:
    """The needs of a release of areas; of what counting spills and of microdata, the records decide."""
    plan = geography.plan()
    exact = () if geography.constraints is None else geography.constraints.exact
    rows = [sum(geography.rows(table).values()) for table in geography.tables]
    widths = [_ROW + _COLUMN_BYTES * (4 + len(table.margin.names)) for table in geography.tables]
    tables = _PAGES + sum(map(mul, rows, widths))
    seconds = _BASE + _PUBLISHED * sum(rows) + _PLACED * plan.spine.leaves
    of_million = _COLUMN * (1 + len(plan.layout.domain.attributes))
    if geography.sparse is not None:
        asked, million = (most_asked(plan, geography.sparse, n) for n in (0, MILLION))
        memory = _PROGRAM + _LEAF * plan.spine.leaves + sparse_memory(plan, geography.sparse.cells, asked)
        files = _FILE_BYTES * (2 + len(plan.spine.levels)) + _SPARSE_BYTES * asked
        seconds += _ASKED * asked
        of_million += _ASKED * (million - asked)
        return ResourceEstimate(
            files, 0, int(_NOT_EMPTY * tables), memory, _SPARSE_BYTES * (million - asked), seconds, of_million
        )
    answers = max(piece.nodes.size * sum(piece.rows) for piece in plan.pieces)
    memory = _PROGRAM + _LEAF * plan.spine.leaves + _ANSWER * answers
    cells = cells_of(plan, 0, plan.tree.size)
    seconds += _CELL * cells * (_LEFT if geography.estimate == UNBIASED else 1.0)
    if geography.estimate == POSTERIOR:
        memory += posterior_bytes(plan)
        cells = cells_of(plan, end_of_parents(plan), plan.tree.size)
        seconds += min(_SWEPT * cells, _MOVED * plan.spine.leaves)
    work = parts_bytes(plan) if in_parts else work_bytes(plan, geography.estimate)
    return ResourceEstimate(most_bytes(plan, exact), work, tables, memory, 0, seconds, of_million)


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
_NOT_EMPTY = 0.6  # of the rows that may be published
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
    return (sqrt(first.outer.size) + DEVIATIONS) * sqrt(variance)


def _held_people(plan: SpinePlan, sparse: SparseSection) -> np.ndarray:
    """Shape (nodes,): the people that are held of each node."""
    assert sparse.held is not None
    counts, found = sparse.held.counts, np.zeros(plan.tree.size, np.int64)
    np.add.at(found, plan.tree.leaf[counts.row], counts.people)
    for nodes in reversed(plan.depths[1:]):
        np.add.at(found, plan.tree.parent[nodes], found[nodes])
    return found


def sparse_memory(plan: SpinePlan, cells: CountedCells, answers: int) -> int:
    """What a division of sparse counts holds: which cells nodes can have, cells by pass, and unknowns."""
    queries = len(plan.queries)
    tables = sum(2 + step.rounding.shape[0] + len(step.queries) for step in cells.passes)
    unknowns = min(2 * MOST_UNKNOWNS, answers // queries) + cells.size
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
