"""Estimates by tasks are those of the single machine, to the last bit, however often a task is lost."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.test_estimate import METHODS, all_cells, exact_counts, limits

from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.products.areas.constraints import ExactMargin
from tabulae.products.areas.estimate import SpineEstimate, estimate_spine, read_measured
from tabulae.products.areas.passes.vectors import NodeVectors, Parts
from tabulae.products.areas.spine_plan import SpinePieceValues
from tabulae.products.areas.tables import SpineRelease
from tabulae.products.areas.tasks import Numbers, Runner, Task, TaskResult
from tabulae.release import Release

seeds = st.integers(0, 2**32 - 1)


class Stored:
    """Measurements by the number of their piece."""

    def __init__(self, values: list[SpinePieceValues]) -> None:
        self.values = values

    def __call__(self, number: int) -> SpinePieceValues:
        return self.values[number]


@contextmanager
def elsewhere(task: Task) -> Iterator[Numbers]:
    """A copy of the task, as another process has it, runs the numbers in another order."""
    copy = pickle.loads(pickle.dumps(task))

    def run(numbers: range) -> list[TaskResult]:
        return [copy(number) for number in reversed(numbers)][::-1]

    yield run


@contextmanager
def small_chunks() -> Iterator[None]:
    """So few cells a task that small trees have many tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.products.areas.passes.covariances.CHUNK_CELLS", 300)
        patch.setattr("tabulae.products.areas.descent.descent._CHUNK", 200)
        patch.setattr("tabulae.products.areas.passes.vectors._ROW_GROUP", 40)
        yield


def in_pieces(case: Case) -> Case:
    """The case, measured in small pieces."""
    plan = replace(case.plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.products.areas.spine_plan.PIECE_VALUES", 100)
        _ = plan.pieces  # cut here, and kept
    return replace(case, plan=plan)


def by_tasks(
    case: Case, method: str, work: Path, run: Runner = elsewhere, *, seed: int = 1, **known: Any
) -> SpineEstimate:
    measured = read_measured(case.plan, Stored(list(case.values(seed))), work / "measured", run=run)
    return estimate_spine(case.plan, measured, method, work=work / method, run=run, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=settings().max_examples // 5)
@given(
    seeds,
    st.integers(2, 30),
    st.integers(2, 4),
    st.sampled_from(["gaussian", "laplace", None]),
    st.booleans(),
)
def test_tasks_make_the_same_estimate(method, seed, leaves, depth, bypass, exact):
    """With bounds, with exact counts, or both; and once more from the work folder, where nothing is left to do."""
    rng = np.random.default_rng(seed)
    case = in_pieces(random_case(rng, leaves, depth, rho="1/10", bypass=bypass))
    known = constrained(rng, case, method, exact=exact)
    whole = estimate_spine(case.plan, case.values(1), method, **known)
    with TemporaryDirectory() as folder, small_chunks():
        work = Path(folder)
        for _ in range(2):
            found = by_tasks(case, method, work, **known)
            assert (all_cells(found) == all_cells(whole)).all()
            assert found.unconverged == whole.unconverged
            assert found.vectors.dtype == whole.vectors.dtype


def constrained(rng: np.random.Generator, case: Case, method: str, *, exact: bool) -> dict[str, Any]:
    """Limits that the truth meets; without exact counts where the plan refuses them."""
    level = case.plan.spine.levels[int(rng.integers(len(case.plan.spine.levels)))]
    margins = (ExactMargin(level, case.plan.layout.margin(())),) if exact else ()
    constraints = limits(rng, case, margins, bounded=not exact)
    try:
        constraints.check(case.plan, method)
    except InvalidArgument:
        return {}
    return {"constraints": constraints, "exact_values": exact_counts(case, margins)}


def tasks_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Notes which parts are written, in their order."""
    written, write = [], Parts._write

    def noted(self: Parts, number: int, *args: Any) -> None:
        write(self, number, *args)
        written.append((self.folder.name, number))

    monkeypatch.setattr(Parts, "_write", noted)
    return written


@pytest.mark.parametrize(
    "method", ["bluedown", *(pytest.param(m, marks=pytest.mark.long) for m in METHODS if m != "bluedown")]
)
def test_a_task_that_is_lost_is_made_again_and_no_other(method, tmp_path, monkeypatch):
    """Each task in turn dies, once before its part has a name and once after; every part is named once."""
    case = in_pieces(random_case(np.random.default_rng(4), 30, 4))
    whole = estimate_spine(case.plan, case.values(1), method)
    written, died = tasks_of(monkeypatch), set()

    @contextmanager
    def mortal(task: Any) -> Iterator[Numbers]:
        def run(numbers: range) -> list[TaskResult]:
            done = []
            for number in numbers:
                for late in (False, True):
                    one = (task.makes[-1].folder.name, number, late)
                    if one not in died:
                        died.add(one)
                        if late:
                            task(number)
                        raise MemoryError
                done.append(task(number))
            return done

        yield run

    with small_chunks():
        lost = 0
        while True:
            try:
                found = by_tasks(case, method, tmp_path, mortal)
                break
            except MemoryError:
                lost += 1
    assert (all_cells(found) == all_cells(whole)).all()
    tasks = {one for one in written if one[0] not in ("mean", "estimate")}  # which tasks of gls keep first
    assert lost == len(died) == 2 * len(tasks) > 40
    assert len(set(written)) == len(written)


def test_what_dies_while_it_writes_leaves_no_part(tmp_path, monkeypatch):
    plan = random_case(np.random.default_rng(4), 3, 2).plan
    parts, nodes = Parts(plan, tmp_path, np.zeros(plan.tree.size, np.int32)), np.zeros(1, np.int64)
    x = np.zeros((1, int(plan.offsets[1])))

    def full(*args: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tabulae.products.areas.passes.vectors.pq.write_table", full)
    with pytest.raises(OSError, match="No space"):
        parts.add(0, nodes, x)
    assert list(tmp_path.iterdir()) == []
    assert parts.noted(0) is None
    monkeypatch.undo()
    parts.add(0, nodes, x, missed=2)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0000000.parquet"]
    assert parts.noted(0) == {"missed": "2"}


def test_parts_of_other_measurements_or_estimates_are_refused(tmp_path):
    case = random_case(np.random.default_rng(4), 10, 3)
    by_tasks(case, "gls", tmp_path)
    with pytest.raises(ReleaseError, match="other measurements"):
        by_tasks(case, "gls", tmp_path, seed=2)
    with pytest.raises(ReleaseError, match="another estimate"):
        by_tasks(random_case(np.random.default_rng(5), 10, 3), "gls", tmp_path)
    with pytest.raises(ReleaseError, match="another estimate"):
        read_measured(case.plan, case.values(1), tmp_path / "measured")
    with pytest.raises(InvalidArgument, match="gls, topdown, bluedown"):
        by_tasks(case, "middleout", tmp_path)


@pytest.mark.parametrize("fault", ["cut short", "flipped"])
def test_a_part_that_was_damaged_is_refused(tmp_path, fault):
    case = random_case(np.random.default_rng(4), 10, 3)
    by_tasks(case, "gls", tmp_path)
    for stage in (tmp_path / "gls").glob("*-*.npz"):
        stage.unlink()
    part = tmp_path / "measured" / "information" / "part-0000000.parquet"
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content if fault == "flipped" else content[:-9])
    with pytest.raises(ReleaseError, match=r"part-0000000\.parquet cannot be read"):
        by_tasks(case, "gls", tmp_path)


def test_a_folder_that_tasks_do_not_share_is_refused(tmp_path, monkeypatch):
    """They write to a folder of the same name on another machine: here nothing appears."""
    case = random_case(np.random.default_rng(4), 10, 3)
    monkeypatch.setattr(Parts, "_write", lambda *args: None)
    with pytest.raises(ReleaseError, match="all executors and this process share"):
        by_tasks(case, "gls", tmp_path)


def test_windows_hold_their_ranges_alone():
    plan = random_case(np.random.default_rng(4), 30, 4).plan
    rng = np.random.default_rng(1)
    whole = NodeVectors(plan, rng.normal(size=int(plan.offsets[-1])))
    window = NodeVectors.zeros(plan, ranges=((2, 5), (7, 7), (9, 14)))
    held, every = np.array([2, 3, 4, 9, 10, 11, 12, 13]), np.arange(plan.layout.size)
    window.fill(held, np.concatenate([whole.flat[plan.offsets[n] : plan.offsets[n + 1]] for n in held]))
    assert (window.take_on(held, every) == whole.take_on(held, every)).all()
    some = held[[1, 3, 6]]
    assert (window.cells_of(some) == np.concatenate([whole.take(n[None]).ravel() for n in some])).all()
    window.clear(10, 12)
    assert not window.take_on(np.arange(10, 12), every).any()
    assert (window.take_on(some[[0, 2]], every) == whole.take_on(some[[0, 2]], every)).all()
    with pytest.raises(InvalidArgument, match="vectors of shape"):
        NodeVectors(plan, np.zeros(3), ((0, 1),))


def test_a_release_is_estimated_in_either_way_in_one_work_folder(duchy_release: Path, tmp_path: Path) -> None:
    """A run that began on one engine goes on by another."""
    spec = Release.read(duchy_release).spec
    here = SpineRelease.of(duchy_release, spec, 0.95, tmp_path)
    there = SpineRelease.of(duchy_release, spec, 0.95, tmp_path, run=elsewhere)
    for one, other in ((here.unbiased, there.unbiased), (here.published, there.published)):
        assert (all_cells(one) == all_cells(other)).all()
    assert there.published.method == "bluedown"
