"""Coefficients of sums of Kronecker products: what the routes of least squares share."""

from __future__ import annotations

import numpy as np
import pytest
from tests.strategy.instances import WORKLOADS

import tabulae as tb
from tabulae.linalg import Sum
from tabulae.strategy import nominal_variances
from tabulae.strategy.block import kron_sum
from tabulae.strategy.information.protocol import coefficient_statistics, sum_bounds
from tabulae.strategy.information.routes import information


@pytest.mark.parametrize("method", ["kron", "residual", "marginals", "eigen"])
def test_a_product_that_is_there_twice_is_no_other(method: str) -> None:
    """Also where both terms are one object: 2 W - W is W, and W + W is 2 W."""
    workload = WORKLOADS["one product"]
    strategy = tb.select(workload, method=method)
    info = information(strategy, nominal_variances(strategy, tb.ZCDP("1/2"), "add-remove"))
    query = workload.tables[0].operator(workload.domain)
    once = info.variance(query)
    assert info.variance(Sum([(2, query), (-1, query)])) == pytest.approx(once)
    assert info.variance(Sum([(1, query), (1, query)])) == pytest.approx(4 * once)


def test_bounds_of_a_sum_hold() -> None:
    rng = np.random.default_rng(1)
    terms = [(c, [rng.normal(size=(3, 4)), rng.normal(size=(2, 5))]) for c in (2, -1, 3)]
    whole = coefficient_statistics(kron_sum(terms))
    bounds = sum_bounds([coefficient_statistics(kron_sum([term])) for term in terms], whole[0], 20)
    assert (bounds >= whole * (1 - 1e-12)).all()
