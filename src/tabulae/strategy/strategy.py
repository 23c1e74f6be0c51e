"""Strategies: the noisy counting queries that a release asks, before any data is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from ..domain import Domain, Invariants, Table, Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator, Sensitivity, weighted_sensitivity
from ..privacy import RECORDS, NoiseLaw, PrivacyLoss, calibrate, check_neighbours, law_type
from .block import Block
from .information.routes import ExpectedError, error_under, information
from .seats import of_one_record
from .within import WITHIN, between_classes, within_invariants


def check_stability(stability: int) -> int:
    """``stability`` if it is a whole number of rows, at least 1.

    Raises :class:`~tabulae.errors.InvalidArgument` otherwise.

    >>> check_stability(3)
    3
    """
    if isinstance(stability, bool) or not isinstance(stability, int) or stability < 1:
        raise InvalidArgument(
            f"stability is {stability!r}; it is the most rows that one unit may have among those counted: 1 or more"
        )
    return stability


def of_units(
    record: Sensitivity, column: Sensitivity, p: int, neighbours: str, stability: int, fewest: int = 1
) -> Sensitivity:
    """The sensitivity for units of at most k = ``stability`` rows, from that for units of one row.

    ``fewest`` is 0 where a unit may have none of its rows among those counted, and k where each has exactly k.

    Write ``|v|`` for the weighted norm of the answers, ``(sum_i w_i ||A_i v||_p^p)^(1/p)``; it is a seminorm.
    Let C = max_j |e_j|, the largest column, and P = max_{j,l} |e_j - e_l|, the largest pair.

    * add-remove: a unit with rows in the cells j_1, ..., j_m, m <= k, moves the counts by d = e_j1 + ... + e_jm,
      and ``|d| <= m C <= k C`` (triangle inequality). k rows in the cell of the largest column attain it. So the
      sensitivity is exactly k C, and its power exactly k^p C^p.
    * replace: the old unit has m rows and the new one m', both at most k. Match min(m, m') rows of one with
      rows of the other, which moves the counts by a difference e_j - e_l each; the ``|m - m'|`` rows left over
      move them by a column each. So

          |d| <= min(m, m') P + |m - m'| C <= max(m, m') max(P, C) <= k max(P, C).

      k P alone is no bound: for the total P = 0, and a unit of 3 rows in place of one of 1 moves it by 2. Where
      P >= C, k rows of one cell in place of k of another attain k P and the result is exact. It also covers
      a unit that is replaced by one without rows: k rows of the largest column in place of none attain k C, so
      that it is exact where ``fewest`` is 0. (Where they may have none P alone is no bound: where columns are
      alike it is far below C.) Where every unit has exactly k rows, m = m' = k: then ``|d| <= k P``, which k rows of
      one cell in place of k of another attain, and C does not matter.

    ``record`` is the sensitivity of one row under ``neighbours`` (C or P), ``column`` that under add-remove (C).
    """
    if neighbours == WITHIN:
        raise Unsupported(
            "several rows of a unit may change together, or come and go, and leave the invariants as they are although "
            'no single exchange does, so that no bound follows under "replace-within-invariants": count one row of '
            'each unit, and all of them, or promise "replace"'
        )
    power, is_exact = record.power, record.is_exact
    if neighbours == "replace" and fewest < stability and column.power > power:
        power, is_exact = column.power, fewest == 0 and column.is_exact
    return Sensitivity(Fraction(stability) ** p * power, p, is_exact=is_exact)


NoiseKind = Literal["gaussian", "laplace"]

_ROUNDED = 1 + Fraction(1, 10**9)


@dataclass(frozen=True)
class Candidate:
    """What ``select`` knows of one method that it tried: its expected loss, or why it dropped out.

    ``further`` is of one that was not worth a start: the tolerance that would try it, and the seconds it would take.
    """

    method: str
    rmse: float | None
    seconds: float
    note: str = ""
    further: tuple[float, float] | None = None


@dataclass(frozen=True)
class Strategy:
    """A tuple of blocks over one domain, and the kind of noise that their answers take.

    With block covariances S_i = s_i I the information operator is ``P = sum_i A_i' A_i / s_i``; for
    Gaussian noise the budget is spent on ``max_j P_jj`` and least squares has ``Var(W x) = diag(W P^+ W')``.

    ``certificate`` is a proven relative gap between this strategy's total squared error and the least
    that any strategy can reach for the same neighbours (Gaussian noise), or None where none is known;
    ``lower`` is the bound behind it where the optimiser proved one (squared error at unit noise).

    ``invariants`` are the tables that are published exactly beside the noisy answers: the strategy was chosen for
    what they leave open, and a table is estimated as ``(W Pi_N) P^+ A' S^-1 y + W C^+ c`` (:mod:`.restriction`).

    >>> import tabulae as tb
    >>> workload = tb.Workload.of(tb.Identity(4))
    >>> strategy = tb.select(workload, noise="gaussian", method="identity")
    >>> strategy.rows, int(strategy.sensitivity().power), strategy.error(workload, tb.ZCDP("1/2")).rmse
    (4, 1, 1.0)
    """

    domain: Domain
    blocks: tuple[Block, ...]
    noise: NoiseKind
    method: str
    certificate: float | None = None
    lower: float | None = field(default=None, compare=False)
    candidates: tuple[Candidate, ...] = field(default=(), compare=False)
    invariants: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        if self.noise not in ("gaussian", "laplace"):
            raise InvalidArgument(f"noise must be 'gaussian' or 'laplace', not {self.noise!r}")
        if not self.blocks:
            raise InvalidArgument("a strategy needs at least one block of queries")
        object.__setattr__(self, "invariants", tuple(table.over(self.domain) for table in self.invariants))
        for block in self.blocks:
            if block.query.shape[1] != self.domain.size:
                raise InvalidArgument(
                    f"block {block.name!r} has {block.query.shape[1]} columns; the domain has {self.domain.size} cells"
                )

    def __repr__(self) -> str:
        asked = f"{self.rows} answers in {len(self.blocks)} blocks over {self.domain.size} cells"
        return f"Strategy({self.method!r}, {self.noise}, {asked})"

    def _repr_html_(self) -> str:
        from ..notebook import CardRows, card

        proven = None if self.certificate is None else f"{self.certificate:.3g} (relative, squared error)"
        facts = [
            ("method", self.method),
            ("noise", self.noise),
            ("noisy answers", self.rows),
            ("blocks", len(self.blocks)),
            ("cells", self.domain.size),
            ("proven gap to the optimum", proven),
            ("exact beside them", ", ".join(table.name for table in self.invariants[:4]) or None),
        ]
        blocks = (
            (b.name, b.rows, f"{float(b.scale):.4g}", f"2^-{b.exponent}" if b.exponent else "1")
            for b in self.blocks
        )
        return card(
            "Strategy",
            facts,
            CardRows(("block", "answers", "relative scale", "grid"), blocks, len(self.blocks)),
        )

    @cached_property
    def _exact(self) -> Invariants | None:
        return Invariants(self.domain, self.invariants) if self.invariants else None

    @property
    def exact(self) -> Invariants | None:
        """The row space of the invariants, None without any."""
        return self._exact

    @cached_property
    def _sensitivities(self) -> dict[str, Sensitivity]:
        return {}

    @property
    def steps(self) -> tuple[float, ...]:
        """The step of each block's grid, in counts: ``2^-exponent``, divided by the parts that a record has."""
        return tuple(2.0**-block.exponent / self.domain.parts for block in self.blocks)

    @property
    def rows(self) -> int:
        """Number of noisy answers over all blocks."""
        return sum(block.rows for block in self.blocks)

    @property
    def exponent(self) -> int:
        """The finest grid among the blocks."""
        return max(block.exponent for block in self.blocks)

    def sensitivity(self, neighbours: str = "add-remove", stability: int = 1, fewest: int = 1) -> Sensitivity:
        """Sensitivity of all answers together, each measured in units of its block's relative scale.

        Gaussian: ``Delta^2 = max_d sum_i ||A_i d||_2^2 / s_i``; Laplace: ``Delta = max_d sum_i ||A_i d||_1 / s_i``,
        over d = e_j (add-remove), e_j - e_k (replace), or those e_j - e_k that move no invariant
        (replace-within-invariants) for units of one row, over what
        :func:`tabulae.strategy.strategy.of_units` says for units of ``fewest`` to ``stability`` rows, and over the
        changes of :mod:`tabulae.strategy.seats` for one record of a unit.
        ``.power`` is that number as an exact Fraction.

        With measured values a record is a mixture ``sum_j lambda_j e_j`` of the cells at the corners of its box, and
        the same number holds: ``||A lambda|| <= sum_j lambda_j ||A e_j||``; and two mixtures have a coupling pi >= 0
        with margins lambda and lambda', so that ``||A (lambda - lambda')|| <= sum_jk pi_jk ||A (e_j - e_k)||``. Corners
        are records themselves: the maximum over cells is attained.

        Privacy:
            Exact, or a proven upper bound, on the integer matrices that are measured (HDMM, Definition 6).
        """
        neighbours, stability = check_neighbours(neighbours), check_stability(stability)
        if isinstance(fewest, bool) or not isinstance(fewest, int) or not 0 <= fewest <= stability:
            raise InvalidArgument(
                f"fewest is {fewest!r}; it is the fewest rows of a unit among those counted, 0 to {stability}"
            )
        if neighbours in RECORDS and stability > 1:
            raise Unsupported(
                f'neighbours = "{neighbours}" is about one record of a unit that is counted with its records, which is '
                "one record of several parts itself: leave stability at 1"
            )
        if neighbours == WITHIN and self.domain.measured:
            raise Unsupported(
                f"{self.domain.measured[0].name!r} is a measured value, and two records may agree on all exact counts "
                "though no two of the cells that they are mixtures of do, so that no bound follows under "
                '"replace-within-invariants": promise "replace" or "add-remove"'
            )
        record = self._record_sensitivity(neighbours)
        if stability == 1 and (neighbours != "replace" or fewest == 1):
            return record
        column = self._record_sensitivity("add-remove")
        return of_units(record, column, self.norm, neighbours, stability, fewest)

    @property
    def norm(self) -> int:
        """2 for Gaussian noise, which pays for L2 sensitivity, and 1 for Laplace noise."""
        return 2 if self.noise == "gaussian" else 1

    def _record_sensitivity(self, neighbours: str) -> Sensitivity:
        if neighbours not in self._sensitivities:
            p = self.norm
            weighted = [(b.query, 1 / (b.scale * Fraction(2) ** (p * b.exponent))) for b in self.blocks]
            if neighbours == WITHIN:
                self._sensitivities[neighbours] = self._within(weighted)
            elif neighbours in RECORDS:
                self._sensitivities[neighbours] = of_one_record(weighted, p, self.domain, neighbours)
            else:
                self._sensitivities[neighbours] = weighted_sensitivity(weighted, p, neighbours)
        return self._sensitivities[neighbours]

    def _within(self, weighted: Sequence[tuple[LinearOperator, Fraction]]) -> Sensitivity:
        """Of neighbours within the invariants; not below the cost under "replace" of sums that none of them moves."""
        found = within_invariants(weighted, self.norm, self.domain, self.exact)
        others = between_classes(weighted, self.norm, self.domain, self.exact)
        if others.power <= found.power * _ROUNDED:  # means are floats: equal ones come out a little above
            return found
        return Sensitivity(others.power, self.norm, is_exact=False)

    def laws(
        self, budget: PrivacyLoss, neighbours: str = "add-remove", stability: int = 1, fewest: int = 1
    ) -> tuple[NoiseLaw, ...]:
        """The noise law of each block, on the block's own integer grid (step ``2^-exponent``).

        ``stability`` is the most rows that one unit may have among those counted, and ``fewest`` the fewest: 0 where
        only some records are counted.

        Privacy:
            With these laws the answers of all blocks together satisfy ``budget`` under ``neighbours``, for
            units of at most ``stability`` counted rows (and at least ``fewest``):
            discrete Gaussian, zCDP (Canonne, Kamath, Steinke 2020, Theorem 14, multivariate with unequal
            variances); discrete Laplace, pure DP (Ghosh, Roughgarden, Sundararajan 2012); rounded Gaussian,
            (epsilon, delta) by the analytic Gaussian mechanism (Balle, Wang 2018) and post-processing.
            With measured values the noise is for answers in parts of a record (:attr:`tabulae.Domain.parts`, D): these
            are whole numbers, D times as large, and so is their sensitivity.
        """
        sensitivity = self.sensitivity(neighbours, stability, fewest).power * self.domain.parts**self.norm
        if sensitivity == 0:
            raise Unsupported(
                f"under {neighbours!r} no neighbour changes these answers (the number of records is public then), so "
                'there is nothing to protect by noise: choose neighbours = "add-remove", or ask for more than the total'
            )
        unit = calibrate(budget, self.noise, sensitivity)
        law = law_type(budget, self.noise)
        try:
            return tuple(law(unit * block.scale).law_on_grid(block.exponent) for block in self.blocks)
        except InvalidArgument as error:
            if self.domain.parts == 1:
                raise
            told = ", ".join(f"{value.name} {value.parts:,}" for value in self.domain.measured)
            raise Unsupported(
                f"a record is {self.domain.parts:,} parts ({told}), and noise for so many is more than is drawn: "
                f"choose larger steps of its values ({error})"
            ) from None

    def error(
        self, workload: Workload, budget: PrivacyLoss, neighbours: str = "add-remove", stability: int = 1
    ) -> ExpectedError:
        """Expected error of ``workload`` at ``budget`` by least squares, with the papers' nominal variances.

        ``TSE = sum_q Var(q)`` with ``Var = diag(W P^+ W')`` (``W Pi_N`` for W under invariants) and block variances
        ``sigma^2`` (Gaussian noise) or ``2 b^2`` (Laplace noise), in squared counts. The discrete laws that are drawn
        have these variances up to a relative 1e-8 for sigma >= 1 (Gaussian), and slightly smaller ones for small b
        (Laplace).

        Raises :class:`~tabulae.errors.NotEstimable` if the strategy does not determine the workload.

        Reference: HDMM, Definition 7 and Theorem 1.

        >>> import tabulae as tb
        >>> workload = tb.Workload.of(tb.Prefix(8))
        >>> identity = tb.select(workload, noise="laplace", method="identity")
        >>> round(identity.error(workload, tb.PureDP(1)).rmse, 6)  # sqrt(2 * mean(1..8))
        3.0
        """
        return error_under(self, workload, nominal_variances(self, budget, neighbours, stability))


def nominal_variances(
    strategy: Strategy, budget: PrivacyLoss, neighbours: str, stability: int = 1
) -> tuple[float, ...]:
    """Per block, in squared counts: sigma^2 or 2 b^2, as the papers state errors."""
    unit = calibrate(budget, strategy.noise, strategy.sensitivity(neighbours, stability).power)
    if strategy.noise == "gaussian":
        return tuple(float(unit * b.scale) for b in strategy.blocks)
    return tuple(2.0 * float(unit * b.scale) ** 2 for b in strategy.blocks)


def law_variances(strategy: Strategy, laws: Sequence[NoiseLaw]) -> tuple[float, ...]:
    """Per block, in squared counts: the true variance of the law that is drawn."""
    return tuple(
        float(np.ldexp(law.variance_of_law / strategy.domain.parts**2, -2 * block.exponent))
        for law, block in zip(laws, strategy.blocks, strict=True)
    )


def unit_variances(strategy: Strategy, neighbours: str) -> tuple[float, ...]:
    """Variance of each block's answers when the noise has unit scale for unit sensitivity, in squared counts.

    ``Delta^2 scale`` (Gaussian, where scale is a variance) or ``Delta^2 scale^2`` (Laplace), with the
    sensitivity Delta that ``neighbours`` asks for.
    """
    sensitivity = float(strategy.sensitivity(neighbours))
    if sensitivity == 0:
        raise Unsupported(
            f"under {neighbours!r} no neighbour changes what {strategy.method!r} measures here (the number of records "
            "is public then), so there is nothing to protect by noise"
        )
    power = 1 if strategy.noise == "gaussian" else 2
    return tuple(sensitivity**2 * float(block.scale) ** power for block in strategy.blocks)


def unit_rmse(strategy: Strategy, workload: Workload, neighbours: str) -> float:
    """Root mean squared error of the weighted workload when the noise has unit scale for unit sensitivity.

    ``sqrt(||A||^2 ||W A^+||_F^2 / m)``: HDMM's loss, with the sensitivity that ``neighbours`` asks for.
    """
    variances = unit_variances(strategy, neighbours)
    return math.sqrt(max(information(strategy, variances).total(workload), 0.0) / workload.queries)
