"""All targets at once, in the row space: against the convex optimum of a general solver, and what is not served."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from tests.each import each

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy.hdmm.row_targets import RowTargets
from tabulae.strategy.methods import Settings
from tabulae.strategy.objective import Minimax

DOMAIN = tb.Domain({"age": 4, "home": 3})
GROWN, OWNED = tb.Dense([[0, 0, 1, 1]]), tb.Dense([[1, 0, 0], [0, 1, 0]])
TABLES = [
    tb.Table("ages", {"age": tb.Identity(4), "home": tb.Dense([[1, 1, 0]])}),
    tb.Table("homes", {"home": OWNED}, weight=3),
    tb.Table("grown", {"age": GROWN, "home": OWNED}),
    tb.Table("all", {"home": tb.Dense([[1, 1, 0]])}),
]
WORKLOAD = tb.Workload(DOMAIN, TABLES)  # nobody counts the last kind of home
TARGETS = tb.Targets(rmse={"ages": "2", "homes": "1/2", "grown": 3, "all": 8})


def optimum(neighbours: str) -> float:
    """The least largest ratio, by a solver for convex problems."""
    matrices = [np.asarray(t.operator(DOMAIN).dense(), float) for t in TABLES]
    _, sizes, right = np.linalg.svd(np.concatenate(matrices))
    basis = right[: int((sizes > 1e-9).sum())]
    columns = basis.T
    moved = (
        columns if neighbours == "add-remove" else (columns[:, None] - columns[None]).reshape(-1, len(basis))
    )
    moved = np.unique(moved[moved.any(axis=1)].round(12), axis=0)
    Q, worst = cp.Variable((len(basis), len(basis)), PSD=True), cp.Variable()
    limits = [cp.sum(cp.multiply(np.outer(g, g), Q)) <= 1 for g in moved]
    for table, matrix in zip(TABLES, matrices, strict=True):
        allowed = len(matrix) * float(TARGETS.rmse[table.name]) ** 2
        limits.append(cp.matrix_frac((matrix @ basis.T).T, Q) <= allowed * worst)
    problem = cp.Problem(cp.Minimize(worst), limits)
    problem.solve(solver="CLARABEL")
    return float(worst.value)


@each("neighbours", ["add-remove", "replace"])
def test_all_targets_at_once_are_the_convex_optimum(neighbours: str) -> None:
    aims, best = Minimax(WORKLOAD, TARGETS), optimum(neighbours)
    settings, scaled = Settings("gaussian", neighbours), aims.in_total()
    assert scaled is not None
    strategy, lower = RowTargets.of(scaled, settings).strategy(settings)
    assert lower <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= aims.judge(strategy, neighbours).value <= best * (1 + 2e-3)


@each(("neighbours", "method"), [("add-remove", "opt0"), ("replace", "opt0"), ("replace", "auto")])
def test_select_meets_targets_as_well_as_any_strategy(neighbours: str, method: str) -> None:
    strategy = tb.select(WORKLOAD, method=method, objective=TARGETS, neighbours=neighbours, tolerance=1e-3)
    reached = Minimax(WORKLOAD, TARGETS).judge(strategy, neighbours).value
    assert reached <= optimum(neighbours) * (1 + 2e-3)
    assert strategy.certificate is not None
    assert strategy.certificate <= 2e-3


def test_targets_of_households_meet_a_promise_to_a_person_at_no_more_than_one_to_households() -> None:
    """One household in place of another holds all that one person may change, where columns are pairs."""
    tenure = tb.Attribute("tenure", ("own", "rent", "none"), of_unit=True)
    domain = tb.Domain({"age": 3, "tenure": tenure, "records": tb.Attribute.seats("records", 4)})
    told = {"tenure": OWNED}
    tables = [
        tb.Table("persons", {"age": tb.Identity(3), **told}).counting(domain, of_units=False),
        tb.Table("households", told).counting(domain, of_units=True),
    ]
    workload, targets = tb.Workload(domain, tables), tb.Targets(rmse={"persons": 9, "households": 2})

    def ratio(chosen_for: str, promised: str) -> float:
        strategy = tb.select(workload, method="opt0", objective=targets, neighbours=chosen_for)
        return Minimax(workload, targets).judge(strategy, promised).value

    exchanged = ratio("replace", "replace")
    assert exchanged <= ratio("add-remove", "replace") * (1 + 1e-3)
    assert ratio("record-free", "record-free") <= exchanged * (1 + 1e-3)


def test_largest_variances_and_pairs_without_nobody_are_left_to_the_search_by_weights() -> None:
    margins = tb.Targets(margin={"ages": 3, "homes": 3, "grown": 3, "all": 3})
    assert Minimax(WORKLOAD, margins).in_total() is None
    assert Minimax(WORKLOAD, tb.Targets(rmse={"ages": 3})).in_total() is None
    counted = tb.Workload(DOMAIN, [tb.Table("homes", {"home": tb.Identity(3)})])
    scaled = Minimax(counted, tb.Targets(rmse={"homes": 1})).in_total()
    assert scaled is not None
    with pytest.raises(Unsupported, match="counted by no table"):
        RowTargets.of(scaled, Settings("gaussian", "replace"))
