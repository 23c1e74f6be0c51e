"""A ledger that would refuse is told before anything is planned, with the command that cures it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.cli.test_cli import _call, _fails
from tests.passages import changed

import tabulae as tb
from tabulae.errors import LedgerError


def _steps_of(spec: Path) -> list[str]:
    """How far a run comes that its ledger refuses."""
    steps: list[str] = []
    with pytest.raises(LedgerError):
        tb.run(spec, spec.parent / "out", at=steps.append)
    assert not list(spec.parent.glob("*out*"))
    return steps


def _cure(told: str) -> list[str]:
    """The command in the last line of a message."""
    words = shlex.split(told.rstrip().splitlines()[-1])
    assert words[0] == "tabulae"
    return words[1:]


def test_a_missing_ledger_is_cured_by_the_command_that_is_told(village: Path) -> None:
    (village.parent / "ledger.db").unlink()
    village.write_text(village.read_text() + '\n[method]\nselect = "identity"\n')
    changed(village, ('unit = "person"', 'unit = "household of a person\'s"'))
    changed(village, ('definition = "zcdp"', 'definition = "approx"\nneighbours = "replace"'))
    assert _steps_of(village) == []
    refused = _call("run", village, "--out", village.parent / "out")
    _fails(refused, 1, "there is no ledger at", "make it once")
    for verb in ("check", "plan"):
        told = _call(verb, village)
        assert told.exit_code == 0
        assert _cure(told.stdout) == _cure(refused.stderr)
    assert _call(*_cure(refused.stderr)).exit_code == 0
    assert "there is no ledger" not in _call("check", village).stdout
    assert _call("run", village, "--out", village.parent / "out").exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('unit = "person"', 'unit = "household"', "the spec has unit 'household', and its ledger"),
        ('definition = "zcdp"', 'definition = "approx"', "write 'zcdp' under [privacy] definition"),
        (
            'delta = "1e-10"',
            'delta = "1e-10"\nneighbours = "replace"',
            "write 'add-remove' under [privacy] neighbours",
        ),
        ('budget = "1/2"', 'budget = "3/2"', 'write budget = "1" or less'),
    ],
)
def test_a_ledger_that_would_refuse_is_told_first(village: Path, before: str, after: str, told: str) -> None:
    changed(village, (before, after))
    assert _steps_of(village) == []
    refused = _call("run", village, "--out", village.parent / "out")
    _fails(refused, 3, told, "never changes")
    for verb in ("check", "plan"):
        said = _call(verb, village)
        assert said.exit_code == 0
        assert (
            f"Warning   a run would be refused: {refused.stderr.removeprefix('tabulae: ').strip()}"
            in said.stdout
        )
    cure = _cure(refused.stderr)
    cure[cure.index("another.db")] = str(village.parent / "another.db")
    assert _call(*cure).exit_code == 0
    changed(village, ("ledger.db", "another.db"))
    assert "refused" not in _call("check", village).stdout
    assert tb.Ledger.open(village.parent / "ledger.db").spent == 0


def test_an_exhausted_ledger_is_not_answered_with_another_one(village: Path) -> None:
    """That would promise for each alone, as the page on series says."""
    for out in ("one", "two"):
        assert _call("run", village, "--out", village.parent / out).exit_code == 0
    assert _steps_of(village) == []
    refused = _call("run", village, "--out", village.parent / "out")
    _fails(refused, 3, "0 of 1 is left", "it pays for nothing more", "nobody adds up")
