"""Plans in a process of their own, so that a page never waits: the last edit wins, a quick plan comes first."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import Problem, SpecError, TabulaeError
from ..products.product import plan
from ..products.tables.plan import Plan
from ..report.numbers import significant
from ..report.plan_page import plan_page
from ..spec import Spec
from .document import put, remove

_QUICK = 0.3  # seconds that a quick strategy may take
_LOADED = ("pandas", *(f"tabulae.products.{kind}.product" for kind in ("tables", "groups", "areas")))
"""What plans import when they first need it, and would wait for."""


@dataclass(frozen=True)
class Answer:
    """What is known of a text: its mistakes, or margins and then the page of its plan; ``last`` where no more comes.

    ``margins`` are those of tables, the widest where one is of several kinds of area; ``cost`` says what the table at a
    position costs the others.
    """

    page: str = ""
    margins: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    cost: tuple[int, str] | None = None
    last: bool = True


class Planner:
    """Plans the last text that it was given, and forgets the ones before it.

    Its process is forked from one that has imported all that a plan needs, so that ending one costs little.

    Privacy:
        Reads no record: a plan is a function of the public spec.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, *_LOADED])
        self._start()

    def _start(self) -> None:
        self._line, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.busy = False

    def ask(self, text: str, folder: Path) -> None:
        """Plan this text, whose paths are relative to a folder; a plan that is under way is given up."""
        if self.busy:
            self.close()
            self._start()
        self._send("plan", text, folder)

    def ask_cost(self, text: str, folder: Path, table: int) -> None:
        """Say what a table of a text that was planned costs the others."""
        self._send("cost", text, folder, table)

    def _send(self, *question: Any) -> None:
        try:
            self._line.send(question)
        except OSError:  # the process was ended while it was idle
            self.close()
            self._start()
            self._line.send(question)
        self.busy = True

    def answers(self) -> Iterator[Answer]:
        """What came since it was last asked for; never waits for a plan."""
        while self.busy and self._line.poll():
            try:
                answer: Answer = self._line.recv()
            except (EOFError, OSError):
                self.close()
                self._start()
                told = "the planner was ended, for want of memory perhaps: edit the spec"
                answer = Answer(problems=(Problem("plan", told),))
            self.busy = not answer.last
            yield answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._line.close()


def _work(line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server hears it, and ends this process
    plans = Plans()
    try:
        while True:
            action, *question = line.recv()
            for answer in getattr(plans, action)(*question):
                line.send(answer)
    except (EOFError, OSError):
        return


class Plans:
    """Plans texts one after the other; what was chosen for the last is kept, for a text that differs in its budget."""

    def __init__(self) -> None:
        self._key: object = None
        self._last: Any = None

    def plan(self, text: str, folder: Path) -> Iterator[Answer]:
        """The plan of a text, or its mistakes: quick margins, those of the strategy that is asked for, the page."""
        yield from _told(lambda: self._planned(text, folder))

    def _planned(self, text: str, folder: Path) -> Iterator[Answer]:
        spec = Spec.from_text(text, folder)
        key = put(text, ("privacy", "budget"), ""), tuple(spec.files.items())
        like = self._last if key == self._key else None
        quick = spec.product.quick_margins(spec, None if spec.targets else like, _QUICK)
        if quick.widest:
            yield Answer(margins=_words(quick.widest, "at most " if quick.bounds else "about "), last=False)
        made = plan(spec) if like is None else spec.product.plan_like(spec, like)
        self._key, self._last = key, made
        margins = _words(made.margins)
        yield Answer(margins=margins, last=False)
        yield Answer(plan_page(made), margins)

    def cost(self, text: str, folder: Path, table: int) -> Iterator[Answer]:
        """What a table costs the others: their errors with it, beside those of a plan without it."""
        yield from _told(lambda: self._cost(text, folder, table))

    def _cost(self, text: str, folder: Path, table: int) -> Iterator[Answer]:
        rest = _errors(plan(Spec.from_text(remove(text, ("table", table)), folder)))
        whole = _errors(plan(Spec.from_text(text, folder)))
        ratios = {name: whole[name] / rest[name] for name in rest if rest[name] and name in whole}
        if not ratios:
            yield Answer(cost=(table, "Nothing: no other table has an error."))
            return
        most = max(ratios, key=lambda name: ratios[name])
        more = [f"{significant(100 * (ratio - 1), 2)} %" for ratio in (ratios[most], min(ratios.values()))]
        told = f"RMSE of {most[0]}: {significant(whole[most])}, and {significant(rest[most])} without this table."
        yield Answer(cost=(table, f"{told} The others have {more[1]} to {more[0]} more error for it."))


def _told(answers: Callable[[], Iterator[Answer]]) -> Iterator[Answer]:
    """Answers, with what is wrong as the last of them."""
    try:
        yield from answers()
    except SpecError as error:
        yield Answer(problems=tuple(error.problems))
    except TabulaeError as error:
        yield Answer(problems=(Problem("plan", str(error)),))
    except OSError as error:
        yield Answer(problems=(Problem("plan", f"{error.filename or 'a file'}: {error.strerror or error}"),))


def _errors(made: Any) -> dict[tuple[str, str | None], float]:
    """The RMSE of each table, and kind of area."""
    if isinstance(made, Plan):
        return {(name, None): error for name, error in made.expected.tables.items()}
    return {(row["table"], row["level"]): row["rmse"] for row in made.errors.to_pylist()}


def _words(margins: Mapping[str, float], sign: str = "") -> dict[str, str]:
    return {name: f"{sign}±{significant(margin)}" if margin else "exact" for name, margin in margins.items()}
