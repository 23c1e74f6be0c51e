"""Measurements: noisy answers and all that is needed to use them. Public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .errors import InvalidArgument
from .notebook import CardRows, card
from .privacy import LeftOut, NoiseLaw, PrivacyLoss
from .strategy import Strategy, law_variances


@dataclass(frozen=True)
class MeasuredLeftOut:
    """Noisy counts of the units with more rows than are counted, and of the rows left out: integers, in that order."""

    rule: LeftOut
    values: tuple[int, ...]
    laws: tuple[NoiseLaw, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """Exact integer noise on a strategy's answers.

    ``values`` (int64, one entry a row of the strategy, blocks in order) lie on each block's grid: row r answers
    ``values[r] * 2^-k / D`` counts, with D the parts of a record, 1 without measured values, and k the
    ``scale_exponent`` (an int, or one int a row where blocks differ). ``variance`` is that of the law drawn, in squared
    counts, one a row. ``rehearsal`` marks values
    that no ledger paid for or that an insecure source drew: a release refuses them. ``exact`` (int64, one array an
    invariant of the strategy, one entry a row) are counts stated exactly, outside the guarantee. They are true
    counts in a rehearsal, too: a rehearsal with confidential counts is confidential. ``left_out`` says how many rows
    were left out, None where nothing does; ``budget`` is what all of it costs.

    >>> import numpy as np, tabulae as tb
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(tb.Workload.of(tb.Identity(4))), tb.ZCDP("1/2"))
    >>> m.values.shape, m.variance.round(3).tolist(), m.budget.amount
    ((4,), [1.0, 1.0, 1.0, 1.0], Fraction(1, 2))
    """

    strategy: Strategy
    values: np.ndarray
    laws: tuple[NoiseLaw, ...]
    budget: PrivacyLoss
    neighbours: str
    rehearsal: bool
    release_id: str | None = None
    exact: tuple[np.ndarray, ...] = ()
    left_out: MeasuredLeftOut | None = None

    def __post_init__(self) -> None:
        if self.values.dtype != np.int64 or self.values.shape != (self.strategy.rows,):
            raise InvalidArgument(
                f"values must be int64 of shape ({self.strategy.rows},), not {self.values.dtype} {self.values.shape}"
            )

        invariants = self.strategy.invariants
        shapes = [(table.rows(self.strategy.domain),) for table in invariants]
        if [values.shape for values in self.exact] != shapes:
            raise InvalidArgument(
                f"a measurement under {len(invariants)} invariants needs their exact values, one array for each"
            )

    def __repr__(self) -> str:
        strategy, spent = self.strategy, ", a rehearsal" if self.rehearsal else ""
        return f"Measurement({strategy.method!r}, {strategy.rows} answers, {self.budget!r}, {self.neighbours}{spent})"

    def _repr_html_(self) -> str:
        blocks = self.strategy.blocks
        ends = np.cumsum([block.rows for block in blocks])
        rows = (
            (block.name, block.rows, float(np.sqrt(self.variance[end - 1])))
            for block, end in zip(blocks, ends, strict=True)
        )
        return card(
            "Measurement",
            self.facts(),
            CardRows(("block", "answers", "std. deviation of the noise, counts"), rows, len(blocks)),
        )

    def facts(self) -> list[tuple[str, object]]:
        """What a notebook tells of it, and of an estimate from it: no value, since no ledger paid for a rehearsal's."""
        spent = ", ".join(f"{name} {value}" for name, value in self.budget.parameters.items())
        stated = self.strategy.invariants
        return [
            ("measured by", f"{self.strategy.method}, {self.strategy.noise} noise"),
            ("noisy answers", self.strategy.rows),
            ("cells", self.strategy.domain.size),
            ("promise", f"{self.budget.definition}: {spent}, {self.neighbours}"),
            ("charged", "to no ledger: a rehearsal, which no release takes" if self.rehearsal else None),
            ("release id", self.release_id),
            ("exact beside them", ", ".join(table.name for table in stated[:4]) or None),
        ]

    @property
    def scale_exponent(self) -> int | np.ndarray:
        """k of the grid 2^-k that the values lie on."""
        exponents = [block.exponent for block in self.strategy.blocks]
        if len(set(exponents)) == 1:
            return exponents[0]
        return np.repeat(exponents, [block.rows for block in self.strategy.blocks])

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of the law drawn, per row, in squared counts."""
        per_block = law_variances(self.strategy, self.laws)
        return np.repeat(per_block, [block.rows for block in self.strategy.blocks])

    def block_values(self) -> list[np.ndarray]:
        """The integer values of each block."""
        ends = np.cumsum([block.rows for block in self.strategy.blocks])
        return np.split(self.values, ends[:-1])

    def answers(self) -> list[np.ndarray]:
        """The noisy answers of each block, in counts."""
        found = [
            np.ldexp(v, -b.exponent) for v, b in zip(self.block_values(), self.strategy.blocks, strict=True)
        ]
        parts = self.strategy.domain.parts
        return found if parts == 1 else [answers / parts for answers in found]
