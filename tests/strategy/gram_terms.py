"""Gram matrices of unions of products, as terms and written out: what tests of bounds share."""

from __future__ import annotations

import numpy as np


def marginals(sizes, weights):
    """Terms of weighted marginals; ``weights`` maps attribute subsets to the weight of W'W."""
    eye, ones = [np.eye(n) for n in sizes], [np.ones((n, n)) for n in sizes]
    return [
        (weight, [eye[i] if i in subset else ones[i] for i in range(len(sizes))])
        for subset, weight in weights.items()
    ]


def dense(terms):
    """W'W over all cells."""
    total = 0.0
    for coefficient, factors in terms:
        product = np.ones((1, 1))
        for V in factors:
            product = np.kron(product, V)
        total = total + coefficient * product
    return total
