"""Cases of one law in one test: `each` reads like `pytest.mark.parametrize`, and loops."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Sequence[Any] | Callable[[Any], Any] | None = None,
    long: Iterable[Any] = (),
) -> Callable[[Callable], Callable]:
    """Run the test for every case. A failure names its case, and the others that failed.

    Cases of `long` that are not among the others are a test of their own, which `make test-long` runs.

    For laws over many cheap instances, where a test apiece would cost more than what it checks. Fixtures are made
    once for all cases: a test that changes what a fixture gave it is for `pytest.mark.parametrize`. A case that is
    skipped is passed over; the test is skipped where every case is.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    short, rest = ([(c,) if len(arguments) == 1 else tuple(c) for c in group] for group in (cases, long))
    rest = [row for row in rest if row not in short]
    labels = _labels([*short, *rest], ids)
    assert short, "no cases"
    assert len(labels) == len(short) + len(rest)
    rows = list(zip(labels, (*short, *rest), strict=True))
    shares = {"short": rows[: len(short)], "long": rows[len(short) :]}

    def decorate(test: Callable) -> Callable:
        def run(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            _try_all(test, arguments, shares[kwargs.pop("share") if rest else "short"], args, kwargs)

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in arguments]
        assert len(kept) == len(signature.parameters) - len(arguments), (
            f"{test.__name__} takes no {arguments}"
        )
        if rest:
            kept.append(inspect.Parameter("share", inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "pytestmark"):
            if hasattr(test, name):
                setattr(run, name, getattr(test, name))
        if rest:
            return pytest.mark.parametrize("share", ["short", pytest.param("long", marks=pytest.mark.long)])(
                run
            )
        return run

    return decorate


def _try_all(
    test: Callable, arguments: list[str], rows: list[tuple[str, tuple]], args: tuple, kwargs: dict[str, Any]
) -> None:
    __tracebackhide__ = True
    failed: dict[str, Exception] = {}
    skipped: list[pytest.skip.Exception] = []
    for label, row in rows:
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


def _labels(rows: list[tuple], ids: Sequence[Any] | Callable[[Any], Any] | None) -> list[str]:
    if ids is None or callable(ids):
        return [", ".join(str((ids or _short)(value)) for value in row) for row in rows]
    return [str(label) for label in ids]


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
