"""Attributes, recodes and domains: what they mean, and what they refuse."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.domain import Attribute, Domain, Recode
from tabulae.errors import InvalidArgument
from tabulae.linalg import Identity, Partition


def small() -> Domain:
    domain = Domain({"sex": ["F", "M"], "age": range(115), "race": 64})
    return domain.with_recodes(Recode.from_edges("age5", domain["age"], [5, 10, 15, 18]))


def test_the_three_ways_to_describe_an_attribute() -> None:
    domain = small()
    assert domain.names == ("sex", "age", "race")
    assert domain.shape == (2, 115, 64)
    assert domain.size == 14720
    assert isinstance(domain.size, int)
    sex, age, race = domain.attributes
    assert (sex.labels, sex.values, sex.ordered) == (("F", "M"), ("F", "M"), False)
    assert (age.labels[:2], age.values[:2], age.ordered) == (("0", "1"), (0, 1), True)
    assert (race.size, race.labels[63], race.values[63], race.ordered) == (64, "63", 63, True)


def test_ranges_may_begin_below_zero_and_have_steps() -> None:
    attribute = Attribute.of("t", range(-10, 11, 5))
    assert attribute.values == (-10, -5, 0, 5, 10)
    assert [attribute.below(v) for v in (-11, -10, -7, Fraction(1, 2), 10, 99)] == [0, 0, 1, 3, 4, 5]


def test_whole_numbers_in_a_list_stay_numbers() -> None:
    rising, jumbled = Attribute.of("a", [1, 2, 9]), Attribute.of("b", np.array([3, 1, 2]))
    assert rising.values == (1, 2, 9)
    assert rising.ordered
    assert jumbled.values == (3, 1, 2)
    assert not jumbled.ordered
    assert all(type(value) is int for value in jumbled.values)


def test_ordered_strings_compare_by_position() -> None:
    school = Attribute("school", ("none", "primary", "secondary"), ordered=True)
    assert school.below("secondary") == 2
    with pytest.raises(InvalidArgument, match="did you mean 'primary'"):
        school.below("primry")


def test_values_labels_and_parents() -> None:
    race = Attribute("race", ("White", "Black"), values=("01", "02"), parents=("any", None))
    assert race.position("01") == race.position("White") == 0
    assert race.position("03") is None
    assert race.position(1) is None
    with pytest.raises(InvalidArgument, match="the value of one category"):
        Attribute("x", ("a", "b"), values=("b", "a")).position("a")


def test_a_domain_far_beyond_memory_has_a_size() -> None:
    assert Domain({f"a{k}": 1000 for k in range(20)}).size == 10**60


def test_equality_is_that_of_the_cells() -> None:
    plain = Domain({"sex": ["F", "M"], "age": range(115), "race": 64})
    assert small() == plain
    assert hash(small()) == hash(plain)
    assert plain != Domain({"age": range(115), "sex": ["F", "M"], "race": 64})
    assert plain != Domain({"sex": ["F", "M"], "age": range(115), "race": 63})
    assert pickle.loads(pickle.dumps(small())) == plain


def test_a_domain_is_immutable() -> None:
    domain = small()
    with pytest.raises(AttributeError):
        domain.attributes = ()  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        domain.recodes[0].classes[0] = 3


def test_resolve_attribute_and_recode() -> None:
    domain = small()
    attribute, operator, labels = domain.resolve("age5")
    assert attribute is domain["age"]
    assert labels == ("0-4", "5-9", "10-14", "15-17", "18-114")
    assert operator == Partition(np.repeat(range(5), [5, 5, 5, 3, 97]))
    view = domain.resolve("sex")
    assert view.operator == Identity(2)
    assert view.labels == ("F", "M")


def test_match_prefers_the_exact_name() -> None:
    domain = Domain({"Age": 2, "age": 3, "SEX": 2})
    assert [domain.match(name) for name in ("Age", "age", "sex")] == ["Age", "age", "SEX"]
    with pytest.raises(InvalidArgument, match="'Age' or 'age'"):
        domain.match("AGE")


def test_recode_labels_of_single_and_negative_values() -> None:
    ages = Attribute.of("age", range(3))
    assert Recode.from_edges("r", ages, [1]).labels == ("0", "1-2")
    assert Recode.from_edges("r", Attribute.of("t", range(-2, 3)), [0]).labels == ("-2 to -1", "0 to 2")


@given(st.integers(2, 30), st.data())
def test_edges_cut_where_they_say(n: int, data: st.DataObject) -> None:
    edges = sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1)))
    recode = Recode.from_edges("r", Attribute.of("x", n), edges)
    assert recode.classes.tolist() == [sum(edge <= value for edge in edges) for value in range(n)]
    counts = np.arange(n)
    bounds = [0, *edges, n]
    sums = [counts[a:b].sum() for a, b in pairwise(bounds)]
    assert (recode.operator @ counts).tolist() == sums


def test_recode_from_a_map_takes_values_or_labels() -> None:
    race = Attribute("race", ("White", "Black", "Asian"), values=(1, 2, 3))
    by_value = Recode.from_map("r", race, {1: "w", 2: "other", 3: "other"})
    by_label = Recode.from_map("r", race, {"White": "w", "Black": "other", "Asian": "other"})
    assert by_value == by_label
    assert hash(by_value) == hash(by_label)
    assert by_value.labels == ("w", "other")
    assert by_value != Recode.from_map("s", race, {1: "w", 2: "other", 3: "other"})


BAD_DOMAINS = {
    "no attributes": ({}, "at least one attribute"),
    "no categories": ({"a": []}, "no categories"),
    "size 0": ({"a": 0}, "has 0 categories"),
    "empty range": ({"a": range(5, 5)}, "no categories"),
    "a string": ({"a": "FM"}, "give a list of labels"),
    "a set": ({"a": {"F", "M"}}, "fixed order"),
    "a flag": ({"a": True}, "give a list of labels"),
    "a float": ({"a": 2.5}, "give a list of labels"),
    "float labels": ({"a": [0.5, 1.5]}, "strings or whole numbers"),
    "NULL": ({"a": ["F", None]}, "strings or whole numbers"),
    "flags": ({"a": [True, False]}, "strings or whole numbers"),
    "mixed": ({"a": ["x", 1]}, "mixes numbers and strings"),
    "duplicate": ({"a": ["x", "y", "x"]}, "lists 'x' twice"),
    "duplicate number": ({"a": [1, 1]}, "lists '1' twice"),
    "empty label": ({"a": ["x", ""]}, "non-empty strings"),
    "two lines": ({"a": ["x\ny"]}, "on one line"),
    "the total": ({"a": ["_T"]}, "stands for the total"),
    "falling range": ({"a": range(5, 0, -1)}, "write it rising"),
    "empty name": ({"": 2}, "non-empty string"),
    "number as name": ({3: 2}, "non-empty string"),
    "slash": ({"a/b": 2}, "leave out '/'"),
    "star": ({"a*b": 2}, "leave out '\\*'"),
    "blanks": ({" a": 2}, "surrounding blanks"),
    "result column": ({"estimate": 2}, "column of that name"),
    "too many": ({"a": 10**12}, "at most 10000000"),
}


@each("case", BAD_DOMAINS)
def test_bad_domains_are_refused(case: str) -> None:
    attributes, message = BAD_DOMAINS[case]
    with pytest.raises(InvalidArgument, match=message):
        Domain(attributes)  # type: ignore[arg-type]


def test_bad_attributes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="2 labels but 1 values"):
        Attribute("a", ("x", "y"), values=("1",))
    with pytest.raises(InvalidArgument, match="2 labels but 3 parents"):
        Attribute("a", ("x", "y"), parents=("p", "p", "p"))
    with pytest.raises(InvalidArgument, match="must increase"):
        Attribute("a", ("x", "y"), ordered=True, values=(2, 1))
    with pytest.raises(InvalidArgument, match="value '1' twice"):
        Attribute("a", ("x", "y"), values=("1", "1"))
    with pytest.raises(InvalidArgument, match="an attribute named 'b'"):
        Domain({"a": Attribute("b", ("x",))})


def test_bad_recodes_are_refused() -> None:
    domain = small()
    sex, age = domain["sex"], domain["age"]
    with pytest.raises(InvalidArgument, match="no order"):
        Recode.from_edges("r", sex, [1])
    for edges in ([0, 5], [5, 5], [10, 5], [115], [200], [-3]):
        with pytest.raises(InvalidArgument, match="must increase"):
            Recode.from_edges("r", age, edges)
    with pytest.raises(InvalidArgument, match="no edges"):
        Recode.from_edges("r", age, [])
    with pytest.raises(InvalidArgument, match="without a class: 'M'"):
        Recode.from_map("r", sex, {"F": "x"})
    with pytest.raises(InvalidArgument, match="maps 'X', which is not a category"):
        Recode.from_map("r", sex, {"F": "x", "M": "x", "X": "y"})
    with pytest.raises(InvalidArgument, match="no category falls in 'c'"):
        Recode("r", "sex", np.array([0, 1]), ("a", "b", "c"))
    with pytest.raises(InvalidArgument, match=r"0\.\.1"):
        Recode("r", "sex", np.array([0, 2]), ("a", "b"))
    with pytest.raises(InvalidArgument, match="whole numbers"):
        Recode("r", "sex", np.array([0.0, 1.0]), ("a", "b"))  # type: ignore[arg-type]


def test_recodes_that_do_not_fit_the_domain_are_refused() -> None:
    domain = small()
    good = Recode.from_edges("r", domain["age"], [18])
    with pytest.raises(InvalidArgument, match="a name that is in use"):
        domain.with_recodes(Recode.from_edges("sex", domain["age"], [18]))
    with pytest.raises(InvalidArgument, match="a name that is in use"):
        domain.with_recodes(good, good)
    with pytest.raises(InvalidArgument, match="no attribute 'b'"):
        domain.with_recodes(Recode("r", "b", np.array([0]), ("x",)))
    with pytest.raises(InvalidArgument, match="'age5' is a recode of 'age'"):
        domain.with_recodes(Recode("r", "age5", np.arange(5), tuple("abcde")))
    with pytest.raises(InvalidArgument, match="1 classes for the 2 categories"):
        domain.with_recodes(Recode("r", "sex", np.array([0]), ("x",)))


def test_unknown_names_suggest_known_ones() -> None:
    domain = small()
    with pytest.raises(InvalidArgument, match="did you mean 'race'"):
        domain["rac"]
    with pytest.raises(InvalidArgument, match="it has 'sex', 'age', 'race', 'age5'"):
        domain.axis("zzz")
    with pytest.raises(InvalidArgument, match=r"domain.resolve\('age5'\)"):
        domain["age5"]
