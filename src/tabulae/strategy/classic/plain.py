"""The two strategies that every other is compared with: count every cell, or ask the tables themselves."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ...domain import Table, Workload
from ...errors import Unsupported
from ...linalg import Identity, Kron
from ..strategy import Block, Strategy

if TYPE_CHECKING:
    from ..settings import Settings


def identity_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Measure every cell of the domain once; every table is a sum of noisy cells."""
    query = Kron([Identity(n) for n in workload.domain.shape])
    return Strategy(workload.domain, (Block("identity", query),), settings.noise, "identity")


def workload_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Measure the tables as they are asked, each with noise inverse to its weight.

    A table of weight w enters the measured matrix w times larger, that is with relative variance ``1/w^2``
    (Gaussian) or relative scale ``1/w`` (Laplace); overlapping tables are reconciled by least squares.
    """
    blocks = tuple(_block(table, workload, settings) for table in workload.tables)
    return Strategy(workload.domain, blocks, settings.noise, "workload")


def _block(table: Table, workload: Workload, settings: Settings) -> Block:
    query = table.operator(workload.domain)
    if not query.integer:
        raise Unsupported(
            f"table {table.name!r} asks for real-valued combinations of counts, which cannot be measured with exact "
            'noise as they stand; choose method "kron" or "hdmm"'
        )
    power = 2 if settings.noise == "gaussian" else 1
    return Block(table.name, query, 0, 1 / Fraction(table.weight) ** power)
