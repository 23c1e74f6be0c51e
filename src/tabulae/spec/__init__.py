"""The release document: one TOML file that says what is counted, what is promised, and by which method."""

from .derived import Derived
from .document import Spec, read_spec
from .promise import Method
from .schema import NO_VALUE, ColumnRule
from .series import Series
from .shape import ReliabilitySection

__all__ = [
    "NO_VALUE",
    "ColumnRule",
    "Derived",
    "Method",
    "ReliabilitySection",
    "Series",
    "Spec",
    "read_spec",
]
