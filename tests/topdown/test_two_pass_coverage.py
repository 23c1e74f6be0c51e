"""How often intervals of least squares hold the truth, with the noise that is really drawn.

20,000 draws for each law: a share of p is told within 5.6 standard errors sqrt(p (1 - p) / 20,000), which fails in 2e-8
of all runs, and in 1e-6 over the 30 answers that are looked at.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri
from tests.topdown.two_pass_cases import covariance_of, gls

from tabulae import ZCDP, Domain, PureDP
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.passes.area_variances import margin_variance
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.passes.vectors import NodeVectors
from tabulae.products.areas.spine.spine import Spine
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan, area_half_widths

DRAWS, LEVEL, ERRORS = 20_000, 0.95, 5.6
AREAS = {"all": range(6), "county": range(3), "block": [5], "place": [1, 2, 3]}


def small_plan(budget: ZCDP | PureDP) -> SpinePlan:
    codes = {"county": list("AAABBB"), "tract": list("pqqrst"), "block": list("abcdef")}
    spine = Spine.from_codes(codes, levels=list(codes))
    shares = {"root": "1/10", "county": "3/10", "tract": "2/10", "block": "4/10"}
    spine = spine.bypass(shares, noise="gaussian" if isinstance(budget, ZCDP) else "laplace")
    layout = CellLayout.of(Domain({"type": 2, "race": 3}), ["type"])
    queries = tuple(layout.margin(names) for names in ([], ["race"], ["type", "race"]))
    support = np.array([[1, 0], [1, 1], [1, 0], [1, 1], [0, 1], [1, 1]], bool)
    alpha = {level: (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)) for level in spine.levels}
    return SpinePlan(spine, layout, queries, alpha, budget, Supports.of(support))


def total_errors(plan: SpinePlan, cov: Covariances) -> dict[str, np.ndarray]:
    """For each area shape (draws,): how wrong the estimated total is. Truth is 0, the estimate linear in the noise."""
    errors = {name: np.zeros(DRAWS) for name in AREAS}
    information = NodeVectors.zeros(plan)
    for piece in plan.pieces:
        laws = plan.laws(int(plan.classes[1][piece.nodes[0]]))
        for query, (law, rows) in enumerate(zip(laws, piece.rows, strict=True)):
            if law is None:
                continue
            for place in range(piece.nodes.size * rows):
                one = np.zeros(piece.nodes.size * rows)
                one[place] = 1
                values = tuple(one.reshape(-1, rows) if i == query else None for i in range(len(laws)))
                information.flat[:] = 0
                information.put(piece.nodes, plan.information(SpinePieceValues(piece, values)))
                leaves = gls(plan, information, cov).take_on(plan.tree.leaf, np.arange(plan.layout.size))
                noise = law.sample(DRAWS)
                for name, members in AREAS.items():
                    errors[name] += leaves[list(members)].sum() * noise
    return errors


@pytest.mark.parametrize("budget", [ZCDP("1/50"), PureDP("1/2")])
def test_variances_and_coverage_are_as_told(budget):
    plan = small_plan(budget)
    cov = Covariances.of(plan)
    laws = [law for kind in range(len(plan.classes[0])) for law in plan.laws(kind) if law is not None]
    for name, error in total_errors(plan, cov).items():
        mask = np.zeros(plan.spine.leaves, bool)
        mask[list(AREAS[name])] = True
        variance = margin_variance(plan.layout, covariance_of(cov, mask), plan.layout.margin([]))
        kurtosis = ((error / error.std()) ** 4).mean()
        assert abs(error.var() / variance.item() - 1) < ERRORS * np.sqrt((kurtosis - 1) / DRAWS)
        assert abs(error.mean()) < ERRORS * np.sqrt(variance.item() / DRAWS)
        proven = area_half_widths(variance.ravel(), laws, LEVEL).item()
        spread = ERRORS * np.sqrt(LEVEL * (1 - LEVEL) / DRAWS)
        assert (np.abs(error) <= proven).mean() > LEVEL - spread
        if isinstance(budget, ZCDP):
            normal = ndtri((1 + LEVEL) / 2) * np.sqrt(variance.item())
            assert abs((np.abs(error) <= normal).mean() - LEVEL) < spread
