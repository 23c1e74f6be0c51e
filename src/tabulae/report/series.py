"""The series that a release belongs to, and what its ledger had spent in all, as the page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..privacy import PrivacyLoss
from ..release import Release
from ..release.series import Link, spent_over
from ..release.standing import Standing


@dataclass(frozen=True)
class Amount:
    """A sum of losses: what adds up (epsilon or rho), delta, and the epsilon that it implies at another delta.

    ``delta`` belongs to ``"approx"``; ``epsilon`` and ``at`` to ``"zcdp"``, where the spec gives a delta.
    """

    value: Fraction
    delta: Fraction | None = None
    epsilon: float | None = None
    at: Fraction | None = None


@dataclass(frozen=True)
class SeriesRow:
    """One release of the chain; ``how`` it follows the one before, in words, empty for the first."""

    title: str
    release_id: str
    made: str
    how: str
    reason: str | None
    amount: Amount


@dataclass(frozen=True)
class StandingView:
    """What a ledger had spent when the release was charged, and the chain of releases that it ends.

    ``charges`` were made by then, the release among them, ``void`` of them for runs that were lost. ``rows`` are the
    chain, oldest first, and ``chain`` is what it spent; a release that follows none has neither. ``corrects`` says that
    the release stands in the place of the one before, ``corrected`` that some release of the chain does.
    ``rivals`` are sentences on other releases that follow the same one.
    """

    spent: Amount
    cap: Amount
    charges: int
    void: int
    rows: tuple[SeriesRow, ...] = ()
    chain: Amount | None = None
    corrects: bool = False
    corrected: bool = False
    rivals: tuple[str, ...] = ()

    @property
    def before(self) -> SeriesRow:
        """The release that this one follows."""
        return self.rows[-2]


_HOW = {"next": "next", "correction": "corrects the one before"}


def standing_view(release: Release) -> StandingView | None:
    """What the page shows of ledger and series; None for a release that was made before releases said so.

    Raises:
        ReleaseError: what the ledger had spent is not written as releases have it.
    """
    told = Standing.read(release.about)
    if told is None:
        return None
    at = release.spec.delta
    spent, cap = _amount(told.spent_loss, at), _amount(told.cap_loss, None)
    series = release.spec.series
    if series is None:
        return StandingView(spent, cap, told.charges, told.void)
    chain = release.series
    return StandingView(
        spent,
        cap,
        told.charges,
        told.void,
        rows=tuple(_row(link) for link in chain),
        chain=_amount(spent_over(chain), at),
        corrects=chain[-1].kind == "correction",
        corrected=any(link.kind == "correction" for link in chain),
        rivals=tuple(rival.sentence(series.kind) for rival in told.rivals),
    )


def _row(link: Link) -> SeriesRow:
    how = "" if link.kind is None else _HOW[link.kind]
    return SeriesRow(link.title, link.release_id, link.created, how, link.reason, _amount(link.spent, None))


def _amount(loss: PrivacyLoss, at: Fraction | None) -> Amount:
    if loss.definition != "zcdp" or at is None:
        return Amount(loss.amount, loss.parameters.get("delta"))
    return Amount(loss.amount, epsilon=loss.epsilon(at), at=at)
