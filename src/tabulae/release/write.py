"""Write a release folder, file by file; nothing here has seen a record."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .._version import VERSION
from ..domain import Attribute, Domain
from ..estimation.intervals import Interval
from ..spec import NO_VALUE, ReliabilitySection, Spec
from ..spec.shape import NO_ERROR, NO_ESTIMATE, RELIABILITY
from . import folder as f

STATUS_MEANING = "A estimated, E exact, Q not estimable"
CREDIBLE = {
    "credible_low": "lower end of the credible interval of the posterior; empty where too few draws are effective",
    "credible_high": "upper end of the credible interval of the posterior; empty where too few draws are effective",
}
"""The columns that a table has besides, where counts are drawn from a posterior."""

_NUMBERS = {
    "estimate": "count; may be fractional or negative",
    "std_error": "standard error of the estimate, from the noise alone",
    "ci_low": "lower end of the interval",
    "ci_high": "upper end of the interval",
}


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def plain_csv(table: pa.Table) -> bytes:
    """A table as a CSV file."""
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    return sink.getvalue()


def code_lists(domain: Domain) -> dict[str, bytes]:
    """The code list of each attribute and recode, by the name of its file."""
    lists = {f"codes/{a.name}.csv": _code_list(a) for a in domain.attributes if not a.steps}
    for recode in domain.recodes:
        rows = [(code, label, "") for code, label in zip(recode.codes, recode.labels, strict=True)]
        lists[f"codes/{recode.name}.csv"] = _csv_text(rows)
    return lists


def _code_list(attribute: Attribute) -> bytes:
    parents = attribute.parents or ("",) * attribute.size
    codes = ("" if value == NO_VALUE else str(value) for value in attribute.values)
    return _csv_text(list(zip(codes, attribute.labels, (p or "" for p in parents), strict=True)))


def _csv_text(rows: list[tuple[str, ...]]) -> bytes:
    names = ("code", "label", "parent")
    return plain_csv(pa.table({n: [row[i] for row in rows] for i, n in enumerate(names)}))


def write_documents(folder: Path, spec: Spec, ledger: list[dict[str, Any]]) -> None:
    """Write what every release has beside its numbers: spec, ledger entries, code lists, and the files of the spec."""
    f.write_bytes(folder / f.SPEC, spec.published_text().encode())
    f.write_json(folder / f.LEDGER, ledger)
    for name, content in {**code_lists(spec.domain), **spec.files}.items():
        f.write_bytes(folder / name, content)


def data_package(
    spec: Spec, resources: list[dict[str, Any]], about: Mapping[str, Any], created: str
) -> dict[str, Any]:
    """A Frictionless Data Package that names each table's columns, and what tabulae needs besides.

    ``about`` is what the kind of release records of itself; the version stands before it. ``created`` is the time
    that the charge is dated by.
    """
    return {
        "profile": "tabular-data-package",
        "name": slug(spec.title),
        "title": spec.title,
        "created": created,
        "resources": named_apart(resources),
        "tabulae": {"version": VERSION, **about},
    }


def resource_of(
    folder: str,
    name: str,
    headings: list[str],
    description: str | None,
    classes: ReliabilitySection | None = None,
    *,
    credible: bool = False,
) -> dict[str, Any]:
    """The entry of one published CSV file in the descriptor; ``classes`` are those of a last column."""
    fields: list[dict[str, Any]] = [{"name": heading, "type": "string"} for heading in headings]
    fields += [{"name": each, "type": "number", "description": told} for each, told in _NUMBERS.items()]
    if credible:
        fields += [{"name": each, "type": "integer", "description": told} for each, told in CREDIBLE.items()]
    fields += [status_field(STATUS_MEANING, ["A", "E", "Q"])]
    if classes is not None:
        fields.append(_reliability_field(classes))
    return csv_resource(f"{folder}/{name}.csv", name, fields, headings, description)


def csv_resource(
    path: str, name: str, fields: list[dict[str, Any]], key: list[str], description: str | None = None
) -> dict[str, Any]:
    """The entry of a CSV file with these columns, whose rows are told apart by a key."""
    return {
        "name": slug(name),
        "title": name,
        **({} if description is None else {"description": description}),
        "path": path,
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": {"fields": fields, "primaryKey": key},
    }


def status_field(meaning: str, letters: list[str]) -> dict[str, Any]:
    """The column ``obs_status`` as descriptors have it."""
    return {
        "name": "obs_status",
        "type": "string",
        "description": meaning,
        "constraints": {"enum": letters},
    }


def _reliability_field(section: ReliabilitySection) -> dict[str, Any]:
    told = [
        f"{name}: {share} of the count" for name, share in zip(section.names, section.ranges, strict=True)
    ]
    masked = f"; numbers of class {section.names[-1]!r} are left out" if section.mask else ""
    return {
        "name": RELIABILITY,
        "type": "string",
        "description": f"class of the count by its standard error; {'; '.join(told)}{masked}",
        "constraints": {"enum": list(section.words)},
    }


def named_apart(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same resources, those of one name told apart by numbers: data packages ask for distinct names."""
    names: set[str] = set()
    apart = []
    for resource in resources:
        name, number = resource["name"], 2
        while name in names:
            name, number = f"{resource['name']}-{number}", number + 1
        names.add(name)
        apart.append(resource | {"name": name})
    return apart


def slug(text: str) -> str:
    """A name as data packages have it: small letters, digits, points and hyphens."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text.lower())
    return "-".join(filter(None, kept.split("-"))) or "release"


def seal(folder: Path) -> None:
    """Write the checksums over everything in the folder: the last step before it is put in place."""
    f.write_sums(folder)
    f.sync_folder(folder)


ESTIMATED, EXACT, NOT_ESTIMABLE = "A", "E", "Q"

LEVEL = 0.95
"""The level of published intervals and of planned margins."""


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """One table as it is published; arrays have one entry a row, in the table's own order.

    ``conservative`` says how many of the intervals are wider than need be, because the exact law of the
    error was out of reach. ``reliability`` are the words of the column of that name, None where there is none, and
    ``masked`` says in which rows the count and its interval are left out. ``credible`` are the ends of credible
    intervals, where counts are drawn from a posterior: none where the draws are worth too little.
    """

    name: str
    columns: dict[str, tuple[str, ...]]
    estimate: np.ndarray
    std_error: np.ndarray
    interval: Interval
    status: np.ndarray
    conservative: int
    reliability: np.ndarray | None = None
    masked: np.ndarray | None = None
    credible: tuple[np.ndarray, np.ndarray] | tuple[()] | None = None

    @property
    def ci_low(self) -> np.ndarray:
        return self.interval.ends()[0]

    @property
    def ci_high(self) -> np.ndarray:
        return self.interval.ends()[1]

    def classed(self, section: ReliabilitySection) -> PublishedTable:
        """The table with the column of classes, and the counts of the last one masked, where a spec asks for these.

        Privacy:
            Post-processing: classes follow from published estimates and from standard errors that are known before any
            record is read. Masking takes nothing back, for what was measured stays in the release.
        """
        if not section.column:
            return self
        classes = section.classes(self.estimate, self.std_error)
        named = np.array(section.names, dtype=object)[classes]
        words = np.where(
            self.status == EXACT, NO_ERROR, np.where(self.status == ESTIMATED, named, NO_ESTIMATE)
        )
        last = (self.status == ESTIMATED) & (classes == len(section.names) - 1)
        return replace(self, reliability=words, masked=last if section.mask else None)

    def arrow(self) -> pa.Table:
        """The table as it stands in the release's Parquet and CSV files."""
        status = pa.array(self.status, pa.string())
        data: dict[str, Any] = {
            name: column.cast(pa.string()) for name, column in label_columns(self.columns).items()
        }
        data |= {
            "estimate": pa.array(self.estimate, mask=self.masked),
            "std_error": self.std_error,
            "ci_low": pa.array(self.ci_low, mask=self.masked),
            "ci_high": pa.array(self.ci_high, mask=self.masked),
        }
        for place, name in enumerate(CREDIBLE if self.credible is not None else ()):
            ends = (
                self.credible[place].astype(np.int64)
                if self.credible
                else np.zeros(len(self.estimate), np.int64)
            )
            missing = self.masked if self.credible else np.ones(len(self.estimate), bool)
            data[name] = pa.array(ends, mask=missing)
        data["obs_status"] = status
        if self.reliability is not None:
            data[RELIABILITY] = pa.array(self.reliability, pa.string())
        return pa.table(data)


def word_column(index: np.ndarray, words: Iterable[object]) -> pa.DictionaryArray:
    """A column of words by their positions."""
    return pa.DictionaryArray.from_arrays(
        np.asarray(index, np.int32), pa.array([str(word) for word in words], pa.string())
    )


def label_columns(columns: dict[str, tuple[str, ...]]) -> dict[str, pa.DictionaryArray]:
    """Labels of the rows, in C order over the headings."""
    sizes = [len(labels) for labels in columns.values()]
    out = {}
    for i, (name, labels) in enumerate(columns.items()):
        after = int(np.prod(sizes[i + 1 :], dtype=np.int64))
        before = int(np.prod(sizes[:i], dtype=np.int64))
        index = np.tile(np.repeat(np.arange(len(labels), dtype=np.int32), after), before)
        out[name] = word_column(index, labels)
    return out


PARTS = ("before", "now", "change", "percent")
"""The numbers of each row: the estimates of both releases, their difference, and it in per cent of the earlier one."""


@dataclass(frozen=True)
class Changes:
    """How the counts of one table changed from a release to a later one.

    ``rows`` has the table's labels, and for each of :data:`PARTS` the columns ``PART``, ``PART_std_error``,
    ``PART_ci_low``, ``PART_ci_high`` and ``PART_status``: A for an estimate, E where it is exact, Q with empty numbers
    where it is not estimable. ``level`` is that of every interval. ``conservative`` says how many intervals of
    changes, in counts and in per cent, are wider than need be. ``notes`` are sentences: what else differs.
    """

    table: str
    level: float
    rows: pa.Table
    conservative: int
    notes: tuple[str, ...]
