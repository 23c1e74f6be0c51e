"""Predicates as short signed sums of products: exact by brute force, and as short as theory says."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tabulae.domain import predicate as p
from tabulae.domain.predicate import Expansion, expand
from tabulae.errors import Unsupported

SIZES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3}


def leaf(draw: st.DrawFn) -> p.Predicate:
    names = draw(st.permutations(list(SIZES)))[: draw(st.sampled_from([1, 1, 1, 2, 3]))]
    return p.test(names, draw(arrays(bool, tuple(SIZES[name] for name in names))))


def predicates() -> st.SearchStrategy[p.Predicate]:
    parts = st.recursive(
        st.composite(leaf)(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(p.conjunction),
            st.lists(inner, min_size=1, max_size=4).map(p.disjunction),
            inner.map(p.negation),
        ),
        max_leaves=14,
    )
    return parts | st.booleans()


def spread(cells: dict[str, np.ndarray]) -> np.ndarray:
    """The product of 0/1 vectors as an array over all cells."""
    return reduce(
        np.multiply.outer, [cells.get(name, np.ones(n, bool)).astype(int) for name, n in SIZES.items()]
    )


def over_all(condition: p.Test) -> np.ndarray:
    """A test of some attributes as an array over all cells."""
    cells = np.indices(tuple(SIZES.values()))
    return condition.cells[tuple(cells[list(SIZES).index(name)] for name in condition.attributes)]


def truth(predicate: p.Predicate) -> np.ndarray:
    if isinstance(predicate, bool):
        return np.full(tuple(SIZES.values()), predicate)
    if isinstance(predicate, p.Test):
        return over_all(predicate)
    join = np.logical_and if isinstance(predicate, p.All) else np.logical_or
    return reduce(join, [truth(part) for part in predicate.parts])


def total(expansion: Expansion) -> np.ndarray:
    shape = tuple(SIZES.values())
    return sum((sign * spread(dict(cells)) for sign, cells in expansion.products), np.zeros(shape, int))


@given(predicates())
def test_products_sum_to_the_predicate(predicate: p.Predicate) -> None:
    expected = truth(predicate)
    expansion = expand(predicate)
    assert np.array_equal(total(expansion), expected)
    assert bool(expansion.products) == expected.any()
    for name, reachable in expansion.reachable.items():
        axes = tuple(k for k, other in enumerate(SIZES) if other != name)
        assert np.array_equal(reachable, expected.any(axis=axes))


@given(predicates())
def test_negation_is_the_complement_and_costs_at_most_one_more(predicate: p.Predicate) -> None:
    other = p.negation(predicate)
    assert np.array_equal(truth(other), ~truth(predicate))
    assert abs(len(expand(other).products) - len(expand(predicate).products)) <= 1


def some(name: str) -> p.Predicate:
    return p.test(name, np.arange(SIZES[name]) == 0)


def test_lengths_that_theory_gives() -> None:
    a, b, c, d, e = map(some, "abcde")
    lengths = {
        "a conjunction": (p.conjunction([a, b, c, d, e]), 1),
        "a disjunction": (p.disjunction([a, b, c, d, e]), 2),
        "two disjunctions": (p.conjunction([p.disjunction([a, b]), p.disjunction([c, d])]), 4),
        "exclusive or": (
            p.disjunction([p.conjunction([a, p.negation(b)]), p.conjunction([p.negation(a), b])]),
            2,
        ),
        "a choice": (p.disjunction([p.conjunction([a, b]), p.conjunction([p.negation(a), c])]), 2),
        "absorbed": (p.disjunction([a, p.conjunction([a, b, c])]), 1),
        "distributed": (p.disjunction([p.conjunction([a, b]), p.conjunction([a, p.negation(b)])]), 1),
        "a tautology": (p.disjunction([p.conjunction([a, b]), p.negation(a), p.negation(b)]), 1),
        "a contradiction": (p.conjunction([p.disjunction([a, b]), p.negation(a), p.negation(b)]), 0),
    }
    assert {name: len(expand(pred).products) for name, (pred, _) in lengths.items()} == {
        name: length for name, (_, length) in lengths.items()
    }


def test_many_attributes_in_one_conjunction_or_disjunction() -> None:
    tests = [p.Test((f"a{k}",), np.array([True, False])) for k in range(80)]
    assert len(expand(p.conjunction(tests)).products) == 1
    assert [product.coefficient for product in expand(p.disjunction(tests)).products] == [1, -1]


def test_too_many_products_are_refused() -> None:
    tests = [p.Test((f"a{k}",), np.array([True, False])) for k in range(18)]
    pairs = [p.disjunction(tests[k : k + 2]) for k in range(0, 18, 2)]
    assert len(expand(p.conjunction(pairs[:8])).products) == 256
    with pytest.raises(Unsupported, match=r"takes 512 products .* more than 256: split it"):
        expand(p.conjunction(pairs))


def test_entangled_conditions_are_refused_before_memory_runs_out() -> None:
    # Twenty pairs (a_k, b_k) that meet only across the order: a diagram of 2^20 nodes.
    first = [p.Test((f"a{k}",), np.array([True, False])) for k in range(20)]
    second = [p.Test((f"b{k}",), np.array([True, False])) for k in range(20)]
    parts = [p.conjunction(first), p.conjunction(second)]
    parts += [p.conjunction(pair) for pair in zip(first, second, strict=True)]
    with pytest.raises(Unsupported, match=r"entangles|products"):
        expand(p.disjunction(parts))
