"""One vector of cells for every node of a tree, in memory or in a file."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import InvalidArgument
from ..geography.spine_plan import SpinePlan


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
