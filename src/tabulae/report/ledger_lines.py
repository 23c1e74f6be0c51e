"""A release's entries of its ledger as the page lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from .view import LedgerLine


def ledger_lines(entries: Sequence[Mapping[str, Any]]) -> tuple[LedgerLine, ...]:
    """The charges among the entries.

    >>> entry = {"kind": "charge", "time": "2026-01-01", "title": "x", "loss": {"rho": "1/2"}, "hash": "ab"}
    >>> ledger_lines([entry])[0].amount
    Fraction(1, 2)
    """
    return tuple(_line(entry) for entry in entries if entry["kind"] == "charge")


def _line(entry: Mapping[str, Any]) -> LedgerLine:
    amount = next(value for key, value in entry["loss"].items() if key != "delta")
    return LedgerLine(str(entry["time"]), str(entry["title"]), Fraction(amount), str(entry["hash"]))
