"""From cells of a spec's domain to records as its source would hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..domain import Attribute
from ..errors import Unsupported
from ..spec import Spec

Raw = int | str | None


@dataclass(frozen=True)
class Column:
    """A column of the records: the values that it may hold, and the codes that each stands for.

    ``axes`` are the attributes that are read from it (k of them); ``codes`` has shape (values, k).
    """

    name: str
    values: tuple[Raw, ...]
    axes: tuple[int, ...]
    codes: np.ndarray

    @property
    def numeric(self) -> bool:
        """Whether its values are whole numbers."""
        return not any(isinstance(value, str) for value in self.values)


@dataclass(frozen=True)
class Layout:
    """The columns of a spec's records. A record is a pick of one value in each: integers, shape (columns,)."""

    columns: tuple[Column, ...]
    attributes: int

    @classmethod
    def of(cls, spec: Spec) -> Layout:
        """The columns that the spec's attributes are read from, each once.

        Raises :class:`~tabulae.errors.Unsupported` where several attributes share a column and no value fits
        them all, or where the column of ids is also counted.
        """
        axes: dict[str, list[int]] = {}
        for axis, attribute in enumerate(spec.domain.attributes):
            axes.setdefault(spec.columns[attribute.name].name, []).append(axis)
        if spec.unit_id in axes:
            raise Unsupported(
                f"column {spec.unit_id!r} is both counted and the unit_id: the audit cannot invent records for that"
            )
        columns = tuple(_column(spec, name, tuple(found)) for name, found in axes.items())
        return cls(columns, len(spec.domain.attributes))

    def codes(self, picks: np.ndarray) -> np.ndarray:
        """The cells (records, attributes) of records (records, columns)."""
        codes = np.zeros((len(picks), self.attributes), dtype=np.int64)
        for position, column in enumerate(self.columns):
            codes[:, list(column.axes)] = column.codes[picks[:, position]]
        return codes

    def pick(self, cell: Sequence[int]) -> np.ndarray | None:
        """A record (columns,) that falls in a cell; None where none can."""
        pick = []
        for column in self.columns:
            wanted = np.array([cell[axis] for axis in column.axes])
            hits = np.flatnonzero((column.codes == wanted).all(axis=1))
            if not hits.size:
                return None
            pick.append(int(hits[0]))
        return np.array(pick, dtype=np.int64)

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Records (count, columns) drawn unevenly: few values are common, most are rare, some never occur."""
        picks = np.zeros((count, len(self.columns)), dtype=np.int64)
        for position, column in enumerate(self.columns):
            share = 1.0 / np.arange(1, len(column.values) + 1) ** 1.5
            order = rng.permutation(len(column.values))
            picks[:, position] = order[rng.choice(len(order), size=count, p=share / share.sum())]
        return picks


def _column(spec: Spec, name: str, axes: tuple[int, ...]) -> Column:
    attributes = [spec.domain.attributes[axis] for axis in axes]
    if len(attributes) == 1:
        pairs = _values(spec, attributes[0])
        values = tuple(value for value, _ in pairs)
        return Column(name, values, axes, np.array([[code] for _, code in pairs], dtype=np.int64))
    listed = [{str(value): code for value, code in _listed(spec, a)} for a in attributes]
    shared = [text for text in listed[0] if all(text in codes for codes in listed)]
    if not shared:
        names = ", ".join(repr(a.name) for a in attributes)
        raise Unsupported(
            f"attributes {names} are all read from column {name!r}, and no value is listed by each"
        )
    numeric = all(attribute.numeric for attribute in attributes)
    codes = np.array([[codes[text] for codes in listed] for text in shared], dtype=np.int64)
    return Column(name, tuple(int(text) if numeric else text for text in shared), axes, codes)


def _listed(spec: Spec, attribute: Attribute) -> list[tuple[int | str, int]]:
    """The values that the attribute lists, with their codes."""
    extra = spec.columns[attribute.name].has_other
    values = attribute.values[:-1] if extra else attribute.values
    return [(value, code) for code, value in enumerate(values)]


def _values(spec: Spec, attribute: Attribute) -> list[tuple[Raw, int]]:
    """Also NULL, or a value that is not listed, where a policy counts those."""
    rule = spec.columns[attribute.name]
    pairs: list[tuple[Raw, int]] = [*_listed(spec, attribute)]
    other = attribute.size - 1
    if rule.unknown == "other":
        pairs.append((_unlisted(attribute), other))
    if rule.null == "other":
        pairs.append((None, other))
    return pairs


def _unlisted(attribute: Attribute) -> int | str:
    if attribute.numeric:
        return max(int(value) for value in attribute.values) + 1
    text = "unlisted"
    while text in attribute.values:
        text += "+"
    return text
