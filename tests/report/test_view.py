"""A view refuses what would print a number beside the wrong label."""

from __future__ import annotations

import dataclasses

import pytest

from tabulae.errors import InvalidArgument
from tabulae.report.rows import ROWS_SHOWN


def test_arrays_of_unequal_length_are_refused(made_up):
    table = made_up().tables[1]
    with pytest.raises(InvalidArgument, match="std_error has 11 entries, estimate has 12"):
        dataclasses.replace(table, std_error=table.std_error[:-1])


def test_too_few_labels_are_refused(made_up):
    table = made_up().tables[1]
    with pytest.raises(InvalidArgument, match="'sex' has 3 labels for 12 rows"):
        dataclasses.replace(table, columns={"sex": ["F", "M", "F"]})


def test_the_first_labels_suffice(made_up):
    table = made_up().tables[3]
    shorter = dataclasses.replace(table, columns={"age": table.columns["age"][:ROWS_SHOWN]})
    assert shorter.rows == 820
