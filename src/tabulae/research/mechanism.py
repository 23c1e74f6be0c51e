"""One mechanism: what is measured, what becomes of it, and the error to expect.

A mechanism here is additive: ``M(x) = A x + F z`` with F (n x m) into null(C) and z independent noise. It is run in
three steps. A :class:`~tabulae.strategy.Strategy` of integer rows is measured by :func:`tabulae.measure` like any
other, so that its answers y are differentially private in the full sense; ``L y`` estimates ``Pi_N A x``; and the
values c = C A x, which the same call reads as the strategy's invariants, supply what lies in the row space of C.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from ..domain import Domain, Table
from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, integer_matmul, largest_abs
from ..measurement import Measurement
from ..privacy import ApproxDP, PrivacyLoss, calibrate
from ..strategy import Block, NoiseKind, Strategy
from .geometry import KNormNoise
from .target import ConstrainedQuery, ExactAnswers

Calibration = Literal["exact", "classical"]

_ANSWER_BITS = (
    20  # estimates that are not integer combinations are rounded to this grid before they are projected
)
_GRIDS = (16, 20, 24)  # bits of the measured rows, beside those of the integers that they combine
_NEGLIGIBLE = 1e-5  # relative error at which a finer grid no longer pays
_LARGEST = 2**34  # entries of measured rows, which leaves room for 2^28 records
_UNBIASED = 1e-8
NOT_ON_GRID = "the query is on no grid of up to 24 bits: round it, np.round(A * 2**20) / 2**20, and say so"
_TOO_FINE = "the null space of these invariants needs integers of more than 62 bits"
_CLASSICAL = "the classical constant is for reproducing the paper"


@dataclass(frozen=True, eq=False)
class SubspaceMechanism:
    """An (induced) subspace private mechanism for one query, invariants, budget and kind of neighbours.

    ``squared_error`` is the expected squared error ``E ||M(x) - A x||^2`` in squared counts, by the formula of its
    paper, with nominal variances (sigma^2; 2 b^2); what is measured lies on a grid and is within 1e-5 of it. ``factor``
    is F (n x m): the error is F z with z standard normal, or Laplace of scale 1, or (``noise = "k-norm"``) K-norm
    noise. ``strategy`` is what is measured; None where the mechanism is for research only, and ``obstacle`` says why.
    ``certificate`` is a proven relative gap to the least squared error of any Gaussian mechanism, None where none is
    known. ``note`` is one line for people.

    Privacy:
        ``M(x) = L y + (Pi_R A x)`` with y the measured answers, which satisfy ``budget``. ``Pi_N M(x)`` is a function
        of y alone, so M is N-subspace private, and C M(x) = C A x exactly: induced subspace privacy (Gao, Gong and
        Yu 2022, Definition 2.6, Theorems 3.1 and 3.3). Of what lies in the row space of C nothing is hidden.
    """

    name: str
    target: ConstrainedQuery
    budget: PrivacyLoss
    noise: Literal["gaussian", "laplace", "k-norm"]
    squared_error: float
    factor: np.ndarray
    strategy: Strategy | None = None
    estimator: np.ndarray | None = field(default=None, repr=False)  # L; None where A itself is measured
    obstacle: str = ""
    certificate: float | None = None
    note: str = ""
    sampler: KNormNoise | None = field(default=None, repr=False)

    @property
    def n(self) -> int:
        """The number of answers."""
        return self.target.answers

    @property
    def n_c(self) -> int:
        """The number of independent invariants."""
        return self.target.rank

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour."""
        return self.target.neighbours

    @property
    def releasable(self) -> bool:
        """Whether it can be run with exact integer noise, for real."""
        return self.strategy is not None

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the error M(x) - A x, (n, n), squared counts, with nominal variances; its null space contains R."""
        if self.sampler is not None:
            return self.factor @ self.sampler.noise_covariance() @ self.factor.T
        return self.factor @ self.factor.T * (1.0 if self.noise == "gaussian" else 2.0)

    def answers(self, measurement: Measurement) -> ExactAnswers:
        """The mechanism's answers, exact fractions that meet the invariants exactly.

        ``t = L y``, rounded to a grid of 2^-20 (where A itself was measured, t = y and nothing is rounded), then
        ``a = t - C'(C C')^-1 (C t - c)`` in rational arithmetic, c = C A x as the measurement read it. Proof:
        ``C a = C t - (C t - c) = c``, and ``Pi_N a = Pi_N t`` depends on y alone.

        Raises:
            Unsupported: the mechanism is for research only.
            InvalidArgument: the measurement is not of ``self.strategy``, or for other neighbours.

        Privacy:
            Post-processing of the measurement, and of c, which is published as it is: see the class.
        """
        if self.strategy is None:
            raise Unsupported(f"{self.name} cannot be released: {self.obstacle}")
        if measurement.strategy != self.strategy or measurement.neighbours != self.neighbours:
            raise InvalidArgument(
                f"this measurement is not one of {self.name}'s strategy under {self.neighbours!r}: use "
                "measure(counts, mechanism.strategy, mechanism.budget, neighbours=mechanism.neighbours)"
            )
        if self.estimator is None:
            scaled, exponent = measurement.values, self.strategy.blocks[0].exponent
        else:
            estimate = self.estimator @ measurement.answers()[0]
            exponent = max(_ANSWER_BITS, self._grid_bits)
            scaled = np.rint(np.ldexp(estimate, exponent))
        exact = np.zeros(self.n_c, dtype=np.int64)
        if measurement.exact:
            exact[_counting(self.target)] = measurement.exact[0]
        return self.target.meet(scaled, exponent, exact)

    @property
    def _grid_bits(self) -> int:
        return 0 if self.target.grid is None else self.target.grid[1]

    def research_errors(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draws of the error with continuous floating-point noise, (count, n): research only, never released.

        Privacy:
            None: floating-point noise leaks through its low bits. Use it to study distributions.
        """
        m = self.factor.shape[1]
        if self.sampler is not None:
            z = self.sampler.noise(count, generator)
        elif self.noise == "gaussian":
            z = generator.standard_normal((count, m))
        else:
            z = generator.laplace(size=(count, m))
        return z @ self.factor.T


# from a real matrix to a mechanism ----------------------------------------------------------------------------
def parameter(budget: PrivacyLoss, noise: NoiseKind, power: float, calibration: Calibration) -> float:
    """sigma^2 (Gaussian) or b (Laplace) at a sensitivity, ``power`` its p-th power; for planning.

    ``calibration="classical"``: ``sigma^2 = c^2 Delta^2`` with the paper's ``c = (1 + sqrt(1 + ln(1/delta))) / eps``.
    """
    if calibration == "exact":
        return float(calibrate(budget, noise, Fraction(power)))
    if calibration != "classical" or noise != "gaussian" or not isinstance(budget, ApproxDP):
        raise InvalidArgument(
            "calibration is 'exact', or 'classical' for Gaussian noise under ApproxDP (the paper's constant)"
        )
    return classical_multiplier(float(budget.amount), float(budget.delta)) ** 2 * power


def classical_multiplier(epsilon: float, delta: float) -> float:
    """The paper's constant ``c = (1 + sqrt(1 + ln(1/delta))) / eps`` (Lemma 3.4): sigma at sensitivity 1.

    For small epsilon it is more noise than needed; for large epsilon it is too little (``docs``, errata).

    >>> round(classical_multiplier(1.0, 1e-6), 4)
    4.8491
    """
    return float((1 + np.sqrt(1 + np.log(1 / delta))) / epsilon)


def linear_mechanism(
    name: str,
    target: ConstrainedQuery,
    budget: PrivacyLoss,
    noise: NoiseKind,
    *,
    measured: np.ndarray,
    estimator: np.ndarray,
    calibration: Calibration = "exact",
    integers: tuple[np.ndarray, int] | None = None,
    certificate: float | None = None,
    note: str = "",
) -> SubspaceMechanism:
    """The mechanism that measures ``measured @ x`` (m x N, real) with equal noise and estimates ``Pi_N A x`` from it.

    ``estimator`` (n, m) has ``estimator @ measured = Pi_N A``. ``integers`` are (matrix, exponent) where the rows are
    on a grid as they stand; else they are rounded as integer combinations of the target's integer rows.
    """
    p = 2 if noise == "gaussian" else 1
    spread = parameter(budget, noise, target.sensitivity(measured, p), calibration)
    deviation = float(np.sqrt(spread)) if noise == "gaussian" else spread
    factor = deviation * estimator
    squared_error = float(np.square(factor).sum()) * (1.0 if noise == "gaussian" else 2.0)
    found: tuple[Strategy, np.ndarray] | None = None
    obstacle = ""
    if calibration == "classical":
        obstacle = _CLASSICAL
    elif target.grid is None:
        obstacle = NOT_ON_GRID
    elif integers is not None:
        found = as_strategy(name, target, integers[0], noise, integers[1]), estimator
    else:
        found = _rounded(name, target, measured, estimator, noise)
        obstacle = "" if found else _TOO_FINE
    return SubspaceMechanism(
        name, target, budget, noise, squared_error, factor,
        strategy=found[0] if found else None,
        estimator=found[1] if found else None,
        obstacle=obstacle, certificate=certificate, note=note,
    )  # fmt: skip


def as_strategy(
    name: str, target: ConstrainedQuery, matrix: np.ndarray, noise: NoiseKind, exponent: int
) -> Strategy:
    """One block of integer rows over an attribute ``"x"`` of all cells, beside the invariants' rows, read exactly."""
    counting = _counting(target)
    exact = () if target.exact_rows is None else target.exact_rows[counting]
    tables = (Table("invariants", {"x": Dense(exact)}),) if len(exact) else ()
    block = Block(name, Dense(matrix), exponent)
    return Strategy(Domain({"x": target.cells}), (block,), noise, name, invariants=tables)


def _counting(target: ConstrainedQuery) -> np.ndarray:
    """The independent invariants that count anybody; the others are zero whatever the data."""
    rows = target.exact_rows
    return np.zeros(0, dtype=np.intp) if rows is None else np.flatnonzero(rows.any(axis=1))


def _rounded(
    name: str, target: ConstrainedQuery, measured: np.ndarray, estimator: np.ndarray, noise: NoiseKind
) -> tuple[Strategy, np.ndarray] | None:
    """Measured rows as integer combinations of J on the coarsest grid that loses nothing that matters, and L for it.

    ``measured = T J`` becomes ``round(2^k T) J``, whose rows are in the row space of Pi_N A exactly.
    """
    J = target.integer_rows
    if J is None:
        return None
    p = 2 if noise == "gaussian" else 1
    T = np.linalg.lstsq(J.T.astype(float), measured.T, rcond=None)[0].T
    unit = float(np.abs(measured).max())
    T, estimator = T / unit, estimator * unit
    ideal = _error(target, T @ J, estimator, p)
    wanted = target.projector @ target.matrix
    longest = int(np.abs(J).sum(axis=0).max()).bit_length()
    for bits in (b + longest for b in _GRIDS):
        if np.abs(T).max() * 2.0 ** (bits + longest) >= 2.0**62:
            break
        whole = np.rint(np.ldexp(T, bits)).astype(np.int64)
        rows = integer_matmul(whole, J)
        if largest_abs(rows) >= _LARGEST:
            break
        there = np.ldexp(whole.astype(float), -bits)
        back = np.linalg.pinv(there)
        # L (rows) = Pi_N A through T's column space; what no combination of J reaches keeps the noise of its formula
        L = estimator @ (T @ back) + estimator @ (np.eye(len(T)) - there @ back)
        real = np.ldexp(rows.astype(float), -bits)
        if np.abs(L @ real - wanted).max() > _UNBIASED * np.abs(wanted).max():
            continue
        if _error(target, real, L, p) <= ideal * (1 + _NEGLIGIBLE):
            return as_strategy(name, target, rows, noise, bits), L
    return None


def _error(target: ConstrainedQuery, measured: np.ndarray, estimator: np.ndarray, p: int) -> float:
    """Squared error at unit noise and unit sensitivity."""
    return target.sensitivity(measured, p) ** (2 / p) * float(np.square(estimator).sum())
