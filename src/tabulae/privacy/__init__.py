"""How much may be learnt: definitions of privacy, their conversion, exact noise, and the ledger."""

from tabulae.privacy import noise
from tabulae.privacy.calibrate import calibrate, law_type
from tabulae.privacy.definitions import (
    ZCDP,
    ApproxDP,
    Exact,
    PrivacyLoss,
    PureDP,
    check_neighbours,
    exact,
)
from tabulae.privacy.history import Charge
from tabulae.privacy.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from tabulae.privacy.ledger import Ledger
from tabulae.privacy.source import Insecure, KeyedSource, Source, SystemSource

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Charge",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Insecure",
    "KeyedSource",
    "Ledger",
    "NoiseLaw",
    "PrivacyLoss",
    "PureDP",
    "RoundedGaussian",
    "Source",
    "SystemSource",
    "calibrate",
    "check_neighbours",
    "exact",
    "law_type",
    "noise",
]
