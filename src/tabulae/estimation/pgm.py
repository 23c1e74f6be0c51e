"""Private-PGM: a non-negative graphical model fitted to the measured marginals, through the package mbi."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from ..domain import Table
from ..errors import NotEstimable, Unsupported, require
from ..linalg import Dense, Kron, LinearOperator, MatrixProduct
from ..strategy import Block, law_variances, merges, products
from .least_squares import OneSided
from .measured_cells import over_classes

LARGEST = 256.0
"""Largest junction tree, in MiB of its tables."""

_STEPS, _TOLERANCE = 5000, 1e-8

Term = tuple[int, list[LinearOperator]]


@dataclass(frozen=True, eq=False)
class GraphicalModel(OneSided):
    """The graphical model whose cliques are the measured sets of attributes and that fits the measurements best.

    ``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over all ``x >= 0`` whose sum is the least-squares estimate of the
    number of records (at least 1); of all such x the one of largest entropy, which is kept as a product of potentials
    and never listed. Solved by mirror descent, without a bound on what is left to gain.

    Raises:
        MissingDependency: the package mbi is not installed.
        Unsupported: the measured sets of attributes link into cliques too large for a model, or the measurements do
            not determine the number of records.

    Reference: McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for differential privacy"
    (2019).
    """

    @property
    def precision(self) -> float:
        return 0.1

    @cached_property
    def _merges(self):
        return merges(self.measurement.strategy)

    @cached_property
    def _names(self) -> list[str]:
        return [attribute.name for attribute in self.measurement.strategy.domain.attributes]

    @cached_property
    def model(self) -> Any:
        with _mbi() as mbi:
            domain = mbi.Domain(self._names, [p.shape[0] for p in self._merges])
            noise = law_variances(self.measurement.strategy, self.measurement.laws)
            blocks = zip(self.measurement.strategy.blocks, self.answers, noise, strict=True)
            measured = [self._measured(mbi, block, y, v**0.5) for block, y, v in blocks]
            self._check_size(mbi, domain, measured)
            solver = mbi.estimation.MirrorDescent()
            return solver.estimate(
                domain, measured, known_total=self._records(), iters=_STEPS, tol=_TOLERANCE
            )

    def _check_size(self, mbi: ModuleType, domain: Any, measured: list[Any]) -> None:
        size = mbi.junction_tree.hypothetical_model_size(domain, [m.clique for m in measured])
        if size > LARGEST:
            raise Unsupported(
                f"the measured sets of attributes link into cliques whose tables take {size:,.0f} MiB; a "
                f"graphical model is fitted up to {LARGEST:,.0f} MiB. Measure fewer combinations of attributes, or "
                'estimate by "least-squares"'
            )

    def _records(self) -> float:
        try:
            total = self.linear.answer_of(Table("total", {}))
        except NotEstimable:
            raise Unsupported(
                "the measurements do not determine how many records there are, which a graphical model needs: "
                'measure the total, or estimate by "least-squares"'
            ) from None
        return max(1.0, float(total[0]))

    def _terms(self, operator: LinearOperator) -> list[Term]:
        if isinstance(operator, MatrixProduct):
            raise Unsupported(
                "an explicit matrix over several attributes is measured, which is not a query on one clique of a "
                'graphical model: choose a strategy of products ("kron", "union", "workload"), or estimate by '
                '"non-negative"'
            )
        return [
            (c, [over_classes(f, p) for f, p in zip(factors, self._merges, strict=True)])
            for c, factors in products(operator)
        ]

    def _measured(self, mbi: ModuleType, block: Block, y: np.ndarray, deviation: float) -> Any:
        """One block as a linear query on the marginal of its attributes."""
        terms = self._terms(block.query)
        asked = [
            i for i in range(len(self._names)) if any(f[i].shape[0] > 1 or _told(f[i]) for _, f in terms)
        ]
        query = _Query([(c * 2.0**-block.exponent, f) for c, f in terms], asked)
        return mbi.LinearMeasurement(y, tuple(self._names[i] for i in asked), deviation, query)

    def point_of(self, operator: LinearOperator) -> np.ndarray:
        total = np.zeros(operator.shape[0])
        for coefficient, factors in self._terms(operator):
            kept = [i for i, f in enumerate(factors) if _told(f)]
            queries = [f if _told(f) else Dense(_first_column(f)) for f in factors]
            with _mbi():
                marginal = self.model.project(tuple(self._names[i] for i in kept))
                order = [marginal.domain.attributes.index(self._names[i]) for i in kept]
                values = np.asarray(marginal.datavector(flatten=False), dtype=float).transpose(order)
            total += coefficient * (Kron(queries) @ values.ravel())
        return total


def _told(factor: LinearOperator) -> bool:
    """Whether a matrix tells any two of its columns apart."""
    return factor.shape[1] > 1 and int(factor.column_classes().max()) > 0


def _first_column(factor: LinearOperator) -> np.ndarray:
    """What an attribute that is only summed up is multiplied by, (m, 1)."""
    return np.asarray(factor.columns(np.zeros(1, dtype=np.int64)), dtype=float)


class _Query:
    """A sum of products as mbi calls it: from a marginal's table to the answers, by jax."""

    def __init__(self, terms: list[tuple[float, list[LinearOperator]]], asked: list[int]) -> None:
        self._terms = []
        for weight, factors in terms:
            numbers = [_first_column(f).item() for i, f in enumerate(factors) if i not in asked]
            matrices = [np.asarray(factors[i].dense(), dtype=float) for i in asked]
            self._terms.append((float(weight * np.prod(numbers)), matrices))

    def __call__(self, factor: Any) -> Any:
        jnp = require("jax.numpy", "pgm", "estimating by a graphical model")
        total = 0.0
        for weight, matrices in self._terms:
            values = factor.datavector(flatten=False)
            for axis, matrix in enumerate(matrices):
                values = jnp.moveaxis(jnp.tensordot(matrix, values, (1, axis)), 0, axis)
            total = total + weight * values.reshape(-1)
        return total


@contextmanager
def _mbi() -> Iterator[ModuleType]:
    """mbi, in double precision while it is used; it warns on import of settings that this makes harmless."""
    jax = require("jax", "pgm", "estimating by a graphical model")
    with warnings.catch_warnings(), jax.enable_x64(new_val=True):
        warnings.simplefilter("ignore")
        yield require("mbi", "pgm", "estimating by a graphical model")
