"""What ``[detailed]`` asks for: regions, groups, the ladder of tables, and the levels with their budgets.

The file of groups says which values of a record's codes make it a member of which group. It has one row for each group
and each of its member values. What is said of the group itself stands on each of its rows, and must be the same on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from pathlib import Path
from typing import get_args

import numpy as np

from ...domain import (
    Attribute,
    CodeFamily,
    Domain,
    Group,
    GroupKind,
    GroupMap,
    GroupSelection,
    Ladder,
    Regions,
    Rung,
)
from ...errors import InvalidArgument
from ...privacy import ZCDP, NoiseLaw, PrivacyLoss, PureDP, exact
from ...spec.groups import NATION, DetailedSection, LevelEntry, LevelTarget
from ...spec.problems import FileMistakes, KeyPath, Problems, listed, nearest, shown, written
from ...spec.public_file import read_public_file
from ...spec.schema import Schema, without_other
from ...spec.section import Section
from ...spec.sections import Document
from ...spec.shape import TARGETS
from .levels import AdaptivePlan, PopulationLevel
from .public_counts import ChosenTables, PublicCounts, read_public_counts

REQUIRED = ("value", "group", "level", "kind")
OPTIONAL = ("family", "label", "total_only", "regions")
_TRUTH = {"": False, "false": False, "0": False, "true": True, "1": True}


@dataclass(frozen=True, eq=False)
class GroupFile:
    """The groups that a file declares, with its content and the name under which it is published."""

    groups: GroupMap
    name: str
    content: bytes


def read_groups(
    base: Path,
    name: str,
    families: Mapping[str, tuple[Attribute, int]],
    regions: Sequence[str],
    path: KeyPath,
    problems: Problems,
) -> GroupFile | None:
    """The groups of a CSV or Parquet file; None, with the mistakes recorded, where it has some.

    Args:
        base: the folder that ``name`` is relative to.
        families: name -> (what its codes are, how many of them a record may carry).
        regions: the region types that a group may be restricted to.
        path: the key that names the file.
        problems: where mistakes are recorded.
    """
    parquet = name.lower().endswith((".parquet", ".pq"))

    def wanted(header: list[str], mistakes: FileMistakes) -> list[str] | None:
        _check_header(header, len(families), mistakes)
        return None if mistakes.told else header

    file = read_public_file(base, name, path, problems, wanted, truths=("total_only",), parquet=parquet)
    if file is None:
        return None
    reader = _GroupFileReader(file.mistakes, families, regions)
    for line, cells in file.rows:
        reader.row(line, dict(zip(file.columns, cells, strict=True)))
    if file.mistakes.told:
        return None
    known = tuple(
        CodeFamily(family, attribute.labels, most) for family, (attribute, most) in families.items()
    )
    groups = GroupMap(known, tuple(reader.groups.values()), list(reader.members))
    return GroupFile(groups, f"groups.{'parquet' if parquet else 'csv'}", file.content)


def _check_header(header: Sequence[str], families: int, mistakes: FileMistakes) -> None:
    missing = [column for column in REQUIRED if column not in header]
    if families > 1 and "family" not in header:
        missing.append("family")
    if missing:
        mistakes.tell(1, f"the header has no column {listed(missing)}; it needs {', '.join(REQUIRED)}")
    for column in header:
        if column not in (*REQUIRED, *OPTIONAL):
            mistakes.tell(1, f"unknown column {shown(column)}; {nearest(column, (*REQUIRED, *OPTIONAL))}")
        elif header.count(column) > 1:
            mistakes.tell(1, f"column {shown(column)} appears twice")


class _GroupFileReader:
    """Rows of the file to groups and their members."""

    def __init__(
        self, mistakes: FileMistakes, families: Mapping[str, tuple[Attribute, int]], regions: Sequence[str]
    ) -> None:
        self.tell, self.unit = mistakes.tell, mistakes.unit
        self.families = families
        self.regions = regions
        self.groups: dict[str, Group] = {}
        self.first: dict[str, int] = {}
        self.members: dict[tuple[str, str], int] = {}

    def row(self, line: int, row: Mapping[str, str]) -> None:
        """One group and one of its members."""
        if empty := [column for column in REQUIRED if not row[column]]:
            self.tell(line, f"{listed(empty)} is empty")
            return
        group = self.group(line, row)
        if group is None:
            return
        before = self.groups.setdefault(group.code, group)
        start = self.first.setdefault(group.code, line)
        if before != group:
            self.tell(line, f"says of group {shown(group.code)} something else than {self.unit} {start} does")
            return
        attribute, _ = self.families[group.family]
        at = attribute.position(
            int(row["value"]) if attribute.numeric and _whole(row["value"]) else row["value"]
        )
        if at is None:
            self.tell(
                line, f"there is no value {shown(row['value'])}; {nearest(row['value'], attribute.labels)}"
            )
            return
        member = (group.code, attribute.labels[at])
        if (again := self.members.setdefault(member, line)) != line:
            self.tell(
                line,
                f"{self.unit} {again} makes {shown(row['value'])} a member of {shown(group.code)} already",
            )

    def group(self, line: int, row: Mapping[str, str]) -> Group | None:
        """What a row says of its group."""
        kind, family = row["kind"], row.get("family") or next(iter(self.families))
        truth = _TRUTH.get(row.get("total_only", "").lower())
        regions = [region.strip() for region in row.get("regions", "").split(";") if region.strip()]
        wrong = []
        if kind not in get_args(GroupKind):
            wrong.append(f'kind is "alone" (all codes of the record are members) or "any", not {shown(kind)}')
        if family not in self.families:
            wrong.append(f"there is no family {shown(family)} in codes; {nearest(family, self.families)}")
        if truth is None:
            wrong.append(f"total_only is true or false, not {shown(row['total_only'])}")
        unknown = [region for region in regions if region not in self.regions]
        wrong += [f"there is no region type {shown(each)}; {nearest(each, self.regions)}" for each in unknown]
        for message in wrong:
            self.tell(line, message)
        if wrong or truth is None:
            return None
        within = frozenset(regions) if regions else None
        label = row.get("label") or row["group"]
        return Group(row["group"], row["level"], family, kind, label, truth, within)  # type: ignore[arg-type]


def _whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


@dataclass(frozen=True, eq=False)
class LevelRule:
    """One level as the spec has it; a budget of None is to be found from the target, a stability of None proven."""

    region: str
    group_level: str
    budget: Fraction | None
    target: LevelTarget | None
    thresholds: tuple[int, ...]
    stability: int | None = None
    ladder: str = ""


@dataclass(frozen=True)
class Suppression:
    """Totals of these region types are left out unless noise alone stays below them with this chance."""

    chance: Fraction
    regions: frozenset[str]

    def floor(self, law: NoiseLaw) -> int:
        """The smallest integer t with ``P(noise <= t) >= chance``: totals up to it are left out.

        The law's tail is an upper bound within 10^-12 of the truth, so that t is never too small, and too large only
        where a probability agrees with the chance to 12 digits.

        >>> from tabulae.privacy import DiscreteGaussian
        >>> law = DiscreteGaussian(1)
        >>> [Suppression(Fraction(chance), frozenset()).floor(law) for chance in ("0.9999", "0.5", "0.1")]
        [4, 0, -1]
        """
        low, high = -1, 1
        while not self._reached(law, high):
            high *= 2
        while self._reached(law, low):
            low *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reached(law, middle) else (middle, high)
        return high

    def _reached(self, law: NoiseLaw, t: int) -> bool:
        """Whether ``P(noise > t) <= 1 - chance``, for a law that is symmetric around 0."""
        beyond = Fraction(law.tail(t)) / 2 if t >= 0 else 1 - Fraction(law.tail(-t - 1)) / 2
        return beyond <= 1 - self.chance


@dataclass(frozen=True, eq=False)
class Detailed:
    """What ``[detailed]`` asks for, over the public domain.

    Attributes:
        groups: which values make a record a member of which group.
        codes: family -> the attributes that hold a record's codes.
        place: the attributes whose combinations are the leaves of the public geography, in the order of the domain.
        regions: region type -> the regions of all leaves.
        cell: the attributes that the tables are by, in the order of the domain.
        ladders: the tables after the total, by the name of their ladder, "" for the only one; headings are the names
            that the spec asks for.
        levels: in the order of the spec.
        stage_one: the share of each level's budget that chooses the tables; 0 where public counts choose them.
        suppress: which totals are left out, or None.
        neighbours, rows_per_unit, unit, pure: those of the whole spec; pure, or else zero-concentrated.
        counts: the public counts that choose the tables, or None.
    """

    groups: GroupMap
    codes: Mapping[str, tuple[str, ...]]
    place: tuple[str, ...]
    regions: Mapping[str, Regions]
    cell: tuple[str, ...]
    ladders: Mapping[str, Ladder]
    levels: tuple[LevelRule, ...]
    stage_one: Fraction
    suppress: Suppression | None
    neighbours: str
    rows_per_unit: int
    unit: str
    pure: bool
    counts: PublicCounts | None = None

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The tables of all ladders, which have names of their own."""
        return tuple(rung for ladder in self.ladders.values() for rung in ladder.rungs)

    @property
    def open_levels(self) -> tuple[LevelRule, ...]:
        """The levels whose budget is still to be found."""
        return tuple(level for level in self.levels if level.budget is None)

    @cached_property
    def _selections(self) -> dict[tuple[Group, ...], GroupSelection]:
        return {}

    def selection(self, group_level: str, region: str) -> GroupSelection:
        """The groups of a level in a region type: one object for the same groups, whose stability is proven once."""
        made = self.groups.at(group_level, region)
        return self._selections.setdefault(made.groups, made)

    def level(self, rule: LevelRule, budget: Fraction) -> PopulationLevel:
        """One level with a budget."""
        return PopulationLevel(
            self.regions[rule.region],
            rule.group_level,
            self.selection(rule.group_level, rule.region),
            self.ladders[rule.ladder],
            rule.thresholds,
            (PureDP if self.pure else ZCDP)(budget),
            self.stage_one,
            self.neighbours,
            self.rows_per_unit,
            rule.stability,
            self.chosen(rule),
            rule.ladder,
        )

    def chosen(self, rule: LevelRule) -> ChosenTables | None:
        """The tables of a level that public counts choose; None where stage one is to choose them."""
        if self.counts is None:
            return None
        groups = self.selection(rule.group_level, rule.region)
        return self.counts.choose(self.regions[rule.region], groups, rule.thresholds)

    def plan(self, found: Mapping[int, Fraction] | None = None) -> AdaptivePlan:
        """The plan of all levels; ``found`` gives budgets by position to those that have none."""
        budgets = [rule.budget or (found or {})[i] for i, rule in enumerate(self.levels)]
        levels = tuple(self.level(rule, budget) for rule, budget in zip(self.levels, budgets, strict=True))
        return AdaptivePlan(levels, self.unit)


def loss_of(detailed: Detailed, cap: PrivacyLoss, problems: Problems) -> PrivacyLoss:
    """What the levels cost together, which may not be more than the budget; that, while budgets are open."""
    if detailed.open_levels:
        return cap
    try:
        loss = detailed.plan().loss
    except InvalidArgument as error:
        problems.add(("detailed", "regions"), str(error))
        return cap
    if loss.amount > cap.amount:
        problems.add(
            ("privacy", "budget"),
            f"is {cap.amount}, and the levels that count one record cost {loss.amount} together: lower theirs, or "
            f'write budget = "{loss.amount}"',
        )
    return loss


MOST_LEAVES = 20_000_000
"""The most combinations of values of the attributes that regions are made of."""

TAKEN = ("region_type", "region", "group", "label", "table", "totals")
"""What no attribute of a table may be named like: other columns of the published tables, and their file."""

View = tuple[str, np.ndarray, tuple[str, ...]]
"""What a name is a view of: the attribute, the class of each of its values, the labels of the classes."""


@dataclass(frozen=True)
class DetailedRead(Section):
    """``[detailed]``, read without a mistake; its levels say what the release costs."""

    def loss(self, cap: PrivacyLoss, problems: Problems) -> PrivacyLoss | None:
        """The sum of the levels' budgets, which may not exceed the cap."""
        return loss_of(self.parts["detailed"], cap, problems)


def read_section(
    document: Document, schema: Schema, promise: object, method: object, base: Path, problems: Problems
) -> DetailedRead | None:
    """``[detailed]`` over the domain that the document declares; None where there are mistakes.

    Args:
        document: the sections as read.
        schema: the domain, and the names that could not be read.
        base: the folder that the file of groups is relative to.
        problems: where mistakes are recorded.
    """
    section, privacy, source = document.detailed, document.privacy, document.source
    if section is None or schema.domain is None:
        return None
    reader = _SectionReader(section, schema, schema.domain, problems)
    groups = reader.groups(base)
    place, regions = reader.regions()
    counts = reader.counts(base, groups, regions)
    cell, ladders = reader.ladders()
    suppress = reader.suppression()
    levels = [_rule(entry) for entry in document.levels if entry]
    _check_levels(document, section, groups, problems)
    if problems.found or not (groups and ladders and privacy and source):
        return None
    detailed = Detailed(
        groups=groups.groups,
        codes={family: tuple(names) for family, names in (section.codes or {}).items()},
        place=place,
        regions=regions,
        cell=cell,
        ladders=ladders,
        levels=tuple(levels),
        stage_one=exact(section.stage_one if counts is None else 0),
        suppress=suppress,
        neighbours=privacy.neighbours,
        rows_per_unit=source.rows_per_unit,
        unit=source.unit,
        pure=privacy.definition == "pure",
        counts=counts,
    )
    _check_size(document, detailed, problems)
    files = {groups.name: groups.content}
    if counts is not None:
        files[counts.name] = counts.content
    return DetailedRead({"detailed": detailed}, files)


def _rule(entry: LevelEntry) -> LevelRule:
    budget = None if entry.budget is None else exact(entry.budget)
    return LevelRule(
        entry.region or "",
        entry.group_level or "",
        budget,
        entry.target,
        tuple(entry.thresholds or ()),
        ladder=entry.ladder or "",
    )


class _SectionReader:
    """Builds the parts of the section one at a time, recording what is wrong with each."""

    def __init__(self, section: DetailedSection, schema: Schema, domain: Domain, problems: Problems) -> None:
        self.section = section
        self.schema = schema
        self.domain = domain
        self.problems = problems
        self.outside = section.nowhere or {}

    def groups(self, base: Path) -> GroupFile | None:
        """The file of groups, once the codes that it is about are known."""
        families: dict[str, tuple[Attribute, int]] = {}
        before = len(self.problems.found)
        for family, names in (self.section.codes or {}).items():
            held = [self.code(name, ("detailed", "codes", family, i)) for i, name in enumerate(names)]
            plain = [attribute for attribute in held if attribute]
            for i, attribute in enumerate(plain[1:], start=1):
                if (attribute.values, attribute.labels) != (plain[0].values, plain[0].labels):
                    self.problems.add(
                        ("detailed", "codes", family, i),
                        f"{shown(names[i])} has other values than {shown(names[0])}: the codes of one record come "
                        "from one list",
                    )
            if plain:
                families[family] = (plain[0], len(names))
        name, regions = self.section.groups, self.section.regions or []
        if len(self.problems.found) > before or not families or name is None:
            return None
        return read_groups(base, name, families, regions, ("detailed", "groups"), self.problems)

    def code(self, name: str, path: KeyPath) -> Attribute | None:
        """An attribute that holds a code, without the category that stands for no code."""
        if name not in self.domain.names:
            if name not in self.schema.broken:
                self.problems.add(
                    path, f"there is no attribute {shown(name)}; {nearest(name, self.domain.names)}"
                )
            return None
        rule, attribute = self.schema.columns[name], self.domain[name]
        if rule.unknown == "other":
            self.problems.add(
                path,
                f'an unknown code of {shown(name)} would be taken for no code: write unknown = "refuse" there, and '
                "list every code",
            )
        return without_other(attribute, rule) if rule.has_other else attribute

    def regions(self) -> tuple[tuple[str, ...], dict[str, Regions]]:
        """The attributes of a leaf, and the regions of each type over all leaves."""
        asked = {
            name: self.view(name, ("detailed", "regions", i))
            for i, name in enumerate(self.section.regions or [])
            if name != NATION
        }
        found = {name: view for name, view in asked.items() if view}
        base = {view[0] for view in found.values()}
        place = tuple(name for name in self.domain.names if name in base)
        sizes = [self.domain[name].size for name in place]
        if prod(sizes) > MOST_LEAVES:
            self.problems.add(
                ("detailed", "regions"),
                f"the values of {listed(place)} make {prod(sizes):,} combinations, and at most {MOST_LEAVES:,} are "
                "kept: make the regions recodes of one attribute, the smallest area",
            )
            return place, {}
        position = np.unravel_index(np.arange(prod(sizes)), tuple(sizes) or (1,))
        axis = dict(zip(place, position, strict=False))
        out: dict[str, Regions] = {}
        for name in self.section.regions or []:
            if name == NATION:
                out[name] = Regions.nation(prod(sizes), identifier=NATION)
            elif name in found:
                attribute, part, labels = found[name]
                out[name] = self.region(name, part[axis[attribute]], labels)
        self.check_nowhere()
        return place, out

    def counts(
        self, base: Path, groups: GroupFile | None, regions: Mapping[str, Regions]
    ) -> PublicCounts | None:
        """The public counts that choose the tables, once the groups and regions that they are of are known."""
        name = self.section.counts
        if name is None or groups is None or set(regions) != set(self.section.regions or ()):
            return None
        return read_public_counts(base, name, groups.groups, regions, ("detailed", "counts"), self.problems)

    def region(self, name: str, of_leaf: np.ndarray, labels: tuple[str, ...]) -> Regions:
        """The regions of one type, without the labels that are none."""
        outside = set(self.outside.get(name, ()))
        kept = [label for label in labels if label not in outside]
        place = {label: i for i, label in enumerate(kept)}
        position = np.array([place.get(label, -1) for label in labels], np.int32)
        for i, label in enumerate(self.outside.get(name, ())):
            if label not in labels:
                told = f"there is no {shown(label)} in {name}; {nearest(label, labels)}"
                self.problems.add(("detailed", "nowhere", name, i), told)
        if not kept:
            told = (
                f"lists all {len(labels)} labels of {name}, so that it has no region to count in: keep those that are "
                f"regions out of the list, or remove {shown(name)} from regions, with its levels"
            )
            self.problems.add(("detailed", "nowhere", name), told)
        return Regions(name, tuple(kept), position[of_leaf])

    def check_nowhere(self) -> None:
        """Labels that are no region belong to a region type that the section has."""
        for name in self.outside:
            if name == NATION:
                told = f"the {NATION} has every record: remove it here"
                self.problems.add(("detailed", "nowhere", name), told)
            elif name not in (self.section.regions or ()):
                told = f"is not a region type of the section; {nearest(name, self.section.regions or ())}"
                self.problems.add(("detailed", "nowhere", name), told)

    def ladders(self) -> tuple[tuple[str, ...], dict[str, Ladder]]:
        """The attributes of a cell, and the tables after the total of each ladder; none where there are mistakes."""
        asked: dict[str, list[dict[str, View]]] = {}
        paths: dict[str, KeyPath] = {}
        before = len(self.problems.found)
        for ladder, tables in self.section.tables_of.items():
            paths[ladder] = path = ("detailed", "ladders", ladder) if ladder else ("detailed", "tables")
            asked[ladder] = [self.table(names, (*path, i)) for i, names in enumerate(tables[1:], start=1)]
        if len(self.problems.found) > before:
            return (), {}
        taken: dict[str, KeyPath] = {}
        for ladder, tables in asked.items():
            for i, table in enumerate(tables, start=1):
                self.check_name("_by_".join(table), (*paths[ladder], i), taken)
        used = {view[0] for tables in asked.values() for table in tables for view in table.values()}
        cell = tuple(name for name in self.domain.names if name in used)
        return cell, {ladder: self.ladder(cell, tables) for ladder, tables in asked.items()}

    def ladder(self, cell: tuple[str, ...], tables: Sequence[dict[str, View]]) -> Ladder:
        """One ladder over the attributes of a cell."""
        named = [
            ("_by_".join(table), {base: (labels, part.tolist()) for base, part, labels in table.values()})
            for table in tables
        ]
        ladder = Ladder.of({name: self.domain[name].size for name in cell}, named)
        # A table by a recode is headed by the recode, not by the attribute that it is a view of.
        rungs = tuple(
            replace(rung, columns={heading: view[2] for heading, view in table.items()})
            for rung, table in zip(ladder.rungs, tables, strict=True)
        )
        return replace(ladder, rungs=rungs)

    def check_name(self, name: str, path: KeyPath, taken: dict[str, KeyPath]) -> None:
        """Tables are files: no two may have one name, in whatever ladder."""
        before = taken.setdefault(name.casefold(), path)
        if before != path:
            self.problems.add(path, f"is by the same as {written(before)}: keep one")

    def table(self, names: Sequence[str], path: KeyPath) -> dict[str, View]:
        """Heading -> what it is a view of, of one table."""
        out: dict[str, View] = {}
        for j, name in enumerate(names):
            view = self.view(name, (*path, j))
            if name in TAKEN:
                self.problems.add(
                    (*path, j), f"{shown(name)} heads another column of the published tables: rename it"
                )
            elif view and any(view[0] == other[0] for other in out.values()):
                self.problems.add((*path, j), f"the table has {shown(view[0])} twice: keep one view of it")
            elif view:
                out[name] = view
        return out

    def view(self, name: str, path: KeyPath) -> View | None:
        """What a name is a view of, the class of each of its values, and the classes' labels."""
        if name in self.domain.names:
            attribute = self.domain[name]
            return name, np.arange(attribute.size), attribute.labels
        recode = self.domain.recode(name)
        if recode is not None:
            return recode.of, recode.classes, recode.labels
        if name not in self.schema.broken:
            known = (*self.domain.names, *(recode.name for recode in self.domain.recodes))
            self.problems.add(path, f"there is no attribute or recode {shown(name)}; {nearest(name, known)}")
        return None

    def suppression(self) -> Suppression | None:
        """Which totals are left out."""
        entry, regions = self.section.suppress, self.section.regions or []
        if entry is None or entry.chance is None:
            return None
        for i, name in enumerate(entry.regions or ()):
            if name not in regions:
                told = f"there is no region type {shown(name)}; {nearest(name, regions)}"
                self.problems.add(("detailed", "suppress", "regions", i), told)
        return Suppression(
            exact(entry.chance), frozenset(regions if entry.regions is None else entry.regions)
        )


def _check_levels(
    document: Document, section: DetailedSection, groups: GroupFile | None, problems: Problems
) -> None:
    """Each level names a region type and groups that exist, once, and has a threshold for each table."""
    first: dict[tuple[str, str, str], int] = {}
    open_budget = document.privacy is not None and document.privacy.budget == TARGETS
    for i, entry in enumerate(document.levels):
        if entry is None or entry.region is None or entry.group_level is None:
            continue
        path: KeyPath = ("detailed", "level", i)
        before = first.setdefault((entry.region, entry.group_level, entry.ladder or ""), i)
        if before != i:
            same = "region, group_level and ladder" if entry.ladder else "region and group_level"
            problems.add(path, f"detailed.level[{before}] has the same {same}: keep one")
        if entry.region not in (section.regions or [entry.region]):
            told = f"there is no region type {shown(entry.region)}; {nearest(entry.region, section.regions or ())}"
            problems.add((*path, "region"), told)
        elif groups is not None and not len(groups.groups.at(entry.group_level, entry.region)):
            known = sorted({group.level for group in groups.groups.groups})
            told = f"no group has level {shown(entry.group_level)} in {shown(entry.region)}; levels in the file: "
            problems.add((*path, "group_level"), told + listed(known))
        _check_ladder(entry, section, path, problems)
        if entry.budget is None and entry.target is not None and not open_budget:
            told = 'is missing: write it, or budget = "targets" under [privacy] for `tabulae plan` to find it'
            problems.add((*path, "budget"), told)
    for ladder in sorted(
        (section.ladders or {}).keys() - {entry.ladder for entry in document.levels if entry}
    ):
        if not problems.found:
            told = "no level is of this ladder: name it in [[detailed.level]], or remove it"
            problems.add(("detailed", "ladders", ladder), told)


def _check_ladder(entry: LevelEntry, section: DetailedSection, path: KeyPath, problems: Problems) -> None:
    """A level is of a ladder that there is, and has a threshold for each of its tables."""
    known = section.tables_of
    if not known or any(problems.has((*path, key)) for key in ("thresholds", "ladder")):
        return
    if (entry.ladder or "") not in known:
        if section.tables is not None:
            told = "names a ladder, and tables is the only one, without a name: remove it"
        elif entry.ladder is None:
            told = f"is missing: say which ladder the level is of: {listed(known)}"
        else:
            told = f"there is no ladder {shown(entry.ladder)}; {nearest(entry.ladder, known)}"
        problems.add((*path, "ladder"), told)
        return
    tables = len(known[entry.ladder or ""]) - 1
    if len(entry.thresholds or ()) != tables:
        told = f"has {len(entry.thresholds or ())} for the {tables} tables after the total: give one for each"
        problems.add((*path, "thresholds"), told)


def _check_size(document: Document, detailed: Detailed, problems: Problems) -> None:
    """Refuse to publish nothing, or more totals than the limit."""
    if document.release is None:
        return
    rows = 0
    for rule in detailed.levels:
        chosen, groups = detailed.chosen(rule), detailed.selection(rule.group_level, rule.region)
        rows += detailed.regions[rule.region].size * len(groups) if chosen is None else chosen.place.size
    if not rows:
        told = "lists no group that a level counts in its regions: nothing would be published"
        problems.add(("detailed", "counts"), told)
    if rows > document.release.max_rows:
        every = (
            "every group is published in every region"
            if detailed.counts is None
            else "each row of counts is one"
        )
        problems.add(
            ("release", "max_rows"),
            f"{every}: {rows:,} totals, and at most {document.release.max_rows:,} rows: ask for fewer regions or "
            f"groups, or write max_rows = {rows} under [release]",
        )
