"""The posterior of one count over a tree: against enumeration, ranks on data made by the model, limits, seeds."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tabulae.errors import InvalidArgument
from tabulae.estimation.posterior import MEANS, SHAPE, CountTree, draw, fit

FLAT = np.ones((1, MEANS.size)) / MEANS.size
#            0
#        1       2
#      3 4 5     6        node 2 has one child
PARENT = np.array([-1, 0, 0, 1, 1, 1, 2])


def _prior(n, weights=FLAT[0]):
    chance = stats.nbinom.pmf(n, SHAPE, SHAPE / (SHAPE + MEANS[1:]))
    return weights[0] * (n == 0) + weights[1:] @ chance


def _all_tables(tree, most=9):
    """Every table of the small tree, and its probability: the oracle, written without messages."""
    tables, chances = [], []
    for a, b, c, d in itertools.product(range(most), repeat=4):
        counts = np.array([a + b + c + d, a + b + c, d, a, b, c, d])
        if (counts < tree.least).any() or (counts > tree.most).any():
            continue
        exact = np.isinf(tree.precision)
        if (counts[exact] != tree.value[exact]).any():
            continue
        log = -(np.where(exact, 0, tree.precision) * (counts - tree.value) ** 2).sum() / 2
        tables.append(counts)
        chances.append(np.exp(log) * np.prod([_prior(n) for n in (a, b, c, d)]))
    return np.array(tables), np.array(chances) / np.sum(chances)


LIMITS = {
    "measured": {},
    "bounds": {"least": np.array([0, 2, 0, 0, 0, 0, 0]), "most": np.array([9, 6, 8, 3, 0, 8, 8])},
    "exact total": {"exact": {0: 6}},
    "exact total and node": {"exact": {0: 6, 1: 4}},
}


def _small(limits):
    value = np.array([6.4, 3.0, 1.5, -1.0, 2.6, 0.4, 1.7])
    precision = np.array([0.8, 0.3, 0.2, 1.2, 0.9, 1.5, 1.1])
    rest = dict(limits)
    for node, n in rest.pop("exact", {}).items():
        value[node], precision[node] = n, np.inf
    return CountTree(PARENT, value, precision, **rest)


@pytest.mark.parametrize("name", LIMITS)
def test_frequencies_are_the_exact_probabilities(name):
    """Chi-square over all tables; a false alarm once in 10**6 seeds. Precisions 1.3 times too large are rejected."""
    tree = _small(LIMITS[name])
    tables, chances = _all_tables(tree)
    drawn = draw(tree, FLAT, draws=20_000, seed=3).counts
    assert _chi_square(drawn, tables, chances) > 1e-6
    sharper = CountTree(PARENT, tree.value, tree.precision * 1.3, tree.least, tree.most)
    assert _chi_square(drawn, *_all_tables(sharper)) < 1e-6


def _chi_square(drawn, tables, chances):
    place = {tuple(t): i for i, t in enumerate(tables.tolist())}
    seen = np.bincount([place.get(tuple(t), 0) for t in drawn.tolist()], minlength=len(tables))
    order = np.argsort(-chances)
    expected = len(drawn) * chances[order]
    often = int((expected >= 8).sum())
    seen = np.append(seen[order][:often], seen[order][often:].sum())
    expected = np.append(expected[:often], expected[often:].sum())
    return stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue


def _made_by_the_model(random, groups=12, each=9):
    """A root, groups, leaves: true counts and their measurements."""
    parent = np.concatenate([[-1], np.zeros(groups, int), 1 + np.repeat(np.arange(groups), each)])
    weights = np.zeros(MEANS.size)
    weights[[0, 1, 4, 7]] = 0.4, 0.2, 0.3, 0.1
    mean = random.choice(MEANS, size=groups * each, p=weights)
    leaf = random.poisson(mean * random.gamma(SHAPE, 1 / SHAPE, mean.size))
    group = leaf.reshape(groups, each).sum(axis=1)
    truth = np.concatenate([[leaf.sum()], group, leaf])
    precision = np.concatenate([[1.0], np.full(groups, 0.5), np.full(leaf.size, 0.02)])
    value = truth + np.rint(random.normal(size=truth.size) / np.sqrt(precision))
    return CountTree(parent, value, precision), truth, weights[None]


def test_ranks_of_the_truth_are_uniform_at_each_level():
    """Simulation-based calibration: ranks among 99 draws, ties at random."""
    random = np.random.default_rng(11)
    found = {"root": [], "group": [], "leaf": []}
    for seed in range(25):
        tree, truth, weights = _made_by_the_model(random)
        drawn = draw(tree, weights, draws=99, seed=seed).counts
        ranks = (drawn < truth).sum(axis=0) + random.integers((drawn == truth).sum(axis=0) + 1)
        for name, part in (("root", ranks[:1]), ("group", ranks[1:13]), ("leaf", ranks[13:])):
            found[name].append(part)
    for name, ranks in found.items():
        seen = np.bincount(np.concatenate(ranks) // 20, minlength=5)
        assert stats.chisquare(seen).pvalue > 1e-4, (name, seen)


def test_a_fitted_prior_knows_how_many_areas_are_empty_and_covers():
    random = np.random.default_rng(5)
    tree, truth, _ = _made_by_the_model(random, groups=40)
    fitted = fit(tree, seed=0, rounds=16)
    zero = fitted[0] @ np.array([1.0, *(SHAPE / (SHAPE + MEANS[1:])) ** SHAPE])
    assert abs(zero - np.mean(truth[tree.leaves] == 0)) < 0.1
    drawn = draw(tree, fitted, draws=199, seed=1)
    low, high = drawn.credible(drawn.counts, 0.9)
    covered = ((low <= truth) & (truth <= high))[tree.leaves].mean()
    assert covered > 0.9 - 4 * np.sqrt(0.09 / tree.leaves.size)
    measured = np.abs(np.maximum(tree.value, 0) - truth)[tree.leaves].mean()
    assert np.abs(drawn.table() - truth)[tree.leaves].mean() < 0.8 * measured


@pytest.mark.parametrize("name", LIMITS)
def test_draws_and_the_table_add_up_and_meet_their_limits(name):
    tree = _small(LIMITS[name])
    drawn = draw(tree, FLAT, draws=120, seed=2)
    for counts in (*drawn.counts, drawn.table()):
        for node, below in enumerate(tree.children):
            assert not below or counts[node] == counts[below].sum()
        assert (counts >= tree.least).all()
        assert (counts <= tree.most).all()
        exact = np.isinf(tree.precision)
        assert (counts[exact] == tree.value[exact]).all()


def test_the_table_is_the_nearest_below_each_node():
    """Against all ways to divide a node's count among its children."""
    drawn = draw(_small({}), FLAT, draws=120, seed=4)
    table = drawn.table()

    def distance(nodes, counts):
        return np.abs(drawn.counts[:, nodes] - counts).mean(axis=0).sum()

    ways = [(a, b, table[1] - a - b) for a in range(table[1] + 1) for b in range(table[1] + 1 - a)]
    assert distance([3, 4, 5], table[[3, 4, 5]]) == pytest.approx(
        min(distance([3, 4, 5], way) for way in ways)
    )


def test_a_seed_decides():
    tree, _, weights = _made_by_the_model(np.random.default_rng(1), groups=2)
    one, same, other = (draw(tree, weights, draws=20, seed=seed).counts for seed in (7, 7, 8))
    assert (one == same).all()
    assert (one != other).any()
    assert (fit(tree, seed=1, rounds=4) == fit(tree, seed=1, rounds=4)).all()


def test_very_precise_measurements_are_the_draws_and_huge_noise_is_the_prior():
    sure = CountTree(PARENT, np.array([10.0, 6, 4, 1, 2, 3, 4]), np.full(7, 1e6))
    assert (draw(sure, FLAT, draws=50, seed=0).counts == sure.value).all()
    vague = CountTree(np.array([-1]), np.zeros(1), np.array([1e-9]))
    weights = np.zeros((1, MEANS.size))
    weights[0, 3] = 1
    counts = draw(vague, weights, draws=20_000, seed=0).counts
    mean = MEANS[3]
    assert abs(counts.mean() - mean) < 5 * np.sqrt(mean * (1 + mean / SHAPE) / 20_000)


def test_credible_intervals_are_order_statistics_and_need_100_draws():
    tree = _small({})
    drawn = draw(tree, FLAT, draws=199, seed=0)
    low, high = drawn.credible(np.arange(199.0)[:, None], 0.9)
    assert (low[0], high[0]) == (9, 189)
    with pytest.raises(InvalidArgument, match="at least 100"):
        draw(tree, FLAT, draws=99, seed=0).credible(np.zeros((99, 1)), 0.9)
    with pytest.raises(InvalidArgument, match=r"0\.999"):
        drawn.credible(drawn.counts, 0.999)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parent": np.array([-1, 2, 0])}, "come before"),
        ({"precision": np.array([1.0, np.nan, 1])}, "0 or more"),
        ({"value": np.array([1.0, np.inf, 1])}, "finite"),
        ({"most": np.array([9, np.nan, 9])}, "most a number"),
        ({"value": np.ones(2)}, "as many values"),
        ({"precision": np.array([1.0, 0, 1])}, "leaf 1 is neither measured nor bounded"),
    ],
)
def test_what_is_wrong_with_a_tree_is_said(change, says):
    right = {"parent": np.array([-1, 0, 0]), "value": np.ones(3), "precision": np.ones(3)}
    with pytest.raises(InvalidArgument, match=says):
        CountTree(**{**right, **change})


def test_exact_counts_that_no_table_meets_are_refused():
    tree = CountTree(
        np.array([-1, 0, 0]), np.array([9.0, 1, 1]), np.array([np.inf, 1, 1]), most=np.array([9, 2, 3])
    )
    with pytest.raises(InvalidArgument, match="node 0"):
        draw(tree, FLAT, draws=1, seed=0)


def test_draws_are_independent():
    tree, _, weights = _made_by_the_model(np.random.default_rng(2), groups=3)
    drawn = draw(tree, weights, draws=400, seed=0).counts[:, 0].astype(float)
    lag = np.corrcoef(drawn[1:], drawn[:-1])[0, 1]
    assert abs(lag) < 5 / np.sqrt(400)


@pytest.mark.parametrize(
    ("weights", "group", "says"),
    [
        (2 * FLAT, None, "add up to 1"),
        (FLAT[:, :3], None, "21 probabilities"),
        (FLAT, np.array([0, 1, 0, 0]), "from 0 to 0"),
        (FLAT, np.zeros(2, int), "each leaf"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(weights, group, says):
    with pytest.raises(InvalidArgument, match=says):
        draw(_small({}), weights, draws=1, seed=0, group=group)
