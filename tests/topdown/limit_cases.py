"""Small random spines with constraints, and the counts that areas can have, by enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
from tests.geography.trees import random_areas, random_shares, random_spine

import tabulae as tb
from tabulae.domain import Attribute, Domain, Recode
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints, ExactMargin
from tabulae.products.areas.descent.limits import FREE
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.spine_plan import SpinePlan


def plan_of(spine, layout, support, *, shares=None):
    """A plan that asks the detailed query alone; with shares as given, or equal ones and bypass."""
    equal = dict.fromkeys(spine.levels, Fraction(1, len(spine.levels)))
    spine = spine.bypass(equal) if shares is None else spine.with_shares(shares)
    queries = (layout.margin(layout.domain.names),)
    return SpinePlan(
        spine,
        layout,
        queries,
        dict.fromkeys(spine.levels, (Fraction(1),)),
        tb.ZCDP("1"),
        Supports.of(support),
    )


def type_layout(size, joins=()):
    """One attribute that is dense, with a recode for each tuple of classes in joins."""
    attribute = Attribute.of("type", [str(i) for i in range(size)])
    recodes = [
        Recode.from_map(f"join {i}", attribute, {str(t): str(c) for t, c in enumerate(classes)})
        for i, classes in enumerate(joins)
    ]
    return CellLayout.of(Domain({"type": attribute}, recodes), ["type"])


def random_constraints(rng, *, most=5, leaves=6, many=False):
    """A plan, constraints that may or may not be accepted, a truth that meets them, and its exact counts.

    ``many``: every type is a part, most leaves can count all, and some counts are exact.
    """
    spine = random_spine(rng, int(rng.integers(2, leaves + 1)), int(rng.integers(2, 4)), 2)
    size = most if many else int(rng.integers(1, most + 1))
    part = np.arange(size) if many else rng.integers(0, size, size)
    part = np.unique(part, return_inverse=True)[1]
    chain = [part, np.zeros(size, int)]
    if part.max():
        chain.append(rng.integers(0, 2, part.max() + 1)[part])
    layout = type_layout(size, chain)
    names = [f"join {i}" for i in range(len(chain))]
    can = rng.random((spine.leaves, part.max() + 1)) < rng.choice([0.9 if many else 0.7, 1.0])
    support = can[:, part]
    if rng.random() < 0.3 and not many:
        support &= rng.random(support.shape) < 0.8
    support[~support.any(axis=1), 0] = True
    plan = plan_of(spine, layout, support, shares=random_shares(rng, spine) if rng.random() < 0.5 else None)
    if rng.random() < 0.5:
        plan = replace(plan, spine=plan.spine.hold("held", random_areas(rng, plan.spine)))
    levels = [*plan.spine.levels, *2 * list(plan.spine.held)]
    truth = np.zeros((spine.leaves, size), int)
    for _ in range(int(rng.integers(1, 6))):
        leaf = rng.integers(spine.leaves)
        truth[leaf, rng.choice(np.flatnonzero(support[leaf]))] += 1
    held = np.stack([truth[:, part == j].sum(axis=1) for j in range(part.max() + 1)], axis=1)
    often = rng.choice([0.0, 0.3])
    lower = np.maximum(held - rng.integers(0, 3, held.shape), 0) * (rng.random(held.shape) < 0.4)
    upper = np.where(rng.random(held.shape) < often, held + rng.integers(0, 3, held.shape), NO_LIMIT)
    exact = [
        ExactMargin(str(rng.choice(levels)), layout.margin([str(rng.choice(names))]))
        for _ in range(int(rng.integers(1 if many else 0, 3)))
    ]
    names = tuple(f"part {j}" for j in range(part.max() + 1))
    constraints = AreaConstraints(layout, part, names, lower, upper, tuple(exact))
    return plan, constraints, truth, [exact_counts(plan, margin, truth) for margin in exact]


def exact_counts(plan, exact, truth):
    """Shape (units, classes): a margin of every unit of its level, from counts of leaves (leaves, D)."""
    areas = plan.spine.areas(exact.level)
    found = np.zeros((areas.codes.size + 1, exact.margin.classes), np.int64)
    np.add.at(found, (areas.unit[:, None], exact.margin.label[None]), truth)
    return found[:-1]


def tables(size, most):
    """All vectors of whole numbers that add up to at most ``most``."""
    return [v for v in itertools.product(range(most + 1), repeat=size) if sum(v) <= most]


def within(plan, constraints, limits, node, table):
    """Whether dense counts of a node meet its support and limits."""
    held = np.zeros(len(constraints.part_names), int)
    np.add.at(held, constraints.part, table)
    sums = np.zeros(limits.exact.shape[1], int)
    np.add.at(sums, limits.group[node], held)
    exact = limits.exact[node]
    return bool(
        not np.any(np.asarray(table)[~plan.patterns[plan.pattern[node]]])
        and ((held >= limits.lower[node]) & (held <= limits.upper[node])).all()
        and ((exact == FREE) | (sums == exact)).all()
    )


def reachable(plan, constraints, limits, most):
    """For each node, which dense counts of at most ``most`` people its leaves can add up to, exact counts kept."""
    every = tables(plan.layout.size, most)
    found = [set() for _ in range(plan.tree.size)]
    for node in reversed(range(plan.tree.size)):
        children = range(plan.children[node], plan.children[node + 1])
        if not len(children):
            found[node] = {t for t in every if within(plan, constraints, limits, node, t)}
            continue
        sums = {(0,) * plan.layout.size}
        for child in children:
            sums = {
                total
                for a in sums
                for b in found[child]
                if sum(total := tuple(x + y for x, y in zip(a, b, strict=True))) <= most
            }
        exact_only = limits.exact[node] != FREE
        found[node] = {t for t in sums if not exact_only.any() or meets_exact(constraints, limits, node, t)}
    return found


def meets_exact(constraints, limits, node, table):
    sums = np.zeros(limits.exact.shape[1], int)
    np.add.at(sums, limits.group[node][constraints.part], table)
    return bool(((limits.exact[node] == FREE) | (sums == limits.exact[node])).all())
