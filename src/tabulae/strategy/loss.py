"""The score by which strategies are compared: expected error at unit noise."""

from __future__ import annotations

import math

from ..domain import Workload
from ..errors import Unsupported
from .information import information
from .strategy import Strategy


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
