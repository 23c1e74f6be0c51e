"""What tests of drawn releases share: few draws, and credible intervals whatever these are worth."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest

from tabulae.estimation import intervals


def few_draws(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **sweeps: int) -> None:
    """Forty draws of the module that draws them, after so many ``sweeps``."""
    monkeypatch.setattr(module, "IMPLICATES", 40)
    monkeypatch.setattr(module, "sample", partial(module.sample, **sweeps))
    worth_at_least(monkeypatch, 1)


def worth_at_least(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Credible intervals are made of draws that are worth so many."""
    monkeypatch.setattr(intervals, "LEAST_EFFECTIVE", least)
