"""The release document: one TOML file that says what is counted, what is promised, and by which method."""

from ..products.areas.spec.section import AreaTable, Geography
from ..products.groups.spec import (
    Detailed,
    LevelRule,
    Suppression,
)
from ..products.tables.spec import Invariant
from .derived import Derived
from .document import (
    Source,
    Spec,
    geography_of,
    read_spec,
)
from .promise import Method
from .schema import NO_VALUE, ColumnRule
from .series import Series
from .shape import ReliabilitySection

__all__ = [
    "NO_VALUE",
    "AreaTable",
    "ColumnRule",
    "Derived",
    "Detailed",
    "Geography",
    "Invariant",
    "LevelRule",
    "Method",
    "ReliabilitySection",
    "Series",
    "Source",
    "Spec",
    "Suppression",
    "geography_of",
    "read_spec",
]
