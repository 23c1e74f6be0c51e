"""What a plan page shows: plain values, all public, filled from a plan."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from markupsafe import Markup

from ...privacy import PrivacyLoss
from ..view import Promise

OWN, SMALLEST = "own", "smallest"


@dataclass(frozen=True)
class Stop:
    """One budget that the slider stops at.

    Attributes:
        loss: what the release would spend.
        factor: of the plan's own budget; for groups every level is multiplied by it.
        levels: of groups, each level's budget; else empty.
        kind: ``"own"`` for the plan's budget, ``"smallest"`` for the one found from the targets, else ``""``.
    """

    loss: PrivacyLoss
    factor: Fraction
    levels: tuple[Fraction, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Errors:
    """Errors of one row at one stop, in counts, as its headings name them, and whether the target is met.

    ``at_most``: the numbers are proven upper limits, where an exact plan was not made for this stop.
    """

    numbers: tuple[float, ...]
    met: bool | None = None
    at_most: bool = False


@dataclass(frozen=True)
class ErrorRow:
    """One row of the table of errors: its labels, its target in words, and its errors at every stop."""

    labels: tuple[str, ...]
    facts: tuple[str, ...]
    target: str
    errors: tuple[Errors, ...]


@dataclass(frozen=True)
class ErrorTable:
    """Errors of everything that is published, at every stop.

    ``labels``, ``facts`` and ``numbers`` are headings; the last number is the margin. ``about`` says in words what the
    numbers are of.
    """

    labels: tuple[str, ...]
    facts: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[ErrorRow, ...]
    about: str
    in_all: int


@dataclass(frozen=True)
class Reach:
    """What the promise means at one stop: epsilons, and what a detective could achieve.

    ``epsilons`` stand beside the page's deltas and ``odds`` beside its false alarms; ``left`` is what would be left in
    the ledger, negative where it does not cover the release, None where no ledger was read.
    """

    epsilons: tuple[float, ...]
    odds: tuple[float, ...]
    left: Fraction | None


@dataclass(frozen=True)
class ShareTable:
    """Shares of the budget: one row a block, a level of groups or a level of areas; a share is None where unknown."""

    heading: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    note: str
    omitted: int = 0


@dataclass(frozen=True)
class MethodRow:
    """One method: its RMSE over all tables at the plan's budget (None: it dropped out), and a remark."""

    name: str
    rmse: float | None
    note: str
    chosen: bool = False


@dataclass(frozen=True)
class Methods:
    """Methods side by side, the bound that none beats, and what is proven of the one chosen, in words.

    ``measure`` is what the search compared: an RMSE where it says so.
    """

    rows: tuple[MethodRow, ...]
    bound: float | None
    proven: str
    figure: Markup
    measure: str


@dataclass(frozen=True)
class TargetLine:
    """One target: what it is about, what is allowed, and the first stop from which on it is met (None: at no stop)."""

    what: str
    allowed: str
    met_from: Fraction | None


@dataclass(frozen=True)
class Aim:
    """The smallest budget that meets all targets.

    ``loss`` is that budget, None where none is known; ``lower`` is a budget that no other strategy (areas: no other
    shares) does with less than; ``best`` what shares chosen for the targets would need; ``note`` what else is to be
    known. Each None or empty where there is none.
    """

    loss: PrivacyLoss | None
    lower: Fraction | None
    best: Fraction | None
    lines: tuple[TargetLine, ...]
    note: str


@dataclass(frozen=True)
class Areas:
    """Areas on the spine and off it: distances before and after the spine was drawn anew, and the estimator's words."""

    distances: tuple[tuple[str, int, float, int, float, int], ...]
    estimate: str


@dataclass(frozen=True)
class PlanView:
    """Everything that a plan page shows.

    ``promise`` is that of the plan's own budget, with what is exact and what follows from it. ``reaches`` has one
    entry a stop; ``lines`` gives for each stop what to write into the spec: the release's budget, then that of each
    level of groups. ``ledger`` is what is left in it, and its cap. ``remark`` adds a sentence on epsilon.
    """

    title: str
    kind: str
    promise: Promise
    open_budget: bool
    level: float
    stops: tuple[Stop, ...]
    reaches: tuple[Reach, ...]
    lines: tuple[tuple[str, ...], ...]
    deltas: tuple[Fraction, ...]
    alarms: tuple[float, ...]
    errors: ErrorTable
    shares: tuple[ShareTable, ...]
    methods: Methods | None
    aim: Aim | None
    areas: Areas | None
    ledger: tuple[Fraction, Fraction] | None
    remark: str
    version: str

    @property
    def own(self) -> int:
        """The position of the plan's own budget."""
        return next(i for i, stop in enumerate(self.stops) if OWN in stop.kind)

    @property
    def smallest(self) -> int | None:
        """The position of the smallest budget that meets all targets; None where there is none."""
        return next((i for i, stop in enumerate(self.stops) if SMALLEST in stop.kind), None)

    @property
    def symbol(self) -> str:
        """How the budget is written."""
        return "ρ" if self.promise.definition == "zcdp" else "ε"
