"""What the page says of a table as a whole, against direct counting."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tabulae.report.page import points, published_error
from tabulae.report.rows import printed_rows
from tabulae.spec import ReliabilitySection


@pytest.fixture
def table(made_up):
    """Twelve rows: eight estimated, two exact, one not estimable, one estimated at zero."""
    table = made_up().tables[1]
    estimate = np.array([1000, 100, 99, 30, 10, 9.9, -5, 500, 7, 8, np.nan, 0.0])
    error = np.array([10, 10, 10, 10, 10, 10, 10, 20, 0, 0, np.nan, 10.0])
    return dataclasses.replace(
        table,
        estimate=estimate,
        std_error=error,
        ci_low=estimate - error,
        ci_high=estimate + error,
        obs_status=["A"] * 8 + ["E", "E", "Q", "A"],
    )


def test_published_error_leaves_exact_rows_out(table):
    assert published_error(table) == pytest.approx(np.sqrt((8 * 100 + 400) / 9))
    assert published_error(dataclasses.replace(table, obs_status=["E"] * 12)) is None


def test_points_are_the_estimated_rows(table):
    estimate, margin = points((table, table))
    assert estimate.size == margin.size == 18
    assert np.isfinite(estimate).all()
    assert (margin > 0).all()


def test_interval_pictures_share_one_scale(table):
    """A bar's end stands on the whisker's scale: the estimate lies between the ends that the path draws."""
    import re

    for row in printed_rows(table, 8, ReliabilitySection()):
        bar = re.search(r'bar" d="M([\d.]+) 3H([\d.]+)V', row.picture)
        whisker = re.search(r'whisker" d="M([\d.]+) 3V9M[\d.]+ 6H([\d.]+)M', row.picture)
        assert bar is not None
        assert whisker is not None
        low, high = float(whisker[1]), float(whisker[2])
        ends = [float(bar[1]), float(bar[2])]
        assert 2 <= low < high <= 148
        assert any(low <= end <= high for end in ends)
