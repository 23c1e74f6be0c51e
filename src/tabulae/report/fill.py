"""From a release folder to what the report shows: read, never computed anew."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tabulae.linalg import Contrasts, Identity, LinearOperator, Product, Stack, Total
from tabulae.linalg.weighted_rows import weighted_rows
from tabulae.planning import described
from tabulae.privacy import NoiseLaw
from tabulae.release import Release
from tabulae.report.groups import groups_report
from tabulae.report.ledger_lines import ledger_lines
from tabulae.report.pictures import picture_of
from tabulae.report.render import render_report
from tabulae.report.view import (
    ROWS_SHOWN,
    BlockView,
    Consequences,
    EpsilonStatement,
    ExactView,
    ExpectedError,
    MatrixPicture,
    Promise,
    ReleaseView,
    StrategyView,
    TableView,
)
from tabulae.strategy import Block
from tabulae.tables import Domain, Table

_METHODS = {
    "identity": "identity (every cell is counted)",
    "workload": "workload (the published queries themselves)",
    "hierarchical": "hierarchical (a binary tree of ranges for each attribute)",
    "hb": "HB (a tree of ranges for each attribute, with as many branches as suit its size)",
    "wavelet": "Haar wavelet (differences of neighbouring ranges, for each attribute)",
    "greedy-h": "GreedyH (a tree of ranges for each attribute, weighted for the tables)",
    "fourier": "Fourier (the coefficients that the tables' attributes need)",
    "datacube": "DataCube BMAX (those marginals that keep the largest noise small)",
    "low-rank": "low-rank mechanism (as few queries as the tables' rank allows)",
    "coa": "COA (the convex optimum, by Newton steps)",
    "opt0": "OPT_0 (one matrix, optimised as a whole)",
    "kron": "OPT_kron (one product of matrices, optimised attribute by attribute)",
    "union": "OPT_+ (a product of optimised matrices for each group of tables)",
    "marginals": "OPT_M (weighted marginals)",
    "optimised-marginals": "OPT_M with an optimised matrix for each attribute",
    "eigen": "Eigen-Design (weighted eigenvectors of the tables' matrix, or another weighted set)",
    "eigen-separation": "Eigen-Design, eigenvectors weighted in groups",
    "principal-vectors": "Eigen-Design, the principal eigenvectors weighted one by one",
    "residual": "residual planner (for each set of attributes, what its tables ask beyond those of its subsets)",
}
_ONE_SIDED = (
    "standard errors and intervals are those of plain least squares, the intervals cut at zero and widened to be "
    "symmetric about the estimate"
)
_ESTIMATES = {
    "least-squares": "by least squares, so that all tables agree with each other",
    "non-negative": "by least squares among counts that are nowhere below zero, so that all tables agree; "
    + _ONE_SIDED,
    "pgm": "through a graphical model, so that no count is below zero and all tables agree; " + _ONE_SIDED,
}
_WITH_EXACT = {
    "least-squares": (
        "and from the exact counts: by least squares for what the exact counts leave open, where nothing but the noisy "
        "answers enters, and from the exact counts for the rest, so that all tables agree with each other and keep "
        "every exact sum to the last digit"
    ),
    "non-negative": (
        "and from the exact counts together: by least squares among counts that are nowhere below zero and keep every "
        "exact sum. Because of the limit at zero the exact counts enter everywhere, also into what they do not "
        "determine, so that each number is a function of both; " + _ONE_SIDED
    ),
}
_MORE_DELTAS = (Fraction(1, 10**9), Fraction(1, 10**6))
_LAW_WORDS = {
    "discrete-gaussian": "discrete Gaussian, sigma",
    "rounded-gaussian": "rounded Gaussian, sigma",
    "discrete-laplace": "discrete Laplace, scale",
}


def report_of(release: Release) -> str:
    """The report of a release as one HTML page, from its folder alone.

    >>> report_of  # doctest: +ELLIPSIS
    <function report_of at ...>
    """
    if release.spec.detailed is not None:
        return groups_report(release)
    if release.spec.geography is not None:
        from tabulae.report.geography import geography_report

        return geography_report(release)
    return render_report(view_of(release))


def view_of(release: Release) -> ReleaseView:
    """What the report of a release shows."""
    return ReleaseView(
        title=release.spec.title or "Release",
        promise=_promise(release),
        ledger=ledger_lines(release.ledger),
        tables=tuple(_table(release, table) for table in release.spec.workload.tables),
        strategy=_strategy(release),
        release_id=str(release.about["release_id"]),
        made=str(release.descriptor["created"]),
        version=str(release.about["version"]),
    )


def _promise(release: Release) -> Promise:
    spec = release.spec
    delta = spec.loss.parameters.get("delta")
    statements = ()
    if spec.loss.definition == "zcdp" and spec.delta is not None:
        deltas = dict.fromkeys((spec.delta, *_MORE_DELTAS))
        statements = tuple(EpsilonStatement(float(d), spec.loss.epsilon(d)) for d in deltas)
    return Promise(
        spec.loss.definition,  # type: ignore[arg-type]
        spec.loss.amount,
        spec.neighbours,
        spec.unit,
        delta,
        statements,
        exact=tuple(_exact(release)),
        consequences=_consequences(release),
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
        one_sided=spec.method.estimate == "non-negative",
    )


def _exact(release: Release) -> Iterator[ExactView]:
    """The sets of counts that this release states exactly."""
    for told in release.about.get("exact", {}).get("tables", ()):
        name = told["name"]
        yield ExactView(f"{name}: {told['what']}", told["reason"], told["counts"], f"tables/{name}.csv")


def _consequences(release: Release) -> Consequences | None:
    told = release.about.get("exact")
    if told is None:
        return None
    rows = {table.name: table.rows(release.domain) for table in release.spec.workload.tables}
    return Consequences(
        told["stated"],
        told["independent"],
        tuple((name, exact, rows[name]) for name, exact in told["published"].items()),
        tuple(ExactView(f"{e['name']} ({e['release']})", e["reason"]) for e in told["earlier"]),
        told["joint"],
        tuple(told["unprotected"]),
        tuple(told["warnings"]),
    )


def _table(release: Release, table: Table) -> TableView:
    rows = release.tables[table.name]
    headings = list(table.columns(release.domain))
    about = release.about["expected"][table.name]
    return TableView(
        name=table.name,
        description=_described(table, release),
        columns={h: rows[h].slice(0, ROWS_SHOWN).to_pylist() for h in headings},
        estimate=_floats(rows, "estimate"),
        std_error=_floats(rows, "std_error"),
        ci_low=_floats(rows, "ci_low"),
        ci_high=_floats(rows, "ci_high"),
        obs_status=rows["obs_status"].to_pylist(),
        expected=ExpectedError(**{k: about[k] for k in ("rmse", "margin", "identity", "workload", "bound")}),
        file=f"tables/{table.name}.parquet",
        level=release.level,
        conservative=release.about["conservative_intervals"][table.name] > 0,
    )


def _floats(rows: pa.Table, name: str) -> np.ndarray:
    return rows[name].to_numpy().astype(float)


def _described(table: Table, release: Release) -> str:
    """The table in words: its statement, or what is crossed with what, in how many rows."""
    if (statement := _statements(release.spec.text).get(table.name)) is not None:
        return statement
    return described(table, release.domain)


@lru_cache(maxsize=1)
def _statements(text: str) -> dict[str, str]:
    """The SQL of those tables that the published spec states in SQL."""
    return {entry["name"]: entry["sql"] for entry in tomllib.loads(text)["table"] if "sql" in entry}


def _strategy(release: Release) -> StrategyView:
    measurement, spec = release.measurements[0], release.spec
    strategy = measurement.strategy
    in_total = spec.targets is None and spec.method.objective == "total"  # what the certificate is about
    blocks = tuple(
        _block(block, law, release.domain)
        for block, law in zip(strategy.blocks, measurement.laws, strict=True)
    )
    return StrategyView(
        _METHODS.get(strategy.method, strategy.method),
        blocks,
        strategy.certificate if in_total else None,
        (_WITH_EXACT if spec.invariants else _ESTIMATES)[spec.method.estimate],
    )


def _block(block: Block, law: NoiseLaw, domain: Domain) -> BlockView:
    explicit = isinstance(block.query, Product) and weighted_rows(block.query) is None
    pictures: list[MatrixPicture] = []
    undrawn: list[str] = []
    asked: list[str] = []
    classes = isinstance(block.query, (Contrasts, Stack))  # too many matrices to draw
    for attribute, factor in zip(domain.attributes, _finest(block), strict=True):
        if isinstance(factor, Total) or factor.shape[0] == 1:
            continue
        asked.append(attribute.name)
        picture = None if explicit or classes else picture_of(attribute.name, factor)
        if picture is None:
            undrawn.append(attribute.name)
        else:
            pictures.append(picture)
    if explicit:
        picture = picture_of(" x ".join(asked), block.query.left)  # type: ignore[union-attr]
        pictures, undrawn = ([picture], []) if picture else ([], undrawn)
    return BlockView(
        block.name,
        _measures(block, domain, asked),
        block.rows,
        _noise(block, law),
        tuple(pictures),
        tuple(undrawn),
    )


def _finest(block: Block) -> list[LinearOperator]:
    """For each attribute the matrix with most rows among those that the block is made of."""
    sides = zip(*(factors for _, factors in block.terms), strict=True)
    return [max(side, key=lambda factor: factor.shape[0]) for side in sides]


def _measures(block: Block, domain: Domain, asked: list[str]) -> str:
    if not asked:
        return "the total"
    factors = dict(zip((a.name for a in domain.attributes), _finest(block), strict=True))
    plain = all(isinstance(factors[name], Identity) for name in asked)
    return " by ".join(asked) if plain else "weighted counts over " + " by ".join(asked)


def _noise(block: Block, law: NoiseLaw) -> str:
    gaussian = law.name != "discrete-laplace"
    size = float(law.parameter) ** 0.5 if gaussian else float(law.parameter)
    grid = "" if block.exponent == 0 else f", in steps of 2^-{block.exponent}"
    weight = float(block.query.abs_entry_max()) * 2.0**-block.exponent
    counts = "counts" if abs(weight - 1) < 1e-3 else f"on counts weighted up to {weight:.4g}"
    return f"{_LAW_WORDS[law.name]} {size * 2.0**-block.exponent:.4g} {counts}{grid}"
