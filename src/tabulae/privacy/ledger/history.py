"""What the rows of a ledger mean: the cap, the charges, what was spent, and what was disclosed exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

from ...errors import InvalidArgument
from ..loss.definitions import ZCDP, ApproxDP, PrivacyLoss, PureDP
from ..loss.exact_numbers import Exact
from .store import START, ChainedEntry

PROMISE = "exact, outside the guarantee"
"""What the ledger says of every disclosure."""


@dataclass(frozen=True)
class Disclosure:
    """A table of counts that is published as it is, and the row space of its matrix.

    Attributes:
        table: the name under which it is published.
        reason: why, in words for the report.
        rows: what the counts are sums of, as plain JSON. ``attributes`` maps each attribute that matters to the labels
            of its categories. ``terms`` is a list of ``{"coefficient": c, "factors": {attribute: matrix}}``: the
            table's matrix is the sum of c times the Kronecker product of the matrices, with a single row of ones for
            every attribute that a term leaves out. A matrix is ``{"classes": [...], "count": m}``, the row among m to
            which each category is added (-1: none), or ``{"rows": [[...], ...]}``, whole numbers, one column a
            category. Of a table with one term the matrices span the rows of the table's own, and need not equal them.

    Raises:
        InvalidArgument: no name, no reason, or rows that are not such a document.

    Privacy: an exact count has no privacy loss that could be bounded: two data sets on which it differs are told apart
        with certainty. What remains is a promise about the rest, so what is exact must be known for as long as the
        ledger lives. By composition (Subspace Differential Privacy, Proposition 2.9) the disclosures of several
        releases count together: the row space of their stacked rows is exact, which may hold counts that no single
        release disclosed.

    >>> term = {"coefficient": 1, "factors": {"sex": {"classes": [0, 1], "count": 2}}}
    >>> rows = {"attributes": {"sex": ["F", "M"]}, "terms": [term]}
    >>> Disclosure("exact sex", "the register is public", rows).attributes
    ('sex',)
    """

    table: str
    reason: str
    rows: Mapping[str, Any]

    def __post_init__(self) -> None:
        for word in ("table", "reason"):
            if not isinstance(getattr(self, word), str) or not getattr(self, word).strip():
                raise InvalidArgument(
                    f"an exact disclosure needs a {word}, in words; it has {getattr(self, word)!r}"
                )
        try:
            rows = json.loads(json.dumps(self.rows, allow_nan=False))  # a copy that nobody else can change
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"the rows of disclosure {self.table!r} are not plain JSON: {error}"
            ) from None
        if not isinstance(rows, dict) or set(rows) != {"attributes", "terms"} or not rows["terms"]:
            raise InvalidArgument(
                f"the rows of disclosure {self.table!r} must say their attributes and terms: "
                "use tabulae.domain.describe_row_space(table, domain)"
            )
        object.__setattr__(self, "rows", rows)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the counts tell apart; none for a total."""
        return tuple(sorted(self.rows["attributes"]))

    def content(self) -> dict[str, Any]:
        """What a ledger's entry says of it. Privacy: none is spent; values are never among it."""
        return {"table": self.table, "reason": self.reason, "rows": self.rows, "promise": PROMISE}

    def __str__(self) -> str:
        told = " by ".join(self.attributes) or "one count of all records"
        return f"{self.table} ({told}): {self.reason}"


OUTCOMES = ("published", "void")
Relation = Literal["next", "correction"]
"""How a release follows another: as the next of a series, or in its place."""

RELATIONS = get_args(Relation)
KINDS: dict[str, type[PrivacyLoss]] = {"pure": PureDP, "approx": ApproxDP, "zcdp": ZCDP}


@dataclass(frozen=True)
class Charge:
    """What one release spent: its id, loss, place in the ledger, UTC time, title and state.

    ``state`` is ``"charged"`` until the release is settled as ``"published"`` or ``"void"``. ``follows`` is the release
    that it was published to follow, if any, and ``relation`` says how: ``"next"`` or ``"correction"``.
    """

    release_id: str
    loss: PrivacyLoss
    sequence: int
    time: str
    title: str
    state: str = "charged"
    follows: str | None = None
    relation: Relation | None = None


@dataclass(frozen=True)
class VerifiedChain:
    """A verified stretch of the chain: where it ends, and the sum of the charges in it."""

    sequence: int = -1
    head: str = START
    spent: Fraction = Fraction(0)
    spent_delta: Fraction = Fraction(0)

    def advance(self, rows: Iterable[ChainedEntry]) -> VerifiedChain:
        """The view after the rows that follow, which the caller has verified."""
        view = self
        for row in rows:
            view = replace(view, sequence=row.sequence, head=row.hash)
            if row.kind == "charge":
                loss = read_charge(row).loss
                view = replace(
                    view, spent=view.spent + loss.amount, spent_delta=view.spent_delta + delta_of(loss)
                )
        return view


def charges_of(rows: Iterable[ChainedEntry]) -> dict[str, Charge]:
    """The charges among the rows by release id, in order, each in its last state. Privacy: none is spent."""
    found: dict[str, Charge] = {}
    for row in rows:
        if row.kind == "charge":
            charge = read_charge(row)
            found[charge.release_id] = charge
        elif row.kind in OUTCOMES:
            name = row.content()["release_id"]
            found[name] = replace(found[name], state=row.kind)
        elif row.kind == "follows":
            content = row.content()
            name = content["release_id"]
            found[name] = replace(found[name], follows=content["follows"], relation=content["relation"])
    return found


def disclosures_of(rows: Sequence[ChainedEntry]) -> list[tuple[Charge, Disclosure]]:
    """The exact disclosures among the rows, in order, each with the charge of its release. Privacy: none is spent."""
    charges = charges_of(rows)
    contents = [row.content() for row in rows if row.kind == "disclosure"]
    return [(charges[c["release_id"]], Disclosure(c["table"], c["reason"], c["rows"])) for c in contents]


def read_charge(row: ChainedEntry) -> Charge:
    """The charge that a row records. Privacy: none is spent."""
    content = row.content()
    loss = read_loss(content["definition"], content["loss"])
    return Charge(content["release_id"], loss, row.sequence, content["time"], content["title"])


def read_cap(budget: PrivacyLoss | Exact, definition: str | None, delta: Exact | None) -> PrivacyLoss:
    """The cap of a ledger from what its creator wrote.

    Raises:
        InvalidArgument: no definition, an unknown one, or a delta missing or out of place.

    Privacy: the cap is exact.

    >>> read_cap("1/2", "zcdp", None)
    ZCDP(rho='1/2')
    """
    if isinstance(budget, PrivacyLoss):
        if definition not in (None, budget.definition) or delta is not None:
            raise InvalidArgument(
                f"the budget is {budget!r}; leave out definition and delta, which it states"
            )
        if budget.definition not in KINDS:
            raise InvalidArgument(f"a ledger cannot hold a budget of {type(budget).__name__}")
        return budget
    if definition not in KINDS:
        raise InvalidArgument(f'definition is {definition!r}; it must be "pure", "approx" or "zcdp"')
    if definition == "approx":
        if delta is None:
            raise InvalidArgument("an approximate budget needs a delta, such as 1e-10")
        return ApproxDP(budget, delta)
    if delta is not None:
        raise InvalidArgument(f"a {definition} budget has no delta; leave it out")
    return PureDP(budget) if definition == "pure" else ZCDP(budget)


def write_loss(loss: PrivacyLoss) -> dict[str, str]:
    """The parameters of a loss as fractions in text. Privacy: none is spent; nothing is rounded.

    >>> write_loss(PureDP("0.1"))
    {'epsilon': '1/10'}
    """
    return {name: str(value) for name, value in loss.parameters.items()}


def read_loss(definition: str, parameters: Mapping[str, str]) -> PrivacyLoss:
    """The loss that ``write_loss`` wrote. Privacy: none is spent; nothing is rounded.

    >>> read_loss("pure", {"epsilon": "1/10"})
    PureDP(epsilon='1/10')
    """
    return KINDS[definition](**parameters)


def delta_of(loss: PrivacyLoss) -> Fraction:
    """The delta of a loss; 0 where its definition has none. Privacy: none is spent."""
    return loss.parameters.get("delta", Fraction(0))
