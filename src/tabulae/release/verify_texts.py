"""Whether the texts of a release, which say what its numbers are, are those that were published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._version import VERSION
from ..spec import Spec
from . import folder as f
from .write import code_lists


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
