"""The page as a reader's browser sees it: self-contained, escaped, ordered, bounded, repeatable."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.report.page import check_script

from tabulae.report import EpsilonStatement, ExpectedErrorView, PromiseView, TableView, render_report

VOID = {"wbr", "meta", "link", "br", "hr", "img", "input", "path", "rect", "image", "use"}
HOSTILE = '<script>alert("x")</script> & \'"><img src=x onerror=alert(1)> $\\frac{a}{b$ ]]> <!-- \u202e'


class Page(HTMLParser):
    """Tags in order, text by tag, and whether every opened element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text.append((self.open[-1], data))

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]

    @property
    def words(self) -> str:
        return " ".join(" ".join(data for tag, data in self.text if tag not in ("style", "script")).split())


@pytest.fixture
def text(made_up) -> str:
    return render_report(made_up())


@pytest.fixture
def page(text) -> Page:
    return Page(text)


def hostile_release(made_up):
    release = made_up()
    table = release.tables[1]
    odd = TableView(
        name=HOSTILE,
        description=HOSTILE,
        columns={HOSTILE: [HOSTILE] * table.rows},
        estimate=table.estimate,
        std_error=table.std_error,
        ci_low=table.ci_low,
        ci_high=table.ci_high,
        obs_status=table.obs_status,
        expected=table.expected,
        file=f"tables/{HOSTILE}.parquet",
    )
    return made_up(title=HOSTILE, tables=(odd,), release_id=HOSTILE)


def test_same_release_same_bytes(made_up, text):
    assert render_report(made_up()) == text


@pytest.mark.long
def test_same_bytes_in_another_process(text):
    """Hash seeds and the order of sets must not reach the page."""
    source = Path(__file__).resolve().parents[2] / "src"
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import conftest, tabulae.report as r\n"
        "sys.stdout.buffer.write(r.render_report(conftest.made_up_release()).encode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == text


def test_loads_nothing_and_runs_one_script_of_its_own(text, page):
    check_script(text)
    loading = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "form", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in loading:
                assert value is not None
                assert value.startswith(("#", "data:image/png")), (tag, name, value)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_every_element_is_closed(page):
    assert page.open == []


def test_internal_links_and_labels_resolve(page):
    ids = Counter(value for _, attributes in page.tags if (value := attributes.get("id")))
    assert [name for name, times in ids.items() if times > 1] == []
    for tag, attributes in page.tags:
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids, (tag, attributes)
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids


def test_headings_descend_by_one(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_accessible_names(page, text):
    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("caption")) == len(page.named("table"))
    assert all(header.get("scope") in {"col", "row", "colgroup"} for header in page.named("th"))
    for picture in page.named("svg"):
        assert picture.get("aria-hidden") == "true" or (
            picture.get("role") == "img" and picture.get("aria-label")
        )
    assert re.search(r"<title>\s*\S", text)


def test_hostile_names_stay_text(made_up):
    text = render_report(hostile_release(made_up))
    page = Page(text)
    assert page.open == []
    check_script(text)
    assert page.named("img") == []
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.words.count('<script>alert("x")</script>') >= 5


def test_long_tables_are_cut_with_a_note(made_up, page):
    assert "First 500 of 820 rows" in page.words
    assert "320 more rows are in tables/age_ranges.parquet" in page.words
    assert "All 48 rows" in page.words
    whole = Page(render_report(made_up(tables=made_up().tables[:2])))
    assert "more rows" not in whole.words


@pytest.mark.long
def test_size_is_bounded(made_up):
    """Three hundred tables of many rows with long names, forty blocks: still under two million bytes."""
    release = made_up()
    big = release.tables[3]
    tables = tuple(
        TableView(
            name=f"a_rather_long_name_of_a_table_{i}",
            description="Persons by single years of age, in ranges, for one of very many groups of a list.",
            columns={"age": big.columns["age"], "group": [f"group {i} with a descriptive name"] * big.rows},
            estimate=big.estimate,
            std_error=big.std_error,
            ci_low=big.ci_low,
            ci_high=big.ci_high,
            obs_status=big.obs_status,
            expected=big.expected,
            file=f"tables/a_rather_long_name_of_a_table_{i}.parquet",
        )
        for i in range(300)
    )
    blocks = release.strategy.blocks * 40
    strategy = type(release.strategy)(release.strategy.method, blocks)
    small = release.tables[1]
    text = render_report(made_up(tables=(small, *tables), strategy=strategy))
    assert 1_500_000 < len(text.encode()) < 2_000_000
    words = Page(text).words
    assert "200 of 301 tables are shown" in words
    assert "The first 60 of 80 blocks" in words
    cut = set(re.findall(r"First (\d+) of 820 rows", words))
    assert len(cut) == 1
    assert 8 <= (level := int(cut.pop())) < 50
    assert ("All 12 rows" in words) == (level >= 12)


def test_size_is_bounded_whatever_names_and_labels_there_are(made_up):
    """Two hundred tables with names as long as a file's may be, long statements and labels that must be escaped."""
    big, label = made_up().tables[3], "<&'" * 60
    tables = tuple(
        dataclasses.replace(
            big,
            name=f"{i:03}" + "_name" * 48,
            description="SELECT " + "age, " * 1000,
            columns={"<age>" * 40: [f"{label}{j}" for j in range(big.rows)]},
            file=f"tables/{i:03}{'_name' * 48}.parquet",
        )
        for i in range(220)
    )
    text = render_report(made_up(tables=tables))
    assert len(text.encode()) < 2_000_000
    assert Page(text).open == []
    assert text.count("<article") == 200


def promise(**changes) -> PromiseView:
    fields = {
        "definition": "zcdp",
        "parameter": Fraction(1, 2),
        "neighbours": "add-remove",
        "unit": "household",
    }
    return PromiseView(**{**fields, **changes})


def test_promise_of_zcdp(made_up):
    words = Page(render_report(made_up(promise=promise(statements=(EpsilonStatement(1e-10, 7.0163),))))).words
    assert "ρ-zero-concentrated differential privacy with ρ = 1/2" in words
    assert "whether or not any one household is in the records" in words
    assert "ε = 7.017 at δ = 10⁻¹⁰" in words
    assert "Nothing. Every published number carries noise" in words


def test_promise_of_pure(made_up):
    words = Page(render_report(made_up(promise=promise(definition="pure", parameter=Fraction(1))))).words
    assert "ε-differential privacy with ε = 1" in words
    assert "= 2.72." in words
    assert "plus δ" not in words


def test_promise_of_approx(made_up):
    changes = {"definition": "approx", "parameter": Fraction(1), "delta": Fraction(1, 10**6)}
    words = Page(render_report(made_up(promise=promise(**changes)))).words
    assert "(ε, δ)-differential privacy with ε = 1 and δ = 10⁻⁶" in words
    assert "plus δ" in words


def test_promise_to_replace_one(made_up):
    words = Page(render_report(made_up(promise=promise(neighbours="replace")))).words
    assert "whatever the record of any one household says" in words
    assert "How many household records there are is not protected" in words
    assert "whether or not" not in words.split("What it does not promise")[0]


def test_rehearsal_says_so_first(made_up):
    words = Page(render_report(made_up(promise=promise(rehearsal=True), ledger=()))).words
    assert words.index("Rehearsal: not for publication") < words.index("What this release promises")
    assert "No ledger was charged" in words
    assert "Rehearsal" not in Page(render_report(made_up())).words


def test_exact_counts_are_named_with_their_reason(page):
    assert "Number of housing units by county" in page.words
    assert "counted by satellite" in page.words


def test_ledger_adds_up(page):
    assert re.search(r"Block 1 3f7c0a91d2e8 2/5 .*Block 2 b81d5e02f9c4 1/10 In all 1/2", page.words)


def small_table(**changes) -> TableView:
    fields = {
        "name": "small",
        "description": "Persons by sex.",
        "columns": {"sex": ["F", "M", "X", "_T"]},
        "estimate": np.array([-3.25, 12345.5, np.nan, 17.0]),
        "std_error": np.array([4.0, 4.0, np.nan, 0.0]),
        "ci_low": np.array([-11.09, 12337.66, np.nan, 17.0]),
        "ci_high": np.array([4.59, 12353.34, np.nan, 17.0]),
        "obs_status": ["A", "A", "Q", "E"],
        "expected": ExpectedErrorView(4.0, 7.84),
        "file": "tables/small.parquet",
    }
    return TableView(**{**fields, **changes})


def test_negative_exact_and_missing_counts(made_up):
    words = Page(render_report(made_up(tables=(small_table(),)))).words
    assert "F −3.2 7.8 −11.1 to 4.6 ○○ unreliable" in words
    assert "M 12,345.5 7.8 12,337.7 to 12,353.3 ●● reliable" in words
    assert "X – – – not estimable" in words
    assert "all 17.0 0 – exact" in words


def test_level_and_conservative_intervals_are_said(made_up):
    table = small_table(level=0.9, conservative=True)
    words = Page(render_report(made_up(tables=(table,)))).words
    assert "All 4 rows, 90 % intervals (conservative: they cover more often)" in words


def test_release_without_tables_renders(made_up):
    assert Page(render_report(made_up(tables=()))).open == []
