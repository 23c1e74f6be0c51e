"""Whole numbers that may not overflow, and the checks of what comes in; no message holds one of them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...domain import Attribute, Domain
from ...errors import InvalidArgument, Unsupported
from ...linalg import (
    Contrasts,
    Dense,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Scaled,
    Stack,
    Sum,
    multiply_slices,
    representatives,
    split_kron,
)
from ...sources.coding import ColumnCoding, changed, check_counted, coded, misfits, nameless, refusal
from ...sources.failures import redacted
from ...sources.households import Seating
from ...sources.source import ID, RecordSource, open_records, open_units
from ...sources.units import UnitRule, bounded, identified, left_out, most_counted
from .needs import VECTOR_LIMIT

if TYPE_CHECKING:
    import pyarrow as pa


Integers = NDArray[np.int64]

#: Answers of this size are refused, so that noise can be added to them without overflow.
ANSWER_LIMIT = 2**62
#: Cells that are looked at together.
BLOCK = 2**16


def check_codes(domain: Domain, cells: ArrayLike) -> NDArray[Any]:
    """Codes of shape (records, attributes), each of a category that exists."""
    codes = np.asarray(cells)
    width = len(domain.shape)
    if codes.ndim == 1 and codes.size == 0:
        codes = np.zeros((0, width), dtype=np.int64)
    if codes.ndim != 2 or codes.shape[1] != width:
        raise InvalidArgument(
            f"codes must have one row a record and one column for each of {', '.join(domain.names)}: shape "
            f"(records, {width}), not {codes.shape}"
        )
    if codes.dtype.kind not in "iu":
        raise InvalidArgument(f"codes must be integers, the positions of categories, not dtype {codes.dtype}")
    for axis, attribute in enumerate(domain.attributes):
        column = codes[:, axis]
        if column.size and (column.min() < 0 or column.max() >= attribute.codes):
            outside = column[(column < 0) | (column >= attribute.codes)]
            kind = "number of its grid" if attribute.steps else "category"
            raise InvalidArgument(
                f"codes of {attribute.name!r} must lie in 0..{attribute.codes - 1}, and some do not: code k "
                f"stands for the k-th {kind}",
                confidential=f"{outside.size} codes of {attribute.name!r} are outside, such as {outside[0]}",
            )
    return codes


def check_whole(array: NDArray[Any], what: str) -> Integers:
    """A fresh int64 array of non-negative whole numbers, or an error that holds none of them."""
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{what} must be numbers, not dtype {array.dtype}")
    if array.size:
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
            raise InvalidArgument(f"{what} must be whole numbers; some are fractions or not finite")
        if array.min() < 0:
            raise InvalidArgument(f"{what} must not be negative, and some are")
        if array.max() >= (2**53 if array.dtype.kind == "f" else 2**62):
            raise InvalidArgument(f"{what} must be below 2^62 (2^53 for floats), and some are not")
    whole = array.astype(np.int64)
    if exact_sum(whole) >= ANSWER_LIMIT:
        raise InvalidArgument(f"{what} must add up to less than 2^62")
    return whole


def exact_sum(x: Integers) -> int:
    """The sum as a Python integer, which cannot overflow."""
    return (int((x >> 32).sum()) << 32) + int((x & 0xFFFFFFFF).sum())


def check_bound(op: LinearOperator, bound: int) -> int:
    """The bound on answers of ``op``, if 64-bit integers hold them with room for noise."""
    if bound >= ANSWER_LIMIT:
        raise Unsupported(
            f"answers of {op!r} could reach 2^62, where 64-bit integers end: round the matrix to a coarser "
            "grid (a smaller scale exponent), or divide the query into smaller ones"
        )
    return bound


def added_up(index: Integers, people: Integers | None, size: int) -> Integers:
    """``x[i] = sum of people[j] over j with index[j] == i``, exactly."""
    if people is None:
        return np.bincount(index, minlength=size).astype(np.int64, copy=False)
    if exact_sum(people) < 2**53:  # float64 holds every partial sum
        return np.bincount(index, weights=people, minlength=size).astype(np.int64)
    x = np.zeros(size, dtype=np.int64)
    np.add.at(x, index, people)
    return x


def in_parts(domain: Domain, codes: NDArray[Any], people: Integers) -> tuple[NDArray[Any], Integers]:
    """Records as the parts that they have in the corners of the box of their measured values: codes, and numbers.

    Of a value they are what :meth:`Attribute.shares` says: whole numbers, that are not rounded and add up to
    ``domain.parts`` a record.
    """
    check_parts(domain, exact_sum(people))
    for axis, attribute in enumerate(domain.attributes):
        if attribute.steps:
            shares = attribute.shares(codes[:, axis].astype(np.int64), np.where)
            corner = np.repeat(np.arange(len(shares)), len(codes))
            people = np.concatenate([people * share for share in shares])
            codes = np.concatenate([codes] * len(shares))
            codes[:, axis] = corner
    return codes, people


def check_parts(domain: Domain, records: int) -> None:
    """Refuse so many records that 64-bit integers do not hold their parts."""
    if domain.parts > 1 and records * domain.parts >= ANSWER_LIMIT:
        parts = " x ".join(f"{a.parts:,} ({a.name})" for a in domain.measured)
        raise Unsupported(
            f"each record is counted in {parts} parts, and for all records that is more than 64-bit integers hold: "
            "choose a larger step under [values]",
            confidential=f"{records} records, which may have up to {ANSWER_LIMIT // max(1, records)} parts",
        )


def groups_of(domain: Domain) -> list[range]:
    """Runs of attributes that have fewer than 2^62 cells together, so that one int64 can name the cell."""
    groups, start, size = [], 0, 1
    for axis, n in enumerate(domain.shape):
        if size * n >= 2**62:
            groups.append(range(start, axis))
            start, size = axis, 1
        size *= n
    return [*groups, range(start, len(domain.shape))]


def keys_of(domain: Domain, codes: NDArray[Any]) -> tuple[Integers, ...]:
    """The cells in C order within each group of attributes: lexicographic keys of the cells."""
    keys = []
    for group in groups_of(domain):
        key = np.zeros(codes.shape[0], dtype=np.int64)
        for axis in group:
            key = key * domain.shape[axis] + codes[:, axis].astype(np.int64)
        keys.append(key)
    return tuple(keys)


@dataclass(frozen=True, repr=False, eq=False)
class Vector:
    """A count for every cell, in C order."""

    x: Integers

    def __post_init__(self) -> None:
        self.x.setflags(write=False)

    def total(self) -> int:
        return exact_sum(self.x)

    def answer(self, domain: Domain, op: LinearOperator) -> tuple[Integers, int]:
        bound = check_bound(op, op.bound(self.x))
        return op @ self.x, bound

    def blocks(self) -> Iterator[tuple[tuple[Integers, ...], Integers]]:
        cells = np.flatnonzero(self.x)
        for start in range(0, cells.size, BLOCK):
            block = cells[start : start + BLOCK]
            yield (block,), self.x[block]


def check_room(size: int, what: str) -> None:
    """Refuse an array of ``size`` bytes that takes more than half of the machine's memory.

    The other half is for what is computed from it: estimates of as many numbers.
    """
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 2 * size > memory:
        raise Unsupported(
            f"{what} take {size / 2**30:.1f} GiB, more than half of this machine's {memory / 2**30:.0f} GiB of memory: "
            'measure fewer attributes together (recode them, or select = "workload", "marginals" or "residual", which '
            "measure each table by itself), or run on a machine with more"
        )


CELL_LIMIT = 2**32
"""Cells over which a product is answered slice by slice; the answers must fit the machine's memory."""


def answer_in_slices(op: Kron, index: Integers, people: Integers) -> tuple[Integers, int]:
    """``A x`` for ``x[i] = sum of people[j] over j with index[j] == i``, and a bound on it, below 2^62.

    Of x a slice exists at a time. Memory: the answers, 8 bytes each, and about 0.5 GiB.

    Privacy:
        Exact and confidential, as what it is made of.
    """
    if not np.all(index[1:] > index[:-1]):
        order = np.argsort(index, kind="stable")
        index, people = index[order], people[order]
        first = np.flatnonzero(np.diff(index, prepend=-1))
        index, people = index[first], np.add.reduceat(people, first) if first.size else people
    bound = check_bound(op, _bound(op, people))
    check_room(8 * op.shape[0], f"the answers of {op!r}")
    parts = split_kron(op)
    if parts is None:
        raise Unsupported(
            f"{op!r} is over {op.shape[1]:.3g} cells, and no part of it is small enough for a slice of them: "
            "write the large attribute as two"
        )
    width = parts[1].shape[1]

    def rows(start: int, stop: int) -> Integers:
        ends = np.searchsorted(index, (start * width, stop * width))
        part = slice(*ends)
        cells = added_up(index[part] - start * width, people[part], (stop - start) * width)
        return cells.reshape(stop - start, width)

    return multiply_slices(*parts, rows), bound


def _bound(op: LinearOperator, people: Integers) -> int:
    largest = int(people.max(initial=0))
    return min(largest * int(op.abs_row_sum_max()), exact_sum(people) * max(1, int(op.abs_entry_max())))


_MOST_FACTOR_ENTRIES = 2**24


@dataclass(frozen=True, repr=False, eq=False)
class ListedCells:
    """The cells that are not empty, in C order: their keys (see `keys`), and how many records each has."""

    keys: tuple[Integers, ...]
    counts: Integers

    @classmethod
    def of(cls, domain: Domain, keys: tuple[Integers, ...], people: Integers | None) -> ListedCells:
        """Sort, add up what falls in one cell, and drop the empty ones."""
        counts = np.ones(keys[0].size, dtype=np.int64) if people is None else people
        order = np.lexsort(keys[::-1])
        order = order[counts[order] > 0]
        keys = tuple(key[order] for key in keys)
        first = np.ones(order.size, dtype=bool)
        if order.size:
            first[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(counts[order], starts) if order.size else counts[:0]
        return cls(tuple(key[starts] for key in keys), sums)

    def total(self) -> int:
        return exact_sum(self.counts)

    def blocks(self) -> Iterator[tuple[tuple[Integers, ...], Integers]]:
        for start in range(0, self.counts.size, BLOCK):
            part = slice(start, start + BLOCK)
            yield tuple(key[part] for key in self.keys), self.counts[part]

    def answer(self, domain: Domain, op: LinearOperator) -> tuple[Integers, int]:
        if isinstance(op, Scaled) and isinstance(op.factor, int):
            values, bound = self.answer(domain, op.op)
            bound = check_bound(op, bound * abs(op.factor))
            return values * op.factor, bound
        if isinstance(op, Stack):
            parts = [self.answer(domain, part) for part in op.ops]
            return np.concatenate([values for values, _ in parts]), max(bound for _, bound in parts)
        if isinstance(op, Sum):
            terms = [(int(c), self.answer(domain, part)) for c, part in op.terms]
            bound = check_bound(op, sum(abs(c) * bound for c, (_, bound) in terms))
            return sum((c * values for c, (values, _) in terms), np.zeros(op.shape[0], np.int64)), bound
        if isinstance(op, Contrasts):
            op = op.composed
        if isinstance(op, MatrixProduct):
            values, _ = self.answer(domain, op.right)
            bound = check_bound(op, op.left.bound(values))
            return op.left @ values, bound
        return self._answer_product(domain, _factors(domain, op))

    def _answer_product(self, domain: Domain, factors: tuple[LinearOperator, ...]) -> tuple[Integers, int]:
        classes = {factor: factor.column_classes() for factor in dict.fromkeys(factors)}
        widths = [int(classes[factor].max()) + 1 for factor in factors]
        size = math.prod(widths)
        if size > CELL_LIMIT:
            raise _too_large(domain, widths, size)
        index = np.zeros(self.counts.size, dtype=np.int64)
        for axis, (factor, width) in enumerate(zip(factors, widths, strict=True)):
            if width > 1:
                index = index * width + classes[factor][self._codes(domain, axis)]
        merged = Kron(tuple(_merged(factor, classes[factor]) for factor in factors))
        if size > VECTOR_LIMIT:
            return answer_in_slices(merged, index, self.counts)
        return Vector(added_up(index, self.counts, size)).answer(domain, merged)

    def _codes(self, domain: Domain, axis: int) -> Integers:
        for key, group in zip(self.keys, groups_of(domain), strict=True):
            if axis in group:
                stride = math.prod(domain.shape[axis + 1 : group.stop])
                return key // stride % domain.shape[axis]
        raise AssertionError("every attribute is in a group")


def _factors(domain: Domain, op: LinearOperator) -> tuple[LinearOperator, ...]:
    factors = tuple(op.flat()) if isinstance(op, Kron) else (op,)
    if tuple(factor.shape[1] for factor in factors) != domain.shape:
        raise Unsupported(
            f"{domain!r} has {domain.size} cells, which are not written out, so that its counts answer Kron "
            f"products with one factor an attribute only (stacked, added or scaled): {op!r} is not one"
        )
    return factors


def _merged(factor: LinearOperator, classes: Integers) -> LinearOperator:
    """The matrix with one column of each class of equal ones."""
    first = representatives(classes)
    if first.size == factor.shape[1]:
        return factor
    if factor.shape[0] * first.size <= _MOST_FACTOR_ENTRIES:
        return Dense(factor.columns(first))
    chosen = np.full(factor.shape[1], -1, dtype=np.int64)
    chosen[first] = np.arange(first.size)
    return MatrixProduct(factor, Partition(chosen, first.size).T)


def _too_large(domain: Domain, widths: list[int], size: int) -> Unsupported:
    widest = sorted(zip(widths, domain.names, strict=True), reverse=True)
    told = ", ".join(f"{name} ({count} classes)" for count, name in widest[:4] if count > 1)
    return Unsupported(
        f"a query over {told} needs a vector of {size:.3g} cells, after cells that it cannot tell apart are "
        f"merged; the limit is {CELL_LIMIT:.2g}. Ask for fewer of these attributes together, or choose a "
        'method that measures each table by itself, such as select = "workload"'
    )


class Counts:
    """How many records fall in each cell of a domain. Confidential.

    Stored as a vector over the cells where the domain has at most 5e7 of them, and otherwise as the list of
    the cells that are not empty. Make one with `from_array`, `from_records` or `from_cells`. ``left_out`` is how many
    units have more records than are counted, and how many of their records were left out, shape (2,); None where
    nobody counted that.

    Example:
        >>> domain = Domain({"sex": ["F", "M"], "age": 3})
        >>> counts = Counts.from_records(domain, [[0, 2], [1, 0], [0, 2]])
        >>> counts
        Counts(Domain(sex: 2, age: 3), confidential)
    """

    __slots__ = ("_domain", "_storage", "left_out")

    def __init__(
        self, domain: Domain, storage: Vector | ListedCells, left_out: Integers | None = None
    ) -> None:
        self._domain = domain
        self._storage = storage
        self.left_out = left_out

    @classmethod
    def from_array(cls, domain: Domain, x: ArrayLike) -> Counts:
        """Counts given cell by cell, in C order: shape ``(domain.size,)`` or ``domain.shape``.

        With measured values these are parts of records, ``domain.parts`` of each.

        Args:
            domain: the public domain.
            x: non-negative whole numbers (floats only where they are whole); the array is copied.

        Raises:
            InvalidArgument: for another shape, or for anything but non-negative whole numbers.

        Example:
            >>> Counts.from_array(Domain({"sex": ["F", "M"]}), [3, 4]).total
            7
        """
        array = np.asarray(x)
        if array.shape not in ((domain.size,), domain.shape):
            raise InvalidArgument(
                f"Counts.from_array: the array has shape {array.shape}, and the domain has {domain.size} "
                f"cells: pass shape ({domain.size},) or {domain.shape}"
            )
        vector = check_whole(array.reshape(-1), "Counts.from_array: counts")
        corners = tuple(axis for axis, attribute in enumerate(domain.attributes) if attribute.steps)
        if corners and (vector.reshape(domain.shape).sum(axis=corners) % domain.parts).any():
            raise InvalidArgument(
                f"Counts.from_array: a record is {domain.parts:,} parts, and some cells have no whole "
                "records: pass counts of parts, or make them by Counts.from_records"
            )
        return cls(domain, Vector(vector))

    @classmethod
    def from_records(cls, domain: Domain, codes: ArrayLike) -> Counts:
        """Counts of records given by their codes: one row a record, one column an attribute.

        Args:
            domain: the public domain, of any size.
            codes: integers, shape (records, attributes); code k is the k-th category, and of a measured value the
                k-th number of its grid.

        Raises:
            InvalidArgument: for another shape or dtype, or a code that no category has.

        Example:
            >>> from tabulae.linalg import Identity, Kron, Total
            >>> domain = Domain({"sex": ["F", "M"], "age": 3})
            >>> Counts.from_records(domain, [[0, 2], [1, 0]]).answer(Kron([Identity(2), Total(3)])).tolist()
            [1, 1]
        """
        return cls.from_cells(domain, codes, None)

    @classmethod
    def from_cells(
        cls, domain: Domain, cells: ArrayLike, counts: ArrayLike | None, left_out: Integers | None = None
    ) -> Counts:
        """Counts of the cells that are not empty; cells given twice are added.

        Args:
            domain: the public domain, of any size.
            cells: integer codes, shape (k, attributes).
            counts: non-negative whole numbers, shape (k,); None counts each row once.
            left_out: see :class:`Counts`.

        Raises:
            InvalidArgument: for another shape or dtype, or a code that no category has.

        Example:
            >>> Counts.from_cells(Domain({"sex": ["F", "M"]}), [[1], [1]], [2, 3]).total
            5
        """
        codes = check_codes(domain, cells)
        people = None
        if counts is not None:
            people = check_whole(np.asarray(counts), "Counts.from_cells: counts")
            if people.shape != codes.shape[:1]:
                raise InvalidArgument(
                    f"Counts.from_cells: {codes.shape[0]} cells need one count each; got shape {people.shape}"
                )
        if domain.measured:
            codes, people = in_parts(
                domain, codes, np.ones(len(codes), np.int64) if people is None else people
            )
        return cls._of_parts(domain, codes, people, left_out)

    @classmethod
    def _of_parts(
        cls, domain: Domain, codes: NDArray[Any], people: Integers | None, left_out: Integers | None
    ) -> Counts:
        """Counts of parts, each in one cell."""
        keys = keys_of(domain, codes)
        if domain.size <= VECTOR_LIMIT:
            return cls(domain, Vector(added_up(keys[0], people, domain.size)), left_out)
        return cls(domain, ListedCells.of(domain, keys, people), left_out)

    @property
    def domain(self) -> Domain:
        """The public domain."""
        return self._domain

    @property
    def total(self) -> int:
        """The number of records. Confidential: it is not part of ``repr``."""
        return self._storage.total() // self._domain.parts

    def records(self, op: LinearOperator) -> Integers:
        """The exact answers of :meth:`answer` in records, where they are whole. Confidential."""
        whole, rest = np.divmod(self.answer(op), self._domain.parts)
        if rest.any():
            raise Unsupported(
                f"{op!r} asks for sums of values, which are not published exactly: ask for counts"
            )
        return whole

    def answer(self, op: LinearOperator) -> Integers:
        """The exact answers ``A x``, shape (m,), int64. Confidential. With measured values x counts parts of records.

        Where the counts are a vector, any operator will do. Otherwise the domain is never written out: of
        every attribute's matrix the columns that are equal are merged, and the records counted over what is
        left, slice by slice beyond 5e7 cells of it; the answers must take less than half of the memory.

        Args:
            op: an integer matrix over the cells of the domain. Beyond 5e7 cells: a `Kron` with one factor an
                attribute, `Contrasts`, or `Stack`, `Sum`, `Scaled` or `Product` (from the left) of such.

        Raises:
            InvalidArgument: if ``op`` has entries that are not integers, or is not over this domain.
            Unsupported: if the answers could reach 2^62, or take more memory than there is.

        Example:
            >>> from tabulae.linalg import Kron, Prefix, Total
            >>> domain = Domain({f"a{i}": 1000 for i in range(5)})       # 10^15 cells
            >>> counts = Counts.from_records(domain, [[0, 1, 2, 3, 4]])
            >>> counts.answer(Kron([Total(1000)] * 4 + [Prefix(1000)])).sum()
            np.int64(996)
        """
        if not isinstance(op, LinearOperator) or not op.integer:
            raise InvalidArgument(
                f"counts are answered exactly, by matrices of integers: {op!r} is not one; round it to "
                "multiples of 2^-k, and pass those as integers"
            )
        if op.shape[1] != self._domain.size:
            raise InvalidArgument(
                f"{op!r} has {op.shape[1]} columns, and {self._domain!r} has {self._domain.size} cells"
            )
        values, _ = self._storage.answer(self._domain, op)
        return values

    def fingerprint(self) -> bytes:
        """SHA-256 of the counts, whatever their storage and the order of the records. Confidential.

        It is not keyed: who has it can test a guess of all the records. Publish none but a keyed hash of it.
        """
        digest = hashlib.sha256(b"tabulae counts 1\n")
        for attribute in self._domain.attributes:
            digest.update(f"{len(attribute.name)} {attribute.name} {attribute.size}\n".encode())
        for keys, counts in self._storage.blocks():
            for column in (*keys, counts):
                digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        if self.left_out is not None:
            digest.update(f"left out {self.left_out.tolist()}\n".encode())
        return digest.digest()

    def __repr__(self) -> str:
        return f"Counts({self._domain!r}, confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    def __copy__(self) -> Counts:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Counts:
        return self


def tabulate(
    source: RecordSource,
    domain: Domain,
    columns: Mapping[str, ColumnCoding],
    unit: UnitRule | None = None,
    *,
    memory: str | None = None,
) -> Counts:
    """Count the records of ``source`` by cell of ``domain``; with a rule for units, so many of each at most.

    Every record falls in exactly one cell, or nothing is counted: a value that the domain does not list,
    or that is missing, is refused or counted in the category "other", as the rule of its column says. What
    a raw value means is written in `tabulae.sources.coding`; it does not depend on the kind of file, nor the
    counts on the order of the records.

    The counting is done by the engine, out of core where it must be; what comes back is one row a cell that
    is not empty.

    Args:
        source: where the records are, one row a record.
        domain: the public domain: its attributes are the keys, and nothing else is.
        columns: attribute name -> the rule of its column; one for each attribute of the domain.
        unit: which records belong to one unit, and how many of them are counted; None counts every record.
        memory: the most that an engine of our own takes, such as "4GB"; None is its default.

    Returns:
        The counts, which are confidential.

    Raises:
        DataError: if the source cannot be read, lacks a column, is empty, or holds values that are refused.
            The message names columns and kinds of fault; values and numbers are in ``confidential``.
        InvalidArgument: if the rules do not fit the domain.

    Privacy:
        What is refused depends on the records, and only their holder sees it; nothing is published by a
        refusal. Keys, their order and the shape of the result depend on the domain alone. With ``unit``, one
        unit more or less changes the counts by at most ``unit.rows`` records, and what they say of records left out
        by at most 1 unit and ``unit.most_left_out`` records (see `tabulae.sources.units`).

    Example:
        >>> import tempfile, pathlib
        >>> domain = Domain({"sex": ["F", "M"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "people.csv"
        ...     _ = path.write_text("id,SEX\\n1,F\\n2,M\\n3,F\\n")
        ...     counts = tabulate(RecordSource(path), domain, {"sex": ColumnCoding("SEX")})
        >>> counts.total
        3
    """
    rules, beyond = _rules(domain, columns), None
    if domain.seats is not None:
        return _of_units(source, domain, rules, unit, memory)
    wanted = [(attribute.name, rules[attribute.name].column) for attribute in domain.attributes]
    with open_records(source, wanted, unit and unit.column, memory=memory) as records:
        if unit is not None:
            records = identified(records, unit)
        table = coded(records, domain.attributes, rules)
        every = _number(source, records.count())
        check_parts(domain, every)
        cells, people = _by_cell(source, domain, table)
        check_counted(source, every * domain.parts, int(people.sum()))
        faults = nameless(source, records, unit) if unit else []
        if faults or (cells < 0).any():
            raise refusal(source, misfits(source, domain.attributes, rules, table) + faults)
        if unit is not None:
            of_units = coded(records, domain.attributes, rules, beside=[ID])
            cells, people = _by_cell(source, domain, of_units, unit)
            most = _number(source, most_counted(of_units, unit))
            check_counted(source, most * domain.parts, int(people.sum()), int(cells.min(initial=0)))
            beyond = _beyond(source, of_units, unit, every - most)
    return Counts._of_parts(domain, cells, people, beyond)


def _of_units(
    source: RecordSource,
    domain: Domain,
    rules: Mapping[str, ColumnCoding],
    unit: UnitRule | None,
    memory: str | None,
) -> Counts:
    """Units counted as seats, each of one record or empty: see `tabulae.sources.households`."""
    if unit is None or domain.seats is None or unit.rows != domain.seats.steps:
        raise InvalidArgument(
            "units are counted with their records by a rule of as many rows as they have seats"
        )
    attributes = [attribute for attribute in domain.attributes if not attribute.is_seat]
    made = {name: rule.from_records for name, rule in rules.items() if rule.from_records is not None}
    apart = source.units is not None
    read, own = (
        [a for a in attributes if a.name not in made and (a.of_unit and apart) == of_units]
        for of_units in (False, True)
    )
    wanted, wanted_of_units = ([(a.name, rules[a.name].column) for a in some] for some in (read, own))
    with open_units(source, wanted, wanted_of_units, unit.column, memory=memory) as (records, units):
        table = _whole(source, records, read, rules, unit)
        listed = None if units is None else _whole(source.units or source, units, own, rules, unit)
        names = [a.name for a in read], [a.name for a in own]
        seating = Seating(attributes, made, table, names[0], listed, names[1], unit)
        number = seating.check(source)
        check_parts(domain, number)
        filled, empty = seating.seats()
        found = [_seats(source, domain, filled, 1), _seats(source, domain, empty, 0)]
    codes, people = (np.concatenate(part) for part in zip(*found, strict=True))
    check_counted(source, number * domain.parts, int(people.sum()))
    return Counts._of_parts(domain, codes, people, None)


def _whole(
    source: RecordSource,
    records: Any,
    attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnCoding],
    unit: UnitRule,
) -> Any:
    """Coded records of units, each of which has a unit and is in a category of every attribute, or an error."""
    import ibis

    records = identified(records, unit)
    table: Any = coded(records, attributes, rules, beside=[ID])
    wrong = ibis.or_(table[ID].isnull(), *(table[f"k{i}"] < 0 for i in range(len(attributes))))
    asked: Any = table.aggregate(wrong=table.people.sum(where=wrong), people=table.people.sum())
    sums = redacted(source.name, lambda: asked.to_pyarrow().to_pylist()[0])
    if sums["wrong"]:
        raise refusal(source, [*misfits(source, attributes, rules, table), *nameless(source, records, unit)])
    check_counted(source, _number(source, records.count()), int(sums["people"] or 0))
    return table


def _seats(source: RecordSource, domain: Domain, seats: Any, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells of seats that have a record, or are empty, and parts: what is of records is then the first category.

    Of a value of records an empty seat has its parts at the lowest number, of one of units where the unit has them.
    """
    import ibis

    named = [attribute for attribute in domain.attributes if not attribute.is_seat]
    names = [f"a{i}" for i in range(len(named))]
    none = {name: ibis.literal(0) for name in names if name not in seats.columns}
    codes, people = _corners(source, named, seats.mutate(**none) if none else seats, names)
    assert domain.seats is not None
    return np.insert(codes, domain.axis(domain.seats.name), end, axis=1), people


def _beyond(source: RecordSource, table: Any, unit: UnitRule, rows: int) -> Integers | None:
    """How many units have some of the ``rows`` left out, and how many rows count as such; None: nobody asks."""
    if unit.most_left_out is None:
        return None
    found = redacted(source.name, lambda: left_out(table, unit).to_pyarrow())
    units, some = (int(_column(found, name)[0]) for name in ("units", "rows"))
    # Every such unit has a row too many at least; where rows do not count, one has more than its most.
    whole = some == rows or (units > 0 and some >= unit.most_left_out + units - 1)
    if not whole or not units <= some <= min(rows, units * unit.most_left_out):
        raise changed(source, f"{rows} rows left out, {some} of {units} units counted")
    return np.array([units, some], dtype=np.int64)


def _rules(domain: Domain, columns: Mapping[str, ColumnCoding]) -> dict[str, ColumnCoding]:
    missing = [a.name for a in domain.attributes if a.name not in columns and not a.is_seat]
    extra = [name for name in columns if name not in domain.names]
    if missing or extra:
        raise InvalidArgument(
            "tabulate(..., columns) needs one rule for each attribute of the domain"
            + (f"; it has none for {', '.join(map(repr, missing))}" if missing else "")
            + (f"; the domain has no {', '.join(map(repr, extra))}" if extra else "")
        )
    return dict(columns)


def _by_cell(
    source: RecordSource, domain: Domain, table: Any, unit: UnitRule | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes (cells, attributes) and records counted (cells,), of the cells that are not empty.

    A negative code is that of a fault.
    """
    names = [f"k{i}" for i in range(len(domain.attributes))]
    counted: Any = table.group_by(names).aggregate(people=table.people.sum().cast("int64"))
    if unit is not None:
        counted = bounded(table, names, unit)
    return _corners(source, domain.attributes, counted, names)


def _corners(
    source: RecordSource, attributes: Sequence[Attribute], counted: Any, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and people of counted cells; of measured values these are corners, and parts of records.

    The parts are those of :func:`in_parts`: sums of whole numbers, which the engine computes.
    """
    import ibis

    parted = {name: each for name, each in zip(names, attributes, strict=True) if each.steps}
    corners = list(product(*(range(attribute.size) for attribute in parted.values())))
    if parted:
        sums = {}
        shares = [
            attribute.shares(ibis.greatest(counted[name], 0).cast("int64"), ibis.ifelse)
            for name, attribute in parted.items()
        ]
        for c, corner in enumerate(corners):
            each = counted.people
            for share, at in zip(shares, corner, strict=True):
                each = each * share[at]
            sums[f"people{c}"] = each.sum().cast("int64")
        keys = {name: ibis.least(counted[name], 0) if name in parted else counted[name] for name in names}
        counted = counted.group_by(**keys).aggregate(**sums)
    found = redacted(source.name, lambda: counted.to_pyarrow())
    cells = np.stack([_column(found, name) for name in names], axis=1)
    if not parted:
        return cells, _column(found, "people")
    at = [names.index(name) for name in parted]
    every = np.tile(cells, (len(corners), 1))
    every[:, at] += np.repeat(corners, len(cells), axis=0) * (every[:, at] == 0)
    return every, np.concatenate([_column(found, f"people{c}") for c in range(len(corners))])


def _number(source: RecordSource, count: Any) -> int:
    return redacted(source.name, lambda: int(count.to_pyarrow().as_py() or 0))


def _column(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy().astype(np.int64)
