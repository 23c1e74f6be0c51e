"""Least squares from residual groups, table by table and without a data vector: the ``residual`` route.

Every block is ``(x)_{i in S} B_i (x)_{i not in S} 1'`` for a set S of attributes of its own, with one B_i for each
attribute and no multiple of the total among the combinations of B_i's rows. Then the blocks' row spaces are
independent: with ``[a_i, Z_i] = W_i Q_i`` (see :mod:`.residual_basis`) a table ``(x)_i W_i`` has the coefficients

    (x)_{i in S} Z_i  (x)_{i not in S} a_i          on block S,

and answers, variances and sums of powers of coefficients are Kronecker products over the attributes that it crosses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...domain import Workload
from ...linalg import LinearOperator, Total
from ..block import kron_sum, products
from .protocol import (
    MeasuredStrategy,
    Profile,
    coefficient_statistics,
    is_flat,
    kron_vectors,
    one_matrix_each,
    pairs,
    refuse_not_estimable,
    scaled,
    sum_bounds,
)
from .residual_basis import CANCELLED, Basis, Set, SetSums, basis_of, subsets

_EXPAND = 2**24  # coefficients of a sum of products that are written out for exact statistics
_FEW = 8  # terms whose coefficients meet pair by pair
_NOTHING = 1e-11  # of a query's row sums: what a total's coefficient may differ from zero by rounding


@dataclass(frozen=True)
class Structure:
    """The residual groups of a strategy: each attribute's basis (None where no block has one), each block's set."""

    bases: tuple[Basis | None, ...]
    sets: tuple[Set, ...]


def structure_of(strategy: MeasuredStrategy) -> Structure | None:
    """The residual groups that the blocks are, recognised from the blocks alone; None for anything else."""
    found = one_matrix_each(strategy)
    if found is None or len(set(found[1])) < len(found[1]):
        return None
    factors, sets = found
    bases = {i: basis_of(f) for i, f in factors.items()}
    if not all(basis.independent for basis in bases.values()):
        return None
    return Structure(tuple(bases.get(i) for i in range(len(strategy.domain.shape))), tuple(sets))


@dataclass(frozen=True)
class _Term:
    """One product of a table: its factors, the attributes that it crosses, the sets that it has a part in."""

    coefficient: int
    factors: tuple[LinearOperator, ...]
    crossed: Set
    sets: tuple[Set, ...]


class ResidualInformation:
    """P of residual groups: block-diagonal over the sets of attributes."""

    route = "residual"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        structure = structure_of(strategy)
        assert structure is not None
        self._bases = structure.bases
        self._sets = structure.sets
        self._block = {s: b for b, s in enumerate(structure.sets)}
        self._units = np.array([2.0**-block.exponent for block in strategy.blocks])
        self._variance = np.array(variances) / self._units**2  # of answers in steps of the grid

    def _basis(self, axis: int) -> Basis:
        basis = self._bases[axis]
        if basis is None:
            raise refuse_not_estimable()
        return basis

    def _terms(self, operator: LinearOperator) -> list[_Term]:
        terms = [self._term(c, factors) for c, factors in products(operator)]
        missing = dict.fromkeys(s for term in terms for s in term.sets if s not in self._block)
        if missing and (len(terms) == 1 or not self._cancelled(terms, list(missing))):
            raise refuse_not_estimable()
        return terms

    def _term(self, coefficient: int, factors: tuple[LinearOperator, ...]) -> _Term:
        crossed = tuple(i for i, f in enumerate(factors) if not is_flat(f))
        needed: list[Set] = [()]
        for i in crossed:
            total = np.abs(self._basis(i).squares(factors[i]).total).max(initial=0.0)
            centred = total <= _NOTHING * factors[i].abs_row_sum_max()
            needed = [s + more for s in needed for more in (((i,),) if centred else ((), (i,)))]
        return _Term(coefficient, factors, crossed, tuple(needed))

    def _cancelled(self, terms: Sequence[_Term], sets: Sequence[Set]) -> bool:
        """Whether the terms' coefficients on sets that are not measured add up to nothing."""
        for s in sets:
            concerned = [t for t in terms if s in t.sets]
            left = self._overlap(concerned, s)
            single = sum(float(self._overlap([t], s).sum()) for t in concerned)
            if left.sum() > CANCELLED * single:
                return False
        return True

    def _overlap(self, terms: Sequence[_Term], s: Set) -> np.ndarray:
        """``sum z^2`` on set S of each row of a sum of products, (m,)."""
        if len(terms) > _FEW and self._numbers(terms, s) <= _EXPAND:
            total = np.square(self._expanded(terms, s)).sum(axis=1)
            size = np.sum([self._product(term, term, s) for term in terms], axis=0)
        else:
            total, size = np.zeros(1), np.zeros(1)
            for times, one, other in pairs(terms):
                part = times * self._product(one, other, s)
                total, size = total + part, size + np.abs(part)
        # Or noise of any size would be let in by rounding
        return np.where(total > CANCELLED * size, total, 0.0)

    def _product(self, one: _Term, other: _Term, s: Set) -> np.ndarray:
        """Row-wise inner products of two products' coefficients on set S, (m,)."""
        sides = enumerate(zip(one.factors, other.factors, strict=True))
        vectors = [self._cross(i, p, q, inside=i in s) for i, (p, q) in sides]
        return one.coefficient * other.coefficient * kron_vectors(vectors)

    def _numbers(self, terms: Sequence[_Term], s: Set) -> int:
        """How many coefficients the rows have on set S."""
        rows = math.prod(factor.shape[0] for factor in terms[0].factors)
        return rows * math.prod(self._basis(i).rows for i in s)

    def _cross(self, axis: int, one: LinearOperator, other: LinearOperator, *, inside: bool) -> np.ndarray:
        """Row-wise inner products of two queries' coefficients: on the residuals (inside) or on the total."""
        if not inside:
            return self._totals(axis, one) * self._totals(axis, other)
        basis = self._basis(axis)
        if one == other:
            found = basis.squares(one)
            return found.spread[0][found.inverse]
        return (basis.dense(one)[:, 1:] * basis.dense(other)[:, 1:]).sum(axis=1)

    def _totals(self, axis: int, query: LinearOperator) -> np.ndarray:
        if is_flat(query):
            return _entries(query)
        found = self._basis(axis).squares(query)
        return found.total[found.inverse]

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers, (m,): one Kronecker product over the groups' answers side by side."""
        total = np.zeros(operator.shape[0])
        for term in self._terms(operator):
            total += term.coefficient * self._answer(term, answers)
        return total

    def _answer(self, term: _Term, answers: Sequence[np.ndarray]) -> np.ndarray:
        bases = [self._basis(i) for i in term.crossed]
        table = np.zeros([1 + b.rows for b in bases])
        for s in subsets(term.crossed):
            if s in self._block:
                place = tuple(slice(1, None) if i in s else slice(0, 1) for i in term.crossed)
                b = self._block[s]
                table[place] = (np.asarray(answers[b], float) / self._units[b]).reshape(table[place].shape)
        values = table.reshape(1, -1)
        for axis, query in enumerate(term.factors):
            if axis not in term.crossed:
                values = (values[:, None, :] * _entries(query)[:, None]).reshape(-1, values.shape[1])
                continue
            basis = self._basis(axis)
            values = values.reshape(len(values), 1 + basis.rows, -1)
            values = basis.over_cells(query).along(basis.expand(values))
            values = values.reshape(-1, values.shape[2])
        return values.reshape(-1)

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W'), (m,)."""
        terms = self._terms(operator)
        if len(terms) > 1:
            measured = dict.fromkeys(s for t in terms for s in t.sets if s in self._block)
            parts = ((s, [t for t in terms if s in t.sets]) for s in measured)
            return sum(
                (self._variance[self._block[s]] * self._overlap(some, s) for s, some in parts),
                np.zeros(operator.shape[0]),
            )
        term = terms[0]
        distinct, inverse = self._by_set(term, [0])
        variances = np.array([self._variance[self._block[s]] for s in term.sets])
        return term.coefficient**2 * (variances @ distinct[0])[inverse]

    def _by_set(self, term: _Term, kinds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Statistics of a product's coefficients (kinds, its sets, distinct rows), and each row's place."""
        sides, inverse = {}, np.zeros(1, dtype=np.int64)
        for axis, query in enumerate(term.factors):
            if isinstance(query, Total):  # one row, whose only coefficient is 1
                continue
            pair, places = self._both(axis, query, kinds, squares=len(kinds) == 1)
            sides[axis] = pair
            inverse = np.add.outer(inverse * pair.shape[2], places).ravel()
        shape = (len(kinds), len(term.sets), math.prod(pair.shape[2] for pair in sides.values()))
        out = np.empty(shape)
        for k in range(len(kinds)):
            for position, s in enumerate(term.sets):
                out[k, position] = kron_vectors([pair[k, int(i in s)] for i, pair in sides.items()])
        return out, inverse

    def _both(
        self, axis: int, query: LinearOperator, kinds: Sequence[int], *, squares: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Statistics of one attribute's coefficients on the total and on the residuals, (kinds, 2, distinct)."""
        if is_flat(query):
            total, inverse = np.unique(_entries(query), return_inverse=True)
            spread = np.zeros((5, len(total)))
        else:
            basis = self._basis(axis)
            found = basis.squares(query) if squares else basis.coefficients(query)
            total, spread, inverse = found.total, found.spread, found.inverse
        alone = coefficient_statistics(total[:, None])
        return np.stack([[alone[k], spread[k]] for k in kinds]), inverse.reshape(-1)

    def total(self, workload: Workload) -> float:
        """Total weighted variance through W'W: nothing is done per query."""
        for table in workload.tables:
            self._terms(table.operator(workload.domain))
        return float(set_shares(workload, self._bases, self._sets) @ self._variance)

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of the coefficients on the blocks that take part; exact wherever they can be written out."""
        terms = self._terms(operator)
        if len(terms) == 1:
            stats, inverse = self._by_set(terms[0], range(5))
            return self._profile(scaled(stats, abs(terms[0].coefficient)), terms[0].sets, inverse=inverse)
        sets = tuple(dict.fromkeys(s for t in terms for s in t.sets if s in self._block))
        stats, exact = np.zeros((5, len(sets), operator.shape[0])), True
        for position, s in enumerate(sets):
            some = [t for t in terms if s in t.sets]
            if self._numbers(some, s) <= _EXPAND:
                stats[:, position] = coefficient_statistics(self._expanded(some, s))
            else:
                stats[:, position], exact = self._bounded(some, s), False
        return self._profile(stats, sets, exact=exact)

    def _expanded(self, terms: Sequence[_Term], s: Set) -> np.ndarray:
        """The coefficients on set S written out, (m, rows of the block)."""
        return kron_sum(
            [
                (
                    term.coefficient,
                    [
                        self._basis(i).dense(query)[:, 1:] if i in s else self._totals(i, query)[:, None]
                        for i, query in enumerate(term.factors)
                    ],
                )
                for term in terms
            ]
        )

    def _bounded(self, terms: Sequence[_Term], s: Set) -> np.ndarray:
        """Upper bounds of the statistics on set S, (5, m)."""
        parts, noise = [], math.prod(self._basis(i).rows for i in s)
        for term in terms:
            stats, inverse = self._by_set(term, range(5))
            parts.append(scaled(stats[:, term.sets.index(s)][:, inverse], abs(term.coefficient)))
        return sum_bounds(parts, self._overlap(terms, s), noise)

    def _profile(
        self, stats: np.ndarray, sets: Sequence[Set], *, exact: bool = True, inverse: np.ndarray | None = None
    ) -> Profile:
        """The statistics in units of the blocks' answers."""
        blocks = tuple(self._block[s] for s in sets)
        kinds = scaled(stats, 1 / self._units[list(blocks)])
        return Profile(*kinds, exact=exact, blocks=blocks, inverse=inverse)


def _entries(query: LinearOperator) -> np.ndarray:
    """What each row of a flat query counts every cell with, (m,)."""
    if isinstance(query, Total):
        return np.ones(1)
    return np.asarray(query.columns(np.zeros(1, dtype=np.int64))[:, 0], dtype=float)


def set_shares(workload: Workload, bases: Sequence[Basis | None], sets: Sequence[Set]) -> np.ndarray:
    """v_S: the total squared error, weights included, that unit noise on each group brings."""
    coefficients, beta, gamma, mentions = gram_shares(workload, bases)
    sums = SetSums(tuple(sets), mentions)
    shares = sums.values(coefficients, beta, gamma)
    size = sums.values(np.abs(coefficients), np.abs(beta), np.abs(gamma))
    return np.where(shares > CANCELLED * size, shares, 0.0)


GramShares = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[Set, ...]]


def gram_shares(workload: Workload, bases: Sequence[Basis | None]) -> GramShares:
    """What W'W asks of each attribute, term by term: coefficients (t,), beta and gamma (t, d), attributes crossed.

    ``beta`` is 0 beside the attributes crossed; ``gamma`` there is folded into the coefficient.
    """
    terms = workload.gram_terms()
    known: list[dict[LinearOperator, tuple[float, float]]] = [{} for _ in bases]
    beta, gamma = np.zeros((len(terms), len(bases))), np.ones((len(terms), len(bases)))
    coefficients, mentions = np.array([c for c, _ in terms]), []
    for t, (_, grams) in enumerate(terms):
        crossed = []
        for i, gram in enumerate(grams):
            if gram not in known[i]:
                known[i][gram] = _traces(bases[i], gram)
            beta[t, i], gamma[t, i] = known[i][gram]
            if beta[t, i]:
                crossed.append(i)
            else:
                coefficients[t] *= gamma[t, i]
        mentions.append(tuple(crossed))
    return coefficients, beta, gamma, tuple(mentions)


def _traces(basis: Basis | None, gram: LinearOperator) -> tuple[float, float]:
    if basis is not None:
        return basis.traces(gram)
    return 0.0, float(gram.columns(np.zeros(1, dtype=np.int64))[0, 0])  # a multiple of J: nobody asks more
