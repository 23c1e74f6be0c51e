"""What a run takes beside what `plan` said: seconds of a core, memory and disk, over a dozen kinds of release.

python -m benchmarks.costs SCRATCH [--only NAME ...]     writes benchmarks/results/costs.csv; about eight minutes
python -m benchmarks.costs SCRATCH --first               prints what a first release of areas takes, and a second

Each spec is planned with ``--json``, which says what the run will take, and run, in processes of their own. Compiled
code is kept in SCRATCH between runs; before a spec that compiles is measured it is run once.

plan_s      seconds of processor time of `plan`
cpu_s       of `run`, and ``said_s`` what was said of it: ``plan_s``, and what the rest takes for so many records
peak_mb     the largest resident set of the run, and ``said_mb``
disk_mb     the largest that the folder of the release was while it was made, and ``said_disk_mb``
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import tomli_w
from benchmarks.detailed import Cost, tabulae
from benchmarks.plan_page import document
from benchmarks.recorded import add_force, record

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared/data"
RESULTS = Path(__file__).parent / "results/costs.csv"
COLUMNS = (
    "spec", "kind", "records", "plan_s", "said_s", "cpu_s", "said_mb", "peak_mb", "said_disk_mb", "disk_mb",
)  # fmt: skip
SEED = 1
REFERENCE = 0.14  # seconds of ``slowness`` on the machine of the CSV
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")


def python(*arguments: str) -> None:
    """Run a script of the examples."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def ledger(path: Path, definition: str, unit: str = "person", neighbours: str = "add-remove") -> None:
    """A new ledger that pays for everything here."""
    path.unlink(missing_ok=True)
    asked = ("--budget", "100", "--definition", definition, "--neighbours", neighbours, "--unit", unit)
    subprocess.run(tabulae("ledger", "init", str(path), *asked), check=True, stdout=subprocess.DEVNULL)


def written(folder: Path, spec: dict[str, object]) -> tuple[Path, Path | None]:
    """The spec in its folder."""
    path = folder / "spec.toml"
    path.write_text(tomli_w.dumps(spec), encoding="utf-8")
    return path, None


def many(tables: int, noise: str) -> Callable[[Path], tuple[Path, int]]:
    """Tables over 12 attributes, of 100,000 invented people."""

    def made(folder: Path) -> tuple[Path, int]:
        spec, people, draw = document(tables, noise), 100_000, np.random.default_rng(SEED)
        attributes = spec["attributes"]
        assert isinstance(attributes, dict)
        columns = [draw.integers(0, len(each["categories"]), people) for each in attributes.values()]
        with (folder / "people.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(attributes)
            out.writerows([f"c{v}" for v in row] for row in zip(*columns, strict=True))
        ledger(folder / "ledger.db", "zcdp" if noise == "gaussian" else "pure")
        return written(folder, spec)[0], people

    return made


def adult(estimate: str = "least-squares") -> Callable[[Path], tuple[Path, int]]:
    """The example of the UCI Adult survey."""

    def made(folder: Path) -> tuple[Path, int]:
        text = (ROOT / "examples/adult.toml").read_text(encoding="utf-8")
        if estimate != "least-squares":
            text = text.replace('select = "auto"', f'select = "auto"\nestimate = "{estimate}"')
        shutil.copy(DATA / "adult.csv", folder)
        path = folder / "adult.toml"
        path.write_text(text, encoding="utf-8")
        ledger(folder / "adult-ledger.db", "zcdp")
        return path, 48_842

    return made


def values(folder: Path) -> tuple[Path, int]:
    """Sums and means of hours and ages by education, sex and income."""
    margins = [set_ for size in (0, 1, 2) for set_ in combinations(("education", "sex", "income"), size)]
    told = ["count", {"sum": "hours"}, {"mean": "age"}]
    asked = [{"name": f"m{i}", "attributes": list(by), "measures": told} for i, by in enumerate(margins)]
    shutil.copy(DATA / "adult.csv", folder)
    ledger(folder / "ledger.db", "zcdp")
    spec = {
        "title": "Hours and ages",
        "source": {"path": "adult.csv"},
        "attributes": {
            "education": {"column": "education-num", "range": [0, 15]},
            "sex": {"range": [0, 1]},
            "income": {"column": "income>50K", "range": [0, 1]},
        },
        "values": {
            "hours": {"column": "hours-per-week", "range": [0, 98]},
            "age": {"range": [0, 84]},
        },
        "privacy": {"definition": "zcdp", "budget": "1/2", "ledger": "ledger.db"},
        "table": asked,
    }
    return written(folder, spec)[0], 48_842


def groups(folder: Path) -> tuple[Path, int]:
    """Occupations by district: the example."""
    shutil.copytree(ROOT / "examples/detailed", folder / "detailed")
    shutil.copy(ROOT / "examples/detailed.toml", folder)
    python(f"{folder}/detailed/people.py", f"{folder}/people.csv")
    ledger(folder / "occupations.db", "zcdp")
    return folder / "detailed.toml", _lines(folder / "people.csv")


def households(folder: Path) -> tuple[Path, int]:
    """Households by detailed group: the example."""
    shutil.copytree(ROOT / "examples/households", folder / "households")
    shutil.copy(ROOT / "examples/households.toml", folder)
    python(f"{folder}/households/invent.py", f"{folder}/households")
    ledger(folder / "households.db", "zcdp", unit="household")
    return folder / "households.toml", _lines(folder / "households/households.csv")


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file) - 1


def rhode_island(estimate: str) -> Callable[[Path], tuple[Path, int]]:
    """The blocks of 2010 by race and voting age, 16 cells each."""

    def made(folder: Path) -> tuple[Path, int]:
        with (DATA / "ri_2010_blocks.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        levels = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
        people = 0
        with (folder / "spine.csv").open("w", newline="") as spine, (folder / "people.csv").open("w") as out:
            writer = csv.writer(spine)
            writer.writerow([*levels, "town"])
            out.write("block,race,votingage\n")
            for row in rows:
                code = row["GEOID10"]
                writer.writerow([*(code[:digits] for digits in levels.values()), row["COUSUBFP"]])
                for race in RACES:
                    adults = int(row[f"vap_{race}"])
                    minors = int(row[f"pop_{race}"]) - adults
                    people += adults + minors
                    out.write(f"{code},{race},minor\n" * minors + f"{code},{race},adult\n" * adults)
        ledger(folder / "ledger.db", "zcdp", neighbours="replace")
        asked: tuple[list[str], ...] = ([], ["race"], ["votingage"], ["race", "votingage"])
        spec = {
            "title": "Rhode Island 2010",
            "source": {"path": "people.csv"},
            "attributes": {
                "race": {"categories": list(RACES)},
                "votingage": {"categories": ["minor", "adult"]},
            },
            "privacy": {"definition": "zcdp", "budget": "5/2", "neighbours": "replace", "ledger": "ledger.db"},
            "geography": {
                "column": "block",
                "file": "spine.csv",
                "levels": list(levels),
                "entities": ["town"],
                "shares": dict.fromkeys(levels, "1/5"),
                "query": [{"attributes": each, "shares": dict.fromkeys(levels, "1/4")} for each in asked],
            },
            "table": [{"name": "total", "attributes": []}, {"name": "races", "attributes": ["race", "votingage"]}],
            "method": {"estimate": estimate},
        }  # fmt: skip
        return written(folder, spec)[0], people

    return made


def redistricting(folder: Path) -> tuple[Path, int]:
    """2,016 cells an area: the example, of an invented state."""
    shutil.copytree(ROOT / "examples/redistricting", folder / "redistricting")
    shutil.copy(ROOT / "examples/redistricting.toml", folder)
    python(f"{folder}/redistricting/state.py", f"{folder}/redistricting")
    ledger(folder / "redistricting.db", "zcdp", neighbours="replace")
    return folder / "redistricting.toml", 60_000


def persons(folder: Path) -> tuple[Path, int]:
    """1,227,744 cells an area, sparse, held to the example before it."""
    spec, people = redistricting(folder)
    subprocess.run(tabulae("run", str(spec), "--out", str(folder / "pl94")), check=True, capture_output=True)
    shutil.copytree(ROOT / "examples/persons", folder / "persons")
    shutil.copy(ROOT / "examples/dhc-persons.toml", folder)
    python(f"{folder}/persons/people.py", f"{folder}/persons")
    return folder / "dhc-persons.toml", people


SPECS: dict[str, tuple[str, Callable[[Path], tuple[Path, int]]]] = {
    "adult": ("tables", adult()),
    "fifty_tables": ("tables", many(50, "gaussian")),
    "two_hundred_tables": ("tables", many(200, "gaussian")),
    "twenty_tables_laplace": ("tables, Laplace", many(20, "laplace")),
    "values": ("values", values),
    "adult_posterior": ("tables, drawn", adult("posterior")),
    "occupations": ("groups", groups),
    "households": ("groups", households),
    "rhode_island": ("areas", rhode_island("bluedown")),
    "rhode_island_gls": ("areas", rhode_island("gls")),
    "redistricting": ("areas", redistricting),
    "persons": ("areas, sparse", persons),
}


def slowness() -> float:
    """How much longer this machine takes than the one of the CSV, by a fixed piece of work: the least of five."""
    spent = []
    for _ in range(5):
        began, found = time.process_time(), dict[str, int]()
        for word in sorted(str(i * 7919 % 100_003) for i in range(200_000)):
            found[word[:3]] = found.get(word[:3], 0) + len(word)
        spent.append(time.process_time() - began)
    return min(spent) / REFERENCE


class Watched:
    """The largest that a folder beside the release was, in bytes, looked at ten times a second."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.most, self._over = folder, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, size_of(self._folder))


def size_of(folder: Path) -> int:
    """Bytes of all files below, those that vanish meanwhile left out."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def measured(name: str, scratch: Path) -> dict[str, object]:
    """One row: what was said, and what it took."""
    kind, make = SPECS[name]
    folder = scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec, records = make(folder)
    releases = folder / "releases"
    if kind.startswith("areas") or kind.endswith("drawn"):
        releases.mkdir()
        Cost.of(tabulae("run", str(spec), "--out", str(releases / "first")))
    begun = os.times()
    told = subprocess.run(tabulae("plan", str(spec), "--json"), check=True, stdout=subprocess.PIPE).stdout
    ended = os.times()
    needs = json.loads(told).get("needs", {})
    plan_s = ended.children_user - begun.children_user + ended.children_system - begun.children_system
    shutil.rmtree(releases, ignore_errors=True)
    releases.mkdir()
    with Watched(releases) as seen:
        cost = Cost.of(tabulae("run", str(spec), "--out", str(releases / "release")))
    disk = max(seen.most, size_of(releases))
    seconds = needs.get("seconds", 0.0) + needs.get("seconds_of_million", 0.0) * records / 1e6
    said_disk = sum(needs.get(part, 0) for part in ("measurements", "work", "tables"))
    numbers = (
        plan_s,
        plan_s + seconds,
        cost.cpu,
        needs.get("memory", 0) / 1e6,
        cost.peak,
        said_disk / 1e6,
        disk / 1e6,
    )
    return dict(zip(COLUMNS, (name, kind, records, *(f"{n:.2f}" for n in numbers)), strict=True))


def first_and_second(scratch: Path) -> tuple[float, float]:
    """Seconds of processor time of Rhode Island by 16 cells: where nothing is compiled yet, and again."""
    folder = scratch / "first"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec, _ = rhode_island("bluedown")(folder)
    os.environ["NUMBA_CACHE_DIR"] = str(folder / "compiled")
    first, second = (
        Cost.of(tabulae("run", str(spec), "--out", str(folder / name))) for name in ("one", "two")
    )
    return first.cpu, second.cpu


def main() -> None:
    """Plan and run them; the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--only", nargs="+", choices=SPECS, help="print these, and record nothing")
    parser.add_argument("--first", action="store_true", help="print what compiling costs, and nothing else")
    add_force(parser)
    asked = parser.parse_args()
    asked.scratch.mkdir(parents=True, exist_ok=True)
    if asked.first:
        print("first {:.1f} s, second {:.1f} s".format(*first_and_second(asked.scratch.resolve())))
        return
    os.environ["NUMBA_CACHE_DIR"] = str(asked.scratch.resolve() / "compiled")
    rows = []
    for name in asked.only or SPECS:
        started = time.perf_counter()
        rows.append(measured(name, asked.scratch.resolve()))
        print(*rows[-1].values(), f"[{time.perf_counter() - started:.0f} s]", flush=True)
    if asked.only is None:
        record(RESULTS, COLUMNS, rows, force=asked.force)


if __name__ == "__main__":
    main()
