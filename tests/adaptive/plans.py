"""Small plans for tests of adaptive tabulation."""

from fractions import Fraction

import numpy as np

from tabulae.domain.groups import CodeFamily, Group, GroupMap, Ladder, Regions
from tabulae.privacy import ZCDP
from tabulae.products.groups.levels import AdaptivePlan, PopulationLevel

AGES = Ladder.of(
    {"sex": 2, "age": 4},
    [
        ("sex*old", {"sex": ("FM", [0, 1]), "age": (["0-1", "2-3"], [0, 0, 1, 1])}),
        ("sex*age", {"sex": ("FM", [0, 1]), "age": ("0123", [0, 1, 2, 3])}),
    ],
)


def touching(staged, whole=0):
    """A selection of which one record can belong to so many two-stage groups and so many total-only ones."""
    family = CodeFamily("trait", ("x",))
    groups = [Group(f"s{i}", "1", "trait", "any") for i in range(staged)]
    groups += [Group(f"w{i}", "1", "trait", "any", total_only=True) for i in range(whole)]
    return GroupMap((family,), tuple(groups), [(group.code, "x") for group in groups]).at("1", "area")


def either(number):
    """A record carries so many codes; each is of one two-stage group and one total-only group can stand in for it."""
    codes = tuple(f"{kind}{i}" for kind in "sw" for i in range(number))
    family = CodeFamily("trait", codes, number)
    groups = tuple(Group(code, "1", "trait", "any", total_only=code[0] == "w") for code in codes)
    return GroupMap((family,), groups, [(code, code) for code in codes]).at("1", "area")


def level(name="area", of_leaf=(0,), groups=None, budget=None, **changes):
    of_leaf = np.array(of_leaf)
    arguments = {
        "regions": Regions(name, tuple(str(i) for i in range(of_leaf.max() + 1)), of_leaf),
        "group_level": "1",
        "groups": touching(3) if groups is None else groups,
        "ladder": AGES,
        "thresholds": (5, 50),
        "budget": ZCDP(1) if budget is None else budget,
        "stage_one": Fraction(1, 10),
    }
    return PopulationLevel(**(arguments | changes))


def plan(*levels):
    return AdaptivePlan(levels)
