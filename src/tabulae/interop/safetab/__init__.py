"""The Bureau's files for detailed groups (SafeTab-P): its folders in, its T1 and T2 out, with errors beside them.

The engine underneath takes any records, regions and groups; what is peculiar to these files is here.
"""

from ._check import Inputs, check
from ._run import Done, epsilon_at, run
from .documents import Epsilon, Summary, level_documents, promise_document
from .plan import StabilityRule

__all__ = [
    "Done",
    "Epsilon",
    "Inputs",
    "StabilityRule",
    "Summary",
    "check",
    "epsilon_at",
    "level_documents",
    "promise_document",
    "run",
]
