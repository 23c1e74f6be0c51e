"""Plans of areas: expected errors against dense weighted least squares, distances, and what a plan says of itself."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.spec.states import State, write_state

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.products.areas.plan import GeographyPlan, LevelRow, plan_geography
from tabulae.products.areas.spec.section import Geography
from tabulae.products.areas.spine_plan import area_half_widths

GLS = ("[[table]]", '[method]\nestimate = "gls"\n[[table]]')
MORE = ("[[table]]", '[[invariant]]\nattributes = ["hhgq"]\nlevel = "county"\nreason = "r"\n[[table]]')
SPLIT = (
    'outside = { place = "99" }\n',
    'outside = { place = "99" }\nsplit = "tribe IS NOT NULL"\noptimise = { }\n',
)
PURE = (('"zcdp"', '"pure"'), ('delta = "1e-10"\n', ""))
KINDS = (
    '[[table]]\nname = "race',
    '[[table]]\nname = "kinds"\nattributes = ["hhgq"]\n[[table]]\nname = "race',
)
INVARIANT = '[[invariant]]\nattributes = []\nlevel = "state"\nreason = "apportionment"\n'


@pytest.fixture
def state(tmp_path: Path) -> State:
    return write_state(tmp_path)


def dense_covariance(geography: Geography) -> tuple[np.ndarray, np.ndarray]:
    """Variance of all possible cells of all leaves by weighted least squares, and their (leaf, dense, symmetric)."""
    plan = geography.plan()
    inner = plan.layout.algebra.cells
    cell = np.argwhere(np.repeat(plan.support.rows[:, :, None], inner, axis=2))
    spine, information = plan.spine, np.zeros((len(cell), len(cell)))
    rows = [[query.order[query.label[d], query._column[n]] for _, d, n in cell] for query in plan.queries]
    assert spine.shares is not None
    for level, unit in spine.units.items():
        for share, u in zip(spine.shares[level], range(len(spine.codes[level])), strict=True):
            for i, query in enumerate(plan.queries):
                law = plan.law(level, share, i)
                if law is None:
                    continue
                answers = np.zeros((query.size, len(cell)))
                answers[rows[i], np.arange(len(cell))] = unit[cell[:, 0]] == u
                information += answers.T @ answers / law.variance_of_law
    variance = np.linalg.inv(information)
    exact = () if geography.constraints is None else geography.constraints.exact
    for margin in exact:
        for u in range(len(spine.codes[margin.level])):
            for group in range(margin.margin.classes):
                row = (spine.units[margin.level][cell[:, 0]] == u) & (
                    margin.margin.label[cell[:, 1]] == group
                )
                step = variance @ row
                if row @ step > 1e-9:
                    variance = variance - np.outer(step, step) / (row @ step)
    return variance, cell


def dense_errors(geography: Geography) -> dict[tuple[str, str], list[np.ndarray]]:
    """Variances of the counts that can occur, of each area that somebody can be in, by table and kind of area."""
    variance, cell = dense_covariance(geography)
    found = {}
    for table in geography.tables:
        margin = table.margin
        for kind in table.areas:
            codes, index = geography.areas(kind)
            errors = []
            for a in range(codes.size):
                squares = []
                for group in range(margin.classes):
                    inside = (index[cell[:, 0]] == a) & (margin.label[cell[:, 1]] == group)
                    for j in range(margin.inner):
                        row = inside & (margin._column[cell[:, 2]] == j)
                        if row.any():
                            squares.append(row @ variance @ row)
                if squares:
                    errors.append(np.array(squares))
            found[table.name, kind] = errors
    return found


@pytest.mark.parametrize(
    "passages",
    [
        (),
        (SPLIT,),
        ((INVARIANT, ""),),
        (GLS, MORE),
        (*PURE, (INVARIANT, "")),
        (("replace", "add-remove"),),
        (KINDS,),
    ],
    ids=[
        "plain",
        "split and redrawn",
        "nothing exact",
        "exact at two levels",
        "Laplace",
        "add-remove",
        "areas without facilities",
    ],
)
def test_errors_are_those_of_dense_least_squares(state: State, passages: tuple[tuple[str, str], ...]) -> None:
    made = plan_geography(state.spec(*passages))
    expected = dense_errors(made.geography)
    assert {(row.table, row.area_type) for row in made.table_errors} == expected.keys()
    for row in made.table_errors:
        errors = expected[row.table, row.area_type]
        noisy = [variances for variances in errors if (variances > 1e-9).any()] or [np.zeros(1)]
        assert row.rmse == pytest.approx(np.sqrt(np.concatenate(noisy).mean()), rel=1e-8, abs=1e-6)
        assert row.largest == pytest.approx(
            np.sqrt(max(variances.mean() for variances in noisy)), rel=1e-8, abs=1e-6
        )
        worst = max(variances.max() for variances in noisy)
        assert row.worst == pytest.approx(np.sqrt(worst), rel=1e-8, abs=1e-6)
        wide = area_half_widths(worst, made.spine_plan.all_laws, 0.95)
        assert row.margin == pytest.approx(wide, rel=1e-8, abs=1e-5)
        assert row.areas == made.geography.areas(row.area_type)[0].size


def test_what_is_exact_has_no_error(state: State) -> None:
    rows = {(row.table, row.area_type): row for row in plan_geography(state.spec()).table_errors}
    assert rows["total", "state"].largest == 0.0
    assert rows["total", "county"].rmse > 0


def test_levels_say_what_is_drawn(state: State) -> None:
    levels = {row.level: row for row in plan_geography(state.spec()).levels}
    assert list(levels) == ["state", "county", "tract", "block"]
    assert levels["state"] == LevelRow("state", 1, 1, Fraction(1, 4), levels["state"].noise)
    # variance 2 / (2 rho gamma alpha) with rho 2, gamma 1/4, alpha 1/2: 4, but for the grid of whole numbers
    assert levels["state"].noise == {"total": pytest.approx(2, 1e-6), "detailed": pytest.approx(2, 1e-6)}
    assert set(levels["tract"].noise) == {"total", "group", "detailed"}
    assert levels["county"].measured == 2


def test_a_level_of_one_child_is_measured_above(state: State) -> None:
    levels = {row.level: row for row in plan_geography(state.spec()).levels}
    assert (levels["tract"].units, levels["tract"].measured) == (3, 2)
    assert (levels["county"].units, levels["county"].measured) == (2, 2)


def test_distances_before_and_after(state: State) -> None:
    made = plan_geography(state.spec(SPLIT))
    found = {row.entity_type: row for row in made.distances}
    geography = made.geography
    places = geography.entities["place"]
    assert found["place"].entities == 2
    assert found["place"].conventional_mean == geography.conventional.osed(places).mean()
    assert found["place"].largest == geography.spine.osed(places).max()
    assert found["county"].conventional_largest == 1  # it is split, and off the spine now
    assert found["county"].mean > 1
    assert "state" not in found


def test_no_record_is_opened(state: State) -> None:
    spec = state.spec()
    assert spec.source.path is not None
    assert not spec.source.path.exists()
    (state.base / "spec.toml").write_text(state.text)
    made = tb.plan(state.base / "spec.toml")
    assert isinstance(made, GeographyPlan)
    assert made.loss == tb.ZCDP(2)
    assert made.budgets == (made.loss,)
    assert made.epsilon == made.loss.epsilon(Fraction(1, 10**10))
    table = made.errors
    assert table.column_names == ["table", "level", "rmse", "margin", "bound"]
    assert table.num_rows == len(made.table_errors) == 7
    with pytest.raises(Unsupported, match="follows from the spec"):
        made.save("plan.json")


def test_specs_of_tables_have_no_areas(tmp_path: Path) -> None:
    text = (
        '[source]\npath = "p.csv"\n[attributes]\nsex = { categories = ["F", "M"] }\n[privacy]\n'
        'definition = "zcdp"\nbudget = "1"\nledger = "l.db"\n[[table]]\nname = "t"\nattributes = []\n'
    )
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises(Unsupported, match=r"no \[geography\]"):
        plan_geography(tmp_path / "spec.toml")
