"""Whether an array fits the machine, asked before anything is charged."""

from __future__ import annotations

import os

from ..errors import Unsupported


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
