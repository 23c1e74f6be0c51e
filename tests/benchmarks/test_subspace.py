"""The benchmark of subspace mechanisms: a row is as it was recorded, and recorded rows keep every proven order."""

from __future__ import annotations

import csv

import pytest

from benchmarks import subspace

ERRORS = ("optimal", "correlated", "extended", "projected", "extended_laplace", "projected_laplace")


def recorded() -> list[dict[str, object]]:
    with (subspace.RESULTS / "subspace.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("name", ["random 11", "2 x 6 cells, 6 pairs"])
def test_a_row_is_as_it_was_recorded(name: str, neighbours: str) -> None:
    now = subspace.row(name, *subspace.problems()[name], neighbours)
    (then,) = [r for r in recorded() if (r["query"], r["neighbours"]) == (name, neighbours)]
    for column in ERRORS:
        assert float(str(now[column])) == pytest.approx(float(str(then[column])), rel=1e-3)
    assert now["knorm"] == then["knorm"]


def test_recorded_rows_keep_every_proven_order() -> None:
    lines = recorded()
    assert len(lines) == 2 * (subspace.RANDOM + 3)
    assert not any(subspace.disordered(line) for line in lines)
    assert all(float(str(line["certificate"])) < 1e-4 for line in lines)
    broken = {**lines[0], "correlated_ratio": "0.9"}
    assert subspace.disordered(broken)
