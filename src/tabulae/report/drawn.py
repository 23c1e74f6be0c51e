"""Counts that are drawn from a posterior: what reports tell of draws, and of two intervals beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .plots import two_intervals

_OTHER = {"group": "ci, of both stages"}
_SHOWN = 14  # counts in the picture of two intervals


@dataclass(frozen=True)
class PosteriorView:
    """What draws of a release tell beside its intervals.

    Attributes:
        draws: how many implicates there are.
        of: what intervals are right on average over: an "area", a "group" or a "cell".
        worth: for each type of area or table how many independent draws they are worth for totals and for cells, and
            whether that is enough for credible intervals.
        picture: intervals beside each other of some counts; "" without one.
        shown: which counts.
    """

    draws: int
    of: str
    worth: tuple[tuple[str, float, float, bool], ...]
    picture: str = ""
    shown: str = ""


def posterior_view(
    told: Mapping[str, Any], of: str, rows: pa.Table | None = None, words: Sequence[str] = (), shown: str = ""
) -> PosteriorView:
    """What ``posterior.json`` says, and a picture of some of the rows of a table, from the smallest to the largest."""
    worth = tuple(
        (name, each["totals"], each["cells"], told["credible"][name])
        for name, each in told["effective_draws"].items()
    )
    if rows is None or not rows.num_rows:
        return PosteriorView(told["implicates"], of, worth)
    order = np.argsort(rows["estimate"].to_numpy(), kind="stable")
    some = rows.take(np.unique(order[np.linspace(0, order.size - 1, _SHOWN).astype(np.int64)]))
    names = [
        " ".join(map(str, each)) for each in zip(*(some[name].to_pylist() for name in words), strict=True)
    ]
    ends = {
        called: np.stack(
            [some[f"{column}_{end}"].to_numpy().astype(float) for end in ("low", "high")], axis=1
        )
        for called, column in ((_OTHER.get(of, "ci, of gls"), "ci"), ("credible", "credible"))
    }
    counts = some["estimate"].to_numpy().astype(float)
    picture = two_intervals(names, counts, ends, f"Two intervals of {len(names)} counts of {shown}")
    return PosteriorView(told["implicates"], of, worth, picture, shown)
