"""Maps from codes to groups in the Bureau's format, of any size: for benchmarks and tests that have no real ones.

Each origin is a code of race with a detailed group *alone* and one *alone or in any combination*; origins in tens make
the regional groups. Some detailed groups are total only, and some stand for others below the state level. Each tenth
code is one of ethnicity, too, with a group of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

TABLES = ("race-characteristic-iterations", "ethnicity-characteristic-iterations", "race-and-ethnicity-codes")
LINKS = "race-and-ethnicity-code-to-iteration"
FILES = (*TABLES, LINKS)
RACE = "ITERATION_CODE|ITERATION_NAME|LEVEL|ALONE|DETAILED_ONLY|COARSE_ONLY"
ETHNICITY = "ITERATION_CODE|ITERATION_NAME|LEVEL|DETAILED_ONLY|COARSE_ONLY"
REGIONS = (
    "usa",
    "state",
    "county",
    "tract",
    "place",
    "aiannh",
    "pr_state",
    "pr_county",
    "pr_tract",
    "pr_place",
)
NOT_ETHNIC = 9950
CODES = 1000
MOST_GROUPS = 4000


def write_maps(folder: Path, groups: int = 60) -> int:
    """Write config.json and four maps with about so many groups, and return how many there are.

    Budgets and thresholds are those of the 2020 release. ``groups`` is 24 or more.
    """
    if not 24 <= groups <= MOST_GROUPS:
        raise ValueError(f"groups is {groups}; it must be from 24 to {MOST_GROUPS}")
    origins = groups * 10 // 23
    race: list[str] = []
    ethnicity: list[str] = [f"{9000}|Not ethnic|0|Null|Null", "9001|Ethnic, regional|1|False|False"]
    codes, links = [f"{NOT_ETHNIC}|Not ethnic"], [f"9000|{NOT_ETHNIC}"]
    for region in range(-(-origins // 10)):
        for kind, word in enumerate(("alone", "alone or in any combination")):
            race.append(f"{8000 + 2 * region + kind}|Region {region} {word}|1|{kind == 0}|False|False")
    for origin in range(origins):
        code, first = CODES + origin, 1000 + 2 * origin
        detailed_only = origin % 7 == 3
        codes.append(f"{code}|Origin {origin}")
        for kind, word in enumerate(("alone", "alone or in any combination")):
            race.append(f"{first + kind}|Origin {origin} {word}|2|{kind == 0}|{detailed_only}|False")
            links += [f"{first + kind}|{code}", f"{8000 + 2 * (origin // 10) + kind}|{code}"]
        if origin % 10 == 5:
            group = 9002 + origin // 10
            ethnicity.append(f"{group}|Origin {origin}, of any race|2|False|False")
            links += [f"{group}|{code}", f"9001|{code}"]
    folder.mkdir(parents=True, exist_ok=True)
    headings = (RACE, ETHNICITY, "RACE_ETH_CODE|RACE_ETH_NAME", "ITERATION_CODE|RACE_ETH_CODE")
    for name, heading, lines in zip(FILES, headings, (race, ethnicity, codes, links), strict=True):
        (folder / f"{name}.txt").write_text("\n".join([heading, *lines, ""]), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(configuration(), indent=1) + "\n", encoding="utf-8")
    return len(race) + len(ethnicity) - 1


def configuration() -> dict[str, object]:
    """Budgets, thresholds and options of the 2020 release, for US and Puerto Rico."""
    found: dict[str, object] = {"max_race_codes": 8}
    thresholds: dict[str, list[int]] = {}
    for region in REGIONS:
        large = region.removeprefix("pr_") in ("usa", "state")
        found[f"privacy_budget_p_level_1_{region}"] = 0 if region == "aiannh" else 0.008
        found[f"privacy_budget_p_level_2_{region}"] = 2.134 if large else 0.159
        name = region.upper().replace("_", "-")
        thresholds[f"({name}, 1)"] = [4971, 19971, 149971]
        thresholds[f"({name}, 2)"] = [471, 971, 6971] if large else [971, 4971, 19971]
    return {
        **found,
        "privacy_budget_p_stage_1_fraction": 0.1,
        "thresholds_p": thresholds,
        "zero_suppression_chance": 0.9999,
        "allow_negative_counts": True,
        "run_us": True,
        "run_pr": True,
        "reader": "csv",
        "state_filter_us": ["01"],
        "privacy_defn": "zcdp",
    }
