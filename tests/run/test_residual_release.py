"""Whole releases by the residual planner over domains that nobody can list: Adult's 14 attributes, and loans."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[2]
RECORDS = ROOT.parent / "shared" / "data" / "adult.csv"
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)

Tables = list[tuple[str, ...]]


def _small(sizes: dict[str, int], ways: range, most: int) -> Tables:
    """The marginals of at most so many cells."""
    crossed = (c for k in ways for c in itertools.combinations(sizes, k))
    return [c for c in crossed if math.prod(sizes[name] for name in c) <= most]


def _spec(folder: Path, source: Path, columns: dict[str, str], sizes: dict[str, int], tables: Tables) -> Path:
    """A spec in ``folder`` with a ledger beside it."""
    lines = [
        f'title = "{source.stem}"',
        f'[source]\npath = "{source}"\nunit = "person"',
        "[attributes]",
        *(f'{name} = {{ column = "{columns[name]}", range = [0, {n - 1}] }}' for name, n in sizes.items()),
        '[privacy]\ndefinition = "zcdp"\nbudget = "1/2"\ndelta = "1e-10"',
        'neighbours = "add-remove"\nledger = "ledger.db"',
        *(f'[[table]]\nname = "{_name(t)}"\nattributes = {json.dumps(t)}' for t in tables),
        '[method]\nselect = "residual"',
    ]
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP("1/2"))
    path = folder / "spec.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _name(table: tuple[str, ...]) -> str:
    return " by ".join(table) or "everybody"


def _truth(codes: np.ndarray, sizes: dict[str, int], table: tuple[str, ...]) -> np.ndarray:
    """A marginal counted by numpy."""
    axes = [list(sizes).index(name) for name in table]
    shape = [sizes[name] for name in table]
    cells = np.ravel_multi_index(codes[:, axes].T, shape) if table else np.zeros(len(codes), dtype=np.int64)
    return np.bincount(cells, minlength=math.prod(shape))


def _check_release(release: tb.Release, codes: np.ndarray, sizes: dict[str, int], tables: Tables) -> None:
    """Signed, right within its intervals, and consistent: tables agree on what they share.

    Intervals are pointwise at 95 %. Answers of one release are correlated within a table, hardly between them, so
    the share over all tables is held to 93 %.
    """
    assert release.verify() == []
    inside, whole = 0, 0
    totals = []
    for table in tables:
        published = release.tables[_name(table)]
        truth = _truth(codes, sizes, table)
        low, high = published["ci_low"].to_numpy(), published["ci_high"].to_numpy()
        inside += int(((low <= truth) & (truth <= high)).sum())
        whole += len(truth)
        totals.append(float(published["estimate"].to_numpy().sum()))
    assert inside / whole >= 0.93
    np.testing.assert_allclose(totals, totals[0], rtol=1e-6)


@pytest.mark.skipif(not RECORDS.exists(), reason="needs the UCI Adult records in ../shared/data/adult.csv")
@pytest.mark.long
def test_all_of_adults_attributes(tmp_path: Path) -> None:
    """6e17 cells: every attribute by itself, and pairs and triples of up to 1,000 cells."""
    sizes_of = json.loads(RECORDS.with_name("adult-domain.json").read_text())
    columns = {f"a{i}": name for i, name in enumerate(sizes_of)}
    sizes = {name: sizes_of[column] for name, column in columns.items()}
    assert math.prod(sizes.values()) > 6e17
    tables = _small(sizes, range(4), 1000)
    spec = _spec(tmp_path, RECORDS, columns, sizes, tables)
    plan = tb.plan(spec)
    assert plan.strategy.method == "residual"
    assert plan.strategy.certificate is not None
    assert plan.strategy.certificate <= 1e-6  # marginals: the optimum
    release = tb.run(spec, tmp_path / "release")
    header = RECORDS.read_text().splitlines()[0].split(",")
    chosen = [header.index(column) for column in columns.values()]
    codes = np.loadtxt(RECORDS, delimiter=",", skiprows=1, usecols=chosen, dtype=np.int64)
    _check_release(release, codes, sizes, tables)


@pytest.mark.long
def test_generated_loans(tmp_path: Path) -> None:
    """8e15 cells: a release from a file of 3,000 made-up loans."""
    sizes = {f"a{i}": n for i, n in enumerate(LOANS)}
    rng = np.random.default_rng(8)
    codes = np.stack([(n * rng.beta(1, 3, 3000)).astype(np.int64) for n in LOANS], axis=1)
    source = tmp_path / "loans.csv"
    np.savetxt(source, codes, fmt="%d", delimiter=",", header=",".join(sizes), comments="")
    tables = _small(sizes, range(3), 60)
    spec = _spec(tmp_path, source, {name: name for name in sizes}, sizes, tables)
    _check_release(tb.run(read_spec(spec), tmp_path / "release"), codes, sizes, tables)


@pytest.mark.long
def test_small_tables_of_loans_from_records() -> None:
    """HDMM's 188 small marginals of loans: every answer's error is what its variance says.

    Over the 188 tables of one measurement the mean standardised square is 1, with standard deviation 0.0035 (30
    simulations of the residual groups' noise): 0.03 is never reached by chance.
    """
    sizes = {f"a{i}": n for i, n in enumerate(LOANS)}
    domain = tb.Domain(sizes)
    tables = _small(sizes, range(13), 5000)
    assert len(tables) == 188
    workload = tb.Workload(
        domain, [tb.Table(_name(t), {name: tb.Identity(sizes[name]) for name in t}) for t in tables]
    )
    rng = np.random.default_rng(9)
    codes = np.stack([(n * rng.beta(1, 3, 20000)).astype(np.int64) for n in LOANS], axis=1)
    counts = tb.Counts.from_records(domain, codes)
    strategy = tb.select(workload, method="residual")
    measurement = tb.measure(counts, strategy, tb.ApproxDP(1, "1e-6"), source=tb.noise.Insecure(10))
    estimate = tb.estimate(measurement)
    assert estimate.information.route == "residual"
    answers, variances, intervals = (
        estimate.answer(workload),
        estimate.variance(workload),
        estimate.interval(workload),
    )
    squares, inside = [], []
    for table in tables:
        name, truth = _name(table), _truth(codes, sizes, table)
        squares.append((answers[name] - truth) ** 2 / variances[name])
        low, high = intervals[name]
        inside.append((low <= truth) & (truth <= high))
    assert np.concatenate(squares).mean() == pytest.approx(1.0, abs=0.03)
    assert np.concatenate(inside).mean() >= 0.94
