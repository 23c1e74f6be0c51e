"""Profiles: what a record carries, as far as groups tell it apart. There are far fewer than combinations of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..domain.groups import NONE, GroupSelection


@dataclass(frozen=True, eq=False)
class Profiles:
    """Codes that are members of the same groups, in all selections, are one: the first of them stands for all.

    Whether a record belongs to a group depends on the set of its codes, and of each code only on the groups that it is
    a member of. So records with the same profile, the set of what their codes stand for, belong to the same groups.

    Args:
        first_alike: family -> shape (codes,): the code that stands for each code.

    >>> from tabulae.domain.groups import Family, Group, GroupMap
    >>> race = Family("race", ("10", "11", "20"), most=3)
    >>> europe = Group("E", "1", "race", "alone")
    >>> groups = GroupMap((race,), (europe,), [("E", "10"), ("E", "11")])
    >>> Profiles.of([groups.at("1", "state")]).profile({"race": np.array([[2, 1, 0], [1, -1, -1]])})["race"].tolist()
    [[2, 0, -1], [0, -1, -1]]
    """

    first_alike: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, selections: Sequence[GroupSelection]) -> Profiles:
        """The profiles that some selections of groups tell apart."""
        return cls({family.name: _first_alike(selections, family.name) for family in selections[0].families})

    def profile(self, carried: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What stands for the codes of each record: family -> shape (n, columns), falling, each once, -1 for none."""
        out = {}
        for name, codes in carried.items():
            standing = np.where(codes == NONE, NONE, self.first_alike[name][codes])
            standing.sort(axis=1)
            standing[:, 1:][standing[:, 1:] == standing[:, :-1]] = NONE
            standing.sort(axis=1)
            out[name] = standing[:, ::-1]
        return out


def _first_alike(selections: Sequence[GroupSelection], family: str) -> np.ndarray:
    matrices: list[Any] = [selection.member[family] for selection in selections]
    rows = [matrix.tocsr() for matrix in matrices]
    seen: dict[tuple[bytes, ...], int] = {}
    first = []
    for code in range(rows[0].shape[0]):
        groups = tuple(np.sort(m.indices[m.indptr[code] : m.indptr[code + 1]]).tobytes() for m in rows)
        first.append(seen.setdefault(groups, code))
    return np.array(first, np.int64)
