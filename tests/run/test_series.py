"""A release that follows another: what it says of the chain, and what it refuses before anything is charged."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from tests.duchy import write_duchy
from tests.each import each
from tests.run.series import run, write_people, write_series, write_spec

import tabulae as tb
from tabulae._run import check_release, write_report
from tabulae.errors import ReleaseError, SpecError
from tabulae.privacy import ZCDP
from tabulae.release import seal
from tabulae.release.predecessor import outlook
from tabulae.release.series import Standing, beside, spent_over
from tabulae.spec import Spec, read_spec
from tabulae.spec.series import mark_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series of three releases, to be looked at and never changed."""
    return write_series(tmp_path_factory.mktemp("series") / "town")


@pytest.fixture
def town(made: Path, tmp_path: Path) -> Path:
    """A copy of the series, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "town"))


def _descriptor(folder: Path, change: Callable[[dict], None]) -> None:
    """Change a descriptor and make the checksums anew, as somebody who knows how would."""
    path = folder / "datapackage.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    seal(folder)


def _refused(folder: Path, spec: Path, words: str) -> None:
    """A run is refused with these words, charges nothing and leaves nothing behind."""
    before = tb.Ledger.open(folder / "ledger.db").entries()
    with pytest.raises(ReleaseError, match=words):
        tb.run(spec, folder / "refused")
    assert tb.Ledger.open(folder / "ledger.db").entries() == before
    assert not list(folder.glob("*refused*"))


# what a release says ---------------------------------------------------------------------------------------


def test_a_release_states_its_chain_and_what_the_ledger_had_spent(made: Path) -> None:
    releases = [tb.Release.read(made / name) for name in ("2025", "2026", "2026b")]
    charges = tb.Ledger.open(made / "ledger.db").charges()
    last = releases[-1].series
    assert [link.release_id for link in last] == [charge.release_id for charge in charges]
    assert [link.title for link in last] == ["Town 2025", "Town 2026", "Town 2026b"]
    assert [link.kind for link in last] == [None, "next", "correction"]
    assert last[-1].reason == "a <file> was read twice"
    assert [Fraction(link.loss["rho"]) for link in last] == [Fraction(1, n) for n in (2, 3, 6)]
    assert spent_over(last) == ZCDP(1)
    for at, release in enumerate(releases):
        assert check_release(release) == []
        assert len(release.series) == at + 1
        standing = Standing.read(release.about)
        assert standing is not None
        assert standing.spent == {"rho": str(sum((c.loss.amount for c in charges[: at + 1]), Fraction(0)))}
        assert (standing.charges, standing.void, standing.cap) == (at + 1, 0, {"rho": "3"})


def test_the_digest_of_a_predecessor_is_that_of_common_tools(made: Path) -> None:
    for name, link in zip(("2025", "2026"), tb.Release.read(made / "2026b").series, strict=False):
        command = "grep -v '  report.html$' SHA256SUMS | sha256sum"
        told = subprocess.run(
            command, shell=True, cwd=made / name, capture_output=True, text=True, check=True
        )
        assert told.stdout.split()[0] == link.sha256sums


def test_the_published_spec_names_no_place_and_reads_back_alone(made: Path, tmp_path: Path) -> None:
    spec = read_spec(made / "2026b.toml")
    published = (made / "2026b" / "spec.toml").read_text()
    assert str(made) not in published
    assert '"2026"' not in published
    again = Spec.from_text(published, tmp_path)
    assert again.digest() == spec.digest() == tb.Release.read(made / "2026b").spec.digest()
    assert again.series is not None
    assert again.series.folder is None
    assert again.published_text() == published


def test_charges_of_lost_runs_are_in_the_sum(tmp_path: Path) -> None:
    folder = write_people(tmp_path / "town")
    ledger = tb.Ledger.open(folder / "ledger.db")
    lost = ledger.charge(ZCDP("1/7"), "add-remove", "person", "lost", bytes(32))
    ledger.settle(lost.release_id, "void")
    standing = Standing.read(run(folder, "2025").about)
    assert standing == Standing("zcdp", {"rho": "3"}, {"rho": "9/14"}, 2, 1)


def test_a_chain_across_tables_groups_and_areas(guild: Path) -> None:
    folder = guild.parent
    (folder / "ledger.db").unlink()
    tb.Ledger.create(folder / "ledger.db", 9, "zcdp", neighbours="replace")
    replaced = {'budget = "3"': 'budget = "5/2"\nneighbours = "replace"'}
    text = guild.read_text().replace(*replaced.popitem())
    assert 'neighbours = "replace"' in text
    guild.write_text(text)
    groups = tb.run(guild, folder / "groups")
    areas = write_duchy(_made(folder / "duchy"))
    areas.write_text(
        areas.read_text().replace('"ledger.db"', '"../ledger.db"')
        + '\n[series]\nfollows = "../groups"\nkind = "next"\n'
    )
    tb.run(areas, folder / "areas")
    tables = folder / "tables.toml"
    tables.write_text(
        'title = "Tables"\n[source]\npath = "people.csv"\n'
        '[attributes]\nsex = { column = "SEX", categories = ["F", "M"] }\n'
        '[privacy]\ndefinition = "zcdp"\nbudget = "1/2"\nneighbours = "replace"\nledger = "ledger.db"\n'
        '[[table]]\nname = "sex"\nattributes = ["sex"]\n[method]\nselect = "identity"\n'
        '[series]\nfollows = "areas"\nkind = "correction"\nreason = "towns were confused"\n'
    )
    last = tb.run(tables, folder / "tables")
    assert [link.title for link in last.series] == ["Guilds", "Duchy", "Tables"]
    assert spent_over(last.series) == ZCDP(groups.spec.loss.amount + 2 + Fraction(1, 2))
    for name in ("groups", "areas", "tables"):
        release = tb.Release.read(folder / name)
        assert check_release(release) == []
        before = (release.path / "report.html").read_bytes()
        write_report(release)
        assert (release.path / "report.html").read_bytes() == before
        assert (b'id="series"' in before) == (name != "groups")
        assert all(each.name and not each.fault for each in beside(release.path, release.series))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_moved_folder_is_whole_by_itself(made: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(made / "2026b", tmp_path / "elsewhere"))
    release = tb.Release.read(moved)
    assert check_release(release) == []
    assert [(each.name, each.fault) for each in beside(moved, release.series)] == [(None, None)] * 2


def test_a_release_from_before_series_were_told_is_still_one(town: Path) -> None:
    _descriptor(town / "2025", lambda document: document["tabulae"].pop("ledger"))
    release = tb.Release.read(town / "2025")
    write_report(release)
    assert check_release(release) == []
    assert b"had spent" not in (town / "2025" / "report.html").read_bytes()


# forks -----------------------------------------------------------------------------------------------------


def _told(release: tb.Release, kind: str) -> str:
    standing = Standing.read(release.about)
    assert standing is not None
    return "\n".join(rival.sentence(kind) for rival in standing.rivals)


def test_a_forged_predecessor_is_refused(town: Path) -> None:
    (town / "2025" / "ledger.json").write_text("[]\n")
    _descriptor(
        town / "2025", lambda document: document.update(title="Forged", created="1999-01-01T00:00:00")
    )
    _refused(town, write_spec(town, "next", follows="2025", kind="next"), "ledger.json: is not one charge")


def test_malformed_standing_is_a_fault(town: Path) -> None:
    for i, told in enumerate(([1], {"definition": "x"}, 3)):
        copy = Path(shutil.copytree(town / "2025", town / f"malformed{i}"))
        _descriptor(copy, lambda document, told=told: document["tabulae"].update(ledger=told))
        assert "not in the form" in tb.Release.read(copy).verify()[0]
        with pytest.raises(ReleaseError, match="not in the form"):
            write_report(tb.Release.read(copy))


def test_forks_are_told_and_not_refused(town: Path) -> None:
    twice = run(town, "2026c", follows="2026", kind="correction", reason="again")
    told = _told(twice, "correction")
    assert "it has two corrections" in told
    assert "Town 2026b" in told
    fork = run(town, "other", follows="2025", kind="next")
    told = _told(fork, "next")
    assert "the series forks here" in told
    late = run(town, "2027", "1/4", follows="2026", kind="next")
    told = _told(late, "next").splitlines()
    assert len(told) == 2
    assert all("was corrected by" in each for each in told)
    assert "the series forks here" in (fork.path / "report.html").read_text()
    assert all(check_release(tb.Release.read(each.path)) == [] for each in (twice, fork, late))
    fine = run(town, "2025b", "1/4", follows="2025", kind="correction", reason="found later")
    assert Standing.read(fine.about).rivals == ()  # type: ignore[union-attr]


# what is refused -------------------------------------------------------------------------------------------


def _forged_loss(document: dict) -> None:
    document["tabulae"]["series"][0]["loss"] = {"rho": "1/100"}


def _forged_loop(document: dict) -> None:
    chain = document["tabulae"]["series"]
    chain.insert(0, {**chain[-1], "kind": None, "reason": None, "sha256sums": "0" * 64})
    chain[1] |= {"kind": "next"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda folder: (folder / "tables/sex_by_age.csv").write_text(""),
            "sex_by_age.csv was altered: restore",
        ),
        (lambda folder: (folder / "new.txt").write_text(""), "new.txt is not listed"),
        (lambda folder: _descriptor(folder, _forged_loss), "its series says of .* does not"),
        (lambda folder: _descriptor(folder, _forged_loop), "its series has a release twice"),
    ],
)
def test_a_tampered_predecessor_is_refused(town: Path, damage: Callable[[Path], None], words: str) -> None:
    damage(town / "2026")
    spec = write_spec(town, "next", follows="2026", kind="next")
    _refused(town, spec, words)


def test_a_predecessor_that_changed_after_the_spec_was_read_is_refused(town: Path) -> None:
    spec = read_spec(write_spec(town, "next", follows="2026", kind="next"))
    _descriptor(town / "2026", lambda document: document.update(title="Other"))
    with pytest.raises(ReleaseError, match="changed since the spec was read"):
        tb.run(spec, town / "refused")


def test_a_report_that_was_made_again_changes_nothing(town: Path) -> None:
    mark = mark_of(town / "2026b")
    with (town / "2026b" / "report.html").open("a") as page:
        page.write("<!-- another version words it differently -->\n")
    seal(town / "2026b")
    assert mark_of(town / "2026b") == mark
    assert len(run(town, "2027", follows="2026b", kind="next").series) == 4


def test_a_predecessor_of_another_ledger_is_refused(town: Path) -> None:
    (town / "ledger.db").unlink()
    tb.Ledger.create(town / "ledger.db", 3, "zcdp")
    _refused(town, write_spec(town, "next", follows="2026", kind="next"), "it is not in the ledger")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('delta = "1e-10"', 'neighbours = "replace"', "neighbours"),
        ('path = "people.csv"', 'path = "people.csv"\nunit = "household"', "unit"),
        ('"zcdp"\nbudget = "1/2"\ndelta = "1e-10"', '"pure"\nbudget = "1/2"', "definition"),
    ],
)
def test_a_predecessor_of_another_kind_is_refused(town: Path, old: str, new: str, word: str) -> None:
    spec = write_spec(town, "next", follows="2026", kind="next")
    text = spec.read_text()
    assert old in text
    spec.write_text(text.replace(old, new))
    _refused(town, spec, f"its {word} is .*do not add up")


def test_only_a_published_release_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_people(tmp_path / "town")
    with monkeypatch.context() as broken:
        broken.setattr("tabulae.privacy.ledger.ledger.Ledger.settle", lambda *_: None)
        run(folder, "2025")
    spec = write_spec(folder, "2026", follows="2025", kind="next")
    _refused(folder, spec, "charged, not published: its own `tabulae run --resume` settles it")
    settled = tb.run(folder / "2025.toml", folder / "2025", resume=True)
    assert len(tb.run(spec, folder / "2026").series) == 2
    with monkeypatch.context() as broken:
        broken.setattr("tabulae.privacy.ledger.ledger.Ledger.settle", lambda *_: None)
        lost = run(folder, "lost")
    tb.Ledger.open(folder / "ledger.db").settle(str(lost.about["release_id"]), "void")
    _refused(folder, write_spec(folder, "2027", follows="lost", kind="next"), "void, not published")
    assert settled.series[-1].kind is None


def test_a_published_copy_says_where_to_look(town: Path) -> None:
    mark = mark_of(town / "2026")
    table = f'{{ release_id = "{mark.release_id}", sha256sums = "{mark.sha256sums}" }}'
    _refused(
        town,
        write_spec(town, "next", follows=table, kind="next"),
        'write where that stands, follows = "FOLDER"',
    )


@each(
    ("given", "words"),
    [
        ({"follows": "none", "kind": "next"}, '"none" is not there: name the folder'),
        ({"follows": "people.csv", "kind": "next"}, '"people.csv" is not a folder'),
        ({"follows": ".", "kind": "next"}, "has no datapackage.json"),
        ({"follows": "2025", "kind": "sequel"}, 'series.kind .*must be "next" or "correction", not "sequel"'),
        ({"follows": "2025", "kind": "correction"}, "series.reason .*is missing"),
        ({"follows": "2025", "kind": "correction", "reason": " "}, "series.reason .*is empty"),
        ({"follows": "2025"}, "series.kind .*is missing"),
        ({"kind": "next"}, "series.follows .*is missing"),
        ({"follows": "{ release_id = '..', sha256sums = '' }", "kind": "next"}, "2 mistakes"),
        ({"follows": "2025", "kind": "next", "why": "x"}, "series.why .*unknown key"),
    ],
)
def test_mistakes_in_the_section_are_told(
    made: Path, tmp_path: Path, given: dict[str, str], words: str
) -> None:
    text = write_spec(tmp_path, "wrong", **given).read_text()
    with pytest.raises(SpecError, match=words):
        Spec.from_text(text, made)


def test_a_folder_that_is_not_sealed_is_no_release(town: Path) -> None:
    (town / "2026" / "SHA256SUMS").unlink()
    with pytest.raises(SpecError, match="has no SHA256SUMS"):
        read_spec(write_spec(town, "next", follows="2026", kind="next"))


# what stands beside ----------------------------------------------------------------------------------------


def test_copies_beside_are_compared_with_the_chain(town: Path) -> None:
    release = tb.Release.read(town / "2026b")
    shutil.copytree(town / "2025", town / "a copy of 2025")
    _descriptor(town / "2025", lambda document: document.update(created="2020-01-01"))
    found = beside(release.path, release.series)
    assert [(each.name, each.fault) for each in found] == [("a copy of 2025", None), ("2026", None)]
    shutil.rmtree(town / "a copy of 2025")
    first, second = beside(release.path, release.series)
    assert first.fault == "2025: is not the release that was followed; its SHA256SUMS differs"
    assert second.fault is None


def test_false_words_on_the_series_are_found(town: Path) -> None:
    edits: dict[str, Callable[[dict], None]] = {
        "does not end with this release": lambda d: d["tabulae"]["series"].pop(),
        "is not that of spec.toml": lambda d: d["tabulae"].update(series=d["tabulae"]["series"][-1:]),
        "does not name the release": lambda d: d["tabulae"]["series"].pop(1),
        "is not in the form": lambda d: d["tabulae"].update(series=[{"title": "x"}]),
        "had spent cannot be": lambda d: d["tabulae"]["ledger"].update(spent={"rho": "1/2"}),
    }
    for i, (words, change) in enumerate(edits.items()):
        copy = Path(shutil.copytree(town / "2026b", town / f"copy{i}"))
        _descriptor(copy, change)
        faults = tb.Release.read(copy).verify()
        assert len(faults) == 1, (words, faults)
        assert words in faults[0]
    text = (town / "2026b" / "spec.toml").read_text()
    (town / "2026b" / "spec.toml").write_text(text.replace('"correction"', '"next"'))
    seal(town / "2026b")
    faults = tb.Release.read(town / "2026b").verify()
    assert faults[0] == "ledger.json: which release this one follows is not what spec.toml says"


# interrupted runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "phase",
    [
        "tabulae.products.tables.product.write_contents",
        "tabulae.privacy.ledger.ledger.Ledger.follow",
        "tabulae.release.series.standing_of",
        "tabulae._run.seal_with_report",
        "tabulae._run.put_in_place",
    ],
)
def test_an_interrupted_run_is_resumed_with_its_chain(
    town: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    spec = write_spec(town, "2027", follows="2026b", kind="next")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(phase, killed)
        with pytest.raises(KeyboardInterrupt):
            tb.run(spec, town / "2027")
    assert not (town / "2027").exists()
    release = tb.run(spec, town / "2027", resume=True)
    assert check_release(release) == []
    assert len(release.series) == 4
    charges = tb.Ledger.open(town / "ledger.db").charges()
    assert [c.relation for c in charges] == [None, "next", "correction", "next"]
    assert charges[-1].follows == charges[-2].release_id
    assert sum(e["kind"] == "follows" for e in release.ledger) == 1


# what a plan says ------------------------------------------------------------------------------------------


def test_a_plan_knows_what_the_ledger_would_have_spent(town: Path) -> None:
    told = outlook(read_spec(write_spec(town, "2027", "1/2", follows="2026b", kind="next")))
    assert (told.cap, told.spent, told.after) == ({"rho": "3"}, {"rho": "1"}, {"rho": "3/2"})
    assert told.followed is not None
    assert len(told.followed.chain) == 3
    assert told.warnings == ()
    dear = outlook(read_spec(write_spec(town, "2027", "5/2", follows="2025", kind="next")))
    assert dear.warnings[0].startswith("a run would be refused: rho 5/2 is asked for, and 2 of ")
    assert "the series forks here" in dear.warnings[1]
    (town / "2026b" / "report.html").write_text("")
    (told,) = outlook(read_spec(write_spec(town, "2027", follows="2026b", kind="next"))).warnings
    assert "a run would be refused" in told
    assert "report.html was altered" in told
