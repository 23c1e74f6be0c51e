"""The class `Counts`: what is stored, where it may come from, and what may be asked of it."""

from __future__ import annotations

import hashlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ..domain import Domain
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator
from .cells import Cells
from .integers import (
    VECTOR_LIMIT,
    Integers,
    added_up,
    check_codes,
    check_whole,
)
from .keys import keys_of
from .vector import Vector


class Counts:
    """How many records fall in each cell of a domain. Confidential.

    Stored as a vector over the cells where the domain has at most 5e7 of them, and otherwise as the list of
    the cells that are not empty. Make one with `from_array`, `from_records` or `from_cells`.

    Example:
        >>> domain = Domain({"sex": ["F", "M"], "age": 3})
        >>> counts = Counts.from_records(domain, [[0, 2], [1, 0], [0, 2]])
        >>> counts
        Counts(Domain(sex: 2, age: 3), confidential)
    """

    __slots__ = ("_domain", "_storage")

    def __init__(self, domain: Domain, storage: Vector | Cells) -> None:
        self._domain = domain
        self._storage = storage

    @classmethod
    def from_array(cls, domain: Domain, x: ArrayLike) -> Counts:
        """Counts given cell by cell, in C order: shape ``(domain.size,)`` or ``domain.shape``.

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
        return cls(domain, Vector(vector))

    @classmethod
    def from_records(cls, domain: Domain, codes: ArrayLike) -> Counts:
        """Counts of records given by their codes: one row a record, one column an attribute.

        Args:
            domain: the public domain, of any size.
            codes: integers, shape (records, attributes); code k is the k-th category.

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
    def from_cells(cls, domain: Domain, cells: ArrayLike, counts: ArrayLike | None) -> Counts:
        """Counts of the cells that are not empty; cells given twice are added.

        Args:
            domain: the public domain, of any size.
            cells: integer codes, shape (k, attributes).
            counts: non-negative whole numbers, shape (k,); None counts each row once.

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
        keys = keys_of(domain, codes)
        if domain.size <= VECTOR_LIMIT:
            return cls(domain, Vector(added_up(keys[0], people, domain.size)))
        return cls(domain, Cells.of(domain, keys, people))

    @property
    def domain(self) -> Domain:
        """The public domain."""
        return self._domain

    @property
    def total(self) -> int:
        """The number of records. Confidential: it is not part of ``repr``."""
        return self._storage.total()

    def answer(self, op: LinearOperator) -> Integers:
        """The exact answers ``A x``, shape (m,), int64. Confidential.

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
        return digest.digest()

    def __repr__(self) -> str:
        return f"Counts({self._domain!r}, confidential)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsupported("counts are confidential and are not pickled: make them from the records again")

    def __copy__(self) -> Counts:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Counts:
        return self
