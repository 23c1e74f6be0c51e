"""The plan page: its numbers are those of plans made anew at the budgets that the slider stops at."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from tests.report.page import Page
from tests.village import SPEC

import tabulae as tb
from tabulae.estimation import table_half_widths
from tabulae.estimation.coverage import half_widths
from tabulae.products.areas.plan import GeographyPlan, plan_geography
from tabulae.products.groups.plan import DetailedPlan, plan_detailed
from tabulae.products.smallest import with_amount
from tabulae.products.tables.plan import Plan, plan_tables
from tabulae.report.plan_page import errors, plan_page, plan_view
from tabulae.report.plan_page import view as live
from tabulae.report.plan_page.errors import plan_at, table_errors_at
from tabulae.report.plan_page.page import render_plan
from tabulae.report.plan_page.view import OWN, REACH, SMALLEST, PlanView, Stop, amounts_around, round_amounts
from tabulae.strategy import law_variances
from tabulae.strategy.information.routes import information

_AIMS = {
    'attributes = ["sex", "age"]': "\ntarget = { rmse = 4 }",
    'queries = { age = "ranges" }': "\ntarget = { margin = 20, confidence = 0.9 }",
}
_PROMISES = {
    "gaussian": ('definition = "zcdp"', '[method]\nselect = "auto"'),
    "laplace": ('definition = "pure"', '[method]\nselect = "workload"\nnoise = "laplace"'),
    "approximate": ('definition = "approx"', '[method]\nselect = "hdmm"\nnoise = "gaussian"'),
    "approximate-laplace": ('definition = "approx"', '[method]\nselect = "identity"\nnoise = "laplace"'),
    "whole-counts": ('definition = "zcdp"', '[method]\nselect = "marginals"'),
    "cells": ('definition = "zcdp"', '[method]\nselect = "identity"'),
}


def _village(path: Path, promise: str = "gaussian", *, aimed: bool = False) -> Path:
    definition, method = _PROMISES[promise]
    text = path.read_text().replace('definition = "zcdp"', definition)
    if definition == 'definition = "pure"':
        text = text.replace('delta = "1e-10"\n', "")
    for passage, aim in _AIMS.items() if aimed else ():
        text = text.replace(passage, passage + aim)
    path.write_text(f"{text}\n{method}\n")
    return path


@pytest.fixture(scope="module")
def aimed(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The plan of a village of which two tables have targets."""
    folder = tmp_path_factory.mktemp("aimed")
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return plan_tables(_village(folder / "spec.toml", aimed=True))


@pytest.fixture(scope="module")
def aimed_view(aimed: Plan) -> PlanView:
    """What its page shows."""
    return plan_view(aimed)


def _sampled(view: PlanView, count: int = 7) -> list[int]:
    """Positions spread over the slider, both ends and the plan's own among them, and neighbours of knots."""
    last = len(view.stops) - 1
    return sorted({*(last * i // (count - 1) for i in range(count)), view.own, 1, 4, last - 1})


def _anew(plan: Plan, loss: tb.PrivacyLoss) -> dict[str, tuple[float, float]]:
    """RMSE and margin of every table with the strategy of a plan and the laws that a budget pays for."""
    laws = plan.strategy.laws(loss, plan.spec.neighbours)
    info = information(plan.strategy, law_variances(plan.strategy, laws))
    return {
        table.name: (
            math.sqrt(info.variance(table.operator(plan.spec.domain)).mean()),
            table_half_widths(plan.strategy, info, laws, table, plan.level).values.max(),
        )
        for table in plan.spec.workload.tables
    }


@pytest.mark.parametrize(
    "promise",
    [pytest.param(p, marks=pytest.mark.long if p.startswith("approximate") else ()) for p in _PROMISES],
)
def test_tables_have_the_errors_of_a_plan_made_anew(village: Path, promise: str) -> None:
    plan = plan_tables(_village(village, promise))
    own = plan.spec.loss.amount
    near = [amount for amount in amounts_around(own, None) if own / 12 <= amount <= 12 * own]
    stops = [
        Stop(with_amount(plan.spec.loss, amount), amount / own, (), OWN if amount == own else "")
        for amount in sorted({*near[::3], own})
    ]
    table = table_errors_at(plan, stops)
    for at in (0, 1, 5, len(stops) // 2, len(stops) - 1):
        wanted = _anew(plan, stops[at].loss)
        for row in table.rows:
            assert row.errors[at].numbers == pytest.approx(wanted[row.labels[0]], rel=1e-6)
            assert not row.errors[at].at_most


@pytest.mark.parametrize("promise", ["gaussian", "laplace"])
def test_errors_between_computed_budgets_lie_on_curves(
    village: Path, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer half-widths are computed than stops are shown, and none is further off than a page could show."""
    plan = plan_tables(_village(village, promise))
    own = plan.spec.loss.amount
    stops = [
        Stop(with_amount(plan.spec.loss, amount), amount / own, (), OWN if amount == own else "")
        for amount in amounts_around(own, None)
    ]
    computed = []
    monkeypatch.setattr(errors, "half_widths", lambda *given: computed.append(given) or half_widths(*given))
    rows = table_errors_at(plan, stops).rows
    assert len(computed) < 0.8 * len(rows) * len(stops)
    for at in range(0, len(stops), 5):
        wanted = _anew(plan, stops[at].loss)
        for row in rows:
            assert row.errors[at].numbers == pytest.approx(wanted[row.labels[0]], rel=5e-4)


def test_the_smallest_budget_and_the_plans_own_are_computed(
    village: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever curves would say: there targets are judged."""
    plan = plan_tables(_village(village, "laplace"))
    own = plan.spec.loss.amount
    amounts = amounts_around(own, None)
    kinds = {own: OWN, amounts[-3]: SMALLEST}
    stops = [Stop(with_amount(plan.spec.loss, each), each / own, (), kinds.get(each, "")) for each in amounts]
    monkeypatch.setattr(errors, "_ON_CURVE", 1.0)
    rows = table_errors_at(plan, stops).rows
    for at in (len(amounts) - 3, amounts.index(own)):
        wanted = _anew(plan, stops[at].loss)
        for row in rows:
            assert row.errors[at].numbers == pytest.approx(wanted[row.labels[0]], rel=1e-9)


@pytest.mark.parametrize("amount", [60, 5000, 100_000])
def test_budgets_at_which_noise_is_nearly_always_nothing_are_shown(village: Path, amount: int) -> None:
    """Their variances are too small to be divided by."""
    plan = plan_tables(_village(village, "laplace"))
    own = Fraction(amount)
    stops = [
        Stop(with_amount(plan.spec.loss, each), each / own, (), OWN if each == own else "")
        for each in {own, *amounts_around(own, None)[::2]}
    ]
    stops.sort(key=lambda stop: stop.factor)
    for row in table_errors_at(plan, stops).rows:
        for at in (0, len(stops) // 2, len(stops) - 1):
            wanted = _anew(plan, stops[at].loss)[row.labels[0]]
            assert row.errors[at].numbers == pytest.approx(wanted, rel=1e-6, abs=1e-290)


@pytest.mark.long
def test_targets_are_judged_as_a_plan_made_anew_judges_them(aimed: Plan, aimed_view: PlanView) -> None:
    plan, view = aimed, aimed_view
    assert {row.labels[0] for row in view.errors.rows if row.target} == {"sex_by_age", "ages"}
    for at in (3,):
        anew = Plan(plan.spec.with_budget(view.stops[at].loss), plan.strategy)
        for row, wanted in zip(view.errors.rows, anew.table_errors, strict=True):
            assert row.errors[at].met == wanted.met
            assert row.errors[at].numbers == pytest.approx((wanted.rmse, wanted.margin), rel=1e-6)


@pytest.mark.long
def test_a_target_is_missed_below_the_smallest_budget_and_met_from_there(aimed_view: PlanView) -> None:
    view = aimed_view
    assert view.smallest is not None
    assert view.aim is not None
    amounts = [stop.loss.amount for stop in view.stops]
    assert amounts == sorted(amounts)
    met = [all(row.errors[at].met for row in view.errors.rows if row.target) for at in range(len(amounts))]
    assert met == [at >= view.smallest for at in range(len(amounts))]
    assert amounts[view.smallest] == view.aim.loss.amount
    assert live.texts(view, view.smallest)["targets"] == "✓ 2 of 2 targets met."
    assert live.texts(view, 0)["targets"] == "✗ 0 of 2 targets met."


def test_promises_are_the_definitions_own(aimed_view: PlanView) -> None:
    view = aimed_view
    for at in _sampled(view):
        loss, reach = view.stops[at].loss, view.reaches[at]
        assert reach.epsilons == tuple(loss.epsilon(delta) for delta in view.deltas)
        assert reach.left == 1 - loss.amount
        exact = re.fullmatch(r'budget = "(.+)"', view.lines[at][0])
        assert exact is not None
        assert Fraction(exact[1]) == loss.amount
    assert [float(delta) for delta in view.deltas] == [1e-10, 1e-9, 1e-6]
    assert "would refuse" in live.texts(view, len(view.stops) - 1)["left"]


def test_groups_have_the_margins_of_a_plan_made_anew(guild: Path) -> None:
    plan = plan_detailed(guild)
    view = plan_view(plan)
    for at in _sampled(view):
        stop = view.stops[at]
        assert plan_at(plan, stop).loss.amount == stop.loss.amount
        text = guild.read_text()
        for budget, amount in zip(plan.budgets, stop.levels, strict=True):
            text = re.sub(
                rf'(\[\[detailed.level\]\][^\[]*?)budget = "{budget.amount}"',
                rf'\1budget = "#{amount}"',
                text,
                count=1,
            )
        text = re.sub(r'(\[privacy\][^\[]*?)budget = "[^"]*"', r'\1budget = "1000000"', text, count=1)
        moved = guild.with_name("moved.toml")
        moved.write_text(text.replace('"#', '"'))
        anew = tb.plan(moved)
        assert isinstance(anew, DetailedPlan)
        assert [b.amount for b in anew.budgets] == list(stop.levels)
        for row, wanted in zip(view.errors.rows, anew.table_errors, strict=True):
            assert row.errors[at].numbers == (wanted.rmse, wanted.margin)


@pytest.mark.parametrize("definition", ["zcdp", pytest.param("pure", marks=pytest.mark.long)])
def test_areas_never_have_less_than_the_error_of_a_plan_made_anew(duchy: Path, definition: str) -> None:
    text = duchy.read_text()
    if definition == "pure":
        text = text.replace('definition = "zcdp"', 'definition = "pure"').replace('delta = "1e-10"\n', "")
        text += '\n[method]\nnoise = "laplace"\n' if "[method]" not in text else ""
    duchy.write_text(text)
    plan = plan_geography(duchy)
    view = plan_view(plan)
    exact = 0
    for at in _sampled(view, 3):
        duchy.write_text(text.replace('budget = "2"', f'budget = "{view.stops[at].loss.amount}"'))
        anew = tb.plan(duchy)
        assert isinstance(anew, GeographyPlan)
        for row, wanted in zip(view.errors.rows, anew.table_errors, strict=True):
            truth = (wanted.rmse, wanted.largest, wanted.margin)
            found = row.errors[at]
            if found.at_most:
                assert all(f >= t * (1 - 1e-9) for f, t in zip(found.numbers, truth, strict=True))
            else:
                assert found.numbers == pytest.approx(truth, rel=1e-6)
                exact += 1
    assert exact >= len(view.errors.rows)


def test_numbers_of_areas_are_exact_where_all_noise_is_above_one_count(duchy: Path) -> None:
    plan = plan_geography(duchy)
    view = plan_view(plan)
    for at, stop in enumerate(view.stops):
        growth = plan.loss.amount / stop.loss.amount
        if all(law.parameter * growth >= 1 for law in plan.spine_plan.all_laws):
            assert not any(row.errors[at].at_most for row in view.errors.rows)
    assert any(errors.at_most for row in view.errors.rows for errors in row.errors)


def test_the_slider_stops_at_round_budgets_close_together() -> None:
    amounts = amounts_around(Fraction(1, 3), Fraction(7))
    assert Fraction(1, 3) in amounts
    assert Fraction(7) in amounts
    assert amounts[0] <= Fraction(1, 3) / REACH * Fraction(11, 10)
    assert amounts[-1] >= 7 * REACH / Fraction(11, 10)
    assert max(b / a for a, b in pairwise(amounts)) <= Fraction(11, 10)
    for amount in round_amounts(Fraction(1, 1000), Fraction(1000)):
        assert len(re.sub(r"e.*|\.|^0+|0+$", "", f"{float(amount):.9e}".partition("e")[0].rstrip("0."))) <= 2


def test_hostile_words_stay_text(village: Path) -> None:
    text = village.read_text().replace('title = "Village"', 'title = "</script><script>alert(1)</script>&"')
    text = text.replace('unit = "person"', 'unit = "<img src=x>"')
    village.write_text(
        f"{text}\n[[invariant]]\nattributes = []\nreason = '<img src=x onerror=\"alert(2)\">'\n"
        '[method]\nselect = "identity"\n'
    )
    page = plan_page(plan_tables(village))
    parsed = Page(page)
    assert parsed.open == []
    assert "img" not in parsed.tags
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page
    assert "&lt;img src=x onerror=" in page


def test_data_cannot_end_their_element(aimed_view: PlanView) -> None:
    row = replace(aimed_view.errors.rows[0], labels=("</script><b>",))
    lines = (("</script><!--\u2028",), *aimed_view.lines[1:])
    errors = replace(aimed_view.errors, rows=(row, *aimed_view.errors.rows[1:]))
    text = live.data(replace(aimed_view, lines=lines, errors=errors))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["stops"][0]["texts"]["line"] == "</script><!--\u2028"


def _moving(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="plan-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_is_whole_without_its_script(aimed: Plan, aimed_view: PlanView) -> None:
    view, page = aimed_view, render_plan(aimed_view)
    moving = _moving(page)
    assert page == plan_page(aimed)
    assert len(moving["stops"]) == len(view.stops)
    assert moving["own"] == view.own
    own = moving["stops"][view.own]
    shown = re.findall(r"data-number>([^<]*)<", page)
    assert shown == [number for row in own["rows"] for number in row]
    for name, text in re.findall(r'data-live="([^"]+)">([^<]*)<', page):
        assert text.replace("&#34;", '"') == own["texts"][name]
    assert moving["targets"] == [1, 0, 1, 0]
    assert len(set(Page(page).ids)) == len(Page(page).ids)
    assert {link[1:] for link in Page(page).links} <= set(Page(page).ids)
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_what_the_exact_counts_give_away_stands_first(village: Path) -> None:
    one = "SELECT COUNT(*) FROM people WHERE sex = 'F' AND age = 3 AND race = 'b'"
    text = f'{village.read_text()}\n[[invariant]]\nname = "one"\nsql = "{one}"\nreason = "published before"\n'
    village.write_text(text)
    plan = plan_tables(village)
    assert plan.warnings
    page = plan_page(plan)
    banner = page.index('class="banner"')
    assert banner < page.index('id="slider"')
    assert page.index("published before") > banner
    assert "from the exact counts" not in page[:banner]


def test_two_hundred_tables_keep_the_page_small(aimed_view: PlanView) -> None:
    rows = tuple(
        replace(aimed_view.errors.rows[i % 4], labels=(f"a table of some length {i}",)) for i in range(200)
    )
    many = replace(aimed_view, errors=replace(aimed_view.errors, rows=rows, in_all=230))
    page = render_plan(many)
    assert len(page.encode()) < 2_000_000
    assert "200 of 230 rows are shown" in page


def test_margins_of_few_steps_are_those_of_the_law_drawn(village: Path) -> None:
    text = village.read_text()
    village.write_text(text[: text.index('[[table]]\nname = "ages"')])
    plan = plan_tables(_village(village, "cells"))
    view = plan_view(plan)
    row = next(row for row in view.errors.rows if row.labels == ("sex_by_age",))
    for at, stop in enumerate(view.stops):
        law = plan.strategy.laws(stop.loss)[0]
        assert row.errors[at].numbers[0] == pytest.approx(math.sqrt(3 * law.variance_of_law), rel=1e-6)
    steps = {round(errors.numbers[1], 6) for errors in row.errors}
    assert all(step == int(step) for step in steps)
