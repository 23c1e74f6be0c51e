"""The codes that a record carries, packed into few whole numbers for the engine to compare and store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..domain.groups import Family

_BITS = 62
T = TypeVar("T")


@dataclass(frozen=True)
class PackedCodes:
    """Columns of codes in words: numbers below 2^62, each a sum of ``(code + 1) * 2^shift``, so that none is 0.

    Args:
        columns: the family of each column; a column holds a position in ``Family.codes``, or -1 for none.

    >>> race = Family("race", ("10", "20"), most=2)
    >>> packed = PackedCodes((race, race))
    >>> packed.sql(["c0 + 1", "c1 + 1"])
    ['(c0 + 1)::BIGINT * 1 + (c1 + 1)::BIGINT * 4']
    >>> packed.sums([1, 2])
    [9]
    >>> packed.unpacked([np.array([1, 2 + 3 * 4 - 4])])["race"].tolist()
    [[0, -1], [1, 1]]
    >>> packed.packed({"race": np.array([[0, -1], [1, 1]])})[0].tolist()
    [1, 10]
    """

    columns: tuple[Family, ...]

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """For each column: word, shift, bits."""
        places, word, used = [], 0, 0
        for family in self.columns:
            bits = max(1, len(family.codes).bit_length())
            if used + bits > _BITS:
                word, used = word + 1, 0
            places.append((word, used, bits))
            used += bits
        return places

    @property
    def words(self) -> int:
        """The number of words."""
        return 1 + max((word for word, _, _ in self._places), default=0)

    def sql(self, plus_one: Sequence[str]) -> list[str]:
        """The words as SQL, from expressions for ``code + 1`` of each column."""
        terms = [
            [f"({value})::BIGINT * {factor}" for value, factor in some] for some in self._terms(plus_one)
        ]
        return [" + ".join(some) or "0::BIGINT" for some in terms]

    def sums(self, plus_one: Sequence[Any]) -> list[Any]:
        """The words from columns of ``code + 1`` that are multiplied by numbers and added; 0 where there are none."""
        return [sum(value * factor for value, factor in some) for some in self._terms(plus_one)]

    def _terms(self, plus_one: Sequence[T]) -> list[list[tuple[T, int]]]:
        """For each word, what it is the sum of: values and their factors."""
        terms: list[list[tuple[T, int]]] = [[] for _ in range(self.words)]
        for (word, shift, _), value in zip(self._places, plus_one, strict=True):
            terms[word].append((value, 1 << shift))
        return terms

    def unpacked(self, words: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Family -> shape (n, columns): positions of codes, or -1."""
        carried: dict[str, list[np.ndarray]] = {}
        for family, (word, shift, bits) in zip(self.columns, self._places, strict=True):
            code = ((words[word] >> shift) & ((1 << bits) - 1)) - 1
            carried.setdefault(family.name, []).append(code)
        return {name: np.stack(codes, axis=1) for name, codes in carried.items()}

    def packed(self, carried: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The words from arrays as `unpacked` gives them."""
        words = [np.zeros(0, np.int64)] * self.words
        used: dict[str, int] = {}
        for family, (word, shift, _) in zip(self.columns, self._places, strict=True):
            i = used.setdefault(family.name, 0)
            used[family.name] += 1
            term = (carried[family.name][:, i] + 1) << shift
            words[word] = words[word] + term if words[word].size else term
        return words
