"""Sources: fresh after a fork, never copied, shared by threads without overlap, separated by name."""

import copy
import json
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from tabulae.errors import InvalidArgument
from tabulae.privacy import Insecure, KeyedSource, RandomBits, SystemSource, noise
from tabulae.privacy.noise import random_bits as module


def in_child(work):
    """Run ``work`` in a forked child and return the integers that it computes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps([int(v) for v in work()]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = json.load(pipe)
    os.waitpid(child, 0)
    return answer


def sources():
    return [SystemSource(), Insecure(1), KeyedSource(KeyedSource.new_key(), "release", "entry")]


@pytest.mark.parametrize("make", range(3))
def test_every_source_gives_words_and_bits(make):
    source = sources()[make]
    assert isinstance(source, RandomBits)
    words = source.u64(1000)
    assert words.dtype == np.uint64
    assert words.shape == (1000,)
    assert len(np.unique(words)) == 1000
    assert source.u64(0).size == 0
    assert [source.bits(k).bit_length() <= k for k in (1, 7, 8, 64, 129)] == [True] * 5
    assert source.bits(0) == 0


def test_only_the_seeded_source_is_insecure():
    assert [s.secure for s in sources()] == [True, False, True]


@pytest.mark.parametrize("make", range(3))
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_no_source_is_copied(make, duplicate):
    with pytest.raises(InvalidArgument, match="twice"):
        duplicate(sources()[make])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_takes_a_new_key():
    source = SystemSource()
    source.u64(3)
    child = in_child(lambda: source.u64(50))
    grandchild = in_child(lambda: in_child(lambda: source.u64(50)))
    here = source.u64(50).tolist()
    assert not set(here) & set(child)
    assert not set(child) & set(grandchild)
    assert not set(here) & set(grandchild)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_noise_differs_in_a_forked_child():
    noise.discrete_gaussian(10, variance=10**12)
    child = in_child(lambda: noise.discrete_gaussian(40, variance=10**12))
    assert child != noise.discrete_gaussian(40, variance=10**12).tolist()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_draws_does_not_hang():
    source, stop = SystemSource(), threading.Event()

    def work():
        while not stop.is_set():
            source.u64(10_000)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(8):
            assert len(in_child(lambda: source.u64(5))) == 5
    finally:
        stop.set()
        thread.join()


def test_threads_share_a_source_without_sharing_words():
    source, found = SystemSource(), []

    def work():
        found.extend(source.u64(100).tolist() for _ in range(200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = [word for batch in found for word in batch]
    assert len(words) == 4 * 200 * 100
    assert len(set(words)) == len(words)


def test_a_new_key_after_so_many_bytes(monkeypatch):
    monkeypatch.setattr(module, "_BYTES_PER_KEY", 64)
    source = SystemSource()
    before = source._current
    source.u64(9)
    assert source._current is before
    source.u64(1)
    assert source._current is not before


def test_seeded_streams_are_the_same_everywhere():
    """Golden words: SHA-256 of the seed as AES-256-CTR key, counter from 0, little-endian words."""
    assert [hex(w) for w in Insecure(0).u64(2).tolist()] == GOLDEN
    assert Insecure(0).u64(3).tolist() != Insecure(1).u64(3).tolist()
    whole, parts = Insecure(5), Insecure(5)
    assert whole.u64(10).tolist() == [*parts.u64(4).tolist(), *parts.u64(6).tolist()]
    out = subprocess.run(
        [sys.executable, "-c", "from tabulae.privacy import Insecure; print(Insecure(0).u64(2).tolist())"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(out.stdout) == Insecure(0).u64(2).tolist()


def test_the_keystream_is_aes_256_ctr():
    """NIST SP 800-38A, F.5.5 gives AES-256 on a counter block; here the counter starts at 0."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = bytes(range(32))
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = b"".join(encryptor.update(i.to_bytes(16, "big")) for i in range(4))
    assert module._Keystream(key).take(64).tobytes() == blocks


@pytest.mark.parametrize("bad", [True, 1.5, "seed", None])
def test_a_seed_is_an_integer(bad):
    with pytest.raises(InvalidArgument):
        Insecure(bad)


def test_keyed_streams_are_separated_and_shared():
    key = KeyedSource.new_key()
    streams = {
        (release, entry): KeyedSource(key, release, entry).u64(20).tolist()
        for release, entry in (("a", "b"), ("ab", "c"), ("a", "bc"), ("b", "a"))
    }
    assert len({tuple(words) for words in streams.values()}) == 4
    assert KeyedSource(KeyedSource.new_key(), "a", "b").u64(20).tolist() != streams["a", "b"]
    code = (
        "import sys; from tabulae.privacy import KeyedSource; "
        "print(KeyedSource(bytes.fromhex(sys.argv[1]), 'ab', 'c').u64(20).tolist())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, key.hex()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(out.stdout) == streams["ab", "c"], "the other holder of the key draws the same"


def test_a_keyed_stream_is_opened_once():
    key = KeyedSource.new_key()
    KeyedSource(key, "2030", "sex")
    with pytest.raises(InvalidArgument, match="twice"):
        KeyedSource(key, "2030", "sex")
    KeyedSource(key, "2030", "age")


@pytest.mark.parametrize("bad", [b"short", "0" * 32, bytes(33), None])
def test_keys_have_32_bytes(bad):
    with pytest.raises(InvalidArgument):
        KeyedSource(bad, "a", "b")
    with pytest.raises(InvalidArgument):
        KeyedSource(KeyedSource.new_key(), "", "b")


def test_the_key_is_not_shown():
    key = KeyedSource.new_key()
    assert key.hex() not in repr(KeyedSource(key, "x", "y"))


GOLDEN = ["0x32974d8b512306a7", "0xb8dab711557f52af"]
