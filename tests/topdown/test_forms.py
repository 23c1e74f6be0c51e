"""Linear forms of areas against covariances written out in full, and what their intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from tabulae import Domain
from tabulae.domain import Table, Term
from tabulae.errors import Unsupported
from tabulae.estimation.statistics import ratio_variance, uniform_factor
from tabulae.linalg import Dense
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
from tabulae.products.areas.layout import Layout
from tabulae.products.areas.passes.area_variances import margin_variance
from tabulae.products.areas.passes.forms import (
    AreaForms,
    area_half_widths,
    area_ratios,
    extreme_pairs,
    form_half_widths,
)

NAMES = ("a", "b", "c", "d")


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Three or four attributes, one or two of them dense, with some impossible combination."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=3, max_size=4))
    domain = Domain(dict(zip(NAMES, sizes, strict=False)))
    dense = draw(st.lists(st.sampled_from(domain.names), max_size=2, unique=True))
    shape = tuple(domain[name].size for name in domain.names if name in dense)
    zeros = np.zeros(shape, bool)
    if shape:
        zeros[(0,) * len(shape)] = draw(st.booleans())
    return Layout.of(domain, dense, zeros)


def table(layout: Layout, rng: np.random.Generator) -> Table:
    """A sum of two products with two rows of one attribute; the last attribute is not mentioned."""
    names = layout.domain.names[:-1]

    def term() -> Term:
        rows = {name: 2 if name == names[0] else 1 for name in names}
        sizes = {name: layout.domain[name].size for name in names}
        return Term(
            int(rng.integers(1, 4)),
            {name: Dense(rng.integers(-2, 3, (rows[name], sizes[name]))) for name in names},
        )

    return Table.of_terms("t", [term(), term()], 1, {})


def expanded(layout: Layout, variance: np.ndarray) -> np.ndarray:
    """The covariance of all cells in the order of the domain, from V by kinds."""
    sizes = [layout.domain[name].size for name in layout.symmetric]
    inner = int(np.prod(sizes, dtype=int))
    total = np.zeros((layout.size * inner, layout.size * inner))
    for kind, block in enumerate(variance):
        part = np.ones((1, 1))
        for a, n in enumerate(sizes):
            mean = np.full((n, n), 1 / n)
            part = np.kron(part, np.eye(n) - mean if kind >> a & 1 else mean)
        total += np.kron(block, part)
    whole = np.zeros((layout.domain.size, layout.domain.size))
    place = layout.cell.ravel()
    whole[np.ix_(place, place)] = total
    return whole


@given(layouts(), st.integers(0, 2**32 - 1))
def test_moments_are_those_of_the_covariance_of_all_cells(layout: Layout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(2, layout.algebra.kinds, layout.size, layout.size))
    variance = roots @ roots.swapaxes(-1, -2)
    tables = [table(layout, rng) for _ in range(2)]
    forms = AreaForms.of(layout, tables)
    matrices = np.array([each.operator(layout.domain).dense() for each in tables], float)
    whole = np.array([expanded(layout, each) for each in variance])
    wanted = np.einsum("irc,acd,jrd->ijar", matrices, whole, matrices)
    np.testing.assert_allclose(forms.moments(variance), wanted, atol=1e-8)
    each = np.arange(2)
    assert (forms.terms(variance) >= forms.moments(variance)[each, each] - 1e-8).all()
    x = rng.integers(0, 9, layout.domain.size) * (layout.place >= 0)
    counts = np.zeros((1, *forms.margin.order.shape))
    axes = [layout.domain.names.index(name) for name in forms.margin.names]
    summed = x.reshape(layout.domain.shape).sum(
        axis=tuple(i for i in range(len(layout.domain.shape)) if i not in axes)
    )
    counts[0] = summed.ravel()[forms.margin.order]
    np.testing.assert_allclose(forms.estimates(counts)[:, 0], matrices @ x, atol=1e-9)
    top, bottom = (
        np.maximum(forms.coefficients.max(axis=(2, 3)), 0),
        np.minimum(forms.coefficients.min(axis=(2, 3)), 0),
    )
    assert (forms.spread == np.maximum(top - bottom, 1)).all()


def test_counts_have_the_variances_of_their_margin() -> None:
    layout = Layout.of(Domain({"a": 2, "b": 3, "c": 2}), ["a"])
    variance = np.random.default_rng(1).random((1, layout.algebra.kinds, 2, 2))
    variance = variance + variance.swapaxes(-1, -2)
    found = AreaForms.of(
        layout, [Table("t", {"a": Dense(np.eye(2, dtype=int)), "b": Dense(np.eye(3, dtype=int))})]
    )
    wanted = margin_variance(layout, variance, layout.margin(["a", "b"]))
    np.testing.assert_allclose(found.moments(variance)[0, 0].ravel(), wanted.ravel())


def test_forms_that_are_too_large_are_refused() -> None:
    layout = Layout.of(Domain({"a": 3000, "b": 3000}))
    with pytest.raises(Unsupported, match="too many numbers"):
        AreaForms.of(
            layout, [Table("t", {"a": Dense(np.ones((2, 3000), int)), "b": Dense(np.ones((1, 3000), int))})]
        )


LAWS = {"fine": [DiscreteGaussian(40)], "coarse": [DiscreteGaussian("1/2")], "laplace": [DiscreteLaplace(3)]}


@pytest.mark.parametrize("laws", list(LAWS))
def test_half_widths_of_counts_are_those_of_tables_and_others_are_scaled(laws: str) -> None:
    variance, law = np.array([0.0, 0.5, 30.0, 4000.0]), LAWS[laws]
    plain = form_half_widths(variance, np.ones(4), law, 0.9)
    np.testing.assert_array_equal(plain, area_half_widths(variance, law, 0.9))
    wide = form_half_widths(variance, np.full(4, 5.0), law, 0.9)
    free = uniform_factor(law, 0.9) * np.sqrt(variance)
    np.testing.assert_allclose(wide, np.minimum(free, 5 * area_half_widths(variance / 25, law, 0.9)))


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(LAWS)))
def test_the_set_of_ratios_holds_whatever_its_test_keeps(seed: int, laws: str) -> None:
    rng, law = np.random.default_rng(seed), LAWS[laws]
    root = rng.normal(size=(2, 2)) * 6
    covariance = root @ root.T
    a, b = np.array([rng.normal() * 60]), np.array([rng.normal() * 60])
    above, below = rng.integers(-3, 4, 12), rng.integers(0, 2, 12)
    moments = tuple(np.array([covariance[i, j]]) for i, j in ((0, 0), (1, 1), (0, 1)))
    found = area_ratios((a, b), moments, extreme_pairs(above, below), law, 0.95)  # type: ignore[arg-type]
    free, normal = uniform_factor(law, 0.95), float(ndtri(0.975))
    if not found.bounded[0]:
        assert abs(b[0]) <= free * np.sqrt(covariance[1, 1]) * (1 + 1e-9)
        return
    assert found.low[0] <= a[0] / b[0] <= found.high[0]
    for ratio in a[0] / b[0] + np.concatenate([-np.geomspace(1e-4, 1e4, 60), np.geomspace(1e-4, 1e4, 60)]):
        deviation = float(np.sqrt(ratio_variance(np.array([ratio]), *moments)[0]))
        cells = above - ratio * below
        spread = max(cells.max(), 0) - min(cells.min(), 0)
        half = free * deviation
        if laws == "fine":
            half = min(half, normal * deviation + spread / 2)
        if abs(a[0] - ratio * b[0]) <= half * (1 - 1e-9):
            assert found.low[0] <= ratio <= found.high[0]


def test_many_coefficients_below_are_bounded_by_their_corners() -> None:
    rng = np.random.default_rng(4)
    above, below = rng.integers(-9, 10, 300), rng.integers(-99, 100, 300)
    pairs = extreme_pairs(above, below)
    for ratio in rng.normal(size=20):
        value, corners = above - ratio * below, pairs[0] - ratio * pairs[1]
        assert corners.min() <= value.min()
        assert value.max() <= corners.max()
