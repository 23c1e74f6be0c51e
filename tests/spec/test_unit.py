"""The unit of privacy in the document: what is understood, published and digested."""

from __future__ import annotations

import tomllib


def test_each_record_is_a_unit_unless_said_otherwise(desk) -> None:
    spec = desk.read(desk.good)
    assert (spec.unit, spec.unit_id, spec.rows_per_unit) == ("person", None, 1)
    assert "unit_id" not in spec.published_text()


def test_the_column_alone_bounds_to_one_row(desk) -> None:
    spec = desk.read(desk.changed(('unit = "person"', 'unit_id = "PID"')))
    assert (spec.unit_id, spec.rows_per_unit) == ("PID", 1)


def test_the_bound_is_published_and_read_back(desk) -> None:
    spec = desk.read(desk.changed(('unit = "person"', 'unit = "person"\nunit_id = "PID"\nrows_per_unit = 4')))
    assert tomllib.loads(spec.published_text())["source"] == {
        "kind": "csv",
        "unit": "person",
        "unit_id": "PID",
        "rows_per_unit": 4,
    }
    for name, content in spec.files.items():
        desk.file(name, content)
    again = desk.read(spec.published_text())
    assert (again.unit_id, again.rows_per_unit) == ("PID", 4)
    assert again.digest() == spec.digest()


def test_another_bound_or_column_is_another_release(desk) -> None:
    texts = ["", 'unit_id = "a"', 'unit_id = "b"', 'unit_id = "a"\nrows_per_unit = 2']
    digests = {desk.read(desk.changed(('unit = "person"', text))).digest() for text in texts}
    assert len(digests) == 4


def test_every_mistake_of_the_unit_is_told_beside_the_others(desk) -> None:
    text = desk.changed(('unit = "person"', "unit_id = 3\nrows_per_unit = 2.5"), ('"1/2"', "0.5"))
    assert [problem.path for problem in desk.problems(text)] == [
        "source.unit_id",
        "source.rows_per_unit",
        "privacy.budget",
    ]
