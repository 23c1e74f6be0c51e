"""Cases of one law in one test: `each` reads like `pytest.mark.parametrize`, and loops."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Sequence[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Callable], Callable]:
    """Run the test for every case. A failure names its case, and the others that failed.

    For laws over many cheap instances, where a test apiece would cost more than what it checks. Fixtures are made
    once for all cases: a test that changes what a fixture gave it is for `pytest.mark.parametrize`. A case that is
    skipped is passed over; the test is skipped where every case is.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = len(arguments) == 1
    rows = [(case,) if single else tuple(case) for case in cases]
    if callable(ids) or ids is None:
        name = ids or _short
        labels = [", ".join(str(name(value)) for value in row) for row in rows]
    else:
        labels = [str(label) for label in ids]
    assert rows, "no cases"
    assert len(labels) == len(rows)

    def decorate(test: Callable) -> Callable:
        def run(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            failed: dict[str, Exception] = {}
            skipped: list[pytest.skip.Exception] = []
            for label, row in zip(labels, rows, strict=True):
                try:
                    test(*args, **kwargs, **dict(zip(arguments, row, strict=True)))
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    failed[label] = error
            if failed:
                label, error = next(iter(failed.items()))
                error.add_note(f"{', '.join(arguments)} = {label}")
                if len(failed) > 1:
                    error.add_note(f"{len(failed)} of {len(rows)} cases failed: {'; '.join(failed)[:1000]}")
                raise error
            if len(skipped) == len(rows):
                raise skipped[0]

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in arguments]
        assert len(kept) == len(signature.parameters) - len(arguments), (
            f"{test.__name__} takes no {arguments}"
        )
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "pytestmark"):
            if hasattr(test, name):
                setattr(run, name, getattr(test, name))
        return run

    return decorate


def _short(value: object) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def pairwise(**values: Iterable[Any]) -> tuple[str, list[tuple[Any, ...]]]:
    """Names and few cases in which any two values of two different names meet: what `each` takes.

    Where a fault shows whenever one or two things come together, these cases find it as all combinations would.
    """
    lists = [list(v) for v in values.values()]
    everything = list(itertools.product(*(range(len(v)) for v in lists)))

    meetings = {case: set(itertools.combinations(enumerate(case), 2)) for case in everything}
    open_ = set().union(*meetings.values())
    chosen: list[tuple[int, ...]] = []
    while open_:
        chosen.append(max(everything, key=lambda case: len(meetings[case] & open_)))
        open_ -= meetings[chosen[-1]]
    return ", ".join(values), [tuple(v[i] for v, i in zip(lists, case, strict=True)) for case in chosen]
