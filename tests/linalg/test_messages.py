"""Bad input is refused with what was wrong, where, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from tests.each import each

from tabulae.errors import InvalidArgument, TabulaeError, Unsupported
from tabulae.linalg import (
    AllRange,
    Dense,
    Identity,
    Kron,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Sum,
    Total,
    WidthRange,
    merge_columns,
    weighted_sensitivity,
)

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Identity(0), r"Identity\(n\): n must be at least 1, not 0"),
    (lambda: Total(2.5), "must be an integer of at least 1, not 2.5"),
    (lambda: Prefix(True), "not True"),
    (lambda: AllRange("4"), "not '4'"),
    (lambda: WidthRange(3, 4), "width 4 exceeds the 3 cells"),
    (lambda: WidthRange(3, 0), "width must be at least 1"),
    (lambda: Permuted(Prefix(3), [0, 1]), r"each of 0 \.\. 2 once"),
    (lambda: Permuted(Prefix(3), [0, 1, 1]), r"each of 0 \.\. 2 once"),
    (lambda: Permuted(Prefix(3), [0.0, 1.0, 2.0]), r"each of 0 \.\. 2 once"),
    (lambda: Permuted(np.eye(2), [0, 1]), "wrap a matrix in Dense"),
    (lambda: Dense([1, 2]), r"2-D array, not shape \(2,\)"),
    (lambda: Dense(np.zeros((0, 3))), "non-empty"),
    (lambda: Dense([[np.nan]]), "nan or inf"),
    (lambda: Dense([[np.inf]]), "nan or inf"),
    (lambda: Dense([["a"]]), "real numbers"),
    (lambda: Dense([[1j]]), "real numbers"),
    (lambda: Dense(np.array([[2**63]], dtype=np.uint64)), r"2\^63"),
    (lambda: Dense(scipy.sparse.eye_array(2)), "use Sparse"),
    (lambda: Sparse(np.eye(2)), "use Dense"),
    (lambda: Sparse(scipy.sparse.csr_array((0, 2))), "non-empty"),
    (lambda: Scaled(Prefix(2), float("nan")), "must be finite"),
    (lambda: Scaled(Prefix(2), "2"), "must be an int, a Fraction or a float"),
    (lambda: Scaled(Prefix(2), True), "not True"),
    (lambda: Stack([]), "at least one operator"),
    (lambda: Stack([Total(2), Total(3)]), r"\[2, 3\] columns"),
    (lambda: Stack(Total(2)), r"Stack\(\[op, \.\.\.\]\)"),
    (lambda: Kron([]), "at least one operator"),
    (lambda: Kron([np.eye(2)]), "item 0 is a ndarray, not an operator"),
    (lambda: Kron(np.eye(2)), "takes a list of operators"),
    (lambda: MatrixProduct(Total(2), Prefix(3)), "left has 2 columns, right 3 rows"),
    (lambda: Sum([(1, Total(2)), (1, Prefix(2))]), "one shape"),
    (lambda: Sum([(1, np.eye(2))]), "wrap a matrix in Dense"),
    (lambda: Partition([0, 3], 3), r"-1 \.\. 2"),
    (lambda: Partition([-2, 0]), r"-1 \.\. 0"),
    (lambda: Partition([0.5]), "array of integers"),
    (lambda: Partition([]), "non-empty"),
    (lambda: merge_columns([Total(2), Total(3)]), r"\[2, 3\] cells"),
    (lambda: merge_columns([]), "at least one operator"),
    (lambda: Prefix(3).sensitivity(3), "p = 1 or p = 2, not 3"),
    (lambda: Prefix(3).sensitivity(True), "not True"),
    (lambda: Prefix(3).column_norms(0), "p = 1 or p = 2"),
    (lambda: Prefix(3).sensitivity(1, "both"), "'add-remove' or 'replace', not 'both'"),
    (lambda: weighted_sensitivity([], 1), "at least one operator"),
    (lambda: weighted_sensitivity([(Total(2), Fraction(-1))], 1), "at least 0"),
    (lambda: weighted_sensitivity([(Total(2), float("inf"))], 1), "at least 0"),
    (lambda: weighted_sensitivity([(Total(2), 1), (Total(3), 1)], 1), "over the same cells"),
    (lambda: Prefix(2) @ Prefix(2), "use Product"),
    (lambda: Prefix(2) @ np.array([2**63, 1], dtype=np.uint64), r"2\^63"),
]


@each(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_input_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        build()
    assert isinstance(caught.value, (TabulaeError, ValueError))


def test_what_is_too_large_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(Unsupported, match="256 GiB as a dense matrix"):
        AllRange(4096).dense()
    with pytest.raises(Unsupported, match="too many to label"):
        Kron([Identity(2**15), Identity(2**15)]).column_classes()
    large = [(Kron([Identity(2**20), Total(2**20)]), 1), (Kron([Total(2**10), Identity(2**30)]), 1)]
    with pytest.raises(Unsupported, match="write every block as a Kron over the same attributes"):
        weighted_sensitivity(large, 2)


def test_answers_that_could_overflow_are_refused() -> None:
    with pytest.raises(Unsupported, match="may exceed 64-bit integers"):
        _ = Prefix(4) @ np.full(4, 2**61)
    with pytest.raises(Unsupported, match="may exceed 64-bit integers"):
        _ = Dense([[2**40, 2**40]]) @ np.array([2**30, 2**30])
    with pytest.raises(Unsupported, match="multiply by it instead of writing it out"):
        Kron([Dense([[2**40]]), Dense([[2**40]])]).dense()
    assert (Prefix(4) @ np.array([2**62, 0, 0, 1]))[
        -1
    ] == 2**62 + 1  # the row sum bound alone would refuse it
