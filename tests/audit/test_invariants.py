"""The audit under exact counts: clean where the promise is kept, and planted faults that it must find."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.audit.specs import fails, write_spec

import tabulae as tb
from tabulae.audit import audit
from tabulae.audit.largest import columns, largest_change, told_apart
from tabulae.linalg import Identity, LinearOperator, Sensitivity
from tabulae.measurement import Measurement
from tabulae.products.tables import product
from tabulae.products.tables.count import Counts
from tabulae.products.tables.plan import Plan
from tabulae.strategy import Strategy, strategy

NEIGHBOURS = ("add-remove", "replace", "replace-within-invariants")
WITHIN = NEIGHBOURS[2]

EXACT = """
[[invariant]]
attributes = []
reason = "the register"

[[invariant]]
attributes = ["young"]
reason = "law"
"""

CROSSING = """
[[invariant]]
name = "older"
sql = "SELECT sex, COUNT(*) FROM people WHERE age >= 5 OR race = 'b' GROUP BY sex"
reason = "law"
"""


def _spec(folder: Path, neighbours: str, invariants: str, **options: Any) -> Path:
    path = write_spec(folder, neighbours=neighbours, method="kron", queries="identity", **options)
    path.write_text(path.read_text() + invariants)
    return path


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """Plans by neighbours, made before anything is broken."""
    return {n: tb.plan(_spec(tmp_path_factory.mktemp("plan"), n, EXACT)) for n in NEIGHBOURS}


# clean ---------------------------------------------------------------------------------------------------


KINDS = {"groups": EXACT, "crossing": CROSSING}


@pytest.mark.long
@pytest.mark.parametrize("definition", ["zcdp", "pure"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_what_is_kept_passes(tmp_path: Path, neighbours: str, kind: str, definition: str) -> None:
    invariants = KINDS[kind]
    made = audit(_spec(tmp_path, neighbours, invariants, definition=definition), seconds=0.05)
    assert made.failed == (), [c for c in made.checks if not c.passed]
    assert made["exact"].detail == f"4 inputs, {4 if invariants == EXACT else 2} counts each"
    assert "equal, exactly" in made["sensitivity"].detail
    if neighbours != "add-remove":
        assert made["replace one"].observed == pytest.approx(1.0)


def test_pairs_within_invariants_by_brute_force(plans: dict[str, Plan]) -> None:
    """Every pair of the 2 x 10 x 4 x 3 cells with equal columns of C, and no other, may be neighbours."""
    asked = plans[WITHIN].strategy
    domain = asked.domain
    cells = np.stack(np.unravel_index(np.arange(domain.size), domain.shape), axis=1)
    exact = np.concatenate([t.operator(domain).dense() for t in asked.invariants])
    classes = np.unique(exact, axis=1, return_inverse=True)[1].reshape(-1)
    labels = told_apart(asked, cells)
    assert np.array_equal(labels[:, None] == labels, classes[:, None] == classes)
    found = largest_change(asked, WITHIN, np.random.default_rng(0))
    best = 0.0
    for block in asked.blocks:
        written = columns(block.query, cells, domain.shape).astype(float)
        gram = written.T @ written
        apart = gram.diagonal()[:, None] + gram.diagonal() - 2 * gram
        best += np.where(labels[:, None] == labels, apart, 0.0).max() / (
            float(block.scale) * 4.0**block.exponent
        )
    assert len(asked.blocks) == 1
    assert float(found.power) == pytest.approx(best)
    assert found.exhaustive
    wide = largest_change(asked, "replace", np.random.default_rng(0))
    assert found.power <= wide.power


def test_a_search_within_invariants_stays_within_them(plans: dict[str, Plan]) -> None:
    from tabulae.audit.largest import _search_within

    asked = plans[WITHIN].strategy
    found = _search_within(asked, np.random.default_rng(1))
    labels = told_apart(asked, np.array(found.cells))
    assert labels[0] == labels[1]
    assert not found.exhaustive
    most = largest_change(asked, WITHIN, np.random.default_rng(0)).power
    assert most / 2 <= found.power <= most


# planted faults ------------------------------------------------------------------------------------------------


def test_exact_counts_of_others(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """One exact count is off by one: it is not what the records say."""
    real = product.measure

    def off(*arguments: Any, **options: Any) -> Measurement:
        made = real(*arguments, **options)
        return dataclasses.replace(made, exact=(made.exact[0] + 1, *made.exact[1:]))

    monkeypatch.setattr(product, "measure", off)
    made = fails(plans["add-remove"], "exact", passes=["replay", "noise", "draws"])
    assert made["exact"].observed == 4.0


@pytest.mark.long
def test_exact_counts_with_noise(plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    real = product.measure

    def noisy(*arguments: Any, **options: Any) -> Measurement:
        made = real(*arguments, **options)
        return dataclasses.replace(
            made, exact=tuple(v + np.random.default_rng().integers(9) for v in made.exact)
        )

    monkeypatch.setattr(product, "measure", noisy)
    fails(plans["replace"], "replay", "exact")


def test_noise_that_depends_on_the_exact_counts(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact total is added to the first noisy answer: it comes with the guarantee no longer."""
    real = product.measure

    def mixed(*arguments: Any, **options: Any) -> Measurement:
        made = real(*arguments, **options)
        values = made.values.copy()
        values[0] += int(made.exact[0][0])
        return dataclasses.replace(made, values=values)

    monkeypatch.setattr(product, "measure", mixed)
    fails(plans["add-remove"], "noise", "add one")


@pytest.mark.parametrize(
    "neighbours", [*(pytest.param(other, marks=pytest.mark.long) for other in NEIGHBOURS[:2]), WITHIN]
)
def test_a_sensitivity_halved(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, neighbours: str
) -> None:
    real = Strategy.sensitivity

    def halved(asked: Strategy, *arguments: Any) -> Sensitivity:
        found = real(asked, *arguments)
        return Sensitivity(found.power / 2**asked.norm, asked.norm, is_exact=found.is_exact)

    monkeypatch.setattr(Strategy, "sensitivity", halved)
    fails(plans[neighbours], "sensitivity", "law", "add one" if neighbours == "add-remove" else "replace one")


def test_neighbours_bound_by_more_than_is_exact(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensitivity is taken over pairs that agree on sex too, which no exact count asks for."""
    made = plans[WITHIN]
    true = made.strategy.sensitivity(WITHIN)  # before anything is broken: it is remembered
    by_sex = tb.Table("sex", {"sex": tb.Identity(2)})
    real = strategy.within_invariants

    def narrower(blocks: Any, p: int, domain: Any, exact: Any) -> Sensitivity:
        from tabulae.domain import Invariants

        return real(blocks, p, domain, Invariants(domain, [*exact.tables, by_sex]))

    monkeypatch.setattr(strategy, "within_invariants", narrower)
    fresh = Plan(made.spec, dataclasses.replace(made.strategy))
    assert fresh.strategy.sensitivity(WITHIN).power < true.power
    fails(fresh, "sensitivity", "replace one")


def test_neighbours_that_the_exact_counts_tell_apart(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts that were not to be exact are stated too: the promised neighbours differ in them."""
    real = Counts.records

    def leaking(counts: Counts, op: LinearOperator) -> np.ndarray:
        exact = real(counts, op)
        if exact.size == 3:  # by young
            cells = counts.answer(Identity(counts.domain.size))
            exact[0] += cells @ np.arange(cells.size)
        return exact

    monkeypatch.setattr(Counts, "records", leaking)
    fails(plans[WITHIN], "exact")
