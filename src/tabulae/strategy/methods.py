"""The methods of ``select``: what each is given, what it says of itself, and the registry that each enters.

A strategy is added by one file in a room beside this: a function of a workload and :class:`Settings`, under
:func:`register`. ``select``, specs, reports and the command line know it from there.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ..domain import Table, Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator
from ..privacy import check_neighbours
from .deadline import check_seconds, check_time, now
from .strategy import NoiseKind, Strategy


@dataclass(frozen=True)
class Settings:
    """How to select: the noise, the neighbours that are promised, and how long and how hard to search.

    ``tolerance`` is the proven relative gap of the squared error at which an optimiser stops, and ``enough`` the one at
    which "auto" tries no other method: 1 % of the root mean squared error where the caller names none.
    ``groups`` are names of tables measured together (``union``), None to cluster by what is cheapest; ``rows`` is
    the number of rows of a p-Identity strategy beside the identity (HDMM's p), an int for every attribute or
    a dict by attribute, None for its convention. ``design`` is the set of design queries that "eigen" weighs, by name
    or as a matrix, None for the workload's eigenvectors; ``group_size`` is the size of the groups of
    "eigen-separation" and ``vectors`` how many "principal-vectors" have weights of their own. ``invariants`` are the
    exact tables that the workload was restricted by: they decide who is a neighbour under
    "replace-within-invariants". ``is_enough`` says of a loss whether it is proven so near to the least that nothing
    better need be looked for; ``optimum_seconds`` are what the optimum itself is predicted to take of a core, where it
    is looked for next. ``deadline`` is on :func:`.deadline.now`'s clock, ``limit`` the seconds that it gave.
    """

    noise: NoiseKind
    neighbours: str = "add-remove"
    tolerance: float = 1e-3
    enough: float = 0.02
    restarts: int | None = None
    seed: int = 0
    deadline: float = math.inf
    limit: float = math.inf
    groups: tuple[tuple[str, ...], ...] | None = None
    invariants: tuple[Table, ...] = ()
    rows: int | dict[str, int] | None = None
    design: str | np.ndarray | LinearOperator | None = None
    group_size: int | None = None
    vectors: int | None = None
    is_enough: Callable[[float], bool] = lambda loss: False
    optimum_seconds: float = math.inf

    @classmethod
    def of(
        cls, workload: Workload, noise: NoiseKind, neighbours: str, *, time_limit: float | None, **given: Any
    ) -> Settings:
        """The arguments of ``select``, checked against the workload; InvalidArgument for what is none."""
        if noise not in ("gaussian", "laplace"):
            raise InvalidArgument(f"noise must be 'gaussian' or 'laplace', not {noise!r}")
        _check_number("seed", given["seed"], whole=True)
        if (tolerance := given.pop("tolerance")) is not None:
            _check_number("tolerance", tolerance)
            if not tolerance > 0:
                raise InvalidArgument(f"tolerance is {tolerance}: no search proves a gap of zero; try 1e-6")
            given |= {"tolerance": tolerance, "enough": tolerance}
        if time_limit is not None:
            _check_number("time_limit", time_limit)
            if not time_limit > 0:
                raise InvalidArgument(f"time_limit must be a positive number of seconds, not {time_limit!r}")
        given["groups"] = _check_groups(given["groups"], workload)
        given["rows"] = _check_rows(given["rows"], workload)
        given["design"] = _check_design(given["design"])
        for name in ("group_size", "vectors"):
            given[name] = _check_count(name, given[name])
        limit = math.inf if time_limit is None else float(time_limit)
        return cls(noise, check_neighbours(neighbours), deadline=now() + limit, limit=limit, **given)

    @property
    def norm(self) -> int:
        """2 for Gaussian noise, which pays for L2 sensitivity, and 1 for Laplace noise."""
        return 2 if self.noise == "gaussian" else 1

    @property
    def names_tolerance(self) -> bool:
        """Whether the caller named a tolerance: then that is enough."""
        return self.enough == self.tolerance

    @property
    def starts(self) -> int:
        """Random starts of an optimiser that has them, three unless ``restarts`` says more."""
        return 3 if self.restarts is None else self.restarts

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return now() >= self.deadline

    def check_time(self, *orders: float, steps: float = 1.0) -> None:
        """As :func:`check_time`, by this deadline."""
        check_time(self.deadline, *orders, steps=steps)

    def check_reading(self, workload: Workload) -> None:
        """Refuse tables so many that to look at each of them would last beyond the deadline."""
        many = len(workload.tables)
        seconds = _SECONDS_A_LOOK * many * len(workload.domain.attributes)
        if self.deadline < math.inf and seconds > _ALWAYS:
            check_seconds(self.deadline, seconds, f"a look at each of {many:,} tables")

    def check_terms(self, workload: Workload, seconds: float, what: str) -> None:
        """Refuse ``what`` takes ``seconds`` of a core for every matrix of every term of W'W, where that is too long.

        What takes less than half a second always fits.
        """
        if self.deadline < math.inf:
            predicted = seconds * len(workload.gram_terms()) * len(workload.domain.attributes)
            if predicted > _ALWAYS:
                check_seconds(self.deadline, predicted, what)


Choose = Callable[[Workload, Settings], Strategy]


@dataclass(frozen=True)
class RegisteredMethod:
    """One way to choose a strategy: ``choose``, and what others must know of it.

    ``words`` say on pages what is measured. ``noises`` are those that it serves, ``otherwise`` is the refusal under
    another. ``options`` are keywords of ``select`` that no other method has. Its ``families`` try it in its ``turn``,
    what is cheap first, so that little time still finds much; but only where it ``pays``: where it neither solves the
    same problem as another nor one that it is not good at. ``seconds`` predicts from sizes alone what a long search
    takes of one core: what takes more than ten comes after the others. ``by_products`` says that multipliers which are
    a product over the attributes bound its error closely, ``by_cells`` that it measures products over all attributes,
    or tables as they stand: beyond ``MEASURED`` cells these are not tried where one that needs no cells has served.
    """

    name: str
    words: str
    choose: Choose
    noises: tuple[NoiseKind, ...] = ("gaussian", "laplace")
    otherwise: str = ""
    options: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    turn: Callable[[Workload, Settings], int] | int = 0
    pays: Callable[[Workload, Settings], bool] = lambda workload, settings: True
    seconds: Callable[[Workload, Settings], float] = lambda workload, settings: 0.0
    by_products: bool = False
    by_cells: bool = False

    def place(self, workload: Workload, settings: Settings) -> tuple[float, int]:
        """What a family's methods are sorted by."""
        turn = self.turn(workload, settings) if callable(self.turn) else self.turn
        return max(self.seconds(workload, settings), _SOON), turn

    def __call__(self, workload: Workload, settings: Settings) -> Strategy:
        if settings.noise not in self.noises:
            raise Unsupported(self.otherwise)
        return self.choose(workload, settings)


MEASURED = 2.0**40
"""Cells that some machine could measure."""

SINGLE: dict[str, RegisteredMethod] = {}
"""The methods by name."""

_ALWAYS = 0.5  # seconds that a time limit may be overrun by

_SECONDS_A_LOOK = 3e-6  # of a core: one attribute of one table, to find out which methods may serve

_SOON = 10.0  # seconds up to which methods are tried in their turns

FAMILIES = ("hdmm", "auto")
"""The names under which ``select`` tries several methods."""


def register(name: str, words: str, **traits: Any) -> Callable[[Choose], Choose]:
    """Enter the decorated function as a :class:`RegisteredMethod` of these traits."""

    def entered(choose: Choose) -> Choose:
        SINGLE[name] = RegisteredMethod(name, words, choose, **traits)
        return choose

    return entered


def fitting(method: str, workload: Workload, settings: Settings) -> tuple[str, ...]:
    """The name of a single method; of a family those worth a try, in turn."""
    if method not in FAMILIES:
        return (method,)
    members = [m for m in SINGLE.values() if method in m.families and settings.noise in m.noises]
    members = [m for m in members if m.pays(workload, settings)]
    members.sort(key=lambda m: m.place(workload, settings))
    return tuple(m.name for m in members)


def method_words(name: str) -> str:
    """What a method measures, in words; its name where it is of another version."""
    return SINGLE[name].words if name in SINGLE else name


def check_options(method: str, given: Mapping[str, Any]) -> None:
    """Refuse an option that is another method's."""
    for option, value in given.items():
        owners = [m.name for m in SINGLE.values() if option in m.options]
        if value is not None and owners and method not in owners:
            named = ", ".join(f'"{owner}"' for owner in owners)
            raise InvalidArgument(f'{option} is an option of method {named}, not of "{method}"')


def _check_groups(
    groups: Sequence[Sequence[str]] | None, workload: Workload
) -> tuple[tuple[str, ...], ...] | None:
    """Groups of table names that hold every table exactly once; InvalidArgument otherwise."""
    if groups is None:
        return None
    if isinstance(groups, str) or any(isinstance(group, str) for group in groups):
        raise InvalidArgument("groups must be a list of lists of table names: groups=[['a', 'b'], ['c']]")
    names = [name for group in groups for name in group]
    tables = [table.name for table in workload.tables]
    for name in names:
        if name not in tables:
            raise InvalidArgument(f"groups names table {name!r}; the workload has {', '.join(tables[:20])}")
        if names.count(name) > 1:
            raise InvalidArgument(f"groups names table {name!r} twice: each table is measured in one group")
    left = [name for name in tables if name not in set(names)]
    if left:
        raise InvalidArgument(f"groups leaves out table {left[0]!r}: put every table in a group")
    return tuple(tuple(group) for group in groups if group)


def _check_rows(rows: int | Mapping[str, int] | None, workload: Workload) -> int | dict[str, int] | None:
    """HDMM's p: a whole number of at least 1, or one by attribute; InvalidArgument otherwise."""
    if rows is None:
        return None
    given = dict(rows) if isinstance(rows, Mapping) else {"": rows}
    for name, count in given.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            where = f" of attribute {name!r}" if name else ""
            raise InvalidArgument(f"rows{where} must be a whole number of at least 1, not {count!r}")
        if name:
            workload.domain.axis(name)
    return given if isinstance(rows, Mapping) else rows


DESIGN_SETS = ("eigen-queries", "wavelet", "fourier", "hierarchical", "workload")
"""The design sets that "eigen" knows by name."""


def _check_design(design: Any) -> str | np.ndarray | LinearOperator | None:
    """The name of a design set, or a matrix of one row a query; InvalidArgument otherwise."""
    if (
        design is None
        or isinstance(design, LinearOperator)
        or (isinstance(design, str) and design in DESIGN_SETS)
    ):
        return design
    if isinstance(design, str):
        raise InvalidArgument(
            f"unknown design set {design!r}: {', '.join(DESIGN_SETS)}, or a matrix with one row a query"
        )
    known = f"give {', '.join(DESIGN_SETS)}, or a matrix of real numbers"
    if isinstance(design, np.ma.MaskedArray):
        raise InvalidArgument(f"design is a masked array: {known}")
    try:
        array = np.asarray(design.toarray() if scipy.sparse.issparse(design) else design)
    except ValueError:
        raise InvalidArgument(f"design has rows of different lengths: {known}") from None
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"design is an array of {array.dtype}: {known}")
    return array.astype(float)


def _check_number(name: str, value: Any, *, whole: bool = False) -> None:
    """A real number (a whole one, not below 0), or InvalidArgument."""
    if whole and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0):
        raise InvalidArgument(f"{name} must be a whole number of at least 0, not {value!r}")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidArgument(f"{name} must be a number, not {value!r}")


def _check_count(name: str, count: Any) -> int | None:
    """A whole number of at least 1, or None; InvalidArgument otherwise."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidArgument(f"{name} must be a whole number of at least 1, not {count!r}")
    return int(count)
