"""Records to counts: the only room that sees a table of people.

The records stay in an engine (DuckDB, reached through Ibis), which reads them from a CSV file, a Parquet
file or a DuckDB database, maps every value to a code of the public domain, and counts the codes. Only the
counts leave it. Keys come from the domain and never from the data; what the domain does not list is
refused, or counted in an explicit category, as the rule of its column says.
"""

from ._tabulate import tabulate
from .declared import declared_columns, only_table
from .group_lines import open_group_lines
from .group_places import RecordShape
from .group_records import open_group_records
from .lines import (
    Code,
    Key,
    LineColumn,
    LineLayout,
    Listed,
    Unused,
    WholeNumber,
)
from .lines_check import check_lines
from .lines_faults import LineFault
from .peek import peek
from .rules import ColumnRule
from .source import Source
from .units import UnitRule

__all__ = [
    "Code",
    "ColumnRule",
    "Key",
    "LineColumn",
    "LineFault",
    "LineLayout",
    "Listed",
    "RecordShape",
    "Source",
    "UnitRule",
    "Unused",
    "WholeNumber",
    "check_lines",
    "declared_columns",
    "only_table",
    "open_group_lines",
    "open_group_records",
    "peek",
    "tabulate",
]
