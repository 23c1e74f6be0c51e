"""Areas within areas: the levels of a geography, and the unit of each level that every leaf lies in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ....domain.codes import Numbered, numbered
from ....errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A rooted tree of units in levels, all leaves on the last one.

    A branch that ends early, or leaves a level out, is written with units of one child: the same area stands at
    several levels.

    Args:
        levels: names, from the root's level to the leaves'.
        codes: for each level, shape (units,): names of its units.
        units: for each level, shape (leaves,): the unit that each leaf lies in. All 0 for the root; each leaf itself
            on the last level.
    """

    levels: tuple[str, ...]
    codes: tuple[np.ndarray, ...]
    units: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        for array in (*self.codes, *self.units):
            array.setflags(write=False)

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def leaves(self) -> int:
        return self.units[-1].size

    @cached_property
    def parents(self) -> tuple[np.ndarray, ...]:
        """For each level, shape (units,): the unit of the level above that each lies in; -1 for the root."""
        found = [np.array([-1])]
        for above, below, codes in zip(self.units, self.units[1:], self.codes[1:], strict=False):
            parent = np.empty(len(codes), np.int64)
            parent[below] = above
            found.append(parent)
        return tuple(found)

    def with_level(self, level: int, units: np.ndarray, codes: np.ndarray) -> Hierarchy:
        """The same hierarchy with one level defined anew, between the levels above and below it."""
        every, names = list(self.units), list(self.codes)
        every[level], names[level] = units, codes
        return replace(self, units=tuple(every), codes=tuple(names))


def texts(values: np.ndarray) -> Any:
    """An object array of text, None where there is none, as an Arrow array; None where a cell is anything else.

    >>> texts(np.array(["a", None], object)).null_count, texts(np.array(["a", 1], object))
    (1, None)
    """
    import pyarrow as pa

    if not set(map(type, values.tolist())) <= {str, np.str_, type(None)}:
        return None
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


ROOT = "root"


def is_missing(code: object) -> bool:
    """Whether a code says that there is none: None, empty text or NaN."""
    return code is None or code == "" or code != code


def _is_broken(code: object) -> bool:
    """Whether a code is text that no file or array can hold: with half of a surrogate pair, or a null character."""
    return any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in str(code))


def code_column(values: Sequence[Any] | np.ndarray, name: str) -> np.ndarray:
    """Codes as text, shape (rows,), None where there is none."""
    import pyarrow.compute as pc

    listed = not hasattr(values, "__array__")
    if listed:  # messages show codes as people write them, and not as numpy does
        values = [str(value) if isinstance(value, np.str_) else value for value in values]
    given = np.fromiter(values, object, len(values)) if listed else np.array(values, object)
    if given.ndim == 1 and (text := texts(given)) is not None:
        odd = pc.call_function("match_substring", [text], pc.MatchSubstringOptions("\0"))
        if not pc.call_function("any", [odd]).as_py():
            given[given == ""] = None
            return given
    column = np.empty(len(given), object)
    for row, value in enumerate(given.tolist()):
        if is_missing(value):
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer) or _is_broken(value):
            raise InvalidArgument(
                f"{name}, row {row + 1}: {value!r} is not a code. Codes are text ('01001') or whole numbers; a column "
                "read as floating point has lost its leading zeros: read it as text"
            )
        column[row] = str(value)
    return column


def from_columns(
    codes: Mapping[str, Sequence[Any] | np.ndarray | Numbered], levels: Sequence[str]
) -> Hierarchy:
    """The hierarchy whose leaves are the rows; see ``Spine.from_codes``."""
    columns = _columns(codes, levels)
    labels, names = _labels(columns, levels)
    for level in range(1, len(levels)):
        _check_nested(labels[level - 1 : level + 1], levels[level - 1 : level + 1], names)
    _check_leaves(labels[-1], names, levels[-1])
    top, last = labels[0], labels[-1]
    if last.size == 1:
        raise InvalidArgument(
            "a spine with one leaf has no geography in it: nothing lies beside the whole. Leave the geography out, "
            "or give one row for each leaf"
        )
    above = zip(labels[:-1], levels, strict=False)
    found = [*(_units(label, names, level) for label, level in above), (np.arange(last.size), names[last])]
    units, unit_codes = ([pair[i] for pair in found] for i in (0, 1))
    named = list(levels)
    if np.any(top != top[0]) or len(levels) == 1:
        if ROOT in levels:
            raise InvalidArgument(
                f"the first level, {levels[0]!r}, has several units, so a level {ROOT!r} is added above it, and "
                f"{ROOT!r} is already the name of a level: choose another"
            )
        named.insert(0, ROOT)
        units.insert(0, np.zeros(last.size, np.int64))
        unit_codes.insert(0, np.array([ROOT], object))
    return Hierarchy(tuple(named), tuple(unit_codes), tuple(units))


def numbered_codes(values: Sequence[Any] | np.ndarray | Numbered, name: str) -> Numbered:
    """Codes as a user gives them, numbered, unless they are."""
    return values if isinstance(values, Numbered) else numbered(code_column(values, name))


def _columns(
    codes: Mapping[str, Sequence[Any] | np.ndarray | Numbered], levels: Sequence[str]
) -> list[Numbered]:
    if isinstance(levels, str) or not levels:
        raise InvalidArgument(
            "levels is a list of level names from the top down, such as ['county', 'block']"
        )
    if len(set(levels)) != len(levels):
        raise InvalidArgument(f"levels names one level twice: {', '.join(levels)}")
    absent = [level for level in levels if level not in codes]
    if absent:
        raise InvalidArgument(
            f"codes has no column for level {absent[0]!r}; it has {', '.join(map(repr, codes)) or 'none at all'}"
        )
    columns = [numbered_codes(codes[level], f"level {level!r}") for level in levels]
    lengths = {level: column.index.size for level, column in zip(levels, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{level} {size}" for level, size in lengths.items())
        raise InvalidArgument(f"columns differ in length ({told}): each has one code for each leaf")
    if not columns[0].index.size:
        raise InvalidArgument("codes has no rows: a spine has one row for each leaf")
    return columns


def _labels(columns: list[Numbered], levels: Sequence[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """A number for each code of each level, and the codes by number.

    A unit of a lower level stands in where a level is left out, so that it is its own parent, and where a branch ends
    early its last unit stands at every level below.
    """
    numbers, names, first = [], [], 0
    for column in columns:
        numbers.append(np.where(column.index >= 0, column.index + first, -1))
        names.append(column.codes)
        first += column.codes.size
    above = numbers[0]
    from_above = [above := np.where(number < 0, above, number) for number in numbers]
    if np.any(above < 0):
        row = int(np.argmax(above < 0)) + 1
        raise InvalidArgument(f"row {row} has no code at any level ({', '.join(levels)})")
    below = np.full(above.size, -1)
    from_below = [below := np.where(number < 0, below, number) for number in reversed(numbers)][::-1]
    filled = [np.where(b < 0, a, b) for a, b in zip(from_above, from_below, strict=True)]
    return filled, np.concatenate(names)


def _units(label: np.ndarray, names: np.ndarray, level: str) -> tuple[np.ndarray, np.ndarray]:
    """The unit of each row, and the units' codes in rising order."""
    unique, unit = np.unique(label, return_inverse=True)
    order = np.argsort(names[unique].astype(str), kind="stable")
    codes = names[unique][order]
    twice = codes[1:] == codes[:-1]
    if np.any(twice):
        raise InvalidArgument(
            f"{codes[1:][twice][0]!r} is the code of two units at level {level!r}, one of which stands in for it from "
            "another level, where a code is left out: write codes in full, so that none is used at two levels"
        )
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return place[unit], codes


def _check_nested(labels: Sequence[np.ndarray], levels: Sequence[str], names: np.ndarray) -> None:
    above, below = labels
    first = np.empty(names.size, np.int64)  # the first row of each unit below
    first[below[::-1]] = np.arange(below.size)[::-1]
    strays = above != above[first[below]]
    if not np.any(strays):
        return
    row = int(np.argmax(strays))
    other = int(first[below[row]])
    raise InvalidArgument(
        f"{levels[1]} {names[below[row]]!r} lies in two units of {levels[0]}: in {names[above[other]]!r} by row "
        f"{other + 1} and in {names[above[row]]!r} by row {row + 1}. A unit has one parent; where codes are numbered "
        f"afresh inside each {levels[0]}, write them in full, with the code of the {levels[0]} in front"
    )


def _check_leaves(label: np.ndarray, names: np.ndarray, level: str) -> None:
    count = np.bincount(label)
    if count.max() == 1:
        return
    twice = int(np.argmax(count > 1))
    rows = np.flatnonzero(label == twice)[:2] + 1
    raise InvalidArgument(
        f"{level} {names[twice]!r} stands in {count[twice]} rows ({rows[0]} and {rows[1]}, to begin with): a "
        "leaf has one row. Records of people are counted over the spine, they are not what it is made from"
    )


def from_parent_column(codes: Sequence[Any], parents: Sequence[Any], levels: Sequence[str]) -> Hierarchy:
    """The tree in which each code names its parent; see ``Spine.from_parents``."""
    names, above = code_column(codes, "codes"), code_column(parents, "parents")
    if names.size != above.size:
        raise InvalidArgument(
            f"{names.size} codes and {above.size} parents: each code has one parent, or None"
        )
    row_of: dict[str, int] = {}
    for row, name in enumerate(names):
        if name is None:
            raise InvalidArgument(f"row {row + 1} has no code")
        if name in row_of:
            raise InvalidArgument(
                f"code {name!r} stands in rows {row_of[name] + 1} and {row + 1}: each unit has one row and one parent"
            )
        row_of[name] = row
    for row, name in enumerate(above):
        if name is not None and name not in row_of:
            raise InvalidArgument(
                f"row {row + 1}: the parent {name!r} of {names[row]!r} has no row of its own"
            )
    return _from_rows(names, np.array([-1 if name is None else row_of[name] for name in above]), levels)


def from_marks(marks: Sequence[str], codes: Sequence[Any], levels: Sequence[str]) -> Hierarchy:
    """The tree of a list in which as many '@' as a unit's level stand before its code; see ``Spine.from_sdc``."""
    names = code_column(codes, "codes")
    if len(marks) != names.size:
        raise InvalidArgument(f"{len(marks)} marks and {names.size} codes: each row has one of each")
    row_at: list[int] = []  # the last row of each level so far
    parents = []
    for row, mark in enumerate(marks):
        if not isinstance(mark, str) or not mark or mark.strip("@"):
            raise InvalidArgument(
                f"row {row + 1}: {mark!r} is not a level: write one '@' for the total, one more a level"
            )
        if names[row] is None:
            raise InvalidArgument(f"row {row + 1} has no code")
        if len(mark) > len(row_at) + 1:
            raise InvalidArgument(
                f"row {row + 1}: {names[row]!r} is at level {len(mark)} below a unit of level {len(row_at)}: a level "
                "is left out. Units follow the one they lie in, with one '@' more"
            )
        row_at = [*row_at[: len(mark) - 1], row]
        parents.append(row_at[-2] if len(row_at) > 1 else -1)
    if parents.count(-1) > 1:
        raise InvalidArgument(
            "the list has several rows with one '@': the total stands once, in the first row"
        )
    return _from_rows(names, np.array(parents, np.int64), levels)


def _from_rows(names: np.ndarray, parents: np.ndarray, levels: Sequence[str]) -> Hierarchy:
    """The paths from the root to each row that is nobody's parent, as columns."""
    depth = _depths(names, parents)
    deepest = int(depth.max(initial=-1)) + 1
    if isinstance(levels, str) or len(levels) != deepest:
        raise InvalidArgument(
            f"the tree has {deepest} levels and levels names {len(levels)}: give one name a level"
        )
    row = np.setdiff1d(np.arange(names.size), parents)
    columns = [np.empty(row.size, object) for _ in levels]
    while np.any(row >= 0):
        there = np.flatnonzero(row >= 0)
        for level in np.unique(depth[row[there]]):
            here = there[depth[row[there]] == level]
            columns[level][here] = names[row[here]]
        row = np.where(row >= 0, parents[row], -1)
    return from_columns(dict(zip(levels, columns, strict=True)), levels)


def _depths(names: np.ndarray, parents: np.ndarray) -> np.ndarray:
    depth = np.where(parents < 0, 0, -1)
    for level in range(names.size):
        reached = depth == level
        if not np.any(reached):
            break
        depth[(parents >= 0) & reached[parents]] = level + 1
    if np.any(depth < 0):
        raise InvalidArgument(
            f"{names[int(np.argmax(depth < 0))]!r} lies in itself, through its parents: a top unit has the parent None"
        )
    return depth
