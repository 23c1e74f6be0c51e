"""Distributed privatisation: agents in processes of their own, exact sums, noise of the law that was agreed."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy import KeyedSource, SharedKey
from tabulae.research.distributed import LARGEST_PIECE, Agreement, ExactProjector, Share, stacked

GENERAL = [[1, 2, 0, -1, 0], [0, 1, 1, 3, 0], [1, 3, 1, 2, 0]]  # the third row is the sum of the first two

# What runs at an agent: it is told what was agreed, where the key lies, its own cell, and its own count.
AGENT = """
import json, sys
import tabulae as tb
from tests_agreed import agreed
from tabulae.privacy.noise.random_bits import SharedKey

told = json.loads(sys.argv[1])
share = agreed(told["name"], told["release"]).share(
    SharedKey.read(told["key"]), {told["cell"]: told["count"]}, told["record"])
print(json.dumps({"tag": share.tag, "entries": {str(c): str(v) for c, v in share.entries.items()}}))
"""

# What all agents know in public; written to a file that each of them imports.
AGREED = f"""
import tabulae as tb
from tabulae.research.distributed import Agreement

def agreed(name, release):
    if name == "total":
        domain, tables = tb.Domain({{"x": 5}}), [tb.Table("total", {{}})]
    elif name == "margins":
        domain = tb.Domain({{"a": 2, "b": 3}})
        tables = [tb.Table("by a", {{"a": tb.Identity(2)}}), tb.Table("by b", {{"b": tb.Identity(3)}})]
    else:
        domain, tables = tb.Domain({{"x": 5}}), [tb.Table("general", {{"x": tb.Dense({GENERAL})}})]
    return Agreement(domain, tables, tb.PureDP("1/10"), release, "laplace", "replace")
"""


@pytest.fixture
def afresh(monkeypatch):
    """Forget which streams this process has opened, to stand for another process."""
    return lambda: monkeypatch.setattr(KeyedSource, "_opened", set())


@pytest.fixture
def agents(tmp_path):
    """Run one process an agent, each with its own cell, count and record, all at once."""
    (tmp_path / "tests_agreed.py").write_text(AGREED)
    SharedKey.create(tmp_path / "key")

    def run(name, release, counts, key="key"):
        running = []
        for cell, count in enumerate(counts):
            told = {
                "name": name,
                "release": release,
                "key": str(tmp_path / key),
                "cell": cell,
                "count": count,
            }
            command = [
                sys.executable,
                "-c",
                AGENT,
                json.dumps({**told, "record": str(tmp_path / f"record {cell}")}),
            ]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path))
        answers = [json.loads(process.communicate()[0]) for process in running]
        assert [process.returncode for process in running] == [0] * len(running)
        return [
            Share(release, a["tag"], {int(c): Fraction(v) for c, v in a["entries"].items()}) for a in answers
        ]

    return run


def agreement(name, release):
    """What the agents agreed on, here at the aggregator."""
    scope = {}
    exec(AGREED, scope)
    return scope["agreed"](name, release)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("general", [7, 1, 0, 2, 5]),
        pytest.param("total", [4, 0, 9, 2, 31], marks=pytest.mark.long),
        pytest.param("margins", [3, 0, 8, 1, 1, 40], marks=pytest.mark.long),
    ],
)
def test_agents_apart_publish_what_one_would_with_the_invariants_exact(agents, tmp_path, name, counts):
    agreed = agreement(name, "May")
    shares = agents(name, "May", counts)
    assert all(set(share.entries) == {cell} for cell, share in enumerate(shares))
    combined = agreed.combine(shares)

    x = np.array(counts)
    for table, exact in zip(agreed.invariants, combined.exact, strict=True):
        matrix = table.operator(agreed.domain).dense()
        assert exact.tolist() == (matrix @ x).tolist()
        by_hand = [sum(int(c) * v for c, v in zip(row, combined.cells, strict=True)) for row in matrix]
        assert by_hand == exact.tolist(), "fractions, so equality means equality"

    central = agreed.share(SharedKey.read(tmp_path / "key"), dict(enumerate(counts)), tmp_path / "curator")
    assert combined.cells == tuple(central.entries[cell] for cell in range(len(counts)))
    assert central.tag == shares[0].tag
    assert combined.cells != tuple(counts)


def test_another_release_has_other_noise(tmp_path):
    counts, key = dict(enumerate([4, 0, 9, 2, 31])), SharedKey.create(tmp_path / "key")
    releases = [agreement("total", name) for name in ("May", "June")]
    first, second = (agreed.combine([agreed.share(key, counts, tmp_path / "record")]) for agreed in releases)
    assert first.cells != second.cells
    assert first.exact[0].tolist() == second.exact[0].tolist() == [46]


def test_another_agreement_draws_other_noise_not_a_multiple_of_it(tmp_path, afresh):
    """Same key, same name, another budget: 40 cells, and no noise is near a multiple of the other's."""
    key, noise = SharedKey.create(tmp_path / "key"), []
    for budget in ("1/100", "1/50"):
        domain = tb.Domain({"x": 40})
        agreed = Agreement(domain, [], tb.PureDP(budget), "May", "laplace", "replace")
        share = agreed.share(key, dict.fromkeys(range(40), 0), tmp_path / budget.replace("/", "-"))
        noise.append(np.array([float(share.entries[k]) for k in range(40)]))
        afresh()
    # of 40 pairs of scales 200 and 100, about 1 % lie so near the ratio by chance: 8 or more with probability 1e-8
    assert (np.abs(noise[0] - 2 * noise[1]) <= 4).sum() < 8


def test_the_noise_is_the_projection_of_the_keyed_draws(tmp_path, afresh):
    """Against numpy's pseudo-inverse, with the draws taken from the streams by hand."""
    agreed = agreement("general", "May")
    key = SharedKey.create(tmp_path / "key")
    share = agreed.share(key, dict.fromkeys(range(5), 0), tmp_path / "record")
    afresh()
    secret = bytes.fromhex((tmp_path / "key").read_text().split()[-1])
    bound = hashlib.sha256(agreed._text.encode()).hexdigest()
    e = np.array([agreed.law.sample(1, KeyedSource(secret, "May", f"{bound}:{k}"))[0] for k in range(5)])
    C = np.array(GENERAL)
    projected = e - np.linalg.pinv(C) @ (C @ e)
    assert np.allclose([float(share.entries[k]) for k in range(5)], projected, atol=1e-9)
    projector = np.eye(5) - np.linalg.pinv(C) @ C
    variances = [agreed.variance(k) for k in range(5)]
    assert np.allclose(variances, np.diag(projector) * agreed.law.variance_of_law)


@pytest.mark.parametrize(
    ("budget", "noise", "neighbours", "parameter"),
    [
        (tb.PureDP("1/10"), "laplace", "add-remove", 10),
        (tb.PureDP("1/10"), "laplace", "replace", 20),
        (tb.PureDP("1/10"), "laplace", "replace-within-invariants", 20),
        (tb.ZCDP("1/8"), "gaussian", "add-remove", 4),
        (tb.ZCDP("1/8"), "gaussian", "replace", 8),
    ],
)
def test_noise_is_calibrated_to_every_cell_being_published(budget, noise, neighbours, parameter):
    agreed = Agreement(tb.Domain({"x": 4}), [tb.Table("total", {})], budget, "r", noise, neighbours)
    assert agreed.law.parameter == parameter


def _sum_of_squares(tmp_path, factor, releases, cells=20):
    """|Pi_N e|^2 over many releases, in units of the law agreed at factor 1: (cells - 1) releases are expected."""
    domain, tables = tb.Domain({"x": cells}), [tb.Table("total", {})]
    nominal = Agreement(domain, tables, tb.ZCDP("1/200"), "none", "gaussian").law.variance_of_law
    key, total = SharedKey(bytes(range(32))), 0.0
    for k in range(releases):
        budget = tb.ZCDP(Fraction(1, 200) / Fraction(factor) ** 2)
        agreed = Agreement(domain, tables, budget, f"{factor} {k}", "gaussian")
        share = agreed.share(key, dict.fromkeys(range(cells), 3), tmp_path / "record")
        total += sum(float(value - 3) ** 2 for value in share.entries.values())
    return total / nominal, (cells - 1) * releases


@pytest.mark.long
@pytest.mark.parametrize(
    ("releases", "wrong"),
    [(60, ["7/10", "13/10"]), pytest.param(200, ["9/10", "11/10"], marks=pytest.mark.long)],
)
def test_the_noise_has_the_variance_agreed(tmp_path, afresh, releases, wrong):
    """|Pi_N e|^2 / sigma^2 is chi-square of n - n_c = 19 degrees a release (standard deviation 10: near normal).

    A false alarm once in 10^6 keys; the key is fixed. Of 200 releases noise 0.9 or 1.1 times as large is rejected.
    """
    afresh()
    for factor, accepted in (("1", True), *((factor, False) for factor in wrong)):
        value, degrees = _sum_of_squares(tmp_path, factor, releases)
        tail = min(stats.chi2.cdf(value, degrees), stats.chi2.sf(value, degrees))
        assert bool(tail > 5e-7) is accepted


def _shares(tmp_path, agreed, counts, key=None):
    key = key or SharedKey(KeyedSource.new_key())
    return agreed.share(key, counts, tmp_path / "record")


def test_shares_that_do_not_belong_together_are_refused(tmp_path, afresh):
    agreed = agreement("total", "May")
    mine, other = SharedKey(KeyedSource.new_key()), SharedKey(KeyedSource.new_key())
    left = agreed.share(mine, {0: 1, 1: 2}, tmp_path / "a")
    with pytest.raises(InvalidArgument, match="not of one release"):
        agreed.combine([left, agreed.share(other, {2: 0, 3: 0, 4: 0}, tmp_path / "b")])
    afresh()
    right = agreed.share(mine, {2: 0, 3: 0, 4: 0}, tmp_path / "c")
    assert agreed.combine([right, left]).exact[0].tolist() == [3]
    with pytest.raises(InvalidArgument, match="exactly one agent"):
        agreed.combine([left])
    with pytest.raises(InvalidArgument, match="exactly one agent"):
        agreed.combine([left, left, right])
    with pytest.raises(InvalidArgument, match="not of one release"):
        agreed.combine([left, replace(right, release="June")])
    spoiled = replace(right, entries={**right.entries, 2: right.entries[2] + Fraction(1, 7)})
    with pytest.raises(InvalidArgument, match="whole counts"):
        agreed.combine([left, spoiled])
    afresh()
    other_budget = replace(agreed, budget=tb.PureDP(1))
    with pytest.raises(InvalidArgument, match="not of one release"):
        agreed.combine([left, other_budget.share(mine, {2: 0, 3: 0, 4: 0}, tmp_path / "d")])


@pytest.mark.parametrize(
    "counts", [{5: 1}, {-1: 1}, {True: 1}, {"0": 1}, {0: 1.0}, {0: -1}, {0: 2**53}, {0: True}, {}]
)
def test_what_is_no_count_of_a_cell_is_refused_before_anything_is_recorded(tmp_path, counts):
    with pytest.raises(InvalidArgument) as refusal:
        _shares(tmp_path, agreement("total", "May"), counts)
    assert "-1" not in str(refusal.value) or -1 in counts
    assert not (tmp_path / "record").exists()


def test_an_agent_takes_part_once(tmp_path, afresh):
    agreed, key = agreement("total", "May"), SharedKey(KeyedSource.new_key())
    _shares(tmp_path, agreed, {0: 1}, key)
    afresh()
    with pytest.raises(InvalidArgument, match="already made"):
        _shares(tmp_path, agreed, {0: 2}, key)


def test_a_cell_that_the_invariants_determine_is_exact(tmp_path):
    table = tb.Table("known", {"x": tb.Dense([[1, 0, 0], [1, 1, 1]])})
    agreed = Agreement(tb.Domain({"x": 3}), [table], tb.ZCDP(1), "May", "gaussian")
    share = _shares(tmp_path, agreed, {0: 17, 1: 4, 2: 5})
    assert share.entries[0] == 17
    assert agreed.variance(0) == 0
    assert agreed.combine([share]).exact[0].tolist() == [17, 26]


def test_without_invariants_all_noise_is_kept(tmp_path):
    agreed = Agreement(tb.Domain({"x": 3}), [], tb.ZCDP("1/1000"), "May", "gaussian")
    share = _shares(tmp_path, agreed, {0: 17, 1: 4, 2: 5})
    assert all(value.denominator == 1 for value in share.entries.values())
    assert agreed.variance(1) == agreed.law.variance_of_law
    assert agreed.combine([share]).exact == ()


def test_invariants_beyond_exact_arithmetic_at_an_agent_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="whole"):
        Agreement(
            tb.Domain({"x": 2}),
            [tb.Table("half", {"x": tb.Dense([[0.5, 1.0]])})],
            tb.ZCDP(1),
            "r",
            "gaussian",
        )
    with pytest.raises(Unsupported, match="too many"):
        Agreement(
            tb.Domain({"x": 10_000}),
            [tb.Table("all", {"x": tb.Identity(10_000)})],
            tb.ZCDP(1),
            "r",
            "gaussian",
        )
    wide = np.random.default_rng(1).integers(-9, 10, (40, 60))
    agreed = Agreement(
        tb.Domain({"x": 60}), [tb.Table("wide", {"x": tb.Dense(wide)})], tb.ZCDP(1), "r", "gaussian"
    )
    with pytest.raises(Unsupported, match="simpler invariants"):
        _shares(tmp_path, agreed, {0: 1})
    assert not (tmp_path / "record").exists()
    chain = np.zeros((LARGEST_PIECE + 1, LARGEST_PIECE + 2), np.int64)
    chain[np.arange(LARGEST_PIECE + 1), np.arange(LARGEST_PIECE + 1)] = 1
    chain[np.arange(LARGEST_PIECE + 1), np.arange(LARGEST_PIECE + 1) + 1] = 1
    with pytest.raises(Unsupported, match="hang together"):
        ExactProjector(stacked([chain], chain.shape[1])).row(0)


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_the_projector_are_exact(seed):
    """Pi_N in fractions: symmetric, idempotent, C Pi_N = 0 exactly, and its trace is N - rank C."""
    draw = np.random.default_rng(seed)
    C = draw.integers(-2, 3, (4, 7)) * (draw.random((4, 7)) < 0.6)
    C = np.vstack([C, C[0] - 2 * C[1], np.zeros((1, 7), int)])
    projector = ExactProjector(stacked([C], 7))
    P = np.array([[projector.row(j).get(k, Fraction(0)) for k in range(7)] for j in range(7)], object)
    assert (P == P.T).all()
    assert ((P @ P) == P).all()
    assert not (C.astype(object) @ P).any()
    assert np.trace(P) == 7 - np.linalg.matrix_rank(C)


@pytest.mark.long
def test_the_example_of_the_page_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs/methods/invariants-demonstrations.md").read_text(
        encoding="utf-8"
    )
    code = page.split("```python\n")[1].split("```")[0]
    printed = page.split("```text\n")[1].split("```")[0]
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed
