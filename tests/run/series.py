"""A small series: records, a spec for each year, and one ledger for all of them."""

from __future__ import annotations

from pathlib import Path

import tabulae as tb

SPEC = """
title = "{title}"

[source]
path = "people.csv"

[attributes]
sex = {{ column = "SEX", categories = ["F", "M"] }}
age = {{ column = "AGE", range = [0, 4] }}

[privacy]
definition = "zcdp"
budget = "{budget}"
delta = "1e-10"
ledger = "ledger.db"

[[table]]
name = "sex_by_age"
attributes = ["sex", "age"]

[method]
select = "identity"
"""


def write_people(folder: Path) -> Path:
    """Records, and a ledger with a budget of 3; returns the folder."""
    folder.mkdir(exist_ok=True)
    rows = [f"{'FM'[i % 2]},{i * i % 5}" for i in range(60)]
    (folder / "people.csv").write_text("SEX,AGE\n" + "\n".join(rows) + "\n")
    tb.Ledger.create(folder / "ledger.db", 3, "zcdp")
    return folder


def write_spec(folder: Path, name: str, budget: str = "1/2", **series: str) -> Path:
    """The spec of one release, with a ``[series]`` of the keys given; ``follows`` is written as it is where it begins
    with a brace."""
    text = SPEC.format(title=f"Town {name}", budget=budget)
    if series:
        lines = [
            f"{key} = {value if value.startswith('{') else repr(value)}" for key, value in series.items()
        ]
        text += "\n[series]\n" + "\n".join(lines).replace("'", '"') + "\n"
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def run(folder: Path, name: str, budget: str = "1/2", **series: str) -> tb.Release:
    """The release of one spec, in a folder of its name."""
    return tb.run(write_spec(folder, name, budget, **series), folder / name)


def write_series(folder: Path) -> Path:
    """Three releases: 2025, 2026 after it, and a correction of the latter; returns their folder."""
    write_people(folder)
    run(folder, "2025")
    run(folder, "2026", "1/3", follows="2025", kind="next")
    run(folder, "2026b", "1/6", follows="2026", kind="correction", reason="a <file> was read twice")
    return folder
