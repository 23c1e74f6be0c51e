"""Noisy counts of areas on disk: one Parquet file a level, one row group a piece, verified when they are read.

Columns of ``measurements/LEVEL.parquet``, one row an answer:

    geocode         the unit, as the level's codes name it
    query_name      "total", "detailed", or attributes joined by " * "
    cell            the cell of that query's table, in C order of the attributes named
    value           the noisy count
    scale_exponent  0: counts are whole
    variance        of the noise

Cells that cannot occur in a unit have no row. Exact counts are in ``invariants/exact.parquet``: level, geocode,
query_name, cell, value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InvalidArgument, ReleaseError
from ..geography.constraints import ExactMargin
from ..geography.measured import SpineMeasurements
from ..geography.spine_plan import Piece, SpinePieceValues, SpinePlan
from . import folder as f
from .rows import close_all, open_parquet
from .spine_document import FOLDER, level_files, plan_document
from .spine_exact import EXACT, write_exact
from .table_files import sync_file

_WORDS = ("geocode", "query_name")
_MOST_ROWS = 1 << 26  # of one row group
_FILE_BYTES, _GROUP_BYTES, _CODE_BYTES, _COUNT_BYTES = 1 << 16, 1 << 13, 40, 12
_FEW, _SPREAD = 64, 10  # values: small counts, and noise within so many standard deviations in all
_CODING, _REST_BYTES = 1.3, 0.25  # what coding adds; all columns but the values
_VARIANCE = 1e-9  # relative: another machine may add floating-point numbers in another order


@dataclass(frozen=True, eq=False)
class _Rows:
    """What the plan says of a piece's rows, query by query, node by node and cell by cell: all but the values.

    ``geocode`` and ``query`` are positions in ``codes`` and ``names``.
    """

    codes: list[str]
    names: list[str]
    geocode: np.ndarray
    query: np.ndarray
    cell: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, plan: SpinePlan, piece: Piece) -> _Rows:
        support, nodes = plan.dense_cells[piece.pattern], piece.nodes.size
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        asked = [(q, law) for q, law in zip(plan.queries, laws, strict=True) if law is not None]
        cells = [q.order[q.present(support)].ravel() for q, _ in asked]
        rows = [nodes * cell.size for cell in cells]
        codes = plan.spine.hierarchy.codes[piece.level][plan.tree.unit[piece.nodes]]
        place = np.arange(nodes, dtype=np.int32)
        return cls(
            [str(code) for code in codes],
            [q.name for q, _ in asked],
            np.concatenate([np.repeat(place, cell.size) for cell in cells]),
            np.repeat(np.arange(len(asked), dtype=np.int32), rows),
            np.concatenate([np.tile(cell, nodes) for cell in cells]),
            np.repeat([law.variance_of_law for _, law in asked], rows),
        )

    def table(self, values: np.ndarray) -> pa.Table:
        """These rows with their values."""
        return pa.table(
            {
                "geocode": _words(self.geocode, self.codes),
                "query_name": _words(self.query, self.names),
                "cell": self.cell,
                "value": values,
                "scale_exponent": np.zeros(values.size, np.int32),
                "variance": self.variance,
            }
        )


def _words(index: np.ndarray, words: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(index, pa.array(words, pa.string()))


_SCHEMA = pa.schema(
    [
        *((name, pa.dictionary(pa.int32(), pa.string())) for name in _WORDS),
        ("cell", pa.int64()),
        ("value", pa.int64()),
        ("scale_exponent", pa.int32()),
        ("variance", pa.float64()),
    ]
)


class SpineMeasurementWriter:
    """Writes each piece of a measured spine into its level's file; a context manager that opens and closes them.

    ``measurement.json``, which says that all is there, comes last and from :meth:`finish` only.

    Args:
        folder: of the release.
        plan: what is measured.
        exact: the margins whose counts are exact, as they were measured.
    """

    def __init__(self, folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin] = ()) -> None:
        self.folder = folder
        self.plan = plan
        self.exact = tuple(exact)
        self._open: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        for stale in (self.folder / FOLDER).glob("*.parquet"):
            stale.unlink()  # of a process that was killed, with other levels perhaps
        (self.folder / EXACT).unlink(missing_ok=True)
        if max(piece.nodes.size * sum(piece.rows) for piece in self.plan.pieces) > _MOST_ROWS:
            raise InvalidArgument(f"one area has more than {_MOST_ROWS:,} answers: ask for fewer cells")
        try:
            for level, name in level_files(self.plan).items():
                self._open[level] = pq.ParquetWriter(self.folder / name, _SCHEMA, compression="zstd")
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writers = list(self._open.values())
        self._open.clear()
        close_all(writers, failed=kind is not None)

    def __call__(self, given: SpinePieceValues) -> None:
        """Write one piece."""
        rows = _Rows.of(self.plan, given.piece)
        values = np.concatenate([v.ravel() for v in given.values if v is not None])
        level = self.plan.spine.levels[given.piece.level]
        self._open[level].write_table(rows.table(values), row_group_size=_MOST_ROWS)

    def finish(self, done: SpineMeasurements) -> None:
        """See every file onto the disk, then say that the measurement is complete.

        Raises:
            ReleaseError: a rehearsal, which is not for publication.
        """
        if done.rehearsal or done.release_id is None:
            raise ReleaseError(
                "this measurement is a rehearsal, not for publication: measure with a ledger and secure noise"
            )
        self.__exit__(None, None, None)
        for name in level_files(self.plan).values():
            sync_file(self.folder / name)
        if self.exact:
            write_exact(self.folder, self.plan, self.exact, done.exact)
        document = {"release_id": done.release_id, **plan_document(self.plan, self.exact)}
        f.write_json(self.folder / f.MEASUREMENT, document)
        f.sync_folder(self.folder / FOLDER)


def most_bytes(plan: SpinePlan, exact: Sequence[ExactMargin] = ()) -> int:
    """How large the files of a measurement become at most, about.

    A leaf's answers are noise for the most part: they take the bits of the values that the widest law of their row
    group spreads over. Other units' counts may be large, and differ. All but the values are runs and repetitions.
    """
    total = _FILE_BYTES * (1 + len(level_files(plan)))
    for piece in plan.pieces:
        total += _GROUP_BYTES + _CODE_BYTES * piece.nodes.size
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        widest = sqrt(max(law.variance_of_law for law in laws if law is not None))
        noise = _CODING * log2(_FEW + _SPREAD * widest) / 8 + _REST_BYTES
        size = noise if piece.level == len(plan.spine.levels) - 1 else max(noise, _COUNT_BYTES)
        total += int(size * piece.nodes.size * sum(piece.rows))
    units = plan.spine.codes
    return total + sum((_CODE_BYTES + _COUNT_BYTES * e.margin.classes) * units[e.level].size for e in exact)


def read_spine_measurements(folder: Path, plan: SpinePlan) -> Iterator[SpinePieceValues]:
    """The pieces of a stored measurement, in the order of ``plan.pieces``, each verified against the plan.

    Raises:
        ReleaseError: the files are not those of the plan; the message names file and row group.
    """
    for level, name in level_files(plan).items():
        pieces = [piece for piece in plan.pieces if plan.spine.levels[piece.level] == level]
        file = open_parquet(folder / name, _SCHEMA)
        with file:
            if file.num_row_groups != len(pieces):
                raise ReleaseError(
                    f"{folder / name} has {file.num_row_groups} row groups, and {len(pieces)} were measured"
                )
            for i, piece in enumerate(pieces):
                yield _piece(plan, piece, file, i, f"{folder / name}, row group {i + 1} of {len(pieces)}")


def _read(file: pq.ParquetFile, group: int, where: str) -> pa.Table:
    """A row group without missing values, words by one dictionary."""
    try:
        rows = file.read_row_group(group).unify_dictionaries().combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{where} cannot be read: {error}") from None
    if missing := [name for name in rows.column_names if rows[name].null_count]:
        raise ReleaseError(f"{where}: {missing[0]} has missing values")
    return rows


def _piece(plan: SpinePlan, piece: Piece, file: pq.ParquetFile, group: int, where: str) -> SpinePieceValues:
    rows, wanted = _read(file, group, where), _Rows.of(plan, piece)
    if rows.num_rows != wanted.cell.size:
        raise ReleaseError(f"{where} has {rows.num_rows} rows, and {wanted.cell.size} were measured")
    _check_words(rows, "geocode", wanted.codes, wanted.geocode, where)
    _check_words(rows, "query_name", wanted.names, wanted.query, where)
    for name, same in (
        ("cell", np.array_equal(rows["cell"].to_numpy(), wanted.cell)),
        ("scale_exponent", not rows["scale_exponent"].to_numpy().any()),
        ("variance", np.allclose(rows["variance"].to_numpy(), wanted.variance, rtol=_VARIANCE, atol=0)),
    ):
        if not same:
            raise ReleaseError(f"{where}: {name} is not as the plan has it")
    flat, values, first = rows["value"].to_numpy(), [], 0
    for each in piece.rows:
        size = each * piece.nodes.size
        values.append(flat[first : first + size].reshape(piece.nodes.size, each) if each else None)
        first += size
    return SpinePieceValues(piece, tuple(values))


def _check_words(rows: pa.Table, name: str, words: Sequence[str], index: np.ndarray, where: str) -> None:
    """A column names the words at these positions, whatever the order of its dictionary."""
    column = rows[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    number = {word: i for i, word in enumerate(words)}
    found = np.array([number.get(word, -1) for word in column.dictionary.to_pylist()], np.int64)
    if not np.array_equal(found[column.indices.to_numpy()], index):
        raise ReleaseError(f"{where}: {name} is not as the plan has it")
