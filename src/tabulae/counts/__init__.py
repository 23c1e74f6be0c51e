"""Counts: how many records fall in each cell of the domain. The one confidential object of the library.

Only `measure` (which adds noise to it), `tabulate` (which makes it) and `pipeline` (which hands it from one
to the other) import this room; everything after sees measurements. For the same reason a `Counts` prints no
number, refuses to be pickled, and raises errors that hold none.
"""

from .counts import Counts

__all__ = ["Counts"]
