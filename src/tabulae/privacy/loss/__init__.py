"""Privacy losses: exact numbers, definitions, conversions and composition."""

from .composition import RDP, Composed, generalised_parallel, group, parallel, sequential
from .definitions import WITHIN, ZCDP, ApproxDP, Neighbours, PrivacyLoss, PureDP, check_neighbours
from .exact_numbers import Exact, decimal, exact, positive, probability, round_digits, rounded_up

__all__ = [
    "RDP",
    "WITHIN",
    "ZCDP",
    "ApproxDP",
    "Composed",
    "Exact",
    "Neighbours",
    "PrivacyLoss",
    "PureDP",
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
