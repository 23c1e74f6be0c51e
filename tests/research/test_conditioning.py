"""Theorem 4.2: for spherical Gaussian noise, and only for it, projecting is conditioning on the invariants.

Noise e of every law is conditioned on C e = 0 by rejection (a slab of half-width h around the plane; its bias is of
the order (h / sigma)^2, 4e-4 of a variance, far below what these samples can tell) and compared with Pi_N e.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import tabulae as tb
from tabulae.research import generic_basis, projected_gaussian

C = np.array([[2.0, -1.0, 1.0, 1.0]])
SLAB = 0.02
FALSE_ALARM = 1e-6
Draw = Callable[[np.random.Generator, int], np.ndarray]


def spherical(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal((count, 4))


def unequal(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal((count, 4)) * [1.0, 3.0, 1.0, 0.3]


def laplace(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.laplace(size=(count, 4)) / np.sqrt(2)


def same_law(draw: Draw, seed: int) -> bool:
    """Whether no direction of 12 tells Pi_N e from e given C e = 0: two-sample tests, false alarm 1e-6 in all."""
    rng, Q = np.random.default_rng(seed), generic_basis(C)
    e = draw(rng, 2_000_000)
    normal = C[0] / np.linalg.norm(C)
    conditioned = e[np.abs(e @ normal) < SLAB] @ Q
    projected = draw(rng, len(conditioned)) @ Q
    directions = rng.standard_normal((12, Q.shape[1]))
    values = [stats.ks_2samp(projected @ v, conditioned @ v).pvalue for v in directions]
    return min(values) > FALSE_ALARM / len(directions)


def test_projection_is_conditioning_for_spherical_gaussian_noise() -> None:
    assert same_law(spherical, 1)


@pytest.mark.parametrize("draw", [pytest.param(unequal, marks=pytest.mark.long), laplace])
def test_and_not_for_other_noise(draw: Draw) -> None:
    assert not same_law(draw, 2)


@pytest.mark.parametrize("seed", range(5))
def test_covariances_in_closed_form(seed: int) -> None:
    """``Sigma - Sigma C'(C Sigma C')^-1 C Sigma`` is ``Pi_N Sigma Pi_N`` for Sigma = s^2 I, and not for others."""
    rng = np.random.default_rng(seed)
    n = 5
    invariants = rng.integers(-2, 3, (2, n))
    mechanism = projected_gaussian(np.eye(n), invariants, tb.ZCDP("1/8"))
    kept, Pi = mechanism.target.kept, mechanism.target.projector

    def conditional(Sigma: np.ndarray) -> np.ndarray:
        across = Sigma @ kept.T
        return Sigma - across @ np.linalg.solve(kept @ across, across.T)

    assert np.allclose(mechanism.covariance, conditional(4 * np.eye(n)))
    Sigma = np.diag(np.arange(1.0, n + 1))
    assert not np.allclose(Pi @ Sigma @ Pi, conditional(Sigma), rtol=1e-3)
