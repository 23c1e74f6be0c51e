"""Faults planted in the path, each of which the audit must find and name."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.audit.specs import fails, told_of_rows_left_out, write_spec

import tabulae as tb
from tabulae.audit.checks import derived_checks
from tabulae.audit.largest import largest_change
from tabulae.linalg import Dense, Sensitivity
from tabulae.measurement import Measurement
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, LeftOut, SystemSource
from tabulae.products.tables import count, product
from tabulae.products.tables import measure as _measure
from tabulae.products.tables.plan import Plan
from tabulae.sources.source import RecordSource
from tabulae.strategy import Block, Strategy, strategy

Rows = list[list[str]]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """Plans by definition, made before anything is broken."""
    folders = {name: tmp_path_factory.mktemp("plan") for name in ("pure", "zcdp")}
    return {name: tb.plan(write_spec(f, definition=name)) for name, f in folders.items()}


def _records_edited(monkeypatch: pytest.MonkeyPatch, edit: Callable[[Rows], Rows]) -> None:
    """Let the engine see other records than those in the file."""
    real = product.tabulate

    def faulty(records: RecordSource, *arguments: Any, **options: Any) -> Any:
        import csv

        path = records.path.with_suffix(".edited.csv")
        with records.path.open(newline="") as file:
            header, *rows = csv.reader(file)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *edit(rows)])
        return real(RecordSource(path), *arguments, **options)

    monkeypatch.setattr(product, "tabulate", faulty)


def test_a_doubled_row(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    _records_edited(monkeypatch, lambda rows: [*rows, *(row for row in rows if row[0] == "F")])
    made = fails(plans["zcdp"], "noise", "remove one", "add one")
    assert made["add one"].observed == 4.0  # twice the change, squared


@pytest.mark.long
def test_the_last_row_doubled(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    _records_edited(monkeypatch, lambda rows: [*rows, rows[-1]])
    fails(plans["pure"], "noise", "add one")


def test_a_truncation_that_lets_others_in(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 250 records by age: without one of them, the next one is counted in its place."""
    _records_edited(monkeypatch, lambda rows: sorted(rows, key=lambda row: (int(row[1]), row))[:250])
    fails(plans["zcdp"], "noise", "remove one")


def test_a_truncation_after_weights(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records weighted to a fixed total, fractions cut: one record changes the weight of all others."""

    def weighted(counts: tb.Counts, op: Any, answer: Any = tb.Counts.answer) -> np.ndarray:
        return answer(counts, op) * 3000 // max(1, counts.total)

    monkeypatch.setattr(tb.Counts, "answer", weighted)
    fails(plans["zcdp"], "noise", "remove one", "add one")


def test_answers_that_are_clipped(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    real = tb.Counts.answer
    monkeypatch.setattr(tb.Counts, "answer", lambda counts, op: np.minimum(real(counts, op), 3))
    fails(plans["zcdp"], "noise")


def test_a_group_key_taken_from_the_data(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only cells with somebody in them are asked about."""
    real = product.measure

    def keyed(counts: tb.Counts, asked: Strategy, *arguments: Any, **options: Any) -> Measurement:
        blocks = []
        for block in asked.blocks:
            present = np.flatnonzero(counts.answer(block.query))
            blocks.append(Block(block.name, Dense(block.query.dense()[present]), block.exponent, block.scale))
        return real(counts, dataclasses.replace(asked, blocks=tuple(blocks)), *arguments, **options)

    monkeypatch.setattr(product, "measure", keyed)
    fails(plans["zcdp"], "shape")


def test_rows_left_out_where_nobody_is(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """The path itself stops here, and so every check says why it could not be made."""
    real = tb.Counts.answer
    monkeypatch.setattr(tb.Counts, "answer", lambda counts, op: real(counts, op)[real(counts, op) > 0])
    made = fails(plans["zcdp"], "shape", "noise", "law")
    assert "InvalidArgument" in made["shape"].detail


@pytest.mark.parametrize("definition", [pytest.param("pure", marks=pytest.mark.long), "zcdp"])
def test_a_sensitivity_halved(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, definition: str
) -> None:
    real = Strategy.sensitivity

    def halved(asked: Strategy, *arguments: Any) -> Sensitivity:
        found = real(asked, *arguments)
        return Sensitivity(found.power / 2**asked.norm, asked.norm, is_exact=found.is_exact)

    monkeypatch.setattr(Strategy, "sensitivity", halved)
    fails(plans[definition], "sensitivity", "law", "remove one", "add one")


@pytest.mark.parametrize(
    ("definition", "power"), [("pure", 1), pytest.param("zcdp", 2, marks=pytest.mark.long)]
)
def test_a_calibration_for_half_the_sensitivity(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, definition: str, power: int
) -> None:
    real = strategy.calibrate
    monkeypatch.setattr(strategy, "calibrate", lambda b, n, s: real(b, n, s / 2**power))
    made = fails(plans[definition], "law", passes=["sensitivity"])
    assert made["law"].observed == 2.0**power


@pytest.mark.long
def test_a_law_that_is_slightly_too_narrow(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters are compared as fractions: one part in 10^15 is found."""
    real = strategy.calibrate
    monkeypatch.setattr(strategy, "calibrate", lambda b, n, s: real(b, n, s) * (1 - Fraction(1, 10**15)))
    fails(plans["zcdp"], "law")
    monkeypatch.setattr(strategy, "calibrate", lambda b, n, s: real(b, n, s) * (1 + Fraction(1, 10**15)))
    assert "more noise" in fails(plans["zcdp"], "law")["law"].detail


@pytest.mark.long
def test_noise_at_a_quarter_of_its_scale(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement says one law and another is drawn."""
    real = _measure._noisy

    def narrow(answer: np.ndarray, law: Any, source: Any) -> np.ndarray:
        return real(answer, type(law)(law.parameter / 16), source)

    monkeypatch.setattr(_measure, "_noisy", narrow)
    fails(plans["zcdp"], "noise", "epsilon", seconds=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("definition", "law"),
    [("pure", DiscreteLaplace), ("zcdp", DiscreteGaussian)],
)
def test_a_sampler_at_half_scale(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, definition: str, law: Any
) -> None:
    """The law itself is drawn wrong, so only what comes out can tell."""
    real = law.sample
    part = 2 if law is DiscreteLaplace else 4
    monkeypatch.setattr(
        law, "sample", lambda self, size, source=None: real(law(self.parameter / part), size, source)
    )
    others = "replay", "row-order", "shape", "sensitivity", "law", "budget", "draws"
    fails(plans[definition], "epsilon", passes=others, seconds=1)


def test_noise_drawn_anew(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    real = product.measure

    def redrawn(*arguments: Any, **options: Any) -> Measurement:
        return real(*arguments, **options | {"source": SystemSource()})

    monkeypatch.setattr(product, "measure", redrawn)
    fails(plans["zcdp"], "replay", "noise", "draws", "add one")


def test_draws_that_depend_on_the_order_of_rows(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, order = product.measure, [0]

    def remember(rows: Rows) -> Rows:
        order[0] = hashlib.sha256(repr(rows).encode()).digest()[0] % 5
        return rows

    def late(*arguments: Any, source: Any, **options: Any) -> Measurement:
        source.u64(order[0])
        return real(*arguments, source=source, **options)

    _records_edited(monkeypatch, remember)
    monkeypatch.setattr(product, "measure", late)
    fails(plans["zcdp"], "row-order", "draws")


def test_noise_given_out_by_rank(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest noise goes to the largest count: no word more is drawn, but the order tells."""
    real = _measure._noisy

    def ranked(answer: np.ndarray, law: Any, source: Any) -> np.ndarray:
        noise = np.sort(real(np.zeros_like(answer), law, source))
        return answer + noise[np.argsort(np.argsort(answer, kind="stable"))]

    monkeypatch.setattr(_measure, "_noisy", ranked)
    fails(plans["zcdp"], "noise", "add one", passes=["draws"])


def test_a_budget_spent_twice(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    real = product.measure

    def dear(counts: tb.Counts, asked: Strategy, budget: tb.ZCDP, **options: Any) -> Measurement:
        return real(counts, asked, type(budget)(2 * budget.amount), **options)

    monkeypatch.setattr(product, "measure", dear)
    made = fails(plans["zcdp"], "budget")
    assert made["budget"].observed == 2.0


def test_an_audit_that_could_be_published(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    real = product.measure
    monkeypatch.setattr(
        product, "measure", lambda *a, **o: dataclasses.replace(real(*a, **o), rehearsal=False)
    )
    fails(plans["zcdp"], "rehearsal")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan of units whose rows left out are counted."""
    units = 'unit_id = "id"\nrows_per_unit = 2'
    return tb.plan(told_of_rows_left_out(write_spec(tmp_path_factory.mktemp("told"), units=units)))


@pytest.mark.parametrize(
    "found",
    [("noise", "add one"), pytest.param(("noise", "add one", "remove one"), marks=pytest.mark.long)],
    ids=len,
)
def test_rows_left_out_that_are_not_bounded(
    told: Plan, monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...]
) -> None:
    """Each unit counts with all of its rows too many."""
    real = count.left_out
    monkeypatch.setattr(
        count, "left_out", lambda table, unit: real(table, dataclasses.replace(unit, most_left_out=10**6))
    )
    monkeypatch.setattr(count, "_beyond", _beyond_unchecked)
    fails(told, *found)


def _beyond_unchecked(source: Any, table: Any, unit: Any, rows: int) -> np.ndarray:
    found = count.left_out(table, unit).to_pyarrow().to_pylist()[0]
    return np.array([found["units"], found["rows"]])


def _of_another_budget(factor: str) -> Callable[..., object]:
    real = LeftOut.laws
    return lambda rule, budget, noise: real(rule, budget.scaled(factor), noise)


WRONG_PARTS: dict[str, tuple[str, object, str]] = {
    "noise of the rows as of one row": ("sensitivities", property(lambda rule: (1, 1)), "left out"),
    "tables that spend all": ("of_tables", lambda rule, budget: budget, "law"),
    "the share spent on each count": ("laws", _of_another_budget("2"), "left out"),
    "half of the share": ("laws", _of_another_budget("1/2"), "left out"),
}


@pytest.mark.parametrize("fault", WRONG_PARTS)
def test_parts_of_the_budget_that_are_not_the_whole(
    told: Plan, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Derived anew, without replays: too much is spent of the budget, or too little."""
    name, wrong, found = WRONG_PARTS[fault]
    spec, strategy = told.spec, told.strategy
    worst = largest_change(strategy, spec.neighbours, np.random.default_rng(1))

    def failed() -> set[str]:
        counts = tb.Counts.from_cells(spec.domain, [], None, np.array([3, 5]))
        done = product.Prepared(told, counts).measure(None, tb.noise.Insecure(1))
        return {check.name for check in derived_checks(told, done, worst) if not check.passed}

    assert failed() == set()
    monkeypatch.setattr(LeftOut, name, wrong)
    assert failed() == {found}


@pytest.mark.long
def test_one_draw_for_both_counts(told: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _measure._noisy
    kept: dict[int, np.ndarray] = {}

    def once(answer: np.ndarray, law: Any, source: Any) -> np.ndarray:
        if answer.size > 1:
            return real(answer, law, source)
        noise = kept.setdefault(
            id(source), law.sample(1, source) if id(source) not in kept else kept[id(source)]
        )
        return answer + noise

    monkeypatch.setattr(_measure, "_noisy", once)
    fails(told, "noise")
