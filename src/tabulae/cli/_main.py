"""The command line: demo | init | plan | studio | run | report | check | query | changes | convert |
audit | ledger | detailed.

Results go to stdout (``--json`` for machines), progress and trouble to stderr. Exit codes: 0 done, 1 bad spec,
data, release or file system, 2 usage, 3 budget refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Problem, TabulaeError

app = typer.Typer(
    name="tabulae",
    help="Publish statistical tables from confidential records under differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(help="Create a ledger, or show what was spent of it.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
detailed_app = typer.Typer(
    help="Detailed groups by region from the Bureau's files (SafeTab-P): its folders in, T1 and T2 out.",
    no_args_is_help=True,
)
app.add_typer(detailed_app, name="detailed")


def _words(*words: str) -> Callable[[str], list[str]]:
    """Completes an option that takes one of some words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


Resume = Annotated[bool, typer.Option("--resume", help="Finish an interrupted run, without a second draw.")]
Memory = Annotated[
    str | None,
    typer.Option(help="The most memory that the run may take, such as 8GB.", metavar="SIZE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Confidential = Annotated[
    bool,
    typer.Option(
        "--show-confidential", help="Add confidential values and counts to error messages, on stderr."
    ),
]
Params = Annotated[
    Path, typer.Argument(help="The folder with config.json and the four maps.", show_default=False)
]
Data = Annotated[
    Path, typer.Argument(help="The folder with GRF-C.txt and person-records.txt.", show_default=False)
]
Households = Annotated[
    bool,
    typer.Option(
        "--households", help="Count households: household-records.txt, by the totals of pop-group-totals.txt."
    ),
]
Stability = Annotated[
    str,
    typer.Option(
        help="Size the noise for the `proven` most groups of a person, or by the formula of `production`.",
        autocompletion=_words("proven", "production"),
    ),
]
Delta = Annotated[str, typer.Option(help="Say which epsilon holds at this delta.")]
_CURES = (
    (FileNotFoundError, ": check the path"),
    (PermissionError, ": ask its owner for the right to, or name another place"),
    (IsADirectoryError, ": name a file in it"),
    (NotADirectoryError, ": a part of the path is a file; name a folder"),
)

RowsPath = Annotated[
    Path | None,
    typer.Option(help="A file for all rows: .csv, .parquet or .xlsx; it must not exist.", show_default=False),
]
SpecPath = Annotated[Path, typer.Argument(help="The release document (TOML).", show_default=False)]


def _version(wanted: bool) -> None:
    if wanted:
        from .._version import VERSION

        typer.echo(f"tabulae {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Publish statistical tables from confidential records under differential privacy."""


def _guard(action: Callable[[], None], *, json: bool, show_confidential: bool = False) -> None:
    """Run a command; say what went wrong without a traceback, and exit with its code."""
    try:
        action()
    except TabulaeError as error:
        _say(str(error), error.exit_code, getattr(error, "problems", []), json=json)
        if show_confidential and error.confidential:
            typer.echo(f"confidential: {error.confidential}", err=True)
        elif error.confidential:
            typer.echo("(--show-confidential adds the values and counts concerned)", err=True)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        cure = next((words for kind, words in _CURES if isinstance(error, kind)), "")
        _say(f"{where}{error.strerror or error}{cure}", 1, [], json=json)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("tabulae: interrupted", err=True)
        raise typer.Exit(1) from None


def _say(message: str, code: int, problems: Sequence[Problem], *, json: bool) -> None:
    """What went wrong: on stderr for people, under --json also on stdout for machines."""
    if json:
        from json import dumps

        told = [{"path": p.path, "line": p.line, "column": p.column, "message": p.message} for p in problems]
        document = {"error": message, "exit_code": code, **({"problems": told} if told else {})}
        typer.echo(dumps(document, indent=1))
    typer.echo(f"tabulae: {message}", err=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")] = Path("demo"),
    people: Annotated[int, typer.Option(min=1, help="Size of the invented population.")] = 200_000,
    json: Json = False,
) -> None:
    """Make a real release from an invented population, and say where to look."""
    from . import commands

    _guard(lambda: commands.demo(out, people, json), json=json)


@app.command()
def init(
    place: Annotated[
        str,
        typer.Argument(
            help="The records: a CSV, Parquet or DuckDB file, a folder of Parquet files, or a PostgreSQL url.",
            show_default=False,
            metavar="FILE",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The spec to write; it must not exist.")] = Path("spec.toml"),
    peek: Annotated[
        bool, typer.Option("--peek", help="Read the records, too, and draft domains from their values.")
    ] = False,
    table: Annotated[str | None, typer.Option(help="The table, in a database of several.")] = None,
    json: Json = False,
    show_confidential: Confidential = False,
) -> None:
    """Draft a spec from what a file declares of its columns; reads no record unless asked to."""
    from . import prepare

    _guard(
        lambda: prepare.init(place, out, peek, table, json),
        json=json,
        show_confidential=show_confidential,
    )


@app.command()
def plan(
    spec: SpecPath,
    save: Annotated[Path | None, typer.Option(help="Write the chosen strategy, for `run --plan`.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page on which the budget can be moved, for a browser.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Proven gap in squared error at which the search ends, in place of the spec's."),
    ] = None,
    json: Json = False,
) -> None:
    """Show every table's expected error and margin before any data is opened."""
    from . import prepare

    _guard(lambda: prepare.plan(spec, save, json, html, tolerance), json=json)


@app.command()
def studio(
    place: Annotated[
        str,
        typer.Argument(
            help="A spec; records to draft one for: a file, a folder of Parquet files, or a PostgreSQL url; or a "
            "folder of any of these.",
            show_default=False,
        ),
    ] = ".",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
) -> None:
    """Design a release on a local page: a form, the spec, and its plan."""
    _guard(lambda: _serve(place, port), json=False)


def _serve(place: str, port: int) -> None:
    """Print the address of the studio, and answer until Ctrl-C."""
    from ..sources.source import is_url
    from ..studio import Studio

    desk = Studio(place, port)
    try:
        if not is_url(place) and not Path(place).exists():
            typer.echo(f"{place} is not there: a new spec is begun, and Save makes the file.", err=True)
        typer.echo(f"Open {desk.url}")
        typer.echo("It is for you alone: the address holds a token. Ctrl-C stops the studio.", err=True)
        desk.serve()
    except KeyboardInterrupt:
        typer.echo("Stopped. A run that was under way goes on by itself.", err=True)
    finally:
        desk.close()


@app.command()
def run(
    spec: SpecPath,
    out: Annotated[
        Path, typer.Option(help="The release folder to write; it must not exist.", show_default=False)
    ],
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Use the strategy of a saved plan.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Read the records from this file, or postgresql:// or s3:// url, instead.", metavar="PLACE"
        ),
    ] = None,
    resume: Resume = False,
    memory: Memory = None,
    json: Json = False,
    show_confidential: Confidential = False,
) -> None:
    """Count, spend the budget once, publish: the records become a release folder."""
    from . import commands

    _guard(
        lambda: commands.run(spec, out, plan_file, source, resume, memory, json),
        json=json,
        show_confidential=show_confidential,
    )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A release folder.", show_default=False)], json: Json = False
) -> None:
    """Rebuild report.html from a release folder."""
    from . import commands

    _guard(lambda: commands.report(folder, json), json=json)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A spec, or a release folder.", show_default=False)],
    json: Json = False,
) -> None:
    """Validate a spec (all its mistakes at once), or verify a release."""
    from . import commands

    _guard(lambda: commands.check(path, json), json=json)


@app.command()
def query(
    folder: Annotated[Path, typer.Argument(help="A release folder.", show_default=False)],
    sql: Annotated[
        str, typer.Argument(help="SELECT COUNT(*) FROM t WHERE ... GROUP BY ...", show_default=False)
    ],
    areas: Annotated[
        list[str] | None,
        typer.Option(help="Of a release of areas: a level or an entity to answer for; again for more."),
    ] = None,
    code: Annotated[
        list[str] | None,
        typer.Option(help="The code of one area that is wanted; again for more.", show_default=False),
    ] = None,
    out: RowsPath = None,
    json: Json = False,
) -> None:
    """Answer a count with its interval from a release, at no privacy cost."""
    from . import commands

    _guard(lambda: commands.query(folder, sql, areas or [], code or [], out, json), json=json)


@app.command()
def changes(
    earlier: Annotated[Path, typer.Argument(help="The earlier release folder.", show_default=False)],
    later: Annotated[Path, typer.Argument(help="The later release folder.", show_default=False)],
    table: Annotated[
        str | None, typer.Option(help="The table; by default all that both publish.", show_default=False)
    ] = None,
    out: RowsPath = None,
    json: Json = False,
) -> None:
    """Show how counts changed from a release to a later one, with intervals, at no privacy cost."""
    from . import commands

    _guard(lambda: commands.changes(earlier, later, table, out, json), json=json)


@app.command()
def convert(
    folder: Annotated[Path, typer.Argument(help="A release folder.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help="csv, sdmx-csv, json-stat or xlsx.",
            show_default=False,
            autocompletion=_words("csv", "sdmx-csv", "json-stat", "xlsx"),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write; it must not exist. By default RELEASE-FORMAT, beside it."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a release's tables in another format, into a folder of their own."""
    from . import commands

    _guard(lambda: commands.convert(folder, to, out, json), json=json)


@app.command()
def audit(
    spec: SpecPath,
    seconds: Annotated[
        float, typer.Option(help="How long to try to tell neighbours apart by their measurements.")
    ] = 20.0,
    json: Json = False,
) -> None:
    """Check on invented records that the code keeps the spec's promise; reads no data, spends nothing."""
    from . import commands

    _guard(lambda: commands.audit(spec, seconds, json), json=json)


@ledger_app.command("init")
def ledger_init(
    path: Annotated[Path, typer.Argument(help="The ledger file to create.", show_default=False)],
    budget: Annotated[
        str, typer.Option(help='The cap: epsilon or rho, exact ("3", "1/2").', show_default=False)
    ],
    definition: Annotated[
        str,
        typer.Option(
            help="pure, approx or zcdp.", show_default=False, autocompletion=_words("pure", "approx", "zcdp")
        ),
    ],
    neighbours: Annotated[
        str,
        typer.Option(
            help="add-remove, replace, replace-within-invariants, record-free or record-derived.",
            autocompletion=_words(
                "add-remove", "replace", "replace-within-invariants", "record-free", "record-derived"
            ),
        ),
    ] = "add-remove",
    unit: Annotated[str, typer.Option(help="What one neighbour differs by.")] = "person",
    delta: Annotated[str | None, typer.Option(help="The cap on delta (approx only).")] = None,
    json: Json = False,
) -> None:
    """Create a ledger with its cap; kind and cap never change."""
    from . import prepare

    _guard(
        lambda: prepare.ledger_init(path, budget, definition, neighbours, unit, delta, json=json), json=json
    )


@ledger_app.command("show")
def ledger_show(
    path: Annotated[Path, typer.Argument(help="The ledger file.", show_default=False)], json: Json = False
) -> None:
    """Show the budget and every entry."""
    from . import prepare

    _guard(lambda: prepare.ledger_show(path, json=json), json=json)


@detailed_app.command("check")
def detailed_check(
    params: Params,
    data: Data,
    households: Households = False,
    stability: Stability = "proven",
    delta: Delta = "1e-10",
    json: Json = False,
    show_confidential: Confidential = False,
) -> None:
    """Check every file of a run, all mistakes at once; spends and publishes nothing."""
    from . import detailed as commands_detailed

    _guard(
        lambda: commands_detailed.check(params, data, stability, delta, households=households, json=json),
        json=json,
        show_confidential=show_confidential,
    )


@detailed_app.command("run")
def detailed_run(
    params: Params,
    data: Data,
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.", show_default=False)],
    ledger: Annotated[Path, typer.Option(help="The ledger that pays for it.", show_default=False)],
    households: Households = False,
    stability: Stability = "proven",
    delta: Delta = "1e-10",
    memory: Memory = None,
    resume: Resume = False,
    json: Json = False,
    show_confidential: Confidential = False,
) -> None:
    """Check, spend the budget once, and publish T1 and T2, or T3 and T4, with their errors."""
    from . import detailed as commands_detailed

    _guard(
        lambda: commands_detailed.run(
            params,
            data,
            out,
            ledger,
            stability,
            delta,
            memory,
            households=households,
            resume=resume,
            json=json,
        ),
        json=json,
        show_confidential=show_confidential,
    )


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of the ``tabulae`` command."""
    given = sys.argv[1:] if arguments is None else arguments
    if not {"--install-completion", "--show-completion"}.isdisjoint(given):
        _need_a_shell()
    return app(args=given, prog_name="tabulae")


def _need_a_shell() -> None:
    """Say how completion is had where no shell started this process, as under cron."""
    import shellingham

    try:
        shellingham.detect_shell()
    except shellingham.ShellDetectionFailure:
        sys.stderr.write(
            "No shell was found that started this command. Name one: `_TABULAE_COMPLETE=source_bash tabulae` prints "
            "the script of bash; write source_zsh, source_fish or source_powershell for that of another.\n"
        )
        sys.exit(1)
