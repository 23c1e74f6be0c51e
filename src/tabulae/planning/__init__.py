"""Plans: which queries a release will ask, how wrong its tables will be, and what it makes exact; no data is opened."""

from ._detailed import (
    DetailedPlan,
    GroupTableError,
    detailed_of,
    plan_detailed,
)
from ._dispatch import plan
from ._exactness import (
    Exactness,
    ExactTable,
    check_joint_promise,
    described,
    exactness,
)
from ._geography import (
    EntityDistance,
    GeographyPlan,
    LevelRow,
    plan_geography,
)
from ._plan import (
    LEVEL,
    MOST_ANSWERS,
    Plan,
    check_saved,
    plan_tables,
)
from .area_errors import AreaTableError
from .derived import check_derived
from .smallest import (
    BestShares,
    LevelNeed,
    Smallest,
    TargetRow,
)
from .table_errors import TableError

__all__ = [
    "LEVEL",
    "MOST_ANSWERS",
    "AreaTableError",
    "BestShares",
    "DetailedPlan",
    "EntityDistance",
    "ExactTable",
    "Exactness",
    "GeographyPlan",
    "GroupTableError",
    "LevelNeed",
    "LevelRow",
    "Plan",
    "Smallest",
    "TableError",
    "TargetRow",
    "check_derived",
    "check_joint_promise",
    "check_saved",
    "described",
    "detailed_of",
    "exactness",
    "plan",
    "plan_detailed",
    "plan_geography",
    "plan_tables",
]
