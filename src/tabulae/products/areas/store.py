"""Measurements and exact counts of areas on disk: written beside the drawing, read back against the plan."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import log2, sqrt
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InvalidArgument, ReleaseError
from ...release import folder as f
from ...release.folder import open_parquet, sync_file
from ...release.write import word_column
from ..measured import FOLDER, PieceFiles, charged_id, loss_document
from .constraints import ExactMargin
from .spine_plan import Piece, SpineMeasurements, SpinePieceValues, SpinePlan
from .turns import ahead

if TYPE_CHECKING:
    from .estimate import Intake
    from .sparse.cells import CountedCells

EXACT = f"{f.INVARIANTS}/exact.parquet"
_PLACE = pa.schema(
    [("level", pa.string()), ("geocode", pa.string()), ("query_name", pa.string()), ("cell", pa.int64())]
)
_EXACT_SCHEMA = _PLACE.append(pa.field("value", pa.int64()))


def write_exact(
    folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin], values: Sequence[np.ndarray]
) -> None:
    """Write the exact counts, margin by margin and unit by unit, and see them onto the disk.

    Args:
        values: for each margin, shape (units of its level, margin.classes).
    """
    (folder / f.INVARIANTS).mkdir(exist_ok=True)
    counts = np.concatenate([np.asarray(value, np.int64).ravel() for value in values])
    rows = _places(plan, exact).append_column(_EXACT_SCHEMA.field("value"), pa.array(counts))
    pq.write_table(rows, folder / EXACT, compression="zstd")
    sync_file(folder / EXACT)
    f.sync_folder(folder / f.INVARIANTS)


def _places(plan: SpinePlan, exact: Sequence[ExactMargin]) -> pa.Table:
    parts: dict[str, list[np.ndarray]] = {name: [] for name in _PLACE.names}
    for each in exact:
        codes = plan.spine.areas(each.level).codes.astype(str)
        rows = codes.size * each.margin.classes
        parts["level"].append(np.repeat(each.level, rows))
        parts["geocode"].append(np.repeat(codes, each.margin.classes))
        parts["query_name"].append(np.repeat(each.margin.name, rows))
        parts["cell"].append(np.tile(each.margin.order.ravel(), codes.size))
    return pa.table({name: np.concatenate(part) for name, part in parts.items()}).cast(_PLACE)


def read_exact(folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin]) -> tuple[np.ndarray, ...]:
    """The exact counts of a stored measurement: for each margin, shape (units of its level, classes), int64."""
    if not exact:
        return ()
    path = folder / EXACT
    with open_parquet(path, _EXACT_SCHEMA) as file:
        try:
            stored = file.read()
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not stored.select(_PLACE.names).equals(_places(plan, exact)):
        raise ReleaseError(f"{path}: level, geocode, query_name or cell is not as the plan has it")
    flat = stored["value"].to_numpy()
    if stored["value"].null_count or flat.min() < 0:
        raise ReleaseError(f"{path}: a value is missing or below 0")
    shapes = [(plan.spine.areas(each.level).codes.size, each.margin.classes) for each in exact]
    edges = np.cumsum([units * classes for units, classes in shapes])[:-1]
    return tuple(part.reshape(shape) for part, shape in zip(np.split(flat, edges), shapes, strict=True))


def level_file(level: str) -> str:
    """The name of a level's file in the folder of a release.

    >>> level_file("block group")
    'measurements/block_group.parquet'
    """
    return f"{FOLDER}/{''.join(c if c.isalnum() or c in '_.-' else '_' for c in level)}.parquet"


def level_files(plan: SpinePlan) -> dict[str, str]:
    """The file of each level that is measured."""
    measured = np.unique(plan.tree.level[plan.is_measured])
    files = {plan.spine.levels[i]: level_file(plan.spine.levels[i]) for i in measured.tolist()}
    if len({name.casefold() for name in files.values()}) < len(files):
        raise InvalidArgument(
            f"levels {', '.join(map(repr, files))} need names that differ as files: rename one"
        )
    return files


def plan_document(
    plan: SpinePlan, exact: Sequence[ExactMargin] = (), cells: CountedCells | None = None
) -> dict[str, Any]:
    """What was measured and with which noise, exactly: numbers that decide privacy are strings of fractions.

    Args:
        cells: how a division numbers them, where only what it reads is drawn: how much that is, is not known before.
    """
    files = level_files(plan)
    passes = (
        []
        if cells is None
        else [[plan.queries[q].name for q in sorted(step.queries)] for step in cells.passes]
    )
    return {
        "neighbours": plan.neighbours,
        "rows_per_unit": plan.rows_per_unit,
        "budget": loss_document(plan.loss),
        "queries": [
            {"query_name": query.name, "attributes": list(query.names), "cells": query.size}
            for query in plan.queries
        ],
        "levels": [_level(plan, level, name, every=cells is None) for level, name in files.items()],
        **({"passes": passes} if passes else {}),
        "exact": [
            {"level": e.level, "query_name": e.margin.name, "reason": e.reason, "file": EXACT} for e in exact
        ],
    }


def _level(plan: SpinePlan, level: str, name: str, *, every: bool) -> dict[str, Any]:
    assert plan.spine.shares is not None
    at = plan.spine.levels.index(level)
    nodes = np.flatnonzero((plan.tree.level == at) & plan.is_measured)
    shares = [plan.spine.shares.values[i] for i in np.unique(plan.share[nodes]).tolist()]
    queries = []
    for i, (query, part) in enumerate(zip(plan.queries, plan.query_shares[level], strict=True)):
        laws = [(share, law) for share in shares if (law := plan.law(level, share, i)) is not None]
        told = [
            {"unit_share": str(share), "law": law.name, law.word: str(law.parameter)} for share, law in laws
        ]
        if told:
            queries.append({"query_name": query.name, "share": str(part), "noise": told})
    pieces = [piece for piece in plan.pieces if piece.level == at] if every else []
    values = {"values": sum(piece.nodes.size * sum(piece.rows) for piece in pieces)} if every else {}
    return {"level": level, "file": name, "units": nodes.size, **values, "queries": queries}


_WORDS = ("geocode", "query_name")
MOST_ROWS = 1 << 26  # of one row group
_FILE_BYTES, _GROUP_BYTES, _CODE_BYTES, _COUNT_BYTES = 1 << 16, 1 << 13, 40, 12
_FEW, _SPREAD = 64, 10  # values: small counts, and noise within so many standard deviations in all
_CODING, _REST_BYTES = 1.3, 0.25  # what coding adds; all columns but the values
WRITTEN: Mapping[str, Any] = {
    "compression": "zstd",
    "use_dictionary": _WORDS,  # runs of numbers are left to zstd: to look each up, or to subtract it, takes longer
    "column_encoding": {"cell": "BYTE_STREAM_SPLIT", "value": "DELTA_BINARY_PACKED"},
    "write_statistics": ["geocode"],  # others are noise, or the same in all row groups
    "write_batch_size": 1 << 17,  # rows: each batch looks all words up once for the statistics
}
_VARIANCE = 1e-9  # relative: another machine may add floating-point numbers in another order


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """What the plan says of some rows of answers, all but the values; of a piece query by query, node by node.

    ``geocode`` and ``query`` are positions in ``codes`` and ``names``.
    """

    codes: list[str]
    names: list[str]
    geocode: np.ndarray
    query: np.ndarray
    cell: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, plan: SpinePlan, piece: Piece) -> AnswerRows:
        support, nodes = plan.dense_cells[piece.pattern], piece.nodes.size
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        asked = [(q, law) for q, law in zip(plan.queries, laws, strict=True) if law is not None]
        cells = [q.order[q.present(support)].ravel() for q, _ in asked]
        rows = [nodes * cell.size for cell in cells]
        place = np.arange(nodes, dtype=np.int32)
        return cls(
            _codes_of(plan, piece),
            [q.name for q, _ in asked],
            np.concatenate([np.repeat(place, cell.size) for cell in cells]),
            np.repeat(np.arange(len(asked), dtype=np.int32), rows),
            np.concatenate([np.tile(cell, nodes) for cell in cells]),
            np.repeat([law.variance_of_law for _, law in asked], rows),
        )

    def table(self, values: np.ndarray) -> pa.Table:
        columns = {
            "geocode": word_column(self.geocode, self.codes),
            "query_name": word_column(self.query, self.names),
            "cell": self.cell,
            "value": values,
            "scale_exponent": np.zeros(values.size, np.int32),
            "variance": self.variance,
        }
        return pa.table(columns, schema=ANSWERS)

    def values_in(self, rows: pa.Table, where: str) -> np.ndarray:
        """The values of stored rows, which must be these.

        Raises:
            ReleaseError: they are not; the message says ``where``.
        """
        if rows.num_rows != self.cell.size:
            raise ReleaseError(f"{where} has {rows.num_rows} rows, and {self.cell.size} were measured")
        _check_words(rows, "geocode", self.codes, self.geocode, where)
        _check_words(rows, "query_name", self.names, self.query, where)
        for name, same in (
            ("cell", np.array_equal(rows["cell"].to_numpy(), self.cell)),
            ("scale_exponent", not rows["scale_exponent"].to_numpy().any()),
            ("variance", _are_close(rows["variance"].to_numpy(), self.variance)),
        ):
            if not same:
                raise ReleaseError(f"{where}: {name} is not as the plan has it")
        return rows["value"].to_numpy()


class _PieceRows:
    """The rows of pieces, one piece after the other: many differ in their codes alone, and share the rest."""

    def __init__(self, plan: SpinePlan) -> None:
        self.plan = plan
        self._like: tuple[int, ...] = ()
        self._last: AnswerRows | None = None

    def of(self, piece: Piece) -> AnswerRows:
        kind = int(self.plan.classes[1][piece.nodes[0]])
        like = (piece.level, piece.pattern, kind, piece.nodes.size)
        if self._last is None or like != self._like:
            self._like, self._last = like, AnswerRows.of(self.plan, piece)
        return replace(self._last, codes=_codes_of(self.plan, piece))


def _codes_of(plan: SpinePlan, piece: Piece) -> list[str]:
    codes = plan.spine.hierarchy.codes[piece.level][plan.tree.unit[piece.nodes]]
    return [str(code) for code in codes.tolist()]


ANSWERS = pa.schema(
    [  # none is ever missing; a column that says so takes a fifth less to write, and a third less to read
        pa.field(name, kind, nullable=False)
        for name, kind in (
            *((name, pa.dictionary(pa.int32(), pa.string())) for name in _WORDS),
            ("cell", pa.int64()),
            ("value", pa.int64()),
            ("scale_exponent", pa.int32()),
            ("variance", pa.float64()),
        )
    ]
)


class SpineMeasurementWriter(PieceFiles):
    """Writes each piece of a measured spine into its level's file.

    A piece is written while later ones are drawn: what goes wrong with it is raised by a later call, or the end.

    Args:
        intake: takes each piece in for the estimates, beside the writing; None where they are made elsewhere, or later.
    """

    def __init__(
        self, folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin] = (), intake: Intake | None = None
    ) -> None:
        self.plan, self.exact, self._intake = plan, tuple(exact), intake
        self._rows, self._files = _PieceRows(plan), level_files(plan)
        super().__init__(folder, dict.fromkeys(self._files.values(), ANSWERS), **WRITTEN)
        self._beside: tuple[ThreadPoolExecutor, ...] = ()  # of one thread each: pieces go in order
        self._pending: deque[list[Future[None]]] = deque()  # what each piece still waits for

    def __enter__(self) -> Self:
        (self.folder / EXACT).unlink(missing_ok=True)
        if max(piece.nodes.size * sum(piece.rows) for piece in self.plan.pieces) > MOST_ROWS:
            raise InvalidArgument(f"one area has more than {MOST_ROWS:,} answers: ask for fewer cells")
        super().__enter__()
        if self._intake is not None:
            self._intake.begin()
        self._beside = (ThreadPoolExecutor(1), ThreadPoolExecutor(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._wait(0)
        except BaseException as failed:
            self.__exit__(type(failed), failed, failed.__traceback__)
            raise
        for thread in self._beside:
            thread.shutdown(cancel_futures=True)
        super().__exit__(kind, error, trace)

    def __call__(self, given: SpinePieceValues) -> None:
        """Write one piece, after those before it, of which one at most is not yet begun."""
        rows = self._rows.of(given.piece)
        self._wait(1)
        writing, taking = self._beside
        tasks = [writing.submit(self._write, given, rows)]
        if self._intake is not None:
            tasks.append(taking.submit(self._intake, given))
        self._pending.append(tasks)

    def _wait(self, left: int) -> None:
        """Until no more than so many pieces are pending, and raise what went wrong."""
        while len(self._pending) > left:
            for each in self._pending.popleft():
                each.result()

    def _write(self, given: SpinePieceValues, rows: AnswerRows) -> None:
        values = np.concatenate([v.ravel() for v in given.values if v is not None])
        name = self._files[self.plan.spine.levels[given.piece.level]]
        self.write(name, rows.table(values), row_group_size=MOST_ROWS)

    def finish(self, done: SpineMeasurements) -> None:
        """See every file onto the disk, then say that the measurement is complete."""
        release_id = charged_id(done.release_id, rehearsal=done.rehearsal)
        self.close()
        if self.exact:
            write_exact(self.folder, self.plan, self.exact, done.exact)
        self.complete(release_id, plan_document(self.plan, self.exact))
        if self._intake is not None:
            self._intake.finish(files_digest(self.folder, self.plan))


def files_digest(folder: Path, plan: SpinePlan) -> str:
    """SHA-256 of the files of a stored measurement; nothing where one cannot be read."""
    found = hashlib.sha256()
    try:
        for name in level_files(plan).values():
            with (folder / name).open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    except OSError:
        return ""
    return found.hexdigest()


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
    areas = [plan.spine.areas(each.level).codes.size for each in exact]
    rows = zip(areas, exact, strict=True)
    return total + sum((_CODE_BYTES + _COUNT_BYTES * e.margin.classes) * units for units, e in rows)


def read_spine_measurements(folder: Path, plan: SpinePlan) -> Iterator[SpinePieceValues]:
    """The pieces of a stored measurement, in the order of ``plan.pieces``, each verified against the plan.

    Raises:
        ReleaseError: the files are not those of the plan; the message names file and row group.
    """
    wanted = _PieceRows(plan)
    for level, name in level_files(plan).items():
        pieces = [piece for piece in plan.pieces if plan.spine.levels[piece.level] == level]
        with open_parquet(folder / name, ANSWERS) as file:
            if file.num_row_groups != len(pieces):
                raise ReleaseError(
                    f"{folder / name} has {file.num_row_groups} row groups, and {len(pieces)} were measured"
                )
            where = [f"{folder / name}, row group {i + 1} of {len(pieces)}" for i in range(len(pieces))]
            with ahead(read_group(file, i, place) for i, place in enumerate(where)) as groups:
                for piece, rows, place in zip(pieces, groups, where, strict=True):
                    yield _piece(piece, rows, wanted.of(piece), place)


@dataclass(frozen=True, eq=False)
class StoredPieces:
    """The pieces of a stored measurement by their number in ``plan.pieces``; can be pickled, and read elsewhere.

    Args:
        folder: of the release, whole from the root of the file system.
    """

    folder: Path
    plan: SpinePlan

    def __call__(self, number: int) -> SpinePieceValues:
        """One piece, verified against the plan.

        Raises:
            ReleaseError: the file is not that of the plan; the message names file and row group.
        """
        piece = self.plan.pieces[number]
        alike = [i for i, other in enumerate(self.plan.pieces) if other.level == piece.level]
        path = self.folder / level_files(self.plan)[self.plan.spine.levels[piece.level]]
        with open_parquet(path, ANSWERS) as file:
            if file.num_row_groups != len(alike):
                raise ReleaseError(
                    f"{path} has {file.num_row_groups} row groups, and {len(alike)} were measured"
                )
            group = number - alike[0]
            where = f"{path}, row group {group + 1} of {len(alike)}"
            return _piece(piece, read_group(file, group, where), AnswerRows.of(self.plan, piece), where)


def read_group(file: pq.ParquetFile, group: int, where: str) -> pa.Table:
    """A row group without missing values, words by one dictionary."""
    try:
        rows = file.read_row_group(group).unify_dictionaries().combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{where} cannot be read: {error}") from None
    if missing := [name for name in rows.column_names if rows[name].null_count]:
        raise ReleaseError(f"{where}: {missing[0]} has missing values")
    return rows


def _piece(piece: Piece, rows: pa.Table, wanted: AnswerRows, where: str) -> SpinePieceValues:
    flat, values, first = wanted.values_in(rows, where), [], 0
    for each in piece.rows:
        size = each * piece.nodes.size
        values.append(flat[first : first + size].reshape(piece.nodes.size, each) if each else None)
        first += size
    return SpinePieceValues(piece, tuple(values))


def _are_close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(found, wanted) or np.allclose(found, wanted, rtol=_VARIANCE, atol=0)


def _check_words(rows: pa.Table, name: str, words: Sequence[str], index: np.ndarray, where: str) -> None:
    """A column names the words at these positions, whatever the order of its dictionary."""
    column = rows[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    given, found = column.dictionary.to_pylist(), column.indices.to_numpy()
    if given != list(words):
        number = {word: i for i, word in enumerate(words)}
        found = np.array([number.get(word, -1) for word in given], np.int64)[found]
    if not np.array_equal(found, index):
        raise ReleaseError(f"{where}: {name} is not as the plan has it")
