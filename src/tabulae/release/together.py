"""Which attributes were measured together: what to say of a count that the measurements do not determine."""

from __future__ import annotations

from collections.abc import Sequence

from ..strategy import Strategy


def together(strategy: Strategy, asked: Sequence[str]) -> str:
    """Which of the attributes asked for a strategy measures together, and which never.

    Arguments:
        strategy: what is measured.
        asked: names of attributes.

    >>> import tabulae as tb
    >>> ways = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 3}), ways=[1])
    >>> together(tb.select(ways, method="marginals"), ["sex", "age"])
    'Not measured together: sex with age.'
    """
    groups = []
    for block in strategy.blocks:
        for _, factors in block.terms:
            told = [
                a.name
                for a, q in zip(strategy.domain.attributes, factors, strict=True)
                if q.column_classes().max() > 0
            ]
            groups.append(frozenset(told))
    missing = [name for name in asked if not any(name in g for g in groups)]
    if missing:
        return f"Never measured in detail: {', '.join(missing)}."
    pairs = [
        f"{a} with {b}"
        for i, a in enumerate(asked)
        for b in asked[i + 1 :]
        if not any({a, b} <= g for g in groups)
    ]
    if pairs:
        return f"Not measured together: {'; '.join(pairs)}."
    return f"Measured together, but not in the detail asked for: {', '.join(asked)}."
