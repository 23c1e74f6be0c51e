"""Small random spines with everything in them: supports, structural zeros, recodes, queries that are not asked."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

import tabulae as tb
from tabulae.domain import Attribute, Domain, Recode
from tabulae.privacy import ZCDP, PureDP
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.layout import CellLayout, Margin, Supports
from tabulae.products.areas.spine_plan import SpinePlan

QUARTERS = Attribute.of("quarters", ["home", "hall", "ward"])
DOMAIN = Domain(
    {"quarters": QUARTERS, "age": 2, "race": 3},
    [Recode("group", "quarters", np.array([0, 1, 1]), ("home", "other"))],
)
NO_MINORS = np.array([[False, False], [False, False], [True, False]])
QUERIES = ([], ["race"], ["group"], ["quarters", "age"], ["race", "quarters"], ["quarters", "age", "race"])

Record = tuple[int, int]
"""Leaf, and cell of the domain."""


def spine(seed: int, noise: str = "gaussian") -> tb.Spine:
    """Counties, tracts and blocks, some of one child; with shares that differ between units where noise is Laplace."""
    draw = np.random.default_rng(seed)
    tract = np.sort(draw.integers(0, 5, size=int(draw.integers(2, 12))))
    county = np.array([0, 0, 1, 1, 2])[tract]
    codes = {
        "county": [f"c{i}" for i in county],
        "tract": [f"t{i}" for i in tract],
        "block": [f"0{i}" for i in draw.permutation(tract.size)],
    }
    made = tb.Spine.from_codes(codes, levels=list(codes))
    shares = dict(zip(made.levels, _parts(draw, len(made.levels)), strict=True))
    return made.bypass(shares, noise=noise) if seed % 3 else made.with_shares(shares)


def _parts(draw: np.random.Generator, count: int, zeros: bool = False) -> tuple[Fraction, ...]:
    weights = [int(w) for w in draw.integers(0 if zeros else 1, 5, size=count)]
    weights[-1] += 1
    return tuple(Fraction(w, sum(weights)) for w in weights)


def plan(
    seed: int, budget: PureDP | ZCDP | None = None, *, neighbours: str = "replace", rows: int = 1
) -> SpinePlan:
    """A plan over `spine`; the query of all attributes is asked everywhere."""
    draw, budget = np.random.default_rng(seed + 10_000), budget or ZCDP(1)
    made = spine(seed, "laplace" if isinstance(budget, PureDP) else "gaussian")
    layout = (
        CellLayout.of(DOMAIN, ["quarters", "age"], NO_MINORS)
        if seed % 2
        else CellLayout.of(DOMAIN, ["quarters"])
    )
    support = draw.random((made.leaves, layout.size)) < 0.6
    support[:, 0] |= ~support.any(axis=1)
    queries = tuple(layout.margin(names) for names in QUERIES)
    shares = {level: _parts(draw, len(queries), zeros=True) for level in made.levels}
    return SpinePlan(made, layout, queries, shares, budget, Supports.of(support), neighbours, rows)


def records(of: SpinePlan, people: int, seed: int = 0) -> list[Record]:
    """People where the plan says that they can be."""
    draw = np.random.default_rng(seed)
    leaf, dense = np.nonzero(of.support.rows)
    at = draw.integers(leaf.size, size=people)
    inner = draw.integers(of.layout.algebra.cells, size=people)
    cells = of.layout.cell[dense[at], inner]
    return list(zip(leaf[at].tolist(), cells.tolist(), strict=True))


def counts(of: SpinePlan, given: Sequence[Record]) -> SpineCounts:
    """The counts of these records."""
    leaf = np.array([one[0] for one in given], np.int64)
    cell = np.array([one[1] for one in given], np.int64)
    return SpineCounts(of, leaf, of.layout.place[cell], np.ones(leaf.size, np.int64))


def table(of: SpinePlan, margin: Margin, level: int, unit: int, given: Sequence[Record]) -> np.ndarray:
    """Every cell of a margin's table in one unit, by its definition: record by record, attribute by attribute."""
    domain = of.layout.domain
    views = []
    for name in margin.names:
        recode = domain.recode(name)
        size = domain[name].size if recode is None else len(recode.labels)
        views.append((domain.axis(domain.resolve(name).attribute.name), recode, size))
    found = np.zeros(tuple(size for _, _, size in views), np.int64)
    for leaf, cell in given:
        if of.spine.hierarchy.units[level][leaf] != unit:
            continue
        codes = np.unravel_index(cell, domain.shape)
        found[tuple(codes[a] if r is None else r.classes[codes[a]] for a, r, _ in views)] += 1
    return found.ravel()
