"""How soon the studio answers: ``python -m benchmarks.studio``; needs Chromium.

Of a spec of so many tables of two attributes each: CPU seconds from an edit to the first margins, to those of the
strategy that the spec asks for, and to the same after a change of the budget alone; and milliseconds that the browser
takes for a move of the slider (the median and the longest of nine). With ``--areas``: of a county of so many blocks,
CPU seconds to the bounds of all margins, and to the margins themselves. With ``--wide``: of examples/phsafe.toml, whose
tables are of many attributes, CPU seconds to the first margins and to the widest interval of each.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from itertools import combinations, islice
from pathlib import Path

from benchmarks.recorded import add_force, record
from playwright.sync_api import sync_playwright

from tabulae.studio import Studio
from tabulae.studio.planner import Plans

OUT = Path(__file__).parent / "results/studio.csv"
AREAS, WIDE = OUT.with_stem("studio_areas"), OUT.with_stem("studio_wide")
EXAMPLES = Path(__file__).parents[1] / "examples"
COLUMNS = ("tables", "quick_s", "certified_s", "budget_s", "slider_ms", "slider_longest_ms")
MOVE = """slider => {
  const began = performance.now();
  slider.value = String(Number(slider.value) + 5);
  slider.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""


def spec(tables: int) -> str:
    """A spec of pairs of thirty attributes."""
    attributes = "\n".join(f"a{i} = {{ range = [0, {3 + i % 5}] }}" for i in range(30))
    pairs = islice(combinations(range(30), 2), tables)
    listed = "\n".join(f'[[table]]\nname = "t{i}_{j}"\nattributes = ["a{i}", "a{j}"]' for i, j in pairs)
    promise = 'definition = "zcdp"\nbudget = "1/2"\ndelta = "1e-10"\nledger = "ledger.db"'
    return f'[source]\npath = "people.csv"\n[attributes]\n{attributes}\n[privacy]\n{promise}\n{listed}\n'


def planned(text: str, folder: Path) -> tuple[float, float, float]:
    """CPU seconds to the first margins, to those that are asked for, and to these after a change of budget."""
    plans, began, told = Plans(), time.process_time(), []
    answers = plans.plan(text, folder)
    for _ in range(2):
        assert next(answers).margins
        told.append(time.process_time() - began)
    for _ in answers:
        pass
    began = time.process_time()
    next(iter(plans.plan(text.replace('"1/2"', '"1"'), folder)))
    return told[0], told[1], time.process_time() - began


def moved(text: str, folder: Path) -> list[float]:
    """Milliseconds of nine moves of the slider."""
    (folder / "spec.toml").write_text(text)
    studio = Studio(folder / "spec.toml")
    threading.Thread(target=studio.serve, daemon=True).start()
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page()
        page.goto(studio.url)
        slider = page.frame_locator("#plan").get_by_role("slider")
        slider.wait_for(timeout=600_000)
        spent = sorted(slider.evaluate(MOVE) for _ in range(9))
        browser.close()
    studio.stop()
    studio.close()
    return spent


COUNTY = """
[source]
path = "people.csv"
[attributes]
sex = { categories = ["F", "M"] }
age = { range = [0, 114] }
race = { categories = ["a", "b", "c", "d", "e", "f", "g"] }
[recodes]
adult = { of = "age", edges = [18] }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[geography]
column = "block"
file = "spine.csv"
levels = ["county", "tract", "group", "block"]
entities = ["place"]
shares = { county = "1/4", tract = "1/4", group = "1/4", block = "1/4" }
[[geography.query]]
attributes = ["adult", "race"]
shares = { county = "1/2", tract = "1/2", group = "1/2", block = "1/2" }
[[geography.query]]
attributes = ["sex", "age", "race"]
shares = { county = "1/2", tract = "1/2", group = "1/2", block = "1/2" }
[[table]]
name = "total"
attributes = []
[[table]]
name = "race"
attributes = ["adult", "race"]
areas = ["tract", "place"]
"""


def bounded(blocks: int, folder: Path) -> tuple[float, float]:
    """CPU seconds to the first margins of a county after an edit, and to the exact ones."""
    lines = [f"c,t{i // 500},g{i // 25},b{i},p{i // 7 % 200}" for i in range(blocks)]
    (folder / "spine.csv").write_text("\n".join(["county,tract,group,block,place", *lines]) + "\n")
    plans, told = Plans(), []
    next(iter(plans.plan(COUNTY, folder)))  # imports
    began = time.process_time()
    answers = plans.plan(COUNTY.replace('"1/2"\nledger', '"1"\nledger'), folder)
    for _ in range(2):
        assert next(answers).margins
        told.append(time.process_time() - began)
    return told[0], told[1]


def wide() -> tuple[int, float, float]:
    """How many tables PHSafe's spec has, and CPU seconds to their first margins and to the widest intervals."""
    text = (EXAMPLES / "phsafe.toml").read_text(encoding="utf-8")
    next(iter(Plans().plan(spec(3), EXAMPLES)))  # imports
    plans, began, told, tables = Plans(), time.process_time(), [], 0
    for answer in plans.plan(text, EXAMPLES):
        if answer.margins:
            told.append(time.process_time() - began)
            tables = len(answer.margins)
    return tables, told[0], told[-1]


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--areas", action="store_true", help="areas in place of many tables")
    parser.add_argument("--wide", action="store_true", help="the tables of examples/phsafe.toml")
    add_force(parser)
    rows: list[tuple[object, ...]] = []
    options = parser.parse_args()
    if options.wide:
        tables, *seconds = wide()
        rows.append((tables, *(f"{each:.2f}" for each in seconds)))
        print(*rows[-1], flush=True)
        record(WIDE, ("tables", "first_s", "widest_s"), rows, size="tables", force=options.force)
        return
    if options.areas:
        for blocks in (1_000, 5_000, 25_000):
            with tempfile.TemporaryDirectory() as name:
                rows.append((blocks, *(f"{each:.2f}" for each in bounded(blocks, Path(name)))))
            print(*rows[-1], flush=True)
        record(AREAS, ("blocks", "bounds_s", "margins_s"), rows, size="blocks", force=options.force)
        return
    for tables in (10, 50, 200):
        with tempfile.TemporaryDirectory() as name:
            seconds = planned(spec(tables), Path(name))
            spent = moved(spec(tables), Path(name))
        rows.append((tables, *(f"{each:.2f}" for each in seconds), f"{spent[4]:.1f}", f"{spent[-1]:.1f}"))
        print(*rows[-1], flush=True)
    record(OUT, COLUMNS, rows, size="tables", force=options.force)


if __name__ == "__main__":
    main()
