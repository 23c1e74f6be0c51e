"""The published copy of a spec: what was promised and counted, and nothing of where the records are.

It is written from what was understood, not from what was typed: comments, and the paths and hosts that may
stand in them, cannot come along, and two specs that mean the same are one text. Files that the spec names
are published under fixed names beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from .areas import AUTO
from .promise import POSTERIOR, Method
from .sections import Document
from .series import Mark, Series
from .shape import AttributeEntry, CountedEntry, InvariantEntry, RecodeEntry, TableEntry

CODES = "codes/{attribute}.csv"
MAPS = "maps/{recode}.csv"
MATRICES = "queries/{table}/{attribute}.npy"
SPINE = "geography/spine.csv"
BOUND = "geography/bound{at}.csv"

EARLIER = "geography/earlier{at}.csv"
EARLIER_OF_TABLES = "earlier/{at}.csv"

Record = Mapping[str, Any]
"""What a document promises and counts, as TOML would be parsed; ``[source]`` lacks the kind."""


def record_of(
    document: Document,
    method: Method,
    files: Iterable[str] = (),
    series: Series | None = None,
    marks: Iterable[Mark] = (),
) -> Record:
    """What is to be published of a document.

    ``[source]`` is reduced to its unit, the bound on its rows, with the column that it goes by, and the condition on
    them: public names like those of the other columns, and part of what is counted. ``[privacy]`` loses the ledger's
    path, and every default is written out, so that the text keeps its meaning if a default ever changes.

    Args:
        document: the sections, all of them read without a mistake.
        method: the method, its noise resolved.
        files: the published names of the files of ``[detailed]`` or ``[geography]``, in the order of the document.
        series: the release that this one follows: by its mark, for no place is published.
        marks: of the releases whose counts this one's equal, in the order of the document.
    """
    source, privacy, release = document.source, document.privacy, document.release
    assert source is not None
    assert privacy is not None
    assert release is not None
    names, earlier = iter(files), EARLIER if document.is_geography else EARLIER_OF_TABLES
    record: dict[str, Any] = {
        "title": document.title,
        "series": {} if series is None else series.record(),
        "source": source.model_dump(include={"unit", "unit_id", "rows_per_unit", "where"}, exclude_none=True)
        | ({} if source.units is None else {"units": {}}),
        "attributes": {"unknown": document.unknown, "null": document.null}
        | {name: _attribute(name, entry) for name, entry in document.attributes.items() if entry},
        "recodes": {name: _recode(name, entry) for name, entry in document.recodes.items() if entry},
        "values": {
            name: {"column": name} | entry.model_dump(exclude_none=True)
            for name, entry in document.values.items()
            if entry
        },
        "privacy": privacy.model_dump(exclude={"ledger"}, exclude_none=True),
        "table": [_table(document, at, entry) for at, entry in enumerate(document.tables) if entry],
        "invariant": [_invariant(document, entry) for entry in document.invariants if entry],
        "detailed": _detailed(document, names),
        "geography": _geography(document, names),
        "bound": [
            entry.model_dump() | {"file": name}
            for entry, name in zip(document.bounds, names, strict=False)
            if entry
        ],
        "earlier": [
            {k: v for k, v in entry.model_dump(exclude_none=True).items() if v != {}}
            | {"release": vars(mark), "file": earlier.format(at=at)}
            for at, (entry, mark) in enumerate(zip(document.earlier, marks, strict=False))
            if entry
        ],
        "structural_zero": [entry.model_dump() for entry in document.zeros if entry],
        "derived": [entry.model_dump(exclude_none=True) for entry in document.derived if entry],
        "method": _method(document, method),
        "release": release.model_dump(exclude=set() if document.is_geography else {"microdata"}),
        "reliability": _reliability(document),
    }
    return {key: value for key, value in record.items() if value}


def text_of(record: Record, kind: str) -> str:
    """The published text: canonical TOML that `Spec.from_text` reads back."""
    return tomli_w.dumps({**record, "source": {"kind": kind, **record["source"]}})


def measured(record: Record, kind: str) -> Record:
    """The part of a record that says what is measured: two that agree in it have measurements in common.

    The seed of tables stays: strategies are chosen with it.
    """
    if kind == "areas":
        return record
    method = record.get("method", {}) if kind == "tables" else {}
    left = {key: value for key, value in record.items() if key != "method"}
    return left | {"method": {key: value for key, value in method.items() if key != "estimate"}}


def digest(record: Record, files: Mapping[str, bytes]) -> str:
    """SHA-256, in hexadecimal, of a record and of the files that it names, whatever the order of those.

    >>> digest({"title": "a"}, {}) == digest({"title": "a"}, {"codes/x.csv": b""})
    False
    """
    total = hashlib.sha256()
    for name, content in [("", tomli_w.dumps(record).encode()), *sorted(files.items())]:
        # Each part is hashed before it is joined: no name or content can pose as a boundary.
        total.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(content).digest())
    return total.hexdigest()


def _method(document: Document, method: Method) -> dict[str, Any]:
    if document.is_detailed:
        return {"estimate": method.estimate, "seed": method.seed} if method.estimate == POSTERIOR else {}
    if document.is_geography:
        seed = {"seed": method.seed} if method.estimate == "posterior" else {}
        return {"noise": method.noise, "estimate": method.estimate, **seed}
    return {
        "select": method.select,
        "noise": method.noise,
        "estimate": method.estimate,
        **({} if method.tolerance is None else {"tolerance": _short(method.tolerance)}),
        "time_limit": _short(method.time_limit),
        "seed": method.seed,
        **({} if _aimed(document) else {"objective": method.objective}),
    }


def _detailed(document: Document, names: Iterator[str]) -> dict[str, Any]:
    if document.detailed is None:
        return {}
    section = document.detailed.model_dump(exclude_none=True) | {"groups": next(names)}
    if document.detailed.counts is not None:
        del section["stage_one"]
        section["counts"] = next(names)
    levels = [entry.model_dump(exclude_none=True) for entry in document.levels if entry]
    return {key: value for key, value in section.items() if value != {}} | {"level": levels}


def _geography(document: Document, names: Iterator[str]) -> dict[str, Any]:
    if document.geography is None:
        return {}
    unused = set() if document.geography.columns else {"columns"}
    section = document.geography.model_dump(exclude_none=True, exclude=unused) | {"file": next(names)}
    if document.open_shares:
        section["shares"] = AUTO
    return section | {"query": [entry.model_dump(exclude_none=True) for entry in document.queries if entry]}


def with_shares(
    record: Record, levels: Mapping[str, str], queries: Sequence[tuple[Sequence[str], Mapping[str, str]]]
) -> Record:
    """The record of a document of areas in which shares are written that were to be chosen.

    Weights of tables go, as they do from a document whose shares are written: they have had their say.

    Args:
        levels: the share of each level.
        queries: for each query its attributes and its share of each level.
    """
    geography = {**record["geography"], "shares": dict(levels)}
    geography["query"] = [{"attributes": list(names), "shares": dict(given)} for names, given in queries]
    tables = [{key: value for key, value in table.items() if key != "weight"} for table in record["table"]]
    return {**record, "geography": geography, "table": tables}


def _reliability(document: Document) -> dict[str, Any]:
    assert document.reliability is not None
    section = document.reliability
    asked = {key: True for key in ("column", "mask") if getattr(section, key)}
    return {"thresholds": section.thresholds, "labels": list(section.names), **asked}


def _aimed(document: Document) -> bool:
    """Whether targets of tables are the objective."""
    return any(entry and entry.target for entry in document.tables)


def _attribute(name: str, entry: AttributeEntry) -> dict[str, Any]:
    written = entry.model_dump(exclude_none=True)
    if entry.codes is not None:
        written["codes"] = CODES.format(attribute=name)
    return written if entry.from_records else {"column": name} | written


def _recode(name: str, entry: RecodeEntry) -> dict[str, Any]:
    written = entry.model_dump(exclude_none=True)
    if entry.map is not None:
        written["map"] = MAPS.format(recode=name)
    return written


def _table(document: Document, at: int, entry: TableEntry) -> dict[str, Any]:
    if document.is_geography:
        targets = [given.model_dump(exclude_none=True) for given in document.area_targets[at] if given]
        written = entry.model_dump(exclude_none=True, exclude=set() if document.open_shares else {"weight"})
        return written | ({"target": targets} if targets else {})
    written = _counted(entry, entry.name) | {"weight": _short(entry.weight)}
    if entry.measures:
        told = [measure.model_dump(exclude_none=True) for measure in entry.measures]
        written["measures"] = ["count" if "count" in each else each for each in told]
    return written


def _invariant(document: Document, entry: InvariantEntry) -> dict[str, Any]:
    if document.is_geography:
        return entry.model_dump(exclude_none=True)
    return {"name": entry.title} | _counted(entry, entry.title)


def _counted(entry: CountedEntry, name: str | None) -> dict[str, Any]:
    written: dict[str, Any] = entry.model_dump(exclude_none=True)
    if entry.queries is not None:
        written["queries"] = {
            attribute: _query(name or "", attribute, query) for attribute, query in entry.queries.items()
        }
    return written


def _query(table: str, attribute: str, query: object) -> object:
    if isinstance(query, dict) and "matrix" in query:
        return {"matrix": MATRICES.format(table=table, attribute=attribute)}
    return query


def _short(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number
