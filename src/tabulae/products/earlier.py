"""``[[earlier]]``: the counts that an earlier release published, read from its folder or from a published copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..domain import Domain, Workload
from ..errors import TabulaeError
from ..release import folder as f
from ..release.read import Release
from ..spec.areas import EarlierEntry
from ..spec.problems import KeyPath, Problems, listed, nearest, shown
from ..spec.public_file import read_text_columns

AREA_TYPE, AREA, COUNT = "area_type", "area", "estimate"
_PLACE = ""
_BESIDE = (_PLACE, COUNT, "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status", "reliability")
_LARGEST = 10**12
_PEOPLE = "microdata"
"""In place of a table: the counts are those of the release's microdata, which have every combination of attributes."""

Columns = Mapping[str, np.ndarray]
"""Each key and the count as text, one row a count."""


@dataclass(frozen=True, eq=False)
class EarlierTable:
    """One entry, and the table of the earlier release that it is about.

    Args:
        entry: what the document says.
        keys: for each column of the counts that are read the column of the published table that has it.
        path: where the entry stands.
        level: of the areas that are read; None for tables without areas, which may choose theirs by rows.
    """

    entry: EarlierEntry
    keys: Mapping[str, str]
    path: KeyPath
    problems: Problems
    level: str | None = None

    @property
    def of_people(self) -> bool:
        """Whether counts are those of microdata: what is not there is 0."""
        return self.level is not None and self.entry.table == _PEOPLE

    def refuse(self, key: str, told: str) -> None:
        """Record a mistake."""
        self.problems.add((*self.path, key), told)

    def read(self, folder: Path | None, base: Path) -> Columns | None:
        """The counts: of the release in a folder, or without one of the file of a published copy."""
        return self._stored(base) if folder is None else self._published(folder)

    def _stored(self, base: Path) -> Columns | None:
        if self.entry.file is None:
            told = (
                "names a release by its mark, as a published copy does, without the file of its counts: write the "
                'folder where that release stands, release = "FOLDER"'
            )
            return self.refuse("release", told)
        needed = dict.fromkeys([*self.keys, COUNT], (*self.path, "file"))
        found = read_text_columns(base, self.entry.file, (*self.path, "file"), self.problems, needed)
        return None if found is None else found.columns

    def _published(self, folder: Path) -> Columns | None:
        if self.entry.file is not None:
            return self.refuse("file", "is of published copies alone: remove it, the release has the counts")
        name = str(self.entry.table)
        try:
            release = Release.read(folder)
            if faults := f.check_sums(folder):
                more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
                told = f"{shown(self.entry.release)} was altered: {faults[0]}{more}. Copy it again, whole"
                return self.refuse("release", told)
            if self.level is not None and release.spec.kind != "areas":
                told = f"{shown(self.entry.release)} is no release of areas: its counts are of none of these areas"
                return self.refuse("release", told)
            if self.of_people:
                return self._people(release, self.level or "")
            if name not in release.tables:
                return self.refuse(
                    "table", f"there is no such table in it; {nearest(name, list(release.tables))}"
                )
            if release.spec.kind == "groups" or name in release.spec.units:
                told = f"table {shown(name)} does not count the records of categories: name a table that does"
                return self.refuse("table", told)
            return self._of_table(release, release.tables[name])
        except TabulaeError as error:
            return self.refuse("release", f"{shown(self.entry.release)} cannot be read: {error}")

    def _people(self, release: Release, level: str) -> Columns | None:
        """The counts of microdata, by the labels that the release's tables have."""
        path = release.path / f.MICRODATA
        if not path.exists():
            told = f"that release has no microdata: name one of its tables, {listed(list(release.tables))}"
            return self.refuse("table", told)
        theirs, known = release.spec.domain, pq.read_schema(path).names
        names = [name for name in known if name in theirs.names]
        if level not in known or level in names:
            return self.refuse("level", f"the microdata of that release have no {level}")
        wanted = [name for name in names if name in {*self.keys.values(), *self.entry.rows}]
        stored = pq.read_table(path, columns=[level, *wanted])
        rows = {AREA: stored[level].cast(pa.string())}
        for name in wanted:
            column = stored[name].combine_chunks().dictionary_encode()
            label = dict(zip(theirs[name].values, theirs[name].labels, strict=True))
            words = [label.get(value, str(value)) for value in column.dictionary.to_pylist()]
            rows[name] = pa.DictionaryArray.from_arrays(column.indices, pa.array(words, pa.string()))
        found = self._chosen(pa.table(rows).append_column(COUNT, pa.repeat(1, stored.num_rows)), names)
        return None if found is None else self._added(found, found[COUNT])

    def _of_table(self, release: Release, rows: pa.Table) -> Columns | None:
        """The counts of a table."""
        before, whose = len(self.problems.found), f"table {shown(self.entry.table)}"
        if self.level is not None:
            if not {AREA_TYPE, AREA, COUNT} <= set(rows.column_names):
                told = f"{whose} has not the columns of a table of areas: copy the release again"
                return self.refuse("table", told)
            chosen = pc.call_function("equal", [rows[AREA_TYPE].cast(pa.string()), pa.scalar(self.level)])
            rows = rows.filter(chosen)
            if not rows.num_rows:
                return self.refuse("level", f"{whose} has no {self.level}: publish it for them")
        rows = rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
        beside = _BESIDE if self.level is None else (*_BESIDE, AREA_TYPE, AREA)
        found = self._chosen(rows, [name for name in rows.column_names if name not in beside])
        if found is None:
            return None
        if self.level is None and AREA_TYPE in found.column_names and len(found[AREA_TYPE].unique()) > 1:
            told = f'{whose} has areas of several kinds: choose one, rows = {{ {AREA_TYPE} = ["..."] }}'
            self.refuse("rows", told)
        elif not _once(release, str(self.entry.table), found[_PLACE].to_numpy()):
            told = (
                "has rows that count the same records twice, as totals and ranges do: choose rows that do not"
            )
            self.refuse("rows", f'{whose} {told}, rows = {{ ... = ["..."] }}')
        counts = _whole(found[COUNT])
        if counts is None:
            told = (
                f"{whose} has estimates that are no whole numbers of 0 or more: counts can equal exact ones, and those "
                "of areas by bluedown, topdown or sparse"
            )
            self.refuse("table", told)
        if counts is None or len(self.problems.found) > before:
            return None
        return self._added(found, counts)

    def _chosen(self, rows: pa.Table, theirs: Sequence[str]) -> pa.Table | None:
        """The rows that are asked for, of a table with these columns."""
        before = len(self.problems.found)
        for name, wanted in self.entry.rows.items():
            if name not in theirs:
                self.problems.add_unknown((*self.path, "rows", name), "column of that table", name, theirs)
                continue
            column = rows[name].cast(pa.string())
            for label in set(wanted) - set(column.unique().to_pylist()):
                self.refuse("rows", f"column {shown(name)} of that table has no {shown(label)}")
            chosen = pc.SetLookupOptions(pa.array(wanted, pa.string()))
            rows = rows.filter(pc.call_function("is_in", [column], chosen))
        self._check_columns(theirs)
        return rows if len(self.problems.found) == before else None

    def _added(self, rows: pa.Table, counts: pa.Array | pa.ChunkedArray) -> Columns:
        """Counts added up over columns that are not asked for."""
        columns = list(self.keys.values())
        plain = pa.table({name: rows[name].cast(pa.string()) for name in columns} | {COUNT: counts})
        sums = plain.group_by(columns, use_threads=False).aggregate([(COUNT, "sum")])
        texts = [sums[name].to_numpy(zero_copy_only=False).astype(object) for name in columns]
        added = sums[f"{COUNT}_sum"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
        return dict(zip([*self.keys, COUNT], [*texts, added], strict=True))

    def _check_columns(self, theirs: Sequence[str]) -> None:
        named = {name: column for name, column in self.keys.items() if name != self.level}
        for name in self.entry.columns.keys() - named.keys():
            path = (*self.path, "columns", name)
            self.problems.add_unknown(path, "attribute of this entry", name, list(named))
        for name, column in named.items():
            if column not in theirs:
                told = (
                    f"table {shown(self.entry.table)} has no column {shown(column)}, but {listed(theirs)}: write "
                    f'columns = {{ {name} = "..." }}'
                )
                self.refuse("columns" if name in self.entry.columns else "attributes", told)

    def classes(self, domain: Domain, columns: Columns) -> np.ndarray | None:
        """Shape (rows,): which combination of the entry's attributes each row is about, in the domain's order."""
        before, names = len(self.problems.found), self.entry.attributes or ()
        total = np.zeros(columns[COUNT].size, np.int64)
        for name in sorted(names, key=lambda n: domain.axis(domain.resolve(n).attribute.name)):
            labels = domain.resolve(name).labels
            place = {label: i for i, label in enumerate(labels)}
            each = np.array([place.get(text, -1) for text in columns[name].tolist()], np.int64)
            for text in dict.fromkeys(columns[name][each < 0].tolist()):
                told = (
                    f"that table counts {shown(text)}, and {name} has {listed(labels[:8])}: choose rows of it, "
                    f'rows = {{ {self.keys[name]} = ["..."] }}, or give both the same labels'
                )
                self.refuse("attributes", told)
            total = total * len(labels) + each
        return total if len(self.problems.found) == before else None

    def counts(self, texts: np.ndarray) -> np.ndarray | None:
        """The counts as int64; None where one is none."""
        for text in texts.tolist():
            if (
                text is None
                or not (text.isascii() and text.isdecimal())
                or int(text[:15]) > _LARGEST
                or len(text) > 13
            ):
                told = f"has {shown(text)} for a count: counts are whole numbers from 0 to {_LARGEST:,}"
                return self.refuse("file" if self.entry.file else "table", told)
        return texts.astype(np.int64)


def _once(release: Release, name: str, rows: np.ndarray) -> bool:
    """Whether these rows of a table count nobody twice, and nothing but records."""
    if release.spec.kind == "areas":
        return True  # each is a margin, of areas of one kind
    workload, exact = release.spec.workload, [given.table for given in release.spec.invariants]
    table = next(each for each in (*workload.tables, *exact) if each.name == name)
    merged, _ = Workload(release.domain, [table]).merge()
    [alone] = merged.tables
    chosen = np.zeros(alone.rows(merged.domain), np.int64)
    chosen[rows] = 1
    operator = alone.operator(merged.domain)
    counted = np.asarray(operator.T @ chosen)
    return operator.binary and bool((counted <= 1).all())


def _whole(column: pa.ChunkedArray) -> pa.Array | None:
    """Counts as int64; None where some are no whole numbers of 0 or more."""
    numbers = column.to_numpy().astype(float)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers == np.rint(numbers)).all()):
        return None
    return pa.array(numbers.astype(np.int64))
