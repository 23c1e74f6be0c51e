"""The section ``[[derived]]``: which keys it has, and of what type."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .shape import (
    Filled,
    Name,
    StrictSection,
)


class DerivedEntry(StrictSection):
    """One ``[[derived]]``: sums, ratios, means or quantiles of counts, by one statement."""

    name: Name | None = Field(description='it names the published file: name = "minors_share"')
    sql: Filled | None = Field(
        description='what is computed: sql = "SELECT AVG(age) FROM people", sums and ratios of counts, or MEDIAN(age)'
    )
    title: Filled | None = None
    areas: Annotated[list[str], Field(min_length=1)] | None = None
