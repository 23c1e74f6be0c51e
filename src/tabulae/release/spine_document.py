"""What was measured of a spine, as a document: files, queries, shares and noise, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan
from .spine_exact import EXACT

FOLDER = "measurements"


def level_file(level: str) -> str:
    """The name of a level's file in the folder of a release.

    >>> level_file("block group")
    'measurements/block_group.parquet'
    """
    return f"{FOLDER}/{''.join(c if c.isalnum() or c in '_.-' else '_' for c in level)}.parquet"


def level_files(plan: SpinePlan) -> dict[str, str]:
    """The file of each level that is measured.

    Raises:
        InvalidArgument: two levels would have one file.
    """
    files = {plan.spine.levels[i]: "" for i in dict.fromkeys(piece.level for piece in plan.pieces)}
    files = {level: level_file(level) for level in files}
    if len({name.casefold() for name in files.values()}) < len(files):
        raise InvalidArgument(
            f"levels {', '.join(map(repr, files))} need names that differ as files: rename one"
        )
    return files


def plan_document(plan: SpinePlan, exact: Sequence[ExactMargin] = ()) -> dict[str, Any]:
    """What was measured and with which noise, exactly: numbers that decide privacy are strings of fractions."""
    files = level_files(plan)
    return {
        "neighbours": plan.neighbours,
        "rows_per_unit": plan.rows_per_unit,
        "budget": {
            "definition": plan.loss.definition,
            **{name: str(value) for name, value in plan.loss.parameters.items()},
        },
        "queries": [
            {"query_name": query.name, "attributes": list(query.names), "cells": query.size}
            for query in plan.queries
        ],
        "levels": [_level(plan, level, name) for level, name in files.items()],
        "exact": [
            {"level": e.level, "query_name": e.margin.name, "reason": e.reason, "file": EXACT} for e in exact
        ],
    }


def _level(plan: SpinePlan, level: str, name: str) -> dict[str, Any]:
    pieces = [piece for piece in plan.pieces if plan.spine.levels[piece.level] == level]
    assert plan.spine.shares is not None
    shares = [plan.spine.shares.values[i] for i in sorted({piece.share for piece in pieces})]
    queries = []
    for i, (query, part) in enumerate(zip(plan.queries, plan.query_shares[level], strict=True)):
        laws = [(share, law) for share in shares if (law := plan.law(level, share, i)) is not None]
        told = [
            {"unit_share": str(share), "law": law.name, law.word: str(law.parameter)} for share, law in laws
        ]
        if told:
            queries.append({"query_name": query.name, "share": str(part), "noise": told})
    return {
        "level": level,
        "file": name,
        "units": sum(piece.nodes.size for piece in pieces),
        "values": sum(piece.nodes.size * sum(piece.rows) for piece in pieces),
        "queries": queries,
    }
