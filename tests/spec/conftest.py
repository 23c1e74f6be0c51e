"""A document that is right, the files it names, and ways to change a passage of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.passages import replaced
from tests.spec.states import State, write_state

from tabulae.errors import Problem, SpecError
from tabulae.spec import Spec

GOOD = """\
title = "Demo county, persons"

[source]
path = "people.csv"
unit = "person"

[attributes]
sex = { column = "SEX", categories = ["F", "M"] }
age = { column = "AGE", range = [0, 114] }
race = { column = "RACE", codes = "codes/race.csv" }

[recodes]
age5 = { of = "age", edges = [5, 10, 15, 18] }
major = { of = "race", map = "codes/major.csv" }

[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"

[[table]]
name = "sex_by_age"
attributes = ["sex", "age5"]

[[table]]
name = "young_or_old"
sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR age > 80 GROUP BY sex"
"""

RACE = "code,label,parent\n01,White,one\n02,Black,one\n03,Both,two\n"
MAJOR = "code,class,label\n01,a,alone\n02,a,alone\n03,b,both\n"


@dataclass(frozen=True)
class Desk:
    """A folder with the files that ``good`` names."""

    base: Path
    good: str = GOOD

    def file(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder."""
        target = self.base / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def read(self, text: str) -> Spec:
        """A document that has no mistake."""
        return Spec.from_text(text, self.base)

    def changed(self, *passages: tuple[str, str]) -> str:
        """``good`` with passages replaced."""
        return replaced(self.good, *passages, most=1)

    def problems(self, text: str) -> list[Problem]:
        """Every mistake of a document that has some."""
        with pytest.raises(SpecError) as caught:
            Spec.from_text(text, self.base)
        return caught.value.problems


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.file("codes/race.csv", RACE)
    desk.file("codes/major.csv", MAJOR)
    return desk


@pytest.fixture
def state(tmp_path: Path) -> State:
    return write_state(tmp_path)
