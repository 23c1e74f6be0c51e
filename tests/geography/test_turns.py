"""How threads of one process take turns: what is made ahead, what goes wrong there, and how long a turn is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tabulae.products.areas.turns import ahead, short_turns

SOON = 20  # seconds: a test that waits longer has failed


def test_the_next_item_is_made_while_one_is_used():
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for i, event in enumerate(made):
            event.set()
            yield i

    with ahead(items()) as found:
        assert next(found) == 0
        assert made[1].wait(SOON)  # nobody asked for it
        assert not made[2].is_set()
        assert list(found) == [1, 2]


def test_what_goes_wrong_is_raised_in_its_turn():
    def items() -> Iterator[str]:
        yield "first"
        raise OSError("no space left")

    with ahead(items()) as found:
        assert next(found) == "first"
        with pytest.raises(OSError, match="no space left"):
            next(found)


def test_whoever_leaves_early_waits_for_what_is_being_made_and_no_more_is():
    begun, go, done = threading.Event(), threading.Event(), []

    def items() -> Iterator[int]:
        for i in range(5):
            if i == 1:
                begun.set()
                assert go.wait(SOON)
            done.append(i)
            yield i

    def leave() -> None:
        with ahead(items()) as found:
            next(found)
            assert begun.wait(SOON)
            threading.Timer(0.05, go.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert done == [0, 1]


@pytest.mark.parametrize("before", [5e-3, 1e-5])
def test_turns_are_short_until_they_end_however_they_end(before):
    own = sys.getswitchinterval()
    sys.setswitchinterval(before)
    try:
        with suppress(ValueError), short_turns():
            assert sys.getswitchinterval() == pytest.approx(min(before, 2e-4))
            raise ValueError
        assert sys.getswitchinterval() == pytest.approx(before)
    finally:
        sys.setswitchinterval(own)
