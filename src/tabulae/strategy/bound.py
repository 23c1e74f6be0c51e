"""Lower bounds on a workload's error, at a budget: an RMSE that no strategy beats."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..privacy import PrivacyLoss, calibrate
from ..tables import Workload
from .bounds import svd_bound, svd_bound_kron
from .hdmm import EXPLICIT_CELLS, dense_grams, explicit_gram
from .information import EXPLICIT
from .opt0_gaussian import opt0_gaussian
from .reduced_rows import outer, reduce_rows, row_count
from .strategy import NoiseKind, products
from .threads import threads_for

Kind = Literal["svd", "dual"]


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
    ``kind="dual"``: the optimum of the convex dual, for one product or at most 2,048 merged cells; never below
    the SVD bound. Both bound L2 sensitivity, and so L1 sensitivity (Laplace noise) as well.

    Raises :class:`~tabulae.errors.Unsupported` where the bound cannot be computed for this workload, and under
    replace-one neighbours, where columns' norms do not bound the sensitivity.

    Reference: HDMM, Theorems 5 and 12; Li and Miklau, "Optimal error of query sets under differentially
    private matrix mechanism" (2013).

    >>> import tabulae as tb
    >>> round(lower_bound(tb.Workload.of(tb.AllRange(64)), budget=tb.ApproxDP(1, "1e-6"), kind="dual"), 2)
    9.73
    """
    if kind not in ("svd", "dual"):
        raise InvalidArgument(f"kind must be 'svd' or 'dual', not {kind!r}")
    if neighbours != "add-remove":
        raise Unsupported("lower bounds are known here for add-remove neighbours only")
    total = unit_bound(workload, kind)
    if total is None:
        raise Unsupported(
            f"no {kind} bound for {workload.domain.size:,} cells and {workload.queries:,} queries"
        )
    parameter = float(calibrate(budget, noise, 1))  # type: ignore[arg-type]
    deviation = math.sqrt(parameter) if noise == "gaussian" else math.sqrt(2) * parameter
    return deviation * math.sqrt(total / workload.queries)


def unit_bound(workload: Workload, kind: Kind) -> float | None:
    """Lower bound on ``||A||_2^2 ||W A^+||_F^2``, or None where it is out of reach."""
    with threads_for(workload):
        return _unit_bound(workload, kind)


def _unit_bound(workload: Workload, kind: Kind) -> float | None:
    merged, _ = workload.merge()
    terms = dense_grams(merged)
    if kind == "dual":
        if len(terms) == 1:
            return terms[0][0] * math.prod(opt0_gaussian(v, tolerance=1e-6).lower for v in terms[0][1])
        if merged.domain.size <= EXPLICIT_CELLS:
            return opt0_gaussian(explicit_gram(merged), tolerance=1e-6).lower
        return None
    try:
        return svd_bound_kron(terms)
    except Unsupported:
        pass
    if merged.domain.size <= EXPLICIT_CELLS:
        return svd_bound(explicit_gram(merged))
    return _row_space_bound(merged)


def _row_space_bound(workload: Workload) -> float | None:
    """The SVD bound from the singular values of W's independent rows, cells never listed."""
    groups = [(products(t.operator(workload.domain)), float(t.weight)) for t in workload.tables]
    if sum(row_count(terms) for terms, _ in groups) > EXPLICIT:
        return None
    gram = outer([reduce_rows(terms, weight) for terms, weight in groups])
    values = np.linalg.eigvalsh(gram)
    rounding = len(gram) * np.finfo(float).eps * float(values[-1])
    singular = np.sqrt(np.maximum(values - rounding, 0.0)).sum()
    return float(singular**2 / workload.domain.size)
