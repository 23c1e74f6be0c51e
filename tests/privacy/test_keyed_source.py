"""A key that agents share: files that only their owner reads, streams by entry, a record that refuses a second use."""

import copy
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from tabulae.errors import InvalidArgument
from tabulae.privacy import DiscreteLaplace, KeyedSource
from tabulae.privacy.noise.random_bits import SharedKey

FIXED = bytes(range(32))


def noise(release, entries, scale=3):
    """One draw from the stream of each entry, as the agents of a release take it."""
    law = DiscreteLaplace(scale)
    return np.array([law.sample(1, KeyedSource(FIXED, release, str(k)))[0] for k in range(entries)])


def test_a_key_is_written_once_and_for_its_owner(tmp_path):
    path = tmp_path / "key"
    key = SharedKey.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SharedKey.read(path).fingerprint == key.fingerprint
    assert SharedKey.create(tmp_path / "other").fingerprint != key.fingerprint
    with pytest.raises(InvalidArgument, match="another path"):
        SharedKey.create(path)
    assert SharedKey.read(path).fingerprint == key.fingerprint, "the refusal left the key alone"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    SharedKey.create(path)
    path.chmod(mode)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        SharedKey.read(path)


@pytest.mark.parametrize(
    "text",
    [b"", b"tabulae shared key\n", b"tabulae shared key\nabcd\n", b"key\n" + b"0" * 64 + b"\n", b"\xff\n"],
)
def test_what_holds_no_key_is_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(InvalidArgument):
        SharedKey.read(path)
    with pytest.raises(InvalidArgument, match="no key"):
        SharedKey.read(tmp_path / "absent")


def test_the_key_is_neither_shown_nor_copied(tmp_path):
    key = SharedKey.create(tmp_path / "key")
    secret = (tmp_path / "key").read_text().split()[-1]
    release = key.begin("May", tmp_path / "record")
    shown = repr(key) + key.fingerprint + repr(release) + release.tag("x")
    shown += "".join(f"{p.name} {p.read_text()}" for p in (tmp_path / "record").iterdir())
    assert secret not in shown
    stream = release.source("1")
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (key, stream):
            with pytest.raises(InvalidArgument, match=r"process|twice"):
                duplicate(thing)
    with pytest.raises(InvalidArgument):
        pickle.dumps(release)


def test_a_release_is_made_once_even_after_a_restart(tmp_path):
    SharedKey.create(tmp_path / "key")
    code = (
        "import sys; from tabulae.privacy.noise.random_bits import SharedKey\n"
        "release = SharedKey.read(sys.argv[1]).begin(sys.argv[3], sys.argv[2])\n"
        "print(release.source('7').u64(4).tolist())"
    )

    def run(name, record="record"):
        places = [str(tmp_path / "key"), str(tmp_path / record)]
        return subprocess.run([sys.executable, "-c", code, *places, name], capture_output=True, text=True)

    first, again, later = run("May"), run("May"), run("June")
    assert (first.returncode, later.returncode) == (0, 0)
    assert again.returncode != 0
    assert "already made" in again.stderr
    assert first.stdout != later.stdout
    elsewhere = run("May", "another agent's record")
    assert json.loads(elsewhere.stdout) == json.loads(first.stdout), "another agent draws the same"


def test_of_two_at_once_one_is_let_through(tmp_path):
    SharedKey.create(tmp_path / "key")
    code = (
        "import sys; from tabulae.privacy.noise.random_bits import SharedKey\n"
        "key = SharedKey.read(sys.argv[1]); sys.stdin.read()\n"
        "key.begin('May', sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "key"), str(tmp_path / "record")]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(3)]
    for process in running:
        process.stdin.close()
    assert sorted(process.wait() for process in running) == [0, 1, 1]


def test_another_key_may_use_the_name_and_the_record(tmp_path):
    for name in ("a", "b"):
        SharedKey.create(tmp_path / name).begin("May", tmp_path / "record")
    with pytest.raises(InvalidArgument, match="already made"):
        SharedKey.read(tmp_path / "a").begin("May", tmp_path / "record")
    with pytest.raises(InvalidArgument, match="needs a name"):
        SharedKey.read(tmp_path / "a").begin("", tmp_path / "record")


def test_the_record_stands_before_any_stream_is_opened(tmp_path, monkeypatch):
    key = SharedKey.create(tmp_path / "key")
    monkeypatch.setattr("tabulae.privacy.noise.random_bits._sync_folder", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        key.begin("May", tmp_path / "record")
    monkeypatch.undo()
    with pytest.raises(InvalidArgument, match="already made"):
        key.begin("May", tmp_path / "record")


def test_tags_agree_where_key_release_and_text_do(tmp_path):
    keys = [SharedKey.create(tmp_path / name) for name in "ab"]
    begun = {(k, r): keys[k].begin(r, tmp_path / "record") for k in (0, 1) for r in ("x", "y")}
    tags = {(*who, text): release.tag(text) for who, release in begun.items() for text in ("t", "u")}
    assert len(set(tags.values())) == 8
    assert begun[0, "x"].tag("t") == tags[0, "x", "t"]


def test_streams_of_entries_are_independent_draws_of_the_law():
    """Chi-square of 20,000 entries' first draws against the masses: a false alarm once in 10^6 keys; this key is fixed.

    The same draws against scales 0.9 and 1.1 times as large are rejected. Noise of consecutive entries, and of one
    entry under two releases, is uncorrelated: five standard errors, a false alarm once in 10^6.
    """
    count, scale = 20_000, 3
    draws, other = noise("first", count, scale), noise("second", count, scale)
    assert _p_value(draws, scale) > 1e-6
    assert _p_value(draws, 0.9 * scale) < 1e-12
    assert _p_value(draws, 1.1 * scale) < 1e-12
    for left, right in ((draws[:-1], draws[1:]), (draws, other), (draws[:-64], draws[64:])):
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / np.sqrt(count)


def _p_value(draws, scale):
    """Masses q^|k| (1 - q) / (1 + q), with the tails beyond 10 as one bin each."""
    q, k = np.exp(-1 / scale), np.arange(-10, 11)
    mass = (1 - q) / (1 + q) * q ** np.abs(k)
    tail = (1 - mass.sum()) / 2
    expected = draws.size * np.array([tail, *mass, tail])
    observed = np.bincount(np.clip(draws, -11, 11) + 11, minlength=23)
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_stream_is_refused_in_a_forked_child():
    source = KeyedSource(KeyedSource.new_key(), "release", "entry")
    child = os.fork()
    if child == 0:
        try:
            source.u64(1)
        except InvalidArgument:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert source.u64(1).size == 1
