"""Whether the parts of a release folder say the same: ledger entries, spec, Parquet and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ..geography.disclosure import disclosure_of
from ..privacy.chain import link
from ..privacy.history import read_loss
from ..spec import Spec
from ..tables.row_space import canonical, describe
from . import folder as f

_CHAIN = ("sequence", "kind", "previous", "hash")


def ledger_faults(entries: Sequence[Mapping[str, Any]], spec: Spec) -> Iterator[str]:
    """What is wrong with a release's entries of the ledger: their hashes, the charge, and what they disclose."""
    for entry in entries:
        content = {key: value for key, value in entry.items() if key not in _CHAIN}
        whole = link(int(entry["sequence"]), str(entry["kind"]), content, str(entry["previous"]))
        if whole.hash != entry["hash"]:
            yield f"{f.LEDGER}: entry {entry['sequence']} is not what its hash was made of"
    losses = [read_loss(e["definition"], e["loss"]) for e in entries if e["kind"] == "charge"]
    if losses != [spec.loss]:
        yield f"{f.LEDGER}: what was charged is not the budget of {f.SPEC}"
    told = [(e["table"], e["reason"], canonical(e["rows"])) for e in entries if e["kind"] == "disclosure"]
    if told != _stated(spec):
        yield f"{f.LEDGER}: what was disclosed as exact is not what {f.SPEC} makes exact"


def _stated(spec: Spec) -> list[tuple[str, str, Any]]:
    """Name, reason and row space of what a spec makes exact."""
    if spec.geography is None:
        return [
            (given.table.name, given.reason, canonical(describe(given.table, spec.domain)))
            for given in spec.invariants
        ]
    plan, limits = spec.geography.plan(), spec.geography.constraints
    stated = [disclosure_of(plan, each) for each in (() if limits is None else limits.exact)]
    return [(each.table, each.reason, canonical(each.rows)) for each in stated]


def csv_faults(folder: Path, name: str, stored: pa.Table) -> Iterator[str]:
    """Whether the CSV file of a table says what the Parquet file says, number for number."""
    path = folder / "tables" / f"{name}.csv"
    try:
        options = pyarrow.csv.ConvertOptions(column_types=stored.schema)
        same = pyarrow.csv.read_csv(path, convert_options=options).equals(stored)
    except (OSError, pa.ArrowException):
        same = False
    if not same:
        yield f"tables/{name}.csv: does not say what tables/{name}.parquet says"
