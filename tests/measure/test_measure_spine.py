"""The boundary of geography: what it charges, what it draws, what it refuses."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.groups import Quiet
from tests.measure.spines import DOMAIN, counts, plan, records, table

import tabulae as tb
from tabulae.domain import Domain
from tabulae.domain.row_space import read
from tabulae.errors import BudgetRefused, DataError, InvalidArgument, ReleaseError
from tabulae.privacy import ZCDP, DiscreteGaussian, DiscreteLaplace, NoiseLaw, PureDP, SystemSource
from tabulae.products.areas.constraints import AreaConstraints, ExactMargin
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.measure import disclosure_of, measure_spine, refuse_contradictions
from tabulae.products.areas.spine_plan import SpinePlan

BUDGETS = {"zcdp": ZCDP(2), "pure": PureDP(4)}
kinds = pytest.mark.parametrize("kind", BUDGETS)


@kinds
@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 10**6))
def test_without_noise_every_answer_is_the_truth(kind: str, seed: int) -> None:
    made = plan(seed, BUDGETS[kind])
    people = records(made, 40, seed)
    answered: dict[int, int] = defaultdict(int)
    for given_piece in measure_spine(counts(made, people), made, source=Quiet()):
        piece = given_piece.piece
        support = made.dense_cells[piece.pattern]
        for query, rows, values in zip(made.queries, piece.rows, given_piece.values, strict=True):
            if values is None:
                assert not rows
                continue
            cells = query.order[query.present(support)].ravel()
            assert values.shape == (piece.nodes.size, rows)
            for node, row in zip(piece.nodes, values, strict=True):
                truth = table(made, query, piece.level, int(made.tree.unit[node]), people)
                assert (row == truth[cells]).all()
                assert row.sum() == truth.sum()
                answered[int(node)] += 1
    shares = made.spine.shares
    assert shares is not None
    for node in range(made.tree.size):
        level = made.spine.levels[made.tree.level[node]]
        share = shares[level][made.tree.unit[node]]
        assert answered[node] == (sum(part > 0 for part in made.query_shares[level]) if share else 0)


@kinds
@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 1), ("replace", 2)])
@pytest.mark.parametrize("rows", [1, 3])
@given(seed=st.integers(0, 10**6))
def test_on_every_path_the_noise_pays_for_the_whole_budget(
    kind: str, neighbours: str, moved: int, rows: int, seed: int
) -> None:
    """zCDP: the sum of moved k^2 / (2 variance) over a path is rho; pure: that of moved k / scale is epsilon."""
    made = plan(seed, BUDGETS[kind], neighbours=neighbours, rows=rows)
    cost = [
        sum((_cost(law, moved, rows) for law in made.laws(int(k)) if law is not None), Fraction(0))
        for k in made.classes[1]
    ]
    for leaf in made.tree.leaf.tolist():
        path, node = Fraction(0), leaf
        while node >= 0:
            path, node = path + cost[node], int(made.tree.parent[node])
        assert path == made.budget.amount


def _cost(law: NoiseLaw, moved: int, rows: int) -> Fraction:
    if isinstance(law, DiscreteGaussian):
        return Fraction(moved * rows * rows) / (2 * law.parameter)
    assert isinstance(law, DiscreteLaplace)
    return Fraction(moved * rows) / law.parameter


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.long)])
@kinds
def test_noise_has_the_variance_of_its_law_for_each_level_share_and_query(kind: str, runs: int) -> None:
    """Mean squares over nobody, each of 17 at 7.5 sigma: false alarm of 1,000 runs below 1e-6, skewness included."""
    made = plan(27, BUDGETS[kind])
    nobody, drawn = counts(made, []), defaultdict(list)
    for seed in range(runs):
        for given_piece in measure_spine(nobody, made, source=tb.noise.Insecure(seed)):
            piece = given_piece.piece
            for i, values in enumerate(given_piece.values):
                if values is not None:
                    drawn[piece.level, piece.share, i].append(values.ravel())
    assert len(drawn) == 17
    for (level, share, i), parts in drawn.items():
        law = made.law(made.spine.levels[level], made.spine.shares.values[share], i)  # type: ignore[union-attr]
        assert law is not None
        squares = np.concatenate(parts).astype(float) ** 2
        assert squares.size >= runs
        error = np.sqrt((_fourth(law) - law.variance_of_law**2) / squares.size)
        assert squares.mean() == pytest.approx(law.variance_of_law, abs=7.5 * error)


def _fourth(law: NoiseLaw) -> float:
    """The fourth moment, by summation."""
    k = np.arange(-4000.0, 4001.0)
    shape = np.abs(k) if isinstance(law, DiscreteLaplace) else k * k / 2
    weight = np.exp(-shape / float(law.parameter))
    return float(k**4 @ weight / weight.sum())


def test_each_answer_has_a_draw_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw takes a value of its own, which shows where it went and that the law is that of the place."""
    laws: dict[int, NoiseLaw] = {}

    def sample(law: NoiseLaw, size: int | tuple[int, ...], source: object = None) -> np.ndarray:
        marks = np.arange(int(np.prod(size)), dtype=np.int64).reshape(size) + len(laws)
        laws.update(dict.fromkeys(marks.ravel().tolist(), law))
        return marks

    made = plan(8, PureDP(4))
    monkeypatch.setattr(NoiseLaw, "sample", sample)
    seen: list[int] = []
    for given_piece in measure_spine(counts(made, []), made, source=Quiet()):
        piece = given_piece.piece
        share = made.spine.shares.values[piece.share]  # type: ignore[union-attr]
        for i, values in enumerate(given_piece.values):
            law = made.law(made.spine.levels[piece.level], share, i)
            assert {laws[y] for y in ([] if values is None else values.ravel().tolist())} <= {law}
            seen += [] if values is None else values.ravel().tolist()
    assert sorted(seen) == list(range(len(laws)))


@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 10**6))
def test_a_replaced_record_moves_two_rows_of_each_query_on_two_paths(seed: int) -> None:
    """The same randomness for two neighbours."""
    made = plan(seed)
    people = records(made, 20, seed)
    (other,) = records(made, 1, seed + 1)
    leaves = {people[0][0], other[0]}
    runs = [
        list(measure_spine(counts(made, given_records), made, source=tb.noise.Insecure(5)))
        for given_records in (people, [other, *people[1:]])
    ]
    for one, two in zip(*runs, strict=True):
        touched = {made.spine.hierarchy.units[one.piece.level][leaf] for leaf in leaves}
        for a, b in zip(one.values, two.values, strict=True):
            if a is None or b is None:
                assert a is b is None
                continue
            moved = np.abs(a - b)
            assert moved.max() <= 1
            assert (moved.sum(axis=1) <= 2).all()
            elsewhere = [u not in touched for u in made.tree.unit[one.piece.nodes]]
            assert not moved[elsewhere].any()


def _exact(made: SpinePlan) -> list[ExactMargin]:
    return [
        ExactMargin("tract", made.layout.margin(["group"]), "the register is public"),
        ExactMargin("root", made.layout.margin([]), "apportionment"),
    ]


class _Counting(SystemSource):
    calls = 0

    def u64(self, n: int) -> np.ndarray:
        type(self).calls += 1
        return super().u64(n)


def test_nothing_is_drawn_or_read_where_the_ledger_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("exact counts were read")

    made, _Counting.calls = plan(1, ZCDP(2)), 0
    monkeypatch.setattr(SpineCounts, "exact", refuse)
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp", neighbours="replace")
    with pytest.raises(BudgetRefused):
        measure_spine(counts(made, []), made, _exact(made), ledger=ledger, source=_Counting())
    assert _Counting.calls == 0
    assert not ledger.spent
    assert not ledger.disclosures()


def test_the_whole_loss_and_what_is_exact_stand_in_the_ledger_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _Counting.calls = plan(1, ZCDP(2)), 0
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 5, "zcdp", neighbours="replace")
    read_exactly, spent_by_then = SpineCounts.exact, []

    def noted(*args: object) -> np.ndarray:
        spent_by_then.append((ledger.spent, len(ledger.disclosures())))
        return read_exactly(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(SpineCounts, "exact", noted)
    people = records(made, 30)
    done = measure_spine(counts(made, people), made, _exact(made), ledger=ledger, source=_Counting())
    assert spent_by_then == [(2, 2)] * 2
    assert _Counting.calls == 0
    assert ledger.spent == made.loss.amount == 2
    assert not done.rehearsal
    assert done.release_id == ledger.charges()[0].release_id
    assert done.exact[1].tolist() == [[30]]
    assert len(list(done)) == len(made.pieces)
    assert [str(d) for _, d in ledger.disclosures()] == [
        "group of each tract (quarters by tract): the register is public",
        "total (one count of all records): apportionment",
    ]


def test_a_disclosure_is_of_every_unit_of_its_level() -> None:
    made = plan(1)
    tracts, total = (disclosure_of(made, exact) for exact in _exact(made))
    codes = made.spine.codes["tract"].tolist()
    wide = Domain({"tract": codes, "quarters": DOMAIN["quarters"]})
    found = read(tracts.table, tracts.rows, wide)
    assert found is not None
    assert found.rows(wide) == 2 * len(codes)
    assert read(tracts.table, tracts.rows, DOMAIN) is None
    assert read(total.table, total.rows, DOMAIN) is not None
    assert disclosure_of(made, ExactMargin("root", made.layout.margin([]))).reason == "no reason given"


def test_a_level_with_the_name_of_an_attribute_cannot_be_exact() -> None:
    codes = {"race": ["A", "B"], "block": ["a", "b"]}
    made = tb.Spine.from_codes(codes, levels=list(codes)).with_shares({"root": 0, "race": 0, "block": 1})
    layout = CellLayout.of(DOMAIN)
    detailed = (layout.margin(DOMAIN.names),)
    spined = SpinePlan(
        made, layout, detailed, {"block": (Fraction(1),)}, ZCDP(1), Supports.of(np.ones((2, 1), bool))
    )
    with pytest.raises(InvalidArgument, match="the name of an attribute: rename"):
        disclosure_of(spined, ExactMargin("race", layout.margin([])))


def test_an_insecure_source_is_a_rehearsal(tmp_path: Path) -> None:
    made = plan(1)
    nobody = counts(made, [])
    assert measure_spine(nobody, made, source=tb.noise.Insecure(1)).rehearsal
    assert measure_spine(nobody, made).rehearsal
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 10, "zcdp", neighbours="replace")
    with pytest.raises(InvalidArgument, match="insecure"):
        measure_spine(nobody, made, ledger=ledger, source=tb.noise.Insecure(1))
    assert not ledger.spent


def test_what_one_neighbour_differs_by_is_the_ledgers(tmp_path: Path) -> None:
    made = plan(1)
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 10, "zcdp", neighbours="replace", unit="person")
    with pytest.raises(BudgetRefused, match="household"):
        measure_spine(counts(made, []), made, ledger=ledger, unit="household")
    with pytest.raises(BudgetRefused, match="add-remove"):
        measure_spine(counts(made, []), plan(1, neighbours="add-remove"), ledger=ledger)
    assert not ledger.spent


def test_counts_of_another_plan_are_refused(tmp_path: Path) -> None:
    made, other = plan(1), plan(2)
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 10, "zcdp", neighbours="replace")
    with pytest.raises(InvalidArgument, match="another plan"):
        measure_spine(counts(made, []), other, ledger=ledger)
    assert not ledger.spent


def test_a_charge_whose_exact_counts_cannot_be_read_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(1, ZCDP(2))
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 9, "zcdp", neighbours="replace")
    for error, raised in (
        (OSError(5, "no memory left"), ReleaseError),
        (MemoryError("broken"), MemoryError),
    ):

        def broken(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(SpineCounts, "exact", broken)
        with pytest.raises(raised) as caught:
            measure_spine(counts(made, []), made, _exact(made), ledger=ledger)
        if raised is ReleaseError:
            assert "no memory left. Nothing was published; the charge" in str(caught.value)
            assert "is void and stays spent" in str(caught.value)
    assert [charge.state for charge in ledger.charges()] == ["void", "void"]
    assert ledger.spent == 4
    with pytest.raises(MemoryError):
        measure_spine(counts(made, []), made, _exact(made))


def _limited(made: SpinePlan, exact: list[ExactMargin], most: int) -> AreaConstraints:
    """At most so many people of each kind of quarters in each leaf."""
    parts = made.layout.codes[:, 0]
    upper = np.full((made.spine.leaves, 3), most)
    return AreaConstraints(made.layout, parts, ("home", "hall", "ward"), 0 * upper, upper, tuple(exact))


def test_exact_counts_are_compared_with_limits_before_the_charge_and_nothing_else_is() -> None:
    """30 people in one cell of one leaf: one leaf's limit is broken, and the total of all leaves' limits is not."""
    made = plan(1, ZCDP(2))
    people, total = records(made, 1) * 30, [_exact(made)[1]]

    def run(most: int, exact: list[ExactMargin]) -> None:
        limits = _limited(made, exact, most)
        refuse_contradictions(counts(made, people), made, exact, limits)

    run(29, total)
    run(0, [])
    with pytest.raises(DataError) as caught:
        run(0, total)
    assert "root" in str(caught.value)
    assert "home, hall, ward" in str(caught.value)
    assert "Nothing was charged" in str(caught.value)
    assert not set("123456789") & set(str(caught.value))
    with pytest.raises(InvalidArgument, match="other exact counts"):
        refuse_contradictions(counts(made, people), made, _exact(made), _limited(made, total, 9))
