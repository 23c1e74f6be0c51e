"""The chain of releases that a release belongs to: each follows the one before, as the next or as its correction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..privacy import RELATIONS, PrivacyLoss, read_loss, sequential, write_loss
from ..spec import Spec
from ..spec.marks import Mark, mark_of
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


@dataclass(frozen=True)
class Link:
    """One release of a chain.

    ``kind`` says how it follows the one before, ``"next"`` or ``"correction"``, and ``reason`` why; both are None for
    the first. ``loss`` is what it spent. ``sha256sums`` is the digest of its checksums
    (:func:`tabulae.spec.marks.digest_of_sums`); None for the last, whose own folder says the chain.
    """

    release_id: str
    title: str
    created: str
    kind: str | None
    reason: str | None
    definition: str
    loss: Mapping[str, str]
    sha256sums: str | None = None

    @classmethod
    def read(cls, told: object) -> Link:
        """A release of a chain as a descriptor has it.

        Raises:
            TypeError: it is not in the form that releases have.
        """
        if not isinstance(told, Mapping):
            raise TypeError("a release of a series is no table of its keys")
        link = cls(**told)
        texts = (link.release_id, link.title, link.created, link.definition)
        perhaps = (link.reason, link.sha256sums)
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(text is None or isinstance(text, str) for text in perhaps)
            or link.kind not in (None, *RELATIONS)
        ):
            raise TypeError("a release of a series says something in another form than releases do")
        check_loss(link.definition, link.loss)
        return link

    @property
    def spent(self) -> PrivacyLoss:
        """What the release spent."""
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
        KeyError, TypeError: the descriptor holds no chain in this form.
    """
    told = descriptor["tabulae"].get(SERIES)
    return (own_link(spec, descriptor),) if told is None else tuple(Link.read(link) for link in told)


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
    """Whether chain, spec, ledger entries and what the ledger had spent agree within one folder, one sentence a fault.

    Args:
        spec: as published.
        descriptor: of the folder.
        entries: the release's entries of the ledger.
    """
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

    Args:
        folder: of the last release.
        chain: as it states it.
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
    return tuple(_found(chain[: i + 1], copies[link.release_id]) for i, link in enumerate(chain[:-1]))


def _found(chain: Sequence[Link], copies: Sequence[Path]) -> Found:
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
        same = [Link.read(link) for link in told] == ([] if len(chain) == 1 else [*chain[:-1], _last(chain)])
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    return None if same else f"{path.name}: says another series than the release that follows it"


def _last(chain: Sequence[Link]) -> Link:
    """The last of a part of a chain as it stands in its own folder."""
    return replace(chain[-1], sha256sums=None)
