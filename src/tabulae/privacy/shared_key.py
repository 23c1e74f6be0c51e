"""A key that several agents hold, kept in a file, and the record of the releases that it has served.

Distributed privatisation needs agents that draw the same noise without talking to each other. They share one key,
read from a file that only its owner can read, and each keeps a record of the releases it has taken part in: noise
that is drawn a second time for other counts cancels in the difference.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import NoReturn

from ..errors import InvalidArgument
from .source import KEY_BYTES, KeyedSource

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
