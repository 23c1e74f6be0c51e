"""How threads of one process take turns: one makes what another uses, and who waits for the interpreter gets it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, cast

T = TypeVar("T")
_TURN = 2e-4  # seconds


@contextmanager
def short_turns() -> Iterator[None]:
    """A thread that waits for the interpreter gets it soon, and not only when another has had it for 5 ms.

    For threads that call compiled code thousands of times, each time for less than that.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """Make each item in a thread of its own while the one before is used.

    >>> with ahead(iter("abc")) as letters:
    ...     "".join(letters)
    'abc'
    """
    end = object()
    with ThreadPoolExecutor(1) as thread:

        def made() -> Iterator[T]:
            following = thread.submit(next, items, end)
            while (item := following.result()) is not end:
                following = thread.submit(next, items, end)
                yield cast("T", item)

        yield made()
