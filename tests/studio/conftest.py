"""A studio that answers while a test asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.village import SPEC

import tabulae as tb
from tabulae.studio import Studio


@contextmanager
def served(folder: Path) -> Iterator[Studio]:
    """A studio of the village in this folder, with a ledger."""
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    made = Studio(folder / "spec.toml")
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join()
    made.close()


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with served(tmp_path) as made:
        yield made
