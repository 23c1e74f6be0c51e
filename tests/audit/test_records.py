"""Invented records: they fall in the cells meant, whatever the kind of file and the policies of the columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.audit.specs import write_spec
from tests.passages import changed

import tabulae as tb
from tabulae.audit.replay import Recorded, Stage
from tabulae.demo.invented import People, RecordLayout, invent
from tabulae.errors import InvalidArgument
from tabulae.products.tables import product
from tabulae.spec import read_spec


def _stage(spec: Path) -> Stage:
    made = tb.plan(spec)
    return Stage(made, RecordLayout.of(made.spec), spec.parent, 0)


@pytest.mark.parametrize("source", ["csv", "parquet", "duckdb"])
def test_records_fall_in_their_cells(tmp_path: Path, source: str) -> None:
    """Also labels with commas, numbers as text, NULL, and values that are not listed."""
    stage = _stage(write_spec(tmp_path, source=source))
    people = invent(stage.layout, np.random.default_rng(1), 200, 1)
    run = stage.run(people)
    counts = tb.Counts.from_records(stage.plan.spec.domain, stage.layout.codes(people.picks))
    for block, exact in zip(stage.plan.strategy.blocks, stage.answers(people, run.done), strict=True):
        assert np.array_equal(exact, counts.answer(block.query))
    one, two = (stage.prepare(each) for each in (people, people.shuffled(np.random.default_rng(2))))
    assert one._counts.fingerprint() == two._counts.fingerprint()
    raw = {column.name: column.values for column in stage.layout.columns}
    assert raw["RACE"] == ("02", "b", "c d", "unlisted", None)
    assert raw["visits"] == (1, 2, 3)


def test_units_beyond_their_bound_are_truncated(tmp_path: Path) -> None:
    stage = _stage(write_spec(tmp_path, units='unit_id = "id"\nrows_per_unit = 2'))
    one = invent(stage.layout, np.random.default_rng(3), 1, 1)
    large = People(np.repeat(one.picks, 7, axis=0), np.zeros(7, dtype=np.int64))
    kept = People(np.repeat(one.picks, 2, axis=0), np.zeros(2, dtype=np.int64))
    assert np.array_equal(stage.run(large).values[0], stage.run(kept).values[0])


def test_several_attributes_of_one_column(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    extra = 'older = { column = "AGE", range = [5, 14] }\n'
    changed(spec, ("[recodes]", extra + "[recodes]"))
    layout = RecordLayout.of(read_spec(spec))
    age = next(column for column in layout.columns if column.name == "AGE")
    assert age.values == (5, 6, 7, 8, 9)
    assert age.codes.tolist() == [[5, 0], [6, 1], [7, 2], [8, 3], [9, 4]]
    cell = layout.codes(layout.random(np.random.default_rng(1), 1))[0]
    assert layout.codes(layout.pick(cell)[None])[0].tolist() == cell.tolist()  # type: ignore[index]
    assert layout.pick([0, 0, 0, 0, 0]) is None


def test_neighbours_differ_by_one_unit() -> None:
    rng = np.random.default_rng(1)
    people = People(np.arange(6)[:, None], np.array([0, 0, 1, 2, 2, 2]))
    assert people.without(2).picks.ravel().tolist() == [0, 1, 2]
    more = people.and_one(np.array([[9], [8]]))
    assert more.units.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]
    assert more.group(3).ravel().tolist() == [9, 8]
    assert sorted(people.shuffled(rng).picks.ravel().tolist()) == list(range(6))


def test_recorded_words_repeat_and_pay_for_nothing(tmp_path: Path) -> None:
    one, other = Recorded(4), Recorded(4)
    assert one.u64(5).tolist() == other.u64(5).tolist()
    assert one.bits(70) == other.bits(70)
    assert one.requests == other.requests == [("u64", 5), ("bits", 70)]
    assert not one.secure
    stage = _stage(write_spec(tmp_path))
    prepared = stage.prepare(invent(stage.layout, np.random.default_rng(1), 5, 1))
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    assert isinstance(prepared, product.Prepared)
    with pytest.raises(InvalidArgument, match="rehearsal"):
        prepared.measure(ledger, one)
    assert ledger.spent == 0
