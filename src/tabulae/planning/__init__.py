"""Plans: which queries a release will ask, how wrong its tables will be, and what it makes exact; no data is opened."""

from ._exactness import Exactness, ExactTable, check_joint_promise, described, exactness
from ._plan import LEVEL, MOST_ANSWERS, Plan, plan
from .table_errors import TableError

__all__ = [
    "LEVEL",
    "MOST_ANSWERS",
    "ExactTable",
    "Exactness",
    "Plan",
    "TableError",
    "check_joint_promise",
    "described",
    "exactness",
    "plan",
]
