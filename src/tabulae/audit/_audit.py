"""An audit from beginning to end.

A statistical lower bound on epsilon: how well two neighbours can be told apart from their measurements.

The statistic is the likelihood ratio of the laws as stated, along the difference of the two inputs. A threshold
and a side are chosen on one half of the runs; on the other half the two probabilities of the event are enclosed
at confidence 1 - 10^-6 together (Clopper and Pearson 1934), and

    epsilon >= log((p - delta) / q)

for every mechanism that is (epsilon, delta)-private. A bound above the promise refutes it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..demo.invented import People, RecordLayout
from ..errors import InvalidArgument, Unsupported
from ..measurement import Measurement
from ..privacy import RECORDS, WITHIN, PrivacyLoss, SystemSource
from ..products.tables.plan import Plan, plan_tables
from ..release.progress import Progress, Say, quiet
from ..spec import Spec, read_spec
from .checks import Check, derived_checks, guarded
from .largest import largest_change
from .one_record import one_record_change
from .replay import Replay, Stage, counted_once

Floats = NDArray[np.float64]
Draw = Callable[[], Measurement]

MISS = 1e-6
"""The probability with which a sound mechanism may be found at fault."""

_MOST_RUNS = 20_000
_FEWEST_RUNS = 40
_THRESHOLDS = 200
_DELTAS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5))


@dataclass(frozen=True)
class ProvenEpsilon:
    """``epsilon`` is at least this at ``delta``, where ``promised`` is what the loss implies there."""

    epsilon: float
    promised: float
    delta: Fraction
    runs: int


def log_ratio(done: Measurement, truth: Sequence[np.ndarray], change: Sequence[np.ndarray]) -> float:
    """The log of how much likelier measurements are at ``truth + change`` than at ``truth``."""
    total, beyond = 0.0, done.left_out
    values = [*done.block_values(), *(np.array([v]) for v in (beyond.values if beyond else ()))]
    laws = [*done.laws, *(beyond.laws if beyond else ())]
    for law, y, exact, moved in zip(laws, values, truth, change, strict=True):
        rows = np.flatnonzero(moved)
        off, step = (y[rows] - exact[rows]).astype(float), moved[rows].astype(float)
        scale = float(law.parameter)
        if law.kind == "laplace":
            total += float((np.abs(off) - np.abs(off - step)).sum()) / scale
        else:
            total += float((step * (off - step / 2)).sum()) / scale
    return total


def collect(
    one: Draw, other: Draw, ratio: Callable[[Measurement], float], seconds: float
) -> tuple[Floats, Floats]:
    """The statistic over runs on both inputs, in turn, until the time is up."""
    deadline = time.monotonic() + seconds
    samples: tuple[list[float], list[float]] = ([], [])
    while len(samples[0]) < _MOST_RUNS:
        if len(samples[0]) >= _FEWEST_RUNS and time.monotonic() > deadline:
            break
        samples[0].append(ratio(one()))
        samples[1].append(ratio(other()))
    return np.array(samples[0]), np.array(samples[1])


def lower_bound(one: Floats, other: Floats, loss: PrivacyLoss, delta: Fraction | None) -> ProvenEpsilon:
    """The bound from samples of the statistic on two neighbours.

    Arguments:
        one, other: the statistic, which is large where ``other`` is the likelier input.
        loss: the promise. Pure: delta is 0. Approximate: its own. zCDP: of several, the one that tells most,
            chosen on the first half too.
        delta: at which the spec states a zCDP promise, tried with the others.
    """
    promises = _promises(loss, delta)
    half = len(one) // 2
    train, test = (one[:half], other[:half]), (one[half:], other[half:])
    cuts = np.unique(np.quantile(np.concatenate(train), np.linspace(0.005, 0.995, _THRESHOLDS)))
    best: tuple[float, float, int, Fraction] | None = None
    for at, promised in promises.items():
        for side in (1, -1):
            reached = _log_odds(*_events(train, cuts, side), len(train[0]), at) / promised
            place = int(np.argmax(reached))
            if best is None or reached[place] > best[0]:
                best = float(reached[place]), float(cuts[place]), side, at
    assert best is not None
    _, cut, side, at = best
    bound = _log_odds(*_events(test, np.array([cut]), side), len(test[0]), at)[0]
    return ProvenEpsilon(max(0.0, float(bound)), promises[at], at, len(one) + len(other))


def _promises(loss: PrivacyLoss, delta: Fraction | None) -> dict[Fraction, float]:
    if loss.definition == "pure":
        return {Fraction(0): float(loss.amount)}
    if "delta" in loss.parameters:
        return {loss.parameters["delta"]: float(loss.amount)}
    deltas = {*_DELTAS, *(() if delta is None else (delta,))}
    return {at: loss.epsilon(at) for at in sorted(deltas, reverse=True)}


def _events(samples: tuple[Floats, Floats], cuts: Floats, side: int) -> tuple[Floats, Floats]:
    """How often the statistic lies beyond each cut, where that is likely and where it is not."""
    likely, unlikely = (samples[1], samples[0]) if side == 1 else (samples[0], samples[1])
    ordered = [np.sort(side * sample) for sample in (likely, unlikely)]
    counts = [len(sample) - np.searchsorted(sample, side * cuts, side="left") for sample in ordered]
    return counts[0].astype(float), counts[1].astype(float)


def _log_odds(likely: Floats, unlikely: Floats, runs: int, delta: Fraction) -> Floats:
    """``log((p - delta) / q)`` with p bounded below and q above, each but for half of the chance of a miss."""
    from scipy.special import betaincinv

    p = np.where(likely > 0, betaincinv(np.maximum(likely, 1), runs - likely + 1, MISS / 2), 0.0)
    q = np.where(unlikely < runs, betaincinv(unlikely + 1, np.maximum(runs - unlikely, 1), 1 - MISS / 2), 1.0)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(p - float(delta), 0.0)) - np.log(q)


_EPSILON = "epsilon that two neighbours prove, told apart by their measurements: under the promise"


@dataclass(frozen=True)
class Audit:
    """The checks that were made of a plan, in order."""

    plan: Plan
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if not check.passed)

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)


_NOT_AUDITED = {
    "groups": "an audit replays releases of [[table]]s, and this spec has [detailed]: `tabulae plan` shows the proven "
    "stability of each of its levels, with a record that attains it, and the noise that follows",
    "areas": "an audit replays releases of tables that are not by area, and this spec has [geography]: `tabulae plan` "
    "shows the shares and the noise of each of its levels",
}


def audit(
    spec: Plan | Spec | str | PathLike[str], *, seconds: float = 10.0, seed: int = 0, say: Say = quiet
) -> Audit:
    """Check, with invented records, that the path from records to measurements keeps the spec's promise.

    Arguments:
        spec: a plan, a spec, or the path of its document. The records that it names are not opened.
        seconds: how long neighbours are measured over and over for the statistical bound.
        seed: of the invented records and of the words replayed; the statistical runs use the operating
            system's randomness, as a release does.
        say: called with the :class:`~tabulae.Progress` at each step.

    Returns:
        Every check with what was seen and what is allowed; a failed check is a result, not an exception.

    Raises:
        SpecError: the document has mistakes.
        Unsupported: the method cannot serve these tables, or no records can be invented for them.
        InvalidArgument: a time that is not positive.

    Reference: `methods/audit.md`.

    Privacy:
        Reads no record, opens no ledger, publishes nothing: every measurement in it is a rehearsal.
    """
    if not seconds > 0:
        raise InvalidArgument(f"seconds must be positive, not {seconds!r}")
    say(Progress("choosing the strategy"))
    if not isinstance(spec, Plan):
        spec = spec if isinstance(spec, Spec) else read_spec(spec)
        if spec.kind in _NOT_AUDITED:
            raise Unsupported(_NOT_AUDITED[spec.kind])
    made = spec if isinstance(spec, Plan) else plan_tables(spec)
    made.spec.table_laws(made.strategy)  # refuses what cannot be promised
    say(Progress("looking for the neighbours that differ most"))
    with replayed(made, seed) as replay:
        checks: list[Check] = []
        for name, check in replay.checks().items():
            checks.append(check())
            say(Progress(f"replayed: {name}"))
        say(Progress("deriving the parameters again"))
        checks += derived(replay)
        say(Progress("telling neighbours apart"))
        checks.append(epsilon_proven(replay, seconds))
    return Audit(made, tuple(checks))


@contextmanager
def replayed(made: Plan, seed: int = 0) -> Iterator[Replay]:
    """The replays of a plan, with a folder for their invented records that is gone in the end."""
    rng = np.random.default_rng(seed)
    layout = RecordLayout.of(made.spec)
    neighbours, _, fewest = made.spec.change
    if neighbours in RECORDS:
        worst = one_record_change(made.strategy, neighbours, rng)
    else:
        worst = largest_change(made.strategy, neighbours, rng, fewest)
    with tempfile.TemporaryDirectory(prefix="tabulae-audit-") as folder:
        yield Replay(Stage(made, layout, Path(folder), seed), worst, rng)


def derived(replay: Replay) -> list[Check]:
    """The checks of what was measured by parameters that are derived again."""
    try:
        return list(derived_checks(replay.plan, replay.base_run.done, replay.worst))
    except Exception as error:  # the replays say why there is nothing to look at
        return [Check("law", "parameters of what was measured", None, 0.0, passed=False, detail=str(error))]


def epsilon_proven(replay: Replay, seconds: float) -> Check:
    """The check that measurements of two neighbours do not tell them apart by more than was promised."""
    return guarded("epsilon", _EPSILON, lambda: _told_apart(replay, seconds))


def _told_apart(replay: Replay, seconds: float) -> Check:
    stage, spec = replay.stage, replay.plan.spec
    inputs = _neighbours(replay)
    done = replay.base_run.done
    truth, other = ([*stage.answers(people, done), *stage.left_out(people)[:, None]] for people in inputs)
    change = [after - before for before, after in zip(truth, other, strict=True)]
    counted = (
        replay.base_run.prepared if people is replay.base else stage.prepare(people) for people in inputs
    )
    prepared = [counted_once(each) for each in counted]
    source = SystemSource()
    samples = collect(
        lambda: prepared[0].measure(None, source),
        lambda: prepared[1].measure(None, source),
        lambda found: log_ratio(found, truth, change),
        seconds,
    )
    bound = lower_bound(*samples, spec.loss, spec.delta)
    at = "" if bound.delta == 0 else f" at delta {float(bound.delta):.3g}"
    detail = f"{bound.runs:,} runs, confidence 1 - 1e-6{at}"
    passed = bound.epsilon <= bound.promised
    return Check("epsilon", _EPSILON, bound.epsilon, bound.promised, passed, detail)


def _neighbours(replay: Replay) -> tuple[People, People]:
    """The pair of inputs that differs most, or some pair where no record can lie in those cells."""
    base, groups = replay.base, replay.worst_groups
    if replay.plan.spec.neighbours in RECORDS:
        new, most = base.count, replay.rows  # a unit of more records has answers that the key decides
        return next(pair for pair in replay.records() if np.sum(pair[0].units == new) <= most)
    if replay.plan.spec.neighbours == "add-remove" or len(replay.worst.cells) == 1:
        return base.without(base.count - 1), base
    if replay.plan.spec.neighbours == WITHIN:
        return next(replay.within())
    last = base.without(base.count - 1)
    second = groups[1] if len(groups) == 2 else replay.stage.layout.random_unit(replay.rng, replay.rows)
    return base, last.and_one(second)
