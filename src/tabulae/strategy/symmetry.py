"""Categories that play the same part in every table, and the workload taken apart along them.

Two categories of an attribute are exchangeable when swapping them changes no table's Gram matrix: the single years
of an age group, the states of a country, both sexes. The convex problem of the best Gaussian strategy then has an
optimum with the same symmetry, and falls apart. Let attribute i have classes of exchangeable categories, of sizes
s_ic. The functions on it are those constant on classes, with basis ``1_c / sqrt(s_c)``, and for every class those
that vanish outside it and add up to zero, where each Gram matrix is a number times the identity. So ``W'W`` is, for
every choice of attributes S and of a class c_i for i in S, a *piece*

    V_S,c = sum_l a_l prod_{i in S} a_li(c_i) (x)_{i not in S} V_li,

a matrix over the combinations of classes of the other attributes, which occurs ``prod_{i in S} (s_i,c_i - 1)`` times.
For marginals every piece is 1 x 1, one for each set of attributes: HDMM's Theorem 12. Where no category has its like
the only piece is W'W itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np

from ..domain import Workload
from ..errors import Unsupported
from ..linalg import LinearOperator, Partition
from .block import kron_sum
from .deadline import check_time

MOST_COMBINATIONS = 2048
"""Largest number of combinations of classes: the order of the largest piece."""

WIDEST = 8192
"""Largest merged attribute that is optimised with a dense matrix."""

_MOST_PIECES = 2048
FEW_CELLS, _PAYS = 256, 4  # below so many cells, or with less than so many a combination, cells are listed
_MOST_WORK = 2**34  # cubed orders of all pieces together
_COMPARISONS = 2**17  # of two categories; beyond, categories count as different
_RELATIVE = 1e-12  # eigenvalues below this share of what was added up for them count as zero


@dataclass(frozen=True)
class SymmetricPiece:
    """One piece of W'W: ``gram`` (n x n) over ``places``, n combinations of classes, occurring ``copies`` times.

    ``within`` names for every attribute the class whose contrasts the piece is about, or None; ``columns`` (n,) are
    the places' numbers among all combinations of the other attributes' classes. ``rows`` (r x n) has full row rank
    and ``rows' rows = gram``.
    """

    within: tuple[int | None, ...]
    places: np.ndarray
    columns: np.ndarray
    copies: int
    gram: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Symmetry:
    """A workload's classes, one partition an attribute, and its pieces.

    ``sizes`` (g,) are the numbers of cells of the combinations of classes, in C order.
    """

    classes: tuple[Partition, ...]
    sizes: np.ndarray
    pieces: tuple[SymmetricPiece, ...]


def exchangeable(grams: Sequence[np.ndarray]) -> np.ndarray:
    """A label for every index, equal where swapping two leaves each of ``grams`` (n x n) as it is.

    Entries are compared exactly; labels are numbered by first appearance.

    >>> exchangeable([np.array([[3, 1, 1], [1, 2, 0], [1, 0, 2]])]).tolist()
    [0, 1, 1]
    """
    n = grams[0].shape[0]
    marks = _rounded([m for g in grams for m in (g.diagonal(), g.sum(axis=1), g.sum(axis=0))])
    alike: dict[bytes, list[int]] = {}
    labels, count, left = np.empty(n, dtype=np.int64), 0, _COMPARISONS
    for j, mark in enumerate(marks):
        candidates = alike.setdefault(mark.tobytes(), [])
        tried = candidates[: -left - 1 : -1]  # the latest first: classes are mostly runs
        twin = next((k for k in tried if all(_swap(g, j, k) for g in grams)), None)
        left = max(0, left - len(tried))
        if twin is None:
            candidates.append(j)
            labels[j], count = count, count + 1
        else:
            labels[j] = labels[twin]
    return labels


def _swap(gram: np.ndarray, j: int, k: int) -> bool:
    """Whether swapping j and k leaves the matrix as it is."""
    if gram[j, j] != gram[k, k] or gram[j, k] != gram[k, j]:
        return False
    rows, columns = gram[j] == gram[k], gram[:, j] == gram[:, k]
    rows[[j, k]] = columns[[j, k]] = True
    return bool(rows.all() and columns.all())


def symmetry(workload: Workload, deadline: float = math.inf) -> Symmetry:
    """The classes and pieces of a merged workload.

    Raises :class:`~tabulae.errors.Unsupported` where pieces are too many or too large, for the ``deadline`` or at all.
    """
    if max(workload.domain.shape) > WIDEST:
        raise Unsupported(
            f"an attribute has {max(workload.domain.shape):,} categories that tables tell apart; up to {WIDEST:,} are "
            "compared"
        )
    least = fewest_combinations(workload)
    if least > MOST_COMBINATIONS:
        raise Unsupported(
            f"beyond categories that all tables treat alike, the tables tell at least {least:,} combinations apart; up "
            f"to {MOST_COMBINATIONS:,} are optimised together"
        )
    attributes, terms = _attributes(workload), workload.gram_terms()
    grid, choices = _grid(attributes)
    if not _fits(grid, choices):
        raise Unsupported(
            f"beyond categories that all tables treat alike, the tables tell {math.prod(grid):,} combinations apart, "
            f"in {math.prod(len(c) for c in choices):,} pieces; up to {MOST_COMBINATIONS:,} are optimised together"
        )
    check_time(deadline, math.prod(grid))
    index = np.arange(math.prod(grid)).reshape(grid)
    pieces = []
    for within in itertools.product(*choices):
        gram, size = _gram(terms, attributes, within)
        places = index[tuple(slice(None) if c is None else c for c in within)].reshape(-1)
        copies = math.prod(
            int(a.sizes[c]) - 1 for a, c in zip(attributes, within, strict=True) if c is not None
        )
        pieces.extend(_piece(within, places, copies, gram, size))
    sizes = reduce(np.multiply.outer, (a.sizes for a in attributes)).reshape(-1)
    classes = tuple(Partition(a.labels, len(a.sizes)) for a in attributes)
    return Symmetry(classes, sizes.astype(float), tuple(pieces))


def symmetry_pays(workload: Workload) -> bool:
    """Whether a merged workload of many cells has few combinations of classes in comparison."""
    cells = workload.domain.size
    if cells <= FEW_CELLS or max(workload.domain.shape) > WIDEST:
        return False
    if fewest_combinations(workload) * _PAYS > cells:
        return False
    attributes = _attributes(workload)
    combinations = math.prod(len(a.sizes) for a in attributes)
    return combinations * _PAYS <= cells and _fits(*_grid(attributes))


@lru_cache(maxsize=4)
def fewest_combinations(workload: Workload) -> int:
    """A lower bound on the combinations of classes, from sums of rows and columns: no matrix is written out."""
    least = 1
    for column in zip(*(factors for _, factors in workload.gram_terms()), strict=True):
        factors = list({id(f): f for f in column}.values())  # equal ones twice change nothing
        ones = np.ones(factors[0].shape[1])
        marks = _rounded([mark for f in factors for mark in (f @ ones, f.T @ ones)])
        least *= len(np.unique(marks, axis=0))
    return least


def _rounded(marks: Sequence[np.ndarray]) -> np.ndarray:
    """Marks of every category, (n, marks), to nine digits: sums of floats depend on their order."""
    table = np.stack(marks, axis=1)
    # -0.0 and 0.0 are one number
    return np.round(table / np.maximum(np.abs(table).max(axis=0), 1e-300), 9) + 0.0


def _attributes(workload: Workload) -> list[_Attribute]:
    factors = [factors for _, factors in workload.gram_terms()]
    return [_Attribute(list(dict.fromkeys(column))) for column in zip(*factors, strict=True)]


def _grid(attributes: Sequence[_Attribute]) -> tuple[tuple[int, ...], list[list[int | None]]]:
    """The number of classes of each attribute, and what a piece may be about: None, or a class of several cells."""
    grid = tuple(len(a.sizes) for a in attributes)
    return grid, [[None, *np.flatnonzero(a.sizes > 1).tolist()] for a in attributes]


def _fits(grid: Sequence[int], choices: Sequence[Sequence[int | None]]) -> bool:
    work = math.prod(n**3 + len(c) - 1 for n, c in zip(grid, choices, strict=True))
    pieces = math.prod(len(c) for c in choices)
    return math.prod(grid) <= MOST_COMBINATIONS and pieces <= _MOST_PIECES and work <= _MOST_WORK


class _Attribute:
    """The exchangeable classes of one attribute, and its Gram matrices in their terms."""

    def __init__(self, factors: Sequence[LinearOperator]) -> None:
        self._dense = {f: np.asarray(f.dense()) for f in factors}
        self.labels = exchangeable(list(self._dense.values()))
        self.sizes = np.bincount(self.labels)

    @cached_property
    def means(self) -> dict[LinearOperator, np.ndarray]:
        """The Gram matrices between the functions ``1_c / sqrt(s_c)``."""
        basis = np.zeros((len(self.labels), len(self.sizes)))
        basis[np.arange(len(self.labels)), self.labels] = 1 / np.sqrt(self.sizes[self.labels])
        return {f: basis.T @ g @ basis for f, g in self._dense.items()}

    @cached_property
    def contrasts(self) -> dict[LinearOperator, np.ndarray]:
        """What they multiply contrasts within each class by."""
        return {f: self._numbers(g) for f, g in self._dense.items()}

    def _numbers(self, gram: np.ndarray) -> np.ndarray:
        """One matrix's numbers; 0 for classes of one."""
        out = np.zeros(len(self.sizes))
        for c in np.flatnonzero(self.sizes > 1):
            one, other = np.flatnonzero(self.labels == c)[:2]
            out[c] = gram[one, one] - gram[one, other]
        return out


def _gram(
    terms: Sequence[tuple[float, tuple[LinearOperator, ...]]],
    attributes: Sequence[_Attribute],
    within: tuple[int | None, ...],
) -> tuple[np.ndarray, float]:
    """V_S,c, and the size of what was added up for it."""
    products, size = [], 0.0
    for coefficient, factors in terms:
        scale, parts = coefficient, []
        for attribute, factor, c in zip(attributes, factors, within, strict=True):
            means = attribute.means[factor]
            if c is not None:
                scale *= attribute.contrasts[factor][c]
            elif means.size == 1:
                scale *= means[0, 0]
            else:
                parts.append(means)
            if scale == 0:
                break
        else:
            products.append((scale, parts or [np.ones((1, 1))]))
            size += abs(scale) * math.prod(float(np.linalg.norm(part)) for part in parts)
    total = kron_sum(products) if products else np.zeros((1, 1))
    return (total + total.T) / 2, size


def _piece(
    within: tuple[int | None, ...], places: np.ndarray, copies: int, gram: np.ndarray, size: float
) -> Iterator[SymmetricPiece]:
    """The piece without the combinations that no query counts; nothing if there is none left."""
    if size == 0:
        return
    live = np.flatnonzero(gram.diagonal() > _RELATIVE * size)
    if not live.size:
        return
    gram = gram[np.ix_(live, live)]
    values, vectors = np.linalg.eigh(gram)
    kept = values > _RELATIVE * size
    rows = (vectors[:, kept] * np.sqrt(values[kept])).T
    yield SymmetricPiece(within, places[live], live, copies, gram, rows)


def class_means(matrix: np.ndarray, classes: Partition) -> tuple[np.ndarray, int]:
    """The means over each class of the rows of an integer matrix, as integers over a common denominator."""
    common = reduce(math.lcm, (int(s) for s in classes.sizes), 1)
    return (classes @ matrix.T).T * (common // classes.sizes), common


def within_class(matrix: np.ndarray, classes: Partition, c: int) -> float:
    """What the Gram matrix of an attribute's matrix multiplies contrasts within class c by."""
    one, other = matrix[:, np.flatnonzero(classes.classes == c)[:2]].T.astype(float)
    return float(one @ one - one @ other)
