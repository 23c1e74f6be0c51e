"""Random divisions that can be met in whole numbers, and a slow solver for them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT, Division


def random_division(
    rng: np.random.Generator,
    children: int = 4,
    dense: int = 3,
    symmetric: tuple[int, ...] = (2, 3),
    *,
    limited: bool = True,
    root: bool = False,
    people: float = 2.0,
    classes: int = 2,
    noise: float = 2.0,
    heavy: tuple[float, ...] = (0.02, 0.2, 1.0),
) -> tuple[Division, np.ndarray]:
    """Limits are drawn around hidden counts, so that these meet them; b is what noisy answers about them say."""
    algebra = BlockAlgebra(symmetric)
    children = 1 if root else children
    allowed = rng.random((children, dense)) < 0.7
    allowed[np.arange(children), rng.integers(dense, size=children)] = True
    hidden = rng.poisson(people, (children, dense, algebra.cells)) * allowed[:, :, None]
    hidden *= rng.random((dense, algebra.cells)) < 0.7
    part = np.sort(rng.integers(0, max(1, dense - 1), dense))
    part = np.unique(part, return_inverse=True)[1].reshape(-1)
    parts = int(part.max()) + 1
    sums = np.stack([hidden[:, part == j].sum(axis=(1, 2)) for j in range(parts)], axis=1)
    lower, upper = np.zeros_like(sums), np.full_like(sums, NO_LIMIT)
    group = rng.integers(0, 2, (children, parts))
    exact = np.full((children, 2), FREE)
    if limited:
        bound = rng.random(sums.shape) < 0.5
        lower = np.where(bound, np.maximum(0, sums - rng.integers(0, 3, sums.shape)), 0)
        bound = rng.random(sums.shape) < 0.4
        upper = np.where(bound, sums + rng.integers(0, 4, sums.shape), NO_LIMIT)
        for g in range(2):
            held = rng.random(children) < 0.4
            exact[:, g] = np.where(held, np.where(group == g, sums, 0).sum(axis=1), FREE)
    which = rng.integers(0, classes, children)
    pairs, which = np.unique(np.concatenate([which[:, None], allowed], axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    base = [random_precision(rng, algebra, dense, heavy) for _ in range(classes)]
    inside = pairs[:, 1:].astype(bool)
    precision = np.stack([base[c] for c in pairs[:, 0]]) * (
        inside[:, None, :, None] & inside[:, None, None, :]
    )
    seen = hidden + noise * rng.standard_normal(hidden.shape) * allowed[:, :, None]
    linear = algebra.unrotate(algebra.apply(precision[which], algebra.rotate(seen)))
    total = None if root else hidden.sum(axis=0)
    found = Division(algebra, total, precision, which, linear, allowed, part, lower, upper, group, exact)
    return found, hidden


def nearly_totals_alone(seed: int, children: int = 18) -> Division:
    """A few people in many cells, the total of each child known 100 times as well as its cells."""
    rng, algebra, ratio, spread = np.random.default_rng(seed), BlockAlgebra((2, 10)), 1e4, 30.0
    shape = (children, 2, algebra.cells)
    hidden = rng.multinomial(30, rng.dirichlet(np.full(np.prod(shape), 0.1))).reshape(shape)
    seen = hidden + spread * rng.standard_normal(shape)
    totals = hidden.sum(axis=(1, 2)) + spread / np.sqrt(ratio) * rng.standard_normal(children)
    precision = algebra.term(np.eye(2), algebra.kinds - 1) + ratio * algebra.term(np.ones((2, 2)), 0)
    none, one = np.zeros((children, 1), np.int64), np.zeros(2, np.int64)
    return Division(
        algebra, hidden.sum(axis=0), precision[None] / spread**2, none[:, 0],
        (seen + ratio * totals[:, None, None]) / spread**2, np.ones((children, 2), bool), one,
        none, none + NO_LIMIT, none, none + FREE,
    )  # fmt: skip


def random_precision(
    rng: np.random.Generator, algebra: BlockAlgebra, dense: int, heavy: tuple[float, ...]
) -> np.ndarray:
    """Of all cells and of some marginals, with random weights: shape (kinds, k, k)."""
    found = rng.uniform(0.05, 0.3) * algebra.term(np.eye(dense), algebra.kinds - 1)
    for kept in range(algebra.kinds):
        if rng.random() < 0.6:
            label = rng.integers(0, 2, dense)
            gram = (label[:, None] == label).astype(float)
            found = found + rng.choice(heavy) * algebra.term(gram, kept)
    return found


@st.composite
def divisions(draw, **options) -> tuple[Division, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.sampled_from([(), (3,), (2, 3), (3, 2, 2), (1, 4)]))
    return random_division(rng, draw(st.integers(1, 5)), draw(st.integers(1, 4)), sizes, **options)


def dense_precision(division: Division, child: int) -> np.ndarray:
    """H of a child as one matrix."""
    algebra = division.algebra
    k, N = division.linear.shape[1:]
    eye = np.eye(k * N).reshape(-1, k, N)
    rows = algebra.unrotate(algebra.apply(division.precision[division.which[child]], algebra.rotate(eye)))
    return rows.reshape(k * N, k * N)


def possible(division: Division) -> np.ndarray:
    """Shape (n, k, N): cells that can be more than 0."""
    mask = np.broadcast_to(division.allowed[:, :, None], division.linear.shape)
    return mask if division.total is None else mask & (division.total > 0)


def as_program(
    division: Division, totals: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """H, b, A, a, C, least, most, for A x = a and least <= C x <= most, over the cells of the mask that is last."""
    n, k, N = division.linear.shape
    size = k * N
    mask = possible(division).reshape(n, size)
    place = np.full((n, size), -1)
    place[mask] = np.arange(mask.sum())
    count = int(mask.sum())
    H = np.zeros((count, count))
    for v in range(n):
        H[np.ix_(place[v][mask[v]], place[v][mask[v]])] = dense_precision(division, v)[
            np.ix_(mask[v], mask[v])
        ]
    equal, right, between, least, most = [], [], [], [], []
    if division.total is not None:
        for c in np.flatnonzero(mask.any(axis=0)):
            equal.append(_row(place[:, c], count))
            right.append(division.total.reshape(-1)[c])
    part_of = np.repeat(division.part, N)
    for v in range(n):
        for j in range(division.lower.shape[1]):
            between.append(_row(place[v][part_of == j], count))
            least.append(division.lower[v, j])
            most.append(np.inf if division.upper[v, j] >= NO_LIMIT else division.upper[v, j])
        for g in np.flatnonzero(division.exact[v] != FREE):
            inside = np.isin(part_of, np.flatnonzero(division.group[v] == g))
            equal.append(_row(place[v][inside], count))
            right.append(division.exact[v, g])
        if totals is not None:
            equal.append(_row(place[v], count))
            right.append(totals[v])
    A = np.array(equal, float).reshape(len(equal), count)
    C = np.array(between, float).reshape(len(between), count)
    b = division.linear.reshape(n, size)[mask]
    return H, b, A, np.array(right, float), C, np.array(least, float), np.array(most, float), mask


def oracle(division: Division, totals: np.ndarray | None = None) -> np.ndarray:
    """The best x by an interior point method on the whole matrices.

    A division has a solution by construction. PIQP calls about one crowded division in a hundred infeasible, for
    rounding's sake; the second oracle answers those.
    """
    import piqp

    H, b, A, a, C, least, most, mask = as_program(division, totals)
    x = np.zeros(mask.shape)
    if len(b):
        solver = piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
        solver.settings.verbose = False
        solver.setup(H, -b, A, a, C, least, most, np.zeros(len(b)), np.full(len(b), np.inf))
        if solver.solve() != piqp.PIQP_SOLVED:
            return second_oracle(division, totals)
        x[mask] = solver.result.x
    return x.reshape(division.linear.shape)


def second_oracle(division: Division, totals: np.ndarray | None = None) -> np.ndarray:
    """The same by another method and another front end."""
    import cvxpy as cp

    H, b, A, a, C, least, most, mask = as_program(division, totals)
    x = np.zeros(mask.shape)
    if len(b):
        y = cp.Variable(len(b), nonneg=True)
        limits = [A @ y == a, C @ y >= least]
        limits += [C[most < np.inf] @ y <= most[most < np.inf]] if (most < np.inf).any() else []
        cp.Problem(cp.Minimize(cp.quad_form(y, cp.psd_wrap(H)) / 2 - b @ y), limits).solve(solver="CLARABEL")
        assert y.value is not None
        x[mask] = y.value
    return x.reshape(division.linear.shape)


def _row(places: np.ndarray, count: int) -> np.ndarray:
    row = np.zeros(count)
    row[places[places >= 0]] = 1
    return row


def violation(division: Division, x: np.ndarray, totals: np.ndarray | None = None) -> dict[str, float]:
    """How far x is from each kind of limit."""
    parts = division.lower.shape[1]
    sums = np.stack([x[:, division.part == j].sum(axis=(1, 2)) for j in range(parts)], axis=1)
    groups = np.stack(
        [np.where(division.group == g, sums, 0).sum(axis=1) for g in range(division.exact.shape[1])], axis=1
    )
    held = division.exact != FREE
    parent = 0.0 if division.total is None else float(np.abs(x.sum(axis=0) - division.total).max())
    return {
        "negative": float(max(0.0, -x.min())),
        "outside": float(np.abs(x[~possible(division)]).max(initial=0)),
        "bounds": float(max((division.lower - sums).max(), (sums - division.upper).max(), 0)),
        "exact": float(np.abs(groups - division.exact)[held].max(initial=0)),
        "totals": 0.0 if totals is None else float(np.abs(x.sum(axis=(1, 2)) - totals).max()),
        "parent": parent,
    }
