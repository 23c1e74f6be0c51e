"""Local least squares: each table from the one group of queries that answers it best, as OPT_+ was published."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..strategy import Information, LocalInformation, law_variances
from ..strategy.information.routes import solve
from .least_squares import LeastSquares


@dataclass(frozen=True, eq=False)
class LocalLeastSquares(LeastSquares):
    """``W A_g^+ y_g`` with the block g that has the least total variance for the table; exact variances.

    Unbiased; never more precise than :class:`~tabulae.estimation.least_squares.LeastSquares` (Gauss, Markov), and
    tables from different groups need not agree. It is there to be compared with.

    Reference: McKenna, Miklau, Hay, Machanavajjhala, "HDMM", sections 6.2 and 10.
    """

    @cached_property
    def information(self) -> Information:
        """Least squares within single blocks."""
        strategy = self.measurement.strategy
        return LocalInformation(strategy, law_variances(strategy, self.measurement.laws), solve)
