"""Sensitivity to one record of a unit: a person of a household more or less, where households are counted, too.

A unit is k seats (:meth:`tabulae.Attribute.seats`), k at most of its records and empty ones. One record more or less

* changes one seat from q to q', empty or a record, as it comes, goes, or makes way for another that had not been
  counted; and what is said of the unit from c to c', so that the other seats move from (c, u) to (c', u);
* or is the only one of a unit that comes or goes with it: a seat with it, and k - 1 empty ones.

Under "record-free" c' is any; under "record-derived" c and c' differ in what is made of the unit's records alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ..domain import Domain, Invariants, Table, Term, Workload
from ..errors import Unsupported
from ..linalg import (
    Contrasts,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Sensitivity,
    Stack,
    Sum,
    weighted_sensitivity,
)
from ..privacy import RECORD_DERIVED
from .block import Block, terms_of
from .within import within_invariants

Weighted = Sequence[tuple[LinearOperator, Fraction]]

_LISTED = 2**24  # cells up to which every column is looked at


def moving(domain: Domain, neighbours: str) -> frozenset[int]:
    """The axes of what one record may change of its unit.

    Raises:
        Unsupported: the domain does not count units with their records.
    """
    if domain.seats is None:
        raise Unsupported(
            f'neighbours = "{neighbours}" is about one record of a unit, and units are not counted with their records '
            'here: write "add-remove"'
        )
    return frozenset(
        axis
        for axis, each in enumerate(domain.attributes)
        if each.of_unit and (each.from_records or neighbours != RECORD_DERIVED)
    )


def of_one_record(blocks: Weighted, p: int, domain: Domain, neighbours: str) -> Sensitivity:
    """A bound on the largest ``sum_i w_i ||A_i d||_p^p``, over the changes d that one record makes, in parts of a unit.

    With U the blocks that see what moves with the record, and R the others, a change within a unit moves U by k seats
    in place of k, and R by one in place of one, of the same unit. With P the largest power over pairs of cells that
    agree in what the record cannot change of its unit, and P_R over those that agree in all that is the unit's,

        sum_i w_i ||A_i d||^p  <=  min(P_R(R) + k^p P(U), k^p P(U and R)),

    and a unit that comes with its one record moves what is 0 for an empty seat by a column, all else by k of them.
    Tables of records by their own attributes attain it, tables of units, and tables of records by what moves.

    Privacy:
        An upper bound for every unit, whatever it has: each step is a triangle inequality, or takes a maximum over more
        changes than there are.
    """
    seen, seats = moving(domain, neighbours), domain.seats
    assert seats is not None
    most = Fraction(seats.steps) ** p
    flat = [(part, weight) for op, weight in blocks for part in (op.ops if isinstance(op, Stack) else (op,))]
    moved, still = [], []
    for op, weight in flat:
        (moved if _sees(op, seen, domain) else still).append((op, weight))
    own = frozenset(axis for axis, each in enumerate(domain.attributes) if each.of_unit)
    within = most * _apart(flat, p, domain, own - seen)
    if still:
        within = min(within, _apart(still, p, domain, own) + most * _apart(moved, p, domain, own - seen))
    coming = [(op, weight * (most if _sees_empty(op, domain) else 1)) for op, weight in flat]
    comes = weighted_sensitivity(coming, p, "add-remove").power
    return Sensitivity(max(within, comes) / most, p, is_exact=False)


def _apart(blocks: Weighted, p: int, domain: Domain, agreeing: frozenset[int]) -> Fraction:
    """The largest power over pairs of cells that agree in some attributes."""
    if not blocks or not agreeing:
        return weighted_sensitivity(blocks, p, "replace").power if blocks else Fraction(0)
    agree = {domain.names[axis]: Identity(domain.shape[axis]) for axis in agreeing}
    return within_invariants(blocks, p, domain, Invariants(domain, [Table("unit", agree)])).power


def _sees(op: LinearOperator, axes: frozenset[int], domain: Domain) -> bool:
    """Whether columns may differ between cells that differ in some attributes alone."""
    terms = [factors for _, factors in terms_of(op)]
    if any(tuple(f.shape[1] for f in factors) != domain.shape for factors in terms):
        return True
    return any(factors[axis].column_classes().any() for factors in terms for axis in axes)


def _sees_empty(op: LinearOperator, domain: Domain) -> bool:
    """Whether an empty seat has a column that is not 0, or too many cells would have to be looked at."""
    assert domain.seats is not None
    axis = domain.axis(domain.seats.name)
    if isinstance(op, Kron) and op.sizes == domain.shape:
        return bool(op.ops[axis].column_norms(1)[0])
    if domain.size > _LISTED:
        return True
    return bool(op.column_norms(1).reshape(domain.shape).take(0, axis=axis).any())


def of_records_alone(workload: Workload, neighbours: str) -> tuple[Workload | None, Workload | None]:
    """The tables of records by what does not move with one of them, over cells without seats; and all others.

    For the first, one record costs what it costs where nothing else is counted: what is measured for them is 0 for an
    empty seat, see :func:`seated`.
    """
    seen, domain, seats = moving(workload.domain, neighbours), workload.domain, workload.domain.seats
    assert seats is not None
    alone: list[Table] = []
    others: list[Table] = []
    for table in workload.tables:
        terms = [_of_records(term, seats.name) for term in table.terms]
        if None in terms or any(_sees(Kron(term.over(domain)), seen, domain) for term in table.terms):
            others.append(table)
        else:
            alone.append(Table.of_terms(table.name, [t for t in terms if t], table.weight))
    left = {each.name: each for each in domain.attributes if not each.is_seat}
    if not alone or not left:
        return None, workload
    return Workload(Domain(left), alone), Workload(domain, others) if others else None


def _of_records(term: Term, seats: str) -> Term | None:
    """A term that counts records, over cells without seats; None for any other."""
    factor = term.factors.get(seats)
    if factor is None or factor.shape[0] > 1 or not factor.integer:
        return None
    empty, full = (int(entry) for entry in factor.dense()[0])
    left = {name: each for name, each in term.factors.items() if name != seats}
    return None if empty or not full else Term(term.coefficient * full, left)


def seated(block: Block, domain: Domain) -> list[Block]:
    """A block over cells without seats, asked of the seats that have a record; each member of a stack by itself."""
    assert domain.seats is not None
    at, taken = domain.axis(domain.seats.name), Dense([[0, 1]])

    def lifted(op: LinearOperator) -> LinearOperator:
        if isinstance(op, Contrasts):
            op = op.composed
        if isinstance(op, MatrixProduct):
            return MatrixProduct(op.left, lifted(op.right))
        if isinstance(op, Sum):
            return Sum([(c, lifted(term)) for c, term in op.terms])
        factors = list(op.ops) if isinstance(op, Kron) else [op]
        return Kron([*factors[:at], taken, *factors[at:]])

    return [replace(block, query=lifted(op)) for op in apart(block.query)]


def apart(op: LinearOperator) -> Sequence[LinearOperator]:
    """The members of a stack, in which no contrasts are left: as least squares takes them beside other blocks."""
    members = op.ops if isinstance(op, Stack) else (op,)
    return [part.composed if isinstance(part, Contrasts) else part for part in members]
