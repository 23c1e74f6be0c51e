"""The release document: one TOML file that says what is counted, what is promised, and by which method."""

from .detailed import Detailed, LevelRule, Suppression
from .document import Source, Spec, geography_of, read_spec
from .geography import AreaTable, Geography
from .promise import Method
from .schema import NO_VALUE, ColumnRule
from .workload import Invariant

__all__ = [
    "NO_VALUE",
    "AreaTable",
    "ColumnRule",
    "Detailed",
    "Geography",
    "Invariant",
    "LevelRule",
    "Method",
    "Source",
    "Spec",
    "Suppression",
    "geography_of",
    "read_spec",
]
