"""The public surface: what `tabulae` exports is what it says, and each name explains itself."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from tests.each import each

import tabulae as tb
from tabulae import _run
from tabulae.products.product import plan
from tabulae.products.tables import measure as _measure
from tabulae.products.tables import product
from tabulae.release import Release
from tabulae.strategy import Strategy


def test_all_is_the_public_surface() -> None:
    assert sorted(tb.__all__) == sorted({*tb.__all__})
    assert set(dir(tb)) == set(tb.__all__)
    for name in tb.__all__:
        assert getattr(tb, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = tb.nonsense  # type: ignore[attr-defined]


def test_lazy_names_and_their_types_agree() -> None:
    """What type checkers are told of the lazy names is where they really come from."""
    for name, room in tb._ROOM.items():
        value = getattr(tb, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith(f"tabulae.{room}"), name


@each("name", sorted(set(tb.__all__) - {"__version__", "noise"}))
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert (getattr(tb, name).__doc__ or "").strip()


@each("name", sorted(set(tb.__all__) - {"__version__"}))
def test_every_public_name_has_an_example(name: str) -> None:
    """Which --doctest-modules runs."""
    assert ">>> " in (getattr(tb, name).__doc__ or "")


@pytest.mark.parametrize(
    "function",
    [
        _measure.measure,
        _run.run,
        product.prepare,
        product.Prepared.measure,
        plan,
        tb.estimate,
        tb.select,
        Strategy.laws,
        Strategy.sensitivity,
    ],
    ids=lambda f: f.__qualname__,
)
def test_the_privacy_path_states_its_theorem(function: object) -> None:
    assert "Privacy:" in (inspect.getdoc(function) or "")


def test_importing_costs_nothing() -> None:
    code = "import sys, tabulae; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_releases_read_nothing_but_their_folder() -> None:
    """`query` says in its docstring that it is free; so does the class."""
    assert "cost no budget" in (Release.__doc__ or "")
