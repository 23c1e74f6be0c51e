"""The documentation as it is built: its pages, and what they link to."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT = os.environ.get("BUILT_SITE")
"""The site that was built before, as `.ci/run` does."""
of_the_site = pytest.mark.usefixtures("site") if BUILT else pytest.mark.long
"""The mark of tests that look at the site, which are short where it is built: building it takes 20 seconds."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site in a folder, built strictly (with --quiet warnings would not be counted); only to be looked at.

    ``BUILT_SITE`` names one that was built before. Workers share what the first of them builds.
    """
    if BUILT:
        return Path(BUILT)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(shared / "site.begun").rename(folder)
    return folder


def _build(folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@dataclass
class Page(HTMLParser):
    """One page: where it leads to, and which places in it have a name."""

    text: str
    links: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    pictures: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names.update(value for key in ("id", "name") if (value := found.get(key)))
        if tag == "img":
            self.pictures.append(found)
        self.links += [value for key in ("href", "src") if (value := found.get(key)) is not None]
