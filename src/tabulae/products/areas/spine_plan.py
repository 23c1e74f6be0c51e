"""What is measured of every area of a spine, with which noise, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ...errors import InvalidArgument
from ...estimation.coverage import uniform_factor
from ...privacy import ZCDP, NoiseLaw, PureDP, check_neighbours, law_for, law_type
from .layout import CellLayout, Margin, Supports, united
from .spine.shares import distinct_rows
from .spine.spine import Spine, Tree

PIECE_VALUES = 4_000_000
"""About how many noisy answers are drawn, written and read at a time."""

LEAST_VARIANCE = 1e-4
"""Estimation takes no noise to be smaller: of integers it is next to none, and weights stay within 64-bit floats."""

_MOST_NOMINAL = 1.2
"""The nominal variance over the one of estimation, at most: more, and intervals would grow with the budget."""

_NUMBERS = 1 << 15  # of nodes whose information is added up together

_FULL = 1e-9  # of the largest eigenvalue: below it, queries leave something out


def estimation_variance(law: NoiseLaw) -> float:
    """The variance that an answer is weighted by: its law's, or a larger one where that is far below the nominal one.

    Discrete noise of a large budget is 0 nearly always, its variance e^-50, say, and no multiple of its standard
    deviation bounds it. Estimates from weights of a larger variance are unbiased too, and variances from them are too
    large, never too small. From about a variance of 1/4, and a scale of 2/3, on this is the law's own.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> estimation_variance(DiscreteGaussian("1/50")) > 1e6 * DiscreteGaussian("1/50").variance_of_law
    True
    >>> estimation_variance(DiscreteGaussian(1)) == DiscreteGaussian(1).variance_of_law
    True
    """
    return max(law.variance_of_law, law.nominal_variance / _MOST_NOMINAL, LEAST_VARIANCE)


def interval_factor(level: float, laws: Sequence[NoiseLaw]) -> float:
    """Half the width of an interval about ``sum_j z_j e_j``, in standard errors, whatever the z are.

    The standard errors are those of least squares, from :func:`estimation_variance`.

    Args:
        level: of the interval.
        laws: of the noise e, all of one kind.

    Raises:
        InvalidArgument: a level outside (0, 1), or no laws.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> round(interval_factor(0.95, [DiscreteGaussian(100)]), 2)
    2.01
    """
    return uniform_factor(laws, level, [estimation_variance(law) for law in laws])


def area_half_widths(variance: ArrayLike, laws: Sequence[NoiseLaw], level: float) -> np.ndarray:
    """Half the width of intervals about linear estimates: :func:`interval_factor` times their standard errors.

    It never grows where a budget does, whose shares stay: the factor times the smallest noise does not.

    Args:
        variance: of the estimates, any shape; 0 where a count is exact.
        laws: of the noise, all of one kind.
        level: of the intervals.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> area_half_widths(np.array([0.0, 100.0]), [DiscreteGaussian(100)], 0.95).round(1).tolist()
    [0.0, 20.1]
    """
    return interval_factor(level, laws) * np.sqrt(np.maximum(np.asarray(variance), 0.0))


@dataclass(frozen=True, eq=False)
class Piece:
    """Some nodes of one level, with one share and one support: their answers form one array for each query.

    Attributes:
        level: position of the level.
        share: position of the share in ``spine.shares.values``.
        pattern: position of the support in ``plan.patterns``.
        nodes: shape (m,): nodes of the tree, rising.
        rows: for each query, how many rows each node answers; 0 where the query is not asked.
    """

    level: int
    share: int
    pattern: int
    nodes: np.ndarray
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SpinePieceValues:
    """The noisy answers of one piece: for each query an int64 array (m, rows), None where it is not asked. Public."""

    piece: Piece
    values: tuple[np.ndarray | None, ...]


@dataclass(frozen=True, eq=False)
class SpinePlan:
    """Query groups for every level of a spine, and the budget that they share.

    Unit u has the share gamma_u of the budget, and query i of its level the share alpha_i of that. Each unit answers
    each query with independent noise; one record's change moves an answer by 1 in two places at most (under
    "replace"; one under "add-remove": then half of what follows), so that with k the rows of a unit

        zCDP      discrete Gaussian of variance k^2 / (rho gamma alpha)
        pure DP   discrete Laplace of scale 2 k / (epsilon gamma alpha)

    Cells that cannot occur in a unit, because of structural zeros or of its *support*, are not measured.

    Args:
        spine: with shares; over the leaves where something can be counted.
        queries: marginals without recodes of symmetric attributes.
        query_shares: for each level that is measured, one share a query, 0 or more, which add up to 1.
        budget: pure or zero-concentrated.
        support: which dense cells can occur in each leaf; at least one in each.
        neighbours: "add-remove" or "replace".
        rows_per_unit: the most records of one unit.

    Raises:
        InvalidArgument: shares that do not add up to 1, a level that is not measured with full rank, or parts that do
            not fit each other.

    Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System", section 2.

    Privacy:
        Measuring every unit and query with the noise above satisfies ``budget``. A record is counted in the units on
        one path from the root to a leaf, whose shares add up to exactly 1, and in each of them in one row of each
        query, whose shares add up to exactly 1 (Theorem 1, Theorem 3).
    """

    spine: Spine
    layout: CellLayout
    queries: tuple[Margin, ...]
    query_shares: Mapping[str, tuple[Fraction, ...]]
    budget: PureDP | ZCDP
    support: Supports
    neighbours: str = "replace"
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        if check_neighbours(self.neighbours) not in ("add-remove", "replace"):
            raise InvalidArgument(
                f'the noise of a spine is for neighbours of "add-remove" or "replace", not "{self.neighbours}"'
            )
        if not isinstance(self.budget, PureDP | ZCDP):
            raise InvalidArgument("the budget of a spine is pure or zero-concentrated: PureDP or ZCDP")
        if self.rows_per_unit < 1:
            raise InvalidArgument(f"rows_per_unit is {self.rows_per_unit}; it must be 1 or more")
        shares = self.spine.shares
        if shares is None:
            raise InvalidArgument("this spine has no shares: use with_shares or bypass first")
        if shares.path_sums(self.spine.hierarchy) != {Fraction(1)}:
            raise InvalidArgument("the shares on some path from the root to a leaf do not add up to 1")
        if self.support.shape != (self.spine.leaves, self.layout.size):
            raise InvalidArgument(
                f"support is of {self.support.shape[0]} leaves and {self.support.shape[1]} dense cells, and the spine "
                f"has {self.spine.leaves} leaves, the layout {self.layout.size} dense cells"
            )
        if not self.support.patterns.any(axis=1).all():
            raise InvalidArgument(
                "a leaf where nothing can be counted does not belong on the spine: leave it out"
            )
        for query in self.queries:
            if query.kept is None:
                raise InvalidArgument(
                    f"query {query.name!r} joins categories of an attribute that the layout holds symmetric: "
                    "make the attribute dense"
                )
        self._check_levels([name for i, name in enumerate(self.spine.levels) if (self.tree.level == i).any()])

    def _check_levels(self, levels: list[str]) -> None:
        """Shares of queries add up, and every level that is measured has full rank; all that have not are named."""
        faults: dict[str, list[str]] = {}
        for level in levels:
            missing = self._check_level(level)
            if missing:
                faults.setdefault(missing, []).append(repr(level))
        if faults:
            told = [
                f"no query tells apart {missing} at level {' or '.join(at)}" for missing, at in faults.items()
            ]
            raise InvalidArgument(
                f"a level is not measured with full rank: {', and '.join(told)}. Give a share to the query of all "
                "attributes there, or to others that determine every cell"
            )

    def _check_level(self, level: str) -> str | None:
        assert self.spine.shares is not None
        measured = self.spine.shares.measured[self.spine.levels.index(level)].any()
        given = self.query_shares.get(level)
        if given is None:
            if measured:
                raise InvalidArgument(
                    f"level {level!r} has a share of the budget and no queries: give it some"
                )
            return None
        if len(given) != len(self.queries) or any(share < 0 for share in given):
            raise InvalidArgument(f"level {level!r}: one share a query, 0 or more")
        if sum(given) != 1:
            raise InvalidArgument(
                f"level {level!r}: the shares of its queries add up to {sum(given)}, not to 1"
            )
        return self.undetermined(given) if measured else None

    def undetermined(self, given: tuple[Fraction, ...]) -> str | None:
        """What the queries of a level, with these shares, leave undetermined, in words; None where nothing."""
        if any(
            s and query.size >= self.layout.domain.size for s, query in zip(given, self.queries, strict=True)
        ):
            return None  # one of them tells all cells apart
        information = self.precision_of(np.array([float(s) for s in given]), np.arange(self.layout.size))
        lowest, scale = np.linalg.eigvalsh(information)[:, 0], float(np.abs(information).max())
        for kind in np.flatnonzero(lowest <= _FULL * scale):
            names = [name for a, name in enumerate(self.layout.symmetric) if kind >> a & 1]
            if not (kind or len(self.layout.dense)):
                return "anything at all"
            return " by ".join([*names, *(self.layout.dense if lowest.size and self.layout.size > 1 else ())])
        return None

    @property
    def tree(self) -> Tree:
        return self.spine.tree

    @property
    def loss(self) -> PureDP | ZCDP:
        """What measuring costs: the budget, exactly."""
        return self.budget

    def law(self, level: str, share: Fraction, query: int) -> NoiseLaw | None:
        """The noise of each answer of a query in a unit with this share; None where it is not asked."""
        alpha = self.query_shares[level][query] if level in self.query_shares else Fraction(0)
        if not share * alpha:
            return None
        units = 1 if self.neighbours == "add-remove" else 2
        rows = self.rows_per_unit ** law_type(self.budget).power
        return law_for(self.budget.scaled(share * alpha), None, Fraction(units * rows))

    @cached_property
    def depth(self) -> np.ndarray:
        """Shape (nodes,): steps from the root, which do not fall in the tree's order."""
        depth = np.zeros(self.tree.size, np.int64)
        for nodes in self.depths[1:]:
            depth[nodes.start :] += 1
        return depth

    @property
    def depths(self) -> tuple[slice, ...]:
        """The nodes of each depth, from the root's down."""
        return self.tree.depths

    @cached_property
    def children(self) -> np.ndarray:
        """Shape (nodes + 1,): node u's children are nodes children[u] to children[u + 1] - 1."""
        return np.searchsorted(self.tree.parent, np.arange(self.tree.size + 1)).astype(np.int64)

    @cached_property
    def node_support(self) -> Supports:
        """Which dense cells can occur in each node: the union of its children's."""
        rows, of = self.support.patterns, np.full(self.tree.size, -1)
        of[self.tree.leaf] = self.support.pattern
        for nodes in reversed(self.depths[1:]):
            parents, group = np.unique(self.tree.parent[nodes], return_inverse=True)
            made, which = distinct_rows(united(rows, of[nodes], group, parents.size))
            of[parents] = len(rows) + which
            rows = np.concatenate([rows, made])
        used, of = np.unique(of, return_inverse=True)
        return Supports.of(rows[used], of)

    @property
    def patterns(self) -> np.ndarray:
        """Shape (patterns, layout.size), boolean: the distinct supports of nodes."""
        return self.node_support.patterns

    @property
    def pattern(self) -> np.ndarray:
        """Shape (nodes,): the support of each node, the union of its children's."""
        return self.node_support.pattern

    @cached_property
    def dense_cells(self) -> tuple[np.ndarray, ...]:
        """For each pattern, positions of its dense cells."""
        return tuple(np.flatnonzero(pattern) for pattern in self.patterns)

    @cached_property
    def ranks(self) -> np.ndarray:
        """Shape (patterns, layout.size): the position of each dense cell among those of a pattern that has it."""
        return np.cumsum(self.patterns, axis=1) - 1

    @cached_property
    def offsets(self) -> np.ndarray:
        """Shape (nodes + 1,): where each node's cells begin in an array of all nodes' cells, (k, N) each."""
        widths = np.array([cells.size for cells in self.dense_cells], np.int64) * self.layout.algebra.cells
        return np.concatenate([[0], np.cumsum(widths[self.pattern])])

    @cached_property
    def share(self) -> np.ndarray:
        """Shape (nodes,): position of each node's share in ``spine.shares.values``; 0 of areas that are held alone."""
        assert self.spine.shares is not None
        found = np.zeros(self.tree.size, np.int64)
        for level, index in enumerate(self.spine.shares.index):
            here = np.flatnonzero(self.tree.level == level)
            found[here] = index[self.tree.unit[here]]
        return found

    @cached_property
    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct (level, share, pattern), shape (classes, 3), and shape (nodes,): the class of each node."""
        return distinct_rows(np.stack([self.tree.level, self.share, self.pattern], axis=1))

    def laws(self, kind: int) -> tuple[NoiseLaw | None, ...]:
        """The noise of each query in nodes of a class; None where it is not asked."""
        return self._laws[kind]

    @cached_property
    def _laws(self) -> tuple[tuple[NoiseLaw | None, ...], ...]:
        assert self.spine.shares is not None
        found: dict[tuple[int, int], tuple[NoiseLaw | None, ...]] = {}
        for level, share, _ in self.classes[0].tolist():
            if (level, share) in found:  # supports differ, and not the noise
                continue
            held = level >= len(self.spine.levels)
            value, name = self.spine.shares.values[share], "" if held else self.spine.levels[level]
            found[level, share] = tuple(
                None if held else self.law(name, value, i) for i in range(len(self.queries))
            )
        return tuple(found[level, share] for level, share, _ in self.classes[0].tolist())

    @cached_property
    def is_measured(self) -> np.ndarray:
        """Shape (nodes,): which nodes answer a query."""
        return np.array([any(self.laws(kind)) for kind in range(len(self.classes[0]))])[self.classes[1]]

    @cached_property
    def all_laws(self) -> tuple[NoiseLaw, ...]:
        """The distinct laws of the noise that is drawn, smallest parameter first."""
        found = {law for kind in range(len(self.classes[0])) for law in self.laws(kind) if law is not None}
        return tuple(sorted(found, key=lambda law: law.parameter))

    def precision(self, kind: int) -> np.ndarray:
        """P = sum Q'Q / variance for nodes of a class, shape (kinds, k, k) over its support; zero if not measured."""
        weights = [0.0 if law is None else 1 / estimation_variance(law) for law in self.laws(kind)]
        return self.precision_of(np.array(weights), self.dense_cells[self.classes[0][kind][2]])

    @cached_property
    def precisions(self) -> tuple[np.ndarray, ...]:
        return tuple(self.precision(kind) for kind in range(len(self.classes[0])))

    def precision_of(self, weights: np.ndarray, support: np.ndarray) -> np.ndarray:
        """sum_i weights_i Q_i'Q_i over dense cells of a support, shape (kinds, k, k)."""
        algebra = self.layout.algebra
        found = np.zeros((algebra.kinds, support.size, support.size))
        for weight, query in zip(weights, self.queries, strict=True):
            if weight:
                assert query.kept is not None
                found += weight * algebra.term(query.dense_gram(support), query.kept)
        return found

    def information(self, given: SpinePieceValues) -> np.ndarray:
        """m = sum Q'y / variance of a piece's nodes, in counts' natural coordinates: shape (m, k, N)."""
        piece = given.piece
        kind = int(self.classes[1][piece.nodes[0]])
        support = self.dense_cells[piece.pattern]
        found = np.zeros((piece.nodes.size, support.size, self.layout.algebra.cells))
        asked = [
            (query, estimation_variance(law), values.reshape(piece.nodes.size, -1, query.inner))
            for query, law, values in zip(self.queries, self.laws(kind), given.values, strict=True)
            if law is not None and values is not None
        ]
        step = max(1, _NUMBERS // found[0].size)  # so many that what is added to stays near the processor
        for first in range(0, piece.nodes.size, step):
            some = slice(first, first + step)
            for query, variance, values in asked:
                query.add_spread(values[some] / variance, support, into=found[some])
        return found

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All that is drawn, in the order in which it is drawn, stored and read: by level, class and node."""
        found: list[Piece] = []
        kinds, of = self.classes
        order = np.argsort(of, kind="stable")
        edges = np.searchsorted(of[order], np.arange(len(kinds) + 1))
        for kind, (level, share, pattern) in enumerate(kinds.tolist()):
            laws = self.laws(kind)
            if not any(laws):
                continue
            support = self.dense_cells[pattern]
            rows = tuple(
                0 if law is None else query.present(support).size * query.inner
                for law, query in zip(laws, self.queries, strict=True)
            )
            nodes = order[edges[kind] : edges[kind + 1]]
            step = max(1, PIECE_VALUES // sum(rows))
            found += [
                Piece(level, share, pattern, nodes[first : first + step], rows)
                for first in range(0, nodes.size, step)
            ]
        return tuple(found)


@dataclass(frozen=True, eq=False)
class SpineMeasurements:
    """The stream of a measured spine: to be read once, in the order of ``plan.pieces``.

    Attributes:
        plan: what was measured, and with which noise.
        exact: for each margin that is exact, shape (units of its level, margin.classes), int64.
        rehearsal: marks what no ledger paid for or an insecure source drew: a release refuses it.
        release_id: the charge.
    """

    plan: SpinePlan
    exact: tuple[np.ndarray, ...]
    rehearsal: bool
    release_id: str | None
    pieces: Iterator[SpinePieceValues] = field(repr=False)

    def share(self, values: SpinePieceValues) -> float:
        """Of all units, those of a piece."""
        return values.piece.nodes.size / self.plan.tree.size

    def __iter__(self) -> Iterator[SpinePieceValues]:
        return self.pieces
