"""The comparison of strategies: its workloads, the numbers it keeps, and that the docs page shows those numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.strategies_page import PAGE, page_tables
from benchmarks.strategies_paper import PRINTED
from benchmarks.strategies_score import dense_loss, gram_of
from benchmarks.strategies_workloads import (
    CASES,
    EXAMPLE_4,
    marginals,
    random_marginals,
    random_ranges,
    ranges,
)
from tests.each import each

from benchmarks import hdmm, strategies
from tabulae.strategy import baseline
from tabulae.strategy.strategy import unit_rmse


@pytest.fixture(scope="module")
def cells() -> strategies.Cells:
    """Everything measured so far."""
    return strategies.read()


def times(cells: strategies.Cells, name: str, method: str, of: str = "eigen") -> float:
    """How many times the error (or bound) of one method another has."""
    top, bottom = (strategies.value_of(cells[name, "gaussian", m]) for m in (method, of))
    assert top is not None
    assert bottom is not None
    return top / bottom


# what is kept can be measured again --------------------------------------------------------------------------
CHEAP = [
    ("all-range-64", "gaussian", "hierarchical"),
    ("all-range-64", "gaussian", "hb"),
    ("all-range-64", "gaussian", "hb-l1"),
    ("all-range-64", "gaussian", "eigen"),
    ("all-range-64", "gaussian", "coa"),
    ("all-range-64", "laplace", "wavelet"),
    ("prefix-64", "laplace", "greedy-h"),
    ("permuted-64", "laplace", "hierarchical"),
    ("cps-marginals", "laplace", "datacube"),
    ("loans-small", "gaussian", "datacube-cover"),
    ("example-4", "gaussian", "program-2"),
    ("example-4", "gaussian", "wavelet"),
    ("marginals-2-8x16x16", "gaussian", "fourier"),
    ("range-marginals-2", "gaussian", "hierarchical"),
    ("ranges-64x32", "gaussian", "eigen"),
]


@pytest.mark.parametrize("key", CHEAP, ids="-".join)
def test_a_cell_is_what_its_strategy_has(cells, key):
    again = strategies.measure(*key)
    assert again.rmse == pytest.approx(cells[key].rmse, rel=1e-3)


def test_a_cell_is_kept_beside_others(tmp_path, monkeypatch):
    monkeypatch.setattr(strategies, "RESULTS", tmp_path / "strategies.csv")
    strategies.write(strategies.measure("example-4", "gaussian", "identity"))
    strategies.write(strategies.measure("example-4", "gaussian", "svd"))
    kept = strategies.read()
    assert kept["example-4", "gaussian", "identity"].rmse == pytest.approx(45.36, abs=0.005)
    assert kept["example-4", "gaussian", "svd"].bound == pytest.approx(29.21, abs=0.005)


# errors against bounds, print, and what is known exactly -----------------------------------------------------
def test_no_error_is_below_a_bound(cells):
    for cell in cells.values():
        share = strategies.ratio(cells, cell)
        assert share is None or share >= 1 - 1e-5, cell


def test_trees_and_wavelets_are_as_printed(cells):
    """Hay and others' binary tree, Privelet, and HB with the branching of Laplace noise: fully determined."""
    compared = 0
    for key, printed in PRINTED.items():
        determined = key[2] in ("hierarchical", "wavelet") or key[1:] in (
            ("laplace", "hb"),
            ("gaussian", "hb-l1"),
        )
        if determined and key[0] in hdmm.ONE:
            assert cells[key].rmse == pytest.approx(printed, abs=0.0051), key
            compared += 1
    assert compared == 4 * 4 * 2 * 3  # workloads, sizes, noises, strategies


def test_one_cover_is_the_printed_data_cube(cells):
    for name in ("cps-marginals", "adult-3d", "loans-small"):
        for noise in ("laplace", "gaussian"):
            key = (name, noise, "datacube-cover")
            assert cells[key].rmse == pytest.approx(PRINTED[key], abs=0.0051)


def test_example_4_is_within_half_a_per_cent(cells):
    for method in ("workload-alone", "identity", "wavelet", "program-2", "svd"):
        key = ("example-4", "gaussian", method)
        assert strategies.value_of(cells[key]) == pytest.approx(PRINTED[key], rel=5e-3)


def test_eigen_design_over_2048_cells(cells):
    """The values known exactly, of all ranges, ranges over shuffled cells and prefixes."""
    assert times(cells, "ranges-2048", "svd") == pytest.approx(0.986, abs=1e-3)
    assert times(cells, "ranges-2048", "wavelet") == pytest.approx(1.226, abs=1e-3)
    assert times(cells, "ranges-2048", "hierarchical") == pytest.approx(1.313, abs=1e-3)
    assert times(cells, "permuted-2048", "wavelet") == pytest.approx(9.5, rel=0.03)  # one permutation of many
    assert times(cells, "permuted-2048", "hierarchical") == pytest.approx(12.8, rel=0.03)
    assert 0.775 < times(cells, "prefix-2048", "svd") < 0.80
    assert times(cells, "prefix-2048", "svd", "opt0") == pytest.approx(0.9865, abs=1e-3)
    for name in ("ranges-2048", "permuted-2048", "prefix-2048"):
        assert cells[name, "gaussian", "eigen"].cpu_s < 10


def test_the_wavelet_and_the_tree_beat_the_eigen_design_on_prefixes(cells):
    """Against the paper's "1.01/1.01"."""
    assert times(cells, "prefix-2048", "wavelet") < 1
    assert times(cells, "prefix-2048", "hierarchical") < 1.005


def test_fourier_and_not_the_wavelet_is_best_on_predicates(cells):
    """Printed are 1.39 for the Wavelet and 1.94 for Fourier: the names are swapped."""
    assert times(cells, "predicates", "fourier") == pytest.approx(1.39, abs=0.005)
    assert times(cells, "predicates", "wavelet") == pytest.approx(1.94, rel=0.02)


SMALL = [name for name in CASES if "8192" not in name]


@pytest.mark.parametrize("name", [n for n in SMALL if n.startswith(("marginals-2-", "random-marginals"))])
def test_eigen_design_meets_the_bound_on_marginals(cells, name):
    assert times(cells, name, "eigen", "svd") == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", [n for n in SMALL if n.startswith(("ranges-", "random-ranges"))])
def test_eigen_design_is_within_1_3_of_the_bound_on_ranges(cells, name):
    assert times(cells, name, "eigen", "svd") < 1.3
    assert min(times(cells, name, m) for m in ("wavelet", "hierarchical")) > 1.2


def test_fewer_unknowns_stay_near_the_bound(cells):
    """Within 12 % of the bound on 8,192 cells; principal vectors as printed, separation nearer than printed."""
    assert times(cells, "ranges-8192", "principal-vectors-6", "svd") == pytest.approx(1.10, abs=0.005)
    assert times(cells, "marginals-2-8192", "principal-vectors-6", "svd") == pytest.approx(1, abs=1e-4)
    assert times(cells, "ranges-8192", "eigen-separation-16", "svd") < 1.05
    assert times(cells, "marginals-2-8192", "eigen-separation-16", "svd") < 1.11


# workloads and scores ---------------------------------------------------------------------------------------
def test_random_ranges_are_products_of_ranges():
    shape = (4, 3, 5)
    workload = random_ranges(shape, queries=200, seed=1)
    rows = workload.tables[0].operator(workload.domain).dense().reshape(-1, *shape)
    for box in rows:
        for axis in range(3):
            side = box.max(axis=tuple(a for a in range(3) if a != axis))
            assert side.sum() == np.ptp(np.flatnonzero(side)) + 1  # one run of ones
        assert box.sum() == math.prod(
            box.max(axis=tuple(a for a in range(3) if a != k)).sum() for k in range(3)
        )


def test_random_marginals_are_marginals_of_some_sets():
    workload = random_marginals((2, 3, 4, 2))
    names = {t.name for t in workload.tables}
    assert 1 <= len(names) == len(workload.tables) <= 15


def test_every_case_has_the_cells_of_its_grid():
    for name in ("example-4", "permuted-marginals-2"):
        case = CASES[name]
        assert case.grid is not None
        assert math.prod(case.grid) == case.asked().domain.size


@each("noise", ["gaussian", "laplace"])
@each("make", [lambda: ranges((8, 4)), lambda: marginals((4, 3, 2), 2)], ids=["ranges", "marginals"])
@each("method", ["hierarchical", "wavelet", "fourier", "residual"])
def test_dense_scores_are_those_of_the_closed_forms(make, noise, method):
    workload = make()
    strategy = baseline(workload, method, noise, "add-remove")
    expected = unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries
    assert dense_loss(strategy, gram_of(workload)) == pytest.approx(expected, rel=1e-6)


def test_gram_of_a_workload_is_over_all_its_cells():
    case = CASES["example-4"]
    assert np.array_equal(gram_of(case.asked()), EXAMPLE_4.T @ EXAMPLE_4)


# the page ---------------------------------------------------------------------------------------------------
def test_printed_numbers_belong_to_cells_that_are_wanted():
    for name, noise, method in PRINTED:
        assert name in strategies.WORKLOADS
        assert method in strategies.METHODS
        assert method in strategies.wanted(name, noise), (name, noise, method)


def test_the_page_shows_the_csv(cells):
    text = PAGE.read_text()
    for place, table in page_tables(cells).items():
        assert f"<!-- {place} -->\n\n{table}\n\n<!-- end of {place} -->" in text, place
