"""Sensitivities of weighted blocks against all columns and all pairs in rational arithmetic."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import Unsupported
from tabulae.linalg import (
    AllRange,
    Contrasts,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sensitivity,
    Sparse,
    Stack,
    Total,
    WidthRange,
    product_sensitivity,
    sensitivity,
    sums_of_products,
    weighted_sensitivity,
)
from tabulae.linalg import columns as linalg_columns

NEIGHBOURS = ("add-remove", "replace")
Blocks = Sequence[tuple[LinearOperator, Fraction | int]]


def exact_columns(op: LinearOperator) -> list[list[Fraction]]:
    """The columns in rational numbers, without the rounding that a factor like 1/3 suffers in ``dense()``."""
    if isinstance(op, Scaled):
        return [[Fraction(op.factor) * entry for entry in column] for column in exact_columns(op.op)]
    if isinstance(op, Kron):
        columns = [[Fraction(1)]]
        for factor in op.ops:
            columns = [[a * b for a in u for b in v] for u in columns for v in exact_columns(factor)]
        return columns
    if isinstance(op, Stack):
        members = [exact_columns(member) for member in op.ops]
        return [list(itertools.chain(*parts)) for parts in zip(*members, strict=True)]
    return [[Fraction(entry) for entry in column] for column in op.dense().T.tolist()]


def brute_force(blocks: Blocks, p: int, neighbours: str) -> Fraction:
    columns = [exact_columns(op) for op, _ in blocks]
    weights = [Fraction(weight) for _, weight in blocks]
    cells = range(len(columns[0]))

    def cost(j: int, k: int | None) -> Fraction:
        total = Fraction(0)
        for matrix, weight in zip(columns, weights, strict=True):
            other = matrix[k] if k is not None else [Fraction(0)] * len(matrix[j])
            total += weight * sum(
                (abs(a - b) ** p for a, b in zip(matrix[j], other, strict=True)), Fraction(0)
            )
        return total

    if neighbours == "add-remove":
        return max(cost(j, None) for j in cells)
    return max((cost(j, k) for j in cells for k in cells if j < k), default=Fraction(0))


@st.composite
def operators(draw: st.DrawFn, n: int) -> LinearOperator:
    entries = st.integers(draw(st.sampled_from([0, -3])), 3)
    choice = draw(st.integers(0, 10))
    if choice == 0:
        return Identity(n)
    if choice == 1:
        return Total(n)
    if choice == 2:
        return Prefix(n)
    if choice == 3:
        return AllRange(n)
    if choice == 4:
        return WidthRange(n, draw(st.integers(1, n)))
    if choice == 5:
        return Permuted(AllRange(n), draw(st.permutations(range(n))))
    if choice == 6:
        return Partition(draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)), 2)
    if choice == 7:
        return Stack([Identity(n), Total(n)])
    if choice == 8:
        return Scaled(Prefix(n), draw(st.fractions(-2, 2, max_denominator=5)))
    rows = draw(st.integers(1, 3))
    values = draw(st.lists(entries, min_size=rows * n, max_size=rows * n))
    matrix = np.array(values).reshape(rows, n)
    return Dense(matrix) if choice == 9 else Dense(matrix / 8)


weights = st.fractions(0, 5, max_denominator=7)


@st.composite
def single_blocks(draw: st.DrawFn) -> Blocks:
    n = draw(st.integers(1, 6))
    return [(draw(operators(n)), draw(weights)) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def product_blocks(draw: st.DrawFn) -> Blocks:
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    return [
        (Kron([draw(operators(n)) for n in sizes]), draw(weights)) for _ in range(draw(st.integers(1, 3)))
    ]


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("p", [1, 2])
@given(blocks=single_blocks() | product_blocks())
def test_small_blocks_are_exact(p: int, neighbours: str, blocks: Blocks) -> None:
    found = weighted_sensitivity(blocks, p, neighbours)
    assert found.power == brute_force(blocks, p, neighbours)
    assert found.is_exact


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("p", [1, 2])
@given(blocks=product_blocks())
def test_products_without_writing_them_out(p: int, neighbours: str, blocks: Blocks) -> None:
    """The route that large products take: exact where it says so, never below the truth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_sensitivity, "_SMALL_PRODUCT", 0)
        found = weighted_sensitivity(blocks, p, neighbours)
    truth = brute_force(blocks, p, neighbours)
    assert found.power == truth if found.is_exact else found.power >= truth
    if p == 2 or neighbours == "add-remove":
        assert found.is_exact


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("p", [1, 2])
@given(blocks=single_blocks() | product_blocks(), numbers=st.integers(1, 40))
def test_bounds_stay_above_the_truth_when_time_is_short(
    p: int, neighbours: str, blocks: Blocks, numbers: int
) -> None:
    """Every shortcut forced at once: grouped choices, unfinished pruning, attributes with unlisted pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_sensitivity, "_SMALL_PRODUCT", 0)
        patch.setattr(product_sensitivity, "_PAIR_CLASSES", 2)
        patch.setattr(product_sensitivity, "_LISTED", 2)
        patch.setattr(product_sensitivity, "_VALUE_PAIRS", 2)
        patch.setattr(sums_of_products, "_NUMBERS", numbers)
        patch.setattr(sums_of_products, "_SLOW_NUMBERS", numbers)
        patch.setattr(sums_of_products, "_COMPARISONS", 3)
        patch.setattr(sums_of_products, "_MIDPOINTS", 0)
        patch.setattr(linalg_columns, "PAIR_CELLS", 1)
        patch.setattr(linalg_columns, "_L1_WORK", 1)
        patch.setattr(linalg_columns, "_EXACT_ENTRIES", 1)
        found = weighted_sensitivity(blocks, p, neighbours)
    truth = brute_force(blocks, p, neighbours)
    assert found.power == truth if found.is_exact else found.power >= truth
    assert found.power <= 4 * brute_force(blocks, p, "add-remove")


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("p", [1, 2])
def test_fractions_too_many_to_compare_exactly_are_rounded_up(p: int, neighbours: str) -> None:
    for seed in range(40):
        op = Dense(np.random.default_rng(seed).normal(size=(6, 3)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(linalg_columns, "_EXACT_ENTRIES", 0)
            found = op.sensitivity(p, neighbours=neighbours)
        truth = brute_force([(op, 1)], p, neighbours)
        assert not found.is_exact
        assert truth <= found.power <= truth * (1 + Fraction(1, 2**40))


def test_opposite_columns_among_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg_columns, "PAIR_CELLS", 1)
    op = Dense([[0, 5, -5, 1]])
    assert op.sensitivity(2, neighbours="replace").power == 100
    assert op.sensitivity(1, neighbours="replace").power == 10
    wide = Dense([[2**31, -(2**31), 0]])  # norms fit 64 bits, the distance does not
    assert wide.sensitivity(2, neighbours="replace").power == 2**64


@pytest.mark.parametrize("entry", [2**10, 2**27])
def test_products_whose_entries_are_not_known_to_fit(entry: int) -> None:
    """The bound of a Gram matrix of products may be far above its entries, which fit where the norms do."""
    spread = Kron([Identity(8), Dense(np.eye(5, dtype=np.int64))])
    left = Dense(np.random.default_rng(entry).integers(0, 2, (50, 40)) * entry)
    blocks = [(MatrixProduct(left, spread), Fraction(1, 3)), (Dense([np.arange(40)]), Fraction(2))]
    found = weighted_sensitivity(blocks, 2, "replace")
    assert found.power == brute_force(blocks, 2, "replace")
    assert found.is_exact


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    p=st.sampled_from([1, 2]),
    neighbours=st.sampled_from(NEIGHBOURS),
)
def test_written_out_fractions_are_exact(rows: int, columns: int, seed: int, p: int, neighbours: str) -> None:
    """Floats are rationals: the few columns that could be the largest are compared exactly."""
    op = Dense(np.random.default_rng(seed).normal(size=(rows, columns)))
    found = op.sensitivity(p, neighbours=neighbours)
    assert found.is_exact
    assert found.power == brute_force([(op, 1)], p, neighbours)


@given(seed=st.integers(0, 10**6), p=st.sampled_from([1, 2]), neighbours=st.sampled_from(NEIGHBOURS))
def test_fractions_in_products_are_bounded_from_above(seed: int, p: int, neighbours: str) -> None:
    rng = np.random.default_rng(seed)
    factors = [Dense(rng.random((3, 3)) - 0.3 * rng.integers(0, 2)) for _ in range(2)]
    op, composite = Kron(factors), MatrixProduct(factors[0], factors[1])
    for block in (op, composite):
        found = block.sensitivity(p, neighbours=neighbours)
        matrix = np.kron(factors[0].dense(), factors[1].dense()) if block is op else block.dense()
        truth = brute_force([(op if block is op else Dense(matrix), 1)], p, neighbours)
        assert found.power >= truth * (1 - (block is not op) * Fraction(1, 2**50))  # dense() is rounded once
        assert found.power <= truth * (1 + Fraction(1, 2**30)) or (p == 1 and neighbours == "replace")


def test_every_marginal_of_fourteen_attributes() -> None:
    """Adult, up to three ways: a record moves a cell of each of 470 marginals; replacing it moves two."""
    sizes = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
    blocks = [
        (Kron([Identity(n) if i in kept else Total(n) for i, n in enumerate(sizes)]), Fraction(1, 1 + ways))
        for ways in range(4)
        for kept in itertools.combinations(range(14), ways)
    ]
    each = sum(Fraction(math.comb(14, ways), 1 + ways) for ways in range(4))
    for p in (1, 2):
        assert weighted_sensitivity(blocks, p).power == each
        replaced = weighted_sensitivity(blocks, p, "replace")
        assert replaced.is_exact
        assert replaced.power == 2 * (each - 1)  # the total does not change when a record is replaced


def test_replacing_is_not_twice_adding() -> None:
    """Between 1 and 4 times in squared norm, and 2 times only for columns that share nothing."""
    ratio = {}
    for name, op in {
        "identity": Identity(8),
        "prefix": Prefix(8),
        "total": Total(8),
        "ranges": AllRange(8),
    }.items():
        ratio[name] = op.sensitivity(2, neighbours="replace").power / op.sensitivity(2).power
    assert ratio == {"identity": 2, "prefix": Fraction(7, 8), "total": 0, "ranges": 1}
    opposite = Dense([[1, -1]])
    assert opposite.sensitivity(2, neighbours="replace").power == 4 * opposite.sensitivity(2).power


def test_products_of_range_queries_by_hand() -> None:
    """Two attributes: the pair may differ in one or in both, and the maximum is not a product of maxima."""
    op = Kron([AllRange(12), AllRange(12)])
    found = op.sensitivity(2, neighbours="replace")
    matrix = op.dense()
    gram = matrix.T @ matrix
    norms = np.diag(gram)
    assert found.is_exact
    assert found.power == (norms[:, None] + norms - 2 * gram).max()
    single = AllRange(12).sensitivity(2, neighbours="replace").power
    assert found.power not in (single**2, 2 * single**2)


def test_blocks_of_a_large_domain() -> None:
    """A million cells in one attribute: nothing of that size squared is formed."""
    blocks = [
        (Kron([Identity(10**6), Identity(50)]), Fraction(1)),
        (Kron([Partition(np.arange(10**6) // 1000), Total(50)]), Fraction(3)),
        (Kron([Total(10**6), Prefix(50)]), Fraction(2)),
    ]
    assert weighted_sensitivity(blocks, 2).power == 1 + 3 + 2 * 50
    replaced = weighted_sensitivity(blocks, 2, "replace")
    assert replaced.is_exact
    assert replaced.power == 2 + 6 + 2 * 49
    lone = [(Identity(10**6), Fraction(1)), (Total(10**6), Fraction(5))]
    assert weighted_sensitivity(lone, 1, "replace").power == 2


def test_weights_of_equal_blocks_add() -> None:
    parts = [(Prefix(4), Fraction(1, 3)), (Scaled(Prefix(4), 2), Fraction(1, 6)), (Total(4), 0)]
    assert weighted_sensitivity(parts, 2).power == 4 * (Fraction(1, 3) + Fraction(4, 6))
    assert weighted_sensitivity(parts, 1).power == 4 * (Fraction(1, 3) + Fraction(2, 6))


@given(power=st.fractions(0, 10**9), p=st.sampled_from([1, 2]))
def test_the_float_is_the_smallest_that_is_not_below(power: Fraction, p: int) -> None:
    value = Sensitivity(power, p, is_exact=True)
    assert Fraction(float(value)) ** p >= power
    assert value == 0 or Fraction(math.nextafter(float(value), 0)) ** p < power


def test_a_sensitivity_is_a_number_that_knows_more() -> None:
    found = Dense([[3], [4]]).sensitivity(2)
    assert found == 5.0
    assert found.power == 25
    assert found.is_exact
    assert "power=25" in repr(found)
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.power, again.is_exact) == (found, found.power, found.is_exact)
    assert Sensitivity(Fraction(10) ** 700, 1, is_exact=True) == math.inf


def test_weights_with_large_and_different_denominators() -> None:
    """Common denominators of hundreds of digits: beyond every float, still exact."""
    primes = [p for p in range(10**6, 10**6 + 900) if all(p % d for d in range(2, 1001))]
    assert len(primes) > 60
    sizes = (3, 2, 4)
    blocks = [
        (
            Kron([Prefix(n) if (i >> k) & 1 else Identity(n) for k, n in enumerate(sizes)]),
            Fraction(10**9, prime),
        )
        for i, prime in enumerate(primes)
    ]
    for p, neighbours in itertools.product((1, 2), NEIGHBOURS):
        found = weighted_sensitivity(blocks, p, neighbours)
        joined: dict[LinearOperator, Fraction] = {}
        for op, weight in blocks:
            joined[op] = joined.get(op, Fraction(0)) + weight
        assert found.is_exact
        assert found.power == brute_force(list(joined.items()), p, neighbours)
    single = [
        (Prefix(5), blocks[0][1]),
        (Dense([[1, 5, 2, 0, 3]]), blocks[1][1]),
        (Identity(5), blocks[2][1]),
    ]
    for p, neighbours in itertools.product((1, 2), NEIGHBOURS):
        assert weighted_sensitivity(single, p, neighbours).power == brute_force(single, p, neighbours)


def test_a_constant_factor_of_fractions_is_rounded_up() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        column = rng.random((7, 1))
        op = Kron([Dense(column), Prefix(4), Dense(np.repeat(rng.random((3, 1)), 2, axis=1))])
        for p, neighbours in itertools.product((1, 2), NEIGHBOURS):
            found = op.sensitivity(p, neighbours=neighbours)
            truth = brute_force([(op, 1)], p, neighbours)
            assert not found.is_exact
            assert truth <= found.power <= truth * (1 + Fraction(1, 2**36))


def test_whole_factors_beside_a_fraction_pass_64_bits() -> None:
    """Entries of 2^80 and more, where only one factor is not of integers: none of them wraps around."""
    large = 2**40
    product = Kron([Dense([[large, 1]]), Dense([[large, 3]]), Dense([[0.5, 1]])])
    assert product.dense().max() == 2.0**80
    assert product.column_norms(1).max() == 2.0**80
    after = MatrixProduct(product, Dense(np.diag([large] * 8)))
    assert after.dense().max() == 2.0**120
    for p in (1, 2):
        beside = weighted_sensitivity([(product, 1), (Permuted(Dense([[0.5] * 8]), range(8)), 1)], p)
        assert 2 ** (80 * p) <= beside.power <= 2 ** (80 * p) * (1 + Fraction(1, 2**40))
        assert 2 ** (120 * p) <= after.sensitivity(p).power <= 2 ** (120 * p) * (1 + Fraction(1, 2**40))


def test_signed_products_of_large_and_small_entries() -> None:
    """Inner products past 64 bits beside others below: of one attribute only some are Python's integers."""
    rng = np.random.default_rng(0)
    tops = (2**33, 2**30)
    blocks = [
        (Kron([Dense(rng.integers(-top, top, (2, 5))) for _ in range(2)]), Fraction(1, top**2))
        for top in tops
    ]
    truth = brute_force(blocks, 2, "replace")
    found = weighted_sensitivity(blocks, 2, "replace")
    assert truth <= found.power
    assert not found.is_exact or found.power == truth


def test_contrasts_within_a_class_of_one_cell_are_nothing() -> None:
    """However large the matrix over the other classes is."""
    cells, classes = Partition([0, 1, 2]), Partition([0, 1, 1])
    nothing = Contrasts(Dense([[2**40]]), [cells], [classes], [0])
    some = Contrasts(Dense([[1]]), [cells], [classes], [1])
    assert weighted_sensitivity([(nothing, 1), (some, 1)], 2, "replace").power == 8


@given(data=st.data())
def test_contrasts_whose_pairs_are_too_many_are_compared_by_their_columns(data: st.DataObject) -> None:
    """With no cells compared within a class, over all combinations of two attributes' classes: exact."""
    parts = [Partition([0, 1, 2, 1]), Partition([0, 1, 1, 2, 3])]
    cells, entries = [Partition(np.arange(p.shape[1])) for p in parts], st.integers(-2, 2)
    rows = st.lists(st.lists(entries, min_size=12, max_size=12), min_size=1, max_size=3)
    blocks = [(Contrasts(Dense(data.draw(rows)), cells, parts, [None, None]), w) for w in (2, Fraction(1, 3))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity, "_CONTRAST_PAIRS", 0)
        patch.setattr(sensitivity, "VECTOR_LIMIT", 0)
        patch.setattr(sensitivity, "_CHUNK", 8)
        found = weighted_sensitivity(blocks, 2, "replace")
    assert found.is_exact
    assert found.power == brute_force(blocks, 2, "replace")


def test_contrasts_over_cells_that_cannot_be_listed() -> None:
    """Of 2^40 cells there is no number each: pairs are those of few classes, or bounded, or refused."""
    many = [Partition(np.arange(2**10) % 32)] * 4  # 32 cells each, 2^20 combinations of classes
    rows = Sparse(scipy.sparse.csr_array(([5, 1, 2], ([0, 0, 1], [0, 1, 2])), shape=(2, 2**20)))
    alone, halves = [Partition(np.arange(32))] * 4, [Partition(np.arange(32) // 2)] * 4
    few = Contrasts(rows, many, alone, [None] * 4)
    found = weighted_sensitivity([(few, 1)], 2, "replace")
    assert (found.power, found.is_exact) == (25 + 4, True)
    within = Contrasts(Dense(np.eye(1, 16**3, dtype=np.int64)), many, halves, [0, None, None, None])
    found = weighted_sensitivity([(within, 1)], 2, "replace")
    assert (found.power, found.is_exact) == (4 * 2, False)  # of (1, -1) and (-1, 1) it is 8, too
    index = np.array(
        [0, 1, 2, 2**30, 2**31]
    )  # one class of the last attribute, the next, and the first's cells
    assert within.columns(index).tolist() == [[1, 1, 0, -1, 0], [-1, -1, 0, 1, 0]]
    with pytest.raises(Unsupported, match=r"1099511627776 columns are too many to label one by one"):
        weighted_sensitivity([(few, 1)], 1, "replace")


def test_one_operator_over_many_cells() -> None:
    assert Total(10**8).sensitivity(1, neighbours="replace").power == 0
    assert Identity(10**8).sensitivity(2, neighbours="replace").power == 2


@given(st.integers(0, 2**32 - 1))
def test_matrices_over_classes_of_cells_have_the_sensitivity_of_the_classes(seed: int) -> None:
    """Cells of one class are alike: what is far apart among classes is so among cells, however many they are."""
    rng = np.random.default_rng(seed)

    def merges(cells: Sequence[int], classes: Sequence[int]) -> Kron:
        labels = (
            np.sort(np.append(np.arange(k), rng.integers(0, k, n - k)))
            for n, k in zip(cells, classes, strict=True)
        )
        return Kron(tuple(Partition(each) for each in labels))

    classes = rng.integers(1, 4, 2).tolist()
    few, many = merges((5, 4), classes), merges((3000, 2500), classes)
    size = math.prod(classes)
    matrices = [Dense(rng.integers(-3, 4, (int(rng.integers(1, 4)), size))) for _ in range(2)]
    weights = (Fraction(1, 3), 2)
    for p, neighbours in itertools.product((1, 2), NEIGHBOURS):
        plain = [
            (Dense(m.dense().astype(np.int64) @ few.dense().astype(np.int64)), w)
            for m, w in zip(matrices, weights, strict=True)
        ]
        wanted = weighted_sensitivity(plain, p, neighbours)
        for merge in (few, many):
            found = weighted_sensitivity(
                [(MatrixProduct(m, merge), w) for m, w in zip(matrices, weights, strict=True)], p, neighbours
            )
            assert found.power == wanted.power
            assert found.is_exact


def _on_margins(seed: int) -> list[tuple[LinearOperator, Fraction]]:
    """Products and explicit matrices over margins of three attributes."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 4, 3).tolist()
    merge = Partition([0, *[1] * (sizes[0] - 1)])
    totals: list[LinearOperator] = [Total(n) for n in sizes]
    pair = Kron([Identity(sizes[0]), totals[1], Identity(sizes[2])])
    merged = Kron([merge, Identity(sizes[1]), totals[2]])
    rows = [Dense(draw.integers(-9, 10, (3, op.shape[0]))) for op in (pair, merged)]
    product = Kron([totals[0], Dense(draw.integers(-3, 4, (2, sizes[1]))), Identity(sizes[2])])
    weights = [Fraction(int(w), 7) for w in draw.integers(1, 20, 4)]
    blocks = [MatrixProduct(rows[0], pair), MatrixProduct(rows[1], merged), product, Kron(totals)]
    return list(zip(blocks, weights, strict=True))


@given(st.integers(0, 2**32), st.sampled_from([1, 2]), st.sampled_from(NEIGHBOURS))
def test_explicit_matrices_on_margins_beside_products(seed: int, p: int, neighbours: str) -> None:
    blocks = _on_margins(seed)
    found = weighted_sensitivity(blocks, p, neighbours)
    assert found.is_exact
    assert found.power == brute_force(blocks, p, neighbours)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("p", [1, 2])
def test_too_many_margins_are_bounded_block_by_block(
    monkeypatch: pytest.MonkeyPatch, p: int, neighbours: str
) -> None:
    monkeypatch.setattr(sensitivity, "_VECTOR_CELLS", 1)
    monkeypatch.setattr(sensitivity, "_LISTED_CELLS", 1)
    for seed in range(8):
        blocks = _on_margins(seed)
        found = weighted_sensitivity(blocks, p, neighbours)
        alone = [brute_force([block], p, neighbours) for block in blocks]
        assert brute_force(blocks, p, neighbours) <= found.power <= sum(alone)
        assert not found.is_exact


def test_explicit_margins_of_forty_attributes() -> None:
    """No vector over the domain: 10^40 cells."""
    totals = [Total(10) for _ in range(40)]
    rows = Dense(np.vstack([np.eye(100, dtype=np.int64), np.ones((1, 100), dtype=np.int64)]))
    blocks: list[tuple[LinearOperator, int]] = [(Kron(totals), 3)]
    for i in range(39):
        asked = [Identity(10) if j in (i, i + 1) else total for j, total in enumerate(totals)]
        blocks.append((MatrixProduct(rows, Kron(asked)), 1))
    found = weighted_sensitivity(blocks, 2)
    assert found.power == 3 + 39 * 2
    assert weighted_sensitivity(blocks, 2, "replace").power == 39 * 2
