"""Plans in a process of their own, so that a page never waits: the last edit wins, a quick plan comes first."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import Problem, SpecError, TabulaeError
from ..products.product import plan
from ..report.numbers import significant
from ..report.plan_page import plan_page
from ..spec import Spec


@dataclass(frozen=True)
class Answer:
    """What is known of a text: its mistakes, or the page of its plan; ``last`` where nothing more comes.

    ``margins`` are those of tables, the widest where one is of several kinds of area.
    """

    page: str = ""
    margins: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    last: bool = True


class _Worker:
    """A process that plans what it is sent."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.line, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


class Planner:
    """Plans the last text that it was given, and forgets the ones before it.

    A second process waits, ready, to take the place of one whose plan is given up.

    Privacy:
        Reads no record: a plan is a function of the public spec.
    """

    def __init__(self) -> None:
        self._worker, self._spare = _Worker(), _Worker()
        self.busy = False

    def _next(self) -> None:
        self._worker.close()
        self._worker, self._spare = self._spare, _Worker()

    def ask(self, text: str, folder: Path) -> None:
        """Plan this text, whose paths are relative to a folder; a plan that is under way is given up."""
        if self.busy:
            self._next()
        self.busy = True
        try:
            self._worker.line.send((text, folder))
        except OSError:  # the process was ended while it was idle
            self._next()
            self._worker.line.send((text, folder))

    def answers(self) -> Iterator[Answer]:
        """What came since it was last asked for; never waits for a plan."""
        while self.busy and self._worker.line.poll():
            try:
                answer: Answer = self._worker.line.recv()
            except (EOFError, OSError):
                self._next()
                told = "the planner was ended, for want of memory perhaps: edit the spec"
                answer = Answer(problems=(Problem("plan", told),))
            self.busy = not answer.last
            yield answer

    def close(self) -> None:
        """End the processes."""
        self._worker.close()
        self._spare.close()


def _work(line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server hears it, and ends this process
    try:
        while True:
            for answer in planned(*line.recv()):
                line.send(answer)
    except (EOFError, OSError):
        return


def planned(text: str, folder: Path) -> Iterator[Answer]:
    """The plan of a text, or its mistakes; where the spec sets a tolerance, first the plan without that search."""
    try:
        spec = Spec.from_text(text, folder)
        if spec.kind == "tables" and spec.method.tolerance is not None:
            quick = replace(spec, method=replace(spec.method, tolerance=None))
            yield _answer(plan(quick), last=False)
        yield _answer(plan(spec))
    except SpecError as error:
        yield Answer(problems=tuple(error.problems))
    except TabulaeError as error:
        yield Answer(problems=(Problem("plan", str(error)),))
    except OSError as error:
        yield Answer(problems=(Problem("plan", f"{error.filename or 'a file'}: {error.strerror or error}"),))


def _answer(made: Any, *, last: bool = True) -> Answer:
    margins: dict[str, float] = {}
    for row in made.errors.to_pylist():
        margins[row["table"]] = max(row["margin"], margins.get(row["table"], 0.0))
    told = {name: f"±{significant(margin)}" if margin else "exact" for name, margin in margins.items()}
    return Answer(plan_page(made), told, last=last)
