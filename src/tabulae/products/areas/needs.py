"""What a release of areas needs of the machine that makes it, known before any data: disk, and memory."""

from __future__ import annotations

from dataclasses import dataclass

from .passes.vectors import cells_of, end_of_parents
from .spec.section import Geography
from .spine_plan import SpinePlan
from .store import most_bytes
from .tables import UNBIASED

_PROGRAM = 350 * 10**6  # bytes: libraries, and areas and rows that are looked at together
_LEAF = 1_700  # bytes of a leaf: codes, entities, limits, and its place in two spines and the tree
_ANSWER = 180  # bytes of an answer that is read: its columns as stored and as planned, and its share of cells
_ROW, _COLUMN = 60, 16  # bytes of a published row as CSV and Parquet, and of each of its columns more
_COUNT = 4  # bytes of a leaf's cell: more people are in no cell of an area that is divided


@dataclass(frozen=True)
class Needs:
    """Bytes, about.

    Attributes:
        measurements: on the disk, at most: the noisy answers, which are published.
        work: on the disk, until the release is put in place: what estimates keep.
        tables: on the disk: the tables, which are published.
        memory: that the run takes besides the engine that counts its records.
    """

    measurements: int
    work: int
    tables: int
    memory: int

    @property
    def disk(self) -> int:
        return self.measurements + self.work + self.tables


def needs_of(geography: Geography, *, in_parts: bool = False) -> Needs:
    """The needs of a release of areas; of what counting spills and of microdata, the records decide."""
    plan = geography.plan()
    exact = () if geography.constraints is None else geography.constraints.exact
    rows = sum(
        sum(geography.rows(table).values()) * (_ROW + _COLUMN * (4 + len(table.margin.names)))
        for table in geography.tables
    )
    answers = max(piece.nodes.size * sum(piece.rows) for piece in plan.pieces)
    memory = _PROGRAM + _LEAF * plan.spine.leaves + _ANSWER * answers
    work = parts_bytes(plan) if in_parts else work_bytes(plan, geography.estimate)
    return Needs(most_bytes(plan, exact), work, rows, memory)


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


def parts_bytes(plan: SpinePlan) -> int:
    """What estimates by tasks keep on the disk at once, for any method.

    Of every node what its measurements say, in parts and gathered, and whole counts, in 8 bytes a cell each; counts of
    leaves once more while they are gathered; of nodes with children four numbers a cell beside them.
    """
    return 28 * cells_of(plan, 0, plan.tree.size) + 32 * cells_of(plan, 0, end_of_parents(plan))
