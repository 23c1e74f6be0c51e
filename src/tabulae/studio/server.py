"""A server for one person on one machine: it answers those who hold its token, and no other page.

Four things are checked of every request, whatever it asks for: the name that the server was called by (a foreign name
that resolves to this machine is refused), the page that asks, the token, and the size of what is sent.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import jinja2

from ..errors import TabulaeError
from ..release import Release
from ..release.folder import REPORT
from ..report.page import script
from .change import change
from .document import SpecText
from .form import Mistake, chapters, map_of
from .planner import Answer, Planner
from .reader import read
from .runs import Job, Run, account_of, create_ledger, place_for, releases_in, unfinished_in
from .start import starts

_HOST = "127.0.0.1"
_LARGEST = 1 << 20  # bytes of a request
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_READER = _POLICY.replace("form-action 'none'", "form-action 'self'")
_FRAMED = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"  # a plan's page carries its own policy besides
_OPENED = ("/", "/plan", "/report", "/read")  # what a person opens, and a script does not ask for
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


Asked = Mapping[str, list[str]]
"""What the address of a page asks for."""
Sent = Mapping[str, Any]
State = dict[str, Any]


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


class Studio:
    """A spec on a local page, with its plan beside it.

    Privacy:
        Opens no record. Of the ledger the plan's page says what is left. It listens on this machine alone.
    """

    def __init__(self, place: str | Path, port: int = 0) -> None:
        """Listen, at a free port where none is given, and begin with the plan.

        Args:
            place: a spec, records, or a folder: see :func:`~tabulae.studio.start.starts`.
            port: where to listen.

        Raises:
            ReleaseError, DataError: there is no such file, or it is not what its name says; a server does not answer.
            InvalidArgument: the url of a database cannot be one, or holds a password.
            OSError: the port is taken.
        """
        self.token = secrets.token_urlsafe(32)
        self._starts = starts(place)
        self._document = self._starts[0].open() if len(self._starts) == 1 else None
        self._server = _Server((_HOST, port), _Handler)
        self._server.studio = self
        self.origin = f"http://{_HOST}:{self._server.server_port}"
        self.cookie = f"tabulae-{self._server.server_port}"  # cookies do not tell ports apart
        self._lock = threading.Lock()
        self._planner = Planner()
        self._answer = Answer(last=False)
        self._page, self._version, self._edits = "", 0, 0
        self._margins: Mapping[str, str] = {}
        self._costs: dict[int, str] = {}
        self._run: Run | None = None
        if self._document is not None:
            self._ask()

    @property
    def document(self) -> SpecText:
        """The spec that is edited.

        Raises:
            Refused: none was chosen yet.
        """
        if self._document is None:
            raise Refused(HTTPStatus.CONFLICT, "nothing was chosen to begin with")
        return self._document

    def start(self, sent: Sent) -> State:
        """Begin with one of what there is."""
        choice = sent.get("choice")
        with self._lock:
            if self._document is None and isinstance(choice, int) and 0 <= choice < len(self._starts):
                try:
                    self._document = self._starts[choice].open()
                except (TabulaeError, OSError) as error:
                    raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
                self._ask()
        return self.state()

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"{self.origin}/?token={self.token}"

    def serve(self) -> None:
        """Answer until interrupted."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop listening, and planning."""
        self._server.server_close()
        self._planner.close()
        if self._run is not None:
            self._run.close()

    def stop(self) -> None:
        """End :meth:`serve` from another thread."""
        self._server.shutdown()

    def page(self, _: Asked) -> str:
        """The page itself, with the text as it was last typed."""
        if self._document is None:
            return _templates().get_template("start.html").render(starts=self._starts)
        with self._lock:
            text, name = self.document.text, self.document.path.name
        return _templates().get_template("studio.html").render(text=text, name=name)

    def plan(self, _: Asked) -> str:
        """The page of the last plan."""
        with self._lock:
            return self._page

    def form(self, asked: Asked) -> str:
        """The form of the text, with the entries open that are asked for."""
        opened = asked.get("open", [])
        with self._lock:
            text = self.document.text
        try:
            shown = chapters(text, opened, self.document.path.parent)
        except tomllib.TOMLDecodeError:
            return _templates().get_template("unread.html").render()
        return _templates().get_template("form.html").render(chapters=shown, opened=opened)

    def edit(self, sent: Sent) -> State:
        """Take what was typed and plan it."""
        return self._take(lambda: _text(sent, "text"))

    def change(self, sent: Sent) -> State:
        """Change the text as a control of the form says."""
        path, op = sent.get("path"), _text(sent, "op")
        if not isinstance(path, list) or not all(isinstance(part, str | int) for part in path):
            raise Refused(HTTPStatus.BAD_REQUEST, "a path is a list of keys and positions")
        value = sent.get("value")

        def changed() -> str:
            if sent.get("version") != self._edits:
                raise Refused(HTTPStatus.CONFLICT, "the text was changed meanwhile: try again")
            if op == "group":
                return self._grouped(tuple(path), value)
            return change(self.document.text, op, tuple(path), value)

        return self._take(changed)

    def _grouped(self, path: tuple[str | int, ...], value: Any) -> str:
        """Write a map, which is a file, and name it in the text."""
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise Refused(HTTPStatus.BAD_REQUEST, "groups are words")
        name = re.sub(r"\W+", "_", str(path[-1])).strip("_") or "groups"
        place = self.document.write_beside(f"codes/{name}.csv", map_of(value))
        text = change(self.document.text, "set", (*path, "map"), {"kind": "text", "value": place})
        for key in ("edges", "level"):
            text = change(text, "set", (*path, key), {"kind": "text", "value": ""})
        return text

    def cost(self, sent: Sent) -> State:
        """Ask what a table costs the others."""
        table = sent.get("table")
        with self._lock:
            if self._planner.busy or self._answer.problems:
                raise Refused(HTTPStatus.CONFLICT, "wait for the plan of this text")
            if isinstance(table, bool) or not isinstance(table, int) or table < 0:
                raise Refused(HTTPStatus.BAD_REQUEST, "a table is asked for by its position")
            self._answer = replace(self._answer, last=False)
            self._planner.ask_cost(self.document.text, self.document.path.parent, table)
        return self.state()

    def runs(self, _: Asked) -> str:
        """What can be run, what was, and what it costs."""
        with self._lock:
            document, raw = self.document, self._raw()
            folder, privacy = document.path.parent, raw.get("privacy")
            privacy = privacy if isinstance(privacy, dict) else {}
            named = privacy.get("ledger")
            account = account_of(folder / named, folder) if isinstance(named, str) and named else None
            return (
                _templates()
                .get_template("runs.html")
                .render(
                    account=account,
                    budget=str(privacy.get("budget", "")),
                    ready=not (document.unsaved or document.changed or self._answer.problems),
                    name=next(name for name in _names() if not (folder / name).exists()),
                    unfinished=unfinished_in(folder),
                    releases=list(releases_in(folder)),
                    run=self._run,
                )
            )

    def _raw(self) -> Mapping[str, Any]:
        """The text as parsed; nothing where it is no TOML."""
        try:
            return tomllib.loads(self.document.text)
        except tomllib.TOMLDecodeError:
            return {}

    def create_ledger(self, sent: Sent) -> State:
        """Make the ledger that the text names."""
        cap = _text(sent, "cap")
        with self._lock:
            raw = self._raw()
            privacy, source = raw.get("privacy", {}), raw.get("source", {})
            try:
                path = self.document.path.parent / privacy["ledger"]
                create_ledger(path, privacy, source.get("unit", "person"), cap)
            except (KeyError, TypeError, AttributeError):
                raise Refused(HTTPStatus.CONFLICT, "name a ledger under Privacy first") from None
            except (TabulaeError, OSError) as error:
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
            self._ask()  # the plan says what is left
        return self.state()

    def run(self, sent: Sent) -> State:
        """Start a run of the spec as saved, or a rehearsal of it."""
        document, rehearse, resume = self.document, sent.get("rehearse") is True, sent.get("resume") is True
        with self._lock:
            if self._run is not None and self._run.status.state == "running":
                raise Refused(HTTPStatus.CONFLICT, "a run is under way")
            if document.unsaved or document.changed:
                raise Refused(HTTPStatus.CONFLICT, "save the spec first: what is run is the file")
            name, out = "rehearsal" if rehearse else _text(sent, "name"), document.path.parent
            try:
                if resume and name not in unfinished_in(out):
                    raise Refused(HTTPStatus.CONFLICT, f"there is no unfinished run of {name}")
                out = out / name if resume or rehearse else place_for(out, name)
            except TabulaeError as error:
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
            if self._run is not None:
                self._run.close()
            self._run = Run(Job(str(document.path), str(out), resume, rehearse))
        return self.state()

    def cancel(self, _: Sent) -> State:
        """End the run, unless it is charged."""
        if self._run is None or not self._run.cancel():
            raise Refused(
                HTTPStatus.CONFLICT,
                "the budget is charged: what stopping does now is lose the noise that it paid for, and not save it",
            )
        return self.state()

    def stop_run(self, _: Sent) -> State:
        """End the run, charged as it is."""
        if self._run is not None:
            self._run.stop()
        return self.state()

    def report(self, asked: Asked) -> str:
        """The report of a release beside the spec, or of the rehearsal."""
        return (self._release(asked) / REPORT).read_text(encoding="utf-8")

    def read(self, asked: Asked) -> str:
        """The reader of a release."""
        folder, name = self._release(asked), asked.get("release", [""])[0]
        try:
            reading = read(Release.read(folder), asked)
        except TabulaeError as error:
            raise Refused(HTTPStatus.CONFLICT, str(error)) from None
        return _templates().get_template("read.html").render(reading=reading, release=name)

    def _release(self, asked: Asked) -> Path:
        """The folder of the release that is asked for: one of those that there are, by its name alone."""
        names, folder = asked.get("release", []), self.document.path.parent
        if (
            names == [""]
            and self._run is not None
            and self._run.job.rehearse
            and self._run.status.state == "done"
        ):
            return self._run.out
        if len(names) != 1 or names[0] not in releases_in(folder):
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such release")
        return folder / names[0]

    def undo(self, _: Sent) -> State:
        """Take back the last edit, wherever it was made."""
        return self._moved(SpecText.undo)

    def redo(self, _: Sent) -> State:
        """Take back the last undo."""
        return self._moved(SpecText.redo)

    def _moved(self, move: Callable[[SpecText], None]) -> State:
        with self._lock:
            move(self.document)
            self._ask()
        return self.state() | {"text": self.document.text}

    def _take(self, made: Callable[[], str]) -> State:
        with self._lock:
            before = self.document.text
            try:
                self.document.edit(made())
            except Mistake as error:
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
            except tomllib.TOMLDecodeError:
                raise Refused(HTTPStatus.CONFLICT, "the text is no TOML at present: mend it first") from None
            except OSError as error:
                raise Refused(HTTPStatus.CONFLICT, f"not written: {error.strerror or error}") from None
            if self.document.text != before or self._answer.problems:
                self._ask()
        return self.state() | {"text": self.document.text}

    def _ask(self) -> None:
        self._edits += 1
        self._costs.clear()
        self._answer = Answer(last=False)
        self._planner.ask(self.document.text, self.document.path.parent)

    def save(self, sent: Sent) -> State:
        """Write the file, unless another program changed it."""
        text, over = _text(sent, "text"), sent.get("over", False)
        if not isinstance(over, bool):
            raise Refused(HTTPStatus.BAD_REQUEST, "over is true or false")
        with self._lock:
            if text != self.document.text:
                raise Refused(
                    HTTPStatus.CONFLICT, "the text to save is not the last that was typed: type again"
                )
            try:
                self.document.save(over=over)
            except OSError as error:
                raise Refused(HTTPStatus.CONFLICT, f"not saved: {error.strerror or error}") from None
        return self.state()

    def state(self, _: Asked | None = None) -> State:
        """What the page shows besides the text."""
        with self._lock:
            for answer in self._planner.answers():
                if answer.cost is not None:
                    self._costs[answer.cost[0]] = answer.cost[1]
                    self._answer = replace(self._answer, last=True)
                    continue
                self._answer = answer
                self._margins = answer.margins or self._margins
                if answer.page:
                    self._page, self._version = answer.page, self._version + 1
            return {
                "busy": not self._answer.last,
                "read": self._answer.last or bool(self._answer.margins),
                "run": None if self._run is None else asdict(self._run.status),
                "problems": [asdict(problem) for problem in self._answer.problems],
                "plan": self._version,
                "margins": self._margins,
                "costs": self._costs,
                "version": self._edits,
                "undo": self.document.can_undo,
                "redo": self.document.can_redo,
                "unsaved": self.document.unsaved,
                "changed": self.document.changed,
            }

    def text(self, _: Asked) -> str:
        """The text, and which it is."""
        with self._lock:
            return json.dumps({"text": self.document.text, "version": self._edits})


def _text(sent: Sent, key: str) -> str:
    found = sent.get(key)
    if not isinstance(found, str):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{key} is wanted, as text")
    return found


def _names() -> Iterator[str]:
    """Names for a release."""
    yield "release"
    for number in count(2):
        yield f"release-{number}"


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tabulae.studio"), autoescape=True, undefined=jinja2.StrictUndefined
    )


def _file(name: str) -> str:
    return _templates().get_template(name).render()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    studio: Studio


class _Handler(BaseHTTPRequestHandler):
    """One request: checked, then answered."""

    timeout = 10
    server: _Server
    server_version, sys_version = "tabulae", ""
    _pages: ClassVar[Mapping[str, tuple[str, str, Callable[[Studio, Asked], str]]]] = {
        "/": (_HTML, _POLICY, Studio.page),
        "/form": (_HTML, _POLICY, Studio.form),
        "/plan": (_HTML, _FRAMED, Studio.plan),
        "/report": (_HTML, _FRAMED, Studio.report),
        "/read": (_HTML, _READER, Studio.read),
        "/runs": (_HTML, _POLICY, Studio.runs),
        "/state": (_JSON, _POLICY, lambda studio, _: json.dumps(studio.state())),
        "/text": (_JSON, _POLICY, Studio.text),
        "/studio.js": ("text/javascript; charset=utf-8", _POLICY, lambda *_: _file("studio.js")),
        "/tables.js": ("text/javascript; charset=utf-8", _POLICY, lambda *_: str(script())),
        "/start.js": ("text/javascript; charset=utf-8", _POLICY, lambda *_: _file("start.js")),
        "/studio.css": (
            "text/css; charset=utf-8",
            _POLICY,
            lambda *_: str(script("report.css")) + _file("studio.css"),
        ),
    }
    _actions: ClassVar[Mapping[str, Callable[[Studio, Sent], State]]] = {
        "/edit": Studio.edit,
        "/change": Studio.change,
        "/cost": Studio.cost,
        "/ledger": Studio.create_ledger,
        "/run": Studio.run,
        "/cancel": Studio.cancel,
        "/stop": Studio.stop_run,
        "/start": Studio.start,
        "/undo": Studio.undo,
        "/redo": Studio.redo,
        "/save": Studio.save,
    }

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def log_message(self, *_: Any) -> None:
        """Nothing: the terminal is the user's, and an address carries the token."""

    def _answered(self, answer: Callable[[], None]) -> None:
        try:
            self._check_place()
            answer()
        except Refused as error:
            if self.command == "GET" and urlsplit(self.path).path in _OPENED:
                page = _templates().get_template("refused.html").render(words=str(error))
                self._send(error.status, _HTML, _POLICY, page)
            else:
                self._send(error.status, "text/plain; charset=utf-8", _POLICY, f"{error}\n")

    def _check_place(self) -> None:
        """The name that the server was called by, and the page that asks."""
        studio = self.server.studio
        if self.headers.get_all("Host") != [studio.origin.removeprefix("http://")]:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers to its own address alone")
        origins = self.headers.get_all("Origin", [])
        if any(origin != studio.origin for origin in origins) or (self.command == "POST" and not origins):
            raise Refused(HTTPStatus.FORBIDDEN, "another page may not ask here")

    def _check_cookie(self) -> None:
        studio = self.server.studio
        try:
            sent = SimpleCookie(self.headers.get("Cookie", "")).get(studio.cookie)
        except CookieError:
            sent = None
        if sent is None or not _same(sent.value, studio.token):
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that `tabulae studio` printed")

    def _get(self) -> None:
        studio, asked = self.server.studio, urlsplit(self.path)
        tokens = parse_qs(asked.query).get("token", [])
        if asked.path == "/" and len(tokens) == 1 and _same(tokens[0], studio.token):
            cookie = f"{studio.cookie}={studio.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.SEE_OTHER, _HTML, _POLICY, "", {"Location": "/", "Set-Cookie": cookie})
            return
        self._check_cookie()
        if asked.path not in self._pages:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        kind, policy, content = self._pages[asked.path]
        self._send(
            HTTPStatus.OK, kind, policy, content(studio, parse_qs(asked.query, keep_blank_values=True))
        )

    def _post(self) -> None:
        self._check_cookie()
        sent = self._sent()
        if self.path not in self._actions:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        state = self._actions[self.path](self.server.studio, sent)
        self._send(HTTPStatus.OK, _JSON, _POLICY, json.dumps(state))

    def _sent(self) -> dict[str, Any]:
        """The JSON object that was sent, if it is not too large."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a request says how long it is")
        if len(length) > len(str(_LARGEST)) or int(length) > _LARGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a spec has {_LARGEST} bytes at most here")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is JSON")
        try:
            sent = json.loads(self.rfile.read(int(length)))
            json.dumps(sent, ensure_ascii=False).encode()  # half a character cannot be saved
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is not JSON") from None
        if not isinstance(sent, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is not an object of JSON")
        return sent

    def _send(
        self, status: HTTPStatus, kind: str, policy: str, content: str, more: dict[str, str] | None = None
    ) -> None:
        body = content.encode()
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            **(more or {}),
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _same(given: str, token: str) -> bool:
    """Compared in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
