"""The Eigen-Design mechanism as strategies: real matrices over merged cells, rounded to a grid.

Cells that the tables do not tell apart are merged, and both the eigen-queries of merged cells and those of all cells,
known by the sizes of the classes (:mod:`..eigen.design`), are tried where they differ: the better is taken.

Few queries over many cells. The eigenvectors of ``W'W`` with an eigenvalue above zero are ``q_i = sigma_i^-1/2 u_i' W``
for those u_i of ``W W'``, m x m for m queries. What is measured is ``T W`` with T the integers near
``diag(lambda_i sigma_i^-1/2) U'``, which rounding keeps in the row space of W, and least squares works over its rows.
Columns are not completed: a query for each cell would end what the few rows save.

Several attributes, without a matrix over all cells, by what ``W'W = sum_l c_l (x)_i V_li`` is over merged cells:

* One product. Its eigenvectors are products, and so are the conditions of optimality of Program 1: the weights are the
  products of those of every attribute by itself. Each attribute's design is completed by itself, which keeps the
  product's sensitivity.
* Every V_li is ``a I + b J``, as in marginals. The eigenspaces are the sets of attributes, S for what is constant
  beside S, and every cell is asked alike: the optimum is the residual planner's, which attains the singular value
  bound under Gaussian noise. Under Laplace noise the choice of eigenvectors matters: sums of halves, quarters and so
  on have small L1 norms, and small domains are given these as a design set of the third case.
* Any other sum of products. The design set is ``(x)_i R_i`` with R_i the common eigenvectors of the attribute's V_li,
  and its rows are weighted one by one. Where some V_li do not commute they have no common eigenvectors: R_i are those
  of the attribute's share of W'W, ``sum_l c_l prod_{j != i} tr(V_lj) V_li``, with the total split off where tables
  leave the attribute out. The weights are then the best of that design set, not those of W'W's own eigenvectors.
  Columns are not completed: a query of one cell beside the product would end its structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg

from ...domain import Domain, Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Stack,
    Total,
    joint_classes,
    representatives,
    weigh_rows,
)
from ..block import Block
from ..bounds.dual import identity_and_ones
from ..deadline import now
from ..gram import (
    EXPLICIT_CELLS,
    GramTerms,
    dense_grams,
    explicit_strategy,
    lifted,
    product_factors,
    surrogate_gram,
)
from ..information.weighted_kron import WIDEST, AxisRows, by_row, kron_costs, weighted_kron
from ..methods import Settings, register
from ..residual.planner import shared_strategy
from ..rounding import FINEST, share_bits, to_grid
from ..strategy import Strategy, unit_rmse, unit_variances
from .design import WeightedDesign, completed, design_rows, eigen_design, eigen_separation, principal_vectors
from .weighting import apply_factors, design_weighting, kron_weighting, query_weighting

MOST_QUERIES = 2048
"""Most queries whose combinations are measured."""

MOST_ENTRIES = 2**28
"""Most entries of W, distinct columns only: 2 GiB."""

_NOTHING = 1e-13  # share of the largest eigenvalue, times m, below which an eigenvalue is rounding
_BITS = 24  # of the largest row of T W


def eigen_queries_of_rows(
    rows: np.ndarray, sizes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The eigenvectors of ``W'W`` as combinations of W's rows, from ``W W'``: queries (r, n), values (r,), C (r, m).

    ``queries = C @ rows`` has orthonormal rows, the largest eigenvalue first; r is the rank of W, m x n. With ``sizes``
    (n,) each column stands for so many equal ones, and rows are orthonormal over all of these.

    Raises :class:`~tabulae.errors.InvalidArgument` for rows that are missing, not finite or all zero.
    """
    W = np.asarray(rows, dtype=float)
    if W.ndim != 2 or not np.isfinite(W).all():
        raise InvalidArgument("rows must be a matrix of finite numbers, one row a query")
    values, vectors = scipy.linalg.eigh((W if sizes is None else W * sizes) @ W.T, check_finite=False)
    if not values[-1] > 0:
        raise InvalidArgument(
            "all rows are zero: the workload counts no cell. Leave out tables of weight zero"
        )
    kept = np.flatnonzero(values > values[-1] * _NOTHING * max(10, values.size))[::-1]
    combine = vectors[:, kept].T / np.sqrt(values[kept])[:, None]
    return combine @ W, values[kept], combine


def low_rank_design(workload: Workload, settings: Settings) -> Strategy | None:
    """The eigen-design of few queries of one attribute of many cells; None where there are as many queries as cells.

    Raises :class:`~tabulae.errors.Unsupported` for queries over too many different cells, or that are not integers.

    >>> import tabulae as tb
    >>> workload = tb.Workload.of(Partition(np.arange(10_000) % 7))
    >>> low_rank_design(workload, Settings("gaussian")).rows
    7
    """
    if len(workload.domain.shape) > 1 or any(len(t.terms) > 1 for t in workload.tables):
        return None
    if workload.queries > min(MOST_QUERIES, workload.domain.size):
        return None
    operators = [table.terms[0].over(workload.domain)[0] for table in workload.tables]
    if not all(operator.integer for operator in operators):
        raise Unsupported(
            'tables of real-valued combinations are not measured as they stand; choose method "kron" or "hdmm"'
        )
    merge = Partition(joint_classes([operator.column_classes() for operator in operators]))
    if workload.queries * merge.shape[0] > MOST_ENTRIES:
        raise Unsupported(
            f"{workload.queries:,} queries that tell {merge.shape[0]:,} cells apart: eigen keeps their matrix, of at "
            f'most {MOST_ENTRIES:,} entries. Ask for fewer queries, or choose "hb" or "wavelet"'
        )
    distinct = np.vstack([operator.columns(representatives(merge.classes)) for operator in operators])
    each = [float(t.weight) * t.terms[0].coefficient for t in workload.tables]
    weights = np.repeat(each, [operator.shape[0] for operator in operators])
    tried = []
    for sizes, deadline in _turns(merge.sizes, settings):
        queries, values, combine = eigen_queries_of_rows(weights[:, None] * distinct, sizes)
        found = query_weighting(queries, values, p=settings.norm, deadline=deadline)
        tried.append((found.loss, found.weights[:, None] * combine * weights))
    _, real = min(tried, key=lambda found: found[0])
    mix = np.rint(np.ldexp(real, _BITS)).astype(np.int64)
    query = MatrixProduct(Dense(mix), lifted(Dense(distinct), merge))
    return Strategy(workload.domain, (Block("eigen", query, _BITS),), settings.noise, "eigen")


MOST_ROWS = 2**22
"""Most rows of a Kronecker design set."""

_ROW_BITS = 33  # of the largest entry: with it answers stay below 2^62 for 2^28 records
_WEIGHT_BITS = 11  # of the weights, beside what evens out rows of different length
_FINEST, _COARSEST = 16, 4  # bits of an attribute's eigenvectors
_COMMUTE = 1e-9  # share of V's norm beside its diagonal that rounding may leave in common eigenvectors
_FAINT = 1e-15  # share of the largest cost that a needed row has at least
_TOLERANCE = 1e-6
_SPREAD = 2**16  # cells up to which Laplace noise is given the rows of halves


def product_design(workload: Workload, settings: Settings) -> Strategy | None:
    """The eigen-design through Kronecker products; None where the domain's structure does not help.

    That is for attributes of more than 8,192 merged cells that are not asked alike, and for design sets of more than
    2^22 rows.

    >>> import tabulae as tb
    >>> ranges = tb.Table("ranges", {"age": tb.AllRange(16)})
    >>> both = tb.Table("both", {"age": tb.Prefix(16), "sex": tb.Identity(2)})
    >>> workload = tb.Workload(tb.Domain({"age": 16, "sex": 2}), [ranges, both])
    >>> product_design(workload, Settings("gaussian")).rows
    32
    """
    merged, _ = workload.merge()
    if max(merged.domain.shape) > WIDEST:
        return None
    terms = dense_grams(merged)
    factors = product_factors(terms)
    plain = factors is not None and all(_identity_or_ones(V) for V in factors)
    alike = not plain and all(identity_and_ones(V) is not None for _, grams in terms for V in grams)
    if alike and (settings.norm == 2 or merged.domain.size > _SPREAD):
        return replace(shared_strategy(workload, settings), method="eigen", lower=None)
    if factors is not None and not alike:
        return _product_of_designs(workload, settings, factors)
    return _weighted_rows(workload, settings, terms)


def _identity_or_ones(V: np.ndarray) -> bool:
    return not np.ptp(V) or (not np.ptp(np.diag(V)) and np.count_nonzero(V) == len(V))


def _product_of_designs(workload: Workload, settings: Settings, factors: Sequence[np.ndarray]) -> Strategy:
    """Every attribute's own eigen-design, on a grid of its own."""
    _, merges = workload.merge()
    designs = zip(factors, merges, strict=True)
    matrices = [_design(V, merge.sizes, settings) for V, merge in designs]
    rounded = share_bits(matrices, list(factors), settings.norm)
    query = Kron([lifted(r.matrix, m) for r, m in zip(rounded, merges, strict=True)])
    block = Block("eigen", query, sum(r.exponent for r in rounded))
    return Strategy(workload.domain, (block,), settings.noise, "eigen")


def _design(V: np.ndarray, sizes: np.ndarray, settings: Settings) -> np.ndarray:
    if not np.ptp(V):
        return np.ones((1, len(V)))
    if _identity_or_ones(V):
        return np.eye(len(V))
    alone = replace(settings, neighbours="add-remove")  # pairs of a product are not pairs of its factors
    return _better_design(V, sizes, alone, eigen_design, p=settings.norm)


def _better_design(
    V: np.ndarray,
    sizes: np.ndarray,
    settings: Settings,
    design: Callable[..., WeightedDesign],
    **options: Any,
) -> np.ndarray:
    """The strategy of a form of Program 2 that errs less of V (n, n): of merged cells, or of all cells."""
    turns = _turns(sizes, settings)
    found = [design(V, sizes=s, deadline=deadline, **options).strategy for s, deadline in turns]
    return min(found, key=lambda A: _squared_error(A, V, settings)) if found[1:] else found[0]


def _turns(sizes: np.ndarray, settings: Settings) -> Iterator[tuple[np.ndarray | None, float]]:
    """What eigen-queries are tried, by sizes of classes (None: merged cells), and until when."""
    if not np.ptp(sizes):
        yield None, settings.deadline
        return
    yield None, (settings.deadline + now()) / 2
    if not settings.late:
        yield sizes, settings.deadline


def _squared_error(A: np.ndarray, V: np.ndarray, settings: Settings) -> float:
    """Of a strategy over merged cells (r, n), on the grid that is measured and for the neighbours that are promised."""
    rounded = to_grid(A, V, settings.norm, FINEST)
    if settings.neighbours == "add-remove" or len(V) == 1:
        return rounded.loss
    block = Block("eigen", Kron([rounded.matrix]), rounded.exponent)
    strategy = Strategy(Domain({"cell": len(V)}), (block,), settings.noise, "eigen")
    pair, one = (unit_variances(strategy, kind)[0] for kind in (settings.neighbours, "add-remove"))
    return rounded.loss * pair / one


def _weighted_rows(workload: Workload, settings: Settings, terms: GramTerms) -> Strategy | None:
    """Program 1 over a Kronecker design set, on integer rows: what is weighted is what is measured."""
    merges = workload.merge()[1]
    tried = []
    for sizes, deadline in _turns(np.concatenate([m.sizes / m.sizes[0] for m in merges]), settings):
        classes = None if sizes is None else [merge.sizes for merge in merges]
        found = _weighted_by(workload, replace(settings, deadline=deadline), terms, classes)
        if found is None:
            return None
        tried.append(found)
    if len(tried) == 1:
        return tried[0]
    return min(tried, key=lambda strategy: unit_rmse(strategy, workload, settings.neighbours))


def _weighted_by(
    workload: Workload, settings: Settings, terms: GramTerms, sizes: Sequence[np.ndarray] | None
) -> Strategy | None:
    """The same for one design set, :func:`product_rows`."""
    _, merges = workload.merge()
    cells = math.prod(merge.shape[0] for merge in merges)
    rows = product_rows(terms, sizes, halves=settings.norm == 1 and cells <= _SPREAD)
    if rows is None:
        return None
    axes = [AxisRows(factor) for factor in rows]
    needed = _needed(axes, terms)
    costs = kron_costs(axes, terms)
    costs = np.where(needed, np.maximum(costs, _FAINT * costs.max()), 0.0)
    p = settings.norm
    norms = [_norms(axis, p) for axis in axes]
    found = kron_weighting(norms, costs, p=p, tolerance=_TOLERANCE, deadline=settings.deadline)
    largest = math.prod(int(factor.abs_entry_max()) for factor in rows)
    scale = 2.0**_ROW_BITS / (largest * float(found.weights.max()))
    whole = np.where(needed, np.maximum(np.rint(found.weights * scale), 1), 0).astype(np.int64)
    factors = [
        lifted(factor, merge) if merge.shape[0] > 1 else Total(merge.shape[1])
        for factor, merge in zip(rows, merges, strict=True)
    ]
    query = weigh_rows(by_row(axes, whole), factors)
    columns = apply_factors([n.T for n in norms], whole.astype(float) ** p)
    exponent = max(0, round(math.log2(float(columns.max())) / p))
    return Strategy(workload.domain, (Block("eigen", query, exponent),), settings.noise, "eigen")


def product_rows(
    terms: GramTerms, sizes: Sequence[np.ndarray] | None = None, *, halves: bool = False
) -> list[LinearOperator] | None:
    """Integer rows R_i over each attribute's merged cells; None where their products are more than ``MOST_ROWS``.

    With ``sizes`` (one array an attribute) eigenvectors are those of all cells; an attribute whose merged cells are
    asked alike keeps its rows, which are eigenvectors of no order.

    ``halves`` gives attributes whose cells are asked alike the rows of :func:`halving`, where they would have what
    every cell has beyond the mean.

    Raises :class:`~tabulae.errors.Unsupported` where too many attributes need rounded eigenvectors.
    """
    families = [list({id(g[i]): g[i] for _, g in terms}.values()) for i in range(len(terms[0][1]))]
    rows: list[LinearOperator | None] = [_rows_alike(family, halves=halves) for family in families]
    lengths = [
        len(family[0]) if row is None else row.shape[0] for row, family in zip(rows, families, strict=True)
    ]
    if math.prod(lengths) > MOST_ROWS:
        return None
    taken = sum(math.log2(row.abs_entry_max()) for row in rows if row is not None)
    real = [i for i, row in enumerate(rows) if row is None]
    bits = min(_FINEST, int((_ROW_BITS - _WEIGHT_BITS - taken) // len(real))) if real else _FINEST
    if bits < _COARSEST:
        raise Unsupported(
            f"the tables ask for eigenvectors of {len(real)} attributes at once, and {_ROW_BITS} bits are too few for "
            'products of them: choose "residual" or "kron"'
        )
    for i in real:
        classes = np.ones(len(families[i][0])) if sizes is None else sizes[i]
        root = np.sqrt(classes / classes.min())
        rows[i] = Dense(eigen_rows(families[i], surrogate_gram(terms, i), bits, root))
    return [row for row in rows if row is not None]


def _rows_alike(family: Sequence[np.ndarray], *, halves: bool) -> LinearOperator | None:
    """Rows for an attribute whose cells are all asked alike: every V is a I + b J; None for any other."""
    n = len(family[0])
    if not all(identity_and_ones(V) is not None for V in family):
        return None
    if all(_identity_or_ones(V) and (n == 1 or np.ptp(V)) for V in family):
        return Identity(n)
    return Dense(halving(n)) if n == 2 or halves else Stack([Total(n), Centring(n)])


def halving(n: int) -> np.ndarray:
    """The total of n cells, and one half of them against the other, of each half again: orthogonal integers (n, n).

    >>> halving(3).tolist()
    [[1, 1, 1], [1, 1, -2], [1, -1, 0]]
    """
    rows, open_ends = [np.ones(n, dtype=np.int64)], [(0, n)]
    while open_ends:
        start, end = open_ends.pop(0)
        middle = (start + end + 1) // 2
        if middle < end:
            row = np.zeros(n, dtype=np.int64)
            common = math.gcd(middle - start, end - middle)
            row[start:middle], row[middle:end] = (end - middle) // common, (start - middle) // common
            rows.append(row)
            open_ends += [(start, middle), (middle, end)]
    return np.array(rows)


def eigen_rows(
    family: Sequence[np.ndarray], surrogate: np.ndarray, bits: int, root: np.ndarray
) -> np.ndarray:
    """Integer rows near the common eigenvectors of some Gram matrices (n, n), or near those of ``surrogate``.

    ``root`` (n,), 1 at least, is the square root of the cells that each stands for: rows u of eigenvectors are those of
    ``root V root``, divided by it. Where one of the V is a multiple of J the first row counts all cells alike, exactly.
    """
    n = len(surrogate)
    split = any(not np.ptp(V) for V in family if V.any())
    scale = np.outer(root, root)
    family = [V * scale for V in family if V.any()]  # two products of a sum may have no cell in common
    rest = np.eye(n)
    if split:  # an orthonormal basis beside the constant
        rest = np.linalg.qr(np.hstack([root[:, None], np.eye(n)[:, 1:]]))[0][:, 1:]
    shares = [V / np.linalg.norm(V) * math.sqrt(k + 2) for k, V in enumerate(family)]
    generic = np.sum(shares, axis=0)  # of which no eigenvalues agree by chance
    candidates = [np.linalg.eigh(rest.T @ (V + V.T) @ rest)[1] for V in (generic, surrogate * scale)]
    common = rest @ candidates[0]
    vectors = common if _diagonal(common, family) else rest @ candidates[1]
    whole = np.rint(np.ldexp(vectors.T / root, bits)).astype(np.int64)
    if split:
        whole = np.vstack([np.full((1, n), max(1, round(2**bits / math.sqrt(n)))), whole])
    return whole


def _diagonal(vectors: np.ndarray, family: Sequence[np.ndarray]) -> bool:
    """Whether every matrix is diagonal in the (orthonormal) columns."""
    for V in family:
        inside = vectors.T @ V @ vectors
        if np.linalg.norm(inside - np.diag(np.diag(inside))) > _COMMUTE * np.linalg.norm(V):
            return False
    return True


def _needed(axes: Sequence[AxisRows], terms: GramTerms) -> np.ndarray:
    """Which classes of rows some table has a coefficient on: beside a total only those that count all cells alike."""
    needed = np.zeros([axis.classes for axis in axes], dtype=bool)
    for _, grams in terms:
        both: np.ndarray = np.ones((), dtype=bool)
        for axis, V in zip(axes, grams, strict=True):
            both = np.logical_and.outer(
                both, axis.costs(V) != 0 if not np.ptp(V) else np.ones(axis.classes, bool)
            )
        needed |= both
    return needed


def _norms(axis: AxisRows, p: int) -> np.ndarray:
    """``|R_i|^p`` summed over each class of rows, one column for each kind of cell: (classes, kinds)."""
    if axis.n is not None:
        return np.array([[1.0], [axis.n * (axis.n - 1) if p == 2 else 2.0 * (axis.n - 1)]])
    return np.unique(np.abs(np.asarray(axis.rows.dense(), dtype=float)) ** p, axis=1)


_GAP = 1e-6  # the weighting is cheap beside the decomposition
# Beyond so many cells, and with as many times fewer queries, rows are decomposed
_MANY_CELLS, _FEWER = (2048, 4)


@register(
    "eigen",
    "Eigen-Design (weighted eigenvectors of the tables' matrix, or another weighted set)",
    options=("design",),
)
def eigen_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Program 2 on the eigenvectors of W'W, or on the design set that ``settings.design`` names or holds.

    By structure where the workload has one. Sums of products over few cells are tried as one explicit matrix as well,
    and the better of the two is taken: joint eigenvectors of several attributes need not be products, and only there
    are columns completed.
    """
    found = _by_structure(workload, settings) if settings.design is None else None
    if found is None:
        return _explicit(workload, settings)
    if weighted_kron(found.blocks[0].query) is None or workload.merge()[0].domain.size > EXPLICIT_CELLS:
        return found
    both = (found, _explicit(workload, settings))
    return min(both, key=lambda strategy: unit_rmse(strategy, workload, settings.neighbours))


def _by_structure(workload: Workload, settings: Settings) -> Strategy | None:
    """The design that is made without a matrix over all merged cells, None where nothing helps."""
    shape = workload.merge()[0].domain.shape
    if sum(n > 1 for n in shape) > 1:
        return product_design(workload, settings)
    if max(shape) > _MANY_CELLS and workload.queries * _FEWER <= max(shape):
        return low_rank_design(workload, settings)
    return None


def _explicit(workload: Workload, settings: Settings) -> Strategy:
    merged, _ = workload.merge()

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        if settings.design is None or (
            isinstance(settings.design, str) and settings.design == "eigen-queries"
        ):
            return _better_design(gram, _sizes(workload), settings, eigen_design, **_options(settings))
        rows = design_rows(settings.design, merged, gram)
        weights = design_weighting(
            rows, gram, seed=settings.seed, deadline=settings.deadline, **_options(settings)
        )
        return completed(rows, weights, settings.norm).strategy

    return explicit_strategy(workload, settings, "eigen", matrix_of)


@register("eigen-separation", "Eigen-Design, eigenvectors weighted in groups", options=("group_size",))
def eigen_separation_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Eigen-queries weighed in groups of ``settings.group_size`` over merged cells."""

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        options = {"group_size": settings.group_size, **_options(settings)}
        return _better_design(gram, _sizes(workload), settings, eigen_separation, **options)

    return explicit_strategy(workload, settings, "eigen-separation", matrix_of)


@register(
    "principal-vectors", "Eigen-Design, the principal eigenvectors weighted one by one", options=("vectors",)
)
def principal_vectors_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The ``settings.vectors`` largest eigenvectors with weights of their own, over merged cells."""

    def matrix_of(gram: np.ndarray) -> np.ndarray:
        options = {"vectors": settings.vectors, **_options(settings)}
        return _better_design(gram, _sizes(workload), settings, principal_vectors, **options)

    return explicit_strategy(workload, settings, "principal-vectors", matrix_of)


def _options(settings: Settings) -> dict[str, Any]:
    return {"p": settings.norm, "tolerance": min(settings.tolerance, _GAP)}


def _sizes(workload: Workload) -> np.ndarray:
    """How many cells each merged cell stands for."""
    return reduce(np.kron, [merge.sizes for merge in workload.merge()[1]])
