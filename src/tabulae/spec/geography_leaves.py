"""The file of a geography: one row a leaf, with the codes of the levels and of the entities that it lies in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..errors import InvalidArgument
from ..geography.codes import numbered
from .geography_condition import LeafCondition
from .geography_file import TextColumns, read_text_columns
from .geography_places import AXES
from .geography_shape import GeographySection
from .lines import KeyPath
from .problems import (
    Problems,
    nearest,
    shown,
)


@dataclass(frozen=True, eq=False)
class Leaves:
    """Every leaf of the file, in its order.

    Attributes:
        levels: names of the levels, the leaf last.
        columns: level or entity -> shape (leaves,), object: the code of the unit or entity; None where there is none.
        inside: shape (leaves,), boolean: which leaves ``split`` puts in a branch of their own; None without one.
        text: column -> shape (leaves,), object: the columns of the file that are used, as it has them; and those of a
            map, where it has them.
        row: shape (leaves,): the line of each leaf in the file, or its row, as ``unit`` says.
        unit: "line" or "row".
    """

    levels: tuple[str, ...]
    columns: Mapping[str, np.ndarray]
    inside: np.ndarray | None
    text: Mapping[str, np.ndarray]
    row: np.ndarray
    unit: str

    @property
    def used(self) -> frozenset[str]:
        """The columns that the section asks for."""
        return frozenset(self.columns)

    @property
    def codes(self) -> np.ndarray:
        """Shape (leaves,): the leaves' codes."""
        return self.columns[self.levels[-1]]


def read_leaves(section: GeographySection, base: Path, problems: Problems) -> Leaves | None:
    """The leaves that ``[geography]`` names; None, with the mistakes recorded, where they cannot be read.

    Args:
        section: the section as read.
        base: the folder that its file is relative to.
        problems: where mistakes are recorded.
    """
    before = len(problems.found)
    split = _split(section, problems)
    needed = _needed(section, split, problems)
    if section.file is None or not section.levels or len(problems.found) > before:
        return None
    found = read_text_columns(base, section.file, ("geography", "file"), problems, needed, numbers=AXES)
    if found is None:
        return None
    _check_units(tuple(section.levels), found)
    columns = {name: _without(found.columns[name], section.outside.get(name)) for name in needed}
    inside = None
    if split is not None:
        inside = split.holds(found.columns)
        if inside.all() or not inside.any():
            which = "every leaf" if inside.any() else "no leaf"
            problems.add(
                ("geography", "split"),
                f"holds for {which} of {section.file}, so that it splits nothing: remove it",
            )
    if len(problems.found) > before:
        return None
    return Leaves(tuple(section.levels), columns, inside, found.columns, found.line, found.mistakes.unit)


def _split(section: GeographySection, problems: Problems) -> LeafCondition | None:
    if section.split is None:
        return None
    try:
        return LeafCondition.parse(section.split)
    except InvalidArgument as error:
        problems.add(("geography", "split"), str(error))
        return None


def _needed(section: GeographySection, split: LeafCondition | None, problems: Problems) -> dict[str, KeyPath]:
    """Every column that the section uses, with the key that asks for it first."""
    asked: list[tuple[str, KeyPath]] = [
        *((name, ("geography", "levels", i)) for i, name in enumerate(section.levels or ())),
        *((name, ("geography", "entities", i)) for i, name in enumerate(section.entities)),
    ]
    if section.optimise is not None:
        for i, name in enumerate(section.optimise.entities or ()):
            asked.append((name, ("geography", "optimise", "entities", i)))
    for name, path in asked:
        if "entities" in path and name in (section.levels or ()):
            told = f"{shown(name)} is a level: entities are areas that cut across the levels"
            problems.add(path, told)
    known = {name for name, path in asked if "entities" in path}
    for name in section.outside:
        if name not in known:
            told = f"is no entity of the section; {nearest(name, sorted(known))}"
            problems.add(("geography", "outside", name), told)
    asked += [(name, ("geography", "split")) for name in (split.columns if split else ())]
    needed: dict[str, KeyPath] = {}
    for name, path in asked:
        needed.setdefault(name, path)
    return needed


def _without(column: np.ndarray, outside: str | None) -> np.ndarray:
    """A column with None in place of the code that means none."""
    if outside is None:
        return column
    found = column.copy()
    found[np.asarray(column == outside, bool)] = None
    return found


def _check_units(levels: tuple[str, ...], found: TextColumns) -> None:
    """Every leaf has a code and one row, and every unit one parent; else the lines are told."""
    index = {name: numbered(found.columns[name]) for name in levels}
    number, codes = index[levels[-1]]
    for row in np.flatnonzero(number < 0).tolist():
        found.mistakes.tell(
            int(found.line[row]), f"{levels[-1]} is empty: each row is one leaf, with its code"
        )
    for above, below in pairwise(levels):
        _check_nested(above, below, index, found)
    first = _first(number, codes.size)
    above = index[levels[max(len(levels) - 2, 0)]][0]
    twice = (number >= 0) & (first[number] != np.arange(number.size))
    same = above == above[first[number]]
    for row in np.flatnonzero(twice & same).tolist():
        line = int(found.line[first[number[row]]])
        told = f"{levels[-1]} {shown(str(codes[number[row]]))} stands on {found.mistakes.unit} {line} already"
        found.mistakes.tell(int(found.line[row]), told)


def _check_nested(
    above: str, below: str, index: Mapping[str, tuple[np.ndarray, np.ndarray]], found: TextColumns
) -> None:
    """Tell of each unit of the lower level that lies in two of the upper."""
    (upper, upper_codes), (lower, lower_codes) = index[above], index[below]
    both = np.flatnonzero((upper >= 0) & (lower >= 0))
    first = np.full(lower_codes.size, -1)
    first[lower[both[::-1]]] = both[::-1]
    stray = both[upper[both] != upper[first[lower[both]]]]
    _, once = np.unique(lower[stray], return_index=True)
    for row in stray[np.sort(once)].tolist():
        begun = int(first[lower[row]])
        found.mistakes.tell(
            int(found.line[row]),
            f"{below} {shown(str(lower_codes[lower[row]]))} lies in {above} {shown(str(upper_codes[upper[row]]))}, and "
            f"in {shown(str(upper_codes[upper[begun]]))} by {found.mistakes.unit} {found.line[begun]}: a unit has one "
            f"parent. Where codes are numbered afresh in each {above}, write them in full",
        )


def _first(number: np.ndarray, size: int) -> np.ndarray:
    """The first row of each code."""
    first = np.zeros(max(size, 1), np.int64)
    rows = np.flatnonzero(number >= 0)[::-1]
    first[number[rows]] = rows
    return first
