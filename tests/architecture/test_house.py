"""The checks of the house find what they are for, and what is said in several places is said alike."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import grimp
import pytest
from tests.architecture import measures
from tests.architecture.circles import circles, report
from tests.architecture.walk import walk

import tabulae as tb

ROOT = Path(__file__).parents[2]


def planted(folder: Path, modules: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> grimp.ImportGraph:
    package = folder / "planted"
    package.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    return grimp.build_graph("planted", cache_dir=None)


def test_a_circle_through_a_function_and_a_type_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planted(
        tmp_path,
        {
            "above": "from .one import late\n",
            "one": "def late():\n    from .two import f\n    return f\n",
            "two": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .three import T\ndef f(): ...\n",
            "three": "from . import one, below\nclass T: ...\n",
            "below": "",
        },
        monkeypatch,
    )
    assert circles(graph) == [["planted.one", "planted.three", "planted.two"]]
    assert report(graph).splitlines() == [
        "3 modules import each other in a circle:",
        "  planted.one, line 2: from .two import f",
        "  planted.three, line 1: from . import one, below",
        "  planted.two, line 3: from .three import T",
    ]


def test_what_has_no_circle_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"one": "from . import two, three\n", "two": "from . import three\n", "three": ""}
    assert report(planted(tmp_path, lines, monkeypatch)) == ""


def test_one_life_and_no_name_for_two_classes() -> None:
    assert measures.lifecycles() == ["_run.py:release"]
    assert measures.shared_names() == []


def test_nobody_above_the_products_asks_which_kind_a_release_is() -> None:
    assert list(measures.questions()) == []


def test_a_spec_passes_few_modules_and_never_climbs(tmp_path: Path) -> None:
    stops, climbs = walk(tmp_path)
    assert {"tabulae._run", "tabulae.products.tables.product", "tabulae.release.write"} <= set(stops)
    assert len(stops) <= 15
    assert climbs == []


def test_few_modules_have_one_reader() -> None:
    """Where this fails: join the module to the one that reads it, or to its family."""
    assert len(measures.one_importer(grimp.build_graph("tabulae", cache_dir=None))) < 60


def test_hooks_and_ci_lint_with_the_commands_of_make() -> None:
    make = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0].splitlines()[1:]
    wanted = [
        line.strip().replace(" --pythonpath $(BIN)/python", "").removeprefix("$(BIN)/") for line in make
    ]
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    ci = (ROOT / ".ci/run").read_text().splitlines()
    assert len(wanted) == 5
    assert hooks == wanted
    assert [line for line in ci if line in wanted] == wanted


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {tb.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_map_shows_the_rooms_of_the_contract() -> None:
    """Where this fails: ``python docs/rooms.py``."""
    drawn = runpy.run_path(str(ROOT / "docs/rooms.py"))["picture"]()
    assert (ROOT / "docs/assets/rooms.svg").read_text(encoding="utf-8") == drawn


def test_the_page_on_architecture_names_what_there_is() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.[a-z]+)?)`", page))
    assert len(named) > 30
    places = (ROOT, ROOT / "src", ROOT / "src/tabulae", ROOT / "src/tabulae/strategy")
    assert not {name for name in named if not any((place / name).exists() for place in places)}
