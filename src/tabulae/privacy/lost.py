"""Noise that was paid for and is lost: what becomes of its charge."""

from __future__ import annotations

from ..errors import (
    LedgerError,
    ReleaseError,
    TabulaeError,
)
from .ledger import Ledger


def lost(ledger: Ledger, release_id: str, error: BaseException) -> BaseException:
    """The error to raise for a charge of which nothing can be published, once it is marked void; it stays spent.

    Args:
        ledger: where it was charged.
        release_id: the charge.
        error: why its noise, or the counts that it was to be added to, are lost.

    Privacy:
        What was charged stays spent, whether anybody saw the noise or not: sequential composition then holds for
        whatever is charged next.
    """
    try:
        ledger.settle(release_id, "void")
    except (LedgerError, OSError):
        mark = "could not be marked void in the ledger, but stays spent"
    else:
        mark = "is void and stays spent"
    if isinstance(error, TabulaeError | OSError):
        told = str(error) if isinstance(error, TabulaeError) else (error.strerror or str(error))
        return ReleaseError(f"{told}. Nothing was published; the charge {release_id} {mark}")
    return error
