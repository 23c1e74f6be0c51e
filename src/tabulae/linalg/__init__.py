"""Numbers only: implicit matrices, their algebra, and solving by structure."""

from tabulae.linalg.algebra import Product, Sum
from tabulae.linalg.centring import Centring
from tabulae.linalg.contrasts import Contrasts
from tabulae.linalg.explicit import Dense, Sparse
from tabulae.linalg.kron import Kron
from tabulae.linalg.merge import merge_columns
from tabulae.linalg.operator import LinearOperator
from tabulae.linalg.permuted import Permuted
from tabulae.linalg.ranges import AllRange, Prefix, WidthRange
from tabulae.linalg.scaled import Scaled
from tabulae.linalg.sensitivity import Sensitivity, weighted_sensitivity
from tabulae.linalg.simple import Diagonal, Identity, Partition, Total
from tabulae.linalg.stack import Stack

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
