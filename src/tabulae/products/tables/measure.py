"""The privacy boundary: confidential counts in, public measurements out.

Nothing else in tabulae reads :class:`~tabulae.products.tables.count.Counts` and returns something public.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...domain import describe_row_space
from ...errors import InvalidArgument, Unsupported
from ...measurement import MeasuredLeftOut, Measurement
from ...privacy import Disclosure, Ledger, LeftOut, NoiseLaw, PrivacyLoss, RandomBits
from ...strategy import Strategy, strategy_digest
from ..measured import source_for
from .count import Counts

_TOGETHER = 2**24  # answers that noise is drawn for at once
_HEADROOM = 2**62  # values and noise each stay below this, so that their sum fits int64
_FAR = 40  # standard deviations that no noise reaches
_TOO_MUCH = "the noise that this budget asks for needs more than 62 bits"


def measure(
    counts: Counts | np.ndarray,
    strategy: Strategy,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    ledger: Ledger | None = None,
    source: RandomBits | None = None,
    unit: str | None = None,
    title: str = "measurement",
    digest: bytes | None = None,
    stability: int = 1,
    fewest: int = 1,
    reasons: Sequence[str] = (),
    left_out: LeftOut | None = None,
) -> Measurement:
    """Answer a strategy's queries with exact integer noise.

    ``y_i = A_i x + e_i`` for each block i, on the grid of step ``2^-k_i``, with the entries of ``e_i`` drawn
    independently from the block's law (:meth:`Strategy.laws`); with measured values x counts parts of records. The
    ledger is charged before any noise is drawn; a refused charge draws nothing. Counts of the strategy's invariants are
    read as they are: the same entry of the ledger says so before.

    Arguments:
        counts: confidential counts over the strategy's domain, or an integer array of them.
        strategy: what to ask; from :func:`tabulae.select`.
        budget: the whole loss that these answers may cost.
        neighbours: as of :func:`tabulae.privacy.check_neighbours`.
        ledger: where the budget is charged; None is a rehearsal, which a release refuses.
        source: randomness; None is the operating system's. An insecure source makes a rehearsal.
        unit: what one neighbour differs by, which must be the ledger's; None takes the ledger's word.
        reasons: why each invariant is published exactly, for the ledger; one for each, in the strategy's order.
        title, digest: what the ledger's entry says, and what identifies this release for a resumed run.
        stability: the most rows that one unit has among those counted; whoever made the counts bounded them.
        fewest: 0 where a unit may have no row among those counted, because only some records are.
        left_out: takes a share of the budget for how many rows that left out, which the counts then know.

    Raises:
        BudgetRefused: the ledger refuses the charge.
        InvalidArgument: domains differ, or an insecure source is combined with a ledger.
        Unsupported: the answers need more than 62 bits, or more cells than the method can list.

    Reference: HDMM, Definition 5 and 6; `architecture.md`, "The privacy boundary".

    Privacy:
        Satisfies ``budget`` under ``neighbours`` for units of at most ``stability`` counted rows (and at least
        ``fewest``): the answers are integers, the noise is exact (no floating point), its parameter is
        derived in Fractions from the exact sensitivity of the integer matrices, for several rows, or none, by
        :func:`tabulae.strategy.strategy.of_units`
        (zCDP: Canonne, Kamath, Steinke 2020, Theorem 14; pure DP: the discrete Laplace mechanism; approximate
        DP: the analytic Gaussian mechanism of Balle and Wang 2018, rounded, by post-processing).
        With ``left_out`` the answers satisfy the rest of the budget, the noisy counts of what is left out its share,
        and all of it together ``budget`` (:class:`tabulae.privacy.LeftOut`).
        With measured values a record is D whole parts, a function of it alone, and A x moves by no more than D times
        what the cell does that moves it most (:meth:`Strategy.sensitivity`).
        ``exact`` stands outside that guarantee: C x is read and published as it is, after the ledger has recorded its
        row space. Noisy answers and exact counts together are induced subspace differentially private (Gao, Gong, Yu,
        Definition 2.6, Theorem 3.1): the promise covers what is orthogonal to the invariants.

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Identity(4))
    >>> strategy = tb.select(workload, method="identity")
    >>> m = tb.measure(np.array([5, 0, 2, 9]), strategy, tb.ZCDP("1/2"))
    >>> m.values.dtype, m.rehearsal
    (dtype('int64'), True)
    """
    counts = counts if isinstance(counts, Counts) else Counts.from_array(strategy.domain, counts)
    if counts.domain != strategy.domain:
        raise InvalidArgument(
            "the counts and the strategy are over different domains; select again for this domain"
        )
    source = source_for(ledger, source)
    of_tables = budget if left_out is None else left_out.of_tables(budget)
    laws = strategy.laws(of_tables, neighbours, stability, fewest)
    beyond = None if left_out is None else _Beyond.of(counts, left_out, left_out.laws(budget, strategy.noise))
    disclosures = _disclosures(strategy, reasons)
    _check_exact(strategy, counts)
    _check_noise(strategy, laws)
    truth = [_own(_checked(counts.answer(block.query), block.name)) for block in strategy.blocks]
    charge = None
    if ledger is not None:
        paid = digest or _digest(strategy, counts, stability)
        charge = ledger.charge(budget, neighbours, unit or ledger.unit, title, paid, disclosures)
    exact = tuple(counts.records(t.operator(strategy.domain)) for t in strategy.invariants)
    values = [_noisy(answer, law, source) for answer, law in zip(truth, laws, strict=True)]
    return Measurement(
        strategy,
        values[0] if len(values) == 1 else np.concatenate(values),
        laws,
        budget,
        neighbours,
        rehearsal=charge is None,
        release_id=None if charge is None else charge.release_id,
        exact=exact,
        left_out=None if beyond is None else beyond.measured(source),
    )


@dataclass(frozen=True, repr=False)
class _Beyond:
    """The exact counts of what is left out, and the laws of their noise. Confidential."""

    rule: LeftOut
    truth: np.ndarray
    laws: tuple[NoiseLaw, ...]

    @classmethod
    def of(cls, counts: Counts, rule: LeftOut, laws: tuple[NoiseLaw, ...]) -> _Beyond:
        """Refused where nobody counted what is left out."""
        if counts.left_out is None:
            raise InvalidArgument(
                "these counts do not know how many rows were left out: count records of units, with a bound on "
                "their rows"
            )
        return cls(rule, _checked(counts.left_out, "left out"), laws)

    def measured(self, source: RandomBits) -> MeasuredLeftOut:
        """One draw for each count."""
        pairs = zip(self.truth, self.laws, strict=True)
        noisy = tuple(int(_noisy(np.array([count]), law, source)[0]) for count, law in pairs)
        return MeasuredLeftOut(self.rule, noisy, self.laws)


def _check_noise(strategy: Strategy, laws: Sequence[NoiseLaw]) -> None:
    """Refuse, before anything is charged, noise that might not fit into 62 bits."""
    if any(_FAR * law.variance_of_law**0.5 >= _HEADROOM for law in laws):
        steps = " or choose larger steps of its values" if strategy.domain.measured else ""
        raise Unsupported(f"{_TOO_MUCH}; raise the budget, coarsen the grid{steps}")


def _check_exact(strategy: Strategy, counts: Counts) -> None:
    """Refuse, before anything is charged, exact counts that might not fit into 62 bits."""
    if not strategy.invariants:
        return
    people = counts.total  # parts of records, of which an answer is computed before it is divided
    for table in strategy.invariants:
        if people * int(table.operator(strategy.domain).abs_entry_max()) >= _HEADROOM:
            raise Unsupported(
                f"exact table {table.name!r} has entries so large that its counts need more than 62 bits"
            )


def _disclosures(strategy: Strategy, reasons: Sequence[str]) -> list[Disclosure]:
    """What the ledger is told of the counts that are about to be read as they are."""
    tables = strategy.invariants
    given = reasons or ["no reason given"] * len(tables)
    if len(given) != len(tables):
        raise InvalidArgument(f"{len(given)} reasons for {len(tables)} invariants: give one for each")
    return [
        Disclosure(table.name, reason, describe_row_space(table, strategy.domain))
        for table, reason in zip(tables, given, strict=True)
    ]


def _own(answer: np.ndarray) -> np.ndarray:
    """An array that noise may be added to where it lies: what belongs to the counts cannot be written to."""
    return answer if answer.flags.writeable and answer.flags.c_contiguous else answer.copy()


def _large(numbers: np.ndarray) -> bool:
    return bool(numbers.size) and max(int(numbers.max()), -int(numbers.min())) >= _HEADROOM


def _checked(answer: np.ndarray, name: str) -> np.ndarray:
    if _large(answer):
        raise Unsupported(
            f"block {name!r}: answers on its grid need more than 62 bits; select with fewer real-valued factors"
        )
    return answer


def _noisy(answer: np.ndarray, law: NoiseLaw, source: RandomBits) -> np.ndarray:
    """Add the law's noise to the answers where they lie, some at a time: each entry is drawn for once."""
    for start in range(0, answer.size, _TOGETHER):
        part = answer[start : start + _TOGETHER]
        noise = law.sample(part.size, source)
        if _large(noise):
            raise Unsupported(f"{_TOO_MUCH}; raise the budget or coarsen the grid")
        part += noise
    return answer


def _digest(strategy: Strategy, counts: Counts, stability: int) -> bytes:
    parts = strategy_digest(strategy) + counts.fingerprint() + str(stability).encode()
    return hashlib.sha256(parts).digest()
