"""pop-group-totals.txt: published totals of persons (T1), which choose the tables of households."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ...domain import GroupMap, Regions
from ...products.groups.public_counts import PublicCounts
from .geography import GRF
from .layout import PUERTO_RICO, US
from .maps import ETHNICITY, RACE
from .text import Faults, TextRows, read_rows

TOTALS = "pop-group-totals.txt"
_COLUMNS = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", "COUNT")
_REGION_TYPES = (*US, *PUERTO_RICO)
_REGION = "^[0-9]{1,11}$"
_SHOWN = 3
_COUNT, _COUNT_WORDS = "^-?[0-9]{1,18}$", "must be a whole number, such as 250 or -3"


def read_totals(
    path: Path, groups: GroupMap, regions: Mapping[str, Regions], faults: Faults
) -> tuple[PublicCounts, dict[str, Regions]]:
    """The counts of the runs that were chosen; rows of the other run are checked, and not used.

    A region that no block is in is let pass, with a warning: nobody is counted there, as in production.

    Args:
        path: the file.
        groups: the iterations that may be tabulated.
        regions: the region types of the runs, with all regions that have blocks.
        faults: where mistakes are noted.

    Returns:
        The counts, and the region types with all regions that they are of.

    Privacy:
        None is spent: the file was published before.
    """
    codes = [group.code for group in groups.groups]
    found: dict[str, list[tuple[pa.StringArray, np.ndarray]]] = {kind: [] for kind in regions}
    for rows in read_rows(path, _COLUMNS, faults):
        kind, numbers = _checked(rows, codes, faults)
        for name, parts in found.items():
            at = np.flatnonzero(kind == _REGION_TYPES.index(name))
            parts.append((rows.columns["REGION_ID"].take(at), numbers[:, at]))
    counts, known = {}, {}
    for name, parts in found.items():
        ids = pa.chunked_array([part for part, _ in parts], pa.string()).combine_chunks()
        group, count, line = np.concatenate([np.zeros((3, 0), np.int64), *(n for _, n in parts)], axis=1)
        known[name] = _with_empty(regions[name], ids, line, faults)
        region = _positions(ids, known[name].ids)
        _, first = np.unique(region * len(codes) + group, return_index=True)
        twice = np.sort(np.delete(line, first))
        words = "an earlier line is of the same group in the same region: keep one"
        faults.add_rows(TOTALS, words, twice, "ITERATION_CODE")
        counts[name] = (region, group, count)
    return PublicCounts(counts, groups, TOTALS, b"" if faults.problems else path.read_bytes()), known


def _with_empty(regions: Regions, ids: pa.StringArray, line: np.ndarray, faults: Faults) -> Regions:
    """The regions of a type, and after them those that rows are of and no block is in."""
    without = np.flatnonzero(_positions(ids, regions.ids) < 0)
    if not without.size:
        return regions
    empty = sorted(set(ids.take(without).to_pylist()))
    shown = f"{', '.join(empty[:_SHOWN])}{', ...' if len(empty) > _SHOWN else ''}"
    words = f"{GRF} has no block of {regions.name} {shown}: counts of nobody are published there"
    faults.warn(TOTALS, words, int(line[without[0]]), "REGION_ID")
    return replace(regions, ids=(*regions.ids, *empty))


def _checked(rows: TextRows, codes: list[str], faults: Faults) -> tuple[np.ndarray, np.ndarray]:
    """The region type of each row, and shape (3, rows): group, count and line; type and group -1 where unknown."""
    kind = _positions(rows.columns["REGION_TYPE"], _REGION_TYPES)
    group = _positions(rows.columns["ITERATION_CODE"], codes)
    compute: Any = pyarrow.compute
    sound = compute.match_substring_regex(rows.columns["COUNT"], _COUNT)
    whole = sound.to_numpy(zero_copy_only=False)
    named = compute.match_substring_regex(rows.columns["REGION_ID"], _REGION).to_numpy(zero_copy_only=False)
    for column, words, wrong in (
        ("REGION_ID", "must be the digits of a region, such as 01 or 01001", ~named),
        ("REGION_TYPE", f"must be one of {', '.join(_REGION_TYPES)}", kind < 0),
        ("ITERATION_CODE", f"is no iteration of level 1 or 2 that {RACE} or {ETHNICITY} lists", group < 0),
        ("COUNT", _COUNT_WORDS, ~whole),
    ):
        faults.add_rows(TOTALS, words, rows.lines[wrong], column)
    count = np.zeros(kind.size, np.int64)
    count[whole] = rows.columns["COUNT"].filter(sound).cast(pa.int64()).to_numpy()
    return kind, np.stack([group, count, rows.lines])


def _positions(column: pa.StringArray, known: tuple[str, ...] | list[str]) -> np.ndarray:
    """Where each text stands in a list, -1 where it is not in it."""
    compute: Any = pyarrow.compute
    return compute.index_in(column, pa.array(known, pa.string())).fill_null(-1).to_numpy().astype(np.int64)
