"""Select: a workload in, the strategy that answers it with least expected error out. No data."""

from __future__ import annotations

import contextlib
import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize_scalar

from ..domain import Table, Workload
from ..errors import InvalidArgument, NotEstimable, Unsupported
from ..linalg import LinearOperator
from ..privacy import RECORDS
from . import classic, eigen, hdmm, residual
from .block import short_scale
from .bounds.lower import Attempt, unit_bounds
from .deadline import now
from .gram import threads_for
from .hdmm.row_targets import RowTargets
from .information.routes import check_least_squares
from .methods import FAMILIES, MEASURED, SINGLE, Settings, check_options, fitting
from .objective import Minimax, Objective, Targets, minimax, relative_workload
from .restriction import Restriction, restrict
from .seats import apart, of_records_alone, seated
from .strategy import Candidate, NoiseKind, Strategy, unit_rmse
from .within import WITHIN

for _room in (classic, eigen, hdmm, residual):  # every file of these rooms registers its methods
    for _module in pkgutil.iter_modules(_room.__path__):
        importlib.import_module(f"{_room.__name__}.{_module.name}")

METHODS: tuple[str, ...] = (*sorted(SINGLE), *FAMILIES)
"""The names that ``select`` accepts."""

_OPTIMAL = 1e-5  # relative gap of the squared error at which a strategy counts as the best possible
_FINER = 1e-3  # a tolerance to suggest
_AT_ONCE = 0.5  # seconds of a bound that may spare a method half of its search
_FIRST_SHARE = 0.25  # of the time left, after which all targets are met by one search
_RATIOS, _SHARP = (-12.0, 12.0), 0.05  # logarithms of ratios of scales; the error is flat about the best
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
    tolerance: float | None = None,
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
        neighbours: as of :func:`tabulae.privacy.check_neighbours`; sensitivities follow it.
        invariants: tables that are published exactly; the strategy is chosen for what they leave open, the workload
            restricted to the null space of their matrices. It never errs more than the one chosen without them and
            projected (within a proven relative gap of 1e-4, and of what a time limit allows).
        objective: "total" (weighted squared error), "relative" (the same of queries scaled to L2 norm 1, see
            :func:`relative_workload`), "max" (the largest variance of a query, times its table's squared weight), or
            :class:`Targets` (what meets all of them at the smallest budget).
        time_limit: seconds of a core for the search, its scores and its certificate together: searches stop early, and
            a decomposition that would last longer is not begun (the certificate may be None then). What is cheapest is
            worked out in any case. A method that is named alone is refused where its shortest search does not fit.
            Time in which the machine does something else does not count: it changes no strategy.
        seed: of the optimisers' starting points; it has nothing to do with noise.
        tolerance: proven relative gap in total squared error at which the search ends (Gaussian noise): "auto" tries no
            other method, and an optimiser stops. None: 0.02, 1 % in root mean squared error, among the methods of
            "auto", and 0.001 within an optimiser.
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
    settings.check_reading(workload)
    for table in workload.tables:
        if table.counts_nothing(workload.domain):
            raise InvalidArgument(f"table {table.name!r} counts nobody, whatever the records: leave it out")
    relative = objective == "relative"
    aim: Objective = "total" if objective == "relative" else objective
    if neighbours in RECORDS:
        if invariants:
            told = f'nothing works out what exact counts and neighbours = "{neighbours}" leave open together'
            raise Unsupported(f'{told}: write "replace", or make no count exact')
        return _select_of_records(workload, method, aim, settings, relative=relative)
    if not invariants:
        return _select(relative_workload(workload) if relative else workload, method, aim, settings)
    return _select_restricted(restrict(workload, invariants, relative=relative), method, aim, settings)


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
    if objective != "total":
        return _select_minimax(names, workload, objective, settings)
    by_proof = method == "auto" and settings.noise == "gaussian"  # no useful bound is known of Laplace noise
    best, proof = _best_of(names, workload, settings, settings.enough if by_proof else _OPTIMAL)
    if settings.noise != "gaussian":
        return best
    loss = _loss(best, workload)
    proof.reaches(loss, settings.enough if by_proof else 0.0)
    gap = max(0.0, loss / proof.lower - 1.0) if proof.lower else None
    return replace(best, certificate=gap, lower=proof.lower or None)


def _loss(strategy: Strategy, workload: Workload) -> float:
    """The total squared error at unit noise that a family's best was scored with."""
    reached = next(c.rmse for c in strategy.candidates if c.method == strategy.method)
    assert reached is not None
    return reached**2 * workload.queries


class _Proof:
    """The best lower bound known on the loss of any strategy; others are worked out where one is missed."""

    def __init__(self, names: Sequence[str], workload: Workload, settings: Settings) -> None:
        self.lower = 0.0
        self._names = names
        self._settings = settings
        self._workload = workload

    @cached_property
    def _further(self) -> list[Attempt]:
        """The bounds that may still be worked out; to list them takes a while where tables are many."""
        if self._settings.noise != "gaussian":
            return []
        by_products = any(SINGLE[name].by_products for name in self._names)
        return unit_bounds(
            self._workload, self._settings.neighbours, self._settings.deadline, by_products=by_products
        )

    def learn(self, strategy: Strategy) -> None:
        """Take in what a method proved, whether or not it is the best; the dual itself leaves nothing to look for."""
        if strategy.lower is not None and self._settings.neighbours != WITHIN:
            self.lower = max(self.lower, strategy.lower)
            if strategy.method == "opt0":  # its dual begins at the SVD bound
                self._further = []

    def reaches(self, loss: float, gap: float, *, spend: float = math.inf) -> bool:
        """Whether ``loss`` is proven within a relative ``gap`` of the least.

        Further bounds are tried while each takes no more than the seconds to ``spend``.
        """
        while loss > self.lower * (1 + gap):
            if not self._further or self._further[0].seconds > spend:
                return False
            with threads_for(self._workload):
                self.lower = max(self.lower, self._further.pop(0).bound() or 0.0)
        return True


def _select_restricted(
    restriction: Restriction, method: str, objective: Objective, settings: Settings
) -> Strategy:
    """The best strategy for a restricted workload; the one for the whole workload where that errs less."""
    given = replace(
        settings,
        invariants=restriction.invariants,
        groups=restriction.groups(settings.groups),
        deadline=(settings.deadline + now()) / 2,
    )
    best, refusal = None, None
    try:
        best = _select(restriction.workload, method, restriction.objective(objective), given)
    except Unsupported as caught:
        refusal = caught
    settled = max(_SETTLED, settings.enough) if method == "auto" else _SETTLED
    if best is not None and best.certificate is not None and best.certificate <= settled:
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
        chosen = _select(restriction.whole, method, objective, plain)
        strategy = replace(chosen, invariants=restriction.exact, certificate=None, lower=None)
        rmse = restriction.unit_rmse(strategy, settings.neighbours)
    except (Unsupported, NotEstimable):
        return None
    scored = Candidate(f"{strategy.method}, projected", rmse, 0.0)
    return replace(strategy, candidates=(scored,))


def _unrestricted(neighbours: str) -> str:
    """The neighbours to select for where no invariant is known of, nor what one record changes of its unit."""
    return "replace" if neighbours == WITHIN else "add-remove" if neighbours in RECORDS else neighbours


def _select_of_records(
    workload: Workload, method: str, objective: Objective, settings: Settings, *, relative: bool
) -> Strategy:
    """The best found where one record of a unit changes: for all tables at once, or for those that cost alike apart.

    Each is chosen for whole units or whole records, which takes no account of what else a record moves; the scales
    between the parts do.
    """
    neighbours = settings.neighbours
    units = replace(settings, neighbours=_unrestricted(neighbours))
    aimed = relative_workload(workload) if relative else workload

    def value(strategy: Strategy) -> float:
        if objective == "total":
            return unit_rmse(strategy, aimed, neighbours) ** 2
        return Minimax(aimed, objective).judge(strategy, neighbours).value

    def chosen(part: Workload, given: Settings = units) -> Strategy:
        asked = relative_workload(part) if relative else part
        return _select(asked, method, _of_part(objective, part), given)

    if (
        isinstance(objective, Targets) and settings.noise == "gaussian"
    ):  # pairs of units hold what a record changes
        exchanged = replace(_sooner(units, 1 / 2), neighbours="replace")
        found = [chosen(workload, exchanged), chosen(workload, _sooner(units, 1 / 2))]
    else:
        found = [chosen(workload)]
    alone, others = of_records_alone(workload, neighbours)
    if alone is not None and settings.groups is None and not settings.late:
        with contextlib.suppress(Unsupported):  # of blocks too unlike each other to be charged together
            found.append(_apart(workload, alone, others, chosen, value))
    best = min(found, key=value)
    return replace(best, certificate=None, lower=None)


def _apart(
    workload: Workload,
    alone: Workload,
    others: Workload | None,
    chosen: Callable[[Workload], Strategy],
    value: Callable[[Strategy], float],
) -> Strategy:
    """A strategy for the tables of records alone, and one for all others, measured together."""
    one = chosen(alone)
    blocks = tuple(part for block in one.blocks for part in seated(block, workload.domain))
    parts = [Strategy(workload.domain, blocks, one.noise, one.method)]
    if others is not None:
        parts.append(chosen(others))
    return _joined(parts, value)


def _sooner(settings: Settings, share: float) -> Settings:
    """The same with a share of the time that is left."""
    return replace(settings, deadline=now() + share * max(settings.deadline - now(), 0.0))


def _of_part(objective: Objective, part: Workload) -> Objective:
    """The targets of some tables; where none of them has one, their total error."""
    if not isinstance(objective, Targets):
        return objective
    names = {table.name for table in part.tables}
    rmse, margin = (
        {n: t for n, t in each.items() if n in names} for each in (objective.rmse, objective.margin)
    )
    return Targets(rmse, margin, objective.confidence) if rmse or margin else "total"


def _joined(parts: Sequence[Strategy], value: Callable[[Strategy], float]) -> Strategy:
    """One or two strategies as one, with the ratio of scales at which ``value`` is least."""
    one, *others = parts
    if not others:
        return one
    (other,) = others
    method = one.method if one.method == other.method else f"{one.method} and {other.method}"
    pieces = [
        [replace(block, query=op) for block in part.blocks for op in apart(block.query)] for part in parts
    ]

    def at(power: float) -> Strategy:
        factor = short_scale(math.exp(power))
        scaled = [replace(block, scale=block.scale * factor) for block in pieces[1]]
        every = enumerate([*pieces[0], *scaled], 1)
        blocks = [replace(block, name=f"{i}: {block.name}") for i, block in every]
        return Strategy(one.domain, tuple(blocks), one.noise, method)

    search: Any = minimize_scalar(
        lambda power: math.log(value(at(power))), bounds=_RATIOS, method="bounded", options={"xatol": _SHARP}
    )
    return at(float(search.x))


def baseline(workload: Workload, method: str, noise: NoiseKind, neighbours: str) -> Strategy:
    """The strategy of a single method, neither scored nor certified: something to compare with."""
    return SINGLE[method](workload, Settings(noise, _unrestricted(neighbours)))


def _select_minimax(
    names: tuple[str, ...], workload: Workload, objective: Objective, settings: Settings
) -> Strategy:
    """Try every method on the first weights, then let the best of them settle the weights."""
    assert objective != "total"
    at_once = _row_targets(names, workload, objective, settings)
    if at_once is not None and names == ("opt0",):
        return _met(at_once, workload, objective, settings)
    first: list[tuple[str, ...]] = [names]
    given = settings if at_once is None else _sooner(settings, _FIRST_SHARE)

    def choose(weighted: Workload) -> Strategy:
        try:
            best, _ = _best_of(first[0], weighted, given)
        except Unsupported:
            if first[0] == names:
                raise
            best, _ = _best_of(names, weighted, given)  # what served the last weights cannot serve these
        first[0] = (best.method,)
        return best

    def bound(strategy: Strategy, weighted: Workload) -> float | None:
        proof = _Proof((strategy.method,), weighted, given)
        proof.learn(strategy)
        proof.reaches(math.inf, 0.0)
        return proof.lower or None

    best, value, lower = minimax(workload, objective, choose, bound, given)
    best = replace(best, certificate=None if lower is None else max(0.0, value / lower - 1.0))
    if at_once is None or (lower is not None and value <= lower * (1 + settings.enough)):
        return best
    met = _met(at_once, workload, objective, settings)
    if Minimax(workload, objective).judge(met, settings.neighbours).value >= value:
        return best
    return replace(met, candidates=(*best.candidates, *met.candidates))


def _row_targets(
    names: tuple[str, ...], workload: Workload, objective: Objective, settings: Settings
) -> RowTargets | None:
    """The targets of all tables, where one search meets them and a strategy without structure is among the methods."""
    assert objective != "total"
    if "opt0" not in names or settings.noise != "gaussian" or settings.invariants:
        return None
    scaled = Minimax(workload, objective).in_total()
    try:
        return None if scaled is None else RowTargets.of(scaled, settings)
    except Unsupported:
        return None


def _met(at_once: RowTargets, workload: Workload, objective: Objective, settings: Settings) -> Strategy:
    """The strategy that meets all targets by one search, with its certificate."""
    assert objective != "total"
    started = now()
    strategy, lower = at_once.strategy(settings)
    value = Minimax(workload, objective).judge(strategy, settings.neighbours).value
    tried = Candidate("opt0", unit_rmse(strategy, workload, settings.neighbours), now() - started)
    return replace(strategy, certificate=max(0.0, value / lower - 1.0), candidates=(tried,))


def _best_of(
    names: tuple[str, ...], workload: Workload, settings: Settings, enough: float = _OPTIMAL
) -> tuple[Strategy, _Proof]:
    """Run the named methods until one is proven good ``enough``; the best of them with the scores of all."""
    best: tuple[float, Strategy] | None = None
    proof = _Proof(names, workload, settings)
    scores: list[Candidate] = []
    chosen_for = replace(
        settings,
        neighbours=_unrestricted(settings.neighbours),
        is_enough=lambda loss: proof.reaches(loss, enough, spend=_AT_ONCE),
        optimum_seconds=(SINGLE["opt0"].seconds(workload, settings) if "opt0" in names else 0.0) or math.inf,
    )
    for name in names:
        started = now()
        needless = None if best is None else _needless(name, *best, proof, workload, settings, enough)
        if needless is not None:
            reason, further = needless
            scores.append(Candidate(name, None, 0.0, f"not started: {reason}", further))
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
            scores.append(Candidate(name, None, now() - started, str(refusal)))
            continue
        scores.append(Candidate(name, rmse, now() - started))
        proof.learn(strategy)
        if best is None or rmse < best[0]:
            best = rmse, strategy
    if best is None:
        raise Unsupported(
            "no method can serve this workload:\n" + "\n".join(f"  {c.method}: {c.note}" for c in scores)
        )
    return replace(best[1], lower=proof.lower or None, candidates=tuple(scores)), proof


def _too_faint(name: str) -> Unsupported:
    """Why a strategy does not determine the tables that it was chosen for."""
    return Unsupported(
        f"{name} would measure some of these tables so faintly beside others that rounding hides them: their weights "
        'differ beyond all precision. Bring the weights closer together, or choose "workload"'
    )


def _needless(
    name: str,
    rmse: float,
    best: Strategy,
    proof: _Proof,
    workload: Workload,
    settings: Settings,
    enough: float,
) -> tuple[str, tuple[float, float] | None] | None:
    """Why a method need not be tried, and at which tolerance it would be; None where it is worth a try."""
    if settings.late:
        return "the time limit was reached", None
    loss = rmse**2 * workload.queries
    look = SINGLE[best.method].by_products and enough > _OPTIMAL
    takes = SINGLE[name].seconds(workload, settings)
    # a bound may prove too little: none that takes more than half of what it may spare
    spend = (takes / 2 or math.inf) if look else -math.inf
    if not proof.reaches(loss, max(enough, _OPTIMAL), spend=spend):
        served = settings.noise == "gaussian" and SINGLE[best.method].by_products
        if not (served and SINGLE[name].by_cells and workload.merge()[0].domain.size > MEASURED):
            return None
        return (
            f"the tables tell more than {MEASURED:.0e} cells apart, and {best.method} needs none of them",
            None,
        )
    gap = max(0.0, loss / proof.lower - 1)
    if gap <= _OPTIMAL:
        return f"{best.method} is proven within {_OPTIMAL:.3%} of the least squared error", None
    tried = 10.0 ** math.floor(math.log10(min(gap, _FINER * 10) / 2))
    cost = f" (about {takes:.2g} s)" if takes >= 1 else ""
    words = (
        f"{best.method} is proven within {math.sqrt(1 + gap) - 1:.2%} of the least root mean squared error; "
        f"tolerance = {tried:g} tries it{cost}"
    )
    return words, (tried, takes)
