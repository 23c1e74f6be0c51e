"""What the promise means at every stop: epsilons, a detective's odds, and what is left in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ...errors import LedgerError
from ...privacy import Ledger, PrivacyLoss
from ...spec import Spec
from ..detection import detection_bound
from ..view import Promise
from .view import Reach, Stop

ALARMS = (0.01, 0.05, 0.1)
_MORE_DELTAS = (Fraction(1, 10**9), Fraction(1, 10**6))


def deltas_of(spec: Spec) -> tuple[Fraction, ...]:
    """The deltas at which a concentrated promise is stated, the spec's own first; none for other promises."""
    if spec.loss.definition != "zcdp":
        return ()
    own = () if spec.delta is None else (spec.delta,)
    return tuple(dict.fromkeys((*own, *_MORE_DELTAS)))


def reaches_at(spec: Spec, stops: Sequence[Stop]) -> tuple[Reach, ...]:
    """What each stop promises, and leaves."""
    left = ledger_of(spec)
    return tuple(
        Reach(
            tuple(stop.loss.epsilon(delta) for delta in deltas_of(spec)),
            tuple(detection_bound(_promise(spec, stop.loss), alarm) for alarm in ALARMS),
            None if left is None else left[0] - stop.loss.amount,
        )
        for stop in stops
    )


def ledger_of(spec: Spec) -> tuple[Fraction, Fraction] | None:
    """What is left in the spec's ledger, and its cap; None where there is none to read, or of another promise.

    Privacy:
        The amounts of earlier releases alone, which are public.
    """
    if spec.ledger is None or not spec.ledger.exists():
        return None
    try:
        ledger = Ledger.open(spec.ledger)
        if ledger.definition != spec.loss.definition or ledger.neighbours != spec.neighbours:
            return None
        return ledger.remaining, ledger.budget.amount
    except LedgerError:  # a run will say what is wrong with it, and charges nothing
        return None


def _promise(spec: Spec, loss: PrivacyLoss) -> Promise:
    delta = loss.parameters.get("delta")
    return Promise(loss.definition, loss.amount, spec.neighbours, spec.unit, delta)  # type: ignore[arg-type]
