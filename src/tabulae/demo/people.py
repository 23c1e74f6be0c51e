"""The built-in population: households with their members, and people in group quarters; and its release as files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument, ReleaseError

if TYPE_CHECKING:
    import pyarrow as pa


#: What the columns of the population hold, in the order of their codes.
COUNTIES = tuple(f"{2 * i + 1:03d}" for i in range(12))
SEXES = ("F", "M")
RACES = ("1", "2", "3", "4", "5", "6")
ETHNICITIES = ("hispanic", "not hispanic")
RELATIONSHIPS = (
    "householder",
    "spouse",
    "partner",
    "child",
    "other relative",
    "nonrelative",
    "group quarters",
)
QUARTERS = ("household", "student", "nursing", "military", "correctional", "other")
OLDEST = 99

HOUSEHOLDER, SPOUSE, PARTNER, CHILD, RELATIVE, NONRELATIVE, IN_QUARTERS = range(7)
STUDENT, NURSING, MILITARY, CORRECTIONAL, OTHER = range(1, 6)

# One row a county: share of households, how old its householders are (0 young .. 1 old), and the mix of
# races of its householders. Orders of magnitude are those of an American state; no county is a real one.
COUNTY_SHARES = np.array(
    [0.372, 0.204, 0.138, 0.091, 0.068, 0.049, 0.033, 0.021, 0.0125, 0.0066, 0.0033, 0.0016]
)
COUNTY_AGES = np.array([0.35, 0.45, 0.50, 0.20, 0.55, 0.60, 0.65, 0.70, 0.60, 0.75, 0.80, 0.55])
COUNTY_RACES = np.array(
    [
        [0.560, 0.215, 0.006, 0.095, 0.0020, 0.122],
        [0.705, 0.098, 0.004, 0.110, 0.0010, 0.082],
        [0.818, 0.062, 0.004, 0.042, 0.0008, 0.073],
        [0.744, 0.071, 0.005, 0.103, 0.0012, 0.076],
        [0.902, 0.024, 0.004, 0.013, 0.0004, 0.057],
        [0.463, 0.452, 0.003, 0.014, 0.0004, 0.068],
        [0.931, 0.011, 0.008, 0.006, 0.0003, 0.044],
        [0.872, 0.009, 0.006, 0.007, 0.0150, 0.091],
        [0.417, 0.006, 0.502, 0.005, 0.0005, 0.070],
        [0.958, 0.004, 0.007, 0.004, 0.0002, 0.027],
        [0.966, 0.003, 0.006, 0.003, 0.0001, 0.022],
        [0.972, 0.002, 0.010, 0.002, 0.0000, 0.014],
    ]
)
# Chance that a householder is Hispanic: a county's level times a race's factor.
COUNTY_HISPANIC = np.array([0.17, 0.10, 0.08, 0.09, 0.05, 0.04, 0.11, 0.26, 0.06, 0.02, 0.015, 0.03])
RACE_HISPANIC = np.array([0.80, 0.25, 0.70, 0.06, 0.60, 3.20])

# Chance by householder's age (18-24, 25-34, 35-44, 45-54, 55-64, 65-74, 75 and over).
HOUSEHOLDER_BANDS = np.array([25, 35, 45, 55, 65, 75])
HOUSEHOLDERS_YOUNG = np.array([0.10, 0.24, 0.21, 0.17, 0.14, 0.10, 0.06])
HOUSEHOLDERS_OLD = np.array([0.02, 0.08, 0.12, 0.17, 0.23, 0.22, 0.19])
MARRIED = np.array([0.08, 0.38, 0.54, 0.55, 0.56, 0.56, 0.38])
PARTNERED = np.array([0.16, 0.14, 0.08, 0.06, 0.05, 0.03, 0.01])
# Number of children at home, 0 to 6: a row by the householder's age, for those who live with a partner.
CHILDREN = np.array(
    [
        [0.62, 0.25, 0.10, 0.02, 0.007, 0.002, 0.001],
        [0.35, 0.26, 0.24, 0.10, 0.035, 0.010, 0.005],
        [0.14, 0.20, 0.37, 0.19, 0.070, 0.020, 0.010],
        [0.28, 0.28, 0.29, 0.11, 0.030, 0.007, 0.003],
        [0.68, 0.21, 0.09, 0.015, 0.004, 0.0007, 0.0003],
        [0.90, 0.08, 0.017, 0.002, 0.0007, 0.0002, 0.0001],
        [0.94, 0.055, 0.004, 0.0007, 0.0002, 0.0001, 0.0],
    ]
)
RELATIVES = np.array([0.905, 0.065, 0.020, 0.007, 0.003])
NONRELATIVES_YOUNG = np.array([0.62, 0.22, 0.10, 0.06])
NONRELATIVES = np.array([0.955, 0.033, 0.008, 0.004])

# Group quarters: 2.8 % of people; how many of each kind (columns) live in each county (rows); the ages,
# the share of women and how strongly each race is over-represented there.
QUARTERS_SHARE = 0.028
QUARTERS_PLACES = np.array(
    [
        [0.080, 0.070, 0.000, 0.012, 0.030],
        [0.020, 0.045, 0.000, 0.110, 0.012],
        [0.012, 0.032, 0.000, 0.000, 0.008],
        [0.240, 0.018, 0.000, 0.000, 0.005],
        [0.006, 0.021, 0.000, 0.000, 0.003],
        [0.000, 0.012, 0.000, 0.085, 0.003],
        [0.000, 0.010, 0.052, 0.000, 0.002],
        [0.004, 0.008, 0.000, 0.000, 0.003],
        [0.000, 0.003, 0.000, 0.020, 0.002],
        [0.000, 0.003, 0.000, 0.000, 0.001],
        [0.000, 0.002, 0.000, 0.000, 0.000],
        [0.000, 0.000, 0.000, 0.000, 0.000],
    ]
)
QUARTERS_AGES = {
    STUDENT: (18, 25),
    NURSING: (62, 99),
    MILITARY: (18, 42),
    CORRECTIONAL: (18, 70),
    OTHER: (1, 90),
}
QUARTERS_WOMEN = np.array([0.0, 0.54, 0.68, 0.16, 0.09, 0.42])
QUARTERS_RACES = np.array(
    [
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.9, 1.0, 0.8, 2.6, 1.5, 1.3],
        [1.2, 0.8, 0.7, 0.5, 0.5, 0.4],
        [0.9, 1.5, 1.2, 0.9, 6.0, 1.4],
        [0.6, 3.6, 2.8, 0.2, 1.2, 1.8],
        [0.8, 1.7, 1.8, 0.6, 1.0, 1.2],
    ]
)


Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Chance:
    """Uniform draws on [0, 1) from raw PCG64 words, and the few discrete draws built on them."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.PCG64(seed)

    def uniform(self, size: int) -> Floats:
        return (self._words.random_raw(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def happens(self, chance: Floats) -> NDArray[np.bool_]:
        return self.uniform(chance.size) < chance

    def one_of(self, weights: Floats, size: int) -> Codes:
        """Draw ``size`` codes, code ``k`` with probability proportional to ``weights[k]``."""
        ladder = np.cumsum(weights / weights.sum())[:-1]
        return np.searchsorted(ladder, self.uniform(size), side="right").astype(np.int64)

    def one_of_each(self, weights: Floats, rows: Codes) -> Codes:
        ladder = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        draws = self.uniform(rows.size)
        codes = np.zeros(rows.size, dtype=np.int64)
        for rung in range(ladder.shape[1]):
            codes += ladder[:, rung][rows] <= draws
        return codes

    def between(self, low: Codes, high: Codes, *, peaked: bool = False) -> Codes:
        """Draw whole numbers low .. high inclusive, evenly or peaked in the middle."""
        draws = self.uniform(low.size)
        if peaked:
            draws = (draws + self.uniform(low.size)) / 2
        return low + (draws * (high - low + 1)).astype(np.int64)


@dataclass(frozen=True)
class _People:
    """Columns of codes, one entry a person."""

    county: Codes
    age: Codes
    sex: Codes
    race: Codes
    hispanic: NDArray[np.bool_]
    relationship: Codes
    quarters: Codes

    def take(self, order: Codes) -> _People:
        return _People(*(column[order] for column in vars(self).values()))

    def joined(self, other: _People) -> _People:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _People(*(np.concatenate(pair) for pair in pairs))


def population(people: int = 200_000, seed: int = 2020) -> pa.Table:
    """A synthetic population: one row a person, seven columns.

    Columns: ``county`` ("001" .. "023", 12), ``age`` (0 .. 99), ``sex`` (F, M), ``race`` ("1" .. "6"),
    ``ethnicity`` (2), ``relationship`` (7, the last one "group quarters") and ``quarters`` (household or
    one of five kinds of group quarters). The domain has 12 x 100 x 2 x 6 x 2 x 7 x 6 = 1,209,600 cells.

    Args:
        people: the number of rows, at least 0.
        seed: the same seed gives the same people, on every machine.

    Raises:
        InvalidArgument: if ``people`` or ``seed`` is negative.

    Example:
        >>> table = population(1000)
        >>> table.num_rows, table.column_names[:3]
        (1000, ['county', 'age', 'sex'])
        >>> table.equals(population(1000)), table.equals(population(1000, seed=7))
        (True, False)
    """
    if people < 0 or seed < 0:
        raise InvalidArgument("population(people, seed): both must be at least 0")
    chance = _Chance(seed)
    in_quarters = int(QUARTERS_SHARE * people)
    everyone = _households(chance, people - in_quarters).joined(_group_quarters(chance, in_quarters))
    shuffled = np.argsort(chance.uniform(people), kind="stable").astype(np.int64)
    return _as_table(everyone.take(shuffled))


def _householders(chance: _Chance, number: int) -> _People:
    county = chance.one_of(COUNTY_SHARES, number)
    older = COUNTY_AGES[:, None]
    band = chance.one_of_each((1 - older) * HOUSEHOLDERS_YOUNG + older * HOUSEHOLDERS_OLD, county)
    lows, highs = np.array([18, *HOUSEHOLDER_BANDS]), np.array([*(HOUSEHOLDER_BANDS - 1), 95])
    age = chance.between(lows[band], highs[band])
    # The oldest thin out with age: the younger of two draws.
    oldest = age >= HOUSEHOLDER_BANDS[-1]
    age[oldest] = np.minimum(age, chance.between(lows[band], highs[band]))[oldest]
    race = chance.one_of_each(COUNTY_RACES, county)
    hispanic = chance.happens(np.minimum(COUNTY_HISPANIC[county] * RACE_HISPANIC[race], 0.9))
    women = 0.46 + 0.22 * np.clip((age - 55) / 35.0, 0.0, 1.0)
    sex = (~chance.happens(women)).astype(np.int64)
    zeros = np.zeros(number, dtype=np.int64)
    return _People(county, age, sex, race, hispanic, zeros + HOUSEHOLDER, zeros)


def _households(chance: _Chance, people: int) -> _People:
    """Whole households, the last one cut short so that ``people`` persons come out."""
    heads = _householders(chance, people)  # always enough: a household holds at least its householder
    band = np.searchsorted(HOUSEHOLDER_BANDS, heads.age, side="right").astype(np.int64)
    draw = chance.uniform(heads.age.size)
    married = draw < MARRIED[band]
    partnered = ~married & (draw < MARRIED[band] + PARTNERED[band])
    children = chance.one_of_each(CHILDREN, band)
    alone = ~(married | partnered)
    # Two of three who live without a partner have no child at home.
    children[alone & chance.happens(np.full(alone.size, 0.66))] = 0
    relatives = chance.one_of(RELATIVES, alone.size)
    nonrelatives = np.where(
        alone & (heads.age < 30),
        chance.one_of(NONRELATIVES_YOUNG, alone.size),
        chance.one_of(NONRELATIVES, alone.size),
    )
    numbers = np.stack([np.ones_like(band), married, partnered, children, relatives, nonrelatives], axis=1)
    roles = np.tile(np.arange(numbers.shape[1]), band.size)
    role = np.repeat(roles, numbers.ravel())[:people]
    home = np.repeat(np.arange(band.size), numbers.sum(axis=1))[:people]
    return _members(chance, heads, role, home)


def _members(chance: _Chance, heads: _People, role: Codes, home: Codes) -> _People:
    """Ages, sexes and races of the members, given those of their householder."""
    of_head = heads.take(home)
    size = role.size
    sex = (~chance.happens(np.full(size, 0.492))).astype(np.int64)
    opposite = chance.happens(np.full(size, 0.975))
    sex = np.where(
        (role == SPOUSE) | (role == PARTNER), np.where(opposite, 1 - of_head.sex, of_head.sex), sex
    )
    sex = np.where(role == HOUSEHOLDER, of_head.sex, sex)
    # Families mostly share a race; children of two races are counted in the last group.
    other_race = chance.one_of_each(COUNTY_RACES, of_head.county)
    apart = chance.happens(np.array([0.0, 0.09, 0.13, 0.05, 0.06, 0.45])[role])
    race = np.where(apart, np.where(role == CHILD, len(RACES) - 1, other_race), of_head.race)
    changes = chance.happens(np.array([0.0, 0.06, 0.08, 0.04, 0.04, 0.12])[role])
    hispanic = of_head.hispanic ^ changes
    age = _member_ages(chance, role, of_head.age)
    zeros = np.zeros(size, dtype=np.int64)
    return _People(of_head.county, age, sex, race, hispanic, role, zeros)


def _member_ages(chance: _Chance, role: Codes, head: Codes) -> Codes:
    size = head.size
    fixed = np.zeros(size, dtype=np.int64)
    mate = np.maximum(head + chance.between(fixed - 9, fixed + 8, peaked=True), 18)
    # A parent is 17 to 45 years older than the child, and most often about 30.
    oldest_gap = np.minimum(head, 45)
    gap = chance.between(fixed + 17, oldest_gap, peaked=True)
    child = head - np.where(head < 40, chance.between(fixed + 17, oldest_gap), gap)
    elder = np.clip(head + chance.between(fixed + 18, fixed + 38), 50, 74) + chance.between(fixed, fixed + 20)
    younger = chance.between(fixed, np.maximum(head - 30, 12))
    relative = np.where(chance.happens(np.full(size, 0.35)), elder, younger)
    lodger = chance.between(fixed + 18, fixed + 48, peaked=True)
    ages = np.choose(role, [head, mate, mate, child, relative, lodger])
    return np.clip(ages, 0, OLDEST).astype(np.int64)


def _group_quarters(chance: _Chance, people: int) -> _People:
    kinds = QUARTERS_PLACES.shape[1]
    place = chance.one_of(QUARTERS_PLACES.ravel(), people)
    county, quarters = place // kinds, place % kinds + 1
    low = np.array([0, *(ages[0] for ages in QUARTERS_AGES.values())])[quarters]
    high = np.array([0, *(ages[1] for ages in QUARTERS_AGES.values())])[quarters]
    # Students and soldiers are young within their span, patients old.
    age = chance.between(low, high, peaked=True)
    evenly = chance.between(low, high)
    young = (quarters == STUDENT) | (quarters == MILITARY)
    age = np.where(
        young, np.minimum(age, evenly), np.where(quarters == NURSING, np.maximum(age, evenly), age)
    )
    sex = (~chance.happens(QUARTERS_WOMEN[quarters])).astype(np.int64)
    weights = (COUNTY_RACES[:, None, :] * QUARTERS_RACES[None, 1:, :]).reshape(-1, len(RACES))
    race = chance.one_of_each(weights, place)
    hispanic = chance.happens(np.minimum(COUNTY_HISPANIC[county] * RACE_HISPANIC[race], 0.9))
    relationship = np.full(people, IN_QUARTERS, dtype=np.int64)
    return _People(county, age.astype(np.int64), sex, race, hispanic, relationship, quarters)


def _as_table(everyone: _People) -> pa.Table:
    import pyarrow as pa

    def named(codes: Codes, labels: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(labels))

    ethnicity = np.where(everyone.hispanic, 0, 1).astype(np.int64)
    return pa.table(
        {
            "county": named(everyone.county, COUNTIES),
            "age": pa.array(everyone.age, pa.int16()),
            "sex": named(everyone.sex, SEXES),
            "race": named(everyone.race, RACES),
            "ethnicity": named(ethnicity, ETHNICITIES),
            "relationship": named(everyone.relationship, RELATIONSHIPS),
            "quarters": named(everyone.quarters, QUARTERS),
        }
    )


def write_population(path: str | Path, people: int = 200_000, seed: int = 2020) -> Path:
    """Write `population` to a new CSV or Parquet file, by the ending of ``path``.

    Raises:
        InvalidArgument: if the ending is neither .csv nor .parquet.
        ReleaseError: if the file exists.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_population(Path(folder) / "people.csv", people=3).read_text().splitlines()[0]
        '"county","age","sex","race","ethnicity","relationship","quarters"'
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidArgument(f"cannot tell the format of {path.name!r}: name the file .csv or .parquet")
    with _new_file(path) as file:
        if path.suffix == ".csv":
            import pyarrow as pa
            from pyarrow import csv

            table = population(people, seed)
            plain = [pa.field(f.name, pa.int16() if f.name == "age" else pa.string()) for f in table.schema]
            csv.write_csv(table.cast(pa.schema(plain)), file)
        else:
            from pyarrow import parquet

            parquet.write_table(population(people, seed), file)
    return path


def write_demo(folder: str | Path, people: int = 200_000, seed: int = 2020) -> Path:
    """Write all that the built-in release needs, and return the path of its spec.

    The folder, made if need be, then holds ``demo.toml``, the code lists that it names, and
    ``people.parquet``; the ledger that the spec names is yet to be created.

    Raises:
        ReleaseError: if one of the files exists.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spec = write_demo(folder, people=3)
        ...     sorted(p.name for p in spec.parent.iterdir())
        ['codes', 'demo.toml', 'people.parquet']
    """
    folder = Path(folder)
    data = resources.files("tabulae").joinpath("data")
    (folder / "codes").mkdir(parents=True, exist_ok=True)
    for code_list in data.joinpath("codes").iterdir():
        _copy(code_list, folder / "codes" / code_list.name)
    write_population(folder / "people.parquet", people, seed)
    return _copy(data.joinpath("demo.toml"), folder / "demo.toml")


def _copy(resource: Traversable, path: Path) -> Path:
    with _new_file(path) as file:
        file.write(resource.read_bytes())
    return path


def _new_file(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        raise ReleaseError(f"{path} exists: remove it, or choose another folder") from None
