"""Select: workload in, strategy out; never data. One method per file, named as in its paper."""

from ._select import METHODS, baseline, select
from .block import Block, products
from .bounds.lower import lower_bound
from .information.explicit import ConstrainedInformation, merges
from .information.iterative import IterativeInformation, LocalInformation
from .information.kron import KronInformation
from .information.protocol import Information, Profile, VarianceBound
from .information.routes import ExpectedError, LeftOpen, error_under, solve
from .methods import method_words
from .objective import Targets, relative_workload
from .restriction import restrict, restricted_strategy
from .serial import describe_strategy, read_strategy, strategy_digest
from .strategy import Candidate, NoiseKind, Strategy, law_variances, nominal_variances
from .within import has_neighbours

__all__ = [
    "METHODS",
    "Block",
    "Candidate",
    "ConstrainedInformation",
    "ExpectedError",
    "Information",
    "IterativeInformation",
    "KronInformation",
    "LeftOpen",
    "LocalInformation",
    "NoiseKind",
    "Profile",
    "Strategy",
    "Targets",
    "VarianceBound",
    "baseline",
    "describe_strategy",
    "error_under",
    "has_neighbours",
    "law_variances",
    "lower_bound",
    "merges",
    "method_words",
    "nominal_variances",
    "products",
    "read_strategy",
    "relative_workload",
    "restrict",
    "restricted_strategy",
    "select",
    "solve",
    "strategy_digest",
]
