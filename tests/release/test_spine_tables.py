"""Rows of published counts of areas, against estimates and covariances held as plain arrays over all leaves' cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tabulae as tb
from tabulae.domain import Recode
from tabulae.errors import ReleaseError
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints, ExactMargin
from tabulae.products.areas.descent.limits import FREE
from tabulae.products.areas.layout import CellLayout, Margin, Supports
from tabulae.products.areas.microdata import Microdata, microdata_faults, write_microdata
from tabulae.products.areas.spec.section import AreaTable
from tabulae.products.areas.tables import AreaPublisher, Areas, KnownLimits, margin_limits, table_schemas
from tabulae.release.folder import MICRODATA, PublishedRows, TableWriter, plain

DOMAIN = tb.Domain(
    {"kind": ["a", "b", "c"], "age": range(4), "race": ["x", "y"]},
    [Recode.from_edges("old", tb.Domain({"age": range(4)})["age"], [2])],
)
LAYOUT = CellLayout.of(DOMAIN, ["kind"])
SUPPORT = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0]], bool)
LEAVES = 4


@dataclass(frozen=True, eq=False)
class Held:
    """Cells of every leaf, and one variance matrix a leaf: leaves are independent."""

    cells: np.ndarray
    matrices: np.ndarray

    def margins(
        self, margins: Sequence[Margin], area: np.ndarray, areas: int, leaves: np.ndarray
    ) -> list[np.ndarray]:
        found = [np.zeros((areas, margin.classes, margin.inner), self.cells.dtype) for margin in margins]
        everywhere = np.arange(LAYOUT.size)
        for margin, total in zip(margins, found, strict=True):
            for leaf, owner in zip(leaves, area, strict=True):
                total[owner, margin.present(everywhere)] += margin.add_up(self.cells[leaf], everywhere)
        return found

    def leaf_cells(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cells = self.cells[first:last].reshape(last - first, -1)
        leaf, place = np.nonzero(cells)
        return first + leaf, place, cells[leaf, place]

    def area_covariances(
        self, area: np.ndarray, areas: int, kinds: int | None = None
    ) -> Iterator[np.ndarray]:
        for i in range(areas):
            yield self.matrices[area == i].sum(axis=0)[:kinds]

    def half_widths(self, variance: np.ndarray, level: float) -> np.ndarray:
        return 2 * np.sqrt(variance)


@pytest.fixture
def held() -> Held:
    rng = np.random.default_rng(1)
    kinds, k, cells = LAYOUT.algebra.kinds, LAYOUT.size, LAYOUT.algebra.cells
    root = rng.normal(size=(LEAVES, kinds, k, k)) * SUPPORT[:, None, :, None]
    counts = rng.integers(0, 9, (LEAVES, k, cells)) * SUPPORT[:, :, None]
    return Held(counts, root @ root.swapaxes(-1, -2))


def _publisher(held: Held, method: str = "bluedown", **changed: object) -> AreaPublisher:
    unbiased = Held(held.cells + 0.25 * SUPPORT[:, :, None], held.matrices)
    arguments = {"known": None, "level": 0.95, **changed}
    published = unbiased if method == "gls" else held
    return AreaPublisher(LAYOUT, Supports.of(SUPPORT), method, published, unbiased, **arguments)  # type: ignore[arg-type]


AREAS = (
    Areas("town", np.array(["n", "s", "empty"]), np.array([0, 0, 1, 1])),
    Areas("leaf", np.array(["1", "2", "3", "4"]), np.arange(4)),
    Areas("lake", np.array(["l"]), np.array([-1, 0, 0, -1])),
)
TABLES = (
    AreaTable("total", LAYOUT.margin([]), ("town", "leaf", "lake")),
    AreaTable("old_by_kind", LAYOUT.margin(["old", "kind"]), ("town", "lake")),
)


ROWS = {"total": 3 + 4 + 1, "old_by_kind": (3 + 1) * 6}


def _rows(publisher: AreaPublisher) -> dict[str, pa.Table]:
    parts: dict[str, list[pa.Table]] = {}
    for name, rows in publisher.rows(TABLES, AREAS):
        parts.setdefault(name, []).append(rows.cast(plain(rows.schema)))
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


@pytest.mark.parametrize("small", [False, True])
def test_every_row_is_the_sum_of_its_cells(held: Held, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    if small:
        monkeypatch.setattr("tabulae.products.areas.tables._ROWS", 7)
    tables = _rows(_publisher(held))
    assert {name: t.num_rows for name, t in tables.items()} == ROWS
    place = {label: i for i, label in enumerate(DOMAIN.resolve("old").labels)}
    leaves = {
        (a.kind, str(code)): np.flatnonzero(a.leaf == i) for a in AREAS for i, code in enumerate(a.codes)
    }
    in_order = [(a.kind, str(code)) for a in AREAS if a.kind != "leaf" for code in a.codes]
    told = tables["old_by_kind"].to_pylist()
    assert [(r["area_type"], r["area"], r["old"], r["kind"]) for r in told] == [
        (*area, old, kind) for area, old, kind in product(in_order, DOMAIN.resolve("old").labels, "abc")
    ]
    cells = held.cells.reshape(LEAVES, 3, 4, 2)
    for row in told:
        inside = leaves[row["area_type"], row["area"]]
        ages = slice(0, 2) if place[row["old"]] == 0 else slice(2, 4)
        kind = "abc".index(row["kind"])
        assert row["estimate"] == cells[inside, kind, ages].sum()
        supported = SUPPORT[inside, kind].sum()
        assert row["gls_estimate"] == pytest.approx(row["estimate"] + 0.25 * 4 * supported)
        assert row["obs_status"] == ("A" if supported else "E")
        half = 2 * row["std_error"]
        assert row["ci_high"] == max(0, np.floor(row["gls_estimate"] + half))
        assert row["ci_low"] == max(0, np.ceil(row["gls_estimate"] - half)) or not supported
        assert (row["std_error"] > 0) == bool(supported)


def test_the_unbiased_method_has_one_estimate(held: Held) -> None:
    rows = _rows(_publisher(held, "gls"))["total"]
    assert "gls_estimate" not in rows.column_names
    assert rows.schema.field("estimate").type == pa.float64()
    assert rows["obs_status"].to_pylist() == ["A", "A", "E", "A", "A", "A", "A", "A"]


def _known(values: np.ndarray, margin: ExactMargin, **limits: np.ndarray) -> KnownLimits:
    free = {"lower": np.zeros((LEAVES, 3), np.int64), "upper": np.full((LEAVES, 3), NO_LIMIT)}
    constraints = AreaConstraints(
        LAYOUT, np.arange(3), ("a", "b", "c"), **{**free, **limits}, exact=(margin,)
    )
    units = {"leaf": np.arange(LEAVES), "town": np.array([0, 0, 1, 1]), "lake": np.array([-1, 0, 0, -1])}
    return KnownLimits(units, constraints, (values,))


@pytest.mark.parametrize("names", [(), ("kind",), ("age", "kind"), ("old",), ("race", "kind")])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lake", [False, True])
def test_limits_hold_for_the_true_counts_of_every_area(names: tuple[str, ...], seed: int, lake: bool) -> None:
    """People placed at random; what is known is true of them. Single leaves without units are told by the limits."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 9, (LEAVES, LAYOUT.size, LAYOUT.algebra.cells)) * SUPPORT[:, :, None]
    part = cells.sum(axis=2)
    towns = np.stack([part[:2].sum(axis=0), part[2:].sum(axis=0)])
    towns[1, 2] = FREE
    room = rng.integers(0, 3, (2, *part.shape))
    limits = {
        "lower": np.maximum(part - room[0], 0),
        "upper": np.where(room[1] == 2, NO_LIMIT, part + room[1]),
    }
    known = _known(towns, ExactMargin("town", LAYOUT.margin(["kind"])), **limits)
    if lake:
        known = _known(part[None, 1] + part[None, 2], ExactMargin("lake", LAYOUT.margin(["kind"])), **limits)
    margin = LAYOUT.margin(list(names))
    for owner in ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 2, 3]):
        where = np.arange(LEAVES), np.array(owner), max(owner) + 1
        true = Held(cells, cells).margins([margin], where[1], where[2], where[0])[0]
        least, most = margin_limits(list(known.of_areas(*where)), margin)
        assert np.all(least <= true)
        assert np.all(true <= most)
    if names == ("kind",) and not lake:
        town = margin_limits(list(known.of_areas(np.arange(2), np.zeros(2, int), 1)), margin)
        assert (town[0].ravel() == towns[0]).all()
        assert (town[1].ravel() == towns[0]).all()


def test_what_follows_from_exact_counts_is_exact(held: Held) -> None:
    """Leaf 1's matrix is made blind to its total, as an exact total makes it; the rest of it stays noisy."""
    matrices = held.matrices.copy()
    ones = np.ones(3) * SUPPORT[0]
    away = np.eye(3) - np.outer(ones, ones) / ones.sum()
    matrices[0, 0] = away @ matrices[0, 0] @ away
    exact = Held(held.cells, matrices)
    total = held.cells[0].sum()
    known = _known(np.array([[total], [FREE], [FREE], [FREE]]), ExactMargin("leaf", LAYOUT.margin([])))
    rows = _rows(_publisher(exact, known=known))
    status = {(r["area_type"], r["area"]): r for r in rows["total"].to_pylist()}
    told = status["leaf", "1"]
    assert (told["obs_status"], told["std_error"], told["gls_estimate"]) == (
        "E",
        0.0,
        round(told["gls_estimate"]),
    )
    assert status["leaf", "2"]["obs_status"] == "A"
    assert status["town", "n"]["obs_status"] == "A"


def test_written_tables_are_compared_number_by_number(held: Held, tmp_path: Path) -> None:
    publisher = _publisher(held)
    schemas = table_schemas(TABLES, "bluedown")
    with TableWriter(tmp_path, schemas) as writer:
        for name, rows in publisher.rows(TABLES, AREAS):
            writer.write(name, rows)
    assert writer.rows == ROWS

    def faults() -> list[str]:
        files = {name: PublishedRows(tmp_path, name, plain(schema)) for name, schema in schemas.items()}
        for name, rows in publisher.rows(TABLES, AREAS):
            files[name].compare(rows)
        for file in files.values():
            file.end()
        return [fault for file in files.values() for fault in file.faults]

    assert faults() == []
    stored = pq.read_table(tmp_path / "total.parquet")
    moved = stored.set_column(2, "estimate", pa.array(np.array(stored["estimate"]) + 1))
    pq.write_table(moved, tmp_path / "total.parquet")
    pa.csv.write_csv(moved.cast(plain(moved.schema)), tmp_path / "total.csv")
    assert faults() == ["tables/total.parquet: estimate is not what the measurements say"]


def test_people_are_as_many_as_counted(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    towns, leaves = np.array(["n", "s"]), np.array(["1", "2", "3", "4"])
    codes = {"town": (towns, np.array([0, 0, 1, 1])), "leaf": (leaves, np.arange(4))}
    people = Microdata(LAYOUT, codes, held)
    assert write_microdata(tmp_path, people) == held.cells.sum()
    table = pq.read_table(tmp_path / MICRODATA)
    assert table.column_names == ["town", "leaf", "kind", "age", "race"]
    found = np.zeros((LEAVES, 3, 4, 2), int)
    for row in table.to_pylist():
        assert row["town"] == "nnss"[int(row["leaf"]) - 1]
        found[int(row["leaf"]) - 1, "abc".index(row["kind"]), int(row["age"]), "xy".index(row["race"])] += 1
    assert np.array_equal(found.reshape(held.cells.shape), held.cells)
    monkeypatch.setattr("tabulae.products.areas.microdata._CELLS", 30)  # the comparison may go in other steps
    assert list(microdata_faults(tmp_path, people)) == []
    more = Held(held.cells + np.arange(4)[:, None, None] // 3 * SUPPORT[:, :, None], held.matrices)
    assert "not those of the published counts" in next(
        microdata_faults(tmp_path, Microdata(LAYOUT, codes, more))
    )
    fewer = Held(held.cells * (np.arange(4)[:, None, None] < 3), held.matrices)
    assert "more people" in next(microdata_faults(tmp_path, Microdata(LAYOUT, codes, fewer)))
    assert "its columns" in next(microdata_faults(tmp_path, Microdata(LAYOUT, {"leaf": codes["leaf"]}, held)))
    (tmp_path / MICRODATA).write_bytes(b"")
    with pytest.raises(ReleaseError, match="cannot be read"):
        list(microdata_faults(tmp_path, people))


def test_nobody_is_a_file_without_rows(tmp_path: Path, held: Held) -> None:
    nobody = Microdata(LAYOUT, {"leaf": (np.arange(4), np.arange(4))}, Held(0 * held.cells, held.matrices))
    assert write_microdata(tmp_path, nobody) == 0
    assert list(microdata_faults(tmp_path, nobody)) == []
