"""Pseudo-inverses without structure: dense, through the Gram matrix, iterative."""

from __future__ import annotations

import numpy as np
import pytest

from tabulae.errors import Unsupported
from tabulae.linalg import Dense, Identity, Kron, LinearOperator, Prefix, Scaled, Stack, Total, WidthRange
from tabulae.linalg import operator as pseudo_inverse

RNG = np.random.default_rng(5)

OPERATORS: dict[str, LinearOperator] = {
    "marginals": Stack([Kron([Total(4), Identity(5)]), Kron([Identity(4), Total(5)])]),
    "full rank": Stack([Scaled(Identity(12), 0.5), Total(12), Prefix(12)]),
    "low rank": Dense(RNG.normal(size=(15, 4)) @ RNG.normal(size=(4, 9))),
    "wide": Stack([WidthRange(20, 6), Total(20)]),
}


@pytest.mark.parametrize("route", ["dense", "gram", "iterative"])
@pytest.mark.parametrize("name", list(OPERATORS))
def test_all_routes_agree(name: str, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPERATORS[name]
    if route == "gram":
        monkeypatch.setattr(pseudo_inverse, "_DENSE_ENTRIES", 0)
    if route == "iterative":
        monkeypatch.setattr(pseudo_inverse, "DENSE_CELLS", 0)
    inverse = op.pinv()
    expected = np.linalg.pinv(op.dense().astype(float))
    tolerance = 1e-6 if route == "gram" else 1e-9  # the Gram matrix squares the condition number
    np.testing.assert_allclose(inverse.dense(), expected, atol=tolerance)
    np.testing.assert_allclose(inverse.T @ np.eye(op.shape[1]), expected.T, atol=tolerance)
    if route == "iterative":
        assert isinstance(inverse, pseudo_inverse.IterativeInverse)
        assert inverse.pinv() is op


def test_nearly_dependent_columns_go_through_the_svd() -> None:
    matrix = np.eye(6)[:, :4] + 0.0
    matrix[:, 3] = matrix[:, 2] + 1e-11 * matrix[:, 0]
    inverse = pseudo_inverse.dense_pinv(matrix)
    np.testing.assert_allclose(inverse, np.linalg.pinv(matrix), rtol=1e-4, atol=1e-4 * np.abs(inverse).max())
    hidden = np.eye(60) - np.triu(np.ones((60, 60)), 1)  # its diagonal shows nothing of its condition, 2^60
    np.testing.assert_allclose(pseudo_inverse.dense_pinv(hidden), np.linalg.pinv(hidden), atol=1e-6)
    dependent = np.ones((5, 3))
    np.testing.assert_allclose(pseudo_inverse.dense_pinv(dependent), np.full((3, 5), 1 / 15), atol=1e-15)


@pytest.mark.long
def test_a_stack_of_products_over_many_cells_is_solved_iteratively() -> None:
    sizes = (9, 30, 31)
    op = Stack([Kron([Identity(9), Identity(30), Total(31)]), Kron([Total(9), Identity(30), Identity(31)])])
    assert op.shape[1] > pseudo_inverse.DENSE_CELLS
    x = RNG.normal(size=sizes).reshape(-1)
    y = op @ x
    solution = op.pinv() @ y
    np.testing.assert_allclose(op @ solution, y, atol=1e-8)
    assert np.linalg.norm(solution) <= np.linalg.norm(x)  # the shortest of all solutions


def test_an_iteration_that_does_not_end_says_what_to_do() -> None:
    size = 5000
    hard = Stack([Kron([Identity(1), Prefix(size)]), Scaled(Total(size), 1e-3)])
    inverse = pseudo_inverse.IterativeInverse(Kron([Prefix(size)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pseudo_inverse, "_TOLERANCE", 1e-16)
        patch.setattr(pseudo_inverse, "_LEAST_STEPS", 10)
        patch.setattr(pseudo_inverse, "_STEPS_PER_CELL", 0)
        with pytest.raises(Unsupported, match="did not converge in 10 steps: use a strategy"):
            _ = inverse @ RNG.normal(size=size)
    assert hard.pinv().shape == (size, 2 * size - size + 1)
