"""``[privacy]`` and ``[method]``: what is promised, and by which method it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from ..privacy import RECORDS, WITHIN, ZCDP, ApproxDP, LeftOut, Neighbours, PrivacyLoss, PureDP, exact
from ..strategy import METHODS
from .problems import Problems, listed, nearest, shown
from .sections import Document
from .shape import TARGETS, MethodSection, PrivacySection

POSTERIOR = "posterior"
"""Whole counts with credible intervals, and whole tables drawn given what was measured."""

ESTIMATORS = ("least-squares", "non-negative", "pgm", POSTERIOR)
"""The names that ``method.estimate`` accepts."""

SPARSE = "sparse"
"""Of areas of very many cells: only what a division reads is drawn, and no count has an interval."""

AREA_ESTIMATORS = ("bluedown", "topdown", "gls", POSTERIOR, SPARSE)
"""The names that ``method.estimate`` accepts with ``[geography]``, the default first."""

GROUP_ESTIMATORS = ("two-stage", POSTERIOR)
"""The names that ``method.estimate`` accepts with ``[detailed]``, the default first."""

NOT_OF_AREAS = ("select", "objective", "tolerance", "time_limit", "seed")
"""Keys of ``[method]`` that choose queries: with ``[geography]`` these are written in the document."""

_NOISE: dict[str, tuple[Literal["gaussian", "laplace"], ...]] = {
    "pure": ("laplace",),
    "approx": ("gaussian", "laplace"),
    "zcdp": ("gaussian",),
}


@dataclass(frozen=True)
class Method:
    """How the release is made: none of it changes what is promised.

    ``select`` names a method of `tabulae.select`, ``noise`` the law's kind, ``estimate`` the estimator;
    ``time_limit`` is in seconds of a core, for selection only; ``seed`` starts the selection's search, never noise;
    ``objective`` is what selection minimises where no table has a target, and ``tolerance`` the proven gap at which
    it ends, None for what `tabulae.select` takes.
    """

    select: str = "auto"
    noise: Literal["gaussian", "laplace"] = "gaussian"
    estimate: str = "least-squares"
    time_limit: float = 60.0
    seed: int = 0
    objective: Literal["total", "relative", "max"] = "total"
    tolerance: float | None = None


@dataclass(frozen=True)
class Promise:
    """The privacy loss of the release, what it is counted by, and the ledger that pays it.

    ``delta`` is for statements of (epsilon, delta), and None where only one number is promised;
    ``ledger`` is None in the published copy of a spec, which names no files. ``open_budget`` says that the loss
    stands for one that is still to be found from the tables' targets: it cannot be spent. ``left_out`` takes a share of
    the loss, and is None where nothing is told of the rows that are left out.
    """

    loss: PrivacyLoss
    delta: Fraction | None
    neighbours: Neighbours
    ledger: Path | None
    open_budget: bool
    left_out: LeftOut | None


def read_promise(document: Document, base: Path, problems: Problems) -> Promise | None:
    """The promise of ``[privacy]``; None, with the reasons recorded, where it cannot be made."""
    section = document.privacy
    if section is None:
        return None
    source = document.source
    published = source is not None and source.path is None and source.url is None
    if section.ledger is None and not published:
        _missing("ledger", 'what the budget is charged to: ledger = "ledger.db"', problems)
    if document.is_detailed:
        _check_detailed(document, section, problems)
    elif document.is_geography:
        _check_geography(section, problems)
    elif section.definition == "approx" and section.delta is None:
        _missing("delta", 'approx promises epsilon and delta: delta = "1e-10"', problems)
    if section.definition == "pure" and section.delta is not None and not document.is_detailed:
        remedy = 'remove it, or write definition = "approx"'
        problems.add(("privacy", "delta"), f'has no meaning under definition = "pure": {remedy}')
    if section.neighbours == WITHIN:
        _check_within(document, problems)
        if document.counts_units:
            told = 'does not go with counts of units: write "add-remove" or "replace"'
            problems.add(("privacy", "neighbours"), told)
    if section.neighbours in RECORDS and not document.counts_units:
        told = (
            f'"{section.neighbours}" is about one record of a unit that is counted with its records, and no unit is: '
            'write "add-remove", or declare an attribute of = "unit" or a table that counts = "units"'
        )
        problems.add(("privacy", "neighbours"), told)
    loss = _loss(section)
    if loss is None:
        return None
    delta = None if section.delta is None else exact(section.delta)
    ledger = None if section.ledger is None else base / section.ledger
    open_budget = section.budget == TARGETS
    if (
        open_budget
        and not document.is_detailed
        and not any(entry and entry.target for entry in document.tables)
        and not any(document.area_targets)
    ):
        remedy = "give a table target = { margin = 50, confidence = 0.95 }, or write the budget"
        problems.add(("privacy", "budget"), f"is to be found from targets, and no table has one: {remedy}")
    left_out = _left_out(document, section, problems)
    return Promise(loss, delta, section.neighbours, ledger, open_budget, left_out)


def _left_out(document: Document, section: PrivacySection, problems: Problems) -> LeftOut | None:
    """What is told of rows left out; refused where none can be, or where the budget is divided in other ways."""
    entry, source = section.left_out, document.source
    if entry is None or entry.share is None or entry.at_most is None:
        return None
    path = ("privacy", "left_out")
    if document.counts_units:
        problems.add(path, "nothing works out yet what is left out where units are counted: remove it")
    elif document.is_detailed or document.is_geography:
        whose = "detailed" if document.is_detailed else "geography"
        problems.add(path, f"is of [[table]]s without areas and groups, and there is [{whose}]: remove it")
    elif document.invariants:
        told = "nothing works out what exact counts and the rows left out say together"
        problems.add(path, f"{told}: remove it, or every [[invariant]]")
    elif source is not None and source.unit_id is None:
        told = "without unit_id every row is a unit by itself, and none is left out"
        problems.add(path, f'{told}: remove it, or write unit_id = "person_id" under [source]')
    return LeftOut(exact(entry.share), entry.at_most)


def _check_detailed(document: Document, section: PrivacySection, problems: Problems) -> None:
    if section.definition == "approx":
        told = 'groups are tabulated under "pure" or "zcdp": write one of them (zcdp states epsilon at a delta, too)'
        problems.add(("privacy", "definition"), told)
    if section.budget == TARGETS and not any(entry and entry.budget is None for entry in document.levels):
        told = "is to be found from targets, and every level has its budget: write the most that they may cost together"
        problems.add(("privacy", "budget"), told)


def _check_geography(section: PrivacySection, problems: Problems) -> None:
    if section.definition == "approx":
        told = 'areas are measured under "pure" or "zcdp": write "zcdp", which states epsilon at a delta, too'
        problems.add(("privacy", "definition"), told)
    if section.neighbours == WITHIN:
        told = (
            'is "add-remove" or "replace" with [geography]: nothing works out which units several releases of exact '
            "counts by area leave unprotected"
        )
        problems.add(("privacy", "neighbours"), told)


def _check_within(document: Document, problems: Problems) -> None:
    """Refuse neighbours within invariants where there are none, or where a unit is more than one record."""
    path = ("privacy", "neighbours")
    if not document.invariants:
        problems.add(
            path,
            '"replace-within-invariants" protects one record against any other that leaves every exact count as it is, '
            'and no count is exact: add an [[invariant]], or write neighbours = "replace"',
        )
    if document.source and document.source.where is not None:
        problems.add(
            path,
            '"replace-within-invariants" has no bound where only some records are counted: a record that is replaced '
            "may come among them, or leave them, and every exact count stay as it is; "
            'write neighbours = "replace", or remove where under [source]',
        )
    if document.source and document.source.rows_per_unit > 1:
        problems.add(
            path,
            '"replace-within-invariants" has no bound where a unit has several records: they may change together '
            "without each of them keeping the exact counts; "
            'write neighbours = "replace", or rows_per_unit = 1 under [source]',
        )


def _missing(key: str, about: str, problems: Problems) -> None:
    if not problems.has(("privacy", key)):  # it may be there, and wrong
        problems.add(("privacy", key), f"is missing: {about}")


def _loss(section: PrivacySection) -> PrivacyLoss | None:
    if section.definition is None or section.budget is None:
        return None
    budget = "1" if section.budget == TARGETS else section.budget
    if section.definition == "zcdp":
        return ZCDP(budget)
    if section.definition == "pure":
        return PureDP(budget)
    return None if section.delta is None else ApproxDP(budget, section.delta)


def read_method(document: Document, problems: Problems) -> Method | None:
    """The method of ``[method]``, its noise taken from the definition where it is not written."""
    section, privacy = document.method, document.privacy
    if section is None:
        return None
    if document.is_geography:
        return _area_method(document, section, problems)
    if document.is_detailed:
        return _group_method(document, section, problems)
    _accept(section, "select", METHODS, problems)
    if section.estimate in {*AREA_ESTIMATORS} - {*ESTIMATORS}:
        told = f"{shown(section.estimate)} is for areas, and there is no [geography]: known here: {listed(ESTIMATORS)}"
        problems.add(("method", "estimate"), told)
    else:
        _accept(section, "estimate", ESTIMATORS, problems)
    if section.estimate == "pgm" and document.invariants:
        remedy = 'write estimate = "least-squares" or "non-negative", or remove the invariants'
        problems.add(("method", "estimate"), f'"pgm" cannot keep counts exact: {remedy}')
    if privacy is None or privacy.definition is None:
        return None
    noise = _fitting_noise(section, privacy.definition, problems)
    if section.estimate == POSTERIOR:
        _check_drawn(document, privacy.definition, noise, problems)
    if section.objective and any(entry and entry.target for entry in document.tables):
        problems.add(("method", "objective"), "tables have targets, and these are the objective: remove it")
    objective = section.objective or "total"
    return Method(
        section.select,
        noise,
        section.estimate,
        section.time_limit,
        section.seed,
        objective,
        section.tolerance,
    )


def _check_drawn(document: Document, definition: str, noise: str, problems: Problems) -> None:
    """Refuse what whole tables are not drawn of."""
    if (definition, noise) == ("approx", "gaussian"):
        told = (
            'is drawn given discrete noise, and definition = "approx" rounds continuous noise: write definition = '
            '"zcdp", which states epsilon at a delta, too, or noise = "laplace"'
        )
        problems.add(("method", "estimate"), told)
    if document.counts_units:
        told = 'is drawn of counts of records, and here units are counted beside them: write "non-negative"'
        problems.add(("method", "estimate"), told)
    if document.derived:
        told = 'are computed about unbiased counts: with estimate = "posterior" compute them from implicates.parquet'
        problems.add(("derived",), told)
    for position, entry in enumerate(document.tables):
        for key in ("measures", "survey_weight", "sampling"):
            if entry and getattr(entry, key) is not None:
                told = 'is not of what estimate = "posterior" draws, which are counts of records: remove one of the two'
                problems.add(("table", position, key), told)


def _area_method(document: Document, section: MethodSection, problems: Problems) -> Method | None:
    estimate = section.estimate if "estimate" in section.model_fields_set else AREA_ESTIMATORS[0]
    for key in NOT_OF_AREAS:
        if key in section.model_fields_set and (key, estimate) != ("seed", "posterior"):
            problems.add(("method", key), "chooses queries, and with [geography] they are written: remove it")
    if estimate not in AREA_ESTIMATORS:
        told = f"{shown(estimate)} is no method for areas; {nearest(estimate, AREA_ESTIMATORS)}"
        problems.add(("method", "estimate"), told)
    if estimate == "gls" and document.release and document.release.microdata:
        told = (
            'are rows of whole people, and "gls" gives fractions: write estimate = "bluedown", or remove it'
        )
        problems.add(("release", "microdata"), told)
    if estimate == "posterior" and document.source and document.source.engine == "spark":
        told = (
            'is drawn in one process, and engine = "spark" makes estimates in many: take another of the two'
        )
        problems.add(("method", "estimate"), told)
    if document.privacy is None or document.privacy.definition in (None, "approx"):
        return None
    noise = _fitting_noise(section, document.privacy.definition, problems)
    return Method(noise=noise, estimate=estimate, seed=section.seed)


def _group_method(document: Document, section: MethodSection, problems: Problems) -> Method | None:
    written = section.model_fields_set
    estimate = section.estimate if "estimate" in written else GROUP_ESTIMATORS[0]
    for key in sorted(
        written - {"estimate", "seed"} | ({"seed"} & written if estimate != POSTERIOR else set())
    ):
        problems.add(
            ("method", key), "is of [[table]]s: the tables and the noise of groups follow from [detailed]"
        )
    if estimate not in GROUP_ESTIMATORS:
        told = f"{shown(estimate)} is no method for groups; {nearest(estimate, GROUP_ESTIMATORS)}"
        problems.add(("method", "estimate"), told)
    if document.privacy is None or document.privacy.definition in (None, "approx"):
        return None
    return Method(noise=_NOISE[document.privacy.definition][0], estimate=estimate, seed=section.seed)


def _fitting_noise(
    section: MethodSection, definition: str, problems: Problems
) -> Literal["gaussian", "laplace"]:
    """The kind of noise, taken from the definition where it is not written."""
    fitting = _NOISE[definition]
    noise = section.noise or fitting[0]
    if noise not in fitting:
        other = "approx" if noise == "gaussian" else "pure"
        problems.add(
            ("method", "noise"),
            f"{shown(noise)} noise does not keep the promise of definition = {shown(definition)}: "
            f'write noise = {listed(fitting)} or remove it, or write definition = "{other}"',
        )
    return noise


def _accept(section: MethodSection, key: str, names: tuple[str, ...], problems: Problems) -> None:
    value = getattr(section, key)
    if value not in names:
        problems.add(("method", key), f"{shown(value)} is no method of this kind; {nearest(value, names)}")
