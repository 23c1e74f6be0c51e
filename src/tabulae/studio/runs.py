"""Runs of a spec in a process that outlives the studio: those of `tabulae run`, watched and stopped from a page."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .._run import Step, run
from ..errors import InvalidArgument, LedgerError, ReleaseError, TabulaeError, Unsupported
from ..privacy import Ledger, exact
from ..release.folder import DESCRIPTOR, write_bytes
from ..release.progress import Progress
from ..spec import Spec, read_spec
from .document import put

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PEOPLE = 5_000
_CANCELLED = "Cancelled. Nothing was charged."
_STATUS, _JOB, _CLAIM = "status.json", "job.json", "claim"


class Cancelled(Exception):
    """A run that was cancelled before its charge."""


@dataclass(frozen=True)
class Status:
    """How far a run has come, as its process last wrote it.

    ``charged`` says that the ledger is charged, or may be: from then on a run is not cancelled for nothing.
    """

    state: Literal["running", "done", "cancelled", "failed"] = "running"
    step: str = "starting"
    share: float | None = None
    left: float | None = None
    charged: bool = False
    message: str = ""


@dataclass(frozen=True)
class Job:
    """What a run is to do."""

    spec: str
    out: str
    resume: bool = False
    rehearse: bool = False


class Run:
    """One run, seen from the studio.

    Its process has a session of its own and writes to files, so that nothing is lost where the studio ends: it goes on,
    and where it is ended too, `tabulae run --resume` finishes what was charged.

    Privacy:
        Records are read, and the ledger charged, by :func:`tabulae.run` in that process alone.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._folder = Path(tempfile.mkdtemp(prefix="tabulae-run-"))
        (self._folder / _JOB).write_text(json.dumps(asdict(job)))
        code = "import sys; from tabulae.studio.runs import work; work(sys.argv[1])"
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", code, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def out(self) -> Path:
        """Where the release is, once it is done."""
        return self._folder / "release" if self.job.rehearse else Path(self.job.out)

    @property
    def status(self) -> Status:
        ended = self._process.poll() is not None
        try:
            status = Status(**json.loads((self._folder / _STATUS).read_bytes()))
        except (OSError, ValueError):
            status = Status()
        if ended and status.state == "running":
            if (self._folder / _CLAIM).exists() and not status.charged:
                return replace(status, state="cancelled", message=_CANCELLED)
            cost = "What was charged stays spent: Resume finishes what was stored."
            told = f"The process of the run was ended. {cost if status.charged else 'Nothing was charged.'}"
            return replace(status, state="failed", message=told)
        return status if ended else replace(status, state="running")

    def cancel(self) -> bool:
        """End the run if its charge has not begun: whether it is so. It is decided once, by who makes a file first."""
        if not _claimed(self._folder, "cancelled"):
            return False
        self._interrupt()
        return True

    def stop(self) -> None:
        """End the run, charged as it may be."""
        self._interrupt()

    def close(self) -> None:
        """Forget a run that has ended, and the release of a rehearsal with it."""
        if self._process.poll() is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def _claimed(folder: Path, words: str) -> bool:
    """Whether this process is the first to claim what becomes of a run: its charge, or its end."""
    try:
        with (folder / _CLAIM).open("x") as claim:
            claim.write(words)
    except FileExistsError:
        return False
    return True


def work(folder: str) -> None:
    """What the process of a run does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _Work(Path(folder)).do()


class _Work:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._status = Status()

    def do(self) -> None:
        job = Job(**json.loads((self._folder / _JOB).read_bytes()))
        try:
            spec: Spec | Path = Path(job.spec)
            if job.rehearse:
                spec = rehearsal(Path(job.spec), self._folder)
            out = self._folder / "release" if job.rehearse else Path(job.out)
            run(spec, out, resume=job.resume, say=self._say, at=self._at)
        except (Cancelled, KeyboardInterrupt) as error:
            if self._status.charged:
                told = f"Stopped. {error}".strip()
                self._tell(state="failed", message=f"{told} What was charged stays spent.")
            else:
                self._tell(state="cancelled", message=_CANCELLED)
        except TabulaeError as error:
            self._tell(state="failed", message=str(error))
        except OSError as error:
            self._tell(state="failed", message=f"{error.filename or 'a file'}: {error.strerror or error}")
        except MemoryError:
            self._tell(state="failed", message="there was not enough memory for it")
        else:
            self._tell(state="done", share=1.0, left=0.0)

    def _tell(self, **what: Any) -> None:
        self._status = replace(self._status, **what)
        write_bytes(self._folder / _STATUS, json.dumps(asdict(self._status)).encode())

    def _say(self, progress: Progress) -> None:
        self._tell(step=progress.step, share=progress.share, left=progress.left)

    def _at(self, step: Step) -> None:
        if step == "counted":  # the charge is next
            if not _claimed(self._folder, "charged"):
                raise Cancelled
            self._tell(charged=True)


def rehearsal(path: Path, folder: Path) -> Spec:
    """The spec at a path with invented records and a ledger of its own in a folder, and a title that says so.

    Raises:
        Unsupported: no records can be invented for it.
    """
    import numpy as np

    from ..demo.invented import RecordLayout, invent, settled, stored

    spec = read_spec(path)
    told = put(spec.text, ("title",), f"Rehearsal with invented people: {spec.title}")
    spec = Spec.from_text(told, path.parent, str(path))
    spec, rng = replace(spec, series=None), np.random.default_rng()
    layout, limits = RecordLayout.of(spec), spec.geography and spec.geography.constraints
    if limits and limits.exact and limits.earlier:
        raise Unsupported(
            "no people are invented who agree with an earlier release where counts of them are exact"
        )
    most = _PEOPLE + (int(limits.lower.sum()) if limits else 0)
    people = invent(layout, rng, most, spec.rows_per_unit)
    if spec.geography:
        people = settled(people, layout, spec.geography, rng)
    ledger = folder / "ledger.db"
    Ledger.create(ledger, spec.loss, neighbours=spec.neighbours, unit=spec.unit)
    return replace(spec, source=stored(people, layout, spec, folder / "invented"), ledger=ledger)


@dataclass(frozen=True)
class Spent:
    """One entry of a ledger: what a release spent, and its folder where it is beside the spec."""

    title: str
    time: str
    loss: str
    state: str
    folder: str


@dataclass(frozen=True)
class Account:
    """What the page says of a ledger, in exact numbers; ``missing`` where there is none yet."""

    path: str
    missing: bool = False
    trouble: str = ""
    promise: str = ""
    cap: str = ""
    spent: str = ""
    left: str = ""
    entries: tuple[Spent, ...] = ()

    def after(self, budget: str) -> str:
        """What a release of this budget would leave, in words; nothing where it is no number."""
        try:
            rest = exact(self.left) - exact(budget)
        except InvalidArgument:
            return ""
        return f"and leave {rest}" if rest >= 0 else "which is more than is left"


def account_of(path: Path, folder: Path) -> Account:
    """The balance of a ledger, and the releases that were charged to it."""
    if not path.exists():
        return Account(str(path), missing=True)
    try:
        ledger = Ledger.open(path)
        charges, spent, left = ledger.charges(), ledger.spent, ledger.remaining
    except LedgerError as error:
        return Account(str(path), trouble=str(error))
    folders = {release_id: name for name, release_id in releases_in(folder).items()}
    entries = tuple(
        Spent(each.title, each.time, str(each.loss.amount), each.state, folders.get(each.release_id, ""))
        for each in charges
    )
    promise = f"{ledger.definition}, {ledger.neighbours} one {ledger.unit}"
    return Account(
        str(path),
        promise=promise,
        cap=str(ledger.budget.amount),
        spent=str(spent),
        left=str(left),
        entries=entries,
    )


def releases_in(folder: Path) -> dict[str, str]:
    """The release folders in a folder, and the id of each; none with a link, which may lead to what is not public."""
    found = {}
    for descriptor in sorted(folder.glob(f"*/{DESCRIPTOR}")):
        if any(each.is_symlink() for each in (descriptor.parent, *descriptor.parent.rglob("*"))):
            continue
        try:
            found[descriptor.parent.name] = json.loads(descriptor.read_bytes())["tabulae"]["release_id"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def unfinished_in(folder: Path) -> list[str]:
    """Names of releases whose runs were interrupted in a folder."""
    return sorted(
        found.name[1:].removesuffix(".partial") for found in folder.glob(".*.partial") if found.is_dir()
    )


def place_for(folder: Path, name: str) -> Path:
    """Where a release of this name is written.

    Raises:
        ReleaseError: it is no name of a folder here, or exists.
    """
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise ReleaseError(
            "a release is named by letters, digits, '_', '-' and '.', and begins with a letter or digit"
        )
    if os.path.lexists(folder / name):
        raise ReleaseError(f"{name} exists: a release is written once; give it another name")
    return folder / name


def create_ledger(path: Path, privacy: dict[str, Any], unit: str, cap: str) -> None:
    """Make the ledger that a spec names, with the most that may ever be spent."""
    definition = privacy.get("definition")
    if not isinstance(definition, str):
        raise InvalidArgument("say what is promised first: a definition under Privacy")
    delta = privacy.get("delta") if definition == "approx" else None
    Ledger.create(
        path,
        cap.strip(),
        definition,
        neighbours=privacy.get("neighbours", "add-remove"),
        unit=unit,
        delta=delta,
    )
