"""The smallest budget of areas: against a convex solver, grids of shares, and the errors that are planned."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from tests.planning.test_geography_plan import dense_errors
from tests.spec.states import State, write_state

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.products.areas.plan import GeographyPlan, plan_geography
from tabulae.products.areas.spec.section import Geography
from tabulae.products.areas.spine_plan import SpinePlan, area_half_widths
from tabulae.products.areas.targets import AreaAims, Design, ShareSearch
from tabulae.spec import Spec

SMALL = """
[source]
path = "people.csv"
[attributes]
sex = { categories = ["F", "M"] }
[privacy]
definition = "zcdp"
budget = "BUDGET"
neighbours = "replace"
ledger = "ledger.db"
[geography]
column = "block"
file = "spine.csv"
levels = ["state", "county", "block"]
entities = ["place"]
shares = { state = "1/3", county = "1/3", block = "1/3" }
[[geography.query]]
attributes = []
shares = { state = "1/2", county = "1/2", block = "1/4" }
[[geography.query]]
attributes = ["sex"]
shares = { state = "1/2", county = "1/2", block = "3/4" }
[[table]]
name = "total"
attributes = []
TOTAL
[[table]]
name = "sexes"
attributes = ["sex"]
SEXES
[method]
estimate = "gls"
"""
BLOCKS = "state,county,block,place\n" + "".join(
    f"S,C{i // 4},{i:02},{'P' if i in (1, 2, 5) else 'Q' if i in (3, 4) else ''}\n" for i in range(10)
)
TARGETS = {
    "on the spine": ('target = { rmse = 8, areas = ["county"] }', 'target = { rmse = 6, areas = ["block"] }'),
    "across it": (
        'target = { rmse = 8, areas = ["place"] }',
        'target = { rmse = 20, areas = ["state", "county"] }',
    ),
    "one": ("", 'target = { rmse = 10, areas = ["place"] }'),
    "margins": ('target = { margin = 15, areas = ["county", "place"] }', ""),
}


# Margins stand for the others in the short tests.
CASES = [pytest.param(case, marks=() if case == "margins" else pytest.mark.long) for case in TARGETS]


def small(folder: Path, total: str = "", sexes: str = "", budget: str = "1", blocks: str = BLOCKS) -> Spec:
    """A spec of two counties and three, say, with targets."""
    (folder / "spine.csv").write_text(blocks)
    text = SMALL.replace("BUDGET", budget).replace("TOTAL", total).replace("SEXES", sexes)
    return Spec.from_text(text, folder)


@pytest.fixture(scope="module")
def aimed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GeographyPlan]:
    """aimed(case) -> the plan whose targets find the budget, made once: it takes most of these tests."""
    folder = tmp_path_factory.mktemp("aimed")
    return cache(lambda case: plan_geography(small(folder, *TARGETS[case], budget="targets")))


def searched(geography: Geography) -> tuple[ShareSearch, Design]:
    """A search that is done."""
    aims, design = AreaAims(geography), Design.of(geography)
    allowed = np.array([aim.most_variance() for aim in aims.aims])
    search = ShareSearch(design, aims, allowed, np.ones(len(aims.aims), bool))
    search.run(np.full((len(design.levels), len(geography.queries)), 1.0))
    return search, design


def budgets_of(geography: Geography) -> tuple[cp.Variable, cp.Expression]:
    """Budgets of levels and queries, without a bypass, and the precision that they give both sexes of every leaf."""
    spine, size = geography.spine, 2 * geography.spine.leaves
    cells = np.argwhere(np.ones((spine.leaves, 2)))
    terms, budget = [], cp.Variable((len(spine.levels), len(geography.queries)), nonneg=True)
    for level in spine.levels:
        unit = spine.units[level][cells[:, 0]]
        for query in geography.queries:
            key = unit * 2 + cells[:, 1] * len(query.names)
            terms.append((key[:, None] == key).astype(float))
    flat = cp.reshape(budget, (budget.size,), order="C")
    return budget, sum((flat[i] * term for i, term in enumerate(terms)), cp.Constant(np.zeros((size, size))))


def rows_of(geography: Geography, kind: str, sexes: int) -> np.ndarray:
    """What a table asks of areas of a kind: ``sexes`` is 0 for one of everybody, and 1 for one by sex."""
    cells, index = np.argwhere(np.ones((geography.spine.leaves, 2))), geography.areas(kind)[1]
    key = index[cells[:, 0]] * 2 + cells[:, 1] * sexes
    return np.array([key == k for k in np.unique(key[key >= 0])], float)


def solved(geography: Geography) -> float:
    """The least budget by a solver of semidefinite programs."""
    budget, precision = budgets_of(geography)
    limits = []
    for aim in AreaAims(geography).aims:
        sexes = len(aim.table.margin.names)
        rows = rows_of(geography, aim.kind, sexes)
        if aim.target.confidence is None:
            limits.append(cp.matrix_frac(rows.T, precision) / len(rows) <= aim.most_variance())
        else:
            limits += [cp.matrix_frac(row[:, None], precision) <= aim.most_variance() for row in rows]
        assert len(rows) == geography.areas(aim.kind)[0].size * (1 + sexes)
    problem = cp.Problem(cp.Minimize(cp.sum(budget)), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(budget.value.sum())  # type: ignore[union-attr]


@pytest.mark.parametrize("case", CASES)
def test_the_search_finds_what_a_solver_of_semidefinite_programs_finds(tmp_path: Path, case: str) -> None:
    geography = small(tmp_path, *TARGETS[case]).geography
    assert geography is not None
    search, design = searched(geography)
    assert design.unit == 1  # "replace", one row a unit: a weight is the budget
    best, lower = solved(geography), search.bound(search.allowed)
    assert lower <= best * (1 + 1e-6), "a proven bound lies above what is possible"
    assert search.cost >= best * (1 - 1e-6) or case == "margins"  # whose largest is smoothed
    assert search.cost <= lower * 1.02


@pytest.mark.parametrize("case", CASES)
def test_the_best_shares_meet_the_targets_when_they_are_written(
    tmp_path: Path, aimed: Callable[[str], GeographyPlan], case: str
) -> None:
    plan = aimed(case)
    smallest = plan.smallest
    assert smallest is not None
    assert smallest.best is not None
    assert smallest.written is smallest.enough is None
    best = smallest.best
    assert sum(best.levels.values()) == 1
    assert all(sum(shares) == 1 for shares in best.queries.values())
    assert best.lower.amount <= best.loss.amount <= smallest.loss.amount  # type: ignore[union-attr]
    assert best.gap < (
        0.1 if case == "margins" else 0.03
    )  # half-widths are wider than those of the normal law
    given = SMALL.replace("TOTAL", TARGETS[case][0]).replace("SEXES", TARGETS[case][1])
    shares = ", ".join(f'{level} = "{share}"' for level, share in best.levels.items())
    given = given.replace('state = "1/3", county = "1/3", block = "1/3"', shares)
    for i, old in enumerate(
        ('state = "1/2", county = "1/2", block = "1/4"', 'state = "1/2", county = "1/2", block = "3/4"')
    ):
        given = given.replace(
            old, ", ".join(f'{level} = "{part[i]}"' for level, part in best.queries.items())
        )
    step = Fraction(10) ** (len(str(int(best.loss.amount))) - 4 if best.loss.amount >= 1 else -5)
    (tmp_path / "spine.csv").write_text(BLOCKS)
    for amount, enough in ((best.loss.amount, True), (best.loss.amount - step * 10, False)):
        again = plan_geography(Spec.from_text(given.replace("BUDGET", str(amount)), tmp_path)).smallest
        assert again is not None
        assert again.enough is enough, (amount, again)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_one_step_less_misses_a_target(
    tmp_path: Path, aimed: Callable[[str], GeographyPlan], case: str
) -> None:
    """At the shares as written, with errors by dense least squares."""
    found = aimed(case)
    amount = found.loss.amount
    assert found.smallest is not None
    assert found.smallest.loss == found.loss
    exponent = len(str(amount.numerator)) - len(str(amount.denominator))
    lower = next(
        step
        for step in (Fraction(10) ** (exponent - e) for e in (2, 3, 4, 5, 6))
        if (amount / step).denominator == 1 and amount / step >= 1000
    )
    for budget, met in ((amount, True), (amount - lower, False)):
        plan = plan_geography(small(tmp_path, *TARGETS[case], budget=str(budget)))
        assert plan.smallest is not None
        assert plan.smallest.enough is met
        errors, reached = dense_errors(plan.geography), []
        for row in plan.smallest.targets:
            variances = np.concatenate(errors[row.table, str(row.of)])
            if row.confidence is None:
                reached.append(variances.mean() ** 0.5)
            else:
                widths = area_half_widths(variances, plan.spine_plan.all_laws, row.confidence)
                reached.append(widths.max())
        assert [row.reached for row in plan.smallest.targets] == pytest.approx(reached, rel=1e-9)


def test_a_grid_of_shares_holds_none_that_is_better(tmp_path: Path) -> None:
    """One query, a county of a single block: the bypass adds shares there, and the problem is not convex."""
    blocks = BLOCKS + "S,C9,99,\n"
    text = small(tmp_path, "", TARGETS["one"][1], blocks=blocks).text
    one = text[: text.index("[[geography.query]]")] + text[text.rindex("[[geography.query]]") :]
    for old in ('"1/2", county = "1/2", block = "3/4"',):
        one = one.replace(old, '"1", county = "1", block = "1"')
    spec = Spec.from_text(one, tmp_path)
    smallest = plan_geography(spec).smallest
    assert smallest is not None
    assert smallest.best is not None
    assert bool(Design.of(spec.geography).joined.sum(axis=1).max() > 1)
    least = np.inf
    for state in np.linspace(0.02, 0.5, 5):
        for county in np.linspace(0.02, 0.9 - state, 5):
            parts = [Fraction(int(1000 * part), 1000) for part in (state, county)]
            shares = dict(zip(("state", "county", "block"), [*parts, 1 - sum(parts)], strict=True))
            written = ", ".join(f'{level} = "{share}"' for level, share in shares.items())
            other = Spec.from_text(
                one.replace('state = "1/3", county = "1/3", block = "1/3"', written), tmp_path
            )
            (row,) = _rows(other.geography)
            least = min(least, (row / 10) ** 2)
    assert float(smallest.best.lower.amount) <= least
    assert float(smallest.best.loss.amount) <= least * 1.01


def _rows(geography: Geography | None) -> list[float]:
    assert geography is not None
    errors = dense_errors(geography)
    return [
        float(np.concatenate(errors[aim.table.name, aim.kind]).mean() ** 0.5)
        for aim in AreaAims(geography).aims
    ]


@pytest.mark.parametrize("y", [[[1.0, 2.0], [3.0, 0.5], [0.1, 4.0]]])
def test_budgets_of_units_are_those_that_the_spine_would_have(tmp_path: Path, y: list[list[float]]) -> None:
    blocks = BLOCKS + "S,C9,99,\n"
    geography = small(tmp_path, *TARGETS["one"], blocks=blocks).geography
    assert geography is not None
    design, y = Design.of(geography), np.array(y)  # type: ignore[assignment]
    weights = design.weights(design.budgets(np.array(y)))
    whole = np.array(y).sum(axis=1)
    levels = {
        name: Fraction(float(part)) for name, part in zip(design.levels, whole / whole.sum(), strict=True)
    }
    levels["block"] = 1 - levels["state"] - levels["county"]
    queries = {}
    for name, row in zip(design.levels, np.array(y), strict=True):
        first = Fraction(float(row[0] / row.sum()))
        queries[name] = (first, 1 - first)
    spine = geography.spine.bypass(levels)
    plan = SpinePlan(
        spine,
        geography.layout,
        geography.queries,
        queries,
        tb.ZCDP(Fraction(float(whole.sum()))),
        design.plan.support,
    )
    for node in range(plan.tree.size):
        laws = plan.laws(int(plan.classes[1][node]))
        told = [1 / float(law.parameter) for law in laws if law is not None]
        assert weights[design.plan.classes[1][node]].tolist() == pytest.approx(told)
    slope = np.random.default_rng(0).normal(size=weights.shape)
    flat = np.array(y)
    for i, j in np.ndindex(*flat.shape):
        step = np.zeros_like(flat)
        step[i, j] = 1e-6
        ends = [(slope * design.weights(design.budgets(flat + s * step))).sum() for s in (-1, 1)]
        by_x = design.slope(slope, design.budgets(flat))
        assert design.back(by_x, flat)[i, j] == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=1e-5, abs=1e-7)


def test_a_looser_target_needs_no_more(tmp_path: Path) -> None:
    needed = [
        plan_geography(
            small(tmp_path, f'target = {{ margin = {margin}, areas = ["county"] }}', budget="targets")
        ).loss.amount
        for margin in (10, 20)
    ]
    assert needed[0] > needed[1]


def test_laplace_noise_has_a_smallest_budget_and_no_best_shares(tmp_path: Path) -> None:
    (tmp_path / "spine.csv").write_text(BLOCKS)
    text = SMALL.replace("TOTAL", TARGETS["on the spine"][0]).replace("SEXES", "").replace('"zcdp"', '"pure"')
    plan = plan_geography(Spec.from_text(text.replace("BUDGET", "targets"), tmp_path))
    assert plan.smallest is not None
    assert plan.smallest.best is plan.smallest.lower is None
    assert "not convex" in plan.smallest.note
    less = plan_geography(
        Spec.from_text(text.replace("BUDGET", str(plan.loss.amount * Fraction(999, 1000))), tmp_path)
    )
    assert less.smallest is not None
    assert less.smallest.enough is False
    assert less.smallest.loss == plan.loss


@pytest.mark.parametrize("margin", [pytest.param(3, marks=pytest.mark.long), 8.6])
def test_margins_under_laplace_noise_are_met_from_one_budget_on(tmp_path: Path, margin: float) -> None:
    target = f'target = {{ margin = {margin}, areas = ["county"] }}'
    text = (
        small(tmp_path, target).text.replace('"zcdp"', '"pure"').replace('budget = "1"', 'budget = "BUDGET"')
    )
    found = set()
    for budget in ("1/20", "9", "400"):
        smallest = plan_geography(Spec.from_text(text.replace("BUDGET", budget), tmp_path)).smallest
        assert smallest is not None
        assert smallest.loss is not None
        assert smallest.enough is (Fraction(budget) >= smallest.loss.amount)
        found.add(smallest.loss.amount)
    assert len(found) == 1
    (amount,) = found
    less = Spec.from_text(text.replace("BUDGET", str(amount * Fraction(999, 1000))), tmp_path)
    assert plan_geography(less).smallest.enough is False  # type: ignore[union-attr]


@pytest.mark.parametrize("target", ["{ rmse = 1e-6 }", "{ margin = 1e-6 }"])
def test_targets_that_nothing_can_meet(tmp_path: Path, target: str) -> None:
    with pytest.raises(SpecError, match="no budget meets these targets") as caught:
        plan_geography(small(tmp_path, f"target = {target}", budget="targets"))
    assert caught.value.problems[0].path == "privacy.budget"
    written = plan_geography(small(tmp_path, f"target = {target}")).smallest
    assert written is not None
    assert written.loss is written.best is None
    assert written.enough is False
    assert "No budget meets" in written.note
    assert written.document()["budget"] is None


@pytest.mark.parametrize("target", ["{ rmse = 1e12 }", "{ margin = 1e9 }"])
def test_targets_that_anything_meets(tmp_path: Path, target: str) -> None:
    smallest = plan_geography(small(tmp_path, f"target = {target}", budget="targets")).smallest
    assert smallest is not None
    assert smallest.loss is not None
    assert smallest.loss.amount == Fraction(1, 10**12)
    assert smallest.best is not None
    assert smallest.best.lower.amount <= smallest.best.loss.amount


def test_counts_that_are_exact_need_nothing(tmp_path: Path) -> None:
    state = write_state(tmp_path)
    target = ('name = "total"\n', 'name = "total"\ntarget = { rmse = 2, areas = ["state"] }\n')
    plan = plan_geography(state.spec(target))
    assert plan.smallest is not None
    assert plan.smallest.enough
    assert "exact" in plan.smallest.note
    with pytest.raises(SpecError, match="every count that has one is exact already"):
        plan_geography(state.spec(target, ('budget = "2"', 'budget = "targets"')))


def test_a_plan_without_targets_has_no_smallest_budget(tmp_path: Path) -> None:
    plan = plan_geography(small(tmp_path))
    assert isinstance(plan, GeographyPlan)
    assert plan.smallest is None


def test_a_found_budget_is_not_spent(tmp_path: Path) -> None:
    spec = small(tmp_path, *TARGETS["one"], budget="targets")
    plan = plan_geography(spec)
    assert plan.spine_plan.budget == plan.spec.loss == plan.loss
    with pytest.raises(SpecError, match="is to be found from the tables' targets"):
        plan.spec.check_spendable()


@pytest.mark.long
def test_bounds_exact_counts_and_redrawn_spines_are_planned(tmp_path: Path) -> None:
    state: State = write_state(tmp_path)
    target = (
        'name = "total"\n',
        'name = "total"\ntarget = [{ rmse = 4 }, { margin = 9, areas = ["place"] }]\n',
    )
    drawn = (
        'outside = { place = "99" }\n',
        'outside = { place = "99" }\nsplit = "tribe IS NOT NULL"\noptimise = { }\n',
    )
    invariant = ('[[invariant]]\nattributes = []\nlevel = "state"\nreason = "apportionment"\n', "")
    for changes in (
        (target,),
        (target, drawn, invariant),
        (target, ("shares =", 'bypass = "off"\nshares =')),
    ):
        smallest = plan_geography(state.spec(*changes)).smallest
        assert smallest is not None
        assert smallest.best is not None
        assert smallest.best.lower.amount <= smallest.best.loss.amount <= smallest.loss.amount  # type: ignore[union-attr]
        assert {row.of for row in smallest.targets} == {"state", "county", "tract", "block", "place"}
