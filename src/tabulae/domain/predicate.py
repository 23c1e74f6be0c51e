"""Predicates: AND, OR and NOT over tests of single attributes, kept in negation normal form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Test:
    """True of a cell whose category of ``attribute`` is in ``cells`` (a bool a category; some, not all)."""

    attribute: str
    cells: Mask

    # Not a test case, whatever a test runner may think of its name.
    __test__ = False


@dataclass(frozen=True, eq=False)
class All:
    """True where every part is; the parts test different attributes or are disjunctions."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, eq=False)
class Some:
    """True where some part is; the parts test different attributes or are conjunctions."""

    parts: tuple[Predicate, ...]


Predicate = bool | Test | All | Some


def test(attribute: str, cells: Mask) -> Predicate:
    """The predicate "the category of ``attribute`` is one of these".

    >>> test("sex", np.array([True, True]))
    True
    """
    if cells.all() or not cells.any():
        return bool(cells.all())
    return Test(attribute, cells)


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """The predicate true where all parts are; tests of one attribute become one test."""
    return _join(parts, All, np.logical_and, absorbing=False)


def disjunction(parts: Sequence[Predicate]) -> Predicate:
    """The predicate true where some part is; tests of one attribute become one test."""
    return _join(parts, Some, np.logical_or, absorbing=True)


def negation(predicate: Predicate) -> Predicate:
    """The predicate true where this one is not, by De Morgan's laws."""
    if isinstance(predicate, bool):
        return not predicate
    if isinstance(predicate, Test):
        return Test(predicate.attribute, ~predicate.cells)
    parts = [negation(part) for part in predicate.parts]
    return disjunction(parts) if isinstance(predicate, All) else conjunction(parts)


def tests(predicate: Predicate) -> dict[str, list[Mask]]:
    """Attribute -> the masks that the predicate tests it with, in order of appearance."""
    found: dict[str, list[Mask]] = {}
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, Test):
            found.setdefault(node.attribute, []).append(node.cells)
        elif not isinstance(node, bool):
            stack.extend(reversed(node.parts))
    return found


def _join(
    parts: Sequence[Predicate],
    kind: type[All] | type[Some],
    merge: Callable[[Mask, Mask], Mask],
    *,
    absorbing: bool,
) -> Predicate:
    masks: dict[str, Mask] = {}
    others: list[Predicate] = []
    for part in parts:
        for piece in part.parts if isinstance(part, kind) else (part,):
            if isinstance(piece, bool):
                if piece is absorbing:
                    return absorbing
            elif isinstance(piece, Test):
                known = masks.get(piece.attribute)
                masks[piece.attribute] = piece.cells if known is None else merge(known, piece.cells)
            else:
                others.append(piece)
    joined = [test(attribute, cells) for attribute, cells in masks.items()]
    if any(piece is absorbing for piece in joined):
        return absorbing
    kept = [piece for piece in joined if not isinstance(piece, bool)] + others
    if not kept:
        return not absorbing
    return kept[0] if len(kept) == 1 else kind(tuple(kept))
