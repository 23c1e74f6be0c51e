"""``memory``: a bound that a run keeps, refuses before it is paid, and that changes no number."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.each import each

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.products.areas.needs import resources_of
from tabulae.products.areas.spec.section import geography_of
from tabulae.products.areas.spine_plan import SpinePlan
from tabulae.release import Release
from tabulae.report import seal_with_report
from tabulae.sources.memory import read_memory
from tabulae.spec import read_spec


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The memory that each engine was given."""
    found: list[str | None] = []
    connect = duckdb.connect

    def connected(*names: Any, config: dict[str, Any] | None = None, **options: Any) -> Any:
        found.append((config or {}).get("memory_limit"))
        return connect(*names, config=config or {}, **options)

    monkeypatch.setattr(duckdb, "connect", connected)
    return found


@each("text", ["", "8", "GB", "8 GBit", "-1GB", "0GB", "1e3MB", "8GB or so", "2000TB", "9" * 400 + "GB", 8])
def test_what_is_no_amount_of_memory_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgument, match="a number with its unit, such as 8GB"):
        read_memory(text)


def test_too_little_memory_is_refused_before_it_is_paid(duchy: Path, limits: list[str | None]) -> None:
    with pytest.raises(
        Unsupported, match=r"0\.6 GB are too little\. Nothing more was charged.*--memory 1\.\dGB or more"
    ):
        tb.run(duchy, duchy.parent / "release", memory="600MB")
    assert limits == []
    assert tb.Ledger.open(duchy.parent / "ledger.db").charges() == []
    assert not list(duchy.parent.glob("*release*"))


def test_the_engine_gets_what_the_run_leaves(duchy: Path, limits: list[str | None]) -> None:
    left = 3 * 10**9 - resources_of(geography_of(read_spec(duchy))).memory
    tb.run(duchy, duchy.parent / "release", memory="3GB")
    assert limits == [f"{int(0.8 * left) // 10**6}MB"]


def test_areas_are_let_go_before_they_are_read_back(
    duchy: Path, limits: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never are there two of what a spec says of all leaves: sealing reads the published one."""
    held: list[int] = []

    def sealed(partial: Path) -> Release:
        gc.collect()
        held.append(sum(isinstance(one, SpinePlan) for one in gc.get_objects()))
        return seal_with_report(partial)

    gc.collect()
    before = sum(isinstance(one, SpinePlan) for one in gc.get_objects())
    monkeypatch.setattr("tabulae._run.seal_with_report", sealed)
    tb.run(duchy, duchy.parent / "release")
    assert held == [before]
    assert limits == [None]


def test_estimates_are_the_same_with_little_memory(duchy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement, estimated and written twice: every table to the last byte."""
    folder, out = duchy.parent, duchy.parent / "release"

    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tabulae.products.areas.product.SpineRelease.of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tb.run(duchy, out)
    shutil.copytree(folder, folder.with_name("kept"))
    found = []
    for memory, chunk in ((None, None), ("1.5GB", 50)):
        shutil.rmtree(folder)
        shutil.copytree(folder.with_name("kept"), folder)
        with monkeypatch.context() as patch:
            if chunk is not None:
                patch.setattr("tabulae.products.areas.passes.covariances.CHUNK_CELLS", chunk)
                patch.setattr("tabulae.products.areas.descent.descent._CHUNK", chunk)
            tb.run(duchy, out, resume=True, memory=memory)
        files = [*(out / "tables").glob("*"), out / "microdata.parquet"]
        found.append({path.name: path.read_bytes() for path in sorted(files)})
    assert len(found[0]) > 5
    assert found[0] == found[1]


def test_a_bound_of_groups_is_too_little(guild: Path) -> None:
    with pytest.raises(Unsupported, match=r"too little\. Nothing more was charged"):
        tb.run(guild, guild.parent / "release", memory="900MB")


def test_tables_take_a_bound_too(tmp_path: Path, limits: list[str | None]) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        """
        title = "Sexes"
        source = { path = "people.csv" }
        attributes = { sex = { column = "sex", categories = ["F", "M"] } }
        privacy = { definition = "zcdp", budget = "1/2", neighbours = "add-remove", ledger = "ledger.db" }
        table = [{ name = "sexes", attributes = ["sex"] }]
        """
    )
    (tmp_path / "people.csv").write_text("sex\nF\nM\nF\n")
    ledger = tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP("1"))
    with pytest.raises(Unsupported, match=r"too little\. Nothing more was charged"):
        tb.run(spec, tmp_path / "release", memory="500MB")
    assert ledger.charges() == []
    tb.run(spec, tmp_path / "release", memory="2GB")
    assert limits == ["1327MB"]
