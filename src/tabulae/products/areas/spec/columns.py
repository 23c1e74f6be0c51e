"""``[geography.columns]``: columns of leaves that are made of others, or of what bounds say can occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....spec.areas import GeographySection
from ....spec.problems import KeyPath, Problems, shown
from ..layout import CellLayout, Supports
from ..spine.hierarchy import numbered
from ..spine.shares import distinct_rows
from .condition import LeafCondition


def read_condition(text: str | None, path: KeyPath, problems: Problems) -> LeafCondition | None:
    """A condition; None where there is none, or, with the mistake recorded, where it has one."""
    return None if text is None else problems.attempt(path, partial(LeafCondition.parse, text))


def read_conditions(section: GeographySection, problems: Problems) -> dict[str, LeafCondition | None]:
    """The condition of each column that is made by one."""
    return {
        name: read_condition(entry.where, ("geography", "columns", name, "where"), problems)
        for name, entry in section.columns.items()
    }


def refuse_made(section: GeographySection, asked: Sequence[tuple[str, KeyPath]], problems: Problems) -> None:
    """Refuse columns made of bounds where only the file's own can be: they are made once the bounds are read."""
    for name, path in asked:
        entry = section.columns.get(name)
        if entry is not None and entry.occurs is not None and "optimise" not in path:
            problems.add(
                path, f"{shown(name)} is made of bounds: it goes into the entities of optimise alone"
            )


def sources_of(
    section: GeographySection, conditions: Mapping[str, LeafCondition | None], problems: Problems
) -> list[tuple[str, KeyPath]]:
    """What the columns are made of, each with the key that asks for it; refuse what is not made before."""
    found: list[tuple[str, KeyPath]] = []
    before: list[str] = []
    for name, entry in section.columns.items():
        where = conditions[name]
        path = ("geography", "columns", name)
        for source in (*entry.sources, *(where.columns if where else ())):
            if source in section.columns and (source not in before or section.columns[source].occurs):
                told = f"is made of {shown(source)}, which is not made of columns above it: write it before"
                problems.add(path, told)
            found.append((source, path))
        before.append(name)
    return found


_BETWEEN = "+"  # codes that are joined


def made_columns(
    section: GeographySection,
    given: Mapping[str, np.ndarray],
    conditions: Mapping[str, LeafCondition | None],
    problems: Problems,
) -> dict[str, np.ndarray]:
    """The columns that are made of others, each of those of the file and of those before it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, np.ndarray] = {}
    for name, entry in section.columns.items():
        table = {**given, **found}
        where = conditions[name]
        if entry.join is not None:
            parts = [pa.array(table[source], pa.string()) for source in entry.join]
            told = {"null_handling": "replace", "null_replacement": ""}
            joined = pc.call_function(
                "binary_join_element_wise", [*parts, _BETWEEN], pc.JoinOptions(**told)
            ).to_numpy(zero_copy_only=False)
            numbers = np.stack([numbered(table[source])[0] for source in entry.join], axis=1)
            joined[(numbers < 0).all(axis=1)] = None
            distinct = len(distinct_rows(numbers[(numbers >= 0).any(axis=1)] + 1)[0])
            if distinct > numbered(joined)[1].size:
                told = f"joins different codes to the same one, as they hold {shown(_BETWEEN)}: write them otherwise"
                problems.add(("geography", "columns", name), told)
            found[name] = joined
        elif where is not None and entry.then is not None:
            none = np.full(table[entry.then].size, None, object)
            other = none if entry.otherwise is None else table[entry.otherwise]
            found[name] = np.where(where.holds(table), table[entry.then], other)
    return found


def occurring(
    section: GeographySection, support: Supports, layout: CellLayout, problems: Problems
) -> dict[str, Any]:
    """The columns that say which categories of an attribute can occur in each leaf, one digit for each.

    Args:
        support: of the leaves of the file.
    """
    found: dict[str, Any] = {}
    for name, entry in section.columns.items():
        if entry.occurs is None:
            continue
        path, known = (
            ("geography", "columns", name),
            (*layout.domain.names, *(r.name for r in layout.domain.recodes)),
        )
        if entry.occurs not in known:
            problems.add_unknown((*path, "occurs"), "attribute or recode", entry.occurs, known)
            continue
        view, margin = layout.domain.resolve(entry.occurs), layout.margin([entry.occurs])
        if margin.inner > 1 or view.attribute.name not in layout.dense:
            told = f"no [[bound]] is about {shown(entry.occurs)}, so that all leaves are alike"
            problems.add((*path, "occurs"), told)
            continue
        for i, label in enumerate(entry.but):
            if label not in view.labels:
                problems.add_unknown((*path, "but", i), f"category of {entry.occurs}", label, view.labels)
        kept = [i for i, label in enumerate(view.labels) if label not in entry.but]
        rows, which = distinct_rows(support.classes(margin.label, margin.classes)[support.pattern][:, kept])
        codes = np.array(["".join("01"[int(digit)] for digit in row) or "0" for row in rows.tolist()], object)
        found[name] = codes[which]
    return found
