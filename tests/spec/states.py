"""A small state: its spec, its public files, and ways to change a passage of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.passages import replaced

from tabulae.errors import Problem, SpecError
from tabulae.products.areas.spec.section import Geography
from tabulae.spec import Spec

TEXT = """\
title = "Small state"
[source]
path = "people.parquet"
[attributes]
hhgq = { categories = ["household", "nursing", "jail"] }
age = { range = [0, 3] }
race = { categories = ["a", "b", "c"] }
[recodes]
group = { of = "hhgq", map = "group.csv" }
adult = { of = "age", edges = [2] }
[privacy]
definition = "zcdp"
budget = "2"
delta = "1e-10"
neighbours = "replace"
ledger = "ledger.db"
[geography]
column = "block"
file = "spine.csv"
levels = ["state", "county", "tract", "block"]
entities = ["place"]
outside = { place = "99" }
shares = { state = "1/4", county = "1/4", tract = "1/4", block = "1/4" }
[[geography.query]]
attributes = []
shares = { state = "1/2", county = "1/2", tract = "1/3", block = "1/4" }
[[geography.query]]
attributes = ["group"]
shares = { tract = "1/3" }
[[geography.query]]
attributes = ["hhgq", "age", "race"]
shares = { state = "1/2", county = "1/2", tract = "1/3", block = "3/4" }
[[bound]]
attributes = ["hhgq"]
file = "facilities.csv"
unlisted = "zero"
[[structural_zero]]
where = "hhgq = 'nursing' AND age < 2"
[[invariant]]
attributes = []
level = "state"
reason = "apportionment"
[[table]]
name = "total"
attributes = []
[[table]]
name = "race by adult"
attributes = ["race", "adult"]
areas = ["county", "place"]
"""
GROUP = "code,class,label\nhousehold,h,home\nnursing,i,institution\njail,i,institution\n"
SPINE = """\
state,county,tract,block,place,tribe
01,01001,01001A,0001,10,
01,01001,01001A,0002,10,T
01,01001,01001B,0003,99,T
01,01001,01001B,0004,,
01,01003,01003A,0005,10,
01,01003,01003A,0006,20,
01,01003,01003A,0007,20,T
01,01003,01003B,0008,20,
"""
FACILITIES = """\
block,hhgq,at_least,at_most
0001,household,,
0001,nursing,2,
0002,household,,100
0003,household,,
0003,jail,1,40
0004,household,,
0005,household,,
0006,household,,
0007,household,,
"""


@dataclass(frozen=True)
class State:
    """A folder with the files that the spec names."""

    base: Path
    text: str = TEXT

    def file(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder."""
        (self.base / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def changed(self, *passages: tuple[str, str]) -> str:
        """The spec with passages replaced."""
        return replaced(self.text, *passages, most=1)

    def geography(self, *passages: tuple[str, str]) -> Geography:
        """What a spec without a mistake has under [geography]."""
        read = self.spec(*passages).geography
        assert read is not None
        return read

    def spec(self, *passages: tuple[str, str]) -> Spec:
        """A spec without a mistake."""
        return Spec.from_text(self.changed(*passages), self.base)

    def problems(self, *passages: tuple[str, str]) -> list[Problem]:
        """Every mistake of a spec that has some."""
        with pytest.raises(SpecError) as caught:
            self.spec(*passages)
        return caught.value.problems


def write_state(base: Path) -> State:
    """The state with its files."""
    state = State(base)
    for name, content in (("spine.csv", SPINE), ("facilities.csv", FACILITIES), ("group.csv", GROUP)):
        state.file(name, content)
    return state
