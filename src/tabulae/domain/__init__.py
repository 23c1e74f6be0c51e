"""What is counted: the public domain, tables and workloads, from matrices or from SQL."""

from .attribute import Attribute
from .constraint import Constraint
from .domain import Domain, View
from .invariants import Invariants
from .recode import Recode
from .sql import table_from_sql
from .table import (
    Column,
    Table,
    Term,
)
from .workload import Workload

__all__ = [
    "Attribute",
    "Column",
    "Constraint",
    "Domain",
    "Invariants",
    "Recode",
    "Table",
    "Term",
    "View",
    "Workload",
    "table_from_sql",
]
