"""Record the digests anew, or write what is compared as text: see :mod:`tests.net.test_net`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.net.cases import NAMES, Found, found_in
from tests.net.kept import digests_of, record


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.net.record", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(NAMES)}; all where none is named")
    parser.add_argument(
        "--texts", type=Path, help="write what is compared into this folder, and record nothing"
    )
    given = parser.parse_args()
    cases = {}
    for name in given.cases or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            found = found_in(name, Path(folder).resolve())
        cases[name] = digests_of(found)
        if given.texts:
            _write(found, given.texts / name)
    if not given.texts:
        record(cases)


def _write(found: Found, folder: Path) -> None:
    for name, parts in found.items():
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"[{part}]\n{text}\n" for part, text in parts.items()))


if __name__ == "__main__":
    main()
