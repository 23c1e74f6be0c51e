"""Whole runs of random specs of tables, of areas and of households: refused before the charge, or published and proven.

Each seed is a spec with its records and public files. A run may not end with an error that is not tabulae's own, nor be
refused after the charge, nor publish what ``check`` finds fault with.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import tomli_w

import tabulae as tb
from tabulae._run import check_release
from tabulae.errors import SpecError, TabulaeError
from tabulae.spec import read_spec

Rows = list[dict[str, Any]]


def _write(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _people(seed: int, sizes: Mapping[str, Sequence[Any]], count: int) -> Rows:
    rng = np.random.default_rng(seed)
    places = {name: np.minimum(rng.geometric(0.4, count) - 1, len(of) - 1) for name, of in sizes.items()}
    return [{name: of[places[name][i]] for name, of in sizes.items()} for i in range(count)]


def _shares(r: Random, count: int) -> list[str]:
    parts = [r.randint(1, 4) for _ in range(count)]
    return [f"{part}/{sum(parts)}" for part in parts]


def tables(seed: int, folder: Path) -> dict[str, Any]:
    """Write the files of a spec of tables: attributes of every kind, queries, values, exact counts, any estimator."""
    r, values, attributes, recodes = Random(seed), {}, {}, {}
    for i in range(r.randint(1, 4)):
        name, kind = f"a{i}", r.choice(["words", "range", "bins"])
        if kind == "words":
            values[name] = [f"v{j}" for j in range(r.randint(1, 6))]
            attributes[name] = {"categories": values[name]}
        elif kind == "range":
            low, width = r.randint(-5, 5), r.randint(1, 25)
            values[name] = list(range(low, low + width + 1))
            attributes[name] = {"range": [low, low + width]}
            if width > 3:
                recodes[f"{name}g"] = {"of": name, "edges": [low + 1 + width // 2]}
        else:
            values[name] = list(range(-5, 40))
            attributes[name] = {"bins": sorted(r.sample(range(30), r.randint(2, 5))), "open": "both"}
    spec: dict[str, Any] = {"source": {"path": "people.csv"}, "attributes": attributes}
    values["pay"] = [0, 3, 4]
    if with_values := r.random() < 0.25:
        spec["values"] = {"pay": {"range": [0, 4]}}
    spec["table"] = []
    for t in range(r.randint(1, 4)):
        chosen = [
            f"{name}g" if f"{name}g" in recodes and r.random() < 0.5 else name
            for name in r.sample(list(attributes), min(len(attributes), r.randint(0, 3)))
        ]
        queries = {name: r.choice(["prefix", "ranges", "total"]) for name in chosen if r.random() < 0.3}
        table = {"name": f"t{t}", "attributes": [name for name in chosen if name not in queries]}
        table |= {"queries": queries} if queries else {}
        table |= {"totals": True} if table["attributes"] and r.random() < 0.2 else {}
        table |= {"weight": r.choice([0.1, 100])} if r.random() < 0.2 else {}
        if with_values and (t == 0 or r.random() < 0.5):
            table["measures"] = r.choice([["count", {"mean": "pay"}], [{"sum": "pay"}]])
        spec["table"].append(table)
    spec |= {"recodes": recodes} if recodes else {}
    spec["privacy"] = {
        "definition": r.choice(["zcdp", "pure"]),
        "budget": r.choice(["1/100", "1/2", "3", "40"]),
        "neighbours": r.choice(["add-remove", "replace"]),
        "ledger": "ledger.db",
    }
    if r.random() < 0.25:
        spec["invariant"] = [{"attributes": r.sample(list(attributes), 1), "reason": "law"}]
        spec["privacy"]["neighbours"] = r.choice(["add-remove", "replace-within-invariants"])
    drawn = ["posterior"] if len(attributes) < 3 else []
    spec["method"] = {"estimate": r.choice(["least-squares", "non-negative", *drawn]), "time_limit": 4}
    _write(folder / "people.csv", _people(seed, values, r.choice([1, 60, 3000])))
    return spec


def areas(seed: int, folder: Path) -> dict[str, Any]:
    """Write the files of a spec of areas: levels, an entity, bounds that hold, exact counts, any estimator."""
    r = Random(seed)
    levels, leaves = [f"l{i}" for i in range(r.randint(1, 4))], r.choice([2, 7, 30])
    plots = [
        {level: f"{level}_{j * 2**i // leaves}" if i else "R" for i, level in enumerate(levels[:-1])}
        | {levels[-1]: f"b{j:03}", "town": r.choice(["", "", "t1", "t2"])}
        for j in range(leaves)
    ]
    if r.random() < 0.2:
        plots = [plot | {"town": ""} for plot in plots]
    words = {f"a{i}": [f"v{j}" for j in range(r.randint(1, 4))] for i in range(r.randint(1, 3))}
    people = _people(seed, words | {"PLOT": [plot[levels[-1]] for plot in plots]}, r.choice([3, 60, 3000]))
    shared = (["root"] if len({plot[levels[0]] for plot in plots}) > 1 else []) + levels
    queries = [[], [next(iter(words))], list(words)][: r.randint(1, 3)] if len(words) > 1 else [list(words)]
    queries = queries if list(words) in queries else [*queries, list(words)]
    shares = [_shares(r, len(queries)) for _ in shared]
    spec: dict[str, Any] = {
        "source": {"path": "people.csv"},
        "attributes": {name: {"categories": of} for name, of in words.items()},
        "privacy": {
            "definition": r.choice(["zcdp", "zcdp", "pure"]),
            "budget": r.choice(["1/20", "1", "5"]),
            "neighbours": r.choice(["add-remove", "replace"]),
            "ledger": "ledger.db",
        },
        "geography": {
            "column": "PLOT",
            "file": "plots.csv",
            "levels": levels,
            "entities": ["town"] if r.random() < 0.5 else [],
            "bypass": "off" if r.random() < 0.3 else "paper",
            "shares": dict(zip(shared, _shares(r, len(shared)), strict=True)),
            "query": [
                {"attributes": query, "shares": {level: shares[i][q] for i, level in enumerate(shared)}}
                for q, query in enumerate(queries)
            ],
        },
        "table": [{"name": "all", "attributes": list(words)}],
        "method": {"estimate": r.choice(["gls", "topdown", "bluedown", "sparse", "posterior"])},
    }
    if r.random() < 0.35:
        true = Counter((person["PLOT"], person["a0"]) for person in people)
        limits = [
            {
                levels[-1]: plot[levels[-1]],
                "a0": word,
                "at_least": max(0, true[plot[levels[-1]], word] - r.choice([0, 1, 5])),
                "at_most": true[plot[levels[-1]], word] + r.choice([0, 1, 5]),
            }
            for plot in plots
            for word in words["a0"]
        ]
        _write(folder / "limits.csv", limits)
        spec["bound"] = [{"attributes": ["a0"], "file": "limits.csv"}]
    if r.random() < 0.35 and spec["method"]["estimate"] != "sparse":
        spec["invariant"] = [{"attributes": [], "level": r.choice(levels), "reason": "law"}]
    if r.random() < 0.4 and spec["method"]["estimate"] != "gls":
        spec["release"] = {"microdata": True}
    _write(folder / "plots.csv", plots)
    _write(folder / "people.csv", people)
    return spec


def households(seed: int, folder: Path) -> dict[str, Any]:
    """Write the files of a spec of households and their persons: tables and values of both, every relation."""
    r = Random(seed)
    bound, apart = r.choice([1, 2, 4]), r.random() < 0.4
    homes = [
        {"HH": f"h{i}", "TEN": r.choice("orf"), "RENT": r.randint(0, 40)}
        for i in range(r.choice([1, 30, 400]))
    ]
    people = [
        (home if not apart else {"HH": home["HH"]})
        | {
            "SEX": r.choice("FM"),
            "AGE": min(9, int(r.expovariate(0.3))),
            "PAY": min(60, int(r.expovariate(0.1))),
        }
        for home in homes
        for _ in range(r.randint(0 if home != homes[0] else 1, bound))
    ]
    _write(folder / "people.csv", people)
    _write(folder / "homes.csv", homes)
    of_units: dict[str, Any] = {
        "ten": {"of": "unit", "column": "TEN", "categories": ["o", "r", "f"]},
        "young": {"of": "unit", "any": "age < 2", "labels": ["no", "yes"]},
        "old": {"of": "unit", "count": "age >= 6", "most": 2},
    }
    values: dict[str, Any] = {}
    spec: dict[str, Any] = {
        "source": {"path": "people.csv", "unit": "household", "unit_id": "HH", "rows_per_unit": bound}
        | ({"units": {"path": "homes.csv"}} if apart else {}),
        "attributes": {
            "sex": {"column": "SEX", "categories": ["F", "M"]},
            "age": {"column": "AGE", "range": [0, 9]},
            **of_units,
        },
        "values": values,
        "privacy": {
            "definition": r.choice(["zcdp", "pure"]),
            "budget": r.choice(["1/20", "2", "30"]),
            "neighbours": r.choice(["add-remove", "replace", "record-free", "record-derived"]),
            "ledger": "ledger.db",
        },
        "method": {"time_limit": 4},
        "table": [],
    }
    for t in range(r.randint(1, 3)):
        units = t == 0 or r.random() < 0.4
        chosen = r.sample(list(of_units) if units else list(spec["attributes"]), r.randint(0, 2))
        measures: list[Any] = ["count"]
        if r.random() < 0.4:
            values["rent"] = {"of": "unit", "column": "RENT", "range": [0, 40]}
            measures += [{"sum": "rent"}, {"mean": "rent"}]
        if not units and r.random() < 0.5:
            values["pay"] = {
                "range": [0, 60],
                "column": "PAY",
                "step": 5,
                "outside": "clamp",
                "squares": True,
            }
            measures += [{"mean": "pay", "near": 10}, {"variance": "pay"}]
        if units and r.random() < 0.4:
            measures.append({"mean": "records", "near": 1})
        if not units and "age" not in chosen and r.random() < 0.4:
            measures.append({"quantiles": ["1/4", "1/2"], "of": "age"})
        table = {"name": f"t{t}", "attributes": chosen, "measures": measures}
        spec["table"].append(table | ({"counts": "units"} if units else {}))
    return spec


SEEDS, SHORT = 150, 4


@pytest.mark.parametrize("made", [tables, areas, households])
def test_most_of_them_are_specs(made: Any, tmp_path: Path) -> None:
    found = 0
    for seed in range(30):
        (tmp_path / "spec.toml").write_text(tomli_w.dumps(made(seed, tmp_path)))
        with suppress(SpecError):
            read_spec(tmp_path / "spec.toml")
            found += 1
    assert found > 20


@pytest.mark.parametrize(
    "seed", [*range(SHORT), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SHORT, SEEDS))]
)
@pytest.mark.parametrize("made", [tables, areas, households])
def test_a_run_is_refused_for_nothing_or_proves_itself(made: Any, seed: int, tmp_path: Path) -> None:
    spec = made(seed, tmp_path)
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))
    cap = {"zcdp": tb.ZCDP(1000), "pure": tb.PureDP(1000)}[spec["privacy"]["definition"]]
    promise = {"neighbours": spec["privacy"]["neighbours"], "unit": spec["source"].get("unit", "person")}
    ledger = tb.Ledger.create(tmp_path / "ledger.db", cap, **promise)
    try:
        release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    except TabulaeError:
        assert ledger.charges() == []
        return
    assert check_release(release) == []
    assert [charge.state for charge in ledger.charges()] == ["published"]
