"""Records of persons or households to counts of groups: the engine reads the file once, and checks it as it goes.

Every field is looked up in the list of what it may hold; a line with a field that is not found, or a file whose lines
the engine does not see as they stand, makes the file invalid. Only then is it read again, to say where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ...errors import DataError
from ...products.groups.count import EngineCounts, GroupCounts
from ...products.groups.engine import CODED, CodedRecords, PackedCodes, areas_of, kinds_of
from ...products.groups.levels import AdaptivePlan
from ...sources.engines.duckdb import SCRATCH, connected, literal, lock, restrict
from ...sources.failures import redacted
from .geography import GRF, BlockGeography
from .maps import BLOCK, CODES, RACES, families
from .programs import HOUSEHOLDS, PERSONS, Program
from .text import DELIMITER, Faults, can_read, line_count, read_rows

if TYPE_CHECKING:
    import duckdb

_NONE = "Null"
_ABSENT = "\x01"
"""A field with this letter alone is NULL to the engine, and so refused: an empty field is an empty text."""

_WHERE = ", ".join(BLOCK)
_CODE, _CODE_WORDS = "^[1-9][0-9]{3}$", "must be a code of four digits, the first not 0, such as 1010"
_Fields = Mapping[str, pa.StringArray]


@dataclass(frozen=True, eq=False)
class Records:
    """The file of records, and what its fields may hold.

    Attributes:
        program: whose file it is.
        path: the file.
        codes: of race and ethnicity; None where they are not known, and are not looked up.
        most: how many race codes of a record count.
        geography: the blocks; None where they are not known, and are not looked up.
    """

    program: Program
    path: Path
    codes: tuple[str, ...] | None
    most: int
    geography: BlockGeography | None = field(repr=False)

    def check(self, faults: Faults) -> None:
        """Note all mistakes, by line, their values as confidential ones; and what could not be looked up."""
        if not can_read(self.path, faults):
            self._look_for_others(faults)
            return
        name, before = self.path.name, len(faults.problems)
        for what, file, known in (("codes", CODES, self.codes), ("blocks", GRF, self.geography)):
            if known is None:
                words = f"its {what} could not be looked up, as {file} has mistakes: correct those, and check again"
                faults.add(name, words)
        for rows in read_rows(self.path, self.program.columns, faults, private=True):
            for column, words, wrong in self._wrong(rows.columns):
                at = np.flatnonzero(wrong)
                values = [rows.columns[each].take(at[: faults.listed]) for each in column.split(", ")]
                joined = map(DELIMITER.join, zip(*(part.to_pylist() for part in values), strict=True))
                faults.add_rows(name, words, rows.lines[at], column, list(joined))
        faults.problems[before:] = sorted(faults.problems[before:], key=lambda problem: problem.line or 0)

    def _look_for_others(self, faults: Faults) -> None:
        """Note records of the other program where there are none of this one."""
        other = HOUSEHOLDS if self.program is PERSONS else PERSONS
        if can_read(self.path.with_name(other.records), Faults()):
            what = "add --households" if other is HOUSEHOLDS else "leave out --households"
            faults.add(other.records, f"holds {other.unit}s, and {self.program.unit}s are asked for: {what}")

    def _wrong(self, fields: _Fields) -> Iterator[tuple[str, str, np.ndarray]]:
        """Of each rule its column, what it says, and which records break it."""
        for each in self.program.fields:
            yield each.column, each.words, ~_matches(fields[each.column], each.pattern)
        none = {name: _matches(fields[name], f"^{_NONE}$") for name in RACES[1:]}
        for name in (*RACES, "QSPAN"):
            code = _matches(fields[name], _CODE)
            if name in none:
                yield name, f"{_CODE_WORDS}, or {_NONE!r}", ~code & ~none[name]
            else:
                yield name, _CODE_WORDS, ~code
            if self.codes is not None:
                yield name, f"is not a code that {CODES} lists", code & ~_listed(fields[name], self.codes)
        for one, following in pairwise(RACES[1:]):
            yield following, f"must be {_NONE!r}, as the column before it is", none[one] & ~none[following]
        if self.geography is not None:
            yield _WHERE, f"{GRF} has no such block", ~self.geography.has(fields)

    @contextmanager
    def counts(self, plan: AdaptivePlan, memory: str | None = None) -> Iterator[GroupCounts]:
        """The counts of a plan's groups; they can be read until the context ends.

        Args:
            plan: what is to be counted, over the blocks and codes that are known here.
            memory: the most that the engine takes, such as "4GB"; None is 4 GB. More goes, encrypted, to disk.

        Raises:
            SpecError: the file has mistakes: all of them, with their lines; values are in ``confidential``.
            DataError: the file changed while it was read.

        Privacy:
            Each record is counted in one block, one cell of the ladder, and in the groups that its codes that are read
            make it a member of: at most ``most`` of race and one of ethnicity. Keys come from public files. What is
            refused depends on the records, and only their holder sees it.
        """
        assert self.codes is not None
        race, ethnicity = families(self.codes, self.most)
        packed = PackedCodes((*[race] * self.most, ethnicity))
        lines = line_count(self.path, self.program.columns)
        if lines is None:
            raise self._refusal(None)
        with connected(memory=memory, scratch=True) as connection:
            fault = self._read(connection, plan, packed)
            if fault is not None or self._rows(connection) != (lines - 1, lines - 1):
                raise self._refusal(fault)
            coded = CodedRecords(connection, self.path.name, plan, areas_of(plan), packed)
            yield EngineCounts(coded, kinds_of(plan))

    def _refusal(self, engine: DataError | None) -> DataError:
        """Why the engine could not read the file, or did not read it as it stands.

        Raises:
            SpecError: the file has mistakes.
        """
        faults = Faults()
        self.check(faults)
        faults.stop(str(self.path.parent))
        if engine is not None and engine.confidential and "CSV" not in engine.confidential:
            return engine
        return DataError(
            f"{self.path.name} changed while it was read, or has a line of more than 2,000,000 bytes: make a copy that "
            "nothing writes to, and run again",
            confidential=None if engine is None else engine.confidential,
        )

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> tuple[int, ...]:
        """How many records were read, and how many of them have no fault."""
        query = f"SELECT count(*), count(area) FROM {CODED}"  # noqa: S608
        return redacted(self.path.name, lambda: connection.execute(query).fetchall())[0]

    def _read(
        self, connection: duckdb.DuckDBPyConnection, plan: AdaptivePlan, packed: PackedCodes
    ) -> DataError | None:
        """Make `CODED`, or return what the engine has against the file."""
        try:
            redacted(self.path.name, lambda: self._code(connection, plan, packed))
        except DataError as error:
            return error
        return None

    def _code(self, connection: duckdb.DuckDBPyConnection, plan: AdaptivePlan, packed: PackedCodes) -> None:
        """Make `CODED`; a record with any fault has no area."""
        restrict(connection, self.path)
        self._look_ups(connection, plan)
        # The engine takes any text file for a short one, and would keep the records in memory to look the blocks up.
        connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        fields = ", ".join(f"'{name}': 'VARCHAR'" for name in self.program.columns)
        words = packed.sql([f"{name}_" for name in (*RACES[: self.most], "QSPAN")])
        named = ", ".join(f"{word} AS w{i}" for i, word in enumerate(words))
        connection.execute(
            f"CREATE TABLE {CODED} AS SELECT CASE WHEN {self._good} THEN area END AS area, kind, {named} "  # noqa: S608
            f"FROM (SELECT {self._typed} FROM read_csv({literal(str(self.path.resolve()))}, auto_detect = false, "
            f"header = true, strict_mode = true, delim = '{DELIMITER}', quote = '', escape = '', "
            f"nullstr = '{_ABSENT}', columns = {{{fields}}})) "
            f"LEFT JOIN {SCRATCH}.leaves USING (leaf_key) LEFT JOIN {SCRATCH}.kinds USING (cell)"
        )
        connection.execute(f"DROP TABLE {SCRATCH}.leaves")
        connection.execute("RESET disabled_optimizers")
        lock(connection)

    def _look_ups(self, connection: duckdb.DuckDBPyConnection, plan: AdaptivePlan) -> None:
        """What blocks, cells and texts stand for: two tables, and a type for each list of values."""
        assert self.codes is not None
        assert self.geography is not None
        kinds, areas = kinds_of(plan), areas_of(plan)
        tables = {
            "leaves": (_LEAF, pa.table({"block": self.geography.block, "area": areas.of_leaf})),
            "kinds": ("*", pa.table({"cell": np.arange(kinds.of_cell.size), "kind": kinds.of_cell})),
        }
        for name, (columns, table) in tables.items():
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {SCRATCH}.{name} AS SELECT {columns} FROM given")  # noqa: S608
            connection.unregister("given")
        listed = {f"list_{each.column}": each.listed for each in self.program.fields}
        for name, texts in {**listed, "codes": (_NONE, *self.codes)}.items():
            connection.execute(f"CREATE TYPE {SCRATCH}.{name} AS ENUM ({', '.join(map(literal, texts))})")

    @property
    def _typed(self) -> str:
        """The columns of a record as numbers, NULL where a field is wrong."""
        cell = "0"
        for each in self.program.cell:
            cell = f"({cell}) * {len(each.texts)} + {_code_of(each.sql, f'list_{each.column}')}::BIGINT"
        checked = [each for each in self.program.fields if not each.attribute]
        return ", ".join(
            [
                f" || '{DELIMITER}' || ".join(BLOCK) + " AS leaf_key",
                f"{cell} AS cell",
                *(f"{_code_of(f.sql, f'list_{f.column}')} AS {f.column}_" for f in checked),
                *(f"{_code_of(name, 'codes')} AS {name}_" for name in (*RACES, "QSPAN")),
            ]
        )

    @property
    def _good(self) -> str:
        """Whether a record has no fault, as SQL that may be NULL where it has one."""
        return " AND ".join(
            [
                *("kind IS NOT NULL", "QRACE1_ > 0", "QSPAN_ > 0"),
                *(f"{each.column}_ IS NOT NULL" for each in self.program.fields if not each.attribute),
                *(f"{name}_ IS NOT NULL" for name in RACES[1:]),
                *(f"({following}_ = 0 OR {one}_ > 0)" for one, following in pairwise(RACES[1:])),
            ]
        )


def _code_of(text: str, listed: str) -> str:
    """A field as its position in a list, NULL where it is not there."""
    return f"enum_code(TRY_CAST({text} AS {SCRATCH}.{listed}))"


_LEAF = (
    "printf('%02d|%03d|%06d|%04d', block // 10000000000000, block // 10000000000 % 1000, "
    "block // 10000 % 1000000, block % 10000) AS leaf_key, area"
)


def _matches(column: pa.StringArray, pattern: str) -> np.ndarray:
    compute: Any = pyarrow.compute
    return compute.match_substring_regex(column, pattern).to_numpy(zero_copy_only=False)


def _listed(column: pa.StringArray, codes: tuple[str, ...]) -> np.ndarray:
    compute: Any = pyarrow.compute
    return compute.is_in(column, pa.array(codes, pa.string())).to_numpy(zero_copy_only=False)
