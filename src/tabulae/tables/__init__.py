"""What is counted: the public domain, tables and workloads, from matrices or from SQL."""

from .attribute import Attribute
from .domain import Domain, View
from .recode import Recode
from .sql import table_from_sql
from .table import Column, Table, Term
from .workload import Workload

__all__ = ["Attribute", "Column", "Domain", "Recode", "Table", "Term", "View", "Workload", "table_from_sql"]
