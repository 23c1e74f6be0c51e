"""Half-widths of one table's intervals, planned or published: the same formula for both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..domain import Table
from ..privacy import NoiseLaw
from ..strategy import Information, LeftOpen, Strategy
from .coverage import (
    EXACT,
    HalfWidths,
    half_widths,
)


def table_half_widths(
    strategy: Strategy, information: Information, laws: Sequence[NoiseLaw], table: Table, level: float
) -> HalfWidths:
    """Half-widths of the least-squares answers of a table, (m,), in counts; 0 for rows that invariants determine.

    >>> from tabulae.linalg import Identity, Total
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.strategy import Block, law_variances
    >>> from tabulae.strategy.information import information
    >>> from tabulae.domain import Domain
    >>> domain, everybody = Domain({"sex": 2}), Table("total", {"sex": Total(2)})
    >>> plain = Strategy(domain, (Block("cells", Identity(2)),), "gaussian", "identity", invariants=(everybody,))
    >>> laws = plain.laws(ZCDP("1/2"))
    >>> info = information(plain, law_variances(plain, laws))
    >>> table_half_widths(plain, info, laws, everybody, 0.95).values.tolist()
    [0.0]
    """
    left = LeftOpen.of(strategy, table)
    profile = left.profile(information)
    if profile is None:
        return HalfWidths(np.zeros(len(left.exact)), np.full(len(left.exact), EXACT, dtype="<U12"))
    steps = [2.0**-block.exponent for block in strategy.blocks]
    widths = half_widths(profile, laws, steps, level)
    return HalfWidths(
        np.where(left.exact, 0.0, widths.values / left.divisor), np.where(left.exact, EXACT, widths.ways)
    )
