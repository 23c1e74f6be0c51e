"""The Eigen-Design mechanism: optimal weights for a set of design queries, and the sets to choose from."""

from .design import WeightedDesign, completed, eigen_design, eigen_queries
from .strategies import eigen_separation_strategy, eigen_strategy, principal_vectors_strategy
from .weighting import QueryWeights, design_weighting, query_weighting

__all__ = [
    "QueryWeights",
    "WeightedDesign",
    "completed",
    "design_weighting",
    "eigen_design",
    "eigen_queries",
    "eigen_separation_strategy",
    "eigen_strategy",
    "principal_vectors_strategy",
    "query_weighting",
]
