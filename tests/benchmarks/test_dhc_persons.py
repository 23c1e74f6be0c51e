"""The production run of DHC persons: the facts of the run, the invented people, and the SQL that counts constraints."""

from __future__ import annotations

import csv
import tomllib
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.dhc_persons import RUNS
from benchmarks.dhc_persons_check import violations
from benchmarks.dhc_persons_run import RUN, Run, codes, write_counts
from benchmarks.dhc_persons_state import Persons
from examples.persons.people import AGES
from pyarrow import parquet

from tabulae.privacy import Insecure
from tabulae.products.areas.measure import measure_supported
from tabulae.products.areas.sparse.cells import CountedCells

ASKED = tomllib.loads(RUN.read_text(encoding="utf-8"))


def test_shares_add_up_to_one_and_recodes_are_partitions() -> None:
    assert sum(Fraction(share) for share in ASKED["levels"].values()) == 1
    for i in range(len(ASKED["levels"])):
        assert sum(Fraction(query["shares"][i]) for query in ASKED["query"]) == 1
    for recode in ASKED["recodes"].values():
        every = sorted(code for group in recode["groups"] for code in codes(group))
        assert every == list(range(ASKED["cells"][recode["of"]]))
    impossible = {(int(kind), age) for kind, ages in ASKED["structural_zeros"].items() for age in codes(ages)}
    assert prod(ASKED["cells"].values()) - 252 * len(impossible) == 905_184


def test_nobody_is_invented_where_a_structural_zero_is() -> None:
    for kind, ages in ASKED["structural_zeros"].items():
        low, high = AGES[int(kind)]
        assert set(range(116)) - set(codes(ages)) == set(range(low, high + 1))
    people = Persons.make(people=3_000, blocks=60, counties=1)
    for kind, ages in ASKED["structural_zeros"].items():
        assert not np.isin(people.age[people.relgq == int(kind)], codes(ages)).any()
    assert people.block.size == 3_000 == people.published[-1].sum()


@pytest.mark.long
def test_a_run_meets_every_constraint_and_a_planted_fault_is_found(tmp_path: Path) -> None:
    Persons.make(people=3_000, blocks=60, counties=1).write(tmp_path)
    run = Run.of(tmp_path)
    drawn = measure_supported(
        run.counted(tmp_path),
        run.plan,
        CountedCells.of(run.plan, run.passes, run.held, run.limits),
        source=Insecure(1),
    )
    for _ in drawn:
        pass
    assert drawn.counts is not None
    out = tmp_path / "out"
    out.mkdir()
    write_counts(run, drawn.counts, out)
    assert {broken for _, broken in violations(tmp_path, out).values()} == {0}
    people = parquet.read_table(out / "people.parquet")
    moved = pa.array((np.asarray(people["relgq"]) * 0 + 22).astype(np.int16))
    parquet.write_table(people.set_column(1, "relgq", moved), out / "people.parquet")
    found = {rule: broken for rule, (_, broken) in violations(tmp_path, out).items()}
    planted = [rule for rule in found if ":" not in rule or rule.startswith("nation")]
    assert len(planted) == 5
    assert all(found[rule] > 0 for rule in planted), found


def test_recorded_runs_break_nothing() -> None:
    with RUNS.open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert {row["broken"] for row in rows} == {"0"}
    assert min(int(row["constraints"]) for row in rows) > 10**8


def test_the_page_says_what_is_recorded() -> None:
    page = (RUN.parents[2] / "docs/methods/many-cells.md").read_text(encoding="utf-8")
    with RUNS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = (int(row[name]) for name in ("answers", "constraints", "broken"))
            assert " | ".join(f"{number:,}" for number in numbers) in page
            assert (
                f"| {float(row['cpu_s']):.0f} | {float(row['wall_s']):.0f} | {int(row['peak_mb']):,} |"
                in page
            )
