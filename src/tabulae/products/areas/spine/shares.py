"""The distinct rows of long tables of small whole numbers, by hashing: few rows differ where millions are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy import linalg

from ....errors import InvalidArgument
from .hierarchy import Hierarchy


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What ``np.unique(rows, axis=0, return_inverse=True)`` gives, in time that grows as the number of rows.

    Args:
        rows: shape (n, columns): booleans, or whole numbers of 0 or more.

    Returns:
        The distinct rows in lexicographic order, shape (m, columns), and shape (n,): which of them each row is.

    >>> found, which = distinct_rows(np.array([[1, 0], [0, 7], [1, 0]]))
    >>> found.tolist(), which.tolist()
    ([[0, 7], [1, 0]], [1, 0, 1])
    """
    which, span = np.zeros(len(rows), np.int64), 1
    columns = np.packbits(rows, axis=1) if rows.dtype == bool else rows  # eight at a time, in the same order
    for column in columns.T:
        width = int(column.max(initial=0)) + 1
        if span * width > np.iinfo(np.int64).max:
            (which, span), (column, width) = _numbered(which), _numbered(column.astype(np.int64))
        which = which * width + column
        span *= width
    which, count = _numbered(which)
    first = np.empty(count, np.int64)
    first[which[::-1]] = np.arange(len(rows))[::-1]
    return rows[first], which


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each key among the distinct ones, and how many of those there are."""
    import pyarrow as pa

    found = pa.array(keys).dictionary_encode()
    order = np.argsort(found.dictionary.to_numpy())
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[found.indices.to_numpy()], order.size


Amount = Fraction | int | str


@dataclass(frozen=True, eq=False)
class Shares:
    """A share of the budget for every unit: few distinct ones, and which of them each unit has.

    Args:
        levels: names of the levels.
        values: the distinct shares.
        index: for each level, shape (units,): the position in ``values`` of each unit's share.
    """

    levels: tuple[str, ...]
    values: tuple[Fraction, ...]
    index: tuple[np.ndarray, ...]

    def __getitem__(self, level: str) -> list[Fraction]:
        """The shares of a level's units, in their order; 0 where a unit is not measured."""
        if level not in self.levels:
            raise InvalidArgument(f"{level!r} is not a level of this spine: {', '.join(self.levels)}")
        return [self.values[i] for i in self.index[self.levels.index(level)]]

    def floats(self, level: str) -> np.ndarray:
        """Shape (units,): the shares of a level's units, rounded."""
        if level not in self.levels:
            raise InvalidArgument(f"{level!r} is not a level of this spine: {', '.join(self.levels)}")
        return np.array([float(v) for v in self.values])[self.index[self.levels.index(level)]]

    @property
    def measured(self) -> tuple[np.ndarray, ...]:
        """For each level, shape (units,): which units have a share."""
        positive = np.array([value > 0 for value in self.values])
        return tuple(positive[index] for index in self.index)

    def path_sums(self, h: Hierarchy) -> set[Fraction]:
        """The distinct sums of shares from the root to a leaf: 1 alone.

        Privacy:
            A record lies in one leaf, so it is counted once in each unit on the leaf's path and nowhere else. Where the
            sums are 1, measuring every unit with its share of a budget costs the budget (Theorem 3).
        """
        paths = [index[unit] for index, unit in zip(self.index, h.units, strict=True)]
        kinds, _ = distinct_rows(np.stack(paths, axis=1))
        return {sum((self.values[i] for i in kind), Fraction(0)) for kind in kinds.tolist()}


def read_shares(h: Hierarchy, shares: Mapping[str, Amount]) -> Shares:
    """The same share for all units of a level.

    Raises:
        InvalidArgument: a level without a share, a share that is no exact number or below 0, or a sum that is not 1.
    """
    unknown = [name for name in shares if name not in h.levels]
    absent = [name for name in h.levels if name not in shares]
    if unknown or absent:
        told = [f"{unknown[0]!r} is not a level of this spine"] if unknown else []
        told += [f"level {absent[0]!r} has no share"] if absent else []
        raise InvalidArgument(f"{' and '.join(told)}; its levels are {', '.join(h.levels)}")
    given = [_exact(name, shares[name]) for name in h.levels]
    if sum(given) != 1:
        raise InvalidArgument(
            f"the shares add up to {sum(given)}, not 1: {', '.join(f'{k} {v}' for k, v in shares.items())}. Write them "
            "as fractions of one number, such as '1440/4099'"
        )
    if not given[-1]:
        raise InvalidArgument(
            f"level {h.levels[-1]!r} has share 0: leaves need a share, or nothing tells them apart"
        )
    values = tuple(sorted({Fraction(0), *given}))
    index = [
        np.full(len(codes), values.index(share), np.int64)
        for codes, share in zip(h.codes, given, strict=True)
    ]
    return Shares(h.levels, values, tuple(index))


def _exact(name: str, share: Amount) -> Fraction:
    if isinstance(share, bool) or not isinstance(share, Fraction | int | str):
        raise InvalidArgument(
            f"the share of {name!r} is {share!r}: write a fraction in quotes, such as '1/3'. Floating-point shares do "
            "not add up to exactly 1"
        )
    try:
        found = Fraction(share)
    except (ValueError, ZeroDivisionError):
        raise InvalidArgument(
            f"the share of {name!r} is {share!r}, which is not a fraction such as '1/3'"
        ) from None
    if found < 0:
        raise InvalidArgument(f"the share of {name!r} is {found}: shares are 0 or more")
    return found


class Shifting:
    """Shares while they are moved between units: a table of values that grows by sums."""

    def __init__(self, shares: Shares) -> None:
        self._levels = shares.levels
        self.values = list(shares.values)
        self._place = {value: i for i, value in enumerate(self.values)}
        self.index = [index.copy() for index in shares.index]

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Positions of the sums of the shares at two arrays of positions."""
        width = len(self.values)
        unique, place = np.unique(left * width + right, return_inverse=True)
        sums = [
            self._number(self.values[pair // width] + self.values[pair % width]) for pair in unique.tolist()
        ]
        return np.array(sums, np.int64)[place]

    def _number(self, value: Fraction) -> int:
        if value not in self._place:
            self._place[value] = len(self.values)
            self.values.append(value)
        return self._place[value]

    def done(self) -> Shares:
        return Shares(self._levels, tuple(self.values), tuple(self.index))


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
