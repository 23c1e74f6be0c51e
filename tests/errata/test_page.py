"""Each erratum on the page names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errata.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_row_names_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    errata = [row for row in rows if not row.startswith(("|---", "| place |", "| section 6 |"))]
    assert len(errata) > 25
    for row in errata:
        assert NAMED.search(row), row
    for file, test in NAMED.findall(PAGE):
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_every_test_of_this_folder_is_named() -> None:
    """But for those that test a helper."""
    written = {
        test
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for test in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert written - {test for _, test in NAMED.findall(PAGE)} == {"test_the_tail_is_that_of_the_law"}
