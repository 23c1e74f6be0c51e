"""A release whose names and labels are as awkward as a spec allows."""

from __future__ import annotations

from pathlib import Path

import tabulae as tb

SPEC = """
title = "Hamlet: 'awkward', \\"names\\""

[source]
path = "people.csv"

[attributes]
"Sex" = { column = "S", categories = ["F", "M"] }
"sex" = { column = "S2", categories = ["=1+1", "two or more", "two, or more"] }
"tårn by" = { column = "T", codes = "towers.csv" }
measure = { column = "M", range = [0, 3] }

[privacy]
definition = "zcdp"
budget = "1"
delta = "1e-10"
ledger = "ledger.db"

[[invariant]]
name = "heads"
attributes = []
reason = "law"

[[table]]
name = "Sex by tower"
attributes = ["Sex", "tårn by"]

[[table]]
name = "sex-by-tower"
attributes = ["sex", "Sex", "tårn by"]

[[table]]
name = "measures"
queries = { measure = "ranges" }

[[table]]
name = "either"
queries = { Sex = "identity", measure = "total" }

[[derived]]
name = "share of F"
title = "Share of F, by sex"
sql = "SELECT sex, COUNT(*) FILTER (WHERE Sex = 'F') / COUNT(*) FROM people GROUP BY sex"

[[table]]
name = "all of them"
attributes = []
"""
TOWERS = 'code,label,parent\n001,"Øst, ""old""",old\n1,Vest,new\n_T1,total?,new\n'


def make_hamlet(folder: Path) -> Path:
    """Make the release; returns its folder."""
    rows = [("F", "=1+1", "001", 0), ("M", "two or more", "1", 1), ("F", '"two, or more"', "_T1", 3)] * 30
    lines = [",".join(map(str, row)) for row in rows]
    (folder / "people.csv").write_text("S,S2,T,M\n" + "\n".join(lines) + "\n")
    (folder / "towers.csv").write_text(TOWERS)
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    tb.run(folder / "spec.toml", folder / "release")
    return folder / "release"
