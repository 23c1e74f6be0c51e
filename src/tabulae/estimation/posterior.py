"""Posterior of whole tables over a tree of areas: draws of every cell of every leaf, given all that was measured.

Leaf b of group g (its parent) has N_b people; they are split by one attribute after another, in the order given:

    y_uq = (Q_q sum of the leaves below u) + e,    log p(e) = -e**2 / (2 sigma_uq**2) + const
    N_b ~ sum_z w_gz NB(mean m_z, shape 6),    m = 0 (nobody) and 1.5 * 1.7**i
    categories of a split | people in their prefix ~ Dirichlet-multinomial(spread_b * share_g)
    w_g, share_g ~ Dirichlet(kinship * the same of the parent of g), up to the root; a kinship for each level and split

The law of the noise is exact for discrete Gaussian noise of whole numbers: its normaliser does not depend on counts.
Under Laplace noise -|e| / scale takes its place: a mixture of normal laws, whose precisions are drawn with the counts.
Each move of the chain draws from an exact conditional law (:mod:`~tabulae.estimation.chain`), so that no step is
refused by chance. Weights, shares, spreads and kinships are drawn with the counts: how uncertain they are is in the
draws. All is made from measurements, which are public: it costs no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ..errors import InvalidArgument
from .chain import Fixed, LeafMoves, Prior, State, rename, sweep
from .chain_parameters import SHAPE, SPREADS, grow, inherit, kept, leaf_tables, mix, size_classes, spreads
from .divided import TreeLimits, divide, fill
from .intervals import CHAINS, LEAST_EFFECTIVE, Ends, combine, credible, effective

BURNT, KEPT_EVERY = 100, 5
"""Sweeps of each chain before the first draw, and between two draws."""

_TOLD_APART = 1 << 16  # sizes of leaves up to which their law is a mixture; beyond, it is flat
_WINDOW = 8  # standard deviations of a leaf's noise that one move can reach over
_FREE = 1 << 36
_FEW_CELLS = 64  # up to which all cells of a leaf are tried in a few sweeps; of more, those where somebody is
_SETTLED, _RENAMED = 16, 192
"""Moves of one person in a leaf and a sweep, and tries to give people another name."""


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Sums of cells that are exact at some ``nodes`` (nodes,); ``label`` (cells,) says which sum a cell is in."""

    label: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True, eq=False)
class MeasuredTree:
    """What is measured of a table over areas, and what is known of it.

    Args:
        parent: shape (nodes,): the parent of each node, which comes before it; -1 for the root, node 0.
        leaf: shape (leaves,): the node of each leaf.
        splits: shape (cells, splits): the category of each cell, attribute by attribute; no two cells are alike.
        queries: shape (queries, cells): the class of each cell in each query, from 0.
        answers: for each query, shape (nodes, classes): what was measured; anything where nothing was.
        precision: shape (nodes, queries): 1 / sigma**2, or 1 / scale**2 of Laplace noise; 0 where nothing was measured.
        allowed: shape (leaves, cells): which cells can occur.
        exact: sums that each table has as the start has them.
        part, least, most: shapes (cells,), (leaves, parts), (leaves, parts): bounds on sums of cells of each leaf.
        laplace: whether noise is of Laplace's law, with log p(e) = -|e| / scale + const.

    Raises:
        InvalidArgument: shapes that do not fit, or a parent after its child.
    """

    parent: np.ndarray
    leaf: np.ndarray
    splits: np.ndarray
    queries: np.ndarray
    answers: tuple[np.ndarray, ...]
    precision: np.ndarray
    allowed: np.ndarray
    exact: tuple[ExactSums, ...] = ()
    part: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    least: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    most: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    laplace: bool = False

    def __post_init__(self) -> None:
        nodes, cells, leaves = self.parent.size, len(self.splits), self.leaf.size
        fits = {
            "queries": self.queries.shape[1:] == (cells,),
            "answers": len(self.answers) == len(self.queries)
            and all(len(each) == nodes for each in self.answers),
            "precision": self.precision.shape == (nodes, len(self.queries)),
            "allowed": self.allowed.shape == (leaves, cells),
        }
        if wrong := [name for name, fit in fits.items() if not fit]:
            raise InvalidArgument(
                f"{' and '.join(wrong)} do not fit {nodes} nodes, {leaves} leaves, {cells} cells"
            )
        if self.parent[0] != -1 or (self.parent[1:] < 0).any() or (self.parent >= np.arange(nodes)).any():
            raise InvalidArgument(
                "each parent must come before its children: sort nodes by depth, the root first"
            )
        if not (self.precision >= 0).all() or not np.isfinite(self.precision).all():
            raise InvalidArgument("precisions must be finite, and 0 or more; write exact sums as ExactSums")

    @cached_property
    def columns(self) -> np.ndarray:
        """Shape (cells, splits + 1): for the total and each prefix of splits, the column that a cell is counted in."""
        found, first = [np.zeros(len(self.splits), np.int64)], 1
        for j in range(1, self.splits.shape[1] + 1):
            _, place = np.unique(self.splits[:, :j], axis=0, return_inverse=True)
            found.append(first + place.ravel())
            first += int(place.max()) + 1
        return np.stack(found, axis=1)

    @cached_property
    def sums(self) -> sparse.csr_array:
        """Shape (nodes, leaves): the leaves that each node adds up."""
        rows, columns, node = [], [], self.leaf.copy()
        at = np.arange(self.leaf.size)
        while at.size:
            rows.append(node)
            columns.append(at)
            node = self.parent[node]
            at, node = at[node >= 0], node[node >= 0]
        return ones_at(np.concatenate(rows), np.concatenate(columns), (self.parent.size, self.leaf.size))

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """For the internal nodes, the parent of each among them; and of each leaf, its own parent among them."""
        is_internal = np.zeros(self.parent.size, bool)
        is_internal[self.parent[1:]] = True
        is_internal[0] = True
        place = np.cumsum(is_internal) - 1
        internal = np.flatnonzero(is_internal)
        above = np.where(internal > 0, place[self.parent[internal]], -1)
        return above, place[np.maximum(self.parent[self.leaf], 0)]

    @cached_property
    def fixed(self) -> Fixed:
        """What the compiled moves read."""
        cells, leaves, nodes = len(self.splits), self.leaf.size, self.parent.size
        above, group = self.groups
        members = np.argsort(group, kind="stable")
        start = np.searchsorted(group[members], np.arange(above.size + 1))
        classes = np.array([each.shape[1] for each in self.answers])
        answer = np.ascontiguousarray((self.queries + (np.cumsum(classes) - classes)[:, None]).T, np.int64)
        path = self.columns
        prefix, depth = np.zeros(int(path.max()) + 1, np.int64), np.zeros(int(path.max()) + 1, np.int64)
        for j in range(1, path.shape[1]):
            prefix[path[:, j]], depth[path[:, j]] = path[:, j - 1], j
        held = np.stack([each.label for each in self.exact], axis=1) if self.exact else np.zeros((cells, 0))
        where = np.stack([each.nodes for each in self.exact], axis=1) if self.exact else np.zeros((nodes, 0))
        parts = self.part.size > 0
        partners = 2 if cells <= _FEW_CELLS else 1  # of many cells, exchanges take the most of a sweep
        told = (
            self.parent.astype(np.int64),
            self.leaf.astype(np.int64),
            group,
            members,
            start,
            path,
            answer,
            answer if self.laplace else np.tile(np.arange(len(self.queries)), (cells, 1)),
            self.allowed,
            held.astype(np.int64),
            where.astype(bool),
            self.part.astype(np.int64) if parts else np.zeros(cells, np.int64),
            self.least.astype(np.int64) if parts else np.zeros((leaves, 1), np.int64),
            self.most.astype(np.int64) if parts else np.full((leaves, 1), _FREE),
            above,
            self._levels(above),
            depth,
            prefix,
            *self._parts_of(prefix, depth),
            partners + np.floor(partners * self._doublings).astype(np.int64),
            np.floor(self._doublings).astype(np.int64),
        )
        # Compiled code is of one layout: another is compiled anew, which takes longer than most releases.
        return Fixed(*map(np.ascontiguousarray, told))

    @staticmethod
    def _levels(above: np.ndarray) -> np.ndarray:
        """``level`` of :class:`~.chain.Fixed`."""
        found = np.zeros(above.size, np.int64)
        for node, parent in enumerate(above[1:].tolist(), 1):  # parents come first
            found[node] = found[parent] + 1
        return found

    def _parts_of(self, prefix: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``first``, ``end`` and ``cell`` of :class:`~.chain.Fixed`: parts of a column stand beside each other."""
        every = np.arange(1, depth.size)
        first, end = np.zeros(depth.size, np.int64), np.zeros(depth.size, np.int64)
        first[prefix[1:][::-1]] = every[::-1]
        end[prefix[1:]] = every + 1
        cell = np.full(depth.size, -1)
        cell[self.columns[:, -1]] = np.arange(len(self.splits))
        return first, end, cell

    @cached_property
    def _doublings(self) -> np.ndarray:
        """How large each leaf was measured: 0 for nobody, and one more for about every doubling from 50 people on.

        Where more was measured, more moves are made, as more people take longer to mix; and spreads have a law of
        their own, as leaves of many people are composed in another way than leaves of few.
        """
        return np.log2(1 + self.measured / 50)

    @cached_property
    def measured(self) -> np.ndarray:
        """Shape (leaves,): about how many people were measured in each leaf itself, 0 or more."""
        size, weight = np.zeros(self.leaf.size), np.zeros(self.leaf.size)
        for query, answers in zip(range(len(self.queries)), self.answers, strict=True):
            share = self.precision[self.leaf, query] / answers.shape[1]
            size += share * answers[self.leaf].sum(axis=1)
            weight += share
        return np.maximum(np.divide(size, weight, out=np.zeros_like(size), where=weight > 0), 0)

    def state(self, counts: np.ndarray) -> State:
        """Where a chain is, at whole counts of shape (leaves, cells)."""
        fixed, inhabited = self.fixed, sparse.csr_array(counts)  # of many cells nearly all are of nobody
        answers = np.concatenate(self.answers, axis=1, dtype=np.int32)
        seen = sums_by_class(self.sums @ inhabited, fixed.answer, answers.shape[1])
        precision = np.asarray(self.precision, float)
        return State(
            sums_by_class(inhabited, fixed.path, fixed.depth.size),
            np.subtract(answers, seen, out=answers),
            sums_by_class(inhabited, fixed.part[:, None], fixed.least.shape[1]).astype(np.int64),
            np.take(precision, self.query, axis=1) if self.laplace else precision,
        )

    @property
    def query(self) -> np.ndarray:
        """Shape (answers,): the query of each."""
        return np.repeat(np.arange(len(self.queries)), [each.shape[1] for each in self.answers])


@dataclass(frozen=True, eq=False)
class Draws:
    """Whole tables drawn from the posterior: ``tables``, sparse (leaves, cells), of one chain after another."""

    tree: MeasuredTree
    tables: tuple[sparse.csr_array, ...]

    def sums(self, rows: sparse.csr_array, cells: sparse.csr_array) -> np.ndarray:
        """Shape (draws, areas, classes): sums of leaves (areas, leaves) and of cells (cells, classes), in each draw."""
        return np.stack([(rows @ each @ cells).toarray() for each in self.tables])

    def credible(self, sums: np.ndarray, level: float) -> Ends:
        """As :func:`~tabulae.estimation.intervals.credible` says."""
        return credible(sums, level)

    def effective(self, sums: np.ndarray) -> float:
        """As :func:`~tabulae.estimation.intervals.effective` says."""
        return effective(sums)

    def table(self) -> np.ndarray:
        """Shape (nodes, cells): whole, additive counts near to all draws, from the root down.

        Each cell of a parent is divided so that children stand at the same quantile of their draws. Then one person
        goes from one child to another, or two of two cells trade places, the parent's cells staying as they are, as
        long as that lowers

            sum over children of   3 E|total - T| + sum over all other columns of E|column - T|

        with columns the prefixes of the splits, cells among them, and E the mean over draws. Draws meet all limits, and
        what is between them need not: people are then exchanged between children, one or two at a time, until bounds
        and exact sums are met. Where a limit is still broken it is the draw nearest to all of it that is returned.
        """
        tree, fixed = self.tree, self.tree.fixed
        internal = np.unique(np.maximum(tree.parent, 0))
        above = [tree.sums[internal] @ each for each in self.tables]
        place = np.full(tree.parent.size, -1)
        place[internal] = np.arange(internal.size)
        leaf = np.full(tree.parent.size, -1)
        leaf[tree.leaf] = np.arange(tree.leaf.size)
        limits = _limits(tree, self.tables[0])
        found = np.zeros((tree.parent.size, len(tree.splits)), np.int64)
        found[0] = self._root(limits)
        starts = np.searchsorted(tree.parent, np.arange(tree.parent.size + 1)).tolist()
        for node in internal.tolist():
            children = np.arange(starts[node], starts[node + 1])
            if children.size and found[node].any():  # children of nobody have nobody
                cube = np.zeros((children.size, len(self.tables), len(tree.splits)), np.int64)
                for m, pair in enumerate(zip(self.tables, above, strict=True)):
                    for rows, drawn in zip((leaf[children], place[children]), pair, strict=True):
                        fill(cube[:, m], rows, drawn.indptr, drawn.indices, drawn.data)
                random = np.random.default_rng(node)
                found[children] = divide(found[node], cube, fixed.path, fixed.depth.size, random)
                if limits is not None:
                    found[children] = limits.within(children, found[children], cube.mean(axis=1))
        if limits is None or limits.are_met(found):
            return found
        whole = (tree.sums @ each.toarray() for each in self.tables)
        return min(whole, key=lambda sums: int(np.abs(sums - found).sum()))

    def _root(self, limits: TreeLimits | None) -> np.ndarray:
        """The root's cells: the median of its total, divided split by split, each part at the same quantile."""
        fixed, cells = self.tree.fixed, len(self.tree.splits)
        whole = np.stack([np.asarray(each.sum(axis=0)).ravel() for each in self.tables])
        ordered = np.sort(whole @ by_class(fixed.path, fixed.depth.size), axis=0)
        found = np.zeros(fixed.depth.size, np.int64)
        found[0] = ordered[(len(ordered) - 1) // 2, 0]
        for column in range(fixed.depth.size):
            (parts,) = np.nonzero((fixed.prefix == column) & (fixed.depth == fixed.depth[column] + 1))
            if parts.size:
                found[parts] = at_one_quantile(ordered[:, parts], int(found[column]))
        found = found[fixed.path[:, -1]][:cells]
        return found if limits is None else limits.within_root(found, whole.mean(axis=0))


def ones_at(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """A sparse matrix that adds up: 1 at each (row, column)."""
    return sparse.csr_array((np.ones(row.size, np.int64), (row, column)), shape=shape)


def by_class(label: np.ndarray, classes: int) -> sparse.csr_array:
    """Shape (cells, classes): ``counts @ by_class`` are sums of cells; ``label`` (cells, k) are the classes of each."""
    cells, each = label.shape
    return ones_at(np.repeat(np.arange(cells), each), label.ravel(), (cells, classes))


def sums_by_class(counts: sparse.csr_array, label: np.ndarray, classes: int) -> np.ndarray:
    """Shape (rows, classes), of 32 bits: sums of counts (rows, cells) by the classes of each cell."""
    return sparse.csr_array(counts @ by_class(label, classes), dtype=np.int32).toarray()


def _limits(tree: MeasuredTree, table: sparse.csr_array) -> TreeLimits | None:
    """The limits of a tree, exact sums as a table has them; None where there are none."""
    label, low, high = [], [], []
    if tree.part.size:
        most = np.minimum(tree.most, _FREE)  # sums of it stay within 64 bits
        label, low, high = [tree.part], [tree.sums @ tree.least], [tree.sums @ most]
    for each in tree.exact:
        sums = tree.sums @ (table @ np.eye(int(each.label.max()) + 1, dtype=np.int64)[each.label])
        marked = each.nodes.astype(bool)[:, None]
        label.append(each.label)
        low.append(np.where(marked, sums, 0))
        high.append(np.where(marked, sums, _FREE))
    if not label and tree.allowed.all():
        return None
    allowed = tree.sums @ tree.allowed.astype(np.int64) > 0
    return TreeLimits(allowed, tuple(label), tuple(low), tuple(high))


def at_one_quantile(ordered: np.ndarray, total: int) -> np.ndarray:
    """Whole parts that add up to a total, each at the same quantile of its sorted draws, shape (draws, parts).

    They minimise sum_c E|N_c - t_c|. What is between two draws goes to the first parts.
    """
    sums = ordered.sum(axis=1)
    at = int(np.searchsorted(sums, total, side="right")) - 1
    found = ordered[max(at, 0)].copy()
    if 0 <= at < len(ordered) - 1:
        room = ordered[at + 1] - ordered[at]
        found += np.clip(total - sums[at] - (np.cumsum(room) - room), 0, room)
    return found


def sample(
    tree: MeasuredTree,
    start: np.ndarray,
    *,
    draws: int,
    seed: int,
    burnt: int = BURNT,
    every: int = KEPT_EVERY,
) -> Draws:
    """Draws of all cells of all leaves, from ``CHAINS`` chains of ``burnt + every * draws / CHAINS`` sweeps.

    Args:
        start: shape (leaves, cells): whole counts that meet bounds and exact sums. All draws meet them then.
        draws: how many are kept; a multiple of ``CHAINS``.
        seed: 0 or more; the same seed gives the same draws.

    Raises:
        InvalidArgument: a start that is not whole, is negative, or breaks a limit.
    """
    if draws < CHAINS or draws % CHAINS:
        raise InvalidArgument(f"draws is {draws}; it must be a multiple of {CHAINS}")
    if start.shape != tree.allowed.shape or start.dtype.kind not in "iu" or (start < 0).any():
        raise InvalidArgument(f"the start must be whole counts, 0 or more, of shape {tree.allowed.shape}")
    state, fixed = tree.state(start), tree.fixed
    if start[~tree.allowed].any() or (state.parts < fixed.least).any() or (state.parts > fixed.most).any():
        raise InvalidArgument("the start breaks a bound, or counts somebody where nobody can be")
    seeds = np.random.SeedSequence(seed).spawn(CHAINS)
    states = [state, *(State(*map(np.copy, state)) for _ in seeds[1:])]
    with ThreadPoolExecutor(CHAINS) as threads:
        chains = threads.map(
            lambda one, at: list(_chain(tree, at, draws // CHAINS, np.random.default_rng(one), burnt, every)),
            seeds,
            states,
        )
        return Draws(tree, tuple(table for chain in chains for table in chain))


def _chain(
    tree: MeasuredTree, state: State, draws: int, random: np.random.Generator, burnt: int, every: int
) -> Iterator[sparse.csr_array]:
    fixed = tree.fixed
    chain = _Parameters(tree, state, random)
    room, moves, rate = _room(tree), _moves(fixed), np.sqrt(tree.precision)
    internal, columns = chain.prior.share.shape
    names = np.empty((internal, columns), np.int32), np.empty((2, internal)), np.empty(columns)
    for turn in range(1, burnt + draws * every + 1):
        chain.redraw(state)
        if tree.laplace:
            mix(state.precision, state.residual, rate, tree.query, random)
        sweep(fixed, state, chain.prior, moves, *room, random)
        if moves.renamed:
            rename(fixed, state, chain.prior, *names, moves.renamed, random)
        if turn > burnt and (turn - burnt) % every == 0:
            yield sparse.csr_array(kept(fixed, state), shape=fixed.allowed.shape)


def _moves(fixed: Fixed) -> LeafMoves:
    """Moves of a leaf in a sweep.

    Sums of many leaves mix by the moves of all: few leaves make more. Where sums are exact, one cell cannot move alone.
    Of many cells next to all are empty, and two that are drawn at random say nothing: people are drawn instead.
    """
    cells, leaves = fixed.allowed.shape[1], fixed.leaf.size
    held = bool(fixed.is_held.any())
    if cells > _FEW_CELLS:
        born = 0 if held else _SETTLED // 4
        return LeafMoves(born=born, changed=_SETTLED, moved=_SETTLED // 4, renamed=_RENAMED)
    repeats = max(1, round(24 * cells / leaves))
    single, within, across = (0, 8, 8) if held else (8, 8, 2)
    return LeafMoves(single * repeats, within * repeats, across * repeats)


def _room(tree: MeasuredTree) -> tuple[np.ndarray, np.ndarray]:
    """What moves write in; so many places that the noise of the least measured leaf fits in."""
    precision = tree.precision[tree.leaf].sum(axis=1)
    least = precision[precision > 0].min() if (precision > 0).any() else 0.01
    places = int(np.clip(np.ceil(_WINDOW / np.sqrt(least)), 8, 512))
    return np.empty((2, 2, tree.columns.shape[1])), np.empty(places)


class _Parameters:
    """Parameters of the prior, where one chain is."""

    def __init__(self, tree: MeasuredTree, state: State, random: np.random.Generator) -> None:
        fixed = tree.fixed
        self._fixed, self._random = fixed, random
        most = self._largest(tree, state)
        told = np.minimum(most, _TOLD_APART)
        self._chance = _log_sizes(int(told.max()))
        internal, columns, splits = fixed.above.size, fixed.depth.size, fixed.path.shape[1] - 1
        among = np.bincount(fixed.prefix[1:], minlength=columns)
        share = np.tile(1.0 / np.maximum(among, 1)[fixed.prefix], (internal, 1))
        spread = np.full((fixed.leaf.size, splits), _FIRST_SPREAD)
        begin = np.append(0, np.cumsum(told))
        likely = np.ones((internal, len(fixed.path)))
        kinship = np.full((splits + 1, int(fixed.level.max()) + 1), _FIRST_KINSHIP)
        self.prior = Prior(
            share,
            np.zeros(share.shape, np.int64),
            np.zeros(share.shape, bool),
            kinship,
            spread,
            likely,
            np.ones(int(begin[-1])),
            begin,
            most,
        )
        self._few = len(fixed.path) <= _FEW_CELLS
        self._weight = np.full((internal, len(self._chance)), 1 / len(self._chance))
        self._spread_weight: np.ndarray | None = None
        self._density = np.exp(self._chance)

    @staticmethod
    def _largest(tree: MeasuredTree, state: State) -> np.ndarray:
        """Shape (internal,): the most people that a leaf of each can have: far more than are measured in any."""
        precision = tree.precision[tree.leaf].sum(axis=1)
        noise = 10 * np.sqrt(len(tree.splits) / np.maximum(precision, 1e-4))
        most = np.ones(tree.fixed.above.size)
        np.maximum.at(
            most, tree.fixed.group, 1.5 * np.maximum(tree.measured, state.counts[:, 0]) + noise + 50
        )
        return most.astype(np.int64)

    def redraw(self, state: State) -> None:
        """Draw all parameters given the counts."""
        fixed, random, prior = self._fixed, self._random, self.prior
        if self._spread_weight is not None:
            seen = spreads(fixed, state, prior, self._spread_weight, random)
            drawn = random.standard_gamma(seen + 1.0)
            self._spread_weight = np.log(drawn / drawn.sum(axis=2, keepdims=True) + 1e-12)
        else:  # shares come first: those that all spreads are judged by must be near the data
            kinds = int(fixed.kind.max()) + 1
            self._spread_weight = np.zeros((kinds, prior.spread.shape[1], SPREADS.size))
        leaf_tables(fixed, state, prior, random)
        tree = fixed.above, fixed.level
        for split in range(1, fixed.path.shape[1]):
            parts = tuple(np.searchsorted(fixed.depth, (split - 1, split)).tolist())
            shares = prior.tables, prior.share, prior.drawn, prior.kinship[split]
            inherit(*shares, *tree, fixed.first, fixed.end, parts, every=self._few, random=random)
        classes = size_classes(fixed, state, self._weight, self._chance, random)
        one = np.zeros(1, np.int64)
        sizes = classes, self._weight, np.empty((len(classes), 1), bool), prior.kinship[0]
        inherit(*sizes, *tree, one, one + classes.shape[1], (0, 1), every=True, random=random)
        if self._few:
            np.cumsum(prior.share[:, fixed.path[:, 1:]].prod(axis=2), axis=1, out=prior.likely)
        grow(self._weight, self._density, prior.begin, prior.growth)


_FIRST_SPREAD, _FIRST_KINSHIP = 100.0, 30.0


def _log_sizes(most: int) -> np.ndarray:
    """Shape (classes, most + 1): log probability of each size in each class of sizes; the first has nobody."""
    n = np.arange(most + 1)
    mean = 1.5 * 1.7 ** np.arange(60)
    mean = mean[mean < 2 * most][:, None]
    log = gammaln(n + SHAPE) - gammaln(n + 1) - gammaln(SHAPE)
    log = log + SHAPE * np.log(SHAPE / (SHAPE + mean)) + n * np.log(mean / (SHAPE + mean))
    return np.concatenate([np.where(n == 0, 0.0, -np.inf)[None], log])


__all__: Sequence[str] = (
    "CHAINS",
    "LEAST_EFFECTIVE",
    "Draws",
    "ExactSums",
    "MeasuredTree",
    "combine",
    "sample",
)
