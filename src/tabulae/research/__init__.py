"""Research: mechanisms that no release uses, tested and kept out of its way."""

from .additive import extended_gaussian, extended_laplace, projected_gaussian, projected_laplace
from .basis import dissected_basis, generic_basis
from .compare import Comparison, compare
from .correlated import BaseDecomposition, base_decomposition, correlated_gaussian
from .distributed import Agreement, Combined, Share
from .ellipsoid import Ellipsoid, least_ellipsoid
from .hull import HitAndRun
from .k_norm import k_norm
from .mechanism import SubspaceMechanism, classical_multiplier
from .optimal import optimal_gaussian
from .target import ConstrainedQuery, ExactAnswers

__all__ = [
    "Agreement",
    "BaseDecomposition",
    "Combined",
    "Comparison",
    "ConstrainedQuery",
    "Ellipsoid",
    "ExactAnswers",
    "HitAndRun",
    "Share",
    "SubspaceMechanism",
    "base_decomposition",
    "classical_multiplier",
    "compare",
    "correlated_gaussian",
    "dissected_basis",
    "extended_gaussian",
    "extended_laplace",
    "generic_basis",
    "k_norm",
    "least_ellipsoid",
    "optimal_gaussian",
    "projected_gaussian",
    "projected_laplace",
]
