"""HB: a tree without its root, with the number of parts of a node that suits the number of cells.

In a tree of h levels below the root and b parts a node, a range of ``n = b^h`` cells is the sum of

    (b - 1) h - 2 (b + 1) / 3

nodes on average, up to terms that vanish as n grows: b - 1 on each level (half of a node's parts at either end), less
on the first, where both ends meet. In units of the noise of a single count each node takes variance h^2 (Laplace,
sensitivity h) or h (Gaussian, sensitivity sqrt h). The product is the average variance before least squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain import Workload
from ...linalg import LinearOperator
from ...linalg.numbers import check_power, check_size
from ..strategy import Strategy
from .hierarchical import level_counts, tree
from .per_attribute import per_attribute

if TYPE_CHECKING:
    from ..settings import Settings


def hb_strategy(workload: Workload, settings: Settings) -> Strategy:
    """For each attribute the tree whose branching is best for all ranges, as :func:`branching` finds it.

    The root is not asked: it is the sum of its parts. Where b = n nothing but the cells is. For several attributes
    the Kronecker product of the trees. The paper gives b for Laplace noise; the b for Gaussian noise, which pays less
    for levels, is the same search with the variance of that noise. HDMM's Table 5 reports Gaussian noise with the b
    for Laplace noise: that is this strategy made for Laplace noise, with its ``noise`` replaced.

    Reference: Qardaji, Yang, Li, "Understanding Hierarchical Methods for Differentially Private Histograms", section 3.

    >>> from tabulae.linalg import AllRange
    >>> from tabulae.strategy.settings import Settings
    >>> hb_strategy(Workload.of(AllRange(256)), Settings("laplace")).rows == 16 + 256
    True
    """
    return per_attribute(workload, settings, "hb", lambda n: _below_root(n, branching(n, settings.norm)))


def branching(n: int, p: int) -> int:
    """The b in 2..n of least average variance for all ranges of n cells; the smallest where several are.

    Minimises ``h^(2/p) ((b - 1) h - 2 (b + 1) / 3)`` with ``h = ceil(log_b n)``; p is 1 for Laplace and 2 for Gaussian
    noise.

    >>> [branching(n, 1) for n in (64, 256, 1024, 4096)], [branching(n, 2) for n in (64, 256, 1024, 4096)]
    ([64, 16, 32, 16], [8, 4, 4, 4])
    """
    n = check_size(n, "branching: n")
    check_power(p)
    return min(range(2, max(n, 2) + 1), key=lambda b: _average_variance(b, _height(n, b), p))


def _average_variance(b: int, h: int, p: int) -> float:
    return h ** (2 // p) * ((b - 1) * h - 2 * (b + 1) / 3)


def _height(n: int, b: int) -> int:
    """ceil(log_b n), exactly; at least 1."""
    h = 1
    while b**h < n:
        h += 1
    return h


def _below_root(n: int, b: int) -> LinearOperator:
    levels = tree(n, b)
    return level_counts(levels[1:] or levels, n)
