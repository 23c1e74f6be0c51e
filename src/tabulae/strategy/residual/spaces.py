"""A space of its own for each set of attributes: what the tables ask of it, and the best place to cut.

With ``1'a_i = 1`` and ``P_i = I - a_i 1'`` a table over the attributes T sees

    x_T = sum_{S in T} (P_S (x) a_{T-S}) x_S,

so that a table V_T = W_T'W_T with weight w_T asks of the set S

    G_S(a) = sum_{T >= S} w_T^2 (P_S (x) a_{T-S})' V_T (P_S (x) a_{T-S}).

Queries A_S with ``A_S (a_i (x) .) = 0`` for every i in S are independent of those of all other sets: ``1'`` is no
combination of rows that a_i annuls. So each set is measured by its own optimum, of loss L_S at columns of norm 1, and
the best split of the budget over the sets costs ``L(a) = (sum_S sqrt L_S)^2``. One basis an attribute for all sets, as
in :mod:`.search`, is the special case in which every G_S is one product of the same matrices.

The dual of one set (:mod:`..hdmm.opt0`) is ``sqrt L_S = max_mu tr (D^1/2 G_S D^1/2)^1/2`` over mu that sum to 1. With
``G = F'F`` and ``F D F' = U S^2 U'`` it takes one decomposition of as many rows as F has; at the best mu

    d sqrt L_S = <E, dG_S> / 2,      E = D F' (F D F')^-3/2 F D          (Danskin),

so that a is found by L-BFGS on log L without differentiating any strategy. What solves a set: one product, factor by
factor; else the rows or the matrix of the whole set up to ``EXPLICIT`` combinations of cells.

Sets that are alike are solved once. Attributes that the tables treat alike (found by refining colours, as for
isomorphism of graphs) share one a; two sets are of one kind if the same tables ask the same of the same colours. Where
so many kinds are left that a search could take a few steps only, all attributes of one size share one a if that is a
tenth of the work: a restriction, and no symmetry, that makes one kind of sets which differed in the a alone.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ...domain import Table, Workload
from ...errors import Unsupported
from ...linalg import LinearOperator, Total
from ..bounds.dual import DualSearch, identity_and_ones
from ..deadline import SECONDS_A_CUBE
from ..gram import gram_root
from ..information.protocol import is_flat
from ..information.residual_basis import CANCELLED, Set, closure
from ..methods import Settings

EXPLICIT = 1024
"""Most combinations of cells of a set that is solved as a whole, where its rows are not fewer."""

WIDEST = 512
"""Most cells of an attribute whose a is searched for."""

_ROWS = 2500  # most rows of a set with more cells than ``EXPLICIT``
_ENTRIES = 2**23  # of the rows of one set together
_KINDS = 1000  # different sets that are solved one by one
_DEPENDENT = 1e-11  # eigenvalues of F D F' below this share of the largest are zero
_KINK = 1e-9  # the same for E: where one of them reaches zero sqrt L has a kink, and no slope
_ROUNDING = 1e-12  # of the largest entry of a table: what is left of one that cancels
_SMALLEST = 1e-6  # multiplier that a search starts from, as a share of the largest
_SEARCHED, _FINAL = 1e-5, 1e-6  # relative gaps to which sets are solved
_MOST = 80  # evaluations of one dual
_ROUGH = 1e-3, 30  # gap and evaluations in a search whose steps take so long that they are few
_STEPS = 20  # decompositions that one usually takes
_WORK = 2**36  # multiplications of a search: minutes
_ITERATIONS, _SETTLED = 30, 2e-6
_FEW, _WORTH = 10, 0.1  # steps, and the share of the work, at which attributes of one size share one a


@dataclass(frozen=True, eq=False)
class TableForm:
    """What one table asks of the attributes that it crosses, apart from which these are.

    ``grams`` (n_i, n_i) an attribute for one product, ``rows`` (m, n_1, .., n_k) for any other table. Attributes of
    one ``role`` may change places.
    """

    roles: tuple[int, ...]
    grams: tuple[np.ndarray, ...] | None = None
    rows: np.ndarray | None = None

    @cached_property
    def roots(self) -> tuple[np.ndarray, ...]:
        """F_i with ``F_i'F_i = V_i``."""
        assert self.grams is not None
        return tuple(_root(V) for V in self.grams)

    @property
    def most_rank(self) -> int:
        """The rows of ``root``, without making it."""
        assert self.rows is not None
        return min(len(self.rows), math.prod(self.rows.shape[1:]))

    @cached_property
    def root(self) -> np.ndarray:
        """Rows (r, n_1, .., n_k) with the Gram matrix of ``rows``, no more than there are combinations of cells."""
        assert self.rows is not None
        if len(self.rows) == self.most_rank:
            return self.rows
        flat = self.rows.reshape(len(self.rows), -1)
        return np.asarray(np.linalg.qr(flat, mode="r")).reshape(-1, *self.rows.shape[1:])


def _root(V: np.ndarray) -> np.ndarray:
    return (
        np.eye(len(V)) * math.sqrt(V[0, 0]) if np.array_equal(V, np.eye(len(V)) * V[0, 0]) else gram_root(V)
    )


@dataclass(frozen=True)
class Ask:
    """One table: its form, the attributes that it crosses, and its weight squared."""

    form: TableForm
    crossed: Set
    weight: float


@dataclass(frozen=True)
class Part:
    """What one table, or ``weight`` of them, asks of one kind of set.

    ``places`` are those of the table's attributes in S, None beyond it; ``colours`` are the attributes' own.
    """

    form: TableForm
    weight: float
    places: tuple[int | None, ...]
    colours: tuple[int, ...]

    @property
    def inside(self) -> list[int]:
        """The places among the table's attributes of those of S, in order."""
        return [q for q, place in enumerate(self.places) if place is not None]

    @property
    def outside(self) -> list[int]:
        return [q for q, place in enumerate(self.places) if place is None]


@dataclass(frozen=True)
class SetKind:
    """Sets of attributes that are asked alike: how many, the colours of their attributes, the tables that ask."""

    sets: tuple[Set, ...]
    colours: tuple[int, ...]
    parts: tuple[Part, ...]

    @cached_property
    def is_product(self) -> bool:
        """Whether all tables ask one product of the set."""
        if any(part.form.grams is None for part in self.parts):
            return False
        asked = {tuple(part.form.roles[q] for q in part.inside) for part in self.parts}
        return len(asked) == 1


@dataclass(frozen=True)
class Optimum:
    """The dual of one matrix ``G = F'F``, F (r, n) of full row rank, at multipliers mu that sum to 1.

    ``root`` is sqrt L as proven, ``loss`` the squared error of ``strategy`` (r, n), whose columns have norm at most 1;
    ``half`` (r, n) is Y with E = Y'Y.
    """

    rows: np.ndarray
    mu: np.ndarray
    root: float
    loss: float
    strategy: np.ndarray
    half: np.ndarray


class _Dual(DualSearch):
    """The dual in the row space of F, a matrix of full row rank."""

    def __init__(self, rows: np.ndarray, tolerance: float, deadline: float, most: int) -> None:
        super().__init__(tolerance, deadline, most)
        self._rows = rows
        self._best: tuple[np.ndarray, float] | None = None

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        values, vectors = self._decomposed(mu)
        half = (vectors / values**0.25).T @ self._rows
        diagonal = np.square(half).sum(axis=0)
        trace, largest = float(np.sqrt(values).sum()), float(diagonal.max())
        if trace * largest < self.upper:
            self.upper, self._best = trace * largest, (half, largest)
        return trace, diagonal

    def _decomposed(self, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = sl.eigh((self._rows * mu) @ self._rows.T, check_finite=False, overwrite_a=True)
        return np.maximum(values, values[-1] * 1e-15), vectors

    def optimum(self) -> Optimum:
        mu = self.multipliers / self.multipliers.sum()
        values, vectors = self._decomposed(mu)
        kept = values > _KINK * values[-1]
        half = (vectors[:, kept] / values[kept] ** 0.75).T @ (self._rows * mu)
        assert self._best is not None
        strategy, largest = self._best
        root = float(np.sqrt(values).sum())
        return Optimum(self._rows, mu, root, self.upper, strategy / math.sqrt(largest), half)


def solved(
    rows: np.ndarray, tolerance: float, deadline: float, start: np.ndarray | None, most: int = _MOST
) -> Optimum:
    """The optimum of ``G = F'F`` for rows F (m, n) of any rank but 0: to a relative gap, in ``most`` evaluations."""
    if len(rows) > rows.shape[1]:
        values, vectors = sl.eigh(rows.T @ rows, check_finite=False)
        kept = values > _DEPENDENT * values[-1]
        rows = (vectors[:, kept] * np.sqrt(values[kept])).T
    else:
        values, vectors = sl.eigh(rows @ rows.T, check_finite=False)
        rows = vectors[:, values > _DEPENDENT * values[-1]].T @ rows
    search = _Dual(rows, tolerance, deadline, most)
    search.run(np.ones(rows.shape[1]) if start is None else np.maximum(start / start.max(), _SMALLEST))
    return search.optimum()


@dataclass(frozen=True)
class Lean:
    """A subset that queries also ask about: its ``places`` in the set, its kind by number, and of how many rows."""

    places: tuple[int, ...]
    kind: int
    rank: int


@dataclass(frozen=True)
class Solution:
    """The optimum of one kind of set: of each attribute for one product, times ``scale``; or of the whole set.

    ``leans`` are subsets that the whole set's queries also ask about (:mod:`.leaning`), and the total with them.
    """

    factors: tuple[Optimum, ...]
    scale: float
    whole: bool
    leans: tuple[Lean, ...] = ()

    @property
    def root(self) -> float:
        return math.sqrt(self.scale) * math.prod(o.root for o in self.factors)

    @property
    def is_nothing(self) -> bool:
        """Whether the tables ask nothing of the set beyond its subsets."""
        return self.scale == 0


class Spaces:
    """The kinds of sets that a merged workload asks for, and their optima at given a."""

    def __init__(self, merged: Workload, settings: Settings) -> None:
        self.shape = merged.domain.shape
        asks = asks_of(merged)
        self.sets = closure(ask.crossed for ask in asks)
        exact = _colours(asks, self.shape)
        self._paint(asks, exact)
        work = self._work
        if self._iterations < _FEW:
            self._paint(asks, _sizes(asks, self.shape))
            if self._work > _WORTH * work:
                self._paint(asks, exact)
        if len(self.kinds) > _KINDS:
            raise Unsupported(
                f"{len(self.kinds):,} sets of attributes are asked differently (up to {_KINDS})"
            )
        self._check_size()
        # whole numbers for the queries, and the score, take about as long as a step
        self.settings = replace(settings, deadline=settings.deadline - SECONDS_A_CUBE * self._work)
        self._starts: dict[Hashable, np.ndarray] = {}

    def _paint(self, asks: Sequence[Ask], colours: list[int]) -> None:
        """Let attributes of one colour share one a."""
        self.colours = colours
        self.kinds = _kinds(self.sets, asks, colours)
        self._fixed = _asked_alike(asks, colours)
        sizes = dict(zip(colours, self.shape, strict=True))
        self.sizes = [sizes[c] for c in range(len(sizes))]

    def _check_size(self) -> None:
        for c, n in enumerate(self.sizes):
            if n > WIDEST and c not in self._fixed:
                raise Unsupported(f"an attribute of {n:,} cells is too wide (up to {WIDEST})")
        for kind in self.kinds:
            if kind.is_product:
                continue
            cells = math.prod(self.sizes[c] for c in kind.colours)
            rows = sum(_row_count(part) for part in kind.parts)
            if (cells > EXPLICIT and rows > _ROWS) or min(rows, cells) * cells > _ENTRIES:
                raise Unsupported(
                    f"{rows:,} rows over {cells:,} combinations of cells are too many for one set"
                )

    @property
    def _orders(self) -> list[float]:
        """The order of each kind's decompositions, as many as it takes to be as much work."""
        orders = []
        for kind in self.kinds:
            if kind.is_product:
                orders += [float(self.sizes[c]) for c in kind.colours]
            else:
                cells = math.prod(self.sizes[c] for c in kind.colours)
                rank = min(cells, sum(_row_count(part) for part in kind.parts))
                orders.append((rank**2 * cells) ** (1 / 3))
        return orders

    @property
    def _work(self) -> float:
        """Multiplications of one step."""
        return _STEPS * sum(order**3 for order in self._orders)

    @property
    def _iterations(self) -> int:
        """Fewer where a step takes long."""
        return int(np.clip(_WORK // max(self._work, 1.0), 2, _ITERATIONS))

    @property
    def differ(self) -> bool:
        """Whether one basis an attribute would not do: some set asks what is no product of what others ask."""
        asked: dict[int, Hashable] = {}
        for kind in self.kinds:
            if not kind.is_product and kind.colours:
                return True
            part = kind.parts[0]
            for q in part.inside:
                role = part.form.roles[q]
                if asked.setdefault(part.colours[q], role) != role:
                    return True
        return False

    def is_alike(self, colour: int) -> bool:
        """Whether every table asks the same of all cells of the attribute."""
        return colour in self._fixed

    def overlaps(self) -> np.ndarray:
        """About what two columns of an attribute's queries have in common, as a share of their length."""
        return np.array([-1 / (n - 1) if n > 1 else 1.0 for n in self.shape])

    def uniform(self) -> list[np.ndarray]:
        return [np.full(n, 1 / n) for n in self.sizes]

    def value(self, a: Sequence[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        """``sum_S sqrt L_S``, and its slope by the a of each colour."""
        total, slopes = 0.0, [np.zeros(n) for n in self.sizes]
        exact = (_SEARCHED, _MOST) if self._iterations == _ITERATIONS else _ROUGH
        for kind, found in zip(self.kinds, self.optima(a, *exact), strict=True):
            if self.settings.neighbours == "replace" and not kind.colours:
                continue  # the group of the total costs nothing
            total += len(kind.sets) * found.root
            for colour, slope in _slopes(kind, found, a):
                slopes[colour] += len(kind.sets) * slope
        return total, slopes

    def optima(self, a: Sequence[np.ndarray], tolerance: float = _FINAL, most: int = _MOST) -> list[Solution]:
        """The optimum of every kind of set."""
        known: dict[Hashable, Optimum] = {}

        def settled(key: Hashable, rows: np.ndarray) -> Optimum:
            found = solved(rows, tolerance, self.settings.deadline, self._starts.get(key), most)
            self._starts[key] = found.mu
            return found

        return [_optimum(k, kind, a, settled, known) for k, kind in enumerate(self.kinds)]

    def search(self) -> list[np.ndarray]:
        """The a of each colour that lower ``L(a)`` most, from equal ones.

        Where reversing the cells changes little, L often has a kink at an a that is its own mirror image, which a
        descent only comes near to: then it goes on among those.

        Raises :class:`~tabulae.errors.Unsupported` where a step or two would last beyond the time limit.
        """
        self.settings.check_time(*self._orders, steps=2 * _STEPS)
        found, best = self._descend(self.uniform(), mirrored=False)
        mirrored = [(cut + cut[::-1]) / 2 for cut in found]
        if self.settings.late or self.value(mirrored)[0] >= best:
            return found
        return self._descend(mirrored, mirrored=True)[0]

    def _descend(self, start: list[np.ndarray], *, mirrored: bool) -> tuple[list[np.ndarray], float]:
        free = [c for c in range(len(self.sizes)) if c not in self._fixed]
        best: tuple[list[np.ndarray], float] = start, math.inf
        if not free:
            return best
        ends = np.cumsum([0, *(self.sizes[c] for c in free)])
        # Where columns are parallel their multipliers may be shared in any way, and only even shares give no slope.
        self._starts.clear()

        def unpacked(x: np.ndarray) -> list[np.ndarray]:
            a = list(start)
            for c, (first, stop) in zip(free, pairwise(ends), strict=True):
                part = _side(x[first:stop], mirrored=mirrored) / self.sizes[c]
                a[c] = part + (1 - part.sum()) / len(part)
            return a

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            if self.settings.late and best[1] < math.inf:
                raise StopIteration
            a = unpacked(x)
            value, slopes = self.value(a)
            if value < best[1]:
                best = a, value
            if not value:  # nothing that costs anything is asked, wherever the cuts are
                raise StopIteration
            sides = [_side((slopes[c] - slopes[c].mean()) / self.sizes[c], mirrored=mirrored) for c in free]
            return math.log(value), np.concatenate(sides) / value

        with contextlib.suppress(StopIteration):
            minimize(
                objective, np.concatenate([start[c] * self.sizes[c] for c in free]), jac=True, method="L-BFGS-B",
                options={"maxiter": self._iterations, "ftol": _SETTLED, "gtol": 1e-9},
            )  # fmt: skip
        return best


def _optimum(
    k: int,
    kind: SetKind,
    a: Sequence[np.ndarray],
    settled: Callable[[Hashable, np.ndarray], Optimum],
    known: dict[Hashable, Optimum],
) -> Solution:
    """The optimum of the k-th kind of set; those of single attributes are settled once, and ``known`` from then on."""
    if not kind.is_product:
        rows = np.concatenate([rows_of(part, kind, a) for part in kind.parts])
        if not rows.any():
            return Solution((), 0.0, whole=False)
        return Solution((settled(k, rows),), 1.0, whole=True)
    factors: list[Optimum] = []
    part, scale = kind.parts[0], sum(p.weight * _outside(p, a) for p in kind.parts)
    if not scale:
        return Solution((), 0.0, whole=False)
    for q in part.inside:
        key = part.form.roles[q], part.colours[q]
        if key not in known:
            root, cut = part.form.roots[q], a[part.colours[q]]
            known[key] = settled(key, root - np.outer(root @ cut, np.ones(len(cut))))
        factors.append(known[key])
    return Solution(tuple(factors), scale, whole=False)


def _side(x: np.ndarray, *, mirrored: bool) -> np.ndarray:
    return (x + x[::-1]) / 2 if mirrored else x


def _row_count(part: Part) -> int:
    if part.form.rows is not None:
        return part.form.most_rank
    assert part.form.grams is not None
    return math.prod(len(part.form.grams[q]) for q in part.inside)


def _outside(part: Part, a: Sequence[np.ndarray]) -> float:
    """``prod a_j' V_j a_j`` over the attributes of the table beyond S."""
    assert part.form.grams is not None
    return math.prod(_total(part.form.grams[q], a[part.colours[q]]) for q in part.outside)


def _total(V: np.ndarray, cut: np.ndarray) -> float:
    """``a'Va``, or 0 where it cannot be told from 0, as for tables that count nobody."""
    value, size = float(cut @ V @ cut), float(np.abs(cut) @ np.abs(V) @ np.abs(cut))
    return value if value > CANCELLED * size else 0.0


def rows_of(part: Part, kind: SetKind, a: Sequence[np.ndarray]) -> np.ndarray:
    """``w W_T (P_S (x) a_{T-S})``, or for a product rows with the same Gram matrix: (m, cells of S)."""
    cells = math.prod(len(a[c]) for c in kind.colours)
    if part.form.grams is not None:
        root = math.sqrt(part.weight * _outside(part, a))
        factors = []
        for q in part.inside:
            F, cut = part.form.roots[q], a[part.colours[q]]
            factors.append(F - np.outer(F @ cut, np.ones(len(cut))))
        return root * reduce(np.kron, factors, np.ones((1, 1))).reshape(-1, cells)
    rows = cut_rows(part, a, None).reshape(-1, cells)
    largest = np.abs(part.form.root).max()
    return math.sqrt(part.weight) * np.where(np.abs(rows) > _ROUNDING * largest, rows, 0.0)


def cut_rows(part: Part, a: Sequence[np.ndarray], left: int | None) -> np.ndarray:
    """The rows with P on the attributes of S and a on the others, all but the attribute ``left``."""
    rows = part.form.root
    for q, place in reversed(list(enumerate(part.places))):
        if q == left:
            continue
        summed = np.tensordot(rows, a[part.colours[q]], axes=(q + 1, 0))
        rows = summed if place is None else rows - np.expand_dims(summed, q + 1)
    return rows


def _slopes(kind: SetKind, found: Solution, a: Sequence[np.ndarray]) -> list[tuple[int, np.ndarray]]:
    """(colour, slope of sqrt L_S by its a), attribute by attribute and table by table."""
    out: list[tuple[int, np.ndarray]] = []
    if found.is_nothing:
        return out
    if not found.whole:
        return list(_product_slopes(kind, found, a))
    (optimum,) = found.factors
    sizes = [len(a[c]) for c in kind.colours]
    for part in kind.parts:
        if part.form.rows is None:
            out.extend(_gram_slopes(part, optimum.half, sizes, a))
        else:
            out.extend(_row_slopes(part, optimum.half, a))
    return out


def _product_slopes(kind: SetKind, found: Solution, a: Sequence[np.ndarray]):
    part = kind.parts[0]
    assert part.form.grams is not None
    for q, optimum in zip(part.inside, found.factors, strict=True):
        V, cut = part.form.grams[q], a[part.colours[q]]
        onto = optimum.half.T @ optimum.half.sum(axis=1)  # E 1
        yield part.colours[q], -found.root / optimum.root * (V @ (onto - cut * onto.sum()))
    for part in kind.parts:
        yield from _outside_slopes(part, found.root * part.weight * _outside(part, a) / found.scale, a)


def _outside_slopes(part: Part, share: float, a: Sequence[np.ndarray]):
    assert part.form.grams is not None
    for q in part.outside if share else ():
        V, cut = part.form.grams[q], a[part.colours[q]]
        yield part.colours[q], share * (V @ cut) / (cut @ V @ cut)


def _gram_slopes(part: Part, half: np.ndarray, sizes: Sequence[int], a: Sequence[np.ndarray]):
    """Of a product among others: with C_i = P'VP and g what is outside, ``<E, d(g (x) C)> / 2``."""
    grams = part.form.grams
    assert grams is not None
    scale, inside = part.weight * _outside(part, a), part.inside
    C = []
    for q in inside:
        F, cut = part.form.roots[q], a[part.colours[q]]
        F = F - np.outer(F @ cut, np.ones(len(cut)))
        C.append(F.T @ F)
    Y = half.reshape(-1, *sizes)
    value = 0.0
    for k, q in enumerate(inside):
        other = Y
        for j in range(len(inside)):
            if j != k:
                other = np.moveaxis(np.tensordot(other, C[j], axes=(j + 1, 0)), -1, j + 1)
        axes = [0, *(j + 1 for j in range(len(inside)) if j != k)]
        inner = np.tensordot(Y, other, axes=(axes, axes))
        inner = (inner + inner.T) / 2
        value = float(np.vdot(inner, C[k]))
        V, cut = grams[q], a[part.colours[q]]
        onto = inner.sum(axis=1)
        yield part.colours[q], -scale * (V @ (onto - cut * onto.sum()))
    if not inside:
        value = float(np.vdot(half, half))
    yield from _outside_slopes(part, scale * value, a)


def _row_slopes(part: Part, half: np.ndarray, a: Sequence[np.ndarray]):
    """Of explicit rows: ``w^2 <F E, dF>``."""
    rows = part.form.root
    sizes = [n for n, place in zip(rows.shape[1:], part.places, strict=True) if place is not None]
    F = cut_rows(part, a, None).reshape(len(rows), -1)
    FE = ((F @ half.T) @ half).reshape(len(rows), *sizes)
    for q, place in enumerate(part.places):
        bare = cut_rows(part, a, q)  # the axis of q as it is
        axis = 1 + sum(p is not None for p in part.places[:q])
        against = FE if place is None else FE.sum(axis=axis)
        others = [k for k in range(bare.ndim) if k != axis]
        slope = np.tensordot(bare, against, axes=(others, list(range(against.ndim))))
        yield part.colours[q], part.weight * (slope if place is None else -slope)


# which sets are alike ---------------------------------------------------------------------------------------
def asks_of(merged: Workload) -> list[Ask]:
    """What each table of a merged workload asks; equal tables share their form."""
    forms = _Forms(merged)
    return [forms.ask(table) for table in merged.tables]


class _Forms:
    """The forms of the tables of a workload, equal ones once."""

    def __init__(self, merged: Workload) -> None:
        self._merged = merged
        self._known: dict[Hashable, TableForm] = {}
        self._grams: dict[LinearOperator, np.ndarray] = {}
        self._roles: dict[Hashable, int] = {}

    def ask(self, table: Table) -> Ask:
        weight = float(table.weight) ** 2
        if len(table.terms) == 1:
            return self._product(table, weight)
        crossed = table.crossed(self._merged.domain)
        sizes = tuple(self._merged.domain.shape[i] for i in crossed)
        matrix = table.matrix(self._merged.domain)
        key = id(matrix), sizes  # equal tables share it, and their terms keep it
        if key not in self._known:
            rows = matrix.astype(float).reshape(-1, *sizes)
            self._known[key] = TableForm(self._exchangeable(rows, key), rows=rows)
        return Ask(self._known[key], crossed, weight)

    def _product(self, table: Table, weight: float) -> Ask:
        (term,) = table.terms
        factors = term.over(self._merged.domain)
        crossed = tuple(i for i, f in enumerate(factors) if not is_flat(f))
        weight *= float(term.coefficient) ** 2
        for f in factors:
            if is_flat(f) and not isinstance(f, Total):
                weight *= float(
                    np.square(np.asarray(f.columns(np.zeros(1, dtype=np.int64)), dtype=float)).sum()
                )
        key = tuple(factors[i] for i in crossed)
        if key not in self._known:
            grams = tuple(self._gram(f) for f in key)
            roles = tuple(self._number((V.shape, V.tobytes())) for V in grams)
            self._known[key] = TableForm(roles, grams=grams)
        return Ask(self._known[key], crossed, weight)

    def _gram(self, factor: LinearOperator) -> np.ndarray:
        if factor not in self._grams:
            self._grams[factor] = np.asarray(factor.gram().dense(), dtype=float)
        return self._grams[factor]

    def _number(self, role: Hashable) -> int:
        return self._roles.setdefault(role, len(self._roles))

    def _exchangeable(self, rows: np.ndarray, key: Hashable) -> tuple[int, ...]:
        """Attributes that may change places without changing the table, but for the order of its rows, share a role."""
        roles: list[int] = []
        ordered = _in_order(rows)
        for q in range(rows.ndim - 1):
            alike = (
                earlier for earlier in range(q)
                if rows.shape[q + 1] == rows.shape[earlier + 1]
                and np.array_equal(_in_order(np.swapaxes(rows, q + 1, earlier + 1)), ordered)
            )  # fmt: skip
            first = next(alike, None)
            roles.append(self._number((key, q)) if first is None else roles[first])
        return tuple(roles)


def _in_order(rows: np.ndarray) -> np.ndarray:
    """The rows, flat, in an order that depends on nothing but themselves."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    return np.array(sorted(row.tobytes() for row in flat))


def _colours(asks: Sequence[Ask], shape: Sequence[int]) -> list[int]:
    """A colour for each attribute: equal where no table tells two of them apart, through any chain of tables."""
    touching: list[list[tuple[Ask, int]]] = [[] for _ in shape]
    for ask in asks:
        for q, i in enumerate(ask.crossed):
            touching[i].append((ask, q))
    colours = _numbered(list(shape))
    while True:
        seen = []
        for i, touched in enumerate(touching):
            views: Counter[Hashable] = Counter()
            for ask, q in touched:
                others = sorted(
                    (role, colours[j])
                    for p, (role, j) in enumerate(zip(ask.form.roles, ask.crossed, strict=True))
                    if p != q
                )
                views[ask.weight, ask.form.roles[q], tuple(others)] += 1
            seen.append((colours[i], frozenset(views.items())))
        found = _numbered(seen)
        if len(set(found)) == len(set(colours)):
            return found
        colours = found


def _sizes(asks: Sequence[Ask], shape: Sequence[int]) -> list[int]:
    """A colour for each size, and one more for attributes of that size whose cells are all asked alike."""
    alike = _asked_alike(asks, range(len(shape)))
    return _numbered([(n, i in alike) for i, n in enumerate(shape)])


def _numbered(labels: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def _kinds(sets: Sequence[Set], asks: Sequence[Ask], colours: Sequence[int]) -> list[SetKind]:
    """The sets that are asked for, alike ones together."""
    position = {s: k for k, s in enumerate(sets)}
    parts: list[dict[Hashable, Part]] = [{} for _ in sets]
    for ask in asks:
        d = len(ask.crossed)
        table_colours = tuple(colours[i] for i in ask.crossed)
        for mask in range(2**d):
            inside = [q for q in range(d) if mask >> q & 1]
            place = {q: k for k, q in enumerate(inside)}
            places = tuple(place.get(q) for q in range(d))
            looks = zip(ask.form.roles, table_colours, places, strict=True)
            view = tuple(sorted((r, c, -1 if p is None else p) for r, c, p in looks))
            of_set = parts[position[tuple(ask.crossed[q] for q in inside)]]
            known = of_set.get(view)
            if known is None:
                of_set[view] = Part(ask.form, ask.weight, places, table_colours)
            else:
                of_set[view] = Part(known.form, known.weight + ask.weight, known.places, known.colours)
    kinds: dict[Hashable, tuple[list[Set], SetKind]] = {}
    for s, of_set in zip(sets, parts, strict=True):
        own = tuple(colours[i] for i in s)
        key = own, frozenset((view, part.weight) for view, part in of_set.items())
        if key not in kinds:
            kinds[key] = [], SetKind((), own, tuple(of_set.values()))
        kinds[key][0].append(s)
    return [SetKind(tuple(members), kind.colours, kind.parts) for members, kind in kinds.values()]


def _asked_alike(asks: Sequence[Ask], colours: Sequence[int]) -> set[int]:
    """The colours whose cells are exchangeable: their a is equal."""
    alike = dict.fromkeys(colours, True)
    for ask in asks:
        for q, i in enumerate(ask.crossed):
            grams = ask.form.grams
            if grams is None or identity_and_ones(grams[q]) is None:
                alike[colours[i]] = False
    return {c for c, is_alike in alike.items() if is_alike}
