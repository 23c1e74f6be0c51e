"""``[[earlier]]``: counts of areas that equal those which an earlier release published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ....domain.codes import Numbered
from ....spec.problems import KeyPath, Problems, listed, shown
from ....spec.promise import SPARSE, Method
from ....spec.public_file import encoded
from ....spec.published import EARLIER
from ....spec.sections import Document
from ....spec.series import Mark, read_mark
from ...earlier import AREA, COUNT, Columns, EarlierTable
from ..constraints import FREE, EarlierMargin
from ..layout import CellLayout, Margin
from ..sparse.cells import HeldMargin, SparseCounts
from ..spine.spine import Spine
from .files import Leaves
from .limits import Placed, class_name, codes_of

_SHOWN = 3


@dataclass(frozen=True, eq=False)
class EarlierAreaCounts:
    """What the ``[[earlier]]`` of a document fix, each with its position.

    Attributes:
        held: what sparse counts are held to, and the release that says it.
        areas: for each level or entity type that they are about the entry, and the code of each leaf of the spine.
        files: the counts as they are published with the release.
        marks: of the releases that they are from.
    """

    margins: list[Placed] = field(default_factory=list)
    held: list[tuple[EarlierMargin, HeldMargin]] = field(default_factory=list)
    areas: dict[str, tuple[KeyPath, Numbered]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()


def read_earlier(
    document: Document,
    method: Method,
    exact: Sequence[Placed],
    leaves: Leaves,
    kept: np.ndarray,
    spine: Spine,
    layout: CellLayout,
    base: Path,
    problems: Problems,
) -> EarlierAreaCounts | None:
    """The counts of earlier releases that a document names; None, with the mistakes recorded, where one is wrong.

    A release is read from its folder, every file of which must be as its SHA256SUMS lists it; in a published copy the
    counts are in a file of their own.

    Args:
        exact: the margins that are exact: they have the classes that an earlier release does not count.
        kept: shape (leaves of the file,): which of them are on the spine.

    Privacy:
        None is spent: reads what is published.
    """
    before, found = len(problems.found), EarlierAreaCounts()
    entities = document.geography.entities if document.geography else ()
    marks: list[Mark] = []
    for at, entry in enumerate(document.earlier):
        path: KeyPath = ("earlier", at)
        if entry is None or entry.attributes is None or entry.table is None or entry.release is None:
            continue
        if method.estimate == "gls":
            told = (
                'goes with estimate = "bluedown" or "topdown": estimates by gls are unbiased, with intervals from the '
                "noise of this release alone, and published counts are neither"
            )
            problems.add(path, told)
            continue
        codes = codes_of(entry.level, path, entities, leaves, kept, spine, problems)
        marked = read_mark(entry.release, (*path, "release"), base, problems, 'release = "release-h1"')
        if codes is None or marked is None or entry.level is None:
            continue
        names = sorted(entry.attributes, key=lambda n: _axis(layout, n))
        sparse = method.estimate == SPARSE
        margin = layout.margin(names if sparse else entry.attributes)
        keys = {entry.level: AREA} | {name: entry.columns.get(name, name) for name in margin.names}
        read = _HeldTable(EarlierTable(entry, keys, path, problems, entry.level), entry.level, margin)
        columns = read.source.read(marked[1], base)
        if columns is not None and sparse and marked[1] is not None and not read.source.of_people:
            columns = read.positive(columns)
        if columns is None:
            continue
        told = entry.table, marked[0].release_id, marked[0].sha256sums
        if sparse:
            counts = (
                read.held(columns, codes, leaves.levels[-1]) if _is_alone(path, found, problems) else None
            )
            if counts is None:
                continue
            none = np.zeros((0, 0), np.int64)
            held = EarlierMargin(entry.level, read.margin, "", none, *told), HeldMargin(read.margin, counts)
            found.held.append(held)
        else:
            values = read.values(columns, codes.codes)
            if values is None:
                continue
            margin = EarlierMargin(entry.level, read.margin, "", values, *told)
            if not read.check_open(margin, exact) or not _is_new(margin, path, found, problems):
                continue
            found.margins.append((path, margin))
            found.areas.setdefault(entry.level, (path, codes))
        found.files[EARLIER.format(at=at)] = encoded(columns)
        marks.append(marked[0])
    if len(problems.found) > before:
        return None
    return EarlierAreaCounts(found.margins, found.held, found.areas, found.files, tuple(marks))


def _axis(layout: CellLayout, name: str) -> int:
    """The place in the domain of the attribute that a name is a view of."""
    return layout.domain.axis(layout.domain.resolve(name).attribute.name)


def _is_alone(path: KeyPath, found: EarlierAreaCounts, problems: Problems) -> bool:
    """Whether no table is held before."""
    if found.held:
        told = f"estimate = {shown(SPARSE)} holds the counts of one table: join them in one of finer counts"
        problems.add(path, told)
    return not found.held


def _is_new(margin: EarlierMargin, path: KeyPath, found: EarlierAreaCounts, problems: Problems) -> bool:
    """Whether no entry before fixes the same counts."""
    for _, other in found.margins:
        if other.level == margin.level and np.array_equal(other.margin.label, margin.margin.label):
            problems.add(path, "is about the same counts as an entry before it: keep one")
            return False
    return True


@dataclass(frozen=True, eq=False)
class _HeldTable:
    """What one entry holds, and the table that has its counts."""

    source: EarlierTable
    level: str
    margin: Margin

    def positive(self, columns: Columns) -> Columns | None:
        """The counts that are not 0, of a table that has every combination."""
        some = columns[COUNT] != "0"
        if some.size < np.unique(columns[self.level]).size * self.margin.size:
            told = f"that table does not count every combination of {listed(self.margin.names)}"
            return self.source.refuse("attributes", told)
        return {name: column[some] for name, column in columns.items()}

    def values(self, columns: Columns, names: np.ndarray) -> np.ndarray | None:
        """Shape (areas, classes), int64: the counts of the areas of the spine; ``FREE`` for classes without any.

        Args:
            names: of the areas of the spine, rising.
        """
        before = len(self.source.problems.found)
        placed = self._placed(columns, names)
        if placed is None:
            return None
        row, group, count = placed
        found = np.full((names.size, self.margin.classes), 0 if self.source.of_people else FREE, np.int64)
        if np.unique(row * self.margin.classes + group).size < row.size:
            self.source.refuse("file", "has two counts of the same area and labels")
        found[row, group] = count
        some, every = (found != FREE).any(axis=0), (found != FREE).all(axis=0)
        for area, c in np.argwhere((found == FREE) & some)[:_SHOWN].tolist():
            told = (
                f"{self.level} {shown(str(names[area]))} has no count of {class_name(self.margin, c)} there"
            )
            self.source.refuse("level", told)
        if not every.any():
            self.source.refuse("attributes", "none of these counts is in that table")
        never = ~np.isin(np.arange(self.margin.classes), self.margin.label)
        found[:, never & ~some] = 0
        return found if len(self.source.problems.found) == before else None

    def held(self, columns: Columns, codes: Numbered, leaf: str) -> SparseCounts | None:
        """The counts of the leaves of the spine that are not 0, by cell of the margin, whose names rise.

        Args:
            codes: of the leaves of the spine.
            leaf: the level of leaves.
        """
        if self.level != leaf:
            told = f"is not {shown(leaf)}: estimate = {shown(SPARSE)} holds counts of every {leaf}"
            return self.source.refuse("level", told)
        placed = self._placed(columns, codes.codes[codes.index])
        if placed is None:
            return None
        row, cell, count = placed
        if np.unique(row * self.margin.size + cell).size < row.size:
            return self.source.refuse("file", "has two counts of the same area and labels")
        key = np.argsort(self.margin.order.ravel())[cell]
        return SparseCounts.of(codes.index.size, row, key, count)

    def _placed(
        self, columns: Columns, names: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """For each count of an area of the spine the area, the class by the labels, and the count.

        Args:
            names: of the areas of the spine.
        """
        before = len(self.source.problems.found)
        place = {str(name): i for i, name in enumerate(names.tolist())}
        row = np.array([place.get(code, -1) for code in columns[self.level].tolist()], np.int64)
        group, count = (
            self.source.classes(self.margin.layout.domain, columns),
            self.source.counts(columns[COUNT]),
        )
        if group is None or count is None:
            return None
        for i in np.flatnonzero((row < 0) & (count > 0))[:_SHOWN].tolist():
            code = shown(columns[self.level][i])
            self.source.refuse(
                "level", f"{self.level} {code} has {count[i]} there, and nothing can be counted in it here"
            )
        if len(self.source.problems.found) > before:
            return None
        return row[row >= 0], group[row >= 0], count[row >= 0]

    def check_open(self, margin: EarlierMargin, exact: Sequence[Placed]) -> bool:
        """Whether every class that the earlier release does not count is exact."""
        for c in margin.open:
            if not any(margin.exact_classes(c, [each for _, each in exact])):
                whose = f"table {shown(self.source.entry.table)} has no count of {class_name(self.margin, c)}"
                told = (
                    f"{whose}: use a recode without such a class, or make these counts exact for every {self.level} "
                    "in an [[invariant]]"
                )
                self.source.refuse("attributes", told)
                return False
        return True
