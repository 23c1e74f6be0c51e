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


class Planner:
    """Plans the last text that it was given, and forgets the ones before it.

    Privacy:
        Reads no record: a plan is a function of the public spec.
    """

    def __init__(self, folder: Path) -> None:
        """Paths in the texts are relative to ``folder``."""
        self._folder = folder
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._line, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(theirs, self._folder), daemon=True)
        self._process.start()
        theirs.close()
        self.busy = False

    def ask(self, text: str) -> None:
        """Plan this text; a plan of an earlier one that is under way is given up."""
        if self.busy:
            self.close()
            self._start()
        self.busy = True
        try:
            self._line.send(text)
        except OSError:  # the process was ended while it was idle
            self.close()
            self._start()
            self._line.send(text)
            self.busy = True

    def answers(self) -> Iterator[Answer]:
        """What came since it was last asked for; never waits for a plan."""
        while self.busy and self._line.poll():
            try:
                answer: Answer = self._line.recv()
            except (EOFError, OSError):
                self.close()
                self._start()
                answer = Answer(
                    problems=(
                        Problem("plan", "the planner was ended, for want of memory perhaps: edit the spec"),
                    )
                )
            self.busy = not answer.last
            yield answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._line.close()


def _work(line: Connection, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server hears it, and ends this process
    try:
        while True:
            for answer in planned(line.recv(), folder):
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
