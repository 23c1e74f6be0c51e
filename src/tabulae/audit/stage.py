"""The path that a release takes, from a file of records to measurements, run on invented people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..measurement import Measurement
from ..privacy import RandomBits as Randomness
from ..products.tables.plan import Plan
from ..products.tables.product import Prepared, prepare
from ..spec import Source
from .columns import answers, counted
from .layout import Layout
from .people import People, write
from .recorded import Recorded

_KEY = bytes(
    range(32)
)  # which rows of a unit are counted; the same for all inputs, as it is within a release


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of the path gave, and what it asked of its source of randomness."""

    done: tuple[Measurement, ...]
    requests: tuple[tuple[str, int], ...]

    @property
    def values(self) -> list[np.ndarray]:
        """The noisy answers of every block of every round, on the blocks' grids."""
        return [values for m in self.done for values in m.block_values()]

    @property
    def exact(self) -> list[np.ndarray]:
        """The counts that every round stated exactly."""
        return [values for m in self.done for values in m.exact]

    @property
    def published(self) -> list[np.ndarray]:
        """All that a run gives out."""
        return [*self.values, *self.exact]


@dataclass(eq=False)
class Stage:
    """A spec's path with a folder to write invented records in.

    Arguments:
        plan: what is audited.
        layout: the columns of its records.
        folder: an empty folder.
        seed: of the words that every replay draws.
    """

    plan: Plan
    layout: Layout
    folder: Path
    seed: int
    _written: int = field(default=0, init=False)

    def prepare(self, people: People) -> Prepared:
        """Write the people as the spec's kind of source, and have the pipeline count them.

        What other processes count, a server or Spark, is counted here from Parquet: the records are invented.
        """
        spec = self.plan.spec
        kind = "parquet" if spec.source.kind == "postgresql" else spec.source.kind
        path = self.folder / f"people-{self._written}.{kind}"
        self._written += 1
        write(people, self.layout, spec.unit_id, path, spec.source.table)
        table = (spec.source.table or "people") if kind == "duckdb" else None
        moved = Plan(replace(spec, source=Source(kind, path, table)), self.plan.strategy, self.plan.level)
        return prepare(moved, _KEY)

    def run(self, people: People) -> Run:
        """Count and measure with the recorded words."""
        return self.measure(self.prepare(people))

    def measure(self, prepared: Prepared) -> Run:
        """Measure what is counted with the recorded words."""
        source = Recorded(self.seed)
        done = (prepared.measure(None, source),)
        return Run(done, tuple(source.requests))

    def draw(self, prepared: Prepared, source: Randomness) -> tuple[Measurement, ...]:
        """Measure what is counted with other randomness; a rehearsal all the same."""
        return (prepared.measure(None, source),)

    def answers(self, people: People, done: Sequence[Measurement]) -> list[np.ndarray]:
        """The exact answers that these measurements should have had, for units within the bound."""
        cells, shape = self.layout.codes(people.picks), self.plan.spec.domain.shape
        return [answers(block, cells, shape) for m in done for block in m.strategy.blocks]

    def exact(self, people: People, done: Sequence[Measurement]) -> list[np.ndarray]:
        """The counts that these measurements should have stated exactly, counted from the columns."""
        cells, domain = self.layout.codes(people.picks), self.plan.spec.domain
        return [counted(t.operator(domain), cells, domain.shape) for m in done for t in m.strategy.invariants]
