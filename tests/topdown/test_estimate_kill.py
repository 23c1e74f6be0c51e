"""An estimate in a process of its own, killed with SIGKILL again and again, and resumed: the same whole numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
from tabulae.products.areas.descent.descent import Descent
from tabulae.products.areas.estimate import estimate_spine
from tests.topdown.test_estimate_kill import case
from tests.topdown.two_pass_cases import numbers

work, out, where, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

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
    Descent.divide = dying(Descent.divide)
if where == "sync":
    os.fsync = dying(os.fsync)
one = case()
done = estimate_spine(one.plan, one.values(6), "bluedown", work=work, workers=2, say=said)
np.save(out, numbers(done.vectors))
"""
ROOT = Path(__file__).parents[2]


def case():
    return random_case(np.random.default_rng(6), 40, 4)


def run(work: Path, out: Path, where: str, count: int) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", SCRIPT, str(work), str(out), where, str(count)]
    return subprocess.run(command, env=environment, check=False, timeout=300).returncode


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize(
    "kills",
    [
        [("stage", 1), ("parent", 9)],
        pytest.param([("stage", 1), ("sync", 3), ("parent", 3), ("parent", 9)], marks=pytest.mark.long),
    ],
)
def test_a_killed_estimate_goes_on_to_the_same_numbers(tmp_path, kills):
    """At a stage's beginning, while a mark is written, and twice in the middle of a depth, one after the other."""
    one = case()
    whole = numbers(estimate_spine(one.plan, one.values(6), "bluedown").vectors)
    work, out = tmp_path / "work", tmp_path / "out.npy"
    finished: list[set[str]] = []
    for where, count in kills:
        assert run(work, out, where, count) == -signal.SIGKILL
        finished.append({path.name for path in work.rglob("*.npz")})
        assert not out.exists()
    assert all(before <= after for before, after in pairwise(finished))
    assert len(finished[-1]) > len(finished[0])
    assert run(work, out, "nowhere", 0) == 0
    assert (np.load(out) == whole).all()
