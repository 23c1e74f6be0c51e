"""Which columns of a Kronecker product coincide.

A column of a product is the product of the factors' columns. Write each factor's column as a number times
a primitive vector (greatest common divisor 1, first entry that is not 0 positive). Products of primitive
vectors are primitive and determine their factors, so two columns coincide exactly when their primitive
vectors agree factor by factor and the products of their numbers agree; columns of zeros coincide always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import Unsupported
from .merge import (
    classes_of_rows,
    joint_classes,
    renumber,
    representatives,
)
from .numbers import INT64_LIMIT
from .operator import LinearOperator

_LABEL_LIMIT = 2**28  # columns that a label each can be given to
_ENTRY_LIMIT = 2**26  # entries of a factor that may be written out to find common multiples


def kron_classes(ops: Sequence[LinearOperator]) -> np.ndarray:
    """Class labels of the columns of the Kronecker product of ``ops``, numbered by first appearance."""
    size = math.prod(op.shape[1] for op in ops)
    if size > _LABEL_LIMIT:
        raise Unsupported(f"{size} columns are too many to label one by one: merge columns factor by factor")
    labels, zero = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool)
    scales = np.ones(1, dtype=np.int64)
    for op in ops:
        label, scale = _directions(op)
        nothing = op.column_norms(1) == 0
        labels = renumber((labels[:, None] * (int(label.max()) + 1) + label).reshape(-1))
        zero = (zero[:, None] | nothing).reshape(-1)
        if scales.dtype != object and int(np.abs(scales).max()) * int(np.abs(scale).max()) >= INT64_LIMIT:
            scales = scales.astype(object)
        scales = np.multiply.outer(scales, scale).reshape(-1)
    labels = joint_classes([labels, np.unique(scales, return_inverse=True)[1]])
    labels[zero] = labels.max() + 1
    return renumber(labels)


def _directions(op: LinearOperator) -> tuple[np.ndarray, np.ndarray]:
    """A label for the direction of each column, and its length along that direction."""
    labels = op.column_classes()
    ones = np.ones(len(labels), dtype=np.int64)
    first = representatives(labels)
    if op.binary or not op.integer or op.shape[0] * len(first) > _ENTRY_LIMIT:
        return labels, ones
    columns = op.columns(first)
    lengths = np.gcd.reduce(columns, axis=0)
    leading = columns[(columns != 0).argmax(axis=0), np.arange(len(first))]
    lengths = np.where(leading < 0, -lengths, lengths)
    lengths[lengths == 0] = 1
    return classes_of_rows((columns // lengths).T)[labels], lengths[labels]
