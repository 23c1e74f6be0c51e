"""OPT_+: one Kronecker product for each group of tables, and the budget split between them.

Each group is measured by its own OPT_kron strategy. With L_g the group's loss (squared error at unit noise and
unit sensitivity) the split that minimises the total, before least squares joins the groups' answers, is

    Gaussian   rho_g      proportional to sqrt(L_g),   total (sum_g sqrt L_g)^2
    Laplace    epsilon_g  proportional to cbrt(L_g),   total (sum_g cbrt L_g)^3

(The printed OPT_+ results for Gaussian noise used the Laplace split.) Least squares over all groups together
only lowers the error from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..tables import Table, Workload
from .hdmm import kron_strategy
from .loss import unit_rmse
from .strategy import Block, NoiseKind, Strategy

if TYPE_CHECKING:
    from .settings import Settings

_MOST_GROUPS = 400
_DIGITS = 10**6  # denominators of the relative scales: far finer than the optimum is sharp


@dataclass(frozen=True)
class _Group:
    """Tables measured together: their own strategy and its loss."""

    tables: tuple[Table, ...]
    block: Block
    sensitivity2: Fraction
    loss: float

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset(name for table in self.tables for name in table.attributes)


def union_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Group the tables, optimise each group alone, split the budget.

    Tables over the same attributes share a group; a group whose attributes are among another's joins it where
    that lowers the total.
    """
    by_attributes: dict[frozenset[str], list[Table]] = {}
    for table in workload.tables:
        by_attributes.setdefault(frozenset(table.attributes), []).append(table)
    if len(by_attributes) > _MOST_GROUPS:
        raise Unsupported(
            f"the tables cross {len(by_attributes)} different sets of attributes; union takes {_MOST_GROUPS}"
        )
    groups = [_group(tables, workload, settings) for tables in by_attributes.values()]
    groups = _joined(_charged(groups, workload, settings), workload, settings)
    blocks = tuple(replace(g.block, scale=_scale(g, settings.noise)) for g in groups)
    return Strategy(workload.domain, blocks, settings.noise, "union")


def _group(tables: Sequence[Table], workload: Workload, settings: Settings) -> _Group:
    own = Workload(workload.domain, tables)
    strategy = kron_strategy(own, settings)
    loss = unit_rmse(strategy, own, settings.neighbours) ** 2 * own.queries
    sensitivity = strategy.sensitivity(settings.neighbours).power
    power2 = sensitivity if settings.noise == "gaussian" else sensitivity**2
    block = replace(strategy.blocks[0], name=" + ".join(table.name for table in tables))
    return _Group(tuple(tables), block, power2, loss)


def _charged(groups: list[_Group], workload: Workload, settings: Settings) -> list[_Group]:
    """Let what no neighbour changes (the total, under replace) be answered by another group.

    Alone it would cost nothing however small its noise, and noise is never zero.
    """
    free = [g for g in groups if g.sensitivity2 == 0]
    others = sorted((g for g in groups if g.sensitivity2 > 0), key=lambda g: g.loss)
    if not free:
        return groups
    if not others:
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    tables = [table for group in (others[-1], *free) for table in group.tables]
    return [*others[:-1], _group(tables, workload, settings)]


def _joined(groups: list[_Group], workload: Workload, settings: Settings) -> list[_Group]:
    """Let each group, small ones first, join one that asks of all its attributes if that lowers the total."""
    root = 1 / (2 if settings.noise == "gaussian" else 3)
    for small in sorted(groups, key=lambda g: len(g.attributes)):
        if not any(small is g for g in groups):  # others joined it, and then it is no longer small
            continue
        for large in sorted(groups, key=lambda g: len(g.attributes)):
            if large is small or not small.attributes <= large.attributes or settings.remaining() == 0.0:
                continue
            both = _group((*large.tables, *small.tables), workload, settings)
            if both.loss**root < large.loss**root + small.loss**root:
                groups = [g for g in groups if g is not small and g is not large] + [both]
                break
    return groups


def _scale(group: _Group, noise: NoiseKind) -> Fraction:
    """The block's relative noise: variance Delta^2 / sqrt(L), or scale Delta / cbrt(L)."""
    if noise == "gaussian":
        scale = float(group.sensitivity2) / math.sqrt(group.loss)
    else:
        scale = math.sqrt(group.sensitivity2) / group.loss ** (1 / 3)
    mantissa, exponent = math.frexp(scale)
    return Fraction(mantissa).limit_denominator(_DIGITS) * Fraction(2) ** exponent
