"""Marginals of optimised queries: OPT_M with a matrix of its own for each attribute, for Laplace noise.

OPT_M crosses cells, ``(x)_{i in a} I (x)_{i not in a} 1'``. Here each attribute has a p-Identity matrix A_i in place
of I (prefix sums and ranges are better answered from few wide queries than from cells):

    blocks  (x)_{i in a} A_i (x)_{i not in a} 1'  of weight theta_a,   sensitivity  sum_a theta_a,

as columns of A_i have L1 norm 1. With ``X_i = A_i'A_i``, ``u_i = X_i^-1 1`` and ``g_i = 1'u_i`` the blocks lie on the
lattice of attribute sets (:mod:`.lattice_information`): a product ``c (x)_i V_i`` of W'W has there the components

    f_S = c  prod_{i in S} beta_i  prod_{i not in S} gamma_i,    gamma = u'V u / g,   beta = tr[X^-1 V] - gamma,

and the loss is that of OPT_M with g_i for n_i: ``(sum_a theta_a)^2 sum_S f_S / kappa_S``. So weights are found by
the same search, and only (g, beta, gamma) tell one A_i from another. Totals are measured by blocks that do not cross
the attribute, so that A_i is better optimised beside a total that comes free, at a precision t: t = 0 makes A_i
the best matrix alone, infinite t the best for what the total leaves open. Each attribute takes the best of a few.

Under Gaussian noise residual groups contain all of this (:mod:`.residual`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import Dense, Identity, LinearOperator, Partition, Total
from ..block import crossing, short_scale
from ..bounds.dual import asks_cells_and_totals, identity_and_ones
from ..gram import WIDEST, dense_grams, is_definite, lifted
from ..methods import Settings, register
from ..rounding import FINEST
from ..strategy import Strategy
from .kron import rows_of
from .marginal_moves import MarginalProblem
from .marginals import opt_marginals_gaussian, opt_marginals_laplace
from .opt0 import full_optimum

MOST_ATTRIBUTES = 16
# Precisions of the free total, relative to the best matrix's own
_STEPS = 2.0  # eigendecompositions' worth of the shortest search for a p-Identity matrix
_FREE = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_BITS = 34  # of a block's grid: with the logarithm of the number of records they must stay below 63
_ROUNDS = 4


@dataclass(frozen=True)
class _Basis:
    """A (m x n, columns of L1 norm 1) with g and, for each matrix V that is asked, (gamma, beta)."""

    matrix: np.ndarray | None  # None: the identity
    total: float
    parts: np.ndarray  # (matrices asked, 2)

    @classmethod
    def of(cls, matrix: np.ndarray | None, grams: Sequence[np.ndarray]) -> _Basis:
        n = len(grams[0])
        inverse = np.eye(n) if matrix is None else np.linalg.inv(matrix.T @ matrix)
        u = inverse.sum(axis=1)
        total = float(u.sum())
        parts = np.zeros((len(grams), 2))
        for k, V in enumerate(grams):
            gamma = float(u @ V @ u) / total
            # A total has no part beside the mean: its difference would be rounding.
            flat = np.ptp(V) == 0
            parts[k] = gamma, 0.0 if flat else max(float(np.vdot(inverse, V)) - gamma, 0.0)
        return cls(matrix, total, parts)


@dataclass(frozen=True)
class _Asked:
    """W'W as ``sum_l c_l (x)_i V_i[index_li]``, each different matrix of an attribute held once."""

    coefficients: np.ndarray
    index: np.ndarray
    grams: list[list[np.ndarray]]

    @classmethod
    def of(cls, workload: Workload, attributes: Sequence[int]) -> _Asked:
        """Over the given attributes, the others being constant factors of 1 x 1."""
        terms = dense_grams(workload)
        coefficients = np.array([c for c, _ in terms])
        for i in set(range(len(workload.domain.shape))) - set(attributes):
            coefficients = coefficients * np.array([float(grams[i][0, 0]) for _, grams in terms])
        index, held = np.zeros((len(terms), len(attributes)), dtype=np.int64), []
        for at, i in enumerate(attributes):
            place: dict[int, int] = {}
            column = [grams[i] for _, grams in terms]
            index[:, at] = [place.setdefault(id(V), len(place)) for V in column]
            first = [int(np.flatnonzero(index[:, at] == k)[0]) for k in range(len(place))]
            held.append([(column[j] + column[j].T) / 2 for j in first])
        return cls(coefficients, index, held)

    def importance(self, attribute: int) -> np.ndarray:
        """Of each matrix of an attribute: the share of a budget that its tables take when cells are measured."""
        losses = np.abs(self.coefficients)
        for column, grams in zip(self.index.T, self.grams, strict=True):
            losses = losses * np.array([np.trace(V) for V in grams])[column]
        asked = self.index[:, attribute]
        return np.bincount(asked, weights=np.cbrt(losses), minlength=len(self.grams[attribute]))

    def components(self, bases: Sequence[_Basis]) -> np.ndarray:
        """f_S for every set of attributes, (2^d,); attribute 0 is the highest bit."""
        out = np.zeros(2 ** len(bases))
        for c, row in zip(self.coefficients, self.index, strict=True):
            out += c * _products([basis.parts[k] for basis, k in zip(bases, row, strict=True)])
        return np.maximum(out, 0.0)

    def as_asked(self, bases: Sequence[_Basis]) -> np.ndarray:
        """theta of every product measured alone, split as by OPT_+, (2^d,)."""
        theta = np.zeros(2 ** len(bases))
        for c, row in zip(self.coefficients, self.index, strict=True):
            parts = [basis.parts[k] for basis, k in zip(bases, row, strict=True)]
            crossed = sum(2 ** (len(bases) - 1 - i) for i, (_, beta) in enumerate(parts) if beta > 0)
            factors = [
                sum(part) if part[1] > 0 else part[0] / basis.total
                for part, basis in zip(parts, bases, strict=True)
            ]
            theta[crossed] += np.cbrt(abs(c * float(np.prod(factors))))
        return theta


def _products(pairs: Sequence[np.ndarray]) -> np.ndarray:
    return reduce(lambda done, pair: np.multiply.outer(done, pair).ravel(), pairs, np.ones(1))


def _pays(merged: Workload) -> bool:
    """Whether no other method solves the same problem.

    Of one attribute it is a p-Identity and the total, which may be one of its rows: "opt0" searches these. Where cells
    and totals are all that is asked, no other matrix than the cells would be tried: "marginals" weighs these.
    """
    return sum(n > 1 for n in merged.domain.shape) > 1 and not asks_cells_and_totals(merged)


@register(
    "optimised-marginals",
    "OPT_M with an optimised matrix for each attribute",
    families=("auto",),
    turn=6,
    pays=lambda workload, settings: _pays(workload.merge()[0]),
    noises=("laplace",),
    otherwise='optimised marginals are for Laplace noise; under Gaussian noise "residual" searches a larger family',
)
def optimised_marginals_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Marginals in which each attribute's cells are replaced by a matrix that is optimised for its queries.

    Raises :class:`~tabulae.errors.Unsupported` for Gaussian noise, more than 16 attributes that are told apart, or an
    attribute of more than 8,192 distinguishable cells.

    Reference: HDMM, sections 4.3 (p-Identity) and 8 (OPT_M), which this joins.

    >>> from tabulae.linalg import Prefix
    >>> from tabulae.domain import Domain, Table
    >>> tables = [Table("age", {"age": Prefix(20)}), Table("sex", {"sex": Identity(2)})]
    >>> strategy = optimised_marginals_strategy(Workload(Domain({"sex": 2, "age": 20}), tables), Settings("laplace"))
    >>> [block.name for block in strategy.blocks]
    ['age', 'sex']
    """
    merged, merges = workload.merge()
    attributes = [i for i, n in enumerate(merged.domain.shape) if n > 1]
    if len(attributes) > MOST_ATTRIBUTES or max(merged.domain.shape) > WIDEST:
        raise Unsupported(
            f"{len(attributes)} attributes of up to {max(merged.domain.shape):,} distinguishable cells; optimised "
            f'marginals list all sets of at most {MOST_ATTRIBUTES} attributes of {WIDEST:,} cells. Choose "kron" or '
            '"union"'
        )
    if not attributes:
        raise Unsupported('the tables ask for nothing but totals: choose "workload"')
    asked = _Asked.of(merged, attributes)
    rows = rows_of(settings, workload.domain.names)
    bases = _chosen(asked, _candidates(asked, [rows[i] for i in attributes], settings), settings)
    theta = _weights(asked, bases, settings)
    return _measured(workload, merges, attributes, bases, theta, settings)


def _weights(asked: _Asked, bases: Sequence[_Basis], settings: Settings) -> np.ndarray:
    return opt_marginals_laplace(
        [b.total for b in bases],  # type: ignore[arg-type]  # the total's variance g stands for the number of cells
        asked.components(bases),
        asked.as_asked(bases),
        restarts=settings.restarts,
        seed=settings.seed,
        deadline=settings.deadline,
    ).weights


def _candidates(asked: _Asked, rows: Sequence[int | None], settings: Settings) -> list[list[_Basis]]:
    """For each attribute the matrices to choose from; attributes that ask the same share them."""
    known: dict[tuple[object, ...], list[_Basis]] = {}
    found = []
    for i, (grams, limit) in enumerate(zip(asked.grams, rows, strict=True)):
        importance = asked.importance(i)
        varying = [k for k, V in enumerate(grams) if np.ptp(V) > 0 and is_definite(V)]
        # One matrix beside totals has the same optimum however important it is.
        key = (
            limit,
            *(V.tobytes() for V in grams),
            importance[varying].tobytes() if len(varying) > 1 else b"",
        )
        if key not in known:
            wanted = sum(
                (importance[k] * grams[k] / np.trace(grams[k]) for k in varying), np.zeros_like(grams[0])
            )
            known[key] = _of_attribute(grams, wanted, limit, settings)
        found.append(known[key])
    return found


def _of_attribute(
    grams: list[np.ndarray], wanted: np.ndarray, rows: int | None, settings: Settings
) -> list[_Basis]:
    """The cells; and where more than cells and totals is asked, p-Identity matrices beside freer and freer totals."""
    cells = _Basis.of(None, grams)
    if all(identity_and_ones(V) is not None for V in grams):
        return [cells]
    settings.check_time(len(wanted), steps=_STEPS)
    best = full_optimum(
        wanted, rows=rows, restarts=settings.starts, seed=settings.seed, deadline=settings.deadline
    )
    theta, bases = best.theta, [cells, _Basis.of(best.strategy, grams)]
    own = bases[1].total
    for free in _FREE:
        if settings.late:
            break
        best = full_optimum(wanted, rows=rows, start=theta, free=free / own, deadline=settings.deadline)
        theta = best.theta
        bases.append(_Basis.of(best.strategy, grams))
    return bases


def _chosen(asked: _Asked, candidates: list[list[_Basis]], settings: Settings) -> list[_Basis]:
    """The best candidates together: all attributes at the same freedom first, then one attribute at a time."""
    if all(len(c) == 1 for c in candidates):
        return [c[0] for c in candidates]
    longest = max(len(c) for c in candidates)
    trials = [[c[min(k, len(c) - 1)] for c in candidates] for k in range(longest)]
    bases, theta, loss = min((_settled(asked, trial) for trial in trials), key=lambda found: found[2])
    for _ in range(_ROUNDS):
        before = loss
        for i, choices in enumerate(candidates):
            for choice in choices:
                trial = [*bases[:i], choice, *bases[i + 1 :]]
                reached = _loss(asked, trial, theta)
                if reached < loss:
                    bases, loss = trial, reached
        bases, theta, loss = _settled(asked, bases, theta)
        if loss > before * (1 - 1e-4) or settings.late:
            break
    return bases


def _settled(
    asked: _Asked, bases: list[_Basis], theta: np.ndarray | None = None
) -> tuple[list[_Basis], np.ndarray, float]:
    """Weights by one descent, from those given or from the optimum under L2 sensitivity."""
    sizes, components = [b.total for b in bases], asked.components(bases)
    problem = MarginalProblem(sizes, components)  # type: ignore[arg-type]
    if theta is None:
        v = opt_marginals_gaussian(sizes, components, tolerance=1e-2).weights  # type: ignore[arg-type]
        usual = v ** (2 / 3)
        theta = np.where(components > 0, np.maximum(usual, 1e-2 * usual.max()), 0.0)
    theta = problem.pruned(problem.descend(theta, 1), 1)
    return bases, theta, problem.loss(theta, 1) * problem.scale


def _loss(asked: _Asked, bases: Sequence[_Basis], theta: np.ndarray) -> float:
    problem = MarginalProblem([b.total for b in bases], asked.components(bases))  # type: ignore[arg-type]
    return problem.loss(theta, 1) * problem.scale


def _measured(
    workload: Workload,
    merges: Sequence[Partition],
    attributes: Sequence[int],
    bases: Sequence[_Basis],
    theta: np.ndarray,
    settings: Settings,
) -> Strategy:
    """The blocks with weight, on a grid fine enough for the one that crosses most real-valued matrices."""
    d = len(attributes)
    sets = [
        (a, frozenset(i for i in range(d) if a >> (d - 1 - i) & 1))
        for a in np.flatnonzero(theta > 0).tolist()
    ]
    real = frozenset(i for i, basis in enumerate(bases) if basis.matrix is not None)
    bits = min(FINEST, _BITS // max(1, *(len(members & real) for _, members in sets)))
    factors: list[LinearOperator] = [Total(n) for n in workload.domain.shape]
    for basis, i in zip(bases, attributes, strict=True):
        factors[i] = _on_grid(basis.matrix, merges[i], bits)
    blocks = []
    for a, members in sets:
        crossed, exponent = {attributes[i] for i in members}, bits * len(members & real)
        blocks.append(
            crossing(workload.domain.names, crossed, factors, exponent, short_scale(float(theta[a])))
        )
    return Strategy(workload.domain, tuple(blocks), settings.noise, "optimised-marginals")


def _on_grid(matrix: np.ndarray | None, merge: Partition, bits: int) -> LinearOperator:
    """``round(2^bits A)`` with the cells' own rows adjusted, so that every column still sums to 2^bits."""
    if matrix is None:
        return lifted(Identity(merge.shape[0]), merge)
    n = matrix.shape[1]
    wide = np.rint(np.ldexp(matrix[n:], bits)).astype(np.int64)
    cells = 2**bits - wide.sum(axis=0)
    if (cells < 1).any():
        raise Unsupported(f'a p-Identity matrix loses cells on a grid of 2^-{bits}: choose "marginals"')
    return lifted(Dense(np.vstack([np.diag(cells), wide[wide.any(axis=1)]])), merge)
