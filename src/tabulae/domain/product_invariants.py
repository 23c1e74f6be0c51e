"""Exact tables whose row spaces are nested attribute by attribute: projectors as short sums of products.

With a chain of partitions for each attribute let ``P_l`` be the projector onto the vectors that are
constant on the classes at levels ``l = (l_1, ..., l_d)``, a product over attributes. All of them commute, so the
projector onto the joint row space R of tables at levels ``l_1, ..., l_T`` is, by inclusion and exclusion,

    Pi_R = sum_l mu_l P_l,

over the lowest common levels of any of the tables, with ``sum over l' >= l of mu_l' = 1`` for each of them. For margins
these are the margins over intersections. Nothing here forms a matrix over the cells.

A matrix whose columns fall into classes of equal ones, as many as its rank and none of zeros, has for row space the
vectors that are constant on its classes: a partition. Where the partitions that the tables have of each attribute
form a chain, from coarse to fine, their projectors commute, and everything about the row space of all tables
together is a sum over products of these projectors.

What the tables leave open is cut into boxes: disjoint products of differences of projectors. With chains of projectors
``P_i0 <= P_i1 <= ... <= I`` the space of all vectors is the sum of the orthogonal products of their differences, one
for each tuple of levels. Exact tables fix the tuples below any of their own; the others, cut into products of
intervals, are the null space:

    Pi_N = sum_boxes (x)_i (P_i,hi - P_i,lo-1).

All terms are projectors and orthogonal to each other: nothing cancels when they are squared or added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..errors import Unsupported
from ..linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Stack,
    Sum,
    Total,
    joint_classes,
    representatives,
)
from .domain import Domain
from .settling import Settling, summed
from .table import Table, Term

_PRIME = 2**31 - 1
_LARGEST_RANK = 2048  # order of a factor whose rank is worked out

Level = tuple[int, ...]


@dataclass(frozen=True)
class StackedTables:
    """Exact tables that together are one product: ``members`` stacked along ``axis`` (None: a single table).

    ``factors`` has one matrix an attribute, its row space that of the partition at ``level`` of the chain.
    """

    members: tuple[int, ...]
    axis: int | None
    factors: tuple[LinearOperator, ...]
    level: Level


@dataclass(frozen=True)
class Levels:
    """Chains of partitions, one an attribute from coarse to fine, and the exact tables by their place in them."""

    chains: tuple[tuple[Partition, ...], ...]
    groups: tuple[StackedTables, ...]


def find_levels(domain: Domain, tables: Sequence[Table]) -> Levels | None:
    """The chains that the tables' row spaces form; None where they form none.

    >>> from tabulae.linalg import Identity
    >>> levels = find_levels(Domain({"a": 3}), [Table("total", {}), Table("a", {"a": Identity(3)})])
    >>> [group.level for group in levels.groups]
    [(0,), (1,)]
    """
    terms = [term for table in tables for term in table.terms]
    if len(terms) > len(tables) or any(term.coefficient != 1 for term in terms):
        return None
    products = [term.over(domain) for term in terms]
    spaces: dict[LinearOperator, bytes | None] = {}
    for factor in {factor for product in products for factor in product}:
        spaces[factor] = _partition_of(factor)
    found = _stacked(products, spaces)
    if found is None:
        return None
    chains: list[tuple[Partition, ...]] = []
    places: list[dict[bytes, int]] = []
    for axis in range(len(domain.shape)):
        chain = _chain([keys[axis] for _, _, _, keys in found])
        if chain is None:
            return None
        chains.append(tuple(Partition(_classes_of_key(key)) for key in chain))
        places.append({key: place for place, key in enumerate(chain)})
    groups = tuple(
        StackedTables(members, axis, factors, tuple(at[key] for at, key in zip(places, keys, strict=True)))
        for members, axis, factors, keys in found
    )
    return Levels(tuple(chains), groups)


def _classes_of_key(key: bytes) -> np.ndarray:
    return np.frombuffer(key, dtype=np.int64)


def _partition_of(factor: LinearOperator) -> bytes | None:
    """Class labels of the partition whose functions are the factor's row space; None where there is none."""
    classes = factor.column_classes()
    count = int(classes.max()) + 1
    if not factor.integer or not np.all(np.asarray(factor.column_norms(1)) > 0):
        return None
    first = representatives(classes)
    if isinstance(factor, Partition) or count == 1:
        return classes.astype(np.int64).tobytes()
    if max(count, factor.shape[0] // 64) > _LARGEST_RANK or factor.shape[0] < count:
        return None
    small = factor.columns(first)
    independent = np.array_equal(small, np.eye(count)) or _full_rank(small)
    return classes.astype(np.int64).tobytes() if independent else None


def _full_rank(matrix: np.ndarray) -> bool:
    """Whether the columns are independent: proven by elimination modulo a prime, which never overstates the rank."""
    rows = np.unique(np.asarray(matrix) % _PRIME, axis=0).astype(np.int64)
    for column in range(rows.shape[1]):
        hits = np.flatnonzero(rows[column:, column]) + column
        if not hits.size:
            return False
        rows[[column, hits[0]]] = rows[[hits[0], column]]
        rows[column] = rows[column] * pow(int(rows[column, column]), -1, _PRIME) % _PRIME
        below = rows[column + 1 :]
        below -= below[:, column, None] * rows[column] % _PRIME
        below %= _PRIME
    return True


_Found = tuple[tuple[int, ...], int | None, tuple[LinearOperator, ...], tuple[bytes, ...]]


def _stacked(
    products: Sequence[tuple[LinearOperator, ...]], spaces: dict[LinearOperator, bytes | None]
) -> list[_Found] | None:
    """Tables one by one; one that is not a partition joins those that differ from it in that attribute only."""
    found: list[_Found] = []
    loose: dict[tuple[int, tuple[bytes, ...]], list[int]] = {}
    for index, factors in enumerate(products):
        keys = [spaces[factor] for factor in factors]
        open_axes = [axis for axis, key in enumerate(keys) if key is None]
        if len(open_axes) > 1:
            return None
        if not open_axes:
            found.append(((index,), None, factors, tuple(key for key in keys if key is not None)))
        else:
            others = tuple(key for key in keys if key is not None)
            loose.setdefault((open_axes[0], others), []).append(index)
    for (axis, others), together in loose.items():
        single = [(members, keys) for members, stacked, _, keys in found if stacked is None]
        alike = [i for members, keys in single for i in members if keys[:axis] + keys[axis + 1 :] == others]
        joined = tuple(sorted([*together, *alike]))
        if any(
            products[i][:axis] + products[i][axis + 1 :]
            != products[joined[0]][:axis] + products[joined[0]][axis + 1 :]
            for i in joined
        ):
            return None
        stack = Stack([products[i][axis] for i in joined])
        key = _partition_of(stack)
        if key is None:
            return None
        found = [entry for entry in found if entry[1] is not None or not set(entry[0]) & set(alike)]
        factors = products[joined[0]]
        found.append(
            (
                joined,
                axis,
                (*factors[:axis], stack, *factors[axis + 1 :]),
                (*others[:axis], key, *others[axis:]),
            )
        )
    return found


def _chain(keys: Sequence[bytes]) -> list[bytes] | None:
    """The distinct partitions from coarse to fine, None where two are not nested."""
    chain = sorted(set(keys), key=lambda key: int(_classes_of_key(key).max()))
    for coarse, fine in pairwise(chain):
        if not refines(_classes_of_key(fine), _classes_of_key(coarse)):
            return None
    return chain


def refines(fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Whether every class of ``fine`` lies in one class of ``coarse``.

    >>> refines(np.array([0, 1, 2]), np.array([0, 0, 1]))
    True
    """
    return int(joint_classes([fine, coarse]).max()) == len(np.unique(fine)) - 1


Interval = tuple[int, int]
"""First and last level of a chain; the level after the last partition is the whole space."""

_LISTED = 2**22  # entries of a difference that is written out
_MOST_BOXES = 4096


def boxes(maximal: Sequence[Level], depths: Sequence[int]) -> list[tuple[Interval, ...]]:
    """Tuples of levels that lie below none of ``maximal``, as disjoint boxes; ``depths`` are the chains' last levels.

    >>> boxes([(0, 0)], (1, 1))  # the total is exact, of two attributes with values
    [((0, 0), (1, 1)), ((1, 1), (0, 1))]
    """
    found = list(_outside(list(maximal), depths, 0))
    if len(found) > _MOST_BOXES:
        raise Unsupported(
            f"the exact tables cross in more than {_MOST_BOXES} ways: publish fewer of them exactly"
        )
    return found


def _outside(active: list[Level], depths: Sequence[int], axis: int) -> Iterator[tuple[Interval, ...]]:
    if not active:
        yield tuple((0, depth) for depth in depths[axis:])
        return
    if axis == len(depths):
        return
    ends = sorted({level[axis] for level in active})
    last: list[int] = [depths[axis]] if ends[-1] < depths[axis] else []
    edges: list[int] = [-1, *ends, *last]
    for start, end in pairwise(edges):
        inside = [level for level in active if level[axis] >= end]
        for rest in _outside(inside, depths, axis + 1):
            yield ((start + 1, end), *rest)


def between(
    factor: LinearOperator, chain: Sequence[Partition], interval: Interval
) -> tuple[LinearOperator, int] | None:
    """(divisor * F (P_hi - P_lo-1), divisor) with whole entries; None where that is zero."""
    low, high = interval
    top, upper = projected(factor, chain[high] if high < len(chain) else None)
    if low == 0:
        return top, upper
    bottom, lower = projected(factor, chain[low - 1])
    if top == bottom:
        return None
    if isinstance(top, Identity) and chain[low - 1].shape[0] == 1:
        return Centring(top.n), top.n
    divisor = math.lcm(upper, lower)
    above, below = divisor // upper, divisor // lower
    m, n = factor.shape
    if m * n > _LISTED:
        return Sum([(above, top), (-below, bottom)]), divisor
    matrix = above * np.asarray(top.dense()) - below * np.asarray(bottom.dense())
    return (Dense(matrix), divisor) if np.any(matrix) else None


def projected(factor: LinearOperator, partition: Partition | None) -> tuple[LinearOperator, int]:
    """(divisor * F P, divisor) with P the projector onto what is constant on classes (None: all); whole entries."""
    if partition is None:
        return factor, 1
    classes, n = partition.shape
    if classes == n or refines(partition.classes, factor.column_classes()):
        return factor, 1
    if not factor.integer:
        raise Unsupported(
            "a table of queries with fractional entries cannot be restricted exactly: scale it up"
        )
    if classes == 1:
        return MatrixProduct(Dense((factor @ np.ones(n, dtype=np.int64))[:, None]), Total(n)), n
    divisor = math.lcm(*(int(s) for s in partition.sizes))
    sums = np.asarray(factor @ partition.T.dense()) * (divisor // partition.sizes)
    return MatrixProduct(Dense(sums), partition), divisor


@dataclass(frozen=True)
class Restricted:
    """``operator = divisor * W Pi_N`` over the domain (m x N), None where every row of W is exact."""

    operator: LinearOperator | None
    divisor: int


_MOST_LEVELS = 4096
_PRIMES = (2**31 - 1, 2**31 - 19)  # a row of non-zeros that one divides, the other does not
_TRIALS = 4  # independent random products; a row of non-zeros passes all with probability below 2^-60
_DRAW = 2**20

Values = Sequence[np.ndarray]


class ProductInvariants:
    """Exact tables with nested row spaces over one domain; see the module for the formulas."""

    def __init__(self, domain: Domain, tables: Sequence[Table], levels: Levels) -> None:
        self.domain, self.tables, self._levels = domain, tuple(tables), levels
        self._sides: dict[tuple[LinearOperator, int, Interval], tuple[LinearOperator, int] | None] = {}
        self._zeros: dict[LinearOperator, np.ndarray] = {}
        self._settlings: dict[Table, Settling | None] = {}
        self._shapes = [tuple(f.shape[0] for f in table.terms[0].over(domain)) for table in tables]

    # the row space -------------------------------------------------------------------------------
    @cached_property
    def _maximal(self) -> tuple[Level, ...]:
        """The levels of the tables that no other table contains."""
        every = dict.fromkeys(group.level for group in self._levels.groups)
        return tuple(
            a
            for a in every
            if not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for b in every)
        )

    @cached_property
    def coefficients(self) -> dict[Level, int]:
        """mu by level: ``Pi_R = sum_l mu_l P_l``."""
        meets: set[Level] = set()
        for level in self._maximal:
            meets |= {level} | {tuple(map(min, level, other)) for other in meets}
            if len(meets) > _MOST_LEVELS:
                raise Unsupported(
                    f"the exact tables cross in more than {_MOST_LEVELS} ways: publish fewer of them exactly"
                )
        mu: dict[Level, int] = {}
        for level in sorted(meets, key=lambda place: (-sum(place), place)):
            above = sum(
                m for other, m in mu.items() if all(x <= y for x, y in zip(level, other, strict=True))
            )
            mu[level] = 1 - above
        return {level: m for level, m in mu.items() if m}

    def _partition(self, axis: int, level: Level) -> Partition:
        return self._levels.chains[axis][level[axis]]

    @cached_property
    def rank(self) -> int:
        """Dimension of the row space: how many independent counts are exact."""
        return sum(
            m * math.prod(self._partition(i, level).shape[0] for i in range(len(level)))
            for level, m in self.coefficients.items()
        )

    @cached_property
    def finest(self) -> tuple[Partition, ...]:
        return tuple(chain[-1] for chain in self._levels.chains)

    # what is left to measure ------------------------------------------------------------------------
    def restricted_table(self, table: Table) -> tuple[Table | None, int]:
        """(divisor * W Pi_N as signed products with whole coefficients, divisor); None where all rows are exact."""
        joined: dict[tuple[LinearOperator, ...], list[tuple[int, int]]] = {}
        for term in table.terms:
            factors = term.over(self.domain)
            for box in self._boxes:
                sides = self._within_box(factors, box)
                if sides is not None:
                    divisor = math.prod(d for _, d in sides)
                    joined.setdefault(tuple(f for f, _ in sides), []).append((term.coefficient, divisor))
        common = math.lcm(*(d for entries in joined.values() for _, d in entries))
        sums = {f: sum(c * (common // d) for c, d in entries) for f, entries in joined.items()}
        shared = math.gcd(common, *sums.values())
        terms = [Term(c // shared, self._mentioned(table, factors)) for factors, c in sums.items() if c]
        if not terms:
            return None, 1
        return Table.of_terms(table.name, terms, table.weight, table.labels), common // shared

    def _within_box(
        self, factors: Sequence[LinearOperator], box: Sequence[Interval]
    ) -> list[tuple[LinearOperator, int]] | None:
        """Each factor between the projectors of a box, None where one of them is zero."""
        found = []
        for axis, (factor, interval) in enumerate(zip(factors, box, strict=True)):
            key = (factor, axis, interval)
            if key not in self._sides:
                self._sides[key] = between(factor, self._levels.chains[axis], interval)
            side = self._sides[key]
            if side is None:
                return None
            found.append(side)
        return found

    @cached_property
    def _boxes(self) -> list[tuple[Interval, ...]]:
        """What the exact tables leave open."""
        last = [len(c) - 1 if c[-1].shape[0] == c[-1].shape[1] else len(c) for c in self._levels.chains]
        return boxes(self._maximal, last)

    def _mentioned(self, table: Table, factors: tuple[LinearOperator, ...]) -> dict[str, LinearOperator]:
        mentioned = set(table.attributes)
        return {name: f for name, f in zip(self.domain.names, factors, strict=True) if name in mentioned}

    def restricted(self, table: Table) -> Restricted:
        """``divisor * W Pi_N``, None as operator where every row is exact."""
        left, divisor = self.restricted_table(table)
        if left is None or bool(self.determined(table).all()):
            return Restricted(None, 1)
        return Restricted(left.operator(self.domain), divisor)

    def determined(self, table: Table) -> np.ndarray:
        """Which rows of W lie in the row space: those where W Pi_N is zero, (m,).

        The parts of one product are orthogonal to each other: a row is zero where all of them are, and a part where
        one of its factors is. Rows of sums of products are compared with zero on random products of whole numbers,
        modulo two primes: a row that is not zero passes with probability below 2^-60; one that is zero always does.
        """
        left, _ = self.restricted_table(table)
        exact = np.ones(table.rows(self.domain), dtype=bool)
        if left is None:
            return exact
        if len(table.terms) == 1:
            for part in left.terms:
                zero = np.zeros(1, dtype=bool)
                for factor in part.over(self.domain):
                    zero = np.logical_or.outer(zero, self._zero_rows(factor)).ravel()
                exact &= zero
                if not exact.any():
                    break
            return exact
        draw = np.random.default_rng(20)
        for _ in range(_TRIALS):
            vectors = [draw.integers(1, _DRAW, n) for n in self.domain.shape]
            for prime in _PRIMES:
                exact &= _modular(left, self.domain, vectors, prime) == 0
        return exact

    def _zero_rows(self, factor: LinearOperator) -> np.ndarray:
        if factor not in self._zeros:
            self._zeros[factor] = np.asarray(factor.T.column_norms(1)) == 0
        return self._zeros[factor]

    # the exact part ------------------------------------------------------------------------------
    def known(self, table: Table, values: Values) -> np.ndarray:
        """``W C^+ c = W Pi_R x`` from the exact values alone, (m,) floats."""
        sums = self._sums(values)
        total = np.zeros(table.rows(self.domain))
        for term in table.terms:
            factors = term.over(self.domain)
            for level, mu in self.coefficients.items():
                means = [self._means(f, self._partition(i, level)) for i, f in enumerate(factors)]
                part = Kron(means) @ self._at(level, sums).astype(float).ravel()
                total += mu * term.coefficient * part
        return total

    @staticmethod
    def _means(factor: LinearOperator, partition: Partition) -> LinearOperator:
        """F M' diag(1/size), (m x classes): a factor of vectors that are constant on the classes."""
        if partition.shape[0] == partition.shape[1]:
            return factor
        if refines(partition.classes, factor.column_classes()):
            return Dense(factor.columns(representatives(partition.classes)))
        return Dense(np.asarray(factor @ partition.T.dense(), dtype=float) / partition.sizes)

    def _sums(self, values: Values) -> dict[Level, np.ndarray]:
        """The sums of cells by class that each group of tables states, at its level."""
        return {group.level: self._class_sums(group, values)[0] for group in self._levels.groups}

    def _class_sums(self, group: StackedTables, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """Class sums u with ``(x) G_i u = values``, and the values that u gives back (equal where consistent)."""
        arrays = [np.asarray(values[i], dtype=np.int64).reshape(self._shapes[i]) for i in group.members]
        stated = arrays[0] if group.axis is None else np.concatenate(arrays, axis=group.axis)
        sums = stated
        for axis, factor in enumerate(group.factors):
            small = _over_classes(factor, self._partition(axis, group.level))
            sums = _solved(small, sums, axis)
        back = sums
        for axis, factor in enumerate(group.factors):
            small = _over_classes(factor, self._partition(axis, group.level))
            back = np.moveaxis(np.tensordot(small, back, axes=(1, axis)), 0, axis)
        return sums, back - stated

    def _at(self, level: Level, sums: dict[Level, np.ndarray]) -> np.ndarray:
        """The class sums at a level, from a table that states finer ones."""
        source = next(s for s in sums if all(x <= y for x, y in zip(level, s, strict=True)))
        return self._coarsened(sums[source], source, level)

    def _coarsened(self, array: np.ndarray, source: Level, level: Level) -> np.ndarray:
        for axis, (fine, coarse) in enumerate(zip(source, level, strict=True)):
            if fine != coarse:
                chain = self._levels.chains[axis]
                labels = chain[coarse].classes[representatives(chain[fine].classes)]
                array = summed(array, labels, axis)
        return array

    def contradictions(self, values: Values) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows of the stacked tables whose values cannot stand with earlier rows, and those rows; () if all can."""
        starts = np.cumsum([0, *(math.prod(shape) for shape in self._shapes)])
        found: list[tuple[int, tuple[int, ...]]] = []
        sums: dict[Level, np.ndarray] = {}
        for group in self._levels.groups:
            mine, wrong = self._class_sums(group, values)
            rows = self._row_numbers(group, starts)
            if np.any(wrong):
                at = int(np.flatnonzero(wrong)[-1])
                line = tuple(int(r) for r in np.ravel(rows) if r != rows.flat[at])
                found.append((int(rows.flat[at]), line[:8]))
                continue
            for other in self._levels.groups:
                if other.level in sums:
                    found += self._disagreement(group, mine, other, sums[other.level], starts)
            sums[group.level] = mine
        return tuple(found)

    def _row_numbers(self, group: StackedTables, starts: np.ndarray) -> np.ndarray:
        arrays = [np.arange(starts[i], starts[i + 1]).reshape(self._shapes[i]) for i in group.members]
        return arrays[0] if group.axis is None else np.concatenate(arrays, axis=group.axis)

    def _disagreement(
        self,
        group: StackedTables,
        mine: np.ndarray,
        other: StackedTables,
        theirs: np.ndarray,
        starts: np.ndarray,
    ) -> list[tuple[int, tuple[int, ...]]]:
        meet = tuple(map(min, group.level, other.level))
        apart = self._coarsened(mine, group.level, meet) != self._coarsened(theirs, other.level, meet)
        if not apart.any():
            return []
        place = np.unravel_index(int(np.flatnonzero(apart)[0]), apart.shape)
        lines = []
        for side in (group, other):
            inside = np.ones((1,), dtype=bool)
            for axis, factor in enumerate(side.factors):
                first = self._levels.chains[axis][meet[axis]].classes == place[axis]
                hit = np.abs(np.asarray(factor.dense())) @ first.astype(np.int64) > 0
                inside = np.multiply.outer(inside, hit)
            lines.append(np.ravel(self._row_numbers(side, starts))[np.ravel(inside)])
        return [(int(lines[0][-1]), tuple(int(r) for r in lines[1][:8]))]

    # exactness --------------------------------------------------------------------------------------
    def nearest(self, cells: np.ndarray, values: Values) -> np.ndarray:
        """The vector of all cells nearest to ``cells`` that has the exact sums, (N,)."""
        sums = self._sums(values)
        shaped = np.asarray(cells, dtype=float).reshape(self.domain.shape)
        out = shaped.copy()
        for level, mu in self.coefficients.items():
            apart = self._at(level, sums).astype(float)
            here = shaped
            for axis in range(len(level)):
                partition = self._partition(axis, level)
                if partition.shape[0] < partition.shape[1]:
                    here = summed(here, partition.classes, axis)
            apart = apart - here
            for axis in range(len(level)):
                partition = self._partition(axis, level)
                if partition.shape[0] < partition.shape[1]:
                    sizes = partition.sizes.reshape([-1 if i == axis else 1 for i in range(len(level))])
                    apart = np.take(apart / sizes, partition.classes, axis=axis)
            out += mu * apart
        return out.ravel()

    def settle_cells(self, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """A vector of all cells on the grid ``2^-exponent``, moved so that every exact sum holds, (N,) int64."""
        every = zip(self.domain.names, self.domain.shape, strict=True)
        return self.settle(Table("cells", {name: Identity(n) for name, n in every}), scaled, values, exponent)

    def nests(self, table: Table) -> bool:
        return self._settling(table) is not None

    def _settling(self, table: Table) -> Settling | None:
        if table not in self._settlings:
            self._settlings[table] = Settling.of(self.domain, table, self._levels.chains)
        return self._settlings[table]

    def settle(self, table: Table, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """The table's counts on the grid ``2^-exponent``, moved so that every sum fixed by the exact tables holds.

        In corner coordinates (:mod:`.corner`) the fixed sums are coordinates: they are put in place, the others stay.
        Whole numbers throughout.

        Raises :class:`~tabulae.errors.Unsupported` where the table's groups do not nest with the exact ones.
        """
        settling = self._settling(table)
        if settling is None:
            raise Unsupported(
                f"table {table.name!r} groups its attributes in a way that does not nest with the exact tables"
            )
        sums = self._sums(values)
        return settling.settle(scaled, [(level, sums[level]) for level in self._maximal], exponent)


def _over_classes(factor: LinearOperator, partition: Partition) -> np.ndarray:
    """A factor that is constant on the classes as a small matrix of whole numbers, one column a class."""
    return np.asarray(factor.columns(representatives(partition.classes)))


def _solved(matrix: np.ndarray, values: np.ndarray, axis: int) -> np.ndarray:
    """Whole numbers u nearest to solving ``matrix u = values`` along an axis; exact where there is a solution."""
    m, k = matrix.shape
    if m == k and np.array_equal(matrix, np.eye(k)):
        return values
    moved = np.moveaxis(values, axis, 0)
    flat = moved.reshape(m, -1)
    if set(np.unique(matrix)) <= {0, 1} and np.all(matrix.sum(axis=0) == 1):
        out = flat[np.argmax(matrix, axis=0)]  # each class is counted by one row of its own
        if int(matrix.sum()) == k and not np.all(matrix.sum(axis=1) <= 1):
            raise AssertionError("classes of one row were not merged")
    else:
        out = np.rint(np.linalg.lstsq(matrix.astype(float), flat.astype(float), rcond=None)[0]).astype(
            np.int64
        )
    return np.moveaxis(out.reshape(k, *moved.shape[1:]), 0, axis)


def _modular(table: Table, domain: Domain, vectors: Sequence[np.ndarray], prime: int) -> np.ndarray:
    """``W (v_1 x ... x v_d)`` modulo a prime, (m,)."""
    total = np.zeros(table.rows(domain), dtype=np.int64)
    for term in table.terms:
        part = np.full(1, term.coefficient % prime, dtype=np.int64)
        for factor, vector in zip(term.over(domain), vectors, strict=True):
            entries = np.asarray(factor @ vector)
            if entries.dtype != np.int64:
                raise Unsupported("a table of queries with fractional entries has no exact rows: scale it up")
            part = np.multiply.outer(part, entries % prime).ravel() % prime
        total = (total + part) % prime
    return total
