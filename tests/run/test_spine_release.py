"""Whole runs of a spec with [geography]: complete or nothing, paid once, verified from the folder alone."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.duchy import houses, people, plots
from tests.passages import changed
from tests.run.stops import kill

import tabulae as tb
from tabulae.audit import audit
from tabulae.errors import BudgetRefused, DataError, InvalidArgument, LedgerError, ReleaseError, Unsupported
from tabulae.release.progress import Progress
from tabulae.spec import read_spec

LOSS = Fraction(2)


def _ledger(duchy: Path) -> tb.Ledger:
    return tb.Ledger.open(duchy.parent / "ledger.db")


@pytest.mark.parametrize("method", [pytest.param("bluedown", marks=pytest.mark.long), "topdown", "gls"])
def test_a_release_is_complete_verified_and_paid_once(duchy: Path, method: str) -> None:
    microdata = "" if method == "gls" else "microdata = true"
    changed(
        duchy, ("[release]\nmicrodata = true", f'[method]\nestimate = "{method}"\n[release]\n{microdata}')
    )
    out = duchy.parent / "release"
    release = tb.run(duchy, out)
    assert release.verify() == []
    assert _ledger(duchy).spent == LOSS
    assert [charge.state for charge in _ledger(duchy).charges()] == ["published"]
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"datapackage.json", "report.html", "README.md", "SHA256SUMS", "spec.toml", "ledger.json"} <= names
    assert {f"measurements/{level}.parquet" for level in release.product.spine_plan.spine.levels} <= names
    assert {"tables/total.csv", "tables/total.parquet", "geography/spine.csv"} <= names
    assert ("microdata.parquet" in names) == (method != "gls")
    assert not [name for name in names if name.startswith("estimate")]
    assert not [path for path in duchy.parent.iterdir() if path.name.endswith(".partial")]
    descriptor = json.loads((out / "datapackage.json").read_text())
    for resource in descriptor["resources"]:
        written = pyarrow.csv.read_csv(out / resource["path"]).column_names
        assert written == [field["name"] for field in resource["schema"]["fields"]]
    assert len(list(release.measurements)) == len(release.product.spine_plan.pieces)


def _truth() -> Counter[tuple[str, ...]]:
    """People by (type of area, area, kind, grown, faith)."""
    where, found = {plot["plot"]: plot for plot in plots()}, Counter()
    for plot, kind, age, faith in people():
        grown = "young" if age == "child" else "grown"
        for area_type in ("duchy", "shire", "parish", "hamlet", "plot", "market", "forest"):
            area = where[plot][area_type]
            if area not in ("", "none"):
                found[area_type, area, kind, grown, faith] += 1
    return found


def test_estimates_are_of_the_people_who_are_there(duchy: Path) -> None:
    """At a large budget noise is 0, so that every published count is the true one, for every method's estimate.

    Each of about 1,500 answers has discrete Gaussian noise of parameter 15 / 750 = 0.02: some answer is not the
    true one with probability below 1500 * 2.1 * exp(-1 / 0.04) < 1e-7.
    """
    changed(duchy, ('budget = "2"', 'budget = "750"'), ("outside =", 'bypass = "off"\noutside ='))
    changed(duchy, ("1/4", "1/3"), ("1/2", "1/3"))
    _new_ledger(duchy, 750, "zcdp")
    release = tb.run(duchy, duchy.parent / "release")
    truth = _truth()

    def counted(**wanted: str) -> int:
        names = ("area_type", "area", "kind", "grown", "faith")
        keys = [(names.index(name), value) for name, value in wanted.items()]
        return sum(count for key, count in truth.items() if all(key[i] == value for i, value in keys))

    for name, columns in (("total", ()), ("kind_by_grown", ("kind", "grown")), ("faith", ("faith",))):
        for row in release.tables[name].to_pylist():
            expected = counted(**{c: row[c] for c in ("area_type", "area", *columns)})
            assert row["estimate"] == expected, row
            assert row["gls_estimate"] == pytest.approx(expected, abs=1e-6)
    rows = pq.read_table(release.path / "microdata.parquet").to_pylist()
    assert sorted((r["plot"], r["kind"], r["age"], r["faith"]) for r in rows) == sorted(people())
    assert all(r["duchy"] == "D" and r["parish"] == f"p{int(r['plot']) // 6}" for r in rows)


def test_published_counts_agree_with_each_other_and_with_what_is_known(duchy_release: Path) -> None:
    release = tb.Release.read(duchy_release)
    total = {(r["area_type"], r["area"]): r for r in release.tables["total"].to_pylist()}
    assert total["duchy", "D"]["estimate"] == total["duchy", "D"]["gls_estimate"] == 500
    assert [kind for kind, row in total.items() if row["obs_status"] == "E"] == [
        ("duchy", "D"), ("hamlet", "h15"), *(("plot", f"{i:03}") for i in (45, 46, 47))
    ]  # fmt: skip
    where, sums = {plot["plot"]: plot for plot in plots()}, Counter()
    for (kind, area), row in total.items():
        if kind == "plot":
            sums.update(
                {(k, where[area][k]): row["estimate"] for k in ("shire", "parish", "market", "forest")}
            )
    for key, count in sums.items():
        if key[1] not in ("", "none"):
            assert total[key]["estimate"] == count
    counts: Counter[tuple[str, str]] = Counter()
    for row in pq.read_table(release.path / "microdata.parquet").to_pylist():
        assert (row["kind"], row["age"]) != ("abbey", "child")
        counts[row["plot"], row["kind"]] += 1
    assert set(counts) <= set(houses())
    assert all(counts[where] >= least for where, least in houses().items())


def test_nothing_of_the_source_is_published(duchy_release: Path) -> None:
    for path in duchy_release.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for word in (b"people.csv", str(duchy_release.parent).encode(), b"ledger.db"):
                assert word not in content


def test_a_resumed_estimate_goes_on_from_its_last_stage(duchy: Path) -> None:
    out = duchy.parent / "release"
    kill("tabulae.products.areas.tasks.DivideTask.__call__", duchy, out, call=3)
    told: list[Progress] = []
    assert tb.run(duchy, out, resume=True, say=told.append).verify() == []
    depths = [each.step.split()[-1] for each in told if "dividing counts" in each.step]
    assert depths == ["2", "3", "4"]


def test_what_is_refused_costs_nothing(duchy: Path) -> None:
    out = duchy.parent / "release"
    out.mkdir()
    with pytest.raises(ReleaseError, match="exists"):
        tb.run(duchy, out)
    out.rmdir()
    lines = (duchy.parent / "people.csv").read_text()
    for row in ("999,home,old,a", "047,home,old,a", "000,abbey,child,a", "001,inn,old,a"):
        (duchy.parent / "people.csv").write_text(f"{lines}{row}\n")
        with pytest.raises(DataError) as refused:
            tb.run(duchy, out)
        assert row.split(",")[0] not in str(refused.value)
    (duchy.parent / "people.csv").write_text(lines)
    with pytest.raises(InvalidArgument, match="without --plan"):
        tb.run(duchy, out, plan_file=duchy)
    spec = read_spec(duchy)
    published = duchy.parent / "published.toml"
    published.write_text(spec.published_text())
    for name, content in spec.files.items():
        (duchy.parent / name).parent.mkdir(exist_ok=True)
        (duchy.parent / name).write_bytes(content)
    with pytest.raises(LedgerError, match="names no ledger"):
        tb.run(published, out)
    assert _ledger(duchy).spent == 0
    tb.run(duchy, out)
    tb.run(duchy, duchy.parent / "second")
    with pytest.raises(BudgetRefused):
        tb.run(duchy, duchy.parent / "third")
    assert sorted(path.name for path in duchy.parent.glob(".*partial")) == []


def test_the_release_says_what_it_cannot_answer(duchy_release: Path) -> None:
    release = tb.Release.read(duchy_release)
    with pytest.raises(InvalidArgument, match="no level or entity"):
        release.query("SELECT COUNT(*) FROM people", areas=["village"])
    assert set(release.tables) == {"total", "kind_by_grown", "faith"}


def _new_ledger(duchy: Path, budget: int, definition: str) -> None:
    for leftover in duchy.parent.glob("ledger.db*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    tb.Ledger.create(duchy.parent / "ledger.db", budget, definition, neighbours="replace")


def test_an_audit_says_what_to_do_instead(duchy: Path) -> None:
    with pytest.raises(Unsupported, match="tabulae plan"):
        audit(duchy)


def test_a_split_spine_has_the_forest_on_it(duchy: Path) -> None:
    changed(duchy, ('optimise = { fanout_cutoff = 2, entities = ["market"] }', "split = \"forest = 'oak'\""))
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    geography = read_spec(duchy).geography
    assert geography is not None
    assert geography.spine.osed(geography.entities["forest"]).tolist() == [
        2
    ]  # a branch in each of two shires


def test_pure_promises_run_too(duchy: Path) -> None:
    changed(duchy, ('definition = "zcdp"', 'definition = "pure"'), ('delta = "1e-10"\n', ""))
    _new_ledger(duchy, 4, "pure")
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    assert "ε-differential privacy with ε = 2" in (release.path / "report.html").read_text()


def test_a_budget_that_leaves_no_noise_is_refused_before_it_is_paid(duchy: Path) -> None:
    changed(duchy, ('budget = "2"', 'budget = "20000"'))
    _new_ledger(duchy, 20000, "zcdp")
    with pytest.raises(Unsupported, match="nothing was charged"):
        tb.run(duchy, duchy.parent / "release")
    assert _ledger(duchy).spent == 0
    assert not (duchy.parent / ".release.partial").exists()


@pytest.mark.parametrize("budget", ["1e-14", "1e-20"])
def test_a_budget_that_leaves_nothing_but_noise_is_refused(duchy: Path, budget: str) -> None:
    """Whole counts could come out at more people than rounding takes."""
    changed(duchy, ('budget = "2"', f'budget = "{budget}"'))
    with pytest.raises(Unsupported, match="give it a larger budget"):
        tb.run(duchy, duchy.parent / "release")
    assert _ledger(duchy).spent == 0
    assert not (duchy.parent / ".release.partial").exists()


@pytest.mark.long
def test_small_budgets_are_run(duchy: Path) -> None:
    changed(duchy, ('budget = "2"', 'budget = "1e-12"'))
    assert tb.run(duchy, duchy.parent / "release").verify() == []
