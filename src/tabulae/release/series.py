"""The chain of releases that a release belongs to: each follows the one before, as the next or as its correction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from ..errors import LedgerError, ReleaseError
from ..privacy import Charge, Ledger, PrivacyLoss, read_loss, sequential, write_loss
from ..spec import Series, Spec
from ..spec.series import Mark, Relation, mark_of
from . import folder as f
from .agreement import entry_faults

SERIES = "series"
"""Where the descriptor keeps the chain, under "tabulae"."""


def check_loss(definition: object, parameters: object) -> None:
    """See that a loss is stored as :func:`tabulae.privacy.ledger.history.write_loss` writes it.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(definition, str) or not isinstance(parameters, Mapping):
        raise TypeError("a loss is not stored as a definition and its parameters")
    try:
        same = write_loss(read_loss(definition, parameters)) == parameters
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise TypeError("a loss is not stored as fractions of its definition")


_STRICT = ConfigDict(strict=True)  # what a descriptor says is refused in any other form


@checked(frozen=True, config=_STRICT)
class Link:
    """One release of a chain.

    ``kind`` says how it follows the one before, ``"next"`` or ``"correction"``, and ``reason`` why; both are None for
    the first. ``loss`` is what it spent. ``sha256sums`` is the digest of its checksums
    (:func:`tabulae.spec.series.digest_of_sums`); None for the last, whose own folder says the chain.

    Raises:
        TypeError, ValueError: values that are not in the form that releases have.
    """

    release_id: str
    title: str
    created: str
    kind: Relation | None
    reason: str | None
    definition: str
    loss: Mapping[str, str]
    sha256sums: str | None = None

    def __post_init__(self) -> None:
        check_loss(self.definition, self.loss)

    @property
    def spent(self) -> PrivacyLoss:
        return read_loss(self.definition, self.loss)


def own_link(spec: Spec, descriptor: Mapping[str, Any]) -> Link:
    """A release as the last of its chain."""
    series = spec.series
    return Link(
        str(descriptor["tabulae"]["release_id"]),
        str(descriptor["title"]),
        str(descriptor["created"]),
        None if series is None else series.kind,
        None if series is None else series.reason,
        spec.loss.definition,
        write_loss(spec.loss),
    )


def chain_of(spec: Spec, descriptor: Mapping[str, Any]) -> tuple[Link, ...]:
    """The chain that a release says it belongs to, oldest first; of one that follows none, itself alone.

    Raises:
        KeyError, TypeError, ValueError: the descriptor holds no chain in this form.
    """
    told = descriptor["tabulae"].get(SERIES)
    return (own_link(spec, descriptor),) if told is None else tuple(Link(**link) for link in told)


def continued(chain: Sequence[Link], mark: Mark, own: Link) -> tuple[Link, ...]:
    """The chain of a release that follows the last of another chain."""
    return (*chain[:-1], replace(chain[-1], sha256sums=mark.sha256sums), own)


def chain_document(chain: Sequence[Link]) -> list[dict[str, Any]]:
    """A chain as plain values."""
    return [asdict(link) for link in chain]


def spent_over(chain: Sequence[Link]) -> PrivacyLoss:
    """What all releases of a chain spent together, for everybody who is in the records of all of them.

    Privacy:
        Sequential composition: losses of one definition add up, exactly.
    """
    return sequential([link.spent for link in chain]).loss  # type: ignore[type-var]


def series_faults(
    spec: Spec, descriptor: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Whether chain, spec and ledger entries agree within one folder, one sentence a fault."""
    if faults := list(entry_faults(entries, descriptor["tabulae"]["release_id"])):
        yield from faults
        return
    series = spec.series
    recorded = [(e["follows"], e["relation"]) for e in entries if e["kind"] == "follows"]
    if recorded != ([] if series is None else [(series.follows.release_id, series.kind)]):
        yield f"{f.LEDGER}: which release this one follows is not what {f.SPEC} says"
    if series is None and SERIES not in descriptor["tabulae"]:
        return
    try:
        chain = chain_of(spec, descriptor)
        fault = _chain_fault(chain, spec, descriptor)
    except (KeyError, TypeError, ValueError):
        fault = "its series is not in the form that releases have"
    if fault is not None:
        yield f"{f.DESCRIPTOR}: {fault}"


def _chain_fault(chain: Sequence[Link], spec: Spec, descriptor: Mapping[str, Any]) -> str | None:
    """What is wrong with a chain within its own folder, or None."""
    if not chain or chain[-1] != own_link(spec, descriptor):
        return "its series does not end with this release"
    if (len(chain) > 1) != (spec.series is not None):
        return f"its series is not that of {f.SPEC}"
    if spec.series is not None and _mark(chain[-2]) != spec.series.follows:
        return f"its series does not name the release that {f.SPEC} follows"
    if len({link.release_id for link in chain}) < len(chain):
        return "its series has a release twice"
    if chain[0].kind is not None or any(link.kind is None for link in chain[1:]):
        return "its series does not say how each release follows the one before"
    if any(link.sha256sums is None for link in chain[:-1]):
        return "its series does not say the checksums of earlier releases"
    if {link.definition for link in chain} != {spec.loss.definition}:
        return "the losses of its series are of several definitions"
    return None


def _mark(link: Link) -> Mark:
    return Mark(link.release_id, link.sha256sums or "")


@dataclass(frozen=True)
class Found:
    """An earlier release of a chain as it was looked for beside the last: where it stands, and what is wrong with it.

    ``name`` is that of its folder, None where none was found; ``fault`` a sentence, None where nothing is wrong.
    """

    link: Link
    name: str | None = None
    fault: str | None = None


def beside(folder: Path, chain: Sequence[Link]) -> tuple[Found, ...]:
    """The earlier releases of a chain, looked for among the folders that stand beside the last one.

    One that is found must have the checksums that the chain states, and say itself the part of the chain that ends with
    it. Of several copies one that does is enough.
    """
    wanted = {link.release_id for link in chain[:-1]}
    copies: dict[str, list[Path]] = {release_id: [] for release_id in wanted}
    for path in sorted(folder.resolve().parent.iterdir()) if wanted else ():
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            found = mark_of(path).release_id
        except ValueError:
            continue
        if found in wanted:
            copies[found].append(path)
    return tuple(_best_copy(chain[: i + 1], copies[link.release_id]) for i, link in enumerate(chain[:-1]))


def _best_copy(chain: Sequence[Link], copies: Sequence[Path]) -> Found:
    """The last of a part of a chain, with the first of its copies that is the one meant."""
    looked = [Found(chain[-1], path.name, _copy_fault(path, chain)) for path in copies]
    good = [each for each in looked if each.fault is None]
    return (good or looked or [Found(chain[-1])])[0]


def _copy_fault(path: Path, chain: Sequence[Link]) -> str | None:
    """What is wrong with a folder that says it is the last of a part of a chain, or None."""
    if mark_of(path) != _mark(chain[-1]):
        return f"{path.name}: is not the release that was followed; its {f.SUMS} differs"
    try:
        told = json.loads((path / f.DESCRIPTOR).read_bytes())["tabulae"].get(SERIES) or []
        own = [] if len(chain) == 1 else [*chain[:-1], replace(chain[-1], sha256sums=None)]
        same = [Link(**link) for link in told] == own
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    return None if same else f"{path.name}: says another series than the release that follows it"


@dataclass(frozen=True)
class Followed:
    """A release that may be followed: its mark, how it is, and the chain that ends with it."""

    mark: Mark
    kind: str
    chain: tuple[Link, ...]


_SHORT = 12  # digits of a release id that tell releases apart well enough


@checked(frozen=True, config=_STRICT)
class Rival:
    """A release that follows the same one as another release does.

    ``kind`` says how, ``"next"`` or ``"correction"``. Id, title, and ``date`` of its charge are None unless it was
    published.

    Raises:
        TypeError, ValueError: values that are not in the form that releases have.

    Privacy:
        Nothing depends on a record. A release that is not published is not named.
    """

    kind: Relation
    release_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    title: str | None = None
    date: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None = None

    def __post_init__(self) -> None:
        if len({value is None for value in (self.release_id, self.title, self.date)}) > 1:
            raise TypeError("a release that follows the same one is named in part")

    def sentence(self, kind: str) -> str:
        """What to know of it in a release that follows the same one as its ``kind``, without a full stop.

        >>> Rival("next").sentence("next").split(": ")[1]
        'the series forks here'
        """
        named = "another release that is not published yet"
        if self.release_id is not None:
            named = f"{self.title!r} ({self.release_id[:_SHORT]}), charged {self.date}"
        if self.kind == "next":
            return f"the release that this one follows is followed by {named}: the series forks here"
        if kind == "correction":
            return f"the release that this one corrects is corrected by {named}: it has two corrections"
        return f"the release that this one follows was corrected by {named}: its figures are not the last"


def rivals_of(series: Series | None, charges: Sequence[Charge], own: str | None = None) -> Iterator[Rival]:
    """The other releases that follow the same one, where readers should know of them.

    The next release of one that is corrected is none.

    Args:
        series: of the release.
        charges: of its ledger.
        own: its id, where it is charged.
    """
    if series is None:
        return
    for charge in charges:
        if charge.follows != series.follows.release_id or charge.state == "void" or charge.release_id == own:
            continue
        if charge.relation is None or not matters(series.kind, charge.relation):
            continue
        if charge.state == "published":
            yield Rival(charge.relation, charge.release_id, charge.title, charge.time[:10])
        else:
            yield Rival(charge.relation)


def matters(kind: str, other: str) -> bool:
    """Whether readers of a release that follows as ``kind`` should know of one that follows as ``other``.

    >>> matters("correction", "next"), matters("next", "correction")
    (False, True)
    """
    return kind == "next" or other == "correction"


STANDING = "ledger"
"""Where the descriptor keeps what the ledger had spent, under "tabulae"."""


@checked(frozen=True, config=_STRICT)
class Standing:
    """What a ledger had spent when a release was charged, that release included.

    ``cap`` and ``spent`` are of ``definition``. ``charges`` were made by then, ``void`` of them for runs that were
    lost. ``rivals`` are the other releases that followed the same one when this one was published.
    """

    definition: str
    cap: Mapping[str, str]
    spent: Mapping[str, str]
    charges: int
    void: int
    rivals: tuple[Rival, ...] = ()

    def __post_init__(self) -> None:
        check_loss(self.definition, self.cap)
        check_loss(self.definition, self.spent)

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> Standing | None:
        """What a descriptor says of it; None where it was written before releases said so.

        Raises:
            ReleaseError: it is not in the form that releases have.
        """
        told = about.get(STANDING)
        if told is None:
            return None
        try:
            return cls(**{**told, "rivals": tuple(Rival(**rival) for rival in told["rivals"])})
        except (KeyError, TypeError, ValueError):
            raise ReleaseError(
                f"{f.DESCRIPTOR}: what it says the ledger had spent is not in the form that releases have"
            ) from None

    @property
    def spent_loss(self) -> PrivacyLoss:
        """The sum of all charges."""
        return read_loss(self.definition, self.spent)

    @property
    def cap_loss(self) -> PrivacyLoss:
        """The most that may ever be charged."""
        return read_loss(self.definition, self.cap)


def standing_of(ledger: Ledger, release_id: str, series: Series | None) -> Standing:
    """What a ledger had spent when a release was charged, and what follows the same release by now.

    Raises:
        LedgerError: the ledger has no such release, or cannot be read.
    """
    charges = ledger.charges()
    own = next((charge for charge in charges if charge.release_id == release_id), None)
    if own is None:
        raise LedgerError(f"{ledger.path} has no release {release_id}; see `tabulae ledger show`")
    made = [charge for charge in charges if charge.sequence <= own.sequence]
    return Standing(
        ledger.definition,
        write_loss(ledger.budget),
        write_loss(sequential([charge.loss for charge in made]).loss),  # type: ignore[type-var]
        len(made),
        sum(charge.state == "void" for charge in made),
        tuple(rivals_of(series, charges, release_id)),
    )


def record_standing(
    folder: Path, spec: Spec, ledger: Ledger, release_id: str, followed: Followed | None
) -> None:
    """Write the series and what the ledger had spent into a folder that is otherwise complete, and into the ledger.

    Args:
        folder: the partial folder; its descriptor and its entries of the ledger are written anew.
        spec: of the release.
        ledger: where it was charged.
        release_id: its charge.
        followed: the release that it follows, as it was checked before the charge.

    Raises:
        LedgerError: the ledger says already that this release follows another.

    Privacy:
        As this module says: nothing of it depends on a record.
    """
    descriptor = f.read_json(folder, f.DESCRIPTOR)
    about = descriptor["tabulae"]
    if followed is not None:
        ledger.follow(release_id, followed.mark.release_id, followed.kind)
        f.write_json(folder / f.LEDGER, ledger.entries(release_id))
        chain = continued(followed.chain, followed.mark, own_link(spec, descriptor))
        about[SERIES] = chain_document(chain)
    about[STANDING] = asdict(standing_of(ledger, release_id, spec.series))
    f.write_json(folder / f.DESCRIPTOR, descriptor)


def standing_faults(spec: Spec, about: Mapping[str, Any]) -> Iterator[str]:
    """Whether what a release says of its ledger can be true, one sentence a fault."""
    try:
        told = Standing.read(about)
    except ReleaseError as error:
        yield str(error)
        return
    if told is None:
        return
    chain = about.get(SERIES) or ()
    fits = told.definition == spec.loss.definition and 0 <= told.void < told.charges
    fits = fits and max(len(chain), 1) <= told.charges - told.void
    if fits:
        least, cap = _sums(chain, spec), told.cap_loss.parameters
        fits = all(least[name] <= value <= cap[name] for name, value in told.spent_loss.parameters.items())
    if not fits:
        yield f"{f.DESCRIPTOR}: what it says the ledger had spent cannot be true"
    known = {str(about["release_id"]), *(link["release_id"] for link in chain)}
    wrong = [each for each in told.rivals if spec.series is None or not matters(spec.series.kind, each.kind)]
    if wrong or any(each.release_id in known for each in told.rivals):
        yield f"{f.DESCRIPTOR}: what it says of other releases that follow the same one cannot be true"


def _sums(chain: Sequence[Mapping[str, Any]], spec: Spec) -> dict[str, Fraction]:
    """What the releases of a chain spent, parameter by parameter."""
    losses = [read_loss(link["definition"], link["loss"]) for link in chain] or [spec.loss]
    return dict(sequential(losses).loss.parameters)  # type: ignore[type-var]
