"""What `tabulae detailed check` and `tabulae detailed run` do and print."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import typer
from rich.table import Table as RichTable

from ..errors import InvalidArgument, Problem
from ..interop import safetab
from ..interop.safetab import Done, Epsilon, Inputs, StabilityRule
from ..privacy import exact, rounded_up
from .output import emit, open_console, print_table, progress

_WIDTH = 140


def check(params: Path, data: Path, stability: str, delta: str, *, json: bool) -> None:
    """Check every input file, and say what a run would cost and how much noise it would have."""
    rule = _rule(stability)
    _delta(delta)
    with progress() as say:
        say("checking the inputs")
        inputs = safetab.check(params, data, rule=rule)
        say("composing the loss")
        stated = safetab.epsilon_at(inputs.tabulation.plan, delta)
    if json:
        document = safetab.promise_document(inputs.tabulation, stated)
        emit({"params": str(params), "data": str(data), **document, "warnings": _warnings(inputs)})
        return
    _warn(inputs)
    typer.echo(f"{params} and {data}: no mistakes")
    _print_promise(inputs, stated)
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
    json: bool,
) -> None:
    """Publish the tables, and say what was published."""
    rule = _rule(stability)
    _delta(delta)
    lost: list[Problem] = []

    def warn(problem: Problem) -> None:
        lost.append(problem)
        typer.echo(f"warning: {problem}", err=True)

    with progress() as say:
        done = safetab.run(
            params, data, out, ledger, rule=rule, delta=delta, say=say, warn=warn, memory=memory
        )
    if json:
        document = safetab.promise_document(done.inputs.tabulation, done.epsilon)
        for level, found in zip(document["levels"], done.summary.document(), strict=True):
            level.update(found)
        head = {"release": str(done.path), "release_id": done.release_id}
        emit({**head, **document, "warnings": [*map(_problem, lost), *_warnings(done.inputs)]})
        return
    _warn(done.inputs)
    typer.echo(f"Published {done.path}; its README.txt says how to read it")
    _print_promise(done.inputs, done.epsilon)
    _print_levels(done.inputs, done)


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
    return [_problem(warning) for warning in inputs.warnings]


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
    }


def _warn(inputs: Inputs) -> None:
    for warning in inputs.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _print_promise(inputs: Inputs, stated: Epsilon) -> None:
    plan = inputs.tabulation.plan
    loss = ", ".join(f"{name} {float(value):.6g}" for name, value in plan.loss.parameters.items())
    typer.echo(f"Promise   {plan.loss.definition}: {loss}, {plan.neighbours} one {plan.unit}")
    typer.echo(f"          epsilon {rounded_up(stated.epsilon, 6):.6g} at delta {stated.delta}, {stated.how}")


def _print_levels(inputs: Inputs, done: Done | None = None) -> None:
    """Each level in a row: noise, margins, and what was published where that is known."""
    table = RichTable()
    headings = ["level", "regions", "groups", "stability", "sd 1", "sd 2", "95% margin", "dropped up to"]
    if done is not None:
        headings += ["T1 rows", "by table"]
    for heading in headings:
        left = heading in ("level", "by table")
        table.add_column(
            heading, justify="left" if left else "right", overflow="fold", no_wrap=heading == "level"
        )
    found = None if done is None else done.summary.document()
    for i, level in enumerate(safetab.level_documents(inputs.tabulation)):
        row = [
            level["level"],
            f"{level['regions']:,}",
            f"{level['groups']:,}",
            _stability(level["stability"]),
        ]
        row += [f"{level['noise'][stage]['sd']:,.2f}" for stage in ("stage_one", "stage_two")]
        dropped = level["suppressed_up_to"]["total"]
        row += [f"{level['noise']['stage_two']['margin_95']:,}", "-" if dropped is None else f"{dropped:,}"]
        if found is not None:
            tables = found[i]["groups_by_table"]
            row += [f"{found[i]['t1_rows']:,}", ", ".join(f"{n} {k:,}" for n, k in tables.items() if k)]
        table.add_row(*row)
    console = open_console(_WIDTH)
    print_table(console, table)
    console.print(
        "stability: the most groups of a level that one person belongs to, as the noise is sized for"
        " (in brackets: the formula of production).\nsd, margin: of the counts of stage one and two; below"
        " the state, totals up to the number given are dropped.",
        markup=False,
        soft_wrap=True,
    )


def _stability(stability: dict[str, Any]) -> str:
    exact_sign = "" if stability["exact"] or stability["used"] != stability["proven"] else "≤"
    return f"{exact_sign}{stability['used']} ({stability['production']})"
