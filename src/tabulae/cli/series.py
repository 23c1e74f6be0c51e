"""What commands print of series of releases, and of what their ledger has spent in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ..privacy import PrivacyLoss, read_loss
from ..release import Release
from ..release.predecessor import Outlook, missing_words, outlook, refusals
from ..release.series import Found, Standing, beside, spent_over
from ..spec import Series, Spec
from .output import epsilon_words, print_table

_SHORT = 12  # digits of a release id that tell releases apart well enough
_HOW = {None: "the first", "next": "next", "correction": "corrects it"}


def found_beside(release: Release) -> tuple[Found, ...]:
    """The releases that one follows, as they are found beside it."""
    return beside(release.path, release.series)


def release_document(release: Release, found: Sequence[Found] | None) -> dict[str, Any]:
    """Series and ledger of a release, for machines; of one whose files are altered (``found`` is None) neither."""
    if found is None:
        return {"series": None, "ledger": None}
    standing = Standing.read(release.about)
    places: list[str | None] = [each.name for each in found]
    return {
        "series": [
            {**asdict(link), "beside": name}
            for link, name in zip(release.series, [*places, release.path.resolve().name], strict=False)
        ],
        "ledger": None if standing is None else asdict(standing),
    }


def print_release(console: Console, release: Release, found: Sequence[Found]) -> None:
    """Series and ledger of a release, for people."""
    if found:
        print_table(console, _chain_table(release, found))
        together = spent_over(release.series)
        console.print(
            f"Together  {_amount(together)}{epsilon_words(together, release.spec.delta)}",
            markup=False,
            soft_wrap=True,
        )
    if (standing := Standing.read(release.about)) is None:
        return
    for rival in standing.rivals:
        told = rival.sentence("next" if release.spec.series is None else release.spec.series.kind)
        console.print(f"Warning   {told}", markup=False, soft_wrap=True)
    void = f", {standing.void} of them void" if standing.void else ""
    charges = "1 charge" if standing.charges == 1 else f"{standing.charges} charges{void}"
    spent = f"{_amount(standing.spent_loss)} of {_values(standing.cap)} spent with this release, in {charges}"
    console.print(
        f"Ledger    {spent}{epsilon_words(standing.spent_loss, release.spec.delta)}",
        markup=False,
        soft_wrap=True,
    )


def _chain_table(release: Release, found: Sequence[Found]) -> RichTable:
    table = RichTable(title="Series, oldest first", title_justify="left")
    for heading in ("release", "made", "follows as", "loss", "stands in"):
        table.add_column(heading, overflow="fold")
    places = [each.name or "not found beside it" for each in found] + [release.path.resolve().name]
    for link, place in zip(release.series, places, strict=True):
        how = _HOW[link.kind] + (f": {link.reason}" if link.reason else "")
        title = Text(f"{link.title} ({link.release_id[:_SHORT]})")
        table.add_row(title, link.created[:10], Text(how), _values(link.loss), Text(place))
    return table


def check_words(spec: Spec) -> str:
    """What a spec follows, at the end of a line."""
    return "" if spec.series is None else f"; {_follows(spec.series)}"


def ledger_words(spec: Spec) -> Iterator[str]:
    """What is to be done about the ledger of a spec, in lines: nothing where it is there and would pay."""
    if (missing := missing_words(spec)) is not None:
        yield f"Ledger    {missing}"
    for refusal in refusals(spec):
        yield f"Warning   a run would be refused: {refusal}"


def plan_document(spec: Spec) -> dict[str, Any]:
    """Series and ledger of a plan, for machines."""
    told, series = outlook(spec), spec.series
    ledger = {key: getattr(told, key) for key in ("definition", "cap", "spent", "after", "charges")}
    chain = [] if told.followed is None else [asdict(link) for link in told.followed.chain]
    return {
        "series": None if series is None else {**series.record(), "chain": chain},
        "ledger": None if told.cap is None else {**ledger, "warnings": list(told.warnings)},
    }


def print_plan(console: Console, spec: Spec) -> None:
    """Series and ledger of a plan, for people."""
    for line in _plan_lines(spec, outlook(spec)):
        console.print(line, markup=False, soft_wrap=True)


def _plan_lines(spec: Spec, told: Outlook) -> Iterator[str]:
    if spec.series is not None:
        named = f" ({told.followed.chain[-1].title})" if told.followed else ""
        why = f". Why: {spec.series.reason}" if spec.series.reason else ""
        yield f"Series    {_follows(spec.series)}{named}{why}"
    comparable = told.definition == spec.loss.definition  # or nothing adds up, as a warning says
    if comparable and told.cap is not None and told.spent is not None and told.after is not None:
        charges = "1 charge" if told.charges == 1 else f"{told.charges} charges"
        words = f"{_values(told.spent)} of {_values(told.cap)} spent in {charges} so far"
        after = f"{_values(told.after)} after this{epsilon_words(read_loss(told.definition, told.after), spec.delta)}"
        yield f"Ledger    {words}; {after}"
    if (missing := missing_words(spec)) is not None:
        yield f"Ledger    {missing}"
    for warning in told.warnings:
        yield f"Warning   {warning}"


def _follows(series: Series) -> str:
    words = {"next": "follows release", "correction": "corrects release"}
    return f"{words[series.kind]} {series.follows.release_id}"


def _amount(loss: PrivacyLoss) -> str:
    return ", ".join(f"{name} {value}" for name, value in loss.parameters.items())


def _values(loss: Mapping[str, str]) -> str:
    return ", ".join(loss.values())
