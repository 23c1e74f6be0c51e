"""The published copy: the same content, and nothing of where the records are."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tabulae.sources.source import RecordSource
from tabulae.spec import Spec

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True).filter(
    lambda name: name not in ("unknown", "null", "estimate", "obs_status")
)
LABELS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8
).filter(lambda label: label not in ("_T", "other"))
POLICY = st.sampled_from(["refuse", "other"])
POLICIES = st.fixed_dictionaries({}, optional={"unknown": POLICY, "null": POLICY})


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, object]:
    """One entry of [attributes]."""
    policies: dict[str, object] = draw(POLICIES)
    if draw(st.booleans()):
        low = draw(st.integers(-50, 50))
        return policies | {"range": [low, low + draw(st.integers(1, 30))], "column": draw(LABELS)}
    return policies | {"categories": draw(st.lists(LABELS, min_size=2, max_size=5, unique=True))}


@st.composite
def tables(draw: st.DrawFn, declared: list[str], recodes: list[str]) -> list[dict[str, object]]:
    """Some [[table]] entries: queries of every kind, and each recode by itself."""
    query = st.sampled_from(["identity", "prefix", "ranges", "total", {"width": 2}])
    queries = st.dictionaries(st.sampled_from(declared), query, max_size=3)
    weight = st.sampled_from([1, 3, 0.1, 2.5])
    entry = st.fixed_dictionaries({"queries": queries}, optional={"weight": weight})
    drawn = [{"name": f"t{k}", **one} for k, one in enumerate(draw(st.lists(entry, min_size=1, max_size=3)))]
    return drawn + [{"name": f"r_{name}", "attributes": [name]} for name in recodes]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    """A whole document that has no mistake, as parsed TOML."""
    declared = draw(st.dictionaries(NAMES, attributes(), min_size=1, max_size=4))
    ranged = {name: entry["range"][1] for name, entry in declared.items() if "range" in entry}
    recodes = {f"{name}-r": {"of": name, "edges": [last]} for name, last in ranged.items()}
    promises = [{"definition": "zcdp"}, {"definition": "pure"}, {"definition": "zcdp", "delta": "1e-9"}]
    promise = draw(st.sampled_from([*promises, {"definition": "approx", "delta": "1/9"}]))
    seconds, gaps = st.sampled_from([5, 0.5]), st.sampled_from([1, 0.001])
    method = st.fixed_dictionaries(
        {}, optional={"tolerance": gaps, "time_limit": seconds, "seed": st.integers(0, 9)}
    )
    return {
        "title": draw(LABELS),
        "source": {"path": "/home/clerk/secret.parquet", "unit": draw(LABELS)},
        "attributes": draw(POLICIES) | declared,
        "recodes": recodes,
        "privacy": {
            **promise,
            "budget": draw(st.sampled_from(["1/3", "2.55"])),
            "ledger": "/home/clerk/l.db",
        },
        "table": draw(tables(sorted(declared), sorted(recodes))),
        "method": draw(method),
    }


CONTENT = (
    "title",
    "domain",
    "workload",
    "columns",
    "loss",
    "delta",
    "neighbours",
    "unit",
    "method",
    "max_rows",
)


def same_content(one: Spec, other: Spec) -> None:
    for part in CONTENT:
        assert getattr(one, part) == getattr(other, part), part
    assert one.domain.recodes == other.domain.recodes
    assert one.source.kind == other.source.kind
    assert one.digest() == other.digest()


@given(documents())
def test_the_published_text_has_the_same_content_and_no_place(document: dict[str, object]) -> None:
    spec = Spec.from_text(tomli_w.dumps(document))
    text = spec.published_text()
    again = Spec.from_text(text)
    same_content(spec, again)
    assert again.source == RecordSource(kind="parquet")
    assert again.ledger is None
    assert again.published_text() == text
    assert not re.search("clerk|secret", text)


def written_beside(desk, spec: Spec):
    """A folder with the published copy of a spec and its files, and nothing else."""
    for name in ("race.csv", "major.csv"):
        (desk.base / "codes" / name).unlink()
    for name, content in spec.files.items():
        desk.file(name, content)
    return desk.read(spec.published_text())


def test_code_lists_are_published_under_fixed_names(desk) -> None:
    desk.file("private/race.csv", (desk.base / "codes/race.csv").read_bytes())
    spec = desk.read(desk.changed(("codes/race.csv", str(desk.base / "private/race.csv"))))
    assert set(spec.files) == {"codes/race.csv", "maps/major.csv"}
    assert str(desk.base) not in spec.published_text()
    same_content(spec, written_beside(desk, spec))


def test_comments_hosts_and_paths_stay_at_home(desk) -> None:
    text = desk.changed(
        (
            'path = "people.csv"',
            'path = "/vault/ssn/people.duckdb"\ntable = "ssn_people"   # on db.vault.example',
        ),
        ('"ledger.db"', '"/vault/ledger.db"'),
    )
    published = desk.read(text).published_text()
    assert not re.search("vault|ssn|ledger", published)
    assert tomllib.loads(published)["source"] == {"kind": "duckdb", "unit": "person", "rows_per_unit": 1}


def test_every_default_is_written_out(desk) -> None:
    published = tomllib.loads(desk.read(desk.good).published_text())
    assert published["method"] == {
        "select": "auto", "noise": "gaussian", "estimate": "least-squares", "time_limit": 60, "seed": 0,
            "objective": "total",
    }  # fmt: skip
    assert published["privacy"] == {"definition": "zcdp", "budget": "1/2", "neighbours": "add-remove"}
    assert published["attributes"]["unknown"] == published["attributes"]["null"] == "refuse"
    assert published["release"] == {"max_rows": 5_000_000}


NEUTRAL = {
    "source path": ("people.csv", "/elsewhere/p.csv"),
    "source kind": ("people.csv", "people.parquet"),
    "ledger": ("ledger.db", "/elsewhere/l.db"),
    "comment": ("[privacy]", "[privacy]  # agreed on Monday"),
    "default": ("[privacy]", '[privacy]\nneighbours = "add-remove"'),
    "layout": ('attributes = ["sex", "age5"]', 'attributes = [\n  "sex",\n  "age5",\n]'),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_the_digest_is_of_what_is_promised(desk, name: str) -> None:
    assert desk.read(desk.changed(NEUTRAL[name])).digest() == desk.read(desk.good).digest()


TELLING = {
    "budget": ('"1/2"', '"2/3"'),
    "table": ("age < 5", "age < 6"),
    "title": ("Demo", "Domo"),
    "domain": ("[0, 114]", "[0, 115]"),
    "unit": ('"person"', '"household"'),
    "weight": ('name = "sex_by_age"', 'name = "sex_by_age"\nweight = 2'),
    "column": ('"AGE"', '"AGEP"'),
}


@pytest.mark.parametrize("name", TELLING)
def test_the_digest_tells_documents_apart(desk, name: str) -> None:
    assert desk.read(desk.changed(TELLING[name])).digest() != desk.read(desk.good).digest()


@pytest.mark.parametrize("file", ["codes/race.csv", "codes/major.csv"])
def test_the_digest_covers_the_code_lists(desk, file: str) -> None:
    before = desk.read(desk.good).digest()
    desk.file(file, (desk.base / file).read_text().replace("Both", "Either").replace("both", "either"))
    assert desk.read(desk.good).digest() != before


def test_another_source_is_the_same_spec(desk) -> None:
    spec = desk.read(desk.good)
    other = spec.with_source("/elsewhere/q.parquet")
    assert other.digest() == spec.digest()
    assert other.published_text() == spec.published_text().replace('"csv"', '"parquet"')


def test_files_of_different_keys_never_meet(desk) -> None:
    text = desk.changed(
        ("race = {", '"major.map" = { codes = "codes/race.csv" }\nrace = {'),
        ('["sex", "age5"]', "[]\nqueries = { age = { matrix = 'w.npy' } }"),
    )
    np.save(desk.base / "w.npy", np.ones((1, 115)))
    assert set(desk.read(text).files) == {
        "codes/race.csv", "codes/major.map.csv", "maps/major.csv", "queries/sex_by_age/age.npy",
    }  # fmt: skip
