"""The reference page and the examples say what is true."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from tests.each import each

from tabulae.errors import SpecError
from tabulae.spec import Spec, promise, read_spec, shape
from tabulae.spec import areas as geography_shape
from tabulae.spec import groups as detailed_shape
from tabulae.spec.sections import SECTIONS
from tabulae.spec.series import SeriesSection
from tabulae.spec.shape import DerivedEntry, ReliabilitySection

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spec.md").read_text()
BLOCKS = re.findall(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
TITLED = {title: body for _, title, body in BLOCKS if title}
PIECES = [body for language, title, body in BLOCKS if language == "toml" and not title]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the page names, as it shows them."""
    (tmp_path / "codes").mkdir()
    for title, body in TITLED.items():
        if title.endswith((".csv", ".toml")):
            (tmp_path / title).write_text(body)
    np.save(tmp_path / "w.npy", np.ones((2, 115)))
    return tmp_path


def test_the_whole_document_of_the_page(folder: Path) -> None:
    spec = read_spec(folder / "spec.toml")
    assert spec.workload.queries == 12


def test_the_document_of_groups(folder: Path) -> None:
    spec = read_spec(folder / "detailed.toml")
    assert spec.detailed is not None
    assert [rung.name for rung in spec.detailed.rungs] == ["sex", "sex_by_age5"]


def test_the_document_of_areas(folder: Path) -> None:
    geography = read_spec(folder / "geography.toml").geography
    assert geography is not None
    assert geography.dropped.tolist() == ["0201"]
    assert [table.name for table in geography.tables] == ["population", "sex_by_race"]


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.split("\n", 1)[0])
def test_each_piece_of_the_page_fits_its_document(folder: Path, piece: str) -> None:
    whole = tomllib.loads(TITLED["spec.toml"]) | tomllib.loads(piece)
    assert Spec.from_text(tomli_w.dumps(whole), folder).title == whole["title"]


def test_the_mistakes_of_the_page_are_told_as_it_says(folder: Path) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(TITLED["mistakes.toml"], folder, "mistakes.toml")
    assert str(caught.value) == TITLED["tabulae check mistakes.toml"].rstrip("\n")


def section(name: str) -> str:
    """The text of the page under one heading."""
    return PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


@each(
    ("heading", "model"),
    [
        ("`[source]`", shape.SourceSection),
        ("`[attributes]`", shape.AttributeEntry),
        ("`[values]`", shape.ValueEntry),
        ("`[recodes]`", shape.RecodeEntry),
        ("`[privacy]`", shape.PrivacySection),
        ("`[[table]]`", shape.TableEntry),
        ("`[[invariant]]`", shape.InvariantEntry),
        ("`[detailed]`", detailed_shape.DetailedSection),
        ("`[[detailed.level]]`", detailed_shape.LevelEntry),
        ("`[geography]`", geography_shape.GeographySection),
        ("`[[geography.query]]`", geography_shape.QueryEntry),
        ("`[[bound]]`", geography_shape.BoundEntry),
        ("`[[earlier]]`", geography_shape.EarlierEntry),
        ("`[[structural_zero]]`", geography_shape.ZeroEntry),
        ("`[method]`", shape.MethodSection),
        ("`[release]`", shape.ReleaseSection),
        ("`[reliability]`", ReliabilitySection),
        ("`[series]`", SeriesSection),
        ("`[[derived]]`", DerivedEntry),
    ],
)
def test_the_page_has_every_key_with_its_default(heading: str, model: type[shape.BaseModel]) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section(heading), re.MULTILINE))
    assert set(rows) == set(model.model_fields)
    for key, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if not field.is_required() and default is not None:
            assert f"| `{json.dumps(default)}` |" in f"| {rows[key]} |", key


def test_the_page_has_every_section_and_name() -> None:
    assert set(re.findall(r"^\| `\[*(\w+)\]*` \|", section("Top level"), re.MULTILINE)) == set(SECTIONS)
    methods = re.search(r"^\| `select` \| (.+?) \|", section("`[method]`"), re.MULTILINE)
    assert methods is not None
    assert tuple(re.findall(r'"([\w-]+)"', methods[1])) == promise.METHODS


def _stand_alone() -> list[Path]:
    """The examples that need no release of another one, and no invented files: ``tests/examples`` runs those."""
    every = sorted((ROOT / "examples").glob("*.toml"))
    invented = {folder.parent.name for folder in (ROOT / "examples").glob("*/invent.py")}
    return [p for p in every if "\n[[earlier]]\n" not in p.read_text() and p.stem not in invented]


@pytest.mark.parametrize("path", _stand_alone(), ids=lambda path: path.name)
def test_each_example_is_a_document(path: Path) -> None:
    assert read_spec(path).title == tomllib.loads(path.read_text())["title"]


def test_the_adult_example_fits_its_data() -> None:
    data = ROOT.parent / "shared" / "data"
    if not (data / "adult.csv").exists():
        pytest.skip("needs ../shared/data/adult.csv, the real records of the example")
    spec = read_spec(ROOT / "examples" / "adult.toml")
    sizes = json.loads((data / "adult-domain.json").read_text())
    assert {rule.name: spec.domain[name].size for name, rule in spec.columns.items()} == {
        column: size
        for column, size in sizes.items()
        if column in {rule.name for rule in spec.columns.values()}
    }
    assert [table.rows(spec.domain) for table in spec.workload.tables] == [170, 64, 3655, 4950]
