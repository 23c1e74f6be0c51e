"""How much may be learnt: definitions of privacy, their conversion, exact noise, and the ledger."""

from tabulae.privacy import noise
from tabulae.privacy.calibrate import calibrate, law_type
from tabulae.privacy.composition import Composed, generalised_parallel, group, parallel, sequential
from tabulae.privacy.definitions import (
    WITHIN,
    ZCDP,
    ApproxDP,
    Exact,
    Neighbours,
    PrivacyLoss,
    PureDP,
    check_neighbours,
    exact,
)
from tabulae.privacy.disclosure import Disclosure
from tabulae.privacy.history import Charge
from tabulae.privacy.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from tabulae.privacy.ledger import Ledger
from tabulae.privacy.loss_distribution import NoiseComposition, Use
from tabulae.privacy.rdp import RDP
from tabulae.privacy.shared_key import SharedKey
from tabulae.privacy.source import Insecure, KeyedSource, Source, SystemSource
from tabulae.privacy.targets import budget_for_margin

__all__ = [
    "RDP",
    "WITHIN",
    "ZCDP",
    "ApproxDP",
    "Charge",
    "Composed",
    "Disclosure",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Insecure",
    "KeyedSource",
    "Ledger",
    "Neighbours",
    "NoiseComposition",
    "NoiseLaw",
    "PrivacyLoss",
    "PureDP",
    "RoundedGaussian",
    "SharedKey",
    "Source",
    "SystemSource",
    "Use",
    "budget_for_margin",
    "calibrate",
    "check_neighbours",
    "exact",
    "generalised_parallel",
    "group",
    "law_type",
    "noise",
    "parallel",
    "sequential",
]
