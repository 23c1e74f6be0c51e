"""A small release of areas with derived figures, and its counts written out cell by cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tabulae as tb

SPEC = """
title = "Isles"

[source]
path = "people.csv"

[attributes]
home = { categories = ["house", "ship"] }
age = { range = [0, 4] }
sex = { categories = ["F", "M"] }
faith = { categories = ["a", "b", "c"] }

[privacy]
definition = "DEFINITION"
budget = "BUDGET"
DELTA
neighbours = "add-remove"
ledger = "ledger.db"

[geography]
column = "plot"
file = "plots.csv"
levels = ["isle", "parish", "plot"]
entities = ["lake"]
shares = { isle = "1/4", parish = "1/4", plot = "1/2" }

[[geography.query]]
attributes = ["sex"]
shares = { isle = "1/4", parish = "1/4", plot = "1/4" }

[[geography.query]]
attributes = ["home", "age", "sex", "faith"]
shares = { isle = "3/4", parish = "3/4", plot = "3/4" }

[[structural_zero]]
where = "home = 'ship' AND age < 2"

[[table]]
name = "total"
attributes = []

[method]
estimate = "gls"
"""
FIGURES = """
[[derived]]
name = "minors"
title = "Percentage under 3, by sex"
sql = "SELECT sex, 100.0 * COUNT(*) FILTER (WHERE age < 3) / COUNT(*) FROM people GROUP BY sex"

[[derived]]
name = "apart"
sql = "SELECT COUNT(*) FILTER (WHERE sex = 'F' OR age = 1) - 2 * COUNT(*) FILTER (WHERE faith = 'b') FROM people"
areas = ["parish", "lake"]

[[derived]]
name = "mean_age"
sql = "SELECT home, AVG(age) FROM people WHERE faith <> 'c' GROUP BY home"
areas = ["isle", "parish"]

[[derived]]
name = "median_age"
sql = "SELECT sex, MEDIAN(age) FROM people GROUP BY sex"
areas = ["isle", "parish", "lake"]

[[derived]]
name = "means_apart"
sql = "SELECT AVG(age) FILTER (WHERE sex = 'F') - AVG(age) FILTER (WHERE sex = 'M') FROM people"
areas = ["isle", "parish"]
"""
EXACT = '\n[[invariant]]\nattributes = []\nlevel = "parish"\nreason = "the law counts heads"\n'
HOMES, SEXES, FAITHS = ("house", "ship"), "FM", "abc"
SHAPE = (2, 5, 2, 3)
PLOTS = 12


def plots() -> list[tuple[str, str, str, str]]:
    """Isle, parish, plot and lake."""
    return [("I", f"p{i // 4}", f"{i:02}", "L" if i % 3 == 0 else "") for i in range(PLOTS)]


def people(seed: int = 1, size: int = 600) -> np.ndarray:
    """Plot, home, age, sex and faith by position: shape (size, 5); nobody under 2 lives on a ship."""
    rng = np.random.default_rng(seed)
    found = np.column_stack([rng.integers(0, n, size) for n in (PLOTS, *SHAPE)])
    found[:, 1] = rng.random(size) < 0.2
    found[found[:, 2] < 2, 1] = 0
    return found


def write_isles(
    folder: Path, more: str = FIGURES, definition: str = "zcdp", budget: str = "1/2", estimate: str = "gls"
) -> Path:
    """Write records, public files, spec.toml and a ledger; returns the spec."""
    rows = [f"{p:02},{HOMES[h]},{a},{SEXES[s]},{FAITHS[f]}" for p, h, a, s, f in people().tolist()]
    (folder / "people.csv").write_text("plot,home,age,sex,faith\n" + "\n".join(rows) + "\n")
    lines = [",".join(row) for row in plots()]
    (folder / "plots.csv").write_text("isle,parish,plot,lake\n" + "\n".join(lines) + "\n")
    text = SPEC.replace("DEFINITION", definition).replace("BUDGET", budget)
    text = text.replace("DELTA", 'delta = "1e-10"' if definition == "zcdp" else "")
    (folder / "spec.toml").write_text(text.replace('"gls"', f'"{estimate}"') + more)
    tb.Ledger.create(folder / "ledger.db", 4, definition, neighbours="add-remove")
    return folder / "spec.toml"


def members() -> dict[str, dict[str, np.ndarray]]:
    """Type of area -> area -> which plots are in it."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for column, kind in enumerate(("isle", "parish", "plot", "lake")):
        names = np.array([row[column] for row in plots()])
        found[kind] = {name: names == name for name in sorted(set(names) - {""})}
    return found


def true_counts() -> np.ndarray:
    """Shape (plots, 2, 5, 2, 3)."""
    found = np.zeros((PLOTS, *SHAPE))
    np.add.at(found, tuple(people().T), 1)
    return found


def forms() -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Figure -> for each row numerator and denominator, as weights of cells; no denominator: all 0."""
    home, age, sex, faith = np.indices(SHAPE)
    none, one = np.zeros(SHAPE), np.ones(SHAPE)
    ratios = {
        "minors": [(100 * ((age < 3) & (sex == s)), one * (sex == s)) for s in (0, 1)],
        "apart": [(1.0 * ((sex == 0) | (age == 1)) - 2 * (faith == 1), none)],
        "mean_age": [(age * (home == h) * (faith < 2), one * (home == h) * (faith < 2)) for h in (0, 1)],
    }
    return {name: [(np.asarray(a, float), b) for a, b in rows] for name, rows in ratios.items()}
