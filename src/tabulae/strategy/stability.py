"""Units of several rows: how far the answers move when one unit changes, from how far one row moves them."""

from __future__ import annotations

from fractions import Fraction

from ..errors import InvalidArgument, Unsupported
from ..linalg import Sensitivity
from ..privacy import WITHIN


def check_stability(stability: int) -> int:
    """``stability`` if it is a whole number of rows, at least 1.

    Raises :class:`~tabulae.errors.InvalidArgument` otherwise.

    >>> check_stability(3)
    3
    """
    if isinstance(stability, bool) or not isinstance(stability, int) or stability < 1:
        raise InvalidArgument(
            f"stability is {stability!r}; it is the most rows that one unit may have among those counted: 1 or more"
        )
    return stability


def of_units(
    record: Sensitivity, column: Sensitivity, p: int, neighbours: str, stability: int
) -> Sensitivity:
    """The sensitivity for units of at most k rows, from that for units of one row.

    Write ``|v|`` for the weighted norm of the answers, ``(sum_i w_i ||A_i v||_p^p)^(1/p)``; it is a seminorm.
    Let C = max_j |e_j|, the largest column, and P = max_{j,l} |e_j - e_l|, the largest pair.

    * add-remove: a unit with rows in the cells j_1, ..., j_m, m <= k, moves the counts by d = e_j1 + ... + e_jm,
      and ``|d| <= m C <= k C`` (triangle inequality). k rows in the cell of the largest column attain it. So the
      sensitivity is exactly k C, and its power exactly k^p C^p.
    * replace: the old unit has m rows and the new one m', both at most k. Match min(m, m') rows of one with
      rows of the other, which moves the counts by a difference e_j - e_l each; the ``|m - m'|`` rows left over
      move them by a column each. So

          |d| <= min(m, m') P + |m - m'| C <= max(m, m') max(P, C) <= k max(P, C).

      k P alone is no bound: for the total P = 0, and a unit of 3 rows in place of one of 1 moves it by 2. Where
      P >= C, k rows of one cell in place of k of another attain k P and the result is exact. It also covers
      a unit that is replaced by one without rows. (For k = 1 units have exactly one row each, and P is
      exact: that case does not come here.)

    Arguments:
        record: of one row under ``neighbours``, C or P.
        column: of one row under add-remove, C.
        p: 1 or 2.
        neighbours: "add-remove" or "replace".
        stability: k.

    >>> from tabulae.linalg import Identity
    >>> one = Identity(4).sensitivity(2)
    >>> of_units(one, one, 2, "add-remove", 3).power
    Fraction(9, 1)
    """
    if neighbours == WITHIN:
        raise Unsupported(
            "several rows of a unit may change together and leave the invariants as they are although no single change "
            'does, so that no bound follows under "replace-within-invariants": count one row of each unit, or promise '
            '"replace"'
        )
    power, is_exact = record.power, record.is_exact
    if neighbours == "replace" and column.power > power:
        power, is_exact = column.power, False
    return Sensitivity(Fraction(stability) ** p * power, p, is_exact=is_exact)
