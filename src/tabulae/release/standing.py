"""What a ledger had spent in all when a release was charged, and which releases it follows: recorded in its folder.

Privacy:
    Sums, caps and ids follow from decisions of the curator, which are taken before records are read: what a spec asks
    for, and how often something is run. Charges of runs that were lost are among the sums, because composition covers
    them, whether or not anybody saw their noise. A release that is refused because of its records was not charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import LedgerError, ReleaseError
from ..privacy import (
    Ledger,
    PrivacyLoss,
    read_loss,
    sequential,
    write_loss,
)
from ..spec import Series, Spec
from . import folder as f
from .predecessor import Followed
from .rivals import (
    Rival,
    matters,
    rivals_of,
)
from .series import (
    SERIES,
    chain_document,
    check_loss,
    continued,
    own_link,
)

STANDING = "ledger"
"""Where the descriptor keeps what the ledger had spent, under "tabulae"."""


@dataclass(frozen=True)
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
            if not isinstance(told, Mapping) or not isinstance(told.get("rivals"), list | tuple):
                raise TypeError("it is no table of its keys")
            standing = cls(**{**told, "rivals": tuple(map(Rival.read, told["rivals"]))})
            check_loss(standing.definition, standing.cap)
            check_loss(standing.definition, standing.spent)
            if type(standing.charges) is not int or type(standing.void) is not int:
                raise TypeError("a number of charges is a whole one")
        except (TypeError, ValueError):
            raise ReleaseError(
                f"{f.DESCRIPTOR}: what it says that the ledger had spent is not in the form that releases have"
            ) from None
        return standing

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
    """Whether what a release says of its ledger can be true, one sentence a fault.

    Args:
        spec: as published.
        about: what its descriptor says of the release; its series has no fault.
    """
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
        yield f"{f.DESCRIPTOR}: what it says that the ledger had spent cannot be"
    known = {str(about["release_id"]), *(link["release_id"] for link in chain)}
    wrong = [each for each in told.rivals if spec.series is None or not matters(spec.series.kind, each.kind)]
    if wrong or any(each.release_id in known for each in told.rivals):
        yield f"{f.DESCRIPTOR}: what it says of other releases that follow the same one cannot be"


def _sums(chain: Sequence[Mapping[str, Any]], spec: Spec) -> dict[str, Fraction]:
    """What the releases of a chain spent, parameter by parameter."""
    losses = [read_loss(link["definition"], link["loss"]) for link in chain] or [spec.loss]
    return dict(sequential(losses).loss.parameters)  # type: ignore[type-var]
