"""An estimate in a process of its own, killed with SIGKILL again and again, and resumed: the same whole numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.topdown.descent_cases import random_case
from tests.topdown.two_pass_cases import numbers

from tabulae.products.areas.estimate import estimate_spine

SCRIPT = """
import os, signal, sys
from pathlib import Path
import numpy as np
from tabulae.products.areas import estimate, tasks
from tabulae.products.areas.descent import descent
from tests.topdown.test_estimate_kill import case
from tests.topdown.two_pass_cases import numbers

work, out, method, where, count = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5])

def dying(call):
    def counted(*given, **named):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **named)
    return counted

said = dying(lambda line: None) if where == "stage" else (lambda line: None)
if where == "parent":
    descent.Descent.divide = dying(descent.Descent.divide)
if where == "sync":
    os.fsync = dying(os.fsync)
if where == "task":
    for kind in (tasks.ReadTask, tasks.RiseTask, tasks.FallTask, tasks.UpTask, tasks.DivideTask):
        kind.__call__ = dying(kind.__call__)
one = case()
done = estimate.estimate_spine(one.plan, one.values(6), method, work=work, workers=2, say=said)
np.save(out, numbers(done.vectors))
"""
ROOT = Path(__file__).parents[2]
no_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")


def case():
    return random_case(np.random.default_rng(6), 40, 4)


def run(work: Path, out: Path, method: str, where: str, count: int) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", SCRIPT, str(work), str(out), method, where, str(count)]
    return subprocess.run(command, env=environment, check=False, timeout=300).returncode


def killed_and_resumed(folder: Path, method: str, moments: Sequence[tuple[str, int]]) -> None:
    """Each moment ends a run, one after the other; what is finished stays so; the last run makes the same numbers."""
    one = case()
    whole = numbers(estimate_spine(one.plan, one.values(6), method).vectors)
    work, out = folder / "work", folder / "out.npy"
    finished: list[set[str]] = []
    for where, count in moments:
        assert run(work, out, method, where, count) == -signal.SIGKILL
        finished.append({path.name for path in work.rglob("*.npz")})
        assert not out.exists()
    assert all(before <= after for before, after in pairwise(finished))
    assert len(finished[-1]) > len(finished[0]) or len(finished) == 1
    assert run(work, out, method, "nowhere", 0) == 0
    assert np.load(out).tobytes() == whole.tobytes()


@pytest.mark.long
@no_kill
def test_a_killed_estimate_goes_on_to_the_same_numbers(tmp_path):
    """While a mark is written, and in the middle of a depth."""
    killed_and_resumed(tmp_path, "bluedown", [("sync", 5), ("parent", 3)])


@pytest.mark.long
@no_kill
def test_least_squares_killed_on_the_way_down_go_on(tmp_path):
    """No pass overwrites what it reads: a level that was half made is made again."""
    killed_and_resumed(tmp_path, "gls", [("task", len(case().plan.pieces) + len(case().plan.depths))])


@no_kill
@pytest.mark.long
@pytest.mark.parametrize("method", ["gls", "topdown", "bluedown"])
@pytest.mark.parametrize("where", ["stage", "sync", "task", "parent"])
def test_killed_at_every_moment(method, where, tmp_path):
    """One after the other, until a run comes through."""
    one, out, count = case(), tmp_path / "out.npy", 0
    while run(tmp_path / "work", out, method, where, count) == -signal.SIGKILL:
        count += 1 + count // 8
        assert count < 2000
    whole = numbers(estimate_spine(one.plan, one.values(6), method).vectors)
    assert np.load(out).tobytes() == whole.tobytes()
