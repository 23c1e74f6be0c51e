"""Whether the parts of a release folder say the same: ledger entries, spec, Parquet and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from .._version import VERSION
from ..domain import canonical_row_space
from ..privacy import Disclosure, write_loss
from ..privacy.ledger import START, link
from ..spec import Spec
from . import folder as f
from .write import code_lists

_CHAIN = ("sequence", "kind", "previous", "hash")
_HASH = re.compile(f"[0-9a-f]{{{len(START)}}}")
_SAID = {
    "charge": {"release_id", "nonce", "definition", "loss", "title", "time"},
    "disclosure": {"release_id", "table", "reason", "rows", "promise", "time"},
    "follows": {"release_id", "follows", "relation", "time"},
}


def entry_faults(entries: object, release_id: object) -> Iterator[str]:
    """Whether entries are those that the ledger makes of one release before it is published, one sentence a fault.

    They are its charge, what it discloses as exact, in one piece with the charge, and which release it follows, if any.

    Args:
        entries: what is stored as them, of whatever form.
        release_id: of the release.
    """
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        yield f"{f.LEDGER}: its entries are not in the form that a ledger has"
        return
    kinds = [entry["kind"] for entry in entries]
    follows = kinds[-1:] == ["follows"]
    paid = entries[: len(entries) - follows]
    if kinds[: len(paid)] != ["charge", *["disclosure"] * (len(paid) - 1)]:
        yield f"{f.LEDGER}: is not one charge, what it discloses, and at most one release that it follows"
        return
    if any(entry["release_id"] != release_id for entry in entries):
        yield f"{f.LEDGER}: has entries of another release"
    joined = all(
        after["sequence"] == before["sequence"] + 1 and after["previous"] == before["hash"]
        for before, after in pairwise(paid)
    )
    if not joined or (follows and entries[-1]["sequence"] <= paid[-1]["sequence"]):
        yield f"{f.LEDGER}: its entries do not follow one another"


def _is_entry(entry: object) -> bool:
    """Whether a value has the keys of an entry, and what every entry has in the form that a ledger gives it."""
    if not isinstance(entry, dict) or not isinstance(kind := entry.get("kind"), str):
        return False
    if entry.keys() != _SAID.get(kind, set()) | set(_CHAIN):
        return False
    texts = [value for key, value in entry.items() if key not in ("sequence", "loss", "rows")]
    return (
        type(entry["sequence"]) is int
        and all(isinstance(text, str) for text in texts)
        and all(_HASH.fullmatch(entry[key]) for key in ("previous", "hash"))
    )


def ledger_faults(
    entries: Sequence[Mapping[str, Any]], spec: Spec, stated: Sequence[Disclosure]
) -> Iterator[str]:
    """What is wrong with a release's entries of the ledger: their hashes, the charge, and what they disclose."""
    for entry in entries:
        content = {key: value for key, value in entry.items() if key not in _CHAIN}
        whole = link(int(entry["sequence"]), str(entry["kind"]), content, str(entry["previous"]))
        if whole.hash != entry["hash"]:
            yield f"{f.LEDGER}: entry {entry['sequence']} does not match its hash"
    charged = [(e["definition"], e["loss"]) for e in entries if e["kind"] == "charge"]
    if charged != [(spec.loss.definition, write_loss(spec.loss))]:
        yield f"{f.LEDGER}: what was charged is not the budget of {f.SPEC}"
    told = [
        (e["table"], e["reason"], canonical_row_space(e["rows"]))
        for e in entries
        if e["kind"] == "disclosure"
    ]
    if told != [(each.table, each.reason, canonical_row_space(each.rows)) for each in stated]:
        yield f"{f.LEDGER}: what was disclosed as exact is not what {f.SPEC} makes exact"


def csv_faults(folder: Path, name: str, stored: pa.Table, within: str = "tables") -> Iterator[str]:
    """Whether the CSV file of a table says what the Parquet file says, number for number."""
    path = folder / within / f"{name}.csv"
    try:
        options = pyarrow.csv.ConvertOptions(column_types=stored.schema)
        same = pyarrow.csv.read_csv(path, convert_options=options).equals(stored)
    except (OSError, pa.ArrowException):
        same = False
    if not same:
        yield f"{within}/{name}.csv: does not say what {within}/{name}.parquet says"


def same_version(descriptor: Mapping[str, Any]) -> bool:
    """Whether this version wrote the release: another one may word its texts differently."""
    return descriptor["tabulae"].get("version") == VERSION


def text_faults(folder: Path, spec: Spec, descriptor: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with titles, code lists and texts that follow from the spec, one sentence a fault.

    Texts that another version wrote are left out.
    """
    if descriptor.get("title") != spec.title:
        yield f"{f.DESCRIPTOR}: its title is not that of {f.SPEC}"
    entries = f.read_json(folder, f.LEDGER)
    if [e.get("title") for e in entries if e["kind"] == "charge"] != [spec.title or "release"]:
        yield f"{f.LEDGER}: the title of the charge is not that of {f.SPEC}"
    if not same_version(descriptor):
        return
    if (folder / f.SPEC).read_bytes() != spec.published_text().encode():
        yield f"{f.SPEC}: is not written as releases have it"
    for name, content in {**code_lists(spec.domain), **spec.files}.items():
        if not (folder / name).is_file():
            yield f"{name} is missing"
        elif (folder / name).read_bytes() != content:
            yield f"{name}: its codes and labels are not those of {f.SPEC}"
