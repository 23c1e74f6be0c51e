"""Public files: the blocks of each region (GRF-C.txt), and the totals that choose its tables (pop-group-totals.txt)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ...domain import GroupMap, Regions
from ...products.groups.public_counts import PublicCounts
from .config import CONFIG, PR_CODE, STATES, ConfigDraft
from .maps import BLOCK, ETHNICITY, PUERTO_RICO, RACE, US
from .text import Faults, TextRows, read_rows

GRF = "GRF-C.txt"
_AREAS = {"PLACEFP": 5, "AIANNHCE": 4}
_NO_PLACE, _NO_AREA = 99_999, 9_999
_AFTER = {"STATE": 10**13, "COUNTY": 10**10, "TRACT": 10**4}  # what a block's number is divided by
_DIGITS = {"STATE": 2, "COUNTY": 5, "TRACT": 11, "PLACE": 7, "AIANNH": 4}


@dataclass(frozen=True, eq=False)
class BlockGeography:
    """Every block, in rising order, with its place and American Indian, Alaska Native or Native Hawaiian area.

    Args:
        block: shape (blocks,): the digits of state, county, tract and block as one number.
        place, area: shape (blocks,): the codes as numbers.
        lines: state code -> the first line of the file with a block of it.
    """

    block: np.ndarray
    place: np.ndarray
    area: np.ndarray
    lines: Mapping[int, int]

    @property
    def state(self) -> np.ndarray:
        """Shape (blocks,): the state code of each block."""
        return self.block // _AFTER["STATE"]

    def has(self, fields: Mapping[str, pa.StringArray]) -> np.ndarray:
        """Which of some records, by the columns that name a block, lie in one of these."""
        number = np.zeros(len(fields["TABBLK"]), np.int64)
        sound = np.ones(number.size, bool)
        for name, digits in BLOCK.items():
            part = _number(fields[name], digits)
            sound &= part >= 0
            number = number * 10**digits + part
        at = np.minimum(np.searchsorted(self.block, number), self.block.size - 1)
        return sound & (self.block[at] == number)

    def regions(self, region_type: str) -> Regions:
        """The regions of one type; blocks of the other run lie in none."""
        if region_type in PUERTO_RICO:
            mine, kind = self.state == PR_CODE, region_type.removeprefix("PR-")
        else:
            mine, kind = self.state != PR_CODE, region_type
        of_leaf = np.full(self.block.size, -1, np.int32)
        if kind == "USA":
            of_leaf[mine] = 0
            return Regions(region_type, ("1",) if mine.any() else (), of_leaf)
        if kind == "PLACE":
            mine = mine & (self.place != _NO_PLACE)
            code = self.state * 10**5 + self.place
        elif kind == "AIANNH":
            mine = mine & (self.area != _NO_AREA)
            code = self.area
        else:
            code = self.block // _AFTER[kind]
        found, position = np.unique(code[mine], return_inverse=True)
        of_leaf[mine] = position
        return Regions(region_type, tuple(f"{n:0{_DIGITS[kind]}d}" for n in found.tolist()), of_leaf)


def read_geography(path: Path, faults: Faults) -> BlockGeography | None:
    """Read every block; None where a mistake could hide one. Blocks that stand twice are kept once."""
    before = faults.count
    parts, lines = [], []
    for rows in read_rows(path, (*BLOCK, *_AREAS), faults, others=True):
        parts.append(_numbers(path.name, rows, faults))
        lines.append(rows.lines)
    if not parts:
        return None
    numbers = {name: np.concatenate([part[name] for part in parts]) for name in (*BLOCK, *_AREAS)}
    del parts
    block = np.zeros(len(numbers["TABBLK"]), np.int64)
    sound = np.ones(block.size, bool)
    for name, digits in BLOCK.items():
        block *= 10**digits
        block += numbers[name]
        sound &= numbers[name] >= 0
    whole = faults.count == before
    order = np.argsort(block, kind="stable")
    order = order[sound[order]]
    once = np.diff(block[order], prepend=-1) > 0
    line = np.concatenate(lines)[order]
    _check_repeated(path.name, np.sort(line[~once]), faults)
    of_state = _first_lines(block[order] // _AFTER["STATE"], line)
    for state in sorted(of_state.keys() - STATES - {PR_CODE}):
        words = f"{state:02d} is not a code of a state, the District of Columbia or Puerto Rico"
        faults.add(path.name, words, of_state[state], "TABBLKST")
    if not whole:
        return None
    order = order[once]
    return BlockGeography(block[order], numbers["PLACEFP"][order], numbers["AIANNHCE"][order], of_state)


def _check_repeated(file: str, lines: np.ndarray, faults: Faults) -> None:
    words = "this block stands in an earlier line, too: its people would be counted twice; keep one"
    faults.add_rows(file, words, lines, "TABBLK")


def _first_lines(state: np.ndarray, line: np.ndarray) -> dict[int, int]:
    """The least line of each state, from states that do not fall."""
    start = np.flatnonzero(np.diff(state, prepend=-1))
    first = np.minimum.reduceat(line, start) if start.size else line[:0]
    return dict(zip(state[start].tolist(), first.tolist(), strict=True))


def _numbers(file: str, rows: TextRows, faults: Faults) -> dict[str, np.ndarray]:
    """The columns as numbers, -1 where a field is wrong."""
    fields = BLOCK | _AREAS
    found = {name: _number(rows.columns[name], digits) for name, digits in fields.items()}
    empty = np.logical_and.reduce([np.diff(_offsets(rows.columns[name])) == 0 for name in fields])
    if empty.any():
        faults.add_rows(file, "this line is empty", rows.lines[empty])
    for name, digits in fields.items():
        wrong = (found[name] < 0) & ~empty
        if wrong.any():
            faults.add_rows(file, f"this field is not {digits} digits", rows.lines[wrong], name)
    return found


def _number(column: pa.StringArray, digits: int) -> np.ndarray:
    """Texts of so many digits as numbers, -1 where there is something else."""
    offsets, letters = _offsets(column), np.frombuffer(column.buffers()[2] or b"", np.uint8)
    right = np.diff(offsets) == digits
    start = np.where(right, offsets[:-1], 0)
    number = np.zeros(len(column), np.int32)
    for i in range(digits if right.any() else 0):
        digit = letters[start + i] - np.uint8(ord("0"))  # what stands before "0" comes out above 9
        right &= digit <= 9
        number *= 10
        number += digit
    return np.where(right, number, -1)


def _offsets(column: pa.StringArray) -> np.ndarray:
    """Where each text begins among the letters of the column, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def check_states(geography: BlockGeography, draft: ConfigDraft, faults: Faults) -> None:
    """Whether the runs of the config have blocks, and the state filter names just the states that there are."""

    def fault(key: str, message: str) -> None:
        faults.add(CONFIG, message, draft.lines[key], key)

    if draft.run_pr and PR_CODE not in geography.lines:
        words = f"is true, and no block of {GRF} lies in Puerto Rico (72): set it to false, or add its blocks"
        fault("run_pr", words)
    if not draft.run_us or draft.states is None:
        return
    named = {int(state) for state in draft.states}
    for state in sorted(named - geography.lines.keys()):
        words = f'names "{state:02d}", of which {GRF} has no block: take it out, or add its blocks'
        fault("state_filter_us", words)
    for state in sorted((geography.lines.keys() & STATES) - named):
        where = f"{GRF} has blocks (the first in line {geography.lines[state]})"
        fault("state_filter_us", f'does not name "{state:02d}", of which {where}: name it, or take them out')


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
