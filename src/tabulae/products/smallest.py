"""The smallest budget that meets all targets: what plans of tables, groups and areas say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..privacy import ZCDP, ApproxDP, PrivacyLoss, PureDP


@dataclass(frozen=True)
class TargetRow:
    """One target, and what the plan's budget reaches of it.

    Attributes:
        table: the name of the table; for groups "" (a target of a level is one of all its tables).
        of: the level, the type of entity, or the level of groups that it is about; None for tables without areas.
        kind: "rmse" or "margin".
        target: what is allowed, in counts.
        confidence: of a margin; None for an RMSE.
        reached: the same error at the plan's budget (at the smallest one where none is written), in counts.
        met: whether it is met there; None where that cannot be told (the paper's formula for groups).
    """

    table: str
    of: str | None
    kind: str
    target: float
    confidence: float | None
    reached: float
    met: bool | None

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class LevelNeed:
    """One level of groups: its budget in the plan, and the smallest that meets its target (None without a target)."""

    level: str
    budget: PrivacyLoss
    smallest: PrivacyLoss | None

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        smallest = None if self.smallest is None else str(self.smallest.amount)
        return {"level": self.level, "budget": str(self.budget.amount), "smallest": smallest}


@dataclass(frozen=True)
class BestShares:
    """Shares of the budget by level and query with which the targets cost least.

    Attributes:
        loss: the budget that meets all targets with these shares, checked with the noise that would be drawn.
        levels: level -> its share of the budget, exact, adding up to 1.
        queries: level -> the share of each query of the spec, in its order, adding up to 1; levels without a share
            are left out.
        lower: a budget that no other shares can do with less than; proven for Gaussian noise that is not rounded.
    """

    loss: PrivacyLoss
    levels: Mapping[str, Fraction]
    queries: Mapping[str, tuple[Fraction, ...]]
    lower: PrivacyLoss

    @property
    def gap(self) -> float:
        """How much more than ``lower`` is spent, relative: 0.01 is one per cent."""
        return float(self.loss.amount / self.lower.amount) - 1

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "budget": str(self.loss.amount),
            "levels": {level: str(share) for level, share in self.levels.items()},
            "queries": {level: [str(share) for share in shares] for level, shares in self.queries.items()},
            "lower": str(self.lower.amount),
            "gap": self.gap,
        }


@dataclass(frozen=True)
class Smallest:
    """The smallest budget that meets every target of a plan.

    Attributes:
        loss: the least that the plan's strategy, levels or shares need, rounded up as a spec would write it; None where
            no budget is enough, or all targets are about exact counts.
        written: the budget of the spec; None where it is ``"targets"``.
        targets: every target, judged.
        lower: a budget that no strategy does with less than (for areas: no shares); None where none is known.
        levels: for groups alone, what each level needs.
        best: for areas alone, the shares that need least; None where they were not looked for.
        note: why something above is not known, in a sentence; "" where there is nothing to say.
    """

    loss: PrivacyLoss | None
    written: PrivacyLoss | None
    targets: tuple[TargetRow, ...]
    lower: PrivacyLoss | None = None
    levels: tuple[LevelNeed, ...] = ()
    best: BestShares | None = None
    note: str = ""

    @property
    def enough(self) -> bool | None:
        """Whether the written budget meets every target; None where none is written, or that cannot be told."""
        if self.written is None:
            return None
        if any(row.met is False for row in self.targets):
            return False
        return None if any(row.met is None for row in self.targets) else True

    @property
    def gap(self) -> float | None:
        """How much more than ``lower`` the plan needs, relative; None where no lower bound is known."""
        if self.loss is None or self.lower is None:
            return None
        return float(self.loss.amount / self.lower.amount) - 1

    def document(self) -> dict[str, Any]:
        """The same as plain values, for JSON: the key ``smallest`` of ``tabulae plan --json``."""
        return {
            "budget": None if self.loss is None else str(self.loss.amount),
            "written": None if self.written is None else str(self.written.amount),
            "enough": self.enough,
            "lower": None if self.lower is None else str(self.lower.amount),
            "gap": self.gap,
            "targets": [row.document() for row in self.targets],
            "levels": [row.document() for row in self.levels],
            "best_shares": None if self.best is None else self.best.document(),
            "note": self.note,
        }


def with_amount(loss: PrivacyLoss, amount: Fraction) -> PrivacyLoss:
    """A loss of the same definition, of another amount.

    >>> with_amount(ZCDP("1/2"), Fraction(2))
    ZCDP(rho='2')
    """
    if isinstance(loss, ApproxDP):
        return ApproxDP(amount, loss.delta)
    return ZCDP(amount) if isinstance(loss, ZCDP) else PureDP(amount)
