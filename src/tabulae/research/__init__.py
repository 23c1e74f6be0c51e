"""Research: mechanisms that no release uses, tested and kept out of its way."""

from .distributed import Agreement, Combined, Share
from .geometry import Ellipsoid, KNormNoise, least_ellipsoid
from .mechanism import SubspaceMechanism, classical_multiplier
from .subspace import (
    BaseDecomposition,
    Comparison,
    base_decomposition,
    compare,
    correlated_gaussian,
    extended_gaussian,
    extended_laplace,
    k_norm,
    optimal_gaussian,
    projected_gaussian,
    projected_laplace,
)
from .target import ConstrainedQuery, ExactAnswers, generic_basis

__all__ = [
    "Agreement",
    "BaseDecomposition",
    "Combined",
    "Comparison",
    "ConstrainedQuery",
    "Ellipsoid",
    "ExactAnswers",
    "KNormNoise",
    "Share",
    "SubspaceMechanism",
    "base_decomposition",
    "classical_multiplier",
    "compare",
    "correlated_gaussian",
    "extended_gaussian",
    "extended_laplace",
    "generic_basis",
    "k_norm",
    "least_ellipsoid",
    "optimal_gaussian",
    "projected_gaussian",
    "projected_laplace",
]
