"""How long `tabulae plan --html` takes of two hundred tables.

python -m benchmarks.plan_page [--tables 200] [--noise laplace]     prints seconds of CPU, imports among them

Twelve attributes of 2 to 20 categories; each attribute is a table, and pairs and triples of them after that, under
zero-concentrated or pure privacy. What is slow grows with tables times budgets that the page stops at.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import tomli_w

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20)
PROMISES = {
    "gaussian": {"definition": "zcdp", "budget": "1/2"},
    "laplace": {"definition": "pure", "budget": "2"},
}


def document(tables: int, noise: str = "gaussian") -> dict[str, object]:
    """The spec."""
    attributes = {f"a{i}": {"categories": [f"c{j}" for j in range(n)]} for i, n in enumerate(SIZES)}
    sets = itertools.chain.from_iterable(itertools.combinations(attributes, k) for k in (1, 2, 3))
    chosen = itertools.islice(sets, tables)
    return {
        "title": "Many tables",
        "source": {"path": "people.csv"},
        "attributes": attributes,
        "privacy": PROMISES[noise] | {"ledger": "ledger.db"},
        "table": [{"name": f"t{i}", "attributes": list(names)} for i, names in enumerate(chosen)],
    }


def main() -> int:
    """Plan, in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--noise", choices=PROMISES, default="gaussian")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        spec = Path(name) / "spec.toml"
        spec.write_text(tomli_w.dumps(document(given.tables, given.noise)), encoding="utf-8")
        page = spec.with_name("plan.html")
        command = [sys.executable, "-m", "tabulae.cli", "plan", str(spec), "--html", str(page), "--json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        size = page.stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, tables = used.ru_utime + used.ru_stime, len(json.loads(done.stdout)["tables"])
    print(f"{tables} tables, a page of {size / 1e6:.1f} MB: {seconds:.1f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
