"""Counts over more cells than a vector is made for: answered slice by slice, and measured where the answers lie."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from tests.each import each

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.linalg import Dense, Identity, Kron, LinearOperator, Partition, Prefix, Total
from tabulae.linalg import kron as kron_slices
from tabulae.products.tables import count as cells
from tabulae.products.tables import count as memory
from tabulae.products.tables import measure as _measure
from tabulae.products.tables.count import Counts

RNG = np.random.default_rng(3)
DOMAIN = tb.Domain({"a": 12, "b": 15, "c": 20})
QUERIES: dict[str, list[LinearOperator]] = {
    "cells": [Identity(12), Identity(15), Identity(20)],
    "prefixes": [Prefix(12), Prefix(15), Prefix(20)],
    "merged columns": [Partition(np.arange(12) % 5), Prefix(15), Identity(20)],
    "matrices": [Dense(RNG.integers(-5, 6, size=(13, 12))), Prefix(15), Dense(RNG.integers(0, 9, size=(21, 20)))],
    "an attribute that is not asked for": [Prefix(12), Total(15), Prefix(20)],
}  # fmt: skip


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors end at 200 cells, and slices hold 400."""
    monkeypatch.setattr(cells, "VECTOR_LIMIT", 200)
    monkeypatch.setattr("tabulae.products.tables.count.VECTOR_LIMIT", 200)
    monkeypatch.setattr(kron_slices, "_SLICE", 400)
    monkeypatch.setattr(kron_slices, "_BLOCK", 128)


def people(count: int, domain: tb.Domain = DOMAIN) -> np.ndarray:
    """Codes, with some cells that many share."""
    return np.stack([RNG.binomial(n - 1, 0.3, size=count) for n in domain.shape], axis=1)


@pytest.mark.usefixtures("few_cells")
@each("name", list(QUERIES))
@each("count", [0, 1, 5000])
def test_slices_and_a_vector_give_the_same_answers(name: str, count: int) -> None:
    codes, query = people(count), Kron(QUERIES[name])
    x = np.bincount(np.ravel_multi_index(tuple(codes.T), DOMAIN.shape), minlength=DOMAIN.size)
    made = Counts.from_records(DOMAIN, codes).answer(query)
    assert made.dtype == np.int64
    assert made.tolist() == (query @ x.astype(np.int64)).tolist()


@pytest.mark.usefixtures("few_cells")
def test_answers_that_could_reach_62_bits_are_refused_as_elsewhere() -> None:
    large = Dense([[2**31] * 12])
    made = Counts.from_cells(DOMAIN, [[0, 0, 0], [3, 4, 5]], [2**20, 2**31])
    with pytest.raises(Unsupported, match="2\\^62"):
        made.answer(Kron([Dense(np.vstack([np.eye(12, dtype=int), large.array])), Prefix(15), Prefix(20)]))


@pytest.mark.usefixtures("few_cells")
def test_answers_that_the_memory_does_not_hold_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory.os, "sysconf", lambda name: 1024 if name == "SC_PAGE_SIZE" else 50)
    made = Counts.from_records(DOMAIN, people(10))
    with pytest.raises(Unsupported, match=r"answers of .* more than half of this machine's .* of memory"):
        made.answer(Kron(QUERIES["prefixes"]))


@pytest.mark.usefixtures("few_cells")
def test_a_large_product_is_measured_and_estimated() -> None:
    """Noise of deviation 1 on every cell: estimates lie near the counts, in 6 standard errors (1e-5 of false alarm)."""
    codes = people(5000)
    workload = tb.Workload(
        DOMAIN, [tb.Table("cells", {n: tb.Identity(DOMAIN[n].size) for n in DOMAIN.names})]
    )
    strategy = tb.select(workload, method="identity")
    counts = Counts.from_records(DOMAIN, codes)
    before = counts.fingerprint()
    estimate = tb.estimate(tb.measure(counts, strategy, tb.ZCDP("1/2")))
    x = np.bincount(np.ravel_multi_index(tuple(codes.T), DOMAIN.shape), minlength=DOMAIN.size)
    assert np.abs(estimate.answer(workload)["cells"] - x).max() < 6
    assert counts.fingerprint() == before


def test_noise_never_reaches_the_counts_themselves() -> None:
    """The identity's answers lie where the counts do, until noise is to be added to them."""
    domain = tb.Domain({"a": 100})
    strategy = tb.select(tb.Workload.of(tb.Identity(100)), method="identity")
    counts = Counts.from_array(strategy.domain, np.arange(100))
    before = counts.fingerprint()
    first, second = (tb.measure(counts, strategy, tb.ZCDP("1/2")) for _ in range(2))
    assert domain.size == 100
    assert counts.fingerprint() == before
    assert counts.answer(Identity(100)).tolist() == list(range(100))
    assert not np.array_equal(first.values, second.values)


def test_noise_is_drawn_for_each_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some at a time or all at once: the same stream gives the same noise, and no piece repeats another."""
    from tabulae.privacy import DiscreteGaussian

    law, size = DiscreteGaussian(10**4), 3 * 2**17
    at_once = _measure._noisy(np.zeros(size, np.int64), law, tb.noise.Insecure(5))
    monkeypatch.setattr(_measure, "_TOGETHER", 2**17)
    in_parts = _measure._noisy(np.zeros(size, np.int64), law, tb.noise.Insecure(5))
    assert np.array_equal(at_once, in_parts)
    assert not np.array_equal(in_parts[: 2**17], in_parts[2**17 : 2**18])


def test_measuring_and_estimating_hold_two_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured, and what is computed from it."""
    monkeypatch.setattr(cells, "VECTOR_LIMIT", 2**16)
    monkeypatch.setattr("tabulae.products.tables.count.VECTOR_LIMIT", 2**16)
    monkeypatch.setattr(kron_slices, "_SLICE", 2**15)
    monkeypatch.setattr(kron_slices, "_BLOCK", 2**12)
    monkeypatch.setattr(_measure, "_TOGETHER", 2**16)
    monkeypatch.setattr("tabulae.linalg.kron._LARGE_INTEGERS", 2**16)
    domain = tb.Domain({f"a{i}": 32 for i in range(4)})
    workload = tb.Workload(domain, [tb.Table("all", {n: tb.Prefix(32) for n in domain.names})])
    strategy = tb.select(workload, method="kron")
    counts = Counts.from_records(domain, people(2000, domain))
    once = tb.estimate(tb.measure(counts, strategy, tb.ZCDP(1)))  # modules and the sampler's tables
    once.answer(workload)
    del once
    vector = 8 * domain.size
    tracemalloc.start()
    measurement = tb.measure(counts, strategy, tb.ZCDP(1))
    measured = tracemalloc.get_traced_memory()[1]
    answers = tb.estimate(measurement).answer(workload)["all"]
    both = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answers.size == domain.size
    assert measured < 1.6 * vector
    assert both < 2.6 * vector
