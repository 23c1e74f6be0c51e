"""Where the random bits come from.

The samplers are exact for ideal bits. Released noise takes them from a keystream, AES-256 in counter
mode, keyed by the operating system: computationally indistinguishable from ideal and fast enough that
drawing noise is never the slow step. A source cannot be copied or pickled, because two copies would
draw the same noise twice, and it takes a new key in a forked child for the same reason.

Distributed privatisation needs agents that draw the same noise without talking to each other. They share one key,
read from a file that only its owner can read, and each keeps a record of the releases it has taken part in: noise
that is drawn a second time for other counts cancels in the difference.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import threading
from pathlib import Path
from typing import ClassVar, NoReturn, Protocol, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from ...errors import InvalidArgument

KEY_BYTES = 32
_CIPHER_BLOCK = 16
_BYTES_PER_KEY = 1 << 36  # 2^32 blocks: the advantage of a distinguisher stays below 2^-64


@runtime_checkable
class RandomBits(Protocol):
    """Uniform random bits."""

    secure: ClassVar[bool]

    def u64(self, n: int) -> NDArray[np.uint64]: ...

    def bits(self, k: int) -> int: ...


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
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(_CIPHER_BLOCK))).encryptor()

    def take(self, count: int) -> NDArray[np.uint8]:
        out = np.zeros(count + _CIPHER_BLOCK, np.uint8)  # the cipher asks for room of one block less a byte
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
    ``tabulae.privacy.noise.random_bits.SharedKey`` keeps the key in a file, and a record of releases that outlives
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
        return os.urandom(KEY_BYTES)

    def _stream(self) -> _Keystream:
        if self._only.generation != _Generation.count:
            raise InvalidArgument(
                "a keyed source does not survive a fork: parent and child would draw the same noise twice. Open the "
                "stream in the process that draws"
            )
        return self._only


_HEADING = "tabulae shared key"


class SharedKey:
    """256 bits from the operating system that all agents of a distributed release hold.

    ``create(path)`` writes a new key to a file of mode 0600; carry the file to each agent over a channel you trust,
    and ``read(path)`` it there. Destroy every copy when the last release is out: from then on nobody can subtract the
    noise.

    Privacy: whoever holds the key can compute the noise of every entry of every release made with it, and subtract
    it. The agents therefore trust each other; the key protects the counts against everybody else, and no longer than
    it stays secret. The object shows neither its key nor lets itself be pickled or copied.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "sensors.key"
    >>> SharedKey.create(path).fingerprint == SharedKey.read(path).fingerprint
    True
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise InvalidArgument(
                "a shared key has exactly 32 bytes: use SharedKey.create(path) and SharedKey.read(path)"
            )
        self._key = key

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> SharedKey:
        """Write a new key to a file that did not exist, readable by its owner alone.

        Raises:
            InvalidArgument: the file exists: a key is never overwritten.

        Privacy: 32 bytes of ``os.urandom``.
        """
        key = KeyedSource.new_key()
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidArgument(
                f"{os.fspath(path)!r} exists: read it with SharedKey.read, or choose another path for a new key"
            ) from None
        with os.fdopen(file, "w", encoding="ascii") as out:
            out.write(f"{_HEADING}\n{key.hex()}\n")
            out.flush()
            os.fsync(out.fileno())
        return cls(key)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SharedKey:
        """Read a key that ``create`` wrote.

        Raises:
            InvalidArgument: no such file, other users may read it, or it holds no key.

        Privacy: a file that others can read is refused; whoever could read it can subtract the noise.
        """
        name = os.fspath(path)
        try:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
            lines = Path(path).read_text(encoding="ascii").split("\n")
        except FileNotFoundError:
            raise InvalidArgument(f"there is no key at {name!r}: make one with SharedKey.create") from None
        except UnicodeDecodeError:
            lines, mode = [], 0
        if os.name == "posix" and mode & 0o077:
            raise InvalidArgument(
                f"the key {name!r} can be read by others (mode {mode:o}): chmod 600 it if nobody did, or make a new one"
            )
        try:
            heading, key, end = lines
            if (heading, end) != (_HEADING, ""):
                raise ValueError
            return cls(bytes.fromhex(key))
        except ValueError:
            raise InvalidArgument(
                f"{name!r} holds no shared key: it should be as SharedKey.create wrote it"
            ) from None

    @property
    def fingerprint(self) -> str:
        """A name for the key that tells nothing of it: agents compare it to see that they hold the same."""
        return self._derive(b"fingerprint", "").hex()[:32]

    def begin(self, release: str, record: str | os.PathLike[str]) -> KeyedRelease:
        """Enter a release into this agent's record, once and for all, and only then give out its streams.

        Args:
            release: its name, the same at every agent, never used before with this key.
            record: a folder of this agent's own that outlives the process; made if absent. Each release adds one
                small file to it, atomically, so that of two processes only one is let through.

        Raises:
            InvalidArgument: the release is in the record, or has no name.

        Privacy: two releases under one name would carry the same noise, and their difference would show the exact
        change of every count. A crash after this call costs the name, never privacy: send the stored share again if
        there is one, otherwise let all agents agree on a new name.
        """
        if not release:
            raise InvalidArgument("a release needs a name: the same at every agent, and never used before")
        folder = Path(record)
        folder.mkdir(parents=True, exist_ok=True)
        entry = folder / f"{self._derive(b'record', release).hex()}.txt"
        try:
            file = os.open(entry, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidArgument(
                f"release {release!r} was already made with this key (see {entry}): its noise must not be drawn twice. "
                "Send the share that was stored, or agree with all agents on a new name"
            ) from None
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(f"{release}\n")
            out.flush()
            os.fsync(out.fileno())
        _sync_folder(folder)
        return KeyedRelease(self, release)

    def _derive(self, purpose: bytes, text: str) -> bytes:
        # Keyed sources begin their message with other bytes, so that no stream key is ever shown by this.
        message = b"tabulae shared key: " + len(purpose).to_bytes(8, "big") + purpose + text.encode()
        return hmac.new(self._key, message, hashlib.sha256).digest()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InvalidArgument(
            "a SharedKey cannot be pickled or copied: give each process the path, and SharedKey.read it there"
        )

    def __repr__(self) -> str:
        return f"SharedKey(fingerprint={self.fingerprint!r})"


class KeyedRelease:
    """The streams of one release: made by ``SharedKey.begin``, after the record was written.

    Privacy: each entry's stream is keyed by HMAC-SHA256 of the release's and the entry's name, so that streams are
    computationally independent of each other, and is opened once in a process.

    >>> import tempfile
    >>> release = SharedKey(KeyedSource.new_key()).begin("May 2030", record=tempfile.mkdtemp())
    >>> len(release.source("17").u64(2))
    2
    """

    def __init__(self, key: SharedKey, release: str) -> None:
        self._shared = key
        self.name = release

    def source(self, entry: str) -> KeyedSource:
        """The stream of one entry."""
        return KeyedSource(self._shared._key, self.name, entry)

    def tag(self, agreed: str) -> str:
        """A mark that agents share exactly if they hold the same key and agreed on the same text.

        Privacy: 128 bits of HMAC-SHA256 of the release's name and the text; it tells nothing of the key.
        """
        return self._shared._derive(b"tag", f"{len(self.name)}:{self.name}{agreed}").hex()[:32]

    def __repr__(self) -> str:
        return f"KeyedRelease({self.name!r})"


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; where folders cannot be opened the system gives no such promise."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
