"""Queries of a set that also ask about its subsets: the largest sets of attributes lean on those below them.

With a space for each set (:mod:`.spaces`) a table T asks ``W_T (P_R (x) a_{T-R}) = C_TR f_R`` of each of its sets R,
f_R a basis (r_R, cells of R) that a annuls. Nothing but that ties what is measured to a: with any K and k

    f_S' = f_S + sum_{R in S} K_SR f_R + k_S 1',        C_TR' = C_TR - C_TS K_SR,        W_T = sum_S C_TS' f_S',

and queries that measure the f_S' are as independent as before. So the loss is again ``(sum_S sqrt L_S)^2``, L_S the
optimum for ``G_S = f_S'' (sum_T w_T^2 C_TS'' C_TS') f_S'``. Each ``sqrt L_S`` is a norm of C' f' (gamma_2, the least
product of column norms), so that their sum is convex in K.

Here those sets lean that no table goes beyond. K is found from 0 by L-BFGS; with E as in :mod:`.spaces`

    d sqrt L_S = <C'C f' E, df'> + <f' E f'', d(C'C)> / 2.

Where two attributes of a set may change places, f has even and odd rows, and K of the second attribute is that of the
first times 1 and -1.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ..information.residual_basis import Set
from ..methods import Settings
from .spaces import (
    EXPLICIT,
    Lean,
    Optimum,
    Part,
    SetKind,
    Solution,
    Spaces,
    TableForm,
    cut_rows,
    rows_of,
    solved,
)

_RANK = 1e-7  # singular values of what is asked below this share of the largest are rounding
_SAME = 1e-9  # relative difference at which two sides of a set count as alike
_NOTHING = 1e-12  # share of what is asked of a set below which what is left of it is rounding
_PRODUCT = 256  # cells of a set that is asked one product, and measured as a product where it does not lean
_ROWS = 1024  # rows of a set that leans, where it has more cells than ``EXPLICIT``
_SEARCHED, _FINAL = 1e-5, 1e-6  # relative gaps to which sets are solved
_SETTLED, _FEWEST, _MOST = 1e-7, 5, 200  # of the search; its evaluations
_GAIN = 1e-3  # of the loss, below which spaces stay as they are
_WORK, _SECONDS = 1e9, 2e-8  # rows squared times cells of all evaluations, and what one takes of a core

Found = list[tuple[tuple[Set, ...], SetKind, Solution]]
"""Sets, what is asked of them, and its optimum."""


@dataclass(frozen=True, eq=False)
class _Side:
    """What sets lean on at some of their places: the kind of the sets there, and ``C_TR`` (m, r_R)."""

    places: tuple[int, ...]
    kind: int
    C: np.ndarray


@dataclass(frozen=True, eq=False)
class _Leaning:
    """Sets that lean alike: f (r, n_1, .., n_k), ``C`` = C_TS (m, r), the sides, and the tables' parts on nobody (m,).

    ``signs`` (r,) where the two attributes may change places: only the first side is free then.
    """

    kind: int
    sets: tuple[Set, ...]
    f: np.ndarray
    C: np.ndarray
    sides: tuple[_Side, ...]
    total: np.ndarray
    signs: np.ndarray | None

    @property
    def free(self) -> tuple[_Side, ...]:
        return self.sides if self.signs is None else self.sides[:1]


@dataclass(frozen=True, eq=False)
class _Group:
    """Sets that are leaned on alike: ``by`` (leaning sets, side) how often, and C'C of the rest, (r, r)."""

    kind: int
    sets: tuple[Set, ...]
    by: tuple[tuple[tuple[int, int], int], ...]
    rest: np.ndarray


@dataclass(frozen=True, eq=False)
class _Single:
    """One attribute that leans on the total: ``C`` (m, r) and ``total`` (m,) of its own tables, and how many such."""

    C: np.ndarray
    total: np.ndarray
    count: int


@dataclass(frozen=True, eq=False)
class _Point:
    """What K and k make: rows f' and ``C'`` of every side of sets that lean, ``shifts`` of attributes by kind, and what
    is left on the total, of sets and of attributes.
    """

    f: list[np.ndarray]
    C: list[list[np.ndarray]]
    total: list[np.ndarray]
    shifts: dict[int, np.ndarray]
    own: dict[int, np.ndarray]


def leaning(spaces: Spaces, a: Sequence[np.ndarray], settings: Settings) -> Found:
    """The optimum of every kind of set at cuts a, the largest sets leaning where that lowers the loss.

    None lean where the loss is proven low enough without.
    """
    plain = [(kind.sets, kind, found) for kind, found in zip(spaces.kinds, spaces.optima(a), strict=True)]
    if settings.neighbours != "add-remove" or settings.late:  # pairs of columns are what counts under replace
        return plain
    if settings.is_enough(loss_of(plain)):
        return plain
    found = Leanings(spaces, a, settings).searched(plain)
    return plain if found is None or loss_of(found) > (1 - _GAIN) * loss_of(plain) else found


def loss_of(found: Found) -> float:
    """``(sum_S sqrt L_S)^2``."""
    return sum(len(sets) * solution.root for sets, _, solution in found) ** 2


class Leanings:
    """The sets of some spaces that may lean, at cuts a."""

    def __init__(self, spaces: Spaces, a: Sequence[np.ndarray], settings: Settings) -> None:
        self._spaces, self._a, self._settings = spaces, a, settings
        self._kind_of = {s: k for k, kind in enumerate(spaces.kinds) for s in kind.sets}
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        # Rows squared times cells that there is time for
        self._most = min(_WORK, settings.limit / 2 / _SECONDS)
        self._leaning: list[_Leaning] = []
        for k, kind in enumerate(spaces.kinds):
            if self._most // max(self._order, 1) < _FEWEST:  # however many more there are
                break
            if self._may_lean(kind):
                # Of an attribute of one cell nothing is asked beyond its subsets
                self._leaning += [one for one in self._of(k) if len(one.f)]
        self._groups = self._grouped()
        self._counted = len(self._asked(self._kind_of[()])[0]) > 0
        leant_on = {group.kind for group in self._groups}
        self._singles = {k: self._single(k) for k in sorted(leant_on) if self._may_shift(spaces.kinds[k])}
        self._starts: dict[object, np.ndarray] = {}

    # what leans on what --------------------------------------------------------------------------------------
    def _may_lean(self, kind: SetKind) -> bool:
        """Sets of few rows that no table goes beyond; of three attributes or more none may change places."""
        colours = kind.colours
        if len(colours) < 2 or any(part.outside for part in kind.parts):
            return False
        if len(colours) > 2 and len(set(colours)) < len(colours):
            return False
        singles = [self._asked(self._kind_of[(i,)])[0] for i in kind.sets[0]]
        if any(
            len(f) < f.shape[1] - 1 for f in singles
        ):  # least squares would not know a from what is measured
            return False
        cells = math.prod(self._spaces.sizes[c] for c in colours)
        if kind.is_product and (
            cells > _PRODUCT or all(self._spaces.kinds[k].is_product for k in self._below(kind))
        ):
            return False
        return cells <= EXPLICIT or sum(len(_explicit(part)) for part in kind.parts) <= _ROWS

    def _may_shift(self, kind: SetKind) -> bool:
        """One attribute, all of whose sets lean: no product is tied to its a."""
        leaning = {one.kind for one in self._leaning}
        return (
            self._counted
            and len(kind.colours) == 1
            and all(
                k in leaning or kind.colours[0] not in other.colours or len(other.colours) == 1
                for k, other in enumerate(self._spaces.kinds)
            )
        )

    def _below(self, kind: SetKind) -> set[int]:
        """The kinds of the subsets of a kind's sets."""
        s = kind.sets[0]
        return {self._kind_of[below] for size in range(1, len(s)) for below in combinations(s, size)}

    def _single(self, k: int) -> _Single:
        kind = self._spaces.kinds[k]
        own = replace(kind, parts=tuple(part for part in kind.parts if not part.outside))
        f = self._asked(k)[0]
        if not own.parts:
            return _Single(np.zeros((0, len(f))), np.zeros(0), len(kind.sets))
        return _Single(self._cut(own, (0,)) @ f.T, self._cut(own, ())[:, 0], len(kind.sets))

    def _asked(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """f of a kind (r, cells), and C'C of all that is asked of it (r, r)."""
        if k not in self._known:
            kind = self._spaces.kinds[k]
            rows = np.concatenate([rows_of(part, kind, self._a) for part in kind.parts])
            f = _row_space(rows)
            self._known[k] = f, (rows @ f.T).T @ (rows @ f.T)
        return self._known[k]

    def _of(self, k: int) -> list[_Leaning]:
        """The sets of one kind, by the kinds of their subsets."""
        kind = self._spaces.kinds[k]
        every = tuple(range(len(kind.colours)))
        below = [places for size in range(1, len(every)) for places in combinations(every, size)]
        alike: dict[tuple[int, ...], list[Set]] = {}
        for s in kind.sets:
            alike.setdefault(tuple(self._kind_of[tuple(s[q] for q in p)] for p in below), []).append(s)
        sizes = [self._spaces.sizes[c] for c in kind.colours]
        rows = self._cut(kind, every)
        total = self._cut(kind, ())[:, 0]
        out = []
        signs = None
        if len(sizes) == 2 and kind.colours[0] == kind.colours[1]:
            f, signs = _even_and_odd(rows, sizes[0])
        else:
            f = _row_space(rows)
        for kinds, sets in alike.items():
            if len(out) * len(f) ** 2 * f.shape[1] * _FEWEST > self._most:  # however many more there are
                break
            C = [
                rows @ f.T,
                *(self._cut(kind, p) @ self._asked(j)[0].T for p, j in zip(below, kinds, strict=True)),
            ]
            C = _fewer([*C, total[:, None]])
            sides = tuple(_Side(p, j, c) for p, j, c in zip(below, kinds, C[1:-1], strict=True))
            one = _Leaning(k, tuple(sets), f.reshape(-1, *sizes), C[0], sides, C[-1][:, 0], signs)
            out.append(one if signs is None or _changes_places(one) else replace(one, signs=None))
        return out

    def _cut(self, kind: SetKind, places: tuple[int, ...]) -> np.ndarray:
        """``w W_T (P (x) a)`` of all tables of a kind that none goes beyond, P at some places, (m, cells there)."""
        rows = []
        for part in kind.parts:
            at = tuple(places.index(q) if q in places else None for q in part.places if q is not None)
            view = Part(TableForm(part.form.roles, rows=_explicit(part)), part.weight, at, part.colours)
            cut = cut_rows(view, self._a, None)
            rows.append(math.sqrt(part.weight) * cut.reshape(len(cut), -1))
        return np.concatenate(rows)

    def _grouped(self) -> list[_Group]:
        """The sets below those that lean, by kind and by what leans on them."""
        by: dict[Set, Counter[tuple[int, int]]] = {}
        for number, one in enumerate(self._leaning):
            for s in one.sets:
                for place, side in enumerate(one.sides):
                    below = by.setdefault(tuple(s[q] for q in side.places), Counter())
                    below[number, place if one.signs is None else 0] += 1
        alike: dict[tuple[int, frozenset], list[Set]] = {}
        for k in {self._kind_of[s] for s in by}:
            for s in self._spaces.kinds[k].sets:
                alike.setdefault((k, frozenset(by.get(s, Counter()).items())), []).append(s)
        groups = []
        for (k, counts), sets in alike.items():
            rest = self._asked(k)[1].copy()
            for (number, place), count in counts:
                C = self._leaning[number].sides[place].C
                rest -= count * C.T @ C
            groups.append(_Group(k, tuple(sets), tuple(sorted(counts)), rest))
        return sorted(groups, key=lambda group: group.sets)

    @property
    def _order(self) -> int:
        """Rows squared times cells of the sets that lean, as far as they are made."""
        return sum(len(one.f) ** 2 * one.f[0].size for one in self._leaning)

    # the search ----------------------------------------------------------------------------------------------
    def searched(self, plain: Found) -> Found | None:
        """The optima where sets lean; None where none may, there is no time, or the optimum itself takes less."""
        order = self._order + sum(len(group.rest) ** 3 for group in self._groups)
        left = int(min(_MOST, self._most // max(order, 1)))
        if not self._leaning or left < _FEWEST or left * order * _SECONDS > self._settings.optimum_seconds:
            return None
        touched = (
            {one.kind for one in self._leaning} | {group.kind for group in self._groups} | {self._kind_of[()]}
        )
        others = [found for k, found in enumerate(plain) if k not in touched]
        fixed = math.sqrt(loss_of(others))
        x = np.zeros(self.size)
        while left > 0:  # on from where a kink ended the last
            x, gain, spent = self._descend(x, fixed, left)
            left -= spent
            if gain < _GAIN:
                break
        found = self._solutions(x)
        return None if found is None else [*others, *found]

    @property
    def size(self) -> int:
        """How many numbers K and k of all sets have."""
        size = sum(len(one.f) * (1 + sum(side.C.shape[1] for side in one.free)) for one in self._leaning)
        return size + sum(one.C.shape[1] for one in self._singles.values())

    def _descend(self, start: np.ndarray, fixed: float, most: int) -> tuple[np.ndarray, float, int]:
        """The best point of at most so many evaluations, the relative gain, and their number."""
        visited: list[float] = []
        best = start

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            if visited and (len(visited) >= most or self._settings.late):
                raise StopIteration
            value, slope = self.value(x)
            if not visited or fixed + value < min(visited):
                best = x.copy()
            visited.append(fixed + value)
            return math.log(fixed + value), slope / (fixed + value)

        with contextlib.suppress(StopIteration):
            minimize(
                objective, start, jac=True, method="L-BFGS-B",
                options={"maxiter": most, "maxcor": 20, "ftol": _SETTLED, "gtol": 1e-9},
            )  # fmt: skip
        return best, 2 * math.log(visited[0] / min(visited)), len(visited)

    def _at(self, x: np.ndarray) -> _Point:
        """Everything at K and k, unpacked from x."""
        left = x

        def taken(*shape: int) -> np.ndarray:
            nonlocal left
            size = math.prod(shape)
            block, left = left[:size].reshape(shape), left[size:]
            return block

        shifts = {k: taken(one.C.shape[1]) for k, one in self._singles.items()}
        f, C, total = [], [], []
        for one in self._leaning:
            K = [taken(len(one.f), side.C.shape[1]) for side in one.free]
            k = taken(len(one.f))
            k = k * self._onto_nobody(one)
            if one.signs is not None:
                K.append(one.signs[:, None] * K[0])
            f.append(one.f + k.reshape(-1, *[1] * (one.f.ndim - 1)))
            for side, onto in zip(one.sides, K, strict=True):
                f[-1] = f[-1] + self._lifted(one, side, onto)
            C.append([side.C - one.C @ onto for side, onto in zip(one.sides, K, strict=True)])
            total.append(one.total - one.C @ k)
            for side, beside in zip(one.sides, C[-1], strict=True):
                if side.kind in shifts:
                    total[-1] = total[-1] - beside @ shifts[side.kind]
        own = {k: one.total - one.C @ shifts[k] for k, one in self._singles.items()}
        return _Point(f, C, total, shifts, own)

    def _onto_nobody(self, one: _Leaning) -> np.ndarray | bool:
        """Which rows may lean on the total: none where no table asks for it, and no odd ones."""
        return self._counted if one.signs is None else self._counted * (one.signs > 0)

    def _lifted(self, one: _Leaning, side: _Side, K: np.ndarray) -> np.ndarray:
        """``K f_R`` as functions of the cells of S, with axes of one cell where R has none."""
        sizes = [n if q in side.places else 1 for q, n in enumerate(one.f.shape[1:])]
        return (K @ self._asked(side.kind)[0]).reshape(-1, *sizes)

    def _asked_of(self, group: _Group, point: _Point) -> np.ndarray:
        """C'C of a group."""
        whole = group.rest.copy()
        for (number, place), count in group.by:
            C = point.C[number][place]
            whole += count * C.T @ C
        return whole

    def _nobody(self, point: _Point) -> float:
        """The same of the total."""
        asked = float(np.trace(self._asked(self._kind_of[()])[1]))
        for one, part in zip(self._leaning, point.total, strict=True):
            asked += len(one.sets) * float(part @ part - one.total @ one.total)
        for k, single in self._singles.items():
            asked += single.count * float(point.own[k] @ point.own[k] - single.total @ single.total)
        return max(asked, 0.0)

    def _rows(self, group: _Group, point: _Point) -> np.ndarray:
        """f' of a group, (r, cells)."""
        f = self._asked(group.kind)[0]
        return f + point.shifts[group.kind][:, None] if group.kind in point.shifts else f

    def _optimum(self, key: object, rows: np.ndarray, tolerance: float) -> Optimum:
        found = solved(rows, tolerance, self._settings.deadline, self._starts.get(key))
        self._starts[key] = found.mu
        return found

    def value(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """``sum sqrt L_S`` over the sets that lean, are leaned on, and none, and its slope."""
        point = self._at(x)
        nobody = math.sqrt(self._nobody(point))
        value, by_f = nobody, []
        by_C = [[np.zeros(C.shape) for C in own] for own in point.C]
        by_shift = {k: np.zeros(len(shift)) for k, shift in point.shifts.items()}
        for one, f in zip(self._leaning, point.f, strict=True):
            rows = one.C @ f.reshape(len(f), -1)
            found = self._optimum(one, rows, _SEARCHED)
            value += len(one.sets) * found.root
            by_f.append(len(one.sets) * ((one.C.T @ (rows @ found.half.T)) @ found.half).reshape(f.shape))
        for group in self._groups:
            whole, f = self._asked_of(group, point), self._rows(group, point)
            if not self._is_asked(group, whole):
                continue
            found = self._optimum(group, _root(whole) @ f, _SEARCHED)
            value += len(group.sets) * found.root
            along = f @ found.half.T
            for (number, place), count in group.by:
                by_C[number][place] += len(group.sets) * count * (point.C[number][place] @ along) @ along.T
            if group.kind in by_shift:
                by_shift[group.kind] += len(group.sets) * (whole @ along) @ found.half.sum(axis=1)
        return value, self._slope(point, by_f, by_C, by_shift, nobody)

    def _is_asked(self, group: _Group, whole: np.ndarray) -> bool:
        return float(np.trace(whole)) > _NOTHING * float(np.trace(self._asked(group.kind)[1]))

    def _slope(
        self,
        point: _Point,
        by_f: list[np.ndarray],
        by_C: list[list[np.ndarray]],
        by_shift: dict[int, np.ndarray],
        nobody: float,
    ) -> np.ndarray:
        """From slopes by f', C' and shifts to those by K and k, what is left on the total counted in."""
        out = []
        for number, one in enumerate(self._leaning):
            left = len(one.sets) / nobody * point.total[number] if nobody else np.zeros(len(one.C))
            every = tuple(range(1, one.f.ndim))
            sides = []
            for place, side in enumerate(one.sides):
                by = by_C[number][place]
                if side.kind in by_shift:
                    by = by - np.outer(left, point.shifts[side.kind])
                    by_shift[side.kind] -= point.C[number][place].T @ left
                others = tuple(q for q in every if q - 1 not in side.places)
                along = by_f[number].sum(axis=others).reshape(len(one.f), -1)
                sides.append(along @ self._asked(side.kind)[0].T - one.C.T @ by)
            total = by_f[number].sum(axis=every) - one.C.T @ left
            if one.signs is not None:
                sides = [sides[0] + one.signs[:, None] * sides[1]]
            out += [*(side.ravel() for side in sides), total * self._onto_nobody(one)]
        for k, single in self._singles.items():
            if nobody:
                by_shift[k] -= single.count / nobody * single.C.T @ point.own[k]
        return np.concatenate([*by_shift.values(), *out])

    def _solutions(self, x: np.ndarray) -> Found | None:
        """The optima at K; None where a set that is leaned on is not asked all that others lean on."""
        point, out = self._at(x), []
        nobody = self._kind_of[()]
        total = (Lean((), nobody, 1),) if self._counted else ()
        for one, f in zip(self._leaning, point.f, strict=True):
            found = self._optimum(one, one.C @ f.reshape(len(f), -1), _FINAL)
            leans = (
                *(Lean(side.places, side.kind, side.C.shape[1]) for side in one.sides if side.C.size),
                *total,
            )
            out.append(
                (one.sets, self._spaces.kinds[one.kind], Solution((found,), 1.0, whole=True, leans=leans))
            )
        for group in self._groups:
            kind, f = self._spaces.kinds[group.kind], self._rows(group, point)
            if not len(f):
                out.append((group.sets, kind, Solution((), 0.0, whole=False)))
                continue
            whole = self._asked_of(group, point)
            if not self._is_asked(group, whole):
                return None
            found = self._optimum(group, _root(whole) @ f, _FINAL)
            if len(found.rows) < len(f):
                return None
            leans = total if group.kind in point.shifts else ()
            out.append((group.sets, kind, Solution((found,), 1.0, whole=True, leans=leans)))
        kind = self._spaces.kinds[nobody]
        return [*out, (kind.sets, kind, Solution((), self._nobody(point), whole=False))]


def _explicit(part: Part) -> np.ndarray:
    """Rows with the Gram matrix of one table's, (m, n_1, .., n_k)."""
    if part.form.grams is None:
        return part.form.root
    roots = part.form.roots
    return reduce(np.kron, roots).reshape(-1, *(root.shape[1] for root in roots))


def _row_space(rows: np.ndarray, size: float = 0.0) -> np.ndarray:
    """Orthonormal rows of the same span; of a part of what has the largest singular value ``size``."""
    if not rows.any():
        return rows[:0]
    _, values, right = sl.svd(np.linalg.qr(rows, mode="r"), full_matrices=False, check_finite=False)
    return right[values > _RANK * max(size, float(values[0]))]


def _even_and_odd(rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of pairs, even and odd when the attributes change places, and their signs."""
    turned = rows.reshape(-1, n, n).transpose(0, 2, 1).reshape(rows.shape)
    size = float(np.linalg.norm(rows, 2))
    even, odd = (_row_space((rows + sign * turned) / 2, size) for sign in (1, -1))
    return np.concatenate([even, odd]), np.repeat([1.0, -1.0], [len(even), len(odd)])


def _changes_places(one: _Leaning) -> bool:
    """Whether what is asked of two attributes is the same the other way round."""
    first, second = one.sides
    if one.signs is None or first.kind != second.kind:
        return False
    signs, nobody = one.signs[:, None], one.total[:, None]
    pairs = [
        (one.C.T @ one.C, (one.C * one.signs).T @ (one.C * one.signs)),
        (one.C.T @ first.C, signs * (one.C.T @ second.C)),
        (first.C.T @ first.C, second.C.T @ second.C),
        (one.C.T @ nobody, signs * (one.C.T @ nobody)),
    ]
    size = float(np.square(one.C).sum() + np.square(first.C).sum() + np.square(one.total).sum())
    return all(np.abs(left - right).max(initial=0.0) <= _SAME * size for left, right in pairs)


def _fewer(matrices: list[np.ndarray]) -> list[np.ndarray]:
    """Matrices of as many rows as they have columns together, with the same products of any two."""
    whole = np.concatenate(matrices, axis=1)
    if len(whole) > whole.shape[1]:
        whole = np.linalg.qr(whole, mode="r")
    return np.split(whole, np.cumsum([m.shape[1] for m in matrices])[:-1], axis=1)


def _root(whole: np.ndarray) -> np.ndarray:
    """A matrix R with ``R'R`` the given one, but for rounding."""
    values, vectors = sl.eigh(whole, check_finite=False)
    return (vectors * np.sqrt(np.maximum(values, 0.0))).T
