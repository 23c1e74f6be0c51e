"""The records of UCI Adult, 48,842 people, counted by the engine and by NumPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tabulae.domain import Domain
from tabulae.linalg import Identity, Kron, Total
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.skipif(not (DATA / "adult.csv").exists(), reason="needs ../shared/data/adult.csv, real records")
def test_all_fourteen_attributes_of_adult() -> None:
    """6 x 10^17 cells, none of them written out."""
    sizes = json.loads((DATA / "adult-domain.json").read_text())
    with (DATA / "adult.csv").open() as file:
        names = file.readline().strip().split(",")
        codes = np.loadtxt(file, delimiter=",", dtype=np.int64)
    # An attribute's name becomes a file and a column: one of them is called otherwise than its column.
    called = {name: name.removesuffix(">50K") for name in names}
    domain = Domain({called[name]: sizes[name] for name in names})
    made = tabulate(
        RecordSource(DATA / "adult.csv"), domain, {called[name]: ColumnCoding(name) for name in names}
    )
    assert made.total == len(codes) == 48_842
    assert made.fingerprint() == Counts.from_records(domain, codes).fingerprint()
    chosen = ("education-num", "sex", "income>50K")
    op = Kron(
        tuple(Identity(n) if a in chosen else Total(n) for a, n in zip(names, domain.shape, strict=True))
    )
    table, _ = np.histogramdd(
        codes[:, [names.index(a) for a in chosen]], bins=[np.arange(sizes[a] + 1) - 0.5 for a in chosen]
    )
    in_order = [chosen.index(a) for a in names if a in chosen]
    assert made.answer(op).tolist() == table.transpose(in_order).astype(int).ravel().tolist()
