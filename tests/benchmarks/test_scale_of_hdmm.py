"""What is committed of HDMM at scale: it fits its memory, and the pages show the CSVs."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks import bounds, hdmm_scale


def test_a_thousand_million_cells_fit_in_24_gigabytes() -> None:
    with hdmm_scale.RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for noise in hdmm_scale.NOISES:
        cells = {int(r["cells"]): r for r in rows if r["noise"] == noise and r["stage"] == "cells"}
        assert sorted(cells) == [n**5 for n in hdmm_scale.SIZES]
        assert float(cells[63**5]["peak_gib"]) * 2**30 < 24e9
        assert float(cells[63**5]["peak_gib"]) < 2.3 * float(cells[63**5]["vector_gib"])


@pytest.mark.parametrize("module", [bounds, hdmm_scale])
def test_the_page_shows_what_was_measured(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = module.PAGE.read_text()
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    module.write_page()
    assert (tmp_path / "page.md").read_text() == text


def test_the_products_of_a_bound_are_counted_in_the_order_that_takes_least() -> None:
    """Two factors that shrink 10 to 1 and keep 10: 2 * 100 * 1 operations, then 2 * 10 * 10."""
    assert hdmm_scale.flops([(10, 10), (1, 10)]) == 2 * 100 + 2 * 10 * 10


def test_a_stage_and_its_bound_are_measured_together() -> None:
    made = bounds.row(bounds.Case("c", "s", "z", _by_the_library, "b", bounds.copies(2**16, 1)))
    assert set(made) == set(bounds.COLUMNS)
    assert made["hottest"].startswith("linalg.")
    assert float(made["ratio"]) > 0


def _by_the_library() -> None:
    from tabulae.linalg import Dense

    matrix = Dense(np.ones((300, 300)) / 2)
    for _ in range(20):
        matrix.along(np.ones((1, 300, 300)))
