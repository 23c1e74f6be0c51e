"""Algorithm 3: units whose share does more good below them, or above.

A unit is bypassed when its children's shares grow by its own; a unit of one child takes the child's share instead, both
being the same area. No path from the root to a leaf changes its sum.

Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023), section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy import linalg

from ..errors import InvalidArgument
from .hierarchy import Hierarchy
from .shares import Shares, Shifting

Noise = Literal["laplace", "gaussian"]
Rule = Literal["exact", "paper"]


def bypass(
    h: Hierarchy, shares: Shares, noise: str, rule: str, queries: Mapping[str, np.ndarray] | None
) -> Shares:
    """Shares after Algorithm 3; see ``Spine.bypass``."""
    for name, value, known in (("noise", noise, ("laplace", "gaussian")), ("rule", rule, ("exact", "paper"))):
        if value not in known:
            raise InvalidArgument(f"{name} is {value!r}; it is one of {', '.join(known)}")
    if queries is not None and (noise, rule) != ("laplace", "exact"):
        raise InvalidArgument("queries matter to the exact rule for Laplace noise alone: leave them out")
    ratios = None if queries is None else query_ratios(h, queries)
    shifting = Shifting(shares)
    front = Front(np.full(h.leaves, h.depth - 1), np.arange(h.leaves), np.arange(h.leaves))
    for level in range(h.depth - 2, -1, -1):
        front = front.raised(h.parents[level + 1])
        chooser = Chooser(noise, rule, None if ratios is None else ratios[level])
        front = _bypass_level(shifting, level, front, chooser)
    return shifting.done()


@dataclass(frozen=True, eq=False)
class Front:
    """The highest measured units below one level: they part every unit of it.

    Args:
        level: shape (front,): their levels.
        unit: shape (front,): which units of these levels they are.
        owner: shape (front,): the unit of the level above them all that each lies in.
    """

    level: np.ndarray
    unit: np.ndarray
    owner: np.ndarray

    def raised(self, parents: np.ndarray) -> Front:
        """The same units, owned by the units of one level further up."""
        return Front(self.level, self.unit, parents[self.owner])


def _bypass_level(shifting: Shifting, level: int, front: Front, chooser: Chooser) -> Front:
    """Shares of one level's units moved where that is no loss; the front as seen from them."""
    own = shifting.index[level]
    below = np.empty(front.unit.size, np.int64)
    for low in np.unique(front.level):
        here = front.level == low
        below[here] = shifting.index[low][front.unit[here]]
    count = np.bincount(front.owner, minlength=own.size)
    has = np.array([value > 0 for value in shifting.values])[own]
    alone = has & (count == 1)
    spread = has & (count > 1)
    spread[spread] = chooser.no_worse(shifting.values, own, spread, front, below)
    for low in np.unique(front.level):
        here = front.level == low
        up, down = here & alone[front.owner], here & spread[front.owner]
        shifting.index[low][front.unit[down]] = shifting.add(below[down], own[front.owner[down]])
        shifting.index[level][front.owner[up]] = shifting.add(below[up], own[front.owner[up]])
        shifting.index[low][front.unit[up]] = 0
    shifting.index[level][spread] = 0
    kept = np.flatnonzero(has & ~spread)
    through = ~(has & ~spread)[front.owner]
    return Front(
        np.concatenate([front.level[through], np.full(kept.size, level)]),
        np.concatenate([front.unit[through], kept]),
        np.concatenate([front.owner[through], kept]),
    )


@dataclass(frozen=True, eq=False)
class Chooser:
    """Whether it is no loss to give a unit's share to its children, for many units that have few kinds of children.

    Args:
        noise: "laplace" or "gaussian".
        rule: "exact" or "paper".
        ratios: shape (levels,): the factor of ``exact_rule`` for children of each level; 1 where None.
    """

    noise: str
    rule: str
    ratios: np.ndarray | None

    def no_worse(
        self, values: Sequence[Fraction], own: np.ndarray, asked: np.ndarray, front: Front, below: np.ndarray
    ) -> np.ndarray:
        """Shape (asked units,): the answers."""
        units = np.flatnonzero(asked)
        if self.noise == "gaussian" or not units.size:
            return np.zeros(units.size, bool)
        # units with the same share and the same numbers of children of each kind have one answer
        width = len(values)
        kinds, kind = np.unique(front.level * width + below, return_inverse=True)
        row = np.full(own.size, -1)
        row[units] = np.arange(units.size)
        table = np.zeros((units.size, kinds.size + 1), np.int64)
        table[:, -1] = own[units]
        inside = row[front.owner] >= 0
        np.add.at(table, (row[front.owner[inside]], kind[inside]), 1)
        cases, case = np.unique(table, axis=0, return_inverse=True)
        answers = [self._case(values, kinds, line) for line in cases.tolist()]
        return np.array(answers)[case]

    def _case(self, values: Sequence[Fraction], kinds: np.ndarray, line: list[int]) -> bool:
        *counts, own = line
        children = [
            (count, values[kind % len(values)], kind // len(values))
            for count, kind in zip(counts, kinds.tolist(), strict=True)
            if count
        ]
        if self.rule == "paper":
            number = sum(count for count, _, _ in children)
            return paper_rule(values[own], min(share for _, share, _ in children), number)
        factors = [1.0 if self.ratios is None else float(self.ratios[low]) for _, _, low in children]
        kinds_of_child = [(c, share, f) for (c, share, _), f in zip(children, factors, strict=True)]
        return exact_rule(values[own], kinds_of_child)


def paper_rule(parent: Fraction, child: Fraction, children: int) -> bool:
    """Theorem 2: the smallest child's share is at least (c - 1) / 2 times the parent's."""
    return child >= (children - 1) * parent / 2


def exact_rule(parent: Fraction, children: Sequence[tuple[int, Fraction, float | int]]) -> bool:
    """Whether giving the parent's share to its children makes no variance larger, under Laplace noise.

    With shares g the precision that parent and children give changes from
    ``g_p^2 11' (x) M_p + diag(g_u^2) (x) M_c`` to ``diag((g_u + g_p)^2) (x) M_c``. By Schur complement that is no loss
    in the Loewner order exactly when ``lambda_max(M_c^-1 M_p) sum_u g_p / (2 g_u + g_p) <= 1``. Where children are
    measured by different queries each term has its own factor, and the condition is sufficient.

    Args:
        parent: the parent's share g_p, above 0.
        children: how many children, their share g_u and their factor lambda_max, for each kind of child.
    """
    return (
        sum(count * Fraction(factor) * parent / (2 * share + parent) for count, share, factor in children)
        <= 1
    )


def query_ratios(h: Hierarchy, queries: Mapping[str, np.ndarray]) -> np.ndarray:
    """Shape (levels, levels): lambda_max(M_c^-1 M_p) for a parent's level p above a child's level c.

    Raises:
        InvalidArgument: a level without a matrix, matrices of different sizes, or one that is not positive definite.
    """
    if set(queries) != set(h.levels):
        told = ", ".join(queries) or "no level"
        raise InvalidArgument(f"queries are given for {told}; they are needed for {', '.join(h.levels)}")
    grams = [np.asarray(queries[level], float) for level in h.levels]
    cells = grams[0].shape[:1] * 2
    found = np.ones((h.depth, h.depth))
    for level, gram in zip(h.levels, grams, strict=True):
        if gram.shape != cells or not np.array_equal(gram, gram.T):
            raise InvalidArgument(
                f"queries of {level!r} have shape {gram.shape}: each level has one symmetric matrix, cells by cells, "
                "the sum of share^2 Q'Q over its query groups"
            )
    for child in range(1, h.depth):
        for parent in range(child):
            if np.array_equal(grams[child], grams[parent]):
                continue
            try:
                roots = linalg.eigh(
                    grams[parent], grams[child], eigvals_only=True
                )  # all: repeated ones converge
            except linalg.LinAlgError:
                raise InvalidArgument(
                    f"the queries of level {h.levels[child]!r} do not determine every cell: add the query group of all "
                    "cells, with a share"
                ) from None
            found[parent, child] = roots[-1]
    return found
