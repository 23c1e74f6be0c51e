"""Vectors of nodes in memory and in files."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from tests.topdown.two_pass_cases import random_plan

from tabulae.errors import InvalidArgument
from tabulae.products.areas.passes import vectors
from tabulae.products.areas.passes.vectors import NodeVectors


@pytest.mark.parametrize("seed", range(6))
def test_what_is_put_is_taken(seed, tmp_path):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    stored = NodeVectors.zeros(plan, np.int64, tmp_path / "counts.npy")
    n, every = plan.layout.algebra.cells, np.arange(plan.layout.size)
    whole = np.zeros((plan.tree.size, every.size, n), np.int64)
    for pattern, cells in enumerate(plan.dense_cells):
        nodes = np.flatnonzero(plan.pattern == pattern)
        x = rng.integers(0, 100, (nodes.size, cells.size, n))
        stored.put(nodes, x)
        whole[np.ix_(nodes, cells)] = x
        assert (stored.take(nodes) == x).all()
        assert stored.take(nodes[:0]).size == 0
    nodes = rng.permutation(plan.tree.size)
    some = np.sort(rng.permutation(every)[:2])
    assert (stored.take_on(nodes, some) == whole[nodes][:, some]).all()
    stored.flush()
    opened = NodeVectors.stored(plan, tmp_path / "counts.npy")
    assert (opened.flat == stored.flat).all()
    again = NodeVectors.zeros(plan, np.int64)
    again.put_on(nodes, every, opened.take_on(nodes, every))
    assert (again.flat == opened.flat).all()


def test_what_is_fetched_is_what_is_needed(monkeypatch):
    """Of a file, the pages of some vectors, and no more between them than is allowed."""
    plan, header, page, asked = random_plan(np.random.default_rng(3)), 128, 64, []

    class Told(mmap.mmap):
        def madvise(self, *of: int) -> None:
            asked.append(of)

    cells = int(plan.offsets[-1])
    flat = np.ndarray(cells, buffer=Told(-1, header + 8 * cells), offset=header)
    monkeypatch.setattr(mmap, "PAGESIZE", page)
    monkeypatch.setattr(vectors, "_BETWEEN", 1)
    nodes = np.flatnonzero(np.arange(plan.tree.size) % 5 < 2)
    NodeVectors(plan, flat).fetch(nodes)
    wanted = np.zeros(-(-(header + 8 * cells) // page), bool)
    for first, last in zip(plan.offsets[nodes].tolist(), plan.offsets[nodes + 1].tolist(), strict=True):
        wanted[(header + 8 * first) // page : -(-(header + 8 * last) // page)] = True
    found = np.zeros_like(wanted)
    for advice, first, size in asked:
        assert advice == mmap.MADV_WILLNEED
        assert not first % page
        assert not found[first // page : (first + size) // page].any()
        found[first // page : (first + size) // page] = True
    apart = np.diff(np.flatnonzero(wanted))
    assert len(asked) == 1 + (apart > 2).sum() > 1
    assert found.sum() == wanted.sum() + (apart == 2).sum()
    assert found[wanted].all()
    NodeVectors(plan, flat).fetch(nodes[:0])
    NodeVectors.zeros(plan).fetch(nodes)


def test_taking_makes_a_copy():
    plan = random_plan(np.random.default_rng(1))
    stored = NodeVectors.zeros(plan)
    stored.take(np.zeros(1, np.int64))[:] = 1
    stored.take_on(np.zeros(1, np.int64), np.arange(plan.layout.size))[:] = 1
    assert not stored.flat.any()


def test_vectors_of_another_plan_are_refused():
    plan = random_plan(np.random.default_rng(1))
    with pytest.raises(InvalidArgument, match="nodes of this spine have"):
        NodeVectors(plan, np.zeros(3))
