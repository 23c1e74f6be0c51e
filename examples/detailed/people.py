"""Invented people with one or two occupations, for examples/detailed.toml: no record is of anybody.

Run ``python examples/detailed/people.py examples/people.csv``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def _codes(name: str) -> list[str]:
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return [row["code"] for row in csv.DictReader(file)]


def people(count: int, seed: int) -> list[tuple[str, str, int, str, str]]:
    """District, sex, age and occupations of invented people: some occupations are common, most are rare."""
    rng = np.random.default_rng(seed)
    districts, occupations = _codes("districts.csv"), _codes("occupations.csv")
    size = rng.dirichlet(np.full(len(districts), 3.0))
    commonness = 1 / np.arange(1, len(occupations) + 1) ** 1.3
    share = rng.permutation(commonness) / commonness.sum()
    district = rng.choice(len(districts), count, p=size)
    sex = rng.integers(2, size=count)
    age = rng.integers(15, 80, size=count)
    first = rng.choice(len(occupations), count, p=share)
    second = np.where(rng.random(count) < 0.08, rng.choice(len(occupations), count, p=share), -1)
    return [
        (districts[d], "FM"[s], int(a), occupations[one], occupations[two] if two >= 0 else "")
        for d, s, a, one, two in zip(district, sex, age, first, second, strict=True)
    ]


def main(path: str) -> None:
    """Write 60,000 of them."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("district", "sex", "age", "occupation1", "occupation2"))
        writer.writerows(people(60_000, seed=6))


if __name__ == "__main__":
    main(sys.argv[1])
