"""Products on a common grid: bits are few, and none of them is wasted."""

from __future__ import annotations

import numpy as np
import pytest

from tabulae.errors import Unsupported
from tabulae.strategy import rounding
from tabulae.strategy.hdmm.opt0 import opt0_gaussian, opt0_laplace
from tabulae.strategy.rounding import share_bits, to_grid, unit_loss


def prefix(n):
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float)


def optimum(gram, p):
    return opt0_gaussian(gram) if p == 2 else opt0_laplace(gram, restarts=1)


@pytest.mark.parametrize("p", [1, 2])
def test_many_attributes_of_which_few_need_a_grid(p):
    """Cells beside totals need no bits, however many attributes ask for them: prefixes get them all."""
    grams = [prefix(20), prefix(30), *(np.eye(n) + 0.3 for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13))]
    found = [optimum(V, p) for V in grams]
    rounded = share_bits([f.strategy for f in found], grams, p)
    assert sum(r.exponent for r in rounded) <= 34
    assert np.prod([r.loss / f.loss for r, f in zip(rounded, found, strict=True)]) < 1.01


@pytest.mark.parametrize("p", [1, 2])
def test_five_real_factors_share_the_bits(p):
    grams = [prefix(n) for n in (8, 9, 10, 11, 12)]
    found = [optimum(V, p) for V in grams]
    rounded = share_bits([f.strategy for f in found], grams, p)
    assert sum(r.exponent for r in rounded) <= 34
    assert np.prod([r.loss / f.loss for r, f in zip(rounded, found, strict=True)]) < 1.15
    for r, V in zip(rounded, grams, strict=True):
        assert r.loss == pytest.approx(unit_loss(np.asarray(r.matrix.dense(), float), V, p), rel=1e-9)


def test_columns_of_a_laplace_strategy_keep_one_norm():
    V = prefix(40)
    rounded = to_grid(optimum(V, 1).strategy, V, 1, 8)
    assert set(np.abs(rounded.matrix.dense()).sum(axis=0).tolist()) == {2**8}


def test_too_many_real_factors_are_refused():
    V = prefix(6)
    with pytest.raises(Unsupported, match="union"):
        share_bits([optimum(V, 2).strategy] * 14, [V] * 14, 2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("asked", [True, False], ids=["its own queries", "others"])
def test_of_all_completions_the_best_is_found_without_trying_what_must_lose(p, asked, monkeypatch):
    """Of an optimum few are tried: one rises, and what adds more loses more. Of other matrices the last may be best."""
    apart = np.eye(12) - 1 / 12  # neither the queries nor the strategy say anything of the total
    gram = apart @ prefix(12) @ apart
    matrix = optimum(gram if asked else prefix(12), p).strategy @ apart
    tried = []
    monkeypatch.setattr(rounding, "unit_loss", lambda *given: tried.append(given) or unit_loss(*given))
    found = to_grid(matrix, gram, p, 20)
    number, each = len(tried) * p // 2, [np.rint(2**20 * made()) for made in rounding._candidates(matrix, p)]
    assert number < len(each) if asked else number <= len(each)
    assert found.loss <= min(unit_loss(one, gram, p) for one in each) * (1 + 1e-6)
