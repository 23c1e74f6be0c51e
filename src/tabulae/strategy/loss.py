"""The score by which strategies are compared: expected error at unit noise."""

from __future__ import annotations

import math

from ..tables import Workload
from .error import error_under
from .information import information
from .kron_information import KronInformation
from .strategy import Strategy


def unit_rmse(strategy: Strategy, workload: Workload, neighbours: str) -> float:
    """Root mean squared error of the weighted workload when the noise has unit scale for unit sensitivity.

    ``sqrt(||A||^2 ||W A^+||_F^2 / m)``: HDMM's loss, with the sensitivity that ``neighbours`` asks for and
    block variances ``scale`` (Gaussian, where scale is a variance) or ``scale^2`` (Laplace).
    """
    sensitivity = float(strategy.sensitivity(neighbours))
    power = 1 if strategy.noise == "gaussian" else 2
    variances = [sensitivity**2 * float(block.scale) ** power for block in strategy.blocks]
    info = information(strategy, variances)
    if isinstance(info, KronInformation):
        return math.sqrt(max(info.total(workload), 0.0) / workload.queries)
    return error_under(strategy, workload, variances).rmse

