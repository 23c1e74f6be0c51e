"""The plain mechanics of a release folder: names, JSON, checksums, and getting bytes onto the disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ReleaseError

DESCRIPTOR = "datapackage.json"
REPORT = "report.html"
_RESULTS = ("tables/", "derived/", REPORT)
SUMS = "SHA256SUMS"
SPEC = "spec.toml"
LEDGER = "ledger.json"
STRATEGY = "strategy/strategy.json"
MEASUREMENT = "measurements/measurement.json"
INVARIANTS = "invariants"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and see it onto the disk; under its name there is never a part of it."""
    with drafted(path) as file:
        file.write(content)


@contextmanager
def drafted(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that gets its name once it is complete and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    with draft.open("wb") as file:
        yield file
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
        raise ReleaseError(
            f"{folder / name} cannot be read: {error}. Copy the release again from where it was published"
        ) from None


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


def require_others(folder: Path, name: str) -> None:
    """See that every file but one is as SHA256SUMS lists it.

    Raises:
        ReleaseError: some are not, all of them named.
    """
    for path in (folder / name, folder / SUMS):
        _draft(path).unlink(missing_ok=True)  # of a process that was killed here
    if faults := check_sums(folder, but=name):
        told = "\n".join(f"  {fault}" for fault in faults)
        raise ReleaseError(f"{folder} is not as it was published, and nothing was written:\n{told}")


def require_sources(folder: Path) -> None:
    """See that the files that new answers come from are as SHA256SUMS lists them: all but tables, figures and pages.

    Raises:
        ReleaseError: some are not, all of them named.
    """
    expected = read_sums(folder)
    needed = [name for name in expected if not name.startswith(_RESULTS)]
    wrong = [n for n in needed if not (folder / n).is_file() or file_sha256(folder / n) != expected[n]]
    if wrong:
        told = "\n".join(f"  {name} was altered, or is missing" for name in wrong)
        raise ReleaseError(f"{folder} is not as it was published, and answers nothing:\n{told}")


def replace_listed(folder: Path, name: str, content: bytes) -> None:
    """Write one file anew, and its line of SHA256SUMS; the others' lines stay."""
    write_bytes(folder / name, content)
    sums = {**read_sums(folder), name: file_sha256(folder / name)}
    write_bytes(folder / SUMS, "".join(f"{sums[each]}  {each}\n" for each in sorted(sums)).encode())


def read_sums(folder: Path) -> dict[str, str]:
    """File -> its sum, as SHA256SUMS lists them."""
    try:
        lines = [line for line in (folder / SUMS).read_text(encoding="utf-8").splitlines() if line]
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except FileNotFoundError:
        raise ReleaseError(f"{folder} is not a complete release: {SUMS} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{folder / SUMS} cannot be read: {error}") from None


def check_sums(folder: Path, but: str | None = None) -> list[str]:
    """What does not agree with SHA256SUMS: altered, missing and unlisted files, one sentence each.

    ``but`` is the name of one file that is not looked at.
    """
    expected, present = read_sums(folder), set(contents(folder))
    expected.pop(but or "", None)
    present.discard(but or "")
    faults = [f"{name} is missing" for name in sorted(expected.keys() - present)]
    faults += [f"{name} is not listed in {SUMS}" for name in sorted(present - expected.keys())]
    faults += [
        f"{name} was altered"
        for name in sorted(expected.keys() & present)
        if file_sha256(folder / name) != expected[name]
    ]
    return faults
