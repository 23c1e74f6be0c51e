"""No published time tells how long the records were counted: all are the moment at which the run began."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.duchy import write_duchy
from tests.guild import write_guild
from tests.village import write_village

import tabulae as tb
from tabulae._run import Step

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+:.\dZ]*")
_WRITE = {"village": write_village, "guild": write_guild, "duchy": write_duchy}


def _texts(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".txt", ".md", ".html", ".csv", ".toml"):
            yield path.read_text()
        elif path.is_file():
            yield path.read_bytes().decode("latin-1")


@pytest.mark.parametrize("kind", ["village", pytest.param("guild", marks=pytest.mark.long), "duchy"])
@pytest.mark.parametrize("resumed", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_time_is_that_of_the_beginning(kind: str, resumed: bool, tmp_path: Path) -> None:
    spec = _WRITE[kind](tmp_path)
    before: list[float] = []

    def slowly(step: Step) -> None:
        if step == "planned":
            before.append(time.time())
        if step == "counted":
            time.sleep(1.02 - time.time() % 1)  # times are said in seconds: the next one
        if resumed and step == "stored":
            raise KeyboardInterrupt

    if resumed:
        with pytest.raises(KeyboardInterrupt):
            tb.run(spec, tmp_path / "release", at=slowly)
        release = tb.run(spec, tmp_path / "release", resume=True)
    else:
        release = tb.run(spec, tmp_path / "release", at=slowly)
    found = {time for text in _texts(release.path) for time in _TIME.findall(text)}
    assert found == {release.descriptor["created"]}
    begun = datetime.fromisoformat(release.descriptor["created"]).timestamp()
    assert begun <= before[0]
    assert {path.stat().st_mtime for path in (release.path, *release.path.rglob("*"))} == {begun}
    entries = tb.Ledger.open(tmp_path / "ledger.db").entries(release.about["release_id"])
    own = {entry["time"] for entry in entries if entry["kind"] != "published"}
    assert own == {release.descriptor["created"]}
    if not resumed:  # the hash of the entry of the publication stands in the next release
        assert json.dumps(entries).count(release.descriptor["created"]) == len(entries)
