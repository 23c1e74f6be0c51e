"""What a document means once it is read."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.each import each

from tabulae.errors import InvalidArgument, SpecError
from tabulae.privacy import ZCDP, ApproxDP, PureDP
from tabulae.sources.source import RecordSource
from tabulae.spec import Method, Spec, read_spec


def matrix(spec: Spec, name: str) -> np.ndarray:
    """A table's matrix, written out."""
    table = next(table for table in spec.workload.tables if table.name == name)
    return np.asarray(table.operator(spec.domain).dense())


def columns(spec: Spec, name: str) -> dict[str, tuple[str, ...]]:
    return next(table for table in spec.workload.tables if table.name == name).columns(spec.domain)


def test_every_part_of_a_document(desk) -> None:
    spec = desk.read(desk.good)
    assert spec.title == "Demo county, persons"
    assert spec.source == RecordSource(desk.base / "people.csv")
    assert spec.domain.names == ("sex", "age", "race")
    assert spec.domain.shape == (2, 115, 3)
    assert spec.domain["race"].values == ("01", "02", "03")
    assert spec.domain["race"].parents == ("one", "one", "two")
    assert [recode.labels for recode in spec.domain.recodes] == [
        ("0-4", "5-9", "10-14", "15-17", "18-114"),
        ("alone", "both"),
    ]
    assert {name: rule.name for name, rule in spec.columns.items()} == {
        "sex": "SEX",
        "age": "AGE",
        "race": "RACE",
    }
    assert {(rule.unknown, rule.null, rule.has_other) for rule in spec.columns.values()} == {
        ("refuse", "refuse", False)
    }
    assert (spec.loss, spec.delta, spec.neighbours, spec.unit) == (ZCDP("1/2"), None, "add-remove", "person")
    assert spec.ledger == desk.base / "ledger.db"
    assert spec.method == Method("auto", "gaussian", "least-squares", 60, 0)
    assert spec.max_rows == 5_000_000
    assert spec.text == desk.good
    assert [table.name for table in spec.workload.tables] == ["sex_by_age", "young_or_old"]


def test_a_spec_is_frozen(desk) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        desk.read(desk.good).unit = "household"


def test_a_recode_heads_its_column_under_its_own_name(desk) -> None:
    spec = desk.read(desk.good)
    assert columns(spec, "sex_by_age") == {
        "sex": ("F", "M"),
        "age5": ("0-4", "5-9", "10-14", "15-17", "18-114"),
    }
    counts = np.arange(2 * 115 * 3)
    expected = np.add.reduceat(counts.reshape(2, 115, 3).sum(axis=2), [0, 5, 10, 15, 18], axis=1)
    np.testing.assert_array_equal(matrix(spec, "sex_by_age") @ counts, expected.ravel())


def test_sql_counts_what_it_says(desk) -> None:
    spec = desk.read(desk.good)
    counts = np.arange(2 * 115 * 3).reshape(2, 115, 3)
    expected = counts[:, :5].sum(axis=(1, 2)) + counts[:, 81:].sum(axis=(1, 2))
    np.testing.assert_array_equal(matrix(spec, "young_or_old") @ counts.ravel(), expected)


SMALL = """
[source]
path = "p.csv"
[attributes]
g = { categories = ["a", "b"] }
x = { range = [10, 15] }
[recodes]
r = { of = "x", edges = [12, 14] }
[privacy]
definition = "zcdp"
budget = "1"
ledger = "l.db"
"""

# Runs of the six values 10..15, as (first, last) positions, in the order of the interface.
ALL = [(i, j) for i in range(6) for j in range(i, 6)]


@each(
    ("query", "runs", "labels"),
    [
        ('{ x = "identity" }', [(i, i) for i in range(6)], ("10", "11", "12", "13", "14", "15")),
        ('{ x = "prefix" }', [(0, j) for j in range(6)], ("10", "10-11", "10-12", "10-13", "10-14", "10-15")),
        ('{ x = "total" }', [(0, 5)], ("_T",)),
        ("{ x = { width = 4 } }", [(0, 3), (1, 4), (2, 5)], ("10-13", "11-14", "12-15")),
        ('{ x = "ranges" }', ALL, None),
        ('{ r = "identity" }', [(0, 1), (2, 3), (4, 5)], ("10-11", "12-13", "14-15")),
        ('{ r = "prefix" }', [(0, 1), (0, 3), (0, 5)], ("10-11", "10-13", "10-15")),
        ('{ r = "ranges" }', [(0, 1), (0, 3), (0, 5), (2, 3), (2, 5), (4, 5)], None),
        ("{ r = { width = 2 } }", [(0, 3), (2, 5)], ("10-13", "12-15")),
        ('{ r = "total" }', [(0, 5)], ("_T",)),
    ],
)
def test_queries_are_runs_of_cells(
    query: str, runs: list[tuple[int, int]], labels: tuple[str, ...] | None
) -> None:
    spec = Spec.from_text(f"{SMALL}\n[[table]]\nname = 't'\nattributes = ['g']\nqueries = {query}\n")
    one = np.array([[first <= cell <= last for cell in range(6)] for first, last in runs], dtype=int)
    np.testing.assert_array_equal(matrix(spec, "t"), np.kron(np.eye(2, dtype=int), one))
    heading = query.split()[1]
    assert list(columns(spec, "t")) == ["g", heading]
    expected = tuple(str(10 + a) if a == b else f"{10 + a}-{10 + b}" for a, b in runs)
    assert columns(spec, "t")[heading] == (labels or expected)


def test_no_attributes_is_the_total() -> None:
    spec = Spec.from_text(f"{SMALL}\n[[table]]\nname = 'total'\nattributes = []\n")
    np.testing.assert_array_equal(matrix(spec, "total"), np.ones((1, 12)))


def test_a_matrix_from_a_file(desk) -> None:
    queries = np.array([[1.0, 0, 0, 0, 0, 1], [0, 2, 2, 0, 0, 0]])
    np.save(desk.base / "w.npy", queries)
    spec = desk.read(f"{SMALL}\n[[table]]\nname = 't'\nqueries = {{ x = {{ matrix = 'w.npy' }} }}\n")
    np.testing.assert_array_equal(matrix(spec, "t"), np.kron([[1, 1]], queries))
    table = spec.workload.tables[0]
    assert table.terms[0].factors["x"].integer
    assert list(spec.files) == ["queries/t/x.npy"]


def test_weights_are_exact() -> None:
    spec = Spec.from_text(f"{SMALL}\n[[table]]\nname = 't'\nattributes = []\nweight = 0.1\n")
    assert spec.workload.tables[0].weight == Fraction(1, 10)


@pytest.mark.parametrize(
    ("lines", "loss", "delta", "noise"),
    [
        (
            'definition = "zcdp"\nbudget = "2.5562"\ndelta = "1e-10"',
            ZCDP("2.5562"),
            Fraction(1, 10**10),
            "gaussian",
        ),
        ('definition = "pure"\nbudget = "542/339"', PureDP("542/339"), None, "laplace"),
        (
            'definition = "approx"\nbudget = "1"\ndelta = "1e-6"',
            ApproxDP(1, "1e-6"),
            Fraction(1, 10**6),
            "gaussian",
        ),
    ],
)
def test_promises(desk, lines: str, loss: object, delta: Fraction | None, noise: str) -> None:
    spec = desk.read(desk.changed(('definition = "zcdp"\nbudget = "1/2"', lines)))
    assert (spec.loss, spec.delta, spec.method.noise) == (loss, delta, noise)


def test_approximate_privacy_may_draw_laplace(desk) -> None:
    approx = ('definition = "zcdp"', 'definition = "approx"\ndelta = "1e-6"')
    spec = desk.read(desk.changed(approx) + '[method]\nnoise = "laplace"\n')
    assert spec.method.noise == "laplace"


def test_an_extra_category_is_the_last(desk) -> None:
    text = desk.changed(
        ("[attributes]\n", '[attributes]\nnull = "other"\n'),
        ("range = [0, 114]", 'range = [0, 114], unknown = "other"'),
        ('categories = ["F", "M"]', 'categories = ["F", "M"], null = "refuse"'),
        (" WHERE age < 5 OR age > 80", " WHERE age5 = '0-4' OR age IN (81, 82)"),
    )
    spec = desk.read(text)
    rules = spec.columns
    assert [(rules[name].unknown, rules[name].null) for name in ("sex", "age", "race")] == [
        ("refuse", "refuse"),
        ("other", "other"),
        ("refuse", "other"),
    ]
    assert spec.domain.shape == (2, 116, 4)
    assert spec.domain["age"].labels[-2:] == ("114", "other")
    assert spec.domain["age"].values[:-1] == tuple(range(115))
    assert spec.domain["race"].labels[-1] == "other"
    assert spec.domain["race"].parents == ("one", "one", "two", None)
    recodes = {recode.name: recode.labels for recode in spec.domain.recodes}
    assert recodes == {
        "age5": ("0-4", "5-9", "10-14", "15-17", "18-114", "other"),
        "major": ("alone", "both", "other"),
    }


def test_a_comparison_never_counts_the_extra_category_silently(desk) -> None:
    text = desk.changed(("range = [0, 114]", 'range = [0, 114], null = "other"'))
    [problem] = desk.problems(text)
    assert problem.path == "table[1].sql"
    assert "no order" in problem.message


@pytest.mark.parametrize(("query", "first"), [('{ x = "prefix" }', "10"), ('{ r = "prefix" }', "10-11")])
def test_ranges_leave_the_extra_category_by_itself(query: str, first: str) -> None:
    text = SMALL.replace("range = [10, 15]", 'range = [10, 15], unknown = "other"')
    spec = Spec.from_text(f"{text}\n[[table]]\nname = 't'\nqueries = {query}\n")
    of_x = matrix(spec, "t")[:, :7]
    ends = [j for j in range(6) if query != '{ r = "prefix" }' or j % 2]
    expected = [[cell <= last and cell < 6 for cell in range(7)] for last in ends] + [[0] * 6 + [1]]
    np.testing.assert_array_equal(of_x, np.array(expected, dtype=int))
    labels = columns(spec, "t")[query.split()[1]]
    assert (labels[0], labels[-2], labels[-1]) == (first, "10-15", "other")


def test_categories_may_be_whole_numbers() -> None:
    spec = Spec.from_text(
        SMALL.replace('["a", "b"]', "[3, 1]") + "\n[[table]]\nname = 't'\nattributes = ['g']\n"
    )
    assert spec.domain["g"].values == (3, 1)
    assert not spec.domain["g"].ordered


def test_paths_are_relative_to_the_document(desk) -> None:
    desk.file("spec.toml", desk.good)
    spec = read_spec(desk.base / "spec.toml")
    assert (spec.path, spec.source.path) == (desk.base / "spec.toml", desk.base / "people.csv")
    assert spec.ledger == desk.base / "ledger.db"


def test_a_document_saved_by_a_windows_editor(desk) -> None:
    desk.file("spec.toml", b"\xef\xbb\xbf" + desk.good.replace("\n", "\r\n").encode())
    assert read_spec(desk.base / "spec.toml").domain == desk.read(desk.good).domain


@pytest.mark.parametrize(
    ("path", "table", "expected"),
    [
        ("/data/p.parquet", None, RecordSource("/data/p.parquet")),
        ("p.duckdb", "persons", RecordSource("p.duckdb", table="persons")),
        ("p.txt", None, RecordSource("p.txt", "csv")),
    ],
)
def test_another_source(desk, path: str, table: str | None, expected: RecordSource) -> None:
    spec = desk.read(desk.good)
    other = spec.with_source(path, table)
    assert other.source == expected
    assert other.workload == spec.workload


def test_another_source_must_name_its_table(desk) -> None:
    with pytest.raises(InvalidArgument, match="table"):
        desk.read(desk.good).with_source("p.duckdb")


@pytest.mark.parametrize("ending", [".duckdb", ".db"])
def test_a_duckdb_source(desk, ending: str) -> None:
    spec = desk.read(
        desk.changed(('path = "people.csv"', f'path = "p{ending}"\ntable = "persons"\nengine = "duckdb"'))
    )
    assert spec.source == RecordSource(desk.base / f"p{ending}", table="persons")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_spec(tmp_path / "absent.toml")


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_bytes(b"title = 'x'\n# caf\xe9\n")
    with pytest.raises(SpecError, match=r"line 2.*UTF-8"):
        read_spec(tmp_path / "spec.toml")
