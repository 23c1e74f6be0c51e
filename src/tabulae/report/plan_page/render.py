"""From a plan's view to one HTML page, and onto the disk."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path

from markupsafe import Markup

from ...errors import ReleaseError
from ...release.folder import write_bytes
from ..page import environment
from . import live
from .fill import AnyPlan, plan_view
from .view import PlanView

_BEGINNING = 1 << 16
_MARK = b": plan of a release</title>"
_SCRIPT = "plan.js"
_PLAIN = ("1.000000000", "2.000000000", "5.000000000")


def plan_page(plan: AnyPlan) -> str:
    """A plan as one self-contained HTML page, the same text for the same plan.

    The page loads nothing; its one script moves the budget among those that were computed here, and without it the page
    shows the plan at its own. Every string of the plan is escaped.

    Arguments:
        plan: of tables, groups or areas.

    Returns:
        The page, ending in a newline.

    Privacy:
        Reads no record: a plan is a function of the public spec. Of the ledger it says what is left.
    """
    return render_plan(plan_view(plan))


def render_plan(view: PlanView) -> str:
    """The page of a view."""
    told = view.promise.consequences
    page = environment().get_template("plan.html")
    return (
        page.render(
            plan=view,
            promise=replace(view.promise, consequences=None if told is None else replace(told, warnings=())),
            warnings=() if told is None else told.warnings,
            live=live,
            now=live.texts(view, view.own),
            beside=_side_by_side(view),
            data=live.data(view),
            script=_script(),
            policy=_policy(),
        ).rstrip()
        + "\n"
    )


def check_target(path: str | PathLike[str]) -> Path:
    """A place where a page can be written, refused before anything is computed.

    The page of an earlier plan is replaced, no other file: a slip must cost nobody a spec, a ledger, or records.

    Raises:
        ReleaseError: it is a folder, lies in none, or is a file that is no page of a plan.
    """
    where = Path(path)
    if where.is_dir():
        raise ReleaseError(f"{where} is a folder: name the file to write, {where / 'plan.html'}, say")
    if not where.parent.is_dir():
        raise ReleaseError(f"{where}: there is no folder {where.parent}; make it first")
    if where.exists() and not where.is_file():
        raise ReleaseError(f"{where} is no ordinary file: name the file to write")
    if where.exists() and not _is_page(where):
        raise ReleaseError(
            f"{where} exists and is no page of a plan, so it is not replaced: name another file"
        )
    return where


def _is_page(path: Path) -> bool:
    """Whether a file is a page of a plan, by its beginning, or empty."""
    with path.open("rb") as file:
        start = file.read(_BEGINNING)
    return not start or (start.startswith(b"<!doctype html>") and _MARK in start)


def write_plan_page(plan: AnyPlan, path: str | PathLike[str]) -> Path:
    """Write the page of a plan, whole or not at all; the page of an earlier plan is replaced.

    Raises:
        ReleaseError: the path is a folder, lies in none, or is a file that is no page of a plan.

    Privacy:
        Reads no record: a plan is a function of the public spec.
    """
    where = check_target(path)
    real, page = where.resolve(), plan_page(plan).encode()
    try:
        write_bytes(real, page)
    except OSError:
        real.with_name(f".{real.name}.draft").unlink(missing_ok=True)
        raise
    return where


def _side_by_side(view: PlanView) -> list[int]:
    """Positions of a few budgets: 1, 2 and 5 times powers of ten, and those that matter."""
    amounts = [stop.factor if view.kind == "groups" else stop.loss.amount for stop in view.stops]
    digits = [f"{float(amount):.9e}".partition("e")[0] for amount in amounts]
    return [i for i, stop in enumerate(view.stops) if stop.kind or digits[i] in _PLAIN]


@cache
def _script() -> Markup:
    """The script that moves the budget: a file of this project, put into the page as it stands."""
    loader = environment().loader
    assert loader is not None
    text, _, _ = loader.get_source(environment(), _SCRIPT)
    return Markup(text)  # noqa: S704


@cache
def _policy() -> str:
    """A content security policy that allows this one script, by its hash, and nothing from anywhere else."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
