"""Tables that public counts choose: those of an earlier release, so that no first stage spends budget on them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...domain import GroupMap, GroupSelection, Regions
from ...spec.problems import KeyPath, Problems, nearest, shown
from ...spec.public_file import TextColumns, read_text_columns

NOT_TABULATED = -2
"""The rung of a group that public counts do not list in a region: nothing is drawn for it, and nothing published."""

COLUMNS = ("region_type", "region", "group")
COUNT = "estimate"
"""The columns of a file of public counts: those of the totals of a release, whatever others it has."""


@dataclass(frozen=True, eq=False)
class ChosenTables:
    """The rungs of one level that public counts choose.

    Args:
        place: rising: ``region * groups + group`` of each group that is tabulated in a region; no other is.
        rung: the position on the ladder, 0 for the total, of each.
        sha256: of the file of counts.
    """

    place: np.ndarray
    rung: np.ndarray
    sha256: str

    def rungs(self, start: int, places: int) -> np.ndarray:
        """The rung of each of some consecutive places, int8; `NOT_TABULATED` where there is none.

        >>> ChosenTables(np.array([1, 4]), np.array([0, 2], np.int8), "").rungs(1, 4).tolist()
        [0, -2, -2, 2]
        """
        low, high = np.searchsorted(self.place, [start, start + places])
        found = np.full(places, NOT_TABULATED, np.int8)
        found[self.place[low:high] - start] = self.rung[low:high]
        return found


@dataclass(frozen=True, eq=False)
class PublicCounts:
    """What was published of groups before: the counts of one region type each, and the file that says them.

    Args:
        rows: region type -> region positions, positions of groups in ``groups.groups``, and counts, of one length.
        groups: the map whose groups are meant.
        name: that the file is published under.
        content: the file.
    """

    rows: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    groups: GroupMap
    name: str
    content: bytes

    @cached_property
    def sha256(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.content).hexdigest()

    def choose(self, regions: Regions, selection: GroupSelection, thresholds: Sequence[int]) -> ChosenTables:
        """As many thresholds as the public count of a group reaches, so high on the ladder is its table.

        Groups that a level does not have are left out, as are places without a public count.

        Privacy:
            None is spent: nothing but public files is read.
        """
        region, group, count = self.rows.get(regions.name, (np.zeros(0, np.int64),) * 3)
        column = {each.code: i for i, each in enumerate(selection.groups)}
        of_group = np.array([column.get(each.code, -1) for each in self.groups.groups], np.int64)
        kept = np.flatnonzero(of_group[group] >= 0)
        place = region[kept] * len(selection) + of_group[group[kept]]
        order = np.argsort(place)
        steps = np.asarray(thresholds, float)
        rung = np.searchsorted(steps, count[kept[order]], side="right").astype(np.int8)
        return ChosenTables(place[order], rung, self.sha256)


def read_public_counts(
    base: Path,
    name: str,
    groups: GroupMap,
    regions: Mapping[str, Regions],
    path: KeyPath,
    problems: Problems,
) -> PublicCounts | None:
    """The counts of a CSV or Parquet file, a row a group in a region; None, with the mistakes recorded.

    Args:
        base: the folder that ``name`` is relative to.
        groups, regions: what rows may be of, and nothing else.
        path: the key that names the file.
        problems: where mistakes are recorded.
    """
    file = read_text_columns(base, name, path, problems, dict.fromkeys(COLUMNS, path), numbers=[COUNT])
    if file is None:
        return None
    if COUNT not in file.columns:
        file.mistakes.tell(1, f"the header needs a column {shown(COUNT)}, once, beside {', '.join(COLUMNS)}")
        return None
    kinds = {kind: i for i, kind in enumerate(regions)}
    kind = _positions(file, "region_type", kinds, "region type")
    group = _positions(file, "group", {each.code: i for i, each in enumerate(groups.groups)}, "group")
    count = _counts(file)
    rows = {}
    for each, i in kinds.items():
        at = np.flatnonzero(kind == i)
        of = {label: j for j, label in enumerate(regions[each].ids)}
        rows[each] = (_positions(file, "region", of, f"region of {each}", at), group[at], count[at])
        _check_once(file, at, rows[each][0] * len(groups.groups) + rows[each][1])
    kept = f"counts.{'parquet' if file.mistakes.unit == 'row' else 'csv'}"
    return None if file.mistakes.told else PublicCounts(rows, groups, kept, file.content)


def _positions(
    file: TextColumns, column: str, known: Mapping[str, int], what: str, at: np.ndarray | None = None
) -> np.ndarray:
    """The position of each cell of a column, -1 where it is unknown, which is told."""
    lines, cells = (each if at is None else each[at] for each in (file.line, file.columns[column]))
    found = np.array([known.get(cell, -1) for cell in cells.tolist()], np.int64)
    for i in np.flatnonzero(found < 0).tolist():
        said = "" if cells[i] is None else cells[i]
        told = f"there is no {what} {shown(said)}; {nearest(said, known)}" if said else f"{column} is empty"
        file.mistakes.tell(int(lines[i]), told)
    return found


def _counts(file: TextColumns) -> np.ndarray:
    """The counts as numbers."""
    found = np.zeros(file.line.size)
    for i, cell in enumerate(file.columns[COUNT].tolist()):
        try:
            found[i] = float(cell or "")
        except ValueError:
            found[i] = math.nan
        if not math.isfinite(found[i]):
            file.mistakes.tell(int(file.line[i]), f"{COUNT} is a number, not {shown(cell or '')}")
    return found


def _check_once(file: TextColumns, at: np.ndarray, place: np.ndarray) -> None:
    """Tell of rows about a group in a region of which an earlier row is, too."""
    first, mistakes = {}, file.mistakes
    _, start, counts = np.unique(place, return_index=True, return_counts=True)
    if not (counts > 1).any():
        return
    first = dict(zip(place[start].tolist(), start.tolist(), strict=True))
    for i, each in enumerate(place.tolist()):
        if first[each] != i:
            before = int(file.line[at[first[each]]])
            told = f"{mistakes.unit} {before} is of the same group in the same region: keep one"
            mistakes.tell(int(file.line[at[i]]), told)
