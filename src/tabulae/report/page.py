"""Templates of all pages: their filters, the one script, and what keeps any other from running."""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache

import jinja2
from markupsafe import Markup, escape

from ..privacy import rounded_up
from . import numbers
from .rows import shortened

_SCRIPT = "tables.js"
_DESCRIPTION = 400  # characters of a table in words; SQL may be longer


@cache
def environment() -> jinja2.Environment:
    """Templates and filters of all pages."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tabulae.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
    )
    environment.filters.update(
        fixed=numbers.fixed,
        significant=numbers.significant,
        breakable=lambda name: escape(name).replace("_", Markup("_<wbr>")),
        fraction=numbers.fraction,
        decimal=numbers.decimal,
        share=numbers.share,
        moment=numbers.moment,
        rounded_up=rounded_up,
        shortened=lambda text: shortened(text, _DESCRIPTION),
        exp=lambda value: math.exp(min(float(value), 700.0)),
    )
    return environment


@cache
def script() -> Markup:
    """The script that sorts and filters tables: a file of this project, put into the page as it stands."""
    loader = environment().loader
    assert loader is not None
    text, _, _ = loader.get_source(environment(), _SCRIPT)
    return Markup(text)  # noqa: S704


@cache
def policy() -> str:
    """A content security policy that allows this one script, by its hash, and nothing from anywhere else."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
