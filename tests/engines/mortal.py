"""What goes wrong in a process of Spark's, which imports it from here."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tabulae.products.areas.spine_plan import SpinePieceValues
from tabulae.products.areas.tasks import Task, TaskResult


@dataclass(frozen=True, eq=False)
class Mortal:
    """A task that dies once.

    Args:
        task: what is done.
        number: where it is killed, when its part has been made and nobody was told.
        grave: a file that says that it was.
    """

    task: Task
    number: int
    grave: Path

    def __call__(self, number: int) -> TaskResult:
        done = self.task(number)
        if number == self.number:
            with suppress(FileExistsError):
                self.grave.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return done


def on_a_full_disk(number: int) -> SpinePieceValues:
    """Measurements that cannot be had."""
    raise OSError(errno.ENOSPC, "No space left on device")
