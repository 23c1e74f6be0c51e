"""What the tests of households share: how far answers move, counted by enumeration, and a folder to run in."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import tabulae as tb


def largest_change(strategy: tb.Strategy, moved: np.ndarray) -> Fraction:
    """The largest of some changes of the answers, in fractions, to the power of the noise's norm."""
    power = strategy.norm
    answers = [np.abs(block.query @ moved.T).astype(object) ** power for block in strategy.blocks]
    weights = [Fraction(1, 2 ** (power * b.exponent)) / b.scale for b in strategy.blocks]
    sums = [a.sum(axis=0) for a in answers]
    return max(sum(w * int(s[i]) for w, s in zip(weights, sums, strict=True)) for i in range(len(moved)))


def written(folder: Path, people: pa.Table, spec: str, neighbours: str = "add-remove") -> Path:
    """A folder with records, a spec and a ledger in which nearly no noise is drawn; the path of the spec."""
    parquet.write_table(people, folder / "people.parquet")
    (folder / "spec.toml").write_text(spec)
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP(10**8), neighbours=neighbours, unit="household")  # type: ignore[arg-type]
    return folder / "spec.toml"
