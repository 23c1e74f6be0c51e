"""The plain mechanics of a release folder: names, JSON, checksums, and getting bytes onto the disk."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..errors import ReleaseError

DESCRIPTOR = "datapackage.json"
REPORT = "report.html"
SUMS = "SHA256SUMS"
SPEC = "spec.toml"
LEDGER = "ledger.json"
STRATEGY = "strategy/strategy.json"
MEASUREMENT = "measurements/measurement.json"
INVARIANTS = "invariants"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and see it onto the disk; under its name there is never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


def write_json(path: Path, document: Any) -> None:
    """Write JSON, keys in the order given, readable by people."""
    write_bytes(path, (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(folder: Path, name: str) -> Any:
    """Read a JSON file of a release."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"{folder} is not a complete release: {name} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{folder / name} cannot be read: {error}") from None


def sync_folder(folder: Path) -> None:
    """See a folder's own entries onto the disk, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def contents(folder: Path) -> list[str]:
    """The files of a release, relative and sorted, without the checksums themselves."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if name != SUMS)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS in the form that ``sha256sum -c`` reads."""
    _draft(folder / SUMS).unlink(missing_ok=True)  # of a process that was killed here
    lines = [f"{file_sha256(folder / name)}  {name}\n" for name in contents(folder)]
    write_bytes(folder / SUMS, "".join(lines).encode())


def check_sums(folder: Path) -> list[str]:
    """What does not agree with SHA256SUMS: altered, missing and unlisted files, one sentence each."""
    try:
        lines = [line for line in (folder / SUMS).read_text(encoding="utf-8").splitlines() if line]
        expected = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except FileNotFoundError:
        raise ReleaseError(f"{folder} is not a complete release: {SUMS} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{folder / SUMS} cannot be read: {error}") from None
    present = set(contents(folder))
    faults = [f"{name} is missing" for name in sorted(expected.keys() - present)]
    faults += [f"{name} is not listed in {SUMS}" for name in sorted(present - expected.keys())]
    faults += [
        f"{name} was altered"
        for name in sorted(expected.keys() & present)
        if file_sha256(folder / name) != expected[name]
    ]
    return faults
