"""Exact counts of areas on disk: one file of all margins, read back against the plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ReleaseError
from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan
from . import folder as f
from .rows import open_parquet
from .table_files import sync_file

EXACT = f"{f.INVARIANTS}/exact.parquet"
_PLACE = pa.schema(
    [("level", pa.string()), ("geocode", pa.string()), ("query_name", pa.string()), ("cell", pa.int64())]
)
_SCHEMA = _PLACE.append(pa.field("value", pa.int64()))


def write_exact(
    folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin], values: Sequence[np.ndarray]
) -> None:
    """Write the exact counts, margin by margin and unit by unit, and see them onto the disk.

    Args:
        folder: of the release.
        plan, exact: what was measured.
        values: for each margin, shape (units of its level, margin.classes).
    """
    (folder / f.INVARIANTS).mkdir(exist_ok=True)
    counts = np.concatenate([np.asarray(value, np.int64).ravel() for value in values])
    rows = _places(plan, exact).append_column(_SCHEMA.field("value"), pa.array(counts))
    pq.write_table(rows, folder / EXACT, compression="zstd")
    sync_file(folder / EXACT)
    f.sync_folder(folder / f.INVARIANTS)


def _places(plan: SpinePlan, exact: Sequence[ExactMargin]) -> pa.Table:
    """All columns but the values."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in _PLACE.names}
    for each in exact:
        codes = plan.spine.codes[each.level].astype(str)
        rows = codes.size * each.margin.classes
        parts["level"].append(np.repeat(each.level, rows))
        parts["geocode"].append(np.repeat(codes, each.margin.classes))
        parts["query_name"].append(np.repeat(each.margin.name, rows))
        parts["cell"].append(np.tile(each.margin.order.ravel(), codes.size))
    return pa.table({name: np.concatenate(part) for name, part in parts.items()}).cast(_PLACE)


def read_exact(folder: Path, plan: SpinePlan, exact: Sequence[ExactMargin]) -> tuple[np.ndarray, ...]:
    """The exact counts of a stored measurement: for each margin, shape (units of its level, classes), int64.

    Raises:
        ReleaseError: the file is not that of the plan.
    """
    if not exact:
        return ()
    path = folder / EXACT
    with open_parquet(path, _SCHEMA) as file:
        try:
            stored = file.read()
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not stored.select(_PLACE.names).equals(_places(plan, exact)):
        raise ReleaseError(f"{path}: level, geocode, query_name or cell is not as the plan has it")
    flat = stored["value"].to_numpy()
    if stored["value"].null_count or flat.min() < 0:
        raise ReleaseError(f"{path}: a value is missing or below 0")
    shapes = [(plan.spine.codes[each.level].size, each.margin.classes) for each in exact]
    edges = np.cumsum([units * classes for units, classes in shapes])[:-1]
    return tuple(part.reshape(shape) for part, shape in zip(np.split(flat, edges), shapes, strict=True))
