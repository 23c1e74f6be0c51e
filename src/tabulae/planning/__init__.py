"""Plans: which queries a release will ask, how wrong its tables will be, and what it makes exact; no data is opened."""

from ._detailed import DetailedPlan, GroupTableError, detailed_of, plan_detailed
from ._dispatch import plan
from ._exactness import Exactness, ExactTable, check_joint_promise, described, exactness
from ._geography import EntityDistance, GeographyPlan, LevelRow, plan_geography
from ._plan import LEVEL, MOST_ANSWERS, Plan, plan_tables
from .area_errors import AreaTableError
from .table_errors import TableError

__all__ = [
    "LEVEL",
    "MOST_ANSWERS",
    "AreaTableError",
    "DetailedPlan",
    "EntityDistance",
    "ExactTable",
    "Exactness",
    "GeographyPlan",
    "GroupTableError",
    "LevelRow",
    "Plan",
    "TableError",
    "check_joint_promise",
    "described",
    "detailed_of",
    "exactness",
    "plan",
    "plan_detailed",
    "plan_geography",
    "plan_tables",
]
