"""Read and check every input of a run, all files in one pass, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import Problem
from ..tabulate.lines import LineLayout
from ..tabulate.lines_check import check_lines
from .config import CONFIG, Config, read_config
from .faults import Faults
from .geography import GRF, Geography, check_states, read_geography
from .layout import PERSONS, person_layout
from .maps import CODES, ETHNICITY, MEMBERS, RACE, Maps, read_maps
from .plan import StabilityRule, Tabulation, tabulation

_MOST_CODES = 8


@dataclass(frozen=True, eq=False)
class Inputs:
    """The public inputs of a run without mistakes, and what a person record must look like.

    ``files`` are the public ones; ``persons`` is the confidential one.
    """

    config: Config
    tabulation: Tabulation
    layout: LineLayout
    files: tuple[Path, ...]
    persons: Path
    warnings: tuple[Problem, ...]


def check(params: Path, data: Path, *, rule: StabilityRule = "proven") -> Inputs:
    """Check all files, person records among them.

    Args:
        params: the folder with config.json and the four maps.
        data: the folder with person-records.txt and GRF-C.txt.
        rule: which stability the noise is sized for.

    Raises:
        SpecError: every mistake that there is, each with its file, and its line and column where it has them.

    Privacy:
        Nothing is spent, and nothing published. Messages hold no value of a person record; that there is a mistake in
        a line of them is told to whoever may read the file.
    """
    faults = Faults()
    inputs = check_public(params, data, rule, faults, persons=True)
    faults.stop(source(params, data))
    assert inputs is not None
    return inputs


def source(params: Path, data: Path) -> str:
    """What messages call the inputs."""
    return f"{params} and {data}" if params != data else str(params)


def check_public(
    params: Path, data: Path, rule: StabilityRule, faults: Faults, *, persons: bool
) -> Inputs | None:
    """Check the public files, and note all mistakes; then the person records, if ``persons`` or a mistake was found."""
    config = read_config(params / CONFIG, faults)
    maps = read_maps(params, faults)
    geography = read_geography(data / GRF, faults)
    if config is not None and geography is not None:
        check_states(geography, config, faults)
    made = None
    if not faults.problems and config is not None and geography is not None:
        made = tabulation(config, maps, geography, rule, faults)
    layout = _layout(config, maps, geography, faults)
    if layout is None:
        words = f"was not checked: its codes and blocks are those of {CODES} and {GRF}, which have mistakes"
        faults.add(PERSONS, words)
    elif persons or faults.problems:
        check_persons(data / PERSONS, layout, faults)
    if made is None or config is None or layout is None:
        return None
    files = (*(params / name for name in (CONFIG, RACE, ETHNICITY, CODES, MEMBERS)), data / GRF)
    return Inputs(config, made, layout, files, data / PERSONS, tuple(faults.warnings))


def check_persons(path: Path, layout: LineLayout, faults: Faults) -> None:
    """Note the mistakes of the person records, their values as confidential ones."""
    if not path.is_file():
        faults.add(path.name, f"there is no such file in {path.parent}")
        return
    for fault in check_lines(path, layout):
        faults.add(path.name, fault.message, fault.line, fault.column, fault.value)


def _layout(
    config: Config | None, maps: Maps, geography: Geography | None, faults: Faults
) -> LineLayout | None:
    """What person records must look like, where codes and blocks are known."""
    if geography is None or not maps.codes or any(problem.path == CODES for problem in faults.problems):
        return None
    return person_layout(maps, _MOST_CODES if config is None else config.max_race_codes, geography)
