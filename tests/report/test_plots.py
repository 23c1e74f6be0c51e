"""Figures: same bytes, no global state, no names that break them."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from tabulae.errors import InvalidArgument
from tabulae.report import plots

ODD_NAMES = ["$x^", "<b>&\"'", "表", "a" * 200, "% {} \\ \u200f", ""]


def drawn() -> dict[str, str]:
    random = np.random.default_rng(0)
    return {
        "errors": plots.errors_by_method(
            ODD_NAMES, {"one": [1.0, 2, 3, 4, 5, 6], "two": [None] * 6}, None, "errors"
        ),
        "noise": plots.noise_against_size(random.normal(0, 100, 5000), np.full(5000, 7.0), "noise"),
        "matrix": plots.matrix(random.normal(size=(40, 30)), "age & <sex>", "a matrix", "m1"),
    }


@pytest.mark.parametrize("name", drawn())
def test_well_formed_labelled_and_repeatable(name):
    svg = drawn()[name]
    assert svg == drawn()[name]
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    names = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(names) == len(set(names))
    assert "<metadata" not in svg
    assert "<style" not in svg


def test_drawing_leaves_no_trace():
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before


def test_matplotlib_is_imported_on_first_use_and_pyplot_never():
    script = (
        "import sys, numpy as np\n"
        "from tabulae.report import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.matrix(np.eye(2), 'x', 'x', 'x')\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_points_are_thinned_evenly():
    svg = plots.noise_against_size(np.arange(1.0, 100_001), np.full(100_000, 5.0), "noise")
    assert svg.count("<use") < plots.POINTS_DRAWN + 60
    assert len(svg) < 300_000


@pytest.mark.parametrize("largest", [77, 770, 7_700, 77_000, 770_000, 1_540_000, 3_900_000, 60_000])
def test_labels_of_an_axis_end_within_the_picture(largest):
    """A tick may stand at the very end of its axis, and half of its label beyond."""
    errors = plots.errors_by_method(["a", "b"], {"one": [largest, largest / 3]}, None, "errors")
    sizes = plots.noise_against_size(np.array([1.0, 7 / 16 * largest]), np.full(2, largest / 2), "noise")
    for svg in (errors, sizes):
        root = ElementTree.fromstring(svg)
        texts = [e for e in root.iter() if e.tag.endswith("text") and "middle" in e.get("style", "")]
        texts = [e for e in texts if (e.text or "").replace(",", "").isdecimal()]
        assert texts
        for text in texts:
            half = 0.318 * 9 * len(text.text or "")  # the figures of DejaVu Sans at 9 points
            assert float(text.get("x", "nan")) + half <= float(root.get("width", "nan"))


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(InvalidArgument, match="'identity' has 1 errors for 2 tables"):
        plots.errors_by_method(["a", "b"], {"chosen": [1.0, 2.0], "identity": [1.0]}, None, "errors")


@pytest.mark.parametrize("methods", [{"chosen": [None, float("nan")]}, {"chosen": [0.0, -1.0]}])
def test_nothing_to_draw_is_no_error(methods):
    assert plots.errors_by_method(["a", "b"], methods, None, "errors").startswith("<svg")
