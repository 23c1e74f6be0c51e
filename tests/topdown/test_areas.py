"""Variances of units and of areas that cut across the spine, against dense weighted least squares."""

from __future__ import annotations

import numpy as np
import pytest
from tests.each import each
from tests.topdown.test_two_pass import close, random_case, variance_scale
from tests.topdown.two_pass_cases import covariance_of, kind_matrix

from tabulae.products.areas.passes import area_variances as areas
from tabulae.products.areas.passes.area_variances import area_covariances, margin_variance
from tabulae.products.areas.passes.covariances import Covariances

SEEDS = range(40)
TABLES = [(), ("race",), ("type",), ("coarse",), ("age", "type"), ("race", "age"), ("type", "age", "race")]


def table_rows(margin) -> np.ndarray:
    """Adds cells (D, N) to a table's cells (classes, inner): one row a cell of the table."""
    layout = margin.layout
    cells = layout.cell.size
    one = np.eye(cells).reshape(cells, layout.size, -1)
    every = np.arange(layout.size)
    rows = np.zeros((cells, margin.classes, margin.inner))
    rows[:, margin.present(every)] = margin.add_up(one, every)
    return rows.reshape(cells, -1).T


@pytest.mark.parametrize("seed", SEEDS)
def test_any_areas(seed, monkeypatch):
    rng, dense = random_case(seed)
    plan = dense.plan
    cov = Covariances.of(plan, dense.exact)
    scale = variance_scale(cov, dense)
    area = rng.integers(-1, 4, plan.spine.leaves)
    found = list(area_covariances(cov, area, 5))
    monkeypatch.setattr(areas, "_NUMBERS", 1)
    one_by_one = list(area_covariances(cov, area, 5))
    for matrices, first in zip(found, area_covariances(cov, area, 5, 1), strict=True):
        assert close(first, matrices[:1])
    assert len(found) == 5
    for number, (matrices, same) in enumerate(zip(found, one_by_one, strict=True)):
        rows = dense.area(area == number)
        assert close(kind_matrix(plan, matrices), rows @ dense.variance @ rows.T, scale)
        assert close(same, matrices)
    mask = rng.random(plan.spine.leaves) < 0.5
    rows = dense.area(mask)
    assert close(kind_matrix(plan, covariance_of(cov, mask)), rows @ dense.variance @ rows.T, scale)
    assert close(covariance_of(cov, np.flatnonzero(mask)), covariance_of(cov, mask))


@each("seed", SEEDS)
def test_every_unit_of_every_level(seed):
    _, dense = random_case(seed)
    plan = dense.plan
    cov = Covariances.of(plan, dense.exact)
    scale = variance_scale(cov, dense)
    name = TABLES[seed % len(TABLES)]
    margin = plan.layout.margin(name)
    table = table_rows(margin)
    for level in plan.spine.levels:
        units = plan.spine.codes[level].size
        wanted = np.zeros((units, margin.classes, margin.inner))
        for unit in range(units):
            rows = table @ dense.area(plan.spine.units[level] == unit)
            wanted[unit] = ((rows @ dense.variance) * rows).sum(axis=1).reshape(wanted.shape[1:])
        matrices = np.stack([*area_covariances(cov, plan.spine.units[level], units)])
        assert close(margin_variance(plan.layout, matrices, margin), wanted, scale)
        read = matrices[:, : margin.kinds]
        assert (
            margin_variance(plan.layout, read, margin) == margin_variance(plan.layout, matrices, margin)
        ).all()


def test_no_areas_and_an_empty_one():
    _, dense = random_case(0)
    cov = Covariances.of(dense.plan)
    nowhere = np.full(dense.plan.spine.leaves, -1)
    assert not list(area_covariances(cov, nowhere, 0))
    assert not next(area_covariances(cov, nowhere, 1)).any()
