"""Select: a workload in, the strategy that answers it with least expected error out. No data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..errors import InvalidArgument, NotEstimable, Unsupported
from ..privacy import check_neighbours
from ..tables import Workload
from .bound import unit_bound
from .classic import identity_strategy, workload_strategy
from .hdmm import kron_strategy, opt0_strategy
from .loss import unit_rmse
from .settings import Settings
from .strategy import Candidate, NoiseKind, Strategy
from .threads import threads_for
from .union import union_strategy

Method = Callable[[Workload, Settings], Strategy]

SINGLE: dict[str, Method] = {
    "identity": identity_strategy,
    "workload": workload_strategy,
    "opt0": opt0_strategy,
    "kron": kron_strategy,
    "union": union_strategy,
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "hdmm": ("identity", "kron", "opt0", "union"),
    "auto": ("identity", "kron", "opt0", "union", "workload"),
}
METHODS: tuple[str, ...] = (*SINGLE, *FAMILIES)


def select(
    workload: Workload,
    *,
    noise: NoiseKind = "gaussian",
    method: str = "hdmm",
    neighbours: str = "add-remove",
    time_limit: float | None = None,
    seed: int = 0,
    tolerance: float = 1e-3,
    restarts: int | None = None,
) -> Strategy:
    """Choose the noisy counting queries that answer ``workload`` with least total squared error.

    Minimises ``||A||^2 ||W A^+||_F^2`` (L2 sensitivity for Gaussian noise, L1 for Laplace) within the
    method's family; the result lies on an integer grid, ready for exact noise.

    Arguments:
        workload: the tables wanted, weights included.
        noise: "gaussian" (zCDP, approximate DP) or "laplace" (pure DP).
        method: "identity", "workload", "opt0" (one explicit matrix), "kron" (one Kronecker product),
            "union" (one product for each group of tables), "hdmm" (best of all but workload) or "auto"
            (best of all that finish).
        neighbours: "add-remove" or "replace"; sensitivities follow it.
        time_limit: seconds after which a family starts no further method.
        seed: of the optimisers' starting points; it has nothing to do with noise.
        tolerance: certified relative gap at which the Gaussian optimiser stops.
        restarts: random starts of the non-convex (Laplace) optimisers.

    Returns a :class:`~tabulae.strategy.Strategy`; ``.certificate`` is its proven relative gap to the best
    possible total squared error where one is known, ``.candidates`` what each method reached.

    Raises:
        InvalidArgument: unknown method, noise or neighbours.
        Unsupported: the method cannot serve this workload; the message says which can.

    Reference: McKenna, Miklau, Hay, Machanavajjhala, "HDMM", sections 5-6.

    Privacy:
        Sees no data; its output is public. The privacy of what is measured is decided later, exactly, from
        the rounded strategy (``Strategy.sensitivity``).

    >>> import tabulae as tb
    >>> workload = tb.Workload.of(tb.AllRange(16))
    >>> best = tb.select(workload, noise="gaussian", method="opt0")
    >>> best.certificate < 1e-3
    True
    """
    if noise not in ("gaussian", "laplace"):
        raise InvalidArgument(f"noise must be 'gaussian' or 'laplace', not {noise!r}")
    if method not in METHODS:
        raise InvalidArgument(f"unknown method {method!r}; this version has {', '.join(METHODS)}")
    if time_limit is not None and not time_limit > 0:
        raise InvalidArgument(f"time_limit must be a positive number of seconds, not {time_limit!r}")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    settings = Settings(noise, check_neighbours(neighbours), tolerance, restarts, seed, deadline)
    names = FAMILIES.get(method, (method,))
    if len(workload.domain.attributes) == 1 and len(names) > 1:
        names = tuple(name for name in names if name != "kron")  # one factor: the same problem as opt0
    if len(workload.tables) == 1 and len(names) > 1:
        names = tuple(name for name in names if name != "union")  # one group: the same problem as kron
    best = _best_of(names, workload, settings)
    return replace(best, certificate=_certificate(best, workload, settings))


def baseline(workload: Workload, method: str, noise: NoiseKind, neighbours: str) -> Strategy:
    """The strategy of a single method, neither scored nor certified: something to compare with."""
    return SINGLE[method](workload, Settings(noise, neighbours, 1e-3, None, 0, None))


def _best_of(names: tuple[str, ...], workload: Workload, settings: Settings) -> Strategy:
    """Run the named methods; keep the one with the least expected error, and the score of all."""
    best: tuple[float, Strategy] | None = None
    scores: list[Candidate] = []
    for name in names:
        started = time.monotonic()
        if best is not None and settings.remaining() == 0.0:
            scores.append(Candidate(name, None, 0.0, "not started: the time limit was reached"))
            continue
        try:
            with threads_for(workload):
                strategy = SINGLE[name](workload, settings)
            rmse = unit_rmse(strategy, workload, settings.neighbours)
        except (Unsupported, NotEstimable) as refusal:  # the latter where weights differ beyond all precision
            if len(names) == 1:
                raise
            scores.append(Candidate(name, None, time.monotonic() - started, str(refusal)))
            continue
        scores.append(Candidate(name, rmse, time.monotonic() - started))
        if best is None or rmse < best[0]:
            best = rmse, strategy
    if best is None:
        raise Unsupported(
            "no method can serve this workload:\n" + "\n".join(f"  {c.method}: {c.note}" for c in scores)
        )
    return replace(best[1], candidates=tuple(scores))


def _certificate(strategy: Strategy, workload: Workload, settings: Settings) -> float | None:
    """Relative gap of the total squared error to the best bound known, where that is proven."""
    if settings.noise != "gaussian" or settings.neighbours != "add-remove":
        return None
    reached = next(c.rmse for c in strategy.candidates if c.method == strategy.method)
    assert reached is not None
    loss = reached**2 * workload.queries
    bounds = [b for b in (strategy.lower, unit_bound(workload, "svd")) if b is not None]
    return max(0.0, loss / max(bounds) - 1.0) if bounds else None
