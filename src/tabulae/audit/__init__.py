"""The audit: does the code that runs keep the promise that the spec makes? No real record is needed.

Records are invented for the spec's public domain and taken the whole way, engine and noise included. Inputs
that differ by one unit are measured with the same random words, so that their noise cancels and the change that
is left is the sensitivity, exactly; parameters are derived a second time, from columns written out; and a
statistical test tries to tell two neighbours apart by more than was promised.
"""

from ._audit import Audit, audit
from .checks import Check

__all__ = ["Audit", "Check", "audit"]
