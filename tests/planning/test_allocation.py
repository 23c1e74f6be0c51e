"""Shares chosen for the tables: against a convex solver, dense least squares, equal shares, and a whole run."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from tests.duchy import duchy
from tests.each import each, pairwise
from tests.passages import replaced
from tests.planning.test_area_shares import BLOCKS, SMALL, budgets_of, rows_of
from tests.planning.test_geography_plan import dense_errors

import tabulae as tb
from tabulae.cli.areas import shares_toml
from tabulae.errors import SpecError
from tabulae.products.areas.allocation import ErrorSearch, ShareChoice, TotalError
from tabulae.products.areas.plan import GeographyPlan, plan_geography
from tabulae.products.areas.spec.section import Geography
from tabulae.products.areas.targets import Design
from tabulae.spec import Spec, read_spec

__all__ = ["duchy"]

SHARES = re.compile(r"(?m)^shares = .*\n")
QUERIES = re.compile(r"(?ms)^\[\[geography\.query\]\]\n.*?(?=^\[)")
ONLY_CHILD = BLOCKS + "S,C9,99,\n"


def automatic(text: str, *, queries: bool = True) -> str:
    """A spec whose shares are to be chosen, and its queries too where they are not kept."""
    text = SHARES.sub('shares = "auto"\n', text, count=1)
    head, tail = text.split('shares = "auto"\n')
    tail = SHARES.sub("", tail) if queries else QUERIES.sub("", tail)
    return f'{head}shares = "auto"\n{tail}'


def small(
    folder: Path, *changes: tuple[str, str], blocks: str = BLOCKS, queries: bool = True, total: str = ""
) -> Spec:
    """A spec of few blocks whose shares are to be chosen, with passages replaced."""
    (folder / "spine.csv").write_text(blocks)
    text = automatic(SMALL, queries=queries).replace("BUDGET", "1").replace("TOTAL", total)
    text = text.replace("SEXES", "")
    return Spec.from_text(replaced(text, *changes, most=1), folder)


def weighted(plan: GeographyPlan, weights: dict[str, float]) -> float:
    """The RMSE over tables and kinds of area, from the errors that are planned."""
    rows = [(weights.get(row.table, 1.0), row.rmse) for row in plan.table_errors if row.rmse]
    return (sum((w * rmse) ** 2 for w, rmse in rows) / sum(w**2 for w, _ in rows)) ** 0.5


def solved(geography: Geography) -> float:
    """The least weighted RMSE by a solver of semidefinite programs."""
    budget, precision = budgets_of(geography)
    terms, whole = [], 0.0
    for table in geography.tables:
        for kind in table.areas:
            rows = rows_of(geography, kind, len(table.margin.names))
            terms.append(table.weight**2 * cp.matrix_frac(rows.T, precision) / len(rows))
            whole += table.weight**2
    problem = cp.Problem(cp.Minimize(sum(terms, cp.Constant(0))), [cp.sum(budget) <= 1])  # type: ignore[list-item]
    problem.solve(solver=cp.CLARABEL)
    return (float(problem.value) / whole) ** 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [pytest.param(1.0, marks=pytest.mark.long), 5.0])
def test_the_search_finds_what_a_solver_of_semidefinite_programs_finds(tmp_path: Path, weight: float) -> None:
    spec = small(tmp_path, ('name = "sexes"\n', f'name = "sexes"\nweight = {weight}\nareas = ["county"]\n'))
    plan, best = plan_geography(spec), solved(spec.geography)
    found = plan.found_shares
    assert found is not None
    assert found.lower is not None
    assert found.lower <= best * (1 + 1e-6), "a proven bound lies above what is possible"
    assert (
        best * (1 - 5e-3) <= found.rmse <= best * 1.005
    )  # noise of whole numbers has a little less variance
    assert found.rmse == pytest.approx(weighted(plan, {"sexes": weight}), rel=1e-9)
    assert found.equal is not None
    assert found.rmse < found.equal


def test_the_error_is_that_of_dense_least_squares(tmp_path: Path) -> None:
    plan = plan_geography(
        small(tmp_path, ('name = "total"\n', 'name = "total"\nweight = 3\n'), blocks=ONLY_CHILD)
    )
    errors, terms, whole = dense_errors(plan.geography), 0.0, 0.0
    for (table, _), areas in errors.items():
        weight = 3.0**2 if table == "total" else 1.0
        terms, whole = terms + weight * float(np.concatenate(areas).mean()), whole + weight
    assert plan.found_shares is not None
    assert plan.found_shares.rmse == pytest.approx((terms / whole) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("definition", ["zcdp", "pure"])
def test_slopes_are_those_of_differences(tmp_path: Path, definition: str) -> None:
    spec = small(tmp_path, ('"zcdp"', f'"{definition}"'), blocks=ONLY_CHILD)
    geography = spec.geography
    search = ErrorSearch(TotalError.of(geography), Design.of(geography), 1.0)
    z = np.random.default_rng(1).normal(size=6)
    _, value, slope, *_ = search.at(z)
    for i in range(6):
        step = np.eye(6)[i] * 1e-5
        ends = [search.at(z + s * step)[1] for s in (-1, 1)]
        assert slope[i] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5, abs=1e-7)
    assert search.at(z + 0.7)[1] == pytest.approx(value)  # how large budgets are in all plays no part


@each(
    *pairwise(definition=["zcdp", "pure"], blocks=[BLOCKS, ONLY_CHILD], rule=["exact", "off"]),
    long=itertools.product(["zcdp", "pure"], [BLOCKS, ONLY_CHILD], ["exact", "off"]),
)
def test_never_worse_than_equal_shares(tmp_path: Path, definition: str, blocks: str, rule: str) -> None:
    changes = ('"zcdp"', f'"{definition}"'), ("shares =", f'bypass = "{rule}"\nshares =')
    found = plan_geography(small(tmp_path, *changes, blocks=blocks)).found_shares
    assert found is not None
    assert found.equal is not None
    assert found.rmse <= found.equal
    assert (found.lower is None) == (definition == "pure")
    assert sum(found.shares.levels.values()) == 1
    assert all(sum(shares) == 1 for shares in found.shares.queries.values())
    assert all(isinstance(share, Fraction) for share in found.shares.levels.values())


def test_what_is_written_in_their_place_is_the_same_spec(tmp_path: Path) -> None:
    made = plan_geography(small(tmp_path, blocks=ONLY_CHILD, queries=False))
    found = made.found_shares
    assert found is not None
    written = "\n".join(shares_toml(made.geography, found.shares.levels, found.shares.queries))
    text = automatic(SMALL, queries=False).replace("BUDGET", "1").replace("TOTAL", "").replace("SEXES", "")
    fixed = plan_geography(Spec.from_text(text.replace('shares = "auto"', written), tmp_path))
    assert fixed.found_shares is None
    assert fixed.spec.digest() == made.spec.digest()
    assert fixed.table_errors == made.table_errors
    assert (
        Spec.from_text(made.spec.published_text(), _with_files(made.spec, tmp_path)).digest()
        == made.spec.digest()
    )
    again = plan_geography(small(tmp_path, blocks=ONLY_CHILD, queries=False))
    assert again.spec.digest() == made.spec.digest()


def _with_files(spec: Spec, folder: Path) -> Path:
    for name, content in spec.files.items():
        path = folder / "published" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "published"


def test_a_table_of_more_weight_has_smaller_errors(tmp_path: Path) -> None:
    rmse = []
    for weight in (1, 30):
        county = ('name = "total"\n', f'name = "total"\nweight = {weight}\nareas = ["county"]\n')
        plan = plan_geography(small(tmp_path, county))
        rmse.append(next(row.rmse for row in plan.table_errors if row.table == "total"))
    assert rmse[1] < rmse[0] / 1.5


def test_targets_are_met_if_the_budget_permits(tmp_path: Path) -> None:
    free = plan_geography(small(tmp_path))
    reached = {(row.table, row.area_type): row.rmse for row in free.table_errors}
    low = 0.8 * reached["total", "county"]
    targeted = plan_geography(small(tmp_path, total=f'target = {{ rmse = {low}, areas = ["county"] }}'))
    found, smallest = targeted.found_shares, targeted.smallest
    assert found is not None
    assert smallest is not None
    assert smallest.enough
    assert found.missed == 0
    assert free.found_shares is not None
    assert free.found_shares.rmse < found.rmse < 1.5 * free.found_shares.rmse
    loose = plan_geography(small(tmp_path, total="target = { rmse = 1e6 }"))
    assert loose.found_shares is not None
    assert loose.found_shares.shares == free.found_shares.shares  # a target that is met without being asked


@pytest.mark.parametrize("definition", ["zcdp", pytest.param("pure", marks=pytest.mark.long)])
def test_targets_beyond_the_budget_are_missed_by_what_is_told(tmp_path: Path, definition: str) -> None:
    target = 'target = { margin = 0.4, areas = ["county", "block"] }'
    plan = plan_geography(small(tmp_path, ('"zcdp"', f'"{definition}"'), total=target))
    found, smallest = plan.found_shares, plan.smallest
    assert found is not None
    assert smallest is not None
    assert smallest.enough is False
    assert found.missed == sum(not row.met for row in smallest.targets) > 0
    assert all(row.reached > row.target for row in smallest.targets if not row.met)


def test_a_budget_that_is_to_be_found_is_the_least_of_all_shares(tmp_path: Path) -> None:
    target = 'target = { rmse = 2, areas = ["county"] }'
    plan = plan_geography(small(tmp_path, ('budget = "1"', 'budget = "targets"'), total=target))
    assert plan.found_shares is not None
    assert plan.smallest is not None
    assert plan.smallest.best is not None
    assert plan.loss.amount == plan.smallest.loss.amount  # type: ignore[union-attr]
    assert float(plan.loss.amount) <= float(plan.smallest.best.lower.amount) * 1.03
    none = small(tmp_path, ('budget = "1"', 'budget = "targets"'), total="target = { rmse = 1e-6 }")
    with pytest.raises(SpecError, match="no budget"):
        plan_geography(none)


def test_queries_follow_from_the_tables(tmp_path: Path) -> None:
    changes = (
        (
            "[privacy]\n",
            'age = { range = [0, 99] }\n[recodes]\nold = { of = "age", edges = [65] }\n[privacy]\n',
        ),
        ('attributes = ["sex"]\n', 'attributes = ["sex", "old"]\n'),
    )
    spec = small(tmp_path, *changes, queries=False)
    # a hundred ages are too many to be held one by one: the margin is by age itself
    assert [query.names for query in spec.geography.queries] == [(), ("sex",), ("age",), ("sex", "age")]
    ten = (changes[0][0], changes[0][1].replace("99", "9").replace("65", "6"))
    fewer = small(tmp_path, ten, changes[1], queries=False)
    names = [query.names for query in fewer.geography.queries]
    assert names == [(), ("sex",), ("old",), ("sex", "old"), ("sex", "age")]


def test_margins_of_margins_are_left_out_where_they_are_very_many(tmp_path: Path) -> None:
    more = "".join(f'a{i} = {{ categories = ["x", "y"] }}\n' for i in range(5))
    wide = ('attributes = ["sex"]\n', 'attributes = ["sex", "a0", "a1", "a2", "a3"]\n')
    spec = small(tmp_path, ("[privacy]\n", f"{more}[privacy]\n"), wide, queries=False)
    assert [len(query.names) for query in spec.geography.queries] == [0, 5, 6]


def test_one_level_alone_and_exact_counts_alone(tmp_path: Path) -> None:
    one = plan_geography(
        small(
            tmp_path,
            ('levels = ["state", "county", "block"]', 'levels = ["block"]'),
            blocks="block,place\n1,P\n2,P\n",
        )
    )
    assert one.found_shares is not None
    assert one.found_shares.shares.levels.keys() == {"root", "block"}
    state = ("attributes = []\n", 'attributes = []\nareas = ["state"]\n')
    known = ("[method]", '[[invariant]]\nattributes = ["sex"]\nlevel = "state"\nreason = "known"\n[method]')
    sexes = ('name = "sexes"\n', 'name = "sexes"\nareas = ["state"]\n')
    exact = small(tmp_path, state, sexes, known, queries=False)
    plan = plan_geography(exact)
    assert plan.found_shares is not None
    assert plan.found_shares.rmse == 0


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ('shares = "auto"', 'shares = "automatic"', "geography.shares", 'must be "auto"'),
        ('shares = "auto"', "shares = 3", "geography.shares", "must be a table of keys and values"),
        ('shares = "auto"', "", "geography.shares", 'or shares = "auto"'),
        ("attributes = []\n", 'attributes = []\nshares = { block = "1" }\n', "geography.query[0].shares",
         "chooses these too"),
        ("attributes = []\n", 'attributes = []\nshares = "auto"\n', "geography.query[0].shares", "chooses these too"),
        ('name = "total"', 'name = "total"\nweight = 0', "table[0].weight", "greater than 0"),
        ('name = "total"', 'name = "total"\nweight = "much"', "table[0].weight", "must be a number"),
        ('name = "total"', 'name = "total"\nweight = inf', "table[0].weight", "finite"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, old: str, new: str, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        small(tmp_path, (old, new))
    assert any(problem.path == path and words in problem.message for problem in caught.value.problems), (
        caught.value
    )


@pytest.mark.parametrize("weight", [pytest.param("1e-300", marks=pytest.mark.long), "1e300"])
def test_weights_of_any_size(tmp_path: Path, weight: str) -> None:
    plan = plan_geography(small(tmp_path, ('name = "total"', f'name = "total"\nweight = {weight}')))
    assert plan.found_shares is not None
    assert np.isfinite(plan.found_shares.rmse)


@pytest.mark.long
def test_a_run_publishes_the_shares_that_the_plan_prints(duchy: Path) -> None:
    duchy.write_text(automatic(duchy.read_text(), queries=False))
    assert '"auto"' in duchy.read_text()
    made = plan_geography(read_spec(duchy))
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    assert made.found_shares is not None
    assert release.spec.geography.shares == made.found_shares.shares
    assert release.spec.digest() == made.spec.digest()
    assert "auto" not in (release.path / "spec.toml").read_text()
    assert tb.Ledger.open(duchy.parent / "ledger.db").spent == Fraction(2)
    for piece in release.measurements:
        assert piece.values


def test_shares_are_of_the_least_error_that_was_looked_at(tmp_path: Path) -> None:
    choice = ShareChoice(small(tmp_path, blocks=ONLY_CHILD).geography, find_budget=False)
    found = choice.found()
    assert len(choice.judged) >= 3
    assert found.rmse == min(each.rmse for each in choice.judged)
