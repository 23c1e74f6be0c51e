"""config.json: budgets, thresholds and options of a run."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ...errors import InvalidArgument
from ...privacy import exact
from .maps import LEVELS, MOST_CODES, PUERTO_RICO, US
from .programs import Program, Tabulation
from .text import Faults, read_text

PR_CODE = 72
"""The state code of Puerto Rico."""

STATES = frozenset(range(1, 57)) - {3, 7, 14, 43, 52}
"""State codes of the 50 states and the District of Columbia (FIPS 5-2, as published at census.gov)."""


_SHOWN = 40
_PARTS = 5


class Number(str):
    """A JSON number as it is written, told from a JSON string by its type."""

    __slots__ = ()


class Object(dict[str, Any]):
    """A JSON object that knows which of its keys were written twice."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, Any]]) -> Object:
        """The object of these pairs."""
        made, seen = cls(pairs), set[str]()
        made.repeated = frozenset(k for k, _ in pairs if k in seen or seen.add(k))
        return made


class Unfit(Exception):
    """A value is not what it must be; ``words`` say what that is."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def parse(text: str, file: str, faults: Faults) -> Object | None:
    """The object that a text holds; None, and the mistake, where it holds none."""
    try:
        document = json.loads(
            text, parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=Object.of
        )
    except json.JSONDecodeError as error:
        faults.add(file, f"this is not JSON: {error.msg} (character {error.colno})", error.lineno)
        return None
    except RecursionError:
        faults.add(file, "this is not a config: brackets are nested too deeply")
        return None
    if not isinstance(document, Object):
        faults.add(file, "this is not a config: it must be one JSON object, { ... }", 1)
        return None
    return document


def line_of(text: str, key: str, within: str | None = None) -> int | None:
    """The line where a key stands, ``within`` the value of another one; None where it is nowhere."""
    start = 0
    for name in (within, key) if within is not None else (key,):
        found = re.compile(rf"{re.escape(json.dumps(name))}\s*:").search(text, start)
        if found is None:
            return None
        start = found.start()
    return text.count("\n", 0, start) + 1


def whole(value: Any) -> int | None:
    """A JSON number that is whole, and written so, with at most 18 digits; None for all else.

    >>> whole(Number("-7")), whole(Number("7.0")), whole("7"), whole(True)
    (-7, None, None, None)
    """
    if isinstance(value, Number) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return int(value)
    return None


def shown(value: Any) -> str:
    """A JSON value for a message, at most 40 letters of it.

    >>> print(shown(None), shown(True), shown("a"), shown(Number("1e5")), shown([Number("1"), None, [], Object()]))
    null true "a" 1e5 [1, null, [...], {...}]
    """
    if isinstance(value, list):
        text = f"[{', '.join(map(_part, value[:_PARTS]))}{', ...' if len(value) > _PARTS else ''}]"
    else:
        text = "an object" if isinstance(value, Object) else _part(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _part(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return str(value) if isinstance(value, Number) else f'"{value}"'
    return "[...]" if isinstance(value, list) else "{...}"


CONFIG = "config.json"
STAGE_ONE = "privacy_budget_p_stage_1_fraction"
_FLAGS = ("allow_negative_counts", "run_us", "run_pr")
_CHOICES = {"reader": ("csv", "cef"), "privacy_defn": ("zcdp", "puredp")}
_FILTER = "state_filter_us"
_CHANCE = "zero_suppression_chance"
_T = TypeVar("_T")
_Levels = Mapping[tuple[str, str, str], _T]
"""By ladder, region type and level."""


@dataclass(frozen=True)
class Config:
    """What a config.json without mistakes says.

    ``suppression`` is the chance that a count of nobody is dropped, 0 for no suppression; ``stage_one`` is 0 where
    public counts choose the tables. ``budgets`` and ``thresholds`` are by (ladder, region type, level); thresholds are
    there for the runs that were chosen. ``lines`` says where each key stands.
    """

    max_race_codes: int
    definition: str
    budgets: _Levels[Fraction]
    stage_one: Fraction
    thresholds: _Levels[tuple[int, ...]]
    suppression: Fraction
    allow_negative: bool
    run_us: bool
    run_pr: bool
    states: tuple[str, ...]
    lines: Mapping[str, int | None]

    @property
    def region_types(self) -> tuple[str, ...]:
        """Those of the runs that were chosen, in order."""
        return _region_types(run_us=self.run_us, run_pr=self.run_pr)


@dataclass(frozen=True)
class ConfigDraft:
    """What other files are checked against, None where it could not be read; ``config`` is None with any mistake."""

    run_us: bool | None
    run_pr: bool | None
    states: tuple[str, ...] | None
    lines: Mapping[str, int | None]
    config: Config | None


def budget_key(tabulation: Tabulation, region: str, level: str) -> str:
    """The key of one level's budget.

    >>> from tabulae.interop.safetab.programs import HOUSEHOLDS
    >>> budget_key(HOUSEHOLDS.tabulations["t3"], "PR-STATE", "2")
    'privacy_budget_h_t3_level_2_pr_state'
    """
    return f"privacy_budget_{tabulation.key}_level_{level}_{region.lower().replace('-', '_')}"


def thresholds_key(tabulation: Tabulation) -> str:
    """The key of the thresholds of all levels of a ladder."""
    return f"thresholds_{tabulation.key}"


def read_draft(path: Path, program: Program, faults: Faults) -> ConfigDraft | None:
    """Read config.json as far as it goes; None where it is no JSON object at all."""
    text = read_text(path, faults)
    document = None if text is None else parse(text, CONFIG, faults)
    return None if text is None or document is None else _Reader(document, text, program, faults).draft()


def _region_types(*, run_us: bool | None, run_pr: bool | None) -> tuple[str, ...]:
    return (US if run_us else ()) + (PUERTO_RICO if run_pr else ())


class _Reader:
    """Takes the values out of the document, one rule after the other; one that does not fit is None, and noted."""

    def __init__(self, document: Object, text: str, program: Program, faults: Faults) -> None:
        self.document, self.text, self.program, self.faults = document, text, program, faults
        self.lines = {key: line_of(text, key) for key in document}

    def draft(self) -> ConfigDraft:
        before = self.faults.count
        self._names()
        run_us, run_pr = self._take("run_us", _flag), self._take("run_pr", _flag)
        if run_us is False and run_pr is False:
            self._fault("run_us", "no run is chosen: set run_us or run_pr (or both) to true")
        runs = _region_types(run_us=run_us, run_pr=run_pr)
        reader = self._take("reader", _choice("reader"))
        if reader == "cef":
            words = 'reader "cef" is the Bureau\'s internal format: the files are read as csv'
            self.faults.warn(CONFIG, words, self.lines["reader"], "reader")
        states = self._states(run=run_us is True)
        values = {
            "max_race_codes": self._take("max_race_codes", _max_race_codes),
            "definition": self._take("privacy_defn", _choice("privacy_defn")),
            "budgets": self._budgets(runs),
            "stage_one": self._take(STAGE_ONE, _stage_one) if self.program.two_stages else Fraction(0),
            "thresholds": self._thresholds(runs),
            "suppression": self._take(_CHANCE, _chance)
            if _CHANCE in self.document and self.program.two_stages
            else Fraction(0),
            "allow_negative": self._take("allow_negative_counts", _flag),
            "run_us": run_us,
            "run_pr": run_pr,
            "states": states,
            "lines": self.lines,
        }
        sound = self.faults.count == before and all(value is not None for value in values.values())
        return ConfigDraft(run_us, run_pr, states, self.lines, Config(**values) if sound else None)

    def _fault(self, key: str, message: str) -> None:
        self.faults.add(CONFIG, message, self.lines.get(key), key)

    def _names(self) -> None:
        known = {
            *_FLAGS,
            *_CHOICES,
            "max_race_codes",
            _FILTER,
            *self._keys,
            *map(thresholds_key, self.program.tabulations.values()),
        }
        known |= {STAGE_ONE, _CHANCE} if self.program.two_stages else set()
        others = tuple(f"{word}_{self.program.other}" for word in ("privacy_budget", "thresholds"))
        others += () if self.program.two_stages else (_CHANCE,)
        for key in self.document:
            if key not in known and not key.startswith(others):
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ": remove it"
                self._fault(key, f"there is no such key{hint}")
        for key in self.document:
            if key in self.document.repeated:
                self._fault(key, "this key is written twice: keep one")

    def _take(self, key: str, read: Callable[[Any], _T]) -> _T | None:
        """What a key says; None, and the mistake, where it is missing, repeated, or not what it must be."""
        if key in self.document.repeated:
            return None
        try:
            return read(self.document.get(key))
        except Unfit as error:
            if key in self.document:
                self._fault(key, f"must be {error.words}, not {shown(self.document[key])}")
            else:
                self.faults.add(CONFIG, f"missing: give {error.words}", None, key)
        return None

    @cached_property
    def _keys(self) -> dict[str, tuple[str, str, str]]:
        """The key of each budget -> ladder, region type and level."""
        return {
            budget_key(tabulation, region, level): (ladder, region, level)
            for ladder, tabulation in self.program.tabulations.items()
            for region in US + PUERTO_RICO
            for level in LEVELS
        }

    def _budgets(self, runs: tuple[str, ...]) -> _Levels[Fraction] | None:
        taken = {level: self._take(key, _budget) for key, level in self._keys.items()}
        found = {level: budget for level, budget in taken.items() if budget is not None}
        of_runs = {key: taken[level] for key, level in self._keys.items() if level[1] in runs}
        if of_runs and all(budget == 0 for budget in of_runs.values()):
            words = "every level of the chosen runs has budget 0: nothing would be tabulated"
            self._fault(next(iter(of_runs)), words)
        return found if len(found) == len(taken) else None

    def _thresholds(self, runs: tuple[str, ...]) -> _Levels[tuple[int, ...]] | None:
        found: dict[tuple[str, str, str], tuple[int, ...]] = {}
        sound = True
        for ladder, tabulation in self.program.tabulations.items():
            mine = self._thresholds_of(tabulation, runs)
            sound = sound and mine is not None
            found |= {(ladder, *level): steps for level, steps in (mine or {}).items()}
        return found if sound else None

    def _thresholds_of(
        self, tabulation: Tabulation, runs: tuple[str, ...]
    ) -> dict[tuple[str, str], tuple[int, ...]] | None:
        """Those of one ladder, by region type and level; None with any mistake."""
        key, tables = thresholds_key(tabulation), len(tabulation.ladder.rungs)
        document = self._take(key, _object)
        if document is None:
            return None
        names = {f"({region}, {level})": (region, level) for region in US + PUERTO_RICO for level in LEVELS}

        def fault(name: str, message: str) -> None:
            self.faults.add(CONFIG, message, line_of(self.text, name, within=key), name)

        found = {}
        for name, value in document.items():
            if name in document.repeated:
                fault(name, "this key is written twice: keep one")
            if name not in names:
                fault(name, 'there is no such level: write, for example, "(COUNTY, 2)" or "(PR-TRACT, 1)"')
                continue
            try:
                found[names[name]] = _steps(value, tabulation)
            except Unfit as error:
                fault(name, f"must be {error.words}, not {shown(value)}")
        missing = [name for name, pair in names.items() if pair[0] in runs and name not in document]
        for name in missing:
            fault(name, f"missing: give {_counted(tables, 'threshold')}")
        return found if len(found) == len(document) and not missing else None

    def _states(self, *, run: bool) -> tuple[str, ...] | None:
        states = self._take(_FILTER, _codes)
        if states is None:
            return None
        if run and not states:
            self._fault(_FILTER, "is empty: name every state of the run")
        for code in dict.fromkeys(code for code in states if states.count(code) > 1):
            self._fault(_FILTER, f"names {shown(code)} twice: keep one")
        known = {f"{state:02d}" for state in STATES}
        unknown = [code for code in dict.fromkeys(states) if code not in known]
        for code in unknown:
            hint = ": Puerto Rico is chosen by run_pr" if code == "72" else ""
            self._fault(_FILTER, f"{shown(code)} is not a code of a state or the District of Columbia{hint}")
        return None if unknown or (run and not states) else states


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value


def _choice(key: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if type(value) is not str or value not in _CHOICES[key]:
            raise Unfit(" or ".join(f'"{word}"' for word in _CHOICES[key]))
        return value

    return read


def _max_race_codes(value: Any) -> int:
    number = whole(value)
    if number is None or not 1 <= number <= MOST_CODES:
        raise Unfit(f"a whole number from 1 to {MOST_CODES}")
    return number


def _number(words: str, sound: Callable[[Fraction], bool]) -> Callable[[Any], Fraction]:
    """A reader of JSON numbers, exactly as they are written, which must be what the words say."""

    def read(value: Any) -> Fraction:
        if not isinstance(value, Number):
            raise Unfit(words)
        try:
            number = exact(str(value))
        except InvalidArgument:
            finite = value.lstrip("-").isascii() and value.lstrip("-")[0].isdigit()
            raise Unfit("a number of fewer digits" if finite else "a finite number") from None
        if not sound(number):
            raise Unfit(words)
        return number

    return read


_budget = _number("a number from 0, which leaves the level out, to 10^9", lambda n: 0 <= n <= 10**9)
_stage_one = _number("a number strictly between 0 and 1", lambda n: 0 < n < 1)
_chance = _number("a number that is 0 or more and below 1", lambda n: 0 <= n < 1)


def _object(value: Any) -> Object:
    if not isinstance(value, Object):
        raise Unfit('an object such as {"(USA, 1)": [5000, 20000, 150000], ...}')
    return value


def _codes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or any(type(code) is not str for code in value):
        raise Unfit('a list of two-digit codes in quotes, such as ["01", "02"]')
    return tuple(value)


def _steps(value: Any, tabulation: Tabulation) -> tuple[int, ...]:
    tables = len(tabulation.ladder.rungs)
    found = [whole(step) for step in value] if isinstance(value, list) else []
    steps = tuple(step for step in found if step is not None)
    if not isinstance(value, list) or len(steps) != len(value):
        raise Unfit(f"a list of {_counted(tables, 'whole number')}")
    if len(steps) != tables:
        raise Unfit(f"a list of {_counted(tables, 'threshold')}, one for each table of {tabulation.about}")
    if any(a > b for a, b in pairwise(steps)):
        raise Unfit("thresholds that do not fall")
    return steps


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
