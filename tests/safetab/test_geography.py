"""GRF-C.txt: every rule, and the regions that blocks lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.safetab.oracle import regions_of, rows_of
from tests.safetab.world import GRF, World, config, problems, spoilt

from tabulae.interop.safetab.config import PUERTO_RICO, US
from tabulae.interop.safetab.geography import read_geography
from tabulae.interop.safetab.text import Faults

FIRST = "01|001|000001|0001|00100|0001"


def found(world: World, folder: Path) -> list[tuple[int | None, str | None, str]]:
    faults = Faults()
    made = read_geography(world.write(folder)[1] / GRF, faults)
    assert (made is None) == any("stands in an earlier" not in p.message for p in faults.problems)
    return [(p.line, p.column, p.message) for p in faults.counted()]


@pytest.mark.parametrize(
    ("new", "column", "words"),
    [
        ("1|001|000001|0001|00100|0001", "TABBLKST", "this field is not 2 digits"),
        ("01|1|000001|0001|00100|0001", "TABBLKCOU", "not 3 digits"),
        ("01|001|1|0001|00100|0001", "TABTRACTCE", "not 6 digits"),
        ("01|001|000001|1A01|00100|0001", "TABBLK", "not 4 digits"),
        ("01|001|000001|0001|Null|0001", "PLACEFP", "not 5 digits"),
        ("01|001|000001|0001|00100|", "AIANNHCE", "not 4 digits"),
        ("01|001|000001|-001|00100|0001", "TABBLK", "not 4 digits"),
        ("01|001|000001|0001|0010/|0001", "PLACEFP", "not 5 digits"),
        ("01|001|000001|0001|0010:|0001", "PLACEFP", "not 5 digits"),
        ("01|001|000001|0001|00100", None, "this line has 5 fields; the header has 6"),
        ("", None, "this line is empty"),
    ],
)
def test_each_rule_of_a_row(tmp_path: Path, new: str, column: str | None, words: str) -> None:
    ((line, where, message),) = found(spoilt(tmp_path, GRF, FIRST, new), tmp_path)
    assert (line, where) == (2, column)
    assert words in message


def test_a_block_twice(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", GRF)
    ((line, column, message),) = found(World(files={GRF: text + "01|003|000001|0002|99999|0001\n"}), tmp_path)
    assert (line, column) == (18, "TABBLK")
    assert "stands in an earlier line" in message


def test_a_block_twice_is_told_beside_other_mistakes(tmp_path: Path) -> None:
    text = (
        World().text(tmp_path / "sound", GRF) + "01|003|000001|0002|99999|0001\n01|x|000001|0002|99999|0001\n"
    )
    known = found(World(files={GRF: text}), tmp_path)
    assert [(line, column) for line, column, _ in known] == [(19, "TABBLKCOU"), (18, "TABBLK")]


def test_line_numbers_stay_right_below_a_ragged_line(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", GRF).splitlines(keepends=True)
    text[3:3] = ["broken\n"]
    text[8] = text[8].replace("|0", "|x", 1)
    where = {line for line, _, _ in found(World(files={GRF: "".join(text)}), tmp_path)}
    assert where == {4, 9}


def test_more_columns_are_not_read(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", GRF)
    wide = "".join(
        "A|" + line.replace("|", "|x|", 1) + "|,\n"
        if i
        else "NEW|" + line.replace("|", "|NEWER|", 1) + "|LAST\n"
        for i, line in enumerate(text.splitlines())
    )
    assert found(World(files={GRF: wide}), tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("TABBLKST|TABBLKCOU", "TABBLKCOU|TABBLKST", "another order"),
        ("|AIANNHCE", "", "is missing from the header"),
        ("|AIANNHCE", "|AIANNHCE|TABBLK", "stands in the header twice"),
        ("|", ";", "is missing from the header"),
    ],
)
def test_each_rule_of_the_header(tmp_path: Path, old: str, new: str, words: str) -> None:
    line, _, message = found(spoilt(tmp_path, GRF, old, new), tmp_path)[0]
    assert line == 1
    assert words in message


@pytest.mark.parametrize(
    ("changes", "column", "words"),
    [
        (
            {"state_filter_us": ["01"]},
            "state_filter_us",
            'does not name "02", of which GRF-C.txt has blocks (the first in line 10)',
        ),
        (
            {"state_filter_us": ["01", "02", "04"]},
            "state_filter_us",
            'names "04", of which GRF-C.txt has no block',
        ),
    ],
)
def test_states(tmp_path: Path, changes: dict[str, Any], column: str, words: str) -> None:
    world = World(config(**changes))
    ((path, line, where, message),) = problems(world, tmp_path)
    assert (path, where) == ("config.json", column)
    text = (tmp_path / "params" / "config.json").read_text().splitlines()
    assert line == next(i for i, row in enumerate(text, 1) if "state_filter_us" in row)
    assert words in message


def test_a_state_that_there_is_not(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", GRF) + "".join(
        f"60|001|000001|000{i}|99999|9999\n" for i in (2, 1)
    )
    ((path, line, where, message),) = problems(World(files={GRF: text}), tmp_path)
    assert (path, line, where) == (GRF, 18, "TABBLKST")
    assert "60 is not a code of a state" in message


def test_puerto_rico_without_blocks(tmp_path: Path) -> None:
    text = "".join(
        r for r in World().text(tmp_path / "sound", GRF).splitlines(keepends=True) if r[:2] != "72"
    )
    known = problems(World(config(run_pr=True), files={GRF: text}), tmp_path)
    lines = (tmp_path / "params" / "config.json").read_text().splitlines()
    at = next(i for i, line in enumerate(lines, 1) if '"run_pr"' in line)
    assert ("config.json", at, "run_pr") in {p[:3] for p in known}


def test_the_filter_is_not_used_without_the_run(tmp_path: Path) -> None:
    assert problems(World(config(run_us=False, run_pr=True, state_filter_us=["04"])), tmp_path) == []


def test_regions_are_those_of_each_block(tmp_path: Path) -> None:
    _, data = World().write(tmp_path)
    geography = read_geography(data / GRF, Faults())
    assert geography is not None
    rows = sorted(rows_of(data / GRF), key=lambda r: list(r.values())[:4])
    for kind in US + PUERTO_RICO:
        regions = geography.regions(kind)
        of_leaf = [regions.ids[i] if i >= 0 else None for i in regions.of_leaf]
        assert of_leaf == [regions_of(row).get(kind) for row in rows]
        assert list(regions.ids) == sorted({region for region in of_leaf if region})
    assert np.array_equal(geography.block, np.sort(geography.block))
