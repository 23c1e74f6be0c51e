"""One record of a unit more or less, where units are counted with their records: what it moves, found a second way.

A unit is k seats, of its records or empty. Within a unit one seat changes from q to q', and what is said of the unit
from c to c', so that the k - 1 other seats move along; the norm of the change is convex in these, so that it is largest
where all of them are alike, u. Or a unit of one record comes or goes. Here such changes are written out, cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..demo.invented import RecordLayout
from ..domain import Domain
from ..linalg.arrays import widened
from ..privacy import RECORD_DERIVED
from ..strategy import Strategy
from .largest import Largest, block_weight, columns, norm_of, power_sums, slices, whole_weights

_ALL = 2**15  # changes up to which all of them are looked at
_POOL, _ROUNDS = 256, 16
_WORK = 2**25  # numbers that one round of a search may write out


def one_record_change(strategy: Strategy, neighbours: str, rng: np.random.Generator) -> Largest:
    """The largest ``sum_b ||A_b d||_p^p / scale_b`` of such changes d that was found, in parts of a unit.

    Its cells are those of the seats that stay, before and after, and of the one that changes, before and after; or
    those of a unit of one record, and of its empty seats.
    """
    seats = _Seats(strategy, neighbours)
    come, within = seats.coming(rng), seats.within(rng)
    best = max(come, within, key=lambda found: found.power)
    seen, whole = come.seen + within.seen, come.exhaustive and within.exhaustive
    return Largest(best.power, best.cells, seen, whole)


class _Seats:
    """The seats of one unit, and what their changes move."""

    def __init__(self, strategy: Strategy, neighbours: str) -> None:
        self.strategy, domain = strategy, strategy.domain
        assert domain.seats is not None
        self.k, self.seat = domain.seats.steps, domain.axis(domain.seats.name)
        self.shape = domain.shape
        self.of_units, self.moving = _axes(domain, neighbours)
        self.of_records = [i for i in range(len(self.shape)) if i not in (self.seat, *self.of_units)]
        p = norm_of(strategy)
        self.weights, parts = whole_weights([block_weight(block, p) for block in strategy.blocks])
        self.unit = 1 / (parts * Fraction(self.k) ** p)  # a unit's k seats are one whole

    def powers(self, cells: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Powers of changes, (n,), from their cells (n, parts, attributes), and how often each part is there.

        They are whole numbers, of which ``self.unit`` is one.
        """
        p, (n, parts, _) = norm_of(self.strategy), cells.shape
        total = np.zeros(n, dtype=object)
        for block, weight in zip(self.strategy.blocks, self.weights, strict=True):
            for part in slices(block.rows * parts, n):
                some = cells[part]
                written = columns(block.query, some.reshape(-1, len(self.shape)), self.shape)
                total[part] += (
                    power_sums(_moved(written.reshape(block.rows, len(some), parts), times), p) * weight
                )
        return total

    def empty(self, cells: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Cells of seats, of which some are empty: these are in the first category of what is of records."""
        cells = cells.copy()
        cells[..., self.seat] = np.where(where, 0, 1)
        for axis in self.of_records:
            cells[..., axis] = np.where(where, 0, cells[..., axis])
        return cells

    def coming(self, rng: np.random.Generator) -> Largest:
        """A unit of one record: one seat of it, and k - 1 empty ones."""
        count = int(np.prod([self.shape[i] for i in (*self.of_units, *self.of_records)]))
        some = self._cells(rng, count, min(count, _ALL), every=count <= _ALL)
        pairs = np.stack(
            [self.empty(some, np.zeros(len(some), bool)), self.empty(some, np.ones(len(some), bool))], 1
        )
        found = self.powers(pairs, np.array([1, self.k - 1]))
        return self._best(found, pairs, exhaustive=count <= _ALL)

    def within(self, rng: np.random.Generator) -> Largest:
        """One seat changes, and the unit: from random changes to better ones, some axes of their cells at a time."""
        size = max(8, min(_POOL, _WORK // (4 * max(1, self.strategy.rows))))
        best: Largest | None = None
        seen, pool = 0, self._changes(rng, size)
        for _ in range(_ROUNDS):
            laid = self._laid(pool)
            found = self.powers(laid, np.array([1 - self.k, self.k - 1, -1, 1]))
            seen += len(found)
            top = np.argsort(found)[::-1][: max(1, size // 16)]
            now = self._best(found, laid, exhaustive=False)
            best = now if best is None or now.power > best.power else best
            kept, drawn = pool[top[np.arange(size) % len(top)]], self._changes(rng, size)
            turned = rng.random(kept.shape) < 0.25
            turned[: len(top)] = False
            pool = np.where(turned, drawn, kept)
        assert best is not None
        return Largest(best.power, best.cells, seen, exhaustive=False)

    def _cells(self, rng: np.random.Generator, count: int, n: int, *, every: bool) -> np.ndarray:
        """Cells of seats that have a record."""
        if not every:
            return np.stack([rng.integers(each, size=n) for each in self.shape], axis=1)
        axes = [*self.of_units, *self.of_records]
        found = np.ones((count, len(self.shape)), dtype=np.int64)
        found[:, axes] = np.stack(np.unravel_index(np.arange(count), [self.shape[i] for i in axes]), axis=1)
        return found

    def _changes(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Cells (n, 5, attributes): of u with the unit before, of q, of q', and of the unit after; then three flags.

        The flags, in the first three axes, say whether u, q and q' are empty.
        """
        found = np.stack([rng.integers(each, size=(n, 5)) for each in self.shape], axis=2)
        found[:, 4, : min(3, len(self.shape))] = rng.integers(2, size=(n, min(3, len(self.shape))))
        return found

    def _best(self, found: np.ndarray, cells: np.ndarray, *, exhaustive: bool) -> Largest:
        at = int(np.argmax(found))
        told = tuple(tuple(int(code) for code in cell) for cell in cells[at])
        return Largest(found[at] * self.unit, told, len(found), exhaustive)

    def _laid(self, pool: np.ndarray) -> np.ndarray:
        """Cells (n, 4, attributes) of the seats that stay, before and after, and of the one that changes, likewise."""
        flags = np.zeros((len(pool), 3), dtype=bool)
        width = min(3, pool.shape[2])
        flags[:, :width] = pool[:, 4, :width] % 2 == 1
        none = flags[:, 1] & flags[:, 2]
        flags[none, 2] = False  # a record comes, goes, or makes way for another
        flags[~flags[:, 1] & ~flags[:, 2], 0] = False  # where one makes way for another, no seat is empty
        before, after = pool[:, 0], pool[:, 0].copy()
        after[:, self.moving] = pool[:, 3][:, self.moving]
        found = np.stack([pool[:, 0], pool[:, 0], pool[:, 1], pool[:, 2]], axis=1)
        for at, own in enumerate((before, after, before, after)):
            found[:, at, self.of_units] = own[:, self.of_units]
        return self.empty(found, flags[:, [0, 0, 1, 2]])


def _axes(domain: Domain, neighbours: str) -> tuple[list[int], list[int]]:
    """The axes of what is said of a unit, and of what one record may change of that."""
    of_units = [i for i, each in enumerate(domain.attributes) if each.of_unit]
    derived = neighbours == RECORD_DERIVED
    return of_units, [i for i in of_units if domain.attributes[i].from_records or not derived]


def _moved(written: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Sums over parts of what stands in the last axis, each as often as it is there: exact."""
    return widened(written, int(np.abs(written).max(initial=0)) * int(np.abs(times).sum())) @ times


def one_record_pairs(
    layout: RecordLayout, worst: Largest, neighbours: str, rows: int, rng: np.random.Generator, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Records of one unit, before and after one of them goes; there may be none after.

    Among them those that move the answers most, where records can lie in such cells, and units of more records than are
    counted. Under "record-free" the unit's own columns change with it.
    """
    for before, after in _worst_pairs(layout, worst, rows):
        if len(before):
            yield before, after
    for most in (1, *rng.integers(2, rows + 4, size=count), rows + 1, rows + 3):
        group = layout.random_unit(rng, int(most))
        left = np.delete(group, int(rng.integers(most)), axis=0)
        if neighbours != RECORD_DERIVED and len(left):
            left[:, layout.alike] = layout.random(rng, 1)[:, layout.alike]
        yield group, left


def _worst_pairs(layout: RecordLayout, worst: Largest, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The unit of the largest change that was found, as records: with all that it may have, or alone."""
    picks = [layout.pick(cell) for cell in worst.cells]
    if any(pick is None for pick in picks):
        return
    told, seat = [pick for pick in picks if pick is not None], layout.seats
    assert seat is not None
    none = np.empty((0, len(layout.columns)), dtype=np.int64)
    if len(told) == 2:
        yield told[0][None], none
        return
    stay, left, one, other = told
    empty = [not cell[seat] for cell in worst.cells]
    some, kept = (none if empty[0] else np.tile(each, (rows - 1, 1)) for each in (stay, left))
    before = np.concatenate([some, none if empty[2] else one[None]])
    after = np.concatenate([kept, none if empty[3] else other[None]])
    if empty[2] == empty[3]:  # one makes way for the other, as the key says: both are there, and one goes
        both = np.concatenate([before, other[None]])
        both[:, layout.alike] = before[0, layout.alike]
        yield both, after
        first = np.concatenate([kept, one[None]])
        first[:, layout.alike] = after[0, layout.alike]
        yield both, first
        return
    yield (before, after) if len(before) > len(after) else (after, before)
