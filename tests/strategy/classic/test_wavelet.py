"""The Haar wavelet: its matrix for any number of cells, and its columns in HDMM's Tables 4 and 5."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.strategy.instances import WORKLOADS, dense

import tabulae as tb
from tabulae.strategy.classic.trees import haar, wavelet_strategy
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import NoiseKind, unit_rmse

UNIT = {"laplace": math.sqrt(2), "gaussian": 4.224678889326836}

# HDMM, Tables 4 and 5, column Wavelet: Laplace noise, Gaussian noise.
PRINTED = [
    (lambda n: tb.AllRange(n), 64, 10.11, 11.42),
    (lambda n: tb.AllRange(n), 256, 14.87, 14.81),
    (lambda n: tb.Prefix(n), 64, 9.37, 10.58),
    (lambda n: tb.Prefix(n), 256, 13.09, 13.03),
    (lambda n: tb.WidthRange(n, 32), 64, 11.09, 12.52),
    (lambda n: tb.WidthRange(n, 32), 256, 13.57, 13.52),
    (lambda n: _permuted(n), 64, 18.97, 21.42),
    (lambda n: _permuted(n), 256, 49.09, 48.88),
]
LARGEST = [
    (lambda n: tb.AllRange(n), 1024, 20.26, 18.24),
    (lambda n: tb.Prefix(n), 1024, 17.20, 15.49),
    (lambda n: tb.WidthRange(n, 32), 1024, 16.56, 14.92),
]


def _permuted(n: int) -> tb.LinearOperator:
    """All ranges over the shuffled cells of the published experiment."""
    return tb.Permuted(tb.AllRange(n), np.argsort(np.random.RandomState(0).permutation(n)))


@each(("operator", "n", "laplace", "gaussian"), PRINTED, long=LARGEST)
def test_column_wavelet_of_hdmm(operator, n: int, laplace: float, gaussian: float) -> None:
    workload = tb.Workload.of(operator(n))
    columns: dict[NoiseKind, float] = {"laplace": laplace, "gaussian": gaussian}
    for noise, printed in columns.items():
        strategy = wavelet_strategy(workload, Settings(noise))
        assert round(UNIT[noise] * unit_rmse(strategy, workload, "add-remove"), 2) == printed


def _halving(n: int) -> list[list[int]]:
    """The wavelet by its definition: the total, then halves against halves."""
    rows = [[1] * n]
    intervals = [(0, n)]
    while intervals:
        first, end = intervals.pop(0)
        if end - first > 1:
            middle = (first + end) // 2
            rows.append([(first <= j < middle) - (middle <= j < end) for j in range(n)])
            intervals += [(first, middle), (middle, end)]
    return rows


@given(st.integers(1, 90))
def test_matrix_is_the_definition_and_invertible(n: int) -> None:
    operator = haar(n)
    matrix = operator.dense()
    assert operator.integer
    assert operator.shape == (n, n)
    assert np.array_equal(matrix, _halving(n))
    assert np.linalg.matrix_rank(matrix.astype(float)) == n
    norms = np.abs(matrix).sum(axis=0)
    assert norms.max() == 1 + math.ceil(math.log2(n)) if n > 1 else norms.max() == 1


@given(st.integers(1, 7))
def test_rows_are_orthogonal_for_powers_of_two(k: int) -> None:
    gram = haar(2**k).dense() @ haar(2**k).dense().T
    assert np.array_equal(gram, np.diag(gram.diagonal()))


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_equals_privelets_weighted_coefficients(k: int, seed: int) -> None:
    # Privelet's coefficients are halves of differences of means, its weights the sizes of their intervals.
    n = 2 ** (k % 7)
    x = np.random.default_rng(seed).integers(0, 50, n)
    weighted = [float(x.sum())]  # the mean, times n
    for level in range(k % 7):
        size = n >> level
        halves = x.reshape(-1, 2, size // 2).mean(axis=2)
        weighted.extend((halves[:, 0] - halves[:, 1]) / 2 * size)
    assert np.allclose(haar(n) @ x, weighted)


@each("noise", ["laplace", "gaussian"])
@each("name", WORKLOADS)
def test_answers_every_workload(name: str, noise: NoiseKind) -> None:
    workload = WORKLOADS[name]
    strategy = wavelet_strategy(workload, Settings(noise))
    assert strategy.method == "wavelet"
    assert strategy.sensitivity().is_exact
    A = np.asarray(strategy.blocks[0].query.dense(), float)
    W = np.vstack(
        [float(t.weight) * m for t, m in zip(workload.tables, dense(workload).values(), strict=True)]
    )
    Z = W @ np.linalg.pinv(A)
    assert np.allclose(Z @ A, W, atol=1e-8)
    differences = (A[:, :, None] - A[:, None, :]).reshape(len(A), -1)
    for neighbours, steps in (("add-remove", A), ("replace", differences)):
        norm = float((np.abs(steps) ** strategy.norm).sum(axis=0).max()) ** (1 / strategy.norm)
        expected = norm * float(np.linalg.norm(Z)) / math.sqrt(workload.queries)
        # the L1 distance of columns of a product with signs is bounded, not searched
        found = unit_rmse(strategy, workload, neighbours)
        assert found >= expected * (1 - 1e-9)
        if strategy.sensitivity(neighbours).is_exact:
            assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_loss_of_a_product_is_the_product_of_losses(noise: NoiseKind) -> None:
    settings = Settings(noise)
    one = [tb.AllRange(6), tb.Prefix(11)]
    workload = tb.Workload(tb.Domain({"a": 6, "b": 11}), [tb.Table("t", {"a": one[0], "b": one[1]})])
    product = unit_rmse(wavelet_strategy(workload, settings), workload, "add-remove")
    single = [unit_rmse(wavelet_strategy(w, settings), w, "add-remove") for w in map(tb.Workload.of, one)]
    assert product == pytest.approx(math.prod(single), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 23])
def test_any_number_of_cells_is_answered(n: int) -> None:
    workload = tb.Workload.of(tb.AllRange(n))
    strategy = wavelet_strategy(workload, Settings("gaussian"))
    A, W = np.asarray(haar(n).dense(), float), np.asarray(tb.AllRange(n).dense(), float)
    expected = math.sqrt((A**2).sum(axis=0).max() * ((W @ np.linalg.inv(A)) ** 2).sum() / len(W))
    assert unit_rmse(strategy, workload, "add-remove") == pytest.approx(expected, rel=1e-10)
