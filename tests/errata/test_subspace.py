"""Corollary 3.9 of Subspace Differential Privacy, as printed (docs/errata.md)."""

from __future__ import annotations

import numpy as np


def test_the_noise_of_corollary_3_9_must_not_hold_the_answer() -> None:
    """Noise A(x) + Q w doubles the answer, so that C M(x) = 2 C A(x): the invariant is missed. Q w keeps it."""
    rng = np.random.default_rng(1)
    C = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    null = np.linalg.svd(C)[2][2:].T
    answer, draw = np.array([3.0, 1.0, 4.0, 1.0]), rng.laplace(size=2)
    printed = answer + (answer + null @ draw)
    right = answer + null @ draw
    assert np.allclose(C @ right, C @ answer)
    assert np.allclose(C @ printed, 2 * C @ answer)
