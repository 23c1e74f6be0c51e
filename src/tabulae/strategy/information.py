"""The information operator of a strategy and what follows from it: variances and least squares.

With blocks ``(A_i, v_i)`` the information operator is ``P = sum_i A_i' A_i / v_i``, N x N. Generalised
least squares answers a table W by ``Z y`` with ``Z = W P^+ A' S^-1``; its covariance is ``W P^+ W'``.
:func:`information` picks by structure, and ``.route`` says which it took:

=================  ===========================================  ======================================
route              structure                                    cost
=================  ===========================================  ======================================
``kron``           one block that is a Kronecker product        one pseudo-inverse per attribute
``weighted-kron``  one block, a product with weighted rows      one inverse per attribute
``lattice``        every block is a marginal                    closed form by set of attributes
``classes``        contrasts over common classes                one inverse for each piece
``residual``       groups beside the totals, one for each set   closed form by set of attributes
``dense``          at most ``EXPLICIT`` merged cells            one eigendecomposition of P
``rows``           at most ``EXPLICIT`` independent query rows  one eigendecomposition of A A'
``iterative``      several blocks that are products             conjugate gradients; variances bounded
=================  ===========================================  ======================================

Everything here is planning and post-processing: public numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from ..domain import Workload
from ..errors import NotEstimable, Unsupported
from ..linalg import (
    Kron,
    LinearOperator,
    Product,
)
from .strategy import Strategy

EXPLICIT = 4096
"""Largest order of a matrix that is decomposed as a whole (about a minute on one core)."""

_FEW, _FEWER = (
    1024,
    8,
)  # cells beyond which, with as many times fewer rows, an explicit matrix is worked out by rows


@dataclass(frozen=True)
class Profile:
    """How an answer's noise is made up: statistics of the coefficients z of its noise variables.

    Arrays of shape (blocks, queries), z in units of the block's answers: ``power2 = sum z^2``,
    ``power4 = sum z^4``, ``power6 = sum z^6``, ``largest = max |z|``, ``count`` = how many are non-zero.
    ``exact`` is False where all but ``power2`` are upper bounds.

    What would repeat may be left out: ``blocks`` names the strategy's blocks that the rows stand for (None: all,
    in order; a block left out has no part in the answer), and ``inverse`` (m,) the column that each query has
    (None: its own).
    """

    power2: np.ndarray
    power4: np.ndarray
    power6: np.ndarray
    largest: np.ndarray
    count: np.ndarray
    exact: bool = True
    blocks: tuple[int, ...] | None = None
    inverse: np.ndarray | None = None


@dataclass(frozen=True)
class VarianceBound:
    """All that is known of an answer's noise is that its variance is at most this, (m,), in squared counts."""

    variance: np.ndarray


class Information(Protocol):
    """P of a strategy under given block variances, and least squares through it."""

    route: str

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers of ``operator`` (m, N) from the blocks' noisy answers."""
        ...

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W'), shape (m,), in squared counts; an upper bound on the route ``iterative``."""
        ...

    def total(self, workload: Workload) -> float:
        """Total variance ``sum_t weight_t^2 sum_q Var(q)``, in squared weighted counts."""
        ...

    def profile(self, operator: LinearOperator) -> Profile | VarianceBound:
        """Statistics of the coefficients Z of the noise variables, or a bound on their variance."""
        ...


def kron_vectors(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Kronecker product of vectors, in C order."""
    out = np.ones(1)
    for vector in vectors:
        out = np.multiply.outer(out, vector).ravel()
    return out


@lru_cache(maxsize=4)
def information(strategy: Strategy, variances: tuple[float, ...]) -> Information:
    """P of ``strategy`` when block i has noise variance ``variances[i]`` (squared counts).

    Raises :class:`~tabulae.errors.Unsupported` where neither structure nor size allows it.
    """
    from .explicit_information import (
        DenseInformation,
        RowsInformation,
        merged_cells,
        reduced_count,
    )
    from .iterative_information import IterativeInformation
    from .kron_information import KronInformation
    from .lattice_information import LatticeInformation, is_lattice
    from .residual_information import ResidualInformation, structure_of
    from .row_information import ClassInformation, contrasts_of
    from .weighted_kron_information import WeightedKronInformation, weighted_kron

    if strategy.exact is not None and strategy.exact.structure != "product":
        if merged_cells(strategy) <= EXPLICIT:
            return DenseInformation(strategy, variances)
        raise Unsupported(
            f"exact tables that do not nest attribute by attribute, and {merged_cells(strategy):,} cells that they and "
            f"the measurements tell apart: at most {EXPLICIT:,} are worked out. Make margins or nested groups exact"
        )
    if len(strategy.blocks) == 1 and isinstance(strategy.blocks[0].query, Kron):
        return KronInformation(strategy.blocks[0], variances[0])
    if len(strategy.blocks) == 1 and weighted_kron(strategy.blocks[0].query) is not None:
        return WeightedKronInformation(strategy.blocks[0], variances[0])
    if contrasts_of(strategy) is not None:
        return ClassInformation(strategy, variances)
    if is_lattice(strategy):
        return LatticeInformation(strategy, variances)
    structure = structure_of(strategy)
    if structure is not None:
        return ResidualInformation(strategy, variances, structure)
    cells, rows = merged_cells(strategy), reduced_count(strategy)
    explicit = any(isinstance(block.query, Product) for block in strategy.blocks)
    few = explicit and cells > _FEW and rows * _FEWER <= cells
    if cells <= EXPLICIT and not few and (explicit or cells <= rows or rows > EXPLICIT):
        return DenseInformation(strategy, variances)
    if rows <= EXPLICIT:
        return RowsInformation(strategy, variances)
    if len(strategy.blocks) > 1 and not explicit:
        return IterativeInformation(strategy, variances)
    raise Unsupported(
        f"strategy {strategy.method!r} measures {len(strategy.blocks)} overlapping groups of queries with {rows:,} "
        f"independent rows over {cells:,} merged cells; exact least squares is available up to {EXPLICIT:,} of either. "
        'Choose a method whose strategy is one Kronecker product ("kron", "identity"), or ask for fewer or coarser '
        "tables"
    )


def coefficient_statistics(z: np.ndarray) -> np.ndarray:
    """sum z^2, sum z^4, sum z^6, max |z| and the count of non-zeros of each row; (5, rows)."""
    size = np.abs(z)
    square = size * size
    largest = size.max(axis=1, initial=0.0)
    count = (size > 1e-12 * np.maximum(largest, 1e-300)[:, None]).sum(axis=1)
    return np.stack([square.sum(axis=1), (square**2).sum(axis=1), (square**3).sum(axis=1), largest, count])


def merge_statistics(total: np.ndarray, part: np.ndarray) -> None:
    """Add the statistics of further columns of z to those of the columns before, in place."""
    total[[0, 1, 2, 4]] += part[[0, 1, 2, 4]]
    np.maximum(total[3], part[3], out=total[3])


def refuse_not_estimable() -> NotEstimable:
    """The error for a query outside the row space of the strategy."""
    return NotEstimable(
        "the measurements do not determine this table: it asks for detail, or a combination of attributes, "
        "that no measured query distinguishes"
    )
