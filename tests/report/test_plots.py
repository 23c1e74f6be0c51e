"""Figures: same bytes, and no names that break them."""

from __future__ import annotations

import base64
import io
from xml.etree import ElementTree

import matplotlib.image
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
        "matrix": plots.matrix(random.normal(size=(40, 30)), "age & <sex>", "a matrix"),
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


def test_points_are_thinned_evenly():
    svg = plots.noise_against_size(np.arange(1.0, 100_001), np.full(100_000, 5.0), "noise")
    assert svg.count("<circle") == plots.POINTS_DRAWN
    assert len(svg) < 300_000


@pytest.mark.parametrize("largest", [77, 770, 7_700, 77_000, 770_000, 1_540_000, 3_900_000, 60_000])
def test_labels_of_an_axis_end_within_the_picture(largest):
    """A tick may stand at the very end of its axis, and half of its label beyond."""
    errors = plots.errors_by_method(["a", "b"], {"one": [largest, largest / 3]}, None, "errors")
    sizes = plots.noise_against_size(np.array([1.0, 7 / 16 * largest]), np.full(2, largest / 2), "noise")
    for svg in (errors, sizes):
        root = ElementTree.fromstring(svg)
        texts = [e for e in root.iter("text") if e.get("text-anchor") == "middle"]
        texts = [e for e in texts if (e.text or "").replace(",", "").isdecimal()]
        assert texts
        for text in texts:
            half = 0.318 * 9 * len(text.text or "")  # the figures of DejaVu Sans at 9 points
            assert float(text.get("x", "nan")) + half <= float(root.get("width", "nan"))


@pytest.mark.parametrize("largest", [2.0, 770.0, 77_000.0, 9e6, 3e9])
def test_labels_of_the_upright_axis_begin_right_of_its_name(largest):
    root = ElementTree.fromstring(
        plots.noise_against_size(np.array([1.0, 9.0]), np.array([1.0, largest]), "noise")
    )
    ticks = [e for e in root.iter("text") if (e.text or "")[:1].isdecimal() and e.get("text-anchor") == "end"]
    ticks = [e for e in ticks if "%" not in (e.text or "")]
    (name,) = (e for e in root.iter("text") if e.text == "margin, counts")
    base = float(name.get("transform", "").removeprefix("translate(").split()[0])
    assert ticks
    assert all(float(e.get("x", "nan")) - 0.636 * 9 * len(e.text or "") > base + 2 for e in ticks)


@pytest.mark.parametrize("digits", [1, 12, 15, 27])
def test_codes_beside_rows_begin_within_the_picture(digits):
    """A code of a block has 15 figures, and figures are wider than letters."""
    codes = ["9" * digits, "a"]
    ends = {kind: np.array([[-1.0, 9], [0, 4]]) for kind in ("ci", "credible")}
    for svg in (
        plots.two_intervals(codes, np.array([5.0, 2]), ends, "intervals"),
        plots.errors_by_method(codes, {"one": [5.0, 2.0]}, None, "errors"),
    ):
        root = ElementTree.fromstring(svg)
        (code,) = (e for e in root.iter("text") if e.text == codes[0])
        assert code.get("text-anchor") == "end"
        assert float(code.get("x", "nan")) - 0.636 * 9 * digits >= 0


def test_places_are_those_of_logarithmic_axes():
    """Dots lie where three ticks of each axis say that they do: their numbers are read back from the picture."""
    sizes, margins = np.array([2.0, 30.0, 900.0]), np.array([5.0, 40.0, 700.0])
    root = ElementTree.fromstring(plots.noise_against_size(sizes, margins, "noise"))
    texts = [e for e in root.iter("text") if (e.text or "").replace(",", "").isdecimal()]
    for anchor, (at, offset), centre, values in (
        ("middle", ("x", 0.0), "cx", sizes),
        ("end", ("y", -3.2), "cy", margins),
    ):
        ticks = [
            (float(e.text.replace(",", "")), float(e.get(at, "nan")) + offset)
            for e in texts
            if e.text and e.get("text-anchor") == anchor
        ]
        slope, start = np.polyfit(np.log([tick for tick, _ in ticks]), [place for _, place in ticks], 1)
        places = [float(e.get(centre, "nan")) for e in root.iter("circle")]
        assert np.exp((np.array(places) - start) / slope) == pytest.approx(values, rel=1e-3)


def test_an_image_shows_each_entry_by_its_size_and_sign():
    entries = np.array([[1.0, -1.0, 0.0], [0.5, -0.25, 2.0]])
    written = plots.matrix(entries, "x", "x").partition("base64,")[2].partition('"')[0]
    image = matplotlib.image.imread(io.BytesIO(base64.b64decode(written)), format="png")[..., :3] * 255
    ends = {-1: plots.WARM, 0: "#ffffff", 1: plots.ACCENT}
    full = {sign: np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for sign, c in ends.items()}
    for pixel, entry in zip(image.reshape(-1, 3), entries.ravel() / 2, strict=True):
        expected = full[0] + abs(entry) * (full[int(np.sign(entry))] - full[0])
        assert pixel == pytest.approx(expected, abs=2)


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(InvalidArgument, match="'identity' has 1 errors for 2 tables"):
        plots.errors_by_method(["a", "b"], {"chosen": [1.0, 2.0], "identity": [1.0]}, None, "errors")


@pytest.mark.parametrize("methods", [{"chosen": [None, float("nan")]}, {"chosen": [0.0, -1.0]}])
def test_nothing_to_draw_is_no_error(methods):
    assert plots.errors_by_method(["a", "b"], methods, None, "errors").startswith("<svg")
