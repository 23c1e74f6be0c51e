"""For tests of estimates: what is measured is chosen once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tabulae as tb


@pytest.fixture(scope="package", autouse=True)
def chosen_once(strategies_chosen_once: Callable[..., Any]) -> Iterator[None]:
    """Tests of one process ask for the strategy of equal workloads and options once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tb, "select", strategies_chosen_once)
        yield
