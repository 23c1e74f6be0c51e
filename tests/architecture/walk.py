"""The walk of a spec: ``python -m tests.architecture.walk`` makes a small release and lists who gets its spec.

A stop is a module of tabulae with a function that is given the spec while the release is made. A climb is a call that
gives it to a module of a higher room than the one that calls.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path
from types import FrameType
from typing import Any

import tabulae as tb
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[2]
SPEC = """
title = "Sexes"
source = { path = "people.csv" }
attributes = { sex = { column = "sex", categories = ["F", "M"] } }
privacy = { definition = "zcdp", budget = "1/2", neighbours = "add-remove", ledger = "ledger.db" }
table = [{ name = "sexes", attributes = ["sex"] }]
"""


def floors() -> dict[str, int]:
    """The floor of each room in the contract of layers: 0 is the ground."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return {room.strip(): floor for floor, rooms in enumerate(reversed(layers)) for room in rooms.split("|")}


def walk(folder: Path) -> tuple[list[str], list[str]]:
    """The modules that are given the spec, in the order of their first call; and the calls that climb."""
    (folder / "spec.toml").write_text(SPEC)
    (folder / "people.csv").write_text("sex\nF\nM\nF\n")
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP("1"))
    tb.run(folder / "spec.toml", folder / "first")  # whatever is loaded on first use
    spec, high = read_spec(folder / "spec.toml"), floors()
    stops: dict[str, None] = {}
    climbs: dict[str, None] = {}

    def module_of(frame: FrameType | None) -> str:
        while frame is not None and not (name := str(frame.f_globals.get("__name__"))).startswith("tabulae."):
            frame = frame.f_back
        return "" if frame is None else name

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        given = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        if not any(frame.f_locals.get(name) is spec for name in given) or not module_of(frame):
            return
        stop, caller = module_of(frame), module_of(frame.f_back)
        stops[stop] = None
        if caller and high[stop.split(".")[1]] > high[caller.split(".")[1]]:
            climbs[f"{caller} calls {stop}:{frame.f_code.co_name}"] = None

    sys.setprofile(called)
    try:
        tb.run(spec, folder / "second")
    finally:
        sys.setprofile(None)
    return list(stops), list(climbs)


def main() -> None:
    """The command line."""
    with tempfile.TemporaryDirectory() as folder:
        stops, climbs = walk(Path(folder))
    told = [f"{len(stops)} modules are given the spec", *stops, f"{len(climbs)} calls climb", *climbs]
    sys.stdout.write("\n".join(told) + "\n")


if __name__ == "__main__":
    main()
