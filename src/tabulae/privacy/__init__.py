"""How much may be learnt: definitions of privacy, their conversion, exact noise, and the ledger."""

from . import noise
from .calibrate import calibrate, law_type
from .composition import (
    Composed,
    generalised_parallel,
    group,
    parallel,
    sequential,
)
from .definitions import (
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
from .disclosure import Disclosure
from .history import Charge
from .laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    RoundedGaussian,
)
from .ledger import Ledger
from .loss_distribution import NoiseComposition, Use
from .rdp import RDP
from .shared_key import SharedKey
from .source import (
    Insecure,
    KeyedSource,
    Source,
    SystemSource,
)
from .targets import budget_for_margin

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
