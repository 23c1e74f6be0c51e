"""Releases of areas whose charge may go astray: units with many rows, limits that do not hold, runs taken up again."""

from __future__ import annotations

import errno
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.duchy import houses, people, write_plots
from tests.passages import changed

import tabulae as tb
from tabulae.errors import DataError, ReleaseError
from tabulae.products.areas.descent.limits import NodeLimits


def _ledger(duchy: Path, name: str = "ledger.db") -> tb.Ledger:
    return tb.Ledger.open(duchy.parent / name)


def _limit(duchy: Path, column: str, limits: dict[tuple[str, str], str]) -> None:
    """Limits in place of those that the duchy has; pairs that are not named have none."""
    rows = [f"{plot},{kind},{limits.get((plot, kind), '')}" for plot, kind in houses()]
    (duchy.parent / "houses.csv").write_text(f"plot,kind,{column}\n" + "\n".join(rows) + "\n")


def _without_exact(duchy: Path) -> None:
    text = duchy.read_text()
    duchy.write_text(text[: text.index("[[invariant]]")] + text[text.index("[[table]]") :])


# units and columns ---------------------------------------------------------------------------------------
def test_rows_of_a_unit_beyond_the_bound_are_not_counted(duchy: Path) -> None:
    """500 rows, of which five are of one person and two may be counted: the exact total is 497."""
    changed(duchy, ('unit = "person"', 'unit = "person"\nunit_id = "ID"\nrows_per_unit = 2'))
    rows = [",".join((*row, f"n{max(i, 4)}")) for i, row in enumerate(people())]
    (duchy.parent / "people.csv").write_text("PLOT,KIND,AGE,FAITH,ID\n" + "\n".join(rows) + "\n")
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    [total] = [row for row in release.tables["total"].to_pylist() if row["area_type"] == "duchy"]
    assert total["estimate"] == 497


def test_what_nobody_asked_for_is_not_published(duchy: Path) -> None:
    for name in ("plots.csv", "houses.csv"):
        path = duchy.parent / name
        head, *rows = path.read_text().splitlines()
        path.write_text(
            "\n".join([f"{head},SECRET", *(f"{row},SECRET{i}" for i, row in enumerate(rows))]) + "\n"
        )
    out = duchy.parent / "release"
    assert tb.run(duchy, out).verify() == []
    files = [path for path in out.rglob("*") if path.is_file()]
    assert [path for path in files if b"SECRET" in path.read_bytes()] == []


# limits --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["bluedown", pytest.param("topdown", marks=pytest.mark.long), "gls"])
def test_records_that_break_limits_are_estimated_like_others(duchy: Path, method: str) -> None:
    """At most one may be in the fullest plot, and 50 must be in one that has fewer."""
    changed(duchy, ("[release]\nmicrodata = true", f'[method]\nestimate = "{method}"'))
    _without_exact(duchy)
    inside = Counter(plot for plot, kind, *_ in people() if kind == "home")
    [(full, most)], empty = inside.most_common(1), "006"
    assert inside[empty] < 50
    assert most > 1
    rows = [f"{p},{k},{'50' if p == empty else ''},{'1' if p == full else ''}" for p, k in houses()]
    (duchy.parent / "houses.csv").write_text("plot,kind,at_least,at_most\n" + "\n".join(rows) + "\n")
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    found = {row["area"]: row for row in release.tables["total"].to_pylist() if row["area_type"] == "plot"}
    if method != "gls":
        assert found[full]["estimate"] <= 1
        assert found[empty]["estimate"] >= 50
    assert {row["obs_status"] for area, row in found.items() if area < "045"} == {"A"}


@pytest.mark.parametrize("method", [pytest.param("bluedown", marks=pytest.mark.long), "topdown"])
def test_exact_counts_that_limits_contradict_are_refused_before_the_charge(duchy: Path, method: str) -> None:
    """52 pairs: there would be 624 people or more, and then 416 or fewer; there are 500."""
    changed(duchy, ("[release]\nmicrodata = true", f'[method]\nestimate = "{method}"'))
    for column, limit in (("at_least", "12"), ("at_most", "8")):
        _limit(duchy, column, dict.fromkeys(houses(), limit))
        with pytest.raises(DataError, match="duchy D: the exact count of 'total' is outside") as refused:
            tb.run(duchy, duchy.parent / "release")
        assert "kind home, kind inn, kind abbey" in str(refused.value)
        assert "Nothing was charged" in str(refused.value)
        assert not re.search(r"\d", str(refused.value))
    assert _ledger(duchy).charges() == []
    assert _ledger(duchy).disclosures() == []
    assert not list(duchy.parent.glob(".*partial"))
    changed(duchy, (f'"{method}"', '"gls"'))
    assert tb.run(duchy, duchy.parent / "release").verify() == []


def test_a_limit_that_exact_counts_allow_is_compared_with_nothing_else(
    duchy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most plots have fewer than 9, and all together more than their limits: the total is all that is looked at."""
    _limit(duchy, "at_least", dict.fromkeys(houses(), "9"))
    seen, real = [], NodeLimits.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, plan: object, constraints: object, exact_values: list) -> NodeLimits:
        seen.append([values.tolist() for values in exact_values])
        return real(cls, plan, constraints, exact_values)

    monkeypatch.setattr(NodeLimits, "of", classmethod(of))
    release = tb.run(duchy, duchy.parent / "release")
    assert seen[0] == [[[500]]]
    assert len(_ledger(duchy).disclosures()) == 1
    assert release.verify() == []


# charges that are lost, and runs that are taken up again ---------------------------------------------------
def _broken(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_exact_counts_that_cannot_be_read_void_the_charge(
    duchy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("tabulae.products.areas.product.refuse_contradictions", lambda *_: None)
        broken.setattr("tabulae.products.areas.count.SpineCounts.exact", _broken)
        with pytest.raises(
            ReleaseError, match=r"No space left.* Nothing was published; the charge .* is void"
        ):
            tb.run(duchy, duchy.parent / "release")
    assert [charge.state for charge in _ledger(duchy).charges()] == ["void"]
    assert len(_ledger(duchy).disclosures()) == 1
    assert not list(duchy.parent.glob(".*partial"))


@pytest.fixture
def stored(duchy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spec of a run that stored its measurements and then failed."""
    with monkeypatch.context() as full:
        full.setattr("tabulae.products.areas.product.write_spine", _broken)
        with pytest.raises(ReleaseError, match="--resume"):
            tb.run(duchy, duchy.parent / "release")
    return duchy


EDITS = {
    "another title": ("Duchy", "County"),
    "another table": ('attributes = ["kind", "grown"]', 'attributes = ["kind"]'),
    "another bound": ('unlisted = "zero"', 'unlisted = "free"'),
    "another reason": ("the duke counts heads", "everybody knows"),
}


def test_measurements_are_not_resumed_by_another_spec_or_ledger_or_name(stored: Path) -> None:
    folder, right = stored.parent, stored.read_text()

    def refuse(out: str = "release") -> None:
        with pytest.raises(ReleaseError, match="were not charged to this ledger for this spec"):
            tb.run(stored, folder / out, resume=True)
        assert not (folder / out).exists()

    for old, new in EDITS.values():
        changed(stored, (old, new))
        refuse()
        stored.write_text(right)
    tb.Ledger.create(folder / "other.db", 4, "zcdp", neighbours="replace")
    changed(stored, ("ledger.db", "other.db"))
    refuse()
    stored.write_text(right)
    files = (folder / "plots.csv").read_text()
    write_plots(folder / "plots.csv", _turned(files))
    refuse()
    (folder / "plots.csv").write_text(files)
    shutil.move(folder / ".release.partial", folder / ".second.partial")
    refuse("second")
    assert [charge.state for charge in _ledger(stored).charges()] == ["charged"]
    assert _ledger(stored, "other.db").charges() == []
    shutil.move(folder / ".second.partial", folder / ".release.partial")
    assert tb.run(stored, folder / "release", resume=True).verify() == []


def _turned(text: str) -> list[dict[str, str]]:
    """The rows of a file of plots, the last first."""
    head, *rows = [line.split(",") for line in text.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in reversed(rows)]
