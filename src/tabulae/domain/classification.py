"""Classifications: code lists in levels, such as those of industries, occupations and regions.

The records hold the codes at the ends of the tree; each of the other codes counts those that stand below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from ..linalg import LinearOperator, Partition, Sparse
from .attribute import Recode, check_labels


@dataclass(frozen=True)
class Classification:
    """A code list as a tree (or several): each code with its label and the code that it is part of.

    Codes without one are of level 1, those below them of level 2, and so on. Codes that no other is part of are the
    leaves: the categories of an attribute, in the order of the list.

    Arguments:
        codes: all codes, all different.
        labels: one a code. Those of several codes are told apart by their code, in brackets.
        parents: one a code; None at the top.

    Raises:
        InvalidArgument: a parent that is no code, codes that are part of themselves, or bad labels.

    >>> nace = Classification(("A", "01", "02", "B"), ("Farms", "Crops", "Woods", "Mines"), (None, "A", "A", None))
    >>> nace.leaves, nace.levels.tolist()
    (('01', '02', 'B'), [1, 2, 2, 1])
    >>> nace.rows()[1], nace.rows()[0].dense().tolist()
    (('Farms', 'Crops', 'Woods', 'Mines'), [[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    """

    codes: tuple[str, ...]
    labels: tuple[str, ...]
    parents: tuple[str | None, ...]

    def __post_init__(self) -> None:
        if not len(set(self.codes)) == len(self.codes) == len(self.labels) == len(self.parents):
            raise InvalidArgument("a classification needs different codes, and a label and a parent for each")
        repeated = Counter(self.labels)
        labels = (
            f"{label} ({code})" if repeated[label] > 1 else label
            for code, label in zip(self.codes, self.labels, strict=True)
        )
        object.__setattr__(self, "labels", check_labels(labels, "a classification"))
        for parent in self.parents:
            if parent is not None and parent not in self._places:
                raise InvalidArgument(f"{parent!r} is a parent and no code: list it, too")
        if ring := _circle(self.codes, self.parents):
            raise InvalidArgument(f"{' in '.join(map(repr, ring))}: a code cannot be part of itself")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {code: place for place, code in enumerate(self.codes)}

    @cached_property
    def _above(self) -> tuple[tuple[int, ...], ...]:
        """The places of each code and of all that it is part of, from the top down."""
        known: dict[int, tuple[int, ...]] = {}
        for place in range(len(self.codes)):
            path = [place]
            while path[-1] not in known and (parent := self.parents[path[-1]]) is not None:
                path.append(self._places[parent])
            for at in reversed(path):
                parent = self.parents[at]
                known.setdefault(at, (*(() if parent is None else known[self._places[parent]]), at))
        return tuple(known[place] for place in range(len(self.codes)))

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of each code, from 1 at the top: int64 (codes,)."""
        return np.array([len(path) for path in self._above], dtype=np.int64)

    @property
    def depth(self) -> int:
        """The number of levels."""
        return int(self.levels.max())

    def has_level(self, level: object) -> bool:
        """Whether it is a level of some code."""
        return type(level) is int and 1 <= level <= self.depth

    @cached_property
    def _leaf_places(self) -> np.ndarray:
        inner = {self._places[parent] for parent in self.parents if parent is not None}
        return np.array([place for place in range(len(self.codes)) if place not in inner], dtype=np.int64)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The codes that records hold."""
        return tuple(self.codes[place] for place in self._leaf_places)

    @property
    def leaf_labels(self) -> tuple[str, ...]:
        return tuple(self.labels[place] for place in self._leaf_places)

    def with_code(self, code: str) -> Classification:
        """The same with one more code at the top, the last, which is its own label."""
        return Classification((*self.codes, code), (*self.labels, code), (*self.parents, None))

    def rows(self, levels: Iterable[int] | None = None) -> tuple[LinearOperator, tuple[str, ...]]:
        """The sums over leaves that codes are, in the order of the list: a 0/1 matrix (rows, leaves), and its labels.

        Of all codes, or of those whose level is among ``levels``, which are levels of some codes.
        """
        wanted = np.full(len(self.codes), levels is None)
        if levels is not None:
            wanted = np.isin(self.levels, np.fromiter(levels, np.int64))
        labels = tuple(self.labels[place] for place in np.flatnonzero(wanted))
        row = np.cumsum(wanted) - 1
        owners = [[row[at] for at in self._above[place] if wanted[at]] for place in self._leaf_places]
        if max(map(len, owners)) <= 1:
            return Partition([of[0] if of else -1 for of in owners], len(labels)), labels
        rows = np.concatenate([np.asarray(of, dtype=np.int64) for of in owners])
        leaves = np.repeat(np.arange(len(owners)), [len(of) for of in owners])
        shape = (len(labels), len(owners))
        matrix = scipy.sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, leaves)), shape=shape)
        return Sparse(matrix), labels

    def recode(self, name: str, of: str, level: int) -> Recode:
        """Each leaf by the code of that level that it is part of; a leaf above it stays by itself.

        >>> nace = Classification(("A", "01", "B"), ("Farms", "Crops", "Mines"), (None, "A", None))
        >>> nace.recode("section", "industry", 1).labels
        ('Farms', 'Mines')
        """
        if not self.has_level(level):
            raise InvalidArgument(f"{of!r} has levels 1 to {self.depth}, and none is {level}")
        owners = np.array([self._above[place][:level][-1] for place in self._leaf_places])
        places, classes = np.unique(owners, return_inverse=True)
        labels, codes = (tuple(words[place] for place in places) for words in (self.labels, self.codes))
        return Recode(name, of, classes, labels, codes)


def _circle(codes: Sequence[str], parents: Sequence[str | None]) -> list[str] | None:
    """Codes of which each is part of the next and the first is the last; None where there are none.

    >>> _circle(["a", "b", "c"], ["b", "a", "a"])
    ['a', 'b', 'a']
    """
    above = dict(zip(codes, parents, strict=True))
    ends: set[str] = set()
    for code in codes:
        path: dict[str, None] = {}
        at: str | None = code
        while at is not None and at not in ends:
            if at in path:
                ring = list(path)[list(path).index(at) :]
                return [*ring, at]
            path[at] = None
            at = above.get(at)
        ends.update(path)
    return None
