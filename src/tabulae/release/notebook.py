"""How a release looks in a notebook: what was spent and which tables there are, from its small files alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import ReleaseError
from ..notebook import Rows, card

if TYPE_CHECKING:
    from .read import Release


def release_card(release: Release) -> str:
    """The HTML of a release; no table and no code list is opened for it.

    Privacy:
        Shows what the folder publishes, and costs nothing.
    """
    about = release.about
    facts = [
        ("title", release.descriptor.get("title") or None),
        ("folder", str(release.path)),
        ("spent", _spent(release)),
        ("level of intervals", f"{release.level:.0%}"),
        ("derived figures", len(release.derived) or None),
        ("published", release.descriptor.get("created")),
        ("made with", f"tabulae {about['version']}"),
        ("release id", about["release_id"]),
    ]
    names = list(release.tables)
    if "expected" not in about:
        rows = ((name, about.get("rows", {}).get(name)) for name in names)
        return card("Release", facts, Rows(("table", "rows"), rows, len(names)))
    headings = ("table", "rows", "RMSE", f"{release.level:.0%} margin")
    return card("Release", facts, Rows(headings, _expected(release, names), len(names)))


def _spent(release: Release) -> str | None:
    """What the release cost, by its own entries of the ledger; None where they cannot be read."""
    try:
        charges = [entry for entry in release.ledger if entry.get("kind") == "charge"]
    except ReleaseError:
        return None
    losses = (", ".join(f"{name} {value}" for name, value in each["loss"].items()) for each in charges)
    return (
        "; ".join(f"{each['definition']}: {loss}" for each, loss in zip(charges, losses, strict=True)) or None
    )


def _expected(release: Release, names: list[str]) -> Iterator[tuple[object, ...]]:
    """Each table with its expected errors; an invariant's has none."""
    for name in names:
        row = release.about["expected"].get(name)
        yield (
            (name, None, "exact", "exact")
            if row is None
            else (name, row["queries"], row["rmse"], row["margin"])
        )
