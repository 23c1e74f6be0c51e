"""Convert a release: a folder in another format, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from ..errors import InvalidArgument, ReleaseError
from ..release import Release
from ..release.folder import DESCRIPTOR, check_sums, sync_folder, write_sums
from ..release.staging import disk_reason
from .json_stat import write_json_stat
from .plain_csv import write_plain_csv
from .sdmx import write_sdmx_csv
from .stored import CodeLists, StoredTable, code_lists, stored_tables

_WRITERS: dict[str, Callable[[Release, list[StoredTable], CodeLists, Path], None]] = {
    "csv": write_plain_csv,
    "sdmx-csv": write_sdmx_csv,
    "json-stat": write_json_stat,
}
FORMATS = tuple(_WRITERS)
"""The formats that a release can be converted to."""


def convert_release(release: Release, to: str, out: str | PathLike[str]) -> Path:
    """Write the tables of a release in another format, as a folder of their own.

    Every number is the one that is published, to the last digit. Long tables are read and written piece by piece.

    Arguments:
        release: the release; it is not changed.
        to: ``"csv"``, ``"sdmx-csv"`` or ``"json-stat"``.
        out: the folder to write; it must not exist, and appears only when it is complete.

    Returns the folder.

    Raises:
        InvalidArgument: there is no such format.
        ReleaseError: the release is not as it was published, ``out`` exists or lies in the release, or cannot be
            written.

    Privacy:
        Reads nothing but the published folder: post-processing, at no cost.
    """
    if to not in _WRITERS:
        raise InvalidArgument(f"there is no format {to!r}: convert to {', '.join(map(repr, FORMATS))}")
    out = Path(out)
    _check_place(release, out)
    if faults := check_sums(release.path):
        told = "\n".join(f"  {fault}" for fault in faults)
        raise ReleaseError(f"{release.path} is not as it was published, and is not converted:\n{told}")
    _check_described(release)
    tables = stored_tables(release)
    lists = code_lists(release.path, tables)
    draft = out.parent / f".{out.name}.{os.getpid()}.partial"
    try:
        draft.mkdir()
        _WRITERS[to](release, tables, lists, draft)
        write_sums(draft)
        sync_folder(draft)
        draft.rename(out)
        sync_folder(out.parent)
    except OSError as error:
        raise ReleaseError(f"cannot write {out}: {disk_reason(error)}. Nothing was written") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def _check_described(release: Release) -> None:
    """Refuse a folder whose descriptor lacks what every format tells of a release."""
    about, resources = release.about, release.descriptor.get("resources")
    words = [release.descriptor.get(key) for key in ("name", "created")]
    words += [about.get(key) for key in ("version", "release_id")]
    described = isinstance(resources, list) and all({"path", "title"} <= set(each) for each in resources)
    if not all(isinstance(word, str) for word in words) or not described or "interval_level" not in about:
        raise ReleaseError(f"{release.path / DESCRIPTOR} does not describe a release of tabulae")


def _check_place(release: Release, out: Path) -> None:
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists: name another folder with --out")
    if not out.parent.is_dir():
        raise ReleaseError(f"the folder {out.parent} does not exist: make it first")
    if out.resolve().is_relative_to(release.path.resolve()):
        raise ReleaseError(
            f"{out} lies in the release, which stays as it was published: name a folder outside it"
        )
