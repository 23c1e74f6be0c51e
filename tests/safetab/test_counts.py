"""Counts of groups from person records: as by definition, whatever the order, and nothing is left behind."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import dear
from tests.membership import groups_of
from tests.safetab.world import HEADER, PERSONS, World, config, persons
from tests.tabulate.group_oracle import Entries, entries_of

import tabulae.products.groups.count
import tabulae.products.groups.engine
from tabulae.errors import DataError, SpecError
from tabulae.interop.safetab import Inputs, check
from tabulae.interop.safetab.maps import RACES
from tabulae.interop.safetab.text import Faults
from tabulae.products.groups.count import GroupCounts

SOUND = "034|1|True|01|001|000001|0001|01|1010|1020|Null|Null|Null|Null|Null|Null|2000"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return check(*World(config(run_pr=True)).write(tmp_path_factory.mktemp("world")))


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / PERSONS
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@contextmanager
def counts_of(inputs: Inputs, path: Path, memory: str | None = None) -> Iterator[GroupCounts]:
    with replace(inputs.records, path=path).counts(inputs.plan.adaptive, memory) as counts:
        yield counts


def by_definition(text: str, inputs: Inputs) -> list[Entries]:
    geography = inputs.records.geography
    assert geography is not None
    leaf = {number: i for i, number in enumerate(geography.block.tolist())}
    out: list[Entries] = []
    rows = [dict(zip(HEADER.split("|"), line.split("|"), strict=True)) for line in text.splitlines()[1:]]
    for level in inputs.plan.adaptive.levels:
        entries: Counter[tuple[int, int, int]] = Counter()
        for row in rows:
            block = int(row["TABBLKST"] + row["TABBLKCOU"] + row["TABTRACTCE"] + row["TABBLK"])
            region = int(level.regions.of_leaf[leaf[block]])
            races = [row[name] for name in RACES[: inputs.records.most] if row[name] != "Null"]
            member = groups_of(level.groups, {"race": races, "ethnicity": [row["QSPAN"]]})
            cell = int(row["QAGE"]) * 2 + int(row["QSEX"]) - 1
            for g, group in enumerate(level.groups.groups):
                if region >= 0 and group.code in member:
                    entries[region, g, int(level.ladder.of_cell[cell])] += 1
        out.append(dict(entries))
    return out


@dear()
@given(count=st.integers(1, 60), seed=st.integers(0, 2**32), end=st.sampled_from(["\n", "\r\n"]))
def test_counts_are_those_of_the_definition(inputs: Inputs, count: int, seed: int, end: str) -> None:
    text = persons(count, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), text.replace("\n", end))
        with counts_of(inputs, path) as counts:
            assert counts.records == count
            assert entries_of(counts, inputs.plan.adaptive) == by_definition(text, inputs)


def test_many_chunks_and_many_parts_give_the_same(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = persons(300, seed=7)
    monkeypatch.setattr(tabulae.products.groups.count, "_PLACES", 3)
    monkeypatch.setattr(tabulae.products.groups.engine, "_RECORDS_AT_ONCE", 50)
    monkeypatch.setattr(tabulae.products.groups.engine, "_COMBOS_AT_ONCE", 3)
    with counts_of(inputs, write(tmp_path, text)) as counts:
        county = [level.regions.name for level in inputs.plan.adaptive.levels].index("COUNTY")
        assert len(list(counts.chunks(county))) == inputs.plan.adaptive.levels[county].regions.size
        assert entries_of(counts, inputs.plan.adaptive) == by_definition(text, inputs)


def test_the_order_of_lines_changes_nothing_and_a_record_changes_the_fingerprint(
    inputs: Inputs, tmp_path: Path
) -> None:
    lines, found = persons(9, seed=3).splitlines(keepends=True), []
    for listed in (lines[1:], lines[:0:-1], lines[2:]):
        with counts_of(inputs, write(tmp_path, "".join([lines[0], *listed]))) as counts:
            found.append((entries_of(counts, inputs.plan.adaptive), counts.fingerprint()))
    assert found[0] == found[1]
    assert found[0][1] != found[2][1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (SOUND.replace("|1|", "|SECRET|", 1), r"line 3, column QSEX\): must be one of '1', '2'"),
        ("0|SECRET", r"line 3\): this line has 2 fields; the header has 17"),
    ],
)
def test_a_refusal_says_lines_and_keeps_values_to_the_holder(
    inputs: Inputs, tmp_path: Path, line: str, told: str
) -> None:
    path = write(tmp_path, f"{HEADER}\n{SOUND}\n{line}\n")
    with pytest.raises(SpecError, match=told) as caught, counts_of(inputs, path):
        pass
    assert "SECRET" in str(caught.value.confidential)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_a_fault_of_the_engine_is_not_one_of_the_file(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, f"{HEADER}\n{SOUND}\n")
    monkeypatch.setattr("tabulae.interop.safetab.records.CODED", "SECRET.coded")
    with (
        pytest.raises(DataError, match=r"person-records\.txt cannot be read: the engine's own") as caught,
        counts_of(inputs, path),
    ):
        pass
    assert "SECRET" in str(caught.value.confidential)


def test_a_file_that_changes_between_the_passes(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, f"{HEADER}\n{SOUND}\n")
    monkeypatch.setattr("tabulae.interop.safetab.records.line_count", lambda *_: 3)
    with pytest.raises(DataError, match="changed while it was read"), counts_of(inputs, path):
        pass


def test_a_line_that_is_too_long_for_the_engine(inputs: Inputs, tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER}\n{SOUND.replace('True', 'x' * 3_000_000)}\n")
    with pytest.raises(DataError, match="a line of more than 2,000,000 bytes"), counts_of(inputs, path):
        pass


def test_more_memory_than_allowed_goes_to_disk_and_nothing_is_left(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = tmp_path / "data"
    data.mkdir()
    path = write(data, f"{HEADER}\n" + f"{SOUND}\n" * 1000)
    with counts_of(inputs, path, memory="100MB") as counts:
        assert [p.name for p in tmp_path.glob("tabulae-*/*")]
        assert all(b"Null" not in p.read_bytes() for p in tmp_path.glob("tabulae-*/*") if p.is_file())
        assert counts.records == 1000
    assert not list(tmp_path.glob("tabulae-*"))


MUTATIONS = [
    "",
    "|",
    "\r",
    "\n",
    "\n\n",
    "\r\n",
    "Null",
    "é",
    "\x00",
    "\x01",
    '"',
    " ",
    "-",
    "0",
    "00",
    "1010",
    "#",
]


@pytest.mark.long
@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    where=st.floats(0, 1),
    cut=st.integers(0, 4),
    put=st.sampled_from(MUTATIONS),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_the_engine_and_the_check_accept_the_same_files(
    inputs: Inputs, seed: int, where: float, cut: int, put: str, end: str
) -> None:
    """The engine reads exactly the files in which the plain check finds nothing; otherwise it names its faults."""
    with tempfile.TemporaryDirectory() as folder:
        content = persons(1 + seed % 5, seed).replace("\n", end).encode()
        at = int(where * len(content))
        path = write(Path(folder), content[:at] + put.encode() + content[at + cut :])
        faults = Faults()
        replace(inputs.records, path=path).check(faults)
        if not faults.problems:
            with counts_of(inputs, path):
                return
        with pytest.raises(SpecError, match="mistake"), counts_of(inputs, path):
            pass
