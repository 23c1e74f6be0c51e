"""Kill -9 at seeded moments of the real command line, and in the narrowest places by hand."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
from tests.run.stops import kill as kill_at

import tabulae as tb
from tabulae.errors import ReleaseError

BENCHMARK = Path(__file__).parents[2] / "benchmarks/kill.py"


@pytest.fixture(scope="module")
def kill() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kill_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_twenty_kills_leave_a_whole_release_or_none(kill: ModuleType, tmp_path: Path) -> None:
    """Complete, resumed without a second draw or charge, or charged and void: nothing else."""
    rows = kill.study(tmp_path, kills=20)
    assert [row for row in rows if row["broken"]] == []
    assert sum(row["phase"] != "published" for row in rows) >= 20
    assert len({row["phase"] for row in rows}) >= 3, "the kills reached different steps"


@pytest.mark.long
def test_the_study_notices_what_it_looks_for(kill: ModuleType, tmp_path: Path) -> None:
    scene = kill.Scene.set_up(tmp_path / "scene")
    tb.run(scene.folder / "spec.toml", scene.out)
    seen = kill.look(scene)
    assert (seen.phase, seen.states, seen.broken) == ("published", ("published",), ())
    assert sorted(seen.stored)[-1] == "measurement.json"
    assert kill.finish(scene, seen) == ("completed", [])
    changed = kill.Sight("measured", ("charged",), {**seen.stored, "measurement.json": b""}, ())
    assert any("not those" in fault for fault in kill.finish(scene, changed)[1])
    assert kill.finish(scene, kill.Sight("charged", ("charged",), {}, ()))[0] == "wrong"
    (scene.out / "tables/ages.csv").unlink()
    assert any("ages.csv" in fault for fault in kill.look(scene).broken)
    (scene.folder / "ledger.db").write_bytes(b"damaged")
    assert any("ledger" in fault for fault in kill.look(scene).broken)


def _killed(code: str, *arguments: Path) -> None:
    """Run python that kills itself, where ``die`` is SIGKILL."""
    head = "import os, signal, sys, tabulae._run as app\ndef die(*a, **k): os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", head + code, *map(str, arguments)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture
def village(village: Path) -> Path:
    """The village, planned at once."""
    village.write_text(village.read_text() + '\n[method]\nselect = "identity"\n')
    return village


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("plan.json", marks=pytest.mark.long), "measurement.json"])
def test_a_file_that_says_complete_is_never_half_there(village: Path, name: str) -> None:
    """Killed in the middle of the bytes of the two files by which a run's progress is read."""
    out = village.parent / "release"
    _killed(
        "import io, pathlib\nwhole = pathlib.Path.open\n"
        "def open_(path, mode='r', *a, **k):\n"
        "    file = whole(path, mode, *a, **k)\n"
        "    if 'w' in mode and sys.argv[3] in path.name:\n"
        "        file.write(b'{' if 'b' in mode else '{'); file.flush(); die()\n"
        "    return file\n"
        "pathlib.Path.open = open_\n"
        "app.run(sys.argv[1], sys.argv[2])",
        village,
        out,
        Path(name),
    )
    ledger = tb.Ledger.open(village.parent / "ledger.db")
    if name == "plan.json":
        assert tb.run(village, out, resume=True).verify() == []
    else:
        with pytest.raises(ReleaseError, match="void"):
            tb.run(village, out, resume=True)
        assert tb.run(village, out).verify() == []
    assert ledger.spent == Fraction(1, 2) * len(ledger.charges())
    assert sorted(p.name for p in village.parent.iterdir() if "partial" in p.name) == []


def test_a_run_with_a_saved_plan_resumes_without_it(village: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when the partial folder was all but sealed: the strategy is that of the stored measurements."""
    out, saved = village.parent / "release", village.parent / "plan.json"
    tb.plan(village).save(saved)
    kill_at("sealed", village, out, plan_file=str(saved))
    saved.unlink()
    monkeypatch.setattr(
        "tabulae.products.tables.product.plan_tables",
        lambda spec: pytest.fail("the strategy was chosen again"),
    )
    release = tb.run(village, out, resume=True)
    assert release.verify() == []
    assert tb.Ledger.open(village.parent / "ledger.db").spent == Fraction(1, 2)


def test_what_a_killed_run_left_is_not_published_by_the_next(village: Path) -> None:
    out, partial = village.parent / "release", village.parent / ".release.partial"
    (partial / "measurements").mkdir(parents=True)
    (partial / "measurements/009.parquet").write_bytes(b"noise that was paid for by another charge")
    (partial / ".plan.json.draft").write_text("{")
    release = tb.run(village, out)
    assert release.verify() == []
    assert not (out / "measurements/009.parquet").exists()
    assert (out / "measurements/measurement.json").exists()
