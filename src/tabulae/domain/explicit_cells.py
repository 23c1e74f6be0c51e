"""Tables written out over merged cells: cells that no table tells apart are one, of as many cells as it stands for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse

from ..errors import Unsupported
from ..linalg import (
    Kron,
    LinearOperator,
    Partition,
    SparseRows,
    Sum,
)
from .domain import Domain
from .merge import merged_factor
from .table import Table
from .workload import Workload

MOST_CELLS = 4096
_MOST_ENTRIES = 2**25  # of a table's matrix


class MergedCells:
    """The cells of a domain in classes, one Partition (merged x original categories) an attribute.

    As a matrix M (n x N) it is their Kronecker product; ``sizes`` (n,) counts the cells of each class: ``M M'``.
    """

    def __init__(self, domain: Domain, partitions: Sequence[Partition]) -> None:
        self.domain, self.partitions = domain, tuple(partitions)
        if self.count > MOST_CELLS:
            shape = zip(domain.names, (p.shape[0] for p in self.partitions), strict=True)
            described = ", ".join(f"{name}: {k}" for name, k in shape if k > 1)
            raise Unsupported(
                f"exact counts of this shape are worked out cell by cell, and the tables tell {self.count} cells apart "
                f"({described}); at most {MOST_CELLS} can be: make the exact tables margins or groups that nest, which "
                "have no such limit, or ask about tables of fewer categories"
            )

    @classmethod
    def of(cls, domain: Domain, tables: Sequence[Table]) -> MergedCells:
        """The coarsest classes that every one of the tables is a sum over."""
        named = [Table.of_terms(f"table {i}", table.terms) for i, table in enumerate(tables)]
        return cls(domain, Workload(domain, named).merge()[1])

    @property
    def count(self) -> int:
        """n, the number of merged cells."""
        return math.prod(partition.shape[0] for partition in self.partitions)

    @cached_property
    def operator(self) -> LinearOperator | None:
        """M (n x N); None where nothing is merged."""
        return None if self.count == self.domain.size else Kron(self.partitions)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many cells each merged one stands for, (n,) int64."""
        sizes = np.ones(1, dtype=np.int64)
        for partition in self.partitions:
            sizes = np.multiply.outer(sizes, partition.sizes).ravel()
        return sizes

    @cached_property
    def classes(self) -> np.ndarray:
        """The merged cell of every cell, (N,)."""
        labels = np.zeros(1, dtype=np.int64)
        for partition in self.partitions:
            labels = np.add.outer(labels * partition.shape[0], partition.classes).ravel()
        return labels

    def summed(self, cells: np.ndarray) -> np.ndarray:
        """``M x`` of a vector of all cells."""
        return cells if self.operator is None else self.operator @ cells

    def matrix(self, table: Table) -> SparseRows:
        """The table's matrix over merged cells (rows x n), whole numbers."""
        rows = table.rows(self.domain)
        if rows * self.count > _MOST_ENTRIES:
            raise Unsupported(
                f"table {table.name!r} has {rows} rows over {self.count} merged cells, too many to work out beside "
                "exact counts of this shape: ask for fewer rows, or make the exact tables margins or groups that nest"
            )
        terms = []
        for term in table.terms:
            factors = zip(term.over(self.domain), self.partitions, strict=True)
            terms.append((term.coefficient, Kron([merged_factor(f, partition) for f, partition in factors])))
        operator = Sum(terms)
        if not operator.integer:
            raise Unsupported(
                f"table {table.name!r} has entries that are not whole numbers: multiply it by their common denominator "
                "to publish it beside exact counts"
            )
        return scipy.sparse.csr_array(operator.dense())
