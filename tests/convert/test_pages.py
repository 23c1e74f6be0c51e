"""The pages about drafts, conversions and formats say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from docs.walk import same_shape, walk

DOCS = Path(__file__).parents[2] / "docs"
FORMATS = (DOCS / "formats.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", ["convert", "init"])
def test_a_page_shows_what_its_commands_print(name: str, tmp_path: Path) -> None:
    page = (DOCS / "guide" / f"{name}.md").read_text(encoding="utf-8")
    for command, printed in walk(page, tmp_path):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])


def test_every_file_of_a_release_is_described(releases: dict[str, Path]) -> None:
    """By its name, or by the pattern that its folder has."""
    patterns = [
        re.sub(r"\b(NAME|ATTRIBUTE|RECODE|TABLE|LEVEL|NN|REGION|K|N)\b|(?<=matrix)N", "*", told)
        for told in re.findall(r"`([^`\s]+)`", FORMATS)
    ]
    for release in releases.values():
        for path in release.rglob("*"):
            if path.is_file():
                inside = path.relative_to(release)
                folder = f"{inside.parts[0]}/" if len(inside.parts) > 1 else None
                assert folder in patterns or any(inside.match(each) for each in patterns), inside


def test_columns_have_the_types_that_the_page_says(releases: dict[str, Path]) -> None:
    types = {"string": pa.string(), "double": pa.float64(), "int64": pa.int64()}
    rows = re.findall(r"^\| (`.+?`) \| (string|double|int64) \|", FORMATS, re.MULTILINE)
    told = [(names.strip("`").split("`, `"), types[kind]) for names, kind in rows]
    plain, areas, groups = dict[str, pa.DataType](), dict[str, pa.DataType](), dict[str, pa.DataType]()
    for names, kind in told:
        target = (
            areas
            if plain.get("obs_status") and names[0] in ("area_type", "area", "estimate", "gls_estimate")
            else plain
        )
        target = groups if names[0] in ("region_type", "group", "label") else target
        target.update(dict.fromkeys(names, kind))
    expected = {"village": plain, "hamlet": plain, "duchy": {**plain, **areas}, "guild": {**plain, **groups}}
    for kind, release in releases.items():
        for path in (release / "tables").glob("*.parquet"):
            for field in pq.read_schema(path):
                stored = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
                assert stored == expected[kind].get(field.name, pa.string()), (path, field)
