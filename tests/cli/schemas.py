"""The schemas of what --json prints: read from docs/schemas, and held against documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parents[2] / "docs/schemas"
NAMES = sorted(path.stem for path in SCHEMAS.glob("*.json"))


@cache
def schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def validator(name: str) -> Draft202012Validator:
    parts = Resource.from_contents(schema("parts"))
    return Draft202012Validator(schema(name), registry=Registry().with_resource("parts.json", parts))


def fits(name: str, document: object) -> None:
    faults = [f"{error.json_path}: {error.message}" for error in _deepest(validator(name), document)]
    assert not faults, faults


def _deepest(checker: Draft202012Validator, document: object) -> Iterator[Any]:
    """Every error, and those of the alternatives inside it."""
    for error in checker.iter_errors(document):
        yield from error.context or [error]
