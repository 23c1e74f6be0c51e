"""Takes the pictures of the documentation: ``python docs/pictures.py`` writes them to docs/assets.

It makes the demo's release and plan and the release of an invented state, as a reader would, and looks at their pages
and at the studio with Chromium. Where there is none, it says so and leaves the pictures as they are.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as BrowserError
from walk import Text, steps

from tabulae.studio import Studio

ROOT = Path(__file__).parents[1]
OUT = Path(__file__).parent / "assets"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
LARGEST = 250_000
"""Bytes of a picture."""


@dataclass(frozen=True)
class Picture:
    """A part of a page at one width, in CSS pixels, and how many pixels of the picture each takes."""

    name: str
    page: str
    width: int
    height: int
    scale: int = 1


PICTURES = (
    Picture("report", "demo/release/report.html", 1280, 1100),
    Picture("report-glance", "demo/release/report.html#tables", 1280, 900),
    Picture("report-counts", "demo/release/report.html#figures", 1280, 1000),
    Picture("report-phone", "demo/release/report.html#figures", 390, 780, 2),
    Picture("plan", "plan.html", 1280, 800),
    Picture("plan-errors", "plan.html#errors", 1280, 900),
    Picture("plan-phone", "plan.html", 390, 780, 2),
    Picture("report-areas", "state/report.html#spine", 1280, 1000),
    Picture("studio", "studio", 1440, 900),
    Picture("studio-read", "studio/read?release=release&table=relationship_by_sex&split=sex", 1280, 900),
)
TARGETS = {"sex_by_age5": 20, "age_ranges": 10, "age_ranges_by_sex": 12}
"""Margins that the tables of the plan are to keep."""


def make(folder: Path) -> None:
    """The pages, in a folder of their own: the demo's, the plan of Getting started, and an invented state."""
    tabulae = str(Path(sys.executable).with_name("tabulae"))

    def run(*command: object) -> None:
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)

    def ledger(name: Path, neighbours: str) -> None:
        run(
            tabulae, "ledger", "init", name, "--budget", 3, "--definition", "zcdp", "--neighbours", neighbours
        )

    run(tabulae, "demo", "--out", folder / "demo")
    started = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    spec = "".join(step.body for step in steps(started) if isinstance(step, Text))
    for table, margin in TARGETS.items():
        spec = spec.replace(f'name = "{table}"', f'name = "{table}"\ntarget = {{ margin = {margin} }}', 1)
    (folder / "people.toml").write_text(spec, encoding="utf-8")
    ledger(folder / "ledger.db", "add-remove")
    run(tabulae, "plan", folder / "people.toml", "--html", folder / "plan.html")
    examples = folder / "examples"
    shutil.copytree(ROOT / "examples/redistricting", examples / "redistricting")
    shutil.copy(ROOT / "examples/redistricting.toml", examples)
    run(sys.executable, examples / "redistricting/state.py", examples / "redistricting")
    ledger(examples / "redistricting.db", "replace")
    run(tabulae, "run", examples / "redistricting.toml", "--out", folder / "state")


@contextmanager
def studio(folder: Path) -> Iterator[Studio]:
    """A studio of the demo's spec, with its release beside it."""
    desk = Studio(folder / "demo/demo.toml")
    thread = threading.Thread(target=desk.serve)
    thread.start()
    try:
        yield desk
    finally:
        desk.stop()
        thread.join()
        desk.close()


def design(page: Page, desk: Studio, address: str) -> None:
    """A page of the studio; on the first a table is open, and its plan is there."""
    page.goto(desk.url)
    if address:
        page.goto(desk.origin + address)
        return
    page.locator("#form [data-open='table[1]'] summary").click()
    page.locator("#form [data-at='table[1].name']").scroll_into_view_if_needed()
    page.frame_locator("#plan").get_by_role("slider").wait_for(timeout=600_000)
    page.locator("#told", has_text="The plan is of this text.").wait_for()
    page.locator("#form [data-open='table[1]'] summary").first.evaluate("each => each.scrollIntoView()")


def take(browser: Browser, folder: Path, desk: Studio, picture: Picture) -> bytes:
    """A picture as PNG with a palette of as many colours as its size allows."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height}, device_scale_factor=picture.scale
    )
    page = context.new_page()
    file, _, place = picture.page.partition("#")
    if file.startswith("studio"):
        design(page, desk, file.removeprefix("studio"))
    else:
        page.goto((folder / file).as_uri() + (f"#{place}" if place else ""))
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()
    for colours in (256, 128, 64, 32):
        out = io.BytesIO()
        shot.quantize(colours, dither=Image.Dither.NONE).save(out, format="PNG", optimize=True)
        if out.tell() < LARGEST:
            break
    return out.getvalue()


def main() -> None:
    """Take all pictures, or none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        print("No Chromium here: the pictures in docs/assets are left as they are.", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        except BrowserError as error:
            why = error.message.splitlines()[0]
            print(f"Chromium does not start ({why}): the pictures are left as they are.", file=sys.stderr)
            return
        make(Path(name))
        with studio(Path(name)) as desk:
            taken = {picture.name: take(browser, Path(name), desk, picture) for picture in PICTURES}
        browser.close()
    for picture, png in taken.items():
        (OUT / f"{picture}.png").write_bytes(png)
        print(f"docs/assets/{picture}.png  {len(png):,} bytes")


if __name__ == "__main__":
    main()
