"""Checks by replay: inputs that differ as stated are measured with the same random words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from .. import pipeline
from ..measurement import Measurement
from ..planning import Plan
from ..release import publish
from ..strategy import strategy_digest
from .check import Check, guarded
from .columns import weighted_power
from .largest import Largest
from .people import People, invent
from .recorded import Recorded
from .stage import Run, Stage

_UNITS = 300
_RANDOM_PAIRS = 2
_MOST_PUBLISHED = 200_000  # rows up to which tables are made, to look at their keys


@dataclass(eq=False)
class Replay:
    """The inputs of the replays, and what they have shown so far.

    Arguments:
        stage: the path under audit.
        worst: the neighbours that move the answers most.
        rng: what people are invented with.
    """

    stage: Stage
    worst: Largest
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.requests: list[tuple[tuple[str, int], ...]] = []

    @property
    def plan(self) -> Plan:
        """What is audited."""
        return self.stage.plan

    @property
    def rows(self) -> int:
        """The most records that one unit may have counted."""
        return self.plan.spec.rows_per_unit

    @cached_property
    def worst_groups(self) -> list[np.ndarray]:
        """The records of units that move the answers most; empty where no record can lie in such a cell."""
        picks = [self.stage.layout.pick(cell) for cell in self.worst.cells]
        return [np.tile(pick, (self.rows, 1)) for pick in picks if pick is not None]

    @cached_property
    def base(self) -> People:
        """Uneven people, among them one of the units that move the answers most."""
        people = invent(self.stage.layout, self.rng, _UNITS, self.rows)
        return people.and_one(self.worst_groups[0]) if self.worst_groups else people

    @cached_property
    def base_run(self) -> Run:
        """The measurements of the base."""
        return self.run(self.base)

    def run(self, people: People) -> Run:
        """Measure with the recorded words, and remember what was asked of them."""
        run = self.stage.run(people)
        self.requests.append(run.requests)
        return run

    # the checks --------------------------------------------------------------------------------

    def checks(self) -> Iterator[Check]:
        """Every check by replay, in order."""
        yield _made("replay", "same records, same random words: answers that differ", self._replayed)
        yield _made("row-order", "same records in another order: answers that differ", self._reordered)
        yield _made("noise", "answers that are not exact answer + the law's noise, in order", self._noise)
        yield _made("shape", "inputs whose queries, laws or keys differ from the others'", self._shape)
        for kind, pairs in self._kinds().items():
            name = f"{kind} one"
            what = f"largest change of the answers, {kind} one {self.plan.spec.unit}: over the sensitivity"
            yield guarded(
                name, what, lambda pairs=pairs, name=name, what=what: self._change(name, what, pairs())
            )
        yield _made("draws", "replays that drew in another number or order", self._drawn)
        yield _made("rehearsal", "measurements that could be published", self._rehearsed)

    def _replayed(self) -> tuple[int, str]:
        again = self.run(self.base)
        return _different(self.base_run.values, again.values), f"{self.plan.strategy.rows:,} answers"

    def _reordered(self) -> tuple[int, str]:
        run = self.run(self.base.shuffled(self.rng))
        return _different(self.base_run.values, run.values), f"{len(self.base.units)} records shuffled"

    def _noise(self) -> tuple[int, str]:
        """The noise is drawn again from the laws as stated, block by block, and must be what is left."""
        truth = self.stage.answers(self.base, self.base_run.done)
        source = Recorded(self.stage.seed)
        laws = [law for m in self.base_run.done for law in m.laws]
        drawn = [law.sample(len(exact), source) for law, exact in zip(laws, truth, strict=True)]
        expected = [exact + noise for exact, noise in zip(truth, drawn, strict=True)]
        return _different(expected, self.base_run.values), f"{sum(map(len, truth)):,} answers, one by one"

    def _shape(self) -> tuple[int, str]:
        people = [self.base, *self._odd_inputs()]
        runs = [self.base_run, *(self.run(odd) for odd in people[1:])]
        shown = [_described(run.done) for run in runs]
        if (
            sum(table.rows(self.plan.spec.domain) for table in self.plan.spec.workload.tables)
            <= _MOST_PUBLISHED
        ):
            keys = [_published_keys(self.plan, run.done) for run in (runs[0], runs[-1])]
            shown += [shown[0] if keys[0] == keys[1] else ()]
        return sum(
            one != shown[0] for one in shown
        ), f"{len(people)} inputs: one unit, one cell, empty categories"

    def _odd_inputs(self) -> Iterator[People]:
        """One unit; many in one cell; no record with the base's commonest value of a column."""
        base = self.base
        yield People.of([base.group(0)])
        yield People(np.repeat(base.picks[-1:], 9, axis=0), np.arange(9))
        column = int(np.argmax([len(np.unique(values)) for values in base.picks.T]))
        common = np.bincount(base.picks[:, column]).argmax()
        kept = base.picks[:, column] != common
        if kept.any():
            yield People(base.picks[kept], base.units[kept])

    def _kinds(self) -> dict[str, Callable[[], Iterator[tuple[People, People]]]]:
        if self.plan.spec.neighbours == "replace":
            return {"replace": self._replacements}
        return {"remove": self._removals, "add": self._additions}

    def _removals(self) -> Iterator[tuple[People, People]]:
        base = self.base
        for unit in [base.count - 1, *self.rng.choice(_UNITS, _RANDOM_PAIRS, replace=False)]:
            yield base, base.without(int(unit))

    def _additions(self) -> Iterator[tuple[People, People]]:
        for group in [*self.worst_groups, *self._random_groups()]:
            yield self.base, self.base.and_one(group)

    def _replacements(self) -> Iterator[tuple[People, People]]:
        base = self.base
        if len(self.worst_groups) == 2:
            yield base, base.without(base.count - 1).and_one(self.worst_groups[1])
        units = self.rng.choice(_UNITS, _RANDOM_PAIRS, replace=False)
        for unit, group in zip(units, self._random_groups(), strict=False):
            yield base, base.without(int(unit)).and_one(group)

    def _random_groups(self) -> Iterator[np.ndarray]:
        """Records of units; where units are bounded, also more records than are counted."""
        layout, most = self.stage.layout, self.rows
        extra = 0 if self.plan.spec.unit_id is None else 3
        for _ in range(_RANDOM_PAIRS):
            yield layout.random(self.rng, int(self.rng.integers(1, most + extra + 1)))
        if extra:
            yield layout.random(self.rng, most + extra)

    def _change(self, name: str, what: str, pairs: Iterator[tuple[People, People]]) -> Check:
        largest, count = Fraction(0), 0
        for one, other in pairs:
            first = self.base_run if one is self.base else self.run(one)
            largest = max(largest, self._moved(first, self.run(other)))
            count += 1
        return Check(name, what, float(largest), 1.0, largest <= 1, f"{count} pairs of inputs")

    def _moved(self, one: Run, other: Run) -> Fraction:
        """The largest change of a round, as a share of its declared sensitivity (both to the power p)."""
        shares = [Fraction(0)]
        for a, b in zip(one.done, other.done, strict=True):
            changes = [
                after - before for before, after in zip(a.block_values(), b.block_values(), strict=True)
            ]
            declared = a.strategy.sensitivity(self.plan.spec.neighbours, self.rows).power
            shares.append(weighted_power(a.strategy, changes) / declared)
        return max(shares)

    def _drawn(self) -> tuple[int, str]:
        reference = self.base_run.requests
        least = 1 if any(kind == "u64" for kind, _ in reference) else 0
        off = sum(requests != reference for requests in self.requests) + (1 - least)
        return off, f"{len(self.requests)} replays, {len(reference)} requests for random words each"

    def _rehearsed(self) -> tuple[int, str]:
        done = self.base_run.done
        return sum(not m.rehearsal for m in done), "nothing of an audit is charged or may be released"


def _made(name: str, what: str, count: Callable[[], tuple[int, str]]) -> Check:
    """A check that counts what is wrong: none may be."""

    def check() -> Check:
        wrong, detail = count()
        return Check(name, what, float(wrong), 0.0, wrong == 0, detail)

    return guarded(name, what, check)


def _different(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> int:
    """How many answers differ; all of them where there is not the same number."""
    a, b = np.concatenate(list(one)), np.concatenate(list(other))
    return int((a != b).sum()) if a.shape == b.shape else max(len(a), len(b))


def _described(done: Sequence[Measurement]) -> tuple[object, ...]:
    """All that is public of measurements but their values."""
    return tuple(
        (strategy_digest(m.strategy), m.values.shape, m.laws, repr(m.budget), m.neighbours) for m in done
    )


def _published_keys(plan: Plan, done: tuple[Measurement, ...]) -> tuple[object, ...]:
    """Headings, labels and marks of every published table, in order."""
    tables = publish(pipeline.reconstruct(plan, done), plan.spec.workload, plan.level)
    return tuple((t.name, tuple(t.columns.items()), len(t.estimate), tuple(t.status)) for t in tables)
