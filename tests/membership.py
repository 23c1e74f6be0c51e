"""The groups of a record by definition: the slow way, with which faster ones are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tabulae.domain.groups import GroupSelection


def groups_of(selection: GroupSelection, carried: Mapping[str, Sequence[str]]) -> set[str]:
    """The codes of the groups of a record that carries some codes of each family."""
    found: set[str] = set()
    for group in selection.groups:
        members = set(selection._members_of[group.code])
        codes = carried.get(group.family, ())
        inside = [code in members for code in codes]
        if codes and (all(inside) if group.kind == "alone" else any(inside)):
            found.add(group.code)
    return found
