"""The methods of ``select`` by name, and which of a family's are worth a try."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..domain import Workload
from .classic import (
    coa_strategy,
    data_cube_strategy,
    fourier_strategy,
    greedy_h_strategy,
    hb_strategy,
    hierarchical_strategy,
    identity_strategy,
    low_rank_strategy,
    wavelet_strategy,
    workload_strategy,
)
from .eigen import eigen_separation_strategy, eigen_strategy, principal_vectors_strategy
from .gram import explicit_gram
from .hdmm.kron import kron_strategy, opt0_strategy
from .hdmm.marginals import marginals_strategy
from .hdmm.optimised_marginals import optimised_marginals_strategy
from .hdmm.union import union_strategy
from .residual.planner import residual_strategy
from .settings import Settings
from .strategy import Strategy

Method = Callable[[Workload, Settings], Strategy]

SINGLE: dict[str, Method] = {
    "identity": identity_strategy,
    "workload": workload_strategy,
    "hierarchical": hierarchical_strategy,
    "hb": hb_strategy,
    "wavelet": wavelet_strategy,
    "greedy-h": greedy_h_strategy,
    "fourier": fourier_strategy,
    "datacube": data_cube_strategy,
    "low-rank": low_rank_strategy,
    "coa": coa_strategy,
    "opt0": opt0_strategy,
    "kron": kron_strategy,
    "union": union_strategy,
    "marginals": marginals_strategy,
    "optimised-marginals": optimised_marginals_strategy,
    "eigen": eigen_strategy,
    "eigen-separation": eigen_separation_strategy,
    "principal-vectors": principal_vectors_strategy,
    "residual": residual_strategy,
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "hdmm": ("identity", "kron", "marginals", "opt0", "union"),
    "auto": (
        "identity", "residual", "kron", "marginals", "optimised-marginals", "opt0", "union", "workload", "low-rank",
    ),
}  # fmt: skip
"""The methods that a family tries, in this order: what is cheap first, so that little time still finds much."""

METHODS: tuple[str, ...] = (*SINGLE, *FAMILIES)

_FEW_CELLS = 128  # merged cells up to which the low-rank mechanism takes a few seconds


def fitting(method: str, workload: Workload, settings: Settings) -> tuple[str, ...]:
    """The methods of a family, less those that would solve the same problem again, or one they are not good at."""
    names = FAMILIES.get(method, (method,))
    if len(names) == 1:
        return names
    needless = set()
    if len(workload.domain.attributes) == 1:
        needless.add("kron")  # one factor: the same problem as opt0
    if len(workload.tables) == 1:
        needless.add("union")  # one group: the same problem as kron
    if settings.noise == "gaussian" or not _few_queries(workload):
        needless.add("low-rank")
    return tuple(name for name in names if name not in needless)


def _few_queries(workload: Workload) -> bool:
    """Whether the tables leave some combination of their few cells open: then p-Identity asks more than they need."""
    merged, _ = workload.merge()
    if merged.domain.size > _FEW_CELLS:
        return False
    return int(np.linalg.matrix_rank(explicit_gram(merged), hermitian=True)) < merged.domain.size
