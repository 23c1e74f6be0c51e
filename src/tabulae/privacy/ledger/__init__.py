"""The ledger: a budget, and everything that was spent of it."""

from .history import RELATIONS, Charge, Disclosure, Relation, read_loss, write_loss
from .ledger import Ledger, mark_void
from .store import START, link

__all__ = [
    "RELATIONS",
    "START",
    "Charge",
    "Disclosure",
    "Ledger",
    "Relation",
    "link",
    "mark_void",
    "read_loss",
    "write_loss",
]
