"""The posterior of whole tables: moves against enumeration, limits, data made by the model, seeds, Rubin's rule."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.estimation import posterior
from tabulae.estimation.chain import LeafMoves, Prior, State, rename, sweep
from tabulae.estimation.chain_parameters import KINSHIPS, SHAPE, SPREADS, inherit, mix
from tabulae.estimation.intervals import LEAST_EFFECTIVE, are_enough
from tabulae.estimation.posterior import CHAINS, Draws, ExactSums, MeasuredTree, combine, sample

PARENT, LEAF = np.array([-1, 0, 0]), np.array([1, 2])
SPLITS = np.array([[0, 0], [0, 1], [1, 0]])  # cell (1, 1) cannot occur
QUERIES = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2]])
MOST = 4
SHARE = np.array([[1.0, 0.7, 0.3, 0.4, 0.6, 1.0]])
SPREAD = np.array([[3.0, 1.0], [0.7, 9.0]])
SIZE = np.array([0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.003, 0.002])
MOVES = {
    "pairs": (1, LeafMoves(0, 0, 0)),
    "single": (0, LeafMoves(4, 0, 0)),
    "within": (0, LeafMoves(0, 4, 0)),
    "across": (0, LeafMoves(0, 0, 6)),
    "born": (0, LeafMoves(0, 0, 0, born=60)),
    "changed": (0, LeafMoves(0, 0, 0, changed=60)),
    "moved": (0, LeafMoves(0, 0, 0, moved=80)),
    "all": (1, LeafMoves(2, 2, 2, 2, 2, 2)),
}


def _tree(**known):
    answers = (
        np.array([[5], [0], [0]]),
        np.array([[3, 1], [2, 0], [1, 1]]),
        np.array([[0, 0, 0], [1, 2, 0], [0, 1, 1]]),
    )
    precision = np.array([[0.5, 0.2, 0.0], [0.0, 0.3, 0.6], [0.0, 0.3, 0.6]])
    return MeasuredTree(PARENT, LEAF, SPLITS, QUERIES, answers, precision, np.ones((2, 3), bool), **known)


def _prior(growth):
    likely = np.cumsum(SHARE[:, _tree().columns[:, 1:]].prod(axis=2), axis=1)
    sizes = growth, np.array([0, growth.size]), np.array([growth.size])
    return Prior(SHARE, *_all_drawn(SHARE), np.ones((3, 1)), SPREAD, likely, *sizes)


def _all_drawn(share):
    return np.zeros(share.shape, np.int64), np.ones(share.shape, bool)


def _room(places):
    return np.empty((2, 2, SPLITS.shape[1] + 1)), np.empty(places)


LIMITS = {
    "free": {},
    "laplace": {"laplace": True},
    "exact total": {"exact": (ExactSums(np.zeros(3, np.int64), np.array([True, False, False])),)},
    "bounds": {
        "part": np.array([0, 0, 1]),
        "least": np.array([[1, 0], [0, 0]]),
        "most": np.array([[3, 2], [2, 1]]),
    },
}


def _states(tree):
    """``tree.state``, for thousands of tables: a state adds up over people, so that those of one person tell it."""
    empty = np.zeros(tree.allowed.shape, np.int64)
    none, people = tree.state(empty), np.eye(empty.size, dtype=np.int64).reshape(-1, *empty.shape)
    *sums, precision = none
    ones = [tree.state(one) for one in people]
    steps = [np.stack([each[i] - own for each in ones]) for i, own in enumerate(sums)]

    def state(counts):
        n = counts.ravel()
        added = [np.tensordot(n, step, 1) for step in steps]
        told = [(own + more).astype(own.dtype) for own, more in zip(sums, added, strict=True)]
        return State(*told, precision.copy())

    some = np.arange(empty.size).reshape(empty.shape)
    for own, found in zip(tree.state(some), state(some), strict=True):
        np.testing.assert_array_equal(own, found)
        assert own.dtype == found.dtype
    return state


@cache
def _all_tables(limits, sharper=1.0):
    """Every table of two leaves and three cells, and its probability: the oracle, in logs of gamma functions."""
    tree = _tree(**LIMITS[limits])
    tree = replace(tree, precision=sharper * tree.precision)
    tables = np.array([*itertools.product(range(MOST + 1), repeat=6)]).reshape(-1, 2, 3)
    log = np.zeros(len(tables))
    for b in range(2):
        x = tables[:, b]
        first = np.stack([x[:, 0] + x[:, 1], x[:, 2]], axis=1)
        total = x.sum(axis=1)
        log += np.log(SIZE[total])
        for part, whole, share, spread in (
            (first, total, SHARE[0, 1:3], SPREAD[b, 0]),
            (x[:, :2], first[:, 0], SHARE[0, 3:5], SPREAD[b, 1]),
        ):
            log += gammaln(spread) - gammaln(spread + whole) + gammaln(whole + 1)
            log += (gammaln(spread * share + part) - gammaln(spread * share) - gammaln(part + 1)).sum(axis=1)
    for node, x in ((0, tables.sum(axis=1)), (1, tables[:, 0]), (2, tables[:, 1])):
        for q, labels in enumerate(QUERIES):
            sums = x @ (labels[:, None] == np.arange(labels.max() + 1))
            distance = np.abs(tree.answers[q][node] - sums)
            each = (
                np.sqrt(tree.precision[node, q]) * distance
                if tree.laplace
                else tree.precision[node, q] * distance**2 / 2
            )
            log -= each.sum(axis=1)
    keep = np.ones(len(tables), bool)
    if tree.exact:
        keep &= tables.sum(axis=(1, 2)) == 4
    if tree.part.size:
        parts = tables @ (tree.part[:, None] == np.arange(2))
        keep &= ((parts >= tree.least) & (parts <= tree.most)).all(axis=(1, 2))
    chances = np.exp(log[keep] - log[keep].max())
    return tables[keep], chances / chances.sum()


# Every move once, every limit with the sweep of all, and where the test's power is shown.
FEW = [*zip(MOVES, itertools.cycle(LIMITS), strict=False), *(("all", limits) for limits in LIMITS)]
FEW += [("single", "laplace")]


@each("move, limits", dict.fromkeys(FEW), long=itertools.product(MOVES, LIMITS))
def test_each_move_keeps_the_exact_law(limits, move):
    """Tables drawn from all tables by their probability, moved once: chi-square; a false alarm once in 10**6 seeds.

    A law of noise 1.5 times as precise is rejected.
    """
    tree = _tree(**LIMITS[limits])
    tables, chances = _all_tables(limits)
    state_of = _states(tree)
    random = np.random.default_rng(5)
    size = SIZE / SIZE.sum()
    growth = size[1:] / size[:-1] * np.arange(1, size.size)
    prior, draws = _prior(growth), 1500
    fixed = tree.fixed._replace(visits=np.full(2, MOVES[move][0]))
    place = {tuple(t): i for i, t in enumerate(tables.reshape(-1, 6).tolist())}
    seen, beyond = np.zeros(len(tables)), 0
    for start in random.choice(len(tables), size=draws, p=chances):
        state = state_of(tables[start])
        if tree.laplace:
            mix(state.precision, state.residual, np.sqrt(tree.precision), tree.query, random)
        sweep(fixed, state, prior, MOVES[move][1], *_room(8), random)
        found = place.get(tuple(state.counts[:, -3:].ravel().tolist()))
        beyond += found is None
        if found is not None:
            seen[found] += 1
    assert beyond < 0.03 * draws  # cells of more than MOST
    assert _agrees(seen, chances) > 1e-6
    if limits in ("free", "laplace") and move in ("single", "all"):
        assert _agrees(seen, _all_tables(limits, sharper=1.5)[1]) < 1e-6


def _agrees(seen, chances):
    order = np.argsort(-chances)
    expected = seen.sum() * chances[order]
    often = int((expected >= 8).sum())
    expected = np.append(expected[:often], expected[often:].sum())
    return stats.chisquare(np.append(seen[order][:often], seen[order][often:].sum()), expected).pvalue


def test_tables_of_a_sum_are_alike_where_nothing_is_measured_and_the_prior_is_flat():
    """All 126 tables of four people, from one table: chi-square; a false alarm once in 10**6 seeds."""
    tree = replace(_tree(**LIMITS["exact total"]), precision=np.zeros((3, 3)))
    n = np.arange(12)
    size = (n + 1) * (n + 2)  # how many tables a leaf of n people has
    flat = np.array([[1, 2 / 3, 1 / 3, 1 / 2, 1 / 2, 1]]), np.array([[3.0, 2.0]] * 2)
    prior = _prior(size[1:] / size[:-1] * n[1:])._replace(share=flat[0], spread=flat[1])
    random, seen, state_of = np.random.default_rng(8), Counter(), _states(tree)
    for _ in range(1500):
        state = state_of(np.array([[4, 0, 0], [0, 0, 0]]))
        for _ in range(12):
            sweep(tree.fixed, state, prior, LeafMoves(0, 8, 8), *_room(8), random)
        seen[tuple(state.counts[:, -3:].ravel().tolist())] += 1
    assert len(seen) <= 126
    assert stats.chisquare([*seen.values(), *[0] * (126 - len(seen))]).pvalue > 1e-6


def test_two_starts_agree():
    """Everybody in one leaf, and what was measured: means of the draws, within five standard errors."""
    tree, _ = _made_by_the_model(np.random.default_rng(6), 3, 4)
    near = np.maximum(tree.answers[1][tree.leaf], 0)
    far = np.zeros_like(near)
    far[0] = near.sum(axis=0)
    rows, cells = tree.sums, sparse.csr_array(np.ones((4, 1), int))
    drawn = [
        sample(tree, start, draws=200, seed=s, burnt=100, every=3) for s, start in enumerate((near, far))
    ]
    one, other = (each.sums(rows, cells)[..., 0] for each in drawn)
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / 60)
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 5 * error + 0.05).all()


def test_the_state_is_that_of_its_counts_after_many_moves():
    tree = _tree()
    random, state = np.random.default_rng(0), tree.state(np.array([[1, 2, 0], [0, 1, 1]]))
    prior = _prior(0.8 * np.arange(1, 41))
    for _ in range(200):
        sweep(tree.fixed, state, prior, LeafMoves(2, 2, 2, 2, 2, 2), *_room(16), random)
    again = tree.state(state.counts[:, -3:].copy())
    for one, other in zip(state, again, strict=True):
        np.testing.assert_array_equal(one, other)


def _made_by_the_model(random, groups, each):
    """A root, groups and leaves with two attributes of two categories; the truth, and its measurements."""
    parent = np.concatenate([[-1], np.zeros(groups, int), 1 + np.repeat(np.arange(groups), each)])
    leaf = np.arange(1 + groups, parent.size)
    mean = random.choice([0.0, 2.5, 12.0, 60.0], size=leaf.size, p=[0.3, 0.2, 0.3, 0.2])
    people = random.poisson(mean * random.gamma(6.0, 1 / 6.0, leaf.size))
    share = np.repeat(random.dirichlet([6.0, 2.0, 1.0, 1.0], size=groups), each, axis=0)
    truth = np.stack(
        [random.multinomial(n, random.dirichlet(10 * p)) for n, p in zip(people, share, strict=True)]
    )
    splits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    queries = np.array([[0, 0, 0, 0], [0, 1, 2, 3]])
    blank = tuple(np.zeros((parent.size, n), np.int64) for n in (1, 4))
    precision = np.where(np.arange(parent.size)[:, None] >= leaf[0], [[0.002, 0.1]], [[0.5, 0.3]])
    tree = MeasuredTree(parent, leaf, splits, queries, blank, precision, np.ones((leaf.size, 4), bool))
    sums = np.asarray(tree.sums @ truth)
    noise = [
        np.rint(random.normal(size=(parent.size, n)) / np.sqrt(precision[:, [q]]))
        for q, n in enumerate((1, 4))
    ]
    answers = (sums.sum(axis=1, keepdims=True) + noise[0].astype(int), sums + noise[1].astype(int))
    return replace(tree, answers=answers), truth


def _named(random, kinship, prior, fixed, counts):
    """Shares drawn into ``prior`` from their laws, and counts of leaves by them, written to ``counts``."""
    first, second = slice(1, 3), (slice(3, 6), slice(6, 9))
    for part in (first, *second):
        for h, up in enumerate(fixed.above):
            parameter = kinship * prior.share[up, part] if h else np.ones(part.stop - part.start)
            drawn = random.gamma(np.maximum(parameter, 1e-8)) + 1e-12
            prior.share[h, part] = drawn / drawn.sum()
    for b, g in enumerate(fixed.group):
        among = random.multinomial(random.integers(0, 7), random.dirichlet(2.0 * prior.share[g, first]))
        for n, part, cells in zip(among, second, (slice(0, 3), slice(3, 6)), strict=True):
            odds = random.gamma(np.maximum(prior.spread[b, 1] * prior.share[g, part], 1e-8)) + 1e-12
            counts[b, cells] = random.multinomial(n, odds / odds.sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinship", "each", "spreads", "told", "draws"),
    [
        *((kin, 2, (0.5, 3, 30), 0.5, 3000) for kin in (0.7, 4.0)),
        (0.7, 1, (30,), 0.01, 3000),
    ],
)
def test_new_names_keep_the_joint_law_of_shares_counts_and_answers(kinship, each, spreads, told, draws):
    """Shares, counts and answers drawn from their joint law, then renamed given the answers: means of what hangs
    together stay, within five standard errors of the differences.

    The tree has a root, two areas, two groups in each and one or two leaves in each group; six cells of two splits.
    Where a group is one leaf, its people follow the shares closely and little is measured, several are renamed at once.
    """
    leaves = 4 * each
    leaf = np.arange(7, 7 + leaves)
    parent = np.array([-1, 0, 0, 1, 1, 2, 2, *np.repeat([3, 4, 5, 6], each)])
    splits = np.array([[i, j] for i in range(2) for j in range(3)])
    precision = np.where(np.arange(parent.size) < 7, told, told / 5)[:, None]
    nothing, every = np.zeros((parent.size, 6), np.int64), np.ones((leaves, 6), bool)
    tree = MeasuredTree(parent, leaf, splits, np.arange(6)[None], (nothing,), precision, every)
    fixed, random = tree.fixed, np.random.default_rng(17)
    share = np.ones((7, 9))
    spread = np.stack([np.full(leaves, 2.0), random.choice(spreads, leaves)], axis=1)
    sizes = np.ones(700), 100 * np.arange(8), np.full(7, 100)
    prior = Prior(share, *_all_drawn(share), np.full((3, 3), kinship), spread, np.ones((7, 6)), *sizes)
    room = np.empty((7, 9), np.int32), np.empty((2, 7)), np.empty(9)

    def figures(state):
        counts, shares = state.counts[:, 3:], prior.share[:, 3:]
        sums = np.stack([np.bincount(fixed.group, column, 7) for column in counts.T], axis=1)
        for h in range(6, 0, -1):
            sums[fixed.above[h]] += sums[h]
        products = [(sums[h] * shares[h]).sum() for h in (0, 1, 4)]
        answers = state.residual[0] + sums[0]
        alike = [
            (counts[:, 5] * counts[:, 4]).sum(),
            (sums[1] > 0).sum(),
            (counts[:, 0] ** 2).sum(),
            (answers * sums[0]).sum(),
        ]
        odds = fixed.prefix[3:]
        crowds = (counts * (counts - 1) * shares[fixed.group]).sum()
        first = (counts * (odds == 1) * shares[fixed.group]).sum() + (counts[-1] * counts[-2]).sum()
        apart = (shares[1] * shares[3]).sum() + (shares[0] * shares[2]).sum(), (shares[5] ** 2).sum()
        return np.array(
            [
                *products,
                *alike,
                crowds,
                first,
                *apart,
                (answers * sums[0]).sum(),
                (counts[0] * state.residual[7]).sum(),
            ]
        )

    differences, changed, state_of = [], 0, _states(tree)
    for _ in range(draws):
        counts = np.zeros((leaves, 6), np.int64)
        _named(random, kinship, prior, fixed, counts)
        state = state_of(counts)
        noise = np.rint(random.normal(size=nothing.shape) / np.sqrt(precision)).astype(np.int32)
        state.residual[:] = noise
        before = figures(state)
        for _ in range(3):
            rename(fixed, state, prior, *room, 4, random)
        changed += bool((state.counts[:, 3:] != counts).any())
        differences.append(figures(state) - before)
    differences = np.array(differences)
    error = differences.std(axis=0) / np.sqrt(len(differences))
    assert (np.abs(differences.mean(axis=0)) < 5 * error).all(), (differences.mean(axis=0), error)
    assert changed > 0.08 * len(differences)
    again = tree.state(state.counts[:, 3:].astype(np.int64))
    np.testing.assert_array_equal(again.counts, state.counts)


@pytest.mark.long
@pytest.mark.parametrize("every", [True, False])
def test_shares_and_kinships_keep_their_joint_law(every):
    """Kinships, shares and tables drawn from their joint law, then shares and kinships drawn anew: means of products of
    shares of nodes above each other, and of kinships, stay within five standard errors of the differences.

    A root, two areas and two groups in each; two columns of three parts. Where waiting shares are not drawn, products
    with tables are left.
    """
    draws = 3000
    above, level = np.array([-1, 0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 2, 2, 2])
    first, end, random = np.array([0, 3]), np.array([3, 6]), np.random.default_rng(5)
    parts = [slice(0, 3), slice(3, 6)]

    def figures(kinship, value, tables):
        found = []
        for rows, k in (([1, 2], kinship[1]), ([3, 4, 5, 6], kinship[2])):
            seen, own, parents = tables[rows], value[rows], value[above[rows]]
            alike = np.where(seen > 0, own * parents, 0).sum()
            apart = np.where(seen > 0, abs(own - parents), 0).sum()
            found += [
                np.log(k),
                alike,
                alike * np.log(k),
                apart,
                apart * k**0.5,
                np.where(seen, own * seen, 0).sum(),
            ]
        return np.array(found)

    differences = []
    for _ in range(draws):
        kinship = np.append(1.0, random.choice(KINSHIPS, 2))
        value, tables = np.empty((7, 6)), np.zeros((7, 6), np.int64)
        for h in range(7):
            for part in parts:
                mean = kinship[level[h]] * value[above[h], part] if h else np.ones(3)
                drawn = random.gamma(np.maximum(mean, 1e-8)) + 1e-9
                value[h, part] = drawn / drawn.sum()
                tables[h, part] = random.multinomial(random.choice([0, 1, 30]), value[h, part])
        here = np.empty((7, 2), bool)
        own, before = tables.copy(), figures(kinship, value, tables)
        inherit(tables, value, here, kinship, above, level, first, end, (0, 2), every, random)
        differences.append(figures(kinship, value, own) - before)
        seen = [[h == 0 or every or tables[h, part].any() for part in parts] for h in range(7)]
        np.testing.assert_array_equal(here, seen)
    differences = np.array(differences)
    error = differences.std(axis=0) / np.sqrt(len(differences))
    assert (np.abs(differences.mean(axis=0)) < 5 * error).all(), differences.mean(axis=0) / error


def test_shares_that_wait_are_drawn_from_the_prior_when_somebody_may_come():
    """Nobody is in a leaf below a root, an area and a group, whose shares wait; then one person may come. Means and
    variances of the shares drawn are those of Dirichlet laws one below the other, within five standard errors."""
    parent, leaf = np.array([-1, 0, 1, 2]), np.array([3])
    nothing, every = np.zeros((4, 2), np.int64), np.ones((1, 2), bool)
    tree = MeasuredTree(
        parent, leaf, np.array([[0], [1]]), np.arange(2)[None], (nothing,), np.full((4, 1), 1e-3), every
    )
    share, (tables, drawn) = np.tile([1.0, 0.8, 0.2], (3, 1)), _all_drawn(np.ones((3, 3)))
    kinship, random = np.array([[1.0, 1.0, 1.0], [1.0, 4.0, 9.0]]), np.random.default_rng(8)
    sizes = np.ones(30), 10 * np.arange(4), np.full(3, 10)
    prior = Prior(share, tables, drawn, kinship, np.ones((1, 1)), np.ones((3, 2)), *sizes)
    room, found, state_of = (np.empty((2, 2, 2)), np.empty(8)), [], _states(tree)
    nobody = np.zeros((1, 2), np.int64)
    while len(found) < 3000:
        drawn[1:], share[1:] = False, np.nan
        sweep(tree.fixed, state_of(nobody), prior, LeafMoves(born=1), *room, random)
        if drawn[2, 0]:
            assert drawn[1, 0]
            found.append([share[1, 1], share[2, 1]])
    area, group = np.array(found).T
    law = 0.16 / 5, (area * (1 - area)).mean() / 10
    for gap, variance in ((area - 0.8, law[0]), (group - area, law[1])):
        for figure in (gap, gap**2 - variance):
            assert abs(figure.mean()) < 5 * figure.std() / np.sqrt(len(found))


@pytest.mark.parametrize("size", [(12, 8), pytest.param((60, 25), marks=pytest.mark.long)])
def test_data_made_by_the_model_is_covered_as_promised(size):
    """Totals and cells of leaves, groups and pairs of groups that are no node: within four standard errors of 90 %, or
    above by what whole numbers add. The table is nearer to the truth than measurements cut at 0 are."""
    tree, truth = _made_by_the_model(np.random.default_rng(3), *size)
    start = np.maximum(tree.answers[1][tree.leaf], 0)
    drawn = sample(tree, start, draws=128, seed=1, burnt=60, every=2)
    halves = sparse.csr_array(
        (np.repeat(np.arange(size[0] // 2), 2)[:, None] == np.arange(size[0] // 2)).T.astype(int)
    )
    groups = tree.sums[1 : 1 + size[0]]
    for rows in (sparse.csr_array(sparse.eye_array(tree.leaf.size, dtype=int)), groups, halves @ groups):
        for cells in (np.ones((4, 1), int), np.eye(4, dtype=int)):
            low, high = drawn.credible(drawn.sums(rows, sparse.csr_array(cells)), 0.9)
            true = rows @ truth @ cells
            covered = ((low <= true) & (true <= high)).mean()
            assert covered > 0.9 - 4 * np.sqrt(0.09 / true.size)
    table = drawn.table()
    assert (table == tree.sums @ table[tree.leaf]).all()
    assert (table >= 0).all()
    assert np.abs(table[tree.leaf] - truth).mean() < 0.8 * np.abs(start - truth).mean()


@pytest.fixture
def few_sizes(monkeypatch):
    """Sizes of leaves of seven classes, whatever was measured: a law that data can be drawn from, and summed over."""
    laws = posterior._log_sizes
    monkeypatch.setattr(posterior, "_log_sizes", lambda most: laws(most)[:7])


def _sizes(random, weight):
    """A size for each row of weights of classes: nobody, or negative binomial of mean 1.5 * 1.7**i."""
    z = (weight.cumsum(axis=1) > random.random((len(weight), 1))).argmax(axis=1)
    return random.poisson(
        np.where(z == 0, 0.0, 1.5 * 1.7 ** (z - 1)) * random.gamma(SHAPE, 1 / SHAPE, z.size)
    )


def _drawn_from_the_prior(random, groups, each):
    """A tree as :func:`_made_by_the_model` has, its truth drawn with all parameters from their own laws."""
    tree, _ = _made_by_the_model(random, groups, each)
    below = np.repeat(np.arange(groups), each)

    def inherited(size):
        root, kinship = random.dirichlet(np.ones(size)), random.choice(KINSHIPS)
        shares = np.array([random.gamma(kinship * root) for _ in range(groups)]) + 1e-9
        return (shares / shares.sum(axis=1, keepdims=True))[below]

    def divided(people, share, spread):
        odds = np.array([random.gamma(s * p) for s, p in zip(spread, share, strict=True)]) + 1e-12
        return np.array(
            [random.multinomial(n, p / p.sum()) for n, p in zip(people, odds, strict=True)], np.int64
        )

    def spreads():
        return random.choice(SPREADS, p=random.dirichlet(np.ones(SPREADS.size)), size=below.size)

    first = divided(_sizes(random, inherited(7)), inherited(2), spreads())
    # the second split of both categories has one kinship, and a leaf one spread
    kinship, spread, halves = random.choice(KINSHIPS), spreads(), []
    for part in range(2):
        root = random.dirichlet(np.ones(2))
        shares = np.array([random.gamma(kinship * root) for _ in range(groups)]) + 1e-9
        halves.append(divided(first[:, part], (shares / shares.sum(axis=1, keepdims=True))[below], spread))
    truth = np.concatenate(halves, axis=1)
    sums = np.asarray(tree.sums @ truth)
    noise = [
        np.rint(random.normal(size=sums[:, :n].shape) / np.sqrt(tree.precision[:, [q]])).astype(int)
        for q, n in enumerate((1, 4))
    ]
    return replace(tree, answers=(sums.sum(axis=1, keepdims=True) + noise[0], sums + noise[1])), truth


@pytest.fixture
def cells_are_few(request, monkeypatch):
    """Moves of tables of few cells, and of many, whatever the table."""
    monkeypatch.setattr(posterior, "_FEW_CELLS", request.param)


@pytest.mark.long
@pytest.mark.parametrize(
    ("runs", "cells_are_few"),
    [(36, 0), (36, 64), (400, 64), (400, 0)],
    indirect=["cells_are_few"],
)
def test_ranks_of_what_the_prior_draws_are_even_at_each_level(runs, few_sizes, cells_are_few):
    """Simulation-based calibration: the rank of the truth among its draws, of the root, a group and a leaf, is uniform,
    for totals and for a cell. Chi-square of six sets of ranks at 1e-4: a false alarm once in 1,600 seeds.

    Draws that are twice as far from their mean are told apart by all ranks together.
    """
    random, one = np.random.default_rng(21), sparse.csr_array(np.ones((4, 1), int))
    first = sparse.csr_array(np.eye(4, 1, dtype=int))
    ranks, wide = [], []
    for run in range(runs):
        tree, truth = _drawn_from_the_prior(random, 3, 3)
        start = np.maximum(tree.answers[1][tree.leaf], 0)
        drawn = sample(tree, start, draws=18, seed=run, burnt=30, every=3)
        rows = tree.sums[[0, 1, 4]]
        theirs = np.concatenate([drawn.sums(rows, cells)[..., 0] for cells in (one, first)], axis=1)
        true = np.concatenate([(rows @ truth @ cells.toarray())[:, 0] for cells in (one, first)])
        for found, spread in ((ranks, 1), (wide, 2)):
            apart = theirs + (spread - 1) * (theirs - theirs.mean(axis=0))
            below, ties = ((apart < true).sum(axis=0), (apart == true).sum(axis=0))
            found.append((below + random.random(true.size) * (ties + 1)) / 19)
    values = [stats.chisquare(np.histogram(r, 5, (0, 1))[0]).pvalue for r in np.array(ranks).T]
    assert min(values) > 1e-4, values
    assert stats.chisquare(np.histogram(wide, 5, (0, 1))[0]).pvalue < 1e-4


@pytest.mark.parametrize(
    ("laplace", "cells_are_few"),
    [
        (True, 0),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((False, 0), (False, 64), (True, 64))),
    ],
    indirect=["cells_are_few"],
)
def test_moments_are_those_of_quadrature(laplace, few_sizes, cells_are_few):
    """Two leaves below a root and two cells, all parameters integrated out: over shares by Gauss-Legendre quadrature,
    over sizes, spreads and tables by enumeration. Means and variances are within five standard errors."""
    most = 40
    answers = np.array([[11], [4], [9]]), np.array([[8, 3], [4, 1], [2, 5]])
    precision = np.array([[0.3, 0.1], [0.2, 0.3], [0.05, 0.2]])
    tree = MeasuredTree(
        PARENT, LEAF, np.array([[0], [1]]), np.array([[0, 0], [0, 1]]), answers, precision, np.ones((2, 2), bool),
        laplace=laplace,
    )  # fmt: skip
    x = np.array([(n - k, k) for n in range(most + 1) for k in range(n + 1) if n <= 24])
    n = x.sum(axis=1)
    means = 1.5 * 1.7 ** np.arange(6)
    sized = [
        np.where(n == 0, 0.0, -np.inf),
        *(stats.nbinom.logpmf(n, SHAPE, SHAPE / (SHAPE + m)) for m in means),
    ]
    sized = np.exp(sized)
    size = (
        np.outer(sized.sum(axis=0), sized.sum(axis=0)) + sized.T @ sized
    )  # weights of classes: Dirichlet(1)
    split = np.zeros((len(x), len(x)))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for p, w in zip((nodes + 1) / 2, weights / 2, strict=True):
        each = np.stack([stats.betabinom.pmf(x[:, 0], n, s * p, s * (1 - p)) for s in SPREADS])
        split += w * (np.outer(each.sum(axis=0), each.sum(axis=0)) + each.T @ each)

    def noise(node, sums):
        errors = np.concatenate(
            [answers[0][node] - sums.sum(axis=-1, keepdims=True), answers[1][node] - sums], axis=-1
        )
        rate = np.repeat(precision[node], (1, 2))
        return -(np.sqrt(rate) * abs(errors) if laplace else rate * errors**2 / 2).sum(axis=-1)

    log = noise(0, x[:, None] + x) + noise(1, x)[:, None] + noise(2, x)
    law = size * split * np.exp(log - log.max())
    law /= law.sum()
    wanted = np.concatenate([x[:, 0], n]).reshape(2, -1)
    drawn = sample(tree, np.ones((2, 2), int), draws=1200, seed=3, burnt=50, every=2)
    sums = drawn.sums(sparse.csr_array(np.eye(2, dtype=int)), sparse.csr_array(np.array([[1, 1], [0, 1]])))
    for leaf, marginal in enumerate((law.sum(axis=1), law.sum(axis=0))):
        for figure in range(2):
            mean = marginal @ wanted[figure]
            deviation = np.sqrt(marginal @ (wanted[figure] - mean) ** 2)
            seen = sums[:, leaf, [figure]]
            worth = drawn.effective(seen)
            assert worth > 150
            assert abs(seen.mean() - mean) < 5 * deviation / np.sqrt(worth)
            assert abs(seen.std() / deviation - 1) < 5 / np.sqrt(worth)


def test_draws_and_table_meet_limits_and_a_seed_decides():
    tree = _tree(**LIMITS["bounds"], **LIMITS["exact total"])
    start = np.array([[1, 1, 1], [1, 0, 0]])
    one, same, other = (sample(tree, start, draws=20, seed=s, burnt=5, every=2) for s in (1, 1, 2))
    told = [np.stack([each.toarray() for each in drawn.tables]) for drawn in (one, same, other)]
    assert (told[0] == told[1]).all()
    assert (told[0] != told[2]).any()
    parts = told[0] @ (tree.part[:, None] == np.arange(2))
    assert ((parts >= tree.least) & (parts <= tree.most)).all()
    assert (told[0].sum(axis=(1, 2)) == 4).all()
    assert one.table()[0].sum() == 4


@pytest.mark.parametrize("open_above", [False, True])
def test_the_table_meets_bounds_that_lie_across_its_splits(open_above):
    """Counts at one quantile of all draws break a bound on the sum of two cells, though every draw meets it; a bound
    of 2**62, which stands for none, is added up over leaves."""
    bounds = LIMITS["bounds"] | ({"most": np.full((2, 2), 2**62)} if open_above else {})
    random, tree = np.random.default_rng(8), _tree(**bounds)
    every = np.array([*itertools.product(range(3), repeat=6)]).reshape(-1, 2, 3)
    parts = every @ (tree.part[:, None] == np.arange(2))
    possible = every[((parts >= tree.least) & (parts <= tree.most)).all(axis=(1, 2))]
    for _ in range(100):
        some = possible[random.integers(len(possible), size=3)]
        table = Draws(tree, tuple(sparse.csr_array(one) for one in some)).table()
        np.testing.assert_array_equal(table, tree.sums @ table[tree.leaf])
        assert (possible == table[tree.leaf]).all(axis=(1, 2)).any()


@pytest.mark.parametrize("margins", [1, 2])
def test_the_table_has_exact_sums_that_lie_across_its_splits(margins):
    """Counts at one quantile of all draws break sums that each leaf has exactly; exchanges meet them, and counts stay
    nearer to all draws than any one draw is."""
    random, splits = np.random.default_rng(8), np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    parent, leaf = np.array([-1, 0, 0, 0, 0, 0]), np.arange(1, 6)
    labels = splits[:, 1], splits[:, 0] ^ splits[:, 1]
    exact = tuple(ExactSums(label, np.ones(6, bool)) for label in labels[:margins])
    none = np.zeros((6, 4), int), np.zeros((6, 1))
    allowed = np.ones((5, 4), bool)
    tree = MeasuredTree(parent, leaf, splits, np.arange(4)[None], none[:1], none[1], allowed, exact=exact)
    own = single = 0.0
    for _ in range(20):
        start = random.integers(6, 12, size=(5, 4))
        steps = np.array([[1, 1, -1, -1], [1, 0, -1, 0]])[: 3 - margins]
        some = start + random.integers(-3, 4, size=(15, 5, len(steps))) @ steps
        table = Draws(tree, tuple(sparse.csr_array(one) for one in some)).table()
        np.testing.assert_array_equal(table, tree.sums @ table[tree.leaf])
        for sums in exact:
            classes = np.eye(2, dtype=int)[sums.label]
            np.testing.assert_array_equal(table[tree.leaf] @ classes, start @ classes)
        own += np.abs(table[tree.leaf] - some).mean()
        single += min(np.abs(one - some).mean() for one in some)
    assert own < 0.95 * single, (own, single)


def test_very_precise_measurements_are_the_draws():
    tree = _tree()
    cells = np.array([[1, 3, 1], [1, 2, 0], [0, 1, 1]])
    sure = replace(tree, answers=(*tree.answers[:2], cells), precision=np.tile([0.0, 0.0, 300.0], (3, 1)))
    drawn = sample(sure, np.zeros((2, 3), int), draws=4, seed=0, burnt=20, every=1)
    for one in drawn.tables:
        np.testing.assert_array_equal(one.toarray(), cells[1:])
    np.testing.assert_array_equal(drawn.table(), cells)


def test_the_table_stands_where_its_draws_do():
    """Below each node, no exchange of one person between two children brings the counts nearer to the draws."""
    tree, _ = _made_by_the_model(np.random.default_rng(4), 3, 4)
    drawn = sample(tree, np.maximum(tree.answers[1][tree.leaf], 0), draws=60, seed=1, burnt=20, every=1)
    table = drawn.table()
    each = np.stack([tree.sums @ one.toarray() for one in drawn.tables])
    columns = (np.ones((4, 1), int), np.repeat(np.eye(2, dtype=int), 2, axis=0), np.eye(4, dtype=int))

    def cost(nodes, counts):
        return sum(
            weight * np.abs(each[:, nodes] @ column - counts @ column).mean(axis=0).sum()
            for weight, column in zip((3, 1, 1), columns, strict=True)
        )

    children, now = np.array([1, 2, 3]), table[[1, 2, 3]]
    for u, v, c in itertools.product(range(3), range(3), range(4)):
        other = now.copy()
        other[u, c] -= 1
        other[v, c] += 1
        if (
            u != v
            and other[u, c] >= each[:, children[u], c].min()
            and other[v, c] <= each[:, children[v], c].max()
        ):
            assert cost(children, other) >= cost(children, now) - 1e-9


def test_leaves_of_about_one_size_share_a_law_of_spreads():
    """Leaves of one person say nothing of their spread: they are as small leaves are, each in one cell, and not as
    large ones, which are composed as their group is. One law for all would give half of them large spreads.
    """
    few, alone, many = np.repeat([[10, 0], [0, 10]], 30, axis=0), np.repeat([[1, 0], [0, 1]], 30, axis=0), 60
    counts = np.concatenate([few, alone, np.full((many, 2), 200)])
    leaves = len(counts)
    parent, leaf = np.concatenate([[-1], np.zeros(leaves, np.int64)]), np.arange(1, leaves + 1)
    answers = (np.concatenate([counts.sum(axis=0, keepdims=True), counts]),)
    queries, precision = np.array([[0, 1]]), np.full((leaves + 1, 1), 1.0)
    tree = MeasuredTree(
        parent, leaf, np.array([[0], [1]]), queries, answers, precision, np.ones((leaves, 2), bool)
    )
    state = tree.state(counts)
    chain, large = posterior._Parameters(tree, state, np.random.default_rng(3)), []
    for turn in range(30):
        chain.redraw(state)
        if turn >= 10:
            large.append((chain.prior.spread[len(few) : -many] >= 30).mean())
    assert (chain.prior.spread[-many:] >= 30).mean() > 0.9
    assert np.mean(large) < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_sums_that_all_draws_agree_on_are_those_of_the_table(seed):
    """Totals and the first split are the same in each draw of a leaf; cells are not, and add up over leaves."""
    random = np.random.default_rng(seed)
    leaves, splits = 5, np.array([*itertools.product(range(2), range(3))])
    sure = random.integers(0, 40, (leaves, 2))
    drawn = [
        random.multinomial(sure, random.dirichlet(np.ones(3), sure.shape)).reshape(leaves, 6)
        for _ in range(40)
    ]
    nodes = leaves + 1
    tree = MeasuredTree(
        np.array([-1] + [0] * leaves),
        np.arange(1, nodes),
        splits,
        np.zeros((1, 6), np.int64),
        (np.zeros((nodes, 1), np.int64),),
        np.zeros((nodes, 1)),
        np.ones((leaves, 6), bool),
    )
    table = Draws(tree, tuple(map(sparse.csr_array, drawn))).table()
    np.testing.assert_array_equal(table[1:].reshape(leaves, 2, 3).sum(axis=2), sure)


@pytest.mark.parametrize("draws", [5, 10, 50])
def test_rubins_rule_covers_the_mean_of_normals(draws):
    """Truth and draws of one normal law: the interval is exact. Within four standard errors of 90 %."""
    random = np.random.default_rng(draws)
    truth, drawn = random.normal(size=20_000), random.normal(size=(draws, 20_000))
    _, _, (low, high) = combine(drawn, 0.9)
    assert abs(((low <= truth) & (truth <= high)).mean() - 0.9) < 4 * np.sqrt(0.09 / truth.size)


def test_rubins_rule_adds_a_variance_within_and_counts_effective_draws():
    drawn = np.array([[1.0], [2.0], [3.0], [4.0]])
    mean, error, _ = combine(drawn, 0.9, within=np.full((4, 1), 2.0))
    assert (mean[0], error[0]) == (2.5, pytest.approx(np.sqrt(2 + 1.25 * 5 / 3)))
    few, all_of_them = (combine(drawn, 0.9, effective=n)[2].high[0] for n in (2, 4))
    assert few > all_of_them
    with pytest.raises(InvalidArgument, match="effective draws"):
        combine(drawn[:1], 0.9)


def test_draws_are_enough_where_the_least_is():
    least = float(LEAST_EFFECTIVE)
    assert are_enough({"total": least, "cell": least})
    assert not are_enough({"total": 2 * least, "cell": least - 0.1})
    assert not are_enough({"total": least - 0.1, "cell": 2 * least})


def test_effective_draws_of_a_known_series():
    """First-order autoregression: M (1 - r) / (1 + r)."""
    random, r = np.random.default_rng(2), 0.6
    series = random.normal(size=(CHAINS, 300, 400))
    for i in range(1, 300):
        series[:, i] = r * series[:, i - 1] + np.sqrt(1 - r * r) * series[:, i]
    drawn = Draws(_tree(), ())
    assert drawn.effective(series.reshape(CHAINS * 300, -1)) == pytest.approx(600 * 0.25, rel=0.1)
    assert drawn.effective(random.normal(size=(600, 400))) == pytest.approx(600, rel=0.1)
    assert drawn.effective(np.ones((600, 3))) == 600


def test_credible_intervals_are_order_statistics():
    drawn = Draws(_tree(), ())
    low, high = drawn.credible(np.arange(199)[::-1, None], 0.9)
    assert (low[0], high[0]) == (9, 189)
    low, high = drawn.credible(np.maximum(np.arange(199)[:, None] - 20, 0), 0.9)
    assert (low[0], high[0]) == (0, 174)  # the fifth from above, not the tenth
    with pytest.raises(InvalidArgument, match=r"0\.999"):
        drawn.credible(np.zeros((199, 1)), 0.999)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parent": np.array([-1, 2, 0])}, "come before"),
        ({"precision": np.full((3, 3), np.inf)}, "finite"),
        ({"allowed": np.ones((2, 2), bool)}, "allowed do not fit"),
        ({"queries": QUERIES[:2]}, "answers and precision do not fit"),
    ],
)
def test_what_is_wrong_with_a_tree_is_said(change, says):
    with pytest.raises(InvalidArgument, match=says):
        replace(_tree(), **change)


@pytest.mark.parametrize(
    ("start", "draws", "says"),
    [
        (np.array([[0, 0, 0], [0, 0, 0]]), 4, "breaks a bound"),
        (np.array([[1, 1, 1], [-1, 0, 0]]), 4, "0 or more"),
        (np.ones((2, 3)), 4, "whole counts"),
        (np.array([[1, 1, 1], [1, 0, 0]]), 3, "multiple of 2"),
    ],
)
def test_a_start_that_breaks_a_limit_is_refused(start, draws, says):
    with pytest.raises(InvalidArgument, match=says):
        sample(_tree(**LIMITS["bounds"]), start, draws=draws, seed=0)
