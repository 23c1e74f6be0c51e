"""Select: workload in, strategy out; never data. One method per file, named as in its paper."""

from ._select import METHODS, baseline, select
from .bounds.lower import lower_bound
from .constrained_information import ConstrainedInformation
from .error import ExpectedError, error_under, expected_error
from .explicit_information import merges
from .information import Information, Profile, VarianceBound, information
from .iterative_information import IterativeInformation
from .kron_information import KronInformation
from .left_open import LeftOpen
from .local_information import LocalInformation
from .methods import method_words
from .objective import Targets, relative_workload
from .restriction import restrict, restricted_strategy
from .serial import describe_strategy, read_strategy, strategy_digest
from .strategy import Block, Candidate, NoiseKind, Strategy, law_variances, nominal_variances, products
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
    "expected_error",
    "has_neighbours",
    "information",
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
    "strategy_digest",
]
