"""JSON-stat: read by pyjstat, and the published numbers to the last digit."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyjstat import pyjstat
from tests.convert.stored import NUMBERS, values, with_figure

import tabulae as tb
from tabulae.export import convert_release


def _cells(dataset: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Labels of the categories, and the measure -> value: an own reading of the format's definition."""
    value = dataset["value"]
    at = dict(enumerate(value)) if isinstance(value, list) else {int(k): v for k, v in value.items()}
    categories = []
    for name, size in zip(dataset["id"], dataset["size"], strict=True):
        category = dataset["dimension"][name]["category"]
        assert len(category["index"]) == len(set(category["index"])) == size
        last = name in dataset["role"]["metric"]
        categories.append(category["index"] if last else [category["label"][i] for i in category["index"]])
    return {labels: at[place] for place, labels in enumerate(product(*categories)) if place in at}


def _datasets(out: Path) -> dict[str, dict[str, Any]]:
    """Every dataset that the collection lists, by the name of its file."""
    collection = json.loads((out / "collection.json").read_text())
    assert (collection["class"], collection["version"]) == ("collection", "2.0")
    listed = {
        item["href"]: json.loads((out / item["href"]).read_text()) for item in collection["link"]["item"]
    }
    assert set(listed) == {path.relative_to(out).as_posix() for path in out.glob("*/*.json")}
    return listed


def test_every_number_is_the_stored_float(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "json-stat", tmp_path / "out")
    datasets = _datasets(out)
    for name, stored in released.tables.items():
        rows = values(released.path, name)
        numbers = [n for n in NUMBERS if n in stored.column_names]
        found: dict[tuple[str, ...], Any] = {}
        for file, dataset in datasets.items():
            if file == f"tables/{name}.json" or file.startswith(f"tables/{name}."):
                found |= _cells(dataset)
        called = (
            {row["group"]: row["label"] for row in values(released.path, "totals")}
            if released.spec.detailed
            else {}
        )
        keys = [k for k in stored.column_names if k not in (*NUMBERS, "obs_status", "label", "table")]
        expected = {
            (*(str(called.get(row[k], row[k]) if k == "group" else row[k]) for k in keys), n): row[n]
            for row in rows
            for n in numbers
        }
        expected = {
            tuple("total" if part == "_T" else part for part in key): v for key, v in expected.items()
        }
        assert found == expected
        assert all(type(found[key]) is type(expected[key]) or found[key] == expected[key] for key in expected)


# pyjstat's reader calls functions of its own that it has deprecated.
@pytest.mark.filterwarnings("ignore:Shouldn't use this function:DeprecationWarning")
def test_pyjstat_reads_the_numbers(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "json-stat", tmp_path / "out")
    total = 0
    for file in _datasets(out):
        frame = pyjstat.Dataset.read((out / file).read_text()).write("dataframe", naming="id")
        estimates = frame[frame[frame.columns[-2]] == "estimate"]["value"].dropna()
        total += estimates.sum()
    tables = [*released.tables.values(), *released.derived.values()]
    published = sum(sum(table["estimate"].to_pylist()) for table in tables)
    assert total == pytest.approx(published)


def test_dense_tables_are_arrays_and_others_objects(releases: dict[str, Path], tmp_path: Path) -> None:
    kinds = {}
    for kind in ("village", "guild", "duchy"):
        out = convert_release(tb.Release.read(releases[kind]), "json-stat", tmp_path / kind)
        kinds[kind] = {name: type(dataset["value"]) for name, dataset in _datasets(out).items()}
    assert set(kinds["village"].values()) == set(kinds["duchy"].values()) == {list}
    assert kinds["guild"]["tables/sex.town.json"] is dict


def test_areas_have_their_role_and_exact_counts_their_status(
    releases: dict[str, Path], tmp_path: Path
) -> None:
    out = convert_release(tb.Release.read(releases["duchy"]), "json-stat", tmp_path / "out")
    datasets = _datasets(out)
    top, below = datasets["tables/kind_by_grown.duchy.json"], datasets["tables/kind_by_grown.shire.json"]
    assert top["role"] == {"metric": ["measure"], "geo": ["area"]}
    assert below["dimension"]["area_type"]["category"]["index"] == ["shire"]
    assert datasets["tables/total.duchy.json"]["status"] == "E"
    rows = [r for r in values(releases["duchy"], "kind_by_grown") if r["area_type"] == "duchy"]
    marked = {str(5 * i + j) for i, row in enumerate(rows) if row["obs_status"] == "E" for j in range(5)}
    assert marked
    assert top["status"] == dict.fromkeys(top["status"], "E")
    assert set(top["status"]) == marked


def test_a_name_of_the_format_is_no_trouble(releases: dict[str, Path], tmp_path: Path) -> None:
    out = convert_release(tb.Release.read(releases["hamlet"]), "json-stat", tmp_path / "out")
    dataset = _datasets(out)["tables/measures.json"]
    assert dataset["id"] == ["measure", "measure_2"]
    assert dataset["role"] == {"metric": ["measure_2"]}


def test_what_json_cannot_say_is_null(copy: Path, tmp_path: Path) -> None:
    inf, nan = float("inf"), float("nan")
    with_figure(copy, [0.1, nan], [-inf, nan], [inf, nan])
    out = convert_release(tb.Release.read(copy), "json-stat", tmp_path / "out")
    dataset = _datasets(out)["derived/figure.json"]
    assert dataset["value"] == [0.1, 0.1, None, None, None, None, None, None]
    assert dataset["status"] == {"4": "Q", "5": "Q", "6": "Q", "7": "Q"}


def test_derived_figures_have_their_title(releases: dict[str, Path], tmp_path: Path) -> None:
    release = tb.Release.read(releases["hamlet"])
    dataset = _datasets(convert_release(release, "json-stat", tmp_path / "out"))["derived/share of F.json"]
    assert dataset["label"].endswith(": Share of F, by sex")
    stored = [
        row[name] for row in release.derived["share of F"].to_pylist() for name in NUMBERS if name in row
    ]
    assert dataset["value"] == stored
