"""The privacy boundary: what it charges, what it draws, what it refuses."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS

import tabulae as tb
from tabulae.errors import BudgetRefused, InvalidArgument, Unsupported
from tabulae.privacy import DiscreteGaussian, SystemSource

WORKLOAD = WORKLOADS["union"]


def _ledger(tmp_path: Path, cap: object = 1) -> tb.Ledger:
    return tb.Ledger.create(tmp_path / "ledger.db", cap, "zcdp")  # type: ignore[arg-type]


class _Counting(SystemSource):
    """The operating system's randomness, with a count of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def u64(self, n: int) -> np.ndarray:
        self.calls += 1
        return super().u64(n)


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("method", ["identity", "kron", "opt0", "workload"])
def test_noise_is_unbiased_and_has_the_variance_that_is_stated(noise: str, method: str) -> None:
    """Mean squared standardised noise over 300 draws is 1; false alarm below 1e-6 per case (5 sigma)."""
    strategy = tb.select(WORKLOAD, noise=noise, method=method)  # type: ignore[arg-type]
    x = np.random.default_rng(1).integers(0, 9, DOMAIN.size)
    truth = np.concatenate([np.ldexp((b.query @ x).astype(float), -b.exponent) for b in strategy.blocks])
    standardised = []
    for seed in range(300):
        m = tb.measure(x, strategy, BUDGETS[noise], source=tb.noise.Insecure(seed))
        standardised.append((np.concatenate(m.answers()) - truth) / np.sqrt(m.variance))
    draws = np.array(standardised)
    kurtosis = 6.0 if noise == "laplace" else 3.0
    assert (draws**2).mean() == pytest.approx(1, abs=5 * np.sqrt((kurtosis - 1) / draws.size))
    assert draws.mean() == pytest.approx(0, abs=5 / np.sqrt(draws.size))


def test_the_law_is_the_one_that_the_budget_pays_for() -> None:
    """One marginal at rho: sigma^2 = 1 / (2 rho), exactly; pure: scale = 1 / epsilon, exactly."""
    workload = tb.Workload.of(tb.Identity(4))
    zcdp = tb.measure(np.zeros(4, int), tb.select(workload, method="identity"), tb.ZCDP("3/14"))
    assert zcdp.laws[0].parameter == Fraction(7, 3)
    laplace = tb.select(workload, noise="laplace", method="identity")
    assert tb.measure(np.zeros(4, int), laplace, tb.PureDP("2/9")).laws[0].parameter == Fraction(9, 2)
    replace = tb.measure(np.zeros(4, int), laplace, tb.PureDP("2/9"), neighbours="replace")
    assert replace.laws[0].parameter == 9


def test_the_ledger_is_charged_before_noise_is_drawn(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    spent: list[Fraction] = []

    class Watching(SystemSource):
        def u64(self, n: int) -> np.ndarray:
            spent.append(ledger.spent)
            return super().u64(n)

    m = tb.measure(
        np.zeros(DOMAIN.size, int), tb.select(WORKLOAD), tb.ZCDP("1/2"), ledger=ledger, source=Watching()
    )
    assert spent
    assert set(spent) == {Fraction(1, 2)}
    assert not m.rehearsal
    assert ledger.state(str(m.release_id)) == "charged"


def test_a_refused_charge_draws_nothing(tmp_path: Path) -> None:
    source = _Counting()
    with pytest.raises(BudgetRefused):
        tb.measure(
            np.zeros(DOMAIN.size, int),
            tb.select(WORKLOAD),
            tb.ZCDP(2),
            ledger=_ledger(tmp_path),
            source=source,
        )
    assert source.calls == 0


def test_without_ledger_or_with_an_insecure_source_it_is_a_rehearsal(tmp_path: Path) -> None:
    strategy, x = tb.select(WORKLOAD), np.zeros(DOMAIN.size, int)
    assert tb.measure(x, strategy, tb.ZCDP(1)).rehearsal
    ledger = _ledger(tmp_path)
    with pytest.raises(InvalidArgument, match="rehearsal"):
        tb.measure(x, strategy, tb.ZCDP("1/2"), ledger=ledger, source=tb.noise.Insecure(1))
    assert ledger.spent == 0


def test_wrong_kinds_are_refused(tmp_path: Path) -> None:
    strategy, x = tb.select(WORKLOAD), np.zeros(DOMAIN.size, int)
    with pytest.raises(BudgetRefused, match="neighbours"):
        tb.measure(x, strategy, tb.ZCDP("1/2"), neighbours="replace", ledger=_ledger(tmp_path))
    other = tb.Counts.from_array(tb.Domain({"x": DOMAIN.size}), x)
    with pytest.raises(InvalidArgument, match="domains"):
        tb.measure(other, strategy, tb.ZCDP("1/2"))
    with pytest.raises(InvalidArgument):
        tb.measure(x, strategy, tb.PureDP(1))


def test_answers_that_need_more_than_62_bits_are_refused() -> None:
    strategy = tb.select(tb.Workload.of(tb.AllRange(16)), method="opt0")
    x = np.zeros(16, dtype=np.int64)
    x[3] = 2**50
    with pytest.raises(Unsupported):
        tb.measure(x, strategy, tb.ZCDP(1))


def test_counts_from_records_and_from_an_array_give_the_same_answers() -> None:
    rng = np.random.default_rng(2)
    codes = np.stack([rng.integers(0, n, 500) for n in DOMAIN.shape], axis=1)
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(x, tuple(codes.T), 1)
    for method in ("identity", "kron", "opt0", "workload"):
        strategy = tb.select(WORKLOADS["disjunction"], method=method)
        a = tb.measure(
            tb.Counts.from_records(DOMAIN, codes), strategy, tb.ZCDP(1), source=tb.noise.Insecure(9)
        )
        b = tb.measure(x.ravel(), strategy, tb.ZCDP(1), source=tb.noise.Insecure(9))
        assert np.array_equal(a.values, b.values)


def test_noise_is_for_as_many_rows_as_a_unit_may_have(tmp_path: Path) -> None:
    """sigma^2 = k^2 / (2 rho) and scale = k / epsilon, exactly; another k is another release to the ledger."""
    workload, x = tb.Workload.of(tb.Identity(4)), np.zeros(4, int)
    gaussian = tb.select(workload, method="identity")
    assert tb.measure(x, gaussian, tb.ZCDP("3/14"), stability=3).laws[0].parameter == 9 * Fraction(7, 3)
    laplace = tb.select(workload, noise="laplace", method="identity")
    assert tb.measure(x, laplace, tb.PureDP("2/9"), stability=3).laws[0].parameter == Fraction(27, 2)
    both = tb.measure(x, laplace, tb.PureDP("2/9"), stability=3, neighbours="replace")
    assert both.laws[0].parameter == 27
    with pytest.raises(InvalidArgument, match="stability"):
        tb.measure(x, gaussian, tb.ZCDP(1), stability=0)
    source = _Counting()
    with pytest.raises(InvalidArgument, match="stability"):
        tb.measure(x, gaussian, tb.ZCDP("1/2"), stability=2.5, ledger=_ledger(tmp_path), source=source)  # type: ignore[arg-type]
    assert source.calls == 0
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0


@pytest.mark.parametrize("noise", BUDGETS)
def test_noise_for_several_rows_is_drawn_and_not_only_stated(noise: str) -> None:
    """Mean square of 40,000 draws against the law for k = 5; false alarm below 1e-6 (5 sigma)."""
    workload = tb.Workload.of(tb.Identity(400))
    strategy = tb.select(workload, noise=noise, method="identity")  # type: ignore[arg-type]
    draws = np.concatenate(
        [
            tb.measure(
                np.zeros(400, int), strategy, BUDGETS[noise], source=tb.noise.Insecure(seed), stability=5
            ).values
            for seed in range(100)
        ]
    )
    one = tb.measure(np.zeros(400, int), strategy, BUDGETS[noise]).laws[0].parameter
    nominal = 25 * float(one) if noise != "laplace" else 2 * (5 * float(one)) ** 2
    kurtosis = 6.0 if noise == "laplace" else 3.0
    spread = 5 * np.sqrt((kurtosis - 1) / draws.size)
    # The discrete laws differ from their continuous namesakes by at most 1/12 in variance.
    assert (draws.astype(float) ** 2).mean() == pytest.approx(nominal, rel=spread, abs=1 / 6)


def test_exact_counts_are_read_after_the_ledger_has_recorded_them(tmp_path: Path) -> None:
    domain = tb.Domain({"a": 3})
    total = tb.Table("everybody", {})
    wl = tb.Workload(domain, [tb.Table("a", {"a": tb.Identity(3)})])
    strategy = tb.select(wl, method="identity", invariants=[total])
    ledger = _ledger(tmp_path)
    m = tb.measure(np.array([740118, 2, 3]), strategy, tb.ZCDP("1/2"), ledger=ledger, reasons=["by law"])
    assert [v.tolist() for v in m.exact] == [[740123]]
    ((charge, told),) = ledger.disclosures()
    assert (charge.release_id, told.table, told.reason) == (m.release_id, "everybody", "by law")
    assert "740123" not in ledger.export_json()
    assert "exact" not in repr(m)
    with pytest.raises(BudgetRefused):
        tb.measure(np.array([1, 2, 3]), strategy, tb.ZCDP(1), ledger=ledger)
    assert len(ledger.disclosures()) == 1
    with pytest.raises(InvalidArgument, match="2 reasons for 1 invariants"):
        tb.measure(np.array([1, 2, 3]), strategy, tb.ZCDP("1/2"), reasons=["a", "b"])


def test_exact_counts_beyond_62_bits_are_refused_before_they_are_paid_for(tmp_path: Path) -> None:
    domain = tb.Domain({"a": 2})
    huge = tb.Table("huge", {"a": tb.Dense(np.array([[2**50, 0]]))})
    wl = tb.Workload(domain, [tb.Table("a", {"a": tb.Identity(2)})])
    strategy = tb.select(wl, method="identity", invariants=[huge])
    ledger = _ledger(tmp_path)
    with pytest.raises(Unsupported, match="62 bits"):
        tb.measure(np.array([0, 2**20]), strategy, tb.ZCDP("1/2"), ledger=ledger)
    assert ledger.spent == 0
    assert not ledger.disclosures()


@pytest.mark.parametrize("together", [1, 3, 2**24])
def test_every_answer_has_noise_of_its_own(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are drawn for at once: values are the truth and all that was drawn, and counts stay as they were."""
    drawn: list[np.ndarray] = []
    sample = DiscreteGaussian.sample

    def kept(self: DiscreteGaussian, *given: Any) -> np.ndarray:
        drawn.append(sample(self, *given))
        return drawn[-1]

    monkeypatch.setattr("tabulae.products.tables.measure._TOGETHER", together)
    monkeypatch.setattr(DiscreteGaussian, "sample", kept)
    for method in ("identity", "workload"):
        strategy = tb.select(WORKLOAD, noise="gaussian", method=method)
        counts = tb.Counts.from_array(DOMAIN, np.random.default_rng(1).integers(0, 9, DOMAIN.size))
        before, truth = counts.fingerprint(), [counts.answer(block.query) for block in strategy.blocks]
        drawn.clear()
        values = tb.measure(counts, strategy, tb.ZCDP("1/2")).values
        assert (values - np.concatenate(truth) == np.concatenate(drawn)).all()
        assert counts.fingerprint() == before
