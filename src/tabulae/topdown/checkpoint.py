"""Finished stages of a long estimate on the disk: found again after a crash, never half of one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..errors import ReleaseError

_MARK = "estimate.json"


class Checkpoint:
    """A work folder: which stages of one estimate are finished, and small arrays that go with them.

    A stage is its file ``STAGE.npz``, which appears under its name whole and after everything that was flushed before
    it. Large arrays stand beside it in files of their own, whose content counts only once their stage is finished.

    Without a folder nothing is ever found, and everything stays in memory.

    Args:
        folder: is made where it does not exist; None for none.
        digest: of what is estimated, and how: a folder of another estimate is refused.

    Raises:
        ReleaseError: the folder holds another estimate's work, or cannot be read.

    >>> Checkpoint(None, "").found("information") is None
    True
    """

    def __init__(self, folder: Path | None, digest: str) -> None:
        self.folder = folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / _MARK
        if mark.exists():
            if _digest_in(mark) != digest:
                raise ReleaseError(
                    f"{folder} holds the work of another estimate: its plan, method, constraints or version of "
                    "tabulae differ. Use another folder, or remove this one"
                )
        elif any(folder.glob("*.npz")):
            raise ReleaseError(f"{folder} has stages of an estimate and no {_MARK}: remove it and begin anew")
        else:
            _write(mark, (json.dumps({"tabulae_estimate": 1, "digest": digest}) + "\n").encode())

    def place(self, name: str) -> Path | None:
        """Where a large array stands; None without a folder."""
        return None if self.folder is None else self.folder / name

    def found(self, stage: str) -> dict[str, np.ndarray] | None:
        """The small arrays of a finished stage; None where it is not finished.

        Raises:
            ReleaseError: its file cannot be read.
        """
        path = self.place(f"{stage}.npz")
        if path is None or not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except (OSError, ValueError, EOFError) as error:
            raise ReleaseError(
                f"{path} cannot be read: {error}. Remove {self.folder} and begin anew"
            ) from None

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Opening a large array that a finished stage has made: what fails is said with what to do.

        Raises:
            ReleaseError: the file is missing or cut short.
        """
        try:
            yield
        except (OSError, ValueError) as error:
            raise ReleaseError(
                f"{path} cannot be read: {error}. Remove {self.folder} and begin anew"
            ) from None

    def finish(self, stage: str, **small: np.ndarray) -> None:
        """Mark a stage as finished; what is large has to be on the disk already."""
        if (path := self.place(f"{stage}.npz")) is None:
            return
        content = io.BytesIO()
        np.savez(content, **small)  # type: ignore[arg-type]
        _write(path, content.getvalue())


def _digest_in(mark: Path) -> str:
    try:
        return str(json.loads(mark.read_text(encoding="utf-8"))["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"{mark} cannot be read ({error}): remove its folder and begin anew") from None


def _write(path: Path, content: bytes) -> None:
    """Write a file and see it and its name onto the disk; under its name there is never a part of it."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
