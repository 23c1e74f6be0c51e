"""The boundary of adaptive tabulation: what it charges, what it draws, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.measure.groups import (
    GROUPS,
    LADDER,
    LEAVES,
    NATION,
    SEXES,
    TOWN,
    Quiet,
    Records,
    plan,
    some_records,
)

import tabulae as tb
from tabulae.domain.groups import Ladder, Regions
from tabulae.errors import BudgetRefused, InvalidArgument
from tabulae.privacy import ZCDP, DiscreteGaussian, DiscreteLaplace, NoiseLaw, PureDP, SystemSource
from tabulae.products.groups.levels import TOTAL, TOTAL_ONLY, AdaptivePlan, GroupMeasurement, PopulationLevel
from tabulae.products.groups.measure import measure_groups

BUDGETS = {"zcdp": ZCDP(2), "pure": PureDP(4)}


def _measured(made: AdaptivePlan, records: list, source: object) -> list[GroupMeasurement]:
    return list(measure_groups(Records(made, records), made, source=source))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", BUDGETS)
def test_without_noise_every_number_is_the_truth(kind: str) -> None:
    made, rungs = plan(BUDGETS[kind]), set()
    for people in (10, 300):
        rungs |= _check_truth(made, some_records(people))
    assert rungs == {TOTAL_ONLY, TOTAL, 1, 2}


def _check_truth(made: AdaptivePlan, records: list) -> set[int]:
    """Every number of a run without noise against the counts; the rungs that occurred."""
    rungs: set[int] = set()
    pieces = _measured(made, records, Quiet())
    for piece in pieces:
        level = made.levels[piece.level]
        chunk = list(Records(made, records).chunks(piece.level))[piece.first]
        truth = chunk.totals()
        total_only = level.groups.total_only
        assert (piece.totals == truth).all()
        assert (piece.stage_one == np.where(total_only, 0, truth)).all()
        assert (piece.rung == np.where(total_only, TOTAL_ONLY, np.digitize(truth, level.thresholds))).all()
        for rung, (places, cells) in piece.cells.items():
            table = level.ladder.rungs[rung - 1]
            assert (cells == chunk.cells(places, table.of_class, table.cells)).all()
            assert (cells.sum(axis=1) == truth[places]).all()
        rungs |= set(piece.rung.tolist())
    assert sum(piece.regions for piece in pieces) == sum(level.regions.size for level in made.levels)
    return rungs


@pytest.mark.parametrize(
    ("neighbours", "rows", "times"),
    [("add-remove", 1, 1), ("replace", 1, 2), ("add-remove", 3, 9), ("replace", 3, 18)],
)
def test_the_law_is_the_one_that_the_budget_pays_for(neighbours: str, rows: int, times: int) -> None:
    """Variance s k^2 / (2 m rho), scale s k / (m epsilon); replace doubles."""
    level = plan(ZCDP(2), neighbours=neighbours, rows=rows).levels[0]
    s = level.proven.value
    assert level.first == DiscreteGaussian(Fraction(s * times, 4) * 10)
    assert level.second == DiscreteGaussian(Fraction(s * times, 4) * Fraction(10, 9))
    assert level.whole == DiscreteGaussian(Fraction(s * times, 4))
    pure = plan(PureDP(4), neighbours=neighbours, rows=rows).levels[0]
    linear = rows * (2 if neighbours == "replace" else 1)
    assert pure.first == DiscreteLaplace(Fraction(s * linear, 4) * 10)
    assert pure.whole == DiscreteLaplace(Fraction(s * linear, 4))


@pytest.mark.parametrize("kind", BUDGETS)
def test_noise_has_the_variance_of_its_law_at_every_stage(kind: str) -> None:
    """Mean squared standardised noise over 400 runs is 1; false alarm below 1e-6 for each of the stages (5.5 sigma)."""
    made = plan(BUDGETS[kind])
    found: dict[str, list[float]] = {"first": [], "second": [], "whole": []}
    for seed in range(400):
        for piece in _measured(made, [], tb.noise.Insecure(seed)):
            level = made.levels[piece.level]
            for name, rung in (("first", TOTAL), ("second", TOTAL), ("whole", TOTAL_ONLY)):
                values = (piece.stage_one if name == "first" else piece.totals)[
                    piece.rung >= 0 if name == "first" else piece.rung == rung
                ]
                law = getattr(level, name)
                found[name] += (values / np.sqrt(law.variance_of_law)).tolist()
            for _, cells in piece.cells.values():
                found["second"] += (cells.ravel() / np.sqrt(level.second.variance_of_law)).tolist()
    kurtosis = 7.0 if kind == "pure" else 3.0
    for values in found.values():
        squares = np.square(values)
        assert squares.mean() == pytest.approx(1, abs=5.5 * np.sqrt((kurtosis - 1) / squares.size))


@pytest.mark.parametrize("people", [0, 5, 40, 300])
def test_the_table_depends_on_the_noisy_count_alone(people: int) -> None:
    """Thresholds stand within the noise, for groups with people and without."""
    made, rungs = plan(ZCDP("1/50")), set()
    for seed in range(20):
        for piece in _measured(made, some_records(people, seed), tb.noise.Insecure(seed)):
            level = made.levels[piece.level]
            total_only = np.tile(level.groups.total_only, piece.regions)
            assert (piece.rung == np.where(total_only, TOTAL_ONLY, level.choose(piece.stage_one))).all()
            assert not piece.stage_one[total_only].any()
            rungs |= set(piece.rung.tolist())
            for rung, (places, _) in piece.cells.items():
                assert (places == np.flatnonzero(piece.rung == rung)).all()
    assert rungs == {TOTAL_ONLY, TOTAL, 1, 2}


def test_each_count_has_noise_of_the_law_of_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is recorded with its law, and takes a value of its own: each count shows which draw it was given."""
    drawn: dict[int, NoiseLaw] = {}

    def sample(law: NoiseLaw, size: int | tuple[int, ...], source: object = None) -> np.ndarray:
        marks = np.arange(int(np.prod(size)), dtype=np.int64).reshape(size) + 1000 * (len(drawn) + 1)
        drawn.update(dict.fromkeys(marks.ravel().tolist(), law))
        return marks

    made = plan(ZCDP(2))
    nobody = Records(made, [])
    monkeypatch.setattr(NoiseLaw, "sample", sample)
    for thresholds, rung in (((10**12, 10**12), TOTAL), ((0, 10**12), 1), ((0, 0), 2)):
        shaped = AdaptivePlan(tuple(replace(level, thresholds=thresholds) for level in made.levels))
        for piece in measure_groups(nobody, shaped, source=Quiet()):
            level = shaped.levels[piece.level]
            total_only = np.tile(level.groups.total_only, piece.regions)
            assert {drawn[y] for y in piece.stage_one[~total_only].tolist()} <= {level.first}
            assert {drawn[n] for n in piece.totals[total_only].tolist()} <= {level.whole}
            assert set(piece.rung[~total_only].tolist()) <= {rung}
            second = (
                piece.totals[~total_only] if rung == TOTAL else piece.cells.get(rung, (None, np.empty(0)))[1]
            )
            assert {drawn[n] for n in np.ravel(second).astype(int).tolist()} <= {level.second}
            for _, cells in piece.cells.values():
                assert cells.shape[1] == level.ladder.rungs[rung - 1].cells


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [((2**62, 2**62), "below 2\\^62"), ((5,), "1 thresholds for 2 tables"), ((7, 5), "must not fall")],
)
def test_thresholds_that_no_count_can_be_compared_with(thresholds: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        replace(plan(ZCDP(2)).levels[0], thresholds=thresholds)


def test_more_tables_than_a_rung_can_name() -> None:
    many = Ladder.of({"sex": 2}, [(f"t{i}", {"sex": SEXES}) for i in range(101)])
    with pytest.raises(InvalidArgument, match="100 tables at most"):
        replace(plan(ZCDP(2)).levels[0], ladder=many, thresholds=(0,) * 101)


def test_nothing_is_drawn_where_the_ledger_refuses(tmp_path: Path) -> None:
    class Counting(SystemSource):
        calls = 0

        def u64(self, n: int) -> np.ndarray:
            type(self).calls += 1
            return super().u64(n)

    made = plan(ZCDP(2))
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 5, "zcdp")
    with pytest.raises(BudgetRefused):
        measure_groups(Records(made, []), made, ledger=ledger, source=Counting())
    assert Counting.calls == 0
    assert not ledger.spent


def test_the_whole_loss_is_charged_before_the_first_draw(tmp_path: Path) -> None:
    made = plan(ZCDP(2))
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 10, "zcdp")
    done = measure_groups(Records(made, []), made, ledger=ledger)
    assert ledger.spent == made.loss.amount == 6
    assert not done.rehearsal
    assert len(list(done)) == 4


def test_an_insecure_source_is_a_rehearsal(tmp_path: Path) -> None:
    made = plan(ZCDP(2))
    assert measure_groups(Records(made, []), made, source=tb.noise.Insecure(1)).rehearsal
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 10, "zcdp")
    with pytest.raises(InvalidArgument, match="insecure"):
        measure_groups(Records(made, []), made, ledger=ledger, source=tb.noise.Insecure(1))
    assert not ledger.spent


def test_counts_of_another_plan_are_refused() -> None:
    made, other = plan(ZCDP(2)), AdaptivePlan(plan(ZCDP(2)).levels[1:])
    with pytest.raises(InvalidArgument, match="another plan"):
        list(measure_groups(Records(made, []), other))


def test_a_record_in_no_town_pays_for_the_nation_only() -> None:
    """The loss is that of the worst leaf; a leaf outside every region of a level does not pay for it."""
    made = plan(ZCDP(2))
    assert made.patterns == ((0, 2), (0, 1, 2))
    two = AdaptivePlan(
        tuple(
            PopulationLevel(
                regions, "1", GROUPS.at("1", regions.name), LADDER, (5, 30), ZCDP(rho), Fraction(1, 10)
            )
            for regions, rho in ((_only("here", 0), 3), (_only("there", 1), 5))
        )
    )
    assert two.loss == ZCDP(5)
    assert NATION.of_leaf.size == TOWN.of_leaf.size == LEAVES


def _only(name: str, leaf: int) -> Regions:
    return Regions.from_codes(name, ["1" if i == leaf else None for i in range(LEAVES)])


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_exact_loss_of_both_stages_is_within_the_budget(kind: str, neighbours: str) -> None:
    """All outputs of one level for two neighbouring data sets, by exact summation over the laws.

    Given what it chose, stage two is independent noise on counts of which the record moves one in each of its groups;
    so the divergence is the sum over those groups, and that of stage one adds (its law does not depend on the table).
    For zCDP, the Renyi divergence of one shifted count is compared at several orders; for pure DP the largest ratio.
    """
    level = plan(BUDGETS[kind], neighbours=neighbours).levels[0]
    s = level.proven.value
    moved = s * (2 if neighbours == "replace" else 1)
    for stages in ((level.first, level.second), (level.whole,)):
        if kind == "pure":
            total = sum(1 / law.parameter for law in stages) * moved
            assert total <= level.budget.amount
            continue
        for order in (1.5, 2.0, 8.0, 32.0):
            divergence = sum(_renyi(float(law.parameter), order) for law in stages) * moved
            assert divergence <= order * float(level.budget.amount) * (1 + 1e-9)


def _renyi(variance: float, order: float) -> float:
    """The Renyi divergence between a discrete Gaussian and itself moved by one, by summation."""
    k = np.arange(-2000, 2001, dtype=float)
    log_p, log_q = -k * k / (2 * variance), -((k - 1) ** 2) / (2 * variance)
    norm = np.logaddexp.reduce(log_p)
    return float(np.logaddexp.reduce(order * log_p + (1 - order) * log_q) - norm) / (order - 1)


def test_a_record_moves_each_stage_in_its_own_groups_only() -> None:
    """The same randomness for two neighbours: what differs is where the record belongs, by one."""
    made, records = plan(ZCDP(2)), some_records(200)
    more = [*records, (0, ("a", "b"), 3)]
    for one, two in zip(
        _measured(made, records, tb.noise.Insecure(3)),
        _measured(made, more, tb.noise.Insecure(3)),
        strict=True,
    ):
        level = made.levels[one.level]
        moved = two.stage_one - one.stage_one
        assert set(moved.tolist()) <= {0, 1}
        assert np.abs(moved).sum() <= level.proven.value
