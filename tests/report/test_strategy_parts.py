"""A strategy taken apart: its parts ask what the whole asks and cost what they should; attributes have pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.report.report import view_of
from tabulae.report.strategy import block_shares, largest_entry, parts_of
from tabulae.strategy import Strategy

DOMAIN = tb.Domain({"sex": ["F", "M"], "age": range(6), "race": 3})
METHODS = (
    "identity", "workload", "hb", "fourier", "kron", "union", "marginals", "hdmm", "eigen", "eigen-separation",
    "principal-vectors", "residual", "auto",
)  # fmt: skip
WORKLOADS = {
    "marginals": tb.Workload.marginals(DOMAIN, ways=[1, 2]),
    "ranges": tb.Workload(
        DOMAIN,
        [
            tb.Table("a", {"sex": tb.Identity(2), "age": tb.AllRange(6)}),
            tb.Table("b", {"age": tb.Prefix(6), "race": tb.Identity(3)}),
        ],
    ),
}


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=WORKLOADS)
def strategy(request: pytest.FixtureRequest, method: str) -> Strategy:
    return tb.select(WORKLOADS[request.param], noise="gaussian", method=method, time_limit=5)


def test_parts_ask_what_the_block_asks(strategy: Strategy) -> None:
    """Same Gram matrix, for the same rows in any order; and what is not asked about does not matter."""
    shape = DOMAIN.shape
    for block in strategy.blocks:
        parts = parts_of(block, DOMAIN)
        rows = np.vstack([part.block.query.dense() for part in parts]).astype(float)
        whole = np.asarray(block.query.dense(), dtype=float)
        assert len(rows) == len(whole)
        assert np.allclose(rows.T @ rows, whole.T @ whole)
        for part in parts:
            assert largest_entry(part.block.query) == np.abs(part.block.query.dense()).max()
            matrix = np.asarray(part.block.query.dense(), dtype=float).reshape(-1, *shape)
            for axis, attribute in enumerate(DOMAIN.attributes, start=1):
                depends = not np.allclose(matrix, matrix.take([0], axis=axis))
                assert depends == (attribute.name in part.asked), (part.block.name, attribute.name)


def test_shares_are_those_of_the_columns(strategy: Strategy) -> None:
    parts = [part.block for block in strategy.blocks for part in parts_of(block, DOMAIN)]
    shares = block_shares(strategy, parts, "add-remove", 1)
    if len(parts) == 1:
        assert shares == (1.0,)
        return
    columns = [
        np.square(np.asarray(p.query.dense(), float)).sum(axis=0) / float(p.scale) / 4.0**p.exponent
        for p in parts
    ]
    whole = np.sum(columns, axis=0).max()
    assert np.allclose(np.array(shares, float), [column.max() / whole for column in columns])
    assert sum(share or 0 for share in shares) >= 1 - 1e-9


@pytest.mark.parametrize(
    ("method", "drawn"),
    [
        pytest.param("residual", None, marks=pytest.mark.long),
        ("marginals", {"sex", "age", "race"}),
        pytest.param("hdmm", None, marks=pytest.mark.long),
        ("eigen-separation", None),
        ("auto", None),
    ],
)
def test_every_common_method_has_pictures(village: Path, method: str, drawn: set[str] | None) -> None:
    text = village.read_text()
    text = text[: text.index('[[table]]\nname = "ages"')] if drawn else text
    village.write_text(f'{text}\n[method]\nselect = "{method}"\n')
    release = tb.run(village, village.parent / "release")
    view = view_of(release).strategy
    shown = {picture.attribute for block in view.blocks for picture in block.pictures}
    asked = {name for block in view.blocks for name in block.asked}
    assert asked == {"sex", "age", "race"}
    assert not [block.undrawn for block in view.blocks if block.undrawn]
    if drawn is not None:
        assert shown == drawn
    else:
        named = {name for joined in shown for name in joined.split(" × ")}
        compared = {name for block in view.blocks for name in block.compared}
        assert named | compared == asked
    page = (release.path / "report.html").read_text()
    assert page.count('<figure class="matrix">') >= 1
    assert ("What is asked together" in page) == (len(view.blocks) > 1)
