"""Posterior of one whole count over a tree of areas: independent draws, without a Markov chain.

Leaf b of class g has N_b people, a sum of its children every other node; node u is measured:

    y_u = N_u + e_u,    log p(e) = -p_u e**2 / 2 + const        exact for discrete Gaussian noise of precision p_u
    N_b ~ sum_z w_gz NB(mean m_z, shape 6),   m = 0 (nobody) and 1.5 * 1.7**i;   w_g from the measurements

The joint law is a tree of sums, so one pass up and one down draw from it exactly (forward filtering, backward
sampling). Up: the message of a node is the law of its children's sum, a convolution, times its own likelihood.
Children are joined two by two. Down: a sum n is divided in two by p(k | n), proportional to f(k) g(n - k). Draws are
independent given the weights w, so M draws are M effective draws at each level.

Weights are found by Monte Carlo EM and then held: how uncertain they are is not in the draws. All is made from
measurements, which are public: it costs no budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from ..errors import InvalidArgument

SHAPE = 6.0
MEANS = np.array([0.0, *(1.5 * 1.7 ** np.arange(20))])
_REACH = (
    12  # standard deviations about a measurement that are looked at: e**-72 of the likelihood is left out
)
_NOTHING = 1e-40  # of the largest weight of a message: below it, ends are cut


@dataclass(frozen=True, eq=False)
class CountTree:
    """What is measured of one count over areas, and what is known of it.

    Args:
        parent: shape (nodes,): the parent of each node, which comes before it; -1 for the root, node 0.
        value: shape (nodes,): the measured count; several independent measurements of a node are joined to their
            mean by precision.
        precision: shape (nodes,): 1 over the variance of the noise; 0 where nothing is measured, ``inf`` where the
            count is exact.
        least, most: shape (nodes,): the count is within them. A leaf that is not measured needs ``most``.

    Raises:
        InvalidArgument: if a parent does not come before its child, a leaf has no bound, or a number is not one.

    >>> tree = CountTree(np.array([-1, 0, 0]), np.array([7.0, 5.0, -1.0]), np.array([np.inf, 0.5, 0.5]))
    >>> drawn = draw(tree, np.ones((1, MEANS.size)) / MEANS.size, draws=3, seed=1)
    >>> drawn.counts[:, 0].tolist(), (drawn.counts[:, 1] + drawn.counts[:, 2]).tolist()
    ([7, 7, 7], [7, 7, 7])
    """

    parent: np.ndarray
    value: np.ndarray
    precision: np.ndarray
    least: np.ndarray = field(default_factory=lambda: np.zeros(()))
    most: np.ndarray = field(default_factory=lambda: np.full((), np.inf))

    def __post_init__(self) -> None:
        shape = self.parent.shape
        if self.value.shape != shape or self.precision.shape != shape or not shape or not shape[0]:
            raise InvalidArgument(
                f"a tree of {shape} nodes needs as many values and precisions, and at least one node"
            )
        if self.parent[0] != -1 or (self.parent[1:] < 0).any() or (self.parent >= np.arange(shape[0])).any():
            raise InvalidArgument(
                "each parent must come before its children: sort nodes by depth, the root first"
            )
        if np.isnan(self.precision).any() or (self.precision < 0).any() or not np.isfinite(self.value).all():
            raise InvalidArgument("values must be finite numbers, and precisions 0 or more")
        if np.isnan(self.least).any() or np.isnan(self.most).any() or np.isinf(self.least).any():
            raise InvalidArgument(
                "the least of a count must be a finite number, and the most a number or inf"
            )
        object.__setattr__(self, "least", np.ceil(np.maximum(np.broadcast_to(self.least, shape), 0)))
        object.__setattr__(self, "most", np.floor(np.broadcast_to(self.most, shape)))
        open_ended = (self.precision[self.leaves] == 0) & np.isinf(self.most[self.leaves])
        if open_ended.any():
            node = int(self.leaves[open_ended][0])
            raise InvalidArgument(
                f"leaf {node} is neither measured nor bounded: give the most that it can have"
            )

    @cached_property
    def leaves(self) -> np.ndarray:
        """Nodes without children, in order."""
        return np.setdiff1d(np.arange(self.parent.size), self.parent)

    @cached_property
    def children(self) -> list[list[int]]:
        """Of each node, its children in order."""
        found: list[list[int]] = [[] for _ in range(self.parent.size)]
        for node, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                found[parent].append(node)
        return found


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent draws of all counts; ``counts`` has shape (draws, nodes), whole and additive in each draw."""

    tree: CountTree
    counts: np.ndarray

    def table(self) -> np.ndarray:
        """Shape (nodes,): whole, additive counts, near to all draws.

        The root has its median. Below a node, children t_c minimise the mean over draws of sum_c |N_c - t_c|, given
        that they add up: each stands at the same quantile of its draws, and what is between two draws goes to the
        first children.
        """
        ordered = np.sort(self.counts, axis=0)
        found = np.empty(self.tree.parent.size, np.int64)
        found[0] = ordered[(len(ordered) - 1) // 2, 0]
        for node, below in enumerate(self.tree.children):
            if below:
                each = ordered[:, below]
                sums = each.sum(axis=1)
                at = int(np.searchsorted(sums, found[node], side="right")) - 1
                found[below] = each[at]
                if at + 1 < len(each):
                    room = each[at + 1] - each[at]
                    before = np.cumsum(room) - room
                    found[below] += np.clip(found[node] - sums[at] - before, 0, room)
        return found

    def credible(self, sums: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Ends of equal-tailed intervals of ``sums`` (draws, areas): any function of each draw, on the tree or off it.

        With M draws the ends are the i-th from below and from above, i at most (M + 1) (1 - level) / 2: a further draw
        lies within them with probability ``level`` or more.

        Raises:
            InvalidArgument: below 100 draws, or where ``level`` needs more.
        """
        draws = len(self.counts)
        rank = int((draws + 1) * (1 - level) / 2 + 1e-9)
        if draws < 100 or rank < 1 or not 0 < level < 1:
            raise InvalidArgument(
                f"{draws} draws give no credible interval at {level}: draw at least 100, and 2 / (1 - level)"
            )
        ordered = np.sort(sums, axis=0)
        return ordered[rank - 1], ordered[draws - rank]


def draw(
    tree: CountTree, weights: np.ndarray, *, draws: int, seed: int, group: np.ndarray | None = None
) -> Draws:
    """Independent draws of all counts, given ``weights`` (classes, len(MEANS)) of the prior of leaves.

    ``group`` (leaves,) is the class of each leaf, all 0 by default. The same seed gives the same draws.

    Raises:
        InvalidArgument: if no table meets the exact counts and bounds, or weights or classes do not fit.
    """
    of_leaf = np.zeros(tree.leaves.size, np.int64) if group is None else group
    if (
        weights.shape[1:] != MEANS.shape
        or not (weights >= 0).all()
        or not np.allclose(weights.sum(axis=1), 1)
    ):
        raise InvalidArgument(f"weights need {MEANS.size} probabilities a class that add up to 1")
    if of_leaf.shape != tree.leaves.shape or of_leaf.min() < 0 or of_leaf.max() >= len(weights):
        raise InvalidArgument(f"each leaf needs a class from 0 to {len(weights) - 1}")
    class_of = dict(zip(tree.leaves.tolist(), of_leaf.tolist(), strict=True))
    random = np.random.default_rng(seed)
    window = {int(leaf): _window(tree, leaf) for leaf in tree.leaves}
    prior = weights @ _sizes(max(high for _, high in window.values()))
    law: list[_Sum] = [_Sum(0, np.ones(1))] * tree.parent.size
    for node in reversed(range(tree.parent.size)):
        below = tree.children[node]
        if below:
            message = _joined([_Sum(law[child].low, law[child].weight) for child in below])
        else:
            low, high = window[node]
            message = _Sum(low, prior[class_of[node], low : high + 1])
        law[node] = _given(tree, node, message)
    counts = np.zeros((draws, tree.parent.size), np.int64)
    root = law[0]
    counts[:, 0] = root.low + _choose(np.broadcast_to(root.weight, (draws, root.weight.size)), random)
    for node, below in enumerate(tree.children):
        if below:
            counts[:, below] = np.stack(_divided(law[node], counts[:, node], random), axis=1)
    return Draws(tree, counts)


def fit(
    tree: CountTree, *, seed: int, group: np.ndarray | None = None, rounds: int = 16, draws: int = 8
) -> np.ndarray:
    """Weights (classes, len(MEANS)) of the prior, from the measurements alone: Monte Carlo EM, the last half's mean."""
    of_leaf = np.zeros(tree.leaves.size, np.int64) if group is None else group
    classes = int(of_leaf.max()) + 1
    weights, kept = np.ones((classes, MEANS.size)) / MEANS.size, []
    for turn in range(rounds):
        counts = draw(tree, weights, draws=draws, seed=seed + turn, group=group).counts[:, tree.leaves]
        sizes, at = np.unique(counts, return_inverse=True)
        seen = np.zeros((classes, sizes.size))
        np.add.at(seen, (np.broadcast_to(of_leaf, counts.shape), at.reshape(counts.shape)), 1 / draws)
        density = _sizes(int(sizes[-1]))[:, sizes]
        expected = weights * ((seen / (weights @ density)) @ density.T) + 1 / MEANS.size
        weights = expected / expected.sum(axis=1, keepdims=True)
        kept.append(weights)
    return np.mean(kept[rounds // 2 :], axis=0)


@dataclass(frozen=True, eq=False)
class _Sum:
    """Weights of ``low``, ``low + 1``, ...; and the two sums that it is made of, or none."""

    low: int
    weight: np.ndarray
    parts: tuple[_Sum, _Sum] | None = None


def _sizes(most: int) -> np.ndarray:
    """Shape (len(MEANS), most + 1): probability of each size under each part of the prior."""
    n, mean = np.arange(most + 1), MEANS[1:, None]
    log = gammaln(n + SHAPE) - gammaln(n + 1) - gammaln(SHAPE)
    log = log + SHAPE * np.log(SHAPE / (SHAPE + mean)) + n * np.log(mean / (SHAPE + mean))
    return np.concatenate([(n == 0)[None].astype(float), np.exp(log)])


def _window(tree: CountTree, leaf: int) -> tuple[int, int]:
    least, most = tree.least[leaf], tree.most[leaf]
    if tree.precision[leaf] == 0:
        return int(least), int(most)
    reach = _REACH / np.sqrt(tree.precision[leaf]) + 1
    low = max(least, min(np.floor(tree.value[leaf] - reach), most))
    return int(low), int(max(low, min(most, np.ceil(max(tree.value[leaf], least) + reach))))


def _given(tree: CountTree, node: int, message: _Sum) -> _Sum:
    """A message times the likelihood of the node's measurement, where bounds allow it; ends of no weight are cut."""
    n = message.low + np.arange(message.weight.size)
    value, precision = tree.value[node], tree.precision[node]
    allowed = (n >= tree.least[node]) & (n <= tree.most[node]) & (message.weight > 0)
    if np.isinf(precision):
        allowed &= n == value
        precision = 0.0
    if not allowed.any():
        raise InvalidArgument(
            f"no whole counts meet what is known of node {node}: look at exact counts and bounds below it"
        )
    log = np.full(n.size, -np.inf)
    log[allowed] = np.log(message.weight[allowed]) - precision * (n[allowed] - value) ** 2 / 2
    weight = np.exp(log - log.max())
    (kept,) = np.nonzero(weight > _NOTHING)
    return _Sum(message.low + int(kept[0]), weight[kept[0] : kept[-1] + 1], message.parts)


def _joined(parts: list[_Sum]) -> _Sum:
    """The law of the sum, joined two by two: convolutions of positive numbers lose no digit of small weights."""
    while len(parts) > 1:
        pairs = list(zip(parts[::2], parts[1::2], strict=False))
        rest = parts[2 * len(pairs) :]
        parts = [_pair(f, g) for f, g in pairs] + rest
    return parts[0]


def _pair(f: _Sum, g: _Sum) -> _Sum:
    weight = np.convolve(f.weight, g.weight)
    weight /= weight.max()
    (kept,) = np.nonzero(weight > _NOTHING)
    return _Sum(f.low + g.low + int(kept[0]), weight[kept[0] : kept[-1] + 1], (f, g))


def _divided(law: _Sum, totals: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Totals (draws,) of a node among its children, in order."""
    if law.parts is None:
        return [totals]
    f, g = law.parts
    left = f.low + np.arange(f.weight.size)
    right = totals[:, None] - left - g.low
    inside = (right >= 0) & (right < g.weight.size)
    chances = np.where(inside, f.weight * g.weight[np.clip(right, 0, g.weight.size - 1)], 0.0)
    first = f.low + _choose(chances, random)
    return [x for part, n in ((f, first), (g, totals - first)) for x in _divided(part, n, random)]


def _choose(chances: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Of each row, a place drawn in proportion to its entries."""
    summed = np.cumsum(chances, axis=1)
    at = random.random(len(chances)) * summed[:, -1]
    return (summed <= at[:, None]).sum(axis=1)
