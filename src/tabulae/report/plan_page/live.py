"""What moves with the slider, in words and figures: made here for the page and for its script alike."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from ...privacy import rounded_up
from ..numbers import (
    decimal,
    share,
    significant,
)
from .view import (
    ErrorRow,
    Errors,
    PlanView,
    Stop,
)

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


def state(row: ErrorRow, at: int) -> str:
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
    return f"{count} targets met." if count else ""


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
