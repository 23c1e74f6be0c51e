"""Vectors of nodes in two stores, of as few bytes as are enough, whose pages do not stay in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.topdown.descent_cases import random_case
from tests.topdown.two_pass_cases import numbers, random_plan

from tabulae.errors import InvalidArgument
from tabulae.products.areas.descent import descent
from tabulae.products.areas.estimate import estimate_spine
from tabulae.products.areas.passes import area_variances as areas
from tabulae.products.areas.passes import covariances as node_groups
from tabulae.products.areas.passes.vectors import Halves, NodeVectors, cells_of, end_of_parents, largest_cell
from tabulae.products.areas.spine_plan import SpinePlan

METHODS = ("gls", "topdown", "bluedown")


def halves(plan: SpinePlan, kind: type, folder: Path | None = None) -> Halves:
    end = end_of_parents(plan)
    paths = (None, None) if folder is None else (folder / "above.npy", folder / "below.npy")
    return Halves(
        NodeVectors.zeros(plan, np.int64, paths[0], ((0, end),)),
        NodeVectors.zeros(plan, kind, paths[1], ((end, plan.tree.size),)),
    )


@pytest.mark.parametrize("seed", range(6))
def test_two_stores_are_as_one(seed, tmp_path):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    one, two = NodeVectors.zeros(plan, np.int64), halves(plan, np.uint8, tmp_path)
    every, n = np.arange(plan.layout.size), plan.layout.algebra.cells
    for pattern, cells in enumerate(plan.dense_cells):
        nodes = np.flatnonzero(plan.pattern == pattern)
        x = rng.integers(0, 200, (nodes.size, cells.size, n))
        for store in (one, two):
            store.put(nodes, x)
        assert (two.take(nodes) == x).all()
        assert two.take(nodes).dtype == np.int64
        assert two.take(nodes[:0]).size == 0
    nodes = rng.permutation(plan.tree.size)
    some = np.sort(rng.permutation(every)[:2])
    two.release()
    assert (two.take_on(nodes, some) == one.take_on(nodes, some)).all()
    x = rng.integers(0, 200, (nodes.size, some.size, n))
    for store in (one, two):
        store.put_on(nodes, some, x)
        store.clear(plan.tree.size // 2, plan.tree.size // 2 + 2)
    assert (numbers(two) == one.flat).all()
    two.flush()
    end = end_of_parents(plan)
    again = Halves(
        NodeVectors.stored(plan, tmp_path / "above.npy", ((0, end),)),
        NodeVectors.stored(plan, tmp_path / "below.npy", ((end, plan.tree.size),)),
    )
    assert (numbers(again) == one.flat).all()


def test_a_range_of_other_nodes_is_refused():
    plan = random_plan(np.random.default_rng(1))
    with pytest.raises(InvalidArgument, match=r"nodes \(\(0, 1\),\) have"):
        NodeVectors(plan, np.zeros(cells_of(plan, 0, 1) + 1), ((0, 1),))


def test_the_largest_cell_is_found_in_any_chunk(monkeypatch):
    plan = random_plan(np.random.default_rng(2))
    monkeypatch.setattr("tabulae.products.areas.passes.vectors.CHUNK_CELLS", 3)
    above = NodeVectors.zeros(plan, np.int64, ranges=((0, end_of_parents(plan)),))
    nodes = plan.depths[-2]
    inner = slice(nodes.start, min(nodes.stop, end_of_parents(plan)))
    above.flat[plan.offsets[inner.stop] - 1] = 77
    assert largest_cell(above, inner) == 77


@pytest.mark.parametrize("method", METHODS)
def test_chunks_and_files_change_no_bit(method, tmp_path, monkeypatch):
    """What bounds memory does so without changing a number: chunks of any size, in memory or in files."""
    case = random_case(np.random.default_rng(4), 60, 4)
    margin, area = case.plan.layout.margin(["type"]), np.arange(60) // 7
    whole = estimate_spine(case.plan, case.values(4), method)
    for module, name in (
        (node_groups, "CHUNK_CELLS"),
        (descent, "_CHUNK"),
        (areas, "_NUMBERS"),
    ):
        monkeypatch.setattr(module, name, 40)
    small = estimate_spine(case.plan, case.values(4), method, work=tmp_path)
    assert numbers(small.vectors).tobytes() == numbers(whole.vectors).tobytes()
    assert small.margin(margin, area, 9).tobytes() == whole.margin(margin, area, 9).tobytes()


def test_leaves_take_the_bytes_that_are_enough(tmp_path):
    """The largest cell of the areas above the leaves says how many bytes those of leaves take."""
    case = random_case(np.random.default_rng(4), 60, 4)
    done = estimate_spine(case.plan, case.values(4), "bluedown", work=tmp_path)
    end = end_of_parents(case.plan)
    stored = NodeVectors.stored(case.plan, tmp_path / "leaves.npy", ((end, case.plan.tree.size),))
    assert stored.dtype == np.uint8
    leaves = np.arange(end, case.plan.tree.size)
    every = np.arange(case.plan.layout.size)
    assert (stored.take_on(leaves, every) == done.vectors.take_on(leaves, every)).all()


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.endswith(str(path))]
    return sum(
        1024 * int(line.split()[1]) for i in starts for line in lines[i + 1 : i + 6] if line.startswith("Rss")
    )


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="memory is told by Linux alone")
def test_files_do_not_stay_in_memory(tmp_path):
    case = random_case(np.random.default_rng(4), 3000, 4)
    work = tmp_path / "work"
    done = estimate_spine(case.plan, case.values(4), "bluedown", work=work)
    done.margin(case.plan.layout.margin([]), np.arange(3000), 3000)
    for path in (work / "measured/information.npy", work / "leaves.npy"):
        assert path.stat().st_size > 50_000
        assert resident(path) == 0
    done.vectors.take(np.array([case.plan.tree.size - 1]))
    assert resident(work / "leaves.npy") > 0
