"""Exact counts that leave nothing to be released under a guarantee, and those that leave something."""

from __future__ import annotations

from tests.spec.states import FACILITIES, TEXT, State

from tabulae.errors import SpecError
from tabulae.spec import Spec


def _exact(
    state: State, *names: str, level: str = "block", more: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    """Mistakes of a spec, by gls, where these margins are exact; no bound but what ``more`` says."""
    invariants = "".join(
        f'[[invariant]]\nattributes = [{n}]\nlevel = "{level}"\nreason = "r"\n' for n in names
    )
    old = TEXT[TEXT.index("[[invariant]]") : TEXT.index("[[table]]")]
    text = state.changed((old, f'{invariants}[method]\nestimate = "gls"\n'), *more)
    try:
        Spec.from_text(text, state.base)
    except SpecError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


NOTHING_LEFT = "makes every count of every block exact"


def test_exact_counts_that_leave_nothing_open(state: State) -> None:
    """All cells, all that can occur, all by rows together: and no more than that."""
    [told] = _exact(state, '"hhgq", "age", "race"')
    assert told.startswith(f"invariant[0]: {NOTHING_LEFT}: nothing is left")
    assert _exact(state, '"hhgq", "age"', '"age", "race"') == []
    state.file(
        "facilities.csv", "block,hhgq,at_most\n" + "".join(f"000{i},household,\n" for i in range(1, 8))
    )
    [told] = _exact(state, '"age", "race"')
    assert told.startswith(f"invariant[0]: {NOTHING_LEFT}")
    assert _exact(state, '"age", "race"', level="tract") == []
    assert _exact(state, '"age"', '"race"') == []
    zero = ("hhgq = 'nursing' AND age < 2", "hhgq <> 'household' AND age > 0")
    bound = TEXT[TEXT.index("[[bound]]") : TEXT.index("[[structural_zero]]")]
    [told] = _exact(state, '"hhgq", "race"', '"age", "race"', more=((bound, ""), zero))
    assert told.startswith(f"invariant[1]: {NOTHING_LEFT} with the others")
    assert _exact(state, '"hhgq", "race"', '"age", "race"', more=((bound, ""),)) == []


def test_exact_counts_of_a_level_whose_units_are_leaves(state: State) -> None:
    one_each = "".join(f"01,01001,T{i},000{i},,\n" for i in range(1, 9))
    state.file("spine.csv", f"state,county,tract,block,place,tribe\n{one_each}")
    found = _exact(
        state, '"hhgq", "age", "race"', level="tract", more=(("entities =", 'bypass = "off"\nentities ='),)
    )
    assert [told for told in found if NOTHING_LEFT in told]


def test_exact_counts_of_one_area_that_is_an_attribute(state: State) -> None:
    """A column tells the area from the leaves outside it, so that its name is taken; one of all leaves needs none."""
    more = (
        ('["place"]', '["place", "tribe"]'),
        ("race = {", "tribe = {"),
        ('"age", "race"]', '"age", "tribe"]'),
        ('["race", "adult"]', '["adult"]'),
    )

    def told(tribes: str) -> list[str]:
        rows = "".join(f"01,01001,T{i},000{i},,{tribe.strip()}\n" for i, tribe in enumerate(tribes, 1))
        state.file("spine.csv", f"state,county,tract,block,place,tribe\n{rows}")
        return [each for each in _exact(state, '"age"', level="tribe", more=more) if "attribute, too" in each]

    assert told("XXXX    ") == [
        'invariant[0].level: "tribe" is the name of an attribute, too: rename the level or the attribute'
    ]
    assert told("XXXXXXXX") == []


def test_exact_areas_are_those_of_the_leaves_that_are_left(state: State) -> None:
    """A leaf in the middle of the file where nothing can be is in none of them."""
    state.file("facilities.csv", FACILITIES.replace("0002,household,,100\n", ""))
    geography = state.geography(('level = "state"', 'level = "county"'))
    assert geography.leaf_codes.tolist() == ["0001", "0003", "0004", "0005", "0006", "0007"]
    held = geography.spine.areas("county")
    assert held.codes[held.unit].tolist() == ["01001"] * 3 + ["01003"] * 3
