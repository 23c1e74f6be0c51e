"""What commands print of each kind of release: one module a kind, all with the same functions."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def words_of(kind: str) -> ModuleType:
    """The module of a kind of release, loaded when it is asked for: all three take a tenth of a second.

    Each has ``plan_document``, ``print_plan``, ``closing_words``, ``summary``, ``print_summary``, ``check_document``,
    ``check_words``, ``check_notes``, ``query_note``, and ``FOLLOWS_FROM``: the section that its plans follow from, or
    None where plans are saved.
    """
    return import_module(f".{kind}", __package__)
