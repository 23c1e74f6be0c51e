"""OPT_0 and OPT_kron as strategies: one matrix for the whole, or the best single Kronecker product.

A strategy ``A = A_1 (x) ... (x) A_d`` with X_i = A_i'A_i has the loss

    tr[(A'A)^+ W'W] = sum_l c_l prod_i T_li,        T_li = tr[X_i^-1 V_li],

so with all factors but the i-th held fixed it is the loss of the surrogate workload (HDMM, equation 5)

    S_i = sum_l c_l (prod_{i' != i} T_li') V_li     (n_i x n_i),

an explicit workload for OPT_0. Factors are improved in turn until the loss settles; where it settles
depends on the start, so several are tried: all factors ``a I + b J``, from single cells towards the total,
and random ones. An attribute that all terms treat alike has its optimum once and for all; a single product
has only such attributes, and the product of their bounds bounds the whole.

Cells that no term tells apart are merged at the outset and only those: every factor is non-singular over the
cells that remain, so no term can lose its row space, whatever weight the others give it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import Dense, Kron, Total
from ..block import Block, kron_sum, products
from ..bounds.dual import PAIR_CELLS, Terms, kron_sizes, opt0_pairs, svd_bound_kron
from ..deadline import SECONDS_A_CUBE, check_time, now
from ..gram import (
    EXPLICIT_CELLS,
    MIXTURES,
    DistinctCells,
    GramTerms,
    dense_grams,
    explicit_gram,
    explicit_query,
    lifted,
    many_products,
    mixture_traces,
    strategy_traces,
)
from ..information.explicit import row_count
from ..methods import MEASURED, Settings, register
from ..residual.search import alike
from ..rounding import FINEST, Rounded, gram_inverse, row_basis, share_bits, to_grid
from ..strategy import Strategy
from ..symmetry import FEW_CELLS, MOST_COMBINATIONS, WIDEST, fewest_combinations, symmetry_pays
from .opt0 import full_optimum, nonsingular_optimum, opt0_gaussian, opt0_laplace
from .rows import row_strategy

_SWEEPS, _PILOT_SWEEPS = 50, 3
_STEPS = 3.0  # eigendecompositions' worth of the shortest search over a matrix, with what follows it
_JUDGING = 6.0  # and of rounding what was found, and the least squares that it is judged by
_GAUSSIAN_STEPS, _LAPLACE_STEPS = 60, 60  # and of a whole search
_FINE = 1e-5  # gap to which each factor of the final strategy is solved
_FEW = 2  # rows are few where there are this many cells to one
_EXPLICIT = 512  # domains of up to this many cells are bounded as a whole


@dataclass(frozen=True)
class KronOptimum:
    """A Kronecker product strategy: ``factors`` A_i (r_i x n_i), each of sensitivity 1.

    No strategy, product or not, has a loss below ``lower`` (None where no bound is known).
    """

    factors: list[np.ndarray]
    loss: float
    lower: float | None


def opt_kron(
    terms: Terms,
    noise: Literal["gaussian", "laplace"],
    *,
    tolerance: float = 1e-3,
    seed: int = 0,
    restarts: int = 3,
    rows: Sequence[int | None] | None = None,
    deadline: float = np.inf,
    known: KnownFactors | None = None,
    certify: bool = True,
) -> KronOptimum:
    """The best Kronecker product strategy found for a union of Kronecker products.

    ``terms`` are pairs (coefficient, [V_1, ..., V_d]) with ``W'W = sum_l c_l V_l1 (x) ... (x) V_ld``; coefficients may
    be negative as long as the sum is a Gram matrix. ``tolerance`` is the relative gain per sweep at which the search
    settles (and the certified gap of a single product under Gaussian noise). ``restarts`` random starts join three
    fixed ones; the result depends on ``seed`` alone unless a ``deadline`` is set. ``rows`` bounds the p of
    each attribute's p-Identity strategy (Laplace noise). ``known`` keeps factors between calls with the same noise and
    effort; without ``certify`` no lower bound is computed.

    Raises :class:`~tabulae.errors.InvalidArgument` for terms that do not fit together or count no cell.

    Reference: HDMM, Definitions 17 and 18, equation 5; section 9 for p.

    >>> eye, ones, prefix = np.eye(4), np.ones((4, 4)), np.tril(np.ones((4, 4)))
    >>> best = opt_kron([(1.0, [eye, ones]), (1.0, [eye, prefix.T @ prefix])], "gaussian")
    >>> [A.shape for A in best.factors]
    [(4, 4), (4, 4)]
    """
    kron_sizes(terms)
    if noise not in ("gaussian", "laplace"):
        raise InvalidArgument(f"noise is {noise!r}: this method knows 'gaussian' and 'laplace'.")
    problem = _Problem.of(terms)
    limits = tuple(rows) if rows is not None else (None,) * len(problem.grams)
    if len(limits) != len(problem.grams):
        raise InvalidArgument(f"rows has {len(limits)} numbers for {len(problem.grams)} attributes.")
    solve = _Solver(
        problem, noise, tolerance, seed, limits, deadline, KnownFactors() if known is None else known
    )
    factors = _best_of_starts(problem, solve, np.random.default_rng(seed), restarts)
    return KronOptimum(
        factors=[cells.lift(f.strategy) for cells, f in zip(problem.cells, factors, strict=True)],
        loss=problem.loss([f.traces for f in factors]),
        lower=_lower_bound(terms, problem, solve) if certify else None,
    )


@dataclass(frozen=True)
class _Problem:
    """Terms over distinct cells: ``grams[i][index[l, i]]`` is V_li, each different matrix held once."""

    coefficients: np.ndarray
    index: np.ndarray
    grams: list[list[np.ndarray]]
    cells: list[DistinctCells]

    @classmethod
    def of(cls, terms: Terms) -> _Problem:
        terms = [term for term in terms if term[0] != 0]
        d = len(terms[0][1]) if terms else 0
        index = np.zeros((len(terms), d), dtype=np.int64)
        grams, cells = [], []
        for i in range(d):
            column, index[:, i] = _distinct([factors[i] for _, factors in terms])
            cells.append(DistinctCells.of(column))
            grams.append([np.ascontiguousarray(cells[-1].merge(V)) for V in column])
        if not terms or any(c.count == 0 for c in cells):
            raise InvalidArgument(
                "terms count no cell: the workload is zero. Leave out tables of weight zero."
            )
        return cls(np.array([float(c) for c, _ in terms]), index, grams, cells)

    def weights(self, i: int, traces: Sequence[np.ndarray]) -> np.ndarray:
        """Weight of each matrix of attribute i in the surrogate workload, given the traces elsewhere."""
        product = self.coefficients.copy()
        for j, trace in enumerate(traces):
            if j != i:
                product *= trace[self.index[:, j]]
        return np.bincount(self.index[:, i], weights=product, minlength=len(self.grams[i]))

    def loss(self, traces: Sequence[np.ndarray]) -> float:
        return float(self.weights(0, traces) @ traces[0])


def _distinct(matrices: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """The different matrices among ``matrices`` (symmetric parts), and the position of each."""
    by_id: dict[int, int] = {}
    by_value: dict[bytes, int] = {}
    kept: list[np.ndarray] = []
    for V in matrices:
        if id(V) not in by_id:
            symmetric = (V + V.T) / 2.0  # tr[X^-1 V] sees no more of V
            by_id[id(V)] = by_value.setdefault(symmetric.tobytes(), len(kept))
            if by_id[id(V)] == len(kept):
                kept.append(symmetric)
    return kept, np.array([by_id[id(V)] for V in matrices])


@dataclass(frozen=True)
class _Factor:
    """A_i over distinct cells, its traces tr[X_i^-1 V] for every V of the attribute, and where to resume."""

    strategy: np.ndarray
    traces: np.ndarray
    resume: np.ndarray


@dataclass
class KnownFactors:
    """Factors that are optimal for one Gram matrix alone: hundreds of tables ask the same of an attribute."""

    factors: dict[tuple[int | None, int, bytes], _Factor] = field(default_factory=dict)


@dataclass
class _Solver:
    """OPT_0 on surrogate workloads."""

    problem: _Problem
    noise: str
    tolerance: float
    seed: int
    rows: tuple[int | None, ...]
    deadline: float
    known: KnownFactors

    def alone(self, i: int, restarts: int) -> _Factor:
        """Best factor of an attribute of which all terms ask the same; solved once for all calls."""
        (V,) = self.problem.grams[i]
        key = (self.rows[i], len(V), V.tobytes())
        if key not in self.known.factors:
            self.known.factors[key] = self.factor(i, np.ones(1), effort=restarts)
        return self.known.factors[key]

    def out_of_time(self) -> bool:
        return now() >= self.deadline

    def factor(
        self, i: int, weights: np.ndarray, resume: np.ndarray | None = None, effort: int = 0
    ) -> _Factor:
        """Best factor for the surrogate of these weights: new at an ``effort`` of restarts, or resumed."""
        grams = self.problem.grams[i]
        surrogate = np.zeros_like(grams[0])
        for weight, V in zip(weights / np.abs(weights).max(), grams, strict=True):
            surrogate += weight * V
        if self.noise == "gaussian":
            aim = min(self.tolerance, _FINE)
            found = nonsingular_optimum(surrogate, tolerance=aim, deadline=self.deadline, start=resume)
            strategy, memory = found.strategy, found.multipliers
        else:
            limit = self.rows[i]
            start = (
                None if resume is None else np.vstack([resume, np.full((1, len(surrogate)), 0.01)])[:limit]
            )
            best = full_optimum(
                surrogate, rows=limit, restarts=effort, seed=self.seed, deadline=self.deadline, start=start
            )
            strategy, memory = best.strategy, best.theta
        return _Factor(strategy, strategy_traces(strategy, grams), memory)

    def bound(self, V: np.ndarray) -> float:
        """Lower bound on the loss of any strategy for one explicit workload, 0 if it asks nothing."""
        if not V.any():
            return 0.0
        check_time(self.deadline, len(V), steps=_STEPS)
        return opt0_gaussian(V, tolerance=self.tolerance, deadline=self.deadline).lower


def _starts(
    problem: _Problem, solve: _Solver, fixed: dict[int, _Factor], rng: np.random.Generator, restarts: int
) -> list[list[np.ndarray]]:
    """Traces to descend from: the best product of mixtures of cells and total, the cells, random mixtures.

    Traces of mixtures are in closed form, so the best product is searched coordinate by coordinate on a grid.
    """
    norm = 2 if solve.noise == "gaussian" else 1
    tables = [mixture_traces(grams, MIXTURES, norm) for grams in problem.grams]
    tables = [fixed[i].traces[None, :] if i in fixed else table for i, table in enumerate(tables)]

    def traces(at: list[int]) -> list[np.ndarray]:
        return [table[k] for table, k in zip(tables, at, strict=True)]

    cells = [0] * len(tables)
    random = [[int(rng.integers(len(table))) for table in tables] for _ in range(restarts)]
    settled = []
    for at in ([*cells], *([*r] for r in random)):
        for _ in range(_SWEEPS):
            before = [*at]
            for i, table in enumerate(tables):
                at[i] = int(np.argmin(table @ problem.weights(i, traces(at))))
            if at == before:
                break
        settled.append(at)
    best = min(settled, key=lambda at: problem.loss(traces(at)))
    return [traces(at) for at in (best, cells, *random)]


def _best_of_starts(
    problem: _Problem, solve: _Solver, rng: np.random.Generator, restarts: int
) -> list[_Factor]:
    """Settle the attributes that are the same in all terms, try the starts, polish the best."""
    alike = [i for i, grams in enumerate(problem.grams) if len(grams) == 1]
    fixed = {i: solve.alone(i, restarts) for i in alike}
    if len(fixed) == len(problem.grams):
        return [fixed[i] for i in alike]
    best: dict[int, _Factor] = {}
    traces: list[np.ndarray] = []
    for start in _starts(problem, solve, fixed, rng, restarts):
        if best and solve.out_of_time():
            break
        factors, reached = _descend(problem, solve, fixed, start, _PILOT_SWEEPS)
        if not best or problem.loss(reached) < problem.loss(traces):
            best, traces = factors, reached
    best, _ = _descend(problem, solve, best, traces, _SWEEPS, effort=restarts)
    return [best[i] for i in range(len(problem.grams))]


def _descend(
    problem: _Problem,
    solve: _Solver,
    factors: dict[int, _Factor],
    traces: list[np.ndarray],
    limit: int,
    effort: int = 0,
) -> tuple[dict[int, _Factor], list[np.ndarray]]:
    """Improve the factors in turn until a sweep gains less than a tenth of the tolerance.

    ``traces`` stand for factors that are not there yet. With ``effort`` > 0 the first sweep also solves each
    factor anew, in case its own search was caught in a local optimum. Returns factors and traces.
    """
    factors, traces = dict(factors), list(traces)
    loss = np.inf
    for sweep in range(limit):
        for i in range(len(traces)):
            held = factors.get(i)
            if held is not None and (len(problem.grams[i]) == 1 or solve.out_of_time()):
                continue
            weights = problem.weights(i, traces)
            choices = [] if held is None else [held, solve.factor(i, weights, resume=held.resume)]
            if held is None or (effort and sweep == 0):
                choices.append(solve.factor(i, weights, effort=effort))
            factors[i] = min(choices, key=lambda f: float(weights @ f.traces))
            traces[i] = factors[i].traces
        before, loss = loss, problem.loss(traces)
        if loss > before * (1 - solve.tolerance / 10) or solve.out_of_time():
            break
    return factors, traces


def _lower_bound(terms: Terms, problem: _Problem, solve: _Solver) -> float | None:
    """The best of what is proven: SVD bound, optimum of the small whole, or the terms' own optima added up.

    The last holds because ``loss(A) = sum_l c_l loss_l(A)`` and no A has less loss on a term than the term's
    own optimum, the product of its factors'; it needs positive coefficients and factors that are Gram
    matrices, which the cross terms of a disjunction are not.
    """
    bounds = []
    if (problem.coefficients > 0).all() and _all_grams(terms, problem):
        with contextlib.suppress(Unsupported):
            own = [np.array([solve.bound(V) for V in grams]) for grams in problem.grams]
            product = problem.coefficients.copy()
            for i, lower in enumerate(own):
                product *= lower[problem.index[:, i]]
            bounds.append(float(product.sum()) * (1 - 1e-12))
    if len(problem.coefficients) > 1:
        with contextlib.suppress(Unsupported):
            bounds.append(svd_bound_kron(terms))
        if np.prod([float(c.count) for c in problem.cells]) <= _EXPLICIT:
            with contextlib.suppress(Unsupported):
                bounds.append(solve.bound(_explicit(terms, problem.cells)))
    return max(bounds, default=None)


def _all_grams(terms: Terms, problem: _Problem) -> bool:
    """Whether every factor of every term is symmetric and, up to rounding, positive semi-definite."""
    if not all(np.array_equal(V, V.T) for V in {id(V): V for _, Vs in terms for V in Vs}.values()):
        return False
    spectra = [np.linalg.eigvalsh(V) for grams in problem.grams for V in grams]
    return all(values[0] >= -1e-10 * max(values[-1], 0.0) for values in spectra)


def _explicit(terms: Terms, cells: Sequence[DistinctCells]) -> np.ndarray:
    """W'W over all distinct cells; single terms may be unsymmetric, so their symmetric parts will not do."""
    return kron_sum(
        (float(c), [cell.merge(V) for cell, V in zip(cells, factors, strict=True)]) for c, factors in terms
    )


def _one_attribute(workload: Workload, settings: Settings) -> bool:
    """Whether one attribute alone is asked for, but not its cells alike: others search longer for the same."""
    if settings.noise != "gaussian" or settings.neighbours != "add-remove":
        return False
    merged, _ = workload.merge()
    told = [i for i, n in enumerate(merged.domain.shape) if n > 1]
    return len(told) == 1 and any(alike(factors[told[0]]) is None for _, factors in merged.gram_terms())


def _opt0_turn(workload: Workload, settings: Settings) -> int:
    return 1 if _one_attribute(workload, settings) else 3


def _seconds(workload: Workload, settings: Settings) -> float:
    """What OPT_0's search takes: of the cells, or under Gaussian noise of the classes of them or the rows."""
    merged, _ = workload.merge()
    order = float(merged.domain.size)
    if _one_attribute(workload, settings):
        return 0.0
    if settings.noise == "laplace":
        return 0.0 if order > WIDEST else _LAPLACE_STEPS * SECONDS_A_CUBE * order**3
    if _pairs_count(settings):
        return 0.0 if order > WIDEST else _GAUSSIAN_STEPS * SECONDS_A_CUBE * order**3
    rows, combinations = _row_count(merged), fewest_combinations(merged)
    order = min(order, combinations)
    once = 0.0
    if rows * _FEW <= order:
        once = order**3 if order <= MOST_COMBINATIONS else 0.0  # the rows of a piece, from its spectrum
        order = rows
    return 0.0 if order > WIDEST else SECONDS_A_CUBE * (_GAUSSIAN_STEPS * order**3 + once)


def _row_count(merged: Workload) -> int:
    """A bound on how many independent rows a merged workload has."""
    return sum(row_count(products(table.operator(merged.domain))) for table in merged.tables)


def _by_rows(merged: Workload) -> bool:
    """Whether classes of cells or rows are few in comparison with the cells."""
    few = merged.domain.size > FEW_CELLS and _row_count(merged) * _FEW <= merged.domain.size
    return few or symmetry_pays(merged)


@register(
    "opt0",
    "OPT_0 (one matrix, optimised as a whole)",
    families=("hdmm", "auto"),
    turn=_opt0_turn,
    pays=lambda workload, settings: (
        workload.merge()[0].domain.size <= MEASURED or not many_products(workload)
    ),
    seconds=_seconds,
)
def opt0_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_0: the best matrix for the workload as a whole, over merged cells.

    Gaussian noise: the convex optimum with a dual certificate, over cells, or over classes of cells or in the row
    space (:mod:`.rows`) where those are fewer; under replace-one neighbours the optimum for pairs of cells
    where they can be listed. Laplace noise: the best p-Identity found.
    """
    merged, merges = workload.merge()
    if _pairs_count(settings) and merged.domain.size <= PAIR_CELLS:
        return _pair_strategy(workload, settings, "opt0")
    listed = merged.domain.size <= (EXPLICIT_CELLS if len(merges) > 1 else WIDEST)
    if settings.noise == "gaussian" and (not listed or _by_rows(merged)):
        with contextlib.suppress(*[Unsupported] if listed else []):  # cells can be listed instead
            found = row_strategy(workload, settings)
            return replace(found, lower=None) if _pairs_count(settings) else found
    if not listed:
        raise Unsupported(
            f"opt0 treats the workload as one matrix over {merged.domain.size:,} merged cells; under Laplace noise it "
            f'goes up to {EXPLICIT_CELLS:,} ({WIDEST:,} of one attribute). Choose "kron", which works attribute by '
            "attribute"
        )
    settings.check_time(merged.domain.size, steps=_STEPS)
    deadline = settings.deadline - _JUDGING * SECONDS_A_CUBE * merged.domain.size**3
    gram = explicit_gram(merged)
    lower = None
    if settings.noise == "gaussian":
        optimum = opt0_gaussian(gram, tolerance=settings.tolerance, deadline=deadline)
        matrix = optimum.strategy
        lower = None if _pairs_count(settings) else optimum.lower  # it is about columns, not about pairs
    else:
        best = opt0_laplace(gram, restarts=settings.starts, seed=settings.seed, deadline=deadline)
        matrix = best.strategy
    rounded = to_grid(matrix, gram, settings.norm, FINEST)
    query = explicit_query(rounded, merges)
    block = Block("opt0", query, rounded.exponent)
    return Strategy(workload.domain, (block,), settings.noise, "opt0", lower=lower)


def _pairs_count(settings: Settings) -> bool:
    """Whether Gaussian noise is paid for pairs of cells, not for cells."""
    return settings.noise == "gaussian" and settings.neighbours == "replace"


def _pair_strategy(workload: Workload, settings: Settings, name: str) -> Strategy:
    """The optimum under replace-one neighbours on the finest grid; its last row is the total, nearly without noise."""
    merged, merges = workload.merge()
    optimum = opt0_pairs(explicit_gram(merged), tolerance=settings.tolerance, deadline=settings.deadline)
    matrix = Dense(np.rint(np.ldexp(optimum.strategy, FINEST)).astype(np.int64))
    if sum(n > 1 for n in merged.domain.shape) == 1:
        query = Kron([lifted(matrix if m.shape[0] > 1 else Total(1), m) for m in merges])
    else:
        query = explicit_query(Rounded(matrix, FINEST, optimum.loss), merges)
    block = Block(name, query, FINEST)
    return Strategy(workload.domain, (block,), "gaussian", name, lower=optimum.lower)


def _turn(workload: Workload, settings: Settings) -> int:
    """Before the residual planner where the tables are one product, of which both find the optimum: its answers are
    fewer, and those of a marginal are counts.
    """
    alone = len(workload.tables) == len(workload.tables[0].terms) == 1
    return 1 if alone and settings.noise == "gaussian" and settings.neighbours == "add-remove" else 4


@register(
    "kron",
    "OPT_kron (one product of matrices, optimised attribute by attribute)",
    families=("hdmm", "auto"),
    turn=_turn,
    pays=lambda workload, settings: len(workload.domain.attributes) > 1,  # of one it is opt0
    by_cells=True,
)
def kron_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_kron: one Kronecker product, its factors optimised in turn on surrogate workloads (HDMM, eq. 5).

    Under replace-one neighbours factors are optimised as under add-remove, for which their sensitivities multiply;
    only where a single attribute tells cells apart is the optimum for pairs of its cells the product's too.
    """
    shape = workload.merge()[0].domain.shape
    if _pairs_count(settings) and sum(n > 1 for n in shape) == 1 and max(shape) <= PAIR_CELLS:
        rows_of(settings, workload.domain.names)
        return _pair_strategy(workload, settings, "kron")
    block, optimum = kron_block(workload, settings)
    # It is about columns, not about pairs
    lower = optimum.lower if settings.neighbours == "add-remove" else None
    return Strategy(workload.domain, (block,), settings.noise, "kron", lower=lower)


def kron_block(
    workload: Workload,
    settings: Settings,
    *,
    name: str = "kron",
    known: KnownFactors | None = None,
    beside: bool = False,
) -> tuple[Block, KronOptimum]:
    """The product that :func:`kron_strategy` measures, on its grid, and the real optimum it was rounded from.

    ``beside`` others no lower bound is computed, and under Gaussian noise each factor keeps to the row space of its
    queries: what else makes it non-singular is so faint in a product of several that least squares over all blocks
    together would lose it in rounding, and the tables with it.
    """
    rows = rows_of(settings, workload.domain.names)
    merged, merges = workload.merge()
    widest = max(merged.domain.shape)
    if widest > WIDEST:
        raise Unsupported(
            f"attribute of {widest:,} distinguishable cells: kron optimises a dense matrix per attribute, up to "
            f"{WIDEST:,}"
        )
    terms = dense_grams(merged)
    if not beside:
        settings.check_terms(merged, 7.5e-6, "a product for all tables")
    optimum = opt_kron(
        terms,
        settings.noise,
        tolerance=settings.tolerance,
        seed=settings.seed,
        rows=rows,
        deadline=settings.deadline,
        known=known,
        restarts=settings.starts,
        certify=not beside,
    )
    factors = _rounded_factors(optimum.factors, terms, settings.norm, beside=beside)
    query = Kron([lifted(r.matrix, m) for r, m in zip(factors, merges, strict=True)])
    return Block(name, query, sum(r.exponent for r in factors)), optimum


def rows_of(settings: Settings, names: Sequence[str]) -> tuple[int | None, ...]:
    """``settings.rows``, HDMM's p, for each attribute; None where the optimiser is free.

    Raises :class:`~tabulae.errors.InvalidArgument` under Gaussian noise, whose strategies are no p-Identity strategies.
    """
    if settings.rows is None:
        return (None,) * len(names)
    if settings.noise == "gaussian":
        raise InvalidArgument(
            "rows counts the rows of a p-Identity strategy, which is for Laplace noise; under Gaussian noise the "
            "optimum is found whole: leave rows out"
        )
    if isinstance(settings.rows, int):
        return (settings.rows,) * len(names)
    return tuple(settings.rows.get(name) for name in names)


def _rounded_factors(
    matrices: Sequence[np.ndarray], terms: GramTerms, p: int, *, beside: bool
) -> list[Rounded]:
    """Each factor on a grid of its own, judged against the surrogate workload that the others leave it."""
    inverses = [_inverse(matrix) for matrix in matrices]
    known: dict[tuple[int, int], float] = {}
    for _, grams in terms:
        for i, v in enumerate(grams):
            known.setdefault((i, id(v)), float(np.vdot(inverses[i], v)))
    traces = np.array([[known[i, id(v)] for i, v in enumerate(grams)] for _, grams in terms])
    surrogates = []
    for i in range(len(matrices)):
        others = np.prod(np.delete(traces, i, axis=1), axis=1)
        surrogates.append(
            np.asarray(sum(c * o * grams[i] for (c, grams), o in zip(terms, others, strict=True)))
        )
    asked = [
        list({id(v): v for v in own}.values()) for own in zip(*(grams for _, grams in terms), strict=True)
    ]
    bases = [row_basis(own) if beside and p == 2 else None for own in asked]
    return share_bits(matrices, [(v + v.T) / 2 for v in surrogates], p, bases)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """(A'A)^+, (n, n)."""
    inverse = gram_inverse(matrix)
    return np.linalg.pinv(matrix.T @ matrix, rcond=1e-12, hermitian=True) if inverse is None else inverse
