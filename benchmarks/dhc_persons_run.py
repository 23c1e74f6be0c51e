"""The production run of DHC persons over one state: counted, measured and divided, with the time of each stage.

    python -m benchmarks.dhc_persons_run FOLDER OUT              passes as production has them
    python -m benchmarks.dhc_persons_run FOLDER OUT --once       every query in one optimum

FOLDER is what ``benchmarks.dhc_persons_state`` writes, the run ``benchmarks/dhcp/run.toml``. OUT receives

people.parquet    one row a person of the published counts
areas.parquet     level, area, cell and people: the counts of every area above the blocks
errors.csv        mean absolute error by level and query, from the true people
stages.json       seconds and counts
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from tabulae import ZCDP, Domain, Spine
from tabulae.domain import Recode
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.layout import CellLayout, Margin, Supports
from tabulae.products.areas.measure import measure_supported
from tabulae.products.areas.sparse.cells import MOST_DENSE, CountedCells, HeldMargin, Pass, SparseCounts
from tabulae.products.areas.sparse.descend import SupportedCounts
from tabulae.products.areas.spine_plan import SpinePlan

RUN = Path(__file__).parent / "dhcp/run.toml"


def codes(text: str) -> list[int]:
    """ "0-2 5" are 0, 1, 2 and 5."""
    ends = (part.split("-") for part in text.split())
    return [code for low, *high in ends for code in range(int(low), int((high or [low])[0]) + 1)]


@dataclass(frozen=True)
class Run:
    """What is measured over one state, under which constraints, and in which passes."""

    plan: SpinePlan
    held: HeldMargin
    limits: AreaConstraints
    passes: tuple[Pass, ...]
    blocks: dict[str, int]

    @classmethod
    def of(cls, folder: Path, *, once: bool = False) -> Run:
        """The run over the state of a folder."""
        asked = tomllib.loads(RUN.read_text(encoding="utf-8"))
        layout = _layout(asked)
        queries = tuple(layout.margin(query["attributes"]) for query in asked["query"])
        levels = list(asked["levels"])
        shares = {
            level: tuple(Fraction(query["shares"][i]) for query in asked["query"])
            for i, level in enumerate(levels)
        }
        columns = _text(folder / "spine.csv", levels)
        facilities = _text(folder / "facilities.csv", ["block", "gqlevels", "at_least"])
        used = np.isin(columns["block"].astype(str), facilities["block"].astype(str))
        columns = {name: column[used] for name, column in columns.items()}
        leaf = {code: i for i, code in enumerate(columns["block"].tolist())}
        spine = Spine.from_codes(columns, levels).bypass(
            {name: Fraction(share) for name, share in asked["levels"].items()}
        )
        bound = layout.margin([asked["bound"]["attribute"]])
        at = [leaf[block] for block in facilities["block"]], facilities["gqlevels"].astype(int)
        lower, upper = (np.zeros((len(leaf), bound.size), np.int64) for _ in range(2))
        lower[at], upper[at] = facilities["at_least"].astype(int), NO_LIMIT
        names = tuple(f"kind {i}" for i in range(bound.size))
        limits = AreaConstraints(layout, bound.label, names, lower, upper)
        plan = SpinePlan(
            spine,
            layout,
            queries,
            shares,
            ZCDP(Fraction(asked["budget"])),
            Supports.of((upper > 0)[:, bound.label]),
        )
        held = _held(folder, layout.margin(asked["held"]["attributes"]), leaf)
        passes = (Pass(tuple(range(len(queries)))),) if once else tuple(_passes(asked, layout))
        return cls(plan, held, limits, passes, leaf)

    def counted(self, folder: Path) -> SpineCounts:
        """The true people."""
        people, layout = parquet.read_table(folder / "people.parquet"), self.plan.layout
        cell = np.ravel_multi_index(
            [_codes(people, name) for name in layout.domain.names], layout.domain.shape
        )
        leaf = _places(people["block"], self.blocks)
        return SpineCounts(self.plan, leaf, layout.place[cell], np.ones(leaf.size, np.int64))


def _layout(asked: dict[str, Any]) -> CellLayout:
    recodes = []
    for name, recode in asked["recodes"].items():
        classes = np.zeros(asked["cells"][recode["of"]], np.int64)
        for i, group in enumerate(recode["groups"]):
            classes[codes(group)] = i
        recodes.append(Recode(name, recode["of"], classes, tuple(map(str, range(len(recode["groups"]))))))
    domain = Domain(asked["cells"], recodes=recodes)
    impossible = np.zeros((domain["relgq"].size, domain["age"].size), bool)
    for kind, ages in asked["structural_zeros"].items():
        impossible[int(kind), codes(ages)] = True
    return CellLayout.of(domain, ["relgq", "age"], impossible, MOST_DENSE)


def _passes(asked: dict[str, Any], layout: CellLayout) -> Iterator[Pass]:
    for step in asked["pass"]:
        rounding = tuple(layout.margin(names) for names in step.get("rounding", ()))
        yield Pass(tuple(step["queries"]), rounding)


def _held(folder: Path, margin: Margin, leaf: dict[str, int]) -> HeldMargin:
    rows = parquet.read_table(folder / "published.parquet")
    sizes = [len(margin.layout.domain.resolve(name).labels) for name in margin.names]
    cell = np.ravel_multi_index([_codes(rows, name) for name in margin.names], sizes)
    key = np.argsort(margin.order.ravel())[cell]
    people = rows["people"].to_numpy()
    return HeldMargin(margin, SparseCounts.of(len(leaf), _places(rows["block"], leaf), key, people))


def _text(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=names)
    rows = arrow_csv.read_csv(path, convert_options=types)
    return {name: rows[name].to_numpy(zero_copy_only=False) for name in names}


def _codes(rows: pa.Table, name: str) -> np.ndarray:
    column = rows[name].combine_chunks()
    return np.array(column.dictionary.to_pylist()).astype(np.int64)[column.indices.to_numpy()]


def _places(column: pa.ChunkedArray, leaf: dict[str, int]) -> np.ndarray:
    column = column.combine_chunks()
    place = np.array([leaf.get(code, -1) for code in column.dictionary.to_pylist()], np.int64)
    return place[column.indices.to_numpy()]


def write_counts(run: Run, found: SupportedCounts, out: Path) -> None:
    """people.parquet and areas.parquet."""
    plan, layout = run.plan, run.plan.layout
    leaves = found.nodes.take(plan.tree.leaf)
    cell = layout.cell.ravel()[found.cells.place[leaves.key]]
    code = np.array(list(run.blocks))
    values = np.unravel_index(np.repeat(cell, leaves.people), layout.domain.shape)
    block = pa.DictionaryArray.from_arrays(
        np.repeat(leaves.row, leaves.people).astype(np.int32), pa.array(code)
    )
    columns = {
        name: pa.array(value.astype(np.int16))
        for name, value in zip(layout.domain.names, values, strict=True)
    }
    parquet.write_table(pa.table({"block": block, **columns}), out / "people.parquet")
    inside = np.setdiff1d(np.arange(plan.tree.size), plan.tree.leaf)
    counts = found.nodes.take(inside)
    level = plan.tree.level[inside]
    names = np.array(
        [str(plan.spine.hierarchy.codes[a][b]) for a, b in zip(level, plan.tree.unit[inside], strict=True)]
    )
    rows = {
        "level": np.array(plan.spine.levels)[level][counts.row],
        "area": names[counts.row],
        "cell": layout.cell.ravel()[found.cells.place[counts.key]],
        "people": counts.people,
    }
    parquet.write_table(pa.table(rows), out / "areas.parquet")


def errors(run: Run, counts: SpineCounts, found: SupportedCounts) -> Iterator[dict[str, object]]:
    """By level and query, over the areas of the level: mean absolute error of a cell, and what noise alone has."""
    plan = run.plan
    place = np.arange(plan.layout.cell.size)
    for level, name in enumerate(plan.spine.levels):
        units = plan.spine.hierarchy.units[level]
        count = plan.spine.hierarchy.codes[level].size
        at, key, people = counts.entries(level, np.arange(count), plan)
        leaves = found.nodes.take(plan.tree.leaf)
        mine = units[leaves.row], found.cells.place[leaves.key], leaves.people
        for q, query in enumerate(plan.queries):
            row = query.rows(place)
            both = SparseCounts.of(
                count,
                np.concatenate([at, mine[0]]),
                np.concatenate([row[key], row[mine[1]]]).astype(np.int64),
                np.concatenate([people, -mine[2]]),
            )
            law = plan.law(name, _usual(plan, level), q)
            possible = np.unique(row).size
            yield {
                "level": name,
                "areas": count,
                "people": round(float(people.sum()) / count, 1),
                "query": query.name,
                "cells": possible,
                "error": f"{np.abs(both.people).sum() / count:.5g}",
                "gls": "",
                "answers": "" if law is None else f"{sqrt(2 / pi * law.variance_of_law) * possible:.5g}",
            }


def nodes_of_levels(plan: SpinePlan) -> list[np.ndarray]:
    """For each level the node of each of its areas."""
    node_of, found = plan.tree.leaf.copy(), []
    for level in reversed(range(len(plan.spine.levels))):
        while (higher := plan.tree.level[node_of] > level).any():
            node_of[higher] = plan.tree.parent[node_of[higher]]
        units = plan.spine.hierarchy.units[level]
        nodes = np.zeros(plan.spine.hierarchy.codes[level].size, np.int64)
        nodes[units] = node_of
        found.append(nodes)
    return found[::-1]


def _usual(plan: SpinePlan, level: int) -> Fraction:
    """The share that most measured units of a level have; 0 where none is measured."""
    shares = plan.spine.shares
    assert shares is not None
    index = shares.index[level][shares.measured[level]]
    return shares.values[np.bincount(index).argmax()] if index.size else Fraction(0)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    stages, begun = {}, time.perf_counter()

    def stage(name: str) -> None:
        nonlocal begun
        stages[name], begun = round(time.perf_counter() - begun, 2), time.perf_counter()

    run = Run.of(given.folder, once=given.once)
    cells = CountedCells.of(run.plan, run.passes, run.held, run.limits)
    stage("plan_s")
    counts = run.counted(given.folder)
    stage("count_s")
    drawn = measure_supported(counts, run.plan, cells)
    for _ in drawn:
        pass
    found = drawn.counts
    assert found is not None
    stage("measure_and_divide_s")
    write_counts(run, found, given.out)
    stage("write_s")
    with (given.out / "errors.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [*errors(run, counts, found)]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    about = {
        "blocks": run.plan.spine.leaves,
        "people": counts.records,
        "nodes": run.plan.tree.size,
        "cells": run.plan.layout.cell.size,
        "answers": found.answers,
        "divisions": found.divisions,
        "unconverged": found.unconverged,
    }
    (given.out / "stages.json").write_text(json.dumps({**about, **stages}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
