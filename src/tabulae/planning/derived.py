"""Whether a plan's measurements determine the derived figures of its spec, before anything is charged."""

from __future__ import annotations

from ..errors import (
    NotEstimable,
    Problem,
    SpecError,
)
from ..release.together import together
from ..strategy import LeftOpen, information
from ._plan import Plan


def check_derived(plan: Plan) -> None:
    """Refuse derived figures of counts that the plan does not measure, all of them named.

    Arguments:
        plan: with the strategy chosen.

    Raises:
        SpecError: the measurements will not determine a count that a figure takes.

    Privacy:
        Reads no record: a function of the public spec and strategy.
    """
    strategy, spec = plan.strategy, plan.spec
    if not spec.derived:
        return
    info = information(strategy, tuple(1.0 for _ in strategy.blocks))
    problems = []
    for at, derived in enumerate(spec.derived):
        try:
            for table in derived.figure.tables:
                LeftOpen.of(strategy, table).variance(info)
        except NotEstimable as error:
            told = together(strategy, derived.figure.attributes)
            remedy = "add a [[table]] that counts them so, or leave the figure out"
            problems.append(Problem(f"derived[{at}].sql", f"{error} {told} {remedy}"))
    if problems:
        raise SpecError(problems, str(spec.path or "spec"))
