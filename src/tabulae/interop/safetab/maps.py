"""The Bureau's subject matter: codes, characteristic iterations and their members from four public maps, and what the
engine calls them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...domain import CodeFamily, Group, GroupKind, GroupMap, GroupSelection
from .text import Faults, read_rows

RACE = "race-characteristic-iterations.txt"
ETHNICITY = "ethnicity-characteristic-iterations.txt"
CODES = "race-and-ethnicity-codes.txt"
MEMBERS = "race-and-ethnicity-code-to-iteration.txt"

_CODE = re.compile(r"[1-9]\d{3}", re.ASCII)
_ITERATION = re.compile(r"\d{4}", re.ASCII)
_TRUTH = {"True": True, "False": False}


@dataclass(frozen=True)
class Iteration:
    """One characteristic iteration, which becomes a group: ``alone`` is None for those of ethnicity.

    LEVEL 0 is never tabulated.
    """

    code: str
    label: str
    level: str
    alone: bool | None
    detailed_only: bool
    coarse_only: bool


@dataclass(frozen=True)
class Maps:
    """The maps as they are written, in their files' order.

    Args:
        codes: every race and ethnicity code; None where their file has a mistake.
        race, ethnicity: the iterations, of level 0, too.
        members: pairs (iteration, code).
    """

    codes: tuple[str, ...] | None
    race: tuple[Iteration, ...]
    ethnicity: tuple[Iteration, ...]
    members: tuple[tuple[str, str], ...]


def read_maps(folder: Path, faults: Faults) -> Maps:
    """Read the four maps, and check each rule and that they agree; what has a mistake is left out."""
    before = faults.count
    codes = _read_codes(folder / CODES, faults)
    known_codes = codes if faults.count == before else None
    before = faults.count
    race, race_lines = _read_iterations(folder / RACE, faults, alone=True)
    ethnicity, ethnicity_lines = _read_iterations(folder / ETHNICITY, faults, alone=False)
    iterations_sound = faults.count == before
    for code, line in ethnicity_lines.items():
        if code in race_lines:
            words = f"{code} is an iteration of race, too ({RACE}, line {race_lines[code]}): name one anew"
            faults.add_row(ETHNICITY, words, line, "ITERATION_CODE")
    known = {
        "ITERATION_CODE": {*race_lines, *ethnicity_lines} if iterations_sound else None,
        "RACE_ETH_CODE": None if known_codes is None else set(known_codes),
    }
    members = _read_members(folder / MEMBERS, known, faults)
    return Maps(known_codes, race, ethnicity, members)


def _table(path: Path, columns: Sequence[str], faults: Faults) -> list[tuple[int, tuple[str, ...]]]:
    """The rows of a map with their line numbers."""
    rows = []
    for part in read_rows(path, columns, faults):
        values = zip(*(part.columns[name].to_pylist() for name in columns), strict=True)
        rows += [(int(line), row) for line, row in zip(part.lines, values, strict=True)]
    while rows and not any(rows[-1][1]):  # one of the Bureau's own files ends so
        rows.pop()
    for line, row in rows:
        if not any(row):
            faults.add_row(path.name, "this line is empty", line)
    return [(line, row) for line, row in rows if any(row)]


def _shown(value: str) -> str:
    """A public value for a message, at most 40 letters of it."""
    return repr(value if len(value) <= 40 else f"{value[:37]}...")


def _read_codes(path: Path, faults: Faults) -> tuple[str, ...]:
    first: dict[str, int] = {}
    for line, (code, _) in _table(path, ("RACE_ETH_CODE", "RACE_ETH_NAME"), faults):
        if not _CODE.fullmatch(code):
            words = f"{_shown(code)} is not a code: four digits, the first of them not 0"
            faults.add_row(path.name, words, line, "RACE_ETH_CODE")
        elif code in first:
            faults.add_row(
                path.name, f"{code} stands in line {first[code]}, too: keep one", line, "RACE_ETH_CODE"
            )
        else:
            first[code] = line
    return tuple(first)


def _read_iterations(
    path: Path, faults: Faults, *, alone: bool
) -> tuple[tuple[Iteration, ...], Mapping[str, int]]:
    """The iterations of one file without mistakes, and the line of each code that it names, sound or not."""
    columns = ("ITERATION_CODE", "ITERATION_NAME", "LEVEL", *(("ALONE",) if alone else ()))
    columns += ("DETAILED_ONLY", "COARSE_ONLY")
    found, lines = [], {}
    for line, row in _table(path, columns, faults):
        made = _iteration(path.name, line, dict(zip(columns, row, strict=True)), faults)
        code = row[0]
        if code in lines:
            words = f"{_shown(code)} stands in line {lines[code]}, too: keep one"
            faults.add_row(path.name, words, line, "ITERATION_CODE")
            continue
        lines[code] = line
        if made is not None:
            found.append(made)
    return tuple(found), lines


def _iteration(file: str, line: int, row: Mapping[str, str], faults: Faults) -> Iteration | None:
    """One row, or None and its mistakes."""
    count = faults.count
    code, level = row["ITERATION_CODE"], row["LEVEL"]
    if not _ITERATION.fullmatch(code):
        faults.add_row(file, f"{_shown(code)} is not an iteration code: four digits", line, "ITERATION_CODE")
    if level not in ("0", "1", "2"):
        faults.add_row(file, f"{_shown(level)} is not a level: 0, 1 or 2", line, "LEVEL")
    if "ALONE" in row and row["ALONE"] not in _TRUTH:
        faults.add_row(file, f"must be True or False, not {_shown(row['ALONE'])}", line, "ALONE")
    for name in ("DETAILED_ONLY", "COARSE_ONLY"):
        _check_flag(file, line, name, row[name], level, faults)
    if row["DETAILED_ONLY"] == row["COARSE_ONLY"] == "True":
        words = "DETAILED_ONLY is True, too: such an iteration would be tabulated nowhere"
        faults.add_row(file, words, line, "COARSE_ONLY")
    if faults.count > count:
        return None
    return Iteration(
        code,
        row["ITERATION_NAME"],
        level,
        _TRUTH[row["ALONE"]] if "ALONE" in row else None,
        row["DETAILED_ONLY"] == "True",
        row["COARSE_ONLY"] == "True",
    )


def _check_flag(file: str, line: int, name: str, value: str, level: str, faults: Faults) -> None:
    """A flag is True or False, and Null just where the level is 0."""
    if level == "0" and value != "Null":
        words = f"must be Null, not {_shown(value)}: an iteration of level 0 is not tabulated"
        faults.add_row(file, words, line, name)
    elif level != "0" and value not in _TRUTH:
        hint = ": Null is for level 0" if value == "Null" else ""
        faults.add_row(file, f"must be True or False, not {_shown(value)}{hint}", line, name)


def _read_members(
    path: Path, known: Mapping[str, set[str] | None], faults: Faults
) -> tuple[tuple[str, str], ...]:
    """The pairs (iteration, code); a side that has mistakes of its own is not looked up."""
    where = {"ITERATION_CODE": f"{RACE} and {ETHNICITY}", "RACE_ETH_CODE": CODES}
    first: dict[tuple[str, str], int] = {}
    for line, (iteration, code) in _table(path, tuple(known), faults):
        sound = True
        for name, value in (("ITERATION_CODE", iteration), ("RACE_ETH_CODE", code)):
            listed = known[name]
            if listed is not None and value not in listed:
                faults.add_row(path.name, f"{_shown(value)} is not listed in {where[name]}", line, name)
                sound = False
        if (iteration, code) in first:
            words = f"the pair stands in line {first[iteration, code]}, too: keep one"
            faults.add_row(path.name, words, line, "RACE_ETH_CODE")
        elif sound:
            first[iteration, code] = line
    return tuple(first)


US = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
"""The run of the states and the District of Columbia."""

PUERTO_RICO = ("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE")
"""The run of Puerto Rico."""

WIDE = frozenset({"USA", "STATE", "PR-STATE"})
"""Nation and states: they take the groups that are detailed only, and none of their counts is suppressed."""

LEVELS = ("1", "2")
"""Levels of characteristic iterations: regional and detailed groups."""

BLOCK = {"TABBLKST": 2, "TABBLKCOU": 3, "TABTRACTCE": 6, "TABBLK": 4}
"""The columns that name a block, with their numbers of digits."""

MOST_CODES = 8
RACES = tuple(f"QRACE{i}" for i in range(1, MOST_CODES + 1))
"""The columns of race codes."""


def families(codes: tuple[str, ...], most: int) -> tuple[CodeFamily, CodeFamily]:
    """Race codes, of which the first ``most`` of a record count, and its one ethnicity code."""
    return CodeFamily("race", codes, most), CodeFamily("ethnicity", codes, 1)


def group_map(maps: Maps, most: int, *, total_only: bool = True) -> GroupMap:
    """The iterations of levels 1 and 2 as groups, in the order of their codes; the maps have no mistake.

    Those that are detailed only are of nation and states; with ``total_only`` they get no table there but the total.
    """
    assert maps.codes is not None
    wide, narrow = WIDE, frozenset(US + PUERTO_RICO) - WIDE
    groups = [
        Group(
            i.code,
            i.level,
            "ethnicity" if i.alone is None else "race",
            "alone" if i.alone else "any",
            i.label,
            total_only=i.detailed_only and total_only,
            regions=wide if i.detailed_only else narrow if i.coarse_only else None,
        )
        for i in sorted(maps.race + maps.ethnicity, key=lambda i: i.code)
        if i.level != "0"
    ]
    kept = {group.code for group in groups}
    members = [pair for pair in maps.members if pair[0] in kept]
    return GroupMap(families(maps.codes, most), tuple(groups), members)


def production_stability(selection: GroupSelection, most: int) -> int:
    """The Bureau's formula for the most groups of a selection that a record is in: ``h_r max(2, k) + h_e``.

    h is the most groups that one code is a member of, among the alone ones of race and among those of ethnicity; k is
    how many race codes count. Production takes h over the iterations of a level that it tabulates in a region type. The
    formula is no bound where the alone iterations and those in combination are not mirror images.
    """
    mirrored: tuple[tuple[str, GroupKind], ...] = (("race", "alone"), ("ethnicity", "any"))
    h_r, h_e = (
        int(selection.member[family][:, selection.columns(family, kind)].sum(axis=1).max(initial=0))
        for family, kind in mirrored
    )
    return h_r * max(2, most) + h_e
