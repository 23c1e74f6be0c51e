"""Areas of many cells, measured and divided from the top down where there is somebody: against oracles and records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae import ZCDP, Domain, Ledger, Spine
from tabulae.domain import Recode
from tabulae.errors import InvalidArgument
from tabulae.privacy import Insecure
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.measure import measure_supported
from tabulae.products.areas.needs import largest_sparse_total, most_asked
from tabulae.products.areas.sparse.cells import CountedCells, HeldMargin, Pass, SparseCounts
from tabulae.products.areas.sparse.descend import Asked, SupportedCounts, round_runs
from tabulae.products.areas.sparse.divide import answers_of, least_squares, runs_of
from tabulae.products.areas.spec.sparse import SparseSection
from tabulae.products.areas.spine_plan import SpinePlan

LEVELS = ("state", "county", "tract", "block")
SIZES = {"kind": 6, "age": 6, "sex": 2, "race": 3}
RECODES = (
    Recode("class", "kind", np.array([0, 0, 1, 1, 1, 2]), ("home", "prison", "school")),
    Recode("place", "kind", np.array([0, 0, 1, 2, 3, 4]), ("home", "a", "b", "c", "school")),
    Recode("adult", "age", np.array([0, 0, 0, 1, 1, 1]), ("no", "yes")),
    Recode("third", "age", np.array([0, 0, 1, 1, 2, 2]), ("0", "1", "2")),
    Recode("fine", "age", np.array([0, 1, 1, 2, 3, 3]), ("0", "1", "2", "3")),
)
QUERIES = (["third", "sex"], ["place", "adult"], ["race"], ["kind", "fine", "sex", "race"], [*SIZES])
ONCE = (Pass((0, 1, 2, 3, 4)),)


@dataclass(frozen=True)
class Town:
    """A plan, what is held and limited of it, and its people."""

    plan: SpinePlan
    held: HeldMargin
    limits: AreaConstraints
    truth: SparseCounts

    @property
    def passes(self) -> tuple[Pass, ...]:
        margin = self.plan.layout.margin
        rounded = (margin(["place", "adult"]), margin(["kind", "fine", "sex"]))
        return (Pass((1, 2, 3), rounded), Pass((0, 4)))

    def measured(self, passes: tuple[Pass, ...], seed: int = 0) -> tuple[CountedCells, list, SupportedCounts]:
        cells = CountedCells.of(self.plan, passes, self.held, self.limits)
        t = self.truth
        counts = SpineCounts(self.plan, t.row, t.key, t.people)
        drawn = measure_supported(counts, self.plan, cells, source=Insecure(seed))
        pieces = [*drawn]
        assert drawn.counts is not None
        return cells, pieces, drawn.counts


def town(budget: object = 1, seed: int = 0, blocks: int = 30, moved: float = 0.2, several: int = 4) -> Town:
    """Blocks with homes, some with prisons of several kinds or a school; the held table is of people who moved."""
    rng = np.random.default_rng(seed)
    domain = Domain(SIZES, recodes=RECODES)
    impossible = np.zeros((6, 6), bool)
    impossible[5, 4:] = impossible[4, 0] = impossible[1, :2] = True
    layout = CellLayout.of(domain, ["kind", "age"], impossible)
    block = np.arange(blocks)
    codes = {"state": block * 0, "county": block // 18, "tract": block // 6, "block": block}
    columns = {name: np.array([f"{v:03d}" for v in each], object) for name, each in codes.items()}
    spine = Spine.from_codes(columns, LEVELS).bypass(dict.fromkeys(LEVELS, "1/4"), "gaussian", "paper")
    place = layout.margin(["place"])
    has = np.zeros((blocks, 5), np.int64)
    has[:, 0] = rng.random(blocks) < 0.9
    for b in np.flatnonzero(rng.random(blocks) < 0.5):
        has[b, rng.choice(np.arange(1, 5), rng.integers(1, several + 1), replace=False)] = rng.integers(1, 4)
    has[has.sum(axis=1) == 0, 4] = 1
    lower = has * (np.arange(5) > 0)
    support = (has > 0)[:, place.label]
    rows: list[tuple[int, int]] = []
    inner = layout.algebra.cells
    for b in range(blocks):
        for part in np.flatnonzero(has[b]):
            can = np.flatnonzero(place.label == part)
            people = int(lower[b, part] + rng.poisson(12 if part == 0 else 3))
            rows += [(b, int(rng.choice(can)) * inner + int(rng.integers(inner))) for _ in range(people)]
    leaf, key = np.array(rows).T
    truth = SparseCounts.of(blocks, leaf, key, np.ones(leaf.size, np.int64))
    margin = layout.margin(["class", "adult", "race"])
    homes = np.flatnonzero(has[:, 0])
    at_home = place.label[key // inner] == 0
    other = np.where(at_home & (rng.random(leaf.size) < moved), rng.choice(homes, leaf.size), leaf)
    held = HeldMargin(
        margin,
        SparseCounts.of(blocks, other, margin.rows(key).astype(np.int64), np.ones(leaf.size, np.int64)),
    )
    limits = AreaConstraints(
        layout, place.label, ("home", "a", "b", "c", "school"), lower, np.where(has > 0, NO_LIMIT, 0)
    )
    queries = tuple(layout.margin(query) for query in QUERIES)
    shares = dict.fromkeys(LEVELS, (Fraction(1, 5),) * 5)
    return Town(
        SpinePlan(spine, layout, queries, shares, ZCDP(Fraction(budget)), Supports.of(support)),
        held,
        limits,
        truth,
    )


def broken(town: Town, cells: CountedCells, found: SupportedCounts) -> dict[str, int]:
    """How many constraints the counts of all nodes break, each counted from the leaves' own people."""
    plan, nodes = town.plan, found.nodes
    inner, leaves = plan.layout.algebra.cells, plan.tree.leaf
    dense = np.zeros((plan.tree.size, plan.layout.size, inner), np.int64)
    np.add.at(dense.reshape(plan.tree.size, -1), (nodes.row, cells.place[nodes.key]), nodes.people)
    sums = np.zeros_like(dense)
    np.add.at(sums, plan.tree.parent[1:], dense[1:])
    inside = np.diff(plan.children) > 0
    margin = town.held.margin
    held = np.zeros((plan.spine.leaves, margin.size), np.int64)
    np.add.at(held, (town.held.counts.row, town.held.counts.key), town.held.counts.people)
    mine = np.zeros_like(held)
    rows = margin.rows(np.arange(plan.layout.cell.size))
    np.add.at(mine.T, rows, dense[leaves].reshape(leaves.size, -1).T)
    parts = np.zeros((leaves.size, 5), np.int64)
    np.add.at(parts.T, town.limits.part, dense[leaves].sum(axis=2).T)
    return {
        "below 0": int((dense < 0).sum()),
        "sums": int((sums != dense)[inside].sum()),
        "held": int((mine != held).sum()),
        "at least": int((parts < town.limits.lower).sum()),
        "nobody can": int(dense[leaves].sum(axis=2)[~plan.support.rows].sum()),
    }


@pytest.mark.parametrize("two", [False, True])
@given(seed=st.integers(0, 999), budget=st.sampled_from(["1/100", "1", "100"]))
def test_every_constraint_is_met(two: bool, seed: int, budget: str) -> None:
    here = town(budget, seed)
    cells, _, found = here.measured(here.passes if two else ONCE, seed)
    assert set(broken(here, cells, found).values()) == {0}
    assert found.nodes.take(here.plan.tree.leaf).people.sum() == here.truth.people.sum()


@pytest.mark.parametrize("two", [False, True])
def test_with_next_to_no_noise_the_counts_are_the_records(two: bool) -> None:
    here = town(10**7, moved=0, several=1)
    cells, _, found = here.measured(here.passes if two else ONCE)
    leaves = found.nodes.take(here.plan.tree.leaf)
    mine = SparseCounts.of(leaves.rows, leaves.row, cells.place[leaves.key], leaves.people)
    assert np.array_equal(mine.first, here.truth.first)
    assert np.array_equal(mine.key, here.truth.key)
    assert np.array_equal(mine.people, here.truth.people)


def test_answers_are_the_records_and_noise_of_the_law() -> None:
    here = town("1/10", blocks=60)
    _, pieces, _ = here.measured(ONCE)
    plan, scaled, asked_rows = here.plan, [], 0
    for asked, answers in pieces:
        for i, node in enumerate(asked.nodes.tolist()):
            leaves = np.flatnonzero([_under(plan, leaf, node) for leaf in plan.tree.leaf])
            own = here.truth.take(leaves)
            laws = plan.laws(int(plan.classes[1][node]))
            for k, q in enumerate(asked.queries):
                where = slice(*asked.block[i * len(asked.queries) + k :][:2])
                rows = plan.queries[q].rows(own.key)
                true = np.bincount(rows, own.people, plan.queries[q].size)[asked.row[where]]
                assert laws[q] is not None
                scaled.append((answers[where] - true) / laws[q].variance_of_law ** 0.5)
                asked_rows += true.size
    noise = np.concatenate(scaled)
    assert noise.size == asked_rows > 4_000
    assert abs(noise.mean()) < 5 / noise.size**0.5
    assert abs((noise**2).mean() - 1) < 5 * (2 / noise.size) ** 0.5


def _under(plan: SpinePlan, leaf: int, node: int) -> bool:
    while leaf > node:
        leaf = int(plan.tree.parent[leaf])
    return leaf == node


def test_what_no_division_reads_is_not_asked() -> None:
    here = town(10**7, moved=0)
    cells, pieces, found = here.measured(ONCE)
    for asked, _ in pieces[1:]:
        parents = found.nodes.take(here.plan.tree.parent[asked.nodes])
        for i in range(asked.nodes.size):
            has = parents.take(np.array([i])).key
            for k, q in enumerate(asked.queries):
                where = slice(*asked.block[i * len(asked.queries) + k :][:2])
                can = here.plan.queries[q].rows(cells.place[has])
                assert np.isin(asked.row[where], can).all()


@given(
    children=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    sizes=st.tuples(st.integers(2, 3), st.integers(2, 3)),
    people=st.integers(0, 7),
)
def test_no_way_for_people_to_live_asks_more_than_the_bound(
    children: list[int], sizes: tuple[int, int], people: int
) -> None:
    """All ways of spreading people over parents, tried one by one; each query by itself."""
    town = [f"{p}" for p, n in enumerate(children) for _ in range(n)]
    spine = Spine.from_codes(
        {"town": town, "block": [f"{i}" for i in range(len(town))]}, levels=["town", "block"]
    )
    spine = spine.with_shares(dict.fromkeys(spine.levels, Fraction(1, len(spine.levels))))
    layout = CellLayout.of(Domain({"a": sizes[0], "b": sizes[1]}))
    queries = (layout.margin(["a"]), layout.margin(["a", "b"]))
    shares = dict.fromkeys(spine.levels, (Fraction(1, 2), Fraction(1, 2)))
    plan = SpinePlan(spine, layout, queries, shares, ZCDP(10**6), Supports.of(np.ones((len(town), 1), bool)))
    section = SparseSection(CountedCells.of(plan, [Pass((0, 1))]), None, ())
    assert int(largest_sparse_total(plan, section)) == 0
    cells = (sizes[0], sizes[0] * sizes[1])
    spread = [live for live in product(range(people + 1), repeat=len(children)) if sum(live) == people]
    blocks = [max(sum(c * min(n, size) for c, n in zip(children, live, strict=True)) for live in spread)
              for size in cells]  # fmt: skip
    towns = sum(min(people, size) * len(children) for size in cells)
    assert most_asked(plan, section, people) == sum(cells) + towns + sum(blocks) + people


def test_a_second_answer_is_refused_before_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A division that asks for an answer again, of a node or of a row, gets none."""
    from tabulae.products.areas import measure

    here = town()
    sane, drawn = measure.descend, []
    noise = measure._noise
    monkeypatch.setattr(measure, "_noise", lambda *given: drawn.append(given[0]) or noise(*given))

    def asks_again(plan: SpinePlan, cells: CountedCells) -> Iterator[Asked]:
        steps = sane(plan, cells)
        first = next(steps)
        answers = yield first
        yield steps.send(answers)
        yield first

    def asks_twice(plan: SpinePlan, cells: CountedCells) -> Iterator[Asked]:
        first = next(sane(plan, cells))
        row = np.where(np.arange(first.row.size) == 1, first.row[0], first.row)
        yield Asked(first.nodes, first.queries, first.block, row)

    for fault, steps in ((asks_again, 2), (asks_twice, 0)):
        drawn.clear()
        monkeypatch.setattr(measure, "descend", fault)
        with pytest.raises(AssertionError, match="drawn before: one charge pays for one"):
            here.measured(ONCE)
        assert len(drawn) == steps


def test_held_counts_that_cannot_be_are_refused() -> None:
    here = town()
    margin, counts = here.held.margin, here.held.counts
    leaf = int(np.argmin(here.plan.support.rows[:, here.limits.part == 4].any(axis=1)))
    school = margin.rows(np.flatnonzero(here.limits.part == 4)[:1] * here.plan.layout.algebra.cells)
    more = SparseCounts.of(
        counts.rows, np.append(counts.row, leaf), np.append(counts.key, school), np.append(counts.people, 1)
    )
    with pytest.raises(InvalidArgument, match="holds people where nobody can be counted"):
        CountedCells.of(here.plan, ONCE, HeldMargin(margin, more), here.limits)
    few = np.flatnonzero(here.limits.lower[:, 1:4].sum(axis=1) > 1)[0]
    fewer = counts.people * ~((counts.row == few) & (counts.key // margin.inner >= 2))
    with pytest.raises(InvalidArgument, match="holds too few people for at_least"):
        CountedCells.of(
            here.plan,
            ONCE,
            HeldMargin(margin, SparseCounts.of(counts.rows, counts.row, counts.key, fewer)),
            here.limits,
        )
    with pytest.raises(InvalidArgument, match="no table is held"):
        CountedCells.of(here.plan, ONCE, None, here.limits)


def test_what_is_not_of_the_plan_is_refused_and_nothing_is_charged(tmp_path: Path) -> None:
    here, other = town(), town(blocks=36)
    counts = SpineCounts(here.plan, here.truth.row, here.truth.key, here.truth.people)
    ledger = Ledger.create(tmp_path / "ledger.db", ZCDP(1), neighbours="replace")
    some = (Pass((1, 2, 3, 4)),)
    for cells in (
        CountedCells.of(other.plan, ONCE, other.held, other.limits),
        CountedCells.of(here.plan, some, here.held, here.limits),
    ):
        with pytest.raises(InvalidArgument, match="another plan, or passes do not ask"):
            measure_supported(counts, here.plan, cells, ledger=ledger)
    assert not ledger.charges()
    margin, held = here.held.margin, here.held.counts
    for wrong, told in (
        (other.held.counts, "holds counts of 36 leaves"),
        (SparseCounts(held.first, held.key + margin.size, held.people), "of a cell that it does not have"),
        (SparseCounts(held.first, held.key, -held.people), "is 0 or less"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            CountedCells.of(here.plan, ONCE, HeldMargin(margin, wrong), here.limits)


def test_a_run_is_charged_its_whole_budget_before_noise(tmp_path: Path) -> None:
    here = town("1/2")
    counts = SpineCounts(here.plan, here.truth.row, here.truth.key, here.truth.people)
    ledger = Ledger.create(tmp_path / "ledger.db", ZCDP(1), neighbours="replace")
    cells = CountedCells.of(here.plan, here.passes, here.held, here.limits)
    drawn = measure_supported(counts, here.plan, cells, ledger=ledger)
    assert not drawn.rehearsal
    assert [charge.loss for charge in ledger.charges()] == [ZCDP("1/2")]
    with pytest.raises(InvalidArgument, match="insecure source"):
        measure_supported(counts, here.plan, cells, ledger=ledger, source=Insecure(1))


def test_a_pass_estimates_what_its_queries_tell_apart_and_the_last_one_all_cells() -> None:
    here = town()
    cells = CountedCells.of(here.plan, (Pass((0,)), Pass((1, 2, 3, 4))), here.held, here.limits)
    rows = np.stack([here.plan.queries[q].rows(cells.place) for q in (0,)])
    for step, others in zip(cells.passes, ((1, 2, 3, 4), ()), strict=True):
        assert (np.diff(step.label) >= 0).all()
        assert set(others).isdisjoint(step.queries)
    first, last = cells.passes
    of_cell = np.vstack([rows, first.outer[first.label]])
    assert first.label[-1] + 1 == np.unique(of_cell, axis=1).shape[1] < cells.size
    assert np.array_equal(last.label, np.arange(cells.size))
    with pytest.raises(InvalidArgument, match="nothing is left for those after it"):
        CountedCells.of(here.plan, (Pass((0, 4)), Pass((1, 2, 3))), here.held, here.limits)
    with pytest.raises(InvalidArgument, match="level 'state' asks no query that tells apart all"):
        CountedCells.of(here.plan, (Pass((0, 1, 2)), Pass((3, 4))), here.held, here.limits)


@dataclass(frozen=True)
class Problem:
    """One division with random answers: arguments of the solver, and the same as matrices."""

    given: tuple
    people: np.ndarray
    rooted: bool
    matrices: list[tuple[float, np.ndarray, np.ndarray]]

    @classmethod
    def drawn(cls, seed: int, children: int, *, rooted: bool, free: bool) -> Problem:
        rng = np.random.default_rng(seed)
        shape = (4, 3, 5)
        index = np.indices(shape).reshape(3, -1)
        held = index[0] // 2 * 3 + index[1]
        index = index[:, np.lexsort((np.arange(held.size), held))]
        outer = np.sort(held).astype(np.int32)
        rows = np.array(
            [np.ravel_multi_index(index, shape), index[0] * 3 + index[1], index[2], index[1]], np.int32
        )
        truth = rng.poisson(0.4, (children, held.size))
        people = truth.sum(axis=0)
        cell = (np.arange(held.size) if rooted else np.flatnonzero(people)).astype(np.int32)
        sums = np.array([np.bincount(outer, each, outer.max() + 1).astype(int) for each in truth])
        known = SparseCounts.of(children, *(each.ravel() for each in (*np.indices(sums.shape), sums)))
        child, begin, run, total, lost = runs_of(
            np.array([0, cell.size]), cell, outer, np.zeros(children, np.int64),
            known.first, known.key, known.people, free,
        )  # fmt: skip
        assert lost == -1
        weight = np.array([1, 0.5, 2, 0.7]) * rng.uniform(0.5, 2, (children, 1)) / rng.choice([1, 100])
        weight[:, 3] *= rng.random(children) < 0.8
        sizes = rows.max(axis=1).astype(np.int64) + 1
        block, row, slot = answers_of(cell, child, begin, run, rows, weight > 0, sizes)
        y = np.zeros(row.size)
        matrices = []
        for c in range(children):
            for q in np.flatnonzero(weight[c]):
                where = slice(*block[c * 4 + q :][:2])
                y[where] = np.bincount(rows[q], truth[c], sizes[q])[row[where]]
                y[where] += rng.normal(0, weight[c, q] ** -0.5, y[where].size)
                low, high = run[child[c]], run[child[c + 1]]
                matrix = np.zeros((y[where].size, run[-1]))
                matrix[slot[q, low:high] - where.start, np.arange(low, high)] = 1
                matrices.append((weight[c, q], matrix, y[where]))
        given = (child, begin, run, total, cell.size, slot, block, y, weight)
        return cls(given, people[cell], rooted, matrices)

    def solved(self, tolerance: float) -> np.ndarray:
        child, begin, run, total, cells, slot, block, y, weight = self.given
        found = np.zeros(run[-1])
        made = least_squares(
            child, begin, run, total, cells, self.people.astype(float), self.rooted, slot, block, y, weight, 2,
            tolerance, found,
        )  # fmt: skip
        assert made > 0
        return found

    @property
    def sums(self) -> np.ndarray:
        """The matrix of the parent's cells."""
        _, begin, run, *_ = self.given
        matrix = np.zeros((self.people.size, run[-1]))
        for r in range(begin.size):
            matrix[begin[r] + np.arange(run[r + 1] - run[r]), np.arange(run[r], run[r + 1])] = 1
        return matrix


CASES = [
    (children, rooted, free)
    for children, rooted in ((4, False), (9, False), (1, True))
    for free in (False, True)
]


@pytest.mark.parametrize(("children", "rooted", "free"), CASES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_least_squares_are_those_of_a_general_solver(
    children: int, rooted: bool, free: bool, seed: int
) -> None:
    problem = Problem.drawn(seed, children, rooted=rooted, free=free)
    _, _, run, total, *_ = problem.given
    x = cp.Variable(run[-1], nonneg=True)
    held = [cp.sum(x[run[r] : run[r + 1]]) == total[r] for r in range(total.size) if total[r] >= 0]
    known = [] if rooted else [problem.sums @ x == problem.people]
    cost = sum(w * cp.sum_squares(matrix @ x - y) for w, matrix, y in problem.matrices)
    cp.Problem(cp.Minimize(cost), held + known).solve(solver=cp.CLARABEL)
    assert np.abs(problem.solved(1e-5) - x.value).max() < 2e-3


def test_small_steps_of_many_cells_do_not_end_the_search() -> None:
    """Each of 30,000 cells may be near its place while a sum of 10,000 is a hundred people off."""
    cells, classes = 30_000, 3
    rng = np.random.default_rng(0)
    truth = rng.poisson(0.05, cells)
    rows = np.array([np.arange(cells), rng.permutation(cells) % classes], np.int32)
    weight = np.array([[0.01, 0.01]])
    child, begin, run, total, _ = runs_of(
        np.array([0, cells]), np.arange(cells, dtype=np.int32), np.zeros(cells, np.int32), np.zeros(1, np.int64),
        np.array([0, 1]), np.zeros(1, np.int64), np.array([truth.sum()]), False,
    )  # fmt: skip
    sizes = np.array([cells, classes])
    block, row, slot = answers_of(
        np.arange(cells, dtype=np.int32), child, begin, run, rows, weight > 0, sizes
    )
    y = np.concatenate([truth, np.bincount(rows[1], truth)])[
        np.where(np.arange(row.size) < cells, row, row + cells)
    ]
    y = y + rng.normal(0, 10, y.size) + 300 * (np.arange(y.size) == cells)
    sums = []
    for tolerance in (0.02, 1e-4):
        x = np.zeros(cells)
        least_squares(
            child, begin, run, total, cells, np.zeros(cells), True, slot, block, y, weight, 1, tolerance, x
        )
        sums.append(np.bincount(rows[1], x))
    assert np.abs(sums[0] - sums[1]).max() < 1


@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES))
def test_rounding_keeps_sums_and_ends_at_floors_and_ceilings(seed: int, case: tuple[int, bool, bool]) -> None:
    children, rooted, free = case
    problem = Problem.drawn(seed, children, rooted=rooted, free=free)
    child, begin, run, total, *_ = problem.given
    x = problem.solved(0.02)
    exact = seed % 2 == 0
    if exact and not rooted:  # nothing to repair: every sum ends within one of where it was
        x = _divided(problem)
    labels = np.stack([np.arange(problem.people.size) // 3, np.arange(problem.people.size) // 9]).astype(
        np.int32
    )
    found = np.zeros(x.size, np.int64)
    assert round_runs(child, begin, run, total, problem.people, rooted, labels, x, found)
    assert found.min() >= 0
    for r in range(total.size):
        assert total[r] < 0 or found[run[r] : run[r + 1]].sum() == total[r]
        for label in labels[:, begin[r] : begin[r] + run[r + 1] - run[r]]:
            for each in np.unique(label):
                inside = run[r] + np.flatnonzero(label == each)
                if exact and not rooted:
                    assert abs(found[inside].sum() - x[inside].sum()) < 1 + 1e-6
    if not rooted:
        assert np.array_equal(problem.sums @ found, problem.people)


def _divided(problem: Problem) -> np.ndarray:
    """A feasible division: each run gets its share of its cells' people."""
    _, begin, run, total, *_ = problem.given
    x = np.zeros(run[-1])
    many = problem.sums.sum(axis=1)
    for r in range(total.size):
        here = begin[r] + np.arange(run[r + 1] - run[r])
        people = problem.people[here]
        x[run[r] : run[r + 1]] = people / many[here] if total[r] < 0 else people * total[r] / people.sum()
    return x
