"""person-records.txt: every rule of the subject page, through the whole check; values stay confidential."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.safetab.world import (
    CODES,
    CONFIG,
    GRF,
    HEADER,
    MEMBERS,
    PERSONS,
    REAL,
    TOY,
    World,
    config,
    needs_shared,
    persons,
    problems,
)

from tabulae.errors import SpecError
from tabulae.interop.safetab import check
from tabulae.interop.safetab.maps import read_maps
from tabulae.interop.safetab.text import Faults

SOUND = "034|1|True|01|001|000001|0001|01|1010|1020|Null|Null|Null|Null|Null|Null|2000"


def person(**changes: str) -> World:
    """One sound record, and one with changes."""
    row = dict(zip(HEADER.split("|"), SOUND.split("|"), strict=True))
    return World(files={PERSONS: "\n".join([HEADER, SOUND, "|".join((row | changes).values()), ""])})


def test_sound(tmp_path: Path) -> None:
    assert problems(person(), tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"QAGE": "116"}, "QAGE"),
        ({"QAGE": "-1"}, "QAGE"),
        ({"QAGE": ""}, "QAGE"),
        ({"QAGE": "3.5"}, "QAGE"),
        ({"QAGE": "old"}, "QAGE"),
        ({"QSEX": "3"}, "QSEX"),
        ({"QSEX": "M"}, "QSEX"),
        ({"QSEX": ""}, "QSEX"),
        ({"QRACE1": "Null", "QRACE2": "Null"}, "QRACE1"),
        ({"QRACE1": "0010"}, "QRACE1"),
        ({"QRACE1": "9999"}, "QRACE1"),
        ({"QRACE2": "9999"}, "QRACE2"),
        ({"QRACE2": "null"}, "QRACE2"),
        ({"QRACE8": ""}, "QRACE8"),
        ({"QRACE8": "10000"}, "QRACE8"),
        ({"QRACE4": "1010"}, "QRACE4"),
        ({"QRACE8": "1010"}, "QRACE8"),
        ({"QSPAN": "Null"}, "QSPAN"),
        ({"QSPAN": "9999"}, "QSPAN"),
        ({"QSPAN": "20"}, "QSPAN"),
    ],
)
def test_each_rule_of_a_field(tmp_path: Path, changes: dict[str, str], column: str) -> None:
    known = problems(person(**changes), tmp_path)
    assert {(path, line) for path, line, _, _ in known} == {(PERSONS, 3)}
    assert column in {where for _, _, where, _ in known}


AGE, CODE = (
    "must be a whole number from 0 to 115, in digits",
    "must be a code of four digits, the first not 0, such as 1010",
)


@pytest.mark.parametrize(
    ("changes", "column", "message"),
    [
        ({"QAGE": "+3"}, "QAGE", AGE),
        ({"QAGE": " 3"}, "QAGE", AGE),
        ({"QAGE": "\u0663"}, "QAGE", AGE),
        ({"QAGE": "1" * 5000}, "QAGE", AGE),
        ({"QSEX": "01"}, "QSEX", "must be one of '1', '2'"),
        ({"QSEX": '"1"'}, "QSEX", "must be one of '1', '2'"),
        ({"QRACE1": "1012"}, "QRACE1", "is not a code that race-and-ethnicity-codes.txt lists"),
        ({"QRACE2": "0010"}, "QRACE2", f"{CODE}, or 'Null'"),
        ({"QRACE4": "1010"}, "QRACE4", "must be 'Null', as the column before it is"),
        ({"TABBLK": "0009"}, "TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK", "GRF-C.txt has no such block"),
        ({"TABBLK": " 001"}, "TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK", "GRF-C.txt has no such block"),
    ],
)
def test_what_a_mistake_says(tmp_path: Path, changes: dict[str, str], column: str, message: str) -> None:
    (name,) = changes
    with pytest.raises(SpecError) as caught:
        check(*person(**changes).write(tmp_path))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.message) == (3, column, message)
    assert changes[name] in str(caught.value.confidential)


@pytest.mark.parametrize("age", ["0", "000000", "115", "00115", "99"])
def test_ages_may_begin_with_zeros(tmp_path: Path, age: str) -> None:
    assert problems(person(QAGE=age), tmp_path) == []


def test_mistakes_stand_in_the_order_of_lines_and_a_thousand_of_a_column(tmp_path: Path) -> None:
    bad = SOUND.replace("034", "x")
    text = "\n".join(
        [HEADER, SOUND.replace("|1|", "|9|", 1), *[bad] * 1234, SOUND.replace("|1|", "|7|", 1), ""]
    )
    known = problems(World(files={PERSONS: text}), tmp_path)
    assert [line for _, line, column, _ in known if column == "QAGE"] == [*range(3, 1003), None]
    assert known[-1][3] == "there are mistakes in 234 more lines"
    assert [line for _, line, column, _ in known if column == "QSEX"] == [2, 1237]
    assert [line for _, line, *_ in known[:-1]] == sorted(line or 0 for _, line, *_ in known[:-1])


def test_a_first_record_in_place_of_the_header_is_not_shown(tmp_path: Path) -> None:
    text = SOUND.replace("034", "SECRET") + f"\n{SOUND}\n"
    with pytest.raises(SpecError) as caught:
        check(*World(files={PERSONS: text}).write(tmp_path))
    assert "SECRET" not in str(caught.value)
    assert "1010" not in str(caught.value)
    assert "SECRET" in str(caught.value.confidential)


@pytest.mark.parametrize(
    "changes", [{"TABBLKST": "09"}, {"TABBLKCOU": "002"}, {"TABTRACTCE": "1"}, {"TABBLK": "0009"}]
)
def test_a_block_that_is_not_listed(tmp_path: Path, changes: dict[str, str]) -> None:
    ((path, line, _, _),) = problems(person(**changes), tmp_path)
    assert (path, line) == (PERSONS, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER + "\n",
        HEADER.replace("QAGE|QSEX", "QSEX|QAGE") + f"\n{SOUND}\n",
        HEADER.replace("|QSPAN", "") + f"\n{SOUND}\n",
        HEADER + f"|NEW\n{SOUND}|1\n",
        f"{HEADER}\n{SOUND}|1\n",
        f"{HEADER}\n{SOUND[:-5]}\n",
        f"{HEADER}\n{SOUND}\r\n{SOUND}\n",
        f"\ufeff{HEADER}\n{SOUND}\n",
        f"{HEADER}\n{SOUND}\n{SOUND[:20]}",
        f"{HEADER}\n\n{SOUND}\n",
        f"{HEADER}\n{SOUND}\n".replace("|", ","),
        f"{HEADER}\n{SOUND}\n".encode().replace(b"True", b"\xff"),
    ],
    ids=[
        *("empty", "header-only", "misordered", "missing-column", "extra-column", "long-line", "short-line"),
        *("mixed-ends", "bom", "truncated", "empty-line", "commas", "not-utf8"),
    ],
)
def test_each_rule_of_the_file(tmp_path: Path, text: str | bytes) -> None:
    known = problems(World(files={PERSONS: text}), tmp_path)
    assert {path for path, *_ in known} == {PERSONS}


def test_no_file(tmp_path: Path) -> None:
    ((path, _, _, message),) = problems(World(files={PERSONS: None}), tmp_path)
    assert path == PERSONS
    assert "there is no such file" in message


def test_unused_columns_hold_anything(tmp_path: Path) -> None:
    assert problems(person(HOUSEHOLDER='"', CENRACE="?"), tmp_path) == []


def test_values_are_confidential(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        check(*person(QAGE="8731", QSPAN="secret").write(tmp_path))
    assert "8731" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "8731" in str(caught.value.confidential)
    assert "secret" in str(caught.value.confidential)


def test_mistakes_of_all_files_at_once(tmp_path: Path) -> None:
    world = person(QSEX="9")
    world.config = config(run_us=1, privacy_defn="none")
    text = World().text(tmp_path / "sound", GRF)
    world.files[GRF] = text
    world.files["race-characteristic-iterations.txt"] = (
        World().text(tmp_path / "sound", "race-characteristic-iterations.txt").replace("|1|True", "|7|True")
    )
    assert {p[0] for p in problems(world, tmp_path)} == {
        *("config.json", "race-characteristic-iterations.txt", PERSONS)
    }


@pytest.mark.parametrize(
    ("name", "spoil", "what"),
    [
        (CODES, lambda text: "", "codes"),
        (CODES, lambda text: text + "x|y\n", "codes"),
        (CODES, lambda text: None, "codes"),
        (GRF, lambda text: "", "blocks"),
        (GRF, lambda text: text.replace("|0001\n", "|x\n", 1), "blocks"),
        (GRF, lambda text: text[:-1], "blocks"),
    ],
)
def test_records_are_checked_but_for_what_is_not_known(tmp_path: Path, name: str, spoil, what: str) -> None:
    """All rules but one: in which the other file, and no third one, is named as the one at fault."""
    world = person(QAGE="200", QSEX="9", QRACE1="9999", QRACE2="x", QRACE4="1010", TABBLK="0009")
    world.files[name] = spoil(World().text(tmp_path / "sound", name))
    known = problems(world, tmp_path)
    assert {path for path, *_ in known} <= {name, PERSONS, *([MEMBERS] if name == CODES else [])}
    own = [(line, column, message) for path, line, column, message in known if path == PERSONS]
    (told,) = [message for line, _, message in own if line is None]
    assert (
        told == f"its {what} could not be looked up, as {name} has mistakes: correct those, and check again"
    )
    missed = "QRACE1" if what == "codes" else "TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK"
    everywhere = {"QAGE", "QSEX", "QRACE1", "QRACE2", "QRACE4", "TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK"}
    assert {column for line, column, _ in own if line == 3} == everywhere - {missed}


def test_a_repeated_block_hides_no_other(tmp_path: Path) -> None:
    world = person(TABBLK="0009")
    text = World().text(tmp_path / "sound", GRF)
    world.files[GRF] = text + text.splitlines()[1] + "\n"
    assert [(path, line) for path, line, *_ in problems(world, tmp_path)] == [(GRF, 18), (PERSONS, 3)]


def test_carriage_returns_alone_are_one_mistake(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", PERSONS).replace("\n", "\r")
    ((path, line, _, message),) = problems(World(files={PERSONS: text}), tmp_path)
    assert (path, line) == (PERSONS, 1)
    assert "lines end with CR alone" in message


def test_folders_in_place_of_files_are_all_told(tmp_path: Path) -> None:
    names = (CONFIG, CODES, GRF, PERSONS)
    world = World(files=dict.fromkeys(names))
    params, data = world.write(tmp_path)
    for name in names:
        ((data if name in (GRF, PERSONS) else params) / name).mkdir()
    known = problems(world, tmp_path)
    assert {path: message for path, _, _, message in known if "is not a file in" in message}.keys() == set(
        names
    )


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_files_that_cannot_be_read_are_all_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    plain = Path.open

    def closed(path: Path, *args: Any, **options: Any) -> Any:
        if path.name in (CONFIG, CODES, GRF, PERSONS):
            raise error
        return plain(path, *args, **options)

    world = World()
    folders = world.write(tmp_path)
    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(SpecError) as caught:
        check(*folders)
    told = {p.path for p in caught.value.problems if str(error.strerror) in p.message}
    assert told == {CONFIG, CODES, GRF, PERSONS}


def test_a_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    folders = World().write(tmp_path)
    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(SpecError) as caught:
        check(*folders)
    assert len(caught.value.problems) == 7


@needs_shared
@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_the_toy(definition: str) -> None:
    assert check(TOY / f"input_dir_{definition}", TOY).warnings == ()


@needs_shared
def test_the_real_maps(tmp_path: Path) -> None:
    faults = Faults()
    codes = read_maps(REAL, faults).codes
    assert codes is not None
    states = [f"{i:02d}" for i in range(1, 57) if i not in (3, 7, 14, 43, 52)]
    blocks = "\n".join(f"{st}|001|000001|0001|00001|0001" for st in (*states, "72"))
    row = SOUND.replace("1010|1020", f"{codes[0]}|{codes[1]}").replace("2000", codes[-1])
    (tmp_path / GRF).write_text(f"TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|PLACEFP|AIANNHCE\n{blocks}\n")
    (tmp_path / PERSONS).write_text(f"{HEADER}\n{row}\n")
    inputs = check(REAL, tmp_path)
    assert [warning.column for warning in inputs.warnings] == ["reader"]
    assert not faults.problems
    assert {level.proven.value for level in inputs.plan.adaptive.levels} == {9}
    assert set(inputs.production) == {9}
    dropped = {
        (level.regions.name, level.group_level): inputs.plan.left_out(level)
        for level in inputs.plan.adaptive.levels
    }
    assert dropped["COUNTY", "2"] == dropped["PR-PLACE", "2"] == (21, 20)
    assert dropped["COUNTY", "1"] == dropped["TRACT", "1"] == (93, 88)
    assert dropped["USA", "1"] == dropped["STATE", "2"] == dropped["PR-STATE", "1"] is None


def test_invented_people_are_sound(tmp_path: Path) -> None:
    assert problems(World(files={PERSONS: persons(50, seed=1)}), tmp_path) == []
