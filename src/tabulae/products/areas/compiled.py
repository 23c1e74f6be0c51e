"""The compiler of the loops of areas, which only releases of areas need: an extra of its own."""

from __future__ import annotations

from ...errors import require

njit = require("numba", "areas", "a release by area").njit
