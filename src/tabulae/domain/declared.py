"""What a file says of its own columns, before any record is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Content = Literal["text", "whole numbers", "truth values", "other", "unknown"]


@dataclass(frozen=True)
class DeclaredColumn:
    """One column of a file of records, as it is declared there.

    Args:
        name: of the column.
        type: as the file has it; empty where it has none.
        content: what values of the type are: only text, whole numbers and truth values can be categories. A CSV file
            declares nothing: ``"unknown"``.
        categories: the only values that it may hold, where they are declared as a list.
        bounds: the lowest and the highest, where they are declared as whole numbers.
        by: what declares the values; or, where they were found in the records, what was looked at.
        found: whether categories or bounds were found in the records: then they are nothing that is declared.
        key: whether its values differ from record to record by declaration.

    >>> DeclaredColumn("AGE", "INTEGER", "whole numbers", bounds=(0, 114), by="CHECK").has_domain
    True
    """

    name: str
    type: str
    content: Content
    categories: tuple[str, ...] | tuple[int, ...] | None = None
    bounds: tuple[int, int] | None = None
    by: str = ""
    found: bool = False
    key: bool = False

    @property
    def has_domain(self) -> bool:
        """Whether it is known which values the column may hold."""
        return self.categories is not None or self.bounds is not None

    @property
    def can_be_counted(self) -> bool:
        """Whether its values can be categories."""
        return self.content != "other" and not self.key
