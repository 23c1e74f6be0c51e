"""A small release of areas: its records, its public files, its spec and its ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb

SPEC = """
title = "Duchy"

[source]
path = "people.csv"
unit = "person"

[attributes]
kind = { column = "KIND", categories = ["home", "inn", "abbey"] }
age = { column = "AGE", categories = ["child", "adult", "old"] }
faith = { column = "FAITH", categories = ["a", "b", "c", "d"] }

[recodes]
grown = { of = "age", map = "grown.csv" }

[privacy]
definition = "zcdp"
budget = "2"
delta = "1e-10"
neighbours = "replace"
ledger = "ledger.db"

[geography]
column = "PLOT"
file = "plots.csv"
levels = ["duchy", "shire", "parish", "hamlet", "plot"]
optimise = { fanout_cutoff = 2, entities = ["market"] }
entities = ["market", "forest"]
outside = { market = "none" }
shares = { duchy = "1/5", shire = "1/5", parish = "1/5", hamlet = "1/5", plot = "1/5" }

[[geography.query]]
attributes = []
shares = { duchy = "1/4", shire = "1/4", parish = "1/4", hamlet = "1/4", plot = "1/4" }

[[geography.query]]
attributes = ["faith"]
shares = { duchy = "1/4", shire = "1/4", parish = "1/4", hamlet = "1/4", plot = "1/4" }

[[geography.query]]
attributes = ["kind", "age", "faith"]
shares = { duchy = "1/2", shire = "1/2", parish = "1/2", hamlet = "1/2", plot = "1/2" }

[[bound]]
attributes = ["kind"]
file = "houses.csv"
unlisted = "zero"

[[structural_zero]]
where = "kind = 'abbey' AND age = 'child'"

[[invariant]]
attributes = []
level = "duchy"
reason = "the duke counts heads"

[[table]]
name = "total"
attributes = []

[[table]]
name = "kind_by_grown"
attributes = ["kind", "grown"]
areas = ["duchy", "shire", "parish", "market"]

[[table]]
name = "faith"
attributes = ["faith"]
areas = ["shire", "plot", "forest"]

[release]
microdata = true
"""
KINDS, AGES, FAITHS = ("home", "inn", "abbey"), ("child", "adult", "old"), "abcd"
GROWN = "code,class,label\nchild,1,young\nadult,2,grown\nold,2,grown\n"
Plot = dict[str, str]


def plots() -> list[Plot]:
    """48 plots in 8 parishes of 2 shires; markets and a forest cut across them."""
    found = []
    for i in range(48):
        shire, parish, hamlet = f"s{i // 24}", f"p{i // 6}", f"h{i // 3:02}"
        market = ("none", "M1", "M2")[(i * 7 // 5) % 3]
        found.append(
            {
                "duchy": "D",
                "shire": shire,
                "parish": parish,
                "hamlet": hamlet,
                "plot": f"{i:03}",
                "market": market,
                "forest": "oak" if 10 <= i < 30 and i % 2 else "",
                "x": f"{i % 8}",
                "y": f"{i // 8}",
            }
        )
    return found


def houses() -> dict[tuple[str, str], int]:
    """(plot, kind) -> at least so many people live there; three plots have nothing."""
    rng = np.random.default_rng(5)
    found = {(f"{i:03}", "home"): 0 for i in range(45)}
    for i in range(0, 45, 7):
        found[f"{i:03}", str(rng.choice(["inn", "abbey"]))] = int(rng.integers(1, 4))
    return found


def people(count: int = 500, seed: int = 3) -> list[tuple[str, str, str, str]]:
    """Plot, kind, age and faith of invented people who keep every rule."""
    rng = np.random.default_rng(seed)
    rows = [(plot, kind) for (plot, kind), least in houses().items() for _ in range(least)]
    homes = [plot for plot, kind in houses() if kind == "home"]
    weights = rng.pareto(1.5, len(homes)) + 0.1
    chosen = rng.choice(len(homes), count - len(rows), p=weights / weights.sum())
    rows += [(homes[i], "home") for i in chosen]
    return [
        (
            plot,
            kind,
            str(rng.choice(AGES[1:] if kind == "abbey" else AGES)),
            FAITHS[rng.choice(4, p=[0.6, 0.3, 0.08, 0.02])],
        )
        for plot, kind in rows
    ]


def write_plots(path: Path, rows: list[Plot]) -> None:
    """The public file of leaves."""
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_duchy(folder: Path) -> Path:
    """Write records, public files, spec.toml and a ledger with budget for two releases; returns the spec."""
    lines = [",".join(row) for row in people()]
    (folder / "people.csv").write_text("PLOT,KIND,AGE,FAITH\n" + "\n".join(lines) + "\n")
    write_plots(folder / "plots.csv", plots())
    listed = [f"{plot},{kind},{least}" for (plot, kind), least in houses().items()]
    (folder / "houses.csv").write_text("plot,kind,at_least\n" + "\n".join(listed) + "\n")
    (folder / "grown.csv").write_text(GROWN)
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 4, "zcdp", neighbours="replace")
    return folder / "spec.toml"


def write_barony(folder: Path) -> Path:
    """The same of sparse counts, in two passes, of which nothing is limited or exact."""
    spec = write_duchy(folder)
    spec.write_text(sparse(SPEC, drop=("bound", "invariant")))
    return spec


def sparse(text: str, drop: tuple[str, ...] = ("invariant",)) -> str:
    """A duchy's document with sparse counts in two passes, without sections of some names."""
    for name in drop:
        first = text.index(f"[[{name}]]")
        text = text[:first] + text[text.index("[[", first + 2) :]
    every = 'attributes = ["kind", "age", "faith"]\n'
    return text.replace(every, f"{every}in_pass = 2\n", 1) + '\n[method]\nestimate = "sparse"\n'


@pytest.fixture
def barony(tmp_path: Path) -> Path:
    """The spec of sparse counts in a folder of its own."""
    return write_barony(tmp_path)


@pytest.fixture
def duchy(tmp_path: Path) -> Path:
    """The spec of a duchy in a folder of its own."""
    return write_duchy(tmp_path)


@pytest.fixture(scope="session")
def duchy_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one release of a duchy, to be looked at and never changed."""
    spec = write_duchy(tmp_path_factory.mktemp("duchy"))
    tb.run(spec, spec.parent / "release")
    return spec.parent / "release"
