"""Checks by replay: inputs that differ as stated are measured with the same random words.

The way is that of a release, from a file of invented people to measurements. Random words can be drawn twice, with a
list of what was asked of them. Counts that answer a query once make measuring again cost no more than its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..demo.invented import People, RecordLayout, invent, stored
from ..linalg import LinearOperator
from ..measurement import Measurement
from ..privacy import RECORDS, WITHIN, Insecure
from ..products.tables.count import Counts
from ..products.tables.plan import Plan
from ..products.tables.product import Prepared, prepare, reconstruct
from ..products.tables.publish import publish
from ..strategy import strategy_digest
from .checks import Check, guarded
from .largest import Largest, counted, told_apart, weighted_power
from .one_record import one_record_pairs

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


_UNITS = 300
_RANDOM_PAIRS = 2
_CANDIDATES = 64  # records among which one is looked for that the exact counts do not tell from another
_MOST_LEFT_OUT = 1000  # records beyond the bound that an invented unit has
_MOST_PUBLISHED = 200_000  # rows up to which tables are made, to look at their keys


@dataclass(eq=False)
class Replay:
    """The inputs of the replays, and what they have shown so far."""

    stage: Stage
    worst: Largest
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.requests: list[tuple[tuple[str, int], ...]] = []

    @property
    def plan(self) -> Plan:
        return self.stage.plan

    @property
    def rows(self) -> int:
        """The most records that one unit may have counted."""
        return self.plan.spec.rows_per_unit

    @cached_property
    def worst_groups(self) -> list[np.ndarray]:
        """The records of units that move the answers most; empty where no record can lie in such a cell.

        What is made of a unit's records follows from them, and may put it in another cell.

        Where the records left out are counted, the first unit has one more than count besides, and the second has none.
        """
        if self.plan.spec.neighbours in RECORDS:
            return []
        picks = [self.stage.layout.pick(cell) for cell in self.worst.cells]
        rule = self.plan.spec.left_out
        beyond = [0 if rule is None else min(rule.at_most + 1, _MOST_LEFT_OUT), 0]
        pairs = zip(picks, beyond, strict=False)
        return [np.tile(pick, (self.rows + more, 1)) for pick, more in pairs if pick is not None]

    @cached_property
    def base(self) -> People:
        """Uneven people, among them one of the units that move the answers most."""
        people = invent(self.stage.layout, self.rng, _UNITS, self.rows)
        if self.stage.layout.seats is not None:  # one with more records than are counted, all alike
            people = people.and_one(np.tile(self.stage.layout.random(self.rng, 1), (self.rows + 2, 1)))
        return people.and_one(self.worst_groups[0]) if self.worst_groups else people

    @cached_property
    def base_run(self) -> ReplayedRun:
        """The measurements of the base."""
        return self.run(self.base)

    def run(self, people: People) -> ReplayedRun:
        """Measure with the recorded words, and remember what was asked of them."""
        run = self.stage.run(people)
        self.requests.append(run.requests)
        return run

    # the checks --------------------------------------------------------------------------------

    def checks(self) -> dict[str, Callable[[], Check]]:
        """The checks by name, each made when it is called; "draws" is about the replays that were made before it."""
        counts: dict[str, tuple[str, Callable[[], tuple[int, str]]]] = {
            "replay": ("same records, same random words: answers that differ", self._replayed),
            "row-order": ("same records in another order: answers that differ", self._reordered),
            "noise": ("answers that are not exact answer + the law's noise, in order", self._noise),
            "exact": ("exact counts that are not those of the records, counted again", self._exact),
            "seats": ("units of too many records whose answers no choice among these gives", self._seated),
            "shape": ("inputs whose queries, laws or keys differ from the others'", self._shape),
            "draws": ("replays that drew in another number or order", self._drawn),
            "rehearsal": ("measurements that could be published", self._rehearsed),
        }
        found = {name: partial(_count_check, name, *rule) for name, rule in counts.items()}
        if not self.plan.spec.invariants:
            del found["exact"]
        if self.stage.layout.seats is None:
            del found["seats"]
        last = {name: found.pop(name) for name in ("draws", "rehearsal")}
        changes = {f"{kind} one": partial(self._change, kind, of) for kind, of in self._kinds().items()}
        return {**found, **changes, **last}

    def _replayed(self) -> tuple[int, str]:
        again = self.run(self.base)
        return _different(self.base_run.published, again.published), f"{self.plan.strategy.rows:,} answers"

    def _reordered(self) -> tuple[int, str]:
        run = self.run(self.base.shuffled(self.rng))
        return _different(self.base_run.published, run.published), f"{len(self.base.units)} records shuffled"

    def _noise(self) -> tuple[int, str]:
        """The noise is drawn again from the laws as stated, block by block, and must be what is left."""
        truth = self.stage.answers(self.base, self.base_run.done)
        source = Recorded(self.stage.seed)
        laws = self.base_run.done.laws
        drawn = [law.sample(len(exact), source) for law, exact in zip(laws, truth, strict=True)]
        expected = [exact + noise for exact, noise in zip(truth, drawn, strict=True)]
        left_out = self.base_run.done.left_out
        if left_out is not None:
            beyond = [law.sample(1, source) for law in left_out.laws]
            expected.append(self.stage.left_out(self.base) + np.concatenate(beyond))
        found = [*self.base_run.values, *self.base_run.left_out]
        return _different(expected, found), f"{sum(map(len, expected)):,} answers, one by one"

    def _exact(self) -> tuple[int, str]:
        """Counts stated exactly, for the base and for inputs that differ from it, against columns written out."""
        found = [(self.base, self.base_run), *self._odd_runs]
        wrong = sum(_different(self.stage.exact(one, run.done), run.exact) for one, run in found)
        return wrong, f"{len(found)} inputs, {sum(map(len, self.base_run.exact)):,} counts each"

    def _seated(self) -> tuple[int, str]:
        """Of units of one record more than are counted all but one are, and what is made of them is made of them all.

        The noise is that of the base, so that what differs from it are the exact answers of the unit.
        """
        wrong, layout, shape = 0, self.stage.layout, self.plan.spec.domain.shape
        for _ in range(_RANDOM_PAIRS):
            group = layout.random_unit(self.rng, self.rows + 1)
            run, cells = self.run(self.base.and_one(group)), layout.of_unit(group)
            moved = [after - before for before, after in zip(self.base_run.values, run.values, strict=True)]
            queries = [block.query for block in run.done.strategy.blocks]
            parts = [layout.in_parts(one[None]) for one in cells]
            each = [np.concatenate([counted(query, at, shape, n) for query in queries]) for at, n in parts]
            over = sum(each) - np.concatenate(moved)
            wrong += not any((one == over).all() for one in each)
        return wrong, f"{_RANDOM_PAIRS} units of {self.rows + 1} records"

    def _shape(self) -> tuple[int, str]:
        runs = [self.base_run, *(run for _, run in self._odd_runs)]
        shown = [_described(run.done) for run in runs]
        if (
            sum(table.rows(self.plan.spec.domain) for table in self.plan.spec.workload.tables)
            <= _MOST_PUBLISHED
        ):
            keys = [_published_keys(self.plan, run.done) for run in (runs[0], runs[-1])]
            shown += [shown[0] if keys[0] == keys[1] else ()]
        return sum(
            one != shown[0] for one in shown
        ), f"{len(runs)} inputs: one unit, one cell, empty categories"

    @cached_property
    def _odd_runs(self) -> list[tuple[People, ReplayedRun]]:
        return [(odd, self.run(odd)) for odd in self._odd_inputs()]

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
        kinds = {"remove": self._removals, "add": self._additions}
        if self.plan.spec.neighbours == "replace":
            _, _, fewest = self.plan.spec.change
            # With 0, a record that is replaced may be counted no longer, or only now.
            return {"replace": self._replacements, **({} if fewest else kinds)}
        if self.plan.spec.neighbours == WITHIN:
            return {"replace": self.within}
        return {"remove": self.records} if self.plan.spec.neighbours in RECORDS else kinds

    def _removals(self) -> Iterator[tuple[People, People]]:
        base = self.base
        for unit in [base.count - 1, *self.rng.choice(_UNITS, _RANDOM_PAIRS, replace=False)]:
            yield base, base.without(int(unit))

    def _additions(self) -> Iterator[tuple[People, People]]:
        for group in [*self.worst_groups, *self._random_groups()]:
            yield self.base, self.base.and_one(group)

    def records(self) -> Iterator[tuple[People, People]]:
        """One record of a unit goes, and what is said of the unit changes as the promise allows for."""
        layout, of = self.stage.layout, self.plan.spec.neighbours
        for before, after in one_record_pairs(layout, self.worst, of, self.rows, self.rng, _RANDOM_PAIRS):
            yield self.base.and_one(before), self.base.and_one(after) if len(after) else self.base

    def _replacements(self) -> Iterator[tuple[People, People]]:
        base = self.base
        if len(self.worst_groups) == 2:
            yield base, base.without(base.count - 1).and_one(self.worst_groups[1])
        units = self.rng.choice(_UNITS, _RANDOM_PAIRS, replace=False)
        for unit, group in zip(units, self._random_groups(), strict=False):
            yield base, base.without(int(unit)).and_one(group)

    def within(self) -> Iterator[tuple[People, People]]:
        """One record in place of another that leaves every exact count as it is: the worst, and random ones."""
        base, layout = self.base, self.stage.layout
        if len(self.worst_groups) == 2:
            yield base, base.without(base.count - 1).and_one(self.worst_groups[1])
        found = 0
        for unit in self.rng.permutation(_UNITS):
            group = base.group(int(unit))
            others = np.repeat(group, _CANDIDATES, axis=0)
            drawn = layout.random(self.rng, _CANDIDATES)
            changed = self.rng.random(others.shape) < 0.5
            others[changed] = drawn[changed]
            cells = layout.codes(np.concatenate([group, others]))
            classes = told_apart(self.plan.strategy, cells)
            alike = (classes[1:] == classes[0]) & (cells[1:] != cells[0]).any(axis=1)
            if alike.any():
                yield base, base.without(int(unit)).and_one(others[np.flatnonzero(alike)[:1]])
                found += 1
            if found == _RANDOM_PAIRS:
                return

    def _random_groups(self) -> Iterator[np.ndarray]:
        """Records of units; where units are bounded, also more records than are counted."""
        layout, most = self.stage.layout, self.rows
        extra = 0 if self.plan.spec.unit_id is None else 3
        for _ in range(_RANDOM_PAIRS):
            yield layout.random_unit(self.rng, int(self.rng.integers(1, most + extra + 1)))
        if extra:
            yield layout.random_unit(self.rng, most + extra)

    def _change(self, kind: str, pairs: Callable[[], Iterator[tuple[People, People]]]) -> Check:
        name = f"{kind} one"
        of = "record of a " if self.plan.spec.neighbours in RECORDS else ""
        what = f"largest change of the answers, {name} {of}{self.plan.spec.unit}: over the sensitivity"
        return guarded(name, what, lambda: self._largest_change(name, what, pairs()))

    def _largest_change(self, name: str, what: str, pairs: Iterator[tuple[People, People]]) -> Check:
        largest, count, shown = Fraction(0), 0, 0
        for one, other in pairs:
            first = self.base_run if one is self.base else self.run(one)
            second = self.run(other)
            largest = max(largest, self._moved(first, second))
            shown += _different(first.exact, second.exact) if self._bound_by_exact else 0
            count += 1
        detail = f"{count} pairs of inputs" + (f"; {shown} exact counts told them apart" if shown else "")
        return Check(name, what, float(largest), 1.0, largest <= 1 and count > 0 and not shown, detail)

    @property
    def _bound_by_exact(self) -> bool:
        """Whether neighbours agree on every exact count."""
        return self.plan.spec.neighbours == WITHIN

    def _moved(self, one: ReplayedRun, other: ReplayedRun) -> Fraction:
        """The change, as a share of the declared sensitivity (both to the power p); the largest, of several."""
        rule = self.plan.spec.left_out
        pairs = zip(*(np.concatenate([*run.left_out, []]) for run in (one, other)), strict=True)
        beyond = [
            Fraction(abs(int(after) - int(before)), most)
            for (before, after), most in zip(pairs, (1, rule.at_most) if rule else (), strict=True)
        ]
        changes = [after - before for before, after in zip(one.values, other.values, strict=True)]
        strategy = one.done.strategy
        # The answers that take noise are in parts of a record.
        declared = strategy.sensitivity(*self.plan.spec.change).power * strategy.domain.parts**strategy.norm
        return max([weighted_power(one.done.strategy, changes) / declared, *beyond])

    def _drawn(self) -> tuple[int, str]:
        reference = self.base_run.requests
        least = 1 if any(kind == "u64" for kind, _ in reference) else 0
        off = sum(requests != reference for requests in self.requests) + (1 - least)
        return off, f"{len(self.requests)} replays, {len(reference)} requests for random words each"

    def _rehearsed(self) -> tuple[int, str]:
        wrong = int(not self.base_run.done.rehearsal)
        return wrong, "nothing of an audit is charged or may be released"


def _count_check(name: str, what: str, count: Callable[[], tuple[int, str]]) -> Check:
    """A check that counts what is wrong: none may be."""

    def check() -> Check:
        wrong, detail = count()
        return Check(name, what, float(wrong), 0.0, wrong == 0, detail)

    return guarded(name, what, check)


def _different(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> int:
    if not len(one) and not len(other):
        return 0
    a, b = np.concatenate(list(one)), np.concatenate(list(other))
    return int((a != b).sum()) if a.shape == b.shape else max(len(a), len(b))


def _described(m: Measurement) -> tuple[object, ...]:
    """All that is public of a measurement but its values."""
    beyond = m.left_out and (m.left_out.rule, m.left_out.laws)
    return strategy_digest(m.strategy), m.values.shape, m.laws, beyond, repr(m.budget), m.neighbours


def _published_keys(plan: Plan, done: Measurement) -> tuple[object, ...]:
    """Headings, labels and marks of every published table, in order."""
    tables = publish(reconstruct(plan, done), plan.spec.published, plan.level, plan.spec.sampling)
    return tuple((t.name, tuple(t.columns.items()), len(t.estimate), tuple(t.status)) for t in tables)
