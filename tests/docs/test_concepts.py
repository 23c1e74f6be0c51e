"""The page of ideas computes what it shows, and its picture is drawn from the same numbers."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np

from docs import information

DOCS = Path(__file__).parents[2] / "docs"


def test_every_block_of_the_page_runs() -> None:
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "concepts", "concepts.md", 0)
    assert len(test.examples) > 20
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test)
    assert runner.failures == 0


def test_the_picture_shows_the_numbers_of_the_page() -> None:
    P = information.information()
    assert P.diagonal().tolist() == [1.0] * 8
    ranges = np.array([[a <= j <= b for j in range(8)] for a in range(8) for b in range(a, 8)], dtype=float)
    assert f"{np.sqrt(np.mean(np.diag(ranges @ np.linalg.inv(P) @ ranges.T))):.3f}" == "1.603"


def test_the_picture_is_drawn_with_the_same_bytes(tmp_path: Path) -> None:
    drawn = []
    for name in ("one.svg", "two.svg"):
        information.main(tmp_path / name)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    shown = (DOCS / "assets/information.svg").read_text(encoding="utf-8")
    words = re.compile(r"<text[^>]*>([^<]*)</text>")
    assert words.findall(shown) == words.findall(drawn[0].decode())
