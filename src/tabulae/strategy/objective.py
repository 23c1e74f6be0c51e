"""Other objectives than total squared error: the largest variance, a target for each table, relative error.

The largest variance of a query and targets are minimax problems. With r_p the squared error of part p of the workload
(a table's mean, or one query's variance) over what it is allowed,

    min_A max_p r_p(A) = max_{lambda in the simplex} min_A sum_p lambda_p r_p(A)        (Gaussian noise),

and the inner minimum is selection for total squared error on a reweighted workload. So any method serves any
objective: reweight, select, look which parts are worst, give those more weight. Every inner lower bound is one
for the minimax problem too, because a weighted mean is never above the largest.

Relative error: multiplying a query by a number changes its share of the total squared error, not its relative error. A
strategy that is best in total therefore serves the queries of many cells, whose answers tend to be large, at the
expense of those of few. How large the answers are is not for a strategy to know; taking all cells as equally likely,
the paper divides each query by its L2 norm. Only what methods are told changes: published answers are those of the
original workload.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import scipy.linalg

from ..domain import Domain, Table, Term, Workload
from ..domain.table import positive_fraction
from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    Identity,
    LinearOperator,
    RowScaled,
    Total,
    common_value,
    normalised,
    row_norms,
    weighted_gram,
)
from ..privacy import Exact
from .information.routes import information
from .methods import Settings
from .strategy import Strategy, unit_variances

_ROUNDS = 60
# How the step, a power of the ratios, is adapted
_LONGER, _SHORTER, _LONGEST, _SHORTEST = (1.4, 0.6, 32.0, 0.2)
_SETTLED = 1e-3  # relative gap between the worst part and the weighted mean at which the weights are right
_LEAST = 1e-5  # share of weight that every part keeps, so that no table loses its support
_SIDE = 0.01  # share of the weight that tables without a target have together


@dataclass(frozen=True)
class Targets:
    """What each table may be wrong by: an RMSE, or a margin of error at a confidence; both in counts.

    As an objective of :func:`tabulae.select` it asks for the strategy that meets all targets at the smallest
    budget: the largest ratio of squared error to what its target allows is minimised. Tables without a target
    are answered with what these leave.

    Arguments:
        rmse: table name -> root mean squared error over its queries.
        margin: table name -> half-width that no interval of the table may exceed.
        confidence: the level of those intervals, for all tables or by name (95 % where a name is missing).

    Raises :class:`~tabulae.errors.InvalidArgument` for a target that is not positive, a table with two targets, or
    no target at all.

    >>> Targets(margin={"sex_by_age": 50}).squared("sex_by_age") < 50**2
    True
    """

    rmse: Mapping[str, Exact] = field(default_factory=dict)
    margin: Mapping[str, Exact] = field(default_factory=dict)
    confidence: Exact | Mapping[str, Exact] = Fraction(19, 20)

    def __post_init__(self) -> None:
        both = sorted(set(self.rmse) & set(self.margin))
        if both:
            raise InvalidArgument(f"table {both[0]!r} has two targets: give it an rmse or a margin")
        if not self.rmse and not self.margin:
            raise InvalidArgument(
                "Targets needs at least one target: rmse={'table': 5} or margin={'table': 10}"
            )
        for kind in ("rmse", "margin"):
            given = {
                n: positive_fraction(v, f"the target of table {n!r}") for n, v in getattr(self, kind).items()
            }
            object.__setattr__(self, kind, given)
        for name in [*self.margin, *self.rmse]:
            self.level(name)

    def check(self, workload: Workload) -> None:
        """Refuse a target for a table that the workload lacks."""
        names = {table.name for table in workload.tables}
        for name in (*self.rmse, *self.margin):
            if name not in names:
                raise InvalidArgument(
                    f"a target is given for table {name!r}, which the workload does not have"
                )

    def level(self, name: str) -> float:
        """The confidence of a table's margin."""
        given = self.confidence.get(name, "0.95") if isinstance(self.confidence, Mapping) else self.confidence
        level = positive_fraction(given, "confidence")
        if not level < 1:
            raise InvalidArgument(f"confidence lies between 0 and 1, not {given!r}")
        return float(level)

    def squared(self, name: str) -> float | None:
        """The variance that a table's target allows (a margin's by the normal law), None without a target."""
        if name in self.rmse:
            return float(self.rmse[name]) ** 2
        if name in self.margin:
            quantile = statistics.NormalDist().inv_cdf((1 + self.level(name)) / 2)
            return (float(self.margin[name]) / quantile) ** 2
        return None


Objective = Literal["total", "max"] | Targets


@dataclass(frozen=True)
class WeightedQueries:
    """A table under the objective: its allowance, and whether its mean or its largest variance counts."""

    table: Table
    allowed: float
    largest: bool
    share: float | None = None  # fixed weight of a table without a target


def parts_of(workload: Workload, objective: Literal["max"] | Targets) -> list[WeightedQueries]:
    """What the objective says of each table."""
    if not isinstance(objective, Targets):
        return [
            WeightedQueries(table, 1 / float(table.weight) ** 2, largest=True) for table in workload.tables
        ]
    objective.check(workload)
    parts, aimed = [], []
    for table in workload.tables:
        allowed = objective.squared(table.name)
        parts.append(WeightedQueries(table, allowed or 0.0, largest=table.name in objective.margin))
        aimed.append(allowed is not None)
    rest = aimed.count(False)
    loosest = max(part.allowed for part in parts)
    return [
        part if aim else WeightedQueries(part.table, loosest, largest=False, share=_SIDE / rest)
        for part, aim in zip(parts, aimed, strict=True)
    ]


@dataclass(frozen=True)
class Judgement:
    """How a strategy serves the parts.

    ``ratios`` by part, ``value`` the largest of those that count, ``mean`` their mean under the present shares,
    and for each part, by factor with shares, the largest variance that each row is in.
    """

    ratios: np.ndarray
    value: float
    mean: float
    worst: list[dict[str, np.ndarray]]


class Minimax:
    """The search for weights: a share of each table, and of the rows of each attribute's factor in it."""

    def __init__(self, workload: Workload, objective: Literal["max"] | Targets) -> None:
        self.workload = workload
        self.parts = parts_of(workload, objective)
        self.free = np.array([part.share is None for part in self.parts])
        self.shares = np.where(self.free, 1.0 / self.free.sum(), [part.share or 0.0 for part in self.parts])
        self._rows: list[dict[str, np.ndarray]] = [_even_rows(part) for part in self.parts]

    def weighted(self) -> Workload:
        """The workload whose total squared error is the weighted mean of the parts' ratios."""
        tables = [
            self._weighted(part, share, rows)
            for part, share, rows in zip(self.parts, self.shares, self._rows, strict=True)
        ]
        return Workload(self.workload.domain, tables)

    def in_total(self) -> Workload | None:
        """The workload of which each table's total squared error is its ratio; None unless that is all that counts."""
        if any(part.largest or part.share is not None for part in self.parts):
            return None
        return Workload(self.workload.domain, [self._weighted(part, 1.0, {}) for part in self.parts])

    def _weighted(self, part: WeightedQueries, share: float, rows: dict[str, np.ndarray]) -> Table:
        counts = part.table.row_counts(self.workload.domain)
        spread = math.prod(count for name, count in counts.items() if name not in rows)
        weight = Fraction(math.sqrt(share / part.allowed / spread))
        if not rows:
            return Table.of_terms(part.table.name, part.table.terms, weight)
        (term,) = part.table.terms
        factors = {n: weighted_rows(f, rows[n]) if n in rows else f for n, f in term.factors.items()}
        return Table.of_terms(part.table.name, [Term(term.coefficient, factors)], weight)

    def judge(self, strategy: Strategy, neighbours: str) -> Judgement:
        """Each part's squared error over its allowance, at unit noise."""
        info = information(strategy, unit_variances(strategy, neighbours))
        ratios, means, worst = np.empty(len(self.parts)), np.empty(len(self.parts)), []
        for p, (part, rows) in enumerate(zip(self.parts, self._rows, strict=True)):
            variance = np.maximum(info.variance(part.table.operator(self.workload.domain)), 0.0)
            ratios[p] = (variance.max() if part.largest else variance.mean()) / part.allowed
            cube = variance.reshape(list(part.table.row_counts(self.workload.domain).values()) or [1])
            means[p] = self._mean(part, rows, cube) / part.allowed
            worst.append(self._by_row(part, rows, cube))
        free = self.free
        mean = float(self.shares[free] @ means[free]) / float(self.shares[free].sum())
        return Judgement(ratios, float(ratios[free].max()), mean, worst)

    def _mean(self, part: WeightedQueries, rows: dict[str, np.ndarray], cube: np.ndarray) -> float:
        """The variances' mean under the rows' shares."""
        shares = np.ones(1)
        for name, count in part.table.row_counts(self.workload.domain).items():
            own = rows[name] if name in rows else np.full(count, 1 / count)
            shares = np.multiply.outer(shares, own).ravel()
        return float(shares @ cube.ravel())

    def _by_row(
        self, part: WeightedQueries, rows: dict[str, np.ndarray], cube: np.ndarray
    ) -> dict[str, np.ndarray]:
        """For each factor whose rows have shares: the largest variance that each of its rows is in."""
        names = list(part.table.row_counts(self.workload.domain))
        others = {name: tuple(k for k in range(cube.ndim) if k != names.index(name)) for name in rows}
        return {name: cube.max(axis=axes) for name, axes in others.items()}

    def update(self, judgement: Judgement, power: float) -> None:
        """Give more weight to what is worse off."""
        ratios = judgement.ratios
        free = (
            self.shares[self.free] * np.maximum(ratios[self.free] / ratios[self.free].max(), 1e-12) ** power
        )
        least = _LEAST / free.size
        free = np.maximum(free / free.sum(), least)
        self.shares[self.free] = free / free.sum() * (1 - self.shares[~self.free].sum())
        for rows, worst in zip(self._rows, judgement.worst, strict=True):
            for name, share in rows.items():
                grown = share * np.maximum(worst[name] / worst[name].max(), 1e-12) ** power
                grown = np.maximum(grown / grown.sum(), _LEAST / grown.size)
                rows[name] = grown / grown.sum()


def _even_rows(part: WeightedQueries) -> dict[str, np.ndarray]:
    """Equal shares for the rows of each factor whose rows may differ in variance; {} where only a mean counts."""
    if not part.largest or len(part.table.terms) != 1:
        return {}
    factors = part.table.terms[0].factors
    rows = {name: factor.shape[0] for name, factor in factors.items()}
    uneven = [name for name, factor in factors.items() if not isinstance(factor, (Identity, Total))]
    return {name: np.full(rows[name], 1.0 / rows[name]) for name in uneven if rows[name] > 1}


def weighted_rows(factor: LinearOperator, shares: np.ndarray) -> LinearOperator:
    """A square matrix R with ``R'R = F' diag(shares) F``, for the factor F (r x n) of a table."""
    gram = weighted_gram(factor, shares)
    values, vectors = scipy.linalg.eigh((gram + gram.T) / 2)
    return Dense((vectors * np.sqrt(np.maximum(values, 0.0))).T)


def minimax(
    workload: Workload,
    objective: Literal["max"] | Targets,
    choose: Callable[[Workload], Strategy],
    bound: Callable[[Strategy, Workload], float | None],
    settings: Settings,
) -> tuple[Strategy, float, float | None]:
    """The strategy whose worst part is least bad, its ratio, and a ratio that no strategy beats (or None).

    Reweights and selects again until the worst part is as good as the weighted mean.

    ``choose`` selects for total squared error; ``bound`` gives a lower bound on the loss of a workload, with the
    strategy chosen for it. The strategy for total squared error is where the search starts, so that the result is
    never worse; rounds go on until the weights settle, nothing can serve them, or time is up.
    """
    search = Minimax(workload, objective)
    best = choose(workload)
    value, lower, power = search.judge(best, settings.neighbours).value, 0.0, 1.0
    for _ in range(_ROUNDS):
        weighted = search.weighted()
        try:
            strategy = choose(weighted)
        except Unsupported:  # weights that no method can serve; those before were served
            break
        found = search.judge(strategy, settings.neighbours)
        lower = max(lower, (bound(strategy, weighted) or 0.0) if search.free.all() else 0.0)
        if found.value < value:
            best, value = strategy, found.value
            power = min(power * _LONGER, _LONGEST)
        else:  # overshooting
            power = max(power * _SHORTER, _SHORTEST)
        settled = found.value <= found.mean * (1 + _SETTLED) or value <= lower * (1 + _SETTLED)
        if settled or settings.late:
            break
        search.update(found, power)
    return best, value, lower or None


_READ = 2**26  # entries of two matrices whose rows are multiplied
_PRODUCT = 1e-12  # relative difference at which norms are a product of norms


def relative_workload(workload: Workload) -> Workload:
    """The same tables with each query divided by its L2 norm, for a strategy of low relative error.

    Table t with matrix ``kron_i A_ti`` gets ``kron_i diag(norms of A_ti's rows)^-1 A_ti``. A norm that all rows of a
    factor have in common, such as that of a total, goes into the table's weight (a Fraction within 1e-15 of the
    inverse), so that a marginal stays a marginal. Weights that were given go on counting; queries that count no cell
    stay zero.

    Raises :class:`~tabulae.errors.Unsupported` for a table that is a sum of products whose norms are not a product over
    the attributes, and for matrices without structure that are too large to read through.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    section 3.4, "Optimizing for Relative Error".

    >>> import tabulae as tb
    >>> scaled = relative_workload(tb.Workload.of(tb.AllRange(3)))
    >>> scaled.tables[0].operator(scaled.domain).gram().dense().diagonal().round(4).tolist()
    [1.8333, 2.3333, 1.8333]
    """
    return Workload(workload.domain, [_scaled(table, workload.domain) for table in workload.tables])


def _scaled(table: Table, domain: Domain) -> Table:
    shared, uneven = query_norms(table, domain)
    term, *others = table.terms
    if others:
        names = [name for name in domain.names if name in table.attributes]
        terms = [
            Term(t.coefficient, {n: _rows(t.over(domain)[domain.axis(n)], uneven.get(n)) for n in names})
            for t in table.terms
        ]
    else:  # the coefficient is left out, but for its sign: it scales all rows alike
        factors = {name: normalised(f) if name in uneven else f for name, f in term.factors.items()}
        terms = [Term(1 if term.coefficient > 0 else -1, factors)]
        shared /= abs(term.coefficient)
    return Table.of_terms(table.name, terms, divided(table.weight, shared), table.labels)


def query_norms(table: Table, domain: Domain) -> tuple[float, dict[str, np.ndarray]]:
    """L2 norms of a table's queries: one number, times a vector (m_i,) for each attribute along which they differ.

    Rows of a factor that are zero count as if they had norm 1. Raises :class:`~tabulae.errors.Unsupported` for a sum of
    products whose norms are not a product over the attributes.
    """
    term, *others = table.terms
    names = [name for name in domain.names if name in table.attributes]
    if others:
        shared, parts = 1.0, _norms_of_sum(table, names, domain)
    else:
        shared, parts = float(abs(term.coefficient)), [row_norms(term.factors[name]) for name in names]
    shared *= _summed_over([name for name in domain.names if name not in names], domain)
    uneven = {}
    for name, norms in zip(names, parts, strict=True):
        common = common_value(norms)
        if not common:
            uneven[name] = np.where(norms > 0, norms, 1.0)
        shared *= common or 1.0
    return shared, uneven


def _norms_of_sum(table: Table, names: Sequence[str], domain: Domain) -> list[np.ndarray]:
    """The norms of a sum of products by attribute, read off the products of its terms' rows, taken in pairs."""
    products = [term.over(domain) for term in table.terms]
    axes = [domain.axis(name) for name in names]
    squares = np.zeros(tuple(table.row_counts(domain).values()))
    for left, a in zip(table.terms, products, strict=True):
        for right, b in zip(table.terms, products, strict=True):
            part = np.array(float(left.coefficient * right.coefficient))
            for i in axes:
                part = np.multiply.outer(part, _row_products(a[i], b[i], table.name))
            squares += part
    parts = _as_product(np.sqrt(np.maximum(squares, 0.0)))
    if parts is None:
        raise Unsupported(
            f"table {table.name!r} is a sum of products whose queries have norms that are not a product over its "
            "attributes, so it cannot be scaled as one table: give rows that ask for different numbers of cells as "
            "tables of their own"
        )
    return parts


def _rows(factor: LinearOperator, norms: np.ndarray | None) -> LinearOperator:
    return factor if norms is None else RowScaled(factor, 1.0 / norms)


def rows_divided(table: Table, norms: tuple[float, dict[str, np.ndarray]]) -> Table:
    """A table whose terms all mention its attributes, with each query divided by what :func:`query_norms` gave."""
    shared, uneven = norms
    terms = [
        Term(t.coefficient, {name: _rows(f, uneven.get(name)) for name, f in t.factors.items()})
        for t in table.terms
    ]
    return Table.of_terms(table.name, terms, divided(table.weight, shared), table.labels)


def _summed_over(names: Sequence[str], domain: Domain) -> float:
    """The norm that the totals over some attributes contribute."""
    return float(np.prod([np.sqrt(domain[name].size) for name in names]))


def divided(weight: Fraction, norm: float) -> Fraction:
    """A weight over a norm, within 1e-15 of it."""
    return weight * Fraction(repr(1.0 / norm))


def _row_products(a: LinearOperator, b: LinearOperator, name: str) -> np.ndarray:
    """``sum_j a_rj b_rj`` for every row r, (m,)."""
    if a == b:
        return row_norms(a) ** 2
    if a.shape[0] * a.shape[1] > _READ:
        raise Unsupported(
            f"table {name!r} is a sum of products with factors of {a.shape[0]:,} x {a.shape[1]:,} entries, too large "
            "to read through for the norms of its queries: give its parts as tables of their own"
        )
    return np.einsum("rj,rj->r", a.dense().astype(np.float64), b.dense().astype(np.float64))


def _as_product(norms: np.ndarray) -> list[np.ndarray] | None:
    """Vectors whose outer product is ``norms``, positive; None where there are none."""
    largest = norms.max(initial=0.0)
    if not (norms > _PRODUCT * largest).all():
        return None
    if norms.ndim == 0:
        return []
    corner = np.unravel_index(np.argmax(norms), norms.shape)
    parts = [norms[(*corner[:k], slice(None), *corner[k + 1 :])] / largest for k in range(norms.ndim)]
    product = largest
    for part in parts:
        product = np.multiply.outer(product, part)
    if np.abs(product - norms).max() > _PRODUCT * largest:
        return None
    return [largest * parts[0], *parts[1:]]
