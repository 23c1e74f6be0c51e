"""The Haar wavelet: the total, and for every interval of a binary tree its left half less its right half.

Privelet adds Laplace noise of scale proportional to 1/(size of the interval) to the usual coefficient, half the
difference of two means. Times that size it is the difference of two counts, so that Privelet is exactly this matrix
with one noise scale for all rows; its generalised sensitivity, 1 + log2 n, is the L1 norm of a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from ...domain import Workload
from ...linalg import (
    LinearOperator,
    Sparse,
    Total,
)
from ..strategy import Strategy
from .hierarchical import parts, tree
from .per_attribute import per_attribute

if TYPE_CHECKING:
    from ..settings import Settings


def wavelet_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The Haar wavelet of each attribute; for several attributes the Kronecker product of the wavelets.

    Reference: Xiao, Wang, Gehrke, "Differential Privacy via Wavelet Transforms", sections 4 and 6.

    >>> from tabulae.linalg import AllRange
    >>> from tabulae.strategy.settings import Settings
    >>> wavelet_strategy(Workload.of(AllRange(4)), Settings("gaussian")).blocks[0].query.dense().tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """
    return per_attribute(workload, settings, "wavelet", haar)


def haar(n: int) -> LinearOperator:
    """The wavelet of n cells, an invertible n x n matrix of 0, 1 and -1.

    Row 0 is the total; each further row is +1 on the first half of an interval and -1 on the second, from the whole
    down to pairs. Where n is no power of two the second half of an interval may have one cell more.

    Raises :class:`~tabulae.errors.InvalidArgument` for fewer than one cell.
    """
    halves = [(parts(node, 2), node) for level in tree(n, 2) for node in level if node[1] - node[0] > 1]
    if not halves:
        return Total(n)
    columns = [np.arange(n), *(np.arange(*node) for _, node in halves)]
    values = [np.ones(n, dtype=np.int64)]
    for ((_, middle), _), node in halves:
        values.append(np.where(np.arange(*node) < middle, 1, -1))
    ends = np.cumsum([0, *(len(part) for part in columns)])
    return Sparse(
        scipy.sparse.csr_array((np.concatenate(values), np.concatenate(columns), ends), shape=(n, n))
    )
