"""Records in strict delimited text to counts of groups: the engine reads the file once, and checks it as it goes.

Every field is looked up in the list of what it may hold; a line with a field that is not found, or a file whose lines
the engine does not see as they stand, makes the file invalid. Only then is it read again, to say where.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DataError, InvalidArgument
from ...products.groups.count import EngineCounts, GroupCounts
from ...products.groups.engine import CODED, AreaSets, CodedRecords, Kinds, PackedCodes, areas_of, kinds_of
from ...products.groups.levels import AdaptivePlan
from ...sources.engines.duckdb import SCRATCH, connected, literal, lock, restrict
from ...sources.failures import redacted
from .delimited import can_read
from .faults import Faults
from .geography import GRF
from .lines import Code, LineLayout, Listed, WholeNumber, check_lines, leaf_keys, line_count
from .maps import CODES

if TYPE_CHECKING:
    import duckdb

_ABSENT = "\x01"
"""A field with this letter alone is NULL to the engine, and so refused: an empty field is an empty text."""


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


@contextmanager
def open_group_lines(
    path: str | Path,
    layout: LineLayout,
    plan: AdaptivePlan,
    *,
    memory: str | None = None,
) -> Iterator[GroupCounts]:
    """The counts of a plan's groups, from records in a text file; they can be read until the context ends.

    Args:
        path: the file.
        layout: its columns; leaves are numbered as in the plan's region types, and attributes are its ladders'.
        plan: what is to be counted.
        memory: the most that the engine takes, such as "4GB"; None is 4 GB. More goes, encrypted, to disk.

    Raises:
        SpecError: the file breaks the layout: all faults, with their lines; values are in ``confidential``.
        DataError: there are no records, or the file changed while it was read.
        InvalidArgument: the layout does not fit the plan.

    Privacy:
        Each record is counted in one leaf, one cell of the ladder, and in the groups that its codes that are read
        make it a member of: at most ``Family.most`` codes of a family. Keys come from the layout and the plan. What
        is refused depends on the records, and only their holder sees it.
    """
    path = Path(path)
    areas, kinds = areas_of(plan), kinds_of(plan)
    _check_fit(layout, plan, areas, kinds)
    packed = PackedCodes(tuple(rule.family for _, rule in layout.codes if rule.read))
    lines = line_count(path, layout)
    if lines is None:
        raise _refusal(path, layout)
    with connected(memory=memory, scratch=True) as connection:
        fault = _read(connection, path, layout, areas, kinds, packed)
        if fault is not None or _rows(connection, path) != (lines - 1, lines - 1):
            raise _refusal(path, layout, fault)
        yield EngineCounts(CodedRecords(connection, path.name, plan, areas, packed), kinds)


def _rows(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[int, ...]:
    """How many records were read, and how many of them have no fault."""
    query = f"SELECT count(*), count(area) FROM {CODED}"  # noqa: S608
    return redacted(path.name, lambda: connection.execute(query).fetchall())[0]


def _check_fit(layout: LineLayout, plan: AdaptivePlan, areas: AreaSets, kinds: Kinds) -> None:
    if len(layout.leaves) != areas.of_leaf.size:
        raise InvalidArgument(
            f"the layout has {len(layout.leaves)} leaves, and the plan has {areas.of_leaf.size}"
        )
    if layout.sizes.keys() != kinds.sizes.keys() or any(layout.sizes[a] != n for a, n in kinds.sizes.items()):
        raise InvalidArgument(
            f"the layout's attributes have sizes {layout.sizes}, and the ladders are over {dict(kinds.sizes)}"
        )
    given = {family.name: family for family in layout.families}
    wanted = {family.name: family for level in plan.levels for family in level.groups.families}
    if missing := wanted.keys() - given.keys():
        raise InvalidArgument(f"the layout has no column of codes of {', '.join(map(repr, sorted(missing)))}")
    if others := [name for name, family in wanted.items() if family != given[name]]:
        raise InvalidArgument(f"the layout and the plan differ in the family {', '.join(map(repr, others))}")


def _refusal(path: Path, layout: LineLayout, engine: DataError | None = None) -> DataError:
    """The faults of a file that the engine could not read, or did not read as it stands."""
    faults = Faults()
    check_persons(path, layout, faults)
    faults.stop(str(path.parent))
    if engine is not None and engine.confidential and "CSV" not in engine.confidential:
        return engine
    return DataError(
        f"{path.name} changed while it was read: make a copy that nothing writes to, and run again",
        confidential=None if engine is None else engine.confidential,
    )


def _read(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    layout: LineLayout,
    areas: AreaSets,
    kinds: Kinds,
    packed: PackedCodes,
) -> DataError | None:
    """Make `CODED`, or return what the engine has against the file."""
    try:
        redacted(path.name, lambda: _code(connection, path, layout, areas, kinds, packed))
    except DataError as error:
        return error
    return None


def _code(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    layout: LineLayout,
    areas: AreaSets,
    kinds: Kinds,
    packed: PackedCodes,
) -> None:
    """Make `CODED`; a record with any fault has no area."""
    restrict(connection, path)
    _look_ups(connection, layout, areas, kinds)
    # The engine takes any text file for a short one, and would keep the records in memory to look the leaves up.
    connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
    fields = ", ".join(f"'f{i}': 'VARCHAR'" for i in range(len(layout.columns)))
    key = f" || {literal(layout.delimiter)} || ".join(f"f{i}" for i in layout.keys)
    values = {i: _value(i, rule) for i, rule in (*layout.cells, *layout.codes)}
    typed = ", ".join([f"{key} AS leaf_key", *(f"{sql} AS v{i}" for i, sql in values.items())])
    words = packed.sql([f"v{i}" for i, rule in layout.codes if rule.read])
    named = ", ".join(f"{word} AS w{i}" for i, word in enumerate(words))
    connection.execute(
        f"CREATE TABLE {CODED} AS SELECT CASE WHEN {_is_good(layout)} THEN area END AS area, kind, {named} "  # noqa: S608
        f"FROM (SELECT {typed} FROM read_csv({literal(str(path.resolve()))}, auto_detect = false, header = true, "
        f"strict_mode = true, delim = {literal(layout.delimiter)}, quote = '', escape = '', nullstr = '{_ABSENT}', "
        f"columns = {{{fields}}})) "
        f"LEFT JOIN {SCRATCH}.leaves USING (leaf_key) LEFT JOIN {SCRATCH}.kinds ON {_cell(layout, kinds)} = cell"
    )
    connection.execute(f"DROP TABLE {SCRATCH}.leaves")
    connection.execute("RESET disabled_optimizers")
    lock(connection)


def _look_ups(
    connection: duckdb.DuckDBPyConnection, layout: LineLayout, areas: AreaSets, kinds: Kinds
) -> None:
    """What keys, cells and texts stand for: two tables, and a type for each column of values and family of codes."""
    import pyarrow as pa

    tables = {
        "leaves": pa.table({"leaf_key": leaf_keys(layout), "area": areas.of_leaf}),
        "kinds": pa.table({"cell": np.arange(kinds.of_cell.size), "kind": kinds.of_cell}),
    }
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {SCRATCH}.{name} AS SELECT * FROM given")  # noqa: S608
        connection.unregister("given")
    for i, rule in layout.cells:
        texts = rule.values if isinstance(rule, Listed) else map(_digits, range(rule.low, rule.high + 1))
        connection.execute(f"CREATE TYPE {SCRATCH}.type{i} AS ENUM ({', '.join(map(literal, texts))})")
    for i, rule in layout.codes:
        texts = [none_text(layout, rule), *rule.family.codes]
        connection.execute(f"CREATE TYPE {SCRATCH}.type{i} AS ENUM ({', '.join(map(literal, texts))})")


def _digits(number: int) -> str:
    """What is left of a number in digits without the zeros before it."""
    return str(number).lstrip("0")


def none_text(layout: LineLayout, rule: Code) -> str:
    """The text of no code; where there is none, one that is refused all the same and that no code is."""
    texts = [other.none for _, other in layout.codes if other.family.name == rule.family.name]
    return next((text for text in texts if text is not None), _ABSENT)


def _value(i: int, rule: Listed | WholeNumber | Code) -> str:
    """A field as a number from 0 on, NULL where it is not in the list."""
    text = f"f{i}"
    if isinstance(rule, WholeNumber):
        text = f"CASE WHEN f{i} <> '' THEN ltrim(f{i}, '0') END"
    return f"enum_code(TRY_CAST({text} AS {SCRATCH}.type{i}))"


def _cell(layout: LineLayout, kinds: Kinds) -> str:
    column = {rule.attribute: f"v{i}::BIGINT" for i, rule in layout.cells}
    cell = "0::BIGINT"
    for attribute, size in kinds.sizes.items():
        cell = f"({cell}) * {size} + {column[attribute]}"
    return cell


def _is_good(layout: LineLayout) -> str:
    """Whether a record follows the layout, as SQL that may be NULL where it does not."""
    conditions = ["kind IS NOT NULL"]
    for i, rule in layout.codes:
        conditions.append(f"v{i} IS NOT NULL" if rule.none is not None else f"v{i} > 0")
        if rule.pattern != ".+":
            wrong = [code for code in rule.family.codes if rule.fault(code)]
            conditions += (
                [f"v{i} NOT IN ({', '.join(str(rule.family.position[c] + 1) for c in wrong)})"]
                if wrong
                else []
            )
    conditions += [f"(v{j} = 0 OR v{i} > 0)" for i, j in layout.neighbours]
    return " AND ".join(conditions)
