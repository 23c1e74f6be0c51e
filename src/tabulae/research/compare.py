"""Which mechanism for this query, these invariants and this budget: all that apply, the least error first."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Unsupported
from ..privacy import PrivacyLoss, PureDP
from .additive import Matrix, extended_gaussian, extended_laplace, projected_gaussian, projected_laplace
from .correlated import correlated_gaussian
from .k_norm import k_norm
from .mechanism import SubspaceMechanism
from .optimal import optimal_gaussian

_GAUSSIAN = {
    "projected Gaussian": projected_gaussian,
    "extended Gaussian": extended_gaussian,
    "correlated Gaussian": correlated_gaussian,
    "optimal Gaussian": optimal_gaussian,
}
_LAPLACE = {
    "projected Laplace": projected_laplace,
    "extended Laplace": extended_laplace,
    "K-norm": k_norm,
}


@dataclass(frozen=True)
class Comparison:
    """Mechanisms by increasing expected squared error, and those that do not apply with the reason."""

    mechanisms: tuple[SubspaceMechanism, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def best(self) -> SubspaceMechanism:
        """The mechanism of least expected squared error among those that can be released."""
        for mechanism in self.mechanisms:
            if mechanism.releasable:
                return mechanism
        raise Unsupported(f"none of these can be released: {self.mechanisms[0].obstacle}")

    def __str__(self) -> str:
        lines = [
            f"{m.name:20} {m.squared_error:12.5g}  {m.note if m.releasable else 'research only: ' + m.obstacle}"
            for m in self.mechanisms
        ]
        return "\n".join(
            line.rstrip() for line in [*lines, *(f"{n:20} {'-':>12}  {why}" for n, why in self.refused)]
        )


def compare(
    query: Matrix, invariants: Matrix, budget: PrivacyLoss, *, neighbours: str = "add-remove"
) -> Comparison:
    """All mechanisms that the budget pays for, by expected squared error; Laplace and K-norm under PureDP.

    Arguments and errors as for :func:`~tabulae.research.projected_gaussian`. No data is seen and nothing is spent.

    >>> import numpy as np, tabulae as tb
    >>> found = compare(np.eye(4), np.kron(np.eye(2, dtype=int), [[1, 1]]), tb.PureDP(1))
    >>> [(m.name, round(m.squared_error, 3)) for m in found.mechanisms]
    [('extended Laplace', 2.0), ('K-norm', 2.0), ('projected Laplace', 4.0)]
    """
    mechanisms, refused = [], []
    for name, make in (_LAPLACE if isinstance(budget, PureDP) else _GAUSSIAN).items():
        try:
            mechanisms.append(make(query, invariants, budget, neighbours=neighbours))
        except Unsupported as reason:
            if name.startswith("projected"):
                raise  # about the query and the invariants themselves
            refused.append((name, str(reason)))
    mechanisms.sort(key=lambda m: round(m.squared_error, 9))
    return Comparison(tuple(mechanisms), tuple(refused))
