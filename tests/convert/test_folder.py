"""The folder of a conversion: whole or not at all, and of a release that is as it was published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.convert.stored import lines, with_table

import tabulae as tb
from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.export import FORMATS, convert_release
from tabulae.export.stored import as_code, as_name, unique
from tabulae.release.folder import check_sums, write_sums


@pytest.mark.parametrize("to", FORMATS)
def test_the_folder_has_checksums_and_a_readme(releases: dict[str, Path], tmp_path: Path, to: str) -> None:
    release = tb.Release.read(releases["village"])
    out = convert_release(release, to, tmp_path / "out")
    assert check_sums(out) == []
    readme = (out / "README.md").read_text()
    assert release.about["release_id"] in readme
    for name in release.tables:
        assert f"tables/{name}." in readme
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert check_sums(release.path) == []


@pytest.mark.parametrize("to", FORMATS)
def test_a_release_that_was_altered_is_refused(copy: Path, tmp_path: Path, to: str) -> None:
    (copy / "tables" / "heads.csv").write_text("altered")
    with pytest.raises(ReleaseError, match=r"heads\.csv was altered"):
        convert_release(tb.Release.read(copy), to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["created", "name", "resources"])
def test_a_folder_that_is_not_described_is_refused(copy: Path, tmp_path: Path, key: str) -> None:
    descriptor = json.loads((copy / "datapackage.json").read_text())
    (copy / "datapackage.json").write_text(json.dumps({**descriptor, key: [{}]}))
    write_sums(copy)
    with pytest.raises(ReleaseError, match=r"does not describe a release|is not a complete release"):
        convert_release(tb.Release.read(copy), "csv", tmp_path / "out")


def test_nothing_is_written_over_or_into_the_release(releases: dict[str, Path], tmp_path: Path) -> None:
    release = tb.Release.read(releases["village"])
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        with pytest.raises(ReleaseError, match="exists"):
            convert_release(release, "csv", tmp_path / name)
    with pytest.raises(ReleaseError, match="lies in the release"):
        convert_release(release, "csv", release.path / "out")
    with pytest.raises(ReleaseError, match="make it first"):
        convert_release(release, "csv", tmp_path / "a" / "b")
    with pytest.raises(InvalidArgument, match="no format 'ods'"):
        convert_release(release, "ods", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]


@pytest.mark.parametrize("to", FORMATS)
def test_what_fails_halfway_leaves_nothing(copy: Path, tmp_path: Path, to: str) -> None:
    """The last table cannot be read, although its checksum is right."""
    (copy / "tables" / "all of them.parquet").write_bytes(b"no table")
    write_sums(copy)
    with pytest.raises(ReleaseError, match="cannot be read"):
        convert_release(tb.Release.read(copy), to, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk_leaves_nothing(
    releases: dict[str, Path], tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tabulae.export.formats.write_sums", full)
    with pytest.raises(ReleaseError, match=r"the disk is full\. Nothing was written"):
        convert_release(tb.Release.read(releases["village"]), to, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_several_row_groups_is_read_piece_by_piece(copy: Path, tmp_path: Path) -> None:
    """Pieces have dictionaries of their own; the order and the codes are those of the whole."""
    path = copy / "tables" / "Sex by tower.parquet"
    whole = pq.read_table(path)
    schema = pa.schema(
        [
            (f.name, pa.dictionary(pa.int32(), pa.string()) if pa.types.is_string(f.type) else f.type)
            for f in whole.schema
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, whole.num_rows, 2):
            writer.write_table(whole.slice(first, 2).cast(schema))
    write_sums(copy)
    out = convert_release(tb.Release.read(copy), "sdmx-csv", tmp_path / "out")
    rows = lines(out / "tables" / "Sex by tower.csv")
    assert [(row["SEX"], row["TARN_BY"]) for row in rows] == [
        (sex, tower) for sex in "FM" for tower in ("001", "1", "_T1")
    ]
    assert [float(row["OBS_VALUE"]) for row in rows] == whole["estimate"].to_pylist()


def test_every_float_reads_back_as_itself(copy: Path, tmp_path: Path) -> None:
    """Numbers of any size, by their bits: each format says the very same one."""
    bits = np.random.default_rng(1).integers(-(2**63), 2**63, (4, 3000))
    numbers = bits.view(np.float64)
    numbers = np.where(np.isfinite(numbers), numbers, 0.1)
    numbers[:, :6] = [5e-324, 1.7976931348623157e308, -0.0, 1e22, 2**53 + 1, 1 / 3]
    names = ("estimate", "std_error", "ci_low", "ci_high")
    keys = [f"k{i}" for i in range(numbers.shape[1])]
    columns = {"k": keys, **dict(zip(names, numbers, strict=True)), "obs_status": ["A"] * len(keys)}
    with_table(copy, columns)
    release = tb.Release.read(copy)
    plain = lines(convert_release(release, "csv", tmp_path / "a") / "derived" / "figure.csv")
    sdmx = lines(convert_release(release, "sdmx-csv", tmp_path / "b") / "derived" / "figure.csv")
    out = convert_release(release, "json-stat", tmp_path / "c") / "derived" / "figure.json"
    dataset = json.loads(out.read_text())
    assert np.array_equal(np.reshape(dataset["value"], (-1, 4)).T, numbers)
    for ours, theirs, stored in zip(
        names, ("OBS_VALUE", "STD_ERROR", "CI_LOW", "CI_HIGH"), numbers, strict=True
    ):
        assert [float(row[ours]) for row in plain] == stored.tolist()
        assert [row[theirs] for row in sdmx] == [row[ours] for row in plain]


@given(st.lists(st.text(max_size=4), max_size=8), st.sets(st.text("ab_2", max_size=3)))
def test_names_become_different_and_keep_what_was_free(names: list[str], taken: set[str]) -> None:
    made = unique(names, taken)
    assert len(set(made)) == len(names)
    assert not set(made) & taken
    for name, first in zip(names, made, strict=True):
        if name not in taken and names.index(name) == made.index(first):
            assert first == name


@given(st.text(min_size=1))
def test_identifiers_have_the_signs_of_sdmx(text: str) -> None:
    import re

    assert re.fullmatch(r"[A-Za-z0-9_@$-]+", as_code(text))
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", as_name(text))


@given(st.from_regex(r"[A-Za-z0-9_@$-]+", fullmatch=True))
def test_codes_that_are_allowed_stay(code: str) -> None:
    assert as_code(code) == code
