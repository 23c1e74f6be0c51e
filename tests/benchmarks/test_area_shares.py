"""Shares that were chosen are never worse than equal ones or those of 2020, and the page states what was measured."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.area_shares import RESULTS

PAGE = Path(__file__).parents[2] / "docs/methods/objectives.md"


def recorded() -> dict[tuple[str, str, str], dict[str, str]]:
    with RESULTS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["table"]]
    return {(row["place"], row["queries"], row["shares"]): row for row in rows}


def test_none_is_better_than_what_was_chosen() -> None:
    found = recorded()
    places = {place for place, _, _ in found}
    assert places == {"rhode_island", "small_state", "state"}
    for place in places:
        for queries in ("2020", "tables"):
            chosen = float(found[place, queries, "chosen"]["rmse"])
            assert float(found[place, queries, "bound"]["rmse"]) <= chosen
            assert chosen < float(found[place, queries, "equal"]["rmse"])
            assert chosen < float(found[place, "2020", "2020"]["rmse"])


def test_the_page_says_what_is_recorded() -> None:
    page, found = PAGE.read_text(), recorded()
    for (place, queries, shares), row in found.items():
        if shares == "chosen":
            equal, bound = (float(found[place, queries, other]["rmse"]) for other in ("equal", "bound"))
            given = f"{float(found[place, queries, '2020']['rmse']):.2f}" if queries == "2020" else ""
            chosen, seconds = float(row["rmse"]), float(row["seconds"])
            told = f"| {equal:.2f} | {given} | **{chosen:.2f}** | {bound:.2f} | {seconds:.0f} |"
            assert told in page, (place, queries)
