"""HDMM's OPT_M as a strategy: one block for each set of attributes that is worth measuring.

Cells that no table tells apart are merged first, attribute by attribute. Nothing is lost: restricting any set of
marginals to one cell of each class leaves marginals over merged cells with the same weights, no larger sensitivity and
no larger error. A block is then ``(x)_i [partition into merged cells, or the total]``, a 0/1 matrix with exactly one
1 in every column for each attribute set, and least squares stays in closed form (:mod:`.lattice_information`).

Under replace-one neighbours a pair of cells that differ in all attributes moves every marginal but the total by
two counts, and no pair moves more: the sensitivity is that of add-remove without the total, times 2 (L1) or sqrt 2
(L2). The total itself is public then. It is measured all the same, as its noise is never zero, with as much precision
as makes its share of the error negligible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from threadpoolctl import threadpool_limits

from ..domain import Workload
from ..errors import Unsupported
from ..linalg import (
    Identity,
    Kron,
    LinearOperator,
    Partition,
    Total,
)
from .bounds import svd_bound_kron
from .explicit_strategy import (
    WIDEST,
    dense_grams,
    lifted,
)
from .lattice_axis import Axis
from .marginal_algebra import eigenvalues, squared_error
from .opt_marginals import opt_marginals_gaussian, opt_marginals_laplace
from .settings import Settings
from .strategy import Block, Strategy

_ATTRIBUTES = 16
_BITS = 20  # of the mantissa of a weight
_CANCELLED = 1e-12  # share of the terms' absolute sum that a component is taken to have, where they cancel
_CERTIFIED = 1e-4  # relative gap at which the convex optimiser stops, or the tolerance asked for if smaller
_TOTAL = 1e-3  # share of the error that the total may keep where it is public


def marginals_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_M: the best weighted marginals for any workload of products and sums of products.

    Minimises ``||A||^2 ||W A^+||_F^2`` over sets of attributes and their weights: to a certified gap under Gaussian
    noise, by search under Laplace noise.

    Arguments:
        workload: any tables; what counts of them is ``f_S = tr[E(S) W'W]`` for all 2^d sets S of attributes.
        settings: noise, neighbours, tolerance, restarts, seed and deadline are used.

    Raises :class:`~tabulae.errors.Unsupported` for more than 16 attributes that tables tell categories apart by,
    and under replace-one neighbours for tables of the number of records alone.

    Reference: HDMM, section 8.

    >>> import tabulae as tb
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 5, "race": 3}), ways=[1, 2])
    >>> [b.name for b in marginals_strategy(workload, Settings("gaussian")).blocks]
    ['sex', 'age', 'race', 'sex*age', 'sex*race', 'age*race']
    """
    merged, merges = workload.merge()
    active = _active(merged)
    if not active and settings.neighbours == "replace":
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    sizes, components, asked = _components(merged, active)
    with threadpool_limits(limits=1, user_api="blas"):  # short products: threads would wait for each other
        weights = _weights(sizes, components, asked, settings)
    names = workload.domain.names
    blocks = []
    for index in sorted(np.flatnonzero(weights).tolist(), key=lambda a: (a.bit_count(), -a)):
        crossed = [i for p, i in enumerate(active) if index >> (len(active) - 1 - p) & 1]
        query = _marginal(crossed, merges)
        scale = 1 / _dyadic(float(weights[index]))
        blocks.append(Block("*".join(names[i] for i in crossed) or "total", query, 0, scale))
    lower = _lower(merged) if settings.noise == "gaussian" and settings.neighbours == "add-remove" else None
    return Strategy(workload.domain, tuple(blocks), settings.noise, "marginals", lower=lower)


def components_of(workload: Workload) -> tuple[list[int], np.ndarray, np.ndarray]:
    """What OPT_M sees of a workload: sizes of the attributes over merged cells, those of one cell left out,
    ``f_S = tr[E(S) W'W]`` and the weights of the workload measured as it is, both (2^d,).

    Raises :class:`~tabulae.errors.Unsupported` for more than 16 attributes.

    >>> import tabulae as tb
    >>> sizes, components, asked = components_of(tb.Workload.marginals(tb.Domain({"a": 2, "b": 5}), ways=[1]))
    >>> sizes, components.tolist(), asked.tolist()
    ([2, 5], [7.0, 8.0, 5.0, 0.0], [0.0, 1.0, 1.0, 0.0])
    """
    merged, _ = workload.merge()
    return _components(merged, _active(merged))


def _active(merged: Workload) -> list[int]:
    """The attributes that tables tell categories of apart."""
    active = [i for i, n in enumerate(merged.domain.shape) if n > 1]
    if len(active) > _ATTRIBUTES:
        raise Unsupported(
            f"marginals weighs all sets of attributes; the tables tell categories of {len(active)} attributes apart "
            f'and it takes {_ATTRIBUTES}. Choose "residual" or "union", which work on the tables\' own sets'
        )
    return active


def _weights(
    sizes: Sequence[int], components: np.ndarray, asked: np.ndarray, settings: Settings
) -> np.ndarray:
    """Weights (2^d,): precisions under Gaussian noise, inverse scales under Laplace noise."""
    if not sizes:
        return np.ones(1)
    total = components[0]
    if settings.neighbours == "replace":
        components, asked = components.copy(), asked.copy()
        components[0] = asked[0] = 0.0  # costs nothing
    if settings.noise == "gaussian":
        tolerance = min(settings.tolerance, _CERTIFIED)
        optimum = opt_marginals_gaussian(sizes, components, tolerance=tolerance, deadline=settings.deadline)
    else:
        optimum = opt_marginals_laplace(
            sizes,
            components,
            asked,
            restarts=settings.restarts,
            seed=settings.seed,
            deadline=settings.deadline,
        )
    weights = optimum.weights
    if settings.neighbours == "replace" and total > 0:
        weights[0] = _public_total(sizes, weights, components, float(total), settings.norm)
    return weights


def _public_total(
    sizes: Sequence[int], weights: np.ndarray, components: np.ndarray, total: float, p: int
) -> float:
    """The total's weight where it is public: all the others' (an added record then moves the answers no more than a
    replaced one), or more where its share of the error would not be negligible otherwise.
    """
    v = weights ** (2 / p)
    others = squared_error(sizes, v, components)
    wanted = total / (_TOTAL * others) - float(eigenvalues(sizes, v)[0])
    precision = max(wanted, 0.0) / math.prod(map(float, sizes))
    return max(float(weights.sum()), precision ** (p / 2))


def _components(merged: Workload, active: Sequence[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
    """:func:`components_of` a workload over merged cells."""
    axes = [Axis(Identity(n)) for n in merged.domain.shape]
    bits = {i: 1 << (len(active) - 1 - p) for p, i in enumerate(active)}
    asked = np.zeros(1 << len(active))
    terms: dict[tuple[tuple[float, float], ...], float] = {}
    for table in merged.tables:
        sides = [(term.coefficient, term.over(merged.domain)) for term in table.terms]
        varies = [[i for i in active if axes[i].varies(factors[i])] for _, factors in sides]
        for mask in {sum(bits[i] for i in crossed) for crossed in varies}:
            asked[mask] += float(table.weight)
        for c, left in sides:
            for d, right in sides:
                pairs = [_traces(axes[i], left[i], right[i]) for i in range(len(axes))]
                weight = float(table.weight) ** 2 * c * d
                weight *= math.prod(mean for i, (mean, _) in enumerate(pairs) if i not in bits)
                key = tuple(pairs[i] for i in active)
                terms[key] = terms.get(key, 0.0) + weight
    signed, absolute = _folded(terms, len(active))
    sizes = [merged.domain.shape[i] for i in active]
    return sizes, np.maximum(signed, _CANCELLED * absolute), asked


def _traces(axis: Axis, left: LinearOperator, right: LinearOperator) -> tuple[float, float]:
    """``1'V1/n`` and ``tr V - 1'V1/n`` of ``V = left'right``: the latter is 0 where either has constant rows."""
    mean, beside = axis.sums(left, right).tolist()
    return mean, beside if axis.varies(left) and axis.varies(right) else 0.0


def _folded(terms: dict[tuple[tuple[float, float], ...], float], d: int) -> tuple[np.ndarray, np.ndarray]:
    """``sum_l c_l prod_{i not in S} mean_li prod_{i in S} beside_li`` for all S, and the same of absolute values.

    Attributes are folded in one at a time, and terms that agree on the attributes left are added up first:
    those of many different factors go first, so that few arrays are left when arrays are long.
    """
    order = sorted(range(d), key=lambda i: len({key[i] for key in terms}))
    folded: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
    for key, c in terms.items():
        ordered = tuple(key[i] for i in order)
        folded[ordered] = folded.get(ordered, np.zeros(2)) + np.array([c, abs(c)])
    for _ in range(d):
        shorter: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
        for key, values in folded.items():
            mean, beside = key[-1]
            own = np.array([[mean, beside], [abs(mean), abs(beside)]])
            both = own.reshape(2, 2, *[1] * (values.ndim - 1)) * values[:, None]
            known = shorter.get(key[:-1])
            shorter[key[:-1]] = both if known is None else known + both
        folded = shorter
    signed, absolute = (np.transpose(part, np.argsort(order)).ravel() for part in folded[()])
    return signed, absolute


def _marginal(crossed: Sequence[int], merges: Sequence[Partition]) -> Kron:
    """Counts by the merged cells of some attributes."""
    return Kron(
        [lifted(Identity(m.shape[0]) if i in crossed else Total(m.shape[0]), m) for i, m in enumerate(merges)]
    )


def _dyadic(weight: float) -> Fraction:
    """The weight to 20 bits: sums of thousands of weights keep a small denominator, a power of 2."""
    mantissa, exponent = math.frexp(weight)
    return Fraction(round(mantissa * 2**_BITS)) * Fraction(2) ** (exponent - _BITS)


def _lower(merged: Workload) -> float | None:
    """The SVD bound, where it is known in closed form: marginals, and single products."""
    if max(merged.domain.shape) > WIDEST:
        return None
    try:
        return svd_bound_kron(dense_grams(merged))
    except Unsupported:
        return None
