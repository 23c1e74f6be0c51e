"""A net under the whole of tabulae: what every product publishes, kept as digests.

Each case of :mod:`tests.net.cases` is planned, run, checked, queried, converted and reported on with repeatable
randomness (:mod:`tests.net.frozen`), through public names and the command line alone. What comes out is digested part
by part (:mod:`tests.net.normal`) and compared with ``digests.json``. A change that is to leave the published files as
they are leaves the digests as they are; one that does not says in its commit which file changed, and why.

To see what changed, write what is compared as text with the old and with the new source, and compare the folders::

    python -m tests.net.record --texts /tmp/before
    python -m tests.net.record --texts /tmp/after
    diff -r /tmp/before /tmp/after

To record the digests anew (of some cases only, where they are named)::

    python -m tests.net.record
    python -m tests.net.record town_auto guild

Pictures, pages and statements of SQL are those of the libraries that ``digests.json`` lists: where another version of
one is installed, a failure may be its doing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.net.cases import NAMES, found_in
from tests.net.kept import changes, digests_of, libraries, recorded

# Each of these differs from a short one in its estimator, or in one section of its spec.
LONG = ("town_queries", "town_exact", "town_hdmm", "duchy_gls")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in NAMES]
)
def test_what_is_published_stays_as_it_is(name: str, tmp_path: Path) -> None:
    kept = recorded()
    told = changes(kept["cases"][name], digests_of(found_in(name, tmp_path)))
    others = {
        of: f"{was} -> {now}" for of, was in kept["libraries"].items() if (now := libraries()[of]) != was
    }
    hint = f"\nother libraries than recorded: {others}" if others else ""
    if told:
        pytest.fail("\n  ".join([f"{name}: {len(told)} files differ", *told]) + hint, pytrace=False)


def test_every_case_is_recorded() -> None:
    assert set(recorded()["cases"]) == set(NAMES)
