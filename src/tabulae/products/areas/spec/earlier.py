"""``[[earlier]]``: counts of areas that equal those which an earlier release published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ....domain import Domain
from ....errors import TabulaeError
from ....release import folder as f
from ....release.read import Release
from ....spec.areas import EarlierEntry
from ....spec.problems import KeyPath, Problems, listed, nearest, shown
from ....spec.promise import SPARSE, Method
from ....spec.public_file import encoded, read_text_columns
from ....spec.published import EARLIER
from ....spec.sections import Document
from ....spec.series import Mark, read_mark
from ..constraints import FREE, EarlierMargin
from ..layout import CellLayout, Margin
from ..sparse.cells import HeldMargin, Sparse
from ..spine.hierarchy import numbered
from ..spine.spine import Spine
from .files import Leaves
from .limits import LARGEST, Placed, class_name, codes_of

AREA_TYPE, AREA, COUNT = "area_type", "area", "estimate"
_BESIDE = (AREA_TYPE, AREA, COUNT, "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status")
_SHOWN = 3
_PEOPLE = "microdata"
"""In place of a table: the counts are those of the release's microdata, which have every combination of attributes."""

Columns = Mapping[str, np.ndarray]
"""The level, each attribute and the count as text, one row a count."""


@dataclass(frozen=True, eq=False)
class EarlierCounts:
    """What the ``[[earlier]]`` of a document fix, each with its position.

    Attributes:
        held: what sparse counts are held to, and the release that says it.
        areas: for each level or entity type that they are about the entry, and the code of each leaf of the spine.
        files: the counts as they are published with the release.
        marks: of the releases that they are from.
    """

    margins: list[Placed] = field(default_factory=list)
    held: list[tuple[EarlierMargin, HeldMargin]] = field(default_factory=list)
    areas: dict[str, tuple[KeyPath, np.ndarray]] = field(default_factory=dict)
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
) -> EarlierCounts | None:
    """The counts of earlier releases that a document names; None, with the mistakes recorded, where one is wrong.

    A release is read from its folder, every file of which must be as its SHA256SUMS lists it; in a published copy the
    counts are in a file of their own.

    Args:
        exact: the margins that are exact: they have the classes that an earlier release does not count.
        kept: shape (leaves of the file,): which of them are on the spine.

    Privacy:
        None is spent: reads what is published.
    """
    before, found = len(problems.found), EarlierCounts()
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
        read = _EarlierTable(
            entry, entry.level, layout.margin(names if sparse else entry.attributes), path, problems, sparse
        )
        columns = read.stored(base) if marked[1] is None else read.published(marked[1])
        if columns is None:
            continue
        told = entry.table, marked[0].release_id, marked[0].sha256sums
        if method.estimate == SPARSE:
            counts = (
                read.held(columns, codes, leaves.levels[-1]) if _is_alone(path, found, problems) else None
            )
            if counts is None:
                continue
            none = np.zeros((0, 0), np.int64)
            held = EarlierMargin(entry.level, read.margin, "", none, *told), HeldMargin(read.margin, counts)
            found.held.append(held)
        else:
            values = read.values(columns, codes)
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
    return EarlierCounts(found.margins, found.held, found.areas, found.files, tuple(marks))


def _axis(layout: CellLayout, name: str) -> int:
    """The place in the domain of the attribute that a name is a view of."""
    return layout.domain.axis(layout.domain.resolve(name).attribute.name)


def _is_alone(path: KeyPath, found: EarlierCounts, problems: Problems) -> bool:
    """Whether no table is held before."""
    if found.held:
        told = f"estimate = {shown(SPARSE)} holds the counts of one table: join them in one of finer counts"
        problems.add(path, told)
    return not found.held


def _is_new(margin: EarlierMargin, path: KeyPath, found: EarlierCounts, problems: Problems) -> bool:
    """Whether no entry before fixes the same counts."""
    for _, other in found.margins:
        if other.level == margin.level and np.array_equal(other.margin.label, margin.margin.label):
            problems.add(path, "is about the same counts as an entry before it: keep one")
            return False
    return True


@dataclass(frozen=True, eq=False)
class _EarlierTable:
    """One entry, and the table that it is about."""

    entry: EarlierEntry
    level: str
    margin: Margin
    path: KeyPath
    problems: Problems
    sparse: bool

    @property
    def domain(self) -> Domain:
        return self.margin.layout.domain

    @property
    def of_people(self) -> bool:
        """Whether counts are those of microdata: what is not there is 0."""
        return self.entry.table == _PEOPLE

    def _refuse(self, key: str, told: str) -> None:
        self.problems.add((*self.path, key), told)

    def stored(self, base: Path) -> Columns | None:
        """The counts of a published copy."""
        if self.entry.file is None:
            told = (
                "names a release by its mark, as a published copy does, without the file of its counts: write the "
                'folder where that release stands, release = "FOLDER"'
            )
            return self._refuse("release", told)
        needed = dict.fromkeys([self.level, *self.margin.names, COUNT], (*self.path, "file"))
        found = read_text_columns(base, self.entry.file, (*self.path, "file"), self.problems, needed)
        return None if found is None else found.columns

    def published(self, folder: Path) -> Columns | None:
        """The counts of a release, from its folder."""
        if self.entry.file is not None:
            return self._refuse("file", "is of published copies alone: remove it, the release has the counts")
        try:
            release = Release.read(folder)
            if faults := f.check_sums(folder):
                more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
                told = f"{shown(self.entry.release)} was altered: {faults[0]}{more}. Copy it again, whole"
                return self._refuse("release", told)
            if release.spec.kind != "areas":
                told = f"{shown(self.entry.release)} is no release of areas: its counts are of none of these areas"
                return self._refuse("release", told)
            if self.of_people:
                return self._people(release)
            names = list(release.tables)
            if self.entry.table not in names:
                return self._refuse(
                    "table", f"there is no such table in it; {nearest(str(self.entry.table), names)}"
                )
            rows = release.tables[str(self.entry.table)]
        except TabulaeError as error:
            return self._refuse("release", f"{shown(self.entry.release)} cannot be read: {error}")
        return self._of_table(rows)

    def _people(self, release: Release) -> Columns | None:
        """The counts of microdata, by the labels that the release's tables have."""
        path = release.path / f.MICRODATA
        if not path.exists():
            told = f"that release has no microdata: name one of its tables, {listed(list(release.tables))}"
            return self._refuse("table", told)
        theirs, known = release.spec.domain, pq.read_schema(path).names
        names = [name for name in known if name in theirs.names]
        if self.level not in known or self.level in names:
            return self._refuse("level", f"the microdata of that release have no {self.level}")
        wanted = [self.entry.columns.get(name, name) for name in self.margin.names]
        wanted = [name for name in names if name in {*wanted, *self.entry.rows}]
        stored = pq.read_table(path, columns=[self.level, *wanted])
        rows = {AREA: stored[self.level].cast(pa.string())}
        for name in wanted:
            column = stored[name].combine_chunks().dictionary_encode()
            label = dict(zip(theirs[name].values, theirs[name].labels, strict=True))
            words = [label.get(value, str(value)) for value in column.dictionary.to_pylist()]
            rows[name] = pa.DictionaryArray.from_arrays(column.indices, pa.array(words, pa.string()))
        return self._chosen(pa.table(rows).append_column(COUNT, pa.repeat(1, stored.num_rows)), names)

    def _of_table(self, rows: pa.Table) -> Columns | None:
        """The counts of a table of areas."""
        if not {AREA_TYPE, AREA, COUNT} <= set(rows.column_names):
            told = f"table {shown(self.entry.table)} has not the columns of a table of areas: copy the release again"
            return self._refuse("table", told)
        of_level = pc.call_function("equal", [rows[AREA_TYPE].cast(pa.string()), pa.scalar(self.level)])
        rows = rows.filter(of_level)
        if not rows.num_rows:
            return self._refuse(
                "level", f"table {shown(self.entry.table)} has no {self.level}: publish it for them"
            )
        if not pa.types.is_integer(rows.schema.field(COUNT).type):
            told = (
                f"table {shown(self.entry.table)} has estimates that are no whole numbers of 0 or more: counts can "
                "equal those of a release by bluedown or topdown alone"
            )
            return self._refuse("table", told)
        return self._chosen(rows, [name for name in rows.column_names if name not in _BESIDE])

    def _chosen(self, rows: pa.Table, theirs: list[str]) -> Columns | None:
        """The counts in the rows that are asked for, added up over the columns, of ``theirs``, that are not."""
        before = len(self.problems.found)
        for name, wanted in self.entry.rows.items():
            if name not in theirs:
                self.problems.add_unknown((*self.path, "rows", name), "column of that table", name, theirs)
                continue
            column = rows[name].cast(pa.string())
            for label in set(wanted) - set(column.unique().to_pylist()):
                self._refuse("rows", f"column {shown(name)} of that table has no {shown(label)}")
            rows = rows.filter(
                pc.call_function("is_in", [column], pc.SetLookupOptions(pa.array(wanted, pa.string())))
            )
        named = {name: self.entry.columns.get(name, name) for name in self.margin.names}
        for name in self.entry.columns.keys() - named.keys():
            self.problems.add_unknown(
                (*self.path, "columns", name), "attribute of this entry", name, list(named)
            )
        for name, column in named.items():
            if column not in theirs:
                told = (
                    f"table {shown(self.entry.table)} has no column {shown(column)}, but {listed(theirs)}: write "
                    f'columns = {{ {name} = "..." }}'
                )
                self._refuse("columns" if name in self.entry.columns else "attributes", told)
        if len(self.problems.found) > before:
            return None
        keys = [AREA, *named.values()]
        plain = pa.table({name: rows[name].cast(pa.string()) for name in keys} | {COUNT: rows[COUNT]})
        sums = plain.group_by(keys, use_threads=False).aggregate([(COUNT, "sum")])
        if self.sparse and not self.of_people:
            if sums.num_rows < len(sums[AREA].unique()) * self.margin.size:
                told = f"that table does not count every combination of {listed(self.margin.names)}"
                return self._refuse("attributes", told)
            sums = sums.filter(pc.call_function("greater", [sums[f"{COUNT}_sum"], pa.scalar(0)]))
        texts = [sums[name].to_numpy(zero_copy_only=False).astype(object) for name in keys]
        counts = sums[f"{COUNT}_sum"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
        return dict(zip([self.level, *named, COUNT], [*texts, counts], strict=True))

    def values(self, columns: Columns, codes: np.ndarray) -> np.ndarray | None:
        """Shape (areas, classes), int64: the counts of the areas of the spine; ``FREE`` for classes without any.

        Args:
            codes: shape (leaves of the spine,): the area of each; None where it lies in none.
        """
        before = len(self.problems.found)
        names = numbered(codes)[1]
        placed = self._placed(columns, names)
        if placed is None:
            return None
        row, group, count = placed
        found = np.full((names.size, self.margin.classes), 0 if self.of_people else FREE, np.int64)
        if np.unique(row * self.margin.classes + group).size < row.size:
            self._refuse("file", "has two counts of the same area and labels")
        found[row, group] = count
        some, every = (found != FREE).any(axis=0), (found != FREE).all(axis=0)
        for area, c in np.argwhere((found == FREE) & some)[:_SHOWN].tolist():
            told = (
                f"{self.level} {shown(str(names[area]))} has no count of {class_name(self.margin, c)} there"
            )
            self._refuse("level", told)
        if not every.any():
            self._refuse("attributes", "none of these counts is in that table")
        never = ~np.isin(np.arange(self.margin.classes), self.margin.label)
        found[:, never & ~some] = 0
        return found if len(self.problems.found) == before else None

    def held(self, columns: Columns, codes: np.ndarray, leaf: str) -> Sparse | None:
        """The counts of the leaves of the spine that are not 0, by cell of the margin, whose names rise.

        Args:
            codes: shape (leaves of the spine,): the code of each.
            leaf: the level of leaves.
        """
        if self.level != leaf:
            told = f"is not {shown(leaf)}: estimate = {shown(SPARSE)} holds counts of every {leaf}"
            return self._refuse("level", told)
        placed = self._placed(columns, codes)
        if placed is None:
            return None
        row, cell, count = placed
        if np.unique(row * self.margin.size + cell).size < row.size:
            return self._refuse("file", "has two counts of the same area and labels")
        key = np.argsort(self.margin.order.ravel())[cell]
        return Sparse.of(codes.size, row, key, count)

    def _placed(
        self, columns: Columns, names: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """For each count of an area of the spine the area, the class by the labels, and the count.

        Args:
            names: of the areas of the spine.
        """
        before = len(self.problems.found)
        place = {str(name): i for i, name in enumerate(names.tolist())}
        row = np.array([place.get(code, -1) for code in columns[self.level].tolist()], np.int64)
        group, count = self._classes(columns), self._counts(columns[COUNT])
        if group is None or count is None:
            return None
        for i in np.flatnonzero((row < 0) & (count > 0))[:_SHOWN].tolist():
            code = shown(columns[self.level][i])
            self._refuse(
                "level", f"{self.level} {code} has {count[i]} there, and nothing can be counted in it here"
            )
        if len(self.problems.found) > before:
            return None
        return row[row >= 0], group[row >= 0], count[row >= 0]

    def _classes(self, columns: Columns) -> np.ndarray | None:
        """Shape (rows,): the class of the margin that each row is about, by the labels of its attributes."""
        before, domain = len(self.problems.found), self.domain
        total = np.zeros(columns[COUNT].size, np.int64)
        for name in sorted(self.margin.names, key=lambda n: _axis(self.margin.layout, n)):
            labels = domain.resolve(name).labels
            place = {label: i for i, label in enumerate(labels)}
            each = np.array([place.get(text, -1) for text in columns[name].tolist()], np.int64)
            for text in dict.fromkeys(columns[name][each < 0].tolist()):
                told = (
                    f"that table counts {shown(text)}, and {name} has {listed(labels[:8])}: choose rows of it, "
                    f'rows = {{ {self.entry.columns.get(name, name)} = ["..."] }}, or give both the same labels'
                )
                self._refuse("attributes", told)
            total = total * len(labels) + each
        return total if len(self.problems.found) == before else None

    def _counts(self, texts: np.ndarray) -> np.ndarray | None:
        for text in texts.tolist():
            if (
                text is None
                or not (text.isascii() and text.isdecimal())
                or int(text[:15]) > LARGEST
                or len(text) > 13
            ):
                told = f"has {shown(text)} for a count: counts are whole numbers from 0 to {LARGEST:,}"
                return self._refuse("file" if self.entry.file else "table", told)
        return texts.astype(np.int64)

    def check_open(self, margin: EarlierMargin, exact: Sequence[Placed]) -> bool:
        """Whether every class that the earlier release does not count is exact."""
        for c in margin.open:
            if not any(margin.exact_classes(c, [each for _, each in exact])):
                told = (
                    f"table {shown(self.entry.table)} has no count of {class_name(self.margin, c)}: use a recode "
                    f"without such a class, or make these counts exact for every {self.level} in an [[invariant]]"
                )
                self._refuse("attributes", told)
                return False
        return True
