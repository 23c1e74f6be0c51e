"""Measurements of every kind of release: where noise comes from, and how pieces are stored as they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InvalidArgument, ReleaseError
from ..privacy import Ledger, NoiseLaw, PrivacyLoss, RandomBits, SystemSource
from ..release import folder as f
from ..release.folder import close_all, sync_file

FOLDER = "measurements"


def source_for(ledger: Ledger | None, source: RandomBits | None) -> RandomBits:
    """The randomness of noise: the operating system's where none is given.

    Raises:
        InvalidArgument: an insecure source is combined with a ledger.

    Privacy:
        Noise that a ledger pays for is drawn from a secure source alone.
    """
    source = SystemSource() if source is None else source
    if ledger is not None and not source.secure:
        raise InvalidArgument(
            "an insecure source of randomness is for rehearsals: it cannot be charged to a ledger"
        )
    return source


def charged_id(release_id: str | None, *, rehearsal: bool) -> str:
    """The charge of a measurement.

    Raises:
        ReleaseError: a rehearsal, which is not for publication.
    """
    if rehearsal or release_id is None:
        raise ReleaseError(
            "this measurement is a rehearsal, not for publication: measure with a ledger and secure noise"
        )
    return release_id


def loss_document(loss: PrivacyLoss) -> dict[str, str]:
    """A loss as exact strings."""
    return {"definition": loss.definition, **{name: str(value) for name, value in loss.parameters.items()}}


def law_document(law: NoiseLaw) -> dict[str, str]:
    """A law with its exact parameter."""
    return {"name": law.name, law.word: str(law.parameter)}


class PieceFiles:
    """Writes pieces of a measurement into Parquet files; a context manager that opens and closes them.

    Every file exists from the start: what is paid for can be read back. ``measurement.json``, which says that all is
    there, comes last and from :meth:`complete` only.

    Args:
        folder: of the release.
        schemas: file, relative to it -> columns.
        options: of all files.
    """

    def __init__(self, folder: Path, schemas: Mapping[str, pa.Schema], **options: Any) -> None:
        self.folder, self._schemas, self._options = folder, schemas, options
        self._open: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        for stale in (self.folder / FOLDER).glob("*.parquet"):
            stale.unlink()  # of a process that was killed, with other levels perhaps
        try:
            for name, schema in self._schemas.items():
                self._open[name] = pq.ParquetWriter(self.folder / name, schema, **self._options)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writers = list(self._open.values())
        self._open.clear()
        close_all(writers, failed=kind is not None)

    def write(self, name: str, rows: pa.Table, **options: Any) -> None:
        """Append rows to a file."""
        self._open[name].write_table(rows, **options)

    def close(self) -> None:
        """See every file onto the disk."""
        self.__exit__(None, None, None)
        for name in self._schemas:
            sync_file(self.folder / name)

    def complete(self, release_id: str, document: Mapping[str, Any]) -> None:
        """Say that the measurement is complete, and what was measured."""
        f.write_json(self.folder / f.MEASUREMENT, {"release_id": release_id, **document})
        f.sync_folder(self.folder / FOLDER)
