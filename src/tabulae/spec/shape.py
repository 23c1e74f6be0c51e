"""The sections of the release document: which keys each has, and of what type.

What is checked here needs one section only. What joins sections (a table and the attributes it names, a
noise and the definition it serves) is checked where they are joined: `schema`, `workload`, `promise`.
A required key is typed as if it could be None: TOML has no such value, and a section that is read in spite
of a mistake has None there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InvalidArgument, Unsupported
from ..privacy import Neighbours, decimal, exact, positive, probability
from ..sources.classes import Open
from ..sources.condition import Condition
from ..sources.dialect import Dialect
from ..sources.source import engines, kind_of, kinds, place_mistake, url_mistake
from ..sources.stat_files import STAT_KINDS
from .problems import shown

Policy = Literal["refuse", "other"]

MOST_ROWS_PER_UNIT = 1_000_000
"""The most rows of one unit that a spec may count, or count as left out."""

TARGETS = "targets"
"""The budget of a spec whose tables' targets say what it must be."""


def problem(message: str) -> PydanticCustomError:
    """A mistake that pydantic reports in these words."""
    # The message is an argument and not the template: braces in it must stay braces.
    return PydanticCustomError("spec", "{message}", {"message": message})


def exact_text(value: object) -> object:
    """A number as it stands in the document, refused where it is not text."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        remedy = f'write "{value}"' if math.isfinite(value) else 'write a number such as "1/2"'
        raise problem(f"must be a string, because a number that decides privacy must be exact: {remedy}")
    return value


def _budget(value: str) -> str:
    if value == TARGETS:
        return value
    return _read(lambda: positive(value, "budget"), value)


def _delta(value: str) -> str:
    return _read(lambda: probability(value, "delta"), value)


def _share(value: str) -> str:
    return _read(lambda: probability(value, "the share"), value)


def _read(reader: Callable[[], object], value: str) -> str:
    try:
        reader()
    except InvalidArgument as error:
        raise problem(str(error)) from None
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise problem("is empty")
    return value


def _name(value: str) -> str:
    if (
        not value[:1].isalnum()
        or value != value.strip()
        or not all(c.isalnum() or c in " _-." for c in value)
    ):
        raise problem(
            f"{shown(value)} cannot name published files: use letters, digits, blanks, '_', '-', '.', and begin with a "
            "letter or digit"
        )
    return value


def _categories(values: list[Any]) -> list[Any]:
    if not values or {type(value) for value in values} not in ({str}, {int}):
        raise problem("must list the values that the column may hold: all strings, or all integers")
    repeated = [value for position, value in enumerate(values) if value in values[:position]]
    if repeated:
        raise problem(f"lists {shown(repeated[0])} twice")
    return values


def _edges(values: list[Any]) -> list[Any]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | str):
            remedy = (
                f'write "{value}"'
                if isinstance(value, float)
                else "write a whole number, or a decimal in quotes"
            )
            raise problem(f"must be exact numbers, and {shown(value)} is not: {remedy}")
    return values


def _condition(value: str) -> str:
    try:
        Condition(value)
    except (InvalidArgument, Unsupported) as error:
        raise problem(str(error)) from None
    return value


def _rows_per_unit(value: int) -> int:
    if value > MOST_ROWS_PER_UNIT:
        raise problem(
            f"must be at most {MOST_ROWS_PER_UNIT:,}: the noise is multiplied by it, so count fewer rows of each unit"
        )
    return value


def _rows_left_out(value: int) -> int:
    if value > MOST_ROWS_PER_UNIT:
        raise problem(
            f"must be at most {MOST_ROWS_PER_UNIT:,}: the noise of the rows left out is multiplied by it"
        )
    return value


def _address(value: str) -> str:
    if mistake := url_mistake(value):
        raise problem(mistake)
    return value


def _kind(value: str) -> str:
    return _one_of(value, kinds())


def _engine(value: str) -> str:
    return _one_of(value, engines())


def _one_of(value: str, known: Iterable[str]) -> str:
    """A name that is known, in the words that pydantic's own choices are refused with."""
    names = [shown(name) for name in known]
    if shown(value) not in names:
        raise problem(f"must be {', '.join(names[:-1])} or {names[-1]}, not {shown(value)}")
    return value


Filled = Annotated[str, AfterValidator(_filled)]
Address = Annotated[str, AfterValidator(_filled), AfterValidator(_address)]
Name = Annotated[str, AfterValidator(_name)]
Budget = Annotated[str, BeforeValidator(exact_text), AfterValidator(_budget)]
Delta = Annotated[str, BeforeValidator(exact_text), AfterValidator(_delta)]
Share = Annotated[str, BeforeValidator(exact_text), AfterValidator(_share)]


_DIALECT = tuple(field.name for field in fields(Dialect))
_KEYS_OF = {"csv": _DIALECT} | {kind.name: ("encoding",) for kind in STAT_KINDS}


class StrictSection(BaseModel):
    """A section in which unknown keys and values of another type are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UnitsEntry(StrictSection):
    """``units`` of ``[source]``: where each unit has one row; a published copy says only that it has."""

    path: Filled | None = None
    table: Filled | None = None


class SourceSection(StrictSection):
    """``[source]``: where the confidential records are, and what one of them stands for."""

    path: Filled | None = None
    kind: Annotated[str, AfterValidator(_kind)] | None = None
    url: Address | None = None
    table: Filled | None = None
    engine: Annotated[str, AfterValidator(_engine)] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    quote: str | None = None
    header: bool | list[str] | None = None
    where: Annotated[str, AfterValidator(_filled), AfterValidator(_condition)] | None = None
    unit: Filled = "person"
    unit_id: Filled | None = None
    rows_per_unit: Annotated[int, Field(ge=1), AfterValidator(_rows_per_unit)] = 1
    units: UnitsEntry | None = None

    @model_validator(mode="after")
    def _one_source(self) -> SourceSection:
        if mistake := place_mistake(self.path, self.kind, self.table, self.engine, self.url):
            raise problem(mistake)
        given = {name: getattr(self, name) for name in _DIALECT if getattr(self, name) is not None}
        kind = None if self.url is not None else self.kind or kind_of(self.path or "")
        foreign = [name for name in given if name not in _KEYS_OF.get(kind or "", ())]
        if foreign:
            raise problem(
                f"{', '.join(foreign)}: only a CSV file has this, and the records are in no CSV file: remove it"
            )
        if self.header is False:
            raise problem(
                'header = false does not say what the columns are called: name them, as in header = ["sex", "age"]'
            )
        try:
            _ = self.dialect
        except InvalidArgument as error:
            raise problem(str(error)) from None
        return self

    @model_validator(mode="after")
    def _units_beside(self) -> SourceSection:
        if self.units is None:
            return self
        given = (self.units.path, self.units.table)
        kind = kinds().get("" if self.url is not None else self.kind or kind_of(self.path or "") or "")
        if self.url is not None and self.table is None:
            wrong = (
                "the records are on an object store, beside which no units are read: copy both files from it"
            )
        elif self.path is None and self.url is None:
            wrong = "a published copy names no places" if given != (None, None) else ""
        elif kind is None or kind.many:
            wrong = (
                ""
                if given[0] is None and given[1]
                else 'it is a table beside: units = { table = "households" }'
            )
        else:
            same = given[1] is None and kind_of(given[0] or "") == kind.name
            wrong = (
                ""
                if same
                else f'it is another {kind.title} file: units = {{ path = "households{kind.endings[0]}" }}'
            )
        if wrong:
            raise problem(f"units says where each unit has a row, and here {wrong}")
        if self.unit_id is None:
            raise problem(
                'units goes with unit_id, the column of both that says which unit is meant: unit_id = "hh"'
            )
        return self

    @property
    def dialect(self) -> Dialect:
        """How the file is written, if it is a CSV file."""
        given = {name: getattr(self, name) for name in _DIALECT if getattr(self, name) is not None}
        header = tuple(self.header) if isinstance(self.header, list) else None
        return Dialect(**{**given, "header": header})


_WAYS = {
    "categories": 'categories = ["a", "b"]',
    "range": "range = [lowest, highest]",
    "codes": 'codes = "codes.csv"',
    "bins": "bins = [0, 18, 65]",
    "years": "years = [1900, 2024]",
    "quarters": 'quarters = ["2019-Q1", "2024-Q4"]',
    "months": 'months = ["2019-01", "2024-12"]',
}
"""The ways to say which values a column may hold, or what is made of them."""

FROM_RECORDS = {
    "any": 'any = "age < 18"',
    "count": 'count = "age >= 65", most = 3',
    "first": 'first = "race", where = "relation = \'householder\'"',
}
"""The ways to say what an attribute of a unit is made of, from the unit's records."""

PERIODS = ("years", "quarters", "months")
_GOES_WITH = {
    "open": ("bins",),
    "labels": ("bins", "any"),
    "most": ("count",),
    "where": ("first",),
    "column": tuple(_WAYS),
    "unknown": tuple(_WAYS),
    "null": tuple(_WAYS),
    "outside": ("range", *PERIODS),
    "format": PERIODS,
    "case": ("categories", "codes"),
}
"""Keys that say how one of the ways is meant, and with which they go."""


class AttributeEntry(StrictSection):
    """One line of ``[attributes]``: the values that a column may hold, known in public, or what is made of them."""

    of: Literal["unit"] | None = None
    any: Filled | None = None
    count: Filled | None = None
    most: Annotated[int, Field(ge=1, le=1000)] | None = None
    first: Filled | None = None
    where: Filled | None = None
    column: Filled | None = None
    categories: Annotated[list[Any], AfterValidator(_categories)] | None = None
    range: list[int] | None = None
    codes: Filled | None = None
    hierarchy: Annotated[bool | None, AfterValidator(lambda given: given or None)] = None
    bins: Annotated[list[Any], AfterValidator(_edges)] | None = None
    open: Open | None = None
    labels: Annotated[list[str], Field(min_length=1)] | None = None
    years: list[int] | None = None
    quarters: list[str] | None = None
    months: list[str] | None = None
    format: Filled | None = None
    outside: Literal["clamp"] | None = None
    case: Literal["ignore"] | None = None
    unknown: Policy | None = None
    null: Policy | None = None

    @property
    def from_records(self) -> str | None:
        """Which of the ways makes it of the records of a unit; None where it is in a column."""
        return next((key for key in FROM_RECORDS if getattr(self, key) is not None), None)

    @model_validator(mode="before")
    @classmethod
    def _decided(cls, raw: Any) -> Any:
        """A line that `tabulae init` has drafted is none of a spec until somebody has finished it."""
        if isinstance(raw, dict) and "todo" in raw:
            *ways, last = (_WAYS[key] for key in ("categories", "range", "bins", "years", "codes"))
            told = f"is not finished: {raw['todo']}; write {', '.join(ways)} or {last}, from a public source, and "
            raise problem(f"{told}remove todo; or delete the line")
        return raw

    @model_validator(mode="after")
    def _one_domain(self) -> AttributeEntry:
        given = [key for key in (*_WAYS, *FROM_RECORDS) if getattr(self, key) is not None]
        if len(given) != 1:
            *ways, last = _WAYS if self.of is None else (*_WAYS, *FROM_RECORDS)
            has = " and ".join(given) if given else "none of them"
            raise problem(f"needs exactly one of {', '.join(ways)} or {last}; it has {has}")
        if given[0] in FROM_RECORDS and self.of is None:
            raise problem(f'{given[0]} makes an attribute of a unit from its records: write of = "unit", too')
        for key, needed in (("count", "most"), ("first", "where")):
            if given[0] == key and getattr(self, needed) is None:
                raise problem(f"{key} needs {needed}: write {FROM_RECORDS[key]}")
        for key in ("range", *PERIODS):
            ends = getattr(self, key)
            if ends is not None and (len(ends) != 2 or (key == "range" and ends[0] > ends[1])):
                raise problem(f"{key} must be [lowest, highest], both included, not {shown(ends)}")
        for key, ways in _GOES_WITH.items():
            if getattr(self, key) is not None and given[0] not in ways:
                raise problem(f"{key} goes with {' or '.join(ways)}, and this has {given[0]}: remove it")
        if self.hierarchy and self.codes is None:
            raise problem(
                "hierarchy goes with codes, a file whose column parent says what each code is part of"
            )
        if self.case and self.categories and not isinstance(self.categories[0], str):
            raise problem("case is of text, and these categories are numbers: remove it")
        return self


class RecodeEntry(StrictSection):
    """One line of ``[recodes]``: a coarser view of an attribute."""

    of: Filled | None = Field(description='the attribute it is a view of: of = "age"')
    edges: list[int] | None = None
    map: Filled | None = None
    level: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> RecodeEntry:
        if [self.edges, self.map, self.level].count(None) != 2:
            raise problem("needs exactly one of edges, map or level")
        return self


def _whole_or_decimal(value: object) -> object:
    if isinstance(value, float):
        raise problem(f'must be exact, and {shown(value)} is not: write "{value}"')
    return value


class ValueEntry(StrictSection):
    """One line of ``[values]``: a number of each record, of which sums and means are published."""

    column: Filled | None = None
    range: list[int] | None = Field(
        description="the lowest and the highest number that counts: range = [0, 200000]"
    )
    step: Annotated[int | str, BeforeValidator(_whole_or_decimal)] = 1
    outside: Literal["refuse", "clamp"] = "refuse"
    null: Literal["refuse"] | int = "refuse"
    squares: Annotated[bool | None, AfterValidator(lambda given: given or None)] = None
    of: Literal["unit"] | None = None

    @model_validator(mode="after")
    def _two_ends(self) -> ValueEntry:
        if self.range is not None and len(self.range) != 2:
            raise problem(f"range must be [lowest, highest], both included, not {shown(self.range)}")
        return self


class LeftOutEntry(StrictSection):
    """What is told of the rows that ``rows_per_unit`` leaves out: ``{ share = "1/50", at_most = 20 }``."""

    share: Share | None = Field(description='of the budget, as a string: share = "1/50"')
    at_most: Annotated[int, Field(ge=1), AfterValidator(_rows_left_out)] | None = Field(
        description="the most rows of one unit that are counted as left out: at_most = 20"
    )


class PrivacySection(StrictSection):
    """``[privacy]``: what is promised."""

    definition: Literal["pure", "approx", "zcdp"] | None = Field(
        description='the promise: definition = "zcdp" (or "pure", "approx")'
    )
    budget: Budget | None = Field(
        description='what may be spent, epsilon or rho, as a string: budget = "1/2" '
        '(or give tables a target, and `tabulae plan` finds the smallest; then write budget = "targets")'
    )
    delta: Delta | None = None
    neighbours: Neighbours = "add-remove"
    ledger: Filled | None = None
    left_out: LeftOutEntry | None = None


class TargetEntry(StrictSection):
    """What a table may be wrong by: ``{ margin = 50, confidence = 0.95 }`` or ``{ rmse = 20 }``."""

    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    rmse: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _one_measure(self) -> TargetEntry:
        if (self.margin is None) == (self.rmse is None):
            raise problem(
                "needs one of margin or rmse, in counts: target = { margin = 50, confidence = 0.95 }"
            )
        if self.rmse is not None and self.confidence is not None:
            raise problem("confidence goes with margin: an rmse has none")
        return self


class CountedEntry(StrictSection):
    """What a table and an invariant share: a set of counts, in one of three forms."""

    name: Name | None = None
    attributes: list[str] | None = None
    queries: dict[str, Any] | None = None
    sql: Filled | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        marginal = self.attributes is not None or self.queries is not None
        if self.sql is not None and marginal:
            raise problem("sql says everything that is counted: remove attributes and queries, or the sql")
        if self.sql is None and not marginal:
            raise problem("counts nothing: add attributes, queries or sql (attributes = [] is the total)")
        return self


def _shares(values: list[str]) -> list[str]:
    for value in values:
        if (share := exact(_share(value))).denominator > 10**6:
            raise problem(f"must be shares with at most 6 decimals, and {shown(str(share))} is not")
    if len({exact(value) for value in values}) < len(values):
        raise problem(f"lists a share twice: {shown(values)}")
    return values


_KINDS = ("count", "sum", "mean", "variance", "clamping", "quantiles")


class MeasureEntry(StrictSection):
    """One of the ``measures``: ``"count"``, or one of the forms of ``_MEASURES``."""

    count: Literal[True] | None = None
    sum: Filled | None = None
    mean: Filled | None = None
    variance: Filled | None = None
    clamping: Filled | None = None
    near: Annotated[int | str, BeforeValidator(_whole_or_decimal)] | None = None
    quantiles: Annotated[list[str], Field(min_length=1), AfterValidator(_shares)] | None = None
    of: Filled | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    target: TargetEntry | None = None

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            if raw != "count":
                raise problem(f"{shown(raw)} is no measure; {_MEASURES}")
            return {"count": True}
        if not isinstance(raw, dict | MeasureEntry):
            raise problem(f"{shown(raw)} is no measure; {_MEASURES}")
        return raw

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise problem(f"needs exactly one of {', '.join(_KINDS[:-1])} or {_KINDS[-1]}; {_MEASURES}")
        if self.clamping is not None and self.of is None:
            told = "clamping needs classes of the same numbers that reach beyond the range"
            raise problem(f'{told}: of = "income_bins", an attribute of its column with bins')
        if self.clamping is None and (self.of is None) != (self.quantiles is None):
            raise problem('of goes with quantiles, and says of which attribute they are: of = "age"')
        whole = self.near is None or re.fullmatch(r"-?[0-9]{1,16}", str(self.near))
        if self.near is not None and (self.mean is None or not whole):
            told = "near goes with mean, a whole number that is about what the means are"
            raise problem(f"{told}: remove it, or correct it")
        if self.target is not None and (self.mean or self.variance):
            told = "the error of a mean or a variance depends on how many records its group has"
            raise problem(f"{told}: give its sum a target instead")
        if self.target is not None and self.clamping is not None:
            raise problem("what clamping takes has a wide interval by its classes, and no target: remove it")
        if self.target is not None and self.quantiles is not None:
            raise problem(
                "what is off in a quantile depends on the records, and no target can say it: remove it"
            )
        return self

    @property
    def values(self) -> list[str]:
        """The values that it is about, the factors of a product; none for counts and quantiles."""
        about = self.sum or self.mean or self.variance or self.clamping
        return [] if about is None else [name.strip() for name in about.split("*")]

    def named(self, table: str) -> dict[str, MeasureEntry]:
        """What its files are called, each with what is in it: quantiles have one each."""
        if self.quantiles:
            each = ((share, self.model_copy(update={"quantiles": [share]})) for share in self.quantiles)
            return {f"{table}_q{decimal(exact(s)).replace('/', '-')}_{self.of}": one for s, one in each}
        kind = next(key for key in _KINDS if getattr(self, key))
        return {"_".join([table, kind, *self.values]): self}


_MEASURES = (
    'write "count", { sum = "income" }, { mean = "income", near = 60000 }, { variance = "income" } or '
    '{ quantiles = ["1/4", "1/2"], of = "age" }'
)


class SamplingEntry(StrictSection):
    """``sampling`` of a table: the variance of a weighted count N over samples, ``a N^2 + b N``, which is public."""

    a: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    b: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        description="the variance of a count N over samples is a N^2 + b N: sampling = { b = 2500 }"
    )


def _totals(value: object) -> object:
    """True for all, a list of names, or None; false is no totals."""
    if isinstance(value, bool):
        return value or None
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise problem(f'must name attributes, as in totals = ["sex"], or be true, not {shown(value)}')
    return value


class TableEntry(CountedEntry):
    """One ``[[table]]``: what is published."""

    name: Name | None = Field(description='it names the published file: name = "sex_by_age"')
    totals: Annotated[Any, AfterValidator(_totals)] = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1
    target: TargetEntry | None = None
    areas: Annotated[list[str], Field(min_length=1)] | None = None
    measures: Annotated[list[MeasureEntry], Field(min_length=1)] | None = None
    counts: Literal["rows", "units"] | None = None
    survey_weight: Filled | None = None
    sampling: SamplingEntry | None = None

    @model_validator(mode="after")
    def _sampled(self) -> Self:
        counts = not self.measures or any(measure.count for measure in self.measures)
        if self.sampling is not None and (self.survey_weight is None or not counts):
            raise problem(
                "sampling is of counts that are grossed up to those who were not drawn: it goes with survey_weight and "
                '"count"'
            )
        return self

    @model_validator(mode="after")
    def _measures_differ(self) -> Self:
        asked = [name for measure in self.measures or () for name in measure.named("")]
        if twice := next((name for at, name in enumerate(asked) if name in asked[:at]), None):
            raise problem(f"measures has {twice.strip('_').replace('_', ' of ', 1)} twice: keep one")
        if self.measures and any(measure.mean for measure in self.measures) and "_count" not in asked:
            raise problem(
                'measures: a mean is a sum over a count, and the count decides its error: add "count"'
            )
        means = {measure.mean for measure in self.measures or ()}
        if lone := next(
            (m.variance for m in self.measures or () if m.variance and m.variance not in means), None
        ):
            told = "measures: a variance is about a mean, whose near says where its squares are small"
            raise problem(f'{told}: add {{ mean = "{lone}" }}')
        if self.target and asked and "_count" not in asked:
            raise problem(
                "target is of the counts of a table, and measures has none: give a sum a target of its own"
            )
        return self

    @property
    def published(self) -> dict[str, MeasureEntry]:
        """The name of each file that the table is published as, and what is in it."""
        name = self.name or ""
        if not self.measures or all(measure.count for measure in self.measures):
            return {name: MeasureEntry(count=True, target=self.target)}
        found = {file: one for measure in self.measures for file, one in measure.named(name).items()}
        if self.target:
            found[f"{name}_count"] = MeasureEntry(count=True, target=self.target)
        return found

    @model_validator(mode="after")
    def _totals_of_attributes(self) -> Self:
        if self.sql is not None and self.totals is not None:
            raise problem(
                "totals goes with attributes and queries, and sql has neither: remove totals, or the sql"
            )
        return self


class InvariantEntry(CountedEntry):
    """One ``[[invariant]]``: counts that are published exactly."""

    reason: Filled | None = Field(
        description='the report prints why these counts may be exact: reason = "fixed by law"'
    )
    level: Filled | None = None

    @property
    def title(self) -> str | None:
        """The name, or the one that an invariant without a name has: None for sql, which gives no short one."""
        if self.name or self.sql is not None:
            return self.name
        words = " by ".join([*(self.attributes or ()), *(self.queries or ())]) or "total"
        return "exact " + "".join(c if c.isalnum() or c in " _-." else "_" for c in words)


class MethodSection(StrictSection):
    """``[method]``: how, once it is settled what and how much."""

    select: str = "auto"
    noise: Literal["gaussian", "laplace"] | None = None
    estimate: str = "least-squares"
    objective: Literal["total", "relative", "max"] | None = None
    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    time_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    seed: Annotated[int, Field(ge=0)] = 0


class ReleaseSection(StrictSection):
    """``[release]``: limits on what is written."""

    max_rows: Annotated[int, Field(ge=1)] = 5_000_000
    microdata: bool = False


class DerivedEntry(StrictSection):
    """One ``[[derived]]``: sums, ratios, means or quantiles of counts, by one statement."""

    name: Name | None = Field(description='it names the published file: name = "minors_share"')
    sql: Filled | None = Field(
        description='what is computed: sql = "SELECT AVG(age) FROM people", sums and ratios of counts, or MEDIAN(age)'
    )
    title: Filled | None = None
    areas: Annotated[list[str], Field(min_length=1)] | None = None


_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BREAKS = (0x0A, 0x0D, 0x85, 0x2028, 0x2029)


def unseen(text: str) -> str | None:
    """The first such character of a text, in words; None where it has none.

    >>> unseen("with caution"), unseen("with\\ncaution"), unseen("\u202eelbailer")
    (None, 'a line break', 'the direction character U+202E')
    """
    found = _UNSEEN.search(text)
    if found is None:
        return None
    point = ord(found.group())
    if point in _BREAKS:
        return "a line break"
    return f"{'the control' if point < 0xA0 else 'the direction'} character U+{point:04X}"


THRESHOLDS = (0.25, 0.5)
LABELS = ("reliable", "with caution", "unreliable")
MOST_CLASSES = 6
RELIABILITY, NO_ERROR, NO_ESTIMATE = "reliability", "exact", "not estimable"
"""The column of classes, and what it says of counts that are in none."""

_LONGEST = 30


def _thresholds(values: list[float]) -> list[float]:
    if not values or len(values) >= MOST_CLASSES:
        raise problem(f"must be 1 to {MOST_CLASSES - 1} numbers, one between each two classes")
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise problem(f"must be positive shares of the count, such as 0.25 for 25 %, not {shown(values)}")
    if any(after <= before for before, after in pairwise(values)):
        raise problem(f"must increase from each to the next, not {shown(values)}")
    return [float(value) for value in values]


def _labels(values: list[str]) -> list[str]:
    if any(len(value) > _LONGEST for value in values):
        raise problem(f"stand in every row of the report: {_LONGEST} characters at most")
    for at, value in enumerate(values):
        if bad := unseen(value):
            raise problem(f"stand in the report as they are, and labels[{at}] holds {bad}: remove it")
    if len(set(values)) < len(values):
        raise problem(f"must differ from each other, not {shown(values)}")
    return values


class ReliabilitySection(StrictSection):
    """``[reliability]``: where the classes begin, by std_error / estimate, and what they are called.

    A count is in the class of how many thresholds its coefficient of variation reaches; one of zero or less is in
    the last. The defaults are those of the Australian Bureau of Statistics.

    Reference:
        Australian Bureau of Statistics, "Household Use of Information Technology, Australia, 2005-06", 8146.0,
        Technical note: estimates with a relative standard error under 25 % are sufficiently reliable for most
        purposes, from 25 % on to be used with caution, and over 50 % too unreliable for general use.

    >>> ReliabilitySection().classes([100.0, 100.0, 100.0, -3.0], [10.0, 25.0, 80.0, 0.1]).tolist()
    [0, 1, 2, 2]
    """

    thresholds: Annotated[list[float], AfterValidator(_thresholds)] = Field(
        default_factory=lambda: list(THRESHOLDS)
    )
    labels: Annotated[list[Filled], AfterValidator(_labels)] | None = None
    column: bool = False
    mask: bool = False

    @model_validator(mode="after")
    def _told_of_each_row(self) -> ReliabilitySection:
        if self.mask and not self.column:
            raise problem(
                "mask leaves counts out, and the column says why: write column = true, too, or remove mask"
            )
        if self.column and (taken := {NO_ERROR, NO_ESTIMATE} & set(self.names)):
            raise problem(
                f"labels: {shown(taken.pop())} is what the column says of counts that are in no class"
            )
        return self

    @model_validator(mode="after")
    def _one_label_a_class(self) -> ReliabilitySection:
        if self.labels is not None and len(self.labels) != len(self.thresholds) + 1:
            raise problem(
                f"{len(self.thresholds)} thresholds make {len(self.thresholds) + 1} classes, and labels names "
                f"{len(self.labels)}: name each, the most reliable first"
            )
        return self

    @property
    def customary(self) -> bool:
        """Whether the classes are those that a spec without the section has."""
        return tuple(self.thresholds) == THRESHOLDS and self.names == LABELS

    @property
    def names(self) -> tuple[str, ...]:
        """What each class is called, the most reliable first."""
        if self.labels is not None:
            return tuple(self.labels)
        return LABELS if tuple(self.thresholds) == THRESHOLDS else self.ranges

    @property
    def words(self) -> tuple[str, ...]:
        """What the column of published tables says: a class, or that the count is exact."""
        return (*self.names, NO_ERROR)

    @property
    def ranges(self) -> tuple[str, ...]:
        """The coefficients of variation of each class, in words.

        >>> ReliabilitySection(thresholds=[0.1, 0.3]).ranges
        ('under 10 %', '10 to 30 %', '30 % or more')
        """
        edges = [f"{100 * value:.4g}" for value in self.thresholds]
        between = [f"{low} to {high} %" for low, high in pairwise(edges)]
        return (f"under {edges[0]} %", *between, f"{edges[-1]} % or more")

    def classes(self, estimate: ArrayLike, std_error: ArrayLike) -> NDArray[np.int64]:
        """The class of each count: how many thresholds ``std_error / estimate`` reaches, for positive estimates.

        Counts of zero or less, and counts or errors that are no number, are in the last class.
        """
        counts, errors = np.asarray(estimate, float), np.asarray(std_error, float)
        variation = np.full(counts.shape, np.inf)
        np.divide(errors, counts, out=variation, where=counts > 0)
        variation[np.isnan(variation)] = np.inf
        return np.searchsorted(self.thresholds, variation, side="right")
