"""Linear forms of the counts of an area: their estimates, variances and covariances from those of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy.special import ndtri

from ....domain import Table
from ....errors import InvalidArgument, Unsupported
from ....estimation.coverage import bounded_half_widths
from ....estimation.statistics import RatioSet, fieller, ratio_variance, uniform_factor
from ....privacy import NoiseLaw
from ..layout import Layout, Margin

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
    >>> layout = Layout.of(Domain({"sex": 2, "age": 3}))
    >>> forms = AreaForms.of(layout, [Table("sexes", {"sex": Identity(2)})])
    >>> independent = np.ones((1, layout.algebra.kinds, 1, 1))  # every cell has variance 1
    >>> forms.moments(independent)[0, 0, 0].tolist()
    [3.0, 3.0]
    """

    margin: Margin
    classes: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def of(cls, layout: Layout, tables: Sequence[Table]) -> AreaForms:
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
    def spread(self) -> np.ndarray:
        """How far from 0 coefficients lie, above and below added up: shape (K, m), at least 1."""
        cells = self.coefficients.reshape(*self.coefficients.shape[:2], -1)
        top, bottom = np.maximum(cells.max(axis=-1), 0), np.minimum(cells.min(axis=-1), 0)
        return np.maximum(top - bottom, 1.0)

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


def _coefficients(layout: Layout, table: Table, names: Sequence[str]) -> np.ndarray:
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


HALF_STEP = 0.5
"""What the grid of whole numbers costs under Gaussian noise, in counts."""


def interval_factor(level: float, laws: Sequence[NoiseLaw]) -> float:
    """The part of a half-width that grows with the standard error, in standard errors; all laws are of one kind.

    Raises:
        InvalidArgument: a level outside (0, 1), or no laws.

    >>> from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
    >>> round(interval_factor(0.95, [DiscreteGaussian(4)]), 3)
    1.96
    >>> round(interval_factor(0.95, [DiscreteLaplace(1000)]), 2)
    2.16
    """
    if not 0 < level < 1:
        raise InvalidArgument(f"the level of an interval lies between 0 and 1, not {level!r}")
    if not laws:
        raise InvalidArgument("an interval needs the laws of the noise, and there are none")
    if costs_half_step(laws):
        return float(ndtri((1 + level) / 2))
    return float(bounded_half_widths(np.ones(1), laws, level)[0])


def costs_half_step(laws: Sequence[NoiseLaw]) -> bool:
    """Whether noise is Gaussian with a standard deviation of 1 or more: normal, but for the grid."""
    return not any(law.kind == "laplace" or law.parameter < 1 for law in laws)


def area_half_widths(variance: np.ndarray, laws: Sequence[NoiseLaw], level: float) -> np.ndarray:
    """Half the width of an interval about estimates ``sum_j z_j e_j`` of counts, e the noise of the laws.

    Under Laplace noise, and where some Gaussian noise has a variance below 1, a factor times the standard error s
    covers at least the level, whatever the weights z. Under other Gaussian noise it is the normal quantile times s, and
    half a count more: what the grid of whole numbers costs at most where no weight exceeds 1 (Selberg's minorant:
    Vaaler 1985). Least squares gives counts of areas no weight above 1 on any spine that was tried; that none is
    possible is not proven.

    Args:
        variance: s squared, any shape; 0 where a count is exact.

    Returns:
        The same shape; 0 where the variance is 0.

    Raises:
        InvalidArgument: as :func:`interval_factor`.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> area_half_widths(np.array([0.0, 1.0, 100.0]), [DiscreteGaussian(1)], 0.95).round(2).tolist()
    [0.0, 2.46, 20.1]
    """
    factor = interval_factor(level, laws)
    step = HALF_STEP if costs_half_step(laws) else 0.0
    return np.where(variance > 0, factor * np.sqrt(variance) + step, 0.0)


_ROUNDS = 4
_LARGEST = 1e9  # a factor that stands for none
_MOST_VALUES = 32  # different coefficients of a denominator that are looked at one by one


def form_half_widths(
    variance: np.ndarray, spread: np.ndarray, laws: Sequence[NoiseLaw], level: float
) -> np.ndarray:
    """Half-widths of intervals about linear forms of an area's counts.

    A form with coefficients between -b and a is the sum of counts, each weighted, of the cells with coefficients of t
    or more, t from 0 to a, less those of -t or less. So where no noise has a weight above 1 in a count, none has a
    weight above w = a + b in the form, and its interval is w times that of :func:`area_half_widths` at variance over
    w². It is the one that holds whatever the weights are, where that is shorter and w is above 1.

    Args:
        variance: of the forms; 0 where they are exact.
        spread: w, which broadcasts with ``variance``.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> found = form_half_widths(np.array([100.0, 100.0]), np.array([1.0, 2.0]), [DiscreteGaussian(100)], 0.95)
    >>> found.round(2).tolist()
    [20.1, 20.6]
    """
    grid = spread * area_half_widths(variance / spread**2, laws, level)
    free = min(uniform_factor(laws, level), _LARGEST) * np.sqrt(variance)
    return np.where((spread > 1) & (free < grid), free, grid)


def extreme_pairs(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Pairs of coefficients among which those of ``a - R b`` are largest and smallest, whatever R: shape (2, pairs).

    Args:
        above, below: coefficients of a and b in the same cells, any shape.
    """
    a, b = above.ravel(), below.ravel()
    values = np.unique(b)
    if values.size > _MOST_VALUES:
        corners = [(x, y) for x in (a.min(), a.max(), 0.0) for y in (values[0], values[-1], 0.0)]
        return np.array(corners).T
    ends = [(end(a[b == value]), value) for value in values for end in (np.min, np.max)]
    return np.array([*ends, (0.0, 0.0)]).T


def area_ratios(
    estimates: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray, np.ndarray],
    pairs: np.ndarray,
    laws: Sequence[NoiseLaw],
    level: float,
) -> RatioSet:
    """Fieller's sets of ratios of linear forms, with a factor that holds on all of each set.

    For every R the half-width of a - R b is at most ``c sd``, c as of :func:`uniform_factor`, and where noise is
    Gaussian with variance 1 or more at most ``z sd + w(R) / 2``, w(R) how far its coefficients spread. On an interval
    of R the latter is at most ``(z + max w / (2 min sd)) sd``; w is convex, so that its maximum is at an end.

    Args:
        moments: Var a, Var b and their covariance, of the same shape.
    """
    a, b = estimates
    factor = np.full(a.shape, min(uniform_factor(laws, level), _LARGEST))
    found = fieller(a, b, *moments, factor)
    if not costs_half_step(laws):
        return found
    quantile = float(ndtri((1 + level) / 2))
    _, below, covariance = moments
    for _ in range(_ROUNDS):
        low, high = (np.where(found.bounded, end, 0.0) for end in (found.low, found.high))
        turn = np.divide(covariance, below, out=np.copy(low), where=below > 0)
        least = np.sqrt(ratio_variance(np.clip(turn, low, high), *moments))
        wide = np.maximum(_spread(pairs, low), _spread(pairs, high))
        grid = np.divide(HALF_STEP * wide, least, out=np.full(a.shape, np.inf), where=least > 0)
        factor = np.where(found.bounded, np.minimum(factor, quantile + grid), factor)
        found = fieller(a, b, *moments, factor)
    return found


def _spread(pairs: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """w(R): the largest coefficient of a - R b less the smallest, 0 among them."""
    top, bottom = np.zeros(ratio.shape), np.zeros(ratio.shape)
    for above, below in pairs.T:
        value = above - ratio * below
        top, bottom = np.maximum(top, value), np.minimum(bottom, value)
    return top - bottom
