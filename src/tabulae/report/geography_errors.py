"""How wrong published counts of areas are expected to be, and where they differ from unbiased ones: from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..products.areas.tables import GLS_ESTIMATE
from ..release.rows import Rows
from ..release.tables import ESTIMATED

_ROWS = 1 << 19  # rows of a table that are read at a time
SIZES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Where the classes of areas by people begin."""
DISTANCES = (1, 2, 4, 8, 16, 32, 64)
"""Where the classes of areas by off-spine distance begin."""


@dataclass(frozen=True, eq=False)
class AreaNumbers:
    """What one table says of each area of one type: arrays of shape (areas,).

    Attributes:
        kind: the type of area.
        codes: of the areas.
        cells: counts that each area has in the table.
        published: the area's people: the sum of its published counts.
        unbiased: the same sum of the unbiased estimates.
        variance: sum of the variances of the area's counts.
        noisy: how many of its counts are not exact.
        apart: sum of squared differences of published and unbiased counts.
        raised: sum over counts published as 0 to 9 of published minus unbiased.
        small: how many counts are published as 0 to 9, exact ones left out.
    """

    kind: str
    codes: tuple[str, ...]
    cells: int
    published: np.ndarray
    unbiased: np.ndarray
    variance: np.ndarray
    noisy: np.ndarray
    apart: np.ndarray
    raised: np.ndarray
    small: np.ndarray

    @property
    def rmse(self) -> float:
        """Expected root mean squared error of the unbiased counts that are not exact."""
        return self.rmse_of(np.ones(len(self.codes), bool))

    def rmse_of(self, chosen: np.ndarray) -> float:
        """The same over some areas; NaN where all their counts are exact."""
        noisy = self.noisy[chosen].sum()
        return sqrt(self.variance[chosen].sum() / noisy) if noisy else float("nan")


def area_numbers(folder: Path, name: str, kinds: Sequence[tuple[str, int]], cells: int) -> list[AreaNumbers]:
    """What a published table says of its areas, by type.

    Args:
        folder: of the release.
        name: of the table.
        kinds: in the table's order, each type of area with how many there are.
        cells: counts that each area has in the table.

    Raises:
        ReleaseError: the file cannot be read.
    """
    rows = Rows.of_parquet(folder / "tables" / f"{name}.parquet")
    return [_numbers(kind, rows, count, cells) for kind, count in kinds]


def _numbers(kind: str, rows: Rows, count: int, cells: int) -> AreaNumbers:
    step = max(1, _ROWS // cells)
    parts = [_summed(rows.take(min(step, count - first) * cells), cells) for first in range(0, count, step)]
    codes = tuple(code for named, _ in parts for code in named)
    sums = np.concatenate([np.zeros((7, 0)), *(numbers for _, numbers in parts)], axis=1)
    return AreaNumbers(kind, codes, cells, *sums)


def _summed(rows: pa.Table, cells: int) -> tuple[list[str], np.ndarray]:
    codes = rows["area"].to_pylist()[::cells]

    def column(name: str) -> np.ndarray:
        return rows[name].to_numpy().astype(float).reshape(-1, cells)

    published, deviation = column("estimate"), column("std_error")
    unbiased = column(GLS_ESTIMATE) if GLS_ESTIMATE in rows.column_names else published
    noisy = (rows["obs_status"].to_numpy(zero_copy_only=False) == ESTIMATED).reshape(-1, cells)
    apart = published - unbiased
    small = noisy & (published >= 0) & (published < 10)
    sums = (
        published,
        unbiased,
        deviation**2,
        noisy,
        apart**2,
        np.where(small, apart, 0.0),
        small,
    )
    return codes, np.stack([np.asarray(each, float).sum(axis=1) for each in sums])


@dataclass(frozen=True)
class ClassRow:
    """Areas of one type in one class.

    Attributes:
        kind: the type of area.
        label: of the class.
        areas: how many, without those whose counts are all exact.
        rmse: expected root mean squared error of the unbiased counts of these areas.
        bias: mean of published minus unbiased people of an area.
        bias_error: its standard error, from how much it differs between these areas; NaN for a single one.
        raised: mean of published minus unbiased over counts published as 0 to 9; NaN without any.
    """

    kind: str
    label: str
    areas: int
    rmse: float
    bias: float
    bias_error: float
    raised: float


def by_class(numbers: AreaNumbers, value: np.ndarray, edges: Sequence[int]) -> Iterator[ClassRow]:
    """Rows of the classes of areas by a number.

    Areas below the first class are left out, and those whose counts are all exact; and classes without any area.
    """
    place = np.searchsorted(np.array(edges), np.floor(value), side="right") - 1
    for i, low in enumerate(edges):
        chosen = (place == i) & (numbers.noisy > 0)
        count = int(chosen.sum())
        if not count:
            continue
        apart = numbers.published[chosen] - numbers.unbiased[chosen]
        error = float(apart.std(ddof=1)) / sqrt(count) if count > 1 else float("nan")
        small = numbers.small[chosen].sum()
        raised = float(numbers.raised[chosen].sum() / small) if small else float("nan")
        label = _label(low, edges[i + 1] if i + 1 < len(edges) else None)
        yield ClassRow(
            numbers.kind, label, count, numbers.rmse_of(chosen), float(apart.mean()), error, raised
        )


def _label(low: int, end: int | None) -> str:
    if end is None:
        return f"{low:,} or more"
    return f"{low:,}" if end == low + 1 else f"{low:,} to {end - 1:,}"
