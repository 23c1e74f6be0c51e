"""Specs with [geography] that are right: what is read from them and from their files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.spec.states import FACILITIES, SPINE, State

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy import ZCDP, DiscreteLaplace
from tabulae.products.areas.constraints import NO_LIMIT
from tabulae.spec import Spec


def test_the_universe_is_where_something_can_occur(state: State) -> None:
    geography = state.geography()
    assert geography.leaf_codes.tolist() == [f"000{i}" for i in range(1, 8)]
    assert geography.leaf_codes.dtype.kind == "U"
    assert geography.dropped.tolist() == ["0008"]
    assert geography.spine.levels == ("state", "county", "tract", "block")
    assert geography.spine.codes["tract"].tolist() == ["01001A", "01001B", "01003A"]
    plan = geography.plan()
    assert plan.budget == ZCDP(2)
    assert plan.neighbours == "replace"
    assert [query.name for query in plan.queries] == ["total", "group", "detailed"]
    assert plan.query_shares["tract"] == (Fraction(1, 3),) * 3
    assert plan.query_shares["block"] == (Fraction(1, 4), 0, Fraction(3, 4))


def test_without_bounds_all_leaves_are_in_the_universe(state: State) -> None:
    text = state.text
    bound = text[text.index("[[bound]]") : text.index("[[structural_zero]]")]
    geography = state.geography((bound, ""))
    assert geography.leaf_codes.size == 8
    assert geography.dropped.size == 0


def test_dense_attributes_are_those_whose_categories_differ(state: State) -> None:
    layout = state.geography().layout
    assert layout.dense == ("hhgq", "age")  # a bound and a measured recode; a structural zero
    assert layout.symmetric == ("race",)
    assert len(layout.codes) == 3 * 4 - 2  # nobody below 2 in nursing homes
    assert [1, 0] not in layout.codes.tolist()
    assert [1, 2] in layout.codes.tolist()


def test_cells_occur_where_bounds_and_zeros_let_them(state: State) -> None:
    geography = state.geography()
    support = geography.plan().support.rows
    kinds = geography.layout.codes[:, 0]
    allowed = [np.unique(kinds[row]).tolist() for row in support]
    assert allowed == [[0, 1], [0], [0, 2], [0], [0], [0], [0]]


def test_limits_are_those_of_the_file(state: State) -> None:
    constraints = state.geography().constraints
    assert constraints is not None
    assert constraints.part_names == ("hhgq household", "hhgq nursing", "hhgq jail")
    assert constraints.lower.tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1], *([[0, 0, 0]] * 4)]
    free = NO_LIMIT
    assert constraints.upper.tolist() == [
        [free, free, 0], [100, 0, 0], [free, 0, 40], *([[free, 0, 0]] * 4),
    ]  # fmt: skip
    [exact] = constraints.exact
    assert (exact.level, exact.margin.name, exact.reason) == ("state", "total", "apportionment")


def test_unlisted_pairs_may_be_free(state: State) -> None:
    geography = state.geography(('unlisted = "zero"\n', ""))
    assert geography.leaf_codes.size == 8
    assert geography.plan().support.patterns.all()
    constraints = geography.constraints
    assert constraints is not None
    assert constraints.upper[0].tolist() == [NO_LIMIT] * 3


def test_the_order_of_the_lines_says_nothing(state: State) -> None:
    """What can occur in a block, its limits and its areas are the same in whatever line it stands."""

    def by_code() -> dict[str, object]:
        geography = state.geography()
        assert geography.constraints is not None
        support = geography.plan().support.rows
        areas = {name: geography.areas(name) for name in ("county", "place")}
        return {
            code: (
                support[i].tolist(),
                geography.constraints.lower[i].tolist(),
                geography.constraints.upper[i].tolist(),
                {name: codes[unit[i]] if unit[i] >= 0 else None for name, (codes, unit) in areas.items()},
            )
            for i, code in enumerate(geography.leaf_codes.tolist())
        }

    wanted = by_code()
    assert len({str(each) for each in wanted.values()}) > 4
    head, *lines = SPINE.splitlines(keepends=True)
    state.file("spine.csv", "".join([head, *lines[5:], *lines[4::-1]]))
    assert by_code() == wanted


def test_bounds_that_limit_nothing_leave_their_margin_open(state: State) -> None:
    rows = [line.split(",")[:2] for line in FACILITIES.splitlines()[1:]]
    state.file("facilities.csv", "block,hhgq,at_most\n" + "".join(f"{b},{h},\n" for b, h in rows))
    text = state.text
    invariant = text[text.index("[[invariant]]") : text.index("[[table]]")]
    assert state.geography((invariant, "")).constraints is None
    constraints = state.geography().constraints
    assert constraints is not None
    assert constraints.part_names == ("people",)


def test_gls_keeps_no_limits(state: State) -> None:
    constraints = state.geography(("[[table]]", '[method]\nestimate = "gls"\n[[table]]')).constraints
    assert constraints is not None
    assert constraints.part_names == ("people",)
    assert (constraints.upper == NO_LIMIT).all()
    assert not constraints.lower.any()


def test_areas_are_those_of_the_file(state: State) -> None:
    geography = state.geography()
    assert geography.area_types == ("state", "county", "tract", "block", "place")
    codes, index = geography.areas("tract")
    assert codes.tolist() == ["01001A", "01001B", "01003A", "01003B"]  # also where nobody can be
    assert index.tolist() == [0, 0, 1, 1, 2, 2, 2]
    codes, index = geography.areas("place")
    assert codes.tolist() == ["10", "20"]
    assert index.tolist() == [0, 0, -1, -1, 0, 1, 1]
    assert geography.entities["place"].tolist() == ["10", "10", None, None, "10", "20", "20"]
    assert geography.areas("block")[0].tolist() == [f"000{i}" for i in range(1, 9)]
    with pytest.raises(InvalidArgument, match="not a level or entity type"):
        geography.areas("tribe")


def test_tables_are_published_everywhere_unless_said_otherwise(state: State) -> None:
    geography = state.geography()
    total, race = geography.tables
    assert total.areas == geography.area_types
    assert race.areas == ("county", "place")
    assert geography.rows(race) == {"county": 12, "place": 12}
    assert race.margin.names == ("race", "adult")


def test_a_root_is_added_above_several_units(state: State) -> None:
    parts = ("1/2", "1/2", "1/3")
    queries = [
        f'shares = {{ NAME = "{parts[0]}", county = "{parts[1]}", tract = "{parts[2]}", block = "{block}" }}'
        for block in ("1/4", "3/4")
    ]
    geography = state.geography(
        ('levels = ["state", ', "levels = ["),
        ("shares = { state = ", "shares = { root = "),
        *((query.replace("NAME", "state"), query.replace("NAME", "root")) for query in queries),
        ('level = "state"', 'level = "root"'),
    )
    assert geography.spine.levels == ("root", "county", "tract", "block")
    assert geography.levels == ("county", "tract", "block")


def test_the_levels_are_those_of_the_leaves_on_the_spine(state: State) -> None:
    """A leaf in another state, where nobody can be, needs no root; one where somebody can be does."""
    state.file("spine.csv", SPINE.replace("01,01003,01003B,0008", "02,01009,01003B,0008"))
    assert state.geography().spine.levels == ("state", "county", "tract", "block")
    state.file("facilities.csv", FACILITIES + "0008,household,,\n")
    [problem] = state.problems()
    assert 'level "root", which is added above "state" with its several units, has no' in problem.message


@pytest.mark.parametrize("rows", [4, 8])
def test_a_root_is_added_above_leaves_of_no_unit(state: State, rows: int) -> None:
    lines = SPINE.splitlines()
    lines[-rows:] = [line.replace("01,", ",", 1) for line in lines[-rows:]]
    state.file("spine.csv", "\n".join(lines) + "\n")
    state.file("facilities.csv", FACILITIES + "0008,household,,\n")
    words = f'added above "state", which is empty on line {10 - rows} of its file, has no share'
    assert [problem.path for problem in state.problems() if words in problem.message] == ["geography.shares"]


def test_split_makes_a_branch_and_optimise_draws_anew(state: State) -> None:
    optimise = 'optimise = { fanout_cutoff = 0, entities = ["place"] }\n'
    geography = state.geography(
        (
            'outside = { place = "99" }\n',
            f'outside = {{ place = "99" }}\nsplit = "tribe IS NOT NULL"\n{optimise}',
        )
    )
    plain, spine = geography.conventional, geography.spine
    places = geography.entities["place"].tolist()
    drawn = plain.split(np.array([0, 1, 1, 0, 0, 0, 1], bool)).optimise([places], 0)
    drawn = drawn.bypass({level: Fraction(1, 4) for level in drawn.levels})
    assert spine.shares is not None
    assert drawn.shares is not None
    for level in spine.levels:
        assert spine.codes[level].tolist() == drawn.codes[level].tolist()
        assert spine.units[level].tolist() == drawn.units[level].tolist()
        assert spine.shares[level] == drawn.shares[level]
    assert "01001|in" in spine.codes["county"].tolist()
    assert plain.codes["county"].tolist() == ["01001", "01003"]


def test_pure_promises_draw_laplace_noise_and_bypass(state: State) -> None:
    geography = state.geography(
        ('"zcdp"', '"pure"'), ('delta = "1e-10"\n', ""), ('"state"\nreason', '"block"\nreason')
    )
    plan = geography.plan()
    assert isinstance(plan.law("block", Fraction(1, 4), 0), DiscreteLaplace)
    shares = plan.spine.shares
    assert shares is not None
    assert not all(measured.all() for measured in shares.measured)


@pytest.mark.parametrize("bypass", ["exact", "paper", "off"])
@pytest.mark.parametrize("definition", ["pure", "zcdp"])
def test_path_sums_stay_one(state: State, bypass: str, definition: str) -> None:
    geography = state.geography(
        ('"zcdp"', f'"{definition}"'),
        ('delta = "1e-10"\n', ""),
        ('outside = { place = "99" }\n', f'outside = {{ place = "99" }}\nbypass = "{bypass}"\n'),
        ('"state"\nreason', '"block"\nreason'),
    )
    spine = geography.spine
    assert spine.shares is not None
    assert spine.shares.path_sums(spine.hierarchy) == {Fraction(1)}
    assert all(all(m) for m in spine.shares.measured) == (bypass == "off")


def test_parquet_says_the_same_as_csv(state: State) -> None:
    plain = state.geography()
    for name in ("spine", "facilities"):
        options = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(["state", "county", "tract", "block", "place", "tribe"], pa.string()),
            strings_can_be_null=True,
        )
        table = pyarrow.csv.read_csv(state.base / f"{name}.csv", convert_options=options)
        pq.write_table(table, state.base / f"{name}.parquet")
    other = state.geography(("spine.csv", "spine.parquet"), ("facilities.csv", "facilities.parquet"))
    assert other.leaf_codes.tolist() == plain.leaf_codes.tolist()
    assert other.constraints is not None
    assert plain.constraints is not None
    assert (other.constraints.upper == plain.constraints.upper).all()
    assert (other.plan().support.rows == plain.plan().support.rows).all()


def test_leading_zeros_and_blanks(state: State) -> None:
    state.file("spine.csv", "\ufeff" + SPINE.replace("\n01,", "\n 01 ,").replace("\n", "\r\n") + "\r\n\r\n")
    assert state.geography().leaf_codes[0] == "0001"
    assert state.geography().areas("state")[0].tolist() == ["01"]


def test_the_published_copy_reads_back(state: State, tmp_path: Path) -> None:
    spec = state.spec(("[[table]]", '[release]\nmicrodata = true\n[method]\nestimate = "topdown"\n[[table]]'))
    assert set(spec.files) == {"maps/group.csv", "geography/spine.csv", "geography/bound0.csv"}
    lines = SPINE.splitlines()
    assert spec.files["geography/spine.csv"].decode().splitlines() == [
        line.rsplit(",", 1)[0] for line in lines
    ]
    assert spec.files["geography/bound0.csv"] == FACILITIES.encode()
    folder = tmp_path / "published"
    for name, content in spec.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    text = spec.published_text()
    assert "people.parquet" not in text
    again = Spec.from_text(text, folder)
    assert again.digest() == spec.digest()
    assert again.published_text() == text
    assert again.geography is not None
    assert spec.geography is not None
    assert again.geography.microdata is True
    assert again.method == spec.method
    assert again.method.estimate == "topdown"
    assert (again.geography.plan().support.rows == spec.geography.plan().support.rows).all()


def test_the_digest_is_of_the_files_too(state: State) -> None:
    before = state.spec().digest()
    state.file("facilities.csv", FACILITIES.replace(",100", ",101"))
    assert state.spec().digest() != before


def test_what_a_spec_of_areas_has_not(state: State) -> None:
    spec = state.spec()
    assert repr(spec) == "Spec('Small state', 2 tables of areas, ZCDP(rho='2'))"
    assert spec.invariants == ()
    assert spec.method.estimate == "bluedown"
    with pytest.raises(Unsupported, match=r"\[geography\]"):
        _ = spec.workload


@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 1), ("replace", 2)])
def test_the_noise_is_for_all_rows_of_a_unit(state: State, neighbours: str, moved: int) -> None:
    """zCDP: k rows multiply the variance by k^2."""
    unit = ('path = "people.parquet"', 'path = "people.parquet"\nunit_id = "id"\nrows_per_unit = 3')
    plan = state.geography(unit, ('neighbours = "replace"', f'neighbours = "{neighbours}"')).plan()
    assert plan.rows_per_unit == 3
    assert plan.neighbours == neighbours
    law = plan.law("county", Fraction(1, 4), 2)  # its query has half of the county's share
    assert law is not None
    assert law.parameter == Fraction(moved * 3**2) / (2 * 2 * Fraction(1, 4) * Fraction(1, 2))


@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 1), ("replace", 2)])
def test_laplace_noise_is_for_all_rows_of_a_unit(state: State, neighbours: str, moved: int) -> None:
    """Pure DP: k rows multiply the scale by k."""
    plan = state.geography(
        ('path = "people.parquet"', 'path = "people.parquet"\nunit_id = "id"\nrows_per_unit = 3'),
        ('neighbours = "replace"', f'neighbours = "{neighbours}"'),
        ('definition = "zcdp"', 'definition = "pure"'),
        ('delta = "1e-10"\n', ""),
        ("entities =", 'bypass = "off"\nentities ='),
    ).plan()
    law = plan.law("county", Fraction(1, 4), 2)
    assert isinstance(law, DiscreteLaplace)
    assert law.parameter == Fraction(moved * 3) / (2 * Fraction(1, 4) * Fraction(1, 2))
