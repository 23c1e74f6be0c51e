"""What a report shows: plain values, all public, filled from a release folder.

Nothing here computes; nothing here can hold a record. Text fields are shown as they are (escaped),
numbers are formatted by the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from ..privacy import Neighbours
from ..spec import ReliabilitySection
from .series import StandingView

if TYPE_CHECKING:
    from .derived import DerivedView

ROWS_SHOWN = 500
"""A table of the report shows at most so many rows; the release folder holds them all."""

Definition = Literal["pure", "approx", "zcdp"]


@dataclass(frozen=True)
class EpsilonStatement:
    """One statement of (epsilon, delta) that the promise implies."""

    delta: float
    epsilon: float


@dataclass(frozen=True)
class ExactView:
    """One set of counts published exactly, and why: the promise does not cover what these alone reveal.

    ``counts`` is how many there are and ``file`` where they stand, None for those of an earlier release.
    """

    what: str
    reason: str
    counts: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Consequences:
    """What follows from the counts that are exact, in this release and together with earlier ones of its ledger.

    ``stated`` counts are exact and ``independent`` of them say all that they say. ``published`` holds for each table
    with exact rows its name, how many they are, and how many rows it has. ``earlier`` were stated exactly by earlier
    releases; ``joint`` is how many independent counts are exact with those. ``unprotected`` are attributes that the
    promise leaves out where neighbours are bound by the exact counts. ``warnings`` are sentences to be read.
    """

    stated: int
    independent: int
    published: tuple[tuple[str, int, int], ...] = ()
    earlier: tuple[ExactView, ...] = ()
    joint: int | None = None
    unprotected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Promise:
    """The promise of a release.

    ``parameter`` is epsilon for ``"pure"`` and ``"approx"``, rho for ``"zcdp"``; ``delta`` belongs to
    ``"approx"``. ``statements`` are the (epsilon, delta) that follow, the one to quote first. ``unit`` is
    what one neighbour differs by; ``rows_per_unit`` how many records of each are counted at most, None where
    every record was taken for a unit by itself. ``exact`` counts stand outside the promise; ``consequences`` says what
    follows from them. ``one_sided``: estimates are kept from falling below zero.
    """

    definition: Definition
    parameter: Fraction
    neighbours: Neighbours
    unit: str
    delta: Fraction | None = None
    statements: tuple[EpsilonStatement, ...] = ()
    exact: tuple[ExactView, ...] = ()
    consequences: Consequences | None = None
    rehearsal: bool = False
    rows_per_unit: int | None = None
    one_sided: bool = False


@dataclass(frozen=True)
class LedgerLine:
    """One charge of this release, as its ledger recorded it; ``amount`` is in the unit of the promise."""

    when: str
    what: str
    amount: Fraction
    digest: str = ""


@dataclass(frozen=True)
class ExpectedError:
    """What the plan said of a table before any record was read, in counts.

    ``rmse`` is the root mean squared error over the table's queries and ``margin`` half the width of its
    widest interval; ``identity`` and ``workload`` are the RMSE had every cell, or every query itself, been
    measured at the same budget; ``bound`` is an RMSE that no strategy can beat on this table.
    """

    rmse: float
    margin: float
    identity: float | None = None
    workload: float | None = None
    bound: float | None = None


@dataclass(frozen=True, eq=False)
class TableView:
    """One published table.

    ``columns`` maps each attribute to the labels of the rows, in order; the first ``ROWS_SHOWN`` labels are
    enough. The arrays have one entry a row. ``obs_status`` is ``"A"`` (estimated), ``"E"`` (exact) or ``"Q"``
    (not estimable). ``conservative`` intervals cover more often than their ``level``.

    ``count`` is how many rows the table has where the arrays hold only the first of them. ``centre`` is the unbiased
    estimate that errors and intervals are of, where what is published are whole numbers made from it.
    """

    name: str
    description: str
    columns: Mapping[str, Sequence[str]]
    estimate: NDArray[np.float64]
    std_error: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    obs_status: Sequence[str]
    expected: ExpectedError
    file: str
    level: float = 0.95
    conservative: bool = False
    count: int | None = None
    centre: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        rows = len(self.estimate)
        parts = {
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "obs_status": self.obs_status,
        }
        for part, values in parts.items():
            if len(values) != rows:
                raise InvalidArgument(
                    f"table {self.name!r}: {part} has {len(values)} entries, estimate has {rows}; "
                    "give one a row"
                )
        for attribute, labels in self.columns.items():
            if len(labels) < min(rows, ROWS_SHOWN):
                raise InvalidArgument(
                    f"table {self.name!r}: column {attribute!r} has {len(labels)} labels for {rows} rows; "
                    f"give one a row, or at least the first {ROWS_SHOWN}"
                )

    @property
    def rows(self) -> int:
        """How many counts the table publishes."""
        return len(self.estimate) if self.count is None else self.count

    @property
    def about(self) -> NDArray[np.float64]:
        """The estimates that standard errors and intervals are of."""
        return self.estimate if self.centre is None else self.centre

    @property
    def margin(self) -> NDArray[np.float64]:
        """Half the width of each interval, in counts."""
        return (np.asarray(self.ci_high, dtype=float) - np.asarray(self.ci_low, dtype=float)) / 2


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


@dataclass(frozen=True)
class ReleaseView:
    """Everything that a report shows; ``raised`` says that estimates are kept from falling below zero."""

    title: str
    promise: Promise
    ledger: tuple[LedgerLine, ...]
    tables: tuple[TableView, ...]
    strategy: StrategyView
    release_id: str
    made: str
    version: str
    reliability: ReliabilitySection = field(default_factory=ReliabilitySection)
    raised: bool = False
    standing: StandingView | None = None
    derived: tuple[DerivedView, ...] = ()
