"""What tells one release from every other: its id, and a digest over the checksums of its folder."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """The mark of a finished release, from its folder.

    Raises:
        ValueError: the folder is not one; the message says what it lacks.
    """
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
