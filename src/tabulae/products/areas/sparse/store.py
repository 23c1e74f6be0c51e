"""Answers of a division, and the counts that it made, on the disk: written as they are drawn, and read back.

Which rows are asked follows from floating-point numbers, so that a division on another machine may ask others. What was
asked stands in the files with its answers, and beside them the counts that came of it: nothing is ever drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....errors import ReleaseError
from ....release.folder import open_parquet, sync_file
from ....release.write import word_column
from ....spec.promise import SPARSE
from ...measured import PieceFiles, charged_id
from ..constraints import AreaConstraints
from ..layout import Margin
from ..spine_plan import SpinePlan
from ..store import ANSWERS, MOST_ROWS, WRITTEN, AnswerRows, level_files, plan_document, read_group
from .cells import CountedCells, SparseCounts

if TYPE_CHECKING:  # what divides is compiled, and reports of tables need none of it
    from .descend import Asked, SupportedCounts, SupportedMeasurements

COUNTS = "counts.parquet"
_COUNTS = pa.schema(
    [("geocode", pa.dictionary(pa.int32(), pa.string())), ("cell", pa.int64()), ("count", pa.int64())]
)


def _rows_of(plan: SpinePlan, asked: Asked, level: int) -> tuple[AnswerRows, np.ndarray]:
    """What is asked of nodes of a level, and the positions of these answers."""
    level_of = plan.tree.level[asked.nodes]
    shape = asked.nodes.size, len(asked.queries)
    here = np.flatnonzero(asked.per_answer(np.broadcast_to((level_of == level)[:, None], shape)))
    node = asked.per_answer(np.broadcast_to(np.cumsum(level_of == level)[:, None] - 1, shape))[here]
    query = asked.per_answer(np.broadcast_to(np.arange(shape[1]), shape))[here]
    row, cell, names = asked.row[here], np.zeros(here.size, np.int64), []
    for i, q in enumerate(asked.queries):
        of = query == i
        cell[of] = plan.queries[q].order.ravel()[row[of]]
        names.append(plan.queries[q].name)
    kinds = [plan.laws(kind) for kind in range(len(plan.classes[0]))]
    each = [
        [0.0 if (law := laws[q]) is None else law.variance_of_law for q in asked.queries] for laws in kinds
    ]
    variance = np.array(each)[plan.classes[1][asked.nodes]]
    units = plan.tree.unit[asked.nodes[level_of == level]]
    codes = [str(code) for code in plan.spine.hierarchy.codes[level][units].tolist()]
    return AnswerRows(codes, names, node, query, cell, asked.per_answer(variance)[here]), here


def _levels_of(plan: SpinePlan, asked: Asked) -> list[int]:
    """The levels of the nodes that have answers, from the top down."""
    answered = np.diff(asked.block[:: len(asked.queries)]) > 0
    return np.unique(plan.tree.level[asked.nodes[answered]]).tolist()


class SupportedMeasurementWriter(PieceFiles):
    """Writes answers into the file of their level as they are drawn, and in the end the counts of leaves."""

    def __init__(self, folder: Path, plan: SpinePlan, cells: CountedCells) -> None:
        self.plan, self.cells, self._files = plan, cells, level_files(plan)
        super().__init__(folder, dict.fromkeys(self._files.values(), ANSWERS), **WRITTEN)

    def __enter__(self) -> Self:
        (self.folder / COUNTS).unlink(missing_ok=True)
        return super().__enter__()

    def __call__(self, given: tuple[Asked, np.ndarray]) -> None:
        """Write the answers to what was asked together."""
        asked, answers = given
        for level in _levels_of(self.plan, asked):
            rows, here = _rows_of(self.plan, asked, level)
            name = self._files[self.plan.spine.levels[level]]
            self.write(name, rows.table(answers[here]), row_group_size=MOST_ROWS)

    def finish(self, done: SupportedMeasurements) -> None:
        """See every file onto the disk, counts too, then say that the measurement is complete."""
        release_id = charged_id(done.release_id, rehearsal=done.rehearsal)
        if done.counts is None:
            raise ReleaseError("this division was not carried to its end: take all of its pieces first")
        self.close()
        counts = SparseEstimate.of(self.plan, done.counts).table
        pq.write_table(counts, self.folder / COUNTS, compression="zstd")
        sync_file(self.folder / COUNTS)
        document = plan_document(self.plan, (), self.cells)
        self.complete(release_id, {**document, "unconverged": int(done.counts.unconverged)})


def _leaf_codes(plan: SpinePlan) -> list[str]:
    """The code of each leaf of the spine."""
    spine = plan.spine.hierarchy
    return [str(code) for code in spine.codes[-1][spine.units[-1]].tolist()]


@dataclass(frozen=True, eq=False)
class SparseEstimate:
    """Whole counts of leaves that are not 0, as a division made them; counts of areas are their sums.

    Attributes:
        leaves: a row a leaf; keys are ``dense cell * N + combination``.
        unconverged: in how many divisions the solver stopped early.
        constraints: the limits that they meet.
    """

    plan: SpinePlan
    leaves: SparseCounts
    unconverged: int
    constraints: AreaConstraints | None = None
    method: ClassVar[str] = SPARSE

    @classmethod
    def of(cls, plan: SpinePlan, found: SupportedCounts) -> SparseEstimate:
        """Those of a division; a cell that stands in several strata is added up."""
        leaves = found.nodes.take(plan.tree.leaf)
        place = found.cells.place[leaves.key]
        return cls(plan, SparseCounts.of(leaves.rows, leaves.row, place, leaves.people), found.unconverged)

    @classmethod
    def read(
        cls, folder: Path, plan: SpinePlan, unconverged: int, constraints: AreaConstraints | None = None
    ) -> SparseEstimate:
        """The counts that stand in a folder.

        Raises:
            ReleaseError: they are missing, or not of the plan's leaves and cells.
        """
        path = folder / COUNTS
        with open_parquet(path, _COUNTS) as file:
            try:
                rows = file.read().unify_dictionaries().combine_chunks()
            except (OSError, pa.ArrowException) as error:
                raise ReleaseError(f"{path} cannot be read: {error}") from None
        if any(rows[name].null_count for name in rows.column_names):
            raise ReleaseError(f"{path} has missing values")
        number = {code: i for i, code in enumerate(_leaf_codes(plan))}
        words = pa.chunked_array(rows["geocode"]).combine_chunks()
        given = np.array([number.get(code, -1) for code in words.dictionary.to_pylist()], np.int64)
        leaf, cell = given[words.indices.to_numpy()], rows["cell"].to_numpy()
        people, size = rows["count"].to_numpy(), plan.layout.domain.size
        inside = (leaf >= 0) & (cell >= 0) & (cell < size) & (people > 0)
        place = plan.layout.place[np.where(inside, cell, 0)]
        if not (inside & (place >= 0)).all() or (np.diff(leaf * size + cell) <= 0).any():
            raise ReleaseError(f"{path}: its rows are not counts of this release's cells, by leaf and cell")
        return cls(plan, SparseCounts.of(len(number), leaf, place, people), unconverged, constraints)

    @property
    def table(self) -> pa.Table:
        """One row a count: leaf, cell of the domain, and people; by leaf and cell."""
        leaf, place, people = self.leaf_cells(0, self.leaves.rows)
        cell = self.plan.layout.cell.ravel()[place]
        order = np.lexsort((cell, leaf))
        codes = word_column(leaf[order], _leaf_codes(self.plan))
        columns = {"geocode": codes, "cell": cell[order], "count": people[order]}
        return pa.table(columns, schema=_COUNTS)

    def margins(
        self, margins: Sequence[Margin], area: np.ndarray, areas: int, leaves: np.ndarray
    ) -> list[np.ndarray]:
        """Marginal tables of some areas, shape (areas, classes, inner) each.

        Args:
            area: shape (m,): the area of each of the leaves.
            leaves: shape (m,): those that lie in some area.
        """
        mine = self.leaves.take(leaves)
        owner, found = area[mine.row], []
        for margin in margins:
            sums = np.zeros((areas, margin.size), np.int64)
            np.add.at(sums, (owner, margin.rows(mine.key)), mine.people)
            found.append(sums.reshape(areas, margin.classes, margin.inner))
        return found

    def leaf_cells(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The leaf, ``dense cell * N + combination`` and people of each count of leaves first to last - 1."""
        mine = self.leaves.take(np.arange(first, last))
        return mine.row + first, mine.key, mine.people


class StoredAnswers:
    """The answers of a stored measurement, in the order in which they were drawn; a context manager."""

    def __init__(self, folder: Path, plan: SpinePlan) -> None:
        self.folder, self.plan, self._names = folder, plan, level_files(plan)
        self._open = ExitStack()
        self._files: dict[str, pq.ParquetFile] = {}
        self._read: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for name in self._names.values():
                self._files[name] = opened.enter_context(open_parquet(self.folder / name, ANSWERS))
                self._read[name] = 0
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __call__(self, asked: Asked) -> np.ndarray:
        """The answers to what is asked next.

        Raises:
            ReleaseError: the next rows of a file answer something else.
        """
        answers = np.zeros(asked.row.size, np.int64)
        for level in _levels_of(self.plan, asked):
            wanted, here = _rows_of(self.plan, asked, level)
            name = self._names[self.plan.spine.levels[level]]
            answers[here] = wanted.values_in(self._next(name, here.size), str(self.folder / name))
        return answers

    def _next(self, name: str, size: int) -> pa.Table:
        """The next row groups, of so many rows in all."""
        parts, rows = [ANSWERS.empty_table()], 0
        while rows < size and self._read[name] < self._files[name].num_row_groups:
            where = f"{self.folder / name}, row group {self._read[name] + 1}"
            parts.append(read_group(self._files[name], self._read[name], where))
            self._read[name] += 1
            rows += parts[-1].num_rows
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def rows(self) -> Iterator[pa.Table]:
        """All that is stored, level by level."""
        for name, file in self._files.items():
            for group in range(file.num_row_groups):
                yield read_group(file, group, f"{self.folder / name}, row group {group + 1}")

    def end(self) -> None:
        """See that nothing is left.

        Raises:
            ReleaseError: a file has more than was read.
        """
        for name, file in self._files.items():
            if self._read[name] < file.num_row_groups:
                raise ReleaseError(f"{self.folder / name} has more answers than were asked")
