"""What is refused of records in areas: unknown leaves, and cells that cannot occur in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..geography.spine_plan import SpinePlan
from .engine import LEAF
from .refusals import (
    EXAMPLES,
    listed,
    unknown,
)
from .rules import NULL_CODE, UNKNOWN_CODE
from .source import Source

if TYPE_CHECKING:
    from .spine_records import LeafColumn

Fault = tuple[str, str]
"""What is told, and the same with numbers and values, which is confidential."""


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """Numbers of records by leaf and cell: shape (entries,) each. Confidential.

    ``cell`` is of the domain in C order, ``place`` of the layout, -1 for a cell that cannot occur.
    """

    leaf: np.ndarray = field(repr=False)
    cell: np.ndarray = field(repr=False)
    place: np.ndarray = field(repr=False)
    people: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class LeafBound:
    """What a public file lets occur in each leaf.

    Args:
        name: of the file in messages.
        label: shape (D,): the class of each dense cell.
        possible: shape (leaves, classes), boolean.
    """

    name: str
    label: np.ndarray
    possible: np.ndarray


def leaf_faults(source: Source, table: Any, leaf: LeafColumn, every: Mapping[str, np.ndarray]) -> list[Fault]:
    """Faults of the leaf codes of coded records: missing, unknown, or of leaves where nothing can be counted.

    Args:
        source: what messages name.
        table: the coded records, with the leaf's code and its number ``at``.
        leaf: the codes that there are.
        every: numbers of records by ``at`` and other codes.
    """
    at, people = every["at"], every["people"]
    column, faults = f"column {leaf.column!r} ([geography] column)", []
    if (at == NULL_CODE).any():
        told = f"{column}: NULL values, and every record needs the code of the leaf that it lies in"
        faults.append((told, f"{told}: in {int(people[at == NULL_CODE].sum())} records"))
    if (at == UNKNOWN_CODE).any():
        examples = unknown(source, table, LEAF, "at")
        told = f"{column}: codes that are not in {leaf.file}: {_remedy([code for code, _ in examples], leaf)}"
        number = int(people[at == UNKNOWN_CODE].sum())
        faults.append((told, f"{told}: in {number} records, such as {listed(examples)}"))
    if (dropped := at >= len(leaf.codes)).any():
        told = (
            f"{column}: codes of leaves where nothing can be counted: no bound's file lets anything occur there. "
            "Correct the records or that file"
        )
        known = leaf.known
        faults.append((told, _with_examples(told, [known[i] for i in at[dropped]], people[dropped])))
    return faults


def _remedy(codes: Sequence[str], leaf: LeafColumn) -> str:
    known, lengths = set(leaf.known), {len(code) for code in leaf.known}
    if any(code.zfill(length) in known for code in codes for length in lengths if length > len(code)):
        return "leading zeros are lost in them; write the codes as text, with all their digits"
    return "correct the records, or add a row for each such leaf"


def place_faults(
    placed: Placed, plan: SpinePlan, codes: Sequence[str], bounds: Sequence[LeafBound] = ()
) -> list[Fault]:
    """Records in cells that cannot occur, anywhere or in their leaf; ``codes`` are the leaves'."""
    dense = placed.place // plan.layout.algebra.cells
    nowhere = placed.place < 0
    names = " by ".join(plan.layout.dense)
    faults = []
    inside = ~nowhere & ~plan.support[placed.leaf, dense]
    cells = f"combinations of {names} that"
    named = [
        (
            inside & ~bound.possible[placed.leaf, bound.label[dense]],
            f"{cells} cannot occur in their leaf, by {bound.name}",
        )
        for bound in bounds
    ]
    for wrong, told in (
        (nowhere, f"{cells} [[structural_zero]] says cannot occur"),
        *(named or [(inside, f"{cells} cannot occur in their leaf, by the file of a [[bound]]")]),
    ):
        if wrong.any():
            told = f"{told}: correct the records, or what the spec says of them"
            examples = [
                f"{codes[leaf]} {_labels(cell, plan)}"
                for leaf, cell in zip(placed.leaf[wrong], placed.cell[wrong], strict=True)
            ]
            faults.append((told, _with_examples(told, examples, placed.people[wrong])))
    return faults


def _labels(cell: int, plan: SpinePlan) -> str:
    """The dense attributes' categories of a cell of the domain."""
    domain = plan.layout.domain
    codes = dict(zip(domain.names, np.unravel_index(int(cell), domain.shape), strict=True))
    return ", ".join(domain[name].labels[codes[name]] for name in plan.layout.dense)


def _with_examples(told: str, values: Sequence[str], people: np.ndarray) -> str:
    total: dict[str, int] = {}
    for value, number in zip(values, people.tolist(), strict=True):
        total[value] = total.get(value, 0) + number
    commonest = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:EXAMPLES]
    return f"{told}: in {sum(total.values())} records, such as {listed(commonest)}"


def refused(source: Source, faults: Sequence[Fault]) -> DataError:
    """The error that names faults whose words say what to do."""
    return DataError(
        "\n".join(
            [f"{source.name} does not fit the public geography:", *(f"  {told}" for told, _ in faults)]
        ),
        confidential="\n".join(detail for _, detail in faults),
    )
