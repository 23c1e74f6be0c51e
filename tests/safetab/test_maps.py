"""The four maps: every rule of their rows, and of how they agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.safetab.world import CODES, ETHNICITY, MEMBERS, RACE, REAL, TOY, World, needs_shared, spoilt

from tabulae.interop.safetab.maps import read_maps
from tabulae.interop.safetab.text import Faults


def found(world: World, folder: Path) -> list[tuple[str, int | None, str | None, str]]:
    params, _ = world.write(folder)
    faults = Faults()
    read_maps(params, faults)
    return [(p.path, p.line, p.column, p.message) for p in faults.counted()]


def test_sound(tmp_path: Path) -> None:
    assert found(World(), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "column", "words"),
    [
        (CODES, "1000|", "0999|", 2, "RACE_ETH_CODE", "is not a code: four digits, the first of them not 0"),
        (CODES, "1000|", "|", 2, "RACE_ETH_CODE", "'' is not a code"),
        (CODES, "1000|", "１０００|", 2, "RACE_ETH_CODE", "is not a code"),
        (CODES, "1010|", "1000|", 3, "RACE_ETH_CODE", "1000 stands in line 2, too"),
        (RACE, "2001|Alb", "201|Alb", 5, "ITERATION_CODE", "four digits"),
        (RACE, "2001|Alb", "1001|Alb", 5, "ITERATION_CODE", "'1001' stands in line 3, too"),
        (RACE, "alone|1|", "alone|3|", 3, "LEVEL", "'3' is not a level: 0, 1 or 2"),
        (RACE, "alone|1|True", "alone|1|Yes", 3, "ALONE", "must be True or False, not 'Yes'"),
        (RACE, "alone|1|True", "alone|1|Null", 3, "ALONE", "must be True or False, not 'Null'"),
        (RACE, "|True|Null|Null", "|True|False|Null", 2, "DETAILED_ONLY", "must be Null, not 'False'"),
        (RACE, "|True|Null|Null", "|True|Null|True", 2, "COARSE_ONLY", "must be Null, not 'True'"),
        (RACE, "|2|True|True|False", "|2|True|True|True", 6, "COARSE_ONLY", "DETAILED_ONLY is True, too"),
        (RACE, "|1|True|False|", "|1|True|Null|", 3, "DETAILED_ONLY", "not 'Null': Null is for level 0"),
        (RACE, "|1|True|False|False", "|1|True|False|", 3, "COARSE_ONLY", "must be True or False, not ''"),
        (ETHNICITY, "3100|", "1001|", 3, "ITERATION_CODE", "1001 is an iteration of race, too"),
        (ETHNICITY, "|2|False|False", "|2|True|True", 5, "COARSE_ONLY", "DETAILED_ONLY is True, too"),
        (ETHNICITY, "|1|False|", "|1|false|", 3, "DETAILED_ONLY", "must be True or False, not 'false'"),
        (MEMBERS, "2001|1010", "2999|1010", 4, "ITERATION_CODE", "'2999' is not listed in race-"),
        (MEMBERS, "2001|1010", "2001|1999", 4, "RACE_ETH_CODE", f"'1999' is not listed in {CODES}"),
        (MEMBERS, "2001|1010", "1001|1010", 4, "RACE_ETH_CODE", "the pair stands in line 3, too"),
        (MEMBERS, "2001|1010", "", 4, None, "this line is empty"),
        (MEMBERS, "2001|1010", "2001", 4, None, "this line has 1 fields; the header has 2"),
        (RACE, "2001|Alb", "2001|a|b|Alb", 5, None, "this line has 8 fields; the header has 6"),
    ],
)
def test_each_rule(
    tmp_path: Path, name: str, old: str, new: str, line: int, column: str | None, words: str
) -> None:
    known = found(spoilt(tmp_path, name, old, new), tmp_path)
    own = [problem for problem in known if problem[0] == name]
    assert [(p[1], p[2]) for p in own] == [(line, column)]
    assert words in own[0][3]


@pytest.mark.parametrize("name", [CODES, RACE, ETHNICITY, MEMBERS])
@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (None, None, "there is no such file"),
        (lambda t: b"", None, "the file is empty"),
        (lambda t: t.split(b"\n")[0] + b"\n", None, "there is no row below the header"),
        (lambda t: b"\xef\xbb\xbf" + t, 1, "byte-order mark"),
        (lambda t: t.replace(b"\n", b"\r\n", 1), 1, "line ends are mixed"),
        (lambda t: t.replace(b"\n", b"\r\n").replace(b"\r\n", b"\n", 1), 1, "line ends are mixed"),
        (lambda t: t.replace(b"\n", b"\r"), 1, "lines end with CR alone"),
        (lambda t: t[:-1], None, "the last line has no line end"),
        (lambda t: t.replace(b"|", b","), 1, "separated by '|': this one has commas"),
        (lambda t: t.replace(b"|", b"\t"), 1, "separated by '|': this one has tabs"),
        (lambda t: t.replace(b"\n", b"\n\xff", 1), 2, "not UTF-8"),
        (lambda t: t.replace(b"\n", b"\n\0", 1), 2, "zero byte"),
        (lambda t: t.replace(b"_CODE|", b"_CODES|", 1), 1, "is missing from the header"),
        (lambda t: t.replace(b"|", b"|NEW|", 1), 1, "there is no such column"),
        (lambda t: _swapped(t), 1, "the columns are in another order"),
    ],
    ids=lambda v: None,
)
def test_each_rule_of_delimited_text(tmp_path: Path, name: str, change, line: int | None, words: str) -> None:
    text = World().text(tmp_path / "sound", name).encode()
    spoiled = None if change is None else change(text)
    known = [p for p in found(World(files={name: spoiled}), tmp_path) if p[0] == name]
    assert known
    assert words in known[0][3]
    if line is not None:
        assert known[0][1] == line


def _swapped(text: bytes) -> bytes:
    header, rest = text.split(b"\n", 1)
    names = header.split(b"|")
    return b"|".join([names[1], names[0], *names[2:]]) + b"\n" + rest


def test_crlf_is_fine_and_so_is_an_empty_line_at_the_end(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", RACE).encode()
    assert found(World(files={RACE: text.replace(b"\n", b"\r\n") + b"\r\n"}), tmp_path) == []


def test_quotes_are_letters(tmp_path: Path) -> None:
    assert found(spoilt(tmp_path, CODES, "|code 1000", '|the "white'), tmp_path) == []


def test_all_files_in_one_pass(tmp_path: Path) -> None:
    world = World()
    for name, old, new in (
        (CODES, "1000|", "x|"),
        (RACE, "|1|", "|9|"),
        (ETHNICITY, "|2|", "|8|"),
        (MEMBERS, "|1000", ""),
    ):
        world.files[name] = spoilt(tmp_path, name, old, new).files[name]
    assert [p[0] for p in found(world, tmp_path)] == [CODES, RACE, ETHNICITY, MEMBERS]


@pytest.mark.parametrize(
    ("row", "column"),
    [("1000", None), ("x{}|y", "RACE_ETH_CODE"), ("1000|y", "RACE_ETH_CODE"), ("1{:03}|y|z", None)],
)
def test_many_of_a_kind_are_counted(tmp_path: Path, row: str, column: str | None) -> None:
    text = "RACE_ETH_CODE|RACE_ETH_NAME\n1000|y\n" + "".join(f"{row.format(i)}\n" for i in range(1234))
    known = [p for p in found(World(files={CODES: text}), tmp_path) if p[0] == CODES]
    assert [p[1] for p in known] == [*range(3, 1003), None]
    assert known[-1][2:] == (column, "there are mistakes in 234 more lines")


def test_many_iterations_with_mistakes_are_counted(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", RACE) + "".join(
        f"{i}|x|2|Yes|False|False\n" for i in range(5000, 6200)
    )
    known = [p for p in found(World(files={RACE: text}), tmp_path) if p[0] == RACE]
    assert len(known) == 1001
    assert known[-1][1:] == (None, "ALONE", "there are mistakes in 200 more lines")


@pytest.mark.parametrize("name", [CODES, RACE, ETHNICITY, MEMBERS])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace(b"\n", b"\r\n", 1), "line ends are mixed"),
        (lambda t: t[:-1], "the last line has no line end"),
        (lambda t: b"\xef\xbb\xbf" + t, "byte-order mark"),
    ],
    ids=["mixed", "cut", "bom"],
)
def test_mistakes_of_bytes_are_told_beside_those_of_rows(
    tmp_path: Path, name: str, change, words: str
) -> None:
    text = World().text(tmp_path / "sound", name).encode() + b"x\n"
    known = [p for p in found(World(files={name: change(text)}), tmp_path) if p[0] == name]
    assert words in known[0][3]
    assert known[1][1] == text.count(b"\n")
    assert "this line has 1 fields" in known[1][3]


@needs_shared
@pytest.mark.parametrize(
    "folder", [TOY / "input_dir_zcdp", TOY / "input_dir_puredp", REAL], ids=lambda p: p.name
)
def test_the_bureaus_own(folder: Path) -> None:
    faults = Faults()
    maps = read_maps(folder, faults)
    assert not faults.problems
    assert maps.codes is not None
    assert (len(maps.codes), len(maps.race), len(maps.ethnicity)) in {(27, 32, 8), (1755, 3016, 38)}
