"""The release that a new one follows, looked at before anything is charged for the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from shlex import quote
from typing import TYPE_CHECKING

from ..errors import BudgetRefused, LedgerError, ReleaseError, TabulaeError
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
    warnings = [f"a run would be refused: {refusal}" for refusal in _refusals(spec, ledger)]
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


def open_ledger(spec: Spec, dated: datetime) -> Ledger:
    """The ledger that a run charges, all of whose entries are dated so.

    Raises:
        LedgerError: the document names none, or there is none; the message has the command that makes it. Another
            process holds it, or it cannot be written: told before anything is counted.
    """
    if spec.ledger is None:
        raise LedgerError('this spec names no ledger: add ledger = "ledger.db" under [privacy]')
    if (missing := missing_words(spec)) is not None:
        raise LedgerError(missing)
    return Ledger.open(spec.ledger, dated=dated, write=True)


def check_affordable(spec: Spec, ledger: Ledger) -> None:
    """See, before anything is planned or counted, that the ledger would take the charge of a spec.

    Raises:
        BudgetRefused: it would not; the message has the cure.

    Privacy:
        None is spent. The charge itself is refused or not by the ledger alone, when it comes.
    """
    for refusal in _refusals(spec, ledger):
        raise BudgetRefused(refusal)


def refusals(spec: Spec) -> list[str]:
    """Why the ledger of a spec would refuse its charge; nothing where there is none that can be read."""
    ledger = _ledger_of(spec)
    return [] if ledger is None or spec.open_budget else list(_refusals(spec, ledger))


def missing_words(spec: Spec) -> str | None:
    """That there is no ledger yet, and the command that makes it; None where there is one, or no budget to be spent."""
    if spec.ledger is None or spec.open_budget or spec.ledger.exists():
        return None
    return (
        f"there is no ledger at {spec.ledger}: make it once, with at least what this release spends, or with all that "
        f"its series may ever spend:\n  {init_command(spec, str(spec.ledger))}"
    )


def init_command(spec: Spec, path: str) -> str:
    """The command that makes a ledger for a spec, with every option; its cap pays for this one release."""
    amounts = spec.loss.parameters
    delta = f" --delta {amounts['delta']}" if "delta" in amounts else ""
    return (
        f"tabulae ledger init {quote(path)} --budget {spec.loss.amount} --definition {spec.loss.definition}"
        f" --neighbours {spec.neighbours} --unit {quote(spec.unit)}{delta}"
    )


def _ledger_of(spec: Spec) -> Ledger | None:
    """The ledger of a spec; None where there is none, or none that can be read: a run says what is wrong with it."""
    if spec.ledger is None or not spec.ledger.exists():
        return None
    try:
        return Ledger.open(spec.ledger)
    except LedgerError:
        return None


def _refusals(spec: Spec, ledger: Ledger) -> Iterator[str]:
    """Why the ledger would refuse the charge, and what to do."""
    for word, asked, kept in differences(_promise(spec), ledger.promise):
        key = "[source] unit" if word == "unit" else f"[privacy] {word}"
        yield (
            f"the spec has {word} {asked!r}, and its ledger {ledger.path} {kept!r}, which never changes: write "
            f"{kept!r} under {key}, or name a ledger of the spec's kind under [privacy], made by\n"
            f"  {init_command(spec, 'another.db')}"
        )
        return
    left = {"delta": ledger.remaining_delta}
    for name, asked in spec.loss.parameters.items():
        if asked > (rest := left.get(name, ledger.remaining)):
            amount = "delta" if name == "delta" else "budget"
            remedy = f'write {amount} = "{rest}" or less' if rest else "it pays for nothing more"
            yield (
                f"{name} {asked} is asked for, and {rest} of {ledger.budget.parameters[name]} is left in its ledger "
                f"{ledger.path}, whose cap never changes: {remedy}. Another ledger promises for its own releases "
                "alone, and nobody adds up: only where both together have been decided on, name it under [privacy], "
                f"and make it by\n  {init_command(spec, 'another.db')}"
            )
