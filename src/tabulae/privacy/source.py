"""Where the random bits come from.

The samplers are exact for ideal bits. Released noise takes them from a keystream, AES-256 in counter
mode, keyed by the operating system: computationally indistinguishable from ideal and fast enough that
drawing noise is never the slow step. A source cannot be copied or pickled, because two copies would
draw the same noise twice, and it takes a new key in a forked child for the same reason.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from typing import ClassVar, NoReturn, Protocol, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from ..errors import InvalidArgument

KEY_BYTES = 32
_BLOCK = 16
_BYTES_PER_KEY = 1 << 36  # 2^32 blocks: the advantage of a distinguisher stays below 2^-64


@runtime_checkable
class Source(Protocol):
    """Uniform random bits."""

    secure: ClassVar[bool]

    def u64(self, n: int) -> NDArray[np.uint64]:
        """n independent uniform 64-bit words."""
        ...

    def bits(self, k: int) -> int:
        """A uniform integer of k bits."""
        ...


class _Generation:
    """Counts the forks that led to this process."""

    count = 0

    @classmethod
    def advance(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to notice
    os.register_at_fork(after_in_child=_Generation.advance)


class _Keystream:
    """An AES-256-CTR stream that threads may share; each byte is handed out once."""

    def __init__(self, key: bytes) -> None:
        self.lock = threading.Lock()
        self.generation = _Generation.count
        self.left = _BYTES_PER_KEY
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(_BLOCK))).encryptor()

    def take(self, count: int) -> NDArray[np.uint8]:
        out = np.zeros(count + _BLOCK, np.uint8)  # the cipher asks for room of one block less a byte
        with self.lock:
            self.left -= count
            self._cipher.update_into(out.data[:count], out.data)
        return out[:count]


class _StreamSource:
    """What the three sources share: words and bits out of a keystream, and the refusal to be copied."""

    secure: ClassVar[bool]

    def _stream(self) -> _Keystream:
        raise NotImplementedError

    def u64(self, n: int) -> NDArray[np.uint64]:
        """n independent uniform 64-bit words."""
        return self._stream().take(8 * n).view(np.dtype("<u8")).astype(np.uint64, copy=False)

    def bits(self, k: int) -> int:
        """A uniform integer of k bits."""
        count = (k + 7) // 8
        return int.from_bytes(self._stream().take(count).tobytes(), "big") >> (8 * count - k)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InvalidArgument(
            f"a {type(self).__name__} cannot be pickled or copied: two copies would draw the same noise "
            "twice. Create one where the noise is drawn"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class SystemSource(_StreamSource):
    """The source of released noise: AES-256-CTR keyed by the operating system.

    Takes a new key at creation, in every forked child, and after 64 GiB. Threads may share it.

    Privacy: computational; no bit is used twice, and the key never leaves the object.

    >>> len(SystemSource().u64(3))
    3
    """

    secure: ClassVar[bool] = True

    def __init__(self) -> None:
        self._current = _Keystream(os.urandom(KEY_BYTES))

    def _stream(self) -> _Keystream:
        stream = self._current
        if stream.generation != _Generation.count or stream.left <= 0:
            stream = self._current = _Keystream(os.urandom(KEY_BYTES))
        return stream


class Insecure(_StreamSource):
    """A repeatable source, for rehearsals and tests: whoever knows the seed can remove the noise.

    Args:
        seed: an integer; equal seeds give equal streams on every platform.

    Raises:
        InvalidArgument: a seed that is not an integer.

    Privacy: none. Whatever it touched is marked a rehearsal and refused by a release.

    >>> int(Insecure(1).bits(32)) == int(Insecure(1).bits(32))
    True
    """

    secure: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise InvalidArgument(f"seed is a {type(seed).__name__}; an insecure source takes an integer")
        self.seed = int(seed)
        self._only = _Keystream(hashlib.sha256(b"tabulae insecure source %d" % self.seed).digest())

    def _stream(self) -> _Keystream:
        return self._only

    def __repr__(self) -> str:
        return f"Insecure({self.seed})"


class KeyedSource(_StreamSource):
    """A stream that holders of one 256-bit key can draw alike, for distributed privatisation.

    The stream depends on the key, the release and the entry; a triple is accepted once in a process,
    because noise drawn twice from one stream cancels. Whoever holds the key can subtract the noise.
    ``tabulae.privacy.shared_key.SharedKey`` keeps the key in a file, and a record of releases that outlives
    the process.

    Args:
        key: 32 bytes from ``KeyedSource.new_key()``, shared over a channel you trust.
        release: the name of the release: never used again with this key.
        entry: the name of the part of the release that this stream serves.

    Raises:
        InvalidArgument: a key of another length, an empty name, or a stream already opened.

    Privacy: computational, against everybody who does not hold the key.

    >>> key = KeyedSource.new_key()
    >>> bool((KeyedSource(key, "2030", "sex").u64(4) == KeyedSource(key, "2030", "age").u64(4)).any())
    False
    """

    secure: ClassVar[bool] = True
    _opened: ClassVar[set[bytes]] = set()

    def __init__(self, key: bytes, release: str, entry: str) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise InvalidArgument("a keyed source takes a key of exactly 32 bytes: use KeyedSource.new_key()")
        if not release or not entry:
            raise InvalidArgument("a keyed source needs the names of its release and its entry")
        names = [name.encode() for name in (release, entry)]
        message = b"tabulae keyed source" + b"".join(len(name).to_bytes(8, "big") + name for name in names)
        derived = hmac.new(key, message, hashlib.sha256).digest()
        mark = hashlib.sha256(derived).digest()
        if mark in self._opened:
            raise InvalidArgument(
                f"the stream of release {release!r}, entry {entry!r} was already opened with this key; "
                "the same noise must not be drawn twice: name a new entry"
            )
        self._opened.add(mark)
        self._only = _Keystream(derived)

    @staticmethod
    def new_key() -> bytes:
        """32 bytes from the operating system."""
        return os.urandom(KEY_BYTES)

    def _stream(self) -> _Keystream:
        if self._only.generation != _Generation.count:
            raise InvalidArgument(
                "a keyed source does not survive a fork: parent and child would draw the same noise twice. Open the "
                "stream in the process that draws"
            )
        return self._only
