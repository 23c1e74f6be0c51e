"""Lower bounds on a workload's error, at a budget: an RMSE that no strategy beats."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ..domain import Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import Total
from ..privacy import (
    PrivacyLoss,
    calibrate,
    check_neighbours,
)
from .bounds import svd_bound, svd_bound_kron
from .explicit_strategy import (
    EXPLICIT_CELLS,
    dense_grams,
    explicit_gram,
)
from .independent_rows import independent_rows
from .information import EXPLICIT
from .opt0_gaussian import opt0_gaussian
from .pair_bounds import (
    lattice_pair_bound,
    pair_rows_bound,
    pair_svd_bound,
    product_pair_bound,
    product_pair_svd_bound,
)
from .pair_dual import distinct_cells, opt0_pairs
from .reduced_rows import (
    outer,
    reduce_rows,
    row_count,
    rows_against,
)
from .row_dual import (
    PieceRows,
    row_optimum,
    row_svd_bound,
)
from .row_strategy import rows_svd_bound, workload_rows
from .strategy import NoiseKind, products
from .symmetry import (
    WIDEST,
    symmetry,
    symmetry_pays,
)
from .threads import threads_for
from .volume_bound import hull_volume_bound, volume_bound
from .within import WITHIN

Kind = Literal["svd", "dual"]

_HULL_CELLS = 512  # cells of which a hull is looked for
_PAIRS = 1024  # cells whose pairs are weighed one by one for a bound: ten seconds


def lower_bound(
    workload: Workload,
    noise: NoiseKind = "gaussian",
    *,
    budget: PrivacyLoss,
    kind: Kind = "svd",
    neighbours: str = "add-remove",
) -> float:
    """An RMSE, in weighted counts, that no matrix-mechanism strategy beats at this budget.

    ``kind="svd"``: ``(sum of singular values of W)^2 / N`` over merged cells, for explicit workloads and
    Kronecker products, unions included where they have at most a few thousand independent rows.
    ``kind="dual"``: the optimum of the convex dual, for one product, at most 2,048 merged cells (or combinations of
    classes of them that all tables treat alike), or a few thousand distinct rows; for other tables of one product each,
    the best dual value found with multipliers that are a product (:mod:`.product_bound`). Never below the SVD bound.
    Both bound L2 sensitivity, and so L1 sensitivity (Laplace noise) as well. Under replace-one neighbours both are
    about pairs of cells instead of cells (:mod:`.pair_bounds`), and for marginals at any size the dual is in closed
    form. Under Laplace noise ``kind="dual"`` also knows the volume bound (:mod:`.volume_bound`), which is about L1
    sensitivity itself: it is the higher one where several attributes, or groups of them, have tables of their own, and
    for a few queries over many cells.

    Raises :class:`~tabulae.errors.Unsupported` where the bound cannot be computed for this workload.

    Reference: HDMM, Theorems 5 and 12; Li and Miklau, "Optimal error of query sets under differentially
    private matrix mechanism" (2013).

    >>> import tabulae as tb
    >>> round(lower_bound(tb.Workload.of(tb.AllRange(64)), budget=tb.ApproxDP(1, "1e-6"), kind="dual"), 2)
    9.73
    """
    if kind not in ("svd", "dual"):
        raise InvalidArgument(f"kind must be 'svd' or 'dual', not {kind!r}")
    total = unit_bound(workload, kind, neighbours)
    if noise == "laplace" and kind == "dual":
        total = max((b for b in (total, *_volumes(workload, neighbours)) if b is not None), default=None)
    if total is None:
        raise Unsupported(
            f"no {kind} bound for {workload.domain.size:,} cells and {workload.queries:,} queries"
        )
    parameter = float(calibrate(budget, noise, 1))  # type: ignore[arg-type]
    deviation = math.sqrt(parameter) if noise == "gaussian" else math.sqrt(2) * parameter
    return deviation * math.sqrt(total / workload.queries)


def _volumes(workload: Workload, neighbours: str) -> list[float | None]:
    """What volumes say under Laplace noise, at unit noise."""
    merged, _ = workload.merge()
    bounds = [volume_bound(dense_grams(merged), neighbours)]
    if merged.domain.size <= _HULL_CELLS:
        bounds.append(hull_volume_bound(explicit_gram(merged), neighbours))
    return bounds


def unit_bound(workload: Workload, kind: Kind, neighbours: str = "add-remove") -> float | None:
    """Lower bound on ``||A||_2^2 ||W A^+||_F^2``, or None where it is out of reach.

    ``||A||_2`` is the sensitivity that ``neighbours`` asks for: the largest column, or difference of two columns.
    """
    if check_neighbours(neighbours) == WITHIN:
        raise Unsupported(
            f'no bound is known for neighbours = "{WITHIN}": ask for "replace", which promises more'
        )
    by_pairs = neighbours == "replace"
    with threads_for(workload):
        return _unit_pair_bound(workload, kind) if by_pairs else _unit_bound(workload, kind)


def _unit_bound(workload: Workload, kind: Kind) -> float | None:
    merged, _ = workload.merge()
    if max(merged.domain.shape) > WIDEST:  # no matrix over the attribute's cells is formed
        return _row_space_bound(merged)
    terms = dense_grams(merged)
    if kind == "dual":
        if len(terms) == 1:
            return terms[0][0] * math.prod(opt0_gaussian(v, tolerance=1e-6).lower for v in terms[0][1])
        if merged.domain.size <= EXPLICIT_CELLS and not symmetry_pays(merged):
            return opt0_gaussian(explicit_gram(merged), tolerance=1e-6).lower
        found = _row_dual(merged)
        return _best(_planner_bound(merged), _svd_bound(merged)) if found is None else found
    return _svd_bound(merged)


def _best(*bounds: float | None) -> float | None:
    return max((b for b in bounds if b is not None), default=None)


def _svd_bound(merged: Workload) -> float | None:
    """Equal multipliers: by closed form, over cells, or over rows."""
    try:
        return svd_bound_kron(dense_grams(merged))
    except Unsupported:
        pass
    if merged.domain.size <= EXPLICIT_CELLS and not symmetry_pays(merged):
        return svd_bound(explicit_gram(merged))
    try:
        split = symmetry(merged)
        return row_svd_bound([PieceRows(p) for p in split.pieces], split.sizes)
    except Unsupported:
        return _row_space_bound(merged)


def _row_dual(workload: Workload) -> float | None:
    """The dual's optimum for a union of products, by classes or by rows."""
    try:
        return row_optimum(*workload_rows(workload)[:2], tolerance=1e-6).lower
    except Unsupported:
        return None


def _planner_bound(workload: Workload) -> float | None:
    """The dual with multipliers that are a product over attributes, where the tables' sets can be listed."""
    from .residual import planner_bound  # residual takes its own bounds from here

    if max(workload.domain.shape) > EXPLICIT_CELLS:
        return None
    try:
        return planner_bound(workload)
    except Unsupported:
        return None


def _unit_pair_bound(workload: Workload, kind: Kind) -> float | None:
    """As :func:`_unit_bound`, under replace-one neighbours."""
    merged, _ = workload.merge()
    terms = dense_grams(merged)
    size = merged.domain.size
    if size == 1:
        return 0.0  # the number of records is public
    if len(terms) > 1 or kind == "dual":
        try:
            return lattice_pair_bound(terms)
        except Unsupported:
            pass
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
    return pair_svd_bound(explicit_gram(merged)) if size <= EXPLICIT_CELLS else _row_space_pair_bound(merged)


def _pair_dual(gram: np.ndarray) -> float:
    """The pair dual's optimum of an explicit workload; 0 where it asks for the total only."""
    if len(gram) > _PAIRS:
        return pair_svd_bound(gram)
    return 0.0 if distinct_cells(gram).count == 1 else opt0_pairs(gram).lower


def _row_space_pair_bound(workload: Workload) -> float | None:
    """The SVD bound under replace from W's independent rows, cells never listed.

    With many rows the total is not projected out: W has one singular value more, and that is at most the largest.
    """
    groups = [(products(t.operator(workload.domain)), float(t.weight)) for t in workload.tables]
    if sum(row_count(terms) for terms, _ in groups) <= EXPLICIT:
        reduced = [reduce_rows(terms, weight) for terms, weight in groups]
        total = reduce_rows([(1, tuple(Total(n) for n in workload.domain.shape))], 1.0)
        sums = np.concatenate([rows_against(group, total)[:, 0] for group in reduced])
        return pair_rows_bound(outer(reduced), sums, workload.domain.size)
    try:
        pieces, sizes, _ = workload_rows(workload)
    except Unsupported:
        return None
    cells = float(sizes.sum())
    nuclear = math.sqrt(row_svd_bound(pieces, sizes) * cells)
    grams = [piece.outer(np.ones(len(piece.places))) for piece in pieces]
    error = max(len(g) * float(np.linalg.norm(g)) for g in grams) * 4 * np.finfo(float).eps
    largest = math.sqrt(max(float(np.linalg.eigvalsh(g)[-1]) for g in grams) + error)
    return 2.0 / cells * max(0.0, nuclear - largest) ** 2 * (1 - 1e-12)


def _row_space_bound(workload: Workload) -> float | None:
    """The SVD bound from the singular values of W's independent rows, cells never listed."""
    try:
        return rows_svd_bound(independent_rows(workload))
    except Unsupported:  # real-valued queries
        pass
    groups = [(products(t.operator(workload.domain)), float(t.weight)) for t in workload.tables]
    if sum(row_count(terms) for terms, _ in groups) > EXPLICIT:
        return None
    gram = outer([reduce_rows(terms, weight) for terms, weight in groups])
    values = np.linalg.eigvalsh(gram)
    rounding = len(gram) * np.finfo(float).eps * float(values[-1])
    singular = np.sqrt(np.maximum(values - rounding, 0.0)).sum()
    return float(singular**2 / workload.domain.size)
