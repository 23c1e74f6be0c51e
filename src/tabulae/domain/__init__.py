"""What is counted: the public domain, tables and workloads, from matrices or from SQL.

What reads SQL imports sqlglot, which takes long: import ``tabulae.domain.sql`` and ``tabulae.domain.figure_sql`` where
they are needed.
"""

from .attribute import RESULT_COLUMNS, TOTAL_LABEL, Attribute, Recode, Value
from .classification import Classification
from .domain import AttributeView, Domain, heading_and_labels
from .figure import Bracket, Figure, Linear, Quantile, Ratio, Variance, table_difference
from .groups import (
    NO_CODE,
    CodeFamily,
    Group,
    GroupKind,
    GroupMap,
    GroupSelection,
    Ladder,
    Regions,
    Rung,
    assign_groups,
)
from .invariants import Invariants
from .row_space import canonical_row_space, describe_row_space, joint_row_space
from .stability import Stability, group_stability
from .table import Constraint, Table, TableColumn, Term, positive_fraction
from .workload import Workload, merged_factor

__all__ = [
    "NO_CODE",
    "RESULT_COLUMNS",
    "TOTAL_LABEL",
    "Attribute",
    "AttributeView",
    "Bracket",
    "Classification",
    "CodeFamily",
    "Constraint",
    "Domain",
    "Figure",
    "Group",
    "GroupKind",
    "GroupMap",
    "GroupSelection",
    "Invariants",
    "Ladder",
    "Linear",
    "Quantile",
    "Ratio",
    "Recode",
    "Regions",
    "Rung",
    "Stability",
    "Table",
    "TableColumn",
    "Term",
    "Value",
    "Variance",
    "Workload",
    "assign_groups",
    "canonical_row_space",
    "describe_row_space",
    "group_stability",
    "heading_and_labels",
    "joint_row_space",
    "merged_factor",
    "positive_fraction",
    "table_difference",
]
