"""Invented people of areas live where public files let them, as many as these ask for and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.duchy import SPEC, houses, write_duchy

from tabulae.demo.invented import People, RecordLayout, invent, settled
from tabulae.errors import Unsupported
from tabulae.spec import Spec, read_spec

Person = tuple[str, str, str, str]


def _invented(spec: Spec, seed: int, count: int = 1500, most: int = 1) -> tuple[People, list[Person]]:
    layout, rng = RecordLayout.of(spec), np.random.default_rng(seed)
    people = settled(invent(layout, rng, count, most), layout, spec.geography, rng)
    assert [column.name for column in layout.columns] == ["KIND", "AGE", "FAITH", "PLOT"]
    held = [tuple(str(c.values[i]) for c, i in zip(layout.columns, row, strict=True)) for row in people.picks]
    return people, held  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(3))
def test_people_keep_every_rule_of_the_public_files(tmp_path: Path, seed: int) -> None:
    _, people = _invented(read_spec(write_duchy(tmp_path)), seed)
    assert not any(kind == "abbey" and age == "child" for kind, age, _, _ in people)
    lived = Counter((plot, kind) for kind, _, _, plot in people)
    assert all(lived[place] >= least for place, least in houses().items())
    assert lived.keys() <= houses().keys()  # of what is not listed there is nobody
    assert 1000 < len(people) <= 1500
    assert len({faith for _, _, faith, _ in people}) > 1


def test_limits_from_above_are_kept(tmp_path: Path) -> None:
    spec = write_duchy(tmp_path)
    rows = ["plot,kind,at_most", *(f"{i:03},home,{i % 4}" for i in range(48)), "000,inn,5"]
    (tmp_path / "houses.csv").write_text("\n".join(rows) + "\n")
    _, people = _invented(read_spec(spec), 1)
    lived = Counter((plot, kind) for kind, _, _, plot in people)
    most = {(f"{i:03}", "home"): i % 4 for i in range(48)} | {("000", "inn"): 5}
    assert all(number <= most.get(place, 0) for place, number in lived.items())
    assert len(people) == sum(lived.values()) >= 60  # all that there is room for, nearly: 77


def test_people_who_move_stay_in_their_units(tmp_path: Path) -> None:
    write_duchy(tmp_path)
    text = SPEC.replace('unit = "person"', 'unit = "person"\nunit_id = "NO"\nrows_per_unit = 3')
    people, _ = _invented(Spec.from_text(text, tmp_path), 2, 500, 3)
    assert max(Counter(people.units.tolist()).values()) <= 3


def test_a_column_that_is_counted_cannot_be_the_one_of_leaves(tmp_path: Path) -> None:
    write_duchy(tmp_path)
    spec = Spec.from_text(SPEC.replace('column = "PLOT"', 'column = "AGE"'), tmp_path)
    with pytest.raises(Unsupported, match="in which leaf a record lies"):
        RecordLayout.of(spec)
