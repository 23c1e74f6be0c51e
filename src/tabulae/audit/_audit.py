"""An audit from beginning to end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..privacy import WITHIN, SystemSource
from ..products.tables.plan import Plan, plan_tables
from ..spec import Spec, read_spec
from .check import Check, guarded
from .derived import derived_checks
from .experiment import collect, log_ratio, lower_bound
from .largest import largest_change
from .layout import Layout
from .people import People
from .remembered import counted_once
from .replay import Replay
from .stage import Stage

Say = Callable[[str], None]
_EPSILON = "epsilon that two neighbours prove, told apart by their measurements: under the promise"


def _quiet(message: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Audit:
    """The checks that were made of a plan, in order."""

    plan: Plan
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed; none where the promise held."""
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
    spec: Plan | Spec | str | PathLike[str], *, seconds: float = 10.0, seed: int = 0, say: Say = _quiet
) -> Audit:
    """Check, with invented records, that the path from records to measurements keeps the spec's promise.

    Arguments:
        spec: a plan, a spec, or the path of its document. The records that it names are not opened.
        seconds: how long neighbours are measured over and over for the statistical bound.
        seed: of the invented records and of the words replayed; the statistical runs use the operating
            system's randomness, as a release does.
        say: called with a line of progress at each step.

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
    say("choosing the strategy")
    if not isinstance(spec, Plan):
        spec = spec if isinstance(spec, Spec) else read_spec(spec)
        if spec.kind in _NOT_AUDITED:
            raise Unsupported(_NOT_AUDITED[spec.kind])
    made = spec if isinstance(spec, Plan) else plan_tables(spec)
    strategy, promise = made.strategy, made.spec
    strategy.laws(promise.loss, promise.neighbours, promise.rows_per_unit)  # refuses what cannot be promised
    rng = np.random.default_rng(seed)
    layout = Layout.of(promise)
    say("looking for the neighbours that differ most")
    worst = largest_change(strategy, promise.neighbours, rng)
    with tempfile.TemporaryDirectory(prefix="tabulae-audit-") as folder:
        replay = Replay(Stage(made, layout, Path(folder), seed), worst, rng)
        checks: list[Check] = []
        for check in replay.checks():
            say(f"replayed: {check.name}")
            checks.append(check)
        say("deriving the parameters again")
        try:
            checks += derived_checks(made, replay.base_run.done, worst)
        except Exception as error:  # the replays say why there is nothing to look at
            checks.append(
                Check("law", "parameters of what was measured", None, 0.0, passed=False, detail=str(error))
            )
        say("telling neighbours apart")
        checks.append(guarded("epsilon", _EPSILON, lambda: _told_apart(replay, seconds)))
    return Audit(made, tuple(checks))


def _told_apart(replay: Replay, seconds: float) -> Check:
    stage, spec = replay.stage, replay.plan.spec
    inputs = _neighbours(replay)
    done = replay.base_run.done
    truth, other = (stage.answers(people, done) for people in inputs)
    change = [after - before for before, after in zip(truth, other, strict=True)]
    prepared = [counted_once(stage.prepare(people)) for people in inputs]
    source = SystemSource()
    samples = collect(
        lambda: stage.draw(prepared[0], source),
        lambda: stage.draw(prepared[1], source),
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
    if replay.plan.spec.neighbours == "add-remove":
        return base.without(base.count - 1), base
    if replay.plan.spec.neighbours == WITHIN:
        return next(replay.within())
    last = base.without(base.count - 1)
    second = groups[1] if len(groups) == 2 else replay.stage.layout.random(replay.rng, replay.rows)
    return base, last.and_one(second)
