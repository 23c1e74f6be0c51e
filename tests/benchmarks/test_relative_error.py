"""The study of relative errors: its data, its closed forms against simulation and the library, its recorded results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.census import PEOPLE, SHAPE, census, law
from tests.each import each

import tabulae as tb
from benchmarks import relative_cases, relative_error, relative_page
from tabulae.strategy import baseline
from tabulae.strategy.information.routes import information
from tabulae.strategy.strategy import unit_variances

SMALL = tb.Domain({"a": 4, "b": 3, "c": 2})
COUNTS = np.random.default_rng(5).negative_binomial(1, 0.02, SMALL.shape)
TWO_WAY = tb.Workload.marginals(SMALL, ways=[2])
RANGES = relative_cases.all_ranges(SMALL)


def small_case() -> relative_cases.Case:
    return relative_cases.Case(
        "small",
        relative_cases.range_marginals(SMALL, 2),
        {"identity": RANGES, "residual": TWO_WAY},
        certified=True,
    )


def test_census_is_skewed_correlated_and_the_same_every_time() -> None:
    people = census()
    assert people.shape == tuple(SHAPE.values())
    assert people.sum() == PEOPLE
    np.testing.assert_array_equal(people, census())
    assert law().sum() == pytest.approx(1)
    assert (people == 0).mean() > 0.2
    by_occupation = np.sort(people.sum(axis=(0, 2, 3)))
    assert by_occupation[-1] > 30 * by_occupation[0]
    table = people.sum(axis=(0, 1)).astype(float)  # income by education
    income, education = np.indices(table.shape)
    assert np.cov(np.stack([income.ravel(), education.ravel()]), fweights=table.ravel().astype(int))[0, 1] > 1


def test_adult_is_the_training_part() -> None:
    if not relative_cases.ADULT_FILE.exists():
        pytest.skip("shared/data/adult.csv is not here")
    counts = relative_cases.adult()
    assert counts.shape == (8, 8, 16, 2)
    assert counts.sum() == 32_561
    assert counts.sum(axis=(0, 1, 2)).tolist() == [24_720, 7_841]
    assert (counts.sum(axis=(1, 2, 3)) > 0).all()


@pytest.mark.parametrize("data", [pytest.param("adult", marks=pytest.mark.long), "census"])
def test_cases_are_over_the_cells_of_the_data(data: str) -> None:
    assert relative_cases.domain_of(data).size == 2048
    for case in relative_cases.cases(data):
        assert case.workload.domain.size == 2048
        assert {asked.domain.size for asked in case.others.values()} == {2048}
    random = relative_cases.random_ranges(relative_cases.domain_of(data))
    assert random.shape == (relative_cases.QUERIES, 2048)
    assert random.binary


def test_random_ranges_are_products_of_ranges() -> None:
    for row in relative_cases.random_ranges(SMALL).dense()[:50]:
        inside = row.reshape(SMALL.shape).astype(bool)
        sides = [inside.any(axis=tuple(k for k in range(3) if k != axis)) for axis in range(3)]
        assert all(np.diff(np.flatnonzero(side)).tolist() in ([], [1] * (side.sum() - 1)) for side in sides)
        np.testing.assert_array_equal(
            inside, np.multiply.outer(np.multiply.outer(sides[0], sides[1]), sides[2])
        )


@each("method", ["identity", "wavelet", "hierarchical", "kron"])
@each("workload", [RANGES, TWO_WAY, tb.Workload.of(relative_cases.random_predicates(24))])
def test_variances_are_those_of_the_library(method: str, workload: tb.Workload) -> None:
    """By factors, and by one matrix over all cells."""
    strategy = baseline(RANGES, method, "gaussian", "add-remove")
    found = relative_error.of_strategy(strategy)
    whole = np.ones((1, 1))
    for part in found:
        whole = np.kron(whole, part)
    info = information(strategy, unit_variances(strategy, "add-remove"))
    for table in workload.tables:
        factors = table.terms[0].over(workload.domain)
        over_cells = tb.Kron(factors).dense().astype(float)
        expected = np.einsum("qi,ij,qj->q", over_cells, whole, over_cells)
        np.testing.assert_allclose(relative_error.variances(factors, found), expected, rtol=1e-6)
        np.testing.assert_allclose(relative_error.variances(factors, (whole,)), expected, rtol=1e-6)
        if workload.domain == SMALL:
            np.testing.assert_allclose(expected, info.variance(table.operator(SMALL)), rtol=1e-6)


def test_permuted_ranges() -> None:
    query = tb.Permuted(tb.AllRange(5), [3, 0, 4, 1, 2])
    root = np.random.default_rng(6).normal(size=(5, 5))
    expected = np.einsum("qi,ij,qj->q", query.dense(), root @ root.T, query.dense())
    np.testing.assert_allclose(relative_error.variances([query], (root @ root.T,)), expected)


@pytest.mark.parametrize("floor", [1.0, 40.0])
def test_mean_relative_errors_by_simulation(floor: float) -> None:
    """Noise on the strategy's answers, least squares, the workload's answers: within five standard errors."""
    case, draws = small_case(), 4_000
    found = relative_error.optimised("opt0", RANGES)
    covariance = np.ones((1, 1))
    for part in found:
        covariance = np.kron(covariance, part)
    strategy = np.linalg.inv(np.linalg.cholesky(covariance))  # A with (A'A)^-1 = C
    noise = np.random.default_rng(7).normal(size=(len(strategy), draws))
    cells = np.linalg.lstsq(strategy, noise, rcond=None)[0]
    relative = []
    for table in case.workload.tables:
        answers = table.operator(SMALL) @ COUNTS.ravel()
        relative.append(np.abs(table.operator(SMALL) @ cells) / np.maximum(answers, floor)[:, None])
    simulated = np.concatenate(relative).mean(axis=0)
    expected, rmse = relative_error.unit_errors(case, found, COUNTS, floor)
    assert abs(simulated.mean() - expected) < 5 * simulated.std() / math.sqrt(draws)
    assert rmse > 0
    by_row, _ = relative_error.table_error(RANGES.tables[0].terms[0].over(SMALL), found, COUNTS, floor)
    at_once, _ = relative_error.table_error(
        RANGES.tables[0].terms[0].over(SMALL), (covariance,), COUNTS, floor
    )
    assert by_row == pytest.approx(at_once, rel=1e-9)


def test_a_case_is_measured_kept_and_shown(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(relative_error, "RESULTS", tmp_path / "relative.csv")
    results = relative_error.measure("small", small_case(), COUNTS)
    relative_error.write(results)
    again = relative_error.read()
    assert [(r.strategy, r.objective, r.epsilon) for r in again] == [
        (r.strategy, r.objective, r.epsilon) for r in results
    ]
    assert min(r.ratio_to_best for r in again) == 1
    for sanity in relative_error.SANITY:
        (cells,) = relative_error.at_half(again, sanity).values()
        assert cells["opt0", "total"].rmse <= min(r.rmse for r in cells.values()) * (1 + 1e-2)
        optimum = cells["opt0", "relative"].mean_relative_error
        assert optimum <= cells["identity", "any"].mean_relative_error
    assert "| small |" in relative_page.errors_table(relative_error.at_half(again, "one"))


def test_recorded_results_cover_the_study_and_scale_with_the_noise() -> None:
    results = relative_error.read()
    assert {r.data for r in results} == set(relative_cases.DATA)
    assert {r.epsilon for r in results} == set(relative_error.EPSILONS)
    by_epsilon: dict[tuple[str, ...], dict[str, float]] = {}
    for r in results:
        key = (r.data, r.workload, r.sanity, r.strategy, r.objective)
        by_epsilon.setdefault(key, {})[r.epsilon] = r.mean_relative_error
    factor = relative_error.sigma("0.1") / relative_error.sigma("2.5")
    for errors in by_epsilon.values():
        assert errors["0.1"] / errors["2.5"] == pytest.approx(factor, rel=1e-4)


def test_scaling_helps_the_optimum_everywhere() -> None:
    for cells in relative_error.at_half(relative_error.read(), "0.1 %").values():
        for method in ("opt0", "residual"):
            if (method, "relative") in cells:
                scaled, total = cells[method, "relative"], cells[method, "total"]
                assert scaled.mean_relative_error < total.mean_relative_error
                assert scaled.rmse >= total.rmse * (1 - 1e-2)
