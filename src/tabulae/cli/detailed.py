"""What `tabulae detailed check` and `tabulae detailed run` do and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import typer
from rich.table import Table as RichTable

from ..errors import InvalidArgument
from ..interop import safetab
from ..interop.safetab import Inputs, StabilityRule
from ..privacy import exact, rounded_up
from ..release.progress import Progress
from .output import emit, needs_words, open_console, print_table, progress

_WIDTH = 140
_TWO_STAGES = (
    "of the counts of stage one and two; below the state, totals up to the number given are dropped."
)
_ONE_STAGE = "of each count; tabulated: how many groups of regions the public totals list."


def check(params: Path, data: Path, stability: str, delta: str, *, households: bool, json: bool) -> None:
    """Check every input file, and say what a run would cost and how much noise it would have."""
    rule = _rule(stability)
    _delta(delta)
    with progress() as say:
        say(Progress("checking the inputs"))
        inputs = safetab.check(params, data, households=households, rule=rule, delta=delta)
        say(Progress("composing the loss"))
        _ = inputs.epsilon
    if json:
        document = safetab.promise_document(inputs)
        needs = asdict(inputs.plan.needs)
        emit(
            {
                "params": str(params),
                "data": str(data),
                **document,
                "needs": needs,
                "warnings": _warnings(inputs),
            }
        )
        return
    _warn(inputs)
    typer.echo(f"{params} and {data}: no mistakes")
    _print_promise(inputs)
    for line in needs_words(inputs.plan.needs):
        typer.echo(line)
    _print_levels(inputs)


def run(
    params: Path,
    data: Path,
    out: Path,
    ledger: Path,
    stability: str,
    delta: str,
    memory: str | None,
    *,
    households: bool,
    resume: bool,
    json: bool,
) -> None:
    """Publish the tables, and say what was published."""
    rule = _rule(stability)
    _delta(delta)
    with progress() as say:
        say(Progress("checking the inputs"))
        inputs = safetab.check(
            params, data, households=households, rule=rule, delta=delta, ledger=ledger, records=False
        )
        release = safetab.run(inputs, out, resume=resume, memory=memory, say=say)
    published = release.about["levels"]
    if json:
        document = safetab.promise_document(inputs)
        for level, found in zip(document["levels"], published, strict=True):
            rows = {"t1_rows": _t1_rows(found)} if inputs.program.two_stages else {}
            level.update(**rows, groups_by_table=found["groups_by_table"])
        head = {"release": str(release.path), "release_id": release.about["release_id"]}
        emit({**head, **document, "warnings": _warnings(inputs)})
        return
    _warn(inputs)
    typer.echo(f"Published {release.path}; its README.txt says how to read it")
    _print_promise(inputs)
    _print_levels(inputs, published)


def _t1_rows(level: Mapping[str, Any]) -> int:
    """How many groups of a level are not left out."""
    return sum(level["groups_by_table"].values()) - level["suppressed"]


def _rule(stability: str) -> StabilityRule:
    for rule in get_args(StabilityRule):
        if stability == rule:
            return rule
    allowed = " or ".join(get_args(StabilityRule))
    raise typer.BadParameter(f"{stability!r} is not one of: {allowed}", param_hint="--stability")


def _delta(delta: str) -> None:
    try:
        sound = 0 < exact(delta, "delta") < 1
    except InvalidArgument:
        sound = False
    if not sound:
        raise typer.BadParameter("give a number between 0 and 1, such as 1e-10", param_hint="--delta")


def _warnings(inputs: Inputs) -> list[dict[str, Any]]:
    return [asdict(warning) for warning in inputs.warnings]


def _warn(inputs: Inputs) -> None:
    for warning in inputs.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _print_promise(inputs: Inputs) -> None:
    plan, (epsilon, how) = inputs.plan.adaptive, inputs.epsilon
    loss = ", ".join(f"{name} {float(value):.6g}" for name, value in plan.loss.parameters.items())
    typer.echo(f"Promise   {plan.loss.definition}: {loss}, {plan.neighbours} one {plan.unit}")
    typer.echo(f"          epsilon {rounded_up(epsilon):.4g} at delta {inputs.delta}, {how}")


def _print_levels(inputs: Inputs, published: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Each level in a row: noise, margins, and what was published where that is known."""
    table = RichTable()
    two = inputs.program.two_stages
    headings = [
        "level",
        "regions",
        "groups",
        "stability",
        *(["sd 1", "sd 2"] if two else ["sd"]),
        "95% margin",
    ]
    headings += ["dropped up to"] if two else ["tabulated"]
    if published is not None:
        headings += ["T1 rows", "by table"] if two else ["by table"]
    for heading in headings:
        left = heading in ("level", "by table")
        table.add_column(
            heading, justify="left" if left else "right", overflow="fold", no_wrap=heading == "level"
        )
    for i, level in enumerate(safetab.level_documents(inputs)):
        row = [
            level["level"],
            f"{level['regions']:,}",
            f"{level['groups']:,}",
            _stability(level["stability"]),
        ]
        row += [f"{noise['sd']:,.2f}" for stage, noise in level["noise"].items() if stage != "total_only"]
        dropped = level["suppressed_up_to"]["total"]
        row += [f"{level['noise']['stage_two']['margin_95']:,}"]
        row += (
            ["-" if dropped is None else f"{dropped:,}"]
            if two
            else [f"{inputs.plan.adaptive.levels[i].places:,}"]
        )
        if published is not None:
            tables = published[i]["groups_by_table"]
            row += [f"{_t1_rows(published[i]):,}"] if two else []
            row += [", ".join(f"{n} {k:,}" for n, k in tables.items() if k)]
        table.add_row(*row)
    console = open_console(_WIDTH)
    print_table(console, table)
    console.print(
        f"stability: the most groups of a level that one {inputs.program.unit} belongs to, as the noise is sized for"
        f" (in brackets: the formula of production).\nsd, margin: {_TWO_STAGES if two else _ONE_STAGE}",
        markup=False,
        soft_wrap=True,
    )


def _stability(stability: dict[str, Any]) -> str:
    exact_sign = "" if stability["exact"] or stability["used"] != stability["proven"] else "≤"
    return f"{exact_sign}{stability['used']} ({stability['production']})"
