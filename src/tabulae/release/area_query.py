"""Statements answered from a release of areas: the figures of ``[[derived]]``, for areas that are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..domain.figure import Figure
from ..domain.figure_sql import figure_from_sql
from ..errors import InvalidArgument
from ..spec import Spec, geography_of
from ..spec.derived import Derived
from ..spec.derived_areas import check_figure
from ..spec.geography import Geography
from ..spec.problems import nearest, shown
from .area_figures import AreaFigures, figure_schema
from .spine_estimates import SpineRelease
from .spine_tables import UNBIASED, Areas

_NAME = "query"


def query_areas(
    folder: Path, spec: Spec, level: float, sql: str, areas: Sequence[str], codes: Sequence[str]
) -> pa.Table:
    """The rows of a figure, estimated by least squares from the measurements of a release.

    Arguments:
        folder: of the release.
        spec: with ``[geography]``.
        level: of the intervals.
        sql: a statement that ``[[derived]]`` accepts.
        areas: levels and entities; the first level where there are none.
        codes: of the areas that are wanted; all of those types where there are none.

    Raises:
        InvalidArgument: the statement, a type of area or a code cannot be answered; or the answer has more rows than
            the release may publish of its figures.
        Unsupported: the figure takes too many numbers to be written out over the cells of an area.
        ReleaseError: the measurements are not those of the spec.
    """
    geography = geography_of(spec)
    if codes and not areas:
        first = geography.area_types[0]
        raise InvalidArgument(
            f"codes are of areas of some type: name it, as in --areas {first} (in Python areas=[{first!r}])"
        )
    wanted = _areas(geography, areas or geography.levels[:1], codes)
    figure = _figure(spec, geography, sql)
    check_figure(figure, geography)
    rows = figure.rows * sum(each.codes.size for each in wanted)
    if rows > spec.max_rows:
        raise InvalidArgument(
            f"the answer has {rows:,} rows, and a release of this spec at most {spec.max_rows:,} (max_rows under "
            "[release]): ask for fewer areas, by their codes, or group by less"
        )
    asked = Derived(figure, _NAME, tuple(each.kind for each in wanted))
    with tempfile.TemporaryDirectory(prefix="tabulae-") as work:
        made = SpineRelease.of(folder, spec, level, Path(work), method=UNBIASED)
        pieces = AreaFigures(made.publisher, made.plan.all_laws).rows([asked], wanted)
        return pa.concat_tables([figure_schema(asked).empty_table(), *(piece for _, piece in pieces)])


def _figure(spec: Spec, geography: Geography, sql: str) -> Figure:
    """The statement, over the attributes of the spec; a statement about areas is told how to ask for them."""
    try:
        return figure_from_sql(spec.domain, _NAME, sql)
    except InvalidArgument as error:
        said = str(error).casefold()
        named = [kind for kind in geography.area_types if f"no attribute {kind!r}".casefold() in said]
        if not named:
            raise
        raise InvalidArgument(
            f"{error}\nareas are no attributes: leave {shown(named[0])} out of the statement, and ask with --areas "
            f"{named[0]} (in Python areas=[{named[0]!r}])"
        ) from None


def _areas(geography: Geography, kinds: Sequence[str], codes: Sequence[str]) -> list[Areas]:
    """The areas asked for: those of some types, or the ones among them that have the codes."""
    for kind in kinds:
        if kind not in geography.area_types:
            told = nearest(kind, geography.area_types)
            raise InvalidArgument(f"there is no level or entity {shown(kind)}; {told}")
    every = [Areas(kind, *geography.areas(kind)) for kind in dict.fromkeys(kinds)]
    if not codes:
        return every
    for code in codes:
        if not any((each.codes == code).any() for each in every):
            raise InvalidArgument(f"no area of {' or '.join(map(shown, kinds))} has the code {shown(code)}")
    return [only for each in every if (only := _only(each, codes)).codes.size]


def _only(areas: Areas, codes: Sequence[str]) -> Areas:
    """Those with some codes, in the order of all."""
    kept = np.flatnonzero(np.isin(areas.codes, list(codes)))
    place = np.full(areas.codes.size + 1, -1)
    place[kept] = np.arange(kept.size)
    return Areas(areas.kind, areas.codes[kept], place[areas.leaf])
