"""What a run says while it lasts: how much is done, and nothing that follows from the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.run.stops import make
from tests.run.test_stops import Scene, kinds

from tabulae.release.progress import Progress, timed


def _told(kind: str, folder: Path, kept: int) -> list[tuple[str, float | None]]:
    """What a run says of so many lines of the records."""
    folder.mkdir()
    scene = Scene(kind, folder)
    lines = scene.people.read_text().splitlines(keepends=True)
    scene.people.write_text("".join(lines[:kept]))
    told: list[Progress] = []
    make(scene.spec, scene.out, say=told.append)
    assert all(each.left is None or each.left >= 0 for each in told)
    return [(each.step, each.share) for each in told]


@pytest.mark.parametrize("kind", ["guild", "duchy"])
def test_shares_rise_to_the_end(kind: str, tmp_path: Path) -> None:
    told = _told(kind, tmp_path / "few", 2)
    shares = [share for _, share in told if share is not None]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert 0.85 < shares[-1] <= 1
    assert len(set(shares)) >= 4


@pytest.mark.long
@kinds
def test_words_and_shares_are_the_same_for_other_records(kind: str, tmp_path: Path) -> None:
    """Where counts are sparse, a noisy total of 0 ends the questions: of two records every other run has one."""
    few = 60 if kind == "barony" else 2
    assert _told(kind, tmp_path / "all", 10**6) == _told(kind, tmp_path / "few", few)


def test_what_is_resumed_is_timed_from_where_it_goes_on() -> None:
    told: list[Progress] = []
    seconds = iter([10.0, 14.0])
    say = timed(told.append, seconds.__next__)
    say(Progress("planning"))
    say(Progress("estimating", 0.5))
    say(Progress("writing", 0.75))
    assert [each.left for each in told] == [None, None, pytest.approx(4.0)]
