"""Counts that a release states exactly: what a ledger keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument

PROMISE = "exact, outside the guarantee"
"""What the ledger says of every disclosure."""


@dataclass(frozen=True)
class Disclosure:
    """A table of counts that is published as it is, and the row space of its matrix.

    Attributes:
        table: the name under which it is published.
        reason: why, in words for the report.
        rows: what the counts are sums of, as plain JSON. ``attributes`` maps each attribute that matters to the labels
            of its categories. ``terms`` is a list of ``{"coefficient": c, "factors": {attribute: matrix}}``: the
            table's matrix is the sum of c times the Kronecker product of the matrices, with a single row of ones for
            every attribute that a term leaves out. A matrix is ``{"classes": [...], "count": m}``, the row among m to
            which each category is added (-1: none), or ``{"rows": [[...], ...]}``, whole numbers, one column a
            category. Of a table with one term the matrices span the rows of the table's own, and need not equal them.

    Raises:
        InvalidArgument: no name, no reason, or rows that are not such a document.

    Privacy: an exact count has no privacy loss that could be bounded: two data sets on which it differs are told apart
        with certainty. What remains is a promise about the rest, so what is exact must be known for as long as the
        ledger lives. By composition (Subspace Differential Privacy, Proposition 2.9) the disclosures of several
        releases count together: the row space of their stacked rows is exact, which may hold counts that no single
        release disclosed.

    >>> term = {"coefficient": 1, "factors": {"sex": {"classes": [0, 1], "count": 2}}}
    >>> rows = {"attributes": {"sex": ["F", "M"]}, "terms": [term]}
    >>> Disclosure("exact sex", "the register is public", rows).attributes
    ('sex',)
    """

    table: str
    reason: str
    rows: Mapping[str, Any]

    def __post_init__(self) -> None:
        for word in ("table", "reason"):
            if not isinstance(getattr(self, word), str) or not getattr(self, word).strip():
                raise InvalidArgument(
                    f"an exact disclosure needs a {word}, in words; it has {getattr(self, word)!r}"
                )
        try:
            rows = json.loads(json.dumps(self.rows, allow_nan=False))  # a copy that nobody else can change
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"the rows of disclosure {self.table!r} are not plain JSON: {error}"
            ) from None
        if not isinstance(rows, dict) or set(rows) != {"attributes", "terms"} or not rows["terms"]:
            raise InvalidArgument(
                f"the rows of disclosure {self.table!r} must say their attributes and terms: "
                "use tabulae.domain.row_space.describe(table, domain)"
            )
        object.__setattr__(self, "rows", rows)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the counts tell apart; none for a total."""
        return tuple(sorted(self.rows["attributes"]))

    def content(self) -> dict[str, Any]:
        """What a ledger's entry says of it.

        Privacy: none is spent; values are never among it.
        """
        return {"table": self.table, "reason": self.reason, "rows": self.rows, "promise": PROMISE}

    def __str__(self) -> str:
        told = " by ".join(self.attributes) or "one count of all records"
        return f"{self.table} ({told}): {self.reason}"
