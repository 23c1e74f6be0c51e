"""Stability of a map from records to groups: the most groups that one record can belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .groups import GroupSelection


@dataclass(frozen=True)
class Stability:
    """The most groups of one level that one admissible record can belong to, or a proven bound on it.

    ``is_exact`` says that ``witness`` (family -> codes) is a record that belongs to ``value`` groups.
    """

    value: int
    is_exact: bool
    witness: dict[str, tuple[str, ...]]


def group_stability(selection: GroupSelection) -> Stability:
    """A bound: per family, the most alone groups of one code plus ``most`` times the most other groups of one code."""
    value = 0
    for family in selection.families:
        member = selection.member[family.name].tocsr()
        for kind, times in (("alone", 1), ("any", family.most)):
            columns = selection.columns(family.name, kind)
            if columns.size:
                value += times * int(np.diff(member[:, columns].indptr).max(initial=0))
    return Stability(value, is_exact=False, witness={})
