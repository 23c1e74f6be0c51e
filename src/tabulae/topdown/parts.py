"""Vectors of nodes as Parquet files, one for each task of a stage, each there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import ReleaseError
from ..geography.spine_plan import SpinePlan
from .window import NodeWindow

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
