"""What a ledger would have spent after a release that is not made yet, and what stands in the way of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..errors import LedgerError, ReleaseError
from ..privacy import Charge, Ledger, write_loss
from ..spec import Spec
from .predecessor import Followed, check_followed
from .rivals import rivals_of


@dataclass(frozen=True)
class Outlook:
    """A ledger before and after a release that is planned.

    ``cap``, ``spent`` so far in ``charges``, and what would be spent ``after`` the release are of ``definition``;
    None where there is no ledger to read. ``followed`` is the release that it follows, None where there is none or it
    cannot be followed. ``warnings`` are sentences: why a run would be refused, and what else follows the same release.
    """

    definition: str
    cap: Mapping[str, str] | None = None
    spent: Mapping[str, str] | None = None
    after: Mapping[str, str] | None = None
    charges: int = 0
    followed: Followed | None = None
    warnings: tuple[str, ...] = ()


def outlook(spec: Spec) -> Outlook:
    """What the ledger of a spec would have spent after its release.

    Args:
        spec: with the loss that it would spend.

    Privacy:
        None is spent; reads the ledger, and the published folder of a release that is followed.
    """
    ledger = _opened(spec)
    if ledger is None:
        return Outlook(spec.loss.definition)
    warnings = list(_refusals(spec, ledger))
    followed = None
    try:
        followed = check_followed(spec, ledger)
    except (ReleaseError, LedgerError) as error:
        warnings.append(f"a run would be refused: {error}")
    charges = ledger.charges()
    spent = {"delta": ledger.spent_delta}
    so_far = {name: spent.get(name, ledger.spent) for name in ledger.budget.parameters}
    after = {name: value + spec.loss.parameters.get(name, Fraction(0)) for name, value in so_far.items()}
    return Outlook(
        ledger.definition,
        write_loss(ledger.budget),
        {name: str(value) for name, value in so_far.items()},
        {name: str(value) for name, value in after.items()},
        len(charges),
        followed,
        (*warnings, *_told(spec, charges)),
    )


def _told(spec: Spec, charges: Sequence[Charge]) -> Iterator[str]:
    """What else follows the same release, in words."""
    if spec.series is not None:
        for rival in rivals_of(spec.series, charges):
            yield rival.sentence(spec.series.kind)


def _opened(spec: Spec) -> Ledger | None:
    """The ledger of a spec; None where there is none, or none that can be read: a run says what is wrong with it."""
    if spec.ledger is None or not spec.ledger.exists():
        return None
    try:
        return Ledger.open(spec.ledger)
    except LedgerError:
        return None


def _refusals(spec: Spec, ledger: Ledger) -> Iterator[str]:
    """Why the ledger would refuse the charge."""
    for word, asked, kept in (
        ("definition", spec.loss.definition, ledger.definition),
        ("neighbours", spec.neighbours, ledger.neighbours),
        ("unit", spec.unit, ledger.unit),
    ):
        if asked != kept:
            yield f"a run would be refused: the spec has {word} {asked!r}, and its ledger {kept!r}"
            return
    left = {"delta": ledger.remaining_delta}
    for name, asked in spec.loss.parameters.items():
        if asked > (rest := left.get(name, ledger.remaining)):
            yield f"a run would be refused: {name} {asked} is asked for, and {rest} is left in its ledger"
