"""The shares of a geography: of the budget by level, and of each level's budget by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import linalg

from ....domain import Domain, Figure
from ....domain.codes import Numbered
from ....errors import InvalidArgument, Unsupported
from ....estimation.figures import linears_of
from ....privacy import ZCDP, PureDP, exact
from ....spec.areas import AreaTarget, GeographySection, OptimiseEntry, area_targets
from ....spec.document import Spec
from ....spec.problems import KeyPath, Problems, Taken, shown, written
from ....spec.promise import SPARSE, Method, Promise
from ....spec.public_file import encoded
from ....spec.published import BOUND, SPINE
from ....spec.schema import Schema
from ....spec.section import Section
from ....spec.sections import Document
from ..constraints import AreaConstraints, check_reachable
from ..descent.limits import NodeLimits
from ..layout import CellLayout, Margin, Supports
from ..passes.forms import AreaForms
from ..spine.hierarchy import ROOT
from ..spine.spine import Spine
from ..spine_plan import SpinePlan
from .condition import occurring
from .earlier import EarlierAreaCounts, read_earlier
from .files import AXES, Leaves, only_numbers, read_leaves, read_places
from .limits import Bound, Cells, Names, Occurring, join_constraints, read_cells, read_exact, read_universe
from .sparse import SparseSection, read_sparse, refuse_with_sparse


@dataclass(frozen=True)
class LevelShares:
    """Shares that add up to 1, of levels and within each level that is measured."""

    levels: Mapping[str, Fraction]
    queries: Mapping[str, tuple[Fraction, ...]]

    @classmethod
    def equal(cls, levels: Sequence[str], queries: int) -> LevelShares:
        """The same share for each level, and for each query within it."""
        within = (Fraction(1, queries),) * queries
        return cls(dict.fromkeys(levels, Fraction(1, len(levels))), dict.fromkeys(levels, within))


_OFF = -2  # in place of a unit, of a leaf that is not on the spine


@dataclass(frozen=True)
class SpineLevels:
    """The levels of the spine, those of the file, and why a root is added above them; empty where none is."""

    names: tuple[str, ...]
    why_root: str = ""


def levels_of(leaves: Leaves, kept: np.ndarray | None) -> SpineLevels:
    """The levels of the spine: below a root where the first of the file has several units, or leaves outside them.

    Args:
        kept: shape (leaves,), boolean: which of them are on the spine; None for all.
    """
    first = leaves.levels[0]
    number = np.where(True if kept is None else kept, leaves.columns[first].index, _OFF)
    used = np.unique(number[number > _OFF])
    outside = leaves.row[number == -1]
    if used.size < 2 and not outside.size and len(leaves.levels) > 1:
        return SpineLevels(leaves.levels)
    if used.size <= 2 and outside.size:
        why = f"{shown(first)}, which is empty on {leaves.unit} {outside[0]} of its file,"
    else:
        why = f"{shown(first)} with its several units,"
    return SpineLevels((ROOT, *leaves.levels), why)


def read_level_shares(
    document: Document, section: GeographySection, levels: SpineLevels | None, problems: Problems
) -> LevelShares | None:
    """The shares as written; None, with the mistakes recorded, where they do not add up, or where none are written."""
    before = len(problems.found)
    given = {level: exact(share) for level, share in (section.shares or {}).items()}
    if levels is not None:
        _check_levels(given, levels, problems)
    if section.shares is not None and len(problems.found) == before and sum(given.values()) != 1:
        told = f"the shares of the levels add up to {sum(given.values())}, and not to 1"
        problems.add(("geography", "shares"), told)
    within = _within(document, levels and levels.names, problems)
    if not problems.has(("geography", "query")) and not problems.has(("geography", "shares")):
        _check_within(given, within, problems)
    whole = section.shares is not None and all(
        entry and entry.shares is not None for entry in document.queries
    )
    right = whole and bool(document.queries) and len(problems.found) == before
    return LevelShares(given, within) if right and not problems.has(("geography", "shares")) else None


def _check_levels(given: Mapping[str, Fraction], levels: SpineLevels, problems: Problems) -> None:
    """Every level of the spine has a share, and nothing else has."""
    path, names = ("geography", "shares"), levels.names
    for level in given:
        if level not in names:
            problems.add_unknown((*path, level), "level", level, names)
    for at, level in enumerate(names):
        if given and level not in given:
            added = f", which is added above {levels.why_root}" if levels.why_root and not at else ""
            problems.add(path, f'level {shown(level)}{added} has no share: write {level} = "0" for none')
    if given and given.get(names[-1]) == 0:
        problems.add((*path, names[-1]), "is 0: leaves need a share, or nothing tells them apart")


def _within(
    document: Document, levels: Sequence[str] | None, problems: Problems
) -> dict[str, tuple[Fraction, ...]]:
    entries = [entry.shares or {} if entry else {} for entry in document.queries]
    for at, shares in enumerate(entries):
        for level in shares:
            if levels is not None and level not in levels:
                problems.add_unknown(("geography", "query", at, "shares", level), "level", level, levels)
    asked = dict.fromkeys(level for shares in entries for level in shares)
    return {level: tuple(exact(shares.get(level, "0")) for shares in entries) for level in asked}


def _check_within(
    given: Mapping[str, Fraction], within: Mapping[str, tuple[Fraction, ...]], problems: Problems
) -> None:
    """The queries of each level that is measured share all of its budget, and no other level has queries."""
    for level, share in given.items():
        total = sum(within.get(level, ()), Fraction(0))
        if share and total != 1:
            told = f"at level {shown(level)} the shares of the queries add up to {total}, and not to 1"
            problems.add(("geography", "query"), told)
        elif total and not share:
            told = f"level {shown(level)} has no share of the budget, and queries have shares of it: remove theirs"
            problems.add(("geography", "query"), told)


AREA_TYPE, AREA = "area_type", "area"
"""The columns of a published table that say which area a row is about."""


@dataclass(frozen=True, eq=False)
class AreaTable:
    """A marginal that is published for areas."""

    name: str
    margin: Margin
    areas: tuple[str, ...]
    targets: tuple[AreaTarget, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Geography:
    """What ``[geography]`` asks for, over the public domain.

    The *universe* is the leaves in which something can occur; the spine is over them alone. A leaf outside it counts
    exactly 0.

    Attributes:
        column: of the records: the code of the leaf that each lies in.
        levels: of the file, the leaf last: the areas on the spine as they are published.
        entity_types: columns of the file with areas that cut across the levels.
        conventional: the spine of the levels as they are in the file, without shares.
        spine: as it is measured: split, redrawn and with its shares.
        constraints: limits and exact counts that estimates meet; None where there are none.
        tables: what is published.
        estimate: "bluedown", "topdown", "gls", "posterior" or "sparse".
        sparse: how cells are numbered and divided where counts are sparse; None elsewhere.
        microdata: whether one row a person is published.
        bounds: what public files of limits say that can occur.
        places: shape (leaves, 2): where each leaf of the universe is on a map; None where the file does not say it.
        shares: of the levels and their queries.
        open_shares: whether these only stand for shares that are to be chosen for the tables; they are equal then.
        rule: of the bypass: "exact", "paper", or "off" for none.
    """

    column: str
    levels: tuple[str, ...]
    entity_types: tuple[str, ...]
    conventional: Spine
    constraints: AreaConstraints | None
    tables: tuple[AreaTable, ...]
    estimate: str
    sparse: SparseSection | None
    microdata: bool
    bounds: tuple[Occurring, ...]
    places: np.ndarray | None
    shares: LevelShares
    open_shares: bool
    rule: str
    _plan: SpinePlan
    _leaves: Leaves
    _kept: np.ndarray

    def plan(self) -> SpinePlan:
        return self._plan

    def with_budget(self, budget: PureDP | ZCDP) -> Geography:
        return replace(self, _plan=replace(self._plan, budget=budget))

    def with_shares(self, shares: LevelShares) -> Geography:
        """The same geography with other shares, chosen for its tables.

        Raises:
            InvalidArgument: shares that do not add up to 1, or leave a cell of some level undetermined.
        """
        plan, cells = self._plan, Cells(self.layout, self.queries)
        pure = isinstance(plan.budget, PureDP)
        spine = with_shares(plan.spine, shares, cells, self.rule, pure=pure)
        shared = replace(plan, spine=spine, query_shares=shares.queries)
        return replace(self, shares=shares, open_shares=False, _plan=shared)

    @property
    def spine(self) -> Spine:
        return self._plan.spine

    @property
    def layout(self) -> CellLayout:
        return self._plan.layout

    @property
    def queries(self) -> tuple[Margin, ...]:
        return self._plan.queries

    @cached_property
    def leaf_codes(self) -> np.ndarray:
        """Shape (leaves,), text: codes of the universe, in the order of the spine's leaves."""
        return self._leaves.codes.texts[self._kept].astype(np.str_)

    @cached_property
    def dropped(self) -> np.ndarray:
        """Codes, as text, of the leaves outside the universe: nothing can occur there."""
        return self._leaves.codes.texts[~self._kept].astype(np.str_)

    @property
    def kept(self) -> np.ndarray:
        """Shape (leaves of the file,), boolean: which of them are in the universe."""
        return self._kept

    @property
    def entities(self) -> dict[str, np.ndarray]:
        """For each entity type, shape (leaves,), object: the entity of each leaf of the universe; None for none."""
        return {name: self._leaves.columns[name].texts[self._kept] for name in self.entity_types}

    @property
    def area_types(self) -> tuple[str, ...]:
        """The levels of the file and the entity types: what a table may be published for."""
        return (*self.levels, *self.entity_types)

    def areas(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The areas of a level or entity type, as the file has them.

        Returns:
            Codes of the areas as rising text, those with no leaf in the universe too; and, shape (leaves,), int64, the
            position there of the area of each leaf of the universe, -1 where it lies in none.
        """
        if name not in self.area_types:
            raise InvalidArgument(f"{name!r} is not a level or entity type: {', '.join(self.area_types)}")
        if name not in self._areas:
            index, codes = self._leaves.columns[name]
            self._areas[name] = codes, index[self._kept].astype(np.int64)
        return self._areas[name]

    @cached_property
    def _areas(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {}

    def rows(self, table: AreaTable) -> Mapping[str, int]:
        """How many rows a table publishes for each of its kinds of area."""
        return {name: self.areas(name)[0].size * table.margin.size for name in table.areas}


def read_spines(
    section: GeographySection, leaves: Leaves, kept: np.ndarray, problems: Problems
) -> tuple[Spine, Spine] | None:
    """The spine of the file, and the one that is measured, split and redrawn as the section asks, without shares.

    None, with the mistakes recorded, where there can be none.
    """
    columns = {name: column.at(kept) for name, column in leaves.columns.items()}
    plain = problems.attempt(("geography", "levels"), lambda: Spine.from_codes(columns, leaves.levels))
    spine = plain and _split(section, plain, leaves.inside, kept, problems)
    if plain is None or spine is None:
        return None
    entry = section.optimise
    if entry is None:
        return plain, spine
    names = section.entities if entry.entities is None else entry.entities
    if problems.has(("geography", "columns")) or not _can_optimise(entry, names, spine, problems):
        return None
    entities = [columns[name] for name in names]
    path = ("geography", "optimise")
    about = (entry.fanout_cutoff, entry.levels, entry.rule)
    drawn = problems.attempt(path, lambda: spine.optimise(entities, *about))
    return None if drawn is None else (plain, drawn)


def _split(
    section: GeographySection, plain: Spine, inside: np.ndarray | None, kept: np.ndarray, problems: Problems
) -> Spine | None:
    """The spine with its branches; None, with the mistake recorded, where no unit can be split."""
    path = ("geography", "split" if section.split_below is None else "split_below")
    if inside is None:
        if section.split_below is not None and section.split is None:
            problems.add(path, "says where a split begins, and there is none: remove it, or add split")
        return plain
    if section.split_below is not None and section.split_below not in plain.levels:
        problems.add_unknown(path, "level", section.split_below, plain.levels)
        return None
    return problems.attempt(path, lambda: plain.split(inside[kept], section.split_below))


def _can_optimise(entry: OptimiseEntry, names: list[str], spine: Spine, problems: Problems) -> bool:
    """Whether there is something to come closer to, and every level exists."""
    if not names:
        told = 'has no entities to come closer to: write entities = ["place"], there or in [geography]'
        problems.add(("geography", "optimise"), told)
    unknown = [(i, level) for i, level in enumerate(entry.levels or ()) if level not in spine.levels]
    for i, level in unknown:
        problems.add_unknown(("geography", "optimise", "levels", i), "level", level, spine.levels)
    return bool(names) and not unknown


def with_shares(spine: Spine, shares: LevelShares, cells: Cells, rule: str, *, pure: bool) -> Spine:
    """The spine with shares, units of no use left out.

    Args:
        rule: of the bypass: "exact", "paper", or "off" for none.
    """
    if rule == "off":
        return spine.with_shares(shares.levels)
    if not pure:
        return spine.bypass(shares.levels, "gaussian", rule)
    informations = query_informations(spine, shares, cells) if rule == "exact" else None
    return spine.bypass(shares.levels, "laplace", rule, informations)


def query_informations(spine: Spine, shares: LevelShares, cells: Cells) -> dict[str, np.ndarray]:
    """M = sum alpha^2 Q'Q of each level, one block for each kind of contrast.

    The blocks hold every eigenvalue of M, and of one M relative to another, so that what follows from them holds for
    all cells; cells that cannot occur in a unit leave rows and columns out, which keeps the Loewner order. A level that
    is not measured takes no part, and has the identity.
    """
    algebra, size = cells.layout.algebra, cells.layout.size
    kinds = np.flatnonzero(algebra.kind_sizes)
    found = {}
    for level in spine.levels:
        if not shares.levels.get(level):
            found[level] = np.eye(kinds.size * size)
            continue
        blocks = np.zeros((algebra.kinds, size, size))
        for share, query in zip(shares.queries[level], cells.queries, strict=True):
            if share and query.kept is not None:
                blocks += float(share) ** 2 * algebra.term(query.dense_gram(np.arange(size)), query.kept)
        found[level] = linalg.block_diag(*blocks[kinds])
    return found


TAKEN = (AREA_TYPE, AREA, "gls_estimate")
"""What no attribute of a table may be named like: other columns of the published tables."""


@dataclass(frozen=True)
class AskedTable:
    """A table as the document asks for it: what it is by, the levels and entities it is published for, its targets."""

    name: str
    attributes: tuple[str, ...]
    areas: tuple[str, ...]
    targets: tuple[AreaTarget, ...]
    weight: float


def read_area_tables(
    document: Document, schema: Schema, domain: Domain, problems: Problems
) -> list[AskedTable] | None:
    """The tables that the document publishes; None, with the mistakes recorded, where one is wrong."""
    before = len(problems.found)
    names = Names(domain, schema, problems)
    section = document.geography
    every = (*(section.levels or ()), *section.entities) if section else ()
    known = section is not None and not any(
        problems.has(("geography", key)) for key in ("levels", "entities")
    )
    names_taken = Taken()
    found = []
    for at, entry in enumerate(document.tables):
        if entry is None:
            continue
        path: KeyPath = ("table", at)
        names.bases(entry.attributes or (), (*path, "attributes"))
        for i, name in enumerate(entry.attributes or ()):
            if name in TAKEN:
                told = f"{shown(name)} heads another column of the published tables: rename it"
                problems.add((*path, "attributes", i), told)
        for i, area in enumerate(entry.areas or ()):
            if known and area not in every:
                problems.add_unknown((*path, "areas", i), "level or entity", area, every)
            elif area in (entry.areas or ())[:i]:
                problems.add((*path, "areas", i), f"{shown(area)} is there twice: keep one")
        title = entry.name or written(path)
        if told := names_taken.by(title, path):
            problems.add((*path, "name"), told)
        areas = tuple(entry.areas or every)
        given = document.area_targets[at] if at < len(document.area_targets) else ()
        targets = area_targets(given, at, areas, problems) if known else ()
        found.append(AskedTable(title, tuple(entry.attributes or ()), areas, targets, entry.weight))
    return found if len(problems.found) == before else None


def check_people(geography: Geography, problems: Problems) -> None:
    """Refuse microdata in which a level and an attribute would head two columns of one name."""
    names = {name.casefold() for name in geography.levels}
    for name in geography.layout.domain.names if geography.microdata else ():
        if name.casefold() in names:
            told = (
                f"{shown(name)} is a level and an attribute, and would head two columns: rename the attribute"
            )
            problems.add(("release", "microdata"), told)


def check_size(document: Document, geography: Geography, problems: Problems) -> None:
    """Refuse to publish more rows than the limit."""
    rows = {table.name: sum(geography.rows(table).values()) for table in geography.tables}
    total = sum(rows.values())
    if document.release is None or total <= document.release.max_rows:
        return
    largest = max(rows, key=lambda name: rows[name])
    problems.add(
        ("release", "max_rows"),
        f"the tables have {total:,} rows in all, {rows[largest]:,} of them in {shown(largest)}, and at most "
        f"{document.release.max_rows:,} are published: give tables areas = [...] without "
        f"{shown(geography.levels[-1])}, or write max_rows = {total} under [release]",
    )


@dataclass(frozen=True)
class GeographyRead(Section):
    """``[geography]``, read without a mistake."""

    def check_figure(self, figure: Figure) -> None:
        check_figure(figure, self.parts["geography"])

    def figure_rows(self, figure: Figure, areas: tuple[str, ...]) -> int:
        return figure.rows * sum(self.parts["geography"].areas(kind)[0].size for kind in areas)


def read_section(
    document: Document,
    schema: Schema,
    promise: Promise | None,
    method: Method | None,
    base: Path,
    problems: Problems,
) -> GeographyRead | None:
    """``[geography]`` over the domain that the document declares; None where there are mistakes."""
    section = document.geography
    leaves = section and read_leaves(section, base, problems)
    cells = schema.domain and read_cells(document, schema, schema.domain, problems)
    asked = schema.domain and read_area_tables(document, schema, schema.domain, problems)
    universe = leaves and cells and read_universe(document, leaves, cells, base, problems)
    levels = levels_of(leaves, universe.kept if universe else None) if leaves else None
    shares = section and read_level_shares(document, section, levels, problems)
    if document.open_shares and levels and cells:
        shares = LevelShares.equal(levels.names, len(cells.queries))
    if method:
        refuse_with_sparse(document, method, promise, problems)
    if not (section and leaves and cells and universe):
        return None
    kept, support = universe.kept, universe.support.take(universe.kept)
    made = occurring(section, universe.support, cells.layout, problems)
    leaves = replace(leaves, columns={**leaves.columns, **made})
    spines = read_spines(section, leaves, kept, problems)
    exact = spines and read_exact(
        document, section.entities, leaves, kept, spines[1], cells.layout, support, problems
    )
    if spines is None or exact is None or not (shares and promise and method and asked is not None):
        return None
    earlier = read_earlier(document, method, exact[0], leaves, kept, spines[1], cells.layout, base, problems)
    if earlier is None:
        return None
    held = {**earlier.areas, **exact[1]}
    plan = _plan(document, spines[1], held, shares, cells, support, promise, problems)
    limits = universe.bounds if method.estimate != "gls" else ()
    fixed = [*exact[0], *earlier.margins]
    constraints = join_constraints(limits, fixed, leaves, kept, cells.layout, problems)
    if plan is None or problems.found:
        return None
    sparse = None
    if method.estimate == SPARSE:
        sparse = read_sparse(document, plan, earlier, constraints, problems)
    _check_limits(constraints, plan, method, problems)
    if problems.found:
        return None
    geography = Geography(
        column=section.column or "",
        levels=leaves.levels,
        entity_types=tuple(section.entities),
        conventional=spines[0],
        constraints=constraints,
        tables=tuple(
            AreaTable(t.name, cells.layout.margin(t.attributes), t.areas, t.targets, t.weight) for t in asked
        ),
        estimate=method.estimate,
        sparse=sparse,
        microdata=bool(document.release and document.release.microdata),
        bounds=tuple(bound.occurring(kept) for bound in universe.bounds),
        places=read_places(leaves.text, kept),
        shares=shares,
        open_shares=document.open_shares,
        rule=section.bypass,
        _plan=plan,
        _leaves=leaves,
        _kept=kept,
    )
    return _checked(document, geography, leaves, universe.bounds, earlier, problems)


def _checked(
    document: Document,
    geography: Geography,
    leaves: Leaves,
    bounds: Sequence[Bound],
    earlier: EarlierAreaCounts,
    problems: Problems,
) -> GeographyRead:
    """With its public files; whether it is too large is recorded."""
    check_size(document, geography, problems)
    check_people(geography, problems)
    files = _files(geography, leaves, bounds) | earlier.files
    return GeographyRead({"geography": geography}, files, marks=earlier.marks)


def _files(geography: Geography, leaves: Leaves, bounds: Sequence[Bound]) -> dict[str, bytes]:
    """The public files as they are published: of the leaves the columns that are used, and no other."""
    axes = [axis for axis in AXES if axis not in leaves.used]
    left_out = () if geography.places is not None else axes
    columns = {
        name: only_numbers(cells) if name in axes else cells
        for name, cells in leaves.text.items()
        if name not in left_out
    }
    return {SPINE: encoded(columns)} | {BOUND.format(at=b.at): b.content for b in bounds}


def _plan(
    document: Document,
    spine: Spine,
    held: Mapping[str, tuple[KeyPath, Numbered]],
    shares: LevelShares,
    cells: Cells,
    support: Supports,
    promise: Promise,
    problems: Problems,
) -> SpinePlan | None:
    """What is measured of every unit, with a node for each area whose counts are exact."""
    section, source, budget = document.geography, document.source, promise.loss
    if problems.has(("privacy", "neighbours")):
        return None
    if section is None or source is None or not isinstance(budget, PureDP | ZCDP):
        return None
    pure, neighbours, rows = isinstance(budget, PureDP), promise.neighbours, source.rows_per_unit
    shared = problems.attempt(
        ("geography", "shares"), lambda: with_shares(spine, shares, cells, section.bypass, pure=pure)
    )
    for name, (path, codes) in held.items():
        shared = shared and problems.attempt((*path, "level"), lambda s=shared, n=name, c=codes: s.hold(n, c))
    if shared is None:
        return None
    about = (cells.layout, cells.queries, shares.queries, budget, support, neighbours, rows)
    return problems.attempt(("geography", "query"), lambda: SpinePlan(shared, *about))


def _check_limits(
    limits: AreaConstraints | None, plan: SpinePlan, method: Method, problems: Problems
) -> None:
    """Record whether estimates can meet the limits and exact counts, as is known without data; not of sparse ones."""
    if limits is None or method.estimate == SPARSE:
        return
    path = ("invariant" if limits.exact else "earlier" if limits.earlier else "bound",)
    problems.attempt(path, lambda: limits.check(plan, method.estimate))
    if method.estimate == "posterior":
        problems.attempt(("method", "estimate"), lambda: check_reachable(plan, limits))
    if limits.public.earlier and not problems.found:
        problems.attempt(("earlier",), lambda: NodeLimits.of(plan, limits.public))


def geography_of(spec: Spec) -> Geography:
    """What a spec has under ``[geography]``."""
    if spec.geography is None:
        raise Unsupported("this spec has no [geography]: it publishes no areas")
    return spec.geography


def check_figure(figure: Figure, geography: Geography) -> None:
    """Refuse a figure that areas cannot have."""
    for name in figure.headings:
        if name in TAKEN:
            raise InvalidArgument(f"{shown(name)} heads another column of the published figures: rename it")
    joint = [each.table for each in linears_of(figure) if each.table]
    for tables in (*([joint] if joint else []), *([quantile.table] for quantile in figure.quantiles)):
        AreaForms.of(geography.layout, tables)
