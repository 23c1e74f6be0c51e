"""Counts of areas from records of any source: as by definition, or refused before anything is counted."""

from __future__ import annotations

import itertools
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws import dear
from tests.measure.spines import QUARTERS, Record, counts, plan, records

from tabulae.errors import DataError, InvalidArgument
from tabulae.products.areas import count as spine_records
from tabulae.products.areas.count import LeafColumn, SpineCounts, _in_few_bytes, open_spine_records
from tabulae.products.areas.spine_plan import SpinePlan
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource, engine_of, engines, open_records
from tabulae.sources.units import UnitRule

Writer = Callable[..., RecordSource]

RULES = {name: ColumnCoding(name.upper()) for name in ("quarters", "age", "race")}
PLAN = plan(3)


WHOLE = 1 << 25


@pytest.fixture(
    params=[pytest.param(WHOLE, marks=pytest.mark.long), 16],
    ids=["whole", "in parts"],
    scope="module",
    autouse=True,
)
def part(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many records are grouped together: all of them, or a few, of which fewer are in one part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.sources.engines.duckdb._PART", request.param)
        yield request.param


def leaves(of: SpinePlan, dropped: Sequence[str] = ()) -> LeafColumn:
    return LeafColumn("BLOCK", of.spine.codes["block"].tolist(), dropped, "spine.csv")


def columns_of(of: SpinePlan, people: list[Record]) -> dict[str, list[Any]]:
    codes = [np.unravel_index(cell, of.layout.domain.shape) for _, cell in people]
    return {
        "ID": [f"n{i % 4}" for i in range(len(people))],
        "RACE": [int(code[2]) for code in codes],
        "BLOCK": [of.spine.codes["block"][leaf] for leaf, _ in people],
        "AGE": [int(code[1]) for code in codes],
        "QUARTERS": [QUARTERS.labels[code[0]] for code in codes],
    }


def refused(source: RecordSource, of: SpinePlan, leaf: LeafColumn | None = None, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        open_spine_records(source, RULES, of, leaf or leaves(of), **options)
    return caught.value


def same(one: SpineCounts, two: SpineCounts) -> bool:
    return one.fingerprint() == two.fingerprint()


@dear()
@given(seed=st.integers(0, 10**6), people=st.integers(1, 40))
def test_counts_are_those_of_the_definition(seed: int, people: int, write_source: Writer) -> None:
    of = plan(seed)
    crowd = records(of, people, seed)
    with tempfile.TemporaryDirectory() as folder:
        source = write_source(Path(folder), "csv", columns_of(of, crowd))
        assert same(open_spine_records(source, RULES, of, leaves(of)), counts(of, crowd))


def test_every_kind_of_source_gives_the_same(write: Writer, kind: str) -> None:
    crowd = records(PLAN, 30)
    source = write(kind, columns_of(PLAN, crowd))
    found = open_spine_records(source, RULES, PLAN, leaves(PLAN))
    assert found.records == 30
    assert same(found, counts(PLAN, crowd))


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_every_record_is_in_one_part_and_so_is_every_unit(write: Writer, kind: str, count: int) -> None:
    """However many parts there are; with codes that nobody knows, and none at all, too."""
    columns = columns_of(PLAN, records(PLAN, 40))
    columns["BLOCK"][:6] = ["", "!", "zz", " ", "\u00e9", PLAN.spine.codes["block"][0] + "0"]
    source, leaf = write(kind, columns), leaves(PLAN)
    with open_records(source, [], "ID", "BLOCK") as table:
        every = sorted(map(str, table.to_pyarrow()["leaf"].to_pylist()))
        numbered = engine_of(table).copied(table, leaf.numbered)
        read = spine_records._Coded(source, [], {}, leaf, table, numbered)
        ranges = [part.records.to_pyarrow() for part in spine_records._parts(read, table, None, count)]
        assert sorted(str(code) for part in ranges for code in part["leaf"].to_pylist()) == every
        assert min(count, 2) <= len(ranges) <= count
        units = [part.to_pyarrow() for part in spine_records._whole_units(table, min(count, 7))]
        assert sorted(str(code) for part in units for code in part["leaf"].to_pylist()) == every
        assert sorted(unit for part in units for unit in set(part["unit"].to_pylist())) == [
            "n0",
            "n1",
            "n2",
            "n3",
        ]


@pytest.mark.parametrize(
    ("engine", "memory", "parts"), [("duckdb", None, 3), ("duckdb", "1KB", 6), ("spark", "1KB", 1)]
)
def test_parts_are_as_small_as_memory_asks(engine: Any, memory: str | None, parts: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.sources.engines.duckdb._PART", 16)
        assert engines()[engine].part_count(40, memory) == parts


def test_blanks_around_codes_do_not_count(write: Writer) -> None:
    """Before them, after them and on both sides: records of a leaf that are written in several ways are its own."""
    crowd = records(PLAN, 10)
    columns = columns_of(PLAN, crowd)
    ways = itertools.cycle(("{}", " {}", "{}\t", " {} "))
    columns["BLOCK"] = [next(ways).format(code) for code in columns["BLOCK"]]
    found = open_spine_records(write("csv", columns), RULES, PLAN, leaves(PLAN))
    assert same(found, counts(PLAN, crowd))


@pytest.mark.parametrize("tails", [("", " 1", "!", "  2"), ("", "\x01", " \x1f", "\t3")])
def test_blanks_around_codes_in_every_part(write: Writer, tails: Sequence[str]) -> None:
    """Codes that begin others, or hold blanks or signs that stand before them: each part has the leaves of its own."""
    crowd = records(PLAN, 60)
    starts = map("".join, itertools.product(("\x02", "7", "A", "AB", "\u00e9"), tails))
    codes = [code for code in starts if tails[1] != " 1" or code[0] != "\x02"][: PLAN.spine.leaves]
    assert len(codes) == PLAN.spine.leaves
    ways = itertools.cycle(("{}", " {}", "{}\t", "\n{} ", "{}\f\v", "\r{}"))
    columns = columns_of(PLAN, crowd) | {"BLOCK": [next(ways).format(codes[leaf]) for leaf, _ in crowd]}
    found = open_spine_records(write("parquet", columns), RULES, PLAN, LeafColumn("BLOCK", codes))
    assert same(found, counts(PLAN, crowd))


def test_values_are_coded_by_the_rules_of_their_columns(write: Writer) -> None:
    crowd = records(PLAN, 10)
    columns = columns_of(PLAN, crowd)
    columns["QUARTERS"] = [{"home": "1", "hall": "2", "ward": "3"}[label] for label in columns["QUARTERS"]]
    rules = RULES | {"quarters": ColumnCoding("QUARTERS", values={"1": 0, "2": 1, "3": 2})}
    assert same(open_spine_records(write("csv", columns), rules, PLAN, leaves(PLAN)), counts(PLAN, crowd))


# leaf codes ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", ["parquet", "duckdb"])
def test_whole_numbers_are_read_as_their_digits(write: Writer, number: str) -> None:
    crowd = records(PLAN, 10)
    columns = columns_of(PLAN, crowd) | {"BLOCK": [100 + leaf for leaf, _ in crowd]}
    named = LeafColumn("BLOCK", [str(100 + i) for i in range(PLAN.spine.leaves)])
    assert same(open_spine_records(write(number, columns), RULES, PLAN, named), counts(PLAN, crowd))


def test_numbers_that_lost_their_zeros_are_refused(write: Writer) -> None:
    """Whatever the records hold: "05" and "5" could both be meant."""
    crowd = records(PLAN, 10)
    columns = columns_of(PLAN, crowd) | {"BLOCK": [1] * 10}
    error = refused(write("parquet", columns), PLAN)
    assert "begin with 0: the leading zeros are lost" in str(error)
    assert "'BLOCK'" in str(error)
    assert "spine.csv" in str(error)


def test_text_that_lost_its_zeros_is_refused_with_a_hint(write: Writer) -> None:
    columns = columns_of(PLAN, records(PLAN, 10))
    columns["BLOCK"] = [code.lstrip("0") or "0" for code in columns["BLOCK"]]
    error = refused(write("csv", columns), PLAN)
    assert "codes that are not in spine.csv: leading zeros are lost in them" in str(error)


@pytest.mark.parametrize("bad", [1.5, True])
def test_other_types_are_no_codes(write: Writer, bad: Any) -> None:
    columns = columns_of(PLAN, records(PLAN, 10)) | {"BLOCK": [bad] * 10}
    assert "leaf codes are text or whole numbers" in str(refused(write("parquet", columns), PLAN))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "SECRET",
            "column 'BLOCK' ([geography] column): codes that are not in spine.csv: correct the records",
        ),
        (None, "column 'BLOCK' ([geography] column): NULL values"),
        (" ", "column 'BLOCK' ([geography] column): NULL values"),
        ("EMPTY", "codes of leaves where nothing can be counted"),
    ],
)
def test_leaves_that_are_refused(write: Writer, code: str | None, told: str) -> None:
    columns = columns_of(PLAN, records(PLAN, 10))
    columns["BLOCK"][3] = columns["BLOCK"][7] = code
    error = refused(write("csv", columns), PLAN, leaves(PLAN, dropped=["EMPTY"]))
    assert told in str(error)
    shown = "".join(traceback.format_exception(error))
    assert "SECRET" not in shown
    assert "EMPTY" not in shown
    assert "in 2 records" in str(error.confidential)
    if code and code.strip():
        assert f"such as '{code}' (2)" in str(error.confidential)


def test_all_faults_are_told_at_once(write: Writer) -> None:
    columns = columns_of(PLAN, records(PLAN, 10))
    columns["BLOCK"][0], columns["QUARTERS"][1], columns["ID"][2] = "SECRET", "SECRET", None
    error = refused(write("csv", columns), PLAN, unit=UnitRule("ID", 1, bytes(32)))
    for told in ("not in spine.csv", "outside the declared categories", "the id of its unit"):
        assert told in str(error)
    assert "SECRET" not in "".join(traceback.format_exception(error))


def test_a_column_that_is_not_there(write: Writer) -> None:
    error = refused(
        write("csv", columns_of(PLAN, records(PLAN, 4))),
        PLAN,
        replace(leaves(PLAN), column="block"),
    )
    assert "no column 'block' ([geography] column), but one that is written 'BLOCK'" in str(error)


def test_two_leaves_of_one_code() -> None:
    with pytest.raises(InvalidArgument, match="two leaves of one code"):
        LeafColumn("BLOCK", ["a", "b"], dropped=[" a"])


def test_codes_and_rules_that_do_not_fit_the_plan(write: Writer) -> None:
    source = write("csv", columns_of(PLAN, records(PLAN, 4)))
    with pytest.raises(InvalidArgument, match="2 leaf codes for a plan of 10 leaves"):
        open_spine_records(source, RULES, PLAN, LeafColumn("BLOCK", ["a", "b"]))
    with pytest.raises(InvalidArgument, match="no rule for attribute 'race'"):
        open_spine_records(source, {name: RULES[name] for name in ("quarters", "age")}, PLAN, leaves(PLAN))


def test_no_records(write: Writer) -> None:
    assert "no records" in str(refused(write("csv", columns_of(PLAN, [])), PLAN))


# cells that cannot occur ---------------------------------------------------------------------
def test_a_cell_that_bounds_exclude_from_its_leaf(write: Writer) -> None:
    leaf, dense = np.argwhere(~PLAN.support.rows)[0]
    crowd = [*records(PLAN, 10), (int(leaf), int(PLAN.layout.cell[dense, 0]))]
    error = refused(write("csv", columns_of(PLAN, crowd)), PLAN)
    assert "cannot occur in their leaf, by the file of a [[bound]]" in str(error)
    code = str(PLAN.spine.codes["block"][leaf])
    assert code in str(error.confidential)
    assert code not in str(error)


def test_a_structural_zero(write: Writer) -> None:
    (zero, *_) = np.flatnonzero(PLAN.layout.place < 0)
    error = refused(write("csv", columns_of(PLAN, [*records(PLAN, 10), (0, int(zero))])), PLAN)
    assert "combinations of quarters by age that [[structural_zero]] says cannot occur" in str(error)
    assert "ward, 0' (1)" in str(error.confidential)


def test_messages_hold_no_count(write: Writer) -> None:
    """Of each fault 7 records: no digit stands in what is told, but in what is confidential."""
    dropped, digits = leaves(PLAN, dropped=["EMPTY"]), set("0123456789")
    (zero, *_) = np.flatnonzero(PLAN.layout.place < 0)
    leaf, dense = np.argwhere(~PLAN.support.rows)[0]
    nowhere = columns_of(PLAN, [*records(PLAN, 10), *[(0, int(zero))] * 7])
    elsewhere = columns_of(PLAN, [*records(PLAN, 10), *[(int(leaf), int(PLAN.layout.cell[dense, 0]))] * 7])
    faulty = [nowhere, elsewhere]
    for code in (None, "SECRET", "EMPTY", "1"):
        columns = columns_of(PLAN, records(PLAN, 10))
        columns["BLOCK"][2:9] = [code] * 7
        faulty.append(columns)
    told = set()
    for i, columns in enumerate(faulty):
        source = write("csv", columns, "abcdef"[i])
        error = refused(source, PLAN, dropped)
        assert not digits & set(str(error).replace(str(source.path), "")), str(error)
        assert "in 7 records" in str(error.confidential)
        told.add(str(error))
    assert len(told) == 6


@pytest.mark.parametrize("given", ["csv", "duckdb"])
def test_codes_that_differ_in_case_are_two_leaves(write: Writer, given: str) -> None:
    codes = [f"{'aA'[i % 2]}{i // 2}" for i in range(PLAN.spine.leaves)]
    crowd = records(PLAN, 40)
    columns = columns_of(PLAN, crowd) | {"BLOCK": [codes[leaf] for leaf, _ in crowd]}
    found = open_spine_records(write(given, columns), RULES, PLAN, LeafColumn("BLOCK", codes))
    assert same(found, counts(PLAN, crowd))
    other = LeafColumn("BLOCK", [code.upper() if code == "a0" else f"_{code}" for code in codes])
    assert "codes that are not in" in str(refused(write(given, columns, "other"), PLAN, other))


# units --------------------------------------------------------------------------------------------------
def test_a_unit_is_counted_up_to_its_bound(write: Writer) -> None:
    source = write("csv", columns_of(PLAN, records(PLAN, 30)))
    for rows, expected in ((3, 12), (8, 30)):
        found = open_spine_records(source, RULES, PLAN, leaves(PLAN), unit=UnitRule("ID", rows, bytes(32)))
        assert found.records == expected


def test_the_rows_kept_do_not_depend_on_the_order(write: Writer) -> None:
    columns = columns_of(PLAN, records(PLAN, 30))
    turned = {name: values[::-1] for name, values in columns.items()}
    rule = UnitRule("ID", 2, bytes(32))
    one, two = (
        open_spine_records(write("parquet", given, name), RULES, PLAN, leaves(PLAN), unit=rule)
        for given, name in ((columns, "one"), (turned, "two"))
    )
    assert same(one, two)
    assert not same(one, open_spine_records(write("csv", columns), RULES, PLAN, leaves(PLAN)))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb"])
@pytest.mark.parametrize("part", [60], indirect=True)  # it takes parts of its own
def test_the_rows_kept_do_not_depend_on_the_parts(write: Writer, kind: str) -> None:
    source, rule = write(kind, columns_of(PLAN, records(PLAN, 60))), UnitRule("ID", 5, bytes(32))
    found = []
    for size in (23, 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tabulae.sources.engines.duckdb._PART", size)
            found.append(open_spine_records(source, RULES, PLAN, leaves(PLAN), unit=rule))
    assert found[0].records == 4 * 5
    assert all(same(each, found[0]) for each in found)


def test_records_without_a_unit_are_refused(write: Writer) -> None:
    columns = columns_of(PLAN, records(PLAN, 10))
    columns["ID"][5] = None
    error = refused(write("csv", columns), PLAN, unit=UnitRule("ID", 1, bytes(32)))
    assert "every record needs the id of its unit" in str(error)


def test_counts_take_few_bytes_and_lose_nothing() -> None:
    """Of -128 a byte is enough, of 128 it is not; so it is at every power of two that a signed type ends with."""
    for bits in (7, 15, 31):
        for top in (2**bits - 1, 2**bits, 2**bits + 1):
            found = _in_few_bytes(np.array([0, top]))
            assert found.tolist() == [0, top]
            assert found.itemsize == (bits + 1) // 8 * (1 if top < 2**bits else 2)
