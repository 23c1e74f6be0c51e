"""The bound of tables that are no products: below the optimum, and the nuclear norm itself with all directions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tabulae as tb
from benchmarks import workloads
from tabulae.strategy.bounds import joint
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.bounds.joint import joint_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian


@st.composite
def _joint(draw: st.DrawFn) -> tb.Workload:
    """Products and joint tables over attributes of different sizes, of two and of three of them."""
    sizes = draw(st.sampled_from([(2, 3), (3, 4, 2), (4, 3, 3), (5, 2, 3), (3, 2, 2, 2)]))
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    asks = [tb.Identity, tb.Prefix, tb.AllRange]
    tables = []
    for k in (1, 2, 3):
        for names in combinations(domain.names, k):
            if rng.random() < 0.3:
                continue
            weight = int(rng.integers(1, 4))
            if k == 1 or rng.random() < 0.4:
                factors = {a: asks[rng.integers(3)](domain[a].size) for a in names}
                tables.append(tb.Table("".join(names), factors, weight))
            else:
                cells = int(np.prod([domain[a].size for a in names]))
                matrix = rng.integers(-1, 3, (int(rng.integers(1, 2 * cells)), cells))
                matrix[0, 0] = 1
                tables.append(tb.Table.joint("".join(names), names, matrix, weight))
    first = domain.names[:2]
    sums = workloads.sums_up_to(*sizes[:2]).dense()
    return tb.Workload(domain, [*tables, tb.Table.joint("sums", first, sums)])


@settings(max_examples=settings().max_examples // 3)
@given(_joint(), st.integers(1, 3))
def test_it_is_never_above_the_optimum(workload: tb.Workload, directions: int) -> None:
    """Against the certified dual of the explicit workload, with few directions of each attribute and with all."""
    merged, _ = workload.merge()
    gram = explicit_gram(merged)
    loss = opt0_gaussian(gram, tolerance=1e-6).loss
    whole = joint_bound(merged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "_LONG", 0.0)  # attributes of one size share multipliers
        tied = joint_bound(merged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "_MOST", directions)
        few = joint_bound(merged)
        patch.setattr(joint, "_COLUMNS", 8)  # attributes of R are traced too
        fewer = joint_bound(merged)
    assert whole is not None
    assert tied is not None
    assert few is not None
    assert fewer is not None
    assert svd_bound(gram) * (1 - 1e-3) <= whole <= loss * (1 + 1e-9)
    assert 0 < tied <= loss * (1 + 1e-9)
    assert 0 < fewer <= few * (1 + 1e-3)
    assert few <= loss * (1 + 1e-9)


def test_products_alone_have_none_and_wide_tables_are_left_out() -> None:
    domain = tb.Domain({"a": 4, "b": 5})
    one = tb.Table("a", {"a": tb.Prefix(4)})
    near = tb.Table.joint("near", ("a", "b"), workloads.at_most_apart(4, 5).dense())
    assert joint_bound(tb.Workload(domain, [one])) is None
    whole = joint_bound(tb.Workload(domain, [one, near]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "_CELLS", 19)
        without = joint_bound(tb.Workload(domain, [one, near]))
        assert joint_bound(tb.Workload(domain, [near])) is None
    assert whole is not None
    assert without is not None
    assert without < 0.7 * whole


def _pairs(sizes: tuple[int, ...]) -> tb.Workload:
    """Prefixes of attributes and ``a + b <= c`` of their pairs."""
    return workloads.up_to_pairs([tb.Prefix(n) for n in sizes], workloads.sums_up_to)


def test_of_pairs_of_different_sizes_it_is_near_the_optimum() -> None:
    merged, _ = _pairs((5, 4, 3)).merge()
    bound, optimum = joint_bound(merged), opt0_gaussian(explicit_gram(merged), tolerance=1e-5)
    assert bound is not None
    assert optimum.lower * 0.95 <= bound <= optimum.loss


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(6, 5, 4, 3), (12, 9, 7, 5, 3)])
def test_pairs_of_different_sizes_have_a_certificate(sizes: tuple[int, ...]) -> None:
    """Of the larger there is none without it but that of the prefixes; of the smaller the dual of all cells is one."""
    workload = _pairs(sizes)
    best = tb.select(workload, method="residual")
    assert best.certificate is not None
    assert best.certificate <= 0.15


def test_attributes_of_one_size_share_multipliers_where_that_saves_much() -> None:
    """Equal tables are then decomposed once; the bound stays below the optimum, and is hardly lower."""
    draw = np.random.default_rng(1)
    one, two = (tb.Dense((draw.random((3 * n, n)) < 0.4).astype(int)) for n in (3, 9))
    merged, _ = workloads.up_to_pairs([one] * 4, lambda *_: two).merge()
    apart = joint_bound(merged)
    decomposed: list[int] = []
    plain = joint._of_gram
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "_LONG", 0.0)
        patch.setattr(joint, "_of_gram", lambda V, shape: decomposed.append(len(V)) or plain(V, shape))
        shared = joint_bound(merged)
    assert decomposed.count(9) == len(joint._POWERS)  # six pairs
    assert apart is not None
    assert shared is not None
    assert 0.99 * apart < shared <= opt0_gaussian(explicit_gram(merged), tolerance=1e-6).loss
