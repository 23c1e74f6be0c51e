"""A made-up release of the size and shape of a real one; nothing in it was counted from anybody."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tabulae.report import (
    BlockView,
    EpsilonStatement,
    ExactView,
    ExpectedErrorView,
    LedgerLine,
    PromiseView,
    ReleaseView,
    StrategyView,
    TableView,
    picture_of,
)


def made_up_table(name: str, columns: dict[str, list[str]], sigma: float, seed: int) -> TableView:
    """Lay a full cross of labels, skewed counts and normal noise of standard deviation ``sigma``."""
    random = np.random.default_rng(seed)
    grids = np.meshgrid(*[np.arange(len(labels)) for labels in columns.values()], indexing="ij")
    labels = {
        attribute: [values[i] for i in grid.ravel()]
        for (attribute, values), grid in zip(columns.items(), grids, strict=True)
    }
    rows = grids[0].size
    truth = np.floor(random.lognormal(5.0, 2.2, rows))
    error = np.full(rows, sigma)
    estimate = truth + random.normal(0, sigma, rows)
    return TableView(
        name=name,
        description=f"Persons by {', '.join(columns)}."
        if len(columns) < 3
        else "Persons, a three-way cross.",
        columns=labels,
        estimate=estimate,
        std_error=error,
        ci_low=estimate - 1.96 * error,
        ci_high=estimate + 1.96 * error,
        obs_status=["A"] * rows,
        expected=ExpectedErrorView(sigma, 1.96 * sigma, sigma * 2.4, sigma * 1.7, sigma * 0.97),
        file=f"tables/{name}.parquet",
    )


def p_identity(n: int, p: int) -> np.ndarray:
    """A matrix of the shape of HDMM's p-Identity strategies: smooth windows under a weighted diagonal."""
    places = (np.arange(p)[:, None] + 0.5) * n / p
    windows = np.exp(-0.5 * ((np.arange(n)[None, :] - places) / (n / p / 1.6)) ** 2)
    return np.vstack([0.6 * np.eye(n), windows])


def strategy_view() -> StrategyView:
    age, small = p_identity(115, 9), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    haar = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]], dtype=float)
    blocks = []
    for name, parts in (
        ("Block 1", {"age": age, "sex": small}),
        ("Block 2", {"county": np.eye(7), "race": haar}),
    ):
        pictures = tuple(p for a, m in parts.items() if (p := picture_of(a, m)) is not None)
        queries = int(np.prod([m.shape[0] for m in parts.values()]))
        measures = f"Weighted counts over {' × '.join(parts)}; every other attribute summed."
        blocks.append(BlockView(name, measures, queries, "discrete Gaussian, σ = 3.31", pictures))
    return StrategyView("hdmm: two products, chosen by OPT₊", tuple(blocks), certificate=6.2e-4)


@pytest.fixture
def made_up() -> Callable[..., ReleaseView]:
    """A release; keyword arguments replace its fields."""
    return made_up_release


def made_up_release(**changes: object) -> ReleaseView:
    """Build the release; keyword arguments replace its fields."""
    sex, races = ["F", "M"], ["Andorian", "Betazoid", "Cardassian", "Denobulan"]
    age5 = ["0-4", "5-17", "18-24", "25-44", "45-64", "65-114"]
    counties = [f"County {letter}" for letter in "ABCDEFG"]
    ranges = [f"{i}-{j}" for i in range(40) for j in range(i, 40)]
    tables = (
        made_up_table("total", {"sex": ["_T"]}, 4.1, 1),
        made_up_table("sex_by_age", {"sex": sex, "age5": age5}, 6.4, 2),
        made_up_table("race_by_county", {"county": counties, "race": races}, 11.8, 3),
        made_up_table("age_ranges", {"age": ranges}, 9.2, 4),
        made_up_table("race_sex_age", {"race": races, "sex": sex, "age5": age5}, 31.5, 5),
        made_up_table("young_or_old", {"sex": sex}, 14.9, 6),
    )
    fields: dict[str, object] = {
        "title": "Demo county, persons",
        "promise": PromiseView(
            definition="zcdp",
            parameter=Fraction(1, 2),
            neighbours="add-remove",
            unit="person",
            statements=(
                EpsilonStatement(1e-6, 5.3066),
                EpsilonStatement(1e-9, 6.6234),
                EpsilonStatement(1e-10, 7.0163),
            ),
            exact=(ExactView("Number of housing units by county", "counted by satellite, public already"),),
        ),
        "ledger": (
            LedgerLine("2026-11-20 10:04 UTC", "Block 1", Fraction(2, 5), "3f7c0a91d2e8b6540c1d"),
            LedgerLine("2026-11-20 10:04 UTC", "Block 2", Fraction(1, 10), "b81d5e02f9c44a7716aa"),
        ),
        "tables": tables,
        "strategy": strategy_view(),
        "release_id": "9d1f3c2a7be04416",
        "made": "2026-11-20",
        "version": "0.1.0",
    }
    return ReleaseView(**{**fields, **changes})  # pyright: ignore[reportArgumentType]
