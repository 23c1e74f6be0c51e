"""The release that a new one follows, looked at before anything is charged for the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from ..errors import LedgerError, ReleaseError, TabulaeError
from ..privacy import Charge, Ledger, write_loss
from ..privacy.ledger.ledger import differences
from ..spec import Series, Spec
from ..spec.series import mark_of
from . import folder as f
from .series import Followed, Link, rivals_of

if TYPE_CHECKING:
    from .read import Release


_CLOCK = timedelta(days=1)  # by which the clocks of two runs may differ


def check_followed(spec: Spec, ledger: Ledger) -> Followed | None:
    """See that the release which a spec follows is whole, published, and charged to the same ledger.

    Returns:
        What the new release says of it; None where the spec has no ``[series]``.

    Raises:
        ReleaseError: it cannot be followed; the message says why, and what to do. Every published number is verified.

    Privacy:
        None is spent: reads a published folder and the ledger.
    """
    series = spec.series
    if series is None:
        return None
    from .read import Release

    if series.folder is None:
        raise ReleaseError(
            "this is a published copy, which names the release that it follows by its id: write where that stands, "
            'follows = "FOLDER" under [series]'
        )
    previous = Release.read(series.folder)
    if faults := [*_folder_faults(previous, series), *_kind_faults(previous, spec)]:
        raise _refusal(series, faults)
    if faults := list(_ledger_faults(previous, ledger)):
        raise _refusal(series, faults)
    return Followed(series.follows, series.kind, previous.series)


def _refusal(series: Series, faults: list[str]) -> ReleaseError:
    told = "\n".join(f"  {fault}" for fault in faults)
    return ReleaseError(f"{series.folder} cannot be followed:\n{told}")


def _folder_faults(previous: Release, series: Series) -> Iterator[str]:
    """Whether the folder is the one that the spec was read with, and as it was published."""
    try:
        same = mark_of(previous.path) == series.follows
    except ValueError:
        same = False
    if not same:
        yield "it was changed since the spec was read: read the spec again"
        return
    try:
        faults = previous.verify() or previous.text_faults()
    except TabulaeError as error:
        faults = [str(error)]
    for fault in faults:
        yield f"{fault}: restore it as it was published"


def _kind_faults(previous: Release, spec: Spec) -> Iterator[str]:
    """Whether both promise the same kind of thing, so that their losses add up."""
    for word, was, now in differences(_promise(previous.spec), _promise(spec)):
        yield f"its {word} is {was!r}, and that of this spec {now!r}: losses of different kinds do not add up"


def _promise(spec: Spec) -> tuple[str, str, str]:
    return spec.loss.definition, spec.neighbours, spec.unit


def _ledger_faults(previous: Release, ledger: Ledger) -> Iterator[str]:
    """Whether every release of its chain is in the ledger as it says, and it is published."""
    charges = {charge.release_id: charge for charge in ledger.charges()}
    last = previous.series[-1].release_id
    if last not in charges:
        yield f"it is not in the ledger {ledger.path}: name the ledger that it was charged to, under [privacy]"
        return
    state = charges[last].state
    if state != "published":
        told = (
            "its own `tabulae run --resume` settles it" if state == "charged" else "nothing of it is public"
        )
        yield f"the ledger says that it is {state}, not published: {told}"
    entered = ledger.entries(last)
    told = [entry for entry in entered if entry["kind"] in ("charge", "disclosure", "follows")]
    if previous.ledger != told:
        yield f"its {f.LEDGER} is not what the ledger {ledger.path} says of it: restore it as it was published"
    for before, link in zip((None, *previous.series), previous.series, strict=False):
        times = {e["kind"]: e["time"] for e in ledger.entries(link.release_id)}
        if not _is_entered(link, before, charges.get(link.release_id), times):
            yield f"its series says of {link.release_id} what the ledger {ledger.path} does not"


def _is_entered(link: Link, before: Link | None, charge: Charge | None, times: Mapping[str, str]) -> bool:
    """Whether a link of a chain is what the ledger says of that release; ``times`` are those of its entries by kind."""
    if charge is None or (link.title or "release", link.definition, dict(link.loss)) != (
        charge.title,
        charge.loss.definition,
        write_loss(charge.loss),
    ):
        return False
    if not _is_between(link.created, charge.time, times.get("published")):
        return False
    follows = None if before is None else before.release_id
    return charge.state == "published" and (charge.follows, charge.relation) == (follows, link.kind)


def _is_between(created: str, charged: str, published: str | None) -> bool:
    """Whether a release was written between its charge and its publication, as far as clocks can tell."""
    try:
        when, first = datetime.fromisoformat(created), datetime.fromisoformat(charged)
        last = when if published is None else datetime.fromisoformat(published)
        return first - _CLOCK <= when <= last + _CLOCK
    except (ValueError, TypeError, OverflowError):
        return False


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

    Privacy:
        None is spent; reads the ledger, and the published folder of a release that is followed.
    """
    ledger = _ledger_of(spec)
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
        (*warnings, *_rival_sentences(spec, charges)),
    )


def _rival_sentences(spec: Spec, charges: Sequence[Charge]) -> Iterator[str]:
    """What else follows the same release, in words."""
    if spec.series is not None:
        for rival in rivals_of(spec.series, charges):
            yield rival.sentence(spec.series.kind)


def _ledger_of(spec: Spec) -> Ledger | None:
    """The ledger of a spec; None where there is none, or none that can be read: a run says what is wrong with it."""
    if spec.ledger is None or not spec.ledger.exists():
        return None
    try:
        return Ledger.open(spec.ledger)
    except LedgerError:
        return None


def _refusals(spec: Spec, ledger: Ledger) -> Iterator[str]:
    """Why the ledger would refuse the charge."""
    for word, asked, kept in differences(_promise(spec), ledger.promise):
        yield f"a run would be refused: the spec has {word} {asked!r}, and its ledger {kept!r}"
        return
    left = {"delta": ledger.remaining_delta}
    for name, asked in spec.loss.parameters.items():
        if asked > (rest := left.get(name, ledger.remaining)):
            yield f"a run would be refused: {name} {asked} is asked for, and {rest} is left in its ledger"
