"""For all tests: one hypothesis profile, the same on every machine; no wait for the disk; a strategy is chosen once."""

from __future__ import annotations

import gc
import os
import pickle
import sqlite3
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial, wraps
from math import ceil
from typing import Any

import ibis
import pytest
import typer.main
import typer.testing
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from ibis.backends.duckdb import Backend as DuckDB

# No deadline on a shared core. `make test-long` runs the same laws over more examples.
for name, examples in (("ci", 10), ("long", 100)):
    settings.register_profile(
        name,
        derandomize=True,
        deadline=None,
        max_examples=examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
# HYPOTHESIS_PROFILE=explore looks for new examples: run it by hand after changing an algorithm.
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
# The small releases, of tables, of groups and of areas, that app and command-line tests share; one Spark session, and
# one site of the documentation.
pytest_plugins = ["tests.village", "tests.guild", "tests.duchy", "tests.local_spark", "tests.site_pages"]

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


gc.disable()  # what is imported and listed stays to the end


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples are in docstrings of the library: none is looked for here, which took a tenth of the listing."""
    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the collector of garbage need not look at them again and again.

    Nor need it come as often as where memory is short: it took a twentieth of the time, and half of that is saved.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class _Unsynced(sqlite3.Connection):
    """A ledger that does not wait for the disk."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(statement.replace("synchronous = FULL", "synchronous = OFF"), *parameters)


@pytest.fixture(scope="session", autouse=True)
def no_plug_is_pulled() -> Iterator[None]:
    """A file is where the system has it: to wait for the disk takes half of a small release's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=_Unsynced))
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """The command line is put together once, as in a process of its own, and not for every call."""
    with pytest.MonkeyPatch.context() as patch:
        once = cache(typer.main.get_command)
        patch.setattr(typer.testing, "_get_command", once)
        patch.setattr(typer.main, "get_command", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_written_once() -> Iterator[None]:
    """The statement of equal expressions is written once: it takes a third of the time of counting few records.

    It depends on names and types of columns alone, which the expression holds. Among the names is one of every small
    table that is joined with the records: equal tables are one.
    """
    real, known = DuckDB.compile, {}

    def compile_once(self: DuckDB, expr: Any, /, **options: Any) -> str:
        key = (expr.op(), ibis.options.sql.fuse_selects, *sorted(options.items()))
        if key not in known:
            known[key] = real(self, expr, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDB, "compile", compile_once)
        patch.setattr(ibis, "memtable", _once(ibis.memtable))
        yield


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which remembers what it gave."""
    known: dict[bytes, Any] = {}

    def remembered(*given: Any, **named: Any) -> Any:
        key = pickle.dumps((given, named))
        if key not in known:
            known[key] = function(*given, **named)
        return known[key]

    return remembered


@pytest.fixture(scope="session", autouse=True)
def strategies_chosen_once() -> Iterator[Callable[..., Any]]:
    """Plans of tables ask for the strategy of equal workloads and options once: it takes most of a small release.

    So do they for the bounds of errors. All are immutable. That choosing is repeatable is what tests of other
    processes compare. Rooms whose tests choose by themselves patch `tb.select` with what is yielded.
    """
    from tabulae.products.tables import plan

    real, known = plan.select, {}

    @wraps(real)
    def select(
        workload: Any, *, objective: Any = "total", time_limit: float | None = None, **options: Any
    ) -> Any:
        # What is left of a limit is never twice the same; the limit itself decides only where it is short.
        limit = None if time_limit is None else ceil(time_limit)
        named = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        key = (workload, repr(objective), limit, *sorted(named.items()))
        if key not in known:
            known[key] = real(workload, objective=objective, time_limit=time_limit, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "select", select)
        patch.setattr(plan, "lower_bound", _once(plan.lower_bound))
        yield select
