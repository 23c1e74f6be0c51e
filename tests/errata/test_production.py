"""What section 6 of the paper on spines says of 2020, and what the code that ran did: both ways can be written."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np
import pytest
from tests.spec.states import State, write_state

from tabulae.products.areas.spine.spine import Spine

RUN = Path(__file__).parents[3] / "shared/data/production-2020/pl94.toml"
LEVELS = ["tract", "group", "block"]


def tract(blocks: int) -> Spine:
    """Two tracts, one of them of some blocks."""
    names = [f"{i:03}" for i in range(blocks + 1)]
    of = ["a"] * blocks + ["b"]
    return Spine.from_codes({"tract": of, "group": of, "block": names}, levels=LEVELS)


def sizes(spine: Spine) -> list[int]:
    return np.bincount(spine.units[spine.levels[-2]]).tolist()


@pytest.mark.parametrize(("blocks", "cutoff"), [(100, 12), (99, 12), (24, 0), (25, 3)])
def test_groups_hold_one_more_than_is_printed(blocks: int, cutoff: int) -> None:
    """A tract with 100 blocks: four groups of 23 and one of 8, where the paper's hold 22 at most."""
    spine, none = tract(blocks), [["x"] * (blocks + 1)]
    printed = sizes(spine.optimise(none, cutoff))
    ran = sizes(spine.optimise(none, cutoff, rule="production"))
    most = isqrt(blocks) + cutoff
    assert max(printed) <= most
    assert ran[:-1] == [most + 1] * (blocks // (most + 1)) + [blocks % (most + 1)] * (blocks % (most + 1) > 0)


def test_groups_of_tract_subsets_are_cut_whatever_the_entities() -> None:
    """Eight units of one parent, the middle four a town: the paper keeps its last two together, the code does not."""
    subset = [f"{i}" for i in range(8)]
    codes = {"prim": ["p"] * 8 + ["q"], "group": [*subset, "q"], "subset": [*subset, "q"]}
    codes = {name: np.repeat(column, 2).tolist() for name, column in codes.items()}
    codes["block"] = [f"{i:02}" for i in range(18)]
    spine = Spine.from_codes(codes, levels=["prim", "group", "subset", "block"])
    town = np.repeat(["t" if 2 <= i < 6 else None for i in range(9)], 2).tolist()
    printed = spine.optimise([town], 2, levels=["group"])
    ran = spine.optimise([town], 2, levels=["group"], rule="production")
    assert printed.osed(town) < ran.osed(town)
    assert np.unique(ran.units["group"], return_counts=True)[1].tolist() == [10, 6, 2]
    elsewhere = spine.optimise([town[::-1]], 2, levels=["group"], rule="production")
    assert np.array_equal(elsewhere.units["group"], ran.units["group"])


SPINE = """\
state,county,tract,block,place,tribe,cousub
09,09001,A,0001,10,,c
09,09001,A,0002,20,,c
09,09001,A,0003,10,S,c
09,09001,A,0004,10,T,d
09,09001,A,0005,20,,d
01,01001,B,0006,10,,e
01,01001,B,0007,20,,e
01,01001,B,0008,10,,f
"""
COLUMNS = """\
[geography.columns]
prim = { join = ["county", "cousub"] }
subset = { join = ["tract", "prim"] }
finer = { join = ["tract", "prim", "tribe"] }
field = { where = "state = '09' AND tribe IS NULL", then = "cousub", otherwise = "place" }
kinds = { occurs = "hhgq", but = ["household"] }
"""
HOMES = "".join(f"000{i},household,,\n" for i in range(1, 9))


@pytest.fixture
def two(tmp_path: Path) -> State:
    """Two states, in one of which towns take the place of places."""
    state = write_state(tmp_path)
    state.file("spine.csv", SPINE)
    state.file("facilities.csv", f"block,hhgq,at_least,at_most\n{HOMES}0002,jail,1,40\n0005,jail,,\n")
    return state


def groups(two: State, entities: str, *, split: bool = False) -> list[str]:
    """The last digits of the blocks of each group of the level above them."""
    asked = f'optimise = {{ rule = "production", entities = {entities}, levels = ["tract"] }}\n'
    asked += 'split = "tribe IS NOT NULL"\n' if split else ""
    outside = 'outside = { place = "99" }\n'
    spine = two.geography(
        (outside, outside + asked),
        ('shares = { state = "1/4"', 'shares = { root = "1/4", state = "0"'),
        ('{ state = "1/2"', '{ root = "1/2"'),
        ('{ state = "1/2"', '{ root = "1/2"'),
        ("[[geography.query]]", COLUMNS + "[[geography.query]]"),
    ).spine
    unit, leaf = spine.units["tract"], spine.codes["block"]
    return sorted("".join(code[-1] for code in leaf[unit == u]) for u in range(unit.max() + 1))


def test_towns_and_places_are_one_field(two: State) -> None:
    """Keyed by both, blocks of one town and two places are apart; on tribal land the place decides, not the town."""
    assert groups(two, '["cousub", "place"]') == ["13", "2", "4", "5", "6", "7", "8"]
    assert groups(two, '["field"]') == ["12", "34", "5", "68", "7"]


def test_quarters_are_in_the_key_of_groups(two: State) -> None:
    assert groups(two, '["cousub"]') == ["123", "45", "67", "8"]
    assert groups(two, '["cousub", "kinds"]') == ["13", "2", "4", "5", "67", "8"]


def test_a_tract_subset_holds_several_tribal_areas(two: State) -> None:
    """Blocks 3 and 4 lie in two tribal areas and one branch: the code cuts between them only where towns do."""
    two.file("spine.csv", SPINE.replace("T,d", "T,c"))
    assert "34" in groups(two, '["subset"]', split=True)
    assert "34" not in groups(two, '["finer"]', split=True)


@pytest.mark.skipif(not RUN.exists(), reason="the shared data are not here")
def test_puerto_rico_has_shares_of_its_own() -> None:
    run = tomllib.loads(RUN.read_text(encoding="utf-8"))
    states, island = run["levels"]["shares"], run["puerto_rico"]["levels"]
    own = {level: Fraction(share) for level, share in island.items()}
    assert sum(own.values()) == 1
    ratios = {share / Fraction(states[level]) for level, share in own.items()}
    assert len(ratios) > 1
