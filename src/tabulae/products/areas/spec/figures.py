"""``areas`` of ``[[derived]]``: for which areas a figure is published, and whether areas can have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import InvalidArgument
from ....spec.problems import KeyPath, Problems, nearest, shown
from ....spec.promise import Method
from ....spec.sections import Document
from .section import TAKEN, Geography

if TYPE_CHECKING:
    from ....domain import Figure

_WHOLE_NUMBERS = (
    "takes estimates that have intervals: those of {estimate} are whole numbers, whose errors have no known law, and "
    'the intervals in their tables are about gls; write estimate = "gls" under [method], or leave the figures out'
)


def areas_of_figures(
    document: Document, method: Method | None, problems: Problems
) -> tuple[tuple[str, ...], ...]:
    """The levels and entities that each figure of a document is published for; none without ``[geography]``.

    Args:
        document: its sections as read.
        method: how estimates are made.
        problems: where mistakes are recorded.
    """
    section = document.geography
    every = (*(section.levels or ()), *section.entities) if section else ()
    told = any(problems.told(("geography", key)) for key in ("levels", "entities"))
    found = []
    for at, entry in enumerate(document.derived):
        path: KeyPath = ("derived", at, "areas")
        given = (entry.areas if entry else None) or ()
        if given and not document.is_geography:
            problems.add(path, "is about areas, and there is no [geography]: add it, or remove this")
        elif section is not None and not told:
            for i, area in enumerate(given):
                if area not in every:
                    why = f"there is no level or entity {shown(area)}; {nearest(area, every)}"
                    problems.add((*path, i), why)
                elif area in given[:i]:
                    problems.add((*path, i), f"{shown(area)} is there twice: keep one")
        found.append(tuple(dict.fromkeys(area for area in given if area in every)) or every)
    if document.is_geography and document.derived and method and method.estimate != "gls":
        problems.add(("derived",), _WHOLE_NUMBERS.format(estimate=shown(method.estimate)))
    return tuple(found)


def check_figure(figure: Figure, geography: Geography) -> None:
    """Refuse a figure that areas cannot have.

    Raises:
        InvalidArgument: it is grouped by what heads another column.
        Unsupported: it takes too many numbers to be written out over the cells of an area.
    """
    from ..passes.forms import AreaForms

    for name in figure.headings:
        if name in TAKEN:
            raise InvalidArgument(f"{shown(name)} heads another column of the published figures: rename it")
    tables = [figure.linear, *(end for r in figure.ratios for end in (r.numerator, r.denominator))]
    if joint := [each.table for each in tables if each.table]:
        AreaForms.of(geography.layout, joint)
    for quantile in figure.quantiles:
        AreaForms.of(geography.layout, [quantile.table])
