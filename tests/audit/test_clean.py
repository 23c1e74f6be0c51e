"""The path as it is passes its audit, under every mechanism; no record and no ledger need exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.specs import DEFINITIONS, METHODS, SOURCES, fails, told_of_rows_left_out, write_spec
from tests.passages import changed
from tests.village import SPEC

import tabulae as tb
from tabulae.audit import Audit, audit
from tabulae.demo import write_demo
from tabulae.errors import InvalidArgument, SpecError, Unsupported

NAMES = {
    "replay", "row-order", "noise", "shape", "draws", "rehearsal", "sensitivity", "law", "budget", "epsilon",
}  # fmt: skip
EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [
    (method, definition, ("add-remove", "replace")[(i + j) % 2], list(SOURCES)[(i + j) % 3])
    for i, method in enumerate(METHODS)
    for j, definition in enumerate(DEFINITIONS)
]
# one cell each, and groups; other tests have zCDP, the workload itself, a search (here below), and CSV
SOME = [CASES[i * len(DEFINITIONS) + j] for i, j in ((0, 1), (2, 0))]


def _assert_clean(made: Audit) -> None:
    assert made.failed == (), [c for c in made.checks if not c.passed]
    kinds = {"replace one"} if made.plan.spec.neighbours == "replace" else {"remove one", "add one"}
    told = {"left out"} if made.plan.spec.left_out else set[str]()
    assert {check.name for check in made.checks} == NAMES | kinds | told


@pytest.mark.parametrize(
    ("method", "definition", "neighbours", "source"),
    [*SOME, *(pytest.param(*case, marks=pytest.mark.long) for case in CASES if case not in SOME)],
)
def test_every_mechanism_passes(
    tmp_path: Path, method: str, definition: str, neighbours: str, source: str
) -> None:
    spec = write_spec(tmp_path, definition=definition, method=method, neighbours=neighbours, source=source)
    made = audit(spec, seconds=0.05)
    _assert_clean(made)
    # The neighbours found by writing columns out reach the sensitivity: the check could not be closer.
    assert made["sensitivity"].observed == made["law"].observed == 1.0 or definition == "approx gaussian"
    change = made["replace one" if neighbours == "replace" else "add one"]
    assert change.observed == 1.0
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("definition", ["pure", "zcdp"])
def test_units_of_several_rows_pass(tmp_path: Path, definition: str, neighbours: str) -> None:
    units = 'unit_id = "id"\nrows_per_unit = 3'
    spec = write_spec(tmp_path, definition=definition, neighbours=neighbours, units=units)
    made = audit(spec, seconds=0.05)
    _assert_clean(made)
    assert made["sensitivity"].observed == 1.0


def _told(folder: Path, definition: str, neighbours: str) -> Path:
    """A spec of units whose rows left out are counted."""
    units = 'unit_id = "id"\nrows_per_unit = 3'
    return told_of_rows_left_out(
        write_spec(folder, definition=definition, neighbours=neighbours, units=units)
    )


def test_what_is_told_of_rows_left_out_passes(tmp_path: Path) -> None:
    """The checks that look at it; all of them: the next test."""
    found = fails(
        tb.plan(_told(tmp_path, "zcdp", "add-remove")), passes=("noise", "add one", "law", "left out")
    )
    assert found["left out"].observed == pytest.approx(1, abs=1e-9)
    assert found["add one"].observed == 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("definition", "neighbours"),
    [
        ("zcdp", "add-remove"),
        ("pure", "replace"),
        ("approx gaussian", "replace"),
        ("approx laplace", "add-remove"),
    ],
)
def test_every_check_of_rows_left_out_passes(tmp_path: Path, definition: str, neighbours: str) -> None:
    made = audit(_told(tmp_path, definition, neighbours), seconds=0.05)
    _assert_clean(made)
    assert made["left out"].observed == pytest.approx(1, abs=1e-9)
    changed = "replace one" if neighbours == "replace" else "add one"
    assert made[changed].observed == 1.0


@pytest.mark.long
def test_the_village_passes_and_the_bound_is_of_some_use(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    for seconds in (1, 20):  # one second is enough on an idle core
        made = audit(tmp_path / "spec.toml", seconds=seconds)
        _assert_clean(made)
        if made["epsilon"].observed:
            break
    assert 0 < made["epsilon"].observed < made["epsilon"].allowed  # type: ignore[operator]


@pytest.mark.long
def test_adult_passes() -> None:
    _assert_clean(audit(EXAMPLES / "adult.toml", seconds=0.05))


@pytest.mark.long
def test_the_demo_passes(tmp_path: Path) -> None:
    _assert_clean(audit(write_demo(tmp_path / "demo", people=10), seconds=0.05))


@pytest.mark.long
def test_equal_seeds_show_equal_figures(tmp_path: Path) -> None:
    made = tb.plan(write_spec(tmp_path))
    one, other = (audit(made, seconds=0.01).checks[:-1] for _ in range(2))
    assert one == other


@pytest.mark.long
def test_a_plan_of_a_larger_domain_is_searched(tmp_path: Path) -> None:
    """Replace-one over 24,000 cells: pairs cannot all be listed, and the declared bound holds for those found."""
    spec = write_spec(tmp_path, neighbours="replace", definition="zcdp", method="workload")
    wide = "".join(f"w{i} = {{ range = [0, 9] }}\n" for i in range(2))
    changed(spec, ("[recodes]", wide + "[recodes]"))
    tables = (("wide", '["w0", "w1"]'), ("w", '["w1", "age"]'))
    extra = "".join(f'[[table]]\nname = "{name}"\nattributes = {of}\n' for name, of in tables)
    changed(spec, ("[method]", extra + "\n[method]"))
    made = audit(spec, seconds=0.05)
    _assert_clean(made)
    assert "of a search" in made["sensitivity"].detail
    assert made["sensitivity"].observed > 0.9  # type: ignore[operator]


def test_bad_input(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(InvalidArgument, match="seconds"):
            audit(spec, seconds=seconds)
    with pytest.raises(SpecError):
        audit(tmp_path / "absent.toml")
    text = spec.read_text()
    spec.write_text(text.replace('unit = "person"', 'unit = "person"\nunit_id = "AGE"'))
    with pytest.raises(Unsupported, match="unit_id"):
        audit(spec)
    spec.write_text(text.replace('column = "SEX"', 'column = "AGE"'))
    with pytest.raises(Unsupported, match="AGE"):
        audit(spec)
