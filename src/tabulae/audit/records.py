"""The path that a release takes with invented people, from a file of records to measurements.

The random words of a replay can be drawn twice, with a list of what was asked of them; counts that answer a query once
make measuring over and over cost no more than its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..demo.invented import People, RecordLayout, stored
from ..linalg import LinearOperator
from ..measurement import Measurement
from ..privacy import Insecure
from ..products.tables.count import Counts
from ..products.tables.plan import Plan
from ..products.tables.product import Prepared, prepare
from .largest import counted

_KEY = bytes(range(32))  # decides which rows of a unit are counted; the same for all inputs


class Recorded(Insecure):
    """The same words for the same seed, and what was asked for, in order.

    It is an insecure source: nothing drawn from it can be charged to a ledger or published.

    Privacy:
        None; see :class:`tabulae.privacy.Insecure`.

    >>> source = Recorded(1)
    >>> _ = source.u64(3), source.bits(5)
    >>> source.requests
    [('u64', 3), ('bits', 5)]
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.requests: list[tuple[str, int]] = []

    def u64(self, n: int) -> NDArray[np.uint64]:
        self.requests.append(("u64", n))
        return super().u64(n)

    def bits(self, k: int) -> int:
        self.requests.append(("bits", k))
        return super().bits(k)


class Remembered(Counts):
    """The same counts; the exact answer to a matrix is computed at its first use and kept."""

    __slots__ = ("_known",)

    def __init__(self, counts: Counts) -> None:
        super().__init__(counts.domain, counts._storage, counts.left_out)
        self._known: dict[int, tuple[LinearOperator, np.ndarray]] = {}

    def answer(self, op: LinearOperator) -> np.ndarray:
        """The exact answers, kept by the identity of the matrix, which is kept with them."""
        if id(op) not in self._known:
            exact = super().answer(op)
            exact.setflags(write=False)
            self._known[id(op)] = op, exact
        return self._known[id(op)][1]


def counted_once(prepared: Prepared) -> Prepared:
    """What is prepared, measured by the same code with exact answers that are computed once."""
    return replace(prepared, _counts=Remembered(prepared._counts))


@dataclass(frozen=True, eq=False)
class ReplayedRun:
    """What one run of the path gave, and what it asked of its source of randomness."""

    done: Measurement
    requests: tuple[tuple[str, int], ...]
    prepared: Prepared

    @property
    def values(self) -> list[np.ndarray]:
        """The noisy answers of every block, on the blocks' grids."""
        return list(self.done.block_values())

    @property
    def exact(self) -> list[np.ndarray]:
        return list(self.done.exact)

    @property
    def left_out(self) -> list[np.ndarray]:
        """The noisy counts of what is left out, where there are some."""
        return [] if self.done.left_out is None else [np.array(self.done.left_out.values)]

    @property
    def published(self) -> list[np.ndarray]:
        return [*self.values, *self.exact, *self.left_out]


@dataclass(eq=False)
class Stage:
    """A spec's path with a folder to write invented records in."""

    plan: Plan
    layout: RecordLayout
    folder: Path
    seed: int
    _written: int = field(default=0, init=False)

    def prepare(self, people: People) -> Prepared:
        """Write the people as the spec's kind of source, and count them as a run does.

        Where the spec counts some records only, these are the ones that it counts.
        """
        spec = self.plan.spec
        source = stored(people, self.layout, spec, self.folder / f"people-{self._written}")
        self._written += 1
        moved = Plan(replace(spec, source=source), self.plan.strategy, self.plan.level)
        return replace(prepare(moved, _KEY), plan=self.plan)

    def run(self, people: People) -> ReplayedRun:
        """Count and measure with the recorded words."""
        return self.measure(self.prepare(people))

    def measure(self, prepared: Prepared) -> ReplayedRun:
        """Measure what is counted with the recorded words."""
        source = Recorded(self.seed)
        return ReplayedRun(prepared.measure(None, source), tuple(source.requests), prepared)

    def answers(self, people: People, done: Measurement) -> list[np.ndarray]:
        """The exact answers that a measurement should have had: records of a unit beyond the bound are all alike."""
        spec = self.plan.spec
        cells, parts = self.layout.cells(people, spec.rows_per_unit)
        return [counted(block.query, cells, spec.domain.shape, parts) for block in done.strategy.blocks]

    def left_out(self, people: People) -> np.ndarray:
        """How many units have more records than are counted, and how many of their records count as left out."""
        rule = self.plan.spec.left_out
        over = [
            np.sum(people.units == unit) - self.plan.spec.rows_per_unit for unit in np.unique(people.units)
        ]
        return np.array(
            [sum(n > 0 for n in over), sum(min(max(n, 0), rule.at_most) for n in over)] if rule else []
        )

    def exact(self, people: People, done: Measurement) -> list[np.ndarray]:
        """The counts that a measurement should have stated exactly, counted from the columns."""
        (cells, parts), domain = self.layout.in_parts(self.layout.codes(people.picks)), self.plan.spec.domain
        found = (counted(t.operator(domain), cells, domain.shape, parts) for t in done.strategy.invariants)
        return [answers // domain.parts for answers in found]
