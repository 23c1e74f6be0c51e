"""OPT_+: one Kronecker product for each group of tables, the groups found, and the budget split between them.

With L_g the loss of group g's own OPT_kron strategy (squared error at unit noise and unit sensitivity) the split that
minimises the total, before least squares joins the groups' answers, is

    Gaussian   rho_g      proportional to sqrt(L_g),   total (sum_g sqrt L_g)^2
    Laplace    epsilon_g  proportional to cbrt(L_g),   total (sum_g cbrt L_g)^3

(The printed OPT_+ results for Gaussian noise used the Laplace split.) Least squares over all groups together
only lowers the error from there. So two clusters of tables are joined where that lowers ``L^(1/r)`` of the pair, r = 2
or 3, the best pair first (HDMM leaves clusters to the expert). How far least squares lowers the error, these sums do
not say, and it may be furthest for groups that cost more alone. So the clusters compete with all tables in one group
and with each table in its own, by the error of all groups together.

Optimising every pair would take hours where there are hundreds of tables. Instead each attribute has a few candidate
matrices for each set of queries that some cluster asks of it: the optimum where that is one set of queries;
``[a I; b T]`` where it is cells and totals; and optima of several mixtures elsewhere. The loss of a product of
candidates is ``sum_l c_l prod_i T_li`` with the traces ``T_li = tr[(A_i'A_i)^-1 V_li]`` computed once, and the
best product is found attribute by attribute.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...domain import Table, Workload
from ...errors import NotEstimable, Unsupported
from ...linalg import Identity, LinearOperator, Total
from ..block import Block, short_scale
from ..bounds.dual import identity_and_ones
from ..gram import MIXTURES, DistinctCells, is_definite, mixture_traces, strategy_traces
from ..information.routes import check_least_squares
from ..methods import Settings, register
from ..strategy import NoiseKind, Strategy, unit_rmse
from .kron import KnownFactors, kron_block
from .opt0 import full_optimum, nonsingular_optimum, overlapping_rows

_PAIRS = (
    200  # clusters among which every pair may join; among more, only those over nested sets of attributes
)
_EMPHASIS = (5.0, 30.0, 300.0)  # by how much one set of queries outweighs the others in a mixture
_GAP = 1e-2  # certified gap of the candidates under Gaussian noise
_SWEEPS = 50


def clusters(workload: Workload, settings: Settings) -> list[list[Table]]:
    """The tables of a workload in clusters to be measured by one product each.

    Marginals are clustered by their attributes alone: least squares joins them in closed form, which it
    cannot once several are one product. Other tables are joined greedily by the losses of product strategies.
    """
    if all(_is_marginal(table) for table in workload.tables):
        return _by_attributes(workload)
    start = [[t] for t in workload.tables] if len(workload.tables) <= _PAIRS else _by_attributes(workload)
    return _joined(start, ProductLosses(workload, settings.norm), settings)


def _by_attributes(workload: Workload) -> list[list[Table]]:
    together: dict[frozenset[str], list[Table]] = {}
    for table in workload.tables:
        together.setdefault(frozenset(table.attributes), []).append(table)
    return list(together.values())


def _is_marginal(table: Table) -> bool:
    return len(table.terms) == 1 and all(
        isinstance(f, (Identity, Total)) for f in table.terms[0].factors.values()
    )


@dataclass(frozen=True)
class _Cluster:
    tables: list[Table]
    attributes: frozenset[str]
    share: float  # L^(1/r): what it adds to the root of the total


def _joined(start: list[list[Table]], losses: ProductLosses, settings: Settings) -> list[list[Table]]:
    """Join the pair that gains most until none gains or time is up."""
    power = 1 / (2 if settings.noise == "gaussian" else 3)

    def cluster(tables: list[Table]) -> _Cluster:
        return _Cluster(tables, frozenset().union(*(t.attributes for t in tables)), losses(tables) ** power)

    present = {k: cluster(tables) for k, tables in enumerate(start)}
    pairs: list[tuple[float, int, int, _Cluster]] = []

    def consider(i: int, j: int) -> None:
        a, b = present[i], present[j]
        nested = a.attributes <= b.attributes or b.attributes <= a.attributes
        if nested or len(start) <= _PAIRS:
            both = cluster([*a.tables, *b.tables])
            if both.share < a.share + b.share:
                heapq.heappush(pairs, (both.share - a.share - b.share, i, j, both))

    for j in range(len(start)):
        for i in range(j):
            if not settings.late:
                consider(i, j)
    count = len(start)
    while pairs and not settings.late:
        _, i, j, both = heapq.heappop(pairs)
        if i in present and j in present:
            del present[i], present[j]
            present[count] = both
            for k in [k for k in present if k != count]:
                consider(k, count)
            count += 1
    return [c.tables for c in present.values()]


class ProductLosses:
    """The loss of the best product of candidate matrices for any cluster of a workload's tables."""

    def __init__(self, workload: Workload, norm: int) -> None:
        merged, _ = workload.merge()
        self._norm = norm
        self._position: dict[LinearOperator, int] = {}
        self._grams: list[np.ndarray] = []
        self._terms: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._candidates: dict[tuple[int, ...], np.ndarray] = {}
        for table in merged.tables:
            terms = Workload(merged.domain, [table]).gram_terms()
            index = np.array([[self._find(gram) for gram in grams] for _, grams in terms])
            self._terms[table.name] = np.array([c for c, _ in terms]), index

    def _find(self, gram: LinearOperator) -> int:
        if gram not in self._position:
            self._position[gram] = len(self._grams)
            dense = np.asarray(gram.dense(), dtype=float)
            self._grams.append((dense + dense.T) / 2)
        return self._position[gram]

    def __call__(self, tables: Sequence[Table]) -> float:
        """Squared error of the tables at unit noise and sensitivity."""
        coefficients = np.concatenate([self._terms[t.name][0] for t in tables])
        index = np.concatenate([self._terms[t.name][1] for t in tables])
        free: list[tuple[np.ndarray, np.ndarray]] = []
        for column in index.T:
            asked, place = np.unique(column, return_inverse=True)
            table = self.candidates(tuple(asked.tolist()))
            if len(table) == 1:
                coefficients = coefficients * table[0][place]
            else:
                free.append((table, place))
        return _best_product(coefficients, free)

    def candidates(self, asked: tuple[int, ...]) -> np.ndarray:
        """Traces ``tr[(A'A)^-1 V]``, one row for each candidate A and one column for each V asked for."""
        if asked not in self._candidates:
            whole = [self._grams[k] for k in asked]
            cells = DistinctCells.of(whole)
            grams = [cells.merge(V) for V in whole]
            plain = all(identity_and_ones(V) is not None for V in grams)
            self._candidates[asked] = (
                self._cells_and_total(grams)
                if plain
                else np.array([strategy_traces(self._optimum(mix), grams) for mix in self._mixtures(grams)])
            )
        return self._candidates[asked]

    def _cells_and_total(self, grams: list[np.ndarray]) -> np.ndarray:
        """Cells and their total, at any shares."""
        alone = len(grams[0]) == 1 or not any(V[0, -1] for V in grams)
        return mixture_traces(grams, MIXTURES[:1] if alone else MIXTURES, self._norm)

    def _mixtures(self, grams: list[np.ndarray]) -> Iterator[np.ndarray]:
        """The one matrix asked for; or several, weighed by how hard each is, none or one emphasised.

        Cross terms of a disjunction, which are no Gram matrices, follow the others.
        """
        grams = [V for V in grams if is_definite(V)]
        if len(grams) == 1:
            yield grams[0]
            return
        ease = np.array([1 / strategy_traces(self._optimum(V), [V])[0] for V in grams])
        stacked = np.array(grams)
        yield np.tensordot(ease, stacked, axes=1)
        for k in range(len(grams)):
            for emphasis in _EMPHASIS:
                weights = np.where(np.arange(len(grams)) == k, emphasis, 1.0) * ease
                yield np.tensordot(weights, stacked, axes=1)

    def _optimum(self, gram: np.ndarray) -> np.ndarray:
        if self._norm == 2:
            return nonsingular_optimum(gram, tolerance=_GAP).strategy
        return full_optimum(gram, start=overlapping_rows(gram)).strategy


def _best_product(coefficients: np.ndarray, free: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """``min sum_l c_l prod_i table_i[k_i, place_li]`` over the candidates k_i, coordinate by coordinate."""
    chosen = [table[0][place] for table, place in free]
    best = np.inf
    for _ in range(_SWEEPS):
        before = best
        for i, (table, place) in enumerate(free):
            others = coefficients * np.prod([c for j, c in enumerate(chosen) if j != i] or [1.0], axis=0)
            losses = table @ np.bincount(place, weights=others, minlength=table.shape[1])
            k = int(np.argmin(losses))
            best, chosen[i] = float(losses[k]), table[k][place]
        if not best < before:
            break
    return best if free else float(coefficients.sum())


_MOST_GROUPS = 2000


@dataclass(frozen=True)
class TableGroup:
    """Tables measured together: their block, and its loss and squared sensitivity.

    ``loss`` is the tables' weighted squared error at unit noise and unit sensitivity, answered from this block
    alone; ``sensitivity2`` is that of the block, in squared counts.
    """

    tables: tuple[Table, ...]
    block: Block
    sensitivity2: Fraction
    loss: float


@register(
    "union",
    "OPT_+ (a product of optimised matrices for each group of tables)",
    families=("hdmm", "auto"),
    turn=7,
    pays=lambda workload, settings: len(workload.tables) > 1,  # of one it is kron
    by_cells=True,
)
def union_strategy(workload: Workload, settings: Settings) -> Strategy:
    """OPT_+: one product for each group of tables, and the best split of the budget between them.

    ``settings.groups`` says which tables are measured together. None clusters them by what is cheapest, and takes the
    clusters, all tables together or each alone, whichever errs least once least squares has joined the groups.

    Raises :class:`~tabulae.errors.Unsupported` for more than 2,000 groups, or an attribute too large for OPT_kron.

    Reference: HDMM, Definition 19.

    >>> from tabulae.linalg import Prefix
    >>> from tabulae.domain import Domain
    >>> domain = Domain({"a": 100, "b": 100})
    >>> workload = Workload(domain, [Table(name, {name: Prefix(100)}) for name in ("a", "b")])  # Example 13
    >>> [block.name for block in union_strategy(workload, Settings("gaussian")).blocks]
    ['a', 'b']
    """
    return _joined_strategy(groups_of(workload, settings), workload, settings)


_FAR = 2.25  # times the squared error reached: a product estimated beyond it is not worth its search


def groups_of(workload: Workload, settings: Settings) -> list[TableGroup]:
    """The groups of tables that :func:`union_strategy` measures, each with its own best product."""
    known = KnownFactors()
    if settings.groups is not None:
        return _measured([[workload[name] for name in g] for g in settings.groups], workload, settings, known)
    settings.check_terms(workload.merge()[0], 4.5e-5, "finding groups of tables")
    found, *others = _groupings(workload, settings)
    if not others:
        return _measured(found, workload, settings, known)
    best: tuple[float, list[TableGroup]] | None = None
    refusal: Unsupported | NotEstimable | None = None
    for together in (found, *others):
        if best is not None and (settings.late or _is_far(together, best[0], workload, settings)):
            continue
        try:
            groups = _measured(together, workload, settings, known)
            rmse = _joint_rmse(groups, workload, settings)
        except (Unsupported, NotEstimable) as caught:
            refusal = refusal or caught
            continue
        if best is None or rmse < best[0]:
            best = rmse, groups
    if best is None:
        assert refusal is not None
        raise refusal
    return best[1]


def _groupings(workload: Workload, settings: Settings) -> list[list[list[Table]]]:
    """The clusters, each table alone and all of them together, as far as these differ."""
    found = clusters(workload, settings)
    alone, together = [[table] for table in workload.tables], [list(workload.tables)]
    groupings = [found]
    if len(found) < len(alone):
        groupings.append(alone)
    if len(found) > 1:
        groupings.append(together)
    return groupings


def _is_far(together: Sequence[Sequence[Table]], rmse: float, workload: Workload, settings: Settings) -> bool:
    """Whether these are all tables in one product that candidate matrices show to be out of reach of ``rmse``.

    Under Laplace noise the search for a product of hundreds of tables takes longer than all the rest.
    """
    if len(together) > 1 or settings.neighbours != "add-remove":  # candidates are costed for add-remove
        return False
    estimate = ProductLosses(workload, settings.norm)(together[0])
    return estimate > _FAR * rmse**2 * workload.queries


def _joint_rmse(groups: Sequence[TableGroup], workload: Workload, settings: Settings) -> float:
    """The error of least squares over all groups together, as ``select`` will see it; infinite without time for it."""
    strategy = replace(_joined_strategy(groups, workload, settings), invariants=settings.invariants)
    try:
        check_least_squares(strategy, settings.deadline)
    except Unsupported:
        return math.inf
    return unit_rmse(strategy, workload, settings.neighbours)


def _joined_strategy(groups: Sequence[TableGroup], workload: Workload, settings: Settings) -> Strategy:
    """The groups' blocks, with the best split of the budget."""
    blocks = tuple(replace(g.block, scale=_scale(g, settings.noise)) for g in groups)
    return Strategy(workload.domain, blocks, settings.noise, "union")


def _measured(
    together: Sequence[Sequence[Table]], workload: Workload, settings: Settings, known: KnownFactors
) -> list[TableGroup]:
    """Each group of tables with its own best product."""
    if len(together) > _MOST_GROUPS:
        raise Unsupported(
            f"{len(together):,} groups of tables, each with a strategy of its own; union takes {_MOST_GROUPS:,}. Name "
            'fewer with groups=, or choose "kron" or "residual"'
        )
    groups = [_group(tables, workload, settings, known) for tables in together]
    return _charged(groups, workload, settings, known)


def _group(
    tables: Sequence[Table], workload: Workload, settings: Settings, known: KnownFactors
) -> TableGroup:
    name = " + ".join(table.name for table in tables)
    own = Workload(workload.domain, tables)
    block, optimum = kron_block(own, settings, name=name, known=known, beside=True)
    alone = Strategy(workload.domain, (block,), settings.noise, "union")
    power = 1 if settings.noise == "gaussian" else 2
    sensitivity2 = alone.sensitivity(settings.neighbours).power ** power
    charged = sensitivity2 / alone.sensitivity("add-remove").power ** power
    return TableGroup(tuple(tables), block, sensitivity2, optimum.loss * float(charged))


def _charged(
    groups: list[TableGroup], workload: Workload, settings: Settings, known: KnownFactors
) -> list[TableGroup]:
    """Let what no neighbour changes (the total, under replace) be answered by another group.

    Alone it would cost nothing however small its noise, and noise is never zero.
    """
    free = [g for g in groups if g.sensitivity2 == 0]
    others = sorted((g for g in groups if g.sensitivity2 > 0), key=lambda g: g.loss)
    if not free:
        return groups
    if not others:
        raise Unsupported('no table changes when one record is replaced by another: choose "identity"')
    tables = [table for group in (others[-1], *free) for table in group.tables]
    return [*others[:-1], _group(tables, workload, settings, known)]


def _scale(group: TableGroup, noise: NoiseKind) -> Fraction:
    """The block's relative noise: variance Delta^2 / sqrt(L), or scale Delta / cbrt(L)."""
    if noise == "gaussian":
        scale = float(group.sensitivity2) / math.sqrt(group.loss)
    else:
        scale = math.sqrt(group.sensitivity2) / group.loss ** (1 / 3)
    return short_scale(1 / scale)
