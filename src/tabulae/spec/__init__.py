"""The release document: one TOML file that says what is counted, what is promised, and by which method."""

from .detailed import Detailed, LevelRule, Suppression
from .document import Source, Spec, read_spec
from .promise import Method
from .schema import NO_VALUE, ColumnRule
from .workload import Invariant

__all__ = [
    "NO_VALUE",
    "ColumnRule",
    "Detailed",
    "Invariant",
    "LevelRule",
    "Method",
    "Source",
    "Spec",
    "Suppression",
    "read_spec",
]
