"""Where leaves are on a map, if the public file of a geography says so in columns x and y."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

AXES = ("x", "y")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def read_places(columns: Mapping[str, np.ndarray], kept: np.ndarray) -> np.ndarray | None:
    """Shape (leaves on the spine, 2): where each is; None where the file has no such columns, or a gap in them.

    Args:
        columns: of the file, as text.
        kept: shape (leaves of the file,): which of them are on the spine.

    >>> text = {"x": np.array(["1", "", "3e1"], object), "y": np.array(["-.5", None, "2"], object)}
    >>> read_places(text, np.array([True, False, True])).tolist()
    [[1.0, -0.5], [30.0, 2.0]]
    >>> read_places(text, np.ones(3, bool)) is None
    True
    """
    if not all(axis in columns for axis in AXES):
        return None
    found = np.array([[_number(text) for text in columns[axis][kept].tolist()] for axis in AXES]).T
    return found if np.isfinite(found).all() else None


def only_numbers(column: np.ndarray) -> np.ndarray:
    """The cells of an axis that are numbers; None in place of the others."""
    return np.array([text if np.isfinite(_number(text)) else None for text in column.tolist()], object)


def _number(text: str | None) -> float:
    return float(text) if text and _NUMBER.fullmatch(text) else np.nan
