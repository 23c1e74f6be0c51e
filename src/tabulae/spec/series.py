"""What tells one release from every other: its id, and a digest over the checksums of its folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ..privacy.ledger import Relation
from .problems import KeyPath, Problems, shown
from .shape import Filled, StrictSection, problem

DESCRIPTOR = "datapackage.json"
REPORT = "report.html"
SUMS = "SHA256SUMS"

_REPORT_LINE = f"  {REPORT}".encode()
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Mark:
    """The id that the ledger gave a release, and the digest of its SHA256SUMS (see :func:`digest_of_sums`)."""

    release_id: str
    sha256sums: str


def mark_of(folder: Path) -> Mark:
    """The mark of a finished release, from its folder."""
    if not folder.is_dir():
        raise ValueError("is not there" if not folder.exists() else "is not a folder")
    try:
        descriptor: Any = json.loads((folder / DESCRIPTOR).read_bytes())
        release_id = descriptor["tabulae"]["release_id"]
        sums = (folder / SUMS).read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"has no {Path(str(error.filename)).name}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"has a {DESCRIPTOR} that names no release") from None
    if not is_release_id(release_id):
        raise ValueError(f"has a {DESCRIPTOR} that names no release")
    return Mark(release_id, digest_of_sums(sums))


def is_release_id(value: object) -> bool:
    """Whether a value has the form of a release id: 32 hexadecimal digits.

    >>> is_release_id("0" * 32), is_release_id("x")
    (True, False)
    """
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def digest_of_sums(content: bytes) -> str:
    """SHA-256, in hexadecimal, of the lines of a SHA256SUMS but that of the report, which can be made again.

    ``grep -v '  report.html$' SHA256SUMS | sha256sum`` prints the same.

    >>> digest_of_sums(b"00  a\\n11  report.html\\n") == digest_of_sums(b"00  a\\n22  report.html\\n")
    True
    >>> digest_of_sums(b"00  a\\n") == digest_of_sums(b"01  a\\n")
    False
    """
    kept = [line for line in content.splitlines(keepends=True) if not line.rstrip().endswith(_REPORT_LINE)]
    return hashlib.sha256(b"".join(kept)).hexdigest()


_DIGEST = re.compile(r"[0-9a-f]{64}")
_PATH = 'follows = "release-2025"'


def _release_id(value: str) -> str:
    if not is_release_id(value):
        raise problem(f"must be the 32 hexadecimal digits of a release id, not {shown(value)}")
    return value


def _digest(value: str) -> str:
    if not _DIGEST.fullmatch(value):
        raise problem(f"must be the 64 hexadecimal digits of a SHA-256, not {shown(value)}")
    return value


class MarkEntry(StrictSection):
    """What the published copy has in place of a path: ``{ release_id = "...", sha256sums = "..." }``."""

    release_id: Annotated[str, AfterValidator(_release_id)] | None = Field(
        description="the other release, by the id in its datapackage.json"
    )
    sha256sums: Annotated[str, AfterValidator(_digest)] | None = Field(
        description="the digest of the checksums of the other release"
    )


class SeriesSection(StrictSection):
    """``[series]``: the release that this one follows."""

    follows: Any = Field(description=f"the folder of the release that this one follows: {_PATH}")
    kind: Relation | None = Field(
        description='how it follows: kind = "next" (next year\'s, say), or "correction" (in its place)'
    )
    reason: Filled | None = None


@dataclass(frozen=True)
class Series:
    """Which release a spec follows: its mark, how, and why.

    ``folder`` is where that release stands; None in a published copy, which names no place.
    """

    follows: Mark
    kind: Relation
    reason: str | None = None
    folder: Path | None = None

    def record(self) -> dict[str, Any]:
        """What the published copy says: the same wherever the predecessor stands."""
        why = {} if self.reason is None else {"reason": self.reason}
        return {"follows": vars(self.follows), "kind": self.kind, **why}


def read_series(raw: Mapping[str, Any], base: Path, problems: Problems) -> Series | None:
    """The ``[series]`` of a parsed document; None without one, or with mistakes, which are recorded."""
    if "series" not in raw:
        return None
    given = raw["series"]
    if not isinstance(given, dict):
        problems.add(
            ("series",), "must be a section: write [series] on a line of its own, and its keys below"
        )
        return None
    section = problems.check(SeriesSection, given, ("series",))
    if section is None:
        return None
    if section.kind == "correction" and section.reason is None and not problems.has(("series", "reason")):
        told = 'is missing: the report says why figures were corrected: reason = "two files were read twice"'
        problems.add(("series", "reason"), told)
    if section.follows is None or section.kind is None:
        return None
    found = read_mark(section.follows, ("series", "follows"), base, problems, _PATH)
    return None if found is None else Series(found[0], section.kind, section.reason, found[1])


def read_mark(
    given: object, at: KeyPath, base: Path, problems: Problems, example: str
) -> tuple[Mark, Path | None] | None:
    """The mark of a release that a document names by its folder, with the folder, or, in a published copy, by its mark.

    None, with the mistake recorded, where it is neither.
    """
    if isinstance(given, dict):
        entry = problems.check(MarkEntry, given, at)
        if entry is None or entry.release_id is None or entry.sha256sums is None:
            return None
        return Mark(entry.release_id, entry.sha256sums), None
    if not isinstance(given, str) or not given.strip():
        problems.add(at, f"must be the folder of a release, {example}, not {shown(given)}")
        return None
    try:
        return mark_of(base / given), base / given
    except ValueError as error:
        told = f"{shown(given)} {error}: name the folder that `tabulae run --out` wrote, relative to this document"
        problems.add(at, told)
        return None
