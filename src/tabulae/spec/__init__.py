"""The release document: one TOML file that says what is counted, what is promised, and by which method."""

from .derived import Derived
from .detailed import (
    Detailed,
    LevelRule,
    Suppression,
)
from .document import (
    Source,
    Spec,
    geography_of,
    read_spec,
)
from .geography import AreaTable, Geography
from .promise import Method
from .reliability import ReliabilitySection
from .schema import NO_VALUE, ColumnRule
from .series import Series
from .workload import Invariant

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
