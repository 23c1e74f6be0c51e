"""Runs that stop: nothing was charged, or the charge is void, or the very same measurements are published later.

One matrix for every kind of release: each step of a run x how it stops there. It runs whole with the long tests; the
short ones stop one kind at every step and in every way, and every kind before, within or after what makes a charge one
that is settled.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NoReturn, get_args

import pytest
from tests.duchy import write_barony, write_duchy
from tests.guild import write_guild
from tests.run.stops import kill, make
from tests.safetab.world import PERSONS, write_bureau
from tests.village import write_village

import tabulae as tb
from tabulae._run import Step
from tabulae.errors import LedgerError, ReleaseError, Unsupported
from tabulae.release.folder import SUMS, check_sums, write_sums

LOSSES = {
    "village": Fraction(1, 2),
    "guild": Fraction(5, 2),
    "duchy": Fraction(2),
    "barony": Fraction(2),
    "bureau": Fraction(2),
}
WRITE = {
    "village": write_village,
    "guild": write_guild,
    "duchy": write_duchy,
    "barony": write_barony,
    "bureau": write_bureau,
}
CHEAPER = {
    "village": ("[[table]]", '[method]\nselect = "identity"\n\n[[table]]'),
    "guild": ("", ""),
    "bureau": ("", ""),
    "duchy": ("[release]\nmicrodata = true", '[method]\nestimate = "gls"'),
    "barony": ("", ""),
}
FREE: tuple[Step, ...] = ("planned", "marked", "counted")
LOST: tuple[Step, ...] = ("charged", "measured")
KEPT: tuple[Step, ...] = ("stored", "published", "sealed")
AROUND: set[tuple[str, Step]] = {
    ("guild", "placed"),
    ("duchy", "counted"),
    ("barony", "placed"),
    ("bureau", "counted"),
}
"""Before a charge, or where it has just become one that is settled; within it all kinds are stopped further below."""
DRAWN = {  # called when the charge has been made
    "village": "tabulae.products.tables.measure._noisy",
    "guild": "tabulae.products.groups.measure._measured",
    "duchy": "tabulae.products.areas.measure._pieces",
    "barony": "tabulae.products.areas.measure._noise",
    "bureau": "tabulae.products.groups.measure._measured",
}
STORED = {
    "village": "tabulae.products.tables.store.MeasurementWriter",
    "guild": "tabulae.products.groups.store.GroupMeasurementWriter",
    "duchy": "tabulae.products.areas.store.SpineMeasurementWriter",
    "barony": "tabulae.products.areas.sparse.store.SupportedMeasurementWriter",
    "bureau": "tabulae.products.groups.store.GroupMeasurementWriter",
}
WRITTEN = {
    "village": "tabulae.products.tables.product.write_contents",
    "guild": "tabulae.products.groups.product.write_groups",
    "duchy": "tabulae.products.areas.product.write_spine",
    "barony": "tabulae.products.areas.product.write_spine",
    "bureau": "tabulae.interop.safetab.product.write_tables",
}
kinds = pytest.mark.parametrize("kind", LOSSES)


def some_kinds(*short: str) -> pytest.MarkDecorator:
    """These kinds; all of them with the long tests."""
    marked = [pytest.param(kind, marks=[] if kind in short else pytest.mark.long) for kind in LOSSES]
    return pytest.mark.parametrize("kind", marked)


class Stopped(Exception):
    """What stops a run."""


class Scene:
    """A spec of one kind, its ledger, and the release that is being made."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.spec = WRITE[kind](folder)
        self.document = self.spec / "params/config.json" if kind == "bureau" else self.spec
        self.people = self.spec / "data" / PERSONS if kind == "bureau" else folder / "people.csv"
        self.document.write_text(self.document.read_text().replace(*CHEAPER[kind], 1))
        self.out, self.partial = folder / "release", folder / ".release.partial"
        self.ledger = tb.Ledger.open(folder / "ledger.db")

    @property
    def states(self) -> list[str]:
        """Of the charges; every one of them stays spent."""
        found = self.ledger.charges()
        assert self.ledger.spent == len(found) * LOSSES[self.kind]
        return [charge.state for charge in found]

    def measurements(self) -> dict[str, bytes]:
        """The stored measurements, byte by byte."""
        place = self.out if self.out.exists() else self.partial
        return {path.name: path.read_bytes() for path in (place / "measurements").iterdir()}

    def nothing_is_left(self) -> bool:
        """Neither a release nor a part of one."""
        return not list(self.folder.glob("*release*"))

    def is_made(self, *states: str, resume: bool = False) -> None:
        """The run makes a whole release, of the last of these charges."""
        release = make(self.spec, self.out, resume=resume)
        assert (check_sums(release.path) if self.kind == "bureau" else release.verify()) == []
        assert self.states == list(states)
        assert not self.partial.exists()

    def is_published_as_stored(self) -> None:
        """Resuming makes the release of what is stored, paid once; the records are not needed any more."""
        assert self.states == ["charged"]
        stored = self.measurements()
        self.people.unlink()
        self.is_made("published", resume=True)
        assert self.measurements() == stored


@pytest.fixture
def scene(kind: str, tmp_path: Path) -> Scene:
    return Scene(kind, tmp_path)


def _stop_at(wanted: Step, error: type[BaseException] = Stopped) -> Callable[[Step], None]:
    def stop(step: Step) -> None:
        if step == wanted:
            raise error

    return stop


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(
            kind, step, marks=[] if kind == "village" or (kind, step) in AROUND else pytest.mark.long
        )
        for kind in LOSSES
        for step in get_args(Step)
    ],
)
def test_an_error_at_any_step(scene: Scene, step: Step) -> None:
    with pytest.raises(Stopped):
        make(scene.spec, scene.out, at=_stop_at(step))
    if step == "placed":
        assert scene.states == ["charged"]
        scene.is_made("published", resume=True)
    elif step in KEPT:
        with pytest.raises(ReleaseError, match="--resume"):
            make(scene.spec, scene.out)
        scene.is_published_as_stored()
    else:
        assert scene.states == ["void"] * (step in LOST)
        assert scene.nothing_is_left()
        with pytest.raises(ReleaseError, match="no unfinished run"):
            make(scene.spec, scene.out, resume=True)
        scene.is_made(*scene.states, "published")
    assert set(FREE + LOST + KEPT + ("placed",)) == set(get_args(Step))


BY: dict[str, tuple[str, str]] = {
    "village": ('select = "identity"', 'select = "identity"\nestimate = "non-negative"'),
    "guild": ("[detailed]", '[method]\nestimate = "posterior"\n\n[detailed]'),
    "duchy": ('estimate = "gls"', 'estimate = "topdown"'),
}
"""Another estimator of the same measurements."""


@pytest.mark.parametrize("kind", ["village", "guild"])
def test_a_run_is_finished_with_another_estimator(scene: Scene) -> None:
    """The plain one's release is as if the run had never had the other: nothing of that is published."""
    plain = scene.spec.read_text()
    scene.spec.write_text(plain.replace(*BY[scene.kind], 1))
    with pytest.raises(Stopped):
        make(scene.spec, scene.out, at=_stop_at("sealed"))
    other = {path.name for path in scene.partial.iterdir()}
    scene.spec.write_text(plain)
    scene.is_published_as_stored()
    left = {path.name for path in scene.out.iterdir()}
    assert left == other - {"plan.json", "implicates.parquet", "posterior.json"}
    assert tb.Release.read(scene.out).spec.method.estimate != "posterior"


@pytest.mark.parametrize("kind", ["village"])
def test_what_cannot_be_estimated_is_said_with_the_way_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = scene.spec.read_text()
    scene.spec.write_text(plain.replace(*BY["village"], 1))
    with monkeypatch.context() as broken:

        def refuse_from_now_on(step: Step) -> None:  # what is seen on made-up answers costs nothing
            if step == "stored":
                no_cells = _raising(Unsupported("no such cells"))
                broken.setattr("tabulae.products.tables.product.reconstruct", no_cells)

        told = r"^no such cells\. .* another estimate under \[method\], and --resume"
        with pytest.raises(Unsupported, match=told):
            make(scene.spec, scene.out, at=refuse_from_now_on)
    scene.spec.write_text(plain)
    scene.is_published_as_stored()


@pytest.mark.parametrize("kind", ["duchy"])
def test_measurements_of_areas_keep_their_estimator(scene: Scene) -> None:
    with pytest.raises(Stopped):
        make(scene.spec, scene.out, at=_stop_at("stored"))
    plain = scene.spec.read_text()
    scene.spec.write_text(plain.replace(*BY["duchy"], 1))
    with pytest.raises(ReleaseError, match="resume with the same spec"):
        make(scene.spec, scene.out, resume=True)
    scene.spec.write_text(plain)
    scene.is_published_as_stored()


@pytest.mark.parametrize("kind", ["village"])
@pytest.mark.parametrize(
    "change",
    [
        ('budget = "1/2"', 'budget = "1/4"'),
        ("range = [0, 19]", "range = [0, 20]"),
        ('select = "identity"', 'select = "workload"'),
    ],
)
def test_measurements_are_of_their_budget_and_records(scene: Scene, change: tuple[str, str]) -> None:
    with pytest.raises(Stopped):
        make(scene.spec, scene.out, at=_stop_at("stored"))
    plain = scene.spec.read_text()
    assert change[0] in plain
    scene.spec.write_text(plain.replace(*change, 1))
    with pytest.raises(ReleaseError):
        make(scene.spec, scene.out, resume=True)
    scene.spec.write_text(plain)
    scene.is_published_as_stored()


KILLED = ("counted", "charged", "stored", "published", "sealed")
KILLED_SHORT = (
    ("village", "counted"),
    ("village", "charged"),
    ("guild", "stored"),
    ("duchy", "sealed"),
)


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(kind, step, marks=[] if (kind, step) in KILLED_SHORT else pytest.mark.long)
        for kind in ("village", "guild", "duchy", "barony")
        for step in KILLED
    ],
)
def test_killed_at_a_step(scene: Scene, step: Step) -> None:
    kill(step, scene.spec, scene.out)
    assert not scene.out.exists()
    with pytest.raises(ReleaseError, match="--resume"):
        make(scene.spec, scene.out)
    if step in FREE:
        assert scene.states == []
        scene.is_made("published", resume=True)
    elif step in LOST:
        assert scene.states == ["charged"]
        _is_void_on_resuming(scene)
    else:
        scene.is_published_as_stored()


def _is_void_on_resuming(scene: Scene) -> None:
    said = "void and stays spent, and its exact counts" if scene.kind == "duchy" else "void and stays spent"
    with pytest.raises(ReleaseError, match=said):
        make(scene.spec, scene.out, resume=True)
    assert scene.states == ["void"]
    assert scene.nothing_is_left()
    scene.is_made("void", "published")


@pytest.mark.parametrize(
    ("kind", "where", "call"),
    [
        ("village", "tabulae.products.tables.store.MeasurementWriter.finish", 1),
        pytest.param("guild", "tabulae.products.groups.measure._measured", 2, marks=pytest.mark.long),
        pytest.param(
            "guild",
            "tabulae.products.groups.store.GroupMeasurementWriter.__call__",
            2,
            marks=pytest.mark.long,
        ),
        ("duchy", "tabulae.products.areas.store.SpineMeasurementWriter.__call__", 3),
        pytest.param(
            "barony",
            "tabulae.products.areas.sparse.store.SupportedMeasurementWriter.__call__",
            3,
            marks=pytest.mark.long,
        ),
        pytest.param("barony", "tabulae.products.areas.measure._noise", 4, marks=pytest.mark.long),
        pytest.param(
            "barony",
            "tabulae.products.areas.sparse.store.SupportedMeasurementWriter.complete",
            1,
            marks=pytest.mark.long,
        ),
    ],
)
def test_killed_before_all_is_stored(scene: Scene, where: str, call: int) -> None:
    kill(where, scene.spec, scene.out, call=call)
    assert scene.states == ["charged"]
    _is_void_on_resuming(scene)


@pytest.mark.parametrize(
    ("kind", "where", "call"),
    [
        ("village", "tabulae.privacy.ledger.Ledger.settle", 1),
        ("duchy", "tabulae.products.areas.tasks.FallTask.__call__", 1),
        pytest.param("duchy", "tabulae.release.folder.TableWriter.write", 4, marks=pytest.mark.long),
        pytest.param("barony", "tabulae.release.folder.TableWriter.write", 4, marks=pytest.mark.long),
        pytest.param("barony", "tabulae.products.areas.publish.write_microdata", 1, marks=pytest.mark.long),
    ],
)
def test_killed_while_it_publishes(scene: Scene, where: str, call: int) -> None:
    kill(where, scene.spec, scene.out, call=call)
    scene.is_published_as_stored()


@pytest.mark.parametrize("kind", ["duchy"])  # of which all that was written is kept
def test_a_page_that_was_half_written_is_not_sealed(scene: Scene) -> None:
    """The page's line of the checksums is added to those of the folder: they are those of all files in the end."""
    kill("published", scene.spec, scene.out)
    scene.partial.joinpath(".report.html.draft").write_bytes(b"<html>")
    scene.is_published_as_stored()
    listed = (scene.out / SUMS).read_bytes()
    assert b"draft" not in listed
    write_sums(scene.out)
    assert (scene.out / SUMS).read_bytes() == listed


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        pytest.param(
            kind, error, marks=[] if kind == "village" or error is KeyboardInterrupt else pytest.mark.long
        )
        for kind in LOSSES
        for error in (KeyboardInterrupt, MemoryError, OSError(errno.EIO, "Input/output error"))
    ],
)
def test_noise_that_is_not_drawn_voids_the_charge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(DRAWN[scene.kind], _raising(error))
    with pytest.raises(ReleaseError if isinstance(error, OSError) else error):  # type: ignore[arg-type]
        make(scene.spec, scene.out)
    assert scene.states == ["void"]
    assert scene.nothing_is_left()


def _raising(error: BaseException) -> Callable[..., NoReturn]:
    def fails(*given: object, **named: object) -> NoReturn:
        raise error

    return fails


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        *(("village", "__call__"), ("village", "finish"), ("guild", "__call__"), ("duchy", "finish")),
        *(("barony", "__call__"), ("bureau", "finish")),
        *(
            pytest.param(kind, part, marks=pytest.mark.long)
            for kind, part in (
                *(("guild", "finish"), ("duchy", "__call__"), ("barony", "finish"), ("bureau", "__call__")),
            )
        ),
    ],
)
def test_a_disk_that_fills_before_all_is_stored_voids_the_charge(
    scene: Scene, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(f"{STORED[scene.kind]}.{part}", _raising(FULL))
        with pytest.raises(
            ReleaseError, match=r"the disk is full\. Nothing was published; .* is void"
        ) as said:
            make(scene.spec, scene.out)
    assert str(said.value).count("Nothing was published") == 1
    assert scene.states == ["void"]
    assert scene.nothing_is_left()


@some_kinds("village", "bureau")
def test_a_charge_that_cannot_be_marked_void_stays_spent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabulae.privacy.ledger.Ledger.settle", _raising(LedgerError("locked")))
    monkeypatch.setattr(DRAWN[scene.kind], _raising(FULL))
    with pytest.raises(ReleaseError, match="could not be marked void in the ledger, but stays spent"):
        make(scene.spec, scene.out)
    assert scene.states == ["charged"]
    assert scene.nothing_is_left()


@some_kinds("village", "bureau")
def test_a_charge_that_could_not_be_seen_is_settled_on_resuming(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_it(*given: object, **named: object) -> NoReturn:
        charge(*given, **named)
        monkeypatch.setattr("tabulae.privacy.ledger.Ledger.find", _raising(LedgerError("locked")))
        raise MemoryError

    charge = tb.Ledger.charge
    with monkeypatch.context() as broken:
        broken.setattr("tabulae.privacy.ledger.Ledger.charge", lose_it)
        with pytest.raises(MemoryError):
            make(scene.spec, scene.out)
    monkeypatch.undo()
    assert scene.states == ["charged"]
    _is_void_on_resuming(scene)


@some_kinds("village", "guild", "barony")
def test_a_disk_that_fills_while_tables_are_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(WRITTEN[scene.kind], _raising(FULL))
        with pytest.raises(ReleaseError, match=r"the disk is full.* stays charged, and --resume finishes"):
            make(scene.spec, scene.out)
    scene.is_published_as_stored()


@some_kinds("village", "duchy")
def test_what_cannot_be_stored_is_refused_before_it_is_paid_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReleaseError, match=r"none does not exist: make it first. Nothing was charged"):
        make(scene.spec, scene.folder / "none/release")
    for where in ("pathlib.Path.mkdir", "tabulae.release.folder.os.fsync"):
        with monkeypatch.context() as full:
            full.setattr(where, _raising(FULL))
            with pytest.raises(ReleaseError, match=r"the disk is full.* and nothing was charged"):
                make(scene.spec, scene.out)
    with monkeypatch.context() as full:
        full.setattr(f"{STORED[scene.kind]}.__enter__", _raising(FULL))
        with pytest.raises(ReleaseError, match=r"the disk is full. Nothing was charged"):
            make(scene.spec, scene.out)
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, 1))
        with pytest.raises(ReleaseError, match=r"may take .* on disk.* Nothing was charged"):
            make(scene.spec, scene.out)
    assert scene.states == []
    assert scene.nothing_is_left()


@some_kinds("village", "bureau")
def test_a_run_is_not_resumed_by_an_edited_spec(scene: Scene) -> None:
    """It would find no charge of its own, and so charge a second time."""
    right = scene.document.read_text()
    kill("charged", scene.spec, scene.out)
    changed = (
        ('"zero_', '"thresholds_h_": {}, "zero_')
        if scene.kind == "bureau"
        else ('title = "', 'title = "Another ')
    )
    scene.document.write_text(right.replace(*changed, 1))
    with pytest.raises(ReleaseError, match=r"the spec was edited since.* resume with the spec as it was"):
        make(scene.spec, scene.out, resume=True)
    assert scene.states == ["charged"]
    scene.document.write_text(right)
    _is_void_on_resuming(scene)


@some_kinds("barony", "bureau")
def test_a_resume_killed_while_it_voids_does_not_charge_later(scene: Scene) -> None:
    kill("charged", scene.spec, scene.out)
    kill("tabulae.privacy.ledger.Ledger.settle", scene.spec, scene.out, resume=True)
    assert scene.states == ["charged"]
    with pytest.raises(ReleaseError, match="void"):
        make(scene.spec, scene.out, resume=True)
    scene.partial.mkdir()  # as if it had been killed when the charge was void
    with pytest.raises(ReleaseError, match="void"):
        make(scene.spec, scene.out, resume=True)
    assert scene.states == ["void"]
    assert scene.nothing_is_left()
