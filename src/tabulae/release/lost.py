"""A stream of measurements that are paid for, poured into what writes it: what becomes of its charge on failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..errors import LedgerError, ReleaseError, TabulaeError
from ..privacy import Ledger

Piece = TypeVar("Piece")


def poured(
    stream: Iterable[Piece],
    release_id: str | None,
    sinks: Sequence[Callable[[Piece], None]],
    ledger: Ledger | None,
) -> None:
    """Hand each piece to every sink. Where one fails the noise is lost: its charge is marked void and stays spent.

    Args:
        stream: public measurements, drawn as they are read.
        release_id: their charge; None where nothing was charged.
        sinks: what writes them.
        ledger: where they were charged.

    Raises:
        ReleaseError: a sink failed, and says why.
    """
    try:
        for piece in stream:
            for sink in sinks:
                sink(piece)
    except BaseException as error:
        if ledger is not None and release_id is not None:
            raise _lost(ledger, release_id, error) from None
        raise


def _lost(ledger: Ledger, release_id: str, error: BaseException) -> BaseException:
    """The error to raise for noise that was paid for and is lost, once the charge is marked void."""
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
