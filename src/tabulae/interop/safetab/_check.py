"""Read and check every input of a run, all files in one pass, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...errors import Problem
from .config import CONFIG, MOST_CODES, Config, read_draft
from .delimited import can_read
from .faults import Faults
from .geography import GRF, check_states, read_geography
from .layout import PERSONS, person_layout
from .lines import LineLayout, check_lines
from .maps import CODES, ETHNICITY, MEMBERS, RACE, read_maps
from .plan import StabilityRule, Tabulation, tabulation


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
    draft = read_draft(params / CONFIG, faults)
    maps = read_maps(params, faults)
    geography = read_geography(data / GRF, faults)
    if draft is not None and geography is not None:
        check_states(geography, draft, faults)
    inputs = None
    config = None if draft is None else draft.config
    if config is not None and maps.codes is not None and geography is not None and not faults.problems:
        made = tabulation(config, maps, geography, rule, faults)
        layout = person_layout(maps.codes, config.max_race_codes, geography)
        files = (*(params / name for name in (CONFIG, RACE, ETHNICITY, CODES, MEMBERS)), data / GRF)
        if made is not None:
            inputs = Inputs(config, made, layout, files, data / PERSONS, tuple(faults.warnings))
    if persons or faults.problems:
        layout = person_layout(maps.codes or (), MOST_CODES, geography)
        known = {"codes": maps.codes is not None, "blocks": geography is not None}
        check_persons(data / PERSONS, layout, faults, **known)
    return inputs


def check_persons(
    path: Path, layout: LineLayout, faults: Faults, *, codes: bool = True, blocks: bool = True
) -> None:
    """Note the mistakes of the person records, their values as confidential ones.

    Where ``codes`` or ``blocks`` are not known, they are not looked up; that is noted, and all else is checked.
    """
    if not can_read(path, faults):
        return
    for name, what, known in ((CODES, "codes", codes), (GRF, "blocks", blocks)):
        if not known:
            words = (
                f"its {what} could not be looked up, as {name} has mistakes: correct those, and check again"
            )
            faults.add(path.name, words)
    for fault in check_lines(path, layout, leaves=blocks, codes=codes):
        faults.add(path.name, fault.message, fault.line, fault.column, fault.value)
