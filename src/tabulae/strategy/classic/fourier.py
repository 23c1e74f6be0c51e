"""Fourier coefficients: the ones that the tables need, all with the same noise.

An attribute of n merged categories has an orthogonal basis F (n, n) of rows of norm sqrt(n), the first the total:
Walsh-Hadamard, of entries +-1, where n is a power of two; otherwise the real discrete Fourier transform, rows
``sqrt(2) cos(2 pi k j / n)`` and ``sqrt(2) sin(2 pi k j / n)``, and ``(-1)^j`` for even n, rounded to a grid. A table
that crosses the attributes A needs the coefficients ``(x)_{i in S} F_i[1:] (x)_{i not in S} 1'`` of all subsets S of A,
and these groups have independent rows: variances and estimates are in closed form (:mod:`..residual_information`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import Unsupported
from ...linalg import (
    Dense,
    Kron,
    LinearOperator,
    Partition,
    Total,
)
from ..explicit_strategy import lifted
from ..information import EXPLICIT
from ..residual_basis import is_flat
from ..residual_rounding import TOGETHER
from ..residual_sets import (
    MOST_SETS,
    Set,
    closure,
)
from ..strategy import Block, Strategy

if TYPE_CHECKING:
    from ..settings import Settings

_FINEST, _COARSEST = 12, 3  # bits of the grid of an attribute whose entries are real


def fourier_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The Fourier strategy: each coefficient that some table needs, measured with equal noise.

    Tables other than marginals, as ranges, need every coefficient of the attributes that they cross. Of one attribute
    the whole basis is measured.

    Arguments:
        workload: any tables.
        settings: noise is used.

    Raises :class:`~tabulae.errors.Unsupported` for attributes of more than 4,096 merged categories, and for tables
    that cross too many sets of attributes, or too many attributes together whose coefficients are real.

    Reference: Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar, "Privacy, accuracy, and consistency too", PODS 2007.

    >>> import tabulae as tb
    >>> from tabulae.strategy.settings import Settings
    >>> workload = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 4, "race": 8}), ways=[1])
    >>> [(b.name, b.rows) for b in fourier_strategy(workload, Settings("laplace")).blocks]
    [('total', 1), ('sex', 1), ('age', 3), ('race', 7)]
    """
    merged, merges = workload.merge()
    sizes = merged.domain.shape
    if max(sizes) > EXPLICIT:
        widest = workload.domain.names[int(np.argmax(sizes))]
        raise Unsupported(
            f'"fourier" writes out a basis for each attribute and takes {EXPLICIT:,} categories that tables tell '
            f'apart; {widest!r} has {max(sizes):,}: choose "residual" or "identity"'
        )
    sets = _needed(workload)
    bits = _bits(sets, sizes)
    if sum(n > 1 for n in sizes) == 1:
        return Strategy(workload.domain, (_whole(merges, bits),), settings.noise, "fourier")
    bases = [None if n == 1 else lifted(_rest(n, bits), m) for n, m in zip(sizes, merges, strict=True)]
    blocks = tuple(_group(s, bases, sizes, bits, workload) for s in sets)
    return Strategy(workload.domain, blocks, settings.noise, "fourier")


def fourier_basis(n: int) -> np.ndarray:
    """F (n, n): F F' = n I, the first row all ones.

    >>> fourier_basis(4).astype(int).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    """
    if _is_power_of_two(n):
        return scipy.linalg.hadamard(n).astype(float)
    angles = 2 * np.pi * (np.outer(np.arange(1, (n + 1) // 2), np.arange(n)) % n) / n
    waves = np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1, n)
    middle = [(-1.0) ** np.arange(n)] if n % 2 == 0 else []
    return np.vstack([np.ones(n), waves, *middle])


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _needed(workload: Workload) -> tuple[Set, ...]:
    """All subsets of the sets of attributes that the tables' products cross."""
    crossed = {
        tuple(i for i, f in enumerate(term.over(workload.domain)) if not is_flat(f))
        for table in workload.tables
        for term in table.terms
    }
    try:
        return closure(crossed)
    except Unsupported:
        raise Unsupported(
            f"the tables need the Fourier coefficients of more than {MOST_SETS:,} sets of attributes: ask for tables "
            'that cross fewer attributes together, or choose "identity", "kron" or "union", which list no subsets'
        ) from None


def _bits(sets: Sequence[Set], sizes: Sequence[int]) -> int:
    """Bits of the grid of each real basis: those of the attributes that a group crosses add up."""
    together = max(sum(not _is_power_of_two(sizes[i]) for i in s) for s in sets)
    bits = min(_FINEST, TOGETHER // max(together, 1))
    if bits < _COARSEST:
        raise Unsupported(
            f"a table crosses {together} attributes whose numbers of categories are no powers of two, and their real "
            'coefficients do not fit 62-bit integers together: choose "residual" or "identity", whose matrices are '
            "integers"
        )
    return bits


def _rest(n: int, bits: int) -> LinearOperator:
    """F without the total: exact where entries are +-1, otherwise in steps of 2^-bits."""
    rest = fourier_basis(n)[1:]
    return Dense(
        rest.astype(np.int64) if _is_power_of_two(n) else np.rint(np.ldexp(rest, bits)).astype(np.int64)
    )


def _group(
    s: Set, bases: Sequence[LinearOperator | None], sizes: Sequence[int], bits: int, workload: Workload
) -> Block:
    """The coefficients of one set of attributes."""
    shape = workload.domain.shape
    factors = [basis if i in s and basis is not None else Total(shape[i]) for i, basis in enumerate(bases)]
    real = sum(not _is_power_of_two(sizes[i]) for i in s)
    name = "*".join(workload.domain.names[i] for i in s) or "total"
    return Block(name, Kron(factors), real * bits)


def _whole(merges: Sequence[Partition], bits: int) -> Block:
    """All coefficients of the one attribute that is told apart."""
    n = max(m.shape[0] for m in merges)
    exponent = 0 if _is_power_of_two(n) else bits
    basis = Dense(np.rint(np.ldexp(fourier_basis(n), exponent)).astype(np.int64))
    factors = [Total(m.shape[1]) if m.shape[0] == 1 else lifted(basis, m) for m in merges]
    return Block("fourier", Kron(factors), exponent)
