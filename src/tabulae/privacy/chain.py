"""The rows of a ledger and the hashes that chain them.

Each row's hash covers its number, kind and body and the hash of the row before, so that no row can be
edited, dropped, added or moved without changing every hash after it. The last hash, the head, stands
for the whole history; kept elsewhere, it also betrays a file that was rolled back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import LedgerError

START = "0" * 64


@dataclass(frozen=True)
class Row:
    """One entry: what happened, as canonical JSON, and where it stands in the chain."""

    sequence: int
    kind: str
    body: str
    previous: str
    hash: str

    def content(self) -> dict[str, Any]:
        """The body as a dictionary."""
        return json.loads(self.body)


def link(sequence: int, kind: str, content: Mapping[str, Any], previous: str) -> Row:
    """The row that follows the one with hash ``previous``.

    Privacy: none is spent; SHA-256 binds the row to all before it.

    >>> link(0, "created", {"unit": "person"}, START).body
    '{"unit":"person"}'
    """
    body = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return Row(sequence, kind, body, previous, _hash(sequence, kind, body, previous))


def _hash(sequence: int, kind: str, body: str, previous: str) -> str:
    message = "\n".join((previous, str(sequence), kind, body))
    return hashlib.sha256(message.encode()).hexdigest()


def verify(rows: Iterable[Row], sequence: int, previous: str, where: str) -> None:
    """Check that rows continue the chain at ``sequence`` after the hash ``previous``.

    Raises:
        LedgerError: a row that is missing, out of place or altered.

    Privacy: an altered ledger could allow a budget to be spent twice, so it is refused whole.

    >>> verify([link(0, "created", {}, START)], 0, START, "ledger.db")
    """
    for row in rows:
        intact = row.sequence == sequence and row.previous == previous
        if not intact or row.hash != _hash(row.sequence, row.kind, row.body, row.previous):
            raise altered(where, f"entry {sequence} does not follow from the one before it")
        sequence, previous = sequence + 1, row.hash


def altered(where: str, finding: str) -> LedgerError:
    """The error for a ledger that is not as it was written.

    Privacy: names the entry, never its content.

    >>> altered("ledger.db", "entry 3 is missing").exit_code
    1
    """
    return LedgerError(
        f"{where} was altered: {finding}. It is refused, because its budget can no longer be trusted; "
        "restore the latest copy, or start a new ledger and treat the whole budget as spent"
    )
