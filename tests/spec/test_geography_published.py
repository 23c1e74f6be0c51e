"""What is published of the files of a geography: the columns that are used, as text, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.spec.states import FACILITIES, SPINE, State

from tabulae.products.areas.spec.section import geography_of
from tabulae.spec import Spec


def _again(spec: Spec, folder: Path) -> Spec:
    """The published copy, read back."""
    for name, content in spec.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return Spec.from_text(spec.published_text(), folder)


def _beside(text: str, *columns: str) -> str:
    """A CSV file with further columns, cells of rows by their number."""
    head, *rows = text.splitlines()
    more = [",".join(cell.format(i=i) for cell in columns) for i in range(-1, len(rows))]
    return "\n".join(f"{row},{cells}" for row, cells in zip((head, *rows), more, strict=True)) + "\n"


def test_only_columns_that_are_used_are_published(state: State, tmp_path: Path) -> None:
    plain = state.spec()
    state.file("spine.csv", _beside(SPINE, "SECRET{i}"))
    state.file("facilities.csv", _beside(FACILITIES, "SECRET{i}"))
    spec = state.spec()
    assert spec.files == plain.files
    assert spec.digest() == plain.digest()
    split = state.spec(("entities =", 'split = "tribe = \'T\'"\nsplit_below = "state"\nentities ='))
    assert split.files["geography/spine.csv"].decode() == SPINE
    assert _again(split, tmp_path / "again").digest() == split.digest()


def test_files_of_any_kind_are_published_as_text(state: State, tmp_path: Path) -> None:
    plain = state.spec()
    for name in ("spine", "facilities"):
        text = pa.csv.ConvertOptions(column_types={c: pa.string() for c in SPINE.split("\n")[0].split(",")})
        table = pa.csv.read_csv(state.base / f"{name}.csv", convert_options=text)
        pq.write_table(
            table.append_column("secret", pa.array(range(table.num_rows))), state.base / f"{name}.parquet"
        )
    spec = state.spec(('"spine.csv"', '"spine.parquet"'), ('"facilities.csv"', '"facilities.parquet"'))
    assert spec.files == plain.files
    assert spec.digest() == plain.digest() == _again(spec, tmp_path / "again").digest()


def test_codes_of_any_letters_read_back(state: State, tmp_path: Path) -> None:
    for i, odd in enumerate(('"7, ""x"""', "a;b'c", "é #1")):
        state.file("spine.csv", SPINE.replace(",20,", f",{odd},"))
        spec = state.spec()
        again = _again(spec, tmp_path / str(i))
        assert again.digest() == spec.digest()
        assert geography_of(again).areas("place")[0].tolist() == geography_of(spec).areas("place")[0].tolist()
    assert "é #1" in geography_of(spec).areas("place")[0].tolist()


def test_where_leaves_are_is_published_where_it_is_used(state: State, tmp_path: Path) -> None:
    """The last leaf is not on the spine: what is not a number there is left out."""
    assert state.geography().places is None
    place = _beside(SPINE, "{i}.50", "-{i}e0").replace(",-1.50,--1e0\n", ",x,y\n", 1)
    state.file("spine.csv", place.replace("7.50,", "SECRET,"))
    spec = state.spec()
    places = geography_of(spec).places
    assert places is not None
    assert places.tolist() == [[i + 0.5, -i] for i in range(7)]
    lines = spec.files["geography/spine.csv"].decode().splitlines()
    assert (lines[0][-4:], lines[1][-10:], lines[8][-6:]) == (",x,y", ",0.50,-0e0", ",,-7e0")
    assert _again(spec, tmp_path / "again").digest() == spec.digest()
    state.file("spine.csv", place.replace("3.50,", "north,"))
    assert state.geography().places is None
    assert (
        state.spec().files["geography/spine.csv"].decode().splitlines()[0] == "state,county,tract,block,place"
    )


def test_where_leaves_are_may_be_numbers_of_parquet(state: State, tmp_path: Path) -> None:
    text = pa.csv.ConvertOptions(column_types={c: pa.string() for c in SPINE.split("\n")[0].split(",")})
    table = pa.csv.read_csv(state.base / "spine.csv", convert_options=text)
    whole = table.append_column("x", pa.array(np.arange(8) / 3)).append_column(
        "y", pa.array(range(8), pa.int16())
    )
    pq.write_table(whole, state.base / "spine.parquet")
    spec = state.spec(('"spine.csv"', '"spine.parquet"'))
    places = geography_of(spec).places
    assert places is not None
    assert places.tolist() == [[i / 3, i] for i in range(7)]
    again = _again(spec, tmp_path / "again")
    assert again.digest() == spec.digest()
    assert (geography_of(again).places == places).all()
    odd = table.append_column("x", pa.array([b"SECRET"] * 8)).append_column(
        "y", pa.array(range(8), pa.int16())
    )
    pq.write_table(odd, state.base / "spine.parquet")
    spec = state.spec(('"spine.csv"', '"spine.parquet"'))
    assert geography_of(spec).places is None
    assert b"SECRET" not in spec.files["geography/spine.csv"]


def test_targets_read_back(state: State, tmp_path: Path) -> None:
    one = ('name = "total"\n', 'name = "total"\ntarget = { margin = 5, areas = ["tract", "place"] }\n')
    several = (
        'areas = ["county", "place"]\n',
        'areas = ["county", "place"]\ntarget = [{ rmse = 4 }, { margin = 9 }]\n',
    )
    spec = state.spec(one, several)
    again = _again(spec, tmp_path / "again")
    assert again.digest() == spec.digest() != state.spec(one).digest()
    targets = [table.targets for table in geography_of(spec).tables]
    assert targets == [table.targets for table in geography_of(again).tables]
    assert [(t.areas, t.rmse, t.margin, t.confidence) for t in (*targets[0], *targets[1])] == [
        (("tract", "place"), None, 5.0, 0.95),
        (("county", "place"), 4.0, None, None),
        (("county", "place"), None, 9.0, 0.95),
    ]
