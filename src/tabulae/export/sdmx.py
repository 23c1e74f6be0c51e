"""Structures of SDMX 3.0 for a release: code lists, concepts, one data structure and dataflow for each table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ..domain import TOTAL_LABEL
from ..release import Release
from ..release.folder import close_all, sync_file, write_bytes, write_json
from .stored import (
    RELIABILITY,
    SDMX_CLASSES,
    SDMX_FREE,
    SDMX_STATUSES,
    STATUS,
    STATUSES,
    Category,
    CodeLists,
    StoredTable,
    as_name,
    sdmx_readme,
    translated,
    unique,
)

AGENCY = "TABULAE"
VERSION = "1.0.0"
VALUE = "OBS_VALUE"
SDMX_STATUS, RELEASE_STATUS, SDMX_CONFIDENCE = "OBS_STATUS", "RELEASE_STATUS", "CONF_STATUS"
_SCHEMA = (
    "https://raw.githubusercontent.com/sdmx-twg/sdmx-json/develop/structure-message/tools/schemas/2.0.0/"
    "sdmx-json-structure-schema.json"
)
_CONCEPTS = "CS_RELEASE"
_OWN_CONCEPTS = {
    VALUE: "Published count or figure",
    "STD_ERROR": "Standard error",
    "CI_LOW": "Lower end of the interval",
    "CI_HIGH": "Upper end of the interval",
    "GLS_ESTIMATE": "Unbiased estimate; the interval is about it",
    SDMX_STATUS: "Observation status",
    RELEASE_STATUS: "Status in the release",
}
_CREDIBLE = {
    "CREDIBLE_LOW": "Lower end of the credible interval",
    "CREDIBLE_HIGH": "Upper end of the credible interval",
}
WHOLE = "TOTAL"
"""The dimension of a table that has no other: a data structure needs one. Its only code is ``_T``."""

_OF_THE_FORMAT = (WHOLE, "STRUCTURE", "STRUCTURE_ID", "ACTION", "SERIES_KEY", "OBS_KEY", "TIME_PERIOD")
_STATUS_LISTS = {
    SDMX_STATUS: ("SDMX", "CL_OBS_STATUS", "2.2"),
    RELEASE_STATUS: (AGENCY, "CL_RELEASE_STATUS", VERSION),
}
_CLASSED_LISTS = {**_STATUS_LISTS, SDMX_CONFIDENCE: ("SDMX", "CL_CONF_STATUS", "1.3")}


@dataclass(frozen=True)
class Structures:
    """The names in SDMX of a release's columns and tables."""

    components: Mapping[str, str]
    flows: Mapping[tuple[str, str], str]


def measure(column: str) -> str:
    """The component of a column of numbers."""
    return VALUE if column == "estimate" else column.upper()


def dimensions(table: StoredTable, names: Structures) -> tuple[str, ...]:
    """The dimensions of a table."""
    return tuple(names.components[key] for key in table.keys) or (WHOLE,)


def structures(tables: Sequence[StoredTable]) -> Structures:
    """Names for all columns and tables, different from each other and from those of the format."""
    words = list(dict.fromkeys(word for table in tables for word in (*table.keys, *table.remarks)))
    taken = {*_OWN_CONCEPTS, *_OF_THE_FORMAT, *_CREDIBLE, *_confidence(tables)}
    flows = [(table.folder, table.name) for table in tables]
    return Structures(
        dict(zip(words, unique(map(as_name, words), taken), strict=True)),
        dict(zip(flows, unique(f"DF_{as_name(name)}" for _, name in flows), strict=True)),
    )


def _confidence(tables: Sequence[StoredTable]) -> dict[str, str]:
    """The concept of confidentiality, where tables have classes: a masked count is free all the same."""
    return {SDMX_CONFIDENCE: "Confidentiality status"} if any(table.classed for table in tables) else {}


def structure_message(
    release: Release, tables: Sequence[StoredTable], lists: CodeLists, names: Structures
) -> dict[str, Any]:
    """An SDMX-JSON 2.0 structure message; the same for the same release."""
    beside = [word for table in tables for word in table.remarks]
    whole = {} if all(table.keys for table in tables) else {WHOLE: "total"}
    concepts = {**whole, **{names.components[word]: word for word in (*lists, *beside)}, **_OWN_CONCEPTS}
    concepts |= _confidence(tables)
    concepts |= {
        name: told for name, told in _CREDIBLE.items() if any(name.lower() in t.numbers for t in tables)
    }
    return {
        "meta": {
            "schema": _SCHEMA,
            "id": _message_id(release),
            "test": False,
            "prepared": release.descriptor["created"],
            "sender": {"id": AGENCY},
        },
        "data": {
            "codelists": [
                *_own_lists(classed=bool(_confidence(tables))),
                *_whole_list(whole),
                *_lists(lists, names),
            ],
            "conceptSchemes": [
                {
                    **_maintained(_CONCEPTS, "Concepts of the release"),
                    "concepts": [_item(code, name) for code, name in concepts.items()],
                }
            ],
            "dataStructures": [_data_structure(table, names) for table in tables],
            "dataflows": [_dataflow(release, table, names) for table in tables],
        },
    }


def _message_id(release: Release) -> str:
    """Follows from the release, so that the same release gives the same message."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"tabulae {release.about['release_id']}"))


def _maintained(code: str, name: str, agency: str = AGENCY, version: str = VERSION) -> dict[str, Any]:
    return {"id": code, "agencyID": agency, "version": version, "name": name}


def _item(code: str, name: str) -> dict[str, str]:
    return {"id": code, "name": name}


def _own_lists(*, classed: bool) -> list[dict[str, Any]]:
    """The lists of SDMX, as far as they are used, and that of the release."""
    theirs = [_partial(SDMX_STATUS, "Observation status", SDMX_STATUSES | (SDMX_CLASSES if classed else {}))]
    if classed:
        theirs.append(_partial(SDMX_CONFIDENCE, "Confidentiality status", SDMX_FREE))
    ours = {
        **_maintained(_STATUS_LISTS[RELEASE_STATUS][1], "Status in the release"),
        "codes": [_item(letter, status.meaning) for letter, status in STATUSES.items()],
    }
    return [*theirs, ours]


def _partial(concept: str, name: str, codes: Mapping[str, str]) -> dict[str, Any]:
    agency, code, version = _CLASSED_LISTS[concept]
    return {
        **_maintained(code, name, agency, version),
        "isPartial": True,
        "codes": [_item(letter, told) for letter, told in codes.items()],
    }


def _whole_list(whole: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {**_maintained(f"CL_{name}", name), "codes": [_item(TOTAL_LABEL, told)]}
        for name, told in whole.items()
    ]


def _lists(lists: CodeLists, names: Structures) -> list[dict[str, Any]]:
    return [
        {
            **_maintained(f"CL_{names.components[column]}", column),
            "codes": [_code(category, categories) for category in categories.values()],
        }
        for column, categories in lists.items()
    ]


def _code(category: Category, categories: Mapping[str, Category]) -> dict[str, str]:
    above = {} if category.parent is None else {"parent": categories[category.parent].identifier}
    return {**_item(category.identifier, category.name), **above}


def _data_structure(table: StoredTable, names: Structures) -> dict[str, Any]:
    flow = names.flows[table.folder, table.name]
    keys = [
        _component(name, {"enumeration": _list_urn(AGENCY, f"CL_{name}", VERSION)})
        for name in dimensions(table, names)
    ]
    others = [name for name in table.numbers if name != "estimate"]
    attributes = [_attribute(measure(name), _number(table.numbers[name])) for name in others]
    attributes += [
        _attribute(names.components[word], {"format": {"dataType": "String"}}) for word in table.remarks
    ]
    attributes += [
        _attribute(name, {"enumeration": _list_urn(*where)}) for name, where in _status_lists(table).items()
    ]
    return {
        **_maintained(_structure_of(flow), table.title),
        "dataStructureComponents": {
            "dimensionList": {"id": "DimensionDescriptor", "dimensions": keys},
            "measureList": {
                "id": "MeasureDescriptor",
                "measures": [_component(VALUE, _number(table.numbers["estimate"]))],
            },
            "attributeList": {"id": "AttributeDescriptor", "attributes": attributes},
        },
    }


def _status_lists(table: StoredTable) -> Mapping[str, tuple[str, str, str]]:
    return _CLASSED_LISTS if table.classed else _STATUS_LISTS


def _structure_of(flow: str) -> str:
    return flow.replace("DF_", "DSD_", 1)


def _component(code: str, representation: dict[str, Any]) -> dict[str, Any]:
    return {"id": code, "conceptIdentity": _concept_urn(code), "localRepresentation": representation}


def _attribute(code: str, representation: dict[str, Any]) -> dict[str, Any]:
    return {
        **_component(code, representation),
        "attributeRelationship": {"observation": {}},
        "measureRelationship": [VALUE],
    }


def _number(kind: pa.DataType) -> dict[str, Any]:
    return {"format": {"dataType": "Long" if pa.types.is_integer(kind) else "Double"}}


def _dataflow(release: Release, table: StoredTable, names: Structures) -> dict[str, Any]:
    flow = names.flows[table.folder, table.name]
    urn = f"urn:sdmx:org.sdmx.infomodel.datastructure.DataStructure={AGENCY}:{_structure_of(flow)}({VERSION})"
    return {**_maintained(flow, f"{release.spec.title}: {table.title}"), "structure": urn}


def _list_urn(agency: str, code: str, version: str) -> str:
    return f"urn:sdmx:org.sdmx.infomodel.codelist.Codelist={agency}:{code}({version})"


def _concept_urn(code: str) -> str:
    return f"urn:sdmx:org.sdmx.infomodel.conceptscheme.Concept={AGENCY}:{_CONCEPTS}({VERSION}).{code}"


_INFORMATION = "I"  # the action of data that are neither appended nor replaced


def write_sdmx_csv(release: Release, tables: list[StoredTable], lists: CodeLists, folder: Path) -> None:
    """Write ``tables/NAME.csv``, ``derived/NAME.csv``, ``structure.json`` and ``README.md``."""
    names = structures(tables)
    write_json(folder / "structure.json", structure_message(release, tables, lists, names))
    for table in tables:
        codes = {key: {v: lists[key][v].identifier for v in table.values[key]} for key in table.keys}
        least = release.spec.reliability.names[-1] if table.classed else None
        _write(table, codes, names, folder / f"{table.folder}/{table.name}.csv", least)
    write_bytes(folder / "README.md", sdmx_readme(release, tables).encode())


def _write(
    table: StoredTable,
    codes: Mapping[str, Mapping[str, str]],
    names: Structures,
    path: Path,
    least: str | None,
) -> None:
    flow = f"{AGENCY}:{names.flows[table.folder, table.name]}({VERSION})"
    schema = _schema(table, names)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        writer, failed = pyarrow.csv.CSVWriter(file, schema), True
        try:
            for batch in table.batches():
                writer.write_batch(_rows(batch, table, codes, flow, schema, least))
            failed = False
        finally:
            close_all([writer], failed=failed)
    sync_file(path)


def _schema(table: StoredTable, names: Structures) -> pa.Schema:
    """Columns in the order of the format: what it is of, dimensions, measure, attributes."""
    word = pa.string()
    fields = [(name, word) for name in ("STRUCTURE", "STRUCTURE_ID", "ACTION")]
    fields += [(name, word) for name in dimensions(table, names)]
    fields += [(measure(name), kind) for name, kind in table.numbers.items()]
    fields += [(names.components[name], word) for name in table.remarks]
    return pa.schema([*fields, *((name, word) for name in _status_lists(table))])


def _rows(
    batch: pa.RecordBatch,
    table: StoredTable,
    codes: Mapping[str, Mapping[str, str]],
    flow: str,
    schema: pa.Schema,
    least: str | None,
) -> pa.RecordBatch:
    arrays = [pa.repeat(word, batch.num_rows) for word in ("dataflow", flow, _INFORMATION)]
    keys = [translated(batch.column(key), codes[key]) for key in table.keys]
    arrays += keys or [pa.repeat(TOTAL_LABEL, batch.num_rows)]
    arrays += [_finite(batch.column(name)) for name in table.numbers]
    arrays += [batch.column(name).cast(pa.string()) for name in table.remarks]
    plain = translated(batch.column(STATUS), {k: status.sdmx for k, status in STATUSES.items()})
    arrays.append(plain if least is None else _by_class(plain, batch, least))
    arrays.append(batch.column(STATUS).cast(pa.string()))
    if table.classed:
        arrays.append(pa.repeat(next(iter(SDMX_FREE)), batch.num_rows))
    return pa.record_batch(arrays, schema=schema)


def _by_class(plain: pa.Array, batch: pa.RecordBatch, least: str) -> pa.Array:
    """Statuses in SDMX, where counts of the least class are of low reliability, or suppressed if they are masked."""
    low, suppressed = SDMX_CLASSES
    found = np.array(plain.to_pylist(), dtype=object)
    words = np.array(batch.column(RELIABILITY).cast(pa.string()).to_pylist(), dtype=object)
    missing = batch.column("estimate").is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(words == least, np.where(missing, suppressed, low), found), pa.string())


def _finite(numbers: pa.Array) -> pa.Array:
    """Numbers as they are; what is not a number is left out, as the format has it."""
    if pa.types.is_integer(numbers.type):
        return numbers
    values = numbers.to_numpy(zero_copy_only=False)
    return pa.array(values, numbers.type, mask=~np.isfinite(values))
