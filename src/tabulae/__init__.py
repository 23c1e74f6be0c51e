"""tabulae: statistical tables under differential privacy, with the least error and a proven promise.

>>> import tabulae as tb
>>> workload = tb.Workload.of(tb.AllRange(8))
>>> strategy = tb.select(workload, noise="gaussian", method="opt0")
>>> bound = tb.lower_bound(workload, noise="gaussian", budget=tb.ZCDP("1/2"), kind="dual")
>>> strategy.error(workload, tb.ZCDP("1/2")).rmse < 1.001 * bound
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import _version

if TYPE_CHECKING:
    from ._run import run
    from .domain import Attribute, Constraint, Domain, Invariants, Recode, Table, Workload
    from .errors import TabulaeError
    from .estimation import Estimate, estimate, smallest_budget
    from .linalg import (
        AllRange,
        Dense,
        Identity,
        Kron,
        LinearOperator,
        Permuted,
        Prefix,
        Scaled,
        Sparse,
        Stack,
        Total,
        WidthRange,
    )
    from .measurement import Measurement
    from .privacy import ZCDP, ApproxDP, Ledger, PrivacyLoss, PureDP, noise
    from .products.areas.spine.spine import Spine
    from .products.product import plan
    from .products.tables.count import Counts
    from .products.tables.figures import means
    from .products.tables.measure import measure
    from .products.tables.plan import Plan
    from .release import Release
    from .strategy import Strategy, Targets, lower_bound, select

__version__ = _version.VERSION

# Importing tabulae costs nothing: a name brings its room with it on first use.
_HOME = {
    "products.tables.measure": ["measure"],
    "_run": ["run"],
    "products.tables.count": ["Counts"],
    "products.tables.figures": ["means"],
    "errors": ["TabulaeError"],
    "estimation": ["Estimate", "estimate", "smallest_budget"],
    "products.areas.spine.spine": ["Spine"],
    "linalg": [
        "AllRange",
        "Dense",
        "Identity",
        "Kron",
        "LinearOperator",
        "Permuted",
        "Prefix",
        "Scaled",
        "Sparse",
        "Stack",
        "Total",
        "WidthRange",
    ],
    "measurement": ["Measurement"],
    "products.product": ["plan"],
    "products.tables.plan": ["Plan"],
    "privacy": ["ApproxDP", "Ledger", "PrivacyLoss", "PureDP", "ZCDP", "noise"],
    "release": ["Release"],
    "strategy": ["Strategy", "Targets", "lower_bound", "select"],
    "domain": ["Attribute", "Constraint", "Domain", "Invariants", "Recode", "Table", "Workload"],
}
_ROOM = {name: room for room, names in _HOME.items() for name in names}

__all__ = [
    "ZCDP",
    "AllRange",
    "ApproxDP",
    "Attribute",
    "Constraint",
    "Counts",
    "Dense",
    "Domain",
    "Estimate",
    "Identity",
    "Invariants",
    "Kron",
    "Ledger",
    "LinearOperator",
    "Measurement",
    "Permuted",
    "Plan",
    "Prefix",
    "PrivacyLoss",
    "PureDP",
    "Recode",
    "Release",
    "Scaled",
    "Sparse",
    "Spine",
    "Stack",
    "Strategy",
    "Table",
    "TabulaeError",
    "Targets",
    "Total",
    "WidthRange",
    "Workload",
    "__version__",
    "estimate",
    "lower_bound",
    "means",
    "measure",
    "noise",
    "plan",
    "run",
    "select",
    "smallest_budget",
]


def __getattr__(name: str) -> object:
    if name not in _ROOM:
        raise AttributeError(f"module 'tabulae' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tabulae.{_ROOM[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
