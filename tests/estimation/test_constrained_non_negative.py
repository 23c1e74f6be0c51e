"""Non-negative least squares under constraints: an interior-point oracle, exactness in whole numbers, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy
import numpy as np
import pytest
from tests.each import each
from tests.estimation.overlapping import measured
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS, dense_strategy

import tabulae as tb
from tabulae.domain import Constraint, Domain, Term
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.estimation import cone, whole_cells
from tabulae.estimation._estimate import NonNegative
from tabulae.estimation.cone import GAP
from tabulae.estimation.merged_cells import Limits, MeasuredCells
from tabulae.linalg import Kron
from tabulae.strategy import law_variances

TRUTH = np.random.default_rng(5).poisson(1.0, DOMAIN.size)
TABLES = {
    "total": tb.Table("total", {}),
    "age": tb.Table("age", {"age": tb.Identity(8)}),
    "sex*race": tb.Table("sex*race", {"sex": tb.Identity(2), "race": tb.Identity(3)}),
    "sex*age": tb.Table("sex*age", {"sex": tb.Identity(2), "age": tb.Identity(8)}),
    "age*race": tb.Table("age*race", {"age": tb.Identity(8), "race": tb.Identity(3)}),
    "prefix": tb.Table("prefix", {"age": tb.Prefix(8)}),
    "sex": tb.Table("sex", {"sex": tb.Identity(2)}),
    "everything": tb.Table(
        "everything", {n: tb.Identity(k) for n, k in zip(DOMAIN.names, DOMAIN.shape, strict=True)}
    ),
}


def _truth(name: str) -> np.ndarray:
    return np.asarray(TABLES[name].operator(DOMAIN) @ TRUTH)


def exactly(name: str) -> Constraint:
    return Constraint.equal(TABLES[name], _truth(name))


def about(name: str) -> Constraint:
    return Constraint.bounds(TABLES[name], np.maximum(_truth(name) - 1, 0), _truth(name) + 1)


GIVEN = {
    "total": (exactly("total"),),
    "one margin": (exactly("age"),),
    "two margins": (exactly("age"), exactly("sex*race"), exactly("total")),
    "three margins": (exactly("sex*age"), exactly("sex*race"), exactly("age*race")),
    "prefixes": (exactly("prefix"),),
    "bounded groups": (exactly("total"), about("age")),
    "bounds alone": (about("sex*age"),),
    "bounded prefixes": (exactly("total"), about("prefix")),
    "lower only": (Constraint.bounds(TABLES["age*race"], at_least=1),),
    "everything": (exactly("everything"),),
    "no room": (Constraint.equal(TABLES["total"], 8), Constraint.bounds(TABLES["age"], at_least=1)),
    "partly fixed": (Constraint.bounds(TABLES["age"], [1, 2] + [0] * 6, [1, 2] + [9] * 6),),
}
NOT_FREE = (
    "three margins",  # and the next decide all that is measured
    "everything",
    "no room",  # and the next are not of the true counts
    "partly fixed",
)
MEASURED = [
    ("union", "gaussian", "workload"),
    ("marginals", "gaussian", "workload"),
    ("union", "laplace", "kron"),
]


def _constrained(x: cvxpy.Variable, constraints: Sequence[Constraint]) -> list[cvxpy.Constraint]:
    asked = []
    for constraint in constraints:
        matrix, spread = np.asarray(constraint.table.operator(DOMAIN).dense(), float), constraint.over(DOMAIN)
        low = np.full(len(matrix), -1e9) if spread.at_least is None else spread.at_least
        high = np.full(len(matrix), 1e9) if spread.at_most is None else spread.at_most
        for row, least, most in zip(matrix, low, high, strict=True):
            if least == most:
                asked.append(row @ x == least)
                continue
            asked += [row @ x >= least] * int(least > -1e9) + [row @ x <= most] * int(most < 1e9)
    return asked


def _meets_exactly(estimate: NonNegative) -> None:
    """In integers, over the merged cells, and as published."""
    cells, exponent = estimate.exact_cells
    assert cells.dtype == np.int64
    assert (cells >= 0).all()
    for constraint in estimate.constraints:
        table, spread = constraint.table, constraint.over(estimate.domain)
        counts = estimate._problem.over_cells(table.operator(estimate.domain)) @ cells
        published = estimate.point_of(table.operator(estimate.domain))
        assert np.array_equal(np.ldexp(published, exponent), counts)
        if spread.at_least is not None:
            assert (counts >= spread.at_least << exponent).all()
        if spread.at_most is not None:
            assert (counts <= spread.at_most << exponent).all()


@each(
    ("given", "workload", "noise", "method"),
    [(given, *MEASURED[i % len(MEASURED)]) for i, given in enumerate(GIVEN)],
    long=[(given, *case) for given in GIVEN for case in MEASURED],
)
def test_they_are_the_optimum_to_the_gap_and_exact(
    workload: str, noise: str, method: str, given: str
) -> None:
    m = measured(workload, noise, method, people=1.0)
    estimate = NonNegative(m, GIVEN[given])
    _meets_exactly(estimate)
    deviation = np.sqrt(m.variance)
    b, y = dense_strategy(m.strategy) / deviation[:, None], np.concatenate(m.answers()) / deviation
    x = cvxpy.Variable(DOMAIN.size, nonneg=True)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(b @ x - y) / 2), _constrained(x, GIVEN[given]))
    least = float(problem.solve(solver=cvxpy.CLARABEL))  # type: ignore[arg-type]
    solution = estimate.solution
    of_cells = np.concatenate(estimate._problem.apply(solution.cells))
    value = np.square(of_cells - y).sum() / 2
    tolerance = 1e-6 * (1 + least)
    assert least - tolerance <= value <= least + solution.gap + tolerance
    assert np.square(of_cells - b @ np.asarray(x.value)).sum() / 2 <= solution.gap + 1e-5
    assert solution.gap <= GAP


@each(
    ("given", "workload", "noise", "method"),
    [
        (given, *MEASURED[i % len(MEASURED)])
        for i, given in enumerate(("total", "one margin", "bounded prefixes"))
    ],
    long=[(given, *case) for given in GIVEN if given not in NOT_FREE for case in MEASURED],
)
def test_a_gap_is_never_less_than_what_cells_are_off(
    workload: str, noise: str, method: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the true counts, which meet the constraints and are far from the optimum, at every dual point on the way."""
    m = measured(workload, noise, method, people=1.0)
    estimate, seen, gap_of = NonNegative(m, GIVEN[given]), [], cone.ConstrainedCone.gap

    def recorded(solver: cone.ConstrainedCone, z: np.ndarray, dual: cone.Dual) -> float:
        truth = Kron(solver.problem.merges) @ TRUTH
        seen.append(gap_of(solver, truth - solver.origin, dual))
        return gap_of(solver, z, dual)

    with monkeypatch.context() as patch:
        patch.setattr(cone.ConstrainedCone, "gap", recorded)
        cells = estimate.solution.cells
    deviation = np.sqrt(m.variance)
    b, y = dense_strategy(m.strategy) / deviation[:, None], np.concatenate(m.answers()) / deviation
    optimum = np.concatenate(estimate._problem.apply(cells))
    off = (np.square(b @ TRUTH - y).sum() - np.square(optimum - y).sum()) / 2
    assert off > 10 * GAP
    assert min(seen) >= off * (1 - 1e-9)


def test_without_constraints_nothing_changes() -> None:
    m = measured("union", "gaussian", people=1.0)
    with pytest.raises(InvalidArgument, match="none"):
        _ = NonNegative(m).exact_cells
    free, loose = NonNegative(m), NonNegative(m, (Constraint.bounds(TABLES["total"], at_most=10**6),))
    for block, variance in zip(m.strategy.blocks, law_variances(m.strategy, m.laws), strict=True):
        apart = np.ldexp(free.point_of(block.query) - loose.point_of(block.query), -block.exponent)
        assert np.square(apart).sum() / variance / 2 <= 4 * GAP  # both within one gap of the optimum


BAD = {
    "a negative count": (
        (Constraint.equal(TABLES["age"], [1, 2, -1, 3, 4, 5, 6, 7]),),
        "'age' .age=2. .* not negative",
    ),
    "a sum that differs": (
        (Constraint.equal(TABLES["age"], [1] * 8), Constraint.equal(TABLES["total"], 9)),
        "contradict each other: the count of 'total'",
    ),
    "bounds that cross a sum": (
        (Constraint.equal(TABLES["total"], 5), Constraint.bounds(TABLES["age"], at_least=1)),
        r"no non-negative counts .* 'total', 'age' .* miss by 3",
    ),
    "prefixes that fall": (
        (Constraint.equal(TABLES["prefix"], [1, 2, 3, 2, 4, 5, 6, 7]),),
        r"'prefix' .age=0-2., 'prefix' .age=0-3. contradict",
    ),
    "prefix bounds that fall": (
        (Constraint.bounds(TABLES["prefix"], [0, 0, 5] + [0] * 5, [9, 9, 9, 3] + [9] * 4),),
        r"'prefix' .age=0-2., 'prefix' .age=0-3. contradict",
    ),
    "people where nobody is": (
        (
            Constraint.bounds(TABLES["sex"], at_most=[0, 50]),
            Constraint.bounds(TABLES["sex*age"], at_least=[[1] + [0] * 7, [0] * 8]),
        ),
        "leave nobody whom it counts",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_no_counts_meet_is_refused_by_row(bad: str) -> None:
    constraints, message = BAD[bad]
    with pytest.raises(InvalidArgument, match=message):
        _ = NonNegative(measured("union", "gaussian", people=1.0), constraints).solution


def test_margins_that_agree_in_pairs_but_not_in_threes_are_refused() -> None:
    """Whoever is like in a and b, and in a and c, is like in b and c."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    names = [("a", "b"), ("a", "c"), ("b", "c")]
    even, odd = np.eye(2, dtype=int), 1 - np.eye(2, dtype=int)
    tables = [tb.Table("*".join(pair), {n: tb.Identity(2) for n in pair}) for pair in names]
    constraints = tuple(Constraint.equal(t, 4 * v) for t, v in zip(tables, (even, even, odd), strict=True))
    wl = tb.Workload.marginals(domain, ways=[2])
    m = tb.measure(
        np.ones(8, int), tb.select(wl, method="workload"), BUDGETS["gaussian"], source=tb.noise.Insecure(1)
    )
    with pytest.raises(InvalidArgument, match="constraints"):
        _ = NonNegative(m, constraints).solution


# whole cells --------------------------------------------------------------------------------------------------
def _limits(x: np.ndarray, sets: Sequence[tuple[int, ...]]) -> tuple[Limits, MeasuredCells, Domain]:
    domain = Domain({f"a{i}": n for i, n in enumerate(x.shape)})
    tables = [
        tb.Table(f"t{k}", {f"a{i}": tb.Identity(x.shape[i]) for i in s}) if s else tb.Table(f"t{k}", {})
        for k, s in enumerate(sets)
    ]
    constraints = [Constraint.equal(t, np.asarray(t.operator(domain) @ x.ravel())) for t in tables]
    cells = tb.Table("cells", {f"a{i}": tb.Identity(n) for i, n in enumerate(x.shape)})
    strategy = tb.select(tb.Workload(domain, [cells]), method="identity")
    variances = law_variances(strategy, strategy.laws(BUDGETS["gaussian"]))
    problem = MeasuredCells(strategy, variances, [t.operator(domain) for t in tables])
    return Limits(problem, domain, constraints), problem, domain


@pytest.mark.parametrize(
    ("sets", "explicit", "route"),
    [
        ([(0, 2), (1, 2), (2,)], 4096, "forest"),
        ([(0,), (1,)], 4096, "forest"),
        ([(), (1,)], 4096, "forest"),
        ([(0, 1), (0, 2), (1, 2)], 4096, "echelon"),
        ([(0, 1), (0, 2), (1, 2)], 0, "corner"),
        ([(0,), (1,), (2,)], 0, "corner"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_cells_are_made_whole_by_every_route(
    sets: list[tuple[int, ...]], explicit: int, route: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From cells off the constraints, half of them 0 and some rows empty: exact sums, no negative cell, zeros stay."""
    monkeypatch.setattr(whole_cells, "EXPLICIT", explicit)
    draw = np.random.default_rng(seed)
    rates = np.prod(np.meshgrid(*(draw.gamma(0.6, size=n) for n in (6, 7, 5)), indexing="ij"), axis=0)
    x = draw.poisson(4 * rates / rates.mean())
    x[2] = 0  # a category without records
    limits, problem, _ = _limits(x, sets)
    rounding = whole_cells.Rounding(limits, problem.shape)
    assert rounding.sums.route == route
    near = np.maximum(x.ravel() + draw.normal(0, 0.1, x.size), 0.0) * (x.ravel() > 0)
    found = rounding(near)
    assert found is not None
    whole, exponent = found
    assert (whole >= 0).all()
    assert not whole[~limits.open].any()
    for rows, values in zip(limits.exact, limits.values, strict=True):
        assert np.array_equal(rows.operator @ whole, values << exponent)
    assert np.abs(np.ldexp(whole.astype(float), -exponent) - near).max() < 3


def test_a_table_of_differences() -> None:
    swap = tb.Dense(np.array([[0, 1], [1, 0]]))
    table = tb.Table.of_terms("f - m", [Term(1, {"sex": tb.Identity(2)}), Term(-1, {"sex": swap})])
    _meets_exactly(
        NonNegative(measured("union", "gaussian", people=1.0), (Constraint.equal(table, [3, -3]),))
    )


# published ------------------------------------------------------------------------------------------------------
def test_published_tables_hold_what_is_exact_and_intervals_know_it() -> None:
    m = measured("union", "gaussian", people=1.0)
    ages, races = WORKLOADS["union"].tables[:2]
    everybody = Constraint.equal(TABLES["total"], 40)
    few = Constraint.bounds(ages, at_most=25)
    estimate = tb.estimate(m, constraints=[everybody, few], method="non-negative")
    answers, intervals = estimate.answer(WORKLOADS["union"]), estimate.interval(WORKLOADS["union"])
    assert answers["total"].tolist() == [40.0]
    assert [limit.tolist() for limit in intervals["total"]] == [[40.0], [40.0]]
    assert answers[ages.name].max() <= 25
    widths, point = estimate.half_widths_of(ages, 0.95).values, answers[ages.name]
    linear = estimate.linear  # type: ignore[attr-defined]
    middle, wide = linear.answer_of(ages), linear.half_widths_of(ages, 0.95).values
    low, high = np.clip(middle - wide, 0, 25), np.clip(middle + wide, 0, 25)
    np.testing.assert_allclose(widths, np.maximum(high - point, point - low), atol=1e-9)
    assert (answers[races.name] >= 0).all()


COVERED = [("laplace", 6), *(pytest.param(noise, 20, marks=pytest.mark.long) for noise in BUDGETS)]


@pytest.mark.parametrize(("noise", "draws"), COVERED)
def test_intervals_cover_under_constraints(noise: str, draws: int) -> None:
    """An interval that holds its level fails the bound of six deviations with probability below 1e-6."""
    wl = WORKLOADS["marginals"]
    strategy = tb.select(wl, noise=noise, method="workload")  # type: ignore[arg-type]
    given = [exactly("total"), about("age")]
    hits: dict[str, np.ndarray] = {}
    for seed in range(draws):
        m = tb.measure(TRUTH, strategy, BUDGETS[noise], source=tb.noise.Insecure(seed))
        for name, (low, high) in (
            tb.estimate(m, constraints=given, method="non-negative").interval(wl).items()
        ):
            truth = _of(wl, name)
            hits[name] = hits.get(name, 0) + ((low <= truth + 1e-9) & (truth <= high + 1e-9))
    for covered in hits.values():
        assert (covered / draws >= 0.95 - 6 * np.sqrt(0.95 * 0.05 / draws)).all()
        assert covered.mean() / draws >= 0.95


def _of(workload: tb.Workload, name: str) -> np.ndarray:
    table = next(t for t in workload.tables if t.name == name)
    return np.asarray(table.operator(DOMAIN) @ TRUTH)


@pytest.mark.parametrize("n", [40, pytest.param(100, marks=pytest.mark.long)])
def test_many_cells_under_exact_margins(n: int) -> None:
    domain = Domain({"a": n, "b": n, "c": n})
    x = np.random.default_rng(2).poisson(1.0, domain.size)
    cells = tb.Table("cells", {name: tb.Identity(n) for name in domain.names})
    tables = [tb.Table("total", {}), tb.Table("a", {"a": tb.Identity(n)})]
    constraints = tuple(Constraint.equal(t, np.asarray(t.operator(domain) @ x)) for t in tables)
    strategy = tb.select(tb.Workload(domain, [cells]), method="identity")
    m = tb.measure(x, strategy, BUDGETS["gaussian"], source=tb.noise.Insecure(3))
    estimate = NonNegative(m, constraints)
    assert estimate.solution.gap <= GAP
    _meets_exactly(estimate)


@each("method", ["identity", "residual"], long=["workload", "kron"])
@each("sizes", [(5, 5, 6), (3, 4, 6), (4, 6, 4), (5, 4)])
def test_near_bounds_on_many_rows_lead_to_the_optimum(method: str, sizes: tuple[int, ...]) -> None:
    """Where bounds bind and hardly a sign does, the penalty does not run away."""
    domain = Domain({f"a{i}": n for i, n in enumerate(sizes)})
    counts = np.random.default_rng(sizes).poisson(30, domain.size)
    workload = tb.Workload.marginals(domain, ways=[1, 2])
    m = tb.measure(counts, tb.select(workload, method=method), tb.ZCDP(1), source=tb.noise.Insecure(1))
    asked = {name: tb.Identity(domain.shape[domain.axis(name)]) for name in ("a0", "a1")}
    true = tb.Table("asked", asked).operator(domain) @ counts
    bounds = Constraint.bounds(tb.Table("asked", asked), at_least=true - 1, at_most=true)
    found = tb.estimate(m, constraints=[bounds], method="non-negative")
    assert found.solution.gap <= GAP
    answer = found.answer_of(tb.Table("asked", asked))
    assert (answer >= true - 1 - 1e-6).all()
    assert (answer <= true + 1e-6).all()


@pytest.mark.parametrize("given", [(), (exactly("total"),)], ids=["signs alone", "constrained"])
def test_an_estimate_that_is_of_no_use_is_refused(
    given: Sequence[Constraint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cone, "_LOST", -1.0)  # no gap is small enough
    m = measured("union", "gaussian", people=1.0)
    with pytest.raises(Unsupported, match="standard errors from the optimum"):
        _ = NonNegative(m, tuple(given)).solution


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(
    ("size", "exact", "limited"),
    [
        (1e6, True, False),
        (1e8, True, False),
        (1e6, True, True),
        pytest.param(1e3, True, True, marks=pytest.mark.long),
        pytest.param(1e8, True, True, marks=pytest.mark.long),
        pytest.param(1e6, False, True, marks=pytest.mark.long),
        pytest.param(1e8, False, True, marks=pytest.mark.long),
    ],
)
def test_counts_of_millions_lead_to_the_optimum(
    neighbours: str, size: float, exact: bool, limited: bool
) -> None:
    """Whose limits are far narrower than the counts, and whose public total is nearly exact."""
    domain = tb.Domain({"a": 6, "b": 5, "c": 8})
    rng = np.random.default_rng(3)
    counts = rng.poisson(size * rng.gamma(0.3, 1, domain.size))
    strategy = tb.select(tb.Workload.marginals(domain, ways=[2]), neighbours=neighbours, method="residual")
    m = tb.measure(counts, strategy, tb.ZCDP("1/2"), neighbours=neighbours, source=tb.noise.Insecure(1))
    one, other = tb.Table("one", {"a": tb.Identity(6)}), tb.Table("other", {"c": tb.Identity(8)})
    kept, near = (np.asarray(table.operator(domain) @ counts) for table in (one, other))
    constraints = [Constraint.equal(one, kept)] if exact else []
    if limited:
        constraints.append(Constraint.bounds(other, np.maximum(near - 3, 0), near + 3))
    found = tb.estimate(m, constraints=constraints, method="non-negative")
    assert found.solution.gap <= 100 * GAP  # type: ignore[attr-defined]
    if exact:
        assert found.answer_of(one).tolist() == kept.tolist()
    if limited:
        assert (np.abs(found.answer_of(other) - near) <= 3).all()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("size", [100, 10**6, 10**9])
def test_a_limit_that_binds_moves_the_others_alike(size: int, neighbours: str) -> None:
    """Cells of equal noise, an exact total and one upper limit: the others share what that cell may not have."""
    domain = tb.Domain({"a": 4})
    counts = np.array([size, 2 * size, 3 * size, 4 * size])
    cells = tb.Table("cells", {"a": tb.Identity(4)})
    strategy = tb.select(tb.Workload(domain, [cells]), neighbours=neighbours, method="identity")
    m = tb.measure(counts, strategy, tb.ZCDP("1/2"), neighbours=neighbours, source=tb.noise.Insecure(2))
    first = tb.Table("first", {"a": tb.Dense([[1, 0, 0, 0]])})
    constraints = [
        Constraint.equal(tb.Table("total", {}), [10 * size]),
        Constraint.bounds(first, at_most=[size - 20]),
    ]
    found = tb.estimate(m, constraints=constraints, method="non-negative")
    answers = np.asarray(tb.estimate(m).answer_of(cells)) - counts  # the limit binds, far below its answer
    expected = answers + (20 - answers[1:].sum()) / 3
    expected[0] = -20
    deviation = np.sqrt(tb.estimate(m).variance_of(cells).max())
    assert np.abs(found.answer_of(cells) - counts - expected).max() <= np.sqrt(2 * GAP) * deviation
