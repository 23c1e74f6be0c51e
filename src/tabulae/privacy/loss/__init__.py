"""Privacy losses: exact numbers, definitions, conversions and composition."""

from .composition import RDP, Composed, generalised_parallel, group, parallel, sequential
from .definitions import (
    RECORD_DERIVED,
    RECORDS,
    WITHIN,
    ZCDP,
    ApproxDP,
    Neighbours,
    PrivacyLoss,
    PureDP,
    change_words,
    check_neighbours,
)
from .exact_numbers import Exact, decimal, exact, positive, probability, round_digits, rounded_up

__all__ = [
    "RDP",
    "RECORDS",
    "RECORD_DERIVED",
    "WITHIN",
    "ZCDP",
    "ApproxDP",
    "Composed",
    "Exact",
    "Neighbours",
    "PrivacyLoss",
    "PureDP",
    "change_words",
    "check_neighbours",
    "decimal",
    "exact",
    "generalised_parallel",
    "group",
    "parallel",
    "positive",
    "probability",
    "round_digits",
    "rounded_up",
    "sequential",
]
