"""A studio that answers while a test asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import village as villages

import tabulae as tb
from tabulae.studio import Studio

SPEC = villages.SPEC.replace("[[table]]", '[method]\nselect = "identity"\n\n[[table]]', 1)
"""The village, whose strategy takes no search: each edit is planned in a process that remembers no other's."""


def village(folder: Path) -> Path:
    """The spec of the village in this folder, with a ledger."""
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    (folder / "spec.toml").write_text(SPEC)
    return folder / "spec.toml"


@contextmanager
def served(place: Path) -> Iterator[Studio]:
    """A studio of a spec, a file of records or a folder."""
    made = Studio(place)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join()
        made.close()


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with served(village(tmp_path)) as made:
        yield made
