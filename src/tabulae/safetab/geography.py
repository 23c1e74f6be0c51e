"""GRF-C.txt: the public list of blocks, and the region of each type that a block lies in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..tables.regions import Regions
from .config import CONFIG, Config
from .delimited import Layout, Rows, read_rows
from .faults import Faults
from .region_types import PR_CODE, PUERTO_RICO, STATES

GRF = "GRF-C.txt"
BLOCK = {"TABBLKST": 2, "TABBLKCOU": 3, "TABTRACTCE": 6, "TABBLK": 4}
"""The columns that name a block, with their numbers of digits."""

_AREAS = {"PLACEFP": 5, "AIANNHCE": 4}
_NO_PLACE, _NO_AREA = 99_999, 9_999
_AFTER = {"STATE": 10**13, "COUNTY": 10**10, "TRACT": 10**4}  # what a block's number is divided by
_DIGITS = {"STATE": 2, "COUNTY": 5, "TRACT": 11, "PLACE": 7, "AIANNH": 4}


@dataclass(frozen=True, eq=False)
class Geography:
    """Every block, in rising order, with its place and American Indian, Alaska Native or Native Hawaiian area.

    Args:
        block: shape (blocks,): the digits of state, county, tract and block as one number.
        place, area: shape (blocks,): the codes as numbers.
    """

    block: np.ndarray
    place: np.ndarray
    area: np.ndarray

    @property
    def state(self) -> np.ndarray:
        """Shape (blocks,): the state code of each block."""
        return self.block // _AFTER["STATE"]

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


def read_geography(path: Path, faults: Faults) -> Geography | None:
    """Read every block; None where there is a mistake."""
    before = len(faults.problems)
    parts, lines = [], []
    for rows in read_rows(path, Layout((*BLOCK, *_AREAS), extra=True), faults):
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
    order = np.argsort(block, kind="stable")
    order = order[sound[order]]
    again = order[1:][block[order[1:]] == block[order[:-1]]]
    if again.size:
        found = np.sort(np.concatenate(lines)[again])
        words = "this block stands in an earlier line, too: its people would be counted twice; keep one"
        faults.add_lines(path.name, words, found.tolist(), "TABBLK")
    if len(faults.problems) > before:
        return None
    return Geography(block[order], numbers["PLACEFP"][order], numbers["AIANNHCE"][order])


def _numbers(file: str, rows: Rows, faults: Faults) -> dict[str, np.ndarray]:
    """The columns as numbers, -1 where a field is wrong."""
    fields = BLOCK | _AREAS
    found = {name: _number(rows.columns[name], digits) for name, digits in fields.items()}
    empty = np.logical_and.reduce([np.diff(_offsets(rows.columns[name])) == 0 for name in fields])
    if empty.any():
        faults.add_lines(file, "this line is empty", rows.lines[empty].tolist())
    for name, digits in fields.items():
        wrong = (found[name] < 0) & ~empty
        if wrong.any():
            faults.add_lines(file, f"this field is not {digits} digits", rows.lines[wrong].tolist(), name)
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


def check_states(geography: Geography, config: Config, faults: Faults) -> None:
    """Whether the runs of the config have blocks, and the state filter names just the states that there are."""
    present = {int(state) for state in np.unique(geography.state)}
    for state in sorted(present - STATES - {PR_CODE}):
        faults.add(
            GRF,
            f"{state:02d} is no code of a state, the District of Columbia or Puerto Rico",
            None,
            "TABBLKST",
        )
    if config.run_pr and PR_CODE not in present:
        words = f"is true, and no block of {GRF} lies in Puerto Rico (72): set it to false, or add its blocks"
        faults.add(CONFIG, words, None, "run_pr")
    if not config.run_us or "state_filter_us" in config.faulty:
        return
    named = {int(state) for state in config.states}
    for state in sorted(named - present):
        words = f'names "{state:02d}", of which {GRF} has no block: take it out, or add its blocks'
        faults.add(CONFIG, words, None, "state_filter_us")
    for state in sorted((present & STATES) - named):
        words = f'does not name "{state:02d}", of which {GRF} has blocks: name it, or take its blocks and people out'
        faults.add(CONFIG, words, None, "state_filter_us")
