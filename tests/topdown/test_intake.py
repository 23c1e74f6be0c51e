"""What a run of areas does once: measurements taken in while they are stored, and stages that a killed run finished."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.test_estimate import all_cells

import tabulae as tb
from tabulae.errors import ReleaseError
from tabulae.products.areas.estimate import Intake, MeasuredNodes, estimate_spine, read_measured
from tabulae.products.areas.tasks import DivideTask, FallTask, RiseTask, UpTask, _narrow


def taken(case: Case, work: Path, files: str, seed: int = 1) -> None:
    """Everything that is measured, piece by piece."""
    intake = Intake(case.plan, work)
    intake.begin()
    for piece in case.values(seed):
        intake(piece)
    intake.finish(files)


def same(one: MeasuredNodes, other: MeasuredNodes) -> bool:
    arrays = ((m.information.flat, m.totals.value, m.totals.variance) for m in (one, other))  # type: ignore[attr-defined]
    alike = (np.array_equal(a, b, equal_nan=True) for a, b in zip(*arrays, strict=True))
    return one.digest == other.digest and all(alike)


def nothing_read() -> Any:
    pytest.fail("measurements were read")
    yield


@pytest.mark.parametrize("bypass", ["gaussian", "laplace", None])
def test_what_was_taken_in_is_what_is_read(tmp_path, bypass):
    """And once what is read is there, of the same files, it is not read again."""
    case = random_case(np.random.default_rng(4), 12, 3, bypass=bypass)
    whole = read_measured(case.plan, case.values(1))
    taken(case, tmp_path / "taken", "abc")
    assert same(read_measured(case.plan, nothing_read(), tmp_path / "taken", files="abc"), whole)
    for pieces in (case.values(1), nothing_read()):
        assert same(read_measured(case.plan, pieces, tmp_path / "read", files="abc"), whole)


def test_other_files_are_read_and_other_measurements_refused(tmp_path):
    case = random_case(np.random.default_rng(4), 12, 3)
    taken(case, tmp_path, "abc")
    whole = read_measured(case.plan, case.values(1))
    for files in ("", "another"):
        assert same(read_measured(case.plan, case.values(1), tmp_path, files=files), whole)
        with pytest.raises(ReleaseError, match="other measurements"):
            read_measured(case.plan, case.values(2), tmp_path, files=files)


def test_what_an_interrupted_draw_left_is_never_taken(tmp_path):
    """Of one that ended before it was stored, and of one whose noise was lost afterwards."""
    case = random_case(np.random.default_rng(4), 12, 3)
    begun = Intake(case.plan, tmp_path)
    begun.begin()
    begun(next(case.values(2)))
    whole = read_measured(case.plan, case.values(1))
    assert same(read_measured(case.plan, case.values(1), tmp_path, files="abc"), whole)
    taken(case, tmp_path, "lost", seed=2)
    taken(case, tmp_path, "abc")
    assert same(read_measured(case.plan, nothing_read(), tmp_path, files="abc"), whole)


@pytest.mark.parametrize("at", ["NodeVectors.zeros", "NodeVectors.put", "NodeVectors.flush"])
def test_a_full_disk_ends_the_intake_and_nothing_else(tmp_path, monkeypatch, at):
    """The noise is paid for: it is stored, and read afterwards."""
    case = random_case(np.random.default_rng(4), 12, 3)

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"tabulae.products.areas.passes.vectors.{at}", full)
        taken(case, tmp_path / "work", "abc")
    assert not (tmp_path / "work").exists()
    found = read_measured(case.plan, case.values(1), tmp_path / "work", files="abc")
    assert same(found, read_measured(case.plan, case.values(1)))


def test_a_run_does_not_read_what_it_stored(duchy, monkeypatch):
    """Nor does one that is resumed; the check reads all of it, and finds the same estimates."""
    out = duchy.parent / "release"
    with monkeypatch.context() as patch:
        patch.setattr("tabulae.products.areas.tables.read_spine_measurements", lambda *a: nothing_read())
        with patch.context() as stop:
            stop.setattr("tabulae.products.areas.tables.estimate_spine", lambda *a, **k: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                tb.run(duchy, out)
        release = tb.run(duchy, out, resume=True)
    assert release.verify() == []


def test_stored_files_that_were_changed_are_read(duchy, monkeypatch):
    """A resumed run goes by the bytes that are on the disk, not by what it once drew."""
    out = duchy.parent / "release"
    with monkeypatch.context() as stop:
        stop.setattr("tabulae.products.areas.tables.estimate_spine", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tb.run(duchy, out)
    files = sorted(out.with_name(".release.partial").glob("measurements/*.parquet"))
    files[0].write_bytes(files[0].read_bytes()[:-1])
    with pytest.raises(ReleaseError, match="cannot be read"):
        tb.run(duchy, out, resume=True)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-129, 129), max_size=5))
def test_numbers_in_few_bytes_are_the_same(numbers):
    values = np.array(numbers, np.int64)
    few = _narrow(values)
    assert few.tolist() == numbers
    assert few.itemsize <= 1 or not all(-128 <= n < 128 for n in numbers)


class Tasks:
    """Counts the tasks of estimates, and ends the process in one of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done, self.ends = 0, 0
        for kind in (RiseTask, UpTask, FallTask, DivideTask):
            patch.setattr(kind, "__call__", self._counting(kind.__call__))

    def _counting(self, make: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
        def counted(task: Any, number: int) -> Any:
            self.done += 1
            if self.done == self.ends:
                raise KeyboardInterrupt
            return make(task, number)

        return counted


@pytest.mark.parametrize("method", ["gls", "bluedown"])
def test_a_depth_of_many_tasks_goes_on_from_its_last_part(tmp_path, monkeypatch, method):
    """A process that ends within a depth leaves the parts that it finished, and the numbers are the same."""
    case = random_case(np.random.default_rng(4), 60, 3)
    monkeypatch.setattr("tabulae.products.areas.passes.covariances.CHUNK_CELLS", 60)
    monkeypatch.setattr("tabulae.products.areas.descent.descent._CHUNK", 30)
    monkeypatch.setattr("tabulae.products.areas.estimate._TASKS", 1)
    tasks = Tasks(monkeypatch)
    whole = all_cells(estimate_spine(case.plan, case.values(1), method, workers=1))
    every = tasks.done
    assert every > 15
    for ends in range(2, every, 5):
        work = tmp_path / str(ends)
        tasks.done, tasks.ends = 0, ends
        with pytest.raises(KeyboardInterrupt):
            estimate_spine(case.plan, case.values(1), method, work=work, workers=1)
        found = estimate_spine(case.plan, case.values(1), method, work=work, workers=1)
        assert (all_cells(found) == whole).all()
        assert tasks.done - every <= every // 8 + 1  # a part of a depth is an eighth of it


@pytest.mark.parametrize(
    "at", [pytest.param("tabulae._run.seal_with_report", marks=pytest.mark.long), "shutil.rmtree"]
)
def test_a_run_that_ends_after_all_is_written_estimates_nothing_again(duchy, monkeypatch, at):
    """Killed while it sealed, or while what estimates kept was being removed."""
    out, real = duchy.parent / "release", shutil.rmtree

    def killed(path: Path, **named: Any) -> None:
        if at == "shutil.rmtree" and Path(path).name != ".estimate.over":
            return real(path, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as stop:
        stop.setattr(at, killed)
        with pytest.raises(KeyboardInterrupt):
            tb.run(duchy, out)
    with monkeypatch.context() as patch:
        patch.setattr("tabulae.products.areas.product.SpineRelease.of", lambda *a: pytest.fail("again"))
        release = tb.run(duchy, out, resume=True)
    assert release.verify() == []
    assert not list(duchy.parent.rglob(".estimate.over"))
