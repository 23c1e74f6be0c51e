"""What a ledger is told of counts of areas that are read as they are. Public."""

from __future__ import annotations

from ..domain import (
    Attribute,
    Domain,
    Table,
)
from ..domain.row_space import describe
from ..errors import InvalidArgument
from ..linalg import (
    Identity,
    LinearOperator,
    Partition,
)
from ..privacy import Disclosure
from .constraints import ExactMargin
from .spine_plan import SpinePlan

_NO_REASON = "no reason given"


def disclosure_of(plan: SpinePlan, exact: ExactMargin) -> Disclosure:
    """What the ledger is told of a margin whose counts are about to be read as they are.

    The level stands among the attributes, with its units for categories, unless it is one unit: the counts are those
    of every one of them. Levels above have the same counts exact, by addition.

    Raises:
        InvalidArgument: a level that bears the name of an attribute.

    Privacy:
        None is spent. Attributes, recodes and units are public.
    """
    domain, name = plan.layout.domain, exact.margin.name
    views = {domain.resolve(view).attribute.name: view for view in exact.margin.names}
    factors = {of: _factor(domain, of, view) for of, view in views.items()}
    attributes = {of: domain[of] for of in views}
    codes = plan.spine.codes[exact.level]
    if codes.size > 1:
        if exact.level in domain:
            raise InvalidArgument(
                f"level {exact.level!r} has exact counts and the name of an attribute: rename one of them"
            )
        name = f"{name} of each {exact.level}"
        attributes[exact.level] = Attribute.of(exact.level, codes.tolist())
        factors[exact.level] = Identity(codes.size)
    # a total of one unit is over no attribute at all: any domain says so
    rows = describe(Table(name, factors), Domain(attributes) if attributes else domain)
    return Disclosure(name, exact.reason or _NO_REASON, rows)


def _factor(domain: Domain, of: str, view: str) -> LinearOperator:
    recode = domain.recode(view)
    return Identity(domain[of].size) if recode is None else Partition(recode.classes)
