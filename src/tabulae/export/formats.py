"""Convert a release: a folder in another format, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import datetime
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import InvalidArgument, ReleaseError
from ..release import Release
from ..release.folder import DESCRIPTOR, check_sums, require_parent, sync_folder, write_sums
from ..release.staging import disk_reason
from .json_stat import write_json_stat
from .sdmx import write_sdmx_csv
from .stored import CodeLists, StoredTable, code_lists, stored_tables
from .workbook import Sheet, answer_notes, write_plain_csv, write_workbook, write_xlsx

_WRITERS: dict[str, Callable[[Release, list[StoredTable], CodeLists, Path], None]] = {
    "csv": write_plain_csv,
    "sdmx-csv": write_sdmx_csv,
    "json-stat": write_json_stat,
    "xlsx": write_xlsx,
}
FORMATS = tuple(_WRITERS)
"""The formats that a release can be converted to."""


def convert_release(release: Release, to: str, out: str | PathLike[str]) -> Path:
    """Write the tables of a release in another format, as a folder of their own.

    Every number is the one that is published, to the last digit. Long tables are read and written piece by piece.

    Arguments:
        release: the release; it is not changed.
        to: ``"csv"``, ``"sdmx-csv"``, ``"json-stat"`` or ``"xlsx"``.
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


ANSWERS = (".csv", ".parquet", ".xlsx")
"""The endings of files that an answer can be written to."""


def write_answer(release: Release, statement: str, rows: pa.Table, out: Path) -> None:
    """Write all rows of the answer to a statement into one file, by its ending; whole or not at all.

    Raises:
        InvalidArgument: another ending.
        ReleaseError: the file exists, or cannot be written.
        Unsupported: it has more rows than a sheet of a workbook.
    """
    ending = out.suffix.lower()
    if ending not in ANSWERS:
        raise InvalidArgument(f"{out}: end its name in {', '.join(ANSWERS[:-1])} or {ANSWERS[-1]}")
    _check_place(release, out, "file")
    draft = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        if ending == ".csv":
            pyarrow.csv.write_csv(rows, draft)
        elif ending == ".parquet":
            pq.write_table(rows, draft)
        else:
            sheet = Sheet("answer", statement, rows.num_rows, rows.schema, rows.to_batches())
            made = datetime.fromisoformat(release.descriptor["created"]).replace(tzinfo=None)
            write_workbook(draft, release.spec.title, answer_notes(release, statement), [sheet], made)
        draft.rename(out)
    except OSError as error:
        raise ReleaseError(f"cannot write {out}: {disk_reason(error)}. Nothing was written") from None
    finally:
        draft.unlink(missing_ok=True)


def _check_described(release: Release) -> None:
    """Refuse a folder whose descriptor lacks what every format tells of a release."""
    about, resources = release.about, release.descriptor.get("resources")
    words = [release.descriptor.get(key) for key in ("name", "created")]
    words += [about.get(key) for key in ("version", "release_id")]
    described = isinstance(resources, list) and all({"path", "title"} <= set(each) for each in resources)
    if not all(isinstance(word, str) for word in words) or not described or "interval_level" not in about:
        raise ReleaseError(f"{release.path / DESCRIPTOR} does not describe a release of tabulae")


def _check_place(release: Release, out: Path, what: str = "folder") -> None:
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists: name another {what} with --out")
    require_parent(out)
    if out.resolve().is_relative_to(release.path.resolve()):
        raise ReleaseError(
            f"{out} lies in the release, which stays as it was published: name a {what} outside it"
        )
