"""What ``tabulae plan`` prints of targets: whether they are met, and the smallest budget that meets them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import tomli_w
from rich.console import Console
from rich.table import Table as RichTable

from ..privacy import decimal
from ..products.areas.spec.section import Geography
from ..products.smallest import BestShares, Smallest
from .output import new_table, number, say


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


def targets_table(smallest: Smallest) -> RichTable:
    """Each target beside what is reached."""
    headings = ("table", "areas of", "target", "reached", "")
    table = new_table(*headings, words=("table", "areas of", "target", ""), title="Targets")
    for row in smallest.targets:
        kind = "RMSE" if row.confidence is None else f"{row.confidence:.0%} margin"
        aim = f"{kind} {number(row.target)}"
        table.add_row(row.table, row.of, aim, number(row.reached), "met" if row.met else "missed")
    return table


def best_words(geography: Geography, best: BestShares) -> Iterator[str]:
    """The shares with which the targets cost least, as lines of a spec."""
    name, lower = next(iter(best.loss.parameters)), decimal(best.lower.amount)
    if all(best.levels.get(level, 0) == share for level, share in geography.shares.levels.items()):
        yield f"          No better shares were found; none do with less than {name} {lower}."
        return
    amount = decimal(best.loss.amount)
    yield f"Shares    With the shares below {name} {amount} meets all targets; none do with less than {name} {lower}."
    yield "          They serve the targets alone; tables without one are as wrong as these leave them."
    yield "          Write them under [geography], in place of its shares and queries:"
    levels = {level: best.levels.get(level, Fraction(0)) for level in geography.spine.levels}
    yield from ("", *shares_toml(geography, levels, best.queries), "")


def shares_toml(
    geography: Geography, levels: Mapping[str, Fraction], queries: Mapping[str, Sequence[Fraction]]
) -> Iterator[str]:
    """Shares of levels, and of the queries of each, as the lines of a spec that have them."""
    yield f"shares = {{ {', '.join(f'{_key(level)} = {_text(share)}' for level, share in levels.items())} }}"
    for i, query in enumerate(geography.queries):
        given = ((level, each[i]) for level, each in queries.items() if each[i])
        shares = ", ".join(f"{_key(level)} = {_text(share)}" for level, share in given)
        names = ", ".join(tomli_w.dumps({"k": name})[4:-1] for name in query.names)
        yield f"\n[[geography.query]]\nattributes = [{names}]\nshares = {{ {shares} }}"


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _text(share: Fraction) -> str:
    return f'"{decimal(share)}"'
