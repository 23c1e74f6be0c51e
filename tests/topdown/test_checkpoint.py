"""Stages on the disk: found whole or not at all, and never those of another estimate."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topdown.descent_cases import random_case

import tabulae as tb
from tabulae.errors import InvalidArgument, ReleaseError
from tabulae.products.areas.constraints import AreaConstraints, ExactMargin
from tabulae.products.areas.descent.limits import NO_LIMIT
from tabulae.products.areas.layout import Supports
from tabulae.products.areas.stages import Checkpoint, Fingerprint, estimate_digest

parts = st.recursive(
    st.text(max_size=3) | st.integers() | st.none() | st.fractions(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


def test_a_finished_stage_is_found_again(tmp_path):
    made = Checkpoint(tmp_path / "work", "a")
    assert made.found("up") is None
    made.finish("up", seen=np.arange(3), name=np.array("x"))
    again = Checkpoint(tmp_path / "work", "a").found("up")
    assert again is not None
    assert again["seen"].tolist() == [0, 1, 2]
    assert again["name"] == "x"
    assert Checkpoint(tmp_path / "work", "a").found("down") is None


def test_without_a_folder_nothing_is_found():
    made = Checkpoint(None, "a")
    made.finish("up", seen=np.arange(3))
    assert made.found("up") is None
    assert made.place("counts.npy") is None


def test_half_a_stage_is_not_found(tmp_path, monkeypatch):
    made = Checkpoint(tmp_path, "a")

    def killed(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        made.finish("up", seen=np.arange(1000))
    monkeypatch.undo()
    assert not (tmp_path / "up.npz").exists()
    assert list(tmp_path.glob(".up.npz.draft")), "the draft was begun"
    again = Checkpoint(tmp_path, "a")
    assert again.found("up") is None
    again.finish("up")
    assert again.found("up") == {}


def test_a_folder_of_another_estimate_is_refused(tmp_path):
    Checkpoint(tmp_path, "a")
    with pytest.raises(ReleaseError, match="another estimate"):
        Checkpoint(tmp_path, "b")


@pytest.mark.parametrize("content", ["", "{}", "[]", "not JSON"])
def test_a_mark_that_cannot_be_read_is_refused(tmp_path, content):
    (tmp_path / "estimate.json").write_text(content)
    with pytest.raises(ReleaseError, match=r"estimate\.json cannot be read"):
        Checkpoint(tmp_path, "a")


def test_stages_without_a_mark_are_refused(tmp_path):
    Checkpoint(tmp_path, "a").finish("up")
    (tmp_path / "estimate.json").unlink()
    with pytest.raises(ReleaseError, match=r"no estimate\.json"):
        Checkpoint(tmp_path, "a")


def test_a_stage_that_cannot_be_read_is_refused(tmp_path):
    made = Checkpoint(tmp_path, "a")
    (tmp_path / "up.npz").write_bytes(b"nothing")
    with pytest.raises(ReleaseError, match=r"up\.npz cannot be read"):
        made.found("up")


@given(st.lists(parts, max_size=3), st.lists(parts, max_size=3))
def test_fingerprints_agree_only_where_all_parts_do(one, other):
    same = Fingerprint().add(*one).hex() == Fingerprint().add(*other).hex()
    assert same == (repr(one) == repr(other))


def test_fingerprints_tell_arrays_apart():
    arrays = [
        np.zeros(4, np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros(4, np.float64),
        np.zeros(0, np.int64),
        np.array(["", "", "", ""]),
        np.array(["0", "000"], object),
    ]
    assert len({Fingerprint().add(array).hex() for array in arrays}) == len(arrays)
    assert Fingerprint().add(arrays[1].T).hex() == Fingerprint().add(arrays[1]).hex()


def test_the_digest_knows_what_decides_an_estimate():
    case = random_case(np.random.default_rng(1), 6, 3)
    plan, none = case.plan, ()
    free = AreaConstraints(
        plan.layout,
        np.zeros(plan.layout.size, np.int64),
        ("all",),
        np.zeros((6, 1), np.int64),
        np.full((6, 1), NO_LIMIT),
    )
    exact = replace(free, exact=(ExactMargin(plan.spine.levels[0], plan.layout.margin([])),))
    flipped = plan.support.rows
    flipped[0] = True
    flipped[0, 0] = not flipped[0].all()
    queries = {level: given[::-1] for level, given in plan.query_shares.items()}
    shares = {level: Fraction(i + 1, 10) for i, level in enumerate(plan.spine.levels)}
    plans = [
        plan,
        replace(plan, budget=tb.ZCDP("2")),
        replace(plan, budget=tb.PureDP("1")),
        replace(plan, neighbours="add-remove"),
        replace(plan, support=Supports.of(flipped)),
        replace(plan, query_shares=queries),
        replace(plan, queries=plan.queries[::-1]),
        replace(plan, spine=replace(plan.spine, shares=None).bypass(shares)),
        random_case(np.random.default_rng(2), 6, 3).plan,
    ]
    digests = [estimate_digest(one, "topdown", None, none, "a") for one in plans]
    digests += [
        estimate_digest(plan, "bluedown", None, none, "a"),
        estimate_digest(plan, "topdown", None, none, "b"),
        estimate_digest(plan, "topdown", free, none, "a"),
        estimate_digest(plan, "topdown", replace(free, upper=free.upper - 1), none, "a"),
        estimate_digest(plan, "topdown", exact, [np.array([[5]])], "a"),
        estimate_digest(plan, "topdown", exact, [np.array([[6]])], "a"),
    ]
    assert len(set(digests)) == len(digests)
    same = random_case(np.random.default_rng(1), 6, 3).plan
    assert estimate_digest(same, "topdown", None, none, "a") == digests[0]


def test_exact_counts_belong_to_exact_margins():
    plan = random_case(np.random.default_rng(1), 4, 2).plan
    with pytest.raises(InvalidArgument, match="one array of exact counts"):
        estimate_digest(plan, "gls", None, [np.array([[5]])], "a")
