"""config.json: every rule, with the line and the key of each mistake; numbers exactly as they are written."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.safetab.world import REAL, TOY, config, needs_shared

from tabulae.interop.safetab.config import Config, read_draft
from tabulae.interop.safetab.programs import PERSONS
from tabulae.interop.safetab.text import Faults

BUDGET = "privacy_budget_p_level_2_county"
SHARE = "privacy_budget_p_stage_1_fraction"
COUNTY = "(COUNTY, 2)"


def read_config(path: Path, faults: Faults) -> Config | None:
    draft = read_draft(path, PERSONS, faults)
    return None if draft is None else draft.config


def read(folder: Path, text: str | bytes) -> tuple[Config | None, Faults]:
    path, faults = folder / "config.json", Faults()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path, faults), faults


def steps(*values: Any) -> dict[str, Any]:
    return {"thresholds_p": {**config()["thresholds_p"], COUNTY: list(values)}}


def test_sound(tmp_path: Path) -> None:
    made, faults = read(tmp_path, json.dumps(config()))
    assert made is not None
    assert not faults.problems
    assert not faults.warnings
    assert made.stage_one == Fraction(1, 10)
    assert made.thresholds["", "COUNTY", "2"] == (4, 9, 20)
    assert made.region_types == ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
    assert made.states == ("01", "02")


def test_numbers_are_exact(tmp_path: Path) -> None:
    text = json.dumps(config()).replace(f'"{BUDGET}": 1.125', f'"{BUDGET}": 0.1000000000000000000000001')
    made, faults = read(tmp_path, text)
    assert not faults.problems
    assert made is not None
    assert made.budgets["", "COUNTY", "2"] == Fraction("0.1000000000000000000000001")
    made, _ = read(tmp_path, json.dumps(config()).replace(f'"{BUDGET}": 1.125', f'"{BUDGET}": 159e-3'))
    assert made is not None
    assert made.budgets["", "COUNTY", "2"] == Fraction(159, 1000)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({BUDGET: -1}, BUDGET, "must be a number from 0, which leaves the level out, to 10^9, not -1"),
        ({BUDGET: float("nan")}, BUDGET, "must be a finite number, not NaN"),
        ({BUDGET: float("inf")}, BUDGET, "must be a finite number, not Infinity"),
        ({BUDGET: float("-inf")}, BUDGET, "must be a finite number, not -Infinity"),
        ({BUDGET: 10**12}, BUDGET, "to 10^9, not 1000000000000"),
        ({BUDGET: 10**4000}, BUDGET, "must be a number of fewer digits, not 1000"),
        ({BUDGET: "0.5"}, BUDGET, 'to 10^9, not "0.5"'),
        ({BUDGET: True}, BUDGET, "to 10^9, not true"),
        ({BUDGET: [1]}, BUDGET, "to 10^9, not [1]"),
        ({SHARE: 0}, SHARE, "strictly between 0 and 1"),
        ({SHARE: 1}, SHARE, "strictly between 0 and 1"),
        ({SHARE: -0.1}, SHARE, "strictly between 0 and 1"),
        ({SHARE: "1/10"}, SHARE, "must be a number"),
        ({SHARE: float("nan")}, SHARE, "finite"),
        ({"zero_suppression_chance": 1}, "zero_suppression_chance", "0 or more and below 1"),
        ({"zero_suppression_chance": -0.5}, "zero_suppression_chance", "0 or more and below 1"),
        ({"zero_suppression_chance": "half"}, "zero_suppression_chance", "must be a number"),
        ({"max_race_codes": 0}, "max_race_codes", "from 1 to 8"),
        ({"max_race_codes": 9}, "max_race_codes", "from 1 to 8"),
        ({"max_race_codes": 2.5}, "max_race_codes", "from 1 to 8, not 2.5"),
        ({"max_race_codes": True}, "max_race_codes", "from 1 to 8"),
        ({"max_race_codes": "3"}, "max_race_codes", "from 1 to 8"),
        ({"run_us": "Yes"}, "run_us", 'must be true or false, not "Yes"'),
        ({"run_pr": 1}, "run_pr", "must be true or false, not 1"),
        ({"allow_negative_counts": "true"}, "allow_negative_counts", "must be true or false"),
        ({"run_us": False, "run_pr": False}, "run_us", "no run is chosen"),
        ({"reader": "parquet"}, "reader", '"csv" or "cef"'),
        ({"privacy_defn": "approx"}, "privacy_defn", '"zcdp" or "puredp"'),
        ({"privacy_defn": 1}, "privacy_defn", '"zcdp" or "puredp"'),
        ({"state_filter_us": "01"}, "state_filter_us", "must be a list"),
        ({"state_filter_us": [1]}, "state_filter_us", "in quotes"),
        ({"state_filter_us": []}, "state_filter_us", "is empty"),
        ({"state_filter_us": ["01", "02", "01"]}, "state_filter_us", 'names "01" twice'),
        ({"state_filter_us": ["01", "03"]}, "state_filter_us", '"03" is not a code of a state'),
        ({"state_filter_us": ["01", "72"]}, "state_filter_us", "chosen by run_pr"),
        ({"thresholds_p": [1, 2, 3]}, "thresholds_p", "must be an object"),
        (steps(1, 2), COUNTY, "must be a list of 3 thresholds, one for each table of sex by age, not [1, 2]"),
        (steps(1, 2, 3, 4), COUNTY, "not [1, 2, 3, 4]"),
        (steps(1, 3, 2), COUNTY, "must be thresholds that do not fall, not [1, 3, 2]"),
        (steps(1, 2, "3"), COUNTY, "a list of 3 whole numbers"),
        (steps(1, 2, 3.5), COUNTY, "a list of 3 whole numbers"),
        (steps(1, True, 3), COUNTY, "a list of 3 whole numbers"),
        (
            {"thresholds_p": {**config()["thresholds_p"], "(NATION, 1)": [1, 2, 3]}},
            "(NATION, 1)",
            "no such level",
        ),
        ({"zero_supression_chance": 0.5}, "zero_supression_chance", "did you mean 'zero_suppression_chance'"),
        ({"colour": 1}, "colour", "there is no such key: remove it"),
    ],
)
def test_each_rule(tmp_path: Path, changes: dict[str, Any], key: str, words: str) -> None:
    text = json.dumps({**config(), **changes}, indent=1)
    _, faults = read(tmp_path, text)
    (problem,) = faults.problems
    assert words in problem.message
    assert (problem.path, problem.column) == ("config.json", key)
    assert problem.line == next(i for i, line in enumerate(text.splitlines(), 1) if f'"{key}":' in line)


WRONG: dict[str, Any] = {
    "null": None, "true": True, "5": 5, "-7.5": -7.5, '"x"': "x", '"1"': "1", '""': "", "[]": [], "[null]": [None],
    "an object": {}
}  # fmt: skip
RIGHT = {
    *((key, "true") for key in ("allow_negative_counts", "run_us", "run_pr")),
    *((key, "5") for key in config() if "level" in key or key == "max_race_codes"),
}
PLACES = [(key, None) for key in config()] + [("thresholds_p", name) for name in config()["thresholds_p"]]


@pytest.mark.parametrize("shown", WRONG)
@pytest.mark.parametrize(("key", "name"), PLACES)
def test_each_key_with_each_wrong_type(tmp_path: Path, key: str, name: str | None, shown: str) -> None:
    """One mistake, of this key in its line, and nothing that could be tabulated."""
    if (key, shown) in RIGHT:
        pytest.skip("a right value")
    document = config()
    document.update({key: WRONG[shown]} if name is None else {key: {**document[key], name: WRONG[shown]}})
    text = json.dumps(document, indent=1)
    made, faults = read(tmp_path, text)
    assert made is None
    where = name or key
    line = next(i for i, line in enumerate(text.splitlines(), 1) if f'"{where}":' in line)
    if (where, shown) in {("thresholds_p", "an object"), ("state_filter_us", "[]")}:
        assert {p.message.split(":")[0] for p in faults.problems} <= {"missing", "is empty"}
        assert faults.problems
        return
    (problem,) = faults.problems
    assert (problem.line, problem.column) == (line, where)
    assert problem.message.startswith("must be ")
    assert problem.message.endswith(f", not {shown}")


def test_nulls_are_never_taken_for_values(tmp_path: Path) -> None:
    made, faults = read(tmp_path, json.dumps(dict.fromkeys(config())))
    assert made is None
    assert {p.column for p in faults.problems} == set(config())
    assert all(p.message.endswith(", not null") for p in faults.problems)


def test_a_key_that_is_written_twice_is_not_taken(tmp_path: Path) -> None:
    path, faults = tmp_path / "config.json", Faults()
    path.write_text(json.dumps(config()).replace('"run_pr": false', '"run_pr": false, "run_pr": true'))
    draft = read_draft(path, PERSONS, faults)
    assert draft is not None
    assert (draft.config, draft.run_us, draft.run_pr) == (None, True, None)


def test_the_line_of_a_threshold_is_not_that_of_another_key(tmp_path: Path) -> None:
    before = {"thresholds_h_t3": {COUNTY: [1]}}
    text = json.dumps({**before, **config(), **steps(3, 2, 1)}, indent=1)
    _, faults = read(tmp_path, text)
    lines = [i for i, line in enumerate(text.splitlines(), 1) if f'"{COUNTY}":' in line]
    assert [p.line for p in faults.problems] == lines[1:]


@pytest.mark.parametrize("key", sorted(set(config()) - {"zero_suppression_chance"}))
def test_a_missing_key(tmp_path: Path, key: str) -> None:
    _, faults = read(tmp_path, json.dumps({k: v for k, v in config().items() if k != key}))
    assert [(p.column, p.message.split(":")[0]) for p in faults.problems] == [(key, "missing")]


def test_the_chance_may_be_left_out(tmp_path: Path) -> None:
    made, faults = read(
        tmp_path, json.dumps({k: v for k, v in config().items() if k != "zero_suppression_chance"})
    )
    assert made is not None
    assert (made.suppression, faults.problems) == (0, [])


def test_missing_thresholds_of_the_chosen_run_only(tmp_path: Path) -> None:
    us = {k: v for k, v in config()["thresholds_p"].items() if k != COUNTY and not k.startswith("(PR")}
    _, faults = read(tmp_path, json.dumps(config(thresholds_p=us)))
    assert [(p.column, p.message) for p in faults.problems] == [(COUNTY, "missing: give 3 thresholds")]


def test_every_budget_zero(tmp_path: Path) -> None:
    nothing = {key: 0 for key in config() if "level" in key and "pr_" not in key}
    _, faults = read(tmp_path, json.dumps(config(**nothing)))
    assert "every level of the chosen runs has budget 0" in faults.problems[0].message


def test_a_repeated_key(tmp_path: Path) -> None:
    text = json.dumps(config()).replace('"run_pr": false', '"run_pr": false, "run_pr": true')
    _, faults = read(tmp_path, text)
    assert [(p.column, p.message) for p in faults.problems] == [
        ("run_pr", "this key is written twice: keep one")
    ]


def test_keys_of_the_household_program_are_left_alone(tmp_path: Path) -> None:
    _, faults = read(tmp_path, json.dumps(config(privacy_budget_h_t3_level_1_usa=1, thresholds_h_t3={})))
    assert not faults.problems


def test_the_bureaus_own_reader_is_a_warning(tmp_path: Path) -> None:
    made, faults = read(tmp_path, json.dumps(config(reader="cef"), indent=1))
    assert made is not None
    assert not faults.problems
    assert [(w.column, "read as csv" in w.message) for w in faults.warnings] == [("reader", True)]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"", None, "the file is empty"),
        (b"  \n", None, "the file is empty"),
        (b"[1]", 1, "one JSON object"),
        (b'{"a": 1,\n "b" 2}', 2, "this is not JSON"),
        (b"\xef\xbb\xbf[]", 1, "one JSON object"),
        (b'{"a":\n "\xff"}', 2, "not UTF-8"),
        (b"[" * 100_000, None, "nested too deeply"),
    ],
)
def test_no_config_at_all(tmp_path: Path, text: bytes, line: int | None, words: str) -> None:
    made, faults = read(tmp_path, text)
    assert made is None
    problem = faults.problems[-1]
    assert problem.line == line
    assert words in problem.message


def test_a_byte_order_mark_is_told_with_all_else(tmp_path: Path) -> None:
    text = json.dumps(config(max_race_codes=0)).encode()
    made, faults = read(tmp_path, b"\xef\xbb\xbf" + text)
    assert made is None
    assert [p.column for p in faults.problems] == [None, "max_race_codes"]
    assert "byte-order mark" in faults.problems[0].message


def test_no_file(tmp_path: Path) -> None:
    faults = Faults()
    assert read_config(tmp_path / "config.json", faults) is None
    assert "there is no such file" in faults.problems[0].message


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    _, faults = read(tmp_path, json.dumps(config(run_us=3, **{BUDGET: -1, SHARE: 7}, **steps(3, 2, 1))))
    assert {p.column for p in faults.problems} == {"run_us", BUDGET, SHARE, COUNTY}


@needs_shared
@pytest.mark.parametrize(
    "folder", [TOY / "input_dir_zcdp", TOY / "input_dir_puredp", REAL], ids=lambda p: p.name
)
def test_the_bureaus_own(folder: Path) -> None:
    faults = Faults()
    made = read_config(folder / "config.json", faults)
    assert made is not None
    assert not faults.problems
    assert made.budgets["", "USA", "2"] == Fraction(
        {"zcdp": "0.534", "puredp": "5.4"}.get(folder.name[10:], "2.134")
    )
