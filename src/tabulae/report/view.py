"""What the report of a release shows: data, no markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..products.areas.tables import GLS_ESTIMATE
from ..release import Release
from ..spec import ReliabilitySection
from .derived import DerivedView, derived_views
from .drawn import PosteriorView
from .leading import fair_order
from .promise import LedgerLine, PromiseView, StandingView, ledger_lines, standing_view
from .rows import (
    HEADINGS,
    MOST_SHOWN,
    ROWS_SHOWN,
    STORED_NUMBERS,
    RowKinds,
    StoredReliability,
    TableView,
    floats,
    stored_reliability,
)


@dataclass(frozen=True, eq=False)
class MatrixPicture:
    """A matrix as an image: each pixel the entry of largest magnitude of a tile of the full ``shape``."""

    attribute: str
    pixels: NDArray[np.float64]
    shape: tuple[int, int]


@dataclass(frozen=True)
class BlockView:
    """One block of a strategy: what it asks, with which noise, and its factors as pictures.

    ``asked`` are the attributes that it does not sum over, ``compared`` those of them whose values it only compares
    with each other. ``share`` is what it would cost by itself, as a share of the budget; None where there is one block
    only. ``deviation`` is the size of its noise in counts, for a value that counts most.
    """

    name: str
    measures: str
    queries: int
    noise: str
    pictures: tuple[MatrixPicture, ...] = ()
    undrawn: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    share: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class StrategyView:
    """The strategy: the method that chose it, its blocks, and its proven relative gap to the best, if any.

    ``estimate`` says in words how the tables follow from the blocks' noisy answers.
    """

    method: str
    blocks: tuple[BlockView, ...]
    certificate: float | None = None
    estimate: str = "by least squares, so that all tables agree with each other"


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedView:
    """What the report of a release of any kind shows."""

    title: str
    promise: PromiseView
    ledger: tuple[LedgerLine, ...]
    release_id: str
    made: str
    version: str
    interval: float = 0.95
    reliability: ReliabilitySection = field(default_factory=ReliabilitySection)
    standing: StandingView | None = None
    derived: tuple[DerivedView, ...] = ()


def published_fields(release: Release) -> dict[str, Any]:
    """The fields of :class:`PublishedView` but the promise."""
    return {
        "title": release.spec.title or "Release",
        "ledger": ledger_lines(release.ledger),
        "release_id": str(release.about["release_id"]),
        "made": str(release.descriptor["created"]),
        "version": str(release.about["version"]),
        "interval": release.level,
        "reliability": release.spec.reliability,
        "standing": standing_view(release),
        "derived": derived_views(release),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseView(PublishedView):
    """Everything that the report of tables shows; ``raised``: estimates are kept from falling below zero."""

    tables: tuple[TableView, ...]
    strategy: StrategyView
    raised: bool = False
    posterior: PosteriorView | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredView(PublishedView):
    """What the report of a release of any length shows of its tables: first rows, and what the files say of all."""

    samples: tuple[TableView, ...]
    stored: tuple[StoredReliability, ...]


def stored_fields(
    release: Release,
    rows: Mapping[str, int],
    by: str,
    words: Callable[[str], str],
    left_out: Callable[[str], Sequence[str]] = lambda name: (),
) -> dict[str, Any]:
    """The fields of :class:`StoredView` but the promise.

    Arguments:
        rows: table -> how many rows it has.
        by: the column that says the type of area.
        words: what a row of a table is.
        left_out: columns of words that are not shown.
    """
    stored = {
        name: stored_reliability(release.path / f"tables/{name}.parquet", by, count, release.spec.reliability)
        for name, count in rows.items()
    }
    return {
        **published_fields(release),
        "samples": tuple(
            _sample(release, name, words(name), found, left_out(name)) for name, found in stored.items()
        ),
        "stored": tuple(stored.values()),
    }


def _sample(
    release: Release, name: str, what: str, stored: StoredReliability, left_out: Sequence[str]
) -> TableView:
    """Some rows of every kind of area, in the order of the file."""
    kinds = {kind: found.rows for kind, found in stored.kinds.items()}
    names = list(kinds)
    wanted = fair_order(list(kinds.values()), ROWS_SHOWN, MOST_SHOWN)
    place = np.array([stored.heads[names[kind]].places[row] for kind, row in wanted], dtype=np.int64)
    in_file = np.argsort(place)
    order = np.argsort(in_file)
    starts = np.cumsum([0, *(stored.heads[kind].rows.num_rows for kind in names)])
    every = pa.concat_tables([stored.heads[kind].rows for kind in names])
    at = np.array([starts[kind] + row for kind, row in wanted], dtype=np.int64)
    rows = every.take(pa.array(at[in_file])).combine_chunks()
    headings = [heading for heading in rows.column_names if heading not in (*STORED_NUMBERS, *left_out)]
    return TableView.of(
        release,
        name,
        rows,
        {
            HEADINGS.get(str(heading), str(heading)): rows[heading].take(pa.array(order)).to_pylist()
            for heading in headings
        },
        description=what,
        count=sum(kinds.values()),
        order=order,
        kinds=RowKinds(kinds, tuple(names[kind] for kind, _ in wanted)),
        centre=floats(rows, GLS_ESTIMATE) if GLS_ESTIMATE in rows.column_names else None,
    )
