"""The Eigen-Design mechanism as strategies: real matrices over merged cells, rounded to a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...domain import Workload
from ..explicit_strategy import EXPLICIT_CELLS, explicit_strategy
from ..loss import unit_rmse
from ..strategy import Strategy
from ..weighted_kron_information import weighted_kron
from .dependent_queries import design_weighting
from .design_sets import design_rows
from .eigen_design import completed, eigen_design
from .low_rank_gram import low_rank_design
from .principal_vectors import principal_vectors
from .products import product_design
from .separation import eigen_separation

if TYPE_CHECKING:
    from ..settings import Settings

_GAP = 1e-6  # the weighting is cheap beside the decomposition
_MANY_CELLS, _FEWER = (
    2048,
    4,
)  # beyond so many cells, and with as many times fewer queries, rows are decomposed


def eigen_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Program 2 on the eigenvectors of W'W, or on the design set that ``settings.design`` names or holds.

    By structure where the workload has one: products of attributes (:mod:`.products`), few queries over many cells
    (:mod:`.low_rank_gram`). Sums of products over few cells are tried as one explicit matrix as well, and the better of
    the two is taken: joint eigenvectors of several attributes need not be products, and only there are columns
    completed.
    """
    found = _by_structure(workload, settings) if settings.design is None else None
    if found is None:
        return _explicit(workload, settings)
    if weighted_kron(found.blocks[0].query) is None or workload.merge()[0].domain.size > EXPLICIT_CELLS:
        return found
    both = (found, _explicit(workload, settings))
    return min(both, key=lambda strategy: unit_rmse(strategy, workload, settings.neighbours))


def _by_structure(workload: Workload, settings: Settings) -> Strategy | None:
    """The design that is made without a matrix over all merged cells, None where nothing helps."""
    shape = workload.merge()[0].domain.shape
    if sum(n > 1 for n in shape) > 1:
        return product_design(workload, settings)
    if max(shape) > _MANY_CELLS and workload.queries * _FEWER <= max(shape):
        return low_rank_design(workload, settings)
    return None


def _explicit(workload: Workload, settings: Settings) -> Strategy:
    merged, _ = workload.merge()

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        options = _options(settings)
        if settings.design is None or (
            isinstance(settings.design, str) and settings.design == "eigen-queries"
        ):
            return eigen_design(gram, **options).strategy
        rows = design_rows(settings.design, merged, gram)
        weights = design_weighting(rows, gram, seed=settings.seed, **options)
        return completed(rows, weights, settings.norm).strategy

    return explicit_strategy(workload, settings, "eigen", matrix_of)


def eigen_separation_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Eigen-queries weighed in groups of ``settings.group_size`` over merged cells."""

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        return eigen_separation(gram, group_size=settings.group_size, **_options(settings)).strategy

    return explicit_strategy(workload, settings, "eigen-separation", matrix_of)


def principal_vectors_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The ``settings.vectors`` largest eigenvectors with weights of their own, over merged cells."""

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        return principal_vectors(gram, vectors=settings.vectors, **_options(settings)).strategy

    return explicit_strategy(workload, settings, "principal-vectors", matrix_of)


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "p": settings.norm,
        "tolerance": min(settings.tolerance, _GAP),
        "time_limit": settings.remaining(),
    }
