"""One vector of cells for every node of a tree, in memory or in a file."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ....errors import InvalidArgument, ReleaseError
from ..spine_plan import SpinePlan
from .covariances import CHUNK_CELLS


class Vectors(Protocol):
    """Cells (k, N) of every node on the node's own support, wherever they are."""

    @property
    def plan(self) -> SpinePlan:
        """Of the nodes."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of what is taken."""
        ...

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """The vectors of nodes (rising) of one support: shape (m, k, N), a copy."""
        ...

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Vectors of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        ...

    def release(self) -> None:
        """Let go of what is in memory of a file."""
        ...


class WritableVectors(Vectors, Protocol):
    """Vectors that are filled in."""

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        """Set the vectors of nodes (rising) of one support: x of shape (m, k, N)."""
        ...

    def put_on(self, nodes: np.ndarray, cells: np.ndarray, x: np.ndarray) -> None:
        """Set the cells of nodes of any supports from x of shape (m, cells, N); what is off a support is left out."""
        ...

    def clear(self, first: int, last: int) -> None:
        """Set the cells of nodes first to last - 1 to 0."""
        ...


@dataclass(frozen=True, eq=False)
class NodeVectors:
    """Cells (k, N) of every node on the node's own support, one after the other in the order of nodes.

    The array is in memory, or is a ``.npy`` file mapped into it, so that vectors of all areas need not fit at once.

    Args:
        plan: whose ``offsets`` say where each node's cells begin.
        flat: shape (plan.offsets[-1],).

    Raises:
        InvalidArgument: an array of another length.
    """

    plan: SpinePlan
    flat: np.ndarray

    def __post_init__(self) -> None:
        if self.flat.shape != (int(self.plan.offsets[-1]),):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; this spine's nodes have {int(self.plan.offsets[-1]):,} cells"
            )

    @classmethod
    def zeros(cls, plan: SpinePlan, dtype: Any = np.float64, path: Path | None = None) -> NodeVectors:
        """Zeros for every node: in memory, or in a new file (an existing one is overwritten)."""
        size = (int(plan.offsets[-1]),)
        if path is None:
            return cls(plan, np.zeros(size, dtype))
        return cls(plan, new_file(path, dtype, size[0]))

    @classmethod
    def open(cls, plan: SpinePlan, path: Path, *, write: bool = False) -> NodeVectors:
        """Vectors that are in a file.

        Raises:
            InvalidArgument: a file of another length.
        """
        return cls(plan, np.load(path, mmap_mode="r+" if write else "r"))

    def flush(self) -> None:
        """Write what is in memory to the file, if there is one."""
        if isinstance(self.flat, np.memmap):
            self.flat.flush()

    def release(self) -> None:
        """Let go of the pages of its file that are in memory: the file keeps them, and they are read again when needed.

        Other threads may be at work on them.
        """
        held = self.flat.base
        if isinstance(held, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            held.madvise(mmap.MADV_DONTNEED)

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers."""
        return self.flat.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """A copy of the vectors of nodes of one support: shape (m, k, N)."""
        if not nodes.size:
            return np.zeros((0, 0, self._cells), self.flat.dtype)
        k = self._width(nodes)
        first, last = int(nodes[0]), int(nodes[-1])
        if last - first + 1 == nodes.size:
            low = int(self._begin(nodes[:1])[0])
            return np.array(self.flat[low : low + nodes.size * k * self._cells]).reshape(
                nodes.size, k, self._cells
            )
        rows = (self._first_row(nodes)[:, None] + np.arange(k)).ravel()
        return self._rows[rows].reshape(nodes.size, k, self._cells)

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        """Set the vectors of nodes of one support: x of shape (m, k, N)."""
        if not nodes.size:
            return
        k = self._width(nodes)
        first, last = int(nodes[0]), int(nodes[-1])
        if last - first + 1 == nodes.size:
            low = int(self._begin(nodes[:1])[0])
            self.flat[low : low + x.size] = x.reshape(-1)
            return
        rows = (self._first_row(nodes)[:, None] + np.arange(k)).ravel()
        self._rows[rows] = x.reshape(-1, self._cells)

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Vectors of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        rows, there = self._embedded(nodes, cells)
        found = np.zeros((nodes.size, cells.size, self._cells), self.flat.dtype)
        found[there] = self._rows[rows[there]]
        return found

    def put_on(self, nodes: np.ndarray, cells: np.ndarray, x: np.ndarray) -> None:
        """Set the cells of nodes of any supports from x of shape (m, cells, N); what is off a support is left out."""
        rows, there = self._embedded(nodes, cells)
        self._rows[rows[there]] = x[there]

    @property
    def _cells(self) -> int:
        return self.plan.layout.algebra.cells

    @property
    def _rows(self) -> np.ndarray:
        """A view of shape (rows, N): one row a dense cell of a node."""
        return self.flat.reshape(-1, self._cells)

    def clear(self, first: int, last: int) -> None:
        """Set the cells of nodes first to last - 1 to 0."""
        if first < last:
            low = int(self._begin(np.array([first]))[0])
            self.flat[low : low + int(self.plan.offsets[last] - self.plan.offsets[first])] = 0

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        """Where the cells of each node begin in ``flat``."""
        return self.plan.offsets[nodes]

    def _first_row(self, nodes: np.ndarray) -> np.ndarray:
        return self._begin(nodes) // self._cells

    def _width(self, nodes: np.ndarray) -> int:
        pattern = self.plan.pattern[nodes]
        assert (pattern == pattern[0]).all(), "nodes of different supports: use take_on and put_on"
        return self.plan.dense_cells[pattern[0]].size

    def _embedded(self, nodes: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of each node and dense cell, and which of them exist: shape (m, cells), twice."""
        pattern = self.plan.pattern[nodes]
        rows = self._first_row(nodes)[:, None] + self.plan.ranks[pattern][:, cells]
        return rows, self.plan.patterns[pattern][:, cells]


def new_file(path: Path, dtype: Any, size: int) -> np.ndarray:
    """Zeros in a new ``.npy`` file that is mapped into memory; its room on the disk is taken at once.

    Where the disk filled up later, writing into the map would end the process without a word.

    Raises:
        OSError: the disk has no room for it.
    """
    flat = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=(size,))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return flat


def end_of_parents(plan: SpinePlan) -> int:
    """Nodes from this one on have no children; the one before it has."""
    return int(plan.tree.parent[-1]) + 1


@dataclass(frozen=True, eq=False)
class NodeRange(NodeVectors):
    """Vectors of the nodes from ``first`` to ``last - 1`` alone.

    Args:
        plan, flat: as of :class:`NodeVectors`, ``flat`` with the cells of these nodes.
        first, last: nodes.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.flat.shape != (cells_of(self.plan, self.first, self.last),):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; nodes {self.first} to {self.last - 1} have "
                f"{cells_of(self.plan, self.first, self.last):,} cells"
            )

    @classmethod
    def between(
        cls, plan: SpinePlan, first: int, last: int, dtype: Any = np.float64, path: Path | None = None
    ) -> NodeRange:
        """Zeros: in memory, or in a new file (an existing one is overwritten)."""
        size = (cells_of(plan, first, last),)
        if path is None or not size[0]:
            return cls(plan, np.zeros(size, dtype), first, last)
        return cls(plan, new_file(path, dtype, size[0]), first, last)

    @classmethod
    def stored(cls, plan: SpinePlan, first: int, last: int, path: Path) -> NodeRange:
        """Those that are in a file, to be read and written.

        Raises:
            InvalidArgument: a file of another length.
        """
        if not cells_of(plan, first, last):
            return cls.between(plan, first, last)
        # opened for reading first: where it is too short, opening it for writing would make it longer
        cls(plan, np.load(path, mmap_mode="r"), first, last)
        return cls(plan, np.load(path, mmap_mode="r+"), first, last)

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        return self.plan.offsets[nodes] - self.plan.offsets[self.first]


def cells_of(plan: SpinePlan, first: int, last: int) -> int:
    """How many cells the nodes from first to last - 1 have."""
    return int(plan.offsets[last] - plan.offsets[first])


def largest_cell(vectors: NodeRange, nodes: slice) -> int:
    """The largest number of some nodes of a range; 0 where there are none."""
    first, last = (
        vectors.plan.offsets[at] - vectors.plan.offsets[vectors.first] for at in (nodes.start, nodes.stop)
    )
    largest = 0
    for low in range(first, last, CHUNK_CELLS):
        largest = max(largest, int(vectors.flat[low : min(low + CHUNK_CELLS, last)].max()))
        vectors.release()
    return largest


@dataclass(frozen=True, eq=False)
class Halves:
    """Vectors of all nodes, of the type of those ``above``.

    Args:
        above: of the nodes before ``end_of_parents``.
        below: of those from there on, and of others perhaps; of a type whose numbers the other holds, too.
    """

    above: NodeVectors
    below: NodeVectors

    @property
    def plan(self) -> SpinePlan:
        """Of the nodes."""
        return self.above.plan

    @property
    def dtype(self) -> np.dtype:
        """Of what is taken."""
        return self.above.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """A copy of the vectors of nodes (rising) of one support: shape (m, k, N)."""
        cut = int(np.searchsorted(nodes, self._cut))
        if cut == nodes.size:
            return self.above.take(nodes)
        leaves = self.below.take(nodes[cut:]).astype(self.dtype, copy=False)
        return np.concatenate([self.above.take(nodes[:cut]), leaves]) if cut else leaves

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        """Set the vectors of nodes (rising) of one support: x of shape (m, k, N)."""
        cut = int(np.searchsorted(nodes, self._cut))
        self.above.put(nodes[:cut], x[:cut])
        self.below.put(nodes[cut:], x[cut:])

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Vectors of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        is_below = nodes >= self._cut
        if not is_below.any():
            return self.above.take_on(nodes, cells)
        leaves = self.below.take_on(nodes[is_below], cells).astype(self.dtype, copy=False)
        if is_below.all():
            return leaves
        found = np.empty((nodes.size, *leaves.shape[1:]), self.dtype)
        found[is_below] = leaves
        found[~is_below] = self.above.take_on(nodes[~is_below], cells)
        return found

    def put_on(self, nodes: np.ndarray, cells: np.ndarray, x: np.ndarray) -> None:
        """Set the cells of nodes of any supports from x of shape (m, cells, N); what is off a support is left out."""
        is_below = nodes >= self._cut
        for half, chosen in ((self.above, ~is_below), (self.below, is_below)):
            if chosen.all():
                half.put_on(nodes, cells, x)
            elif chosen.any():
                half.put_on(nodes[chosen], cells, x[chosen])

    def clear(self, first: int, last: int) -> None:
        """Set the cells of nodes first to last - 1 to 0."""
        self.above.clear(first, min(last, self._cut))
        self.below.clear(max(first, self._cut), last)

    def flush(self) -> None:
        """Write what is in memory to the files, if there are some."""
        self.above.flush()
        self.below.flush()

    def release(self) -> None:
        """Let go of what is in memory of the files."""
        self.above.release()
        self.below.release()

    @property
    def _cut(self) -> int:
        return end_of_parents(self.plan)


@dataclass(frozen=True, eq=False)
class NodeWindow(NodeVectors):
    """Cells (k, N) of the nodes of some ranges, side by side; every other node is outside and must not be asked for.

    Args:
        plan: whose ``offsets`` say how many cells each node has.
        flat: shape (cells of all ranges,).
        ranges: (first, last) of each, ``last`` not included: rising, not overlapping.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.flat.shape != (int(self._starts[-1]),):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; nodes {self.ranges} have {int(self._starts[-1]):,} cells"
            )

    @classmethod
    def over(cls, plan: SpinePlan, ranges: Sequence[tuple[int, int]], dtype: Any = np.float64) -> NodeWindow:
        """Zeros for the nodes of some ranges; empty ones are left out."""
        held = tuple((first, last) for first, last in ranges if first < last)
        cells = sum(int(plan.offsets[last] - plan.offsets[first]) for first, last in held)
        return cls(plan, np.zeros(cells, dtype), held)

    def fill(self, nodes: np.ndarray, cells: np.ndarray) -> None:
        """Set the vectors of nodes of any supports: the cells of all, one node after the other."""
        if not nodes.size:
            return
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        begin = self._begin(nodes)
        if begin[-1] - begin[0] == ends[-1] - widths[-1] and nodes[-1] - nodes[0] == nodes.size - 1:
            self.flat[begin[0] : begin[0] + ends[-1]] = cells
        else:
            self.flat[np.repeat(begin - (ends - widths), widths) + np.arange(ends[-1])] = cells

    def cells_of(self, nodes: np.ndarray) -> np.ndarray:
        """The cells of nodes of any supports, one node after the other."""
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        return self.flat[np.repeat(self._begin(nodes) - (ends - widths), widths) + np.arange(widths.sum())]

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each range begins in ``flat``, and the end of the last."""
        widths = [int(self.plan.offsets[last] - self.plan.offsets[first]) for first, last in self.ranges]
        return np.cumsum([0, *widths])

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.array([first for first, _ in self.ranges], np.int64)

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self._firsts, nodes, side="right") - 1
        return self.plan.offsets[nodes] - self.plan.offsets[self._firsts[which]] + self._starts[which]


_SHARE = "write the release to a file system that all executors and this process share"
_ROW_GROUP = 1 << 16  # about how many cells are read at a time where few nodes of a part are wanted


@dataclass(frozen=True, eq=False)
class Parts:
    """A folder of parts: tables with one row a node, ``node`` rising, and columns of lists, a node's cells (k, N) each.

    A part is written under a name of its own and renamed, so that what stands under its name is complete, whichever
    of two processes that make the same part came first: they write the same.

    Args:
        folder: of these parts alone.
        part: shape (nodes,), int32: the part that each node is in; -1 where it is in none.
    """

    folder: Path
    part: np.ndarray

    @classmethod
    def under(cls, work: Path, name: str, part: np.ndarray) -> Parts:
        """A folder of parts within a work folder, made where it is not there."""
        folder = work.resolve() / name
        folder.mkdir(exist_ok=True)
        return cls(folder, part)

    def path(self, number: int) -> Path:
        """Where a part stands."""
        return self.folder / f"part-{number:07}.parquet"

    def noted(self, number: int) -> dict[str, str] | None:
        """What was noted with a part; None where the part is not there.

        Raises:
            ReleaseError: it cannot be read.
        """
        path = self.path(number)
        if not path.exists():
            return None
        with _opened(path) as file:
            found = file.schema_arrow.metadata or {}
        return {key.decode(): value.decode() for key, value in found.items()}

    def check_seen(self) -> None:
        """See, where a task runs, that the folder is there.

        Raises:
            ReleaseError: it is not.
        """
        if not self.folder.is_dir():
            raise ReleaseError(f"{self.folder} is not seen where tasks run: {_SHARE}")

    def check_there(self, numbers: Iterable[int]) -> None:
        """See that parts are here: tasks elsewhere may have written to a folder of this name that is another.

        Raises:
            ReleaseError: one is not.
        """
        for number in numbers:
            if not self.path(number).exists():
                raise ReleaseError(f"{self.path(number)} was made and is not here: {_SHARE}")

    def write(self, number: int, nodes: np.ndarray, columns: Mapping[str, pa.Array], **notes: object) -> None:
        """Write a part, see it onto the disk, and give it its name.

        Args:
            number: of the part.
            nodes: shape (m,): rising.
            columns: lists, m of them each.
            notes: kept with the part as text.
        """
        told = {key: str(value) for key, value in notes.items()}
        table = pa.table({"node": nodes, **columns}).replace_schema_metadata(told)
        widest = max((len(column.values) for column in columns.values()), default=0)
        rows = max(1, _ROW_GROUP * nodes.size // max(1, widest))
        draft = self.folder / f".{self.path(number).name}.{uuid.uuid4().hex}"
        try:
            with draft.open("wb") as file:
                pq.write_table(
                    table, file, rows, compression="lz4", use_dictionary=False, write_page_checksum=True
                )
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path(number))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def read(self, window: NodeWindow, first: int, last: int, column: str) -> None:
        """Fill a window with the vectors of nodes first to last - 1, of those that the parts have.

        Raises:
            ReleaseError: a part is missing, or cannot be read.
        """
        for number in np.unique(self.part[first:last]).tolist():
            if number >= 0:
                self._read(number, window, first, last, column)
                window.release()

    def _read(self, number: int, window: NodeWindow, first: int, last: int, column: str) -> None:
        path = self.path(number)
        with _opened(path) as file:
            groups = [g for g in range(file.num_row_groups) if _overlaps(file, g, first, last)]
            try:
                rows = file.read_row_groups(groups, columns=["node", column], use_threads=False)
            except (OSError, pa.ArrowException) as error:
                raise ReleaseError(_unreadable(path, error)) from None
        node = pc.field("node")
        rows = rows.filter((node >= first) & (node < last) & pc.field(column).is_valid()).combine_chunks()
        if rows.num_rows:
            lists = rows[column].chunk(0)
            window.fill(rows["node"].to_numpy(), lists.flatten().to_numpy())


def lists_of(
    plan: SpinePlan, nodes: np.ndarray, cells: np.ndarray, held: np.ndarray | None = None
) -> pa.Array:
    """A column of lists for a part: the cells of nodes, one node after the other.

    Args:
        plan: which says how many cells each node has.
        nodes: shape (m,).
        cells: of the nodes that are held.
        held: shape (m,), boolean: nodes with a list; the others have none. All where None.
    """
    widths = plan.offsets[nodes + 1] - plan.offsets[nodes]
    if held is not None:
        widths = np.where(held, widths, 0)
    ends = np.concatenate([[0], np.cumsum(widths)])
    mask = None if held is None else pa.array(~held)
    return pa.LargeListArray.from_arrays(pa.array(ends), pa.array(cells), mask=mask)


def _overlaps(file: pq.ParquetFile, group: int, first: int, last: int) -> bool:
    node = file.metadata.row_group(group).column(0).statistics  # None of a part without nodes
    return node is not None and node.min < last and node.max >= first


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read: {error}. Remove {path.parent.parent} and begin anew"
