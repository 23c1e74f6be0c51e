"""What ``tabulae plan`` prints of targets: whether they are met, and the smallest budget that meets them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console

from ..privacy import decimal
from ..products.smallest import Smallest
from .output import say


def print_smallest(console: Console, smallest: Smallest | None, whose: str, more: Iterable[str] = ()) -> None:
    """What the targets of a plan need; nothing without targets.

    Arguments:
        whose: what meets the targets, and "meets".
    """
    if smallest is not None:
        say(console, *smallest_words(smallest, whose, more))


def smallest_words(smallest: Smallest, whose: str, more: Iterable[str] = ()) -> Iterator[str]:
    """The same in lines."""
    yield from _judged(smallest)
    if smallest.loss is not None:
        name, amount = next(iter(smallest.loss.parameters)), decimal(smallest.loss.amount)
        yield f"Smallest  {name} {amount} is the smallest budget with which {whose} all targets."
        if smallest.lower is not None and smallest.best is None:
            yield f"          No strategy does with less than {name} {decimal(smallest.lower.amount)}."
    for level in smallest.levels:
        if level.smallest is not None and level.smallest.amount != level.budget.amount:
            needs = decimal(level.smallest.amount)
            yield f"            {level.level}: needs {needs}, and has {decimal(level.budget.amount)}"
    yield from more
    if smallest.note:
        yield f"          {smallest.note}"


def _judged(smallest: Smallest) -> Iterator[str]:
    if smallest.written is None:
        return
    met, told = sum(row.met is True for row in smallest.targets), len(smallest.targets)
    name, amount = next(iter(smallest.written.parameters)), decimal(smallest.written.amount)
    if any(row.met is None for row in smallest.targets):
        yield f"Targets   {name} {amount}: whether targets by the paper's formula are met is not told."
    else:
        yield f"Targets   {name} {amount} {_met_words(met, told)}."


def _met_words(met: int, told: int) -> str:
    """How many targets are met.

    >>> _met_words(1, 1), _met_words(0, 1), _met_words(3, 3), _met_words(1, 3)
    ('meets its one target', 'misses its one target', 'meets all 3 targets', 'meets 1 of 3 targets')
    """
    if told == 1:
        return "meets its one target" if met else "misses its one target"
    return f"meets {'all' if met == told else f'{met} of'} {told} targets"
