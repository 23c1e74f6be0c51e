"""Expected error of a workload answered from a strategy: known before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..domain import Workload
from ..privacy import PrivacyLoss
from .information import information
from .left_open import LeftOpen
from .strategy import Strategy, nominal_variances


@dataclass(frozen=True)
class ExpectedError:
    """Expected squared error of a workload's m queries under least squares.

    ``tse`` is the total squared error ``sum_t weight_t^2 sum_q Var(q)`` and ``rmse = sqrt(tse / m)``, as in
    HDMM; ``tables`` maps each table to its own unweighted root mean squared error, in counts;
    ``max_variance`` is the largest variance of a single unweighted query. Queries that the strategy's invariants
    determine are counted, with variance 0. All are upper bounds where least squares takes the route ``iterative``.
    """

    tse: float
    rmse: float
    max_variance: float
    tables: dict[str, float]


def error_under(strategy: Strategy, workload: Workload, variances: tuple[float, ...]) -> ExpectedError:
    """Expected error when block i has noise variance ``variances[i]``, in squared counts."""
    info = information(strategy, variances)
    total, largest, tables = 0.0, 0.0, {}
    for table in workload.tables:
        variance = LeftOpen.of(strategy, table).variance(info)
        total += float(table.weight) ** 2 * float(variance.sum())
        largest = max(largest, float(variance.max(initial=0.0)))
        tables[table.name] = math.sqrt(float(variance.mean()))
    return ExpectedError(total, math.sqrt(total / workload.queries), largest, tables)


def expected_error(
    strategy: Strategy,
    workload: Workload,
    budget: PrivacyLoss,
    neighbours: str = "add-remove",
    stability: int = 1,
) -> ExpectedError:
    """Expected error of ``workload`` at ``budget``, with the papers' nominal variances.

    ``TSE = sum_q Var(q)`` with ``Var = diag(W P^+ W')`` (``W Pi_N`` for W under invariants) and block variances
    ``sigma^2`` (Gaussian noise) or ``2 b^2`` (Laplace noise), in squared counts. The discrete laws that are drawn have
    these variances up to a relative 1e-8 for sigma >= 1 (Gaussian), and slightly smaller ones for small b (Laplace).
    ``stability`` is the most rows that one unit may have among those counted.

    Raises :class:`~tabulae.errors.NotEstimable` if the strategy does not determine the workload.

    Reference: HDMM, Definition 7 and Theorem 1.

    >>> import tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(8))
    >>> identity = tb.select(workload, noise="laplace", method="identity")
    >>> round(identity.error(workload, tb.PureDP(1)).rmse, 6)  # sqrt(2 * mean(1..8))
    3.0
    """
    return error_under(strategy, workload, nominal_variances(strategy, budget, neighbours, stability))
