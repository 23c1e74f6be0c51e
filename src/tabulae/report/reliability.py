"""How far counts may be trusted: their classes, each with a sign, and how many of a table's counts are in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..products.areas.tables import GLS_ESTIMATE
from ..release.rows import Rows
from ..release.tables import ESTIMATED, EXACT
from ..spec import ReliabilitySection
from .view import TableView

_ROWS = 1 << 19  # of a file, read at a time
_TONES, _LAST = (1, 2, 5, 6, 3), 4  # colours of the classes, and of the last
_POINTS = 20_000  # counts of a file that the picture of noise chooses from


@dataclass(frozen=True)
class ReliabilityClass:
    """One class as the page names it: its sign, its label, its coefficients of variation in words, and its colour."""

    sign: str
    label: str
    variation: str
    tone: int


def named_classes(section: ReliabilitySection) -> tuple[ReliabilityClass, ...]:
    """The classes, the most reliable first; the more filled circles, the more reliable.

    >>> [each.sign for each in named_classes(ReliabilitySection())]
    ['●●', '●○', '○○']
    """
    most = len(section.thresholds)
    tones = (*_TONES[:most], _LAST)
    return tuple(
        ReliabilityClass("●" * (most - i) + "○" * i, label, words, tones[i])
        for i, (label, words) in enumerate(zip(section.names, section.ranges, strict=True))
    )


@dataclass(frozen=True)
class Reliability:
    """How many of a table's counts are in each class, how many are exact, and how many cannot be estimated."""

    counts: tuple[int, ...]
    exact: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        """How many counts are classed: the estimated ones."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """The classes as shares, which sum to 1 (or are all 0)."""
        return tuple(count / max(1, self.total) for count in self.counts)


@dataclass(frozen=True)
class ReliabilityRow:
    """One row of the page's table: a published table, or its counts in areas of one type, ``kind``."""

    table: str
    reliability: Reliability
    kind: str | None = None
    anchor: str | None = None


def reliability_of(table: TableView, section: ReliabilitySection) -> Reliability:
    """Class the counts of a table that is in memory as a whole."""
    status = np.asarray(table.obs_status, dtype=object)
    return _counted(status, section.classes(table.about, table.std_error), len(section.names))


def _counted(status: NDArray[np.object_], classes: NDArray[np.int64], count: int) -> Reliability:
    chosen = status == ESTIMATED
    found = np.bincount(classes[chosen], minlength=count)
    exact = int((status == EXACT).sum())
    return Reliability(tuple(int(n) for n in found), exact, int(status.size - chosen.sum()) - exact)


@dataclass(frozen=True, eq=False)
class StoredReliability:
    """What a stored table says, by type of area: classes of its counts, and some counts with their margins."""

    kinds: dict[str, Reliability]
    estimate: NDArray[np.float64]
    margin: NDArray[np.float64]

    def rows(self, table: str, anchor: str | None = None) -> Iterator[ReliabilityRow]:
        """One row a type of area."""
        for kind, found in self.kinds.items():
            yield ReliabilityRow(table, found, kind, anchor)


def stored_reliability(path: Path, by: str, count: int, section: ReliabilitySection) -> StoredReliability:
    """Class the counts of a stored table of any length, some rows at a time.

    Args:
        path: the Parquet file.
        by: the column that says the type of area.
        count: how many rows the table has; an evenly spaced choice of 20,000 at most gives the points.
        section: the classes.

    Raises:
        ReleaseError: the file cannot be read.
    """
    rows, width = Rows.of_parquet(path), len(section.names)
    found: dict[str, NDArray[np.int64]] = {}
    points: list[NDArray[np.float64]] = [np.empty((2, 0))]
    step, first = max(1, -(-count // _POINTS)), 0
    while (piece := rows.take(_ROWS)).num_rows:
        status = piece["obs_status"].to_numpy(zero_copy_only=False)
        about = _floats(piece, GLS_ESTIMATE if GLS_ESTIMATE in piece.column_names else "estimate")
        classes = section.classes(about, _floats(piece, "std_error"))
        kinds = pa.chunked_array(piece[by]).combine_chunks().dictionary_encode()
        names, index = kinds.dictionary.to_pylist(), kinds.indices.to_numpy(zero_copy_only=False)
        for i, name in enumerate(names):
            here = index == i
            one = _counted(status[here], classes[here], width)
            numbers = np.array([*one.counts, one.exact, one.missing])
            found[name] = found.get(name, 0) + numbers
        chosen = np.arange(-first % step, piece.num_rows, step)
        points.append(_points(piece, status, chosen))
        first += piece.num_rows
    kept = {name: Reliability(tuple(n[:-2].tolist()), int(n[-2]), int(n[-1])) for name, n in found.items()}
    estimate, margin = np.concatenate(points, axis=1)
    return StoredReliability(kept, estimate, margin)


def _points(piece: pa.Table, status: NDArray[np.object_], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Estimates and margins, shape (2, n), of those of the chosen rows that are estimated with noise."""
    estimate = _floats(piece, "estimate")[chosen]
    margin = (_floats(piece, "ci_high")[chosen] - _floats(piece, "ci_low")[chosen]) / 2
    noisy = (status[chosen] == ESTIMATED) & np.isfinite(estimate) & (margin > 0)
    return np.stack([estimate[noisy], margin[noisy]])


def _floats(rows: pa.Table, name: str) -> NDArray[np.float64]:
    return rows[name].to_numpy().astype(float)
