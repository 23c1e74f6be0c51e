"""Targets for several tables met at once, in the row space of the tables: their weights and the strategy together.

With the rows R_t (k_t x r) of table t in a basis of the row space, its allowance a_t, and Q (r x r) the information
that a strategy has of the basis, the table's mean squared error over what is allowed is ``r_t = tr[R_t Q^-1 R_t'] /
(a_t k_t)``. A change of the data moves the basis by g, and costs ``g'Qg``. The least budget,

    min_Q max_t r_t(Q)    subject to    g'Qg <= 1 for every change g,

has the dual ``max F(lambda, mu)^2`` over shares lambda of the tables and mu of the changes, with

    F = tr (L'M L)^1/2,    M = sum_g mu_g g g',    L L' = sum_t lambda_t R_t'R_t / (a_t k_t).

F is concave in both together, as is the fidelity of two positive matrices, so that no search is caught. With
``L'M L = V diag(s) V'`` the information is ``Q = (L V) s^-1/2 (L V)'``, the derivatives of log F^2 are r_t / F and
g'Qg / F, and Q divided by its largest cost is feasible: each point has a strategy and a bound.

Changes are the columns of the cells, or under replace-one neighbours pairs of them, of which those join the search that
cost most. There some cell must be counted by no table: its pairs are the columns, and the row space is bounded.

Reference: HDMM, Definition 12; Lieb, "Convex trace functions and the Wigner-Yanase-Dyson conjecture" (1973), for
concavity.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import Contrasts, Dense, MatrixProduct, Partition, Sparse, representatives
from ..block import Block
from ..bounds.dual import lowered_trace
from ..deadline import check_seconds, now
from ..methods import Settings
from ..strategy import Strategy
from .rows import rows_by_table, square_root

_MOST_ROWS, _MOST_PAIRED = 600, 8192  # distinct rows, and cells under replace-one neighbours
_MOST_CELLS, _MOST_DISTINCT = 2**19, 2**15
_DEPENDENT = 1e-12  # rows below this share of the spectrum are combinations of others
_SMALLEST = 1e-15  # eigenvalues are kept above this share of the largest
_SAFE = 1 - 1e-9  # for what rounding does to the matrices that a bound is made of
_LEAST, _EVEN = 1e-5, 3e-4  # share that every table keeps, and that all columns have together
_ROUNDS, _MULTIPLICATIVE, _STEPS = 40, 12, 30
_KEPT = 1e-6  # of the largest weight: changes of less leave ...
_NEAR = 1e-3  # ... unless they cost so nearly as much as they may
_JOINING = 1e-3  # of the largest weight, that pairs join with
_CHUNK = 2**22  # numbers held at once
_VISITS_AFTER, _LOOKS_AFTER = 4.0, 3.0  # that one more step, a last look and the score take as long as
_GRID = 21  # bits
_SECONDS = 3e-8  # of a core for r^2 (r + n), which a useful search takes


@dataclass(frozen=True, eq=False)
class RowTargets:
    """Tables that have a target each, in a ``basis`` (m x r) of the row space of their distinct ``rows`` (m x n).

    ``asked`` are the tables' queries (k_t x r), scaled so that their total squared error is the table's ratio.
    """

    workload: Workload
    merges: Sequence[Partition]
    shape: tuple[int, ...]
    rows: Any  # a csr_array of integers
    basis: np.ndarray
    asked: tuple[np.ndarray, ...]
    columns: np.ndarray

    @classmethod
    def of(cls, scaled: Workload, settings: Settings) -> RowTargets:
        """Of a workload in which the total squared error of each table is its ratio.

        Raises :class:`~tabulae.errors.Unsupported` where it has too many rows or cells, or there is too little time.
        """
        merged, merges = scaled.merge()
        rows, tables = rows_by_table(merged)
        if rows.shape[0] > _MOST_ROWS or rows.shape[1] > _MOST_CELLS:
            raise Unsupported(f"targets are met at once by up to {_MOST_ROWS} rows of {_MOST_CELLS:,} cells")
        first = representatives(Sparse(rows).column_classes())
        if (cells := len(first)) > _MOST_DISTINCT:
            raise Unsupported(
                f"targets are met at once over up to {_MOST_DISTINCT:,} cells that are told apart"
            )
        distinct = rows.tocsc()[:, first].toarray()
        values, vectors = np.linalg.eigh((rows @ rows.T).toarray().astype(float))
        basis = vectors[:, values > _DEPENDENT * values[-1]]
        if settings.neighbours == "replace" and (cells > _MOST_PAIRED or distinct.any(axis=0).all()):
            raise Unsupported(
                f"targets are met at once under 'replace' by up to {_MOST_PAIRED:,} cells, where some cell is counted "
                "by no table"
            )
        seconds = _SECONDS * basis.shape[1] ** 2 * (basis.shape[1] + cells)
        check_seconds(settings.deadline, seconds, "the strategy for all targets at once")
        asked = tuple(square_root(gram) @ basis[place] for place, gram in tables)
        return cls(scaled, merges, merged.domain.shape, rows, basis, asked, basis.T @ distinct)

    def strategy(self, settings: Settings) -> tuple[Strategy, float]:
        """The strategy whose worst table is least bad, and a ratio that none is below.

        They are within the tolerance of each other where the deadline allows it.
        """
        by_pairs = settings.neighbours == "replace"
        search = _Search(self.asked, self.columns, settings.tolerance, settings.deadline, by_pairs=by_pairs)
        search.run()
        real = search.factor @ self.basis.T
        matrix = MatrixProduct(Dense(np.rint(np.ldexp(real, _GRID))), Sparse(self.rows))
        cells = [Partition(np.arange(n), n) for n in self.shape]
        query = Contrasts(matrix, self.merges, cells, [None] * len(cells))
        found = Strategy(self.workload.domain, (Block("opt0", query, _GRID),), "gaussian", "opt0")
        return found, search.proven


class _Reached(Exception):
    """The gap is small enough, or time is up."""


class _Search:
    """The dual over the tables' shares and the changes' weights; keeps the best strategy and bound that it met.

    ``asked`` are the tables' queries (k_t x r) and ``columns`` the cells (r x n), both in a basis of the row space.
    """

    def __init__(
        self, asked: Sequence[np.ndarray], columns: np.ndarray, gap: float, deadline: float, *, by_pairs: bool
    ) -> None:
        self._asked = np.concatenate(asked)
        self._owner = np.repeat(np.arange(len(asked)), [len(part) for part in asked])
        self._tables, self._columns, self._by_pairs = len(asked), columns, by_pairs
        self._gap, self._deadline = gap, deadline
        self._seconds = {"visit": 0.0, "look": 0.0}
        nobody = int(np.argmin(np.square(columns).sum(axis=0)))
        others = np.delete(np.arange(columns.shape[1]), nobody) if by_pairs else np.arange(columns.shape[1])
        self._changes = np.stack([others, np.full(len(others), nobody if by_pairs else -1)])
        self._weights = np.full(len(others), 1 / len(others))
        self._shares = np.full(len(asked), 1 / len(asked))
        self._even = columns @ columns.T / columns.shape[1]
        self.value, self.lower = np.inf, 0.0
        self.factor, self._looked = np.eye(len(columns)), False
        self._proof: tuple[np.ndarray, int] | None = None

    @property
    def proven(self) -> float:
        """The best bound, rounded down."""
        if self._proof is None:
            return 0.0
        return lowered_trace(self._proof[0], terms=sum(self._columns.shape) + self._proof[1]) ** 2 * _SAFE

    def run(self) -> None:
        """Search until the gap is small enough, time is up, or a round gains nothing."""
        try:
            for _ in range(_ROUNDS):
                before = self.value, self.lower
                self._descend()
                for _ in range(_MULTIPLICATIVE):
                    self._multiply()
                if self._by_pairs:
                    self._join(*self._look())
                if (self.value, self.lower) == before:
                    break
        except _Reached:
            if self._by_pairs and not self._looked:
                with suppress(_Reached):
                    self._look()

    def _visit(self, shares: np.ndarray, weights: np.ndarray) -> tuple[_Point, np.ndarray]:
        """The point, and what each change costs; keeps what is best so far, and ends the search in time."""
        started, taken = now(), self._differences()
        at = self._point(shares, taken, weights)
        self._shares, self._weights, self._looked = shares, weights, False
        if at.trace**2 > self.lower:
            self.lower, self._proof = at.trace**2, (at.middle, len(weights))
        costs = np.square(at.factor @ taken).sum(axis=0)
        if not self._by_pairs:
            self._keep(at, float(costs.max()))
        self._stop("visit", started)
        return at, costs

    def _stop(self, what: str, started: float) -> None:
        """End the search where the gap is small enough, or no step, last look and score would fit any more."""
        time = now()
        self._seconds[what] = time - started
        after = _VISITS_AFTER * self._seconds["visit"] + _LOOKS_AFTER * self._seconds["look"]
        if time + after > self._deadline or self.value <= self.lower * (1 + self._gap):
            raise _Reached

    def _point(self, shares: np.ndarray, changes: np.ndarray, weights: np.ndarray) -> _Point:
        shares = (1 - self._tables * _LEAST) * shares + _LEAST
        lower = np.linalg.cholesky((self._asked.T * shares[self._owner]) @ self._asked)
        moved = (1 - _EVEN) * (changes * weights) @ changes.T + _EVEN * self._even
        middle = lower.T @ moved @ lower
        values, vectors = sl.eigh(middle, check_finite=False)
        values = np.maximum(values, values[-1] * _SMALLEST)
        factor = (vectors / values**0.25).T @ lower.T
        inverse = (vectors * values**0.25).T @ sl.solve_triangular(lower, self._asked.T, lower=True)
        ratios = np.bincount(self._owner, weights=np.square(inverse).sum(axis=0), minlength=self._tables)
        return _Point(middle, float(np.sqrt(values).sum()), factor, ratios)

    def _multiply(self) -> None:
        """One multiplicative step: towards equal ratios, and equal costs."""
        at, costs = self._visit(self._shares, self._weights)
        shares = self._shares * np.clip(at.ratios / at.trace, 0.1, 10.0) ** 1.5
        weights = self._weights * np.clip(costs / at.trace, 0.1, 10.0)
        self._shares, self._weights = shares / shares.sum(), weights / weights.sum()

    def _descend(self) -> None:
        """L-BFGS over the roots of the weights and of the shares."""
        given = len(self._weights)

        def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
            """``-log F^2`` at the normalised squares, and its gradient."""
            one, other = point[:given], point[given:]
            sums = np.square(one).sum(), np.square(other).sum()
            shares = np.square(other) / sums[1]
            weights = np.square(one) / sums[0]
            at, costs = self._visit(shares, weights)
            saved = (1 - _EVEN) * (costs - weights @ costs) / at.trace
            gained = (1 - self._tables * _LEAST) * (at.ratios - shares @ at.ratios) / at.trace
            gradient = [-2 * one * saved / sums[0], -2 * other * gained / sums[1]]
            return -2 * np.log(at.trace), np.concatenate(gradient)

        start = np.sqrt(
            np.concatenate([self._weights / self._weights.max(), self._shares / self._shares.max()])
        )
        options = {"maxiter": _STEPS, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-12}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        weights, shares = np.square(found[:given]), np.square(found[given:])
        self._shares, self._weights = shares / shares.sum(), weights / weights.sum()

    def _differences(self) -> np.ndarray:
        one, other = self._changes
        return self._columns[:, one] - self._columns[:, other] if self._by_pairs else self._columns[:, one]

    def _keep(self, at: _Point, cost: float) -> None:
        value = float(at.ratios.max()) * cost
        if value < self.value:
            self.value, self.factor = value, at.factor / np.sqrt(cost)

    def _look(self) -> tuple[np.ndarray, np.ndarray]:
        """Which changes stay in the search, and the pairs that join it (2, k), of each cell the farthest.

        What a strategy costs is decided by all pairs.
        """
        started = now()
        at = self._point(self._shares, self._differences(), self._weights)
        moved = at.factor @ self._columns
        sizes = np.square(moved).sum(axis=0)
        farthest, costs = np.empty(len(sizes), dtype=np.int64), np.empty(len(sizes))
        step = max(1, _CHUNK // len(sizes))
        for start in range(0, len(sizes), step):
            part = slice(start, start + step)
            apart = sizes[part, None] + sizes - 2 * moved[:, part].T @ moved
            farthest[part], costs[part] = apart.argmax(axis=1), apart.max(axis=1)
        largest = float(costs.max())
        self._looked = True
        self._keep(at, largest)
        self._stop("look", started)
        enough, (one, other) = at.trace * (1 - _NEAR), self._changes
        stay = self._weights > _KEPT * self._weights.max()
        stay |= np.square(moved[:, one] - moved[:, other]).sum(axis=0) > enough
        near = np.flatnonzero(costs > enough)
        return stay, np.stack([near, farthest[near]])

    def _join(self, stay: np.ndarray, pairs: np.ndarray) -> None:
        weights = np.append(self._weights[stay], np.full(pairs.shape[1], _JOINING * self._weights.max()))
        every = np.sort(np.concatenate([self._changes[:, stay], pairs], axis=1), axis=0)
        first = np.sort(np.unique(every, axis=1, return_index=True)[1])
        self._changes, self._weights = every[:, first], weights[first] / weights[first].sum()


@dataclass(frozen=True)
class _Point:
    """What shares and weights say: L'M L, F, K (r x r) with K'K = Q, and r_t of every table."""

    middle: np.ndarray
    trace: float
    factor: np.ndarray
    ratios: np.ndarray
