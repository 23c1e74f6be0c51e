"""The generated nation, and what is read off its runs."""

from __future__ import annotations

import csv
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.nation import BLOCKS, FOLDER, PEOPLE, populate, relabelled
from benchmarks.scale import RESULTS, fewer_queries, fewer_races
from benchmarks.scale_page import NATION, PAGE, Growth, exponent, page

from tabulae.spec import read_spec

SHARE = 0.0002


@pytest.fixture(scope="module")
def nation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return populate(tmp_path_factory.mktemp("nation"), SHARE)


def test_a_share_of_the_nation_has_its_share_of_people_and_blocks(nation: Path) -> None:
    people, blocks = (
        pq.read_table(nation.parent / f"{FOLDER}/{name}.parquet") for name in ("people", "spine")
    )
    assert people.num_rows == int(PEOPLE * SHARE)
    living = int(BLOCKS * SHARE)
    assert blocks.num_rows == living + living // 25
    assert pc.is_in(people["block"].cast("string"), blocks["block"]).to_numpy().all()


def test_codes_begin_with_their_state_and_states_do_not_share_them() -> None:
    codes = {"block": np.array(["99001", "99002"]), "place": np.array(["03005", "99999"])}
    first, second = (relabelled(codes, state) for state in ("01", "02"))
    assert not set(first["block"]) & set(second["block"])
    assert set(first["place"]) & set(second["place"]) == {"99999"}


def test_every_unit_of_its_spec_is_measured_and_each_states_total_is_exact(nation: Path) -> None:
    spec = read_spec(nation)
    assert spec.geography is not None
    assert spec.geography.constraints is not None
    assert [exact.level for exact in spec.geography.constraints.exact] == ["state"]
    assert spec.geography.layout.domain.size == 2016
    assert spec.geography.leaf_codes.size == int(BLOCKS * SHARE)


def test_fewer_queries_and_races_make_a_spec_with_the_same_budget(nation: Path, tmp_path: Path) -> None:
    spec = shutil.copytree(nation.parent, tmp_path / "nation") / nation.name
    fewer_queries(spec, 3)
    fewer_races(spec.parent, 7)
    made = read_spec(spec).geography
    assert made is not None
    assert (len(made.queries), made.layout.domain.size) == (3, 8 * 2 * 2 * 7)
    assert {sum(shares) for shares in made.shares.queries.values()} == {Fraction(1)}
    races = pq.read_table(spec.parent / f"{FOLDER}/people.parquet")["cenrace"]
    assert set(pc.unique(races.cast("string")).to_pylist()) == {f"{i:02d}" for i in range(1, 8)}


def test_growth_is_straight_or_as_the_exponent_has_it_whichever_is_more() -> None:
    straight = Growth.of([(x, 5 + 2 * x) for x in (1e4, 2e4, 4e4)])
    assert straight.b < 1
    assert straight.nation == pytest.approx(5 + 2 * NATION)
    square = Growth.of([(x, 3 * x**2) for x in (1e4, 2e4, 4e4)])
    assert square.b == pytest.approx(2)
    assert square.nation == pytest.approx(3 * NATION**2)
    assert exponent([(1, 7), (2, 7)]) == pytest.approx(0)


def test_the_page_says_what_was_measured() -> None:
    with RESULTS.open(newline="") as file:
        assert page(list(csv.DictReader(file))) == PAGE.read_text(encoding="utf-8")
