"""Linear forms of the counts of an area: their estimates, variances and covariances from those of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ....domain import Table
from ....errors import Unsupported
from ..layout import CellLayout, Margin

MOST_NUMBERS = 1 << 24
"""The most numbers that the coefficients of one figure's forms take, and the squares of them."""


@dataclass(frozen=True, eq=False)
class AreaForms:
    """K linear forms of m rows each, over the cells of the marginal by the attributes that they mention.

    With Z_i the coefficients of row r of form i, (C, M) over classes of dense cells and combinations of symmetric
    categories, and P_S the projector onto a kind of contrast S,

        Cov(form_i, form_j) = sum over S of  n_S <V[S], Z_i P_S Z_j'>

    with V the variance of the area's cells added up by class and n_S the number of categories that are summed over.

    Args:
        margin: by the attributes that some form mentions.
        classes: shape (C,): its classes that can occur.
        coefficients: shape (K, m, C, M): whole numbers.

    >>> from tabulae import Domain
    >>> from tabulae.linalg import Identity
    >>> layout = CellLayout.of(Domain({"sex": 2, "age": 3}))
    >>> forms = AreaForms.of(layout, [Table("sexes", {"sex": Identity(2)})])
    >>> independent = np.ones((1, layout.algebra.kinds, 1, 1))  # every cell has variance 1
    >>> forms.moments(independent)[0, 0, 0].tolist()
    [3.0, 3.0]
    """

    margin: Margin
    classes: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def of(cls, layout: CellLayout, tables: Sequence[Table]) -> AreaForms:
        """The forms that tables of equally many rows are.

        Raises:
            Unsupported: too many rows or cells to be written out.
        """
        names = {name for table in tables for name in table.attributes}
        kept = [name for name in layout.domain.names if name in names]
        margin = layout.margin(kept)
        classes = np.unique(margin.label)
        rows = prod(tables[0].row_counts(layout.domain).values())
        pairs = len(tables) * (len(tables) + 1) // 2
        bits = sum(classes is not None for classes in margin.maps)
        needed = rows * max(len(tables) * margin.size, pairs * (1 << bits) * classes.size**2)
        if needed > MOST_NUMBERS:
            raise Unsupported(
                f"{rows:,} rows an area over {margin.size:,} cells of {', '.join(kept) or 'the total'} take too many "
                "numbers to be written out: group by less, or leave an attribute out"
            )
        found = [_coefficients(layout, table, kept)[:, margin.order[classes]] for table in tables]
        return cls(margin, classes, np.stack(found))

    @property
    def rows(self) -> int:
        return self.coefficients.shape[1]

    @property
    def cost(self) -> int:
        forms, rows, classes, inner = self.coefficients.shape
        return max(self.margin.size, classes * inner, forms**2 * rows)

    @cached_property
    def _kinds(self) -> list[int]:
        """The kinds of contrast among the symmetric attributes that are mentioned."""
        mentioned = sum(1 << a for a, classes in enumerate(self.margin.maps) if classes is not None)
        return [kind for kind in range(self.margin.layout.algebra.kinds) if kind & mentioned == kind]

    @cached_property
    def _squares(self) -> np.ndarray:
        """n_S Z_i P_S Z_j', made symmetric, for i <= j: shape (pairs, m, kinds, C, C)."""
        layout, forms = self.margin.layout, len(self.coefficients)
        mentioned = [a for a, classes in enumerate(self.margin.maps) if classes is not None]
        sizes = [layout.domain[name].size for name in layout.symmetric]
        summed = prod(size for a, size in enumerate(sizes) if a not in mentioned)
        shape = (*self.coefficients.shape[:3], *(sizes[a] for a in mentioned))
        whole = self.coefficients.reshape(shape)
        found = []
        for kind in self._kinds:
            part = whole
            for axis, a in enumerate(mentioned, start=3):
                mean = part.mean(axis=axis, keepdims=True)
                part = part - mean if kind >> a & 1 else np.broadcast_to(mean, part.shape)
            flat = part.reshape(self.coefficients.shape)
            found.append(
                [summed * (flat[i] @ flat[j].swapaxes(-1, -2)) for i in range(forms) for j in range(i, forms)]
            )
        squares = np.array(found).transpose(1, 2, 0, 3, 4)
        return (squares + squares.swapaxes(-1, -2)) / 2

    def estimates(self, counts: np.ndarray) -> np.ndarray:
        """The forms of the counts of a marginal, (areas, classes of the margin, M): shape (K, areas, m)."""
        cells = counts[:, self.classes].reshape(len(counts), -1).astype(float)
        flat = self.coefficients.reshape(*self.coefficients.shape[:2], -1)
        return cells @ flat.swapaxes(-1, -2)

    def moments(self, variance: np.ndarray) -> np.ndarray:
        """Covariances of the forms, row by row: shape (K, K, areas, m).

        Args:
            variance: V of the cells' estimates, shape (areas, kinds, D, D).
        """
        member = (self.margin.label == self.classes[:, None]).astype(float)
        added = member @ variance[:, self._kinds] @ member.T
        pairs = self._squares.shape[0]
        flat = self._squares.reshape(pairs * self.rows, -1) @ added.reshape(len(added), -1).T
        found = flat.reshape(pairs, self.rows, -1).swapaxes(1, 2)
        forms = len(self.coefficients)
        place = np.zeros((forms, forms), np.int64)
        place[np.triu_indices(forms)] = np.arange(pairs)
        return found[np.maximum(place, place.T)]

    def terms(self, variance: np.ndarray) -> np.ndarray:
        """The variances with every term of them made positive: shape (K, areas, m)."""
        member = (self.margin.label == self.classes[:, None]).astype(float)
        added = member @ np.abs(variance[:, self._kinds]) @ member.T
        forms = len(self.coefficients)
        diagonal = [i * forms - i * (i - 1) // 2 for i in range(forms)]
        flat = (
            np.abs(self._squares[diagonal]).reshape(forms * self.rows, -1) @ added.reshape(len(added), -1).T
        )
        return flat.reshape(forms, self.rows, -1).swapaxes(1, 2)

    def empty(self, possible: np.ndarray) -> np.ndarray:
        """Which forms count nothing that can occur: shape (K, areas, m), of ``possible`` with shape (areas, D)."""
        member = (self.margin.label == self.classes[:, None]).astype(float)
        there = possible.astype(float) @ member.T
        used = (self.coefficients != 0).any(axis=-1).astype(float)
        return there @ used.swapaxes(-1, -2) == 0


def _coefficients(layout: CellLayout, table: Table, names: Sequence[str]) -> np.ndarray:
    """A table's matrix over the combinations of some attributes, in C order: shape (rows, cells)."""
    total: np.ndarray | None = None
    for term in table.terms:
        product = np.full((1, 1), float(term.coefficient))
        for name in names:
            factor = term.factors.get(name)
            ones = np.ones((1, layout.domain[name].size))
            product = np.kron(product, ones if factor is None else factor.dense())
        total = product if total is None else total + product
    assert total is not None
    return total
