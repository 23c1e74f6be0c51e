"""How wrong tables of areas will be: exact variances of generalised least squares, before any data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.special import ndtri

from ...estimation import within
from ...privacy import ZCDP, NoiseLaw
from ...release.write import LEVEL
from ...spec.areas import AreaTarget
from .layout import Margin
from .passes.area_variances import Sensitivities, area_covariances, margin_variance
from .passes.covariances import Covariances
from .spec.section import AreaTable, Geography
from .spine.spine import Spine
from .spine_plan import SpinePlan, area_half_widths, interval_factor

_CHUNK = 512  # areas whose matrices are kept at a time
_CANCELLED = 1e-9  # of the terms of a variance: below it they cancel, and the counts are exact


@dataclass(frozen=True)
class AreaTableError:
    """Error of one table for one kind of area, as ``gls`` estimates it, in counts.

    Attributes:
        rmse: root of the mean squared error of all counts that can occur, in all areas but those where all are exact.
        largest: the largest root mean squared error of the counts of one area.
        worst: the largest standard error of any count.
        margin: what no count is off by more than, each by itself, at 95 %: the widest half-width.
    """

    table: str
    area_type: str
    areas: int
    cells: int
    rmse: float
    largest: float
    worst: float
    margin: float


@dataclass(frozen=True, eq=False)
class AreaErrors:
    """Errors of all tables of a geography.

    A count of area A is ``r'x_A`` with r an indicator, so that the squared errors of all cells of a margin add up to

        sum over kinds S of  w[S] * sum over dense cells d, e of one class of  V_A[S][d, e]

    with V_A the variance of the area's counts, and w the margin's squares (see :meth:`BlockAlgebra.squares`).
    """

    geography: Geography
    covariances: Covariances
    level: float

    def rows(self) -> tuple[AreaTableError, ...]:
        """One row for each table and each kind of area that it is published for, in the order of the spec."""
        tables = self.geography.tables
        kinds = dict.fromkeys(area for table in tables for area in table.areas)
        found: dict[tuple[str, str], AreaTableError] = {}
        for kind in kinds:
            asked = [table for table in tables if kind in table.areas]
            for table, squares in zip(asked, self.of_areas(kind, asked), strict=True):
                found[table.name, kind] = self._row(table, kind, squares)
        return tuple(found[table.name, kind] for table in tables for kind in table.areas)

    def _row(self, table: AreaTable, kind: str, squares: np.ndarray) -> AreaTableError:
        areas, size = self.geography.areas(kind)[0].size, table.margin.size
        total, cells, widest = squares[:, squares[0] > 0]
        variance = float(total.sum() / cells.sum()) if cells.size else 0.0
        largest = float(np.sqrt((total / cells).max(initial=0)))
        worst = widest.max(initial=0)
        margin = float(area_half_widths(worst, self.covariances.plan.all_laws, self.level))
        return AreaTableError(table.name, kind, areas, size, sqrt(variance), largest, sqrt(worst), margin)

    def of_areas(self, kind: str, tables: Sequence[AreaTable]) -> list[np.ndarray]:
        """For each table, shape (3, areas where something can occur): sum, number and largest of its squared errors.

        The number is that of cells that can occur in the area; the sum is 0 where all of them are exact.
        """
        weights = [table.margin.squares.sum(axis=0) for table in tables]
        grams = [table.margin.dense_gram(np.arange(table.margin.layout.size)) for table in tables]
        found: list[list[np.ndarray]] = [[] for _ in tables]
        for variances, present in self.batches(kind):
            for table, weight, gram, out in zip(tables, weights, grams, found, strict=True):
                total = np.einsum("askl,kl,s->a", variances, gram, weight)
                terms = np.einsum("askl,kl,s->a", np.abs(variances), gram, weight)
                total[total <= _CANCELLED * terms] = 0
                widest = margin_variance(self.covariances.plan.layout, variances, table.margin).max(
                    axis=(1, 2)
                )
                out.append(np.stack([total, _possible(table.margin, present), widest]))
        return [np.concatenate([np.empty((3, 0)), *out], axis=1) for out in found]

    def placed(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """The areas with leaves: which of them each leaf is in, -1 for none, and which dense cells can occur in each.

        Shapes (leaves,) and (areas, D).
        """
        codes, index = self.geography.areas(kind)
        support = self.covariances.plan.support
        leaf = np.flatnonzero(index >= 0)
        present = support.united(leaf, index[leaf], codes.size)
        used = np.flatnonzero(present.any(axis=1))
        place = np.full(codes.size + 1, -1)
        place[used] = np.arange(used.size)
        return place[index], present[used]

    def batches(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """V, shape (areas, kinds, D, D), and which dense cells can occur, shape (areas, D), for areas with leaves."""
        area, present = self.placed(kind)
        batch: list[np.ndarray] = []
        first = 0
        for variance in area_covariances(self.covariances, area, len(present)):
            batch.append(variance)
            if len(batch) == _CHUNK:
                yield np.stack(batch), present[first : first + _CHUNK]
                first, batch = first + _CHUNK, []
        if batch:
            yield np.stack(batch), present[first:]


def _possible(margin: Margin, present: np.ndarray) -> np.ndarray:
    """Shape (areas,): cells of a margin that can occur."""
    classes = np.zeros((present.shape[0], margin.classes), bool)
    for cell, group in enumerate(margin.label.tolist()):
        classes[:, group] |= present[:, cell]
    return classes.sum(axis=1) * margin.inner


_EVEN = 1.001  # how far the factor of an interval may rise where noise grows, for its cuts are few
_POWER = 200.0  # of the norm that stands for the largest of many variances while shares are looked for


@dataclass(frozen=True, eq=False)
class Aim:
    """One target of one table for one kind of area."""

    table: AreaTable
    kind: str
    target: AreaTarget

    def reached(self, variance: float, laws: Sequence[NoiseLaw]) -> float:
        """The error that is judged: the RMSE, or the half-width under the noise that would be drawn."""
        if self.target.confidence is None:
            return sqrt(variance)
        return float(area_half_widths(np.array([variance]), laws, self.target.confidence)[0])

    @property
    def allowed(self) -> float:
        given = self.target.rmse if self.target.margin is None else self.target.margin
        assert given is not None
        return given

    def met(self, variance: float, laws: Sequence[NoiseLaw]) -> bool:
        reached = self.reached(variance, laws)
        return reached <= self.allowed if self.target.confidence is None else within(reached, self.allowed)

    def most_variance(self, law: NoiseLaw | None = None) -> float:
        """The variance that it allows where no noise is larger than a law's; None: by the normal law, whose is most."""
        confidence = self.target.confidence
        if confidence is None:
            return self.allowed**2
        normal = float(ndtri((1 + confidence) / 2))
        factor = normal if law is None else max(normal, interval_factor(confidence, [law]) / _EVEN)
        return (self.allowed / factor) ** 2


@dataclass(frozen=True, eq=False)
class AimSlope:
    """One aim's error at some precisions, and its change.

    Attributes:
        log: of a variance: the mean, or a norm of the counts' variances close to their largest.
        slope: minus the derivative of ``log`` by the weight of each class and query: shape (classes, queries), 0 or
            more.
        least: a number c with ``slope @ w >= c / v`` for all weights w with which no variance is above v (the mean is
            not, for an RMSE); the variance is convex in w, and of degree -1.
    """

    log: float
    slope: np.ndarray
    least: float


@dataclass(frozen=True, eq=False)
class AreaAims:
    """All targets of a geography."""

    geography: Geography

    @cached_property
    def aims(self) -> tuple[Aim, ...]:
        """In the order of the tables, of their targets, and of the kinds of area that these are for."""
        return tuple(
            Aim(table, kind, target)
            for table in self.geography.tables
            for target in table.targets
            for kind in target.areas
        )

    def covariances(self, plan: SpinePlan, weights: np.ndarray | None = None) -> Covariances:
        """Variances under a plan, or with other weights than its own."""
        limits = self.geography.constraints
        return Covariances.of(plan, () if limits is None else limits.exact, weights)

    def variances(self, cov: Covariances) -> np.ndarray:
        """For each aim the variance that it is about: the mean of its counts, or the largest. 0: all are exact."""
        found = np.zeros(len(self.aims))
        for kind, places in self._by_kind.items():
            for place, value, counts in self._counts(cov, kind, places):
                found[place] = (
                    value.max(initial=0) if self._is_margin(place) else value.sum() / max(counts, 1)
                )
        return found

    def slopes(self, cov: Covariances, chosen: np.ndarray) -> dict[int, AimSlope]:
        """Errors and their changes, for some aims by position; those that are exact are left out.

        Args:
            chosen: shape (aims,), boolean.
        """
        found = {}
        for kind, places in self._by_kind.items():
            wanted = [place for place in places if chosen[place]]
            for place, value, counts in self._counts(cov, kind, wanted) if wanted else ():
                if value.any():
                    found[place] = self._slope(cov, place, value, counts)
        return found

    def _slope(self, cov: Covariances, place: int, value: np.ndarray, counts: float) -> AimSlope:
        if self._is_margin(place):
            largest = float(value.max())
            powers = (value / largest) ** (_POWER - 1)
            norm = float((powers * value).sum()) / largest
            share = powers / (norm * largest)
            log, least = np.log(largest) + np.log(norm) / _POWER, 1 / float(share.sum())
        else:
            total = float(value.sum())
            share = np.broadcast_to(value.any(axis=(1, 2), keepdims=True) / total, value.shape)
            log, least = np.log(total / counts), total / counts
        aim, squares = self.aims[place], self.aims[place].table.margin.squares
        weights = _weights(aim.table.margin, share @ squares)
        sensitivities = Sensitivities.zeros(cov)
        sensitivities.add(AreaErrors(self.geography, cov, 0.95).placed(aim.kind)[0], weights)
        return AimSlope(float(log), np.maximum(sensitivities.by_class(), 0), least)

    def _is_margin(self, place: int) -> bool:
        return self.aims[place].target.confidence is not None

    @cached_property
    def _by_kind(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, aim in enumerate(self.aims):
            found.setdefault(aim.kind, []).append(place)
        return found

    def _counts(
        self, cov: Covariances, kind: str, places: list[int]
    ) -> Iterator[tuple[int, np.ndarray, float]]:
        """For each aim of a kind of area: the variances, shape (areas, classes, inner), 0 in areas where all is exact.

        And the number of counts in the other areas.
        """
        errors = AreaErrors(self.geography, cov, LEVEL)
        asked = [self.aims[place].table for place in places]
        parts: list[list[np.ndarray]] = [[] for _ in places]
        for variances, _ in errors.batches(kind):
            for out, table in zip(parts, asked, strict=True):
                out.append(np.maximum(margin_variance(cov.plan.layout, variances, table.margin), 0))
        for place, (total, cells, _), out in zip(places, errors.of_areas(kind, asked), parts, strict=True):
            if out:
                yield place, np.concatenate(out) * (total > 0)[:, None, None], float(cells[total > 0].sum())


def _weights(margin: Margin, parts: np.ndarray) -> np.ndarray:
    """G of areas, shape (areas, kinds, D, D), from the weight of each class and kind, (areas, classes, kinds)."""
    return parts.swapaxes(1, 2)[..., margin.label][..., None] * margin.dense_gram(
        np.arange(margin.layout.size)
    )


_BASE = 1_000  # more than the levels of any spine


@dataclass(frozen=True, eq=False)
class Design:
    """Budgets y of levels and queries, and the budgets x of units that follow from them.

    Units of one level have one share, but where the bypass left out an only child and gave its share to the unit
    above: there shares are added, and the queries have the shares of the unit's own level. So units are of few *cells*,
    each of a level l and a set J of levels whose shares it has, with the budgets

        x[cell, q] = y[l, q] sum_{j in J} Y[j] / Y[l],  Y[j] = sum over queries of y[j, q]

    and an answer of a unit has the weight (1 over its variance) ``unit x``, of Gaussian noise, or ``unit x^2``, of
    Laplace noise. What is possible for y is so for x, where the budgets on each path from the root to a leaf add up to
    the budget; there the problem is convex under Gaussian noise. Under Laplace noise the bypass, which depends on the
    amounts, leaves out more units than only children: no variance is larger than with these budgets.

    Args:
        plan: the same units under shares that tell the sets of levels apart.
        levels: names of the levels that have a share.
        level: shape (cells,): which of these each cell is of.
        joined: shape (cells, levels), boolean: J.
        paths: shape (paths, cells), boolean: the cells on each path from the root to a leaf.
        cell: shape (classes of the plan,): the cell of each, -1 where nothing is measured.
        unit: the weight of an answer that costs 1.
        power: of the budget in a weight.
    """

    plan: SpinePlan
    levels: tuple[str, ...]
    level: np.ndarray
    joined: np.ndarray
    paths: np.ndarray
    cell: np.ndarray
    unit: float
    power: int

    @classmethod
    def of(cls, geography: Geography) -> Design:
        """The design of a geography, with the bypass of Gaussian noise, which depends on no amount."""
        plan, given = geography.plan(), geography.shares.levels
        names = tuple(name for name in geography.spine.levels if given.get(name, 0))
        total = sum(_BASE**i for i in range(len(names)))
        digits = {name: Fraction(_BASE**i, total) for i, name in enumerate(names)}
        marked = replace(plan, spine=shared(geography, digits))
        shares = marked.spine.shares
        assert shares is not None
        units = marked.spine.hierarchy.units
        rows = np.stack([index[unit] for index, unit in zip(shares.index, units, strict=True)])
        sums = [int(value * total) for value in shares.values]
        held = np.array([[value // _BASE**i % _BASE > 0 for i in range(len(names))] for value in sums])
        paths = np.unique(rows, axis=1).T
        cells = sorted({(at, i) for path in paths.tolist() for at, i in enumerate(path) if held[i].any()})
        place = {cell: i for i, cell in enumerate(cells)}
        on_path = np.zeros((len(paths), len(cells)), bool)
        for row, path in zip(on_path, paths.tolist(), strict=True):
            row[[place[at, i] for at, i in enumerate(path) if (at, i) in place]] = True
        return cls(
            marked,
            names,
            np.array([names.index(marked.spine.levels[at]) for at, _ in cells]),
            held[[i for _, i in cells]],
            on_path,
            np.array([place.get((at, i), -1) for at, i, _ in marked.classes[0].tolist()]),
            *_weight(plan),
        )

    def budgets(self, y: np.ndarray) -> np.ndarray:
        """x, shape (cells, queries), of y, shape (levels, queries)."""
        whole = y.sum(axis=1)
        return y[self.level] * (self.joined @ whole / whole[self.level])[:, None]

    def weights(self, x: np.ndarray) -> np.ndarray:
        return self.unit * np.where(self.cell[:, None] >= 0, x[self.cell], 0.0) ** self.power

    def slope(self, by_class: np.ndarray, x: np.ndarray) -> np.ndarray:
        """A derivative by the weights at x as one by x: shape (cells, queries)."""
        found = np.zeros((len(self.level), by_class.shape[1]))
        np.add.at(found, self.cell[self.cell >= 0], self.unit * by_class[self.cell >= 0])
        return found * self.power * x ** (self.power - 1)

    def back(self, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
        """A derivative by x as one by y."""
        whole = y.sum(axis=1)
        sums = self.joined @ whole
        found = np.zeros_like(y)
        np.add.at(found, self.level, slope * (sums / whole[self.level])[:, None])
        along = (slope * y[self.level]).sum(axis=1) / whole[self.level]
        by_whole = self.joined.T @ along
        np.subtract.at(by_whole, self.level, along * sums / whole[self.level])
        return found + by_whole[:, None]


def _weight(plan: SpinePlan) -> tuple[float, int]:
    """The weight of an answer that costs 1, and the power of the cost in it."""
    units = 1.0 if plan.neighbours == "add-remove" else 2.0
    if isinstance(plan.budget, ZCDP):
        return 2 / units / plan.rows_per_unit**2, 1
    return 1 / (2 * units**2 * plan.rows_per_unit**2), 2


def shared(geography: Geography, shares: Mapping[str, Fraction]) -> Spine:
    """The units of a geography with other shares of the levels, units of no use left out as the section says.

    For Gaussian noise alone.
    """
    every = {name: shares.get(name, Fraction(0)) for name in geography.spine.levels}
    if geography.rule == "off":
        return geography.spine.with_shares(every)
    return geography.spine.bypass(every, "gaussian", geography.rule)


def is_gaussian(geography: Geography) -> bool:
    """Whether the noise is Gaussian: its weights are linear in the budget, and the problem is convex."""
    return isinstance(geography.plan().budget, ZCDP)


_SETTLED = 3e-3  # relative gap at which shares are good enough
_WORK = 3e9  # multiplications by the size of a matrix, about, that a search may take
_FEWEST, _MOST = 24, 150  # points that a search looks at, by how much work one is
MOST_WORK = 3e8
"""The most such multiplications for one point: with more, shares are not looked for."""
_RESTARTS = 3
_STIRRED = 0.1  # of the budget, spread evenly where a search begins anew
_LEAST = 1e-6  # of the budget: what every query of a level keeps while shares are looked for
_PARTS = 10_000  # shares are rounded to whole parts of so many
_SURE = 1e-9  # relative: what rounding of floats may take off the bound


class _Done(Exception):
    """The search has done its work, or is good enough."""


@dataclass(eq=False)
class ShareSearch:
    """Minimise the budget over budgets y >= 0 of levels and queries, every aim's variance at most what is allowed.

    With r_t(x) the variance of aim t over what it allows, convex and of degree -1 in the units' budgets x, tangents
    at any x_k hold everywhere: ``g_tk . x >= c_tk`` for all x with r_t(x) <= 1. So the smallest budget of the linear
    problem

        min b  subject to  sum of x on each path <= b,  g_tk . x >= c_tk,  x >= 0

    bounds the budget from below for whatever shares, and any feasible point of its dual proves a bound.

    Args:
        allowed: shape (aims,): the variance that each allows.
        chosen: shape (aims,), boolean: those that are not exact.
    """

    design: Design
    aims: AreaAims
    allowed: np.ndarray
    chosen: np.ndarray
    best: np.ndarray | None = None
    cost: float = np.inf
    tangents: list[tuple[int, np.ndarray, float]] = field(default_factory=list)
    _last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    _left: int = 0

    def run(self, start: np.ndarray) -> None:
        """Look for the best y, beginning at some and then anew from the best while that helps."""
        self._left = int(np.clip(_WORK / work_of(self.design.plan, self.aims), _FEWEST, _MOST))
        try:
            for _ in range(_RESTARTS):
                before = self.cost
                self._descend(start)
                assert self.best is not None
                if self.cost > before * (1 - _SETTLED):
                    return
                start = (1 - _STIRRED) * self.best + _STIRRED * self.best.mean()
        except _Done:
            return

    def _descend(self, start: np.ndarray) -> None:
        found, _ = self.at(start)
        z = np.log(start * np.exp(found.max())).ravel()
        low = np.log(_LEAST * np.exp(z).sum())
        z = np.maximum(z, low + 0.1)
        minimize(
            lambda z: np.log(np.exp(z).sum()),
            z,
            jac=lambda z: np.exp(z) / np.exp(z).sum(),
            bounds=[(low, z.max() + 12)] * z.size,
            constraints={
                "type": "ineq",
                "fun": lambda z: -self.at(np.exp(z).reshape(start.shape))[0],
                "jac": lambda z: self.at(np.exp(z).reshape(start.shape))[1] * np.exp(z),
            },
            method="SLSQP",
            callback=self._judge,
            options={"maxiter": _MOST, "ftol": 1e-6},
        )

    def at(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log r of each chosen aim, and minus its derivative by y, (aims, levels * queries); tangents are kept."""
        if self._last is not None and np.array_equal(self._last[0], y):
            return self._last[1:]
        if not self._left:
            raise _Done
        self._left -= 1
        x = self.design.budgets(y)
        cov = self.aims.covariances(self.design.plan, self.design.weights(x))
        logs, slopes = [], []
        for place, found in sorted(self.aims.slopes(cov, self.chosen).items()):
            slope = self.design.slope(found.slope, x)
            self.tangents.append((place, slope.ravel(), found.least))
            logs.append(found.log - np.log(self.allowed[place]))
            slopes.append(self.design.back(slope, y).ravel())
        cost = float(y.sum()) * float(np.exp(max(logs)))
        if cost < self.cost:
            self.best, self.cost = y, cost
        self._last = y, np.array(logs), np.array(slopes)
        return self._last[1:]

    def _judge(self, _: np.ndarray) -> None:
        """Stop where the bound says that no shares are much better."""
        if self.cost <= self.bound(self.allowed) * (1 + _SETTLED):
            raise _Done

    def bound(self, allowed: np.ndarray) -> float:
        """A budget that no shares do with less than, by the dual of the linear problem.

        Args:
            allowed: shape (aims,): the variances.
        """
        tangents = np.array([slope * (self.cost * allowed[place] / c) for place, slope, c in self.tangents])
        count, size = tangents.shape  # budgets in parts of the best one known, tangents >= 1: numbers near 1
        paths = np.repeat(self.design.paths, size // len(self.design.level), axis=1).astype(float)
        found = linprog(
            np.append(np.zeros(size), 1.0),
            A_ub=np.vstack(
                [
                    np.column_stack([-tangents, np.zeros(count)]),
                    np.column_stack([paths, -np.ones(len(paths))]),
                ]
            ),
            b_ub=np.concatenate([-np.ones(count), np.zeros(len(paths))]),
            method="highs",
        )
        if found.status != 0:  # one tangent alone is a bound
            return self.cost / float(tangents.max(axis=1).min()) / len(self.design.level) * (1 - _SURE)
        dual = np.maximum(-found.ineqlin.marginals, 0)
        on_paths = dual[count:] + _SURE / len(paths)
        spent, worth = dual[:count] @ tangents, on_paths / on_paths.sum() @ paths
        fits = float((worth[spent > 0] / spent[spent > 0]).min(initial=np.inf))
        return self.cost * float(dual[:count].sum()) * min(fits, 1.0) * (1 - _SURE)


def work_of(plan: SpinePlan, aims: AreaAims) -> int:
    """How much it is to find the errors of all aims and their slopes once."""
    return Sensitivities.numbers(plan) * plan.layout.size * len(aims.aims)


def rounded(shares: np.ndarray, least: np.ndarray) -> tuple[Fraction, ...]:
    """Numbers that add up to 1 as whole parts of 10,000: each near its own, and 1 part at least where asked.

    >>> rounded(np.array([0.33333, 0.66667, 0.0]), np.array([True, True, True]))
    (Fraction(3333, 10000), Fraction(3333, 5000), Fraction(1, 10000))
    """
    held = shares / shares.sum() * (_PARTS - least.sum())
    parts = np.floor(held).astype(np.int64) + least
    order = np.argsort(np.floor(held) - held, kind="stable")
    parts[order[: _PARTS - int(parts.sum())]] += 1
    return tuple(Fraction(int(part), _PARTS) for part in parts)
