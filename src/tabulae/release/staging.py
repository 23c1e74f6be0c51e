"""Where a release is made: a folder beside its place, held by one process, that is put there in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from ..errors import LedgerError, ReleaseError, TabulaeError
from ..privacy import Ledger
from ..sources.memory import size_words
from ..spec import Spec
from .folder import INVARIANTS, MEASUREMENT, STRATEGY, read_json, require_parent, sync_folder, write_json
from .read import Release

OF = "digest"
"""Where the descriptor of a folder without a spec says the digest of the one that it is of."""

PLAN = "plan.json"
"""Stands in the partial folder from before the charge until the folder is sealed."""


@contextlib.contextmanager
def workplace(out: Path, *, resume: bool) -> Iterator[Path]:
    """The partial folder beside ``out``, held by this process alone while the run lasts.

    Raises:
        ReleaseError: ``out`` exists, an unfinished run stands in the way, or there is none to resume.
    """
    partial = partial_folder(out)
    if os.path.lexists(out) and not resume:
        raise ReleaseError(f"{out} exists: a release is written once; name another folder")
    if resume and not partial.exists() and not out.exists():
        raise ReleaseError(f"there is no unfinished run of {out} to resume; run without --resume")
    if out.exists() and not partial.exists():
        yield partial
        return
    require_parent(out, ". Nothing was charged")
    with disk(out.parent, charged=resume):
        partial.mkdir(exist_ok=True)
        held = os.open(partial, os.O_RDONLY)
    try:
        _hold(held, partial, out)
        if not resume:
            _refuse_paid(partial, out)
            _clear(partial)
        try:
            yield partial
        except BaseException:
            if partial.exists() and not (partial / MEASUREMENT).exists() and not (partial / PLAN).exists():
                shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(held)


def partial_folder(out: Path) -> Path:
    """Where a release is made before it is complete."""
    return out.parent / f".{out.name}.partial"


def _hold(held: int, partial: Path, out: Path) -> None:
    """Lock the folder itself, so that the lock lasts until it has its name, and leaves nothing behind."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        still_there = os.path.samestat(os.fstat(held), partial.stat())
    except OSError:
        still_there = False
    if not still_there:
        raise ReleaseError(f"another run is writing {out} at this moment")


def _refuse_paid(partial: Path, out: Path) -> None:
    """A new run must not throw away measurements that were paid for, nor blur whether they were."""
    if (partial / MEASUREMENT).exists() or (partial / PLAN).exists():
        raise ReleaseError(
            f"an interrupted run of {out} stands in {partial}, and its budget may have been spent; finish it with "
            "--resume, or remove that folder to give it up"
        )


def _clear(partial: Path) -> None:
    """Nothing that a killed process left in the folder may be published with another run."""
    for path in partial.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def finished(out: Path, spec: Spec, *, resume: bool) -> Release | None:
    """On resuming: a release that is already in place, settled in the ledger if the crash came between.

    Raises:
        ReleaseError: what stands there is a release of another spec, or the unfinished run is of one.
    """
    if not resume:
        return None
    if not out.exists():
        _check_same(partial_folder(out), spec)
        return None
    release = Release.read(out)
    if (release.about.get(OF) or release.spec.digest()) != spec.digest():
        raise ReleaseError(f"{out} is a release of another spec; name another folder")
    if spec.ledger is not None:
        Ledger.open(spec.ledger).settle(release.about["release_id"], "published")
    return release


def _check_same(partial: Path, spec: Spec) -> None:
    """A run that may have charged for another spec must not be taken up as one that charged nothing.

    Measurements that are stored say themselves which charge they are of.
    """
    if (partial / MEASUREMENT).exists() or not (partial / PLAN).exists():
        return
    if read_json(partial, PLAN).get("spec") != spec.digest():
        raise ReleaseError(
            f"the unfinished run in {partial} is of another spec, or the spec was edited since, and its budget may "
            "have been spent; resume with the spec as it was, or remove that folder to give the run up, and run "
            "without --resume"
        )


def mark(partial: Path, spec: Spec, document: Mapping[str, Any]) -> None:
    """Say in the folder, before anything is charged, what is made there: a plan, and the spec that it is of."""
    write_json(partial / PLAN, {**document, "spec": spec.digest()})
    sync_folder(partial)


def run_digest(kind: bytes, spec: Spec, out: Path) -> bytes:
    """What makes two runs the same release: what is measured, and where it is published. Goes to a keyed hash only."""
    parts = (kind, bytes.fromhex(spec.measured_digest()), os.fsencode(out.resolve()))
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def stored_release(partial: Path, ledger: Ledger, digest: bytes, remains: str = "") -> str | None:
    """The release id of measurements that an interrupted run stored; None for a run that had not charged.

    Args:
        partial: the folder of the run.
        ledger, digest: where it was charged, and under which name.
        remains: what else remains of a charge whose noise is lost, in words.

    Raises:
        ReleaseError: the measurements were charged elsewhere, or the run had charged and stored none: such a charge is
            void from now on.
    """
    charges = ledger.find(digest)
    if (partial / MEASUREMENT).exists():
        release_id = str(read_json(partial, MEASUREMENT)["release_id"])
        if release_id not in {charge.release_id for charge in charges}:
            raise ReleaseError(
                f"the measurements in {partial} were not charged to this ledger for this spec; resume with the same "
                "spec and ledger"
            )
        return release_id
    unsettled = [charge for charge in charges if charge.state == "charged"]
    voided = not (partial / PLAN).exists() and any(charge.state == "void" for charge in charges)
    if not unsettled and not voided:
        return None
    (partial / PLAN).unlink(missing_ok=True)  # first: beside a void charge it would be run anew
    for charge in unsettled:
        ledger.settle(charge.release_id, "void")
    raise ReleaseError(
        "the interrupted run had charged the ledger and lost its noise before it was stored; that charge is void "
        f"and stays spent{remains}. Run again without --resume to spend anew"
    )


def unmark(partial: Path) -> None:
    """Remove what only a run that is not finished has."""
    (partial / PLAN).unlink(missing_ok=True)


def leave_measured(partial: Path) -> None:
    """Remove what an interrupted run made of its measurements: it may have had another estimator.

    That is of measurements that are complete, of kinds whose estimates keep nothing to go on from.
    """
    kept = {PLAN, INVARIANTS, *(Path(name).parent.name for name in (MEASUREMENT, STRATEGY))}
    for path in partial.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def put_in_place(partial: Path, out: Path, when: str) -> None:
    """Give the finished folder its name, and all its files one time.

    Args:
        partial, out: where it stands, and is to stand.
        when: what the release says that it was made at.

    Raises:
        ReleaseError: something of that name appeared meanwhile.

    Privacy:
        A copy of a folder may keep the times at which its files were written, and these tell how long records were
        counted: the files' times are set to ``when``.
    """
    seconds = datetime.fromisoformat(when).timestamp()
    for path in (*partial.rglob("*"), partial):
        os.utime(path, (seconds, seconds))
    try:
        partial.rename(out)
    except OSError as error:
        raise ReleaseError(
            f"{out} appeared while the release was made; it is complete in {partial}: {error}"
        ) from None
    sync_folder(out.parent)


def settle_published(ledger: Ledger, release_id: str, out: Path) -> None:
    """Say in the ledger that a release is published.

    Raises:
        LedgerError: it cannot be said now; the release stands all the same.
    """
    try:
        ledger.settle(release_id, "published")
    except LedgerError as error:
        raise LedgerError(
            f"{error}. The release is complete in {out}; --resume tells the ledger so once this is put right"
        ) from None


@contextlib.contextmanager
def disk(folder: Path, *, charged: bool = True) -> Iterator[None]:
    """Trouble with the file system, said plainly; ``charged`` where the run may have charged by then."""
    told = "what was charged stays charged, and --resume finishes the run once this is put right"
    try:
        yield
    except LedgerError as error:
        if charged and type(error) is LedgerError:
            raise LedgerError(f"{error}. Nothing was published; {told}") from None
        raise
    except TabulaeError:
        raise
    except OSError as error:
        raise ReleaseError(
            f"cannot write in {folder}: {disk_reason(error)}. Nothing was published"
            f"{'; ' + told if charged else ', and nothing was charged'}"
        ) from None


def disk_reason(error: OSError) -> str:
    """What the file system complains of, in words.

    >>> disk_reason(OSError(28, "No space left on device"))
    'the disk is full'
    """
    return {
        errno.ENOSPC: "the disk is full",
        errno.EACCES: "no permission to write",
        errno.EROFS: "the disk is read-only",
        errno.ENOENT: "the folder does not exist",
    }.get(error.errno or 0, error.strerror or str(error))


class Writer(Protocol):
    """Writes a measurement piece by piece into a folder, and says at the end that it is complete."""

    @property
    def folder(self) -> Path: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...

    def __call__(self, piece: Any, /) -> None: ...

    def finish(self, done: Any) -> None:
        """See everything onto the disk, then say that it is complete."""
        ...


W = TypeVar("W", bound=Writer)


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


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Trouble with the file system while measurements are stored, said plainly."""
    try:
        yield
    except OSError as error:
        raise ReleaseError(f"cannot write in {folder}: {disk_reason(error)}") from None
