"""The Bureau's files for detailed groups of persons (SafeTab-P) and households (SafeTab-H): its folders in,
T1 and T2 or T3 and T4 out, with errors beside them.

The release underneath is one of groups, of any records, regions and groups; what is peculiar to these files is here.
"""

from .inputs import Inputs, StabilityRule, check
from .product import level_documents, promise_document, run

__all__ = ["Inputs", "StabilityRule", "check", "level_documents", "promise_document", "run"]
