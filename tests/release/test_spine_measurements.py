"""Noisy counts of areas on disk: read back as they were drawn, by anyone, and not at all where they were altered."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws import dear
from tests.measure.groups import Quiet
from tests.measure.spines import counts, plan, records, table

import tabulae as tb
from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.privacy import ZCDP, PureDP
from tabulae.products.areas import spine_plan
from tabulae.products.areas.constraints import ExactMargin
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.measure import measure_spine
from tabulae.products.areas.spine_plan import SpineMeasurements, SpinePieceValues, SpinePlan
from tabulae.products.areas.store import (
    EXACT,
    SpineMeasurementWriter,
    level_file,
    most_bytes,
    plan_document,
    read_exact,
    read_spine_measurements,
)
from tabulae.release.folder import MEASUREMENT

PLAN = plan(3)
PEOPLE = records(PLAN, 80)
MARGINS = (
    ExactMargin("tract", PLAN.layout.margin(["group"]), "register"),
    ExactMargin("root", PLAN.layout.margin([])),
)


def stored(
    folder: Path, of: SpinePlan, exact: tuple[ExactMargin, ...] = (), people: int = 80
) -> tuple[SpineMeasurements, list[SpinePieceValues]]:
    """Measure people with a ledger, and write what was drawn."""
    folder.mkdir(exist_ok=True)
    ledger = tb.Ledger.create(
        folder / "ledger.db",
        of.loss.amount,
        "pure" if isinstance(of.loss, PureDP) else "zcdp",
        neighbours="replace",
    )
    drawn: list[SpinePieceValues] = []
    with SpineMeasurementWriter(folder, of, exact) as writer:
        done = measure_spine(counts(of, records(of, people)), of, exact, ledger=ledger)
        for piece in done:
            drawn.append(piece)
            writer(piece)
        writer.finish(done)
    return done, drawn


def check_same(one: list[SpinePieceValues], two: list[SpinePieceValues]) -> None:
    assert [a.piece for a in one] == [b.piece for b in two]
    for a, b in zip(one, two, strict=True):
        for x, y in zip(a.values, b.values, strict=True):
            assert (x is None) == (y is None)
            if x is not None and y is not None:
                assert x.dtype == y.dtype == np.int64
                assert np.array_equal(x, y)


@dear()
@given(seed=st.integers(0, 10**6), pure=st.booleans())
def test_what_is_read_is_what_was_drawn(
    seed: int, pure: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    of = plan(seed, PureDP(1) if pure else ZCDP(1))
    root = of.spine.levels[0]
    exact = (ExactMargin("tract", of.layout.margin(["quarters"])), ExactMargin(root, of.layout.margin([])))
    folder = tmp_path_factory.mktemp("release")
    done, drawn = stored(folder, of, exact)
    again = plan(seed, PureDP(1) if pure else ZCDP(1))
    check_same(drawn, list(read_spine_measurements(folder, of)))
    assert len(list(read_spine_measurements(folder, again))) == len(drawn)
    for one, two in zip(done.exact, read_exact(folder, again, exact), strict=True):
        assert np.array_equal(one, two)
    levels = {of.spine.levels[piece.level] for piece in of.pieces}
    assert {path.name for path in (folder / "measurements").glob("*.parquet")} == {
        f"{level}.parquet" for level in levels
    }


def test_a_level_is_divided_into_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine_plan, "PIECE_VALUES", 1000)
    of = alike(16)
    _, drawn = stored(tmp_path, of)
    file = pq.ParquetFile(tmp_path / level_file("block"))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [900, 900, 900, 180]
    check_same(drawn, list(read_spine_measurements(tmp_path, of)))


def test_anyone_can_use_the_files(tmp_path: Path) -> None:
    """Without noise every row is the count that its columns say it is, read by SQL and as documented."""
    of = PLAN
    with SpineMeasurementWriter(tmp_path, of) as writer:
        for piece in measure_spine(counts(of, PEOPLE), of, source=Quiet()):
            writer(piece)
    names = {query.name: query for query in of.queries}
    for position, level in enumerate(of.spine.levels):
        path = str(tmp_path / level_file(level))
        rows = duckdb.read_parquet(path).fetchall()
        codes = of.spine.codes[level].tolist()
        for geocode, name, cell, value, exponent, variance in rows:
            truth = table(of, names[name], position, codes.index(geocode), PEOPLE)
            assert value == truth[cell]
            assert exponent == 0
            part = of.spine.shares[level][codes.index(geocode)]  # type: ignore[index]
            law = of.law(level, part, of.queries.index(names[name]))
            assert law is not None
            assert variance == law.variance_of_law
        totals = dict.fromkeys(names, 0)
        for _, name, _, value, _, _ in rows:
            totals[name] += value
        assert totals["detailed"] == len(PEOPLE)
        assert set(totals.values()) <= {0, len(PEOPLE)}


@pytest.mark.parametrize("last", [False, True])
def test_a_piece_that_cannot_be_written_ends_the_writing(tmp_path: Path, monkeypatch, last: bool) -> None:
    """The error is that of the file, in a later call or at the end; no more than two pieces after it are written."""
    pieces, written = list(measure_spine(counts(PLAN, PEOPLE), PLAN, source=Quiet())), []
    fatal = len(pieces) - 1 if last else 1

    def write(self: SpineMeasurementWriter, given: SpinePieceValues, rows: object) -> None:
        written.append(given)
        if given is pieces[fatal]:
            raise OSError("no space left")

    monkeypatch.setattr(SpineMeasurementWriter, "_write", write)

    def write_all() -> None:
        with SpineMeasurementWriter(tmp_path, PLAN) as writer:
            for piece in pieces:
                writer(piece)

    with pytest.raises(OSError, match="no space left"):
        write_all()
    assert pieces[fatal] in written
    assert len(written) <= fatal + 3  # one may be written, and one wait, before the error is seen


def test_the_document_says_what_was_measured(tmp_path: Path) -> None:
    done, drawn = stored(tmp_path, PLAN, MARGINS)
    document = json.loads((tmp_path / MEASUREMENT).read_text())
    assert document.pop("release_id") == done.release_id
    assert document == plan_document(PLAN, MARGINS)
    assert document["budget"] == {"definition": "zcdp", "rho": "1"}
    assert [level["level"] for level in document["levels"]] == list(PLAN.spine.levels)
    values = sum(v.size for piece in drawn for v in piece.values if v is not None)
    assert sum(level["values"] for level in document["levels"]) == values
    block = document["levels"][-1]
    assert block["units"] == PLAN.spine.leaves
    share = PLAN.spine.shares["block"][0]  # type: ignore[index]
    for query in block["queries"]:
        (noise,) = query["noise"]
        part = PLAN.query_shares["block"][[q.name for q in PLAN.queries].index(query["query_name"])]
        assert query["share"] == str(part)
        assert noise == {
            "unit_share": str(share),
            "law": "discrete-gaussian",
            "variance": str(1 / (share * part)),
        }
    assert [e["query_name"] for e in document["exact"]] == ["group", "total"]


# what is not as it was written ----------------------------------------------------------------------------
Change = Callable[[pa.Table], pa.Table]


def _set(column: str, values: Any) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(column)
        field = rows.field(column).with_nullable(True)
        return rows.set_column(at, field, pa.array(values(rows[column].to_pylist())).cast(field.type))

    return change


def _first(column: str, value: Callable[[Any], Any]) -> Change:
    return _set(column, lambda old: [value(old[0]), *old[1:]])


def _rewritten(path: Path, change: Change, group: int = 0) -> None:
    """The same row groups, but for one."""
    with pq.ParquetFile(path, read_dictionary=["geocode", "query_name"]) as file:
        groups = [file.read_row_group(i) for i in range(file.num_row_groups)]
    groups[group] = change(groups[group])
    with pq.ParquetWriter(path, groups[group].schema) as writer:
        for rows in groups:
            writer.write_table(rows.cast(groups[group].schema))


ALTERED: dict[str, tuple[Change, str]] = {
    "a geocode": (_first("geocode", lambda old: "elsewhere"), "geocode is not as the plan has it"),
    "a query": (_first("query_name", lambda old: "elsewhere"), "query_name is not as the plan has it"),
    "a cell": (_first("cell", lambda old: old + 1), "cell is not as the plan has it"),
    "a variance": (_first("variance", lambda old: old * 1.01), "variance is not as the plan has it"),
    "all variances": (_set("variance", lambda old: [0.0] * len(old)), "variance is not as the plan has it"),
    "a missing variance": (_first("variance", lambda old: None), "variance has missing values"),
    "the scale": (_first("scale_exponent", lambda old: 1), "scale_exponent is not as the plan has it"),
    "a missing value": (_first("value", lambda old: None), "value has missing values"),
    "the order": (lambda rows: rows.take([1, 0, *range(2, rows.num_rows)]), "is not as the plan has it"),
    "a row less": (lambda rows: rows.slice(1), "rows, and"),
    "a row twice": (lambda rows: pa.concat_tables([rows.slice(0, 1), rows]), "rows, and"),
    "a column less": (lambda rows: rows.drop_columns(["variance"]), "does not have the columns"),
    "another type": (
        lambda rows: rows.cast(rows.schema.set(3, pa.field("value", pa.float64()))),
        "does not have the columns",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_altered_rows_are_found(tmp_path: Path, what: str) -> None:
    stored(tmp_path, PLAN)
    change, told = ALTERED[what]
    path = tmp_path / level_file("block")
    last = pq.ParquetFile(path).num_row_groups - 1
    if "column" in told:
        groups = [change(pq.ParquetFile(path).read_row_group(i)) for i in range(last + 1)]
        pq.write_table(pa.concat_tables(groups), path)
    else:
        _rewritten(path, change, last)
    with pytest.raises(ReleaseError, match=told) as caught:
        list(read_spine_measurements(tmp_path, PLAN))
    assert "block.parquet" in str(caught.value)
    if "column" not in told:
        assert f"row group {last + 1} of {last + 1}" in str(caught.value)


def test_altered_files_are_found(tmp_path: Path) -> None:
    stored(tmp_path, PLAN)
    path = tmp_path / level_file("block")
    whole = pq.ParquetFile(path).read()
    pq.write_table(whole, path)
    with pytest.raises(ReleaseError, match=r"has 1 row groups, and \d+ were measured"):
        list(read_spine_measurements(tmp_path, PLAN))
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(ReleaseError, match="cannot be read"):
        list(read_spine_measurements(tmp_path, PLAN))
    path.unlink()
    with pytest.raises(ReleaseError, match=r"block.parquet is missing"):
        list(read_spine_measurements(tmp_path, PLAN))


def test_files_of_another_plan_are_refused(tmp_path: Path) -> None:
    stored(tmp_path, PLAN)
    with pytest.raises(ReleaseError):
        list(read_spine_measurements(tmp_path, plan(0)))
    with pytest.raises(ReleaseError, match="variance is not as the plan has it"):
        list(read_spine_measurements(tmp_path, plan(3, ZCDP(2))))


def test_a_file_that_does_not_say_that_nothing_is_missing_is_read(tmp_path: Path) -> None:
    _, drawn = stored(tmp_path, PLAN)
    for path in (tmp_path / "measurements").glob("*.parquet"):
        written = pq.ParquetFile(path).schema_arrow
        assert not any(field.nullable for field in written)
        _rewritten(
            path, lambda rows: rows.cast(pa.schema([each.with_nullable(True) for each in rows.schema]))
        )
        assert all(field.nullable for field in pq.ParquetFile(path).schema_arrow)
    check_same(drawn, list(read_spine_measurements(tmp_path, PLAN)))


def test_dictionaries_in_another_order_are_the_same_words(tmp_path: Path) -> None:
    _, drawn = stored(tmp_path, PLAN)
    path = tmp_path / level_file("block")

    def sorted_words(rows: pa.Table) -> pa.Table:
        for name in ("geocode", "query_name"):
            words = pa.array(sorted(set(rows[name].to_pylist()), reverse=True))
            at = pc.index_in(rows[name].cast(pa.string()), words).combine_chunks().cast(pa.int32())  # type: ignore[attr-defined]
            rows = rows.set_column(
                rows.column_names.index(name), rows.field(name), pa.DictionaryArray.from_arrays(at, words)
            )
        return rows

    _rewritten(path, sorted_words)
    check_same(drawn, list(read_spine_measurements(tmp_path, PLAN)))


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("value", -1, "below 0"),
        ("value", None, "a value is missing"),
        ("cell", 7, "is not as the plan has it"),
        ("geocode", "x", "is not as the plan has it"),
    ],
)
def test_altered_exact_counts_are_found(tmp_path: Path, column: str, value: Any, told: str) -> None:
    done, _ = stored(tmp_path, PLAN, MARGINS)
    assert [x.tolist() for x in read_exact(tmp_path, PLAN, MARGINS)] == [x.tolist() for x in done.exact]
    assert done.exact[1].tolist() == [[80]]
    path = tmp_path / EXACT
    pq.write_table(_first(column, lambda old: value)(pq.read_table(path)), path)
    with pytest.raises(ReleaseError, match=told):
        read_exact(tmp_path, PLAN, MARGINS)
    with pytest.raises(ReleaseError, match="is not as the plan has it"):
        read_exact(tmp_path, PLAN, MARGINS[:1])
    assert read_exact(tmp_path, PLAN, ()) == ()


# writing ----------------------------------------------------------------------------------------------------
def test_a_rehearsal_is_not_finished(tmp_path: Path) -> None:
    with SpineMeasurementWriter(tmp_path, PLAN) as writer:
        done = measure_spine(counts(PLAN, PEOPLE), PLAN, source=tb.noise.Insecure(1))
        with pytest.raises(ReleaseError, match="rehearsal"):
            writer.finish(done)
    assert not (tmp_path / MEASUREMENT).exists()


def test_what_a_killed_process_left_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "measurements").mkdir()
    stale = tmp_path / "measurements" / "village.parquet"
    stale.write_bytes(b"noise of another draw")
    stored(tmp_path, PLAN)
    assert not stale.exists()


def test_a_disk_that_fails_leaves_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        stored(tmp_path, PLAN)
    assert not (tmp_path / MEASUREMENT).exists()


def test_levels_whose_files_would_be_one(tmp_path: Path) -> None:
    codes = {"a b": ["x", "y"], "A_b": ["p", "q"]}
    spine = tb.Spine.from_codes(codes, levels=list(codes)).with_shares(
        {"root": 0, "a b": "1/2", "A_b": "1/2"}
    )
    layout = CellLayout.of(PLAN.layout.domain)
    queries = (layout.margin(PLAN.layout.domain.names),)
    of = SpinePlan(
        spine,
        layout,
        queries,
        dict.fromkeys(codes, (Fraction(1),)),
        ZCDP(1),
        Supports.of(np.ones((2, 1), bool)),
    )
    with pytest.raises(InvalidArgument, match="differ as files"), SpineMeasurementWriter(tmp_path, of):
        pass


def alike(leaves: int, rho: str = "1") -> SpinePlan:
    """Two halves of leaves, in all of which everything can occur."""
    codes = {"half": ["a", "b"] * (leaves // 2), "block": [f"{i:015}" for i in range(leaves)]}
    spine = tb.Spine.from_codes(codes, levels=list(codes)).bypass(
        {"root": 0, "half": "1/10", "block": "9/10"}
    )
    domain = tb.Domain({"age": 2, "race": 60})
    layout = CellLayout.of(domain)
    queries = (layout.margin(["race"]), layout.margin(domain.names))
    shares = dict.fromkeys(codes, (Fraction(1, 2), Fraction(1, 2)))
    return SpinePlan(spine, layout, queries, shares, ZCDP(rho), Supports.of(np.ones((leaves, 1), bool)))


@pytest.mark.parametrize(
    "rho",
    ["1", *(pytest.param(r, marks=pytest.mark.long) for r in ("1/100", "1/1000000")), "1/1000000000000"],
)
def test_the_space_they_may_take(tmp_path: Path, rho: str) -> None:
    """Never less than what they take, nor much more: files' own overhead apart."""
    of = alike(3000, rho)
    exact = (ExactMargin("block", of.layout.margin([])),)
    stored(tmp_path, of, exact, people=100_000)
    taken = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert taken < most_bytes(of, exact) < 3 * taken + (1 << 19)
