"""The Eigen-Design mechanism: optimal weights for a set of design queries, and the sets to choose from."""

from .dependent_queries import design_weighting
from .eigen_design import (
    Design,
    completed,
    eigen_design,
    eigen_queries,
    eigen_ratio,
)
from .eigen_strategy import (
    eigen_separation_strategy,
    eigen_strategy,
    principal_vectors_strategy,
)
from .query_weighting import QueryWeights, query_weighting

__all__ = [
    "Design",
    "QueryWeights",
    "completed",
    "design_weighting",
    "eigen_design",
    "eigen_queries",
    "eigen_ratio",
    "eigen_separation_strategy",
    "eigen_strategy",
    "principal_vectors_strategy",
    "query_weighting",
]
