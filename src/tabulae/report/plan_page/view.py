"""What a plan page shows: plain values, all public, filled from a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from ...privacy import PrivacyLoss, decimal, rounded_up
from ..numbers import share, significant
from ..promise import PromiseView

OWN, SMALLEST = "own", "smallest"


@dataclass(frozen=True)
class Stop:
    """One budget that the slider stops at.

    Attributes:
        factor: of the plan's own budget; for groups every level is multiplied by it.
        levels: of groups, each level's budget; else empty.
        kind: ``"own"`` for the plan's budget, ``"smallest"`` for the one found from the targets, else ``""``.
    """

    loss: PrivacyLoss
    factor: Fraction
    levels: tuple[Fraction, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Errors:
    """Errors of one row at one stop, in counts, as its headings name them, and whether the target is met.

    ``at_most``: the numbers are proven upper limits, where an exact plan was not made for this stop.
    """

    numbers: tuple[float, ...]
    met: bool | None = None
    at_most: bool = False


@dataclass(frozen=True)
class ErrorLine:
    """One row of the table of errors: its labels, its target in words, and its errors at every stop."""

    labels: tuple[str, ...]
    facts: tuple[str, ...]
    target: str
    errors: tuple[Errors, ...]


@dataclass(frozen=True)
class ErrorTable:
    """Errors of everything that is published, at every stop.

    ``labels``, ``facts`` and ``numbers`` are headings; the last number is the margin. ``about`` says in words what the
    numbers are of.
    """

    labels: tuple[str, ...]
    facts: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[ErrorLine, ...]
    about: str
    in_all: int


@dataclass(frozen=True)
class Reach:
    """What the promise means at one stop: epsilons, and what a detective could achieve.

    ``epsilons`` stand beside the page's deltas and ``odds`` beside its false alarms; ``left`` is what would be left in
    the ledger, negative where it does not cover the release, None where no ledger was read.
    """

    epsilons: tuple[float, ...]
    odds: tuple[float, ...]
    left: Fraction | None


@dataclass(frozen=True)
class ShareTable:
    """Shares of the budget: one row a block, a level of groups or a level of areas; a share is None where unknown."""

    heading: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    note: str
    omitted: int = 0


@dataclass(frozen=True)
class MethodRow:
    """One method: its RMSE over all tables at the plan's budget (None: it dropped out), and a remark."""

    name: str
    rmse: float | None
    note: str
    chosen: bool = False


@dataclass(frozen=True)
class Methods:
    """Methods side by side, the bound that none beats, and what is proven of the one chosen, in words.

    ``measure`` is what the search compared: an RMSE where it says so.
    """

    rows: tuple[MethodRow, ...]
    bound: float | None
    proven: str
    figure: Markup | None
    measure: str


@dataclass(frozen=True)
class TargetLine:
    """One target: what it is about, what is allowed, and the first stop from which on it is met (None: at no stop)."""

    what: str
    allowed: str
    met_from: Fraction | None


@dataclass(frozen=True)
class AimView:
    """The smallest budget that meets all targets.

    ``loss`` is that budget, None where none is known; ``lower`` is a budget that no other strategy (areas: no other
    shares) does with less than; ``best`` what shares chosen for the targets would need; ``note`` what else is to be
    known. Each None or empty where there is none.
    """

    loss: PrivacyLoss | None
    lower: Fraction | None
    best: Fraction | None
    lines: tuple[TargetLine, ...]
    note: str


@dataclass(frozen=True)
class AreasView:
    """Areas on the spine and off it: distances before and after the spine was drawn anew, and the estimator's words.

    ``earlier`` are sentences on counts that equal those of an earlier release.
    """

    distances: tuple[tuple[str, int, float, int, float, int], ...]
    estimate: str
    earlier: tuple[str, ...]


@dataclass(frozen=True)
class PlanView:
    """Everything that a plan page shows.

    ``promise`` is that of the plan's own budget, with what is exact and what follows from it. ``reaches`` has one
    entry a stop; ``lines`` gives for each stop what to write into the spec: the release's budget, then that of each
    level of groups. ``ledger`` is what is left in it, and its cap. ``remark`` adds a sentence on epsilon.
    """

    title: str
    promise: PromiseView
    open_budget: bool
    level: float
    stops: tuple[Stop, ...]
    reaches: tuple[Reach, ...]
    lines: tuple[tuple[str, ...], ...]
    deltas: tuple[Fraction, ...]
    alarms: tuple[float, ...]
    errors: ErrorTable
    shares: tuple[ShareTable, ...]
    methods: Methods | None
    aim: AimView | None
    areas: AreasView | None
    ledger: tuple[Fraction, Fraction] | None
    remark: str
    version: str

    @property
    def of_levels(self) -> bool:
        """Whether every level of groups has a budget of its own: the slider multiplies all of them."""
        return any(stop.levels for stop in self.stops)

    @property
    def own(self) -> int:
        """The position of the plan's own budget."""
        return next(i for i, stop in enumerate(self.stops) if OWN in stop.kind)

    @property
    def smallest(self) -> int | None:
        """The position of the smallest budget that meets all targets; None where there is none."""
        return next((i for i, stop in enumerate(self.stops) if SMALLEST in stop.kind), None)

    @property
    def symbol(self) -> str:
        return "ρ" if self.promise.definition == "zcdp" else "ε"


_MANTISSAS = (*range(10, 20), *range(20, 50, 2), *range(50, 100, 5))
REACH = 30
"""How many times the plan's own budget the slider goes, and how small a part of it."""


def round_amounts(low: Fraction, high: Fraction) -> list[Fraction]:
    """Numbers of two digits from ``low`` to ``high``, 35 a factor of ten, each at most 10 % above the one before.

    >>> [str(float(amount)) for amount in round_amounts(Fraction(9, 10), Fraction(13, 10))]
    ['0.9', '0.95', '1.0', '1.1', '1.2', '1.3']
    """
    first, last = (math.floor(math.log10(float(end))) for end in (low, high))
    amounts = (Fraction(m, 10) * Fraction(10) ** e for e in range(first - 1, last + 2) for m in _MANTISSAS)
    return [amount for amount in amounts if low <= amount <= high]


def amounts_around(own: Fraction, smallest: Fraction | None, *, of_factors: bool = False) -> list[Fraction]:
    """Where the slider stops, rising: the plan's budget, the one found from its targets, and round numbers around them.

    Arguments:
        of_factors: whether multiples of ``own`` are round rather than the budgets themselves.
    """
    ends = [own, own if smallest is None else smallest]
    low, high = min(ends) / REACH, max(ends) * REACH
    around = (
        [factor * own for factor in round_amounts(low / own, high / own)]
        if of_factors
        else round_amounts(low, high)
    )
    return sorted({*around, *ends})


def kind_of(amount: Fraction, own: Fraction, smallest: Fraction | None) -> str:
    """What is special about a stop, in the words of :class:`tabulae.report.plan_page.view.Stop`.

    >>> kind_of(Fraction(1), Fraction(1), Fraction(1))
    'own smallest'
    """
    return " ".join(_kinds(amount, own, smallest))


def _kinds(amount: Fraction, own: Fraction, smallest: Fraction | None) -> Iterator[str]:
    if amount == own:
        yield OWN
    if amount == smallest:
        yield SMALLEST


def knots(count: int, special: Iterable[int], step: int) -> list[int]:
    """Every ``step``-th of so many positions, the last, and the special ones.

    >>> knots(10, [4], 8)
    [0, 4, 8, 9]
    """
    return sorted({*range(0, count, step), count - 1, *special})


def kept(aimed: Sequence[bool], limit: int) -> list[int]:
    """The first rows, at most so many, rows with a target before all others; in their order.

    >>> kept([False, False, True], 2)
    [0, 2]
    """
    return sorted(sorted(range(len(aimed)), key=lambda i: (not aimed[i], i))[:limit])


MET = {True: "✓ met", False: "✗ missed", None: "? not told"}
_STATES = {True: 1, False: 0, None: 2}


def texts(view: PlanView, at: int) -> dict[str, str]:
    """The moving words of the page at one stop, by name."""
    stop, reach = view.stops[at], view.reaches[at]
    found = {
        "budget": budget_words(stop.loss.amount),
        "relation": _relation(stop),
        "line": "\n".join(view.lines[at]),
        "targets": targets_words(view, at),
        "left": _left(view, at),
    }
    for i, epsilon in enumerate(reach.epsilons):
        found[f"epsilon-{i}"] = significant(rounded_up(epsilon), 4)
    for i, odds in enumerate(reach.odds):
        found[f"odds-{i}"] = share(odds)
    return found


def numbers(errors: Errors) -> list[str]:
    """The numbers of one row at one stop; the last is a margin."""
    sign = "≤ " if errors.at_most else ""
    words = [sign + significant(value) for value in errors.numbers]
    margin = errors.numbers[-1]
    return [*words[:-1], f"{sign}±{significant(margin)}" if margin else "exact"]


def state(row: ErrorLine, at: int) -> str:
    """Whether a row's target is met, in a word; nothing for a row without one."""
    return MET[row.errors[at].met] if row.target else ""


def budget_words(amount: Fraction) -> str:
    """A budget for reading; the line to copy is exact.

    >>> budget_words(Fraction(1, 2)), budget_words(Fraction(293764, 114921))
    ('0.5', '2.556')
    """
    return significant(float(amount), 4) if amount.denominator > 1 else decimal(amount)


def target_words(target: float, confidence: float | None) -> str:
    """A target in a few characters.

    >>> target_words(50, 0.9), target_words(2.5, None)
    ('margin 50 at 90 %', 'RMSE 2.5')
    """
    size = significant(float(target), 10)
    return f"RMSE {size}" if confidence is None else f"margin {size} at {significant(100 * confidence, 6)} %"


def targets_words(view: PlanView, at: int) -> str:
    """How many targets are met, in a sentence; nothing without any."""
    count = targets_count(view, at)
    targets = "target" if count.endswith(" of 1") else "targets"
    return f"{count} {targets} met." if count else ""


def targets_count(view: PlanView, at: int) -> str:
    """How many targets are met, of how many; nothing without any."""
    answers = [row.errors[at].met for row in view.errors.rows if row.target]
    if not answers:
        return ""
    mark = "✗" if False in answers else "?" if None in answers else "✓"
    told = f" ({answers.count(None)} not told)" if None in answers else ""
    return f"{mark} {answers.count(True)} of {len(answers)}{told}"


def data(view: PlanView) -> Markup:
    """Everything that moves, at every stop, as JSON that cannot end the element that it stands in."""
    stops = [_stop(view, at) for at in range(len(view.stops))]
    targets = [1 if row.target else 0 for row in view.errors.rows]
    whole = {"own": view.own, "smallest": view.smallest, "targets": targets, "stops": stops}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)  # noqa: S704


def _stop(view: PlanView, at: int) -> dict[str, Any]:
    said = [
        f"{view.symbol} {budget_words(view.stops[at].loss.amount)}",
        *filter(None, [targets_words(view, at)]),
    ]
    if view.deltas:
        told = f"epsilon {significant(rounded_up(view.reaches[at].epsilons[0]), 4)}"
        said.insert(1, f"{told} at delta {significant(float(view.deltas[0]))}")
    rows = [numbers(row.errors[at]) for row in view.errors.rows]
    met = [_STATES[row.errors[at].met] for row in view.errors.rows]
    return {"said": ", ".join(said), "texts": texts(view, at), "rows": rows, "met": met}


def _relation(stop: Stop) -> str:
    words = []
    if "own" in stop.kind:
        words.append("the budget of this plan")
    if "smallest" in stop.kind:
        words.append("the smallest that meets all targets")
    if words:
        return "; ".join(words)
    times = float(stop.factor)
    return (
        f"{significant(times)} times that of this plan"
        if times >= 1
        else f"{significant(times, 2)} of that of this plan"
    )


def _left(view: PlanView, at: int) -> str:
    left = view.reaches[at].left
    if left is None or view.ledger is None:
        return ""
    if left < 0:
        return f"✗ The ledger has only {decimal(view.ledger[0])} left: it would refuse this."
    return f"{decimal(left)} of {decimal(view.ledger[1])} would be left in the ledger."
