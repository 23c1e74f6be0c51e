"""Public files of a geography: some columns of a CSV or Parquet file, always as text.

Codes such as "01001" are text, whatever they look like: a column is never read as numbers, so that no leading zero is
lost. Empty text is None. What is published of them is the columns that are used, written anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ....domain.codes import Numbered
from ....spec.areas import GeographySection
from ....spec.problems import KeyPath, Problems, nearest, shown
from ....spec.public_file import TextColumns, read_text_columns
from .condition import LeafCondition, made_columns, read_condition, read_conditions, refuse_made, sources_of

AXES = ("x", "y")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def read_places(columns: Mapping[str, Numbered], kept: np.ndarray) -> np.ndarray | None:
    """Shape (leaves on the spine, 2): where each is; None where the file has no such columns, or a gap in them.

    Args:
        kept: shape (leaves of the file,): which of them are on the spine.

    >>> from tabulae.domain.codes import numbered
    >>> text = {"x": numbered(np.array(["1", None, "3e1"])), "y": numbered(np.array(["-.5", None, "2"]))}
    >>> read_places(text, np.array([True, False, True])).tolist()
    [[1.0, -0.5], [30.0, 2.0]]
    >>> read_places(text, np.ones(3, bool)) is None
    True
    """
    if not all(axis in columns for axis in AXES):
        return None
    found = np.stack([columns[axis].each(_number, np.nan)[kept] for axis in AXES], axis=1)
    return found if np.isfinite(found).all() else None


def only_numbers(column: Numbered) -> Numbered:
    """The cells of an axis that are numbers; none in place of the others."""
    return column.only(np.isfinite([_number(text) for text in column.codes.tolist()]))


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else np.nan


@dataclass(frozen=True, eq=False)
class Leaves:
    """Every leaf of the file, in its order.

    Attributes:
        levels: names of the levels, the leaf last.
        columns: level or entity -> the code of the unit or entity of each leaf, or none.
        inside: shape (leaves,), boolean: which leaves ``split`` puts in a branch of their own; None without one.
        text: the columns of the file that are used, as it has them; and those of a map, where it has them.
        row: shape (leaves,): the line of each leaf in the file, or its row, as ``unit`` says.
        unit: "line" or "row".
    """

    levels: tuple[str, ...]
    columns: Mapping[str, Numbered]
    inside: np.ndarray | None
    text: Mapping[str, Numbered]
    row: np.ndarray
    unit: str

    @property
    def used(self) -> frozenset[str]:
        return frozenset(self.columns)

    @property
    def codes(self) -> Numbered:
        """Of the leaves themselves: each has one of its own."""
        return self.columns[self.levels[-1]]


def read_leaves(section: GeographySection, base: Path, problems: Problems) -> Leaves | None:
    """The leaves that ``[geography]`` names; None, with the mistakes recorded, where they cannot be read."""
    before = len(problems.found)
    split = read_condition(section.split, ("geography", "split"), problems)
    conditions = read_conditions(section, problems)
    needed = _needed(section, split, conditions, problems)
    if section.file is None or not section.levels or len(problems.found) > before:
        return None
    found = read_text_columns(base, section.file, ("geography", "file"), problems, needed, numbers=AXES)
    if found is None:
        return None
    made = made_columns(section, found.numbered, conditions, problems)
    every = {**found.numbered, **made}
    _check_units(tuple(section.levels), every, found)
    columns = {name: _without(every[name], section.outside.get(name)) for name in (*needed, *made)}
    inside = None
    if split is not None:
        inside = split.holds(every)
        if inside.all() or not inside.any():
            which = "every leaf" if inside.any() else "no leaf"
            problems.add(
                ("geography", "split"),
                f"holds for {which} of {section.file}, so that it splits nothing: remove it",
            )
    if len(problems.found) > before:
        return None
    return Leaves(tuple(section.levels), columns, inside, found.numbered, found.line, found.mistakes.unit)


def _needed(
    section: GeographySection,
    split: LeafCondition | None,
    conditions: Mapping[str, LeafCondition | None],
    problems: Problems,
) -> dict[str, KeyPath]:
    """Every column of the file that the section uses, with the key that asks for it first."""
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
            told = f"is not an entity of the section; {nearest(name, sorted(known))}"
            problems.add(("geography", "outside", name), told)
    asked += [(name, ("geography", "split")) for name in (split.columns if split else ())]
    refuse_made(section, asked, problems)
    asked += sources_of(section, conditions, problems)
    needed: dict[str, KeyPath] = {}
    for name, path in asked:
        if name not in section.columns:
            needed.setdefault(name, path)
    return needed


def _without(column: Numbered, outside: str | None) -> Numbered:
    return column if outside is None else column.only(column.codes != outside)


def _check_units(levels: tuple[str, ...], columns: Mapping[str, Numbered], found: TextColumns) -> None:
    """Tell of each mistake in the codes of the levels."""
    number, codes = columns[levels[-1]]
    for row in np.flatnonzero(number < 0).tolist():
        found.mistakes.tell(
            int(found.line[row]), f"{levels[-1]} is empty: each row is one leaf, with its code"
        )
    for above, below in pairwise(levels):
        _check_nested(above, below, columns, found)
    first = _first(number, codes.size)
    above = columns[levels[max(len(levels) - 2, 0)]].index
    twice = (number >= 0) & (first[number] != np.arange(number.size))
    same = above == above[first[number]]
    for row in np.flatnonzero(twice & same).tolist():
        line = int(found.line[first[number[row]]])
        told = f"{levels[-1]} {shown(str(codes[number[row]]))} is already on {found.mistakes.unit} {line}"
        found.mistakes.tell(int(found.line[row]), told)


def _check_nested(above: str, below: str, columns: Mapping[str, Numbered], found: TextColumns) -> None:
    (upper, upper_codes), (lower, lower_codes) = columns[above], columns[below]
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
    first = np.zeros(max(size, 1), np.int64)
    rows = np.flatnonzero(number >= 0)[::-1]
    first[number[rows]] = rows
    return first
