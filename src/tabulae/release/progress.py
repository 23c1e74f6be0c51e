"""How far a piece of work has come, as whoever watches it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Progress:
    """What is being done, how much of the work is done, and how long the rest takes.

    Attributes:
        step: what is being done, in words.
        share: of the work that is done, 0 to 1; None where it is not yet known how much there is.
        left: about how many seconds the rest takes; None where nothing says so yet.

    Privacy:
        Words and shares follow from the plan and what is public. Times do not: how long counting takes depends on the
        records. They are for whoever holds the records, and no release has them.
    """

    step: str
    share: float | None = None
    left: float | None = None

    def __str__(self) -> str:
        return self.step


Say = Callable[[Progress], None]
"""Called with the progress of a piece of work at each of its steps."""


def quiet(progress: Progress) -> None:
    """Progress that nobody watches."""


def within(say: Say, first: float, last: float) -> Say:
    """What a part of a work is told, as progress of the whole: the part goes from the share ``first`` to ``last``.

    >>> told = []
    >>> within(told.append, 0.5, 1.0)(Progress("the second half", 0.5))
    >>> told[0].share
    0.75
    """

    def told(progress: Progress) -> None:
        say(replace(progress, share=first + (last - first) * (progress.share or 0.0)))

    return told


def timed(say: Say, clock: Callable[[], float] = time.monotonic) -> Say:
    """Says of all progress how long the rest takes, at the pace since a share was told first.

    >>> told, seconds = [], iter([0.0, 5.0])
    >>> watched = timed(told.append, seconds.__next__)
    >>> watched(Progress("counting", 0.5))
    >>> watched(Progress("measuring", 0.75))
    >>> [progress.left for progress in told]
    [None, 5.0]
    """
    began: list[tuple[float, float]] = []

    def said(progress: Progress) -> None:
        left, share = None, progress.share
        if share is not None:
            now = clock()
            began.append((now, share)) if not began else None
            then, before = began[0]
            left = (now - then) * (1 - share) / (share - before) if share > before else None
        say(replace(progress, left=left))

    return said
