"""The queries of one attribute in a table: a word, a width or a file, as a matrix."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ..domain import View
from ..linalg import (
    AllRange,
    Dense,
    Identity,
    LinearOperator,
    Partition,
    Prefix,
    Product,
    Stack,
    Total,
    WidthRange,
)
from .lines import KeyPath
from .problems import (
    Problems,
    nearest,
    shown,
)
from .published import MATRICES
from .schema import OTHER, Schema

_RANGES = {"prefix": Prefix, "ranges": AllRange}
_QUERIES = ("identity", "prefix", "ranges", "total")
_FORMS = 'write "identity", "prefix", "ranges", "total", { width = 32 } or { matrix = "w.npy" }'


class Queries:
    """Builds matrices one at a time, recording what is wrong with each; keeps the files they came from."""

    def __init__(self, schema: Schema, base: Path, problems: Problems) -> None:
        self.schema = schema
        self.base = base
        self.problems = problems
        self.files: dict[str, bytes] = {}

    def factor(
        self, asked: tuple[str, str], query: object, view: View, path: KeyPath
    ) -> LinearOperator | None:
        """The matrix that a query is, one column a category of the base attribute.

        Args:
            asked: the table, and the attribute or recode in it.
            query: as the document has it.
            view: what the attribute or recode stands for.
            path: the key that asks.
        """
        classes = len(view.labels)
        if query == "identity":
            return view.operator
        if query == "total":
            return Total(view.attribute.size)
        if isinstance(query, str) and query not in _QUERIES:
            self.problems.add(path, f"{shown(query)} is no query; {nearest(query, _QUERIES)}")
            return None
        if not isinstance(query, str) and (not isinstance(query, dict) or len(query) != 1):
            self.problems.add(path, f"{shown(query)} is no query; {_FORMS}")
            return None
        if isinstance(query, dict) and "matrix" in query:
            over = self.matrix(asked, query["matrix"], classes, (*path, "matrix"))
        else:
            apart = self.schema.columns[view.attribute.name].has_other and view.labels[-1] == OTHER
            over = self.ranges(query, classes - apart, path)
            if over is not None and apart:
                return _beside_other(over, view)
        if over is None or isinstance(view.operator, Identity):
            return over
        return Product(over, view.operator)

    def ranges(self, query: str | dict[str, object], cells: int, path: KeyPath) -> LinearOperator | None:
        """Prefixes, all ranges, or the ranges of one width, over neighbouring cells."""
        if isinstance(query, str):
            return _RANGES[query](cells)
        [(key, width)] = query.items()
        if key != "width":
            self.problems.add((*path, key), f"unknown query; {_FORMS}")
        elif not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= cells:
            self.problems.add((*path, key), f"must be a whole number from 1 to {cells}, not {shown(width)}")
        else:
            return WidthRange(cells, width)
        return None

    def matrix(
        self, asked: tuple[str, str], file: object, cells: int, path: KeyPath
    ) -> LinearOperator | None:
        """A matrix of queries from a ``.npy`` file, one column a category."""
        if not isinstance(file, str):
            self.problems.add(path, f"must name a .npy file, not {shown(file)}")
            return None
        try:
            content = (self.base / file).read_bytes()
            array = np.load(io.BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = getattr(error, "strerror", None) or "it is no .npy file of numbers"
            self.problems.add(path, f"cannot read {shown(file)}: {reason}")
            return None
        if (
            not isinstance(array, np.ndarray)
            or array.ndim != 2
            or array.dtype.kind not in "biuf"
            or not np.isfinite(array).all()
        ):
            self.problems.add(path, f"{file} must hold one matrix of finite numbers")
            return None
        if array.shape[1] != cells or not array.shape[0]:
            self.problems.add(
                path,
                f"{file} needs rows, and a column for each of the {cells} categories of {shown(asked[1])}: "
                f"its shape is {array.shape}",
            )
            return None
        if not array.any(axis=1).all():
            self.problems.add(path, f"{file} has a row of zeros, which counts nothing: remove it")
            return None
        self.files[MATRICES.format(table=asked[0], attribute=asked[1])] = content
        return Dense(_whole(array))


def _beside_other(ranges: LinearOperator, view: View) -> Stack:
    """Ranges of the ordered classes, then one row for the extra category, which is no neighbour of any."""
    last = ranges.shape[1]
    classes = view.operator.classes if isinstance(view.operator, Partition) else np.arange(last + 1)
    ordered = Partition(np.where(classes < last, classes, -1), last)
    other = Partition(np.where(classes == last, 0, -1), 1)
    return Stack((Product(ranges, ordered), other))


def _whole(array: np.ndarray) -> np.ndarray:
    """The matrix in whole numbers where it has no others, so that it is counted exactly."""
    numbers = array.astype(np.float64)
    whole = (numbers == np.rint(numbers)).all() and np.abs(numbers).max() < 2**53
    return numbers.astype(np.int64) if whole else numbers
