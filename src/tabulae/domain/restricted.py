"""A table restricted to the null space of exact tables: what is left of its queries to be measured with noise."""

from __future__ import annotations

from dataclasses import dataclass

from ..linalg import LinearOperator


@dataclass(frozen=True)
class Restricted:
    """``operator = divisor * W Pi_N`` over the domain (m x N), None where every row of W is exact."""

    operator: LinearOperator | None
    divisor: int
