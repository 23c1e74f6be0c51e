"""How objects look in a notebook: escaped, bounded, cheap, in the page's own colours, and nothing confidential."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabulae as tb
from tabulae.notebook import CardRows, card, written
from tabulae.products.areas.plan import GeographyPlan
from tabulae.products.groups.plan import DetailedPlan
from tabulae.products.tables import product
from tabulae.strategy import Block, Strategy

SHOWN = {
    "ConstrainedLeastSquares", "DetailedPlan", "Domain", "Estimate", "GeographyPlan", "GraphicalModel", "LeastSquares",
    "Ledger", "LocalLeastSquares", "Measurement", "NonNegative", "OneSided", "Plan", "Posterior", "Release",
    "Spine", "Strategy", "Workload",
}  # fmt: skip
_VOID = {"br", "hr", "img"}
_LARGEST = 24_000


class _Reader(HTMLParser):
    """Reads a fragment: text by cell, and that every element is closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(shown: object, seconds: float = 1.0) -> _Reader:
    """An object's HTML, whole and well formed, made in time."""
    started = time.process_time()
    html = shown._repr_html_()
    assert time.process_time() - started < seconds
    assert len(html) < _LARGEST, len(html)
    assert len(repr(shown)) < 2_000
    reader = _Reader(html)
    assert reader.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert {name for name, _ in reader.attributes} <= {"style", "scope"}
    for name, value in reader.attributes:
        if name == "style":  # colours are the page's own, and nothing is loaded
            assert not re.search(r"url|#[0-9a-f]|rgb|black|white", value), value
    return reader


@pytest.fixture(scope="module")
def strategy() -> Strategy:
    domain = tb.Domain({"sex": ["F", "M"], "age": range(20)})
    return tb.select(tb.Workload.marginals(domain, ways=[1, 2]), method="eigen")


def test_a_domain_tells_its_attributes() -> None:
    domain = tb.Domain({"sex": ["<F>", "M&"], "age": range(115)})
    domain = domain.with_recodes(tb.Recode.from_edges("adult", domain["age"], [18]))
    texts = _read(domain).texts
    assert {"230", "sex", "<F>, M&", "0, 1, 2, … 114", "adult", "0-17, 18-114"} <= set(texts)


def test_a_strategy_tells_its_blocks_and_what_is_proven(strategy: Strategy) -> None:
    texts = _read(strategy).texts
    assert strategy.method in texts
    assert f"{strategy.rows:,}" in texts
    assert {"gaussian", strategy.blocks[0].name} <= set(texts)
    assert strategy.certificate is not None
    assert f"{strategy.certificate:.3g} (relative, squared error)" in texts


@pytest.mark.parametrize("method", ["least-squares", "non-negative"])
def test_a_measurement_and_an_estimate_tell_what_they_are_of_and_no_value(
    strategy: Strategy, method: str
) -> None:
    counts = np.full(40, 77_101)
    made = tb.measure(counts, strategy, tb.ZCDP("1/2"), source=tb.noise.Insecure(1))
    found = tb.estimate(made, method=method)
    for shown in (made, found):
        texts = _read(shown).texts
        assert {f"{strategy.method}, gaussian noise", "zcdp: rho 1/2, add-remove", f"{strategy.rows}"} <= set(
            texts
        )
        assert any("a rehearsal" in text for text in texts)
        assert not any("77" in text for text in texts)
        assert len(repr(shown)) < 120
        assert "\n" not in repr(shown)
        assert "77" not in repr(shown)
    assert repr(found) == f"{type(found).__name__}({made!r})"
    assert {"sex", "F, M", "0, 1, 2, … 19"} <= set(_read(found).texts)
    deviations = _read(made).texts[-2 * 3 + 2 :: 3]
    assert deviations[-1] == written(float(made.variance[-1] ** 0.5))


def test_a_ledger_tells_its_charges_and_survives_its_file(tmp_path: Path) -> None:
    ledger = tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    for i in range(20):
        ledger.charge(tb.ZCDP("1/40"), "add-remove", "person", f"<release {i}>", bytes(32))
    texts = _read(ledger).texts
    assert {"zcdp, add-remove one person", "rho 1", "1/2", "20", "<release 19>", "… 8 more"} <= set(texts)
    assert len(repr(ledger)) < 200
    (tmp_path / "ledger.db").unlink()
    assert "cannot be read" in _read(ledger).texts


def test_a_plan_shows_the_errors_that_it_states(village: Path) -> None:
    made = tb.plan(village)
    texts = _read(made, seconds=5).texts
    for row in made.table_errors:
        at = texts.index(row.table)
        assert texts[at : at + 4] == [row.table, f"{row.queries}", written(row.rmse), written(row.margin)]


def test_a_plan_of_groups(guild: Path) -> None:
    made = tb.plan(guild)
    assert isinstance(made, DetailedPlan)
    assert {level.name for level in made.adaptive.levels} <= set(_read(made, 5).texts)


def test_a_plan_of_areas_shows_errors_once_they_are_known(duchy: Path) -> None:
    areas = tb.plan(duchy)
    assert isinstance(areas, GeographyPlan)
    before = _read(areas, 5).texts
    assert "not computed yet: ask for .errors" in before  # a national plan would take minutes
    assert set(areas.geography.spine.levels) <= set(before)
    rows = areas.table_errors
    after = _read(areas).texts
    assert "not computed yet: ask for .errors" not in after
    assert written(rows[0].rmse) in after


def test_a_release_shows_its_tables_and_survives_a_damaged_folder(village: Path) -> None:
    release = tb.run(village, village.parent / "out")
    texts = _read(release).texts
    assert {"Village", "zcdp: rho 1/2", *release.tables} <= set(texts)
    (release.path / "ledger.json").unlink()
    (release.path / "tables/ages.parquet").unlink()
    assert "ages" in _read(tb.Release.read(release.path)).texts


@pytest.mark.parametrize("kind", ["guild", "duchy"])
def test_releases_of_groups_and_areas(kind: str, request: pytest.FixtureRequest) -> None:
    spec = request.getfixturevalue(kind)
    release = tb.run(spec, spec.parent / "out")
    texts = _read(release).texts
    rows = release.about["rows"]
    assert all(texts[texts.index(name) + 1] == f"{n:,}" for name, n in rows.items())


def test_a_spine_tells_its_levels() -> None:
    codes = {"tract": list("AAB"), "block": list("abc")}
    spine = tb.Spine.from_codes(codes, levels=["tract", "block"])
    assert _read(spine).texts[-6:] == ["root", "1", "tract", "2", "block", "3"]
    shared = spine.bypass({"root": "1/4", "tract": "1/4", "block": "1/2"}, noise="laplace")
    assert _read(shared).texts[-9:] == ["root", "1", "0", "tract", "2", "1", "block", "3", "2"]


# size ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_huge_domains_and_many_tables_are_cut() -> None:
    domain = tb.Domain({f"attribute {i}": 2 for i in range(60)})
    assert domain.size == 2**60
    texts = _read(domain).texts
    assert "≈ 1.2 × 10^18" in texts
    assert "… 48 more" in texts
    assert "≈ 1.1 × 10^602" in _read(tb.Domain({f"a{i}": 2 for i in range(2_000)})).texts
    tables = [tb.Table(f"t{i}", {"attribute 3": tb.Identity(2)}) for i in range(20_000)]
    workload = tb.Workload(domain, tables)
    assert "… 19,988 more" in _read(workload, seconds=3).texts
    assert _read(tb.Domain({"code": 3_000_000})).texts[-2:] == ["0, 1, 2, … 2999999", "yes"]


def test_many_blocks_are_cut(strategy: Strategy) -> None:
    block = strategy.blocks[0]
    blocks = tuple(Block(f"block {i}", block.query) for i in range(20_000))
    assert "… 19,988 more" in _read(Strategy(strategy.domain, blocks, "gaussian", "many")).texts


@pytest.mark.parametrize("count", [200_000, pytest.param(2_000_000, marks=pytest.mark.long)])
def test_a_spine_of_many_leaves(count: int) -> None:
    """8,000,000 blocks take four times as long as 2,000,000, and stay below a second."""
    leaves = np.arange(count)
    spine = tb.Spine.from_codes({"tract": leaves // 1000, "block": leaves}, levels=["tract", "block"])
    shared = spine.with_shares({"root": "1/4", "tract": "1/4", "block": "1/2"})
    assert f"{count:,}" in _read(shared, seconds=0.25 if count > 200_000 else 0.1).texts


@given(st.text(), st.lists(st.tuples(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.none()))))
def test_any_text_is_escaped(title: str, facts: list[tuple[str, object]]) -> None:
    html = card(title, facts, CardRows(("a", "b"), facts, len(facts)))
    texts = "".join(_Reader(html.replace("\x00", "")).texts)
    assert "<script" not in html
    assert re.sub(r"\s", "", title.replace("\x00", ""))[:10] in re.sub(r"\s", "", texts)


@given(st.integers(-(10**400), 10**400))
def test_whole_numbers_are_exact_or_say_that_they_are_not(n: int) -> None:
    words = written(n)
    if not words.startswith("≈"):
        assert int(words.replace(",", "")) == n
    else:
        digits, power = re.fullmatch(r"≈ (-?[\d.]+) × 10\^(\d+)", words).groups()  # type: ignore[union-attr]
        assert abs(int(float(digits) * 10) * 10 ** (int(power) - 1) - n) <= abs(n) // 10


# what is confidential ---------------------------------------------------------------------------------


def _classes() -> set[type]:
    """Every class of the package."""
    found = set()
    for module in pkgutil.walk_packages(tb.__path__, "tabulae."):
        if module.name.endswith("__main__"):
            continue
        for _, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if value.__module__.startswith("tabulae."):
                found.add(value)
    return found


@pytest.mark.filterwarnings("ignore")  # optional packages that other modules import
def test_nothing_but_public_objects_has_html() -> None:
    rich = ("_repr_html_", "_repr_mimebundle_", "_repr_pretty_", "_repr_svg_", "_ipython_display_")
    shown = {c.__name__ for c in _classes() if any(hasattr(c, name) for name in rich)}
    assert shown == SHOWN


def test_counts_and_what_holds_them_show_no_value(village: Path) -> None:
    domain = tb.Domain({"a": 3, "b": 2})
    counts = tb.Counts.from_array(domain, [7710, 7711, 7712, 7713, 7714, 7715])
    few = tb.Counts.from_cells(tb.Domain({f"a{i}": 1000 for i in range(4)}), [[7, 7, 1, 7]], [771])
    held = product.prepare(tb.plan(village))
    assert isinstance(held._counts, tb.Counts)
    for thing in (counts, counts._storage, few, few._storage, held, held._counts):
        for text in (repr(thing), str(thing), f"{thing}"):
            assert "77" not in re.sub(r"0x[0-9a-f]+", "", text), text


def test_no_class_that_stores_counts_prints_its_fields() -> None:
    """Neither those of tables nor those of groups and areas: a dataclass among them has no repr of its fields."""
    public = {"LeafBound", "LeafColumn", "Places", "RecordShape"}  # where records are read, and what of them
    stores = {
        c
        for c in _classes()
        if c.__module__.startswith("tabulae.products.") and c.__module__.endswith(".count")
    }
    stores = {product.Prepared, *(c for c in stores if c.__name__ not in public)}
    assert len(stores) >= 8
    for store in stores:
        parameters = getattr(store, "__dataclass_params__", None)
        assert parameters is None or not parameters.repr, store


def test_a_rehearsal_with_exact_counts_does_not_show_them() -> None:
    domain = tb.Domain({"sex": ["F", "M"]})
    everybody = tb.Table("everybody", {})
    workload = tb.Workload(domain, [tb.Table("sex", {"sex": tb.Identity(2)})])
    strategy = tb.select(workload, method="identity", invariants=[everybody])
    made = tb.measure([400_017, 500_018], strategy, tb.ZCDP(1), source=tb.noise.Insecure(1))
    assert made.exact[0].tolist() == [900_035]
    assert "900035" not in repr(made)
