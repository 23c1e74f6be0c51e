"""Lower bounds of workloads: an error that no strategy beats.

A lower bound for Laplace noise from volumes, for tables over attributes of their own.

Let a strategy's noise be Laplace of scale 1 and its columns have L1 norms of at most 1, and let f be the density of
the error of K linear functions F x that it determines. Moving the noise by t times the j-th column moves that error
by ``t F e_j``, so log f falls by at most t: with C the convex hull of all ``+-F e_j`` and its gauge ``||.||_C``,

    f(y) >= f(z) exp(-||y - z||_C)   for all y, z.

So level sets grow, ``{f >= M e^-s-t}`` contains ``{f >= M e^-s} + t C``, and by Brunn and Minkowski's inequality the
radii r(s) of balls of the level sets' volumes obey ``r(s + t) >= r(s) + t R``, R that of C. Rearranged around
the origin, f has the same level volumes, no larger mean square, and falls by at most 1/R in log per unit of
radius; integrating ``rho^m f`` by parts twice gives ``E ||error||^2 >= K (K + 1) R^2``. This holds in any coordinates.
With ``W'W = F' G F``, w_K the volume of the K-ball, and a variance of 2 for Laplace noise of scale 1,

    loss >= K (K + 1)/2 (sqrt(det G) vol(C) / w_K)^(2/K).

With the eigenvalues of W'W split in two, one part for this bound and one for the SVD bound, the sum bounds the loss
too, and the best split is a one-dimensional search.

L2 sensitivity knows only an ellipsoid around C. That is no loss where C is a cross-polytope, as for one attribute;
for tables over d attributes, or d groups of attributes that no table crosses, C is the hull of a product P of
simplices and its mirror image, far from any; so it is for a few queries over many cells.
Under replace-one neighbours the total is known and C the product of the simplices' difference bodies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg as sl
from scipy.spatial import ConvexHull, QhullError
from scipy.special import gammaln

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import Total
from ...privacy import PrivacyLoss, calibrate, check_neighbours
from ..block import products
from ..deadline import SECONDS_A_CUBE, check_time, now
from ..gram import EXPLICIT_CELLS, checked_gram, dense_grams, explicit_gram, many_products, threads_for
from ..hdmm.opt0 import opt0_gaussian
from ..hdmm.rows import PieceRows, independent_rows, row_optimum, row_svd_bound, rows_svd_bound, workload_rows
from ..information.explicit import outer, reduce_rows, row_count, rows_against
from ..information.protocol import EXPLICIT
from ..strategy import NoiseKind
from ..symmetry import WIDEST, symmetry, symmetry_pays
from .alike import alike_bound
from .cover import covering_bound
from .dual import (
    Terms,
    asks_cells_and_totals,
    distinct_cells,
    grounded,
    identity_and_ones,
    kron_sizes,
    lattice_pair_bound,
    opt0_pairs,
    pair_rows_bound,
    pair_svd_bound,
    product_pair_bound,
    product_pair_svd_bound,
    svd_bound,
    svd_bound_kron,
)
from .joint import joint_bound, joint_seconds
from .product import MOST_DIRECTIONS, product_bounds

_EPS = float(np.finfo(np.float64).eps)
_DIMENSIONS = 4096
_HEIGHTS, _SPLITS = 1024, 200
_MOST_DIMENSIONS, _POINTS = 6, 2**17  # a hull of p points has about p^(K/2) facets
_RANK = 1e-6  # eigenvalues below this share of the largest are left out, which is safe
_ROUNDING = 1e-9  # relative; sums of logarithms of factorials are good to 1e-12


def volume_bound(terms: Terms, neighbours: str = "add-remove") -> float | None:
    """Lower bound on ``||A||_1^2 ||W A^+||_F^2``; None where groups that no table crosses have too many cells.

    ``terms`` are pairs (coefficient, [V_1, ..., V_d]) that add up to W'W. Attributes whose V_i in one term are not
    multiples of the all-ones matrix form a group. The bound is 0 where the tables leave cells of a group undetermined,
    so it is of use where each attribute, or few together, have their table.

    Reference: the argument above; Hardt and Talwar, "On the geometry of differential privacy" (2010), for volumes
    as bounds on the error of any mechanism.

    >>> eye, ones = np.eye(2), np.ones((2, 2))
    >>> questions = [(1.0, [eye if i == j else ones for j in range(6)]) for i in range(6)]  # six times yes or no
    >>> round(volume_bound(questions), 2)  # the SVD bound alone: 35.70
    46.42
    """
    groups = _by_group(terms, kron_sizes(terms))
    if groups is None:
        return None
    sizes = [len(V) for V in groups if len(V) > 1]
    if not sizes:
        return None
    gram, outer = _with_total(groups, sizes)
    spread = [n - 1 for n in sizes]
    if neighbours == "replace":
        outer = (outer - np.outer(outer[0], outer[0]))[1:, 1:]  # centred: singular values beside the total
        gram = gram[1:, 1:]
        log_volume = sum(float(gammaln(2 * m + 1) - 3 * gammaln(m + 1)) for m in spread)
        share = 2.0  # 2/(N - 1) for equal weights of pairs, times N and rounded down
    else:
        log_volume, share = _log_hull(spread), 1.0
    root = sl.cholesky(outer, lower=True)
    log_volume -= float(np.log(root.diagonal()).sum())
    return _best_split(_spectrum(root, gram), log_volume, share) * (1 - _ROUNDING)


def hull_volume_bound(gram: np.ndarray, neighbours: str = "add-remove") -> float | None:
    """The volume bound of an explicit workload of few independent queries, its hull found by Qhull.

    None for more than six dimensions, or more cells than a hull is found of. Qhull's volume is lowered by 1e-6, far
    more than its rounding.
    """
    V, n = checked_gram(gram), len(gram)
    by_pairs = neighbours == "replace"
    if by_pairs:
        V = V - V.mean(axis=0) - V.mean(axis=1)[:, None] + V.mean()
    values, vectors = np.linalg.eigh(V)
    told = values > _RANK * max(values[-1], 0.0)
    k = int(told.sum())
    if not 1 < k <= _MOST_DIMENSIONS:
        return None
    # orthonormal coordinates of the row space, times sqrt(n) as the eigenvalues are divided by n
    points = np.unique((vectors[:, told] * math.sqrt(n)).round(12), axis=0)
    if len(points) ** 2 > _POINTS or (len(points) ** (1 + by_pairs)) ** (k // 2) > _POINTS:
        return None
    if by_pairs:
        points = (points[:, None] - points[None]).reshape(-1, k)
    try:
        hull = ConvexHull(np.vstack([points, -points]))
    except QhullError:
        return None
    margin = (n + 4) * _EPS * float(np.linalg.norm(gram)) * 4
    spectrum = (values[told] - margin) / n
    return _best_split(spectrum, math.log(hull.volume * (1 - 1e-6)), 2.0 if by_pairs else 1.0) * (1 - 1e-9)


def _best_split(spectrum: np.ndarray, log_volume: float, share: float) -> float:
    """The most of ``share (sum sqrt(lambda - part))^2 + K (K + 1)/2 (sqrt(prod part) vol / w_K)^(2/K)``.

    Over 0 <= part <= lambda. Where both derivatives agree, ``part = r sqrt(lambda - part)`` with one r for all, and
    that is searched on a grid. 0 where an eigenvalue may be zero.
    """
    if spectrum[0] <= 0:
        return 0.0
    k = len(spectrum)
    log_ball = k / 2 * math.log(math.pi) - float(gammaln(k / 2 + 1))
    best = 0.0
    for r in np.sqrt(spectrum[-1]) * np.append(np.geomspace(1e-6, 1e6, _SPLITS), np.inf):
        # part solves part^2 + r^2 part - r^2 lambda = 0
        part = spectrum if r == np.inf else 2 * spectrum / (1 + np.sqrt(1 + 4 * spectrum / r**2))
        rest = float(np.sqrt(np.maximum(spectrum - part, 0.0)).sum())
        radius2 = math.exp((float(np.log(part).sum()) + 2 * (log_volume - log_ball)) / k)
        best = max(best, share * rest**2 + k * (k + 1) / 2 * radius2)
    return best


def _spectrum(root: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Eigenvalues of ``root' gram root``, each rounded down."""
    S = root.T @ gram @ root
    error = np.abs(root).T @ np.abs(gram) @ np.abs(root)
    margin = (len(S) + 4) * _EPS * (float(np.linalg.norm(S)) + float(np.linalg.norm(error)))
    return np.linalg.eigvalsh((S + S.T) / 2) - margin


def _by_group(terms: Terms, sizes: Sequence[int]) -> list[np.ndarray] | None:
    """V_g with ``W'W = sum_g V_g (x) J`` over groups g of attributes that no table crosses, J all ones over the others.

    None where a group has too many cells.
    """
    told_apart = [[i for i, V in enumerate(factors) if np.ptp(V)] for _, factors in terms]
    groups = [{i} for i in range(len(sizes))]
    for together in told_apart:
        joined = set().union(*(g for g in groups if g & set(together)))
        groups = [g for g in groups if not g & joined] + ([joined] if joined else [])
    members = [sorted(g) for g in groups]
    cells = [math.prod(sizes[i] for i in g) for g in members]
    if sum(cells) > _DIMENSIONS:
        return None
    grams = [np.zeros((n, n)) for n in cells]
    for (coefficient, factors), together in zip(terms, told_apart, strict=True):
        at = next((k for k, g in enumerate(members) if together and together[0] in g), 0)
        level = math.prod(float(V[0, 0]) for i, V in enumerate(factors) if i not in members[at])
        product = np.full((1, 1), coefficient * level)
        for i in members[at]:
            product = np.kron(product, factors[i])
        grams[at] += (product + product.T) / 2
    return grams


def _with_total(groups: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """G, and F F'/N, for F x = the total, and of each group the counts of all cells but the last."""
    size = 1 + sum(n - 1 for n in sizes)
    gram, start = np.zeros((size, size)), 1
    means = np.ones(size)
    blocks = []
    for V in groups:
        part = slice(start, start := start + len(V) - 1)
        gram[0, 0] += V[-1, -1]
        gram[part, part] = grounded(V, len(V) - 1)
        gram[0, part] = gram[part, 0] = V[-1, :-1] - V[-1, -1]
        means[part] = 1 / len(V)
        blocks.append(part)
    outer = np.outer(means, means)
    for part in blocks:
        outer[part, part] = np.diag(means[part])
    return gram, outer


def _log_hull(spread: Sequence[int]) -> float:
    """Log of the volume of the hull of ``{1} x P`` and its mirror image, P a product of simplices.

    The section at height h is the product of ``a T - (1 - a) T`` at a = (1 + h)/2, T the hull of 0 and e_1, ..., e_m,
    of volume ``p_m(a)/m!`` with ``p_m(a) = sum_j binom(m, j)^2 a^j (1 - a)^(m-j)`` (mixed volumes of a simplex and its
    mirror image). It falls with |h|, so that a lower sum is safe; its error is raised to the power 2/K.
    """
    heights = np.linspace(0.0, 1.0, _HEIGHTS + 1) ** 2
    a = (1 + heights[1:-1]) / 2  # at height 1 it is 1 and adds next to nothing
    logs = np.zeros(len(a))
    for m in set(spread):
        j = np.arange(m + 1)
        squares = 2 * (gammaln(m + 1) - gammaln(j + 1) - gammaln(m - j + 1))
        terms = squares[:, None] + j[:, None] * np.log(a) + (m - j)[:, None] * np.log1p(-a)
        logs += spread.count(m) * np.logaddexp.reduce(terms, axis=0)
    logs = np.append(logs, 0.0) + np.log(np.diff(heights))
    hull = math.log(2.0) + float(np.logaddexp.reduce(logs))
    return hull - sum(float(gammaln(m + 1)) for m in spread)


Kind = Literal["svd", "product", "dual"]

_HULL_CELLS = 512  # cells of which a hull is looked for
_STEPS = 2.0  # eigendecompositions' worth of the shortest search for a dual bound
_CHEAP = 1024  # order of a matrix whose spectrum takes half a second
_FEW_DIRECTIONS = 3
_PAIRS = 1024  # cells whose pairs are weighed one by one for a bound: ten seconds
_REACHED = 1e-6  # relative gap to a loss at which a bound is as large as any: that of the dual's own optimum


def lower_bound(
    workload: Workload,
    noise: NoiseKind = "gaussian",
    *,
    budget: PrivacyLoss,
    kind: Kind = "svd",
    neighbours: str = "add-remove",
    directions: int | None = None,
) -> float:
    """An RMSE, in weighted counts, that no matrix-mechanism strategy beats at this budget.

    ``kind="svd"``: ``(sum of singular values of W)^2 / N`` over merged cells, for explicit workloads and Kronecker
    products, unions included where they have at most a few thousand independent rows. ``kind="dual"``: the optimum of
    the convex dual, for one product, at most 2,048 merged cells (or combinations of classes of them that all tables
    treat alike), or a few thousand distinct rows; for other tables of one product each, the best of the other two.
    Never below the SVD bound. ``kind="product"``: the best dual value found with multipliers mu that are a product over
    the attributes, over any number of them: tables of one product each, ``M_T = (x)_i W_Ti D_i^1/2`` with D = diag(mu),
    and for each set R of attributes the tables T that cross all of R,

        L >= (sum_R || stack over T of  w_T prod_{i in R} h_Ti  (x)_{i in T-R} Z'H_Ti Z  (x)_{i not in T} (Z't)' ||_*)^2

    with ``H = (M'M)^1/2``, ``t = D^1/2 1`` and ``h = tr H - tr Z'HZ``. Z is (n_i, m) for ``directions`` m of each
    attribute, six unless given and fewer where their spectrum would be too large: more of them prove no less but for
    rounding, and with all n_i the inner norm is that of the whole workload at these multipliers. Tables that are sums
    of products are left out of it; without ``directions`` two more are tried, whose larger one counts: of such tables
    up to 8,192 cells, and of attributes that are all alike, with tables of one and two of them, whose norm is exact.

    All bound L2 sensitivity, and so L1 sensitivity (Laplace noise) as well. Under replace-one neighbours "svd" and
    "dual" are about pairs of cells instead of cells, and for marginals at any size the dual is in closed form.
    Under Laplace noise ``kind="dual"`` also knows two bounds about L1 sensitivity itself: volumes, where several
    attributes, or groups of them, have tables of their own, and for up to six independent queries; and covers, for
    up to four of them.

    Raises:
        InvalidArgument: ``kind`` is none of these, or ``directions`` is no whole number of at least 1, or of another
            kind than "product".
        Unsupported: the bound cannot be computed for this workload.

    Reference: HDMM, Theorems 5 and 12; Li and Miklau, "Optimal error of query sets under differentially
    private matrix mechanism" (2013).

    >>> import tabulae as tb
    >>> round(lower_bound(tb.Workload.of(tb.AllRange(64)), budget=tb.ApproxDP(1, "1e-6"), kind="dual"), 2)
    9.73
    >>> domain = tb.Domain({f"a{i}": 10 for i in range(6)})
    >>> prefixes = tb.Workload(domain, [tb.Table(f"{a}{b}", {a: tb.Prefix(10), b: tb.Prefix(10)})
    ...     for a, b in zip(domain.names, domain.names[1:])])
    >>> [round(lower_bound(prefixes, budget=tb.ZCDP("1/2"), kind="product", directions=m), 2) for m in (1, 6)]
    [4.2, 4.42]
    """
    if kind not in ("svd", "product", "dual"):
        raise InvalidArgument(f"kind must be 'svd', 'product' or 'dual', not {kind!r}")
    if directions is not None and (kind != "product" or not _is_positive(directions)):
        raise InvalidArgument(
            f"directions is {directions!r}: a whole number of at least 1, and of kind='product' alone"
        )
    total = unit_bound(workload, kind, neighbours, directions=directions)
    if noise == "laplace" and kind == "dual":
        total = max((b for b in (total, *_of_l1(workload, neighbours, total)) if b is not None), default=None)
    if total is None:
        raise Unsupported(
            f"no {kind} bound for {workload.domain.size:,} cells and {workload.queries:,} queries"
        )
    return rmse_at(budget, noise, total / workload.queries)


def rmse_at(budget: PrivacyLoss, noise: NoiseKind, loss: float) -> float:
    """The RMSE at a budget of a mean squared error at unit noise and unit sensitivity."""
    parameter = float(calibrate(budget, noise, 1))  # type: ignore[arg-type]
    deviation = math.sqrt(parameter) if noise == "gaussian" else math.sqrt(2) * parameter
    return deviation * math.sqrt(loss)


def _is_positive(directions: int) -> bool:
    return isinstance(directions, (int, np.integer)) and not isinstance(directions, bool) and directions > 0


def _of_l1(workload: Workload, neighbours: str, known: float | None) -> list[float | None]:
    """What volumes and covers say of L1 sensitivity, at unit noise; nothing where no more than ``known`` can be proven.

    Cells measured as they are have the loss tr W'W, and no bound is above that.
    """
    merged, _ = workload.merge()
    terms = dense_grams(merged)
    if known is not None and neighbours == "add-remove":
        cells = sum(c * math.prod(float(np.trace(V)) for V in factors) for c, factors in terms)
        if known >= cells * (1 - _REACHED):
            return []
    bounds = [volume_bound(terms, neighbours)]
    if merged.domain.size <= _HULL_CELLS:
        gram = explicit_gram(merged)
        bounds += [hull_volume_bound(gram, neighbours), covering_bound(gram, neighbours)]
    return bounds


def unit_bound(
    workload: Workload,
    kind: Kind,
    neighbours: str = "add-remove",
    deadline: float = math.inf,
    directions: int | None = None,
) -> float | None:
    """Lower bound on ``||A||_2^2 ||W A^+||_F^2``, or None where it is out of reach or would last beyond the deadline.

    ``||A||_2`` is the sensitivity that ``neighbours`` asks for: the largest column, or difference of two columns.
    """
    if check_neighbours(neighbours) not in ("add-remove", "replace"):
        raise Unsupported(
            f'no bound is known for neighbours = "{neighbours}": ask for "replace", which promises more'
        )
    by_pairs = neighbours == "replace"
    with threads_for(workload):
        if kind == "product":
            given = (directions or MOST_DIRECTIONS,)
            attempts = [] if by_pairs else _by_products(workload, deadline, given, alike=directions is None)
            return _best(attempts)
        of = _unit_pair_bound if by_pairs else _unit_bound
        return _tried(lambda: of(workload, kind, deadline))


@dataclass(frozen=True)
class Attempt:
    """A bound that may be worked out, and what that takes of one core, predicted from sizes alone."""

    seconds: float
    bound: Callable[[], float | None]


_FEW_LOOKS, _SECONDS_A_LOOK = 2**16, 6e-6  # tables times attributes; what all bounds take of a core for each


def unit_bounds(
    workload: Workload,
    neighbours: str = "add-remove",
    deadline: float = math.inf,
    *,
    by_products: bool = False,
) -> list[Attempt]:
    """Lower bounds as of :func:`unit_bound`, what costs least first.

    The SVD bound in closed form or of small matrices, with ``by_products`` those of multipliers that are a product
    with a few directions and then more of them, and what takes large matrices: the SVD bound, and tables that are no
    products.
    """
    if neighbours not in ("add-remove", "replace"):  # bounds are about all cells, or all pairs of them
        return []
    many = len(workload.tables) * len(workload.domain.attributes)
    if many > _FEW_LOOKS and now() + _SECONDS_A_LOOK * many > deadline:
        return []
    if neighbours == "replace":
        return [Attempt(0.0, lambda: unit_bound(workload, "svd", neighbours, deadline))]
    merged, _ = workload.merge()
    order = _tried(lambda: _svd_order(merged))
    late = math.inf if order is None else SECONDS_A_CUBE * float(order) ** 3
    small = order is not None and order <= _CHEAP
    svd = Attempt(0.0 if small else late, lambda: _tried(lambda: _unit_bound(merged, "svd", deadline)))
    products = []
    if by_products and max(merged.domain.shape) <= _CHEAP:
        products = _by_products(merged, deadline, (_FEW_DIRECTIONS, MOST_DIRECTIONS))
    return sorted([svd, *products] if small else [*products, svd], key=lambda attempt: attempt.seconds)


def _svd_order(merged: Workload) -> int:
    """The order of the largest matrix that the SVD bound decomposes, at most."""
    if not many_products(merged) and len(merged.gram_terms()) == 1:
        return max(merged.domain.shape)
    if asks_cells_and_totals(merged):
        return 1
    rows = sum(row_count(products(t.operator(merged.domain))) for t in merged.tables)
    return min(merged.domain.size, rows)


def _unit_bound(workload: Workload, kind: Kind, deadline: float) -> float | None:
    merged, _ = workload.merge()
    if max(merged.domain.shape) > WIDEST:  # no matrix over the attribute's cells is formed
        return _row_space_bound(merged, deadline)
    if kind == "dual":
        check_time(deadline, *merged.domain.shape, steps=_STEPS)
        terms = dense_grams(merged)
        if len(terms) == 1:
            return terms[0][0] * math.prod(_factor_dual(v, deadline) for v in terms[0][1])
        if merged.domain.size <= EXPLICIT_CELLS and not symmetry_pays(merged):
            check_time(deadline, merged.domain.size, steps=_STEPS)
            return opt0_gaussian(explicit_gram(merged), tolerance=1e-6, deadline=deadline).lower
        found = _tried(lambda: _row_dual(merged, deadline))
        if found is not None:
            return found
        return _best(
            [
                *_by_products(merged, deadline),
                Attempt(0.0, lambda: _tried(lambda: _svd_bound(merged, deadline))),
            ]
        )
    return _svd_bound(merged, deadline)


def _factor_dual(V: np.ndarray, deadline: float) -> float:
    """The dual bound of one attribute; where all its cells are alike, equal multipliers are the best."""
    if identity_and_ones(V) is not None:
        return svd_bound(V)
    return opt0_gaussian(V, tolerance=1e-6, deadline=deadline).lower


def _best(attempts: Sequence[Attempt]) -> float | None:
    """The largest bound; None where all are out of reach."""
    return max((b for b in (attempt.bound() for attempt in attempts) if b is not None), default=None)


def _by_products(
    workload: Workload,
    deadline: float,
    directions: Sequence[int] = (MOST_DIRECTIONS,),
    *,
    alike: bool = True,
) -> list[Attempt]:
    """The bounds with multipliers that are a product.

    With ``alike`` that of attributes that are all alike comes first, and that of tables that are no products last.
    """
    merged, _ = workload.merge()
    found = _product_bounds(merged, directions, deadline)
    attempts = [Attempt(0.0, lambda: next(found, None)) for _ in directions]
    if alike:
        attempts.insert(0, Attempt(0.0, lambda: _tried(lambda: alike_bound(merged, deadline))))
        attempts.append(Attempt(joint_seconds(merged), lambda: _tried(lambda: joint_bound(merged, deadline))))
    return attempts


def _product_bounds(merged: Workload, directions: Sequence[int], deadline: float) -> Iterator[float]:
    """One for each number of directions; none where an attribute is too wide or sets are too many."""
    with suppress(Unsupported):
        if max(merged.domain.shape) <= EXPLICIT_CELLS:
            check_time(deadline, *merged.domain.shape, steps=_STEPS)
            yield from product_bounds(merged, directions, deadline)


def _row_dual(merged: Workload, deadline: float) -> float:
    pieces, sizes, _ = workload_rows(merged, deadline)
    return row_optimum(pieces, sizes, tolerance=1e-6, deadline=deadline).lower


def _tried(bound: Callable[[], float | None]) -> float | None:
    """A bound, None where it is out of reach."""
    try:
        return bound()
    except Unsupported:
        return None


def _svd_bound(merged: Workload, deadline: float) -> float | None:
    """Equal multipliers: by closed form, over cells, or over rows."""
    if many_products(merged) and merged.domain.size > EXPLICIT_CELLS:
        return _row_space_bound(merged, deadline)
    closed = _tried(lambda: svd_bound_kron(dense_grams(merged), deadline))
    if closed is not None:
        return closed
    if merged.domain.size <= EXPLICIT_CELLS and not symmetry_pays(merged):
        check_time(deadline, merged.domain.size)
        return svd_bound(explicit_gram(merged))
    try:
        split = symmetry(merged, deadline)
    except Unsupported:
        return _row_space_bound(merged, deadline)
    check_time(deadline, *(len(p.places) for p in split.pieces))
    return row_svd_bound([PieceRows(p) for p in split.pieces], split.sizes)


def _unit_pair_bound(workload: Workload, kind: Kind, deadline: float) -> float | None:
    """As :func:`_unit_bound`, under replace-one neighbours."""
    merged, _ = workload.merge()
    size = merged.domain.size
    check_time(deadline, *merged.domain.shape)
    terms = dense_grams(merged)
    if size == 1:
        return 0.0  # the number of records is public
    if len(terms) > 1 or kind == "dual":
        closed = _tried(lambda: lattice_pair_bound(terms))
        if closed is not None:
            return closed
    if len(terms) == 1:
        coefficient, factors = terms[0]
        if kind == "svd":
            return coefficient * product_pair_svd_bound(factors)
        columns = [opt0_gaussian(v, tolerance=1e-6).lower for v in factors]
        pairs = [_pair_dual(v) for v in factors]
        bound = max(product_pair_bound(columns, pairs), product_pair_svd_bound(factors))
        bound *= coefficient
        return bound if size > _PAIRS else max(bound, _pair_dual(explicit_gram(merged)))  # weighted already
    if kind == "dual" and size <= _PAIRS:
        return _pair_dual(explicit_gram(merged))
    if size > EXPLICIT_CELLS:
        return _row_space_pair_bound(merged, deadline)
    check_time(deadline, size)
    return pair_svd_bound(explicit_gram(merged))


def _pair_dual(gram: np.ndarray) -> float:
    """The pair dual's optimum of an explicit workload; 0 where it asks for the total only."""
    if len(gram) > _PAIRS:
        return pair_svd_bound(gram)
    return 0.0 if distinct_cells(gram).count == 1 else opt0_pairs(gram).lower


def _row_space_pair_bound(workload: Workload, deadline: float) -> float | None:
    """The SVD bound under replace from W's independent rows, cells never listed.

    With many rows the total is not projected out: W has one singular value more, and that is at most the largest.
    """
    groups = [(products(t.operator(workload.domain)), float(t.weight)) for t in workload.tables]
    if (rows := sum(row_count(terms) for terms, _ in groups)) <= EXPLICIT:
        check_time(deadline, rows)
        reduced = [reduce_rows(terms, weight) for terms, weight in groups]
        total = reduce_rows([(1, tuple(Total(n) for n in workload.domain.shape))], 1.0)
        sums = np.concatenate([rows_against(group, total)[:, 0] for group in reduced])
        return pair_rows_bound(outer(reduced), sums, workload.domain.size)
    try:
        pieces, sizes, _ = workload_rows(workload, deadline)
    except Unsupported:
        return None
    cells = float(sizes.sum())
    nuclear = math.sqrt(row_svd_bound(pieces, sizes) * cells)
    grams = [piece.outer(np.ones(len(piece.places))) for piece in pieces]
    error = max(len(g) * float(np.linalg.norm(g)) for g in grams) * 4 * np.finfo(float).eps
    largest = math.sqrt(max(float(np.linalg.eigvalsh(g)[-1]) for g in grams) + error)
    return 2.0 / cells * max(0.0, nuclear - largest) ** 2 * (1 - 1e-12)


def _row_space_bound(workload: Workload, deadline: float) -> float | None:
    """The SVD bound from the singular values of W's independent rows, cells never listed."""
    groups = [(products(t.operator(workload.domain)), float(t.weight)) for t in workload.tables]
    rows = sum(row_count(terms) for terms, _ in groups)
    check_time(deadline, min(rows, EXPLICIT))
    found = _tried(lambda: rows_svd_bound(independent_rows(workload), deadline))
    if found is not None:  # else queries are real-valued
        return found
    if rows > EXPLICIT:
        return None
    gram = outer([reduce_rows(terms, weight) for terms, weight in groups])
    values = np.linalg.eigvalsh(gram)
    rounding = len(gram) * np.finfo(float).eps * float(values[-1])
    singular = np.sqrt(np.maximum(values - rounding, 0.0)).sum()
    return float(singular**2 / workload.domain.size)
