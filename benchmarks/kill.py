"""Kill -9 at random moments of a release, and see what is left: complete, resumable, or paid and void.

python -m benchmarks.kill             200 kills; writes benchmarks/results/kill.csv and prints a summary

A release is made by the command line in a process of its own and killed with SIGKILL. Half of the kills are uniform
over the whole run, half fall after the moment when the plan is saved, most of them soon after: there the ledger is
charged, noise is drawn and stored, in a small part of the time. A third of the interrupted runs are killed a second
time while they resume. After every kill the invariant is checked from the disk alone, and the run is resumed. Runs
that ended before their kill are checked in the same way, and not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from benchmarks.recorded import add_force, record

from tabulae.errors import TabulaeError
from tabulae.privacy import Ledger
from tabulae.release import Release

RESULTS = Path(__file__).parent / "results"
LOSS, CAP = Fraction(1, 2), 4  # a charge too many is not refused, but seen
COLUMNS = ("kill", "process", "clock", "after_ms", "phase", "charges", "outcome", "broken")
SPEC = f"""
title = "Hamlet"
source = {{ path = "people.csv", unit = "person" }}

[attributes]
sex = {{ column = "SEX", categories = ["F", "M"] }}
age = {{ column = "AGE", range = [0, 9] }}

[privacy]
definition = "zcdp"
budget = "{LOSS}"
delta = "1e-10"
ledger = "ledger.db"

[[table]]
name = "sex_by_age"
attributes = ["sex", "age"]

[[table]]
name = "ages"
queries = {{ age = "ranges" }}
"""


@dataclass(frozen=True)
class Scene:
    """A folder with records, spec and ledger, and the release that is being made in it."""

    folder: Path

    @classmethod
    def set_up(cls, folder: Path) -> Scene:
        """Write the records and the spec, and open the ledger."""
        folder.mkdir()
        draw = random.Random(3)
        people = [f"{draw.choice('FM')},{draw.randrange(10)}\n" for _ in range(300)]
        (folder / "people.csv").write_text("SEX,AGE\n" + "".join(people))
        (folder / "spec.toml").write_text(SPEC)
        Ledger.create(folder / "ledger.db", CAP, "zcdp")
        return cls(folder)

    @property
    def out(self) -> Path:
        return self.folder / "release"

    @property
    def partial(self) -> Path:
        return self.folder / ".release.partial"

    def start(self, *, resume: bool) -> subprocess.Popen[str]:
        """The command line, in a process of its own."""
        command = [sys.executable, "-m", "tabulae.cli", "run", str(self.folder / "spec.toml")]
        command += ["--out", str(self.out), *["--resume"] * resume]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, **pipes)

    def measurements(self) -> dict[str, bytes]:
        """The stored measurements, byte by byte; none before they are complete."""
        for place in (self.out, self.partial):
            if (place / "measurements/measurement.json").exists():
                return {path.name: path.read_bytes() for path in (place / "measurements").iterdir()}
        return {}


@dataclass(frozen=True)
class Sight:
    """What disk and ledger show after a kill."""

    phase: str
    states: tuple[str, ...]
    stored: dict[str, bytes] = field(repr=False)
    broken: tuple[str, ...]


def look(scene: Scene) -> Sight:
    """How far a run came, and what is wrong with what it left."""
    broken = []
    try:
        ledger = Ledger.open(scene.folder / "ledger.db")
        states = tuple(charge.state for charge in ledger.charges())
        if ledger.spent != len(states) * LOSS:
            broken.append(f"{ledger.spent} is spent for {len(states)} charges of {LOSS}")
    except TabulaeError as error:
        return Sight("no ledger", (), {}, (f"the ledger does not open: {error}",))
    if scene.out.exists():
        broken += faults(scene)
    stored = scene.measurements()
    if stored and not states:
        broken.append("measurements without a charge")
    return Sight(phase_of(scene, states), states, stored, tuple(broken))


def faults(scene: Scene) -> list[str]:
    """What is wrong with the release folder."""
    try:
        return Release.read(scene.out).verify()
    except TabulaeError as error:
        return [f"the release is not complete: {error}"]


def phase_of(scene: Scene, states: tuple[str, ...]) -> str:
    """The last step that disk and ledger prove."""
    if scene.out.exists():
        return "published" if "published" in states else "in place"
    if (scene.partial / "measurements/measurement.json").exists():
        return "tables written" if (scene.partial / "datapackage.json").exists() else "measured"
    if "charged" in states:
        return "charged"
    if "void" in states:
        return "void"
    if not scene.partial.exists():
        return "nothing"
    return "planned" if (scene.partial / "plan.json").exists() else "begun"


def finish(scene: Scene, seen: Sight) -> tuple[str, list[str]]:
    """Resume; what came of it, and in what it differs from what had to come."""
    process = scene.start(resume=True)
    said, code = process.communicate()[1], process.returncode
    after = look(scene)
    broken = list(after.broken)
    if seen.phase in ("nothing", "void"):
        outcome, right = (
            "nothing to resume",
            code == 1 and after.states == seen.states and not scene.out.exists(),
        )
    elif seen.phase == "charged":
        outcome, right = "void", code == 1 and after.states == ("void",) and not scene.out.exists()
    elif seen.stored:
        outcome, right = "completed", code == 0 and after.states == ("published",)
        if after.stored != seen.stored:
            broken.append("the published measurements are not those that were stored")
    else:
        outcome, right = "continued", code == 0 and after.states == ("published",)
    if not right:
        broken.append(
            f"resumed from {seen.phase!r}: exit code {code}, charges {after.states}: {said.strip()}"
        )
    if (scene.partial).exists():
        broken.append("the partial folder is left")
    return outcome if right else "wrong", broken


def strike(scene: Scene, *, resume: bool, clock: str, after: float) -> None:
    """Start a process, and kill it so many seconds after its start or after its plan was saved."""
    process = scene.start(resume=resume)
    if clock == "plan":
        while process.poll() is None and not (scene.partial / "plan.json").exists():
            time.sleep(0.0005)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()


def durations(folder: Path) -> dict[str, float]:
    """Seconds that a run takes, from its start and from the moment when its plan is saved."""
    found: dict[str, list[float]] = {"start": [], "plan": []}
    for i in range(2):
        scene = Scene.set_up(folder / f"whole{i}")
        begin, planned = time.perf_counter(), None
        process = scene.start(resume=False)
        while process.poll() is None:
            if planned is None and (scene.partial / "plan.json").exists():
                planned = time.perf_counter()
            time.sleep(0.0005)
        said, end = process.communicate()[1], time.perf_counter()
        if process.returncode or planned is None:
            raise SystemExit(f"a run that nobody kills must succeed: {said}")
        found["start"].append(end - begin)
        found["plan"].append(end - planned)
    return {clock: min(seconds) for clock, seconds in found.items()}


def study(folder: Path, kills: int, seed: int = 1) -> list[dict[str, object]]:
    """Kill so many processes; one row for each, and for each run that ended before its kill.

    The times are seeded. Where a run ends early the machine has become faster: later kills come sooner.
    """
    draw, lasting = random.Random(seed), durations(folder)
    rows: list[dict[str, object]] = []
    while sum(row["phase"] != "published" for row in rows) < kills and len(rows) < 3 * kills:
        scene = Scene.set_up(folder / f"trial{len(rows)}")
        clock = ("start", "plan")[len(rows) % 2]
        after = lasting[clock] * (draw.random() if clock == "start" else draw.random() ** 3)
        seen = hit(scene, rows, resume=False, clock=clock, after=after)
        if seen.phase == "published":
            lasting[clock] = min(lasting[clock], after)
        elif seen.phase != "nothing" and draw.random() < 1 / 3:
            after, before = draw.random() * lasting["start"], seen
            seen = hit(scene, rows, resume=True, clock="start", after=after)
            if before.stored and seen.stored != before.stored:
                rows[-1]["broken"] = f"{rows[-1]['broken']}; the measurements changed"
        outcome, broken = finish(scene, seen)
        rows[-1]["outcome"] = outcome
        rows[-1]["broken"] = "; ".join(filter(None, [str(rows[-1]["broken"]), *broken]))
        shutil.rmtree(scene.folder)
    return rows


def hit(scene: Scene, rows: list[dict[str, object]], *, resume: bool, clock: str, after: float) -> Sight:
    """One kill, and its row."""
    strike(scene, resume=resume, clock=clock, after=after)
    seen = look(scene)
    rows.append(
        {
            "kill": len(rows) + 1,
            "process": "resume" if resume else "run",
            "clock": clock,
            "after_ms": round(1000 * after, 1),
            "phase": seen.phase,
            "charges": " ".join(seen.states),
            "outcome": "killed again",
            "broken": "; ".join(seen.broken),
        }
    )
    return seen


def main() -> int:
    """Kill, write, summarise, and fail where the invariant was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    add_force(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = study(Path(folder), arguments.kills, arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    record(arguments.out / "kill.csv", COLUMNS, rows, force=arguments.force)
    for (process, phase, outcome), count in sorted(
        Counter((str(r["process"]), str(r["phase"]), str(r["outcome"])) for r in rows).items()
    ):
        print(f"{count:5d}  {process:6s}  killed when: {phase:15s} then: {outcome}")
    broken = [row for row in rows if row["broken"]]
    for row in broken:
        print(f"kill {row['kill']}: {row['broken']}")
    late = sum(row["phase"] == "published" for row in rows)
    print(f"{len(rows) - late} kills and {late} too late; invariant broken by {len(broken)}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
