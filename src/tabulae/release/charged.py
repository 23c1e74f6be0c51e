"""Noise that is paid for, on its way to the disk: what becomes of its charge where something fails."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from ..errors import ReleaseError
from ..privacy import Ledger, mark_void
from ..sources.memory import size_words
from .folder import MEASUREMENT
from .place import disk_reason


class Marks(Protocol):
    """Measurements, of which only the name of their charge is needed here."""

    @property
    def release_id(self) -> str | None:
        """The release that was charged for."""
        ...


class Writer(Protocol):
    """Writes a measurement piece by piece into a folder, and says at the end that it is complete."""

    @property
    def folder(self) -> Path:
        """Where it writes."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...

    def __call__(self, piece: Any, /) -> None: ...

    def finish(self, done: Any) -> None:
        """See everything onto the disk, then say that it is complete."""
        ...


W = TypeVar("W", bound=Writer)
Piece = TypeVar("Piece")


def check_space(folder: Path, needed: int) -> None:
    """Refuse, before anything is charged, what may not fit: a disk that fills while noise is drawn costs the charge.

    Raises:
        ReleaseError: the disk has less free than the measurements may need.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ReleaseError(
            f"this release may take {size_words(needed)} on disk, and where {folder} stands "
            f"{size_words(free)} are free: free some, or write the release on another disk. Nothing was charged"
        )


@contextlib.contextmanager
def opened(writer: W) -> Iterator[W]:
    """The writer with its files open; where they cannot be, nothing is charged."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(writer)
        except OSError as error:
            raise ReleaseError(
                f"cannot write in {writer.folder}: {disk_reason(error)}. Nothing was charged"
            ) from None
        yield writer


def told(writer: Writer) -> Callable[[Any], None]:
    """The writer, its trouble with the file system said plainly."""

    def write(piece: Any) -> None:
        try:
            writer(piece)
        except OSError as error:
            raise ReleaseError(f"cannot write in {writer.folder}: {disk_reason(error)}") from None

    return write


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
            raise mark_void(ledger, release_id, error) from None
        raise


def finish(writer: Writer, done: Marks, ledger: Ledger) -> None:
    """Complete the measurement on disk; where that fails its charge is void, for the noise cannot be published."""
    try:
        writer.finish(done)
    except BaseException as error:
        if (writer.folder / MEASUREMENT).exists():  # it is complete: to be resumed
            raise
        if isinstance(error, OSError):
            error = ReleaseError(f"cannot write in {writer.folder}: {disk_reason(error)}")
        raise mark_void(ledger, str(done.release_id), error) from None
