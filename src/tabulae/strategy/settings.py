"""What every selection method is given besides the workload."""

from __future__ import annotations

import numbers
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ..domain import Table, Workload
from ..errors import InvalidArgument
from ..linalg import LinearOperator
from .strategy import NoiseKind


@dataclass(frozen=True)
class Settings:
    """How to select: the noise, the neighbours that are promised, and how long and how hard to search.

    ``groups`` are names of tables measured together (``union``), None to cluster by what is cheapest; ``rows`` is
    the number of rows of a p-Identity strategy beside the identity (HDMM's p), an int for every attribute or
    a dict by attribute, None for its convention. ``design`` is the set of design queries that "eigen" weighs, by name
    or as a matrix, None for the workload's eigenvectors; ``group_size`` is the size of the groups of
    "eigen-separation" and ``vectors`` how many "principal-vectors" have weights of their own. ``invariants`` are the
    exact tables that the workload was restricted by: they decide who is a neighbour under
    "replace-within-invariants". ``deadline`` is on :func:`time.monotonic`'s clock.
    """

    noise: NoiseKind
    neighbours: str = "add-remove"
    tolerance: float = 1e-3
    restarts: int | None = None
    seed: int = 0
    deadline: float | None = None
    groups: tuple[tuple[str, ...], ...] | None = None
    invariants: tuple[Table, ...] = ()
    rows: int | dict[str, int] | None = None
    design: str | np.ndarray | LinearOperator | None = None
    group_size: int | None = None
    vectors: int | None = None

    @property
    def norm(self) -> int:
        """2 for Gaussian noise, which pays for L2 sensitivity, and 1 for Laplace noise."""
        return 2 if self.noise == "gaussian" else 1

    def remaining(self) -> float | None:
        """Seconds left, or None where there is no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


def check_groups(
    groups: Sequence[Sequence[str]] | None, workload: Workload
) -> tuple[tuple[str, ...], ...] | None:
    """Groups of table names that hold every table exactly once; InvalidArgument otherwise."""
    if groups is None:
        return None
    if isinstance(groups, str) or any(isinstance(group, str) for group in groups):
        raise InvalidArgument("groups must be a list of lists of table names: groups=[['a', 'b'], ['c']]")
    names = [name for group in groups for name in group]
    tables = [table.name for table in workload.tables]
    for name in names:
        if name not in tables:
            raise InvalidArgument(f"groups names table {name!r}; the workload has {', '.join(tables[:20])}")
        if names.count(name) > 1:
            raise InvalidArgument(f"groups names table {name!r} twice: each table is measured in one group")
    left = [name for name in tables if name not in set(names)]
    if left:
        raise InvalidArgument(f"groups leaves out table {left[0]!r}: put every table in a group")
    return tuple(tuple(group) for group in groups if group)


def check_rows(rows: int | Mapping[str, int] | None, workload: Workload) -> int | dict[str, int] | None:
    """HDMM's p: a whole number of at least 1, or one by attribute; InvalidArgument otherwise."""
    if rows is None:
        return None
    given = dict(rows) if isinstance(rows, Mapping) else {"": rows}
    for name, count in given.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            where = f" of attribute {name!r}" if name else ""
            raise InvalidArgument(f"rows{where} must be a whole number of at least 1, not {count!r}")
        if name:
            workload.domain.axis(name)
    return given if isinstance(rows, Mapping) else rows


DESIGN_SETS = ("eigen-queries", "wavelet", "fourier", "hierarchical", "workload")
"""The design sets that "eigen" knows by name."""

_OPTIONS = {"design": "eigen", "group_size": "eigen-separation", "vectors": "principal-vectors"}


def check_design(design: Any) -> str | np.ndarray | LinearOperator | None:
    """The name of a design set, or a matrix of one row a query; InvalidArgument otherwise."""
    if (
        design is None
        or isinstance(design, LinearOperator)
        or (isinstance(design, str) and design in DESIGN_SETS)
    ):
        return design
    if isinstance(design, str):
        raise InvalidArgument(
            f"unknown design set {design!r}: {', '.join(DESIGN_SETS)}, or a matrix with one row a query"
        )
    known = f"give {', '.join(DESIGN_SETS)}, or a matrix of real numbers"
    if isinstance(design, np.ma.MaskedArray):
        raise InvalidArgument(f"design is a masked array: {known}")
    try:
        array = np.asarray(design.toarray() if scipy.sparse.issparse(design) else design)
    except ValueError:
        raise InvalidArgument(f"design has rows of different lengths: {known}") from None
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"design is an array of {array.dtype}: {known}")
    return array.astype(float)


def check_number(name: str, value: Any, *, whole: bool = False) -> None:
    """A real number (a whole one, not below 0), or InvalidArgument."""
    if whole and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0):
        raise InvalidArgument(f"{name} must be a whole number of at least 0, not {value!r}")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidArgument(f"{name} must be a number, not {value!r}")


def check_count(name: str, count: Any) -> int | None:
    """A whole number of at least 1, or None; InvalidArgument otherwise."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidArgument(f"{name} must be a whole number of at least 1, not {count!r}")
    return int(count)


def check_options(method: str, **given: Any) -> None:
    """Refuse an option that the method does not have."""
    for name, value in given.items():
        if value is not None and _OPTIONS[name] != method:
            raise InvalidArgument(f'{name} is an option of method "{_OPTIONS[name]}", not of "{method}"')
