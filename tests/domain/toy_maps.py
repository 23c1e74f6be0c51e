"""The toy and the real maps of the 2020 detailed race tabulation, read the short way."""

import csv
from pathlib import Path

import pytest

from tabulae.domain.groups import CodeFamily, Group, GroupMap

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "detailed-race"
TOY, REAL = DATA / "toy" / "input_dir_zcdp", DATA / "release-2020"
needs_maps = pytest.mark.skipif(not DATA.exists(), reason="needs the maps in ../shared/data/detailed-race")
KINDS = {"True": "alone", "False": "any", None: "any"}


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="|"))


def read_map(folder, most):
    """Region type "nation" takes what is not coarse only, "county" what is not detailed only."""
    codes = tuple(row["RACE_ETH_CODE"] for row in rows(folder / "race-and-ethnicity-codes.txt"))
    groups = [
        Group(
            row["ITERATION_CODE"],
            row["LEVEL"],
            family,
            KINDS[row.get("ALONE")],
            row["ITERATION_NAME"],
            row["DETAILED_ONLY"] == "True",
            _regions(row),
        )
        for family in ("race", "ethnicity")
        for row in rows(folder / f"{family}-characteristic-iterations.txt")
        if row["LEVEL"] != "0"
    ]
    known = {group.code for group in groups}
    pairs = [
        (row["ITERATION_CODE"], row["RACE_ETH_CODE"])
        for row in rows(folder / "race-and-ethnicity-code-to-iteration.txt")
        if row["ITERATION_CODE"] in known
    ]
    return GroupMap((CodeFamily("race", codes, most), CodeFamily("ethnicity", codes)), tuple(groups), pairs)


def _regions(row):
    if row["DETAILED_ONLY"] == "True":
        return frozenset({"nation"})
    return frozenset({"county"}) if row["COARSE_ONLY"] == "True" else None
