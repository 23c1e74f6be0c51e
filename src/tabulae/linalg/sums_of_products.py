"""Maximising a sum of products over one choice per attribute.

    max over (q_1, ..., q_d) of  sum_k g_k  prod_i  V_i[q_i, k]

Where every ``V`` is at least 0 the sum rises with a column whose ``g`` is positive and falls with one whose
``g`` is negative, so a choice that is no better in any column than another can be dropped, and so can partial
choices. What is left is small for the sums met in practice; where it is not, choices are grouped, each group
stands for the best of its columns, and the result is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from .arrays import INT64_LIMIT, joint_classes, representatives

Number = int | float
Evaluate = Callable[[np.ndarray], "int | None"]

_NUMBERS = 2**24  # numbers that partial choices may hold
_SLOW_NUMBERS = 2**20  # the same for Python integers
_COMPARISONS = 2**26  # comparisons that one pruning may take
_EVALUATIONS = 64  # choices that are evaluated exactly where sums are only bounds
_MIDPOINTS = 1024  # choices up to which all pairs are looked at
_PRUNABLE = 2**23  # numbers up to which partial choices are compared with each other
CORNERS = 2**18  # corners of all attributes together that are summed


@dataclass(frozen=True)
class Choices:
    """The choices for one attribute, or partial choices for several.

    ``values`` is ``(choices, columns)``. ``attained`` marks choices that exist, rather than only bound some
    that do. ``cells`` names the pair of cells chosen in each attribute, ``(choices, 2 x attributes)``.
    """

    values: np.ndarray
    attained: np.ndarray
    cells: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, kept: np.ndarray) -> Choices:
        return Choices(self.values[kept], self.attained[kept], self.cells[kept])


@dataclass(frozen=True)
class Maximum:
    """An upper bound of the largest sum, and whether it is attained."""

    value: Number
    is_exact: bool


def maximise(
    choices: Sequence[Choices], gains: np.ndarray, evaluate: Evaluate | None = None
) -> Maximum | None:
    """The largest sum, or an upper bound of it; ``None`` when values of both signs leave too many choices.

    Args:
        choices: for every attribute, values ``(K_i, M)``: int64, object (Python integers) or float64.
        gains: the coefficients ``g``, ``(M,)``.
        evaluate: when the sum only bounds what is wanted, the exact value of a choice of cells (or ``None``).
    """
    order = sorted(range(len(choices)), key=lambda i: len(choices[i]))
    members = [choices[i] for i in order]
    scale = _Scale.of(members, gains)
    slack = scale.rounding_error(len(gains) + 8 * len(members))
    found = _climb(members, gains, evaluate, np.argsort(order))
    best = scale.share_of(found) if found is not None else -np.inf
    partial = Choices(
        np.ones((1, len(gains)), members[0].values.dtype), np.ones(1, bool), np.zeros((1, 0), np.int64)
    )
    for step, member in enumerate(members[:-1]):
        rest = members[step + 1 :]
        partial = _reduced(partial, len(member), gains, [member, *rest])
        member = member if partial is None else _reduced(member, len(partial), gains, [partial, *rest])
        if partial is None or member is None:
            return None
        partial = _combined(partial, member)
        partial = partial[_promising(partial, scale, step + 1, best)]
        partial = partial[undominated(partial, gains, rest)]
    return _finish(partial, members[-1], gains, evaluate, found, slack, np.argsort(order))


def undominated(choices: Choices, gains: np.ndarray, rest: Sequence[Choices]) -> np.ndarray:
    """Indices of the choices that no other is at least as good as in every column.

    Pruning stops after a bounded number of comparisons; what then remains is kept.
    """
    if choices.values.size > _PRUNABLE:
        return np.arange(len(choices))
    signed = _signed(rest, choices.values.shape[1])
    columns = [choices.attained.astype(np.int64)]
    for k, values in enumerate(choices.values.T):
        if (values == values[0]).all():
            continue
        ranks = np.unique(values, return_inverse=True)[1].reshape(-1)
        if gains[k] > 0 or signed[k]:
            columns.append(ranks)
        if gains[k] < 0 or signed[k]:
            columns.append(-ranks)
    first = representatives(joint_classes(columns))
    table = np.stack(columns, axis=1)
    table = table[:, np.unique(table[first], axis=1, return_index=True)[1]]
    left = first[np.argsort(-table[first].sum(axis=1), kind="stable")]
    kept: list[int] = []
    budget = _COMPARISONS
    while len(left) and budget > 0:
        head = left[0]
        kept.append(int(head))
        budget -= len(left) * table.shape[1]
        left = left[(table[left] > table[head]).any(axis=1)]
    return np.concatenate([np.array(kept, dtype=np.int64), left])


def extreme(choices: Choices) -> np.ndarray:
    """Indices of the choices that are not half way between two others.

    The sum is linear in each attribute's row of values, so its maximum is attained at corners of the convex
    hull of the rows, whatever their signs; a row half way between two others is no corner. That thins out
    rows which move evenly with the cell, as those of prefix sums do.
    """
    rows = choices.values
    if (
        len(rows) > _MIDPOINTS
        or rows.dtype != np.int64
        or np.abs(rows).max() >= 2**61
        or not choices.attained.all()
    ):
        return np.arange(len(rows))
    rows, first = np.unique(rows, axis=0, return_index=True)
    position = {row.tobytes(): index for index, row in enumerate(rows)}
    kept = [
        index
        for index, row in enumerate(rows)
        if not any(position.get(mirror.tobytes(), index) != index for mirror in 2 * row - rows)
    ]
    return first[np.array(kept, dtype=np.int64)]


def _signed(members: Sequence[Choices], columns: int) -> np.ndarray:
    """The columns in which the product over ``members`` may be negative."""
    signed = np.zeros(columns, dtype=bool)
    for member in members:
        signed |= (member.values < 0).any(axis=0)
    return signed


def _combined(one: Choices, other: Choices) -> Choices:
    values = (one.values[:, None] * other.values).reshape(-1, one.values.shape[1])
    attained = (one.attained[:, None] & other.attained).reshape(-1)
    left, right = np.repeat(np.arange(len(one)), len(other)), np.tile(np.arange(len(other)), len(one))
    return Choices(values, attained, np.concatenate([one.cells[left], other.cells[right]], axis=1))


@dataclass(frozen=True)
class _Scale:
    """The members in floats between -1 and 1, and the gains as shares of the largest product.

    Python integers may exceed every float; divided by the largest of their column they do not.
    """

    largest: list[np.ndarray]
    tables: list[np.ndarray]
    shares: np.ndarray
    top: Number

    @classmethod
    def of(cls, members: Sequence[Choices], gains: np.ndarray) -> _Scale:
        kind = np.float64 if gains.dtype == np.float64 else object
        largest = [np.abs(member.values).max(axis=0).astype(kind) for member in members]
        largest = [np.where(size > 0, size, 1) for size in largest]
        tables = [_divided(member.values, size) for member, size in zip(members, largest, strict=True)]
        totals = gains.astype(kind)
        for size in largest:
            totals = totals * size
        top = np.abs(totals).max() or 1
        return cls(largest, tables, _divided(totals, top), top)

    def share_of(self, value: Number) -> float:
        """A sum as a share of the largest product."""
        return (float(value) if isinstance(self.top, float) else int(value)) / self.top

    def rounding_error(self, terms: int) -> float:
        """A bound on the error of a sum in floating point; 0 for integers."""
        if not isinstance(self.top, float):
            return 0.0
        return float(np.abs(self.shares).sum()) * self.top * (terms + 64) * 2.0**-50


def _divided(values: np.ndarray, by: np.ndarray | Number) -> np.ndarray:
    return np.asarray(values / by, dtype=np.float64)


def _promising(partial: Choices, scale: _Scale, done: int, best: float) -> np.ndarray:
    """Indices of the partial choices whose best completion might reach ``best``."""
    most, least = np.ones(len(scale.shares)), np.ones(len(scale.shares))
    for table in scale.tables[done:]:
        ends = [most * table.max(axis=0), most * table.min(axis=0)]
        ends += [least * table.max(axis=0), least * table.min(axis=0)]
        most, least = np.max(ends, axis=0), np.min(ends, axis=0)
    largest = np.ones(len(scale.shares), dtype=scale.largest[0].dtype)
    for size in scale.largest[:done]:
        largest = largest * size
    values = _divided(partial.values, largest) * scale.shares
    reach = np.maximum(values * most, values * least).sum(axis=1)
    return np.flatnonzero(reach + 1e-9 >= best)  # shares are at most 1 each, their error far below


def _reduced(choices: Choices, partners: int, gains: np.ndarray, others: Sequence[Choices]) -> Choices | None:
    """The choices, grouped if their combinations with the partners would be too many."""
    limit = _SLOW_NUMBERS if choices.values.dtype == object else _NUMBERS
    most = max(int((limit / len(gains)) ** 0.5), limit // len(gains) // partners, 2)
    if len(choices) <= most:
        return choices
    if _signed([choices, *others], len(gains)).any():
        return None
    ranks = [np.unique(values, return_inverse=True)[1].reshape(-1) for values in choices.values.T]
    rank = np.lexsort(ranks[::-1])
    starts = np.unique(np.linspace(0, len(choices), most // 2, endpoint=False).astype(np.int64))
    ordered = choices.values[rank]
    highest, lowest = (
        np.maximum.reduceat(ordered, starts, axis=0),
        np.minimum.reduceat(ordered, starts, axis=0),
    )
    bounds = np.where(gains > 0, highest, lowest)
    nowhere = np.full((len(starts), choices.cells.shape[1]), -1)
    return Choices(bounds, np.zeros(len(starts), dtype=bool), nowhere)


def _climb(
    members: Sequence[Choices], gains: np.ndarray, evaluate: Evaluate | None, back: np.ndarray
) -> Number | None:
    """A good sum that is attained: improve one attribute at a time, from the choice that looks best alone."""
    usable = [
        np.flatnonzero(m.attained) if evaluate is None else np.flatnonzero(m.cells[:, 0] >= 0)
        for m in members
    ]
    if any(len(u) == 0 for u in usable):
        return None
    tables = [member.values[u] for member, u in zip(members, usable, strict=True)]
    signs = np.where(gains > 0, 1, -1)
    at = [int(np.argmax((table * signs).sum(axis=1))) for table in tables]
    value: Number | None = None
    for _ in range(10):
        for i, table in enumerate(tables):
            product = gains
            for other, row in zip(tables, at, strict=True):
                if other is not table:
                    product = product * other[row]
            sums = table @ product
            at[i] = int(np.argmax(sums))
        if value is not None and sums[at[-1]] <= value:
            break
        value = sums[at[-1]]
    if evaluate is None:
        return value
    cells = np.stack([members[i].cells[usable[i][at[i]]] for i in back])
    return evaluate(cells)


def _finish(
    partial: Choices,
    last: Choices,
    gains: np.ndarray,
    evaluate: Evaluate | None,
    found: Number | None,
    slack: float,
    back: np.ndarray,
) -> Maximum:
    """Compare the complete choices, formed some at a time."""
    weighted = partial.values * gains
    step = max(1, _NUMBERS // max(1, len(last)))
    bounds: list[Number] = []
    tops: list[tuple[Number, np.ndarray]] = []
    for start in range(0, len(partial), step):
        sums = weighted[start : start + step] @ last.values.T
        bounds.append(sums.max())
        attained = partial.attained[start : start + step, None] & last.attained
        if evaluate is None and attained.any():
            reached = sums[attained].max()
            found = reached if found is None else max(found, reached)
        if evaluate is not None:
            chosen = np.argsort(-sums.reshape(-1), kind="stable")[: _EVALUATIONS + 1]
            for flat in chosen:
                i, j = divmod(int(flat), len(last))
                cells = np.concatenate([partial.cells[start + i], last.cells[j]]).reshape(-1, 2)[back]
                tops.append((sums[i, j], cells))
    best_bound = max(bounds)
    if gains.dtype == np.float64:
        return Maximum(float(best_bound) + slack, is_exact=False)
    if evaluate is not None:
        return _evaluated(tops, evaluate, found)
    return Maximum(int(best_bound), is_exact=found is not None and int(found) == int(best_bound))


def _evaluated(tops: list[tuple[Number, np.ndarray]], evaluate: Evaluate, found: Number | None) -> Maximum:
    """The largest bound, and whether a choice reaches it.

    Choices that others dominate were dropped for their bounds: their exact values may be larger than those of the
    choices that are left, so that nothing below the largest bound is known to be the largest sum.
    """
    tops.sort(key=lambda top: -top[0])
    bound = max(int(tops[0][0]), int(found) if found is not None else 0)
    if found is not None and int(found) == bound:
        return Maximum(bound, is_exact=True)
    for value, cells in tops[:_EVALUATIONS]:
        if value < bound:
            break
        if (cells >= 0).all() and evaluate(cells) == bound:
            return Maximum(bound, is_exact=True)
    return Maximum(bound, is_exact=False)


def count_corners(shared: Sequence[np.ndarray]) -> int:
    """How many corners :func:`corners` makes: two for every factor whose inner products differ."""
    return math.prod(1 + int(part.min() < part.max()) for part in shared)


def corners(norms: np.ndarray, shared: Sequence[np.ndarray]) -> Choices:
    """The corners ``[a, b, c]`` of one attribute, from the norms (cells, factors) and inner products of its columns."""
    largest = norms.max(axis=0)
    # Python's integers: numpy's own would wrap around among those of an object array
    ends = [dict.fromkeys((int(part.min()), int(part.max()))) for part in shared]
    rows = [np.concatenate([largest, largest, np.array(c, dtype=norms.dtype)]) for c in product(*ends)]
    nowhere = np.full((len(rows), 2), -1)
    return Choices(np.stack(rows), np.zeros(len(rows), dtype=bool), nowhere)


def largest_corner(
    choices: Sequence[Choices], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> Maximum:
    """The largest sum over all choices for all attributes, or a bound of it where they are more than ``CORNERS``.

        max over pairs   sum_b w_b (prod_i a_bi + prod_i b_bi - 2 prod_i c_bi)

    with ``a = ||u||^2``, ``b = ||v||^2`` and ``c = <u, v>`` for a pair of columns u, v of each factor. Where the
    inner products change sign no partial choice can be dropped, but the sum is linear in each attribute's numbers,
    so its largest value over a box of them is attained at a corner: the largest norms, and for each factor the
    least or the largest inner product. All corners of all attributes are summed, one attribute after the other. The
    result is exact where each corner belongs to some pair, as for identities, totals and centring matrices, and an
    upper bound otherwise. Where there are too many attributes to sum all corners, each product takes its own
    largest distance: an upper bound again.

    choices: for each attribute ``[a, b, c]`` by distinct factor, integers; positions: for each attribute the distinct
    factor of each product; weights: of the products.
    """
    parts = [[np.split(member.values, 3, axis=1)[part] for member in choices] for part in range(3)]
    if math.prod(len(c) for c in choices) > CORNERS:
        return Maximum(_one_by_one(parts, positions, weights), is_exact=False)
    attained = np.ones(1, dtype=bool)
    for member in choices:
        attained = (attained[:, None] & member.attained).reshape(-1)
    one, other, shared = (_summed(values, positions, weights) for values in parts)
    total = one + other - 2 * shared
    best = total.max()
    return Maximum(int(best), is_exact=bool((total[attained] == best).any()))


def _one_by_one(
    parts: Sequence[Sequence[np.ndarray]], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> int:
    """The sum of every product's own largest distance: norms multiplied, less the least product of inner products."""
    norms, least = np.ones(len(weights), dtype=object), np.ones(len(weights), dtype=object)
    largest = least
    for one, shared, position in zip(parts[0], parts[2], positions, strict=True):
        norms = norms * one.max(axis=0).astype(object)[position]
        low, high = (end.astype(object)[position] for end in (shared.min(axis=0), shared.max(axis=0)))
        ends = np.stack([least * low, least * high, largest * low, largest * high])
        least, largest = ends.min(axis=0), ends.max(axis=0)
    return int((np.array(weights, dtype=object) * (2 * norms - 2 * least)).sum())


def _summed(
    values: Sequence[np.ndarray], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> np.ndarray:
    """``sum_k w_k prod_i values_i[choice_i, position_ik]`` for every combination of choices, in C order.

    Attributes are folded in from the last; products that agree on all earlier ones are added up first.
    """
    bound = sum(abs(w) for w in weights) * math.prod(max(1, int(np.abs(v).max())) for v in values)
    kind = np.int64 if 4 * bound < INT64_LIMIT else object
    table = np.stack(positions, axis=1)
    held: dict[tuple[int, ...], np.ndarray] = {}
    for row, weight in zip(table.tolist(), weights, strict=True):
        held[tuple(row)] = held.get(tuple(row), np.zeros(1, dtype=kind)) + np.array([weight], dtype=kind)
    for member in reversed(values):
        folded: dict[tuple[int, ...], np.ndarray] = {}
        columns = member.astype(kind)
        for key, sums in held.items():
            part = np.multiply.outer(columns[:, key[-1]], sums).reshape(-1)
            earlier = folded.get(key[:-1])
            folded[key[:-1]] = part if earlier is None else earlier + part
        held = folded
    return held[()]
