"""What a ledger refuses before it is charged: other kinds of loss, disclosures that are missing, more than its cap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import BudgetRefused, InvalidArgument
from .definitions import WITHIN, PrivacyLoss
from .disclosure import Disclosure
from .history import View

if TYPE_CHECKING:
    from .ledger import Ledger


def check_kind(ledger: Ledger, loss: PrivacyLoss, neighbours: str, unit: str) -> None:
    """Losses of one kind alone add up.

    Raises:
        BudgetRefused: the release is of another definition, or has other neighbours or another unit.

    Privacy: none is spent; sequential composition adds losses of one kind.
    """
    for word, asked, kept in (
        ("definition", loss.definition, ledger.definition),
        ("neighbours", neighbours, ledger.neighbours),
        ("unit", unit, ledger.unit),
    ):
        if asked != kept:
            raise BudgetRefused(
                f"the release has {word} {asked!r}, the ledger {ledger.path} has {kept!r}; "
                "losses of different kinds do not add up: use a ledger of the same kind"
            )


def check_disclosures(ledger: Ledger, disclosures: Sequence[Disclosure]) -> None:
    """Neighbours that exact counts define need exact counts.

    Raises:
        InvalidArgument: something that is no disclosure, or none where neighbours are defined by them.

    Privacy: none is spent; neighbours within invariants are defined by what is disclosed (Subspace Differential
    Privacy, Proposition 2.9).
    """
    for disclosure in disclosures:
        if not isinstance(disclosure, Disclosure):
            raise InvalidArgument(f"disclosures holds a {type(disclosure).__name__}: give Disclosure objects")
    if ledger.neighbours == WITHIN and not disclosures:
        raise InvalidArgument(
            f"the ledger {ledger.path} promises that one {ledger.unit} replaced within the invariants does not show, "
            "and this release has none: state its exact counts, or use a ledger of neighbours 'replace'"
        )


def check_cap(ledger: Ledger, view: View, loss: PrivacyLoss) -> None:
    """The sum of all charges stays within the cap, exactly in fractions; delta likewise.

    Privacy: sequential composition (Bun and Steinke 2016, Lemma 1.7).

    Raises:
        BudgetRefused: the cap does not cover the loss.
    """
    for word, cap in ledger.budget.parameters.items():
        spent = view.spent_delta if word == "delta" else view.spent
        asked = loss.parameters[word]
        if spent + asked > cap:
            raise BudgetRefused(
                f"{word} {asked} is asked for and {cap - spent} of {cap} is left in {ledger.path}; "
                "ask for less, or have the budget decided anew and start another ledger"
            )
