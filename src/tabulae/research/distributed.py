"""Distributed privatisation: each agent adds its own part of noise that meets the invariants exactly.

Agents hold the entries of a histogram, one or a few each, and a key that they share. Every agent draws the same
integer noise e for all entries from the key and adds to its own entries those of ``Pi_N e``, in exact fractions. Nobody
collects the counts, and the sums that the invariants fix are nevertheless exact.

For an integer matrix C of m rows over N cells the projector onto null(C) is ``Pi_N = I - C' (C C')^+ C``. Its row j
is ``e_j - C' z`` for any solution z of ``C C' z = C e_j``, so that one linear system of m equations gives it. Rows of
C that share no cell, even through others, fall into pieces, and row j is zero outside the piece of j.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack
from scipy.sparse.csgraph import connected_components

from .._version import VERSION
from ..domain import Domain, Table
from ..errors import InvalidArgument, Unsupported
from ..linalg import Identity, IntegerSystem, integer_product
from ..privacy import KeyedRelease, NoiseLaw, PrivacyLoss, SharedKey
from ..strategy import Strategy
from ..strategy.block import Block
from ..strategy.strategy import NoiseKind

LARGEST_PIECE = 512  # rows of C in one piece: the system is solved in integers that grow with it


class ExactProjector:
    """``Pi_N = I - C' (C C')^+ C`` for an integer matrix C (m x N), row by row in exact arithmetic.

    Args:
        invariants: C, int64; dependent and empty rows are allowed.

    Raises:
        Unsupported: when a row is asked for whose piece of C has more than ``LARGEST_PIECE`` rows, or entries whose
            sums of squares need more than 62 bits.

    >>> ExactProjector(csr_array(np.array([[1, 1, 1, 0]]))).row(0)
    {0: Fraction(2, 3), 1: Fraction(-1, 3), 2: Fraction(-1, 3)}
    """

    def __init__(self, invariants: csr_array) -> None:
        self._rows = csr_array(invariants)
        rows, columns = coo_array(self._rows).coords
        m, cells = (int(n) for n in invariants.shape or ())
        edges = coo_array((np.ones(rows.size), (rows, columns + m)), shape=(m + cells, m + cells))
        labels = connected_components(edges, directed=False)[1]
        self._piece_of_row, self._piece_of_cell = labels[:m], labels[m:]

    def row(self, cell: int) -> dict[int, Fraction]:
        """The entries of row ``cell`` that are not zero, by cell."""
        piece = self._piece_of_cell[cell]
        cells = np.flatnonzero(self._piece_of_cell == piece)
        rows = np.flatnonzero(self._piece_of_row == piece)
        if not rows.size:
            return {int(cell): Fraction(1)}
        if rows.size > LARGEST_PIECE:
            raise Unsupported(
                f"{rows.size} invariants hang together through shared cells, more than the {LARGEST_PIECE} that are "
                "solved exactly at an agent: state fewer invariants, or let one curator release with tabulae.select"
            )
        matrix = csr_array(self._rows[rows][:, cells])
        place = int(np.searchsorted(cells, cell))
        solution, denominator = _multipliers(matrix, place)
        numerators = -integer_product(matrix.T.toarray(), solution).astype(object)
        numerators[place] += denominator
        return {int(c): Fraction(n, denominator) for c, n in zip(cells, numerators, strict=True) if n}


def _multipliers(matrix: csr_array, place: int) -> tuple[NDArray[np.generic], int]:
    """Numerators and denominator of a solution of ``C C' z = C e_place``.

    C e_place lies in the column space of C C', which is symmetric: as one more row it depends on those of C C'.
    """
    largest = int(np.abs(matrix.data).max())
    if largest**2 * len(matrix.indices) >= 2**62:
        raise Unsupported("the invariants' entries are too large: divide each by its greatest common divisor")
    gram, right = (matrix @ matrix.T).toarray(), matrix[:, [place]].toarray().T
    relation = IntegerSystem(np.concatenate([gram, right])).dependent[-1]
    solution = np.zeros(len(gram), object)
    solution[relation.rows] = relation.coefficients
    return solution, int(relation.multiplier)


def stacked(matrices: list[NDArray[np.int64]], cells: int) -> csr_array:
    """One sparse matrix of all rows."""
    if not matrices:
        return csr_array((0, cells), dtype=np.int64)
    return csr_array(vstack([csr_array(m) for m in matrices]))


_LARGEST_MATRIX = 2**25  # entries of the invariants, rows times cells
_DENOMINATOR_BITS = 256  # every published entry carries its denominator
_LARGEST_COUNT = 2**53


@dataclass(frozen=True)
class Share:
    """What one agent sends: its noisy entries, exact fractions of a count, and a tag of what it agreed to. Public."""

    release: str
    tag: str
    entries: Mapping[int, Fraction]


@dataclass(frozen=True)
class Combined:
    """All entries of a distributed release, exact fractions, and the counts of the invariants, exact whole numbers."""

    cells: tuple[Fraction, ...]
    exact: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Agreement:
    """What the agents and the aggregator agree on in public before a distributed release.

    The release is ``x + Pi_N e`` for the histogram x of N cells, with Pi_N the projector onto the null space of the
    stacked matrices of ``invariants`` and e independent integers of the law that ``budget`` pays for when every cell
    is published: discrete Laplace, discrete Gaussian or rounded Gaussian.

    Args:
        domain: the cells, in C order; an agent names its own by their number.
        invariants: tables of integer matrices whose counts are to be exact.
        budget: what the whole release may cost.
        release: its name, never used before with the key.
        noise: "gaussian" or "laplace", as the budget allows.
        neighbours: "add-remove", "replace" or "replace-within-invariants".

    Raises:
        InvalidArgument: a table that does not fit the domain or has entries that are not whole, or a budget that does
            not pay for that noise.
        Unsupported: rows times cells of the invariants exceed 2^25.

    Privacy:
        The published vector satisfies ``budget`` in the N-subspace sense and is exact in the row space of the
        invariants: the projected mechanism, Theorem 3.1 and Corollaries 3.2, 3.5 and 3.8 of "Subspace Differential
        Privacy" (Gao, Gong, Yu 2022), with the exact discrete mechanism of :meth:`law` in place of their continuous
        noise. Pi_N applied to the publication is Pi_N (x + e), a function of x + e alone, and x + e satisfies
        ``budget`` in the full sense.

        Who sees what. An agent sees its own count, the key and whatever is published. The aggregator and the
        public see the shares. A cell that the invariants determine is published exactly (:meth:`variance` is 0).

        Who is protected against whom. The promise holds against everybody who does not hold the key. An agent
        can compute e, and so read the counts of all others off the publication: agents trust each other. When the key
        leaks, now or years later, every release made with it is exact to who finds it: destroy it when it has served.
        A release's name must never serve twice: each agent keeps a record that refuses it. Nothing here charges a
        ledger, because nobody holds the counts: whoever coordinates the agents accounts for the budget.

    Reference: the paper above, section 4, "Implementation: distributed privatization".

    >>> import tempfile, pathlib
    >>> from tabulae.linalg import Total
    >>> from tabulae.privacy import PureDP
    >>> domain = Domain({"sensor": 3})
    >>> agreed = Agreement(domain, [Table("total", {"sensor": Total(3)})], PureDP(1), "May", "laplace", "replace")
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> key = SharedKey.create(folder / "key")
    >>> shares = [agreed.share(key, {0: 5, 1: 0, 2: 7}, record=folder / "record")]
    >>> agreed.combine(shares).exact
    (array([12]),)
    """

    domain: Domain
    invariants: Sequence[Table]
    budget: PrivacyLoss
    release: str
    noise: NoiseKind
    neighbours: str = "add-remove"

    def __post_init__(self) -> None:
        _ = self.law, self._projector

    @cached_property
    def law(self) -> NoiseLaw:
        """The law of each cell's noise before it is projected."""
        blocks, exact = (Block("cells", Identity(self.domain.size)),), tuple(self.invariants)
        cells = Strategy(self.domain, blocks, self.noise, "identity", invariants=exact)
        return cells.laws(self.budget, self.neighbours)[0]

    @cached_property
    def _matrix(self) -> csr_array:
        rows = sum(table.rows(self.domain) for table in self.invariants)
        if rows * self.domain.size > _LARGEST_MATRIX:
            raise Unsupported(
                f"{rows} invariants over {self.domain.size} cells are too many to be written out at every agent: let "
                "one curator release with tabulae.select(..., invariants=...)"
            )
        matrices = [table.operator(self.domain) for table in self.invariants]
        for table, matrix in zip(self.invariants, matrices, strict=True):
            if not matrix.integer:
                raise InvalidArgument(
                    f"invariant {table.name!r} has entries that are not whole numbers: exact counts are of records"
                )
        return stacked([matrix.dense() for matrix in matrices], self.domain.size)

    @cached_property
    def _projector(self) -> ExactProjector:
        return ExactProjector(self._matrix)

    def variance(self, cell: int) -> float:
        """The variance of one published entry, in squared counts: ``(Pi_N)_jj`` times that of the law."""
        return float(self._weights(cell).get(cell, 0)) * self.law.variance_of_law

    def share(self, key: SharedKey, counts: Mapping[int, int], record: str | os.PathLike[str]) -> Share:
        """What one agent publishes: ``x_j + (Pi_N e)_j`` for each of its own cells j, in exact fractions.

        Args:
            key: the shared key, read at this agent.
            counts: the agent's own confidential counts, by number of the cell; nobody else's.
            record: this agent's folder of releases made, kept for as long as the key.

        Raises:
            InvalidArgument: a cell outside the domain, a count that is not a whole number, or a release already made.
            Unsupported: the invariants call for fractions of more than 256 bits.

        Privacy:
            As the class says. The record is written before any noise is drawn; each cell's noise comes from its
            own keyed stream, and an agent draws those cells only that its own entries need.
        """
        weights = {cell: self._weights(cell) for cell in self._checked(counts)}
        release = key.begin(self.release, record)
        noise = self._noise(release, sorted({k for row in weights.values() for k in row}))
        entries = {
            cell: int(counts[cell]) + sum((w * noise[k] for k, w in row.items()), Fraction(0))
            for cell, row in weights.items()
        }
        return Share(self.release, release.tag(self._text), entries)

    def combine(self, shares: Iterable[Share]) -> Combined:
        """Put the agents' shares together, and read the invariants' exact counts off them.

        Raises:
            InvalidArgument: shares of another release, key or agreement; cells missing or sent twice; or sums that
                the invariants fix and that are not whole, so that some agent drew other noise.

        Privacy: post-processing of what the agents published.
        """
        shares = list(shares)
        if {share.release for share in shares} != {self.release} or len({share.tag for share in shares}) > 1:
            raise InvalidArgument(
                "the shares are not of one release: every agent needs the same key, release, invariants, budget, "
                "noise, neighbours and version of tabulae"
            )
        cells = sorted(cell for share in shares for cell in share.entries)
        if cells != list(range(self.domain.size)):
            raise InvalidArgument(
                f"the shares hold {len(cells)} entries, {len(set(cells))} of them different; each of the "
                f"{self.domain.size} cells must come from exactly one agent"
            )
        entries = {cell: value for share in shares for cell, value in share.entries.items()}
        ordered = tuple(entries[cell] for cell in cells)
        return Combined(ordered, self._sums(ordered))

    def _sums(self, cells: tuple[Fraction, ...]) -> tuple[np.ndarray, ...]:
        matrix, sums = self._matrix, []
        for row in range(len(matrix.indptr) - 1):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            places, entries = matrix.indices[part].tolist(), matrix.data[part].tolist()
            sums.append(sum((c * cells[j] for j, c in zip(places, entries, strict=True)), Fraction(0)))
        if any(value.denominator != 1 for value in sums):
            raise InvalidArgument(
                "the shares do not add up to whole counts: an agent drew other noise or sent another share"
            )
        ends = np.cumsum([table.rows(self.domain) for table in self.invariants])
        return tuple(np.split(np.array([int(value) for value in sums], np.int64), ends)[:-1])

    def _weights(self, cell: int) -> dict[int, Fraction]:
        row = self._projector.row(cell)
        bits = math.lcm(*(weight.denominator for weight in row.values())).bit_length()
        if bits > _DENOMINATOR_BITS:
            raise Unsupported(
                f"the entries of cell {cell} would be fractions of {bits} bits, more than {_DENOMINATOR_BITS}: state "
                "simpler invariants, or let one curator release with tabulae.select, which publishes on a grid"
            )
        return row

    def _noise(self, release: KeyedRelease, cells: list[int]) -> dict[int, int]:
        # Streams are bound to the agreement: under another budget the same words would be scaled copies of this noise,
        # and two shares would give away a difference of counts.
        agreed = hashlib.sha256(self._text.encode()).hexdigest()
        return {cell: int(self.law.sample(1, release.source(f"{agreed}:{cell}"))[0]) for cell in cells}

    def _checked(self, counts: Mapping[int, int]) -> list[int]:
        for cell, count in counts.items():
            if (
                isinstance(cell, bool)
                or not isinstance(cell, (int, np.integer))
                or not 0 <= cell < self.domain.size
            ):
                raise InvalidArgument(
                    f"cell {cell!r} is not one of the domain's: they are numbered 0 to {self.domain.size - 1}"
                )
            if (
                isinstance(count, bool)
                or not isinstance(count, (int, np.integer))
                or not 0 <= count < _LARGEST_COUNT
            ):
                raise InvalidArgument(f"the count of cell {cell} must be a whole number from 0 to 2^53")
        if not counts:
            raise InvalidArgument(
                "an agent without a cell has nothing to share: give the counts of its own cells"
            )
        return [int(cell) for cell in counts]

    @cached_property
    def _text(self) -> str:
        matrix = self._matrix
        parts = [matrix.indptr.astype("<i8"), matrix.indices.astype("<i8"), matrix.data.astype("<i8")]
        digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
        return f"{VERSION} {matrix.shape} {digest} {self.law!r} {self.budget!r} {self.neighbours}"
