"""Finished stages of a long estimate on the disk: found again after a crash, never half of one."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import VERSION
from ...errors import InvalidArgument, ReleaseError
from ...release import folder as f
from .constraints import AreaConstraints
from .layout import Margin
from .spine_plan import SpinePlan

_MARK = "estimate.json"


class Checkpoint:
    """A work folder: which stages of one estimate are finished, and small arrays that go with them.

    A stage is its file ``STAGE.npz``, which appears under its name whole and after everything that was flushed before
    it. Large arrays stand beside it in files of their own, whose content counts only once their stage is finished.

    Without a folder nothing is ever found, and everything stays in memory.

    Args:
        folder: is made where it does not exist; None for none.
        digest: of what is estimated, and how: a folder of another estimate is refused.

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
            raise ReleaseError(
                f"{folder} has stages of an estimate and no {_MARK}: remove it and start again"
            )
        else:
            _write(mark, (json.dumps({"tabulae_estimate": 1, "digest": digest}) + "\n").encode())

    def place(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def found(self, stage: str) -> dict[str, np.ndarray] | None:
        """The small arrays of a finished stage; None where it is not finished."""
        path = self.place(f"{stage}.npz")
        if path is None or not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except (OSError, ValueError, EOFError) as error:
            raise ReleaseError(
                f"{path} cannot be read: {error}. Remove {self.folder} and start again"
            ) from None

    def begun(self, step: str) -> bool:
        """Whether some stage of a step (named ``STEP-...``) is finished."""
        return self.folder is not None and any(self.folder.glob(f"{step}-*.npz"))

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Opening a large array that a finished stage has made: what fails is said with what to do."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise ReleaseError(
                f"{path} cannot be read: {error}. Remove {self.folder} and start again"
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
        raise ReleaseError(f"{mark} cannot be read ({error}): remove its folder and start again") from None


def _write(path: Path, content: bytes) -> None:
    f.write_bytes(path, content)
    f.sync_folder(path.parent)


_TEXTS = 1 << 20  # how many texts are looked at at a time


class Fingerprint:
    """SHA-256 over parts of several kinds, each with its kind and length, so that no two lists of parts agree.

    >>> Fingerprint().add("a", "b").hex() == Fingerprint().add("ab").hex()
    False
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()

    def add(self, *parts: Any) -> Fingerprint:
        """Take in arrays, texts, and lists and tuples of them; anything else as its ``repr``."""
        for part in parts:
            if isinstance(part, np.ndarray):
                array = np.ascontiguousarray(part)
                if array.dtype.kind in "OUS":
                    self._texts(array.ravel())
                    continue
                self._mark("array", f"{array.dtype.str} {array.shape}")
                self._state.update(array.data if array.size else b"")
            elif isinstance(part, list | tuple):
                self._mark("list", str(len(part)))
                self.add(*part)
            elif isinstance(part, Mapping):
                self._mark("mapping", str(len(part)))
                self.add(*[list(item) for item in part.items()])
            else:
                self._mark(type(part).__name__, part if isinstance(part, str) else repr(part))
        return self

    def _texts(self, array: np.ndarray) -> None:
        """Texts, some at a time: their lengths, then they themselves."""
        self._mark("texts", str(array.size))
        for first in range(0, array.size, _TEXTS):
            told = [str(one) for one in array[first : first + _TEXTS].tolist()]
            self._state.update(np.fromiter(map(len, told), "<i8", len(told)).data)
            self._state.update("".join(told).encode())

    def _mark(self, kind: str, text: str) -> None:
        content = text.encode()
        self._state.update(f"{kind} {len(content)} ".encode() + content)

    def hex(self) -> str:
        return self._state.hexdigest()


def plan_digest(plan: SpinePlan) -> str:
    """What makes two plans the same, for this version."""
    shares = plan.spine.shares
    assert shares is not None
    hierarchy, layout = plan.spine.hierarchy, plan.layout
    found = Fingerprint().add(VERSION, hierarchy.levels, hierarchy.codes, hierarchy.units)
    found.add([[name, areas.codes, areas.unit] for name, areas in plan.spine.held.items()])
    found.add([str(share) for share in shares.values], shares.index)
    found.add(layout.domain.names, layout.domain.shape, layout.dense, layout.codes)
    found.add([_margin(query) for query in plan.queries])
    found.add({level: [str(share) for share in given] for level, given in plan.query_shares.items()})
    found.add(repr(plan.budget), plan.neighbours, plan.rows_per_unit)
    found.add(np.packbits(plan.support.patterns, axis=1), plan.support.pattern)
    return found.hex()


def estimate_digest(
    plan: SpinePlan,
    method: str,
    constraints: AreaConstraints | None,
    exact_values: Iterable[np.ndarray],
    measurements: str,
) -> str:
    """What makes two estimates the same: plan, method, constraints, exact counts, version, and measurements' digest."""
    values = list(exact_values)
    if len(values) != (0 if constraints is None else len(constraints.exact)):
        raise InvalidArgument("one array of exact counts for each exact margin of the constraints")
    found = Fingerprint().add(plan_digest(plan), method, measurements)
    if constraints is not None:
        found.add(constraints.part, constraints.lower, constraints.upper)
        found.add([[exact.level, *_margin(exact.margin)] for exact in constraints.exact], values)
        found.add([[each.level, *_margin(each.margin), each.values] for each in constraints.earlier])
    return found.hex()


def _margin(margin: Margin) -> list[Any]:
    return [margin.names, margin.label, list(margin.maps)]
