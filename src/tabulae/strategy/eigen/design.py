"""The Eigen-Design algorithm (Program 2): design sets, their weights, completed columns.

With ``V = W'W = sum_i sigma_i q_i q_i'`` the design queries are the eigenvectors of non-zero eigenvalue, and their
costs are the eigenvalues: the weights of Program 1 minimise ``sum_i sigma_i / lambda_i^2``. Columns of
``A' = diag(lambda) Q`` whose norm stays below the largest are filled up, each by one query of its cell alone, which
costs no privacy and can only help. The result depends on V alone, and follows a reordering of cells (Propositions 5
and 6).

Eigen-query separation (section 4.2). The eigen-queries, largest eigenvalue first, are cut into groups. Program 1 inside
each group decides how its queries compare; a group G at these weights costs ``loss_G`` and adds ``N_Gj`` to column j,
and Program 1 again, with groups for queries, decides how they compare: minimise ``sum_G loss_G t_G^-a`` over
``N't <= 1``. Weights inside a group matter little beside those of groups, so they are settled to a per cent alone. The
multipliers of the last problem are multipliers of the whole one too, and so are those of the groups, added up by what
each group costs in the end: one product with B makes either a bound on all weights, and the better is kept.

Principal vectors (section 4.2). k eigenvectors ``q_i`` of the largest eigenvalues have weights of their own, all others
one in common. For Gaussian noise and V of full rank no other eigenvector is computed: together they cost ``tr V - sum_i
sigma_i``, they add ``lambda^2 (1 - sum_i q_ij^2)`` to column j, and asking them all is asking the rows of the
projection ``I - sum_i q_i q_i'``. For V of lower rank that would ask for what nobody wants, and the L1 norm of columns
depends on the vectors themselves: there the others are computed.

Classes of cells that the workload does not tell apart. A strategy for one cell of each class, copied to all its cells,
costs and errs the same. Eigenvectors differ: those of the whole are ``q = u' D^-1/2`` on each cell of a class, D the
sizes of the classes and u the eigenvectors of ``D^1/2 V D^1/2``, with the same eigenvalues for costs. So either design
is made from matrices over the classes. Which is better is chance: the optimum is the same whatever D is.

Other design sets go by name or are given. Of several attributes a named set is the Kronecker product of the attributes'
own. Wavelet and Fourier rows are bases, whose costs are known at once; trees and the workload's own rows depend on
each other (:mod:`..eigen.weighting`).

Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import LinearOperator
from ..classic.cubes import fourier_basis
from ..classic.trees import haar, level_counts, tree
from ..deadline import now
from ..gram import asked_gram, checked_gram, explicit_gram, gram_spectrum
from .weighting import (
    QueryWeights,
    check_options,
    checked_design,
    norm_weighting,
    outside,
    query_weighting,
    row_space,
    weigh_few,
    weighting_bound,
)

_FULL = 1e-5  # share of the largest column norm below which a column is full


@dataclass(frozen=True)
class WeightedDesign:
    """A strategy made of weighted design queries and completed columns.

    ``queries`` (k, n) and ``weights`` are what Program 1 decided; ``completion`` (n,) is how strongly each cell is
    asked beside them. ``strategy`` stacks both, with largest column norm 1.
    """

    queries: np.ndarray
    weights: QueryWeights
    completion: np.ndarray
    p: int

    @property
    def strategy(self) -> np.ndarray:
        """A (r, n): for Gaussian noise and columns that are safely independent the triangular root of A'A."""
        weighted = self.weights.weights[:, None] * self.queries
        if self.p == 2:
            root = _triangular(weighted, self.completion)
            if root is not None:
                return root
        stacked = np.vstack([weighted, np.diag(self.completion)])
        return stacked[stacked.any(axis=1)]


def eigen_queries(gram: np.ndarray, sizes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvectors (r, n) of a workload's Gram matrix V (n, n) of rank r, as rows, and their eigenvalues (r,).

    With ``sizes`` (n,) V is of one cell of each class, and so are the rows: those of all cells, cut to one of each. The
    largest eigenvalue comes first. Raises :class:`~tabulae.errors.InvalidArgument` for what is no Gram matrix.

    >>> rows, values = eigen_queries(np.eye(2), np.array([4, 1]))  # the sum of four cells, and a fifth
    >>> np.abs(rows).tolist(), values.tolist()
    ([[0.5, 0.0], [0.0, 1.0]], [4.0, 1.0])
    """
    whole, root = _of_all_cells(asked_gram(gram), sizes)
    values, vectors = gram_spectrum(whole)
    return np.ascontiguousarray(vectors[:, ::-1].T / root), values[::-1]


def _of_all_cells(gram: np.ndarray, sizes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """``D^1/2 V D^1/2``, whose spectrum is that of V over all cells, and the diagonal of D^1/2."""
    root = np.ones(len(gram)) if sizes is None else np.sqrt(sizes)
    return gram * np.outer(root, root), root


def eigen_design(
    gram: np.ndarray,
    *,
    sizes: np.ndarray | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
) -> WeightedDesign:
    """Program 2: eigen-queries, their best weights, completed columns, for V = ``gram`` (n, n) of any rank.

    With ``sizes`` (n,) of classes of cells the eigen-queries are those of all cells, and a class is completed as one.

    For p = 1 (Laplace noise, section 3.5) the eigenvectors are one basis of many and seldom the best.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> design = eigen_design(W.T @ W)
    >>> A = design.strategy
    >>> round(float(np.trace(np.linalg.inv(A.T @ A) @ W.T @ W)), 3), design.weights.gap < 1e-6
    (4.929, True)
    """
    queries, values = eigen_queries(gram, sizes)
    weights = query_weighting(queries, values, p=p, tolerance=tolerance, deadline=deadline)
    return completed(queries, weights, p)


def completed(queries: np.ndarray, weights: QueryWeights, p: int) -> WeightedDesign:
    """Steps 4 and 5 of Program 2: what each cell can be asked beside the weighted queries at no cost.

    Column j of Lp norm m_j gets a query of cell j alone with weight ``(max_i m_i^p - m_j^p)^(1/p)``. Columns that lack
    less than 1e-5 are left as they are: weights are known no better than Program 1's tolerance of 1e-6, and queries so
    weak would add rows, and cells that a workload of low rank does not tell apart, for no gain in error.
    """
    norms = (np.abs(queries) ** p).T @ weights.weights**p
    spare = 1 - norms / norms.max()
    spare[spare < _FULL] = 0.0
    return WeightedDesign(queries, weights, (norms.max() * spare) ** (1 / p), p)


def _triangular(weighted: np.ndarray, completion: np.ndarray) -> np.ndarray | None:
    """Upper triangular A with ``A'A = A''A' + diag(completion)^2``, None where that is nearly singular."""
    X = weighted.T @ weighted
    X[np.diag_indices_from(X)] += completion**2
    try:
        root = scipy.linalg.cholesky(X, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    return root if root.diagonal().min() ** 2 > 1e-9 else None


_WITHIN = 1e-2  # relative gap inside a group
_FEW = 1024  # groups that Newton's method compares


def eigen_separation(
    gram: np.ndarray,
    *,
    sizes: np.ndarray | None = None,
    group_size: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
) -> WeightedDesign:
    """Program 2 with eigen-queries weighed in groups of ``group_size`` (about n^(1/3) by default).

    The bound of the weights that are returned is on all weights of the eigen-queries, separated or not.

    >>> i = np.arange(64)
    >>> prefix = 64.0 - np.maximum.outer(i, i)
    >>> design = eigen_separation(prefix, group_size=4)
    >>> bool(0 < design.weights.gap < 0.05)
    True
    """
    queries, values = eigen_queries(gram, sizes)
    weights = separated_weights(
        queries, values, group_size=group_size, p=p, tolerance=tolerance, deadline=deadline
    )
    return completed(queries, weights, p)


def separated_weights(
    queries: np.ndarray,
    costs: np.ndarray,
    *,
    group_size: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
) -> QueryWeights:
    """Weights of design queries Q (k, n) with costs c (k,), in groups of neighbours."""
    check_options(p, tolerance)
    size = max(1, round(queries.shape[1] ** (1 / 3))) if group_size is None else group_size
    if size < 1:
        raise InvalidArgument(f"group_size is {group_size}: a group has at least one query")
    norms = np.square(queries) if p == 2 else np.abs(queries)
    if size >= len(costs):
        return norm_weighting(norms, costs, p=p, tolerance=tolerance, deadline=deadline)
    half = (deadline + now()) / 2  # the rest compares the groups
    members = [slice(start, start + size) for start in range(0, len(costs), size)]
    inside = [norm_weighting(norms[m], costs[m], p=p, tolerance=_WITHIN, deadline=half) for m in members]
    columns = np.array([group.weights**p @ norms[m] for group, m in zip(inside, members, strict=True)])
    losses = np.array([group.loss for group in inside])
    compare = weigh_few if len(inside) <= _FEW else norm_weighting
    between = compare(columns, losses, p=p, tolerance=tolerance, deadline=deadline)
    weights = np.concatenate([t * group.weights for t, group in zip(between.weights, inside, strict=True)])
    spent = losses * between.weights**-2
    added = (spent / spent.sum()) @ np.array([g.multipliers / g.multipliers.sum() for g in inside])
    proofs = [(weighting_bound(norms, costs, mu, p), mu) for mu in (between.multipliers, added)]
    lower, multipliers = max(proofs, key=lambda proof: proof[0])
    return QueryWeights(
        weights,
        between.loss,
        min(lower, between.loss),
        multipliers,
        between.evaluations + sum(group.evaluations for group in inside),
    )


_SHARE, _FEWEST = 0.06, 8  # of the cells: principal vectors by default
_FEW = 1024  # weights that Newton's method settles
_FULL_PRINCIPAL = (
    1e-6  # smallest diagonal of V's triangular root, relative to the largest, that means full rank
)


def principal_vectors(
    gram: np.ndarray,
    *,
    sizes: np.ndarray | None = None,
    vectors: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    deadline: float = np.inf,
) -> WeightedDesign:
    """Program 2 with weights of their own for the ``vectors`` largest eigenvectors alone (6 % of n by default, at least
    8).

    The design's first queries are the principal eigenvectors; its bound is on weights of this kind.

    >>> i = np.arange(64)
    >>> design = principal_vectors(64.0 - np.maximum.outer(i, i), vectors=6)  # prefix sums
    >>> len(design.queries), np.unique(design.weights.weights[6:]).size, design.weights.gap < 1e-6
    (70, 1, True)
    """
    check_options(p, tolerance)
    V, root = _of_all_cells(checked_gram(gram), sizes)
    k = max(_FEWEST, round(_SHARE * len(V))) if vectors is None else vectors
    if k < 1:
        raise InvalidArgument(f"vectors is {vectors}: at least one eigenvector has a weight of its own")
    if p == 2 and k < len(V) and _full_rank(V):
        queries, costs, norms = _principal(V, root, k)
    else:
        queries, values = eigen_queries(gram, sizes)
        k = min(k, len(queries))
        queries, costs, norms = _listed(queries, values, k, p)
    weigh = weigh_few if len(costs) <= _FEW else norm_weighting
    found = weigh(norms, costs, p=p, tolerance=tolerance, deadline=deadline)
    return completed(queries, _spread(found, k, len(queries)), p)


def _principal(gram: np.ndarray, root: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, costs (k + 1,) and squared norms (k + 1, n) for V of full rank; the last stand for all others."""
    n = len(gram)
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=[n - k, n - 1], check_finite=False)
    top = np.ascontiguousarray(vectors[:, ::-1].T)
    squares = np.square(top)
    others = np.eye(n) - top.T @ top
    rest = max(float(np.trace(gram)) - float(values.sum()), float(values[0]) * np.finfo(float).eps)
    norms = np.vstack([squares, np.maximum(1.0 - squares.sum(axis=0), 0.0)])
    return np.vstack([top, others]) / root, np.append(values[::-1], rest), norms / root**2


def _listed(
    queries: np.ndarray, values: np.ndarray, k: int, p: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same from all eigenvectors (r, n) of non-zero eigenvalue."""
    norms = np.square(queries) if p == 2 else np.abs(queries)
    if k == len(queries):
        return queries, values, norms
    return (queries, np.append(values[:k], values[k:].sum()), np.vstack([norms[:k], norms[k:].sum(axis=0)]))


def _spread(found: QueryWeights, k: int, rows: int) -> QueryWeights:
    """One weight for each row: those after the first k share the last."""
    return replace(found, weights=np.concatenate([found.weights[:k], np.full(rows - k, found.weights[-1])]))


def _full_rank(gram: np.ndarray) -> bool:
    """Whether a triangular root of V shows it to be far from singular."""
    try:
        root = scipy.linalg.cholesky(gram, check_finite=False).diagonal()
    except scipy.linalg.LinAlgError:
        return False
    return bool(root.min() > _FULL_PRINCIPAL * root.max())


_MOST = 4  # rows for each cell
_REPEATED = 4  # times as many, where the workload may repeat rows


def design_rows(
    design: str | np.ndarray | LinearOperator, workload: Workload, gram: np.ndarray
) -> np.ndarray:
    """The rows (k, n) of a design set for a workload of n cells, all told apart, with Gram matrix V (n, n).

    ``design`` is "eigen-queries" (eigenvectors of V), "wavelet" (Haar), "fourier" (real), "hierarchical" (every node of
    a binary tree), "workload" (the distinct rows of the tables), or a matrix.

    Raises:
        InvalidArgument: an unknown name; a matrix with missing numbers, a row of zeros or another number of columns
            than n; a set that does not span the workload.
        Unsupported: more than 4 n rows.

    >>> import tabulae as tb
    >>> ranges = tb.Workload.of(tb.AllRange(4))
    >>> design_rows("wavelet", ranges, tb.AllRange(4).gram().dense()).astype(int).tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """
    if isinstance(design, str):
        label, rows = f'the design set "{design}"', _named(design, workload, gram)
    else:
        label, rows = "the design set", _given(design, workload)
    check_span(rows, workload, gram, label)
    return rows


def check_span(rows: np.ndarray, workload: Workload, gram: np.ndarray, label: str) -> None:
    """Refuse design queries (k, n) that cannot answer the tables, naming one that they cannot."""
    basis = row_space(rows)
    if outside(gram, basis) is None:
        return
    missed = [t.name for t in workload.tables if _missed(Workload(workload.domain, [t]), basis)]
    table = f"table {missed[0]!r}" if missed else "the tables"
    raise InvalidArgument(
        f"{label} does not span the workload: its {len(rows):,} rows have rank {len(basis):,}, and {table} cannot be "
        'answered from them. Add the identity (one query a cell), or use "eigen-queries"'
    )


def _missed(workload: Workload, basis: np.ndarray) -> bool:
    return outside(explicit_gram(workload), basis) is not None


def _named(name: str, workload: Workload, gram: np.ndarray) -> np.ndarray:
    if name == "eigen-queries":
        return eigen_queries(gram)[0]
    if name == "workload":
        return _own_rows(workload)
    factors = [_factor(name, n) for n in workload.domain.shape]
    _check_count(f'the design set "{name}"', math.prod(len(f) for f in factors), workload.domain.size)
    return reduce(np.kron, factors)


def _factor(name: str, n: int) -> np.ndarray:
    """One attribute's rows."""
    if n == 1:
        return np.ones((1, 1))
    if name == "wavelet":
        return np.asarray(haar(n).dense(), dtype=float)
    if name == "fourier":
        return fourier_basis(n)
    if name == "hierarchical":
        return np.asarray(level_counts(tree(n, 2), n).dense(), dtype=float)
    raise InvalidArgument(
        f"unknown design set {name!r}: eigen-queries, wavelet, fourier, hierarchical, workload, or a matrix with one "
        "row a query"
    )


def _own_rows(workload: Workload) -> np.ndarray:
    """The distinct rows of all tables, in order, less those of zeros."""
    cells = workload.domain.size
    if workload.queries > _REPEATED * _MOST * cells:  # before any is written out
        _check_count('the design set "workload"', workload.queries, cells)
    rows = np.vstack([np.asarray(t.operator(workload.domain).dense(), float) for t in workload.tables])
    rows = rows[rows.any(axis=1)]
    _, first = np.unique(rows, axis=0, return_index=True)
    _check_count('the design set "workload"', len(first), cells)
    return rows[np.sort(first)]


def _given(design: np.ndarray | LinearOperator, workload: Workload) -> np.ndarray:
    """A matrix that the user gave, checked."""
    cells, shape = workload.domain.size, design.shape
    if len(shape) == 2 and shape[1] != cells:
        raise InvalidArgument(
            f"the design set has {shape[1]:,} columns, but the tables tell {cells:,} cells apart: give one column for "
            "each of those, in the domain's order"
        )
    _check_count("the design set", shape[0] if shape else 0, cells)
    rows = checked_design(design.dense() if isinstance(design, LinearOperator) else design)
    empty = np.flatnonzero(~rows.any(axis=1))
    if empty.size:
        raise InvalidArgument(f"design query {empty[0]} is zero in every cell: leave it out")
    return rows


def _check_count(label: str, rows: int, cells: int) -> None:
    if rows > _MOST * cells:
        raise Unsupported(
            f"{label} has {rows:,} rows over {cells:,} cells, and up to {_MOST} a cell are weighed: choose a basis, "
            'such as "eigen-queries" or "wavelet"'
        )
