"""Weighted class sums of some attributes crossed with contrasts within a class of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .algebra import Product
from .centring import Centring
from .kron import Kron
from .merge import renumber
from .numbers import bound_product
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
    refuse_large_entries,
)
from .permuted import Permuted
from .simple import Partition


@dataclass(frozen=True, eq=False, repr=False)
class Contrasts(AxisOperator):
    """``(B (x) (x)_{i in S} (s_i I - J)) (x)_i K_i`` for attributes whose categories fall into classes.

    The categories of attribute i are first merged into cells (``merges[i]``, k_i x n_i), and those divided into
    C_i classes (``classes[i]``, C_i x k_i). An attribute with ``within[i] = None`` is summed over each class
    (K_i = classes[i] merges[i]); one with ``within[i] = c`` belongs to S: K_i picks the s_i cells of class c, and
    the centring matrix compares them with each other. ``matrix`` is B, with a column for every combination of
    classes of the attributes outside S. Rows: those of B, then the picked cells of S in order.

    Whatever B is, permuting the cells within a class leaves the Gram matrix as it is.

    Args:
        matrix: B, r x prod_{i not in S} C_i.
        merges, classes: one partition each an attribute; every category belongs to a cell, every cell to a class.
        within: for every attribute None or a class.

    Raises:
        InvalidArgument: where these do not fit together.

    >>> from tabulae.linalg import Dense
    >>> halves, cells = Partition([0, 0, 1, 1]), Partition([0, 1, 2, 3])
    >>> (Contrasts(Dense([[1, 1]]), [cells], [halves], [None]) @ [1, 2, 3, 4]).tolist()
    [10]
    >>> (Contrasts(Dense([[1]]), [cells], [halves], [1]) @ [1, 2, 3, 4]).tolist()
    [-1, 1]
    """

    matrix: LinearOperator
    merges: Sequence[Partition]
    classes: Sequence[Partition]
    within: Sequence[int | None]

    def __post_init__(self) -> None:
        check_operators([self.matrix], "Contrasts")
        merges, classes, within = tuple(self.merges), tuple(self.classes), tuple(self.within)
        if not len(merges) == len(classes) == len(within) > 0:
            raise InvalidArgument(
                "Contrasts needs one partition into cells, one into classes and one choice an attribute"
            )
        for merge, part, c in zip(merges, classes, within, strict=True):
            if merge.shape[0] != part.shape[1] or min(merge.classes.min(), part.classes.min()) < 0:
                raise InvalidArgument("Contrasts: every category needs a cell, and every cell a class")
            if c is not None and not 0 <= c < part.shape[0]:
                raise InvalidArgument(f"Contrasts: there is no class {c} among {part.shape[0]}")
        for name, value in (("merges", merges), ("classes", classes), ("within", within)):
            object.__setattr__(self, name, value)
        if self.matrix.shape[1] != math.prod(self.widths):
            raise InvalidArgument(
                f"Contrasts: the matrix has {self.matrix.shape[1]} columns for classes {self.widths}"
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of classes of each attribute outside S."""
        return tuple(p.shape[0] for p, c in zip(self.classes, self.within, strict=True) if c is None)

    @cached_property
    def picked(self) -> tuple[int, ...]:
        """The number of cells that each attribute of S compares."""
        return tuple(int(p.sizes[c]) for p, c in zip(self.classes, self.within, strict=True) if c is not None)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0] * math.prod(self.picked), math.prod(m.shape[1] for m in self.merges)

    @property
    def integer(self) -> bool:
        return self.matrix.integer

    @cached_property
    def cells(self) -> Kron:
        """The matrices K_i: each column holds at most a single 1."""
        factors = []
        for merge, part, c in zip(self.merges, self.classes, self.within, strict=True):
            label = part.classes
            if c is not None:
                label = np.where(label == c, np.cumsum(label == c) - 1, -1)
            factors.append(
                Partition(label[merge.classes], part.shape[0] if c is None else int(part.sizes[c]))
            )
        return Kron(factors)

    @cached_property
    def composed(self) -> Product:
        """The same matrix as ``left @ cells``, left over the classes and cells that K tells apart."""
        if not self.picked:
            return Product(self.matrix, self.cells)
        shape = [factor.shape[0] for factor in self.cells.ops]
        outside = [i for i, c in enumerate(self.within) if c is None]
        inside = [i for i, c in enumerate(self.within) if c is not None]
        order = np.arange(math.prod(shape)).reshape(shape).transpose(outside + inside).reshape(-1)
        left = Kron([self.matrix, *(Centring(s) for s in self.picked)])
        return Product(Permuted(left, order), self.cells)

    def key(self) -> tuple[Any, ...]:
        parts = tuple(part.key() for part in (*self.merges, *self.classes))
        return ("Contrasts", self.matrix.key(), parts, self.within)

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.composed.along(x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.composed.along_T(y)

    def abs_row_sum_max(self) -> int | float:
        return self.composed.abs_row_sum_max()

    def abs_entry_max(self) -> int | float:
        return bound_product(self.matrix.abs_entry_max(), math.prod(self.picked))

    def columns(self, index: np.ndarray) -> np.ndarray:
        left, place = self.composed.left, self._places()[index]
        return np.where(place >= 0, left.columns(np.maximum(place, 0)), 0)

    def column_norms(self, p: int) -> np.ndarray:
        norms, place = self.composed.left.column_norms(p), self._places()
        return np.where(place >= 0, norms[place], 0)

    def column_classes(self) -> np.ndarray:
        left, place = self.composed.left, self._places()
        seen = (place >= 0) & (left.column_norms(1)[place] > 0)
        return renumber(np.where(seen, left.column_classes()[place] + 1, 0))

    def _places(self) -> np.ndarray:
        """For every column of the whole the combination of classes and picked cells it stands for, or -1."""
        place, known = np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool)
        for factor in self.cells.ops:
            assert isinstance(factor, Partition)
            place = np.add.outer(place * factor.shape[0], factor.classes).reshape(-1)
            known = np.logical_and.outer(known, factor.classes >= 0).reshape(-1)
        return np.where(known, place, -1)

    def _check_entries(self) -> None:
        refuse_large_entries(self)

    def __repr__(self) -> str:
        return f"Contrasts({self.shape[0]} x {self.shape[1]})"
