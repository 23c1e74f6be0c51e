"""The operating system's randomness, made repeatable: the one hook of the net.

Every random bit of a release (the key of the noise, the secret of a ledger, the nonce of a charge, the name of a
temporary view) is asked of ``os.urandom``. While this context is open it answers from a seed instead, so that a run
with a real ledger goes from end to end, the same each time, and nothing of tabulae is replaced.

A draw of 32 bytes is a key. It is the same however many keys were drawn before it, so that the noise of a run does not
depend on what else was made on the way to it. Draws of other lengths are names and nonces, which must differ from each
other: they are counted over the whole process, and what depends on them is set aside by :mod:`tests.net.normal`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_KEY_BYTES = 32
_COUNT = itertools.count()


@contextmanager
def frozen(seed: str) -> Iterator[None]:
    """Keys that follow from the seed."""

    def answer(size: int) -> bytes:
        told = seed if size == _KEY_BYTES else f"draw {next(_COUNT)}"
        return hashlib.shake_256(told.encode()).digest(size)

    real = os.urandom
    os.urandom = answer
    try:
        yield
    finally:
        os.urandom = real
