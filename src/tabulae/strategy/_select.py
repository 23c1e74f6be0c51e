"""Select: a workload in, the strategy that answers it with least expected error out. No data."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..domain import Table, Workload
from ..errors import InvalidArgument, NotEstimable, Unsupported
from ..linalg import LinearOperator
from . import classic, eigen, hdmm, residual
from .bounds.lower import unit_bound
from .gram import threads_for
from .information.routes import check_least_squares
from .methods import FAMILIES, SINGLE, Settings, check_options, fitting
from .objective import Objective, Targets, minimax, relative_workload
from .restriction import Restriction, restrict
from .strategy import Candidate, NoiseKind, Strategy, unit_rmse
from .within import WITHIN

for _room in (classic, eigen, hdmm, residual):  # every file of these rooms registers its methods
    for _module in pkgutil.iter_modules(_room.__path__):
        importlib.import_module(f"{_room.__name__}.{_module.name}")

METHODS: tuple[str, ...] = (*sorted(SINGLE), *FAMILIES)
"""The names that ``select`` accepts."""

_PROVEN = 1e-5  # relative gap to a proven bound at which no other method is worth a try
_SETTLED = 1e-4  # the same for the strategy that was chosen without the invariants, which takes long to score


def select(
    workload: Workload,
    *,
    noise: NoiseKind = "gaussian",
    method: str = "auto",
    neighbours: str = "add-remove",
    invariants: Sequence[Table] = (),
    objective: Objective | Literal["relative"] = "total",
    time_limit: float | None = None,
    seed: int = 0,
    tolerance: float = 1e-3,
    restarts: int | None = None,
    groups: Sequence[Sequence[str]] | None = None,
    rows: int | Mapping[str, int] | None = None,
    design: str | np.ndarray | LinearOperator | None = None,
    group_size: int | None = None,
    vectors: int | None = None,
) -> Strategy:
    """Choose the noisy counting queries that answer ``workload`` with least expected error.

    Minimises ``||A||^2 ||W A^+||_F^2`` (L2 sensitivity for Gaussian noise, L1 for Laplace; of one record, or of
    a pair under replace-one) within the method's family; the result lies on an integer grid, ready for exact noise.

    Arguments:
        workload: the tables wanted, weights included.
        noise: "gaussian" (zCDP, approximate DP) or "laplace" (pure DP).
        method: "identity", "workload", "opt0" (the tables as a whole), "kron" (one Kronecker product), "union"
            (one product for each group of tables), "marginals" (weighted marginals), "residual" (the residual
            planner), "optimised-marginals" (marginals of optimised queries, Laplace noise), "eigen" (weighted design
            queries; "eigen-separation" and "principal-vectors" with fewer unknowns), "hdmm" (best of HDMM's operators)
            or "auto" (best of these that finish). To compare with, from the literature: "hierarchical", "hb",
            "wavelet", "greedy-h" (trees of ranges), "fourier", "datacube" (marginals), "low-rank", "coa".
        neighbours: "add-remove", "replace" or "replace-within-invariants"; sensitivities follow it.
        invariants: tables that are published exactly; the strategy is chosen for what they leave open, the workload
            restricted to the null space of their matrices. It never errs more than the one chosen without them and
            projected (within a proven relative gap of 1e-4, and of what a time limit allows).
        objective: "total" (weighted squared error), "relative" (the same of queries scaled to L2 norm 1, see
            :func:`relative_workload`), "max" (the largest variance of a query, times its table's squared weight), or
            :class:`Targets` (what meets all of them at the smallest budget).
        time_limit: seconds for the search, its scores and its certificate together: searches stop early, and a
            decomposition that would last longer is not begun (the certificate may be None then). What is cheapest is
            worked out in any case. A method that is named alone is refused where its shortest search does not fit.
        seed: of the optimisers' starting points; it has nothing to do with noise.
        tolerance: certified relative gap at which the Gaussian optimiser stops.
        restarts: random starts of the non-convex (Laplace) optimisers.
        groups: names of the tables that "union" measures together, every table once; None finds them.
        rows: rows of a p-Identity strategy beside the identity (HDMM's p), for all attributes or by name.
        design: what "eigen" weighs: "eigen-queries", "wavelet", "fourier", "hierarchical", "workload", or any matrix of
            one row a query over the cells that the tables tell apart.
        group_size: how many eigenvectors "eigen-separation" weighs at once.
        vectors: how many eigenvectors "principal-vectors" gives a weight of their own.

    Returns a :class:`~tabulae.strategy.Strategy`; ``.certificate`` is its proven relative gap to the best
    possible squared error where one is known, ``.candidates`` what each method reached.

    Raises:
        InvalidArgument: unknown method, noise, neighbours, objective or table name.
        Unsupported: the method cannot serve this workload; the message says which can.

    Reference: McKenna, Miklau, Hay, Machanavajjhala, "HDMM", sections 5-8; under invariants Gao, Gong, Yu, "Subspace
    Differential Privacy", Corollary 3.10.

    Privacy:
        Sees no data; its output is public. The privacy of what is measured is decided later, exactly, from
        the rounded strategy (``Strategy.sensitivity``).

    >>> import tabulae as tb
    >>> workload = tb.Workload.of(tb.AllRange(16))
    >>> best = tb.select(workload, noise="gaussian", method="opt0")
    >>> best.certificate < 1e-3
    True
    """
    if method not in METHODS:
        raise InvalidArgument(f"unknown method {method!r}; this version has {', '.join(METHODS)}")
    options = {"design": design, "group_size": group_size, "vectors": vectors}
    settings = Settings.of(
        workload, noise, neighbours, time_limit=time_limit,
        seed=seed, tolerance=tolerance, restarts=restarts, groups=groups, rows=rows, **options,
    )  # fmt: skip
    check_options(method, options)
    _check_objective(objective, method)
    for table in workload.tables:
        if table.counts_nothing(workload.domain):
            raise InvalidArgument(f"table {table.name!r} counts nobody, whatever the records: leave it out")
    if objective == "relative":
        if invariants:
            raise Unsupported(
                'objective = "relative" scales queries, and scaled ones are not restricted exactly by invariants: '
                'choose "total" or "max", or weights for the tables'
            )
        workload, objective = relative_workload(workload), "total"
    if not invariants:
        return _select(workload, method, objective, settings)
    return _select_restricted(restrict(workload, invariants), method, objective, settings)


def _check_objective(objective: Any, method: str) -> None:
    plain = isinstance(objective, str) and objective in ("total", "relative", "max")
    if not isinstance(objective, Targets) and not plain:
        raise InvalidArgument(
            f"objective must be 'total', 'relative', 'max' or Targets(...), not {objective!r}"
        )
    if method == "datacube" and objective != "total":
        raise Unsupported(
            '"datacube" measures whole marginals and weighs nothing, so it serves no other objective than "total": '
            'choose "marginals" or "residual"'
        )


def _select(workload: Workload, method: str, objective: Objective, settings: Settings) -> Strategy:
    """The best strategy of a method or family for an objective, with its certificate."""
    names = fitting(method, workload, settings)
    if objective == "total":
        best = _best_of(names, workload, settings)
        return replace(best, certificate=_certificate(best, workload, settings))
    return _select_minimax(names, workload, objective, settings)


def _select_restricted(
    restriction: Restriction, method: str, objective: Objective, settings: Settings
) -> Strategy:
    """The best strategy for a restricted workload; the one for the whole workload where that errs less."""
    given = replace(
        settings,
        invariants=restriction.invariants,
        groups=restriction.groups(settings.groups),
        deadline=(settings.deadline + time.monotonic()) / 2,
    )
    best, refusal = None, None
    try:
        best = _select(restriction.workload, method, restriction.objective(objective), given)
    except Unsupported as caught:
        refusal = caught
    if best is not None and (1.0 if best.certificate is None else best.certificate) <= _SETTLED:
        return restriction.lift(best)
    other = _projected(restriction, method, objective, settings)
    if best is None:
        if other is None:
            assert refusal is not None
            raise refusal
        return other
    lifted = restriction.lift(best)
    if other is None:
        return lifted
    values = [restriction.value(s, objective, settings.neighbours) for s in (lifted, other)]
    if values[1] >= values[0]:
        return lifted
    gap = best.certificate
    if gap is not None:  # of the same bound
        gap = max(0.0, (1 + gap) * values[1] / values[0] - 1)
    return replace(other, certificate=gap, lower=best.lower, candidates=(*best.candidates, *other.candidates))


def _projected(
    restriction: Restriction, method: str, objective: Objective, settings: Settings
) -> Strategy | None:
    """The strategy for the whole workload under the invariants; None where it cannot be had."""
    plain = replace(settings, neighbours=_unrestricted(settings.neighbours))
    try:
        chosen = _select(restriction.original, method, objective, plain)
        strategy = replace(chosen, invariants=restriction.exact, certificate=None, lower=None)
        rmse = restriction.unit_rmse(strategy, settings.neighbours)
    except (Unsupported, NotEstimable):
        return None
    scored = Candidate(f"{strategy.method}, projected", rmse, 0.0)
    return replace(strategy, candidates=(scored,))


def _unrestricted(neighbours: str) -> str:
    """The neighbours to select for where no invariant is known of."""
    return "replace" if neighbours == WITHIN else neighbours


def baseline(workload: Workload, method: str, noise: NoiseKind, neighbours: str) -> Strategy:
    """The strategy of a single method, neither scored nor certified: something to compare with."""
    return SINGLE[method](workload, Settings(noise, _unrestricted(neighbours)))


def _select_minimax(
    names: tuple[str, ...], workload: Workload, objective: Objective, settings: Settings
) -> Strategy:
    """Try every method on the first weights, then let the best of them settle the weights."""
    assert objective != "total"
    first: list[tuple[str, ...]] = [names]

    def choose(weighted: Workload) -> Strategy:
        try:
            best = _best_of(first[0], weighted, settings)
        except Unsupported:
            if first[0] == names:
                raise
            best = _best_of(names, weighted, settings)  # what served the last weights cannot serve these
        first[0] = (best.method,)
        return best

    def bound(strategy: Strategy, weighted: Workload) -> float | None:
        return _lower(strategy, weighted, settings)

    best, value, lower = minimax(workload, objective, choose, bound, settings)
    return replace(best, certificate=None if lower is None else max(0.0, value / lower - 1.0))


def _best_of(names: tuple[str, ...], workload: Workload, settings: Settings) -> Strategy:
    """Run the named methods; keep the one with the least expected error, and the score of all."""
    best: tuple[float, Strategy] | None = None
    lower = 0.0  # what any of the methods proved, whichever wins
    scores: list[Candidate] = []
    chosen_for = replace(settings, neighbours=_unrestricted(settings.neighbours))
    for name in names:
        started = time.monotonic()
        reason = None if best is None else _needless(*best, lower, workload, settings)
        if reason is not None:
            scores.append(Candidate(name, None, 0.0, f"not started: {reason}"))
            continue
        try:
            with threads_for(workload):
                strategy = replace(SINGLE[name](workload, chosen_for), invariants=settings.invariants)
            if best is not None:
                check_least_squares(strategy, settings.deadline)
            rmse = unit_rmse(strategy, workload, settings.neighbours)
        except (Unsupported, NotEstimable) as caught:
            refusal = _too_faint(name) if isinstance(caught, NotEstimable) else caught
            if len(names) == 1:
                raise refusal from None
            scores.append(Candidate(name, None, time.monotonic() - started, str(refusal)))
            continue
        scores.append(Candidate(name, rmse, time.monotonic() - started))
        lower = max(lower, strategy.lower or 0.0) if settings.neighbours != WITHIN else 0.0
        if best is None or rmse < best[0]:
            best = rmse, strategy
    if best is None:
        raise Unsupported(
            "no method can serve this workload:\n" + "\n".join(f"  {c.method}: {c.note}" for c in scores)
        )
    return replace(best[1], lower=lower or None, candidates=tuple(scores))


def _too_faint(name: str) -> Unsupported:
    """Why a strategy does not determine the tables that it was chosen for."""
    return Unsupported(
        f"{name} would measure some of these tables so faintly beside others that rounding hides them: their weights "
        'differ beyond all precision. Bring the weights closer together, or choose "workload"'
    )


def _needless(
    rmse: float, best: Strategy, lower: float, workload: Workload, settings: Settings
) -> str | None:
    """Why no further method need be tried, or None."""
    if settings.late:
        return "the time limit was reached"
    if rmse**2 * workload.queries <= lower * (1 + _PROVEN):
        return f"{best.method} is proven within {_PROVEN:.3%} of the least squared error"
    return None


def _lower(strategy: Strategy, workload: Workload, settings: Settings) -> float | None:
    """The best lower bound known on the loss of any strategy for this workload."""
    if settings.noise != "gaussian" or settings.neighbours == WITHIN:  # bounds are about all pairs of cells
        return None
    if strategy.method == "opt0" and strategy.lower is not None:
        return strategy.lower  # of the dual itself, which begins at the SVD bound
    svd = unit_bound(workload, "svd", settings.neighbours, settings.deadline)
    bounds = [b for b in (strategy.lower, svd) if b is not None]
    return max(bounds, default=None)


def _certificate(strategy: Strategy, workload: Workload, settings: Settings) -> float | None:
    """Relative gap of the total squared error to the best bound known; None where that proves nothing."""
    lower = _lower(strategy, workload, settings)
    reached = next(c.rmse for c in strategy.candidates if c.method == strategy.method)
    assert reached is not None
    return None if not lower else max(0.0, reached**2 * workload.queries / lower - 1.0)
