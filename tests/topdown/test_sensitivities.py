"""Derivatives of least-squares variances of areas: against differences, and by the degree of the variance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.spec.states import SPINE, State, write_state

from tabulae.products.areas.passes.area_variances import Sensitivities, area_covariances
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.spec.section import Geography

MORE = ("[[table]]", '[[invariant]]\nattributes = ["hhgq"]\nlevel = "county"\nreason = "r"\n[[table]]')
SPLIT = (
    'outside = { place = "99" }\n',
    'outside = { place = "99" }\nsplit = "tribe IS NOT NULL"\noptimise = { }\n',
)
NO_STATE = (
    ('state = "1/4", county = "1/4"', 'state = "0", county = "1/2"'),
    (
        'state = "1/2", county = "1/2", tract = "1/3", block = "1/4"',
        'county = "1/2", tract = "1/3", block = "1/4"',
    ),
    (
        'state = "1/2", county = "1/2", tract = "1/3", block = "3/4"',
        'county = "1/2", tract = "1/3", block = "3/4"',
    ),
)
NO_INVARIANT = ('[[invariant]]\nattributes = []\nlevel = "state"\nreason = "apportionment"\n', "")
OFF = ("shares =", 'bypass = "off"\nshares =')
CASES = {
    "plain": (),
    "more exact counts": (MORE,),
    "nothing exact": (NO_INVARIANT,),
    "split and redrawn": (SPLIT, NO_INVARIANT),
    "only children measured": (OFF,),
    "a root without a share": NO_STATE,
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    state = write_state(tmp_path_factory.mktemp("state"))
    wider = "".join(
        f"01,01005,01005{'CD'[i // 4]},10{i:02},{(10, 20, '')[i % 3]},{'T' * (i % 2)}\n" for i in range(8)
    )
    state.file("spine.csv", SPINE + wider)
    rows = "".join(f"10{i:02},household,,\n10{i:02},jail,,\n" for i in range(8))
    state.file("facilities.csv", (state.base / "facilities.csv").read_text() + rows)
    return state


def sum_of_variances(
    geography: Geography, weights: np.ndarray, given: dict[str, np.ndarray]
) -> tuple[float, Covariances]:
    """F, and the matrices that it is of."""
    limits = geography.constraints
    cov = Covariances.of(geography.plan(), () if limits is None else limits.exact, weights)
    total = 0.0
    for kind, parts in given.items():
        found = area_covariances(cov, geography.areas(kind)[1], len(parts))
        total += sum(float((part * variance).sum()) for part, variance in zip(parts, found, strict=True))
    return total, cov


@pytest.mark.parametrize(
    "kinds",
    [
        ("block",),
        ("state",),
        ("place", "tract"),
        *(pytest.param((kind,), marks=pytest.mark.long) for kind in ("tract", "county", "place")),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_limits_of_differences(state: State, case: str, kinds: tuple[str, ...]) -> None:
    geography = state.geography(*CASES[case])
    plan, rng = geography.plan(), np.random.default_rng(len(case))
    measured = np.array([[law is not None for law in plan.laws(i)] for i in range(len(plan.classes[0]))])
    weights = measured * rng.uniform(0.3, 3, measured.shape)
    size, given = plan.layout.size, {}
    for kind in kinds:
        root = rng.normal(size=(geography.areas(kind)[0].size, plan.layout.algebra.kinds, size, size))
        given[kind] = root @ root.swapaxes(-1, -2)
    total, cov = sum_of_variances(geography, weights, given)
    found = Sensitivities.zeros(cov)
    for kind, parts in given.items():
        found.add(geography.areas(kind)[1], parts)
    slope = found.by_class()
    assert (slope * weights).sum() == pytest.approx(total, rel=1e-9), "variances are of degree -1"
    for one, query in rng.permutation(np.argwhere(measured))[:4]:
        step = np.zeros_like(weights)
        step[one, query] = 1e-4 * weights[one, query]
        ends = [sum_of_variances(geography, weights + sign * step, given)[0] for sign in (-1, 1)]
        difference = (ends[0] - ends[1]) / (2 * step[one, query])
        assert slope[one, query] == pytest.approx(difference, rel=1e-5, abs=1e-8 * total)


def test_a_query_that_is_not_asked_has_a_derivative_too(state: State) -> None:
    geography = state.geography()
    plan = geography.plan()
    measured = np.array([[law is not None for law in plan.laws(i)] for i in range(len(plan.classes[0]))])
    one, query = np.argwhere(~measured & measured.any(axis=1, keepdims=True))[0]
    given = {"county": np.ones((3, plan.layout.algebra.kinds, plan.layout.size, plan.layout.size))}
    _, cov = sum_of_variances(geography, measured.astype(float), given)
    found = Sensitivities.zeros(cov)
    found.add(geography.areas("county")[1], given["county"])
    ends = []
    for more in (0.0, 1e-5):
        weights = measured.astype(float)
        weights[one, query] = more
        ends.append(sum_of_variances(geography, weights, given)[0])
    assert found.by_class()[one, query] == pytest.approx((ends[0] - ends[1]) / 1e-5, rel=1e-3)


def test_areas_are_added_in_pieces(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    geography = state.geography()
    plan = geography.plan()
    shape = (geography.areas("place")[0].size, plan.layout.algebra.kinds, plan.layout.size, plan.layout.size)
    parts, found = np.broadcast_to(np.eye(plan.layout.size), shape).copy(), []
    for numbers in (10**9, 1):
        monkeypatch.setattr("tabulae.products.areas.passes.area_variances._NUMBERS", numbers)
        one = Sensitivities.zeros(Covariances.of(plan))
        one.add(geography.areas("place")[1], parts)
        found.append(one.by_class())
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_the_order_of_areas_does_not_matter(tmp_path: Path) -> None:
    """Areas in another order have the same derivatives, in theirs."""
    geography = write_state(tmp_path).geography()
    plan, rng = geography.plan(), np.random.default_rng(1)
    codes, index = geography.areas("county")
    order = rng.permutation(codes.size)
    root = rng.normal(size=(codes.size, plan.layout.algebra.kinds, plan.layout.size, plan.layout.size))
    parts, found = root @ root.swapaxes(-1, -2), []
    for place, weights in ((index, parts), (np.argsort(order)[index], parts[order])):
        one = Sensitivities.zeros(Covariances.of(plan))
        one.add(place, weights)
        found.append(one.by_class())
    assert found[0] == pytest.approx(found[1], rel=1e-12)
