"""One vector of cells for every node of a tree, in memory or in a file."""

from __future__ import annotations

import mmap
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
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
    def plan(self) -> SpinePlan: ...

    @property
    def dtype(self) -> np.dtype: ...

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """The vectors of nodes (rising) of one support: shape (m, k, N), a copy."""
        ...

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Vectors of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        ...

    def fetch(self, nodes: np.ndarray) -> None:
        """Have the vectors of nodes (rising) read from a file while other work is done, and nothing around them."""
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


_BETWEEN = 16  # pages that are read along with those before and after them

Ranges = tuple[tuple[int, int], ...]
"""Nodes from first to last - 1 of each: rising, not overlapping."""


class VectorStore(Protocol):
    """Where tasks find vectors, and leave what they make: in this process, or in parts that processes share."""

    def window(self, read: Ranges, room: Ranges = ()) -> Any:
        """Vectors to work on: those of the nodes to ``read``, and ``room`` for those that will be made."""
        ...

    def keep(self, number: int, nodes: np.ndarray, window: Any, **notes: object) -> None:
        """Keep what was made in a window as the part of a task, with notes about it."""
        ...

    def add(self, number: int, nodes: np.ndarray, x: np.ndarray, **notes: object) -> None:
        """Keep vectors (m, k, N) of nodes (rising) of one support as the part of a task."""
        ...

    def noted(self, number: int) -> dict[str, str] | None:
        """What was noted with the part of a task; None where it has to be made."""
        ...

    def sync(self, numbers: Iterable[int]) -> None:
        """See that the parts of some tasks are here, and on the disk if they are in files."""
        ...


class _InPlace(ABC):
    """What makes vectors a store of tasks in this process: what they make is in its place at once."""

    def window(self, read: Ranges, room: Ranges = ()) -> Any:
        return self

    def keep(self, number: int, nodes: np.ndarray, window: Any, **notes: object) -> None:
        self.release()

    def add(self, number: int, nodes: np.ndarray, x: np.ndarray, **notes: object) -> None:
        self.put(nodes, x)
        self.release()

    def noted(self, number: int) -> dict[str, str] | None:
        """Nothing: a level is here whole, or made again."""
        return None

    def sync(self, numbers: Iterable[int]) -> None:
        self.flush()

    @abstractmethod
    def put(self, nodes: np.ndarray, x: np.ndarray) -> None: ...
    @abstractmethod
    def flush(self) -> None: ...
    @abstractmethod
    def release(self) -> None: ...


@dataclass(frozen=True, eq=False)
class NodeVectors(_InPlace):
    """Cells (k, N) of nodes on each node's own support, one after the other in the order of nodes.

    The array is in memory, or is a ``.npy`` file mapped into it, so that vectors of all areas need not fit at once.

    Args:
        plan: whose ``offsets`` say how many cells each node has.
        flat: shape (cells of these nodes,).
        ranges: the nodes; all where None. Others must not be asked for.
    """

    plan: SpinePlan
    flat: np.ndarray
    ranges: Ranges | None = None

    def __post_init__(self) -> None:
        size = cells_in(self.plan, self.ranges)
        if self.flat.shape != (size,):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; nodes {self.ranges or 'of this spine'} have {size:,} cells"
            )

    @cached_property
    def _plain(self) -> np.ndarray:
        """The same cells: each part of a map that is taken as a map costs several times as much."""
        return np.asarray(self.flat)

    @classmethod
    def zeros(
        cls, plan: SpinePlan, dtype: Any = np.float64, path: Path | None = None, ranges: Ranges | None = None
    ) -> NodeVectors:
        """Zeros: in memory, or in a new file (an existing one is overwritten). Empty ranges are left out."""
        ranges = None if ranges is None else tuple(each for each in ranges if each[0] < each[1])
        size = cells_in(plan, ranges)
        return cls(
            plan, np.zeros(size, dtype) if path is None or not size else new_file(path, dtype, size), ranges
        )

    @classmethod
    def stored(cls, plan: SpinePlan, path: Path, ranges: Ranges | None = None) -> NodeVectors:
        """Those that are in a file, to be read and written."""
        if not cells_in(plan, ranges):
            return cls.zeros(plan, ranges=ranges)
        # opened for reading first: where it is too short, opening it for writing would make it longer
        cls(plan, np.load(path, mmap_mode="r"), ranges)
        return cls(plan, np.load(path, mmap_mode="r+"), ranges)

    def flush(self) -> None:
        if isinstance(self.flat, np.memmap):
            self.flat.flush()

    def release(self) -> None:
        """Let go of the pages of its file that are in memory: the file keeps them, and they are read again when needed.

        Other threads may be at work on them.
        """
        held = self.flat.base
        if isinstance(held, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            held.madvise(mmap.MADV_DONTNEED)

    def fetch(self, nodes: np.ndarray) -> None:
        held = self.flat.base
        if not nodes.size or not isinstance(held, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
            return
        size, header = self.flat.itemsize, len(held) - self.flat.nbytes
        begin = self._begin(nodes) * size + header
        end = begin + (self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]) * size
        first, last = begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)
        runs = np.flatnonzero(first[1:] > last[:-1] + _BETWEEN) + 1
        for low, high in zip(
            first[np.append(0, runs)].tolist(), last[np.append(runs, 0) - 1].tolist(), strict=True
        ):
            held.madvise(mmap.MADV_WILLNEED, low * mmap.PAGESIZE, (high - low) * mmap.PAGESIZE)

    @property
    def dtype(self) -> np.dtype:
        return self.flat.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        if not nodes.size:
            return np.zeros((0, 0, self._cells), self.flat.dtype)
        if (run := self._run(nodes)) is not None:
            return run.copy()
        k = self._width(nodes)
        rows = (self._first_row(nodes)[:, None] + np.arange(k)).ravel()
        return self._rows[rows].reshape(nodes.size, k, self._cells)

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        if not nodes.size:
            return
        if (run := self._run(nodes)) is not None:
            run[:] = x
            return
        rows = (self._first_row(nodes)[:, None] + np.arange(self._width(nodes))).ravel()
        self._rows[rows] = x.reshape(-1, self._cells)

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        found = np.zeros((nodes.size, cells.size, self._cells), self.flat.dtype)
        if (run := self._run(nodes)) is not None:
            place, there = self._places(self.plan.pattern[nodes[0]], cells)
            found[:, there] = run[:, place[there]]
        else:
            rows, there = self._embedded(nodes, cells)
            found[there] = self._rows[rows[there]]
        return found

    def put_on(self, nodes: np.ndarray, cells: np.ndarray, x: np.ndarray) -> None:
        if (run := self._run(nodes)) is not None:
            place, there = self._places(self.plan.pattern[nodes[0]], cells)
            run[:, place[there]] = x[:, there]
        else:
            rows, there = self._embedded(nodes, cells)
            self._rows[rows[there]] = x[there]

    def _run(self, nodes: np.ndarray) -> np.ndarray | None:
        """Nodes of one support that follow each other, as all children of an area mostly do: a view (m, k, N)."""
        pattern = self.plan.pattern[nodes]
        if not nodes.size or (np.diff(nodes) != 1).any() or (pattern != pattern[0]).any():
            return None
        low, k = int(self._begin(nodes[:1])[0]), self.plan.dense_cells[pattern[0]].size
        return self._plain[low : low + nodes.size * k * self._cells].reshape(nodes.size, k, self._cells)

    def _places(self, pattern: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each dense cell stands in a pattern, or in each of some, and whether it does."""
        return self.plan.ranks[pattern][..., cells], self.plan.patterns[pattern][..., cells]

    @property
    def _cells(self) -> int:
        return self.plan.layout.algebra.cells

    @property
    def _rows(self) -> np.ndarray:
        """A view of shape (rows, N): one row a dense cell of a node."""
        return self._plain.reshape(-1, self._cells)

    def clear(self, first: int, last: int) -> None:
        if first < last:
            low = int(self._begin(np.array([first]))[0])
            self._plain[low : low + int(self.plan.offsets[last] - self.plan.offsets[first])] = 0

    def fill(self, nodes: np.ndarray, cells: np.ndarray) -> None:
        """Set the vectors of nodes of any supports: the cells of all, one node after the other."""
        if not nodes.size:
            return
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        begin = self._begin(nodes)
        if begin[-1] - begin[0] == ends[-1] - widths[-1] and nodes[-1] - nodes[0] == nodes.size - 1:
            self._plain[begin[0] : begin[0] + ends[-1]] = cells
        else:
            self._plain[np.repeat(begin - (ends - widths), widths) + np.arange(ends[-1])] = cells

    def cells_of(self, nodes: np.ndarray) -> np.ndarray:
        """The cells of nodes of any supports, one node after the other."""
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        return self._plain[np.repeat(self._begin(nodes) - (ends - widths), widths) + np.arange(widths.sum())]

    @cached_property
    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each range its first node, and where that one's cells begin in ``flat`` less where they do in the plan."""
        ranges = self.ranges or ()
        widths = [cells_of(self.plan, *each) for each in ranges]
        firsts = np.array([first for first, _ in ranges], np.int64)
        return firsts, np.cumsum([0, *widths[:-1]]) - self.plan.offsets[firsts] if ranges else firsts

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        """Where the cells of each node begin in ``flat``."""
        begin = self.plan.offsets[nodes]
        if not self.ranges:
            return begin
        firsts, shift = self._starts
        if len(firsts) == 1:
            return begin + shift
        return begin + shift[np.searchsorted(firsts, nodes, side="right") - 1]

    def _first_row(self, nodes: np.ndarray) -> np.ndarray:
        return self._begin(nodes) // self._cells

    def _width(self, nodes: np.ndarray) -> int:
        pattern = self.plan.pattern[nodes]
        assert (pattern == pattern[0]).all(), "nodes of different supports: use take_on and put_on"
        return self.plan.dense_cells[pattern[0]].size

    def _embedded(self, nodes: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of each node and dense cell, and which of them exist: shape (m, cells), twice."""
        place, there = self._places(self.plan.pattern[nodes], cells)
        return self._first_row(nodes)[:, None] + place, there


def new_file(path: Path, dtype: Any, size: int) -> np.ndarray:
    """Zeros in a new ``.npy`` file that is mapped into memory; its room on the disk is taken at once.

    Where the disk filled up later, writing into the map would end the process without a word.
    """
    flat = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=(size,))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return flat


def end_of_parents(plan: SpinePlan) -> int:
    """Nodes from this one on have no children; the one before it has."""
    return int(plan.tree.parent[-1]) + 1


def cells_of(plan: SpinePlan, first: int, last: int) -> int:
    """How many cells the nodes from first to last - 1 have."""
    return int(plan.offsets[last] - plan.offsets[first])


def cells_in(plan: SpinePlan, ranges: Ranges | None) -> int:
    """How many cells the nodes of some ranges have; all nodes where None."""
    return int(plan.offsets[-1]) if ranges is None else sum(cells_of(plan, *each) for each in ranges)


def largest_cell(vectors: NodeVectors, nodes: slice) -> int:
    """The largest number of some nodes (of one range); 0 where there are none."""
    if nodes.start == nodes.stop:
        return 0
    first = int(vectors._begin(np.array([nodes.start]))[0])
    last = first + cells_of(vectors.plan, nodes.start, nodes.stop)
    largest = 0
    for low in range(first, last, CHUNK_CELLS):
        largest = max(largest, int(vectors.flat[low : min(low + CHUNK_CELLS, last)].max()))
        vectors.release()
    return largest


@dataclass(eq=False)
class Halves(_InPlace):
    """Vectors of all nodes, of the type of those ``above``.

    Args:
        above: of the nodes before ``end_of_parents``.
        below: of those from there on, and of others perhaps; of a type whose numbers the other holds, too.
    """

    above: NodeVectors
    below: NodeVectors

    def flush(self) -> None:
        self.above.flush()
        self.below.flush()

    @property
    def plan(self) -> SpinePlan:
        return self.above.plan

    @property
    def dtype(self) -> np.dtype:
        return self.above.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        cut = int(np.searchsorted(nodes, self._cut))
        if cut == nodes.size:
            return self.above.take(nodes)
        leaves = self.below.take(nodes[cut:]).astype(self.dtype, copy=False)
        return np.concatenate([self.above.take(nodes[:cut]), leaves]) if cut else leaves

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        cut = int(np.searchsorted(nodes, self._cut))
        self.above.put(nodes[:cut], x[:cut])
        self.below.put(nodes[cut:], x[cut:])

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
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
        is_below = nodes >= self._cut
        for half, chosen in ((self.above, ~is_below), (self.below, is_below)):
            if chosen.all():
                half.put_on(nodes, cells, x)
            elif chosen.any():
                half.put_on(nodes[chosen], cells, x[chosen])

    def clear(self, first: int, last: int) -> None:
        self.above.clear(first, min(last, self._cut))
        self.below.clear(max(first, self._cut), last)

    def fetch(self, nodes: np.ndarray) -> None:
        self.above.fetch(nodes[nodes < self._cut])
        self.below.fetch(nodes[nodes >= self._cut])

    def release(self) -> None:
        self.above.release()
        self.below.release()

    @property
    def _cut(self) -> int:
        return end_of_parents(self.plan)


_SHARE = "write the release to a file system that all executors and this process share"
_ROW_GROUP = 1 << 16  # about how many cells are read at a time where few nodes of a part are wanted


@dataclass(frozen=True, eq=False)
class Parts:
    """A folder of parts: tables with one row a node, ``node`` rising, and a column ``cells`` of lists, (k, N) each.

    A part is written under a name of its own and renamed, so that what stands under its name is complete, whichever
    of two processes that make the same part came first: they write the same.

    Args:
        part: shape (nodes,), int32: the part that each node is in; -1 where it is in none.
        dtype: of the cells.
    """

    plan: SpinePlan
    folder: Path
    part: np.ndarray
    dtype: Any = np.float64

    @classmethod
    def under(
        cls, plan: SpinePlan, work: Path, name: str, makes: Iterable[np.ndarray], dtype: Any = np.float64
    ) -> Parts:
        """A folder of parts within a work folder, made where it is not there."""
        folder = work.resolve() / name
        folder.mkdir(parents=True, exist_ok=True)
        part = np.full(plan.tree.size, -1, np.int32)
        for number, nodes in enumerate(makes):
            part[nodes] = number
        return cls(plan, folder, part, dtype)

    def window(self, read: Ranges, room: Ranges = ()) -> NodeVectors:
        """A copy of the vectors that are read, beside zeros for those that will be made."""
        found = NodeVectors.zeros(self.plan, self.dtype, ranges=tuple(sorted({*read, *room})))
        for first, last in read:
            self.read(found, first, last)
        return found

    def keep(self, number: int, nodes: np.ndarray, window: NodeVectors, **notes: object) -> None:
        self._write(number, nodes, window.cells_of(nodes), notes)

    def add(self, number: int, nodes: np.ndarray, x: np.ndarray, **notes: object) -> None:
        self._write(number, nodes, x.reshape(-1), notes)

    def __str__(self) -> str:
        return str(self.folder)

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number:07}.parquet"

    def noted(self, number: int) -> dict[str, str] | None:
        """What was noted with a part; None where the part is not there."""
        path = self.path(number)
        if not path.exists():
            return None
        with _opened(path) as file:
            found = file.schema_arrow.metadata or {}
        return {key.decode(): value.decode() for key, value in found.items()}

    def check_seen(self) -> None:
        """See, where a task runs, that the folder is there."""
        if not self.folder.is_dir():
            raise ReleaseError(f"{self.folder} is not seen where tasks run: {_SHARE}")

    def sync(self, numbers: Iterable[int]) -> None:
        """See that parts are here: tasks elsewhere may have written to a folder of this name that is another."""
        for number in numbers:
            if not self.path(number).exists():
                raise ReleaseError(f"{self.path(number)} was made and is not here: {_SHARE}")

    def _write(self, number: int, nodes: np.ndarray, cells: np.ndarray, notes: Mapping[str, object]) -> None:
        """Write a part, see it onto the disk, and give it its name.

        Args:
            nodes: shape (m,): rising.
        """
        self.check_seen()
        told = {key: str(value) for key, value in notes.items()}
        ends = np.concatenate([[0], np.cumsum(self.plan.offsets[nodes + 1] - self.plan.offsets[nodes])])
        lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(cells))
        table = pa.table({"node": nodes, "cells": lists}).replace_schema_metadata(told)
        rows = max(1, _ROW_GROUP * nodes.size // max(1, cells.size))
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

    def read(self, window: NodeVectors, first: int, last: int) -> None:
        """Fill a window with the vectors of nodes first to last - 1, of those that the parts have."""
        for number in np.unique(self.part[first:last]).tolist():
            if number >= 0:
                self._read(number, window, first, last)
                window.release()

    def _read(self, number: int, window: NodeVectors, first: int, last: int) -> None:
        path = self.path(number)
        with _opened(path) as file:
            groups = [g for g in range(file.num_row_groups) if _overlaps(file, g, first, last)]
            try:
                rows = file.read_row_groups(groups, columns=["node", "cells"], use_threads=False)
            except (OSError, pa.ArrowException) as error:
                raise ReleaseError(_unreadable(path, error)) from None
        node = pc.field("node")
        rows = rows.filter((node >= first) & (node < last)).combine_chunks()
        if rows.num_rows:
            lists = rows["cells"].chunk(0)
            window.fill(rows["node"].to_numpy(), lists.flatten().to_numpy())


def _overlaps(file: pq.ParquetFile, group: int, first: int, last: int) -> bool:
    node = file.metadata.row_group(group).column(0).statistics  # None of a part without nodes
    return node is not None and node.min < last and node.max >= first


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read: {error}. Remove {path.parent.parent} and start again"
