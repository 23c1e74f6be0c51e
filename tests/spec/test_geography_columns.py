"""``[geography.columns]``: levels and entities made of other columns, and of what bounds say can occur."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spec.states import SPINE, State
from tests.spec.test_geography_published import _again

COLUMNS = 'outside = { place = "99" }\n'
SHARES = 'shares = { state = "1/4", county = "1/4", tract = "1/4", block = "1/4" }\n'
SUBSET = (
    ('"tract", "block"]', '"prim", "tract", "block"]'),
    ('county = "1/4", tract = "1/4"', 'county = "1/8", prim = "1/8", tract = "1/4"'),
    ('{ state = "1/2", county = "1/2"', '{ state = "1/2", county = "1/2", prim = "1/2"'),
    ('{ state = "1/2", county = "1/2", tract', '{ state = "1/2", county = "1/2", prim = "1/2", tract'),
)


def made(*lines: str, before: str = "[[geography.query]]") -> tuple[str, str]:
    return before, "[geography.columns]\n" + "\n".join(lines) + "\n" + before


def entities(state: State, *passages: tuple[str, str]) -> dict[str, list[str | None]]:
    return {name: codes.tolist() for name, codes in state.geography(*passages).entities.items()}


KIND = 'kind = { where = "tribe IS NULL AND place <> \'10\'", then = "place", otherwise = "tribe" }'


def test_one_column_where_a_condition_holds_and_another_elsewhere(state: State) -> None:
    """As in SQL, a condition that an empty cell leaves open does not hold."""
    found = entities(state, ('entities = ["place"]', 'entities = ["place", "kind"]'), made(KIND))
    # blocks 4 and 8 have no place, and cannot have anybody in them
    assert found["kind"] == [None, "T", "T", None, None, "20", "T"]
    alone = KIND.replace(', otherwise = "tribe"', "")
    found = entities(state, ('entities = ["place"]', 'entities = ["place", "kind"]'), made(alone))
    assert found["kind"] == [None, None, None, None, None, "20", None]


def test_joined_columns_are_levels_and_are_made_of_joined_ones(state: State, tmp_path: Path) -> None:
    state.file("spine.csv", SPINE.replace("01003A,0005,10", "01003A,0005,20"))
    lines = ('prim = { join = ["county", "tract"] }', 'again = { join = ["prim", "place"] }')
    changed = (*SUBSET, ('entities = ["place"]', 'entities = ["place", "again"]'), made(*lines))
    spec = state.spec(*changed)
    geography = spec.geography
    assert geography is not None
    assert geography.levels == ("state", "county", "prim", "tract", "block")
    assert geography.spine.codes["prim"].tolist() == ["01001+01001A", "01001+01001B", "01003+01003A"]
    assert geography.entities["again"].tolist()[2:4] == ["01001+01001B+99", "01001+01001B+"]
    again = _again(spec, tmp_path / "again")
    assert again.digest() == spec.digest()
    assert again.geography.spine.codes["prim"].tolist() == geography.spine.codes["prim"].tolist()
    assert spec.files["geography/spine.csv"].decode().splitlines()[0] == "state,county,tract,block,place"


def groups(state: State, *passages: tuple[str, str]) -> list[list[str]]:
    """The leaves of each unit of the level above the leaves."""
    spine = state.geography(*passages).spine
    found: dict[int, list[str]] = {}
    for unit, leaf in zip(spine.units["tract"].tolist(), spine.codes["block"].tolist(), strict=True):
        found.setdefault(unit, []).append(leaf)
    return sorted(found.values())


def test_leaves_with_the_same_quarters_are_together(state: State) -> None:
    """Blocks 1 and 3 have a home and another kind; with homes left out, block 8's jail alone is like block 3's."""
    facilities = (state.base / "facilities.csv").read_text()
    state.file("facilities.csv", facilities + "0008,jail,,\n0004,jail,0,\n0006,jail,0,\n")
    optimise = (COLUMNS, COLUMNS + 'optimise = { rule = "production", entities = ["kinds"] }\n')
    lines = made('kinds = { occurs = "hhgq", but = ["household"] }')
    assert groups(state, optimise, lines) == [
        ["0001"],
        ["0002"],
        ["0003", "0004"],
        ["0005", "0007"],
        ["0006", "0008"],
    ]
    whole = made('kinds = { occurs = "hhgq" }')
    apart = [["0005", "0007"], ["0006"], ["0008"]]
    assert groups(state, optimise, whole) == [["0001"], ["0002"], ["0003", "0004"], *apart]
    coarse = made('kinds = { occurs = "group" }')
    assert groups(state, optimise, coarse) == [["0001", "0003", "0004"], ["0002"], *apart]


MISTAKES = {
    "no form": ("x = { }", "geography.columns.x", "three ways"),
    "two forms": ('x = { join = ["place"], occurs = "hhgq" }', "geography.columns.x", "three ways"),
    "then without where": ('x = { then = "place" }', "geography.columns.x", "three ways"),
    "where without then": ("x = { where = \"place = '1'\" }", "geography.columns.x", "three ways"),
    "but without occurs": ('x = { join = ["place"], but = ["jail"] }', "geography.columns.x", "three ways"),
    "nothing joined": ("x = { join = [] }", "geography.columns.x.join", "name at least one"),
    "a number joined": ("x = { join = [1] }", "geography.columns.x.join[0]", "must be a string"),
    "an unknown key": ('x = { joins = ["place"] }', "geography.columns.x.joins", "unknown key"),
    "an unknown column": ('x = { join = ["plaec"] }', "geography.columns.x", 'has no column "plaec"'),
    "itself": ('x = { join = ["x"] }', "geography.columns.x", "not made of columns above it"),
    "a later one": ('x = { join = ["y"] }\ny = { join = ["place"] }', "geography.columns.x", "write it before"),
    "a condition that does not parse": ('x = { where = "place =", then = "place" }', "geography.columns.x.where",
        "does not parse"),
    "an unknown attribute": ('x = { occurs = "hhgp" }', "geography.columns.x.occurs", 'did you mean "hhgq"?'),
    "an attribute without bounds": ('x = { occurs = "race" }', "geography.columns.x.occurs", "no [[bound]] is about"),
    "an unknown category": ('x = { occurs = "hhgq", but = ["jial"] }', "geography.columns.x.but[0]",
        'did you mean "jail"?'),
    "codes that hold the sign between": ('x = { join = ["odd", "more"] }', "geography.columns.x", "different codes"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(state: State, mistake: str) -> None:
    lines, path, told = MISTAKES[mistake]
    more = ["odd,more", "a+b,c", "a,b+c", *6 * ["b,c"]]
    rows = zip(SPINE.splitlines(), more, strict=True)
    state.file("spine.csv", "".join(f"{row},{cells}\n" for row, cells in rows))
    problems = state.problems(made(lines))
    assert [problem.path for problem in problems] == [path]
    assert told in problems[0].message


@pytest.mark.parametrize(
    ("passage", "path"),
    [
        (('"tract", "block"]', '"kinds", "block"]'), "geography.levels[2]"),
        (('entities = ["place"]', 'entities = ["place", "kinds"]'), "geography.entities[1]"),
        ((COLUMNS, COLUMNS + "split = \"kinds = '11'\"\n"), "geography.split"),
    ],
)
def test_what_bounds_leave_possible_is_no_level_and_no_entity(
    state: State, passage: tuple[str, str], path: str
) -> None:
    problems = state.problems(made('kinds = { occurs = "hhgq" }'), passage)
    assert path in [problem.path for problem in problems]
    told = next(problem.message for problem in problems if problem.path == path)
    assert "entities of optimise alone" in told


def test_an_unknown_rule_is_refused(state: State) -> None:
    [problem] = state.problems((COLUMNS, COLUMNS + 'optimise = { rule = "print" }\n'))
    assert problem.path == "geography.optimise.rule"
