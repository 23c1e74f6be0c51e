"""The Bureau's two programs: what their records say, which tables they measure, and the files they publish.

SafeTab-P counts persons by sex and age, SafeTab-H households by type and by tenure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...domain import Ladder
from .maps import BLOCK, RACES

SEXES = ("1", "2")
OLDEST = 115


@dataclass(frozen=True)
class Field:
    """A column of records that holds one of some texts.

    Args:
        column: its heading.
        texts: what it may hold.
        attribute: what the tables call it; "" for one that is checked and not used.
        padded: whether the texts are numbers from 0 on, which zeros may stand before.
    """

    column: str
    texts: tuple[str, ...]
    attribute: str = ""
    padded: bool = False

    @property
    def values(self) -> Sequence[str] | range:
        """The values of the attribute."""
        return range(len(self.texts)) if self.padded else self.texts

    @property
    def words(self) -> str:
        """What a message says that it must be."""
        if self.padded:
            return f"must be a whole number from {self.texts[0]} to {self.texts[-1]}, in digits"
        if len(self.texts) > _MANY:
            return f"must be one of {self.texts[0]!r} to {self.texts[-1]!r}"
        return f"must be one of {', '.join(map(repr, self.texts))}"

    @property
    def listed(self) -> tuple[str, ...]:
        """The texts that `sql` is looked up among."""
        return tuple(text.lstrip("0") for text in self.texts) if self.padded else self.texts

    @property
    def sql(self) -> str:
        """The column without the zeros before a number; NULL where it is empty."""
        return (
            f"CASE WHEN {self.column} <> '' THEN ltrim({self.column}, '0') END"
            if self.padded
            else self.column
        )

    @property
    def pattern(self) -> str:
        """What it must match."""
        return f"^{'0*' if self.padded else ''}({'|'.join(self.texts)})$"


_MANY = 8


@dataclass(frozen=True, eq=False)
class Tabulation:
    """One ladder of a program.

    Args:
        key: what keys of config.json call it: ``thresholds_<key>``.
        about: what its tables are by, for messages.
        ladder: the tables after the total.
    """

    key: str
    about: str
    ladder: Ladder


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file that is published: rows of a group in a region, each a sum of measured counts.

    Args:
        path: below the folder of the release, without ending.
        ladder: the tabulation that it is of.
        columns: between those that name the group and the count.
        rows: table -> for each of its cells, the rows that count it; "total" is the table of those that have none.
    """

    path: str
    ladder: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Sequence[tuple[str, ...]]]]


@dataclass(frozen=True, eq=False)
class Program:
    """What one program reads, measures and writes.

    Args:
        title: of a release.
        tables: what its files are called together.
        unit: what one row of the records is.
        records: their file.
        columns: of that file, in order.
        fields: the columns that the tables are by, in the order of cells, and those that are checked alone.
        tabulations: by the name of the ladder; "" for the only one.
        two_stages: whether noisy counts choose the tables; public ones do where not.
        files: what is published.
        about: of each folder of them, what a page says.
    """

    title: str
    tables: str
    unit: str
    records: str
    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    tabulations: Mapping[str, Tabulation]
    two_stages: bool
    files: tuple[TableFile, ...]
    about: Mapping[str, str]

    @property
    def cell(self) -> tuple[Field, ...]:
        """The columns that the tables are by."""
        return tuple(field for field in self.fields if field.attribute)

    @property
    def other(self) -> str:
        """What keys of the other program are told by, which may stand in the same config.json."""
        return "h" if self.two_stages else "p"


# Persons ---------------------------------------------------------------------------------------------

AGES = {
    "sex*age4": (18, 45, 65),
    "sex*age9": (5, 18, 25, 35, 45, 55, 65, 75),
    "sex*age23": (5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""Table -> lower edges of its age ranges but the first, which begins at 0; the last one ends at 115."""


def age_ranges(table: str) -> tuple[tuple[int, int], ...]:
    """First and last age of each range of a table.

    >>> age_ranges("sex*age4")
    ((0, 17), (18, 44), (45, 64), (65, 115))
    """
    edges = (0, *AGES[table], OLDEST + 1)
    return tuple((low, high - 1) for low, high in pairwise(edges))


def _sex_by_age() -> Ladder:
    """Sex by 4, 9 and 23 ages; cells by age, then sex."""
    tables = []
    for table in AGES:
        ranges = age_ranges(table)
        part = [i for i, (low, high) in enumerate(ranges) for _ in range(low, high + 1)]
        labels = [f"{low}-{high}" if low < high else str(low) for low, high in ranges]
        tables.append((table, {"age": (labels, part), "sex": (SEXES, range(len(SEXES)))}))
    return Ladder.of({"age": OLDEST + 1, "sex": len(SEXES)}, tables)


def _person_files(ladder: Ladder) -> tuple[TableFile, ...]:
    """T1 has the total of each group; T2 its cells, and a sum for each sex under ``*`` for all ages."""
    totals: dict[str, list[list[tuple[str, ...]]]] = {"total": [[()]]}
    cells = {}
    for rung in ladder.rungs:
        totals[rung.name] = [[()]] * rung.cells
        cells[rung.name] = [
            [(str(low), str(high), sex), ("*", "*", sex)]
            for low, high in age_ranges(rung.name)
            for sex in SEXES
        ]
    return (
        TableFile("t1/t1", "", (), totals),
        TableFile("t2/t2", "", ("AGESTART", "AGEEND", "SEX"), cells),
    )


_SEX_BY_AGE = _sex_by_age()

PERSONS = Program(
    title="detailed groups (T1 and T2)",
    tables="T1 and T2",
    unit="person",
    records="person-records.txt",
    columns=("QAGE", "QSEX", "HOUSEHOLDER", *BLOCK, "CENRACE", *RACES, "QSPAN"),
    fields=(
        Field("QAGE", tuple(map(str, range(OLDEST + 1))), "age", padded=True),
        Field("QSEX", SEXES, "sex"),
    ),
    tabulations={"": Tabulation("p", "sex by age", _SEX_BY_AGE)},
    two_stages=True,
    files=_person_files(_SEX_BY_AGE),
    about={
        "t1/t1.csv": "the noisy total of each published group: REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT",
        "t2/t2.csv": 'sex by age of the groups that are large enough; AGESTART and AGEEND are "*" for all ages',
        "tables/sex*age*.*": "each cell of T2, adjusted so that the cells of a group add up to its estimated total",
    },
)

# Households ------------------------------------------------------------------------------------------

_TYPES = tuple("12345")
_TENURES = tuple("1234")

_TYPE_CELLS = {
    "0": ("total", "12345"),
    "1": ("family households", "123"),
    "2": ("married couple family", "1"),
    "3": ("other family", "23"),
    "4": ("male householder, no spouse or partner present", "2"),
    "5": ("female householder, no spouse or partner present", "3"),
    "6": ("nonfamily households", "45"),
    "7": ("householder living alone", "4"),
    "8": ("householder not living alone", "5"),
}
"""Code of a cell of T3 -> its label, and the household types in it."""

_TENURE_CELLS = {
    "0": ("total", "1234"),
    "1": ("owned with a mortgage or loan", "1"),
    "2": ("owned free and clear", "2"),
    "3": ("renter occupied", "34"),
}
"""Code of a cell of T4 -> its label, and the tenures in it."""

_Cells = Mapping[str, tuple[str, str]]


def _of_cells(cells: _Cells, measured: Iterable[str], sizes: Mapping[str, int], attribute: str) -> Ladder:
    """The ladder of tables whose cells are some of the codes."""
    tables = []
    for codes in measured:
        labels, held = zip(*(cells[code] for code in codes), strict=True)
        part = [
            next(i for i, values in enumerate(held) if str(v + 1) in values) for v in range(sizes[attribute])
        ]
        tables.append((f"{attribute}{len(codes)}", {attribute: (labels, part)}))
    return Ladder.of(sizes, tables)


def _household_files(
    name: str, tabulation: Tabulation, cells: _Cells, measured: Sequence[str]
) -> list[TableFile]:
    """One file a table, with its cells and all that are sums of them: ``T03001`` is that of the totals."""
    number, column = name.removeprefix("t"), (f"{name.upper()}_DATA_CELL",)
    rows: list[tuple[str, list[list[tuple[str, ...]]]]] = [("total", [[("0",)]])]
    for rung, codes in zip(tabulation.ladder.rungs, measured, strict=True):
        found: list[list[tuple[str, ...]]] = []
        for code in codes:
            held = set(cells[code][1])
            found.append([(sum_of,) for sum_of, (_, values) in cells.items() if held <= set(values)])
        rows.append((rung.name, found))
    return [
        TableFile(f"{name}/T0{number}{i:03d}", name, column, {table: found})
        for i, (table, found) in enumerate(rows, start=1)
    ]


_SIZES = {"household_type": len(_TYPES), "tenure": len(_TENURES)}
_T3, _T4 = ("16", "2378", "24578"), ("123",)
"""The codes of the cells that each table measures, coarsest first."""

_BY_TYPE = Tabulation("h_t3", "household type", _of_cells(_TYPE_CELLS, _T3, _SIZES, "household_type"))
_BY_TENURE = Tabulation("h_t4", "tenure", _of_cells(_TENURE_CELLS, _T4, _SIZES, "tenure"))

HOUSEHOLDS = Program(
    title="detailed groups of households (T3 and T4)",
    tables="T3 and T4",
    unit="household",
    records="household-records.txt",
    columns=(*BLOCK, "HHRACE", *RACES, "QSPAN", "HOUSEHOLD_TYPE", "TEN"),
    fields=(
        Field("HHRACE", tuple(f"{code:02d}" for code in range(1, 64))),
        Field("HOUSEHOLD_TYPE", _TYPES, "household_type"),
        Field("TEN", _TENURES, "tenure"),
    ),
    tabulations={"t3": _BY_TYPE, "t4": _BY_TENURE},
    two_stages=False,
    files=(
        *_household_files("t3", _BY_TYPE, _TYPE_CELLS, _T3),
        *_household_files("t4", _BY_TENURE, _TENURE_CELLS, _T4),
    ),
    about={
        "t3/T03001.csv to T03004": "household type of each group, a file for each table: T03001 has totals alone",
        "t4/T04001.csv, T04002": "tenure, as finely as the group can bear",
        "tables/household*, tenure*": "each measured cell of T3 and T4, with its errors",
    },
)
