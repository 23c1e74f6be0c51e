"""Nine quantiles beside SliceQuantiles: what the page says, and that the peer is what its paper describes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import quantiles

PAGE = (Path(__file__).parents[2] / "docs/methods/values.md").read_text(encoding="utf-8")


def test_what_is_recorded_stands_on_the_page_and_ours_are_never_worse() -> None:
    with quantiles.RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ours, theirs = (
        {(r["case"], r["epsilon"]): float(r["error"]) for r in rows if r["what"] == what}
        for what in (quantiles.OURS, quantiles.PEER)
    )
    assert len(ours) == len(theirs) == 9
    for key, error in ours.items():
        assert error <= theirs[key]
        assert f"{error:g}, {theirs[key]:g}" in PAGE, key


def test_the_noise_of_ranks_is_that_of_a_tree_of_two_levels() -> None:
    """Nine ranks: each of the first eight is a sum of leaves, and the ninth the root; the law has scale 1 / epsilon."""
    rng = np.random.default_rng(2)
    drawn = np.array([quantiles.rank_noise(9, 1.0, rng) for _ in range(4000)])
    ratio = np.exp(-1.0)
    leaf = 2 * ratio / (1 - ratio) ** 2
    expected = leaf * np.array([1, 2, 3, 4, 5, 6, 7, 8, 1])
    assert drawn.var(axis=0) == pytest.approx(expected, rel=0.2)  # 9 standard deviations of a variance


def test_with_little_noise_both_are_the_quantiles() -> None:
    numbers = np.random.default_rng(3).integers(0, 50, 5000)
    places = quantiles.slice_quantiles(numbers, 50, 20.0, np.random.default_rng(4))
    assert (quantiles.rank_errors(places, numbers, 50) <= 10).all()
    exact = np.searchsorted(np.cumsum(np.bincount(numbers, minlength=50)), 5000 * np.arange(1, 10) / 10)
    assert (quantiles.rank_errors(exact, numbers, 50) == 0).all()
