"""The file of a ``[[bound]]``: the least and the most that each leaf can have, read with every mistake's line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..domain import Domain
from ..geography.constraints import NO_LIMIT
from ..geography.layout import Layout, Margin
from .geography_file import (
    TextColumns,
    encoded,
    read_text_columns,
)
from .geography_leaves import Leaves
from .geography_shape import BoundEntry
from .problems import Problems, shown

LEAST, MOST = "at_least", "at_most"

LARGEST = 10**12
"""The largest limit that a file may give."""


@dataclass(frozen=True, eq=False)
class Bound:
    """The limits of one file.

    Attributes:
        at: position of the entry in the document.
        file: as the document names it.
        margin: over dense attributes: what is limited.
        lower, upper: shape (leaves of the file, classes), int64; ``NO_LIMIT`` where there is none.
        content: the columns of the file that are read, written anew.
    """

    at: int
    file: str
    margin: Margin
    lower: np.ndarray
    upper: np.ndarray
    content: bytes

    @property
    def is_limiting(self) -> bool:
        """Whether it says more than what cannot occur."""
        return bool((self.lower > 0).any() or ((self.upper > 0) & (self.upper < NO_LIMIT)).any())


def read_bound(
    entry: BoundEntry | None, at: int, leaves: Leaves, layout: Layout, base: Path, problems: Problems
) -> Bound | None:
    """The limits of an entry's file; None, with the mistakes recorded, where it has some.

    Args:
        entry: the entry as read; None where it could not be.
        at: its position in the document.
        leaves: of the geography.
        layout: of the cells; the entry's attributes are dense.
        base: the folder that the file is relative to.
        problems: where mistakes are recorded.
    """
    if entry is None or entry.file is None or entry.attributes is None:
        return None
    path, leaf = ("bound", at, "file"), leaves.levels[-1]
    needed = {leaf: path} | dict.fromkeys(entry.attributes, ("bound", at, "attributes"))
    found = read_text_columns(base, entry.file, path, problems, needed, (LEAST, MOST))
    if found is None:
        return None
    if not {LEAST, MOST} & found.columns.keys():
        found.mistakes.tell(
            1, f"has neither a column {LEAST} nor {MOST}: limits stand in one of them, or in both"
        )
        return None
    margin = layout.margin(entry.attributes)
    row, group = _leaf_of(found, leaves), _class_of(found, margin, layout.domain)
    least, most = _limits(found, LEAST, 0), _limits(found, MOST, NO_LIMIT)
    for i in np.flatnonzero((least > most) & (most >= 0)).tolist():
        found.mistakes.tell(
            int(found.line[i]), f"{LEAST} is {least[i]} and {MOST} is {most[i]}: no count is both"
        )
    if found.mistakes.told:
        return None
    _check_once(row * margin.classes + group, found)
    shape = (leaves.codes.size, margin.classes)
    lower = np.zeros(shape, np.int64)
    upper = np.full(shape, 0 if entry.unlisted == "zero" else NO_LIMIT, np.int64)
    lower[row, group], upper[row, group] = least, most
    if found.mistakes.told:
        return None
    return Bound(at, entry.file, margin, lower, upper, encoded(found.columns))


def _leaf_of(found: TextColumns, leaves: Leaves) -> np.ndarray:
    """Shape (rows,): the leaf of each row; -1, with the mistake told, where there is none."""
    name = leaves.levels[-1]
    place = {code: i for i, code in enumerate(leaves.codes.tolist())}
    codes = found.columns[name].tolist()
    row = np.fromiter((place.get(code, -1) for code in codes), np.int64, len(codes))
    for i in np.flatnonzero(row < 0).tolist():
        told = (
            f"{name} is empty"
            if codes[i] is None
            else f"no leaf of the geography has {name} {shown(codes[i])}"
        )
        found.mistakes.tell(int(found.line[i]), told)
    return row


def _class_of(found: TextColumns, margin: Margin, domain: Domain) -> np.ndarray:
    """Shape (rows,): the class of the margin that each row is about."""
    ordered = sorted(margin.names, key=lambda name: domain.axis(domain.resolve(name).attribute.name))
    total = np.zeros(found.line.size, np.int64)
    for name in ordered:
        cells = found.columns[name]
        position = {text: _position(domain, name, text) for text in set(cells.tolist())}
        each = np.array([position[text] for text in cells.tolist()], np.int64)
        for i in np.flatnonzero(each < 0).tolist():
            told = f"{name} is empty" if cells[i] is None else f"there is no {name} {shown(cells[i])}"
            found.mistakes.tell(int(found.line[i]), f"{told}; {_known(domain, name)}")
        total = total * len(domain.resolve(name).labels) + each
    return total


def _position(domain: Domain, name: str, text: str | None) -> int:
    """The category, or class of a recode, that a text names; -1 for none."""
    if text is None:
        return -1
    if domain.recode(name) is not None:
        labels = domain.resolve(name).labels
        return labels.index(text) if text in labels else -1
    attribute = domain[name]
    whole = attribute.numeric and text.lstrip("+-").isdecimal()
    position = attribute.position(int(text) if whole else text)
    return -1 if position is None else position


def _known(domain: Domain, name: str) -> str:
    labels = domain.resolve(name).labels
    return f"there are {', '.join(map(shown, labels[:8]))}{', ...' if len(labels) > 8 else ''}"


def _limits(found: TextColumns, column: str, otherwise: int) -> np.ndarray:
    """Shape (rows,): limits as whole numbers."""
    if column not in found.columns:
        return np.full(found.line.size, otherwise, np.int64)
    cells = found.columns[column].tolist()
    value = {text: _whole(text, otherwise) for text in set(cells)}
    limits = np.array([value[text] for text in cells], np.int64)
    for i in np.flatnonzero(limits < 0).tolist():
        told = (
            f"{column} is {shown(cells[i])}: write a whole number from 0 to {LARGEST:,}, without separators"
        )
        found.mistakes.tell(int(found.line[i]), told)
    return limits


def _whole(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal()) or len(text) > 15 or int(text) > LARGEST:
        return -1
    return int(text)


def _check_once(key: np.ndarray, found: TextColumns) -> None:
    """Tell of rows about what another row is about already."""
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0) + 1
    for i in sorted(again.tolist(), key=lambda i: order[i]):
        before = int(found.line[order[i - 1]])
        told = f"is about the same leaf and values as {found.mistakes.unit} {before}"
        found.mistakes.tell(int(found.line[order[i]]), told)
