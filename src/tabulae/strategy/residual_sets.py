"""Sums over sets of attributes: what each table asks of each residual group.

A table over the attributes A meets the residual groups of every subset S of A, and a term
``c (x)_i V_i`` of W'W has the share

    c  prod_{i in S} beta_i  prod_{i in A - S} gamma_i

in group S, with ``beta_i = tr(Q_i' V_i Q_i)`` over the columns of Q_i that belong to the attribute's residuals and
``gamma_i`` the same for its total (see :mod:`.residual_basis`). Terms of one number of attributes are summed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from ..errors import Unsupported

MOST_SETS = 2**14
"""Most sets of attributes that a strategy measures a residual group for."""

Set = tuple[int, ...]


def subsets(members: Sequence[int]) -> list[Set]:
    """All subsets, in the order of a Kronecker product over the members with (out, in) for each."""
    found: list[Set] = [()]
    for member in members:
        found = [s + more for s in found for more in ((), (member,))]
    return found


def closure(supports: Iterable[Set]) -> tuple[Set, ...]:
    """All subsets of the given sets, small ones first; refused where they are more than ``MOST_SETS``."""
    found: set[Set] = set()
    for support in sorted(set(supports), key=len, reverse=True):
        if support in found:
            continue
        if 2 ** len(support) <= MOST_SETS:
            found.update(c for k in range(len(support) + 1) for c in combinations(support, k))
        if 2 ** len(support) > MOST_SETS or len(found) > MOST_SETS:
            raise Unsupported(
                f"the tables cross more than {MOST_SETS:,} different sets of attributes, subsets included (one crosses "
                f'{len(support)} attributes), and "residual" measures a group of queries for each: ask for tables that '
                'cross fewer attributes together, or choose "kron" or "union", which list no subsets'
            )
    return tuple(sorted(found, key=lambda s: (len(s), s)))


@dataclass(frozen=True)
class _Group:
    """Terms that mention equally many attributes a: ``members`` (t, a), ``places`` (t, 2^a) among the sets."""

    terms: np.ndarray
    members: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class SetSums:
    """Terms with the attributes that each mentions, over a list of sets that holds all they need.

    A subset that is not among ``sets`` must have no share (its beta are 0): it is left out of the sums.
    """

    sets: tuple[Set, ...]
    mentions: tuple[Set, ...]

    @cached_property
    def _groups(self) -> list[_Group]:
        position = {s: k for k, s in enumerate(self.sets)}
        by_size: dict[int, list[int]] = {}
        for term, mention in enumerate(self.mentions):
            by_size.setdefault(len(mention), []).append(term)
        known: dict[Set, list[int]] = {}
        for mention in self.mentions:
            if mention not in known:
                known[mention] = [position.get(s, len(self.sets)) for s in subsets(mention)]
        return [
            _Group(
                np.array(terms),
                np.array([self.mentions[t] for t in terms], dtype=np.int64).reshape(len(terms), size),
                np.array([known[self.mentions[t]] for t in terms]),
            )
            for size, terms in by_size.items()
        ]

    def values(self, coefficients: np.ndarray, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """``v_S = sum_l c_l prod beta prod gamma`` for each set; beta and gamma are (terms, attributes)."""
        total = np.zeros(len(self.sets) + 1)
        for group in self._groups:
            shares = coefficients[group.terms, None] * _products(_pairs(group, beta, gamma))
            total += np.bincount(group.places.ravel(), weights=shares.ravel(), minlength=len(total))
        return total[:-1]

    def gradient(
        self, slopes: np.ndarray, coefficients: np.ndarray, beta: np.ndarray, gamma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of ``sum_S slope_S v_S`` by every beta and gamma, (terms, attributes) each."""
        by_beta, by_gamma = np.zeros(beta.shape), np.zeros(gamma.shape)
        padded = np.append(slopes, 0.0)
        for group in self._groups:
            pairs = _pairs(group, beta, gamma)
            count, size = group.members.shape
            weights = (coefficients[group.terms, None] * padded[group.places]).reshape(count, *[2] * size)
            for axis in range(size):
                others = _products(np.delete(pairs, axis, axis=1))
                turned = np.moveaxis(weights, axis + 1, 1).reshape(count, 2, -1)
                outside, inside = np.einsum("tkr,tr->kt", turned, others)
                by_gamma[group.terms, group.members[:, axis]] = outside
                by_beta[group.terms, group.members[:, axis]] = inside
        return by_beta, by_gamma


def _pairs(group: _Group, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """(gamma, beta) of each term's attributes, (terms, attributes mentioned, 2)."""
    rows = group.terms[:, None]
    return np.stack([gamma[rows, group.members], beta[rows, group.members]], axis=2)


def _products(pairs: np.ndarray) -> np.ndarray:
    """Kronecker products of the pairs of each term, (terms, 2^a)."""
    out = np.ones((len(pairs), 1))
    for k in range(pairs.shape[1]):
        out = (out[:, :, None] * pairs[:, k, None, :]).reshape(len(pairs), -1)
    return out
