"""Linear forms of areas against covariances written out in full, and what their intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae import Domain
from tabulae.domain import Table, Term
from tabulae.errors import Unsupported
from tabulae.linalg import Dense
from tabulae.products.areas.layout import CellLayout
from tabulae.products.areas.passes.area_variances import margin_variance
from tabulae.products.areas.passes.forms import AreaForms

NAMES = ("a", "b", "c", "d")


@st.composite
def layouts(draw: st.DrawFn) -> CellLayout:
    """Three or four attributes, one or two of them dense, with some impossible combination."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=3, max_size=4))
    domain = Domain(dict(zip(NAMES, sizes, strict=False)))
    dense = draw(st.lists(st.sampled_from(domain.names), max_size=2, unique=True))
    shape = tuple(domain[name].size for name in domain.names if name in dense)
    zeros = np.zeros(shape, bool)
    if shape:
        zeros[(0,) * len(shape)] = draw(st.booleans())
    return CellLayout.of(domain, dense, zeros)


def table(layout: CellLayout, rng: np.random.Generator) -> Table:
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


def expanded(layout: CellLayout, variance: np.ndarray) -> np.ndarray:
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
def test_moments_are_those_of_the_covariance_of_all_cells(layout: CellLayout, seed: int) -> None:
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


def test_counts_have_the_variances_of_their_margin() -> None:
    layout = CellLayout.of(Domain({"a": 2, "b": 3, "c": 2}), ["a"])
    variance = np.random.default_rng(1).random((1, layout.algebra.kinds, 2, 2))
    variance = variance + variance.swapaxes(-1, -2)
    found = AreaForms.of(
        layout, [Table("t", {"a": Dense(np.eye(2, dtype=int)), "b": Dense(np.eye(3, dtype=int))})]
    )
    wanted = margin_variance(layout, variance, layout.margin(["a", "b"]))
    np.testing.assert_allclose(found.moments(variance)[0, 0].ravel(), wanted.ravel())


def test_forms_that_are_too_large_are_refused() -> None:
    layout = CellLayout.of(Domain({"a": 3000, "b": 3000}))
    with pytest.raises(Unsupported, match="too many numbers"):
        AreaForms.of(
            layout, [Table("t", {"a": Dense(np.ones((2, 3000), int)), "b": Dense(np.ones((1, 3000), int))})]
        )
