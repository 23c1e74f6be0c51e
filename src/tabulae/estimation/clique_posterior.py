"""Posterior of whole counts of many attributes without areas: draws of the counts of cliques, given what was measured.

Cliques are sets of attributes whose joint counts are all that is needed: what queries ask of attributes that no query
joins follows from the counts of each set. The sets are enlarged until they hang together as a tree, in which two
neighbours have all that they share with the rest beyond (Lauritzen, "Graphical Models", 1996, chapter 2): then whole,
non-negative counts that agree where sets overlap are those of some records. In each clique the people who share the
values that an earlier clique has, too, are split by the clique's own attributes:

    y = A x + e,    log p(e) = -e**2 / (2 sigma**2) + const (Gaussian noise), or -abs(e) / scale + const (Laplace noise)
    cells of a clique | people with the shared values ~ Dirichlet-multinomial(spread * product of shares of categories)
    shares of an attribute ~ Dirichlet(evenness, ..., evenness);  spread, evenness from a grid;  everybody: any number

Categories are independent on average, and a spread that is small lets them be what they are. The law of the noise is
exact for discrete noise of whole numbers: its normaliser does not depend on counts. Exact counts are kept by each move.
All is made from measurements, which are public: it costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ..errors import InvalidArgument
from .intervals import CHAINS, LEAST_EFFECTIVE, effective
from .lines import Lines, LineState, draw_near, move_along, scratch, tables_taken

Attributes = frozenset[int]


@dataclass(frozen=True)
class Clique:
    """Some attributes, by their places in the domain, and those of them that a clique before it has, too."""

    attributes: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def own(self) -> tuple[int, ...]:
        """The attributes that no clique before it has."""
        return tuple(sorted({*self.attributes} - {*self.shared}))


def cliques_of(sets: Iterable[Iterable[int]], sizes: Sequence[int]) -> tuple[Clique, ...]:
    """The cliques of a tree in which each set lies within one, in an order in which neighbours come before.

    Attributes are taken out one after another, those first whose neighbours lack the fewest pairs.

    Args:
        sets: attributes that are asked for together.
        sizes: categories of each attribute.

    >>> [clique.attributes for clique in cliques_of([[0, 2], [1, 2, 4], [3]], [85, 16, 2, 99, 2])]
    [(0, 2), (1, 2, 4), (3,)]
    >>> [clique.attributes for clique in cliques_of([[0, 1], [1, 2], [2, 3], [3, 0]], [2, 2, 2, 2])]
    [(0, 1, 3), (1, 2, 3)]
    >>> cliques_of([[]], [2])
    (Clique(attributes=(), shared=()),)
    """
    asked = {frozenset(each) for each in sets}
    maximal = _maximal(_filled(asked, sizes)) or [frozenset[int]()]
    maximal.sort(key=lambda each: (-math.prod(sizes[k] for k in each), sorted(each)))
    found, left = [Clique(tuple(sorted(maximal[0])), ())], maximal[1:]
    while left:  # a tree of largest overlaps is a tree of cliques
        shared = [
            max(({*each} & {*f.attributes} for f in found), key=lambda s: (len(s), sorted(s)))
            for each in left
        ]
        place = max(range(len(left)), key=lambda i: len(shared[i]))
        found.append(Clique(tuple(sorted(left[place])), tuple(sorted(shared[place]))))
        del left[place]
    return tuple(found)


def hang_together(sets: Iterable[Iterable[int]], sizes: Sequence[int]) -> bool:
    """Whether sets are a tree as they are, so that none must be enlarged.

    >>> hang_together([[0, 1], [1, 2]], [2, 2, 2]), hang_together([[0, 1], [1, 2], [0, 2]], [2, 2, 2])
    (True, False)
    """
    asked = {frozenset(each) for each in sets}
    return all(any(each <= given for given in asked) for each in _filled(asked, sizes))


def _filled(sets: set[Attributes], sizes: Sequence[int]) -> list[Attributes]:
    beside: dict[int, set[int]] = {k: set() for each in sets for k in each}
    for each in sets:
        for k in each:
            beside[k] |= each - {k}
    found = []
    while beside:

        def cost(k: int) -> tuple[int, int, int]:
            near = beside[k]
            missing = sum(len(near - beside[other]) - 1 for other in near) // 2
            return missing, math.prod(sizes[other] for other in (k, *near)), k

        taken = min(beside, key=cost)
        near = beside.pop(taken)
        found.append(frozenset({taken, *near}))
        for other in near:
            beside[other] = (beside[other] | near) - {other, taken}
    return found


def _maximal(sets: Sequence[Attributes]) -> list[Attributes]:
    return [each for each in dict.fromkeys(sets) if not any(each < other for other in sets)]


BURNT, KEPT_EVERY, ROUNDS = 100, 5, 7
"""Sweeps of each chain before the first draw, and between two; how often draws are replaced by some further apart."""

LARGEST = 2**15
"""Most cells of all cliques."""

_MOVES, _LEAST_MOVES = 10, 200  # of a sweep, for each cell; and at all
_SPREADS = 10.0 ** np.linspace(-1, 6, 15)
_EVENNESSES = 10.0 ** np.linspace(-2, 2, 9)
_LEAST_SHARE = 1e-12
_ALIKE = 64  # kinds of people that those alike are divided into where chains start
_PASSES = 200  # towards whole counts near to others


@dataclass(frozen=True, eq=False)
class ExactTable:
    """Exact counts of people by classes of some attributes.

    Args:
        classes: attribute -> the class of each category, from 0.
        counts: one entry a combination of classes, in C order, attributes by their places.
    """

    classes: dict[int, np.ndarray]
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class MeasuredCliques:
    """What is measured of the counts of cliques, and what is known of them.

    Args:
        sizes: categories of each attribute.
        cliques: as :func:`cliques_of` gives them.
        matrix: shape (rows, cells): whole numbers; cells of one clique after another, each in C order.
        answers: shape (rows,): whole numbers, what was measured.
        precision: shape (rows,): 1 / sigma**2 of Gaussian noise; 1 / (2 scale**2), about, of Laplace noise.
        slope: shape (rows,): 1 / scale of Laplace noise, 0 for Gaussian noise.
        exact: counts that all draws have.

    Raises:
        InvalidArgument: exact tables whose moves do not reach everything that they leave open.
    """

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    matrix: sparse.csc_array
    answers: np.ndarray
    precision: np.ndarray
    slope: np.ndarray
    exact: tuple[ExactTable, ...] = ()

    def __post_init__(self) -> None:
        if not hang_together([table.classes for table in self.exact], self.sizes):
            raise InvalidArgument(
                "the exact counts form a circle, as those of every two of three attributes do, and moves that keep "
                "them need not reach every table"
            )
        seen: dict[int, np.ndarray] = {}
        for table in self.exact:
            for k, classes in table.classes.items():
                if not np.array_equal(seen.setdefault(k, classes), classes):
                    raise InvalidArgument(
                        "the exact counts divide one attribute into classes in two ways, and moves that keep both need "
                        "not reach every table"
                    )

    def shape(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self.sizes[k] for k in clique.attributes)

    def _codes(self, clique: Clique) -> np.ndarray:
        """Shape (attributes, cells): the category of each cell."""
        shape = self.shape(clique)
        return np.indices(shape).reshape(len(shape), math.prod(shape))

    @cached_property
    def starts(self) -> np.ndarray:
        """Where the cells of each clique begin, and where the last ones end."""
        return np.cumsum([0, *(int(np.prod(self.shape(clique))) for clique in self.cliques)])

    @property
    def cells(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def sums(self) -> tuple[np.ndarray, ...]:
        """For each clique the sum, over its own attributes, that each of its cells is in, from 0."""
        found = []
        for clique in self.cliques:
            codes = self._codes(clique)
            shared = [codes[clique.attributes.index(k)] for k in clique.shared]
            sizes = [self.sizes[k] for k in clique.shared]
            cells = int(np.prod(self.shape(clique)))
            found.append(np.ravel_multi_index(shared, sizes) if shared else np.zeros(cells, np.int64))
        return tuple(found)

    @cached_property
    def lines(self) -> Lines:
        """What the compiled moves read; exact counts are rows that are held."""
        first, stride, at = [], [], self.cells
        for clique, start, sums in zip(self.cliques, self.starts, self.sums, strict=False):
            first += [int(start), at]
            stride += [self._stride(clique.attributes), self._stride(clique.shared)]
            at += int(sums.max()) + 1
        held = [self._held(table) for table in self.exact]
        matrix = sparse.csc_array(sparse.vstack([self.matrix, *held]), dtype=float)
        more = sum(table.counts.size for table in self.exact)
        ends = np.concatenate([matrix.indptr, np.full(at - self.cells, matrix.indptr[-1])])
        return Lines(
            np.array(self.sizes, np.int64),
            np.array(first, np.int64),
            np.array(stride, np.int64).reshape(len(first), len(self.sizes)),
            np.where(np.arange(at) < self.cells, 1, -1),
            ends.astype(np.int64),
            matrix.indices.astype(np.int64),
            matrix.data,
            np.concatenate([self.precision, np.zeros(more)]),
            np.concatenate([self.slope, np.zeros(more)]),
            np.repeat([False, True], [len(self.precision), more]),
        )

    def _stride(self, attributes: Sequence[int]) -> np.ndarray:
        found, step = np.zeros(len(self.sizes), np.int64), 1
        for k in reversed(attributes):
            found[k], step = step, step * self.sizes[k]
        return found

    def _held(self, table: ExactTable) -> sparse.csr_array:
        place = next(i for i, c in enumerate(self.cliques) if {*table.classes} <= {*c.attributes})
        clique = self.cliques[place]
        codes = self._codes(clique)
        label = [classes[codes[clique.attributes.index(k)]] for k, classes in table.classes.items()]
        sizes = [int(classes.max()) + 1 for classes in table.classes.values()]
        row = np.ravel_multi_index(label, sizes) if label else np.zeros(codes.shape[1], np.int64)
        column = self.starts[place] + np.arange(row.size)
        return sparse.csr_array((np.ones(row.size, np.int64), (row, column)), (table.counts.size, self.cells))

    def state(self, cells: np.ndarray) -> LineState:
        """Where a chain is at whole cells that agree."""
        sums = [
            np.bincount(label, cells[start:end])
            for label, start, end in zip(self.sums, self.starts, self.starts[1:], strict=False)
        ]
        held = sum(table.counts.size for table in self.exact)
        residual = np.concatenate([self.answers - self.matrix @ cells, np.zeros(held)])
        return LineState(np.concatenate([cells, *sums]).astype(np.int64), residual.astype(float))

    def of_people(self, people: Sequence[np.ndarray], counts: np.ndarray | None = None) -> np.ndarray:
        """The cells of people: one array of categories an attribute; ``counts`` are how many are alike."""
        found = []
        alike = np.ones(len(people[0]), np.int64) if counts is None else counts
        for clique in self.cliques:
            cells = np.zeros(int(np.prod(self.shape(clique))), np.int64)
            codes = [people[k] for k in clique.attributes]
            place = (
                np.ravel_multi_index(codes, self.shape(clique)) if codes else np.zeros(alike.size, np.int64)
            )
            np.add.at(cells, place, alike)
            found.append(cells)
        return np.concatenate(found)

    def start(self, total: int, random: np.random.Generator) -> np.ndarray:
        """Whole cells that agree and have the exact counts, moved towards the answers; about ``total`` people.

        Raises:
            InvalidArgument: exact counts that contradict each other.
        """
        known = [int(table.counts.sum()) for table in self.exact]
        if any(each != known[0] for each in known):
            raise InvalidArgument("the exact counts contradict each other: their sums differ")
        classes, counts = _matched(self.exact, known[0] if known else total)
        # people who are alike so far are divided among some categories
        divided = counts // _ALIKE + (np.arange(_ALIKE)[:, None] < counts % _ALIKE)
        people = []
        for k, size in enumerate(self.sizes):
            of = next(
                (table.classes[k] for table in self.exact if k in table.classes), np.zeros(size, np.int64)
            )
            label = np.tile(classes.get(k, np.zeros(counts.size, np.int64)), _ALIKE)
            order = np.argsort(of, kind="stable")
            first = np.searchsorted(of[order], np.arange(int(of.max()) + 2))
            people.append(order[first[label] + random.integers(0, (first[1:] - first[:-1])[label])])
        cells = self.of_people(people, divided.ravel())
        return self.near(cells, self.lines, self.state(cells).residual, random)

    def near(
        self, cells: np.ndarray, lines: Lines, residual: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Whole cells nearer to answers, weighted by precision, by moves along lines while these help."""
        counts = np.array(self.state(cells).counts)
        state, room = LineState(counts, residual), scratch(lines)
        even = np.zeros((len(self.sizes), max(self.sizes, default=1)))
        for k, size in enumerate(self.sizes):
            even[k, :size] = np.arange(1, size + 1) / size
        for _ in range(_PASSES):
            if not draw_near(lines, state, even, 5 * self.moves, room, random):
                break
        return state.counts[: self.cells]

    @property
    def moves(self) -> int:
        """Moves of a sweep."""
        return max(_LEAST_MOVES, _MOVES * self.cells)


def _matched(exact: Sequence[ExactTable], total: int) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """People who have the exact counts, those alike together: their class in each attribute, and how many they are.

    Tables come in an order in which each shares with those before it what it shares with one of them. People of a table
    and those so far are laid side by side, in order of the classes that both have.
    """
    found: dict[int, np.ndarray] = {}
    counts = np.array([total])
    left = sorted(exact, key=lambda table: (-len(table.classes), sorted(table.classes)))
    while left:
        table = left.pop(max(range(len(left)), key=lambda i: len(left[i].classes.keys() & found.keys())))
        shape = [int(classes.max()) + 1 for classes in table.classes.values()]
        labels = dict(
            zip(table.classes, np.indices(shape).reshape(len(shape), math.prod(shape)), strict=True)
        )
        shared = [k for k in labels if k in found]
        mine, theirs = (
            np.lexsort([each[k] for k in shared]) if shared else np.arange(size)
            for each, size in ((found, counts.size), (labels, table.counts.size))
        )
        ends = np.cumsum(counts[mine]), np.cumsum(table.counts[theirs])
        cuts = np.unique(np.concatenate([[0], *ends]))
        places = [
            order[np.searchsorted(end, cuts[:-1], side="right")]
            for order, end in zip((mine, theirs), ends, strict=True)
        ]
        if any((found[k][places[0]] != labels[k][places[1]]).any() for k in shared):
            raise InvalidArgument("the exact counts contradict each other: two tables count other people")
        found = {k: label[places[0]] for k, label in found.items()}
        found |= {k: label[places[1]] for k, label in labels.items() if k not in found}
        counts = np.diff(cuts)
    return found, counts


@dataclass(frozen=True, eq=False)
class CliqueDraws:
    """Cells drawn from the posterior, shape (draws, cells), of one chain after another.

    ``before`` are the sweeps of each chain before the first draw, and ``every`` those between two.
    """

    model: MeasuredCliques
    cells: np.ndarray
    before: int
    every: int

    def sums(self, matrix: sparse.csr_array) -> np.ndarray:
        """Shape (draws, rows) of a matrix (rows, cells)."""
        return np.asarray((matrix @ self.cells.T).T)

    def table(self) -> np.ndarray:
        """Whole cells that agree and keep exact counts, near to the mean of the draws.

        From the draw that is nearest, by moves along lines while they lower the weighted squared distance: of cells, by
        the draws' variances, and of what was measured, by those of the noise.
        """
        model, draws = self.model, len(self.cells)
        mean = self.cells.mean(axis=0)
        precision = 1 / (self.cells.var(axis=0) + 1 / draws)
        distance = ((self.cells - mean) ** 2 * precision).sum(axis=1)
        distance = distance + ((self.cells - mean) @ model.matrix.T) ** 2 @ model.precision
        start = self.cells[int(np.argmin(distance))]
        wider = MeasuredCliques(
            model.sizes,
            model.cliques,
            sparse.csc_array(sparse.vstack([model.matrix, identity(model.cells)])),
            np.concatenate([model.matrix @ mean, mean]),
            np.concatenate([model.precision, precision]),
            np.zeros(len(model.precision) + model.cells),
            model.exact,
        )
        return wider.near(start, wider.lines, wider.state(start).residual, np.random.default_rng(0))


def sample(
    model: MeasuredCliques,
    start: np.ndarray,
    figures: Sequence[sparse.csr_array],
    *,
    draws: int,
    seed: int,
    burnt: int = BURNT,
    every: int = KEPT_EVERY,
    rounds: int = ROUNDS,
) -> CliqueDraws:
    """Draws of all cells, from ``CHAINS`` chains.

    Where they are worth fewer than ``LEAST_EFFECTIVE`` for one of the figures, each a matrix (rows, cells), they are
    thrown away, and as many are drawn with twice as many sweeps between two: ``rounds`` times at most.

    Args:
        start: whole cells that agree and have the exact counts, as :meth:`MeasuredCliques.start` gives them.
        draws: how many are kept; a multiple of ``CHAINS``.
        seed: 0 or more; the same seed gives the same draws.
    """
    if draws < CHAINS or draws % CHAINS:
        raise InvalidArgument(f"draws is {draws}; it must be a multiple of {CHAINS}")
    seeds = np.random.SeedSequence(seed).spawn(CHAINS)
    chains = [Chain(model, start, np.random.default_rng(one)) for one in seeds]
    with ThreadPoolExecutor(CHAINS) as threads:
        list(threads.map(lambda chain: chain.run(burnt), chains))
        for turn in range(rounds):
            found = threads.map(Chain.draws, chains, [draws // CHAINS] * CHAINS, [every] * CHAINS)
            made = CliqueDraws(model, np.concatenate(list(found)), burnt, every)
            worth = min((effective(made.sums(each)) for each in figures), default=math.inf)
            if worth >= LEAST_EFFECTIVE or turn == rounds - 1:
                break
            burnt, every = burnt + draws // CHAINS * every, 2 * every
    return made


def identity(size: int) -> sparse.csr_array:
    """The identity in whole numbers."""
    return sparse.csr_array((np.ones(size, np.int64), (np.arange(size), np.arange(size))), (size, size))


class Chain:
    """One chain: where it is, and the parameters of the prior."""

    def __init__(self, model: MeasuredCliques, start: np.ndarray, random: np.random.Generator) -> None:
        self._model, self._random = model, random
        self.state, self._scratch = model.state(start), scratch(model.lines)
        self._moves = model.moves
        self.shares = [np.full(size, 1 / size) for size in model.sizes]
        self.spreads = np.full(len(model.cliques), 10.0)
        self._prior()

    def run(self, sweeps: int) -> None:
        """So many sweeps, each after new parameters."""
        for _ in range(sweeps):
            self.redraw()
            self.move(self._moves)

    def draws(self, count: int, every: int) -> np.ndarray:
        """Shape (count, cells): cells after every so many sweeps."""
        found = np.empty((count, self._model.cells), np.int64)
        for made in found:
            self.run(every)
            made[:] = self.state.counts[: self._model.cells]
        return found

    def move(self, moves: int) -> None:
        """So many moves with the parameters as they are."""
        move_along(
            self._model.lines, self.state, self._alpha, self._cumulated, moves, self._scratch, self._random
        )

    def redraw(self) -> None:
        """Draw all parameters given the counts: shares by the tables of Chinese restaurants, which are conjugate."""
        model, random = self._model, self._random
        for p, clique in enumerate(model.cliques):
            start, end = model.starts[p : p + 2]
            counts, alpha = self.state.counts[start:end], self._alpha[start:end]
            taken = tables_taken(counts, alpha, random).reshape(model.shape(clique))
            for k in clique.own:
                axis = clique.attributes.index(k)
                seen = taken.sum(axis=tuple(a for a in range(taken.ndim) if a != axis))
                self.shares[k] = _shares(seen, random)
            base = self._base(clique)
            sums = np.bincount(model.sums[p], counts)
            a = _SPREADS[:, None]
            log = (gammaln(a * base + counts) - gammaln(a * base)).sum(axis=1)
            log += (gammaln(a) - gammaln(a + sums)).sum(axis=1)
            self.spreads[p] = _SPREADS[_pick(log, random)]
        self._prior()

    def _base(self, clique: Clique) -> np.ndarray:
        """The product of the shares of each cell's own categories."""
        each = [
            self.shares[k] if k in clique.own else np.ones(self._model.sizes[k]) for k in clique.attributes
        ]
        return reduce(np.multiply.outer, each, np.ones(())).ravel()

    def _prior(self) -> None:
        model = self._model
        pairs = list(zip(model.cliques, self.spreads, model.sums, strict=True))
        cells = [spread * self._base(clique) for clique, spread, _ in pairs]
        sums = [np.full(int(label.max()) + 1, spread) for _, spread, label in pairs]
        self._alpha = np.concatenate([*cells, *sums])
        self._cumulated = np.zeros((len(model.sizes), max(model.sizes, default=1)))
        for k, share in enumerate(self.shares):
            self._cumulated[k, : share.size] = np.cumsum(share)


def _shares(seen: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Shares of categories given how many tables were seen of each; how even they are is drawn first."""
    b, n = _EVENNESSES[:, None], seen.size
    log = (gammaln(b + seen) - gammaln(b)).sum(axis=1)
    log += (gammaln(n * b) - gammaln(n * b + seen.sum()))[:, 0]
    found = random.gamma(_EVENNESSES[_pick(log, random)] + seen)
    found = np.maximum(found / max(found.sum(), _LEAST_SHARE), _LEAST_SHARE)
    return found / found.sum()


def _pick(log: np.ndarray, random: np.random.Generator) -> int:
    weight = np.exp(log - log.max())
    return int(
        np.searchsorted(np.cumsum(weight), random.random() * weight.sum(), side="right").clip(0, log.size - 1)
    )
