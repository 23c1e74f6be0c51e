"""The nearest point within nested limits: it is within them, no point is nearer, and compiled code finds the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topdown.kernels import callable_of
from tests.topdown.plain_projections import NestedLimits

from tabulae.products.areas.descent import algebra
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT

bundles_of, ceilings_of, gather, has_limits, shifts_of = (
    callable_of(getattr(algebra, name))
    for name in ("bundles_of", "ceilings_of", "gather", "has_limits", "shifts_of")
)


def random_limits(rng: np.random.Generator, held: bool):
    """Limits of n areas that some counts meet, and values to project."""
    n, k, N = rng.integers(1, 4), rng.integers(1, 5), rng.integers(1, 6)
    mask = rng.random((n, k, N)) < 0.8
    hidden = rng.poisson(rng.choice([0.3, 3, 50]), (n, k, N)) * mask
    part = np.unique(rng.integers(0, 3, k), return_inverse=True)[1].reshape(-1)
    parts = part.max() + 1
    sums = np.stack([hidden[:, part == j].sum(axis=(1, 2)) for j in range(parts)], axis=1)
    lower = np.where(rng.random(sums.shape) < 0.5, np.maximum(0, sums - rng.integers(0, 3, sums.shape)), 0)
    upper = np.where(rng.random(sums.shape) < 0.5, sums + rng.integers(0, 3, sums.shape), NO_LIMIT)
    group = rng.integers(0, 2, sums.shape)
    exact = np.full((n, 2), FREE)
    for g in range(2):
        some = rng.random(n) < 0.5
        exact[some, g] = np.where(group == g, sums, 0).sum(axis=1)[some]
    totals = hidden.sum(axis=(1, 2)).astype(float) if held else None
    y = hidden + rng.choice([1, 20]) * rng.standard_normal(hidden.shape)
    return y, mask, hidden, (part, lower, upper, group, exact, totals)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_within_the_limits_and_nearest(seed, held):
    """z is the nearest of a convex set if (y - z) makes no acute angle with the way to any of its points."""
    rng = np.random.default_rng(seed)
    y, mask, hidden, (part, lower, upper, group, exact, totals) = random_limits(rng, held)
    z = NestedLimits.of(part, lower, upper, group, exact, totals).project(y, mask)
    assert (z >= 0).all()
    assert not z[~mask].any()
    sums = np.stack([z[:, part == j].sum(axis=(1, 2)) for j in range(lower.shape[1])], axis=1)
    slack = 1e-9 * (1 + hidden.sum())
    assert (sums >= lower - slack).all()
    assert (sums <= np.minimum(upper, 1e18) + slack).all()
    for g in range(2):
        found = np.where(group == g, sums, 0).sum(axis=1)
        assert np.abs(found - exact[:, g])[exact[:, g] != FREE].max(initial=0) <= slack
    if totals is not None:
        assert np.abs(sums.sum(axis=1) - totals).max() <= slack
    assert _steepest(y, z, mask, part, lower, upper, group, exact, totals) <= 1e-6 * (
        1 + np.abs(y).sum() ** 2
    )


def _steepest(y, z, mask, part, lower, upper, group, exact, totals) -> float:
    """The most of (y - z)'(p - z) over the points p within the limits, by linear programmes."""
    from scipy.optimize import linprog

    n, k, N = y.shape
    most = 0.0
    for v in range(n):
        of_part = np.repeat(part, N)
        rows = np.stack([of_part == j for j in range(lower.shape[1])]).astype(float)
        limited = upper[v] < NO_LIMIT
        equal = [
            (np.isin(of_part, np.flatnonzero(group[v] == g)), exact[v, g])
            for g in range(2)
            if exact[v, g] != FREE
        ]
        if totals is not None:
            equal.append((np.ones(k * N), totals[v]))
        way = (y[v] - z[v]).ravel()
        found = linprog(
            -way,
            A_ub=np.concatenate([-rows, rows[limited]]),
            b_ub=np.concatenate([-lower[v], upper[v][limited]]),
            A_eq=np.array([row for row, _ in equal], float) if equal else None,
            b_eq=[right for _, right in equal] or None,
            bounds=[(0, 1e6 if inside else 0) for inside in mask[v].ravel()],
        )
        if found.status == 0:
            most = max(most, -found.fun - way @ z[v].ravel())
    return most


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_compiled_shifts_give_the_same(seed, held):
    rng = np.random.default_rng(seed)
    y, mask, _, (part, lower, upper, group, exact, totals) = random_limits(rng, held)
    mask = np.broadcast_to(mask[:1], mask.shape)  # as where the parent's counts are 0
    exact, lower = np.full_like(exact, FREE), np.zeros_like(lower)
    totals = None if totals is None else np.where(mask.any(axis=(1, 2)), totals, 0.0)
    if totals is not None:
        upper = np.full_like(upper, NO_LIMIT)
    plain = NestedLimits.of(part, lower, upper, group, exact, totals).project(y, mask)
    bundle, target = bundles_of(group, exact, np.empty(0) if totals is None else totals)
    order = np.argsort(part, kind="stable")
    places = np.array([np.argsort(~row, kind="stable") for row in mask[0]])
    flat, edges, shift = np.empty(y[0].size), np.empty(lower.shape[1] + 1, np.int64), np.zeros(lower.shape[1])
    for v in range(len(y)):
        ceiling = ceilings_of(upper)[v]
        if not has_limits(lower[v].astype(float), ceiling, bundle[v], target[v]):
            np.testing.assert_allclose(plain[v], np.maximum(y[v], 0) * mask[v])
            continue
        gather(y[v][order], order, part, places, mask[0].sum(axis=1), flat, edges)
        common, own = rng.standard_normal(target.shape[1]), rng.standard_normal(shift.size)
        shifts_of(flat, edges, lower[v].astype(float), ceiling, bundle[v], target[v], common, own, shift)
        found = np.maximum(y[v] + shift[part][:, None], 0) * mask[v]
        np.testing.assert_allclose(found, plain[v], atol=1e-7 * (1 + np.abs(y).sum()))


@pytest.mark.parametrize("target", [0.0, 1.0, 1e9])
def test_one_sum_is_the_projection_onto_a_simplex(target):
    """Against the sorted form: z = max(y - t, 0) with t from the largest values."""
    rng = np.random.default_rng(7)
    y = rng.standard_normal((1, 1, 40)) * (1 + target / 40)
    exact = np.array([[int(target)]])
    limits = NestedLimits.of(
        np.zeros(1, np.int64), np.zeros((1, 1)), np.full((1, 1), NO_LIMIT), np.zeros((1, 1), np.int64), exact
    )
    found = limits.project(y, np.ones(y.shape, bool)).ravel()
    ranked = np.sort(y.ravel())[::-1]
    shifts = (np.cumsum(ranked) - target) / np.arange(1, 41)
    last = np.flatnonzero(ranked > shifts)[-1] if target else 0
    best = np.maximum(y.ravel() - shifts[last], 0) if target else np.zeros(40)
    np.testing.assert_allclose(found, best, atol=1e-9 * (1 + target))
