"""What a page says of the promise: losses, what is exact, the ledger, and the series that a release belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ..domain import Workload
from ..privacy import Neighbours, PrivacyLoss
from ..release import Release
from ..release.series import Link, Standing, spent_over
from ..spec import Spec
from ..spec.promise import POSTERIOR


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
        return self.rows[-2]


_HOW = {"next": "next", "correction": "corrects the one before"}


def standing_view(release: Release) -> StandingView | None:
    """What the page shows of ledger and series; None for a release that was made before releases said so."""
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


Definition = Literal["pure", "approx", "zcdp"]


@dataclass(frozen=True)
class EpsilonStatement:
    """One statement of (epsilon, delta) that the promise implies."""

    delta: float
    epsilon: float


@dataclass(frozen=True)
class ExactView:
    """One set of counts published exactly, and why: the promise does not cover what these alone reveal.

    ``counts`` is how many there are and ``file`` where they stand, None for those of an earlier release.
    """

    what: str
    reason: str
    counts: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Consequences:
    """What follows from the counts that are exact, in this release and together with earlier ones of its ledger.

    ``stated`` counts are exact and ``independent`` of them say all that they say. ``published`` holds for each table
    with exact rows its name, how many they are, and how many rows it has. ``earlier`` were stated exactly by earlier
    releases; ``joint`` is how many independent counts are exact with those. ``unprotected`` are attributes that the
    promise leaves out where neighbours are bound by the exact counts. ``warnings`` are sentences to be read.
    """

    stated: int
    independent: int
    published: tuple[tuple[str, int, int], ...] = ()
    earlier: tuple[ExactView, ...] = ()
    joint: int | None = None
    unprotected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PromiseView:
    """The promise of a release.

    ``parameter`` is epsilon for ``"pure"`` and ``"approx"``, rho for ``"zcdp"``; ``delta`` belongs to
    ``"approx"``. ``statements`` are the (epsilon, delta) that follow, the one to quote first. ``unit`` is
    what one neighbour differs by; ``rows_per_unit`` how many records of each are counted at most, None where
    every record was taken for a unit by itself; ``where`` says which records are counted, None for all. ``exact``
    counts stand outside the promise; ``consequences`` says what follows from them. ``one_sided``: estimates are kept
    from falling below zero. ``left_out`` says how many records are in no table, where the release tells. ``earlier``
    are sentences on counts that equal those of an earlier release.
    """

    definition: Definition
    parameter: Fraction
    neighbours: Neighbours
    unit: str
    delta: Fraction | None = None
    statements: tuple[EpsilonStatement, ...] = ()
    exact: tuple[ExactView, ...] = ()
    consequences: Consequences | None = None
    rehearsal: bool = False
    rows_per_unit: int | None = None
    one_sided: bool = False
    where: str | None = None
    left_out: str = ""
    earlier: tuple[str, ...] = ()


def consequences_of(exact: Mapping[str, Any], workload: Workload) -> Consequences:
    """What follows from exact counts, of the document of :class:`~tabulae.products.tables.exactness.Exactness`."""
    rows = {table.name: table.rows(workload.domain) for table in workload.tables}
    return Consequences(
        exact["stated"],
        exact["independent"],
        tuple((name, count, rows[name]) for name, count in exact["published"].items()),
        tuple(ExactView(f"{e['name']} ({e['release']})", e["reason"]) for e in exact["earlier"]),
        exact["joint"],
        tuple(exact["unprotected"]),
        tuple(exact["warnings"]),
    )


MORE_DELTAS = (Fraction(1, 10**9), Fraction(1, 10**6))
"""Deltas at which a concentrated promise is stated beside the spec's own."""


def statements_of(spec: Spec) -> tuple[EpsilonStatement, ...]:
    """What a concentrated promise implies at the spec's delta, and at others; nothing without that."""
    if spec.loss.definition != "zcdp" or spec.delta is None:
        return ()
    deltas = dict.fromkeys((spec.delta, *MORE_DELTAS))
    return tuple(EpsilonStatement(float(delta), spec.loss.epsilon(delta)) for delta in deltas)


def promise_of(
    spec: Spec,
    loss: PrivacyLoss | None = None,
    *,
    statements: tuple[EpsilonStatement, ...] = (),
    exact: Iterable[ExactView] = (),
    consequences: Consequences | None = None,
    left_out: str = "",
) -> PromiseView:
    """The promise of a spec, with its own loss or another."""
    loss = spec.loss if loss is None else loss
    return PromiseView(
        loss.definition,  # type: ignore[arg-type]
        loss.amount,
        spec.neighbours,
        spec.unit,
        loss.parameters.get("delta"),
        statements,
        exact=tuple(exact),
        consequences=consequences,
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
        one_sided=spec.method.estimate in ("non-negative", POSTERIOR),
        where=spec.source.where and spec.source.where.text,
        left_out=left_out,
        earlier=tuple(each.words for each in spec.earlier),
    )


@dataclass(frozen=True)
class LedgerLine:
    """One charge of this release, as its ledger recorded it; ``amount`` is in the unit of the promise."""

    when: str
    what: str
    amount: Fraction
    digest: str = ""


def ledger_lines(entries: Sequence[Mapping[str, Any]]) -> tuple[LedgerLine, ...]:
    """The charges among the entries.

    >>> entry = {"kind": "charge", "time": "2026-01-01", "title": "x", "loss": {"rho": "1/2"}, "hash": "ab"}
    >>> ledger_lines([entry])[0].amount
    Fraction(1, 2)
    """
    return tuple(_line(entry) for entry in entries if entry["kind"] == "charge")


def _line(entry: Mapping[str, Any]) -> LedgerLine:
    amount = next(value for key, value in entry["loss"].items() if key != "delta")
    return LedgerLine(str(entry["time"]), str(entry["title"]), Fraction(amount), str(entry["hash"]))
