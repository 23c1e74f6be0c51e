"""Numbers only: implicit matrices, their algebra, and solving by structure."""

from .algebra import Product, Sum
from .centring import Centring
from .contrasts import Contrasts
from .explicit import Dense, Sparse
from .kron import Kron
from .merge import merge_columns
from .operator import LinearOperator
from .permuted import Permuted
from .ranges import (
    AllRange,
    Prefix,
    WidthRange,
)
from .scaled import Scaled
from .sensitivity import Sensitivity, weighted_sensitivity
from .simple import (
    Diagonal,
    Identity,
    Partition,
    Total,
)
from .stack import Stack

__all__ = [
    "AllRange",
    "Centring",
    "Contrasts",
    "Dense",
    "Diagonal",
    "Identity",
    "Kron",
    "LinearOperator",
    "Partition",
    "Permuted",
    "Prefix",
    "Product",
    "Scaled",
    "Sensitivity",
    "Sparse",
    "Stack",
    "Sum",
    "Total",
    "WidthRange",
    "merge_columns",
    "weighted_sensitivity",
]
