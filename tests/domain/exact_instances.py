"""Exact tables and workloads over one small domain that tests of invariants share."""

from __future__ import annotations

import numpy as np

from tabulae.domain import Domain, Table
from tabulae.linalg import AllRange, Dense, Identity, Partition, Prefix

DOMAIN = Domain({"a": 3, "b": 6, "c": 2})
GROUPS = Partition([0, 0, 1, 1, 1, 2])
COARSE = Partition([0, 0, 0, 0, 0, 1])
CROSSED = Partition([0, 1, 1, 1, 2, 2])


def margin(name: str, *attributes: str) -> Table:
    """A marginal of the domain."""
    return Table(name, {a: Identity(DOMAIN[a].size) for a in attributes})


NESTED: dict[str, list[Table]] = {
    "total": [margin("e")],
    "two margins": [margin("ea", "a"), margin("eb", "b")],
    "crossed margins": [margin("eab", "a", "b"), margin("ebc", "b", "c")],
    "all two-way": [margin("eab", "a", "b"), margin("ebc", "b", "c"), margin("eac", "a", "c")],
    "recode": [Table("eg", {"a": Identity(3), "b": GROUPS}), margin("ebc", "b", "c"), margin("e")],
    "chain of recodes": [Table("ek", {"b": COARSE, "a": Identity(3)}), Table("eg", {"b": GROUPS})],
    "prefix": [Table("ep", {"a": Prefix(3), "b": GROUPS})],
    "total and a group": [margin("e"), Table("eu", {"b": Dense(np.array([[1, 1, 0, 0, 0, 0]]))})],
    "four rows": [
        Table("a0", {"a": Dense(np.array([[1, 0, 0]]))}),
        Table("a1", {"a": Dense(np.array([[0, 1, 1]]))}),
        Table("c0", {"c": Dense(np.array([[1, 0]]))}),
        Table("c1", {"c": Dense(np.array([[0, 1]]))}),
    ],
    "repeated": [Table("eg", {"a": Identity(3), "b": GROUPS}), margin("ec", "c"), margin("ea", "a")],
}
"""Exact tables whose groups nest attribute by attribute."""

GENERAL: dict[str, list[Table]] = {
    "crossed recodes": [Table("eg", {"b": GROUPS}), Table("ex", {"b": CROSSED, "c": Identity(2)})],
    "a group alone": [Table("eu", {"b": Dense(np.array([[1, 1, 0, 0, 0, 0]]))})],
    "ranges of width 2": [Table("ew", {"b": Dense(np.eye(5, 6, dtype=int) + np.eye(5, 6, 1, dtype=int))})],
}
"""Exact tables of other shapes."""

TABLES: list[Table] = [
    margin("t"),
    margin("ab", "a", "b"),
    margin("abc", "a", "b", "c"),
    Table("prefix", {"b": Prefix(6)}),
    Table("ranges", {"a": Identity(3), "b": AllRange(6)}),
    Table("groups", {"b": GROUPS, "c": Identity(2)}),
    Table("crossed", {"a": Identity(3), "b": CROSSED}),
    Table("last", {"a": Identity(3), "b": Partition([0, 0, 0, 0, 0, 1])}),
]
"""Tables to publish beside them."""


def stacked(tables: list[Table]) -> np.ndarray:
    """C as a dense matrix."""
    return np.vstack([table.operator(DOMAIN).dense() for table in tables])


def projectors(tables: list[Table]) -> tuple[np.ndarray, np.ndarray]:
    """Pi_R and Pi_N, dense."""
    matrix = stacked(tables).astype(float)
    onto = np.linalg.pinv(matrix) @ matrix
    return onto, np.eye(len(onto)) - onto


def fixed_sums(queries: np.ndarray, off: np.ndarray) -> np.ndarray:
    """A basis of the l with ``l'W`` in the row space: sums of a table's rows that are exact (k x m)."""
    left = queries @ off
    _, singular, right = np.linalg.svd(left.T)
    return right[int((singular > 1e-9).sum()) :]
