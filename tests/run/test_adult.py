"""Real people: the UCI Adult release of examples/adult.toml, against the truth.

The records are not part of the project: without ``../shared/data/adult.csv`` these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.products.tables.product import prepare, reconstruct
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[2]
RECORDS = ROOT.parent / "shared" / "data" / "adult.csv"
CELLS = ("age_by_sex", "education_by_sex_by_income")  # ranges overlap, so that a few decide their mean
RUNS = [20, pytest.param(200, marks=pytest.mark.long)]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not RECORDS.exists(), reason="needs the UCI Adult records in ../shared/data/adult.csv"
    ),
]


@pytest.fixture(scope="module")
def made() -> tb.Plan:
    """The plan of the example, reading the real records."""
    return tb.plan(read_spec(ROOT / "examples" / "adult.toml").with_source(RECORDS))


@pytest.fixture(scope="module")
def truth(made: tb.Plan) -> dict[str, np.ndarray]:
    """The tables counted by numpy from the file."""
    header = RECORDS.read_text().splitlines()[0].split(",")
    columns = [header.index(made.spec.columns[a.name].name) for a in made.spec.domain.attributes]
    codes = np.loadtxt(RECORDS, delimiter=",", skiprows=1, usecols=columns, dtype=np.int64)
    x = np.zeros(made.spec.domain.shape)
    np.add.at(x, tuple(codes.T), 1)
    return {t.name: t.operator(made.spec.domain) @ x.ravel() for t in made.spec.workload.tables}


@pytest.fixture(scope="module", params=RUNS)
def runs(request: pytest.FixtureRequest) -> int:
    """How many rehearsals the errors are of."""
    return request.param


def sampling(of_200: float, runs: int) -> float:
    """What a mean may be off by, given that of 200 rehearsals: never less than four of its deviations."""
    return of_200 * float(np.sqrt(200 / runs))


@pytest.fixture(scope="module")
def errors(runs: int, made: tb.Plan, truth: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Published minus true, runs x queries, over rehearsals; and the variances that are published."""
    prepared, workload = prepare(made), made.spec.workload
    found: dict[str, list[np.ndarray]] = {name: [] for name in truth}
    for seed in range(runs):
        estimate = reconstruct(made, prepared.measure(None, tb.noise.Insecure(seed)))
        for name, values in estimate.answer(workload).items():
            found[name].append(values - truth[name])
    return {name: np.array(rows) for name, rows in found.items()}


def _standardised(made: tb.Plan, errors: dict[str, np.ndarray]) -> float:
    estimate = reconstruct(made, prepare(made).measure(None, tb.noise.Insecure(0)))
    variance = estimate.variance(made.spec.workload)
    return float(np.mean(np.concatenate([(errors[name] ** 2 / variance[name]).ravel() for name in CELLS])))


def test_mean_squared_standardised_error_is_one(
    made: tb.Plan, runs: int, errors: dict[str, np.ndarray]
) -> None:
    """Within 11 % of 20 runs (their deviation is 2 %): and noise scaled by 0.9 or by 1.1 would not be."""
    assert abs(_standardised(made, errors) - 1) <= sampling(0.036, runs)
    for factor in (0.9, 1.1):
        scaled = {name: factor * e for name, e in errors.items()}
        assert abs(_standardised(made, scaled) - 1) > sampling(0.036, runs)


def test_every_tables_rmse_is_the_plans(made: tb.Plan, runs: int, errors: dict[str, np.ndarray]) -> None:
    for row in made.table_errors:
        rmse = float(np.sqrt(np.mean(errors[row.table] ** 2)))
        assert rmse == pytest.approx(row.rmse, rel=sampling(0.07, runs)), row.table


def test_margins_cover(made: tb.Plan, runs: int, errors: dict[str, np.ndarray]) -> None:
    """Published 95 % intervals contain the truth at least 95 % of the time, but for sampling error."""
    estimate = reconstruct(made, prepare(made).measure(None, tb.noise.Insecure(0)))
    widths = estimate.half_widths(made.spec.workload)
    for name, e in errors.items():
        assert (np.abs(e) <= widths[name].values).mean() >= 0.95 - sampling(0.0134, runs), name


def test_ranges_beat_counting_every_cell(made: tb.Plan) -> None:
    for row in made.table_errors:
        if row.table.endswith("ranges"):
            assert row.identity is not None
            assert row.rmse <= 0.7 * row.identity


@pytest.mark.long
def test_the_release_itself(made: tb.Plan, tmp_path: Path, truth: dict[str, np.ndarray]) -> None:
    import dataclasses

    ledger = tmp_path / "ledger.db"
    tb.Ledger.create(ledger, made.spec.loss)
    release = tb.run(dataclasses.replace(made.spec, ledger=ledger), tmp_path / "release")
    assert release.verify() == []
    for name, values in truth.items():
        table = release.tables[name]
        inside = (table["ci_low"].to_numpy() <= values) & (values <= table["ci_high"].to_numpy())
        assert inside.mean() > 0.6  # correlated queries: one release may be unlucky as a whole, not wildly
