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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ..domain import Table, Workload
from ..errors import Unsupported
from .clustering import clusters
from .hdmm import kron_block
from .opt_kron import KnownFactors
from .strategy import (
    Block,
    NoiseKind,
    Strategy,
)

if TYPE_CHECKING:
    from .settings import Settings

_MOST_GROUPS = 2000
_STEPS = 2**20  # of the relative scales: far finer than the optimum is sharp


@dataclass(frozen=True)
class Group:
    """Tables measured together: their block, and its loss and squared sensitivity.

    ``loss`` is the tables' weighted squared error at unit noise and unit sensitivity, answered from this block
    alone; ``sensitivity2`` is that of the block, in squared counts.
    """

    tables: tuple[Table, ...]
    block: Block
    sensitivity2: Fraction
    loss: float


def union_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_+: one product for each group of tables, and the best split of the budget between them.

    ``settings.groups`` says which tables are measured together; None clusters them by what is cheapest
    (:mod:`tabulae.strategy.clustering`).

    Raises :class:`~tabulae.errors.Unsupported` for more than 2,000 groups, or an attribute too large for OPT_kron.

    Reference: HDMM, Definition 19.

    >>> from tabulae.linalg import Prefix
    >>> from tabulae.strategy.settings import Settings
    >>> from tabulae.domain import Domain
    >>> domain = Domain({"a": 100, "b": 100})
    >>> workload = Workload(domain, [Table(name, {name: Prefix(100)}) for name in ("a", "b")])  # Example 13
    >>> [block.name for block in union_strategy(workload, Settings("gaussian")).blocks]
    ['a', 'b']
    """
    blocks = tuple(replace(g.block, scale=_scale(g, settings.noise)) for g in groups_of(workload, settings))
    return Strategy(workload.domain, blocks, settings.noise, "union")


def groups_of(workload: Workload, settings: Settings) -> list[Group]:
    """The groups of tables that :func:`union_strategy` measures, each with its own best product."""
    if settings.groups is None:
        together = clusters(workload, settings)
    else:
        together = [[workload[name] for name in group] for group in settings.groups]
    if len(together) > _MOST_GROUPS:
        raise Unsupported(
            f"{len(together):,} groups of tables, each with a strategy of its own; union takes {_MOST_GROUPS:,}. Name "
            'fewer with groups=, or choose "kron" or "residual"'
        )
    known = KnownFactors()
    groups = [_group(tables, workload, settings, known) for tables in together]
    return _charged(groups, workload, settings, known)


def split_loss(losses: Iterable[float], noise: NoiseKind) -> float:
    """Total squared error of groups answered one by one, at unit noise, under the best split of the budget.

    ``(sum_g sqrt L_g)^2`` for Gaussian and ``(sum_g cbrt L_g)^3`` for Laplace noise, L_g the groups' own losses:
    an upper bound on the error of least squares over all groups together.

    Reference: HDMM, Definition 19, by Lagrange multipliers.

    >>> split_loss([1.0, 4.0], "gaussian"), round(split_loss([1.0, 8.0], "laplace"), 9)
    (9.0, 27.0)
    """
    root = 2 if noise == "gaussian" else 3
    return math.fsum(loss ** (1 / root) for loss in losses) ** root


def _group(tables: Sequence[Table], workload: Workload, settings: Settings, known: KnownFactors) -> Group:
    name = " + ".join(table.name for table in tables)
    own = Workload(workload.domain, tables)
    block, optimum = kron_block(own, settings, name=name, known=known, certify=False)
    alone = Strategy(workload.domain, (block,), settings.noise, "union")
    power = 1 if settings.noise == "gaussian" else 2
    sensitivity2 = alone.sensitivity(settings.neighbours).power ** power
    charged = sensitivity2 / alone.sensitivity("add-remove").power ** power
    return Group(tuple(tables), block, sensitivity2, optimum.loss * float(charged))


def _charged(groups: list[Group], workload: Workload, settings: Settings, known: KnownFactors) -> list[Group]:
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
    return [*others[:-1], _group(tables, workload, settings, known)]


def _scale(group: Group, noise: NoiseKind) -> Fraction:
    """The block's relative noise: variance Delta^2 / sqrt(L), or scale Delta / cbrt(L)."""
    if noise == "gaussian":
        scale = float(group.sensitivity2) / math.sqrt(group.loss)
    else:
        scale = math.sqrt(group.sensitivity2) / group.loss ** (1 / 3)
    return relative_scale(scale)


def relative_scale(scale: float) -> Fraction:
    """A block's relative noise, within a relative 1e-6: the inverse of a binary fraction.

    Sensitivities are sums of inverse scales; binary ones stay short however many blocks there are.
    """
    mantissa, exponent = math.frexp(1 / scale)
    return 1 / (Fraction(round(mantissa * _STEPS), _STEPS) * Fraction(2) ** exponent)
