"""Reduced pictures against a direct search of every tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.report import picture_of
from tabulae.report import strategy as pictures


def tiles(size: int, pixels: int) -> list[tuple[int, int]]:
    count = min(size, pixels)
    return [(i * size // count, (i + 1) * size // count) for i in range(count)]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_each_pixel_is_the_largest_entry_of_its_tile(rows, columns, pixels, seed):
    matrix = np.random.default_rng(seed).integers(-5, 6, (rows, columns)).astype(float)
    picture = picture_of("x", matrix, pixels)
    assert picture is not None
    assert picture.shape == (rows, columns)
    for i, (top, bottom) in enumerate(tiles(rows, pixels)):
        for j, (left, right) in enumerate(tiles(columns, pixels)):
            tile = matrix[top:bottom, left:right]
            assert abs(picture.pixels[i, j]) == np.abs(tile).max()
            assert picture.pixels[i, j] in tile


def test_slabs_do_not_change_the_picture(monkeypatch):
    matrix = np.random.default_rng(0).normal(size=(50, 70))
    whole = picture_of("x", matrix, 9)
    monkeypatch.setattr(pictures, "_SLAB", 100)
    narrow = picture_of("x", matrix, 9)
    assert whole is not None
    assert narrow is not None
    np.testing.assert_array_equal(whole.pixels, narrow.pixels)


def test_small_matrices_are_drawn_as_they_are():
    matrix = np.array([[1.0, 0.5], [-1.0, 0.0], [0.0, 2.0]])
    picture = picture_of("x", matrix)
    assert picture is not None
    np.testing.assert_array_equal(picture.pixels, matrix)


def test_implicit_matrices_are_never_formed():
    class Lower:
        """Prefix sums over many values, multiplied without a matrix."""

        shape = (5000, 5000)

        def __matmul__(self, other):
            return np.cumsum(other, axis=0)

    picture = picture_of("x", Lower(), pixels=8)
    assert picture is not None
    np.testing.assert_array_equal(picture.pixels, np.tri(8))


def test_huge_matrices_are_left_to_words():
    class Huge:
        shape = (8_390_656, 4096)

        def __matmul__(self, other):
            raise AssertionError("not to be multiplied")

    assert picture_of("x", Huge()) is None


@pytest.mark.parametrize("shape", [(1, 300), (300, 1)])
def test_single_rows_and_columns(shape):
    picture = picture_of("x", np.ones(shape), pixels=7)
    assert picture is not None
    assert picture.pixels.shape == tuple(min(side, 7) for side in shape)
