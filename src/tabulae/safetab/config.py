"""config.json: budgets, thresholds and options of a run, its numbers read exactly as they are written."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from ..privacy import exact
from .delimited import read_text
from .faults import Faults
from .region_types import LEVELS, PUERTO_RICO, STATES, US

CONFIG = "config.json"
_TABLES = 3
_LARGEST_COUNT = 1 << 62
_LARGEST_BUDGET = 10**9
_MOST_CODES = 8
_FLAGS = ("allow_negative_counts", "run_us", "run_pr")
_CHOICES = {"reader": ("csv", "cef"), "privacy_defn": ("zcdp", "puredp")}
_STAGE_ONE = "privacy_budget_p_stage_1_fraction"
_CHANCE = "zero_suppression_chance"
_HOUSEHOLDS = (
    "privacy_budget_h_",
    "thresholds_h_",
)  # of the sister program, whose keys may stand in the same file


@dataclass(frozen=True)
class Config:
    """What config.json says; a value with a mistake has a stand-in, and its key is in ``faulty``.

    ``suppression`` is the chance that a count of nobody is dropped, 0 for no suppression. ``budgets`` and
    ``thresholds`` are by (region type, level).
    """

    max_race_codes: int
    definition: str
    budgets: Mapping[tuple[str, str], Fraction]
    stage_one: Fraction
    thresholds: Mapping[tuple[str, str], tuple[int, ...]]
    suppression: Fraction
    allow_negative: bool
    run_us: bool
    run_pr: bool
    states: tuple[str, ...]
    faulty: frozenset[str]

    @property
    def region_types(self) -> tuple[str, ...]:
        """Those of the runs that were chosen, in order."""
        return (US if self.run_us else ()) + (PUERTO_RICO if self.run_pr else ())


def budget_key(region: str, level: str) -> str:
    """The key of one level's budget.

    >>> budget_key("PR-STATE", "2")
    'privacy_budget_p_level_2_pr_state'
    """
    return f"privacy_budget_p_level_{level}_{region.lower().replace('-', '_')}"


def read_config(path: Path, faults: Faults) -> Config | None:
    """Read config.json; None where it is no JSON object at all."""
    text = read_text(path, faults)
    if text is None:
        return None
    try:
        document = json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_Object.of
        )
    except json.JSONDecodeError as error:
        faults.add(CONFIG, f"this is not JSON: {error.msg} (character {error.colno})", error.lineno)
        return None
    except RecursionError:
        faults.add(CONFIG, "this is not a config: brackets are nested too deeply")
        return None
    if not isinstance(document, _Object):
        faults.add(CONFIG, "this is not a config: it must be one JSON object, { ... }", 1)
        return None
    return _Reader(document, text, faults).config()


class _Number(str):
    """A JSON number as it is written, told from a JSON string by its type."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """A JSON object that knows which of its keys were written twice."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, Any]]) -> _Object:
        """The object of these pairs."""
        made = cls(pairs)
        seen: set[str] = set()
        made.repeated = tuple(dict.fromkeys(k for k, _ in pairs if k in seen or seen.add(k)))
        return made


class _Reader:
    """Takes the values out of the document, one rule after the other, and notes what is wrong with them."""

    def __init__(self, document: _Object, text: str, faults: Faults) -> None:
        self.document, self.text, self.faults = document, text, faults
        self.faulty: set[str] = set()

    def config(self) -> Config:
        self._names()
        flags = {key: self._flag(key) for key in _FLAGS}
        choices = {key: self._choice(key, allowed) for key, allowed in _CHOICES.items()}
        if not {"run_us", "run_pr"} & self.faulty and not (flags["run_us"] or flags["run_pr"]):
            self._fault("run_us", "no run is chosen: set run_us or run_pr (or both) to true")
        if choices["reader"] == "cef":
            self.faults.warn(
                CONFIG,
                'reader "cef" is the Bureau\'s internal format: the files are read as csv',
                self._line("reader"),
                "reader",
            )
        runs = (US if flags["run_us"] else ()) + (PUERTO_RICO if flags["run_pr"] else ())
        return Config(
            max_race_codes=self._max_race_codes(),
            definition=choices["privacy_defn"],
            budgets=self._budgets(runs),
            stage_one=self._share(_STAGE_ONE, "strictly between 0 and 1"),
            thresholds=self._thresholds(runs),
            suppression=self._share(_CHANCE, "0 or more and below 1", least_allowed=True)
            if _CHANCE in self.document
            else Fraction(0),
            allow_negative=flags["allow_negative_counts"],
            run_us=flags["run_us"],
            run_pr=flags["run_pr"],
            states=self._states(run=flags["run_us"]),
            faulty=frozenset(self.faulty),
        )

    def _line(self, key: str) -> int | None:
        found = re.search(rf"{re.escape(json.dumps(key))}\s*:", self.text)
        return None if found is None else self.text.count("\n", 0, found.start()) + 1

    def _fault(self, key: str, message: str, column: str | None = None) -> None:
        self.faulty.add(key)
        self.faults.add(CONFIG, message, self._line(column or key), column or key)

    def _get(self, key: str, wanted: str) -> Any:
        if key not in self.document:
            self.faulty.add(key)
            self.faults.add(CONFIG, f"missing: give {wanted}", None, key)
            return None
        return self.document[key]

    def _names(self) -> None:
        known = {*_FLAGS, *_CHOICES, _STAGE_ONE, _CHANCE, "max_race_codes", "thresholds_p", "state_filter_us"}
        known |= {budget_key(region, level) for region in US + PUERTO_RICO for level in LEVELS}
        for key in self.document:
            if key not in known and not key.startswith(_HOUSEHOLDS):
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ": remove it"
                self._fault(key, f"there is no such key{hint}")
        for key in self.document.repeated:
            self._fault(key, "this key is written twice: keep one")

    def _flag(self, key: str) -> bool:
        value = self._get(key, "true or false")
        if value is not None and not isinstance(value, bool):
            self._fault(key, f"must be true or false, not {_shown(value)}")
        return value is True

    def _choice(self, key: str, allowed: tuple[str, ...]) -> str:
        words = " or ".join(f'"{word}"' for word in allowed)
        value = self._get(key, words)
        if value is not None and (isinstance(value, _Number) or value not in allowed):
            self._fault(key, f"must be {words}, not {_shown(value)}")
        return value if isinstance(value, str) and value in allowed else allowed[0]

    def _number(self, key: str, value: Any) -> Fraction | None:
        """A JSON number as an exact fraction; None, and a mistake, where it is none."""
        if not isinstance(value, _Number):
            self._fault(key, f"must be a number, not {_shown(value)}")
            return None
        try:
            return exact(str(value), key)
        except InvalidArgument:
            self._fault(key, f"must be a finite number, not {_shown(value)}")
            return None

    def _share(self, key: str, words: str, *, least_allowed: bool = False) -> Fraction:
        value = self._get(key, f"a number {words}")
        number = None if value is None else self._number(key, value)
        if number is None:
            return Fraction(1, 2)
        if not (0 < number < 1 or (least_allowed and number == 0)):
            self._fault(key, f"must be {words}, not {_shown(value)}")
            return Fraction(1, 2)
        return number

    def _max_race_codes(self) -> int:
        words = f"a whole number from 1 to {_MOST_CODES}"
        value = self._get("max_race_codes", words)
        if value is None:
            return _MOST_CODES
        if not _is_whole(value) or not 1 <= int(value) <= _MOST_CODES:
            self._fault("max_race_codes", f"must be {words}, not {_shown(value)}")
            return _MOST_CODES
        return int(value)

    def _budgets(self, runs: tuple[str, ...]) -> dict[tuple[str, str], Fraction]:
        found = {}
        for region in US + PUERTO_RICO:
            for level in LEVELS:
                key = budget_key(region, level)
                value = self._get(key, "a budget (0 leaves the level out)")
                number = None if value is None else self._number(key, value)
                if number is None:
                    continue
                if not 0 <= number <= _LARGEST_BUDGET:
                    self._fault(key, f"must be 0 or more and at most 10^9, not {_shown(value)}")
                    continue
                found[region, level] = number
        keys = [budget_key(region, level) for region in runs for level in LEVELS]
        if runs and not self.faulty & set(keys) and not any(found[r, k] for r in runs for k in LEVELS):
            self._fault(keys[0], "every level of the chosen runs has budget 0: nothing would be tabulated")
        return found

    def _thresholds(self, runs: tuple[str, ...]) -> dict[tuple[str, str], tuple[int, ...]]:
        value = self._get("thresholds_p", 'an object such as {"(USA, 1)": [5000, 20000, 150000], ...}')
        if value is None:
            return {}
        if not isinstance(value, _Object):
            self._fault("thresholds_p", f"must be an object, not {_shown(value)}")
            return {}
        names = {f"({region}, {level})": (region, level) for region in US + PUERTO_RICO for level in LEVELS}
        for name in value.repeated:
            self._fault("thresholds_p", "this key is written twice: keep one", name)
        for name in value:
            if name not in names:
                words = 'there is no such level: write, for example, "(COUNTY, 2)" or "(PR-TRACT, 1)"'
                self._fault("thresholds_p", words, name)
        found = {}
        for name, pair in names.items():
            if name in value:
                found[pair] = self._steps(name, value[name])
            elif pair[0] in runs:
                self._fault("thresholds_p", f"missing: give {_TABLES} thresholds", name)
        return found

    def _steps(self, name: str, value: Any) -> tuple[int, ...]:
        stand_in = (0,) * _TABLES
        if not isinstance(value, list) or not all(
            _is_whole(step) and abs(int(step)) < _LARGEST_COUNT for step in value
        ):
            self._fault("thresholds_p", f"must be a list of {_TABLES} whole numbers", name)
            return stand_in
        steps = tuple(int(step) for step in value)
        if len(steps) != _TABLES:
            words = f"must be {_TABLES} thresholds, one for each table of sex by age, not {len(steps)}"
            self._fault("thresholds_p", words, name)
            return stand_in
        if any(a > b for a, b in pairwise(steps)):
            self._fault("thresholds_p", f"thresholds must not fall: {list(steps)}", name)
            return stand_in
        return steps

    def _states(self, *, run: bool) -> tuple[str, ...]:
        key = "state_filter_us"
        value = self._get(key, 'a list of state codes, such as ["01", "02"]')
        if value is None:
            return ()
        if not isinstance(value, list) or any(type(code) is not str for code in value):
            self._fault(key, 'must be a list of two-digit codes in quotes, such as ["01", "02"]')
            return ()
        if run and not value:
            self._fault(key, "is empty: name every state of the run")
        for code in dict.fromkeys(code for code in value if value.count(code) > 1):
            self._fault(key, f"names {_shown(code)} twice: keep one")
        known = {f"{state:02d}" for state in STATES}
        for code in dict.fromkeys(code for code in value if code not in known):
            hint = ": Puerto Rico is chosen by run_pr" if code == "72" else ""
            self._fault(key, f"{_shown(code)} is no code of a state or the District of Columbia{hint}")
        return tuple(value)


def _is_whole(value: Any) -> bool:
    """Whether a JSON value is a whole number, written as one."""
    return isinstance(value, _Number) and re.fullmatch(r"-?\d{1,18}", value) is not None


def _shown(value: Any) -> str:
    """A JSON value for a message, at most 40 letters of it."""
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = str(value) if isinstance(value, _Number) else f'"{value}"'
    else:
        text = "an object" if isinstance(value, dict) else "a list"
    return text if len(text) <= 40 else f"{text[:37]}..."
