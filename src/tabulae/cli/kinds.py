"""What commands print of each kind of release: one module a kind, all with the same functions."""

from __future__ import annotations

from types import ModuleType

from . import areas, groups, tables

WORDS: dict[str, ModuleType] = {"tables": tables, "groups": groups, "areas": areas}
"""Each has ``plan_document``, ``print_plan``, ``closing_words``, ``summary``, ``print_summary``, ``check_document``,
``check_words``, ``check_notes``, ``query_note``, and ``FOLLOWS_FROM``: the section that its plans follow from, or None
where plans are saved.
"""
