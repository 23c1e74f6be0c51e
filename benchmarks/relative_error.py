"""Relative errors on data: benchmarks/results/relative_error.csv. Of it benchmarks.relative_page makes the docs page.

python -m benchmarks.relative_error            all data sets (about three minutes on one core)

The relative error of an estimate e of a true answer t is ``|e - t| / max(t, s)`` with a sanity bound s: 0.1 % of the
records, and one record. A workload's is the mean over its queries. Under Gaussian noise an estimate by least squares
is normal with a known standard deviation, so that its mean absolute error is ``sqrt(2/pi)`` times that: nothing is
simulated. Epsilon and delta enter by one factor sigma, so that strategies compare alike at every epsilon. Neighbours
are those of add-remove.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.linalg
from benchmarks.relative_cases import DATA, Case, cases
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.linalg import LinearOperator, Permuted
from tabulae.privacy import calibrate
from tabulae.strategy import baseline
from tabulae.strategy.eigen.design import eigen_design
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.information.kron import range_variance
from tabulae.strategy.information.protocol import kron_vectors
from tabulae.strategy.information.routes import information
from tabulae.strategy.objective import relative_workload
from tabulae.strategy.strategy import unit_variances

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/relative_error.csv"
EPSILONS = ("0.1", "0.5", "1", "2.5")
DELTA = "0.0001"
SANITY = {"0.1 %": 0.001, "one": None}  # shares of the records; None: a single record
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)  # of a standard normal variable
_RIDGE = 1e-10
_EXPLICIT = 4096

Covariance = tuple[np.ndarray, ...]
"""Of the cells at unit noise: one matrix, or the factors of a Kronecker product."""


@dataclass(frozen=True)
class Result:
    """One strategy for one workload on one data set: means over the queries."""

    data: str
    workload: str
    sanity: str
    epsilon: str
    strategy: str
    objective: str
    mean_relative_error: float
    rmse: float
    ratio_to_best: float


# strategies ------------------------------------------------------------------------------------------------
@lru_cache(maxsize=64)
def optimised(method: str, workload: tb.Workload) -> Covariance:
    """The cells' covariance under an optimised strategy: of one product, a product; otherwise one matrix."""
    if len(workload.tables) == 1:
        grams = [
            factor.gram().dense().astype(float)
            for factor in workload.tables[0].terms[0].over(workload.domain)
        ]
    else:
        grams = [explicit_gram(workload)]
    return tuple(_covariance(method, gram) for gram in grams)


def _covariance(method: str, gram: np.ndarray) -> np.ndarray:
    if method == "eigen":
        matrix = eigen_design(gram, tolerance=1e-5).strategy
    else:
        matrix = opt0_gaussian(gram, tolerance=1e-2).strategy
    return inverse(matrix.T @ matrix) * np.square(matrix).sum(axis=0).max()


def inverse(information_matrix: np.ndarray) -> np.ndarray:
    """P^-1, with a ridge that is nothing beside what any query needs where P is singular."""
    P = information_matrix.copy()
    P[np.diag_indices_from(P)] += _RIDGE * P.diagonal().max()
    factor = scipy.linalg.cho_factor(P, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, np.eye(len(P)), overwrite_b=True, check_finite=False)


def of_strategy(strategy: tb.Strategy) -> Covariance:
    """The covariance of the cells under a strategy of ``select``."""
    power = float(strategy.sensitivity().power)
    block, query = strategy.blocks[0], strategy.blocks[0].query
    if len(strategy.blocks) == 1 and isinstance(query, tb.Kron):
        first, *rest = (inverse(factor.gram().dense().astype(float)) for factor in query.ops)
        return first * power * float(block.scale) * 4.0**block.exponent, *rest
    P = sum(
        block.query.gram().dense() / (float(block.scale) * 4.0**block.exponent) for block in strategy.blocks
    )
    return (inverse(np.asarray(P)) * power,)


# errors ----------------------------------------------------------------------------------------------------
def variances(factors: Sequence[LinearOperator], covariance: Covariance) -> np.ndarray:
    """The variance of every query of a product of factors, at unit noise."""
    if len(covariance) < len(factors):
        return _of_product(factors, covariance[0])
    if len(covariance) > len(factors):  # queries over single cells, a strategy over attributes
        whole = np.ones((1, 1))
        for part in covariance:
            whole = np.kron(whole, part)
        covariance = (whole,)
    return kron_vectors([_diagonal(factor, part) for factor, part in zip(factors, covariance, strict=True)])


def _diagonal(query: LinearOperator, covariance: np.ndarray) -> np.ndarray:
    """diag(W C W')."""
    if isinstance(query, Permuted):
        return _diagonal(query.op, covariance[np.ix_(query.order, query.order)])
    known = range_variance(query, covariance)
    return np.einsum("qj,qj->q", query @ covariance, query.dense().astype(float)) if known is None else known


def _of_product(factors: Sequence[LinearOperator], covariance: np.ndarray) -> np.ndarray:
    """``sum_ij w_i w_j C_ij`` attribute by attribute: (i, j) of one attribute become its rows, one after the other."""
    shape, d = [factor.shape[1] for factor in factors], len(factors)
    pairs = [axis for k in range(d) for axis in (k, d + k)]
    tensor = covariance.reshape(*shape, *shape).transpose(pairs).reshape([n * n for n in shape])
    for k, factor in enumerate(factors):
        rows = factor.dense().astype(float)
        squares = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        tensor = np.moveaxis(np.tensordot(squares, tensor, axes=(1, k)), 0, k)
    return tensor.ravel()


def table_error(
    factors: Sequence[LinearOperator], found: Covariance | tb.Strategy, counts: np.ndarray, floor: float
) -> tuple[float, float]:
    """Sums over a product's queries at unit noise: standard deviation over ``max(answer, floor)``, and variance."""
    if isinstance(found, tb.Strategy):
        spread = information(found, unit_variances(found, "add-remove")).variance(tb.Kron(factors))
    elif len(found) == len(factors) > 1:
        return _product_error(factors, found, counts, floor)
    else:
        spread = variances(factors, found)
    answers = tb.Kron(factors) @ counts.ravel()
    spread = np.maximum(spread, 0.0)
    return float((np.sqrt(spread) / np.maximum(answers, floor)).sum()), float(spread.sum())


def _product_error(
    factors: Sequence[LinearOperator], found: Covariance, counts: np.ndarray, floor: float
) -> tuple[float, float]:
    """The same where variances are products: row by row of the first attribute, for there may be 10^8 queries."""
    first, *rest = (_diagonal(factor, part) for factor, part in zip(factors, found, strict=True))
    others, deviation = tb.Kron(factors[1:]), np.sqrt(kron_vectors(rest))
    slices = factors[0] @ counts.reshape(len(counts), -1)
    relative = sum(
        math.sqrt(v) * float(deviation @ (1 / np.maximum(others @ part, floor)))
        for v, part in zip(first, slices, strict=True)
    )
    return relative, math.prod(float(part.sum()) for part in (first, *rest))


def unit_errors(
    case: Case, found: Covariance | tb.Strategy, counts: np.ndarray, floor: float
) -> tuple[float, float]:
    """Mean relative error and RMSE of a workload when the noise has standard deviation 1."""
    domain, queries = case.workload.domain, case.workload.queries
    sums = np.zeros(2)
    for table in case.workload.tables:
        sums += table_error(table.terms[0].over(domain), found, counts, floor)
    return MEAN_ABSOLUTE * sums[0] / queries, math.sqrt(sums[1] / queries)


def sigma(epsilon: str) -> float:
    """The standard deviation of Gaussian noise at sensitivity 1."""
    return math.sqrt(calibrate(tb.ApproxDP(epsilon, DELTA), "gaussian", Fraction(1)))


def answered(case: Case) -> dict[tuple[str, str], Covariance | tb.Strategy]:
    """(strategy, objective) -> what the workload is answered from; "any" where the objective does not matter."""
    found: dict[tuple[str, str], Covariance | tb.Strategy] = {}
    large = case.workload.domain.size > _EXPLICIT
    for objective, scaled in (("total", lambda w: w), ("relative", relative_workload)):
        if not large or len(case.workload.tables) == 1:
            for method in ("eigen", "opt0") if case.certified else ("eigen",):
                found[method, objective] = optimised(method, scaled(case.workload))
        if "residual" in case.others:
            found["residual", objective] = _of("residual", scaled(case.others["residual"]), large=large)
    for method, asked in case.others.items():
        if method != "residual":
            found[method, "any"] = _of(method, asked, large=large)
    return dict(sorted(found.items()))


def _of(method: str, workload: tb.Workload, *, large: bool) -> Covariance | tb.Strategy:
    strategy = baseline(workload, method, "gaussian", "add-remove")
    return strategy if large and len(strategy.blocks) > 1 else of_strategy(strategy)


def measure(data: str, case: Case, counts: np.ndarray) -> list[Result]:
    """All strategies for one workload, under both sanity bounds, at every epsilon."""
    results, found = [], answered(case)
    for sanity, share in SANITY.items():
        floor = 1.0 if share is None else share * float(counts.sum())
        errors = {key: unit_errors(case, value, counts, floor) for key, value in found.items()}
        best = min(relative for relative, _ in errors.values())
        results += [
            Result(
                data,
                case.name,
                sanity,
                epsilon,
                *key,
                sigma(epsilon) * relative,
                sigma(epsilon) * rmse,
                relative / best,
            )
            for epsilon in EPSILONS
            for key, (relative, rmse) in errors.items()
        ]
    return results


# results ---------------------------------------------------------------------------------------------------
def read() -> list[Result]:
    """What was measured."""
    with RESULTS.open(newline="") as file:
        return [
            Result(
                row["data"], row["workload"], row["sanity"], row["epsilon"], row["strategy"], row["objective"],
                float(row["mean_relative_error"]), float(row["rmse"]), float(row["ratio_to_best"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write(results: Sequence[Result]) -> None:
    """The CSV, at six significant digits."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(results[0])), lineterminator="\n")
        writer.writeheader()
        for result in results:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(result).items()})


def at_half(results: Sequence[Result], sanity: str) -> dict[tuple[str, str], dict[tuple[str, str], Result]]:
    """(data, workload) -> (strategy, objective) -> result, at epsilon 0.5."""
    found: dict[tuple[str, str], dict[tuple[str, str], Result]] = {}
    for r in results:
        if r.epsilon == "0.5" and r.sanity == sanity:
            found.setdefault((r.data, r.workload), {})[r.strategy, r.objective] = r
    return found


def main() -> None:
    """Measure and write."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    results = []
    with threadpool_limits(1):
        for data, make in DATA.items():
            counts = make()
            for case in cases(data):
                start = time.process_time()
                results += measure(data, case, counts)
                print(f"{data:22} {case.name:22} {time.process_time() - start:6.1f} s", flush=True)
    write(results)


if __name__ == "__main__":
    main()
