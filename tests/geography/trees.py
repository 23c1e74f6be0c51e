"""Small random spines, and slow ways to say what is true of them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from tabulae.products.areas.spine.spine import Spine


@st.composite
def columns(draw, leaves=(2, 8), depth=(2, 4), fan=3):
    """Codes of nested levels: each leaf's path, from random numbers at every level."""
    count = draw(st.integers(*leaves))
    levels = [f"level {i}" for i in range(draw(st.integers(*depth)))]
    paths = [""] * count
    codes = {}
    for level in levels[:-1]:
        steps = draw(st.lists(st.integers(0, fan - 1), min_size=count, max_size=count))
        paths = [f"{path}{step}" for path, step in zip(paths, steps, strict=True)]
        codes[level] = paths
    codes[levels[-1]] = [f"leaf {i:02}" for i in range(count)]
    return codes


def spines(**options):
    return columns(**options).map(lambda codes: Spine.from_codes(codes, levels=list(codes)))


def random_spine(rng: np.random.Generator, leaves: int, depth: int, fan: int = 3) -> Spine:
    paths, codes = [""] * leaves, {}
    for level in range(depth - 1):
        paths = [f"{path}{rng.integers(fan)}" for path in paths]
        codes[f"level {level}"] = paths
    codes["leaf"] = [f"leaf {i:02}" for i in range(leaves)]
    return Spine.from_codes(codes, levels=list(codes))


def random_shares(rng: np.random.Generator, spine: Spine) -> dict[str, Fraction]:
    parts = rng.integers(1, 20, len(spine.levels)).tolist()
    return {level: Fraction(part, sum(parts)) for level, part in zip(spine.levels, parts, strict=True)}


def random_areas(rng: np.random.Generator, spine: Spine) -> list[str | None]:
    """For each leaf one of some areas, or none: sums of several children of a node, of different nodes for each."""
    tree, codes = spine.tree, np.full(spine.leaves, None, object)
    nodes = set(rng.integers(0, tree.size, 3).tolist())
    for node in sorted(nodes, reverse=True):
        below = np.flatnonzero(tree.parent == node)
        for child in below[rng.random(below.size) < 0.7].tolist():
            at = tree.leaf.copy()
            while (at > child).any():
                at = np.where(at > child, tree.parent[at], at)
            codes[at == child] = f"{node}.{rng.integers(2)}"
    return codes.tolist() if any(codes) else ["all"] * spine.leaves


def areas(spine: Spine) -> np.ndarray:
    """Shape (units of all levels, leaves): which leaves each holds. Repeats where a unit has one child."""
    return np.concatenate(
        [
            np.eye(len(codes), dtype=bool)[:, unit]
            for codes, unit in zip(spine.codes.values(), spine.units.values(), strict=True)
        ]
    )


def weights(spine: Spine) -> np.ndarray:
    """Shape (units of all levels,): their shares."""
    assert spine.shares is not None
    return np.concatenate([spine.shares.floats(level) for level in spine.levels])


def measured_areas(spine: Spine) -> dict[frozenset[int], Fraction]:
    """Share of every measured unit, by the leaves it holds."""
    assert spine.shares is not None
    shares = itertools.chain.from_iterable(spine.shares[level] for level in spine.levels)
    held = [frozenset(np.flatnonzero(area).tolist()) for area in areas(spine)]
    found = [(leaves, share) for leaves, share in zip(held, shares, strict=True) if share]
    assert len(dict(found)) == len(found), "two measured units are one area"
    return dict(found)


def algorithm_1(children, inside) -> int:
    """The distance of a set of leaves by the recursion as printed; a leaf is an int, a unit a list of children."""

    def costs(node):
        if isinstance(node, int):
            return int(node in inside), int(node not in inside)
        below = [costs(child) for child in node]
        x, y = sum(a for a, _ in below), sum(b for _, b in below)
        return min(x, y + 1), min(y, x + 1)

    return costs(children)[0]


def nested(spine: Spine):
    """The spine as lists in lists, units in their order."""
    h = spine.hierarchy

    def node(level, unit):
        if level == h.depth - 1:
            return int(unit)
        return [node(level + 1, child) for child in np.flatnonzero(h.parents[level + 1] == unit)]

    return node(0, 0)
