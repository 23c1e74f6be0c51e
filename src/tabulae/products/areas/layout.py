"""How the cells of a domain are arranged for areas: dense cells times symmetric attributes, and marginals over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...domain import Domain
from ...errors import InvalidArgument
from ...linalg import BlockAlgebra
from .spine.shares import distinct_rows

MOST_DENSE = 256
"""The most dense cells: matrices of this many rows are inverted for every area."""


@dataclass(frozen=True, eq=False)
class CellLayout:
    """The cells of a domain as a table of dense cells by combinations of symmetric attributes.

    An attribute is dense where something treats its categories unequally: a recode that is measured, a structural
    zero, a bound, or an exact count; or where it has one category. The others are symmetric. Combinations of dense
    attributes that cannot occur (structural zeros) are no cells.

    Attributes:
        dense: names of the dense attributes, in the order of the domain.
        symmetric: names of the others.
        codes: shape (D, len(dense)): the category of each dense attribute in each dense cell, in C order.
    """

    domain: Domain
    dense: tuple[str, ...]
    symmetric: tuple[str, ...]
    codes: np.ndarray

    @classmethod
    def of(
        cls,
        domain: Domain,
        dense: Iterable[str] = (),
        impossible: np.ndarray | None = None,
        most: int = MOST_DENSE,
    ) -> CellLayout:
        """Arrange a domain.

        Args:
            impossible: shape of the sizes of the dense attributes in the order of the domain: which of their
                combinations cannot occur.
            most: the most dense cells.

        >>> layout = CellLayout.of(Domain({"type": 3, "age": 2, "race": 6}), ["type"])
        >>> layout.dense, layout.symmetric, layout.size, layout.algebra.cells
        (('type',), ('age', 'race'), 3, 12)
        """
        given = set(dense)
        told = tuple(domain[name].size for name in domain.names if name in given)
        names = tuple(name for name in domain.names if name in given or domain[name].size == 1)
        possible = np.ones(told, bool) if impossible is None else ~np.asarray(impossible, bool)
        if possible.shape != told:
            raise InvalidArgument(f"structural zeros have shape {possible.shape}, and {names} has {told}")
        possible = possible.reshape([domain[name].size for name in names])  # one category adds no cell
        codes = np.argwhere(possible).astype(np.int64).reshape(int(possible.sum()), len(names))
        if not len(codes):
            raise InvalidArgument(f"no combination of {', '.join(names)} can occur: remove a structural zero")
        if len(codes) > most:
            sparse = ", or estimate = 'sparse', which publishes no intervals" if most == MOST_DENSE else ""
            raise InvalidArgument(
                f"{' x '.join(names)} has {len(codes):,} cells, and at most {most:,} are handled where recodes, "
                "structural zeros, bounds or exact counts treat categories unequally: use fewer or coarser "
                f"attributes{sparse}"
            )
        symmetric = tuple(name for name in domain.names if name not in names)
        return cls(domain, names, symmetric, codes)

    @property
    def size(self) -> int:
        """D: the number of dense cells."""
        return len(self.codes)

    @cached_property
    def algebra(self) -> BlockAlgebra:
        return BlockAlgebra(tuple(self.domain[name].size for name in self.symmetric))

    @cached_property
    def cell(self) -> np.ndarray:
        """Shape (D, N): the domain's cell (C order) at each place of the layout."""
        stride = dict(
            zip(self.domain.names, _strides(self.domain.shape), strict=True),
        )
        dense = self.codes @ np.array([stride[name] for name in self.dense], np.int64).reshape(-1)
        inner = np.zeros(1, np.int64)
        for name in self.symmetric:
            inner = (inner[:, None] + np.arange(self.domain[name].size) * stride[name]).ravel()
        return dense[:, None] + inner

    @cached_property
    def place(self) -> np.ndarray:
        """Shape (domain.size,): dense * N + symmetric of each cell of the domain; -1 where it cannot occur."""
        found = np.full(self.domain.size, -1, np.int64)
        found[self.cell.ravel()] = np.arange(self.cell.size)
        return found

    def margin(self, names: Sequence[str]) -> Margin:
        """The marginal by attributes or recodes."""
        return Margin.of(self, names)


@dataclass(frozen=True, eq=False)
class Margin:
    """A marginal table over a layout: each of its cells adds cells of the layout.

    It has ``classes`` combinations of its dense attributes and ``inner`` of its symmetric ones; (class, inner) is cell
    ``order[class, inner]`` of the table, in C order of ``names`` as given.

    Attributes:
        names: attributes or recodes, in the order of the table.
        classes: combinations of its views of dense attributes, whether they can occur or not.
        label: shape (D,): the class of each dense cell.
        maps: for each symmetric attribute, the class of each category; None where it is added up.
        order: shape (classes, inner).
    """

    layout: CellLayout
    names: tuple[str, ...]
    classes: int
    label: np.ndarray
    maps: tuple[np.ndarray | None, ...]
    order: np.ndarray

    @classmethod
    def of(cls, layout: CellLayout, names: Sequence[str]) -> Margin:
        domain, views = layout.domain, {}
        for name in names:
            view = domain.resolve(name)
            recode = domain.recode(name)
            of = view.attribute.name
            if of in views:
                raise InvalidArgument(f"{name!r} and {views[of][0]!r} are both of {of!r}: use one of them")
            classes = np.arange(view.attribute.size) if recode is None else np.asarray(recode.classes)
            views[of] = (name, classes, len(view.labels))
        strides = dict(
            zip(names, _strides([views[domain.resolve(n).attribute.name][2] for n in names]), strict=True)
        )
        label, dense_place = np.zeros(layout.size, np.int64), np.zeros(1, np.int64)
        for i, of in enumerate(layout.dense):
            if of in views:
                name, classes, size = views[of]
                label = label * size + classes[layout.codes[:, i]]
                dense_place = (dense_place[:, None] + np.arange(size) * strides[name]).ravel()
        inner, maps = np.zeros(1, np.int64), []
        for of in layout.symmetric:
            if of not in views:
                maps.append(None)
                continue
            name, classes, size = views[of]
            maps.append(classes)
            inner = (inner[:, None] + np.arange(size) * strides[name]).ravel()
        return cls(layout, tuple(names), dense_place.size, label, tuple(maps), dense_place[:, None] + inner)

    @property
    def name(self) -> str:
        """As published: "total", "detailed" for all attributes, or the names joined by " * "."""
        if not self.names:
            return "total"
        return "detailed" if self.names == self.layout.domain.names else " * ".join(self.names)

    @property
    def size(self) -> int:
        return self.order.size

    @property
    def inner(self) -> int:
        """Combinations of its views of symmetric attributes."""
        return self.order.shape[1]

    @property
    def kinds(self) -> int:
        """How many kinds of contrast it reads, from the first on: the constant one alone where no other is kept."""
        return 1 if self.inner == 1 else self.layout.algebra.kinds

    @cached_property
    def kept(self) -> int | None:
        """Bits of the symmetric attributes that it keeps; None where a recode joins categories of one."""
        bits = 0
        for a, (of, classes) in enumerate(zip(self.layout.symmetric, self.maps, strict=True)):
            if classes is not None:
                if len(np.unique(classes)) != self.layout.domain[of].size:
                    return None
                bits |= 1 << a
        return bits

    @cached_property
    def _column(self) -> np.ndarray:
        """Shape (N,): the inner class of each combination of symmetric attributes."""
        found = np.zeros(1, np.int64)
        for of, classes in zip(self.layout.symmetric, self.maps, strict=True):
            size = self.layout.domain[of].size
            found = (found[:, None] * (1 if classes is None else classes.max() + 1)
                     + (np.zeros(size, np.int64) if classes is None else classes)).ravel()  # fmt: skip
        return found

    def rows(self, place: np.ndarray) -> np.ndarray:
        """The cell ``class * inner + inner class`` that places of the layout count in, int32."""
        dense, rest = np.divmod(place, self.layout.algebra.cells)
        return (self.label[dense] * self.inner + self._column[rest]).astype(np.int32)

    @cached_property
    def inner_sizes(self) -> tuple[np.ndarray, ...]:
        """For each symmetric attribute, shape (inner,): how many categories an inner class adds up."""
        sizes, repeat_after = [], self.inner
        before = 1
        for of, classes in zip(self.layout.symmetric, self.maps, strict=True):
            n = self.layout.domain[of].size
            if classes is None:
                sizes.append(np.full(self.inner, n))
                continue
            counts = np.bincount(classes)
            repeat_after //= counts.size
            sizes.append(np.tile(np.repeat(counts, repeat_after), before))
            before *= counts.size
        return tuple(sizes)

    @cached_property
    def squares(self) -> np.ndarray:
        """Shape (inner, kinds): how much of the indicator of each inner class lies in each kind of contrast."""
        algebra = self.layout.algebra
        return np.broadcast_to(algebra.squares(self.inner_sizes), (self.inner, algebra.kinds))

    def present(self, support: np.ndarray) -> np.ndarray:
        """The classes, rising, that some dense cell of a support (positions) belongs to."""
        return np.unique(self.label[support])

    def add_up(self, x: np.ndarray, support: np.ndarray) -> np.ndarray:
        """Q x for x of shape (..., k, N) on a support: shape (..., present classes, inner).

        Where it reads the constant kind alone, x may also hold sums over N already: shape (..., k, 1).
        """
        classes = self.present(support)
        return _sums(
            self._inner_sums(x), np.searchsorted(classes, self.label[support]), classes.size, axis=-2
        )

    def _inner_sums(self, x: np.ndarray) -> np.ndarray:
        """Sums over the symmetric attributes alone: x of shape (..., N), answers (..., inner)."""
        if self.inner == 1:
            return x.sum(axis=-1, keepdims=True)
        if self.kept is None:
            return _sums(x, self._column, self.inner, axis=-1)
        shape = [self.layout.domain[of].size for of in self.layout.symmetric]
        lead = x.shape[:-1]
        dropped = tuple(len(lead) + a for a in range(len(shape)) if not self.kept >> a & 1)
        return self._sorted(x.reshape(*lead, *shape).sum(axis=dropped).reshape(*lead, -1))

    @cached_property
    def _is_rising(self) -> bool:
        """Whether the categories of symmetric attributes have their classes in rising order."""
        return all(c is None or bool((np.diff(c) > 0).all()) for c in self.maps)

    def _sorted(self, rows: np.ndarray) -> np.ndarray:
        """Categories to classes, where a recode permutes a symmetric attribute's categories."""
        if self._is_rising:
            return rows
        sizes = [c.size for c in self.maps if c is not None]
        at = np.zeros(1, np.int64)
        for classes in (c for c in self.maps if c is not None):
            at = (at[:, None] * classes.size + np.argsort(classes)).ravel()
        assert rows.shape[-1] == prod(sizes)
        return rows[..., at]

    def add_spread(self, y: np.ndarray, support: np.ndarray, into: np.ndarray) -> None:
        """Add Q'y, for y of shape (m, present classes, inner), to an array of shape (m, k, N), contiguous."""
        rows = y[:, np.searchsorted(self.present(support), self.label[support])]
        if self.kept is None or not self._is_rising:
            into += rows[..., self._column]
            return
        sizes = [self.layout.domain[of].size for of in self.layout.symmetric]
        kept = [n if self.kept >> a & 1 else 1 for a, n in enumerate(sizes)]
        whole = into.view()
        whole.shape = (*into.shape[:2], *sizes)  # refused where it would be a copy
        whole += rows.reshape(*into.shape[:2], *kept)

    def dense_gram(self, support: np.ndarray) -> np.ndarray:
        """Shape (k, k): 1 where two dense cells of a support have one class."""
        label = self.label[support]
        return (label[:, None] == label[None, :]).astype(float)


@dataclass(frozen=True, eq=False)
class Supports:
    """Which dense cells can occur in each leaf. Most leaves are like many others: each kind of them is kept once.

    Attributes:
        patterns: shape (kinds, D), boolean: distinct, in lexicographic order.
        pattern: shape (leaves,): the kind of each leaf.
    """

    patterns: np.ndarray
    pattern: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, which: np.ndarray | None = None) -> Supports:
        """Those of leaves that have a row each, or the row that ``which`` says.

        >>> Supports.of(np.array([[True, True], [False, True], [True, True]])).pattern.tolist()
        [1, 0, 1]
        """
        patterns, pattern = distinct_rows(rows)
        return cls(patterns, pattern if which is None else pattern[which])

    @property
    def shape(self) -> tuple[int, int]:
        """Leaves, and dense cells."""
        return self.pattern.size, self.patterns.shape[1]

    @property
    def rows(self) -> np.ndarray:
        """Shape (leaves, D), boolean: written out, for few leaves or few cells."""
        return self.patterns[self.pattern]

    def has(self, leaf: np.ndarray, dense: np.ndarray) -> np.ndarray:
        """Whether dense cells can occur in leaves, pair by pair."""
        return self.patterns[self.pattern[leaf], dense]

    def take(self, leaves: np.ndarray) -> Supports:
        """Of some leaves, in this order: positions, or a mask."""
        kinds, pattern = np.unique(self.pattern[leaves], return_inverse=True)
        return Supports(self.patterns[kinds], pattern)

    def classes(self, label: np.ndarray, size: int) -> np.ndarray:
        """Shape (kinds, size): whether some dense cell of each class can occur; ``label`` is the class of each."""
        found = np.zeros((len(self.patterns), size), bool)
        order = np.argsort(label, kind="stable")
        present, starts = np.unique(label[order], return_index=True)
        found[:, present] = np.logical_or.reduceat(self.patterns[:, order], starts, axis=1)
        return found

    def united(self, leaf: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
        """Shape (groups, D): what can occur in some leaf of each group."""
        return united(self.patterns, self.pattern[leaf], group, groups)


def united(rows: np.ndarray, which: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """The union of some boolean rows for each group, shape (groups, columns); none of a group without a member.

    Args:
        which: shape (members,): the row of each.
        group: shape (members,): its group.

    >>> united(np.eye(2, dtype=bool), np.array([0, 1, 1]), np.array([0, 0, 2]), 3).astype(int).tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    found = np.zeros((groups, rows.shape[1]), bool)
    owner, row = distinct_rows(np.stack([group, which], axis=1))[0].T
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    if starts.size:
        found[owner[starts]] = np.logical_or.reduceat(rows[row], starts)
    return found


def _strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _sums(x: np.ndarray, label: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Sums of x along an axis by label, 0 for a label that nothing has."""
    if size == label.size and (label == np.arange(size)).all():
        return x
    order = np.argsort(label, kind="stable")
    rising = label[order]
    starts = np.flatnonzero(np.diff(rising, prepend=-1))
    sums = np.add.reduceat(x if (rising == label).all() else np.take(x, order, axis), starts, axis)
    if starts.size == size:
        return sums
    moved = np.moveaxis(sums, axis, 0)
    found = np.zeros((size, *moved.shape[1:]), x.dtype)
    found[rising[starts]] = moved
    return np.moveaxis(found, 0, axis)
