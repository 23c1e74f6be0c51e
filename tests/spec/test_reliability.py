"""Classes of reliability: where they begin, what they are called, and that the published copy keeps them."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.errors import SpecError
from tabulae.spec import Spec
from tabulae.spec.shape import LABELS, THRESHOLDS, ReliabilitySection

SPEC = """
[source]
path = "people.csv"
[attributes]
age = { range = [0, 9] }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[[table]]
name = "ages"
attributes = ["age"]
"""


def read(more: str = "", folder: Path | None = None) -> Spec:
    return Spec.from_text(SPEC + more, folder or ".")


def test_classes_of_the_australian_bureau_of_statistics_by_default() -> None:
    found = read().reliability
    assert found.names == LABELS
    assert found.customary
    counts = np.array([100.0, 100, 100, 100, 0, -5, np.nan, 10])
    errors = np.array([24.9, 25, 49.9, 50, 1, 0.001, 1, 0])
    assert found.classes(counts, errors).tolist() == [0, 1, 1, 2, 2, 2, 2, 0]


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=5, unique=True),
    st.lists(st.tuples(st.integers(-20, 200), st.integers(0, 200)), max_size=20),
)
def test_a_class_is_how_many_thresholds_are_reached(
    hundredths: list[int], rows: list[tuple[int, int]]
) -> None:
    thresholds = sorted(hundredths)
    section = ReliabilitySection(thresholds=[value / 100 for value in thresholds])
    estimate = np.array([count for count, _ in rows], float)
    error = np.array([wrong for _, wrong in rows], float)
    expected = [
        len(thresholds)
        if count <= 0
        else sum(Fraction(wrong, count) >= Fraction(str(value / 100)) for value in thresholds)
        for count, wrong in rows
    ]
    found = section.classes(estimate, error)
    # At a threshold itself division may round to either side; everywhere else the classes are these.
    at_edge = [count > 0 and Fraction(100 * wrong, count) in thresholds for count, wrong in rows]
    assert [f for f, edge in zip(found, at_edge, strict=True) if not edge] == [
        e for e, edge in zip(expected, at_edge, strict=True) if not edge
    ]
    assert len(section.names) == len(thresholds) + 1 == len(set(section.names))


def test_the_published_copy_holds_them_and_reads_back() -> None:
    for more in ("", "[reliability]\nthresholds = [0.1, 1]", '[reliability]\nlabels = ["a", "b", "c"]'):
        spec = read(more)
        copy = Spec.from_text(spec.published_text())
        assert copy.reliability.names == spec.reliability.names
        assert copy.reliability.thresholds == spec.reliability.thresholds
        assert copy.digest() == spec.digest()
        assert copy.published_text() == spec.published_text()
    written = tomllib.loads(read().published_text())["reliability"]
    assert written == {"thresholds": list(THRESHOLDS), "labels": list(LABELS)}


def test_other_thresholds_are_called_what_they_are() -> None:
    found = read("[reliability]\nthresholds = [0.1, 0.3, 1.0]").reliability
    assert found.names == ("under 10 %", "10 to 30 %", "30 to 100 %", "100 % or more")
    assert not found.customary


@each(
    ("more", "said"),
    [
        ("thresholds = []", "must be 1 to 5 numbers"),
        ("thresholds = [1, 2, 3, 4, 5, 6]", "must be 1 to 5 numbers"),
        ("thresholds = [0.0, 0.5]", "must be positive"),
        ("thresholds = [inf]", "must be positive"),
        ("thresholds = [0.5, 0.5]", "must increase"),
        ("thresholds = [0.5, 0.25]", "must increase"),
        ('thresholds = ["0.5"]', "must be a number"),
        ('labels = ["a", "b"]', "2 thresholds make 3 classes, and labels names 2"),
        ('labels = ["a", "a", "b"]', "must differ"),
        ('labels = ["a", " ", "b"]', "is empty"),
        (r'labels = ["a", "b\n", "c"]', "labels[1] holds a line break"),
        (r'labels = ["\u0007", "b", "c"]', "labels[0] holds the control character U+0007"),
        (r'labels = ["a", "b", "\u202Ec"]', "labels[2] holds the direction character U+202E"),
        (f'labels = ["a", "b", "{"c" * 31}"]', "30 characters at most"),
        ("threshold = [0.5]", 'did you mean "thresholds"'),
    ],
)
def test_mistakes_are_told(more: str, said: str) -> None:
    with pytest.raises(SpecError, match="reliability") as caught:
        read(f"[reliability]\n{more}")
    assert said in str(caught.value)
