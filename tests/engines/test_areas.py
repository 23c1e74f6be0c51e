"""Areas on Spark: the estimates of the single machine, to the last bit; noise drawn once, whatever is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.engines.mortal import Mortal, on_a_full_disk
from tests.passages import changed
from tests.topdown.descent_cases import random_case
from tests.topdown.test_estimate import all_cells
from tests.topdown.test_parts import Stored, in_pieces, small_chunks

import tabulae as tb
from tabulae.errors import ReleaseError
from tabulae.products.areas.estimate import Method, estimate_spine, read_measured
from tabulae.products.areas.passes.vectors import Parts
from tabulae.products.areas.tasks import ReadTask, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves closing its sockets to the collector of garbage.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.parametrize("method", [pytest.param("gls", marks=pytest.mark.long), "topdown"])
def test_estimates_are_those_of_the_single_machine(
    method: Method, spark: SparkSession, tmp_path: Path
) -> None:
    """By the two methods whose tasks, between them, are of every kind."""
    case = in_pieces(random_case(np.random.default_rng(4), 4, 3))
    run = on_spark(spark)
    measured = read_measured(case.plan, Stored(list(case.values(1))), tmp_path / "measured", run=run)
    whole = estimate_spine(case.plan, case.values(1), method)
    with small_chunks():
        found = estimate_spine(case.plan, measured, method, work=tmp_path / method, run=run)
    assert (all_cells(found) == all_cells(whole)).all()
    assert found.unconverged == whole.unconverged


def test_what_a_task_refuses_is_told_plainly(spark: SparkSession, tmp_path: Path) -> None:
    """In its own words, or the system's; an error in it, by what Python says last."""
    case = random_case(np.random.default_rng(4), 10, 3)
    values = list(case.values(1))
    at = np.zeros(1 << 20, np.int32)  # as large as a spine's: PySpark writes large arrays in another way
    (tmp_path / "parts").mkdir()
    for folder, piece, kind, words in (
        ("parts", Stored([]), ReleaseError, "Spark did not finish the estimates: IndexError"),
        (
            "missing",
            Stored(values),
            ReleaseError,
            "^.*missing is not seen where tasks run: write the release to",
        ),
        ("parts", on_a_full_disk, OSError, "No space left on device"),
        ("parts", Stored(values), None, ""),
        (
            "parts",
            Stored(list(case.values(2))),
            ReleaseError,
            "^.*parts holds the work of .* other measurements",
        ),
    ):
        task = ReadTask(case.plan, piece, Parts(case.plan, tmp_path / folder, at))
        with pytest.raises(kind, match=words) if kind else nullcontext(), on_spark(spark)(task) as tasks:
            assert [one.number for one in tasks(range(1))] == [0]


@pytest.fixture
def spark_duchy(duchy: Path) -> Path:
    """The spec of the small release of areas, counted and estimated on Spark."""
    folder = duchy.parent
    text = csv.ConvertOptions(column_types=dict.fromkeys(("PLOT", "KIND", "AGE", "FAITH"), pa.string()))
    pq.write_table(csv.read_csv(folder / "people.csv", convert_options=text), folder / "people.parquet")
    changed(duchy, ('path = "people.csv"', 'path = "people.parquet"\nengine = "spark"'))
    return duchy


@pytest.mark.long
def test_a_release_whose_task_is_killed_is_finished_without_a_second_draw(
    spark: SparkSession, spark_duchy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of a task dies in the first pass down; what was measured, and paid for, is what is published."""
    out, grave = spark_duchy.parent / "release", spark_duchy.parent / "grave"

    def mortal(session: SparkSession) -> Callable[[Any], AbstractContextManager[Any]]:
        real = on_spark(session)

        @contextmanager
        def run(task: Any) -> Iterator[Any]:
            falls = type(task).__name__ == "FallTask"
            some: Any = Mortal(task, 0, grave) if falls else task
            with real(some) as numbers:
                yield numbers

        return run

    monkeypatch.setattr("tabulae.products.areas.product.on_spark", mortal)
    with pytest.raises(ReleaseError, match="Spark did not finish the estimates"):
        tb.run(spark_duchy, out)
    assert grave.exists()
    assert not out.exists()
    measured = _digests(out.with_name(".release.partial"))
    release = tb.run(spark_duchy, out, resume=True)
    assert _digests(out) == measured
    assert release.verify() == []
    ledger = tb.Ledger.open(spark_duchy.parent / "ledger.db")
    assert [charge.state for charge in ledger.charges()] == ["published"]
    assert not list(out.rglob("*part-*"))


def _digests(folder: Path) -> dict[str, str]:
    """Of the files of measurements."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("measurements/*")
    }
    assert found
    return found
